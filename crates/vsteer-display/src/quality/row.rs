//! The result of one run through a codec: rates, latency, bytes, CPU, and how much could be read.
//!
//! vsteer-display writes this record and reads it again. Frames count if they were presented within the
//! window. Latency is from the time at which the application should have drawn a frame to the time at which
//! it was presented. Names end with the unit.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// vsteer-display's name for the codec.
    pub codec: String,
    /// The library's encoder, or the server's own name and version.
    pub encoder: String,
    /// What another project's server and its viewer negotiated, according to the received data.
    #[serde(default)]
    pub negotiated: Option<String>,
    /// The picture on the screen.
    pub picture: String,
    /// The number of targets, if the picture has targets.
    pub targets: Option<u32>,
    pub width: usize,
    pub height: usize,
    /// Frames per second that the application would draw. `None` in rows of versions that did not store it;
    /// the same holds for the link's other properties.
    #[serde(default)]
    pub fps: Option<u32>,
    /// The link's rate, bit/s.
    pub link_bit_s: Option<u64>,
    /// The link's delay each way, ms.
    #[serde(default)]
    pub link_delay_ms: Option<f64>,
    /// How much may wait for the link's rate, bytes.
    #[serde(default)]
    pub link_queue_bytes: Option<usize>,
    /// The share of datagrams that the link loses, %.
    #[serde(default)]
    pub link_loss_percent: Option<f64>,
    /// The rate that the encoder should hold, bit/s.
    pub codec_bit_s: Option<u64>,
    /// The quantizer that was set so that the quality matches the others'.
    #[serde(default)]
    pub quantizer: Option<i32>,
    /// The start of the window, s since 1970, which is needed to compare with logs of servers. `None` in rows
    /// of versions that did not store it.
    #[serde(default)]
    pub from_unix_s: Option<f64>,
    /// The length of the window, s.
    pub window_s: f64,
    /// Frames per second that the application drew.
    pub source_fps: f64,
    /// Frames per second that were given to the link; `None` for another project's server, because it is not
    /// known.
    pub sent_fps: Option<f64>,
    /// Frames per second that were presented.
    pub received_fps: f64,
    /// Half the width of the 95 % interval of `received_fps`, from single seconds.
    pub received_fps_margin: Option<f64>,
    /// Received frames per second that could be read.
    pub legible_fps: Option<f64>,
    /// The 95 % interval of `legible_fps`, which comes from only `samples` frames (Wilson's, times
    /// `received_fps`).
    #[serde(default)]
    pub legible_fps_interval: Option<[f64; 2]>,
    /// The share of the source's readable letters and symbols that are readable in the received frame: mean
    /// over `samples` frames.
    pub legibility: Option<f64>,
    /// The same for the frame with the smallest share.
    pub legibility_least: Option<f64>,
    /// How many frames were kept and scored.
    pub samples: usize,
    /// How many of these equal the source in every bit. `None` in rows of versions that did not store it.
    #[serde(default)]
    pub exact_frames: Option<usize>,
    /// dB, from the mean squared error over all kept frames; infinite (null) if all are exact, and null if
    /// none was kept.
    pub psnr_db: Option<f64>,
    /// Structural similarity of brightness; 1 for equal frames.
    pub ssim: Option<f64>,
    /// VMAF of the kept frames, 0 to 100, without motion; its model comes from natural video. `None` if it
    /// was not requested.
    #[serde(default)]
    pub vmaf: Option<f64>,
    /// Gap between frames, ms: median, 95th, 99th percentile, longest.
    pub gap_ms: Option<[f64; 4]>,
    /// Number of gaps of at least 250 ms.
    pub stalls: usize,
    /// Mean difference between successive gaps.
    pub jitter_ms: Option<f64>,
    /// Standard deviation of the frame counts of single seconds, % of their mean.
    pub fluctuation_percent: Option<f64>,
    /// The 95 % interval of `fluctuation_percent`, if single seconds come from one normal distribution.
    #[serde(default)]
    pub fluctuation_interval: Option<[f64; 2]>,
    /// From source to presented, ms: median, 95th, 99th percentile, longest.
    pub latency_ms: Option<[f64; 4]>,
    /// Mean time in each stage, ms.
    pub stages_ms: Option<Stages>,
    /// Bytes per sent frame.
    pub bytes_per_frame: Option<f64>,
    /// The sent data, Mbit/s; for another project's server what its viewer received, even without a visible
    /// frame.
    pub mbit_s: f64,
    /// CPU times; see [`Cpu`].
    pub cpu: Cpu,
    /// Received frames that gave no picture.
    pub broken: usize,
    /// Frames whose picture showed another number.
    pub wrong: usize,
    /// The first failure's message.
    pub why: Option<String>,
    /// The position of the picture in the viewer's window.
    pub window_offset: [usize; 2],
}

/// Times between stages, ms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    /// From drawn to taken by the server.
    pub capture: f64,
    /// Converting the colours for the codec.
    pub convert: f64,
    pub encode: f64,
    /// From the first byte given to the link to the last byte read from it. This includes waiting for a
    /// viewer that still decodes the previous frame.
    pub link: f64,
    /// Decoding.
    pub decode: f64,
    /// Converting to the screen's colours.
    pub present: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Per drawn frame, ms.
    pub draw_ms: f64,
    /// Per sent frame, ms: converting, encoding, sending, and the codec's own threads. For another project's
    /// server: its whole process, per presented frame; `None` without presented frames.
    pub server_ms: Option<f64>,
    /// The part for encoding and the codec's own threads; `None` for another project's server, because it is
    /// not known.
    pub encode_ms: Option<f64>,
    /// Per presented frame, ms: receiving, decoding, presenting; `None` without presented frames.
    pub viewer_ms: Option<f64>,
    /// CPU time of the measuring program itself, in percent of one CPU.
    pub harness_percent: f64,
}
