//! The buddies of every line up to the root: entities that the scheduler prefers if that is fair.
//!
//! A task that goes to sleep makes its siblings preferred. Under CFS, a task that preempts is preferred, and
//! after it the task that it preempted. A task that runs, leaves or yields is no longer a buddy.
//!
//! Source: kernel/sched/fair.c of Linux 6.12.117 and 6.1.192 (`set_next_buddy`, `set_last_buddy`,
//! `clear_buddies`).

use super::{Fair, Line, NONE, Rules};

impl<R: Rules> Fair<R> {
    /// A task below `e` went to sleep and left others in line. `e` and the groups above it become preferred.
    pub(super) fn prefer(&mut self, e: u32) {
        let mut e = e;
        while e != NONE && self.lines.entities[e as usize].queued {
            let line = self.lines.entities[e as usize].line;
            self.lines.lines[line as usize].next = e;
            e = self.above(e);
        }
    }

    /// The same for a preempted task, which should continue after its preemptor.
    pub(super) fn prefer_last(&mut self, e: u32) {
        let mut e = e;
        while e != NONE && self.lines.entities[e as usize].queued {
            let line = self.lines.entities[e as usize].line;
            self.lines.lines[line as usize].last = e;
            e = self.above(e);
        }
    }

    /// `e` is no longer preferred (or skipped), and neither are the groups above it that were so because of
    /// `e`.
    #[inline]
    pub(super) fn forget(&mut self, e: u32) {
        let buddies: [fn(&mut Line) -> &mut u32; 3] = [|l| &mut l.next, |l| &mut l.last, |l| &mut l.skip];
        for buddy in buddies {
            let mut e = e;
            while e != NONE {
                let line = self.lines.entities[e as usize].line as usize;
                let it = buddy(&mut self.lines.lines[line]);
                if *it != e {
                    break;
                }
                *it = NONE;
                e = self.lines.lines[line].owner;
            }
        }
    }

    /// `e` slept and has left `line`, where others remain. Its siblings become preferred unless a line above
    /// is throttled.
    pub(super) fn prefer_siblings(&mut self, line: u32) {
        let owner = self.lines.lines[line as usize].owner;
        if owner != NONE && !self.lines.lines[line as usize].throttled && !self.held(owner) {
            self.prefer(owner);
        }
    }
}
