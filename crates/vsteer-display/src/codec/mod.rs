//! The table of codecs, one entry each in [`ALL`]: FFmpeg's software and hardware codecs, and one of this
//! project.
//!
//! A codec gets whole frames, one after the other, and returns the bytes of each at once. Nothing may wait
//! for a later frame. Converting colours is a separate step, because it costs as much as some codecs.
//!
//! Left out: audio, several screens as several streams.

mod ffmpeg;
mod jpeg;
mod surfaces;
mod tiles;

pub use jpeg::Jpeg;

use crate::picture::canvas::Size;
use std::ops::RangeInclusive;
use vsteer_core::{Fault, FaultKind};

/// What a codec should hold, if it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Its own default quality.
    Quality,
    /// A rate, bit/s.
    Rate(u64),
    /// This quantizer, or factor of constant quality, from [`Codec::quantizers`].
    Quantizer(i32),
}

impl From<Option<u64>> for Held {
    fn from(rate: Option<u64>) -> Held {
        rate.map_or(Held::Quality, Held::Rate)
    }
}

/// Encodes frames, in the thread that made it.
pub trait Encoder {
    /// Takes a frame and converts its colours for the codec.
    ///
    /// # Errors
    /// The library's.
    fn convert(&mut self, pixels: &[u8]) -> Result<(), Fault>;

    /// Appends the encoded bytes of the last frame.
    ///
    /// # Errors
    /// The library's.
    fn encode(&mut self, out: &mut Vec<u8>) -> Result<(), Fault>;
}

/// Decodes frames, in the thread that made it.
pub trait Decoder {
    /// Takes the bytes of one frame; false if there is no picture yet.
    ///
    /// # Errors
    /// The library's; broken data.
    fn decode(&mut self, bytes: &[u8]) -> Result<bool, Fault>;

    /// Writes the picture in the screen's colours.
    ///
    /// # Errors
    /// The library's.
    fn present(&mut self, pixels: &mut [u8]) -> Result<(), Fault>;
}

/// A codec with its settings.
#[derive(Debug)]
pub struct Codec {
    /// The name on the command line.
    pub name: &'static str,
    /// A description.
    pub doc: &'static str,
    /// Reproduces every bit, at once or later.
    pub lossless: bool,
    /// Needs special hardware.
    pub in_hardware: bool,
    /// Its rate can be limited: it holds a given rate.
    pub holds_rate: bool,
    by: By,
}

#[derive(Debug)]
enum By {
    Ffmpeg(ffmpeg::Settings),
    Tiles,
}

/// All codecs, in the order of the page with the published results.
pub const ALL: &[Codec] = &[
    Codec {
        name: "jpeg",
        doc: "JPEG, colours halved both ways, quantizer 3 of 31",
        lossless: false,
        in_hardware: false,
        holds_rate: false,
        by: By::Ffmpeg(ffmpeg::JPEG),
    },
    Codec {
        name: "jpeg-444",
        doc: "JPEG without chroma subsampling (4:4:4), quantizer 3 of 31",
        lossless: false,
        in_hardware: false,
        holds_rate: false,
        by: By::Ffmpeg(ffmpeg::JPEG_444),
    },
    Codec {
        name: "png",
        doc: "PNG, FFmpeg's default compression",
        lossless: true,
        in_hardware: false,
        holds_rate: false,
        by: By::Ffmpeg(ffmpeg::PNG),
    },
    Codec {
        name: "tiles",
        doc: "the project's own region codec: a stand-in for Blast's and its like, not one of them",
        lossless: true,
        in_hardware: false,
        holds_rate: false,
        by: By::Tiles,
    },
    Codec {
        name: "h264-lossless",
        doc: "H.264 of red, green and blue without loss (x264, ultrafast)",
        lossless: true,
        in_hardware: false,
        holds_rate: false,
        by: By::Ffmpeg(ffmpeg::H264_LOSSLESS),
    },
    Codec {
        name: "h264",
        doc: "H.264, colours halved (x264, ultrafast, zero latency)",
        lossless: false,
        in_hardware: false,
        holds_rate: true,
        by: By::Ffmpeg(ffmpeg::H264),
    },
    Codec {
        name: "h264-444",
        doc: "H.264 with all colours (x264, ultrafast, zero latency)",
        lossless: false,
        in_hardware: false,
        holds_rate: true,
        by: By::Ffmpeg(ffmpeg::H264_444),
    },
    Codec {
        name: "h264-refresh",
        doc: "H.264 that refreshes itself column by column, without whole frames",
        lossless: false,
        in_hardware: false,
        holds_rate: true,
        by: By::Ffmpeg(ffmpeg::H264_REFRESH),
    },
    Codec {
        name: "h265",
        doc: "H.265 (x265, ultrafast, zero latency)",
        lossless: false,
        in_hardware: false,
        holds_rate: true,
        by: By::Ffmpeg(ffmpeg::H265),
    },
    Codec {
        name: "vp9",
        doc: "VP9 (libvpx, realtime, speed 8)",
        lossless: false,
        in_hardware: false,
        holds_rate: true,
        by: By::Ffmpeg(ffmpeg::VP9),
    },
    Codec {
        name: "av1",
        doc: "AV1 (libaom, realtime, speed 8)",
        lossless: false,
        in_hardware: false,
        holds_rate: true,
        by: By::Ffmpeg(ffmpeg::AV1),
    },
    Codec {
        name: "h264-nvenc",
        doc: "H.264 by NVIDIA's encoder (untried)",
        lossless: false,
        in_hardware: true,
        holds_rate: true,
        by: By::Ffmpeg(ffmpeg::H264_NVENC),
    },
    Codec {
        name: "h265-nvenc",
        doc: "H.265 by NVIDIA's encoder (untried)",
        lossless: false,
        in_hardware: true,
        holds_rate: true,
        by: By::Ffmpeg(ffmpeg::H265_NVENC),
    },
    Codec {
        name: "h264-qsv",
        doc: "H.264 by Intel's encoder (untried)",
        lossless: false,
        in_hardware: true,
        holds_rate: true,
        by: By::Ffmpeg(ffmpeg::H264_QSV),
    },
    Codec {
        name: "h264-vaapi",
        doc: "H.264 by VA-API: AMD's and Intel's encoders (untried)",
        lossless: false,
        in_hardware: true,
        holds_rate: true,
        by: By::Ffmpeg(ffmpeg::H264_VAAPI),
    },
    Codec {
        name: "h265-vaapi",
        doc: "H.265 by VA-API: AMD's and Intel's encoders (untried)",
        lossless: false,
        in_hardware: true,
        holds_rate: true,
        by: By::Ffmpeg(ffmpeg::H265_VAAPI),
    },
];

/// The codec with this name.
///
/// # Errors
/// `BadInput` with the existing names.
pub fn find(name: &str) -> Result<&'static Codec, Fault> {
    ALL.iter().find(|c| c.name == name).ok_or_else(|| {
        let all: Vec<&str> = ALL.iter().map(|c| c.name).collect();
        Fault::new(FaultKind::BadInput, format!("there is no codec {name:?}"))
            .help(format!("one of {}", all.join(", ")))
    })
}

impl Codec {
    /// An encoder for frames of this size at this rate.
    ///
    /// # Errors
    /// This build of FFmpeg lacks the codec, or the machine lacks its hardware.
    pub fn encoder(&self, size: Size, fps: u32, held: Held) -> Result<Box<dyn Encoder>, Fault> {
        Ok(match &self.by {
            By::Ffmpeg(settings) => Box::new(ffmpeg::Sender::new(self.name, settings, size, fps, held)?),
            By::Tiles => Box::new(tiles::Sender::new(size)),
        })
    }

    /// A decoder for the output of such an encoder.
    ///
    /// # Errors
    /// This build of FFmpeg lacks the codec.
    pub fn decoder(&self, size: Size) -> Result<Box<dyn Decoder>, Fault> {
        Ok(match &self.by {
            By::Ffmpeg(settings) => Box::new(ffmpeg::Receiver::new(self.name, settings, size)?),
            By::Tiles => Box::new(tiles::Receiver::new(size)),
        })
    }

    /// The possible quantizers, the finest first; `None` if its quality cannot be chosen.
    pub fn quantizers(&self) -> Option<RangeInclusive<i32>> {
        match &self.by {
            By::Ffmpeg(settings) => settings.quantizers(),
            By::Tiles => None,
        }
    }

    /// The library's encoder, and whether this build has it.
    pub fn built_in(&self) -> (&'static str, bool) {
        match &self.by {
            By::Ffmpeg(settings) => (settings.encoder, ffmpeg::has(settings)),
            By::Tiles => ("vsteer-display", true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::{Kind, Picture, number};
    use crate::quality::score::psnr_rgb;

    /// All available codecs, at least those in software: each returns a frame at once, with a readable
    /// number.
    #[test]
    fn each_gives_each_frame_back_at_once() {
        let size = Size { width: 640, height: 360 };
        let picture = Picture::new(Kind::Targets, size, 50, 3).unwrap();
        for codec in ALL.iter().filter(|c| !c.in_hardware) {
            assert!(codec.built_in().1, "{}: not in this FFmpeg", codec.name);
            let rate = codec.holds_rate.then_some(20_000_000);
            let (mut encoder, mut decoder) =
                (codec.encoder(size, 60, rate.into()).unwrap(), codec.decoder(size).unwrap());
            let [mut shown, mut came] = [vec![0; size.bytes()], vec![0; size.bytes()]];
            for frame in 0..8 {
                picture.draw(frame, &mut shown, 1);
                let mut bytes = Vec::new();
                encoder.convert(&shown).unwrap();
                encoder.encode(&mut bytes).unwrap();
                assert!(decoder.decode(&bytes).unwrap(), "{}: frame {frame} did not come", codec.name);
                decoder.present(&mut came).unwrap();
                assert_eq!(number::read(&came, size), Some((frame, [0, 0])), "{}", codec.name);
                let psnr = psnr_rgb(&shown, &came);
                let exact = codec.lossless && codec.name != "tiles";
                assert!(
                    if exact { psnr.is_infinite() } else { psnr > 20.0 },
                    "{}: frame {frame}: {psnr} dB",
                    codec.name
                );
            }
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        assert!(find("h266").unwrap_err().to_string().contains("h264-444"));
    }
}
