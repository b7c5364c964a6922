//! Runs GStreamer's sender and receiver of RTP as two pipelines. One captures an X display (Xvfb) in which
//! the application draws, encodes it and sends datagrams. The other receives, decodes and shows them in
//! another display, from which frames are read (onscreen.rs).
//!
//! There is no report of lost datagrams. After a loss, a stream is complete again with the next frame that
//! needs no other, once per second. The receiver waits for nothing (latency=0). An encoder that holds a rate
//! gets nine tenths of the link's rate. What was negotiated are the decoder's caps.
//!
//! Source: gst-launch-1.0 and the elements' properties as of GStreamer 1.22 (Debian 12); RFC 6184 (H.264),
//! RFC 2435 (JPEG). Left out: RTCP, retransmission, forward error correction.

use super::onscreen::{Home, OnScreen};
use super::process::Process;
use super::xdisplay;
use super::{Display, Started};
use crate::picture::canvas::Size;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vsteer_core::Fault;

pub const PROGRAM: &str = "gst-launch-1.0";
pub const PACKAGE: &str = "gstreamer1.0-tools gstreamer1.0-x gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-plugins-ugly gstreamer1.0-libav";
const STARTS_WITHIN: Duration = Duration::from_secs(30);
/// A rate is held over this time, ms. A frame is sent all at once, and a frame larger than the link's queue
/// never arrives completely. At 20 Mbit/s this time is 45 kB.
const BUCKET_MS: u32 = 20;
/// The largest packet; fits into Ethernet's 1,500 bytes.
const DATAGRAM: usize = 1400;

/// The video format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Video {
    /// Encoded by x264.
    H264,
    /// Separate images.
    Jpeg,
}

impl Video {
    /// Can it hold a rate?
    pub fn holds_rate(self) -> bool {
        self == Video::H264
    }

    /// Its name in RTP.
    fn name(self) -> &'static str {
        match self {
            Video::H264 => "H264",
            Video::Jpeg => "JPEG",
        }
    }

    /// The elements for encoding and packets.
    fn sends(self, rate: Option<u64>) -> String {
        match (self, rate) {
            (Video::H264, Some(rate)) => format!(
                "x264enc tune=zerolatency speed-preset=ultrafast threads=1 key-int-max=60 bitrate={} vbv-buf-capacity={BUCKET_MS} \
                 ! rtph264pay config-interval=-1 mtu={DATAGRAM}",
                (rate / 1000).max(1)
            ),
            (Video::H264, None) => format!(
                "x264enc tune=zerolatency speed-preset=ultrafast threads=1 key-int-max=60 pass=quant quantizer=24 \
                 ! rtph264pay config-interval=-1 mtu={DATAGRAM}"
            ),
            (Video::Jpeg, _) => format!("jpegenc quality=85 ! rtpjpegpay mtu={DATAGRAM}"),
        }
    }

    fn receives(self) -> &'static str {
        match self {
            Video::H264 => "rtph264depay ! avdec_h264 max-threads=1",
            Video::Jpeg => "rtpjpegdepay ! jpegdec",
        }
    }

    fn payload(self) -> u8 {
        match self {
            Video::H264 => 96,
            Video::Jpeg => 26,
        }
    }
}

fn words(pipeline: &str) -> Vec<String> {
    ["-v"].into_iter().chain(pipeline.split_whitespace()).map(str::to_owned).collect()
}

/// Starts the sender, which sends to the link.
///
/// # Errors
/// It or Xvfb is missing, or does not start.
pub fn start(
    size: Size,
    fps: u32,
    video: Video,
    rate: Option<u64>,
    link: SocketAddr,
) -> Result<Started, Fault> {
    let (screen, display) = xdisplay::virtual_screen(size)?;
    let home = Home::new(link.port())?;
    let pipeline = format!(
        "ximagesrc display-name=:{display} use-damage=false show-pointer=false ! video/x-raw,framerate={fps}/1 ! videoconvert \
         ! video/x-raw,format=I420 ! {} ! udpsink host=127.0.0.1 port={} sync=false",
        video.sends(rate),
        link.port()
    );
    let mut process = Process::start(PROGRAM, PACKAGE, &words(&pipeline), &home.environment(display))?;
    let plays = |p: &Process| p.said().iter().any(|line| line.contains("Setting pipeline to PLAYING"));
    process
        .until("it did not play", STARTS_WITHIN, plays)
        .map_err(|why| why.help(format!("where an element is missing: apt-get install {PACKAGE}")))?;
    let version = version(&home, display)?;
    Ok(Started {
        processes: vec![process, screen],
        display: Display::X(display),
        address: link,
        version,
        home: Some(home),
    })
}

fn version(home: &Home, display: u32) -> Result<String, Fault> {
    let mut asked = Process::start(PROGRAM, PACKAGE, &["--version".to_owned()], &home.environment(display))?;
    asked.line(STARTS_WITHIN)?;
    asked.line(STARTS_WITHIN)
}

/// Starts the receiver.
///
/// # Errors
/// It or Xvfb is missing, or does not start.
pub fn view(
    at: SocketAddr,
    video: Video,
    picture: Size,
    lost: impl Fn() -> String + 'static,
    stop: &AtomicBool,
) -> Result<OnScreen, Fault> {
    let pipeline = format!(
        "udpsrc address=127.0.0.1 port={} buffer-size=4000000 caps=application/x-rtp,media=video,clock-rate=90000,encoding-name={},payload={} \
         ! rtpjitterbuffer latency=0 ! {} ! videoconvert ! ximagesink sync=false",
        at.port(),
        video.name(),
        video.payload(),
        video.receives()
    );
    let told = move |said: &[String]| (format!("RTP, {}; {}", negotiated(said), lost()), None);
    OnScreen::start(
        (PROGRAM, PACKAGE),
        &words(&pipeline),
        Home::new(at.port())?,
        picture,
        Box::new(told),
        stop,
    )
}

/// The decoder's caps, from the output of `-v`: kind, profile, format.
fn negotiated(said: &[String]) -> String {
    let sink = said.iter().rev().find(|line| {
        (line.contains("avdec_h264") || line.contains("jpegdec")) && line.contains("GstPad:sink: caps = ")
    });
    let Some(caps) = sink.and_then(|line| line.split("caps = ").nth(1)) else {
        return "the decoder was given nothing".to_owned();
    };
    let mut fields = caps.split(", ");
    let kind = fields.next().unwrap_or_default();
    let profile = fields.find_map(|f| f.strip_prefix("profile=(string)"));
    profile.map_or(kind.to_owned(), |profile| format!("{kind} {profile}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of gst-launch-1.0 1.22.0 (Debian 12), with codec_data shortened.
    #[test]
    fn what_was_negotiated_are_the_decoders_caps() {
        let said = "/GstPipeline:pipeline0/avdec_h264:avdec_h264-0.GstPad:sink: caps = video/x-h264, stream-format=(string)avc, alignment=(string)au, \
                    codec_data=(buffer)0142c020, level=(string)3.2, profile=(string)constrained-baseline";
        assert_eq!(negotiated(&[said.to_owned()]), "video/x-h264 constrained-baseline");
        assert_eq!(negotiated(&["New clock: GstSystemClock".to_owned()]), "the decoder was given nothing");
    }
}
