//! Which codings and media types does a client accept?

pub(super) fn accepts_gzip(header: &str) -> bool {
    header.split(',').any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        parts.next() == Some("gzip") && !parts.any(|p| matches!(p, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

/// How much a client likes a media type that it names itself, from 0 to 1; 0 also if it names only groups such as `*/*`.
pub(super) fn preference(accept: &str, media_type: &str) -> f64 {
    let of = |item: &str| {
        let mut parts = item.split(';').map(str::trim);
        parts.next().filter(|name| name.eq_ignore_ascii_case(media_type))?;
        let q = parts.find_map(|p| p.strip_prefix("q=").or_else(|| p.strip_prefix("Q=")));
        Some(q.map_or(1.0, |q| q.trim().parse::<f64>().unwrap_or(0.0)).clamp(0.0, 1.0))
    };
    accept.split(',').filter_map(of).fold(0.0, f64::max)
}
