//! Which codec should it be, by what was measured, and what would change that?
//!
//! Runs of one picture over one link are compared. A codec will do where enough frames a second can be read and the server's CPU allows it. Of those that will do the one
//! with the most legible frames is taken; those within [`ALIKE`] of it are as good, and of these the one that takes least of the server's CPU. Of each other codec it
//! is said what binds it: that it cannot be read at this rate, the CPU, or the link; with the CPU or the rate that it would need for what is asked.
//!
//! A frame's cost in CPU and bytes is taken for the same at other rates, which is so where quality is constant and about so where a rate is held; of real servers' CPU it is an upper bound. Left out: the
//! viewer's CPU, which is told beside; prices.

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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "bound_by")]
pub enum Bound {
    /// It will do, and another one does better.
    Nothing,
    /// What it sends cannot be read.
    Legibility {
        /// The part of letters and symbols that can be read; none where nothing came.
        read: Option<f64>,
    },
    /// The server's CPU.
    Cpu {
        /// What it would need for what is wanted, in percent of one pCPU.
        needs_percent: f64,
    },
    /// The link.
    Link {
        /// What it would need for what is wanted, Mbit/s.
        needs_mbit_s: f64,
    },
    /// Something else on the way: the viewer, or a machine that was busy.
    Other,
}

/// What is said of one codec.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// Its name.
    pub codec: String,
    /// Will it do?
    pub does: bool,
    /// Legible frames per second.
    pub legible_fps: f64,
    /// Of the server's CPU at those frames that it sent, in percent of one pCPU.
    pub cpu_percent: f64,
    /// What it sent, Mbit/s.
    pub mbit_s: f64,
    /// Why it was not taken.
    #[serde(flatten)]
    pub bound: Bound,
}

/// For one picture over one link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// What is on the screen.
    pub picture: String,
    /// Of a picture that has some.
    pub targets: Option<u32>,
    /// Pixels.
    pub size: [usize; 2],
    /// The link's rate, bit/s.
    pub link_bit_s: Option<u64>,
    /// Which codec to take; none where none will do.
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
    let key = |r: &Row| (r.targets, r.width, r.height, r.link_bit_s);
    a.picture == b.picture && key(a) == key(b)
}

fn of_group(rows: &[&Row], wanted: Wanted) -> Advice {
    let mut all: Vec<Judged> = rows.iter().map(|row| judge(row, wanted)).collect();
    let best = all.iter().filter(|j| j.does).map(|j| j.legible_fps).fold(0.0, f64::max);
    let among = |j: &Judged| j.does && j.legible_fps >= (1.0 - ALIKE) * best;
    // Those as good as the best by their CPU, then the others by their frames.
    all.sort_by(|a, b| {
        among(b).cmp(&among(a)).then(b.does.cmp(&a.does)).then_with(|| {
            if among(a) {
                a.cpu_percent.total_cmp(&b.cpu_percent)
            } else {
                b.legible_fps.total_cmp(&a.legible_fps)
            }
        })
    });
    let first = rows[0];
    Advice {
        picture: first.picture.clone(),
        targets: first.targets,
        size: [first.width, first.height],
        link_bit_s: first.link_bit_s,
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
    let enough = legible_fps >= wanted.fps;
    let does = enough && cpu_percent <= wanted.cpu_percent;
    let needs_percent = server_ms * wanted.fps / 10.0;
    let needs_mbit_s = row.bytes_per_frame.map(|bytes| bytes * 8e-6 * wanted.fps);
    let link_mbit_s = row.link_bit_s.map(|bits| bits as f64 / 1e6);
    // Frames came and few of them could be read: faster would not help.
    let unread = row.legible_fps.is_some_and(|legible| legible < 0.5 * row.received_fps);
    let over_link = needs_mbit_s.zip(link_mbit_s).filter(|(needs, link)| needs > link);
    // What a server of somebody else's takes of a CPU is partly by the second (taking what is drawn), not by the frame that it sends: it is asked for its bytes first.
    let bytes_first = row.negotiated.is_some() && !enough;
    let bound = if does {
        Bound::Nothing
    } else if unread || row.received_fps == 0.0 {
        Bound::Legibility { read: row.legibility }
    } else if let Some((needs_mbit_s, _)) = over_link.filter(|_| bytes_first) {
        Bound::Link { needs_mbit_s }
    } else if needs_percent > wanted.cpu_percent || enough {
        Bound::Cpu { needs_percent }
    } else if let Some((needs_mbit_s, _)) = over_link {
        Bound::Link { needs_mbit_s }
    } else {
        Bound::Other
    };
    Judged { codec: row.codec.clone(), does, legible_fps, cpu_percent, mbit_s: row.mbit_s, bound }
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
            link_bit_s: Some(20_000_000),
            codec_bit_s: None,
            quantizer: None,
            from_unix_s: None,
            window_s: 10.0,
            source_fps: 60.0,
            sent_fps: Some(received),
            received_fps: received,
            received_fps_margin: None,
            legible_fps: Some(legible),
            legibility: Some(if legible < received { 0.5 } else { 1.0 }),
            legibility_least: None,
            samples: 12,
            psnr_db: None,
            ssim: None,
            vmaf: None,
            gap_ms: None,
            stalls: 0,
            jitter_ms: None,
            fluctuation_percent: None,
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
        let bound = |name: &str| advice[0].all.iter().find(|j| j.codec == name).unwrap().bound.clone();
        assert_eq!(bound("good"), Bound::Nothing);
        assert_eq!(bound("fast"), Bound::Legibility { read: Some(0.5) });
        assert_eq!(bound("dear"), Bound::Cpu { needs_percent: 60.0 });
        assert_eq!(bound("wide"), Bound::Link { needs_mbit_s: 48.0 });
    }

    #[test]
    fn a_real_servers_cpu_time_is_not_all_by_the_frame_so_its_bytes_are_asked_first() {
        let mut server = row("server", 8.0, 8.0, 50.0, 300e3);
        let of = |row: &Row| advise(std::slice::from_ref(row), WANTED)[0].all[0].bound.clone();
        assert_eq!(of(&server), Bound::Cpu { needs_percent: 100.0 });
        server.negotiated = Some("as it came".into());
        assert_eq!(of(&server), Bound::Link { needs_mbit_s: 48.0 });
        server.link_bit_s = None;
        assert_eq!(of(&server), Bound::Cpu { needs_percent: 100.0 });
    }

    #[test]
    fn where_none_will_do_none_is_taken_and_links_are_apart() {
        let mut other = row("fast", 60.0, 60.0, 5.0, 5e3);
        other.link_bit_s = None;
        let advice = advise(&[row("slow", 5.0, 5.0, 200.0, 9e3), other], WANTED);
        assert_eq!(advice.iter().map(|a| a.take.as_deref()).collect::<Vec<_>>(), [None, Some("fast")]);
        assert_eq!(advice[0].all[0].bound, Bound::Cpu { needs_percent: 400.0 });
    }
}
