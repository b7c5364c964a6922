//! Draws a part of an image to a rectangle of the same size, within the visible area.
//!
//! Source: SPICE's spice.proto (DisplayBase, Clip, draw_copy). Left out: all other drawing operations, masks,
//! scaling, surfaces off the screen. A guest with a plain framebuffer does not use them. If a guest's driver
//! does, a fault says so.

use super::bad;
use super::bytes::Bytes;
use super::image::Images;
use crate::picture::canvas::PIXEL;
use crate::rfb::screen::{Rect, Screen};
use vsteer_core::{Fault, FaultKind};

/// The operation that writes the source's pixels unchanged.
const PUT: u16 = 8;
/// Size of a rectangle in a clip, bytes; and the most rectangles.
const RECT: usize = 16;
const RECTS_MOST: usize = 4096;

/// The visible area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clip {
    /// Everything is visible.
    All,
    Within(Vec<Rect>),
}

impl Clip {
    /// Reads a clip.
    ///
    /// # Errors
    /// It is broken.
    pub fn read(from: &mut Bytes) -> Result<Clip, Fault> {
        match from.u8()? {
            0 => Ok(Clip::All),
            1 => {
                let n = from.u32()? as usize;
                if n > RECTS_MOST {
                    return Err(bad(format!("a clip of {n} rectangles")));
                }
                let mut rects = Bytes::of(from.take(n * RECT)?, "a clip");
                (0..n).map(|_| rects.rect()).collect::<Result<_, _>>().map(Clip::Within)
            }
            other => Err(bad(format!("a clip of kind {other}, which there is not"))),
        }
    }
}

/// Pixels and their place.
pub struct Put {
    /// The kind of image that they came from.
    pub kind: &'static str,
    pub to: Rect,
    /// The start within the image, and the number of pixels in its rows.
    pub from: [usize; 2],
    pub width: usize,
    pub pixels: Vec<u8>,
    pub clip: Clip,
}

/// The rectangle of a drawing message, without its image.
///
/// # Errors
/// It is broken.
pub fn place(body: &[u8]) -> Result<Rect, Fault> {
    let mut from = Bytes::of(body, "a drawing");
    from.u32()?;
    from.rect()
}

/// Reads a copy of a part of an image.
///
/// # Errors
/// It is broken, or uses an operation that is left out.
pub fn copy(body: &[u8], images: &mut Images, screen: &Screen) -> Result<Put, Fault> {
    let mut from = Bytes::of(body, "a drawing");
    let surface = from.u32()?;
    let to = from.rect()?;
    let clip = Clip::read(&mut from)?;
    let image = from.u32()? as usize;
    let part = from.rect()?;
    let (how, _scaling) = (from.u16()?, from.u8()?);
    let _mask_flags = (from.u8()?, from.take(8)?);
    let mask = from.u32()?;
    if surface != 0 || how != PUT || mask != 0 || (part.width, part.height) != (to.width, to.height) {
        let what = format!(
            "a SPICE server draws on surface {surface} by rule {how:#x}, mask {}, {}x{} pixels on {}x{}",
            mask != 0,
            part.width,
            part.height,
            to.width,
            to.height
        );
        return Err(Fault::new(FaultKind::Unsupported, what)
            .because("pixels are put on the screen as they are, and nothing else is read")
            .help("a guest without a QXL driver"));
    }
    if !screen.has(to) {
        return Err(bad(format!("{to:?} lies outside of its screen of {:?}", screen.size())));
    }
    let bytes = body.get(image..).filter(|_| image > 0).ok_or_else(|| bad("a drawing without its image"))?;
    let most = screen.size().width * screen.size().height;
    let image = images.decode(bytes, most)?;
    let within = |at: usize, edge: usize, all: usize| at.checked_add(edge).is_some_and(|end| end <= all);
    if !within(part.x, part.width, image.size[0]) || !within(part.y, part.height, image.size[1]) {
        return Err(bad(format!("{part:?} of an image of {:?} pixels", image.size)));
    }
    Ok(Put { kind: image.kind, to, from: [part.x, part.y], width: image.size[0], pixels: image.pixels, clip })
}

impl Put {
    /// Draws it; returns the number of pixels. Callers must check that it is inside.
    pub fn onto(&self, screen: &mut Screen) -> usize {
        match &self.clip {
            Clip::All => self.within(self.to, screen),
            Clip::Within(rects) => rects.iter().map(|r| self.within(common(*r, self.to), screen)).sum(),
        }
    }

    fn within(&self, rect: Rect, screen: &mut Screen) -> usize {
        for y in 0..rect.height {
            let row = rect.y - self.to.y + self.from[1] + y;
            let at = (row * self.width + self.from[0] + rect.x - self.to.x) * PIXEL;
            screen.row(rect, y).copy_from_slice(&self.pixels[at..at + rect.width * PIXEL]);
        }
        rect.pixels()
    }
}

/// The common part of two rectangles; empty if there is none.
pub fn common(a: Rect, b: Rect) -> Rect {
    let part = |at: [usize; 2], edge: [usize; 2]| {
        let from = at[0].max(at[1]);
        let until = at[0].saturating_add(edge[0]).min(at[1].saturating_add(edge[1]));
        (from.min(until), until - from.min(until))
    };
    let (x, width) = part([a.x, b.x], [a.width, b.width]);
    let (y, height) = part([a.y, b.y], [a.height, b.height]);
    if width == 0 || height == 0 {
        Rect { x: b.x, y: b.y, width: 0, height: 0 }
    } else {
        Rect { x, y, width, height }
    }
}
