//! A display pipeline: decodes or renders a frame, waits until it is due, shows it, and continues.
//!
//! Idea: each frame is one burst, perhaps followed by a time on a device. If the frame is early, the guest
//! sleeps until the frame's time, when the burst of the next frame starts. If it is late, it is shown at
//! once. Players differ in how they handle lateness: they catch up without limit, restart their clock above
//! some lateness, or drop frames whose time has passed.
//!
//! Source: MPlayer 1.0 without sound (`mplayer.c`: frames are never dropped, the clock restarts above three
//! frames); `-framedrop` drops. Left out: reordered frames, several stages on several vCPUs, the display's
//! own refresh. A frame counts as shown when it is due, even if the vCPU runs later; that delay is part of
//! the sleeps.

use super::jobs::{Jobs, Tally};
use super::times::{Draw, Times, positive};
use super::{Next, Sleeps};
use serde::{Deserialize, Serialize};
use vsteer_core::random::Random;
use vsteer_core::span::LONGEST_NS;
use vsteer_core::{Fault, FaultKind};

/// A display pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DisplaySpec {
    /// Time between two frames, ns.
    pub period_ns: u64,
    /// CPU time of each frame.
    pub work: Times,
    /// Time that each frame then takes on a device (a GPU), while the vCPU sleeps.
    pub device: Option<Times>,
    /// Lateness, ns, after which the clock restarts with the shown frame; `None`: catches up without limit.
    pub reset_ns: Option<u64>,
    /// Does it skip frames whose time has passed when their turn comes?
    pub drop: bool,
}

impl DisplaySpec {
    pub(super) fn check(&self, whose: &str) -> Result<(), Fault> {
        positive(&format!("{whose}: period"), self.period_ns)?;
        if self.reset_ns.is_some_and(|ns| ns > LONGEST_NS) {
            return Err(Fault::new(FaultKind::BadInput, format!("{whose}: reset is longer than ten years"))
                .help("leave reset out for no reset"));
        }
        self.device.map_or(Ok(()), |t| t.check(&format!("{whose}: device")))?;
        self.work.check(&format!("{whose}: work"))
    }
}

/// The running state of a pipeline.
#[derive(Debug, Clone)]
pub(super) struct Frames {
    period_ns: u64,
    work: Draw,
    device: Option<Draw>,
    reset_ns: u64,
    drop: bool,
    /// The due time of the frame that is being decoded.
    due_ns: u64,
    asked: u64,
    asked_ns: u64,
    tally: Tally,
}

impl Frames {
    pub(super) fn new(spec: DisplaySpec) -> Frames {
        Frames {
            period_ns: spec.period_ns,
            work: spec.work.into(),
            device: spec.device.map(Draw::from),
            reset_ns: spec.reset_ns.unwrap_or(u64::MAX),
            drop: spec.drop,
            due_ns: 0,
            asked: 0,
            asked_ns: 0,
            // A frame's deadline is its due time.
            tally: Tally::new(0),
        }
    }

    /// The first frame is decoded at once and due one period later.
    pub(super) fn begin(&mut self, now_ns: u64, random: &mut Random) -> Next {
        self.due_ns = now_ns + self.period_ns;
        Next { at_ns: now_ns, work_ns: self.work.draw(random) }
    }

    pub(super) fn burst_done(&mut self, now_ns: u64, random: &mut Random) -> Next {
        let ready_ns = now_ns + self.device.as_ref().map_or(0, |d| d.draw(random));
        let late_ns = ready_ns.saturating_sub(self.due_ns);
        self.tally.count(late_ns);
        if ready_ns < self.due_ns {
            self.asked += 1;
            self.asked_ns += self.due_ns - ready_ns;
        }
        let at_ns = ready_ns.max(self.due_ns);
        if late_ns > self.reset_ns {
            self.due_ns = ready_ns;
        }
        self.due_ns += self.period_ns;
        if self.drop && self.due_ns < at_ns {
            let over = (at_ns - self.due_ns).div_ceil(self.period_ns);
            self.tally.dropped += over;
            self.due_ns += over * self.period_ns;
        }
        Next { at_ns, work_ns: self.work.draw(random) }
    }

    pub(super) fn jobs(&self) -> Jobs {
        self.tally.jobs()
    }

    /// How many frames were shown.
    pub(super) fn shown(&self) -> u64 {
        self.tally.done
    }

    pub(super) fn sleeps(&self) -> Sleeps {
        Sleeps { asked: self.asked, asked_ns: self.asked_ns, ..Sleeps::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(reset_ns: Option<u64>, drop: bool) -> (Frames, Random) {
        let spec = DisplaySpec { period_ns: 50, work: Times::Fixed(20), device: None, reset_ns, drop };
        spec.check("x").unwrap();
        (Frames::new(spec), Random::new(1, 0))
    }

    #[test]
    fn an_early_frame_waits_and_a_late_one_is_caught_up_with() {
        let (mut f, mut r) = frames(None, false);
        assert_eq!(f.begin(1000, &mut r), Next { at_ns: 1000, work_ns: 20 });
        assert_eq!(f.burst_done(1020, &mut r).at_ns, 1050, "30 early");
        assert_eq!(f.burst_done(1120, &mut r).at_ns, 1120, "due at 1100");
        assert_eq!(f.burst_done(1140, &mut r).at_ns, 1150, "in time again");
        let (jobs, sleeps) = (f.jobs(), f.sleeps());
        assert_eq!((jobs.done, jobs.late, jobs.response_ns), (3, 1, 20));
        assert_eq!((sleeps.asked, sleeps.asked_ns), (2, 40));
    }

    #[test]
    fn the_clock_begins_anew_beyond_the_limit() {
        let (mut f, mut r) = frames(Some(150), false);
        f.begin(0, &mut r);
        assert_eq!(f.burst_done(200, &mut r).at_ns, 200, "150 late: not beyond");
        assert_eq!(f.burst_done(220, &mut r).at_ns, 220, "due at 100, 120 late");
        f.burst_done(400, &mut r);
        assert_eq!(f.burst_done(420, &mut r).at_ns, 450, "250 late: the next is due 50 after it was shown");
    }

    #[test]
    fn frames_whose_moment_is_over_are_dropped() {
        let (mut f, mut r) = frames(None, true);
        f.begin(0, &mut r);
        assert_eq!(f.burst_done(170, &mut r).at_ns, 170);
        assert_eq!(f.jobs().dropped, 2, "those due at 100 and 150");
        assert_eq!(f.burst_done(190, &mut r).at_ns, 200);
    }
}
