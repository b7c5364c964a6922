//! Decodes JPEGs of any size with FFmpeg, and keeps the decoder and converters for the next one.
//!
//! Servers send parts of a screen as JPEGs. Left out: incomplete JPEGs.

use super::ffmpeg::AGAIN;
use crate::codec::surfaces::failed;
use crate::picture::canvas::PIXEL;
use ffmpeg_next as ffmpeg;
use ffmpeg_next::codec::threading;
use ffmpeg_next::format::Pixel;
use ffmpeg_next::software::scaling;
use ffmpeg_next::{Packet, codec, decoder, frame};
use vsteer_core::{Fault, FaultKind};

const NAME: &str = "JPEG";
/// For how many sizes converters are kept; servers divide screens into few sizes.
const KEPT_MOST: usize = 16;

#[derive(Default)]
pub struct Jpeg {
    decoder: Option<decoder::Video>,
    kept: Vec<Converter>,
    pixels: Vec<u8>,
}

/// A converter for one size and pixel format.
struct Converter {
    size: [u32; 2],
    from: Pixel,
    scaler: scaling::Context,
    screen: frame::Video,
}

impl Jpeg {
    /// The pixels, row after row, in the screen's byte order.
    ///
    /// # Errors
    /// The JPEG is broken or has another size; this FFmpeg has no decoder for it.
    pub fn decode(&mut self, bytes: &[u8], size: [usize; 2]) -> Result<&[u8], Fault> {
        let bad = |what: String| Fault::new(FaultKind::BadInput, what);
        if bytes.is_empty() {
            return Err(bad("a JPEG without a byte".to_owned()));
        }
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder,
            none => none.insert(opened()?),
        };
        decoder.send_packet(&Packet::copy(bytes)).map_err(failed(NAME, "decoding"))?;
        let mut frame = frame::Video::empty();
        match decoder.receive_frame(&mut frame) {
            Ok(()) => {}
            Err(AGAIN) => return Err(bad("a JPEG that holds no picture".to_owned())),
            Err(e) => return Err(failed(NAME, "decoding")(e)),
        }
        let came = [frame.width(), frame.height()];
        if came.map(|v| v as usize) != size {
            return Err(bad(format!("a JPEG of {came:?} pixels, not {size:?}")));
        }
        let converter = self.converter(came, frame.format())?;
        converter.scaler.run(&frame, &mut converter.screen).map_err(failed(NAME, "converting colours"))?;
        let (stride, line) = (converter.screen.stride(0), size[0] * PIXEL);
        let mut pixels = std::mem::take(&mut self.pixels);
        pixels.clear();
        let screen = &self.kept.last().expect("found above").screen;
        screen.data(0).chunks(stride).take(size[1]).for_each(|row| pixels.extend_from_slice(&row[..line]));
        self.pixels = pixels;
        Ok(&self.pixels)
    }

    /// The converter that fits; it moves to the end of the list.
    fn converter(&mut self, size: [u32; 2], from: Pixel) -> Result<&mut Converter, Fault> {
        let fits = |c: &Converter| c.size == size && c.from == from;
        let found = match self.kept.iter().position(fits) {
            Some(at) => self.kept.remove(at),
            None => {
                let [width, height] = size;
                let flags = scaling::Flags::POINT;
                let scaler = scaling::Context::get(from, width, height, Pixel::BGRZ, width, height, flags)
                    .map_err(failed(NAME, "converting colours"))?;
                Converter { size, from, scaler, screen: frame::Video::new(Pixel::BGRZ, width, height) }
            }
        };
        if self.kept.len() >= KEPT_MOST {
            self.kept.remove(0);
        }
        self.kept.push(found);
        Ok(self.kept.last_mut().expect("pushed above"))
    }
}

fn opened() -> Result<decoder::Video, Fault> {
    let found = decoder::find(codec::Id::MJPEG)
        .ok_or_else(|| Fault::new(FaultKind::NothingThere, "this FFmpeg has no decoder of JPEG"))?;
    let mut context = codec::context::Context::new_with_codec(found);
    context.set_threading(threading::Config { count: 1, ..threading::Config::default() });
    context.set_flags(codec::Flags::LOW_DELAY);
    context.decoder().video().map_err(|e: ffmpeg::Error| failed(NAME, "opening the decoder")(e))
}
