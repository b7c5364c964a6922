//! Puts the changes of several pCPUs into order.
//!
//! Each pCPU records by its own clock, and another pCPU may record the wake-up of a vCPU than the one that then runs
//! it. So both changes can have the same time, or the wrong order by some ticks. Their states show the true order:
//! `blocked -> runnable` comes before `runnable -> running`.

use super::Change;

/// Clocks of pCPUs differ by less than this, ticks: some microseconds. A vCPU that really changes its state twice in
/// that time keeps its order if its states allow it.
const SKEW_TICKS: u64 = 10_000;

/// Sorts changes by time, and those of one vCPU on different pCPUs by their states.
pub(super) fn sort(changes: &mut [Change]) {
    // The sort is stable, so changes with the same time keep their order.
    changes.sort_by_key(|c| c.ticks);
    for i in 0..changes.len() {
        // A vCPU has four states, so a chain in the wrong order is short.
        for _ in 0..4 {
            let Some(j) = earlier(changes, i) else { break };
            // The later one moves to the front, and takes the time of the one that it must precede.
            changes[j].ticks = changes[i].ticks;
            changes[i..=j].rotate_right(1);
        }
    }
}

/// The change behind the one at `i` that must have come before it.
fn earlier(changes: &[Change], i: usize) -> Option<usize> {
    let c = changes[i];
    let near = changes[i + 1..].iter().take_while(|d| d.ticks - c.ticks <= SKEW_TICKS);
    let same = near.enumerate().find(|(_, d)| (d.domain, d.vcpu) == (c.domain, c.vcpu));
    let (at, d) = same?;
    (d.pcpu != c.pcpu && d.to == c.from && c.to != d.from).then_some(i + 1 + at)
}

#[cfg(test)]
mod tests {
    use super::super::Runstate::{self, Blocked, Runnable, Running};
    use super::*;

    fn change(ticks: u64, pcpu: u16, from: Runstate, to: Runstate) -> Change {
        Change { ticks, pcpu, domain: 1, vcpu: 0, from, to }
    }

    #[test]
    fn a_wake_up_comes_before_the_run() {
        for late in [0, 500] {
            let mut all = [
                change(1000, 0, Runnable, Running),
                change(9000, 0, Running, Blocked),
                change(1000 + late, 1, Blocked, Runnable),
            ];
            sort(&mut all);
            let told: Vec<_> = all.iter().map(|c| (c.ticks, c.to)).collect();
            assert_eq!(told, [(1000, Runnable), (1000, Running), (9000, Blocked)]);
        }
    }

    #[test]
    fn what_may_have_this_order_keeps_it() {
        let as_it_is = [
            // Both orders are possible, so time decides.
            change(1000, 0, Runnable, Running),
            change(1001, 1, Running, Runnable),
            // One pCPU has one clock.
            change(40_000, 2, Runnable, Running),
            change(40_001, 2, Blocked, Runnable),
            // No clock is wrong by so much.
            change(80_000, 0, Runnable, Running),
            change(80_001 + SKEW_TICKS, 1, Blocked, Runnable),
        ];
        let mut all = as_it_is;
        sort(&mut all);
        assert_eq!(all, as_it_is);
    }
}
