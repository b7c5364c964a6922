//! Which entity is preferred if that is fair? The buddies of every line up to the root.
//!
//! A task that goes to sleep leaves its siblings to be preferred; under CFS one that preempts is, and after it the
//! one that it preempted. A task that runs, leaves or yields is no longer a buddy.
//!
//! Source: kernel/sched/fair.c of Linux 6.12.117 and 6.1.192 (`set_next_buddy`, `set_last_buddy`, `clear_buddies`).

use super::{Fair, Line, NONE, Rules};

impl<R: Rules> Fair<R> {
    /// One of `e`'s own went to sleep and left others in line: at every level up, they are preferred.
    pub(super) fn prefer(&mut self, e: u32) {
        let mut e = e;
        while e != NONE && self.lines.entities[e as usize].queued {
            let line = self.lines.entities[e as usize].line;
            self.lines.lines[line as usize].next = e;
            e = self.above(e);
        }
    }

    /// The same for one that was preempted: it is to come back when its preemptor is done.
    pub(super) fn prefer_last(&mut self, e: u32) {
        let mut e = e;
        while e != NONE && self.lines.entities[e as usize].queued {
            let line = self.lines.entities[e as usize].line;
            self.lines.lines[line as usize].last = e;
            e = self.above(e);
        }
    }

    /// `e` is no longer preferred (or passed over), nor those above it on its account.
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

    /// `e` has left `line`, where others remain; it slept. Its siblings are preferred unless something above is
    /// throttled.
    pub(super) fn prefer_siblings(&mut self, line: u32) {
        let owner = self.lines.lines[line as usize].owner;
        if owner != NONE && !self.lines.lines[line as usize].throttled && !self.held(owner) {
            self.prefer(owner);
        }
    }
}
