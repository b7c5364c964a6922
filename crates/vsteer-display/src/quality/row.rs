//! What is said of one run through a codec: rates, latency, bytes, CPU, and how much could be read.
//!
//! A noun, as it is written and read again; vsteer-display makes it. Frames count where they were presented within the window. Latency is from the moment at
//! which the application was to draw a frame to the moment at which it was seen. Units stand at the ends of names.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// By vsteer-display's name.
    pub codec: String,
    /// The library's encoder, or the server's own name and version.
    pub encoder: String,
    /// What a server of somebody else's and its viewer agreed on, as it was seen in what came.
    #[serde(default)]
    pub negotiated: Option<String>,
    /// What was on the screen.
    pub picture: String,
    /// Of a picture that has some.
    pub targets: Option<u32>,
    pub width: usize,
    pub height: usize,
    /// Frames per second that the application would draw. None in rows of versions that did not tell it; so are the link's other properties.
    #[serde(default)]
    pub fps: Option<u32>,
    /// The link's, bit/s.
    pub link_bit_s: Option<u64>,
    /// The link's delay each way, ms.
    #[serde(default)]
    pub link_delay_ms: Option<f64>,
    /// What may wait for the link's rate, bytes.
    #[serde(default)]
    pub link_queue_bytes: Option<usize>,
    /// Datagrams that the link loses, %.
    #[serde(default)]
    pub link_loss_percent: Option<f64>,
    /// What the encoder was told to hold, bit/s.
    pub codec_bit_s: Option<u64>,
    /// The quantizer that it was given, so that its quality matches others'.
    #[serde(default)]
    pub quantizer: Option<i32>,
    /// From when on was counted, s since 1970: by it others' logs are laid beside. None in rows of versions that did not tell it.
    #[serde(default)]
    pub from_unix_s: Option<f64>,
    /// For how long was counted, s.
    pub window_s: f64,
    /// Frames per second that the application drew.
    pub source_fps: f64,
    /// Frames per second that were given to the link; not known of a server of somebody else's.
    pub sent_fps: Option<f64>,
    /// Frames per second that were presented.
    pub received_fps: f64,
    /// Half of the 95 % interval of `received_fps`, from single seconds.
    pub received_fps_margin: Option<f64>,
    /// Of those received, the ones that could be read.
    pub legible_fps: Option<f64>,
    /// The 95 % interval of `legible_fps`, for it is known from `samples` frames only (Wilson's, times `received_fps`).
    #[serde(default)]
    pub legible_fps_interval: Option<[f64; 2]>,
    /// Of letters and symbols that can be read in the source, the part that can be read in what came: mean over `samples` frames.
    pub legibility: Option<f64>,
    /// The frame of them in which least could be read.
    pub legibility_least: Option<f64>,
    /// Frames that were kept and scored.
    pub samples: usize,
    /// Of them those that came as they were shown, to the last bit. None in rows of versions that did not tell it.
    #[serde(default)]
    pub exact_frames: Option<usize>,
    /// dB, of the mean squared error over all frames that were kept; infinite (null) where all are exact, and null where none was kept.
    pub psnr_db: Option<f64>,
    /// Of brightness, 1 for equal frames.
    pub ssim: Option<f64>,
    /// VMAF of the frames that were kept, 0 to 100, motion left out: of a model of natural video. None where it was not asked for.
    #[serde(default)]
    pub vmaf: Option<f64>,
    /// From frame to frame, ms: median, 95th, 99th percentile, longest.
    pub gap_ms: Option<[f64; 4]>,
    /// Gaps of 250 ms and more.
    pub stalls: usize,
    /// Mean change from gap to gap.
    pub jitter_ms: Option<f64>,
    /// Standard deviation of the frames of single seconds, % of their mean.
    pub fluctuation_percent: Option<f64>,
    /// The 95 % interval of `fluctuation_percent`, for single seconds that are drawn from one normal distribution.
    #[serde(default)]
    pub fluctuation_interval: Option<[f64; 2]>,
    /// From source to presented, ms: median, 95th, 99th percentile, longest.
    pub latency_ms: Option<[f64; 4]>,
    /// Where it passed, mean ms.
    pub stages_ms: Option<Stages>,
    /// Of those sent.
    pub bytes_per_frame: Option<f64>,
    /// What was sent, Mbit/s; of a server of somebody else's what its viewer was given, whether a frame was seen in it or not.
    pub mbit_s: f64,
    /// See [`Cpu`].
    pub cpu: Cpu,
    /// Frames that came and gave no picture.
    pub broken: usize,
    /// Frames whose picture was of another number.
    pub wrong: usize,
    /// What was said of the first that failed.
    pub why: Option<String>,
    /// Where the picture was found in the viewer's window.
    pub window_offset: [usize; 2],
}

/// From stage to stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    /// Drawn and taken.
    pub capture: f64,
    /// Colours are made the codec's.
    pub convert: f64,
    pub encode: f64,
    /// From the first byte given to the link to the last one that was taken from it: what waits for a viewer that still decodes the one before is in it.
    pub link: f64,
    /// Made a picture.
    pub decode: f64,
    /// Made the screen's colours.
    pub present: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Per frame drawn, ms.
    pub draw_ms: f64,
    /// Per frame sent, ms: converting, encoding, sending, and the codec's own threads; of a server of somebody else's all of its process, per frame presented, and none where none was.
    pub server_ms: Option<f64>,
    /// Of that encoding alone, and the codec's own threads; not known of a server of somebody else's.
    pub encode_ms: Option<f64>,
    /// Per frame presented, ms: receiving, decoding, presenting; none where none was.
    pub viewer_ms: Option<f64>,
    /// All the rest, in percent of one CPU.
    pub harness_percent: f64,
}
