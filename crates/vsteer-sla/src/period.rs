//! Which requests belong to a period, and which notes does a person need about them?
//!
//! [`super::hold`] takes a period as a value. These rules make that value from a log or a histogram:
//!
//! - A period ends where every log is complete, not at the present moment ([`span_ns`]).
//! - Requests far from the host's clock come from another clock and do not count ([`ahead`], [`without_old`]).
//! - A VM that uses CPU time but answers no request has an incomplete log ([`unseen`]).
//! - If a level lies inside a histogram bucket, whether it holds is uncertain ([`unsure`]).
//!
//! Left out: reading logs and histograms, which `vsteer-act` does.

use super::histogram::Lots;
use super::hold::Promise;
use std::time::Duration;
use vsteer_core::requests::Answered;

/// A log has another clock than the host if its requests ended this far from now.
pub const CLOCK_APART: Duration = Duration::from_secs(600);
/// A VM that uses more pCPUs than this should have requests in its log.
const USED_UNSEEN: f64 = 0.05;

/// When the requests of a period ended, ns since 1970. Each period begins where the last one was cut (`cut_ns`),
/// but is no longer than `period` before the last sample (`last_ns`). It ends `behind_ns` before now: the slowest
/// log is that far behind.
pub fn span_ns(cut_ns: u64, last_ns: u64, now_ns: u64, behind_ns: u64, period: Duration) -> (u64, u64) {
    (cut_ns.max(last_ns - period.as_nanos() as u64), now_ns - behind_ns)
}

fn ended_ns(request: &Answered) -> u64 {
    request.began_ns + request.took_ns
}

/// The note that a VM's log is ahead of the host's clock: `waiting` are its requests that ended in the future. The
/// caller drops them.
pub fn ahead(name: &str, waiting: &[Answered], now_ns: u64) -> Option<String> {
    let latest_ns = waiting.iter().map(ended_ns).max()?;
    let apart = Duration::from_nanos(latest_ns.saturating_sub(now_ns));
    (apart > CLOCK_APART).then(|| {
        format!(
            "{name}: the clock of its log is {:.0} s ahead of this host; check the log's time zone",
            apart.as_secs_f64()
        )
    })
}

/// The requests of a period that began at `last_ns` and ends now, without those that ended long before it; and a
/// note about those.
pub fn without_old(
    name: &str,
    requests: Vec<Answered>,
    last_ns: u64,
    now_ns: u64,
) -> (Vec<Answered>, Option<String>) {
    let is_new = |r: &Answered| ended_ns(r) + CLOCK_APART.as_nanos() as u64 > last_ns;
    let (new, old): (Vec<Answered>, Vec<Answered>) = requests.into_iter().partition(is_new);
    let note = old.iter().map(ended_ns).max().map(|latest_ns| {
        let behind_s = (now_ns - latest_ns) as f64 / 1e9;
        format!(
            "{name}: vsteer ignores {} requests that are {behind_s:.0} s old; check the log's time zone",
            old.len()
        )
    });
    (new, note)
}

/// The note that a VM without requests used `used` pCPUs. `missing` says why it has no log, if it has none.
pub fn unseen(name: &str, requests: &[Answered], used: f64, missing: Option<String>) -> Option<String> {
    (requests.is_empty() && used > USED_UNSEEN).then(|| {
        let why = missing.unwrap_or_else(|| "no request in this period".to_owned());
        format!(
            "{name}: {why}, although the VM used {used:.2} pCPUs; vsteer leaves the VM that much CPU time"
        )
    })
}

/// The note that a level lies inside the bucket of the measured 95th percentile.
pub fn unsure(promise: &Promise, p95_s: f64, lots: &Lots) -> Option<String> {
    let level_s = promise.level.p95_s?;
    let (low_s, high_s) = lots.bucket_at(p95_s);
    if level_s <= low_s || level_s >= high_s {
        return None;
    }
    let upto = if high_s.is_infinite() { String::new() } else { format!(" and at most {:.1}", 1e3 * high_s) };
    Some(format!(
        "{}: according to the histogram, the 95th percentile is above {:.1}{upto} ms, so it is uncertain \
            whether the level of {:.1} ms holds",
        promise.vm,
        1e3 * low_s,
        1e3 * level_s
    ))
}

#[cfg(test)]
mod tests {
    use super::super::control::Level;
    use super::*;

    const S: u64 = 1_000_000_000;
    const NOW: u64 = 1_700_000_000 * S;

    fn ended(at_ns: u64) -> Answered {
        Answered { began_ns: at_ns - S, took_ns: S }
    }

    #[test]
    fn a_period_begins_where_the_last_was_cut_and_ends_with_the_slowest_log() {
        let period = Duration::from_secs(60);
        let (last, now) = (NOW - 60 * S, NOW);
        assert_eq!(span_ns(last - 2 * S, last, now, 3 * S, period), (last - 2 * S, now - 3 * S));
        // Several periods were left out: their requests are not all of this one.
        assert_eq!(span_ns(last - 300 * S, last, now, 0, period), (last - 60 * S, now));
    }

    #[test]
    fn a_clock_that_is_hours_ahead_is_told_and_a_second_is_not() {
        assert_eq!(ahead("web", &[], NOW), None);
        assert_eq!(ahead("web", &[ended(NOW + S)], NOW), None);
        assert_eq!(ahead("web", &[ended(NOW + 600 * S)], NOW), None);
        let note = ahead("web", &[ended(NOW), ended(NOW + 3600 * S)], NOW).unwrap();
        assert_eq!(note, "web: the clock of its log is 3600 s ahead of this host; check the log's time zone");
    }

    #[test]
    fn requests_of_hours_ago_are_left_out_and_told() {
        let last = NOW - 60 * S;
        let (kept, note) = without_old("web", vec![ended(last - 599 * S), ended(NOW)], last, NOW);
        assert_eq!((kept.len(), note), (2, None));
        let (kept, note) = without_old("web", vec![ended(last - 600 * S), ended(NOW)], last, NOW);
        assert_eq!(kept, [ended(NOW)]);
        assert!(note.unwrap().starts_with("web: vsteer ignores 1 requests that are 660 s old"));
    }

    #[test]
    fn a_busy_vm_without_requests_is_told() {
        assert_eq!(unseen("web", &[ended(NOW)], 0.9, None), None);
        assert_eq!(unseen("web", &[], 0.05, None), None);
        assert!(unseen("web", &[], 0.06, None).unwrap().contains("no request in this period"));
        let note = unseen("web", &[], 0.9, Some("/l is not there".to_owned())).unwrap();
        assert_eq!(
            note,
            "web: /l is not there, although the VM used 0.90 pCPUs; vsteer leaves the VM that much CPU time"
        );
    }

    #[test]
    fn a_level_within_a_bucket_is_not_certain() {
        let promise =
            |p95_s| Promise { vm: "web".to_owned(), level: Level { mean_s: None, p95_s, rate_hz: None } };
        let lots = Lots { most: 9, bounds_s: vec![0.01, 0.05, f64::INFINITY] };
        assert_eq!(unsure(&promise(None), 0.02, &lots), None);
        // A level at a bound is certain.
        assert_eq!(unsure(&promise(Some(0.05)), 0.02, &lots), None);
        assert_eq!(unsure(&promise(Some(0.01)), 0.02, &lots), None);
        assert!(
            unsure(&promise(Some(0.03)), 0.02, &lots).unwrap().contains("above 10.0 and at most 50.0 ms")
        );
        assert!(unsure(&promise(Some(0.09)), 0.08, &lots).unwrap().contains("is above 50.0 ms"));
    }
}
