//! How much did an entity want a CPU recently? The kernel's decaying averages (per-entity load tracking, PELT).
//!
//! **Idea.** Time is cut into periods of 1,024 us (in units of 1,024 ns, which the kernel treats as microseconds).
//! What was wanted in a period counts less with every period that passes, by half after 32 of them: a geometric series,
//! so one sum is all that has to be kept, and a stretch in which nothing changed is added at once, however long it was.
//! The average is the sum over the most it can be at this point of the present period.
//!
//! Kept of everybody: `load` (weight while it wants to run, waiting or running), `util` (while it runs, of 1,024), and
//! of tasks `runnable` (as load, without the weight).
//!
//! The integers are the kernel's, roundings included, but that its clock runs slower on a slow pCPU and while a
//! group is throttled; here it is the time.
//!
//! **Source**: kernel/sched/pelt.c and pelt.h of Linux 6.12.117; 6.1.192 has the same. Read, not copied.

/// Periods after which what was counts half (`LOAD_AVG_PERIOD`).
const HALF_LIFE: u64 = 32;
/// What a sum grows to when somebody always wants to run: 1,024 for each period, decayed (`LOAD_AVG_MAX`).
const MOST: i64 = 47_742;
/// A period, in units.
const PERIOD: u64 = 1024;
/// The least divider there is, at the very beginning of a period (`PELT_MIN_DIVIDER`).
pub(super) const LEAST_DIVIDER: i64 = MOST - PERIOD as i64;
/// Averages of time are parts of this (`SCHED_CAPACITY_SCALE`).
pub(super) const WHOLE: i64 = 1024;

/// (2^32 - 1) y^n for n below 32, where y^32 is a half; rounded down.
const DECAY: [u64; HALF_LIFE as usize] = decays();

const fn decays() -> [u64; HALF_LIFE as usize] {
    // y = 2^(-1/32), five square roots of a half; in parts of 2^62.
    const ONE: u32 = 62;
    let mut y: u128 = 1 << (ONE - 1);
    let mut i = 0;
    while i < HALF_LIFE.ilog2() {
        y = root(y << ONE);
        i += 1;
    }
    let mut power: u128 = 1 << ONE;
    let mut all = [0; HALF_LIFE as usize];
    let mut n = 0;
    while n < HALF_LIFE as usize {
        all[n] = ((u32::MAX as u128 * power) >> ONE) as u64;
        power = (power * y) >> ONE;
        n += 1;
    }
    all
}

/// The square root, rounded down: bit by bit.
const fn root(of: u128) -> u128 {
    let mut at = 0u128;
    let mut bit = 63;
    loop {
        let with = at | 1 << bit;
        if with * with <= of {
            at = with;
        }
        if bit == 0 {
            return at;
        }
        bit -= 1;
    }
}

/// Rest of `sum` after this many periods.
fn decayed(sum: i64, periods: u64) -> i64 {
    if periods > HALF_LIFE * 63 {
        return 0;
    }
    let halved = (sum as u64) >> (periods / HALF_LIFE);
    ((u128::from(halved) * u128::from(DECAY[(periods % HALF_LIFE) as usize])) >> 32) as i64
}

/// The averages of one task, group or line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Average {
    /// Time of the last update, ns.
    pub(super) last_ns: i64,
    /// Units of the present period that have passed.
    pub(super) part: i64,
    pub(super) load_sum: i64,
    pub(super) runnable_sum: i64,
    pub(super) util_sum: i64,
    pub(super) load: i64,
    pub(super) runnable: i64,
    pub(super) util: i64,
}

/// What an entity did since the last update of its averages.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Did {
    /// Its weight where `load_sum` is weighted (lines), or 1, while it wanted to run; else 0.
    pub(super) load: i64,
    /// How many of it wanted to run, awake: of a task 0 or 1.
    pub(super) runnable: i64,
    /// Did it run?
    pub(super) running: bool,
}

impl Average {
    /// The most that an unweighted sum can be now (`get_pelt_divider`).
    #[inline]
    pub(super) fn divider(&self) -> i64 {
        LEAST_DIVIDER + self.part
    }

    /// Tells the averages up to `now_ns`. `weight` is what `load_sum` has to be multiplied by. True where a period
    /// ended, so that they changed.
    #[inline]
    pub(super) fn advance(&mut self, now_ns: i64, did: Did, weight: i64) -> bool {
        let units = (now_ns - self.last_ns) >> 10;
        if units <= 0 {
            return false;
        }
        self.last_ns += units << 10;
        if !self.accumulate(units as u64, did) {
            return false;
        }
        let divider = self.divider();
        self.load = weight * self.load_sum / divider;
        self.runnable = self.runnable_sum / divider;
        self.util = self.util_sum / divider;
        true
    }

    fn accumulate(&mut self, units: u64, did: Did) -> bool {
        let mut counts = units as i64;
        let reached = units + self.part as u64;
        let (periods, part) = (reached / PERIOD, (reached % PERIOD) as i64);
        if periods > 0 {
            self.load_sum = decayed(self.load_sum, periods);
            self.runnable_sum = decayed(self.runnable_sum, periods);
            self.util_sum = decayed(self.util_sum, periods);
            if did.load != 0 {
                // The end of the period that it was in, all of those between, what has passed of this one.
                let first = decayed(PERIOD as i64 - self.part, periods);
                let between = MOST - decayed(MOST, periods) - PERIOD as i64;
                counts = first + between + part;
            }
        }
        self.part = part;
        if did.load != 0 {
            self.load_sum += did.load * counts;
            self.runnable_sum += did.runnable * counts * WHOLE;
            self.util_sum += i64::from(did.running) * counts * WHOLE;
        }
        periods > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ns of a period.
    const PERIOD_NS: i64 = 1 << 20;
    const WAITS: Did = Did { load: 1, runnable: 1, running: false };

    /// Published values of the kernel's table: 2^32 times 2^(-1/32), 2^(-16/32), 2^(-31/32).
    #[test]
    fn decays_are_powers_of_the_32nd_root_of_a_half() {
        assert_eq!(DECAY[0], 0xffff_ffff);
        assert_eq!((DECAY[1], DECAY[16], DECAY[31]), (0xfa83_b2da, 0xb504_f333, 0x82cd_8698));
    }

    /// By hand, y = 0.97857: the first period counts 1,024 y (1,002 and a bit, rounded down) when it ends; half a
    /// period later 512 more are in it. The next end finds (1,002 + 512) y = 1,481 and 512 y = 501 of the second
    /// half: 1,481.5 + 501.0 rounded down each, 1,982. The divider at the end of a period is 46,718.
    #[test]
    fn periods_by_hand() {
        let mut a = Average::default();
        assert!(a.advance(PERIOD_NS, WAITS, 1024));
        assert_eq!((a.load_sum, a.part, a.divider()), (1002, 0, 46_718));
        assert_eq!(a.load, 1024 * 1002 / 46_718);
        assert!(!a.advance(PERIOD_NS * 3 / 2, WAITS, 1024), "no period ended");
        assert_eq!((a.load_sum, a.part), (1002 + 512, 512));
        assert!(a.advance(2 * PERIOD_NS, WAITS, 1024));
        assert_eq!((a.load_sum, a.part), (1481 + 501, 0));
    }

    #[test]
    fn who_always_wants_to_run_has_its_weight_as_load_and_32_periods_halve_it() {
        let mut a = Average::default();
        a.advance(3000 * PERIOD_NS, WAITS, 1024);
        assert!((1023..=1024).contains(&a.load), "{}", a.load);
        assert!((1023..=1024).contains(&a.runnable), "{}", a.runnable);
        assert_eq!(a.util, 0, "it never ran");
        let mut before = a.load;
        for n in 1..=10 {
            a.advance((3000 + 32 * n) * PERIOD_NS, Did::default(), 1024);
            assert!((a.load - before / 2).abs() <= 1, "{} of {before}", a.load);
            before = a.load;
        }
        a.advance(9000 * PERIOD_NS, Did::default(), 1024);
        assert_eq!((a.load, a.load_sum, a.runnable_sum), (0, 0, 0));
    }

    /// A stretch in pieces is the stretch at once, but for a rounding per piece.
    #[test]
    fn pieces_are_the_whole() {
        let (mut whole, mut pieces) = (Average::default(), Average::default());
        whole.advance(50 * PERIOD_NS + 700_000, WAITS, 1);
        let step_ns = 333_333;
        let mut at_ns = 0;
        while at_ns < 50 * PERIOD_NS + 700_000 {
            at_ns = (at_ns + step_ns).min(50 * PERIOD_NS + 700_000);
            pieces.advance(at_ns, WAITS, 1);
        }
        assert_eq!((whole.part, whole.last_ns), (pieces.part, pieces.last_ns));
        assert!((whole.load_sum - pieces.load_sum).abs() < 160, "{} {}", whole.load_sum, pieces.load_sum);
    }

    /// One that wants to run every other 10 ms averages to a half, within what 10 ms of 32 can move it.
    #[test]
    fn half_the_time_is_half_the_weight() {
        let mut a = Average::default();
        let (mut least, mut most) = (i64::MAX, 0);
        for turn in 1..400 {
            let did = if turn % 2 == 0 { WAITS } else { Did::default() };
            a.advance(turn * 10_000_000, did, 1024);
            if turn > 100 {
                (least, most) = (least.min(a.load), most.max(a.load));
            }
        }
        // The two ends of the sawtooth: x = 1024 / (1 + y^(10 ms)), and 1,024 less that.
        let y = 2f64.powf(-10.0 / 1.048_576 / 32.0);
        let upper = 1024.0 / (1.0 + y);
        assert!((most as f64 - upper).abs() < 4.0, "{most} {upper}");
        assert!((least as f64 - (1024.0 - upper)).abs() < 4.0, "{least}");
    }
}
