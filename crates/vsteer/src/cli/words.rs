//! Parsers for values on the command line: numbers with units and names.

pub use vsteer_core::span::duration;

pub fn microseconds(text: &str) -> Result<f64, String> {
    let us = text.trim().parse::<f64>().ok().filter(|us| us.is_finite() && *us >= 0.0);
    us.ok_or_else(|| format!("{text:?} is not a number of microseconds, 0 or more"))
}

/// `ready_group=8%`, `wake_p99_ns=3ms`: a threshold's name, and its value as a share or in ns.
pub fn named_threshold(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=VALUE"))?;
    if value.trim().ends_with('s') {
        return Ok((name.trim().to_owned(), duration(value.trim())?.as_nanos() as f64));
    }
    let number = value.trim().trim_end_matches('%').trim().parse::<f64>();
    let percent =
        number.ok().filter(|p| p.is_finite()).ok_or_else(|| format!("{value:?} is not a percentage"))?;
    Ok((name.trim().to_owned(), percent / 100.0))
}

/// `NAME=NUMBER`, above 0.
pub fn named_number(text: &str) -> Result<(String, f64), String> {
    let (name, number) = text.split_once('=').ok_or_else(|| format!("{text:?} is not VM=NUMBER"))?;
    let number: f64 = number.parse().map_err(|_| format!("{number:?} is not a number"))?;
    if !(number.is_finite() && number > 0.0) {
        return Err(format!("{number} is not greater than 0"));
    }
    Ok((name.to_owned(), number))
}

/// `2G`, `500M`, `64k`; binary multiples.
pub fn bytes(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit.to_ascii_uppercase().trim_end_matches("IB").trim_end_matches('B') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("unknown unit {unit:?}: use K, M, G or T")),
    };
    let n: u64 = number.parse().map_err(|_| format!("{number:?} is not a whole number (such as 2G)"))?;
    n.checked_shl(shift).filter(|b| *b >= 1 << 20).ok_or_else(|| "must be at least 1M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(bytes("2G").unwrap(), 2 << 30);
        assert!(bytes("3x").is_err() && bytes("10").is_err());
    }
}
