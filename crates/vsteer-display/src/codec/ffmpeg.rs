//! FFmpeg's codecs, set for a screen with a waiting viewer: one thread, no frame held back, no frame that
//! refers to a later one.
//!
//! Each codec is a value of [`Settings`]: the library's encoder, its pixel format, and its options with the
//! library's names. A given bit rate is held over [`WINDOW_S`]; without one, quality is constant. swscale
//! converts colours.
//!
//! Encoders that need a GPU's surfaces get them from [`Surfaces`].
//!
//! Source: `ffmpeg -h encoder=NAME` (FFmpeg 5.1). Left out: encoders that an SoC's kernel offers (V4L2).

use super::surfaces::failed;
use super::surfaces::{Surfaces, UPLOADED};
use super::{Decoder, Encoder, Held};
use crate::picture::canvas::{PIXEL, Size};
use ffmpeg_next as ffmpeg;
use ffmpeg_next::codec::threading;
use ffmpeg_next::format::Pixel;
use ffmpeg_next::software::scaling;
use ffmpeg_next::{Dictionary, Packet, Rational, codec, decoder, encoder, frame};
use std::ops::RangeInclusive;
use vsteer_core::{Fault, FaultKind};

/// A rate is held over this time, s, and over at least this many frames, so that one frame cannot occupy the
/// link for long.
const WINDOW_S: f64 = 0.05;
const WINDOW_FRAMES: f64 = 1.5;
/// Frames between two frames that need no other; a stream without loss needs no more.
const WHOLE_EVERY: u32 = 600;
pub(super) const AGAIN: ffmpeg::Error = ffmpeg::Error::Other { errno: ffmpeg::error::EAGAIN };

/// The use of one of FFmpeg's encoders.
#[derive(Debug)]
pub struct Settings {
    /// The library's name for it.
    pub encoder: &'static str,
    pixels: Pixel,
    id: codec::Id,
    options: &'static [(&'static str, &'static str)],
    /// The options without a rate.
    quality: &'static [(&'static str, &'static str)],
    /// The quantizer of a codec that has no other control.
    quantizer: Option<i32>,
    /// The encoder needs a GPU's surfaces, not pixels in memory.
    surfaces: bool,
}

const PLAIN: Settings = Settings {
    encoder: "",
    pixels: Pixel::YUV420P,
    id: codec::Id::H264,
    options: &[],
    quality: &[],
    quantizer: None,
    surfaces: false,
};
const X264: &[(&str, &str)] = &[("preset", "ultrafast"), ("tune", "zerolatency")];
const NVENC: &[(&str, &str)] = &[("preset", "p1"), ("tune", "ull"), ("zerolatency", "1"), ("delay", "0")];

pub const JPEG: Settings =
    Settings { encoder: "mjpeg", pixels: Pixel::YUVJ420P, id: codec::Id::MJPEG, quantizer: Some(3), ..PLAIN };
pub const JPEG_444: Settings = Settings { pixels: Pixel::YUVJ444P, ..JPEG };
pub const PNG: Settings = Settings { encoder: "png", pixels: Pixel::RGB24, id: codec::Id::PNG, ..PLAIN };
pub const H264: Settings = Settings { encoder: "libx264", options: X264, quality: &[("crf", "24")], ..PLAIN };
pub const H264_444: Settings = Settings { pixels: Pixel::YUV444P, ..H264 };
pub const H264_REFRESH: Settings = Settings {
    options: &[
        ("preset", "ultrafast"),
        ("tune", "zerolatency"),
        ("intra-refresh", "1"),
        ("x264-params", "keyint=60"),
    ],
    ..H264
};
pub const H264_LOSSLESS: Settings =
    Settings { encoder: "libx264rgb", pixels: Pixel::BGRZ, options: X264, quality: &[("qp", "0")], ..PLAIN };
pub const H265: Settings = Settings {
    encoder: "libx265",
    id: codec::Id::HEVC,
    options: &[
        ("preset", "ultrafast"),
        ("tune", "zerolatency"),
        ("x265-params", "log-level=none:pools=none:frame-threads=1:repeat-headers=1"),
    ],
    quality: &[("crf", "24")],
    ..PLAIN
};
pub const VP9: Settings = Settings {
    encoder: "libvpx-vp9",
    id: codec::Id::VP9,
    options: &[("deadline", "realtime"), ("cpu-used", "8"), ("lag-in-frames", "0"), ("row-mt", "0")],
    quality: &[("crf", "30"), ("b", "0")],
    ..PLAIN
};
pub const AV1: Settings = Settings {
    encoder: "libaom-av1",
    id: codec::Id::AV1,
    options: &[("usage", "realtime"), ("cpu-used", "8"), ("lag-in-frames", "0"), ("row-mt", "0")],
    quality: &[("crf", "30"), ("b", "0")],
    ..PLAIN
};
pub const H264_NVENC: Settings =
    Settings { encoder: "h264_nvenc", options: NVENC, quality: &[("cq", "24")], ..PLAIN };
pub const H265_NVENC: Settings = Settings { encoder: "hevc_nvenc", id: codec::Id::HEVC, ..H264_NVENC };
pub const H264_QSV: Settings = Settings {
    encoder: "h264_qsv",
    pixels: Pixel::NV12,
    options: &[("preset", "veryfast"), ("async_depth", "1"), ("look_ahead", "0")],
    quality: &[("global_quality", "24")],
    ..PLAIN
};

pub const H264_VAAPI: Settings = Settings {
    encoder: "h264_vaapi",
    pixels: UPLOADED,
    options: &[("async_depth", "1")],
    quality: &[("rc_mode", "CQP"), ("global_quality", "24")],
    surfaces: true,
    ..PLAIN
};
pub const H265_VAAPI: Settings = Settings { encoder: "hevc_vaapi", id: codec::Id::HEVC, ..H264_VAAPI };

impl Settings {
    /// See [`super::Codec::quantizers`]: FFmpeg's ranges of `q` and `crf`.
    pub fn quantizers(&self) -> Option<RangeInclusive<i32>> {
        match (self.quantizer, self.quality.first()) {
            (Some(_), _) => Some(1..=31),
            (None, Some(("crf", _))) if matches!(self.id, codec::Id::VP9 | codec::Id::AV1) => Some(1..=63),
            (None, Some(("crf", _))) => Some(1..=51),
            _ => None,
        }
    }
}

/// Does this build have its encoder and a decoder for it?
pub fn has(settings: &Settings) -> bool {
    encoder::find_by_name(settings.encoder).is_some() && decoder::find(settings.id).is_some()
}

fn missing(name: &str, settings: &Settings) -> Fault {
    Fault::new(FaultKind::NothingThere, format!("{name}: this FFmpeg has no {}", settings.encoder))
        .help("vsteer-display codecs lists those that it has")
}

fn scaler(name: &str, size: Size, from: Pixel, to: Pixel) -> Result<scaling::Context, Fault> {
    let (width, height) = (size.width as u32, size.height as u32);
    scaling::Context::get(from, width, height, to, width, height, scaling::Flags::POINT)
        .map_err(failed(name, "converting colours"))
}

/// FFmpeg prints messages about a stream on standard error, in the middle of other lines. Its calls return
/// the same errors, so only fatal messages are printed.
fn quiet() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| ffmpeg::log::set_level(ffmpeg::log::Level::Fatal));
}

pub struct Sender {
    name: &'static str,
    encoder: encoder::video::Encoder,
    /// `None` if the codec uses the screen's own colours.
    scaler: Option<scaling::Context>,
    /// The surfaces, if the codec needs a GPU's.
    surfaces: Option<Surfaces>,
    screen: frame::Video,
    frame: frame::Video,
    packet: Packet,
    /// How many frames the encoder has received.
    given: i64,
}

impl Sender {
    /// See [`super::Codec::encoder`].
    pub fn new(
        name: &'static str,
        settings: &Settings,
        size: Size,
        fps: u32,
        held: Held,
    ) -> Result<Sender, Fault> {
        quiet();
        let found = encoder::find_by_name(settings.encoder).ok_or_else(|| missing(name, settings))?;
        let failed = failed(name, "opening the encoder");
        let mut context = codec::context::Context::new_with_codec(found);
        context.set_threading(threading::Config { count: 1, ..threading::Config::default() });
        let mut video = context.encoder().video().map_err(&failed)?;
        video.set_width(size.width as u32);
        video.set_height(size.height as u32);
        video.set_format(settings.pixels);
        let surfaces = settings.surfaces.then(|| Surfaces::new(name, size)).transpose()?;
        if let Some(surfaces) = &surfaces {
            surfaces.attach(&mut video);
        }
        video.set_time_base(Rational(1, fps as i32));
        video.set_frame_rate(Some(Rational(fps as i32, 1)));
        video.set_gop(WHOLE_EVERY);
        video.set_max_b_frames(0);
        let mut options: Dictionary = settings.options.iter().copied().collect();
        let holds_rate = !settings.quality.iter().any(|(k, _)| *k == "qp");
        if let Some(q) = settings.quantizer {
            let q = if let Held::Quantizer(q) = held { q } else { q };
            video.set_qmin(q);
            video.set_qmax(q);
            // A codec with neither a quantizer nor a rate gets a rate without limit.
            video.set_bit_rate(usize::pow(10, 9));
        } else if let (Held::Rate(rate), true) = (held, holds_rate) {
            let window_s = WINDOW_S.max(WINDOW_FRAMES / f64::from(fps));
            let words = [("b", rate), ("maxrate", rate), ("bufsize", (rate as f64 * window_s) as u64)];
            words.iter().for_each(|(key, value)| options.set(key, &value.to_string()));
        } else {
            settings.quality.iter().for_each(|(key, value)| options.set(key, value));
            if let (Held::Quantizer(q), Some(_)) = (held, settings.quantizers()) {
                options.set("crf", &q.to_string());
            }
        }
        let encoder = video.open_as_with(found, options).map_err(|e| {
            failed(e).help("an encoder in hardware needs that hardware; vsteer-display codecs lists all")
        })?;
        let screen = frame::Video::new(Pixel::BGRZ, size.width as u32, size.height as u32);
        let scaler = if settings.pixels == Pixel::BGRZ {
            None
        } else {
            Some(scaler(name, size, Pixel::BGRZ, settings.pixels)?)
        };
        let frame = frame::Video::new(settings.pixels, size.width as u32, size.height as u32);
        Ok(Sender { name, encoder, scaler, surfaces, screen, frame, packet: Packet::empty(), given: 0 })
    }
}

impl Encoder for Sender {
    fn convert(&mut self, pixels: &[u8]) -> Result<(), Fault> {
        let to = if self.scaler.is_some() { &mut self.screen } else { &mut self.frame };
        let (stride, line) = (to.stride(0), to.width() as usize * PIXEL);
        for (to, from) in to.data_mut(0).chunks_mut(stride).zip(pixels.chunks_exact(line)) {
            to[..line].copy_from_slice(from);
        }
        match &mut self.scaler {
            Some(scaler) => {
                scaler.run(&self.screen, &mut self.frame).map_err(failed(self.name, "converting colours"))
            }
            None => Ok(()),
        }
    }

    fn encode(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        // Consecutive frames at the given rate. The encoder need not know which of the application's frames
        // were skipped.
        self.frame.set_pts(Some(self.given));
        self.given += 1;
        self.frame.set_kind(ffmpeg::picture::Type::None);
        let surface = self.surfaces.as_ref().map(|s| s.upload(&self.frame)).transpose()?;
        let frame = surface.as_ref().unwrap_or(&self.frame);
        self.encoder.send_frame(frame).map_err(failed(self.name, "encoding"))?;
        loop {
            match self.encoder.receive_packet(&mut self.packet) {
                Ok(()) => out.extend_from_slice(self.packet.data().unwrap_or_default()),
                Err(e) if e == AGAIN => return Ok(()),
                Err(e) => return Err(failed(self.name, "encoding")(e)),
            }
        }
    }
}

pub struct Receiver {
    name: &'static str,
    decoder: decoder::Video,
    /// No frame needs another one.
    each_whole: bool,
    size: Size,
    /// For the pixel format that the stream reports.
    scaler: Option<(Pixel, scaling::Context)>,
    frame: frame::Video,
    next: frame::Video,
    screen: frame::Video,
}

impl Receiver {
    /// See [`super::Codec::decoder`].
    pub fn new(name: &'static str, settings: &Settings, size: Size) -> Result<Receiver, Fault> {
        quiet();
        let found = decoder::find(settings.id).ok_or_else(|| missing(name, settings))?;
        let mut context = codec::context::Context::new_with_codec(found);
        context.set_threading(threading::Config { count: 1, ..threading::Config::default() });
        context.set_flags(codec::Flags::LOW_DELAY);
        let decoder = context.decoder().video().map_err(failed(name, "opening the decoder"))?;
        let screen = frame::Video::new(Pixel::BGRZ, size.width as u32, size.height as u32);
        let each_whole = matches!(settings.id, codec::Id::PNG | codec::Id::MJPEG);
        Ok(Receiver {
            name,
            decoder,
            each_whole,
            size,
            scaler: None,
            frame: frame::Video::empty(),
            next: frame::Video::empty(),
            screen,
        })
    }
}

impl Decoder for Receiver {
    fn decode(&mut self, bytes: &[u8]) -> Result<bool, Fault> {
        // Nothing was sent yet.
        if bytes.is_empty() {
            return Ok(false);
        }
        let mut packet = Packet::copy(bytes);
        if self.each_whole {
            // Without this flag, PNG's decoder adds a frame to the previous one (libavcodec/pngdec.c, 5.1).
            packet.set_flags(codec::packet::Flags::KEY);
        }
        self.decoder.send_packet(&packet).map_err(failed(self.name, "decoding"))?;
        let mut any = false;
        loop {
            // A failed request for another frame discards the content of the frame, so this uses a second
            // one.
            match self.decoder.receive_frame(&mut self.next) {
                Ok(()) => {
                    any = true;
                    std::mem::swap(&mut self.frame, &mut self.next);
                }
                Err(e) if e == AGAIN => return Ok(any),
                Err(e) => return Err(failed(self.name, "decoding")(e)),
            }
        }
    }

    fn present(&mut self, pixels: &mut [u8]) -> Result<(), Fault> {
        let came = self.frame.format();
        let size = Size { width: self.frame.width() as usize, height: self.frame.height() as usize };
        if size != self.size {
            let what = format!("{}: a frame of {}x{} came", self.name, size.width, size.height);
            return Err(Fault::new(FaultKind::Failed, what));
        }
        if self.scaler.as_ref().is_none_or(|(pixel, _)| *pixel != came) {
            self.scaler = Some((came, scaler(self.name, self.size, came, Pixel::BGRZ)?));
        }
        let (_, scaler) = self.scaler.as_mut().expect("made above");
        scaler.run(&self.frame, &mut self.screen).map_err(failed(self.name, "converting colours"))?;
        let (stride, line) = (self.screen.stride(0), self.size.width * PIXEL);
        for (to, from) in pixels.chunks_exact_mut(line).zip(self.screen.data(0).chunks(stride)) {
            to.copy_from_slice(&from[..line]);
        }
        Ok(())
    }
}
