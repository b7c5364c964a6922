//! Which codec should it be, with which settings, by what was measured, and what would change that?
//!
//! Runs of one picture over one link are compared. A codec gives as many legible frames a second as were measured, or as the server's CPU that is allowed affords where that is less: a frame's
//! cost is taken for the same at other rates, which is so where quality is constant and about so where a rate is held. It will do where these are enough. Of those that will do the one with the
//! most is taken; those within [`ALIKE`] of it are as good, and of these the one that takes least of the server's CPU. Of each other codec it is said what binds it: that it cannot be read at its
//! rate, the CPU, or the link; with the CPU or the rate that it would need for what is asked.
//!
//! What a real server takes of a CPU is partly by the second and not by the frame (taking what is drawn): fewer frames of it save less than their part, so nothing is counted on that, and what it would
//! need for more is an upper bound. Left out: the viewer's CPU, which is told beside; prices; what a codec would make of other settings than those that were measured.

use super::row::Row;
use serde::{Deserialize, Serialize};

/// Legible frames per second within so much of the best are as good: nobody sees it.
const ALIKE: f64 = 0.05;

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Wanted {
    /// Legible frames per second, at least.
    pub fps: f64,
    /// Of the server's CPU, in percent of one pCPU, at most.
    pub cpu_percent: f64,
}

/// Why a codec was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// It will do, and another one does better.
    Nothing,
    /// What it sends cannot be read, or nothing came.
    Legibility,
    /// The server's CPU.
    Cpu,
    Link,
    /// Something else on the way: the viewer, or a machine that was busy.
    Other,
}

/// What is said of one codec.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    pub codec: String,
    /// The quantizer that it was given, where it was given one.
    pub quantizer: Option<i32>,
    /// The rate that it was told to hold, bit/s, where it was told one.
    pub codec_bit_s: Option<u64>,
    /// Will it do?
    pub does: bool,
    /// Legible frames per second, as measured.
    pub legible_fps: f64,
    /// Of these, what the server's CPU that is allowed affords.
    pub affords_fps: f64,
    /// The part of letters and symbols that can be read; none where nothing came or nothing was to be read.
    pub legibility: Option<f64>,
    /// Of the server's CPU at those frames that it sent, in percent of one pCPU.
    pub cpu_percent: f64,
    /// The same for the frames that are wanted.
    pub needs_percent: f64,
    /// What it sent, Mbit/s.
    pub mbit_s: f64,
    /// The same for the frames that are wanted; none where nothing came.
    pub needs_mbit_s: Option<f64>,
    /// Why it was not taken.
    pub bound_by: Bound,
}

/// For one picture over one link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// What is on the screen.
    pub picture: String,
    /// Of a picture that has some.
    pub targets: Option<u32>,
    pub size: [usize; 2],
    /// Frames per second that the application would draw.
    pub fps: Option<u32>,
    /// The link's rate, bit/s.
    pub link_bit_s: Option<u64>,
    /// The link's delay each way, ms.
    pub link_delay_ms: Option<f64>,
    /// What may wait for the link's rate, bytes.
    pub link_queue_bytes: Option<usize>,
    /// Datagrams that the link loses, %.
    pub link_loss_percent: Option<f64>,
    /// Which codec to take, the first of `all`; none where none will do.
    pub take: Option<String>,
    /// All, the best first.
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
    // Those as good as the best by their CPU, then the others by their frames.
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
    // A picture without letters is legible where it comes.
    let legible_fps = row.legible_fps.unwrap_or(row.received_fps);
    // What nobody saw has no cost per frame; it is told that nothing came.
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
    // Enough frames came, or few of those that came could be read: faster would not help.
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
        // Its bytes are by the frame, its CPU time not all.
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

    /// A codec that its CPU binds takes all of it whatever it gives: what counts is what the frames take that are wanted.
    #[test]
    fn one_that_takes_all_of_a_cpu_will_do_where_fewer_frames_are_enough() {
        let judged = of(&row("h264", 59.0, 59.0, 14.0, 50e3));
        assert!(judged.does && judged.bound_by == Bound::Nothing, "{judged:?}");
        assert!((judged.cpu_percent - 82.6).abs() < 0.1 && (judged.needs_percent - 28.0).abs() < 1e-9);
        // Half of a CPU affords 35.7 of its 59.
        assert!((judged.affords_fps - 35.7).abs() < 0.1, "{judged:?}");
        // One that gives as many for more is not as good; within the CPU, frames decide.
        let advice =
            advise(&[row("h264", 59.0, 59.0, 14.0, 50e3), row("slower", 40.0, 40.0, 12.0, 50e3)], WANTED);
        assert_eq!(advice[0].take.as_deref(), Some("slower"));
        // A real server's is not all by the frame: nobody knows what it would take for fewer.
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
