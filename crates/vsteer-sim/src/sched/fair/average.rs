//! Measures how much an entity recently wanted a CPU, with the kernel's decaying averages (per-entity load
//! tracking, PELT).
//!
//! **Idea.** Time is divided into periods of 1,024 us (in units of 1,024 ns, which the kernel treats as
//! microseconds). The weight of a period falls with every period that passes, to half after 32 periods. This
//! is a geometric series, so one sum is enough. An interval without a change is added at once, however long
//! it was. The average is the sum divided by its largest possible value at this point of the present period.
//!
//! Kept for every entity: `load` (its weight while it wants to run, waiting or running) and `util` (while it
//! runs, of 1,024). Kept for tasks: `runnable` (like load, without the weight).
//!
//! The integers are the kernel's, with the same rounding. One difference: the kernel's clock runs slower on a
//! slow pCPU and while a group is throttled; here the clock is real time.
//!
//! **Source**: kernel/sched/pelt.c and pelt.h of Linux 6.12.117; 6.1.192 has the same. Read, not copied.

/// The number of periods after which the past counts half (`LOAD_AVG_PERIOD`).
const HALF_LIFE: u64 = 32;
/// The limit of the sum of an entity that always wants to run: 1,024 for each period, decayed
/// (`LOAD_AVG_MAX`).
const MOST: i64 = 47_742;
/// A period, in units.
const PERIOD: u64 = 1024;
/// The smallest divider, at the very start of a period (`PELT_MIN_DIVIDER`).
pub(super) const LEAST_DIVIDER: i64 = MOST - PERIOD as i64;
/// Averages of time are fractions of this (`SCHED_CAPACITY_SCALE`).
pub(super) const WHOLE: i64 = 1024;

/// (2^32 - 1) y^n for n below 32, where y^32 is a half; rounded down.
const DECAY: [u64; HALF_LIFE as usize] = decays();

const fn decays() -> [u64; HALF_LIFE as usize] {
    // y = 2^(-1/32), that is, five square roots of a half, as a multiple of 2^-62.
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

/// The rest of `sum` after this many periods.
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
    /// While it wanted to run: its weight if `load_sum` is weighted (lines), otherwise 1. 0 if it did not
    /// want to run.
    pub(super) load: i64,
    /// How many of its tasks wanted to run; for a task 0 or 1.
    pub(super) runnable: i64,
    /// Did it run?
    pub(super) running: bool,
}

impl Average {
    /// The largest possible unweighted sum now (`get_pelt_divider`).
    #[inline]
    pub(super) fn divider(&self) -> i64 {
        LEAST_DIVIDER + self.part
    }

    /// Updates the averages to `now_ns`. `load_sum` must be multiplied by `weight`. True if a period ended,
    /// so that the averages changed.
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
                // The rest of its former period, all periods between, and the elapsed part of the present
                // one.
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

    /// By hand, y = 0.97857: the first period counts 1,024 y (1,002 and a bit, rounded down) when it ends;
    /// half a period later 512 more are in it. The next end finds (1,002 + 512) y = 1,481 and 512 y = 501 of
    /// the second half: 1,481.5 + 501.0 rounded down each, 1,982. The divider at the end of a period is
    /// 46,718.
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

    /// Updating in pieces gives the same as updating at once, except for one rounding per piece.
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

    /// An entity that wants to run every other 10 ms averages to a half, within the change that 10 ms of 32
    /// can make.
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
        // The two ends of the sawtooth: x = 1024 / (1 + y^(10 ms)), and 1,024 minus x.
        let y = 2f64.powf(-10.0 / 1.048_576 / 32.0);
        let upper = 1024.0 / (1.0 + y);
        assert!((most as f64 - upper).abs() < 4.0, "{most} {upper}");
        assert!((least as f64 - (1024.0 - upper)).abs() < 4.0, "{least}");
    }
}
