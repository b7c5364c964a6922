//! The shapes of letters and symbols: strokes on a grid, drawn once with soft edges, as templates for both
//! the pictures and the score.
//!
//! The project has its own typeface of capitals and digits, plain and of fixed width, as on instruments. So
//! no system font influences what can be read. A letter is a cell of 7x10 pixels, about 10 point on a screen
//! of 96 dots per inch. A symbol is a cell of 11x11.
//!
//! Left out: small letters, positions between pixels.

use crate::quality::score::Template;

/// Size of a letter's cell, pixels.
pub const LETTER: (usize, usize) = (7, 10);
/// Size of a symbol's cell, pixels.
pub const SYMBOL: (usize, usize) = (11, 11);
/// Half the width of a stroke, pixels.
const RADIUS: f32 = 0.6;

/// Strokes of each letter on a grid of 4x6 with its origin at the top left. A point is two digits (column, row); a comma
/// starts a new stroke.
const LETTERS: [(char, &str); 37] = [
    ('0', "10 30 41 45 36 16 05 01 10,32 14"),
    ('1', "11 20 26,16 36"),
    ('2', "01 10 30 41 42 06 46"),
    ('3', "00 40 22 32 43 45 36 16 05"),
    ('4', "36 30 04 44"),
    ('5', "40 00 02 32 43 45 36 06"),
    ('6', "40 20 02 05 16 36 45 44 33 03"),
    ('7', "00 40 16"),
    ('8', "10 30 41 42 33 13 02 01 10,13 04 05 16 36 45 44 33"),
    ('9', "06 26 44 41 30 10 01 02 13 43"),
    ('A', "06 20 46,14 34"),
    ('B', "00 06 36 45 44 33 03,33 42 41 30 00"),
    ('C', "41 30 10 01 05 16 36 45"),
    ('D', "00 06 26 44 42 20 00"),
    ('E', "40 00 06 46,03 33"),
    ('F', "40 00 06,03 33"),
    ('G', "41 30 10 01 05 16 36 45 43 23"),
    ('H', "00 06,40 46,03 43"),
    ('I', "10 30,20 26,16 36"),
    ('J', "20 40,30 35 26 16 05"),
    ('K', "00 06,40 03 46"),
    ('L', "00 06 46"),
    ('M', "06 00 23 40 46"),
    ('N', "06 00 46 40"),
    ('O', "10 30 41 45 36 16 05 01 10"),
    ('P', "06 00 30 41 42 33 03"),
    ('Q', "10 30 41 45 36 16 05 01 10,24 46"),
    ('R', "06 00 30 41 42 33 03,23 46"),
    ('S', "41 30 10 01 02 13 33 44 45 36 16 05"),
    ('T', "00 40,20 26"),
    ('U', "00 05 16 36 45 40"),
    ('V', "00 26 40"),
    ('W', "00 16 22 36 40"),
    ('X', "00 46,40 06"),
    ('Y', "00 23 40,23 26"),
    ('Z', "00 40 06 46"),
    ('-', "03 43"),
];
/// The same for symbols, on a grid of 8x8.
const SYMBOLS: [&str; 8] = [
    "40 70 84 78 48 18 04 10 40",
    "00 80 88 08 00",
    "40 84 48 04 40",
    "40 88 08 40",
    "00 80 48 00",
    "40 48,04 84",
    "00 88,80 08",
    "08 04 20 60 84 88",
];

/// The letters, in the order of `letter`.
pub fn letters() -> Vec<Template> {
    LETTERS.iter().map(|(_, lines)| drawn(lines, LETTER, [4, 6])).collect()
}

pub fn symbols() -> Vec<Template> {
    SYMBOLS.iter().map(|lines| drawn(lines, SYMBOL, [8, 8])).collect()
}

/// A letter's index in the alphabet; `None` for a blank and for characters without a shape.
pub fn letter(c: char) -> Option<usize> {
    LETTERS.iter().position(|(l, _)| *l == c)
}

/// How many symbols there are.
pub const fn symbol_count() -> usize {
    SYMBOLS.len()
}

fn drawn(lines: &str, (width, height): (usize, usize), grid: [usize; 2]) -> Template {
    let point = |text: &str| -> [f32; 2] {
        let digits: Vec<f32> = text.bytes().map(|b| f32::from(b - b'0')).collect();
        let scale = |i: usize, size: usize| 1.0 + digits[i] * (size - 3) as f32 / grid[i] as f32;
        [scale(0, width), scale(1, height)]
    };
    let strokes: Vec<[[f32; 2]; 2]> = lines
        .split(',')
        .flat_map(|line| {
            let points: Vec<_> = line.split(' ').map(point).collect();
            points.windows(2).map(|w| [w[0], w[1]]).collect::<Vec<_>>()
        })
        .collect();
    let coverage = |x: usize, y: usize| {
        let nearest =
            strokes.iter().map(|s| distance([x as f32, y as f32], *s)).fold(f32::INFINITY, f32::min);
        ((RADIUS + 0.5 - nearest).clamp(0.0, 1.0) * 255.0).round() as u8
    };
    Template {
        width,
        coverage: (0..height)
            .flat_map(|y| (0..width).map(move |x| (x, y)))
            .map(|(x, y)| coverage(x, y))
            .collect(),
    }
}

/// The distance from a point to the line between two points.
fn distance(p: [f32; 2], [a, b]: [[f32; 2]; 2]) -> f32 {
    let (dx, dy) = (b[0] - a[0], b[1] - a[1]);
    let along = ((p[0] - a[0]) * dx + (p[1] - a[1]) * dy) / (dx * dx + dy * dy).max(f32::MIN_POSITIVE);
    let t = along.clamp(0.0, 1.0);
    ((p[0] - a[0] - t * dx).powi(2) + (p[1] - a[1] - t * dy).powi(2)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quality::score::{Luma, Mark, recovered};

    /// Each can be distinguished from all others, on bright and on dark backgrounds.
    #[test]
    fn every_letter_and_symbol_can_be_told() {
        for (alphabet, (width, height)) in [(letters(), LETTER), (symbols(), SYMBOL)] {
            for (which, template) in alphabet.iter().enumerate() {
                let pixels: Vec<u8> = template.coverage.iter().flat_map(|c| [50 + c / 2; 4]).collect();
                let frame = Luma::of(&pixels, width);
                assert_eq!(pixels.len(), width * height * 4);
                assert_eq!(recovered(&frame, &[Mark { x: 0, y: 0, which }], &alphabet), [true], "{which}");
            }
        }
    }
}
