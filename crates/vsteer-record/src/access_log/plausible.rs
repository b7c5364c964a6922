//! Can the durations of a log be right, beside what the VM did meanwhile?
//!
//! A log that is read in a wrong unit is wrong by a factor of a thousand. Two things tell it:
//!
//! - A request takes at least the CPU time that it uses. If requests are shorter than the VM's CPU time per request, the unit is
//!   too small, or the VM does much else.
//! - Requests in flight (rate times mean duration; Little, 1961) compute, wait for a CPU, or wait for something else. [`WAITING`]
//!   times as many as compute or wait for a CPU is usual for a server that waits for a database; a thousand times is not.
//!
//! Beyond that it is a warning; beyond [`ABSURD`] times that an error, unless the unit is certain.

use super::Sure;
use crate::unit::Unit;
use vsteer_core::{Fault, FaultKind};

/// How many requests in flight one that computes or waits for a CPU explains.
pub const WAITING: f64 = 20.0;
/// From this factor on, an uncertain unit is refused.
pub const ABSURD: f64 = 50.0;
/// Fewer requests tell nothing.
const FEWEST: u64 = 30;

/// What the log says and what the VM did in the same time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// Requests that ended in that time.
    pub requests: u64,
    /// Their mean duration, s.
    pub mean_s: f64,
    /// CPU time of the VM, s.
    pub cpu_s: f64,
    /// Time that its vCPUs waited for a CPU, s.
    pub ready_s: f64,
    /// Length of that time, s.
    pub length_s: f64,
}

/// Compares the durations of the log `name`, which are in `unit`, with what the VM did. Returns a warning, if there is a reason.
///
/// # Errors
/// `BadInput` if the unit is not certain and the durations are absurd. The fault names the likely unit.
pub fn check(name: &str, unit: Unit, sure: Sure, seen: &Seen) -> Result<Option<String>, Fault> {
    if seen.requests < FEWEST || seen.cpu_s <= 0.0 || seen.length_s <= 0.0 || seen.mean_s <= 0.0 {
        return Ok(None);
    }
    let cpu_each_s = seen.cpu_s / seen.requests as f64;
    let in_flight = seen.requests as f64 * seen.mean_s / seen.length_s;
    let explained = WAITING * (seen.cpu_s + seen.ready_s) / seen.length_s;
    let (factor, why) = if cpu_each_s > seen.mean_s {
        let why = format!(
            "its requests took {} on average, but the VM used {} of CPU time for each",
            told(seen.mean_s),
            told(cpu_each_s)
        );
        (cpu_each_s / seen.mean_s, why)
    } else {
        let why = format!(
            "{in_flight:.0} requests would be in flight on average, {} each, while the VM used {:.2} CPUs",
            told(seen.mean_s),
            seen.cpu_s / seen.length_s
        );
        (in_flight / explained, why)
    };
    if factor <= 1.0 {
        return Ok(None);
    }
    let likely = likely(unit, seen, cpu_each_s);
    let others = likely.map_or(String::new(), |likely| format!("; {likely} is more likely"));
    if factor < ABSURD || matches!(sure, Sure::Stated | Sure::Known) {
        return Ok(Some(format!("{name}: {why}: check that its durations are in {unit}{others}")));
    }
    let help = match likely {
        Some(likely) => format!("say the unit: --unit {likely}, or --unit {unit} if it is right"),
        None => format!("say the unit: --unit s, ms, us or ns; --unit {unit} if it is right"),
    };
    let what = format!("the durations of {name} cannot be in {unit}, which was assumed{others}");
    Err(Fault::new(FaultKind::BadInput, what).because(why).help(help))
}

/// The other unit in which the durations are possible, if there is one.
fn likely(unit: Unit, seen: &Seen, cpu_each_s: f64) -> Option<Unit> {
    let explained_s = WAITING * (seen.cpu_s + seen.ready_s) / seen.requests as f64;
    let in_unit = |other: Unit| seen.mean_s * other.ns() as f64 / unit.ns() as f64;
    let possible = |other: &Unit| (cpu_each_s..=explained_s).contains(&in_unit(*other));
    Unit::ALL.into_iter().filter(|other| ![unit, Unit::Minutes].contains(other)).find(possible)
}

/// A duration with a unit that suits it.
fn told(s: f64) -> String {
    let (value, unit) = match s {
        s if s < 1e-6 => (1e9 * s, "ns"),
        s if s < 1e-3 => (1e6 * s, "us"),
        s if s < 1.0 => (1e3 * s, "ms"),
        s => (s, "s"),
    };
    format!("{value:.3} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 requests a second for a minute, 54 ms each, 8 ms of CPU.
    fn seen(mean_s: f64) -> Seen {
        Seen { requests: 600, mean_s, cpu_s: 4.8, ready_s: 0.6, length_s: 60.0 }
    }

    #[test]
    fn a_unit_that_is_a_thousand_times_off_is_named() {
        let all = |mean_s, unit, sure| check("l", unit, sure, &seen(mean_s));
        assert_eq!(all(0.054, Unit::Milliseconds, Sure::Assumed), Ok(None));
        // Milliseconds, read as something else.
        for (mean_s, unit) in [(54.0, Unit::Seconds), (54e-6, Unit::Microseconds), (54e-9, Unit::Nanoseconds)]
        {
            for sure in [Sure::Assumed, Sure::Named] {
                let fault = all(mean_s, unit, sure).unwrap_err().to_string();
                assert!(fault.contains("ms is more likely") && fault.contains("--unit ms"), "{fault}");
            }
            for sure in [Sure::Known, Sure::Stated] {
                let warning = all(mean_s, unit, sure).unwrap().unwrap();
                assert!(warning.contains("ms is more likely"), "{warning}");
            }
        }
    }

    #[test]
    fn little_off_is_a_warning() {
        // A server that waits for a database 30 times as long as it computes.
        let warning = check("l", Unit::Milliseconds, Sure::Assumed, &seen(0.3)).unwrap();
        assert!(warning.is_some_and(|w| w.contains("in flight")));
        // A VM that does much else.
        let busy = Seen { cpu_s: 60.0, ..seen(0.054) };
        let warning = check("l", Unit::Milliseconds, Sure::Assumed, &busy).unwrap();
        assert!(warning.is_some_and(|w| w.contains("CPU time for each")));
        let few = Seen { requests: 3, ..seen(54.0) };
        assert_eq!(check("l", Unit::Seconds, Sure::Assumed, &few), Ok(None));
    }
}
