//! How do people read rows? As a table.

use crate::row::Row;
use std::fmt::Write;

/// The rows, with a line that says what columns mean.
pub fn of(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<14} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6} {:>8} {:>7} {:>8} {:>8} {:>7} {:>6}\n",
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
        "encode",
        "view"
    );
    let shown = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |v| format!("{v:.digits$}"));
    for row in rows {
        let picture = row.targets.map_or(format!("{:?}", row.picture).to_lowercase(), |n| n.to_string());
        let _ = writeln!(
            text,
            "{:<14} {:>8} {:>8.1} {:>8.1} {:>8} {:>8} {:>6} {:>6} {:>8} {:>7} {:>8} {:>8.1} {:>7.2} {:>6.2}",
            row.codec,
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
            row.cpu.encode_ms,
            row.cpu.viewer_ms,
        );
        if let Some(why) = &row.why {
            let _ = writeln!(text, "  {} frames gave no picture: {why}", row.broken);
        }
    }
    text + "frames per second drawn, received, and of those legible; read: letters and symbols recovered; fluct: of the frames of single seconds, %;\n\
            gap, latency (median): ms; encode, view: ms of a CPU per frame\n"
}
