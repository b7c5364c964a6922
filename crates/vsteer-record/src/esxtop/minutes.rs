//! Gives seconds to rows whose times end with the minute, because a spreadsheet dropped the seconds.
//!
//! esxtop writes rows at a steady interval. The number of rows per minute tells it: 12 rows are 5 s apart. Each row
//! then follows the previous one by that interval, but never leaves its own minute. So errors do not add up, and a
//! pause stays a pause.

const MINUTE_NS: u64 = 60_000_000_000;

/// How many rows to read ahead: esxtop's shortest interval is 2 s, so they hold at least one whole minute.
pub(super) const LOOK: usize = 64;

/// The times of rows without seconds.
#[derive(Debug)]
pub(super) struct Minutes {
    /// The usual time between rows, ns.
    pub(super) interval_ns: u64,
    /// The rows did not show the interval, so vsteer assumes it.
    pub(super) is_assumed: bool,
    last_ns: Option<u64>,
    /// The first row lies this far behind the start of its minute, ns.
    first_ns: u64,
}

impl Minutes {
    /// Learns the interval from the times of the first rows; `assumed_ns` if they do not show it.
    pub(super) fn learn(times_ns: &[u64], assumed_ns: u64) -> Minutes {
        let begins: Vec<usize> = (1..times_ns.len()).filter(|i| times_ns[*i] > times_ns[i - 1]).collect();
        // From one row that begins a minute to the next such row: the time between them, and the number of rows.
        let mut spans: Vec<(u64, u64)> = begins
            .windows(2)
            .map(|w| (times_ns[w[1]] - times_ns[w[0]], (w[1] - w[0]) as u64))
            .filter(|(ns, _)| *ns < 24 * 60 * MINUTE_NS)
            .collect();
        spans.sort_unstable();
        let middle = spans.get(spans.len() / 2).map_or(0, |(ns, _)| *ns);
        // A longer span contains a pause.
        let usual = spans.iter().filter(|(ns, _)| *ns <= middle + MINUTE_NS);
        let (ns, rows) = usual.fold((0, 0), |(a, b), (ns, rows)| (a + ns, b + rows));
        let is_assumed = rows == 0;
        let interval_ns = if is_assumed { assumed_ns } else { (ns / rows).max(1) };
        let before = begins.first().map_or(0, |i| *i as u64 * interval_ns % MINUTE_NS);
        let first_ns = if begins.is_empty() || before == 0 { 0 } else { MINUTE_NS - before };
        Minutes { interval_ns, is_assumed, last_ns: None, first_ns }
    }

    /// The time of the next row, which lies in the minute that begins at `minute_ns`.
    pub(super) fn next(&mut self, minute_ns: u64) -> u64 {
        let end_ns = minute_ns.saturating_add(MINUTE_NS - 1);
        let ns = match self.last_ns {
            Some(last) => last.saturating_add(self.interval_ns).clamp(minute_ns, end_ns),
            None => minute_ns.saturating_add(self.first_ns).min(end_ns),
        };
        self.last_ns = Some(ns);
        ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// The minutes of rows that are `every` s apart, and what is made of them.
    fn told(every: u64, offset: u64, rows: u64) -> (Vec<u64>, Minutes) {
        let minutes: Vec<u64> = (0..rows).map(|i| (offset + i * every) / 60 * MINUTE_NS).collect();
        let learnt = Minutes::learn(&minutes[..minutes.len().min(LOOK)], 5 * S);
        (minutes, learnt)
    }

    #[test]
    fn the_number_of_rows_per_minute_tells_the_interval() {
        for (every, offset) in [(2, 0), (5, 0), (5, 17), (10, 58), (20, 3), (60, 0), (300, 30)] {
            let (minutes, mut learnt) = told(every, offset, 200);
            assert!(!learnt.is_assumed);
            assert_eq!(learnt.interval_ns, every * S, "{every} s from {offset} s on");
            let times: Vec<u64> = minutes.iter().map(|m| learnt.next(*m)).collect();
            let wrong = times.windows(2).filter(|w| w[1] - w[0] != every * S).count();
            assert!(wrong <= 1, "{every} s from {offset} s on: {wrong}");
            assert!(times.iter().zip(&minutes).all(|(t, m)| t / MINUTE_NS == m / MINUTE_NS));
        }
    }

    #[test]
    fn an_interval_that_divides_no_minute_stays_near() {
        let (minutes, mut learnt) = told(7, 0, 1000);
        assert!(learnt.interval_ns.abs_diff(7 * S) < S / 5, "{}", learnt.interval_ns);
        let times: Vec<u64> = minutes.iter().map(|m| learnt.next(*m)).collect();
        assert!(times[999].abs_diff(999 * 7 * S) <= MINUTE_NS);
        assert!(times.windows(2).all(|w| w[0] <= w[1]));
    }

    #[test]
    fn too_few_rows_show_nothing() {
        for rows in [1, 6, 12, 13] {
            let (_, learnt) = told(5, 0, rows);
            assert_eq!((learnt.is_assumed, learnt.interval_ns), (true, 5 * S), "{rows}");
        }
        let (_, learnt) = told(5, 0, 25);
        assert!(!learnt.is_assumed);
    }

    #[test]
    fn a_pause_stays_a_pause() {
        let mut minutes: Vec<u64> = (0..36).map(|i| i * 5 / 60 * MINUTE_NS).collect();
        minutes.extend((0..24).map(|i| (90 + i * 5 / 60) * MINUTE_NS));
        let mut learnt = Minutes::learn(&minutes, 5 * S);
        assert_eq!(learnt.interval_ns, 5 * S);
        let times: Vec<u64> = minutes.iter().map(|m| learnt.next(*m)).collect();
        assert_eq!(times[36] - times[35], 90 * MINUTE_NS - 175 * S);
    }
}
