//! Prints rows and advice as tables for people.

use crate::quality::advise::{Advice, Bound, Judged, Wanted};
use crate::quality::row::Row;
use std::fmt::Write;

/// The rows, with lines that explain the columns.
pub fn of(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<17} {:>8} {:>7} {:>12} {:>15} {:>6} {:>6} {:>13} {:>8} {:>7} {:>8} {:>8} {:>7} {:>6}\n",
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
    let between = |value: Option<f64>, interval: Option<[f64; 2]>| {
        let interval = interval.map_or(String::new(), |[low, high]| format!(" ({low:.0}-{high:.0})"));
        shown(value, 1) + &interval
    };
    for row in rows {
        let picture = row.targets.map_or_else(|| row.picture.clone(), |n| n.to_string());
        let margin = row.received_fps_margin.map_or(String::new(), |margin| format!(" ±{margin:.1}"));
        let _ = writeln!(
            text,
            "{:<17} {:>8} {:>7.1} {:>12} {:>15} {:>6} {:>6} {:>13} {:>8} {:>7} {:>8} {:>8.1} {:>7} {:>6}",
            named(&row.codec, row.quantizer, None),
            picture,
            row.source_fps,
            format!("{:.1}{margin}", row.received_fps),
            between(row.legible_fps, row.legible_fps_interval),
            row.legibility.map_or("-".to_owned(), |l| format!("{:.0} %", 100.0 * l)),
            shown(row.ssim, 3),
            between(row.fluctuation_percent, row.fluctuation_interval),
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
            gap, latency (median): ms; server (all of it, not encoding alone), view: ms of a CPU per frame; ± and in brackets: 95 % intervals\n"
}

/// A codec and its settings.
fn named(codec: &str, quantizer: Option<i32>, bit_s: Option<u64>) -> String {
    let quantizer = quantizer.map_or(String::new(), |q| format!(" q{q}"));
    let rate = bit_s.map_or(String::new(), |bits| format!(" at {} Mbit/s", bits as f64 / 1e6));
    format!("{codec}{quantizer}{rate}")
}

/// What to take, why, and what limits the others.
pub fn advice(all: &[Advice], wanted: Wanted) -> String {
    let mut text = String::new();
    let name = |judged: &Judged| named(&judged.codec, judged.quantizer, judged.codec_bit_s);
    for advice in all {
        let picture = advice.targets.map_or_else(|| advice.picture.clone(), |n| format!("{n} targets"));
        let drawn = advice.fps.map_or(String::new(), |fps| format!(" at {fps} frames per second"));
        let [width, height] = advice.size;
        let taken = advice.all.first().filter(|judged| judged.does).map_or_else(
            || {
                format!(
                    "none will do for {} legible frames per second at {} % of a CPU",
                    wanted.fps, wanted.cpu_percent
                )
            },
            |judged| format!("take {}", name(judged)),
        );
        let _ = writeln!(text, "{picture} of {width}x{height}{drawn} over {}: {taken}", link(advice));
        for (i, judged) in advice.all.iter().enumerate() {
            let _ = writeln!(
                text,
                "  {:<24} {:>6.1} legible/s {:>6.0} % CPU {:>7.1} Mbit/s   {}",
                name(judged),
                judged.legible_fps,
                judged.cpu_percent,
                judged.mbit_s,
                why(judged, i == 0, wanted)
            );
        }
    }
    text
}

fn link(advice: &Advice) -> String {
    let rate = advice
        .link_bit_s
        .map_or("a link without bound".to_owned(), |bits| format!("{} Mbit/s", bits as f64 / 1e6));
    let some = |value: Option<f64>| value.filter(|v| *v > 0.0);
    let delay = some(advice.link_delay_ms).map_or(String::new(), |ms| format!(", {ms} ms each way"));
    let loss = some(advice.link_loss_percent).map_or(String::new(), |percent| format!(", {percent} % lost"));
    // A queue exists only with a rate.
    let queue = advice
        .link_queue_bytes
        .filter(|_| advice.link_bit_s.is_some())
        .map_or(String::new(), |bytes| format!(", a queue of {} kB", bytes >> 10));
    format!("{rate}{delay}{loss}{queue}")
}

fn why(judged: &Judged, first: bool, wanted: Wanted) -> String {
    let Wanted { fps, cpu_percent } = wanted;
    let will_do = || {
        let of_cpu = format!("{fps} frames per second take {:.0} % of a CPU", judged.needs_percent);
        if judged.affords_fps < judged.legible_fps {
            format!("{of_cpu}, {cpu_percent} % afford {:.1}", judged.affords_fps)
        } else {
            of_cpu
        }
    };
    match judged.bound_by {
        Bound::Nothing if first => {
            format!("taken: legible most, or as much for the least CPU; {}", will_do())
        }
        Bound::Nothing => format!("will do; {}", will_do()),
        Bound::Legibility => judged.legibility.map_or("nothing came".to_owned(), |read| {
            format!("cannot be read ({:.0} % of the letters): more bits, not more frames", 100.0 * read)
        }),
        Bound::Cpu => format!("{fps} frames per second take {:.0} % of a CPU", judged.needs_percent),
        Bound::Link => {
            format!("{fps} frames per second take {:.1} Mbit/s", judged.needs_mbit_s.unwrap_or(f64::NAN))
        }
        Bound::Other => "held up elsewhere: by its viewer, or by a machine that was busy".to_owned(),
    }
}
