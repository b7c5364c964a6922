//! Makes the result row of a run from the recorded times. Kept frames are scored against the same frames,
//! drawn again.
//!
//! Left out: VMAF, which another program computes (vmaf.rs).

use crate::path::{Conditions, Outcome, Passed};
use crate::picture::{Kind, Picture};
use crate::quality::frames::Frames;
use crate::quality::row::{Cpu, Row, Stages};
use crate::quality::score::{self, LEGIBLE_LEAST, Luma, Mark};
use vsteer_core::stats;

/// How many letters and symbols of a frame are examined, spread evenly over all.
const MARKS_MOST: usize = 1500;

/// The run.
pub struct Of<'a> {
    pub under: Conditions<'a>,
    /// The picture on the screen.
    pub kind: Kind,
    /// The number of targets, if the picture has targets.
    pub targets: u32,
    /// The name of the codec or server.
    pub name: &'a str,
    /// The encoder or server program.
    pub encoder: String,
    /// The rate that it should hold.
    pub codec_bit_s: Option<u64>,
    /// VMAF of the kept frames, if requested.
    pub vmaf: Option<f64>,
    /// The quantizer that was set.
    pub quantizer: Option<i32>,
    /// Additional notes.
    pub notes: Vec<String>,
}

/// The frames of an outcome in its window.
struct Window<'a>(&'a Outcome);

impl<'a> Window<'a> {
    fn length_s(&self) -> f64 {
        (self.0.until_ns - self.0.from_ns) as f64 / 1e9
    }

    fn has(&self, t: u64) -> bool {
        (self.0.from_ns..=self.0.until_ns).contains(&t)
    }

    /// Frames that passed this stage in the window.
    fn frames(&self, at: fn(&Passed) -> u64) -> Vec<&'a Passed> {
        self.0.frames.values().filter(|p| self.has(at(p))).collect()
    }

    /// The times at which frames passed this stage.
    fn times(&self, at: fn(&Passed) -> u64) -> Vec<u64> {
        let mut all: Vec<u64> = self.0.frames.values().map(at).filter(|t| self.has(*t)).collect();
        all.sort_unstable();
        all
    }

    fn seen(&self) -> Frames {
        Frames::of(&self.times(|p| p.presented), self.0.from_ns, self.0.until_ns)
    }
}

/// The row of an outcome.
pub fn of(of: Of, outcome: &Outcome) -> Row {
    let Of { under, kind, targets, name, encoder, codec_bit_s, quantizer, vmaf, notes } = of;
    let foreign = outcome.used.server.is_some();
    let window = Window(outcome);
    let window_s = window.length_s();
    let seen = window.seen();
    // The sending times of another project's server are not known. What it sent has arrived, because a stream
    // loses nothing.
    let sent = (!foreign).then(|| window.times(|p| p.sent).len());
    let presented = window.frames(|p| p.presented);
    let went = if foreign { presented.clone() } else { window.frames(|p| p.sent) };
    let bytes: usize = went.iter().map(|p| p.bytes).sum();
    let scored = Scored::of(under.picture, &outcome.kept);
    let size = under.picture.size();
    Row {
        codec: name.to_owned(),
        encoder,
        negotiated: outcome.negotiated.clone(),
        picture: kind.name().to_owned(),
        targets: (kind == Kind::Targets).then_some(targets),
        width: size.width,
        height: size.height,
        fps: Some(under.fps),
        link_bit_s: under.link.rate_bit_s,
        link_delay_ms: Some(under.link.delay_ms),
        link_queue_bytes: Some(under.link.queue_bytes),
        link_loss_percent: Some(under.link.loss_percent),
        codec_bit_s,
        quantizer,
        from_unix_s: Some(outcome.calendar.unix_s(outcome.from_ns)),
        window_s,
        source_fps: outcome.drawn as f64 / window_s,
        sent_fps: sent.map(|n| n as f64 / window_s),
        received_fps: seen.per_s,
        received_fps_margin: seen.per_s_margin,
        legible_fps: scored.legible().map(|part| part * seen.per_s),
        legible_fps_interval: scored.legible_interval().map(|ends| ends.map(|part| part * seen.per_s)),
        legibility: stats::mean(&scored.legibility),
        legibility_least: scored.legibility.iter().copied().reduce(f64::min),
        samples: outcome.kept.len(),
        exact_frames: Some(scored.errors.iter().filter(|error| **error == 0.0).count()),
        psnr_db: stats::mean(&scored.errors).map(score::psnr_db).filter(|p| p.is_finite()),
        ssim: stats::mean(&scored.ssim),
        vmaf,
        gap_ms: seen.gap_ms,
        stalls: seen.stalls,
        jitter_ms: seen.jitter_ms,
        fluctuation_percent: seen.fluctuation_percent,
        fluctuation_interval: seen.fluctuation_interval,
        latency_ms: latency_ms(&presented),
        stages_ms: if foreign { None } else { stages(&presented) },
        bytes_per_frame: (!went.is_empty()).then(|| bytes as f64 / went.len() as f64),
        mbit_s: outcome.passed.unwrap_or(bytes as u64) as f64 * 8e-6 / window_s,
        cpu: cpu(&window, presented.len()),
        broken: outcome.broken,
        wrong: outcome.wrong,
        why: why(outcome, notes),
        window_offset: outcome.window_offset,
    }
}

/// Median, 95th and 99th percentile, and the largest.
fn latency_ms(presented: &[&Passed]) -> Option<[f64; 4]> {
    let latencies: Vec<f64> = presented.iter().map(|p| (p.presented - p.source) as f64 / 1e6).collect();
    let quantile = |q| stats::quantile(&latencies, q);
    Some([quantile(0.5)?, quantile(0.95)?, quantile(0.99)?, quantile(1.0)?])
}

/// CPU times per frame. `presented`: frames presented in the window.
fn cpu(window: &Window, presented: usize) -> Cpu {
    let outcome = window.0;
    let used = &outcome.used;
    let foreign = used.server.is_some();
    let all_sent = outcome.frames.len().max(1) as f64;
    let all_seen = outcome.frames.values().filter(|p| p.presented > 0).count().max(1) as f64;
    // For another project's server and its viewer, CPU time covers only the window.
    let ms = |ns: u64, n: f64| ns as f64 / 1e6 / n;
    let per_seen = |ns| (presented > 0).then(|| ms(ns, presented as f64));
    // The number of drawn frames is known for the window, so this scales it to the whole run.
    let all_drawn = outcome.drawn as f64 * used.lasted as f64 / 1e9 / window.length_s();
    Cpu {
        draw_ms: ms(used.draw, all_drawn.max(1.0)),
        server_ms: match used.server {
            Some(ns) => per_seen(ns),
            None => Some(ms(used.convert + used.encode + used.send + used.codec_threads, all_sent)),
        },
        encode_ms: (!foreign).then(|| ms(used.encode + used.codec_threads, all_sent)),
        viewer_ms: if foreign {
            per_seen(used.decode)
        } else {
            Some(ms(used.receive + used.decode + used.present, all_seen))
        },
        harness_percent: 100.0 * used.harness as f64 / used.lasted as f64,
    }
}

fn why(outcome: &Outcome, notes: Vec<String>) -> Option<String> {
    let broken = outcome.why_broken.as_ref().map(ToString::to_string);
    broken.into_iter().chain(notes).reduce(|all, note| format!("{all}; {note}"))
}

fn stages(presented: &[&Passed]) -> Option<Stages> {
    let mean = |from: fn(&Passed) -> u64, until: fn(&Passed) -> u64| {
        let all: Vec<f64> = presented.iter().map(|p| until(p).saturating_sub(from(p)) as f64 / 1e6).collect();
        stats::mean(&all)
    };
    Some(Stages {
        capture: mean(|p| p.source, |p| p.captured)?,
        convert: mean(|p| p.captured, |p| p.converted)?,
        encode: mean(|p| p.converted, |p| p.encoded)?,
        link: mean(|p| p.encoded, |p| p.received)?,
        decode: mean(|p| p.received, |p| p.decoded)?,
        present: mean(|p| p.decoded, |p| p.presented)?,
    })
}

/// The scores of the kept frames.
#[derive(Default)]
struct Scored {
    /// Legible frames, among those whose sources have readable parts.
    legible: usize,
    legibility: Vec<f64>,
    /// Mean squared errors.
    errors: Vec<f64>,
    ssim: Vec<f64>,
}

impl Scored {
    fn of(picture: &Picture, kept: &[(u32, Vec<u8>)]) -> Scored {
        let size = picture.size();
        let mut scored = Scored::default();
        let mut source = vec![0; size.bytes()];
        for (frame, came) in kept {
            picture.draw(*frame, &mut source, 1);
            scored.errors.push(score::mean_squared_error(&source, came));
            let (shown, seen) = (Luma::of(&source, size.width), Luma::of(came, size.width));
            scored.ssim.extend(score::ssim(&shown, &seen));
            let marks = picture.marks(*frame);
            let (mut at_source, mut at_viewer) = (Vec::new(), Vec::new());
            for (all, alphabet) in
                [(&marks.symbols, &picture.glyphs().symbols), (&marks.letters, &picture.glyphs().letters)]
            {
                let some: Vec<Mark> = all.iter().copied().step_by(all.len() / MARKS_MOST + 1).collect();
                at_source.extend(score::recovered(&shown, &some, alphabet));
                at_viewer.extend(score::recovered(&seen, &some, alphabet));
            }
            if let Some(part) = score::legibility(&at_source, &at_viewer) {
                scored.legible += usize::from(part >= LEGIBLE_LEAST);
                scored.legibility.push(part);
            }
        }
        scored
    }

    /// The share of legible frames; `None` if no source has readable parts.
    fn legible(&self) -> Option<f64> {
        let n = self.legibility.len();
        (n > 0).then(|| self.legible as f64 / n as f64)
    }

    /// Its 95 % interval.
    fn legible_interval(&self) -> Option<[f64; 2]> {
        let n = self.legibility.len();
        (n > 0).then(|| stats::wilson(self.legible, n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::canvas::Size;

    #[test]
    fn one_frame_without_loss_does_not_hide_the_others_errors() {
        let size = Size { width: 352, height: 200 };
        let picture = Picture::new(Kind::Targets, size, 20, 1).unwrap();
        let frame = |n: u32| {
            let mut pixels = vec![0; size.bytes()];
            picture.draw(n, &mut pixels, 1);
            (n, pixels)
        };
        let exact = Scored::of(&picture, &[frame(3), frame(9)]);
        assert_eq!((&exact.errors[..], exact.legible()), (&[0.0, 0.0][..], Some(1.0)));
        // Two legible frames do not prove that all are legible.
        assert!(exact.legible_interval().unwrap()[0] < 0.4);
        let mut other = frame(9);
        other.1.iter_mut().for_each(|byte| *byte ^= 16);
        let some = Scored::of(&picture, &[frame(3), other]);
        let psnr = stats::mean(&some.errors).map(score::psnr_db).unwrap();
        // Half of 16 squared.
        assert!((psnr - 27.06).abs() < 0.01, "{psnr}");
    }
}
