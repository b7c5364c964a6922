//! Measures how much of a received frame can still be read, and how close it is to the source.
//!
//! *Legible* means that the source's symbols and letters can be distinguished. Each is compared with every
//! template of its alphabet by normalised cross-correlation. It is recovered if the right template fits best,
//! and fits well enough. The source's own frame is tested first: what is covered by others there cannot be
//! read and does not count. A frame is legible if [`LEGIBLE_LEAST`] of the rest is recovered. Errors that the
//! eye tolerates (a dull colour, a blurred map) change nothing. An error that turns an 8 into a 3 counts,
//! which neither PSNR nor SSIM shows.
//!
//! Sources: J. P. Lewis, "Fast template matching", Vision Interface 1995 (normalised cross-correlation); Z.
//! Wang et al., IEEE Trans. Image Processing 13(4), 2004 (SSIM; here over 8x8 windows four pixels apart with
//! equal weights, as encoders measure it, not an 11x11 Gaussian); ITU-R BT.601 (luma). Left out: colour in
//! legibility; rotated or scaled templates.

use vsteer_core::stats;

/// The part of what is readable in the source that must be recovered: one letter in ten may be guessed from
/// its word.
pub const LEGIBLE_LEAST: f64 = 0.9;
/// In pure noise, a template sometimes fits with 0.3 at the right place; a template blurred by half fits with
/// 0.7.
const FITS: f64 = 0.5;
/// SSIM's constants for 8 bits: (0.01 * 255)^2 and (0.03 * 255)^2.
const C1: f64 = 6.5025;
const C2: f64 = 58.5225;
const WINDOW: usize = 8;
const STEP: usize = 4;
/// Bytes of a pixel.
const PIXEL: usize = 4;

/// Only the brightness, one byte per pixel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Luma {
    width: usize,
    height: usize,
    bytes: Vec<u8>,
}

impl Luma {
    /// The brightness of a frame of this width, by BT.601 in integers.
    ///
    /// # Panics
    /// If the pixels are not whole rows.
    pub fn of(pixels: &[u8], width: usize) -> Luma {
        assert!(width > 0 && pixels.len().is_multiple_of(PIXEL * width), "whole rows of {width} pixels");
        let bytes = pixels.chunks_exact(PIXEL).map(|p| {
            let [b, g, r] = [p[0], p[1], p[2]].map(u32::from);
            ((29 * b + 150 * g + 77 * r + 128) >> 8) as u8
        });
        Luma { width, height: pixels.len() / PIXEL / width, bytes: bytes.collect() }
    }

    fn at(&self, x: usize, y: usize) -> u8 {
        self.bytes[y * self.width + x]
    }
}

/// The shape of one letter or symbol: how much of each pixel it covers, 0 to 255.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Pixels of a row.
    pub width: usize,
    /// Row after row.
    pub coverage: Vec<u8>,
}

/// The position of a drawn letter or symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Left edge of its template, pixels.
    pub x: usize,
    pub y: usize,
    /// Index of its template in the alphabet.
    pub which: usize,
}

/// Which of the marks are recovered, in their order. A mark partly outside is not recovered.
///
/// # Panics
/// If the alphabet's templates differ in size, or a mark has an invalid index.
pub fn recovered(frame: &Luma, marks: &[Mark], alphabet: &[Template]) -> Vec<bool> {
    let Some(first) = alphabet.first() else { return vec![false; marks.len()] };
    let (width, pixels) = (first.width, first.coverage.len());
    assert!(alphabet.iter().all(|t| t.width == width && t.coverage.len() == pixels), "one size of template");
    // With mean 0 and length 1, so that the product is the correlation.
    let templates: Vec<Vec<f32>> =
        alphabet.iter().map(|t| normalised(t.coverage.iter().map(|c| f32::from(*c)))).collect();
    let height = pixels / width;
    let read = |mark: &Mark| {
        if mark.x + width > frame.width || mark.y + height > frame.height {
            return false;
        }
        let rows = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        let patch = normalised(rows.map(|(x, y)| f32::from(frame.at(mark.x + x, mark.y + y))));
        let fit = |t: &Vec<f32>| -> f32 { t.iter().zip(&patch).map(|(a, b)| a * b).sum() };
        let right = fit(&templates[mark.which]);
        // Dark on bright is equally legible.
        let best = templates.iter().enumerate().filter(|(i, _)| *i != mark.which).map(|(_, t)| fit(t).abs());
        f64::from(right.abs()) >= FITS && best.fold(0.0f32, f32::max) < right.abs()
    };
    marks.iter().map(read).collect()
}

fn normalised(values: impl Iterator<Item = f32>) -> Vec<f32> {
    let mut all: Vec<f32> = values.collect();
    let mean = all.iter().sum::<f32>() / all.len() as f32;
    all.iter_mut().for_each(|v| *v -= mean);
    let length = libm::sqrtf(all.iter().map(|v| v * v).sum());
    // If everything has one colour, nothing is drawn there.
    let scale = if length > 1e-3 { 1.0 / length } else { 0.0 };
    all.iter_mut().for_each(|v| *v *= scale);
    all
}

/// The share of what is readable in the source that is readable in the received frame; `None` if nothing is
/// readable in the source.
pub fn legibility(source: &[bool], came: &[bool]) -> Option<f64> {
    let both = source.iter().zip(came).filter(|(s, _)| **s);
    let (mut there, mut kept) = (0u32, 0u32);
    for (_, came) in both {
        there += 1;
        kept += u32::from(*came);
    }
    (there > 0).then(|| f64::from(kept) / f64::from(there))
}

/// Mean squared error over red, green and blue; 0 for equal frames.
///
/// # Panics
/// The frames differ in size, or are empty.
pub fn mean_squared_error(one: &[u8], other: &[u8]) -> f64 {
    assert!(one.len() == other.len() && !one.is_empty(), "two frames of one size");
    let error: u64 = one
        .chunks_exact(PIXEL)
        .zip(other.chunks_exact(PIXEL))
        .flat_map(|(a, b)| a[..3].iter().zip(&b[..3]))
        .map(|(a, b)| u64::from(a.abs_diff(*b)).pow(2))
        .sum();
    error as f64 / (3 * one.len() / PIXEL) as f64
}

/// Peak signal to noise ratio of a mean squared error, dB; infinite without an error. For several frames use
/// the mean of their errors, because a mean of ratios is infinite if one of them is.
pub fn psnr_db(mean_squared_error: f64) -> f64 {
    if mean_squared_error == 0.0 {
        f64::INFINITY
    } else {
        10.0 * libm::log10(255.0 * 255.0 / mean_squared_error)
    }
}

/// [`psnr_db`] of two frames.
///
/// # Panics
/// The frames differ in size, or are empty.
#[cfg(test)]
pub fn psnr_rgb(one: &[u8], other: &[u8]) -> f64 {
    psnr_db(mean_squared_error(one, other))
}

/// Structural similarity of brightness, -1 to 1; `None` for a frame smaller than a window.
///
/// # Panics
/// The frames differ in size.
pub fn ssim(one: &Luma, other: &Luma) -> Option<f64> {
    assert!(one.width == other.width && one.height == other.height, "two frames of one size");
    let starts = |size: usize| (0..(size + 1).saturating_sub(WINDOW)).step_by(STEP);
    let window = |x0: usize, y0: usize| {
        let (mut sums, mut squares, mut both) = ([0u32; 2], [0u32; 2], 0u32);
        for y in y0..y0 + WINDOW {
            let row = y * one.width + x0;
            for (a, b) in one.bytes[row..row + WINDOW].iter().zip(&other.bytes[row..row + WINDOW]) {
                let [a, b] = [u32::from(*a), u32::from(*b)];
                sums = [sums[0] + a, sums[1] + b];
                squares = [squares[0] + a * a, squares[1] + b * b];
                both += a * b;
            }
        }
        let n = (WINDOW * WINDOW) as f64;
        let [ma, mb] = sums.map(|s| f64::from(s) / n);
        let (va, vb) = (f64::from(squares[0]) / n - ma * ma, f64::from(squares[1]) / n - mb * mb);
        let covariance = f64::from(both) / n - ma * mb;
        ((2.0 * ma * mb + C1) * (2.0 * covariance + C2)) / ((ma * ma + mb * mb + C1) * (va + vb + C2))
    };
    let all: Vec<f64> = starts(one.height)
        .flat_map(|y| starts(one.width).map(move |x| (x, y)))
        .map(|(x, y)| window(x, y))
        .collect();
    stats::mean(&all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(width: usize, height: usize, at: impl Fn(usize, usize) -> u8) -> Vec<u8> {
        (0..height)
            .flat_map(|y| (0..width).map(move |x| (x, y)))
            .flat_map(|(x, y)| [at(x, y); PIXEL])
            .collect()
    }

    #[test]
    fn psnr_of_a_difference_by_hand() {
        let a = frame(8, 8, |_, _| 100);
        let b = frame(8, 8, |_, _| 110);
        // 10 log10(255^2 / 100).
        assert!((psnr_rgb(&a, &b) - 28.130_803).abs() < 1e-5);
        assert!(psnr_rgb(&a, &a).is_infinite());
    }

    #[test]
    fn ssim_of_flat_frames_by_hand() {
        let [a, b] = [100, 110].map(|v| Luma::of(&frame(16, 16, |_, _| v), 16));
        // No variance: (2 * 100 * 110 + C1) / (100^2 + 110^2 + C1).
        assert!((ssim(&a, &b).unwrap() - 22_006.502_5 / 22_106.502_5).abs() < 1e-9);
        assert!((ssim(&a, &a).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(ssim(&Luma::of(&frame(7, 7, |_, _| 0), 7), &Luma::of(&frame(7, 7, |_, _| 0), 7)), None);
    }

    fn alphabet() -> Vec<Template> {
        let template = |rows: [&str; 5]| Template {
            width: 5,
            coverage: rows.concat().bytes().map(|b| if b == b'#' { 255 } else { 0 }).collect(),
        };
        vec![
            template([".###.", "#...#", ".###.", "#...#", ".###."]),
            template(["####.", "....#", ".###.", "....#", "####."]),
            template(["..#..", ".##..", "..#..", "..#..", ".###."]),
        ]
    }

    fn drawn(which: usize, ink: u8, paper: u8) -> Luma {
        let t = alphabet()[which].clone();
        let at = |x: usize, y: usize| {
            let inside = (3..8).contains(&x) && (2..7).contains(&y);
            if inside && t.coverage[(y - 2) * 5 + x - 3] == 255 { ink } else { paper }
        };
        Luma::of(&frame(12, 10, at), 12)
    }

    #[test]
    fn a_letter_is_recovered_where_it_is_the_one_that_fits_best() {
        for which in 0..3 {
            let mark = Mark { x: 3, y: 2, which };
            assert_eq!(recovered(&drawn(which, 250, 20), &[mark], &alphabet()), [true]);
            assert_eq!(recovered(&drawn(which, 20, 250), &[mark], &alphabet()), [true], "dark on bright");
            let another = Mark { which: (which + 1) % 3, ..mark };
            assert_eq!(recovered(&drawn(which, 250, 20), &[another], &alphabet()), [false]);
            assert_eq!(recovered(&drawn(which, 20, 20), &[mark], &alphabet()), [false], "nothing drawn");
            let outside = Mark { x: 9, ..mark };
            assert_eq!(recovered(&drawn(which, 250, 20), &[outside], &alphabet()), [false]);
        }
    }

    #[test]
    fn what_nobody_could_read_in_the_source_does_not_count() {
        assert_eq!(legibility(&[true, true, false, true], &[true, false, true, true]), Some(2.0 / 3.0));
        assert_eq!(legibility(&[false], &[true]), None);
    }
}
