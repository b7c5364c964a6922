//! The picture on the screen: it moves, depends only on a seed, and the position of everything on it is
//! known.
//!
//! ```text
//! targets  N moving targets with symbol, vector and label on a map, as in the paper that targets.rs names          video  a film in a window
//! text     text that scrolls     sheet  a table in which cells change     idle  a desktop on which only the clock changes
//! canvas   the surface for drawing   glyphs letters and symbols           number  the frame's number, for machines
//! ```
//! A frame depends only on picture, size, seed and number. So to score a received frame, vsteer draws it
//! again. Several threads draw it, each a band of rows, as the application in that paper does.
//!
//! Left out: sound, a pointer.

pub mod canvas;
pub mod glyphs;
mod idle;
pub mod number;
mod sheet;
mod targets;
mod text;
mod video;

use crate::cpu;
use crate::quality::score::{Mark, Template};
use canvas::{Band, Colour, PIXEL, Size};
use vsteer_core::{Fault, FaultKind};

/// The kinds of pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Moving targets on a map
    Targets,
    /// Text that scrolls
    Text,
    /// A table in which cells change
    Sheet,
    /// A film in a window
    Video,
    /// A desktop on which only the clock goes
    Idle,
}

impl Kind {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Targets => "targets",
            Kind::Text => "text",
            Kind::Sheet => "sheet",
            Kind::Video => "video",
            Kind::Idle => "idle",
        }
    }
}

/// The positions of symbols and letters in a frame.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Symbols, by index in their alphabet.
    pub symbols: Vec<Mark>,
    /// Letters, by index in their alphabet.
    pub letters: Vec<Mark>,
}

/// Draws one kind of picture.
trait Scene: Send + Sync {
    /// Draws a band of a frame.
    fn draw(&self, frame: u32, band: &mut Band, glyphs: &Glyphs);

    /// The positions of symbols and letters, without those partly outside.
    fn marks(&self, frame: u32) -> Marks;
}

/// The alphabets, drawn once.
pub struct Glyphs {
    /// The symbols' templates.
    pub symbols: Vec<Template>,
    /// The letters' templates.
    pub letters: Vec<Template>,
}

/// A picture.
pub struct Picture {
    size: Size,
    scene: Box<dyn Scene>,
    glyphs: Glyphs,
}

impl Picture {
    /// The picture of this kind, size and seed, with this many targets if it has targets.
    ///
    /// # Errors
    /// A size that is too small for a frame's number or that codecs cannot halve; no target, or more than a
    /// million.
    pub fn new(kind: Kind, size: Size, targets: u32, seed: u64) -> Result<Picture, Fault> {
        let bad = |what: String| Err(Fault::new(FaultKind::BadInput, what));
        let Size { width, height } = size;
        if width < number::WIDTH || height < 64 || width > 16_384 || height > 16_384 {
            return bad(format!(
                "a picture of {width}x{height}: {}x64 to 16384x16384 can be shown",
                number::WIDTH
            ));
        }
        if !width.is_multiple_of(2) || !height.is_multiple_of(2) {
            return bad(format!(
                "a picture of {width}x{height}: codecs that halve colours want even numbers"
            ));
        }
        if kind == Kind::Targets && !(1..=1_000_000).contains(&targets) {
            return bad(format!("{targets} targets: 1 to 1000000 can be shown"));
        }
        let scene: Box<dyn Scene> = match kind {
            Kind::Targets => Box::new(targets::Targets::new(size, targets, seed)),
            Kind::Text => Box::new(text::Text::new(size, seed)),
            Kind::Sheet => Box::new(sheet::Sheet::new(size, seed)),
            Kind::Video => Box::new(video::Video::new(size, seed)),
            Kind::Idle => Box::new(idle::Idle::new(size, seed)),
        };
        Ok(Picture { size, scene, glyphs: Glyphs { symbols: glyphs::symbols(), letters: glyphs::letters() } })
    }

    /// Its size.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Draws a frame with its number, using this many threads. Returns the CPU time of the other threads, ns.
    ///
    /// # Panics
    /// If `pixels` has the wrong size, or there is no thread.
    pub fn draw(&self, frame: u32, pixels: &mut [u8], threads: usize) -> u64 {
        assert!(pixels.len() == self.size.bytes() && threads > 0, "a frame of the picture's size");
        let width = self.size.width;
        let rows = self.size.height.div_ceil(threads);
        let draw = |i: usize, part: &mut [u8]| {
            let mut band = Band::new(part, width, i * rows);
            self.scene.draw(frame, &mut band, &self.glyphs);
            number::draw(frame, &mut band);
        };
        if threads == 1 {
            draw(0, pixels);
            return 0;
        }
        std::thread::scope(|scope| {
            let parts = pixels.chunks_mut(rows * width * PIXEL).enumerate();
            let others: Vec<_> = parts
                .map(|(i, part)| {
                    scope.spawn(move || {
                        draw(i, part);
                        cpu::thread_ns()
                    })
                })
                .collect();
            others.into_iter().map(|thread| thread.join().expect("drawing does not panic")).sum()
        })
    }

    /// The positions in a frame, without those that the number covers.
    pub fn marks(&self, frame: u32) -> Marks {
        let mut marks = self.scene.marks(frame);
        let Size { width, height } = self.size;
        let keep = |all: &mut Vec<Mark>, (w, h): (usize, usize)| {
            all.retain(|m| {
                m.x + w <= width && m.y + h <= height && (m.y >= number::HEIGHT || m.x >= number::WIDTH)
            });
        };
        keep(&mut marks.symbols, glyphs::SYMBOL);
        keep(&mut marks.letters, glyphs::LETTER);
        marks
    }

    /// The alphabets of symbols and letters.
    pub fn glyphs(&self) -> &Glyphs {
        &self.glyphs
    }
}

/// Writes a line of letters.
fn write(band: &mut Band, x: usize, y: usize, text: &str, colour: Colour, glyphs: &Glyphs) {
    letters_of(x, y, text).for_each(|m| band.stamp(m.x as i64, m.y as i64, &glyphs.letters[m.which], colour));
}

/// The positions of its letters.
fn letters_of(x: usize, y: usize, text: &str) -> impl Iterator<Item = Mark> + '_ {
    let mark = move |(i, c)| Some(Mark { x: x + i * glyphs::LETTER.0, y, which: glyphs::letter(c)? });
    text.chars().enumerate().filter_map(mark)
}

/// Pseudorandom numbers, the same on every machine: SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable
/// pseudorandom number generators", OOPSLA 2014).
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The `n`th number of a seed.
pub fn drawn(seed: u64, n: u64) -> u64 {
    mix(mix(seed).wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// A pseudorandom word of this many letters and digits.
fn word(seed: u64, n: u64, length: usize) -> String {
    const ALL: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let mut lot = drawn(seed, n);
    (0..length)
        .map(|_| {
            let c = ALL[(lot % ALL.len() as u64) as usize];
            lot = mix(lot);
            c as char
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quality::score::{Luma, recovered};

    const SIZE: Size = Size { width: 640, height: 360 };
    const KINDS: [Kind; 5] = [Kind::Targets, Kind::Text, Kind::Sheet, Kind::Video, Kind::Idle];

    #[test]
    fn a_frame_is_the_same_by_however_many_threads() {
        for kind in KINDS {
            let picture = Picture::new(kind, SIZE, 50, 7).unwrap();
            let [mut one, mut three] = [vec![0; SIZE.bytes()], vec![0; SIZE.bytes()]];
            picture.draw(1234, &mut one, 1);
            picture.draw(1234, &mut three, 3);
            assert!(one == three, "{kind:?}");
            picture.draw(1235, &mut three, 3);
            assert!(one != three, "{kind:?}: the number differs at least");
        }
    }

    #[test]
    fn what_is_said_to_be_there_is_there() {
        for kind in KINDS {
            let picture = Picture::new(kind, SIZE, 20, 7).unwrap();
            let mut pixels = vec![0; SIZE.bytes()];
            picture.draw(77, &mut pixels, 2);
            let (frame, marks) = (Luma::of(&pixels, SIZE.width), picture.marks(77));
            assert!(!marks.letters.is_empty(), "{kind:?}");
            for (all, alphabet) in
                [(&marks.letters, &picture.glyphs.letters), (&marks.symbols, &picture.glyphs.symbols)]
            {
                let read = recovered(&frame, all, alphabet).iter().filter(|r| **r).count();
                // Targets may cover each other.
                assert!(read * 10 >= all.len() * 8, "{kind:?}: {read} of {}", all.len());
            }
        }
    }

    #[test]
    fn what_cannot_be_shown_is_refused() {
        for (width, height, targets) in [(100, 360, 5), (640, 10, 5), (641, 360, 5), (640, 360, 0)] {
            let refused = Picture::new(Kind::Targets, Size { width, height }, targets, 1);
            assert_eq!(refused.err().unwrap().kind, FaultKind::BadInput);
        }
    }
}
