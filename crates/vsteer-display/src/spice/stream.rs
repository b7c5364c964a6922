//! Shows a video that a SPICE server has found on the screen: a stream of JPEGs at the same place.
//!
//! Source: SPICE's spice.proto (stream_create, stream_data, stream_data_sized, stream_clip). Left out: VP8,
//! VP9, H.264, H.265, which are not requested; scaled pictures, which a server sends only to a viewer that
//! reports lateness (this one does not); presentation times, because a picture is shown at once.

use super::bytes::Bytes;
use super::draw::{Clip, Put};
use super::{bad, image};
use crate::codec::Jpeg;
use crate::rfb::screen::Rect;
use std::collections::BTreeMap;
use vsteer_core::{Fault, FaultKind};

/// The most streams, and the largest stream number, of a server.
const STREAMS_MOST: u32 = 64;
const MJPEG: u8 = 1;
const TOP_DOWN: u8 = 1;
/// The name among kinds of images.
pub const KIND: &str = "stream of JPEG";

struct Stream {
    size: [usize; 2],
    to: Rect,
    clip: Clip,
    top_down: bool,
}

/// The open streams, by number.
#[derive(Default)]
pub struct Streams(BTreeMap<u32, Stream>);

impl Streams {
    /// Opens a stream; the screen has `most` pixels.
    ///
    /// # Errors
    /// It is broken, has another codec, is scaled, or there are too many.
    pub fn create(&mut self, body: &[u8], most: usize) -> Result<(), Fault> {
        let mut from = Bytes::of(body, "a stream");
        let (surface, number, flags, codec) = (from.u32()?, from.u32()?, from.u8()?, from.u8()?);
        from.take(8)?;
        let size = [from.u32()? as usize, from.u32()? as usize];
        let _source = [from.u32()?, from.u32()?];
        let to = from.rect()?;
        let clip = Clip::read(&mut from)?;
        if number >= STREAMS_MOST || surface != 0 {
            return Err(bad(format!("stream {number} of surface {surface}")));
        }
        if codec != MJPEG {
            return Err(Fault::new(
                FaultKind::Unsupported,
                format!("a SPICE server sent a stream of codec {codec}, which was not asked for"),
            )
            .because("JPEG (1) is what this viewer says that it can")
            .help("streaming-video=off"));
        }
        if size[0].checked_mul(size[1]).is_none_or(|n| n == 0 || n > most) {
            return Err(bad(format!("a stream of {size:?} pixels")));
        }
        self.0.insert(number, Stream { size, to, clip, top_down: flags & TOP_DOWN != 0 });
        Ok(())
    }

    /// The place of a picture; `None` if the stream does not exist.
    ///
    /// # Errors
    /// It is broken.
    pub fn place(&self, body: &[u8], sized: bool) -> Result<Option<Rect>, Fault> {
        let mut from = Bytes::of(body, "a stream's picture");
        let number = from.u32()?;
        if sized {
            from.take(12)?;
            return from.rect().map(Some);
        }
        Ok(self.0.get(&number).map(|stream| stream.to))
    }

    /// A picture of a stream, ready to draw. `sized` pictures contain their own size and place.
    ///
    /// # Errors
    /// It is broken, belongs to no stream, or is scaled.
    pub fn picture(&mut self, body: &[u8], sized: bool, jpeg: &mut Jpeg) -> Result<Put, Fault> {
        let mut from = Bytes::of(body, "a stream's picture");
        let (number, _time) = (from.u32()?, from.u32()?);
        let stream = self.0.get(&number).ok_or_else(|| bad(format!("stream {number}, which is none")))?;
        let (size, to) = if sized {
            ([from.u32()? as usize, from.u32()? as usize], from.rect()?)
        } else {
            (stream.size, stream.to)
        };
        if size != [to.width, to.height] {
            return Err(Fault::new(
                FaultKind::Unsupported,
                format!("a stream whose pictures of {size:?} pixels are shown on {}x{}", to.width, to.height),
            )
            .help("streaming-video=off"));
        }
        let n = from.u32()? as usize;
        let mut pixels = jpeg.decode(from.take(n)?, size)?.to_vec();
        if !stream.top_down {
            image::turn(&mut pixels, size);
        }
        Ok(Put { kind: KIND, to, from: [0, 0], width: size[0], pixels, clip: stream.clip.clone() })
    }

    /// Sets the visible area of a stream.
    ///
    /// # Errors
    /// It is broken.
    pub fn clip(&mut self, body: &[u8]) -> Result<(), Fault> {
        let mut from = Bytes::of(body, "a stream's clip");
        let number = from.u32()?;
        let clip = Clip::read(&mut from)?;
        if let Some(stream) = self.0.get_mut(&number) {
            stream.clip = clip;
        }
        Ok(())
    }

    /// Ends a stream.
    ///
    /// # Errors
    /// It is broken.
    pub fn destroy(&mut self, body: &[u8]) -> Result<(), Fault> {
        self.0.remove(&Bytes::of(body, "a stream's end").u32()?);
        Ok(())
    }

    pub fn destroy_all(&mut self) {
        self.0.clear();
    }
}
