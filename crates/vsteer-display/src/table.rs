//! How do people read rows and advice? As tables.

use std::fmt::Write;
use vsteer_core::display::advise::{Advice, Bound, Judged, Wanted};
use vsteer_core::display::row::Row;

/// The rows, with a line that says what columns mean.
pub fn of(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<17} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6} {:>8} {:>7} {:>8} {:>8} {:>7} {:>6}\n",
        "codec",
        "picture",
        "source",
        "received",
        "legible",
        "read",
        "SSIM",
        "fluct",
        "gap p99",
        "stalls",
        "latency",
        "Mbit/s",
        "server",
        "view"
    );
    let shown = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |v| format!("{v:.digits$}"));
    for row in rows {
        let picture = row.targets.map_or_else(|| row.picture.clone(), |n| n.to_string());
        let _ = writeln!(
            text,
            "{:<17} {:>8} {:>8.1} {:>8.1} {:>8} {:>8} {:>6} {:>6} {:>8} {:>7} {:>8} {:>8.1} {:>7} {:>6}",
            row.quantizer.map_or_else(|| row.codec.clone(), |q| format!("{} q{q}", row.codec)),
            picture,
            row.source_fps,
            row.received_fps,
            shown(row.legible_fps, 1),
            row.legibility.map_or("-".to_owned(), |l| format!("{:.0} %", 100.0 * l)),
            shown(row.ssim, 3),
            shown(row.fluctuation_percent, 1),
            shown(row.gap_ms.map(|g| g[2]), 1),
            row.stalls,
            shown(row.latency_ms.map(|l| l[0]), 1),
            row.mbit_s,
            shown(row.cpu.server_ms, 2),
            shown(row.cpu.viewer_ms, 2),
        );
        if let Some(negotiated) = &row.negotiated {
            let _ = writeln!(text, "  {}: {negotiated}", row.encoder);
        }
        if let Some(vmaf) = row.vmaf {
            let _ = writeln!(
                text,
                "  VMAF {vmaf:.1} over {} frames, motion left out: by a model of natural video, not of letters",
                row.samples
            );
        }
        match &row.why {
            Some(why) if row.broken > 0 => {
                let _ = writeln!(text, "  {} frames gave no picture: {why}", row.broken);
            }
            Some(why) => {
                let _ = writeln!(text, "  {why}");
            }
            None => {}
        }
    }
    text + "frames per second drawn, received, and of those legible; read: letters and symbols recovered; fluct: of the frames of single seconds, %;\n\
            gap, latency (median): ms; server (all of it, not encoding alone), view: ms of a CPU per frame\n"
}

/// What to take, why, and what binds the others.
pub fn advice(all: &[Advice], wanted: Wanted) -> String {
    let mut text = String::new();
    for advice in all {
        let picture = advice.targets.map_or_else(|| advice.picture.clone(), |n| format!("{n} targets"));
        let link = advice
            .link_bit_s
            .map_or("a link without bound".to_owned(), |bits| format!("{} Mbit/s", bits as f64 / 1e6));
        let [width, height] = advice.size;
        let taken = advice.take.as_ref().map_or_else(
            || {
                format!(
                    "none will do for {} legible frames per second at {} % of a CPU",
                    wanted.fps, wanted.cpu_percent
                )
            },
            |codec| format!("take {codec}"),
        );
        let _ = writeln!(text, "{picture} at {width}x{height} over {link}: {taken}");
        for judged in &advice.all {
            let _ = writeln!(
                text,
                "  {:<17} {:>6.1} legible/s {:>6.0} % CPU {:>7.1} Mbit/s   {}",
                judged.codec,
                judged.legible_fps,
                judged.cpu_percent,
                judged.mbit_s,
                why(judged, advice, wanted)
            );
        }
    }
    text
}

fn why(judged: &Judged, advice: &Advice, wanted: Wanted) -> String {
    match &judged.bound {
        Bound::Nothing if advice.take.as_deref() == Some(&judged.codec) => {
            "taken: legible most, or as much for the least CPU".to_owned()
        }
        Bound::Nothing => "will do".to_owned(),
        Bound::Legibility { read: None } => "nothing came".to_owned(),
        Bound::Legibility { read: Some(read) } => {
            format!("cannot be read ({:.0} % of the letters): more bits, not more frames", 100.0 * read)
        }
        Bound::Cpu { needs_percent } => {
            format!("{} frames per second take {needs_percent:.0} % of a CPU", wanted.fps)
        }
        Bound::Link { needs_mbit_s } => {
            format!("{} frames per second take {needs_mbit_s:.1} Mbit/s", wanted.fps)
        }
        Bound::Other => "held up elsewhere: by its viewer, or by a machine that was busy".to_owned(),
    }
}
