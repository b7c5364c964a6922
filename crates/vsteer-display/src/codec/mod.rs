//! Which codecs are there? One line each in [`ALL`]: those of FFmpeg's, software and hardware, and one of the project's own.
//!
//! A codec is given whole frames, one after the other, and gives bytes for each at once: nothing may wait for a frame that is to come. Converting
//! colours is a step of its own, for it costs as much as some codecs.
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

/// What a codec is to hold, where it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Its own setting of quality.
    Quality,
    /// A rate, bit/s.
    Rate(u64),
    /// This quantizer, or factor of constant quality: of [`Codec::quantizers`].
    Quantizer(i32),
}

impl From<Option<u64>> for Held {
    fn from(rate: Option<u64>) -> Held {
        rate.map_or(Held::Quality, Held::Rate)
    }
}

/// Makes bytes of frames; in the thread that made it.
pub trait Encoder {
    /// Takes a frame and makes of its colours what the codec wants.
    ///
    /// # Errors
    /// The library's.
    fn convert(&mut self, pixels: &[u8]) -> Result<(), Fault>;

    /// Appends what is to be sent of the frame that was taken last.
    ///
    /// # Errors
    /// The library's.
    fn encode(&mut self, out: &mut Vec<u8>) -> Result<(), Fault>;
}

/// Makes frames of bytes; in the thread that made it.
pub trait Decoder {
    /// Takes what was sent of one frame; false where there is no picture yet.
    ///
    /// # Errors
    /// The library's; what came is broken.
    fn decode(&mut self, bytes: &[u8]) -> Result<bool, Fault>;

    /// Gives the picture, in the screen's colours.
    ///
    /// # Errors
    /// The library's.
    fn present(&mut self, pixels: &mut [u8]) -> Result<(), Fault>;
}

/// A codec with its settings.
#[derive(Debug)]
pub struct Codec {
    /// As it is asked for.
    pub name: &'static str,
    /// What it is.
    pub doc: &'static str,
    /// Gives back what was shown to the bit, sooner or later.
    pub lossless: bool,
    /// It needs hardware of its own.
    pub in_hardware: bool,
    /// Its bytes can be bounded: it holds a rate if it is given one.
    pub holds_rate: bool,
    by: By,
}

#[derive(Debug)]
enum By {
    Ffmpeg(ffmpeg::Settings),
    Tiles,
}

/// All, in the order of the page that publishes what they do.
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

/// The one of this name.
///
/// # Errors
/// `BadInput` with those that there are.
pub fn find(name: &str) -> Result<&'static Codec, Fault> {
    ALL.iter().find(|c| c.name == name).ok_or_else(|| {
        let all: Vec<&str> = ALL.iter().map(|c| c.name).collect();
        Fault::new(FaultKind::BadInput, format!("there is no codec {name:?}"))
            .help(format!("one of {}", all.join(", ")))
    })
}

impl Codec {
    /// Ready to encode frames of this size at so many a second.
    ///
    /// # Errors
    /// This build of FFmpeg lacks it, or the machine what it needs.
    pub fn encoder(&self, size: Size, fps: u32, held: Held) -> Result<Box<dyn Encoder>, Fault> {
        Ok(match &self.by {
            By::Ffmpeg(settings) => Box::new(ffmpeg::Sender::new(self.name, settings, size, fps, held)?),
            By::Tiles => Box::new(tiles::Sender::new(size)),
        })
    }

    /// Ready to decode what such an encoder gives.
    ///
    /// # Errors
    /// This build of FFmpeg lacks it.
    pub fn decoder(&self, size: Size) -> Result<Box<dyn Decoder>, Fault> {
        Ok(match &self.by {
            By::Ffmpeg(settings) => Box::new(ffmpeg::Receiver::new(self.name, settings, size)?),
            By::Tiles => Box::new(tiles::Receiver::new(size)),
        })
    }

    /// The quantizers that it can be given, the finest first; none where its quality cannot be chosen.
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

    /// Those that this build and machine have, at least in software: frame in, frame out at once, its number readable.
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
