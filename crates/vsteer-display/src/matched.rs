//! Finds the coarsest quantizer with which each codec shows the same picture equally well.
//!
//! Frames per second at arbitrary settings compare the settings, not the codecs. So each codec with a
//! quantizer gets the coarsest one at which some frames of the picture still have the requested structural
//! similarity (Wang et al., IEEE Trans. Image Process. 13(4), 2004). A bisection before the run finds it. It
//! works because similarity falls as quantizers grow, apart from noise in its third digit. The distance
//! between frames is the one that the codec reaches on this machine. A slow codec gets fewer frames, which
//! differ more; that changes similarity by a few hundredths. A codec without loss, or without a choice of
//! quality, keeps its settings.
//!
//! Left out: matching by legibility (it falls from all to nothing within a step or two); presets, which trade
//! CPU for bytes at one quality.

use crate::codec::{Codec, Held};
use crate::cpu::now_ns;
use crate::picture::Picture;
use crate::quality::score::{Luma, ssim};
use std::sync::atomic::{AtomicBool, Ordering};
use vsteer_core::stats::mean;
use vsteer_core::{Fault, FaultKind};

/// Frames sent for each try. The first ones, which need no others, are better than the following ones.
const FRAMES: u32 = 16;
/// Frames used to measure how long one takes, with a medium quantizer, at the same distance; the first ones
/// are left out.
const TIMED: u32 = 8;
const TIMED_FROM: u32 = 2;
const TIMED_EVERY: u32 = 3;
const SCORED: [u32; 3] = [7, 11, 15];

/// What this codec should hold.
///
/// # Errors
/// Its finest quantizer does not reach the similarity; it was told to stop; the library's.
pub fn held(
    codec: &Codec,
    picture: &Picture,
    fps: u32,
    least: f64,
    stop: &AtomicBool,
) -> Result<Held, Fault> {
    let Some(range) = codec.quantizers() else { return Ok(Held::Quality) };
    let every = every(codec, picture, fps, range.start() + (range.end() - range.start()) / 2, stop)?;
    held_by(codec, picture, fps, least, every, stop)
}

/// The same for every n-th frame of the application.
fn held_by(
    codec: &Codec,
    picture: &Picture,
    fps: u32,
    least: f64,
    every: u32,
    stop: &AtomicBool,
) -> Result<Held, Fault> {
    let Some(range) = codec.quantizers() else { return Ok(Held::Quality) };
    let mut fits = |q: i32| {
        let similar = similarity(codec, picture, fps, q, every, stop)?;
        eprintln!("vsteer-display: {} with quantizer {q}: similarity {similar:.3}", codec.name);
        Ok::<bool, Fault>(similar >= least)
    };
    let q = coarsest(*range.start(), *range.end(), &mut fits)?;
    q.map(Held::Quantizer).ok_or_else(|| {
        Fault::new(FaultKind::Unsupported, format!("{} at a similarity of {least}", codec.name))
            .because("its finest quantizer does not get there on this picture")
            .help("a smaller --match-ssim")
    })
}

/// The largest value that fits, if the values that fit come first; `None` if the first does not fit.
fn coarsest(
    low: i32,
    high: i32,
    fits: &mut impl FnMut(i32) -> Result<bool, Fault>,
) -> Result<Option<i32>, Fault> {
    let (mut low, mut high) = (low - 1, high + 1);
    let first = low;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle)? { low = middle } else { high = middle }
    }
    Ok((low > first).then_some(low))
}

fn interrupted(codec: &Codec, stop: &AtomicBool) -> Result<(), Fault> {
    if stop.load(Ordering::Relaxed) {
        return Err(Fault::new(FaultKind::Interrupted, format!("matching {}: interrupted", codec.name)));
    }
    Ok(())
}

/// How many of the application's frames pass per frame of the codec, from the server's time per frame. At
/// most one second of frames.
fn every(
    codec: &Codec,
    picture: &Picture,
    fps: u32,
    quantizer: i32,
    stop: &AtomicBool,
) -> Result<u32, Fault> {
    let size = picture.size();
    let mut encoder = codec.encoder(size, fps, Held::Quantizer(quantizer))?;
    let mut shown = vec![0; size.bytes()];
    let mut took_ns = 0;
    for frame in 0..TIMED {
        interrupted(codec, stop)?;
        picture.draw(TIMED_EVERY * frame, &mut shown, 1);
        let begun = now_ns();
        encoder.convert(&shown)?;
        encoder.encode(&mut Vec::new())?;
        if frame >= TIMED_FROM {
            took_ns += now_ns() - begun;
        }
    }
    let of_source = took_ns * u64::from(fps) / u64::from(TIMED - TIMED_FROM);
    Ok(of_source.div_ceil(1_000_000_000).clamp(1, fps.into()) as u32)
}

/// The mean similarity of some frames sent by this codec with this quantizer.
fn similarity(
    codec: &Codec,
    picture: &Picture,
    fps: u32,
    quantizer: i32,
    every: u32,
    stop: &AtomicBool,
) -> Result<f64, Fault> {
    let size = picture.size();
    let mut encoder = codec.encoder(size, fps, Held::Quantizer(quantizer))?;
    let mut decoder = codec.decoder(size)?;
    let [mut shown, mut came] = [vec![0; size.bytes()], vec![0; size.bytes()]];
    let mut all = Vec::new();
    for frame in 0..FRAMES {
        interrupted(codec, stop)?;
        picture.draw(every * frame, &mut shown, 1);
        let mut bytes = Vec::new();
        encoder.convert(&shown)?;
        encoder.encode(&mut bytes)?;
        if decoder.decode(&bytes)? && SCORED.contains(&frame) {
            decoder.present(&mut came)?;
            all.extend(ssim(&Luma::of(&shown, size.width), &Luma::of(&came, size.width)));
        }
    }
    mean(&all).ok_or_else(|| Fault::new(FaultKind::Failed, format!("{}: no frame came", codec.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;
    use crate::picture::Kind;
    use crate::picture::canvas::Size;

    #[test]
    fn the_largest_that_fits_is_found() {
        for edge in 0..=12 {
            let found = coarsest(1, 10, &mut |q| Ok(q <= edge)).unwrap();
            assert_eq!(found, (edge > 0).then_some(edge.min(10)));
        }
    }

    #[test]
    fn codecs_are_as_good_as_was_asked_for_and_no_better() {
        let size = Size { width: 640, height: 360 };
        let picture = Picture::new(Kind::Targets, size, 100, 3).unwrap();
        let on = AtomicBool::new(false);
        for name in ["jpeg", "h264", "vp9"] {
            let codec = codec::find(name).unwrap();
            let Held::Quantizer(q) = held_by(codec, &picture, 30, 0.9, 3, &on).unwrap() else {
                panic!("{name}")
            };
            let at = |q| similarity(codec, &picture, 30, q, 3, &on).unwrap();
            assert!(at(q) >= 0.9, "{name}: {} at {q}", at(q));
            assert!(q == *codec.quantizers().unwrap().end() || at(q + 1) < 0.9, "{name} at {q}");
        }
        for name in ["tiles", "h264-lossless"] {
            assert_eq!(held(codec::find(name).unwrap(), &picture, 30, 0.9, &on).unwrap(), Held::Quality);
        }
        let told = held(codec::find("jpeg").unwrap(), &picture, 30, 0.9, &AtomicBool::new(true));
        assert_eq!(told.unwrap_err().kind, FaultKind::Interrupted);
    }
}
