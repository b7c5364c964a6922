//! Recommends a codec and its settings from the measured runs, and says what would change the recommendation.
//!
//! The advice compares runs of one picture over one link. A codec's value is its measured legible frames per
//! second, or what the allowed CPU of the server affords, if that is less. This assumes that a frame costs
//! the same at other frame rates, which holds if quality is constant and roughly if a rate is held. A codec
//! is good enough if its value reaches the requirement. Of those, the one with most frames is taken. Those
//! within [`ALIKE`] of it are equally good; of these, the one that uses least of the server's CPU is taken.
//! For each other codec the advice names its limit: legibility, the CPU, or the link, with the CPU or the
//! rate that the requirement would need.
//!
//! Part of a real server's CPU time depends on time and not on frames (for example capturing the screen). So
//! fewer frames save less than their part. The advice therefore counts no savings there, and the CPU that a
//! server would need for more frames is an upper bound. Left out: the viewer's CPU, which is reported
//! separately; prices; the effect of settings that were not measured.

use super::row::Row;
use serde::{Deserialize, Serialize};

/// Legible frame rates within this part of the best are equally good, because no person sees the difference.
const ALIKE: f64 = 0.05;

/// The requirements.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Wanted {
    /// The least legible frames per second.
    pub fps: f64,
    /// The most of the server's CPU, in percent of one pCPU.
    pub cpu_percent: f64,
}

/// Why a codec was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// It is good enough, but another one is better.
    Nothing,
    /// What it sends cannot be read, or nothing arrived.
    Legibility,
    /// The server's CPU limits it.
    Cpu,
    Link,
    /// Something else on the path: the viewer, or a busy machine.
    Other,
}

/// The judgement of one codec.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    pub codec: String,
    /// The quantizer that was set, if any.
    pub quantizer: Option<i32>,
    /// The rate that it should hold, bit/s, if any.
    pub codec_bit_s: Option<u64>,
    /// Is it good enough?
    pub does: bool,
    /// Measured legible frames per second.
    pub legible_fps: f64,
    /// How many of these the allowed server CPU affords.
    pub affords_fps: f64,
    /// The share of readable letters and symbols; `None` if nothing arrived or there was nothing to read.
    pub legibility: Option<f64>,
    /// The server's CPU for the frames that it sent, in percent of one pCPU.
    pub cpu_percent: f64,
    /// The same for the required frames.
    pub needs_percent: f64,
    /// The sent data, Mbit/s.
    pub mbit_s: f64,
    /// The same for the required frames; `None` if nothing arrived.
    pub needs_mbit_s: Option<f64>,
    /// Why it was not taken.
    pub bound_by: Bound,
}

/// The advice for one picture over one link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// What is on the screen.
    pub picture: String,
    /// The number of targets, if the picture has targets.
    pub targets: Option<u32>,
    pub size: [usize; 2],
    /// Frames per second that the application would draw.
    pub fps: Option<u32>,
    /// The link's rate, bit/s.
    pub link_bit_s: Option<u64>,
    /// The link's delay each way, ms.
    pub link_delay_ms: Option<f64>,
    /// How much may wait for the link's rate, bytes.
    pub link_queue_bytes: Option<usize>,
    /// The share of datagrams that the link loses, %.
    pub link_loss_percent: Option<f64>,
    /// The recommended codec, the first of `all`; `None` if none is good enough.
    pub take: Option<String>,
    /// All codecs, the best first.
    pub all: Vec<Judged>,
}

/// Advice for each picture and link among the runs, in their order.
pub fn advise(rows: &[Row], wanted: Wanted) -> Vec<Advice> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        let same = |group: &&mut Vec<&Row>| is_alike(group[0], row);
        match groups.iter_mut().find(same) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups.iter().map(|group| of_group(group, wanted)).collect()
}

fn is_alike(a: &Row, b: &Row) -> bool {
    let picture = |r: &Row| (r.targets, r.width, r.height, r.fps);
    let link = |r: &Row| (r.link_bit_s, r.link_delay_ms, r.link_queue_bytes, r.link_loss_percent);
    a.picture == b.picture && picture(a) == picture(b) && link(a) == link(b)
}

fn of_group(rows: &[&Row], wanted: Wanted) -> Advice {
    let mut all: Vec<Judged> = rows.iter().map(|row| judge(row, wanted)).collect();
    let best = all.iter().filter(|j| j.does).map(|j| j.affords_fps).fold(0.0, f64::max);
    let among = |j: &Judged| j.does && j.affords_fps >= (1.0 - ALIKE) * best;
    // First those as good as the best, by their CPU; then the others, by their frames.
    all.sort_by(|a, b| {
        among(b).cmp(&among(a)).then(b.does.cmp(&a.does)).then_with(|| {
            if among(a) {
                a.needs_percent.total_cmp(&b.needs_percent)
            } else {
                b.affords_fps.total_cmp(&a.affords_fps)
            }
        })
    });
    let first = rows[0];
    Advice {
        picture: first.picture.clone(),
        targets: first.targets,
        size: [first.width, first.height],
        fps: first.fps,
        link_bit_s: first.link_bit_s,
        link_delay_ms: first.link_delay_ms,
        link_queue_bytes: first.link_queue_bytes,
        link_loss_percent: first.link_loss_percent,
        take: all.first().filter(|j| j.does).map(|j| j.codec.clone()),
        all,
    }
}

fn judge(row: &Row, wanted: Wanted) -> Judged {
    // A picture without letters counts as legible if it arrives.
    let legible_fps = row.legible_fps.unwrap_or(row.received_fps);
    // Frames that were never presented have no cost per frame. The advice says that nothing arrived.
    let server_ms = row.cpu.server_ms.unwrap_or(0.0);
    let cpu_percent = server_ms * row.sent_fps.unwrap_or(row.received_fps) / 10.0;
    let foreign = row.negotiated.is_some();
    let by_frame = server_ms * wanted.fps / 10.0;
    let needs_percent = if foreign && row.received_fps > wanted.fps { cpu_percent } else { by_frame };
    let affords_fps = if cpu_percent <= wanted.cpu_percent {
        legible_fps
    } else if foreign {
        0.0
    } else {
        legible_fps * wanted.cpu_percent / cpu_percent
    };
    let does = affords_fps >= wanted.fps && row.received_fps > 0.0;
    let needs_mbit_s = row.bytes_per_frame.map(|bytes| bytes * 8e-6 * wanted.fps);
    let link_mbit_s = row.link_bit_s.map(|bits| bits as f64 / 1e6);
    // Either enough frames arrived, or few of them could be read. In both cases more speed would not help.
    let unread = legible_fps < wanted.fps
        && row.legible_fps.is_some()
        && (row.received_fps >= wanted.fps || legible_fps < 0.5 * row.received_fps);
    let over_link = needs_mbit_s.zip(link_mbit_s).is_some_and(|(needs, link)| needs > link);
    let enough = legible_fps >= wanted.fps;
    let bound_by = if does {
        Bound::Nothing
    } else if unread || row.received_fps == 0.0 {
        Bound::Legibility
    } else if over_link && foreign && !enough {
        // Its bytes depend on the frames, but only part of its CPU time does.
        Bound::Link
    } else if needs_percent > wanted.cpu_percent || enough {
        Bound::Cpu
    } else if over_link {
        Bound::Link
    } else {
        Bound::Other
    };
    Judged {
        codec: row.codec.clone(),
        quantizer: row.quantizer,
        codec_bit_s: row.codec_bit_s,
        does,
        legible_fps,
        affords_fps,
        legibility: row.legibility,
        cpu_percent,
        needs_percent,
        mbit_s: row.mbit_s,
        needs_mbit_s,
        bound_by,
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::{Cpu, Row};
    use super::*;

    fn row(codec: &str, received: f64, legible: f64, server_ms: f64, bytes: f64) -> Row {
        Row {
            codec: codec.into(),
            encoder: codec.into(),
            negotiated: None,
            picture: "targets".into(),
            targets: Some(1000),
            width: 1920,
            height: 1080,
            fps: Some(60),
            link_bit_s: Some(20_000_000),
            link_delay_ms: Some(0.0),
            link_queue_bytes: Some(65_536),
            link_loss_percent: Some(0.0),
            codec_bit_s: None,
            quantizer: None,
            from_unix_s: None,
            window_s: 10.0,
            source_fps: 60.0,
            sent_fps: Some(received),
            received_fps: received,
            received_fps_margin: None,
            legible_fps: Some(legible),
            legible_fps_interval: None,
            legibility: Some(if legible < received { 0.5 } else { 1.0 }),
            legibility_least: None,
            samples: 12,
            exact_frames: Some(0),
            psnr_db: None,
            ssim: None,
            vmaf: None,
            gap_ms: None,
            stalls: 0,
            jitter_ms: None,
            fluctuation_percent: None,
            fluctuation_interval: None,
            latency_ms: None,
            stages_ms: None,
            bytes_per_frame: Some(bytes),
            mbit_s: bytes * 8e-6 * received,
            cpu: Cpu {
                draw_ms: 1.0,
                server_ms: Some(server_ms),
                encode_ms: Some(server_ms),
                viewer_ms: Some(1.0),
                harness_percent: 1.0,
            },
            broken: 0,
            wrong: 0,
            why: None,
            window_offset: [0, 0],
        }
    }

    const WANTED: Wanted = Wanted { fps: 20.0, cpu_percent: 50.0 };

    fn of(row: &Row) -> Judged {
        advise(std::slice::from_ref(row), WANTED)[0].all[0].clone()
    }

    #[test]
    fn the_cheaper_of_those_alike_is_taken_and_the_others_are_bound_by_what_binds_them() {
        let rows = [
            row("fast", 40.0, 0.0, 5.0, 50e3),
            row("good", 31.0, 31.0, 12.0, 80e3),
            row("as-good", 30.0, 30.0, 9.0, 80e3),
            row("dear", 20.0, 20.0, 30.0, 80e3),
            row("wide", 8.0, 8.0, 10.0, 300e3),
        ];
        let advice = advise(&rows, WANTED);
        assert_eq!(advice.len(), 1);
        assert_eq!(advice[0].take.as_deref(), Some("as-good"));
        let judged = |name: &str| advice[0].all.iter().find(|j| j.codec == name).unwrap().clone();
        assert_eq!(judged("good").bound_by, Bound::Nothing);
        assert_eq!((judged("fast").bound_by, judged("fast").legibility), (Bound::Legibility, Some(0.5)));
        assert_eq!((judged("dear").bound_by, judged("dear").needs_percent), (Bound::Cpu, 60.0));
        assert_eq!((judged("wide").bound_by, judged("wide").needs_mbit_s), (Bound::Link, Some(48.0)));
    }

    /// A codec that the CPU limits uses all of it at any frame rate. So the CPU for the required frames
    /// decides.
    #[test]
    fn one_that_takes_all_of_a_cpu_will_do_where_fewer_frames_are_enough() {
        let judged = of(&row("h264", 59.0, 59.0, 14.0, 50e3));
        assert!(judged.does && judged.bound_by == Bound::Nothing, "{judged:?}");
        assert!((judged.cpu_percent - 82.6).abs() < 0.1 && (judged.needs_percent - 28.0).abs() < 1e-9);
        // Half a CPU affords 35.7 of its 59 frames per second.
        assert!((judged.affords_fps - 35.7).abs() < 0.1, "{judged:?}");
        // A codec with the same frames for more CPU is not as good; within the allowed CPU, frames decide.
        let advice =
            advise(&[row("h264", 59.0, 59.0, 14.0, 50e3), row("slower", 40.0, 40.0, 12.0, 50e3)], WANTED);
        assert_eq!(advice[0].take.as_deref(), Some("slower"));
        // A real server's CPU time does not depend only on frames, so its need for fewer frames is unknown.
        let mut server = row("server", 59.0, 59.0, 14.0, 50e3);
        server.negotiated = Some("as it came".into());
        assert_eq!((of(&server).does, of(&server).bound_by), (false, Bound::Cpu));
        assert!(of(&server).needs_percent > 80.0);
    }

    #[test]
    fn frames_enough_of_which_too_few_can_be_read_are_bound_by_that() {
        let mut server = row("gstreamer-h264", 23.2, 11.6, 18.0, 48e3);
        server.negotiated = Some("RTP".into());
        assert_eq!(of(&server).bound_by, Bound::Legibility);
    }

    #[test]
    fn a_real_servers_cpu_time_is_not_all_by_the_frame_so_its_bytes_are_asked_first() {
        let mut server = row("server", 8.0, 8.0, 50.0, 300e3);
        assert_eq!((of(&server).bound_by, of(&server).needs_percent), (Bound::Cpu, 100.0));
        server.negotiated = Some("as it came".into());
        assert_eq!((of(&server).bound_by, of(&server).needs_mbit_s), (Bound::Link, Some(48.0)));
        server.link_bit_s = None;
        assert_eq!((of(&server).bound_by, of(&server).needs_percent), (Bound::Cpu, 100.0));
    }

    #[test]
    fn where_none_will_do_none_is_taken_and_links_are_apart() {
        let mut other = row("fast", 60.0, 60.0, 5.0, 5e3);
        other.link_bit_s = None;
        let mut far = row("fast", 60.0, 60.0, 5.0, 5e3);
        far.link_delay_ms = Some(100.0);
        let mut lossy = row("fast", 60.0, 60.0, 5.0, 5e3);
        lossy.link_loss_percent = Some(2.0);
        let advice = advise(&[row("slow", 5.0, 5.0, 200.0, 9e3), other, far, lossy], WANTED);
        let taken: Vec<_> = advice.iter().map(|a| a.take.as_deref()).collect();
        assert_eq!(taken, [None, Some("fast"), Some("fast"), Some("fast")]);
        assert_eq!((advice[0].all[0].bound_by, advice[0].all[0].needs_percent), (Bound::Cpu, 400.0));
    }

    #[test]
    fn settings_are_told_with_the_name() {
        let mut matched = row("h264", 30.0, 30.0, 9.0, 80e3);
        matched.quantizer = Some(28);
        let judged = of(&matched);
        assert_eq!((judged.quantizer, judged.codec_bit_s), (Some(28), None));
    }
}
