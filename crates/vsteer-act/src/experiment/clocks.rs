//! Was the clock changed while something ran, did the machine sleep, and which boot is this?
//!
//! Three clocks advance together unless somebody interferes: the wall clock leaves the monotonic one when it is set,
//! the boot clock leaves it while the machine sleeps. Slewing (ntpd, chrony: 0.05 % at most) is not interference.
//! Source: clock_gettime(2).

use rustix::time::{ClockId, clock_gettime};
use vsteer_experiment::Bad;
use vsteer_host::root::Root;

/// Readings of three clocks at one moment, s.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    wall: f64,
    monotonic: f64,
    boot: f64,
}

fn seconds(id: ClockId) -> f64 {
    let t = clock_gettime(id);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// Tolerance for slewing in that time, and for reading the clocks one after the other.
fn allowed(elapsed: f64) -> f64 {
    0.1 + 0.001 * elapsed
}

impl Clocks {
    /// The present readings.
    pub fn now() -> Clocks {
        Clocks {
            wall: seconds(ClockId::Realtime),
            monotonic: seconds(ClockId::Monotonic),
            boot: seconds(ClockId::Boottime),
        }
    }

    /// How the clocks were changed since then.
    pub fn disturbed(self, later: Clocks) -> Option<Bad> {
        let elapsed = later.monotonic - self.monotonic;
        let slept = later.boot - self.boot - elapsed;
        if slept > allowed(0.0) {
            return Some(Bad::Suspended { for_s: slept });
        }
        let by_s = later.wall - self.wall - elapsed;
        (by_s.abs() > allowed(elapsed)).then_some(Bad::ClockChanged { by_s })
    }
}

/// The kernel's id of this boot of the machine.
pub fn boot_id(root: &Root) -> String {
    let text = root.bytes("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    String::from_utf8_lossy(&text).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_clocks_and_sleep_are_seen() {
        let a = Clocks { wall: 1000.0, monotonic: 10.0, boot: 20.0 };
        let after = |wall: f64, boot: f64| {
            a.disturbed(Clocks { wall: 1000.0 + wall, monotonic: 40.0, boot: 20.0 + boot })
        };
        assert_eq!(after(30.01, 30.0), None);
        assert!(
            matches!(after(3630.0, 30.0), Some(Bad::ClockChanged { by_s }) if (by_s - 3600.0).abs() < 1e-6)
        );
        assert!(matches!(after(20.0, 30.0), Some(Bad::ClockChanged { .. })));
        assert!(matches!(after(90.0, 90.0), Some(Bad::Suspended { for_s }) if (for_s - 60.0).abs() < 1e-6));
        assert_eq!(Clocks::now().disturbed(Clocks::now()), None);
    }
}
