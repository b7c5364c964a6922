//! Measures what else this machine did during a measurement.
//!
//! Three things change a measured time that vsteer did not cause. Other work takes pCPUs: /proc/stat minus
//! our own processes. This machine's own hypervisor takes pCPUs: steal. And pCPUs become slower, for example
//! because of a neighbour on the same core: the work of a small reference loop per second of its own CPU
//! time.
//!
//! Left out: pressure (PSI), because the lab's own VMs cause CPU pressure by design.

use crate::process::{busy_ns, busy_on_ns, cpu_ns, stolen_ns};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vsteer_core::Fault;
use vsteer_core::stats::quantile;

/// Two windows are alike if other work and steal differ by at most these numbers of pCPUs, and the reference
/// loop's speed by at most this part.
const OTHERS_MOVE: f64 = 0.1;
const STOLEN_MOVES: f64 = 0.05;
const SPEED_MOVES: f64 = 0.05;
/// A single window is calm below these values, pCPUs.
const CALM_OTHERS: f64 = 0.15;
const CALM_STOLEN: f64 = 0.05;
/// The work of the reference loop, and how often it runs: a hundredth of a pCPU.
const UNITS: u64 = 200_000;
const EVERY: Duration = Duration::from_millis(50);
/// The unit of times in /proc/PID/stat.
const TICK_NS: f64 = 1e7;

/// What else the machine did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Surroundings {
    /// pCPUs that other work used.
    pub others: f64,
    /// The name of the process that used most of them, if it existed the whole time.
    pub busiest: Option<String>,
    /// pCPUs that were stolen from this machine.
    pub stolen: f64,
    /// Units of the reference loop per ns of its CPU time.
    pub speed: f64,
}

impl Surroundings {
    fn busy(&self) -> String {
        let with = self.busiest.as_deref().unwrap_or("processes that have ended");
        format!("the machine was busy with {with}")
    }

    /// Why this window is not one of a calm machine.
    pub fn disturbed(&self) -> Option<String> {
        self.disturbed_above(CALM_OTHERS)
    }

    /// The same, if other work of more than `most` pCPUs would decide the claim.
    pub fn disturbed_above(&self, most: f64) -> Option<String> {
        if self.others > most {
            Some(self.busy())
        } else if self.stolen > CALM_STOLEN {
            Some("pCPUs were stolen from the machine".to_owned())
        } else {
            None
        }
    }

    /// Which difference from another window makes their values not comparable.
    pub fn moved(&self, other: &Surroundings) -> Option<String> {
        if (self.others - other.others).abs() > OTHERS_MOVE {
            let more = if self.others > other.others { self } else { other };
            Some(more.busy())
        } else if (self.stolen - other.stolen).abs() > STOLEN_MOVES {
            Some("pCPUs were stolen from the machine".to_owned())
        } else if (self.speed / other.speed - 1.0).abs() > SPEED_MOVES {
            Some("the pCPUs' speed changed".to_owned())
        } else {
            None
        }
    }
}

impl std::fmt::Display for Surroundings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "other work {:.2} pCPUs, stolen {:.2}, speed {:.3}", self.others, self.stolen, self.speed)
    }
}

/// Counters so far, ns.
struct Counters {
    busy: f64,
    stolen: f64,
    /// By process: its name and CPU time.
    each: BTreeMap<i32, (String, f64)>,
    ours: f64,
}

/// The values of a process in /proc/PID/stat.
#[derive(Debug, PartialEq)]
struct Stat {
    name: String,
    /// `utime` and `stime`, ns.
    own: f64,
    /// `cutime` and `cstime`: the children that it waited for, ns.
    children: f64,
}

fn of_stat(text: &str) -> Option<Stat> {
    let (name, rest) = text.split_once('(')?.1.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // Field 3 of the manual is the first here.
    let ticks = |at: usize| fields.get(at - 3)?.parse::<f64>().ok();
    let ns = |a: usize, b: usize| Some(TICK_NS * (ticks(a)? + ticks(b)?));
    Some(Stat { name: name.to_owned(), own: ns(14, 15)?, children: ns(16, 17)? })
}

fn stat_of(pid: &str) -> Option<Stat> {
    of_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

impl Counters {
    fn so_far(ours: &[i32], on: Option<usize>) -> Result<Counters, Fault> {
        let processes = std::fs::read_dir("/proc").map_err(|e| Fault::io("reading /proc", &e))?;
        let each = processes.flatten().filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            if ours.contains(&pid) {
                return None;
            }
            let stat = stat_of(entry.file_name().to_str()?)?;
            Some((pid, (stat.name, stat.own)))
        });
        // The processes that this one runs in the window, mainly vsteer, are part of the measurement.
        let children = stat_of("self").filter(|_| on.is_none()).map_or(0.0, |s| s.children);
        Ok(Counters {
            each: each.collect(),
            busy: on.map_or_else(busy_ns, busy_on_ns)?,
            stolen: stolen_ns()?,
            ours: children + ours.iter().map(|pid| cpu_ns(*pid)).sum::<Result<f64, Fault>>()?,
        })
    }

    fn since(&self, before: &Counters, ns: f64, speed: f64) -> Surroundings {
        let used = |(pid, (name, now)): (&i32, &(String, f64))| {
            let was = before.each.get(pid).map_or(0.0, |(_, was)| *was);
            (name.clone(), (now - was) / ns)
        };
        let mut by_name: BTreeMap<String, f64> = BTreeMap::new();
        for (name, pcpus) in self.each.iter().map(used) {
            *by_name.entry(name).or_default() += pcpus;
        }
        let others = ((self.busy - before.busy) - (self.ours - before.ours)).max(0.0) / ns;
        let busiest = by_name.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        Surroundings {
            others,
            // Named only if it explains a large part of the whole.
            busiest: busiest.filter(|(_, pcpus)| *pcpus > 0.3 * others).map(|(name, _)| name),
            stolen: (self.stolen - before.stolen) / ns,
            speed,
        }
    }
}

/// Observes the machine from its start to [`Watch::end`].
pub struct Watch {
    begun: Instant,
    before: Counters,
    ours: Vec<i32>,
    on: Option<usize>,
    stop: Arc<AtomicBool>,
    reference: Option<JoinHandle<Vec<f64>>>,
}

impl Watch {
    /// Starts. `ours`: the processes whose work is part of the measurement.
    ///
    /// # Errors
    /// /proc cannot be read, or one of the processes does not exist.
    pub fn start(ours: &[i32]) -> Result<Watch, Fault> {
        let mut ours = ours.to_vec();
        ours.push(std::process::id() as i32);
        Watch::of(ours, None)
    }

    /// Starts to observe one pCPU, to which `ours` are pinned.
    ///
    /// # Errors
    /// As [`Watch::start`].
    pub fn on(pcpu: usize, ours: &[i32]) -> Result<Watch, Fault> {
        Watch::of(ours.to_vec(), Some(pcpu))
    }

    fn of(ours: Vec<i32>, on: Option<usize>) -> Result<Watch, Fault> {
        let before = Counters::so_far(&ours, on)?;
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let reference = std::thread::spawn(move || reference(&asked));
        Ok(Watch { begun: Instant::now(), before, ours, on, stop, reference: Some(reference) })
    }

    /// Ends.
    ///
    /// # Errors
    /// As [`Watch::start`].
    pub fn end(mut self) -> Result<Surroundings, Fault> {
        let (now, ns) = (Counters::so_far(&self.ours, self.on)?, self.begun.elapsed().as_nanos() as f64);
        self.stop.store(true, Ordering::Relaxed);
        let speeds = self.reference.take().and_then(|t| t.join().ok()).unwrap_or_default();
        let speed = quantile(&speeds, 0.5).unwrap_or(f64::NAN);
        Ok(now.since(&self.before, ns, speed))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Repeatedly measures units per ns of this thread's CPU time.
fn reference(stop: &AtomicBool) -> Vec<f64> {
    let cpu_ns = || {
        let t = clock_gettime(ClockId::ThreadCPUTime);
        t.tv_sec as f64 * 1e9 + t.tv_nsec as f64
    };
    let mut speeds = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let begun = cpu_ns();
        let mut x = 1u64;
        for _ in 0..UNITS {
            x = std::hint::black_box(x).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
        std::hint::black_box(x);
        speeds.push(UNITS as f64 / (cpu_ns() - begun).max(1.0));
        std::thread::sleep(EVERY);
    }
    speeds
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Surroundings = Surroundings { others: 0.02, busiest: None, stolen: 0.0, speed: 1.0 };

    fn counters(busy: f64, stolen: f64, ours: f64, each: &[(i32, &str, f64)]) -> Counters {
        let each = each.iter().map(|(pid, name, ns)| (*pid, ((*name).to_owned(), *ns))).collect();
        Counters { busy, stolen, ours, each }
    }

    #[test]
    fn others_are_what_is_not_ours() {
        let before = counters(100.0, 5.0, 40.0, &[(7, "cc1", 1.0), (8, "sh", 1.0)]);
        let after = counters(290.0, 15.0, 140.0, &[(7, "cc1", 60.0), (8, "sh", 2.0), (9, "cc1", 20.0)]);
        let s = after.since(&before, 100.0, 2.0);
        let expected = Surroundings { others: 0.9, busiest: Some("cc1".into()), stolen: 0.1, speed: 2.0 };
        assert_eq!(s, expected);
        assert_eq!(s.disturbed().unwrap(), "the machine was busy with cc1");
        // Short-lived processes are gone when the window ends.
        let gone = counters(290.0, 5.0, 140.0, &[(8, "sh", 2.0)]).since(&before, 100.0, 2.0);
        assert_eq!(gone.disturbed().unwrap(), "the machine was busy with processes that have ended");
    }

    #[test]
    fn what_moved_is_named() {
        assert_eq!((CALM.disturbed(), CALM.moved(&CALM)), (None, None));
        let cc1 = Surroundings { others: 0.5, busiest: Some("cc1".into()), ..CALM };
        for pair in [cc1.moved(&CALM), CALM.moved(&cc1)] {
            assert_eq!(pair.unwrap(), "the machine was busy with cc1");
        }
        // A steady load is not a difference, but it is not calm either.
        assert!(cc1.moved(&cc1).is_none() && cc1.disturbed().is_some());
        let stolen = Surroundings { stolen: 0.2, ..CALM };
        assert!(stolen.moved(&CALM).unwrap().contains("stolen") && stolen.disturbed().is_some());
        let slow = Surroundings { speed: 0.8, ..CALM };
        assert!(slow.moved(&CALM).unwrap().contains("speed"));
    }

    #[test]
    fn names_with_parentheses_are_read() {
        let text = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 21 22 7 13 20 0 1 0 99";
        let expected = Stat { name: "a) b (c".into(), own: 43.0 * TICK_NS, children: 20.0 * TICK_NS };
        assert_eq!(of_stat(text), Some(expected));
    }

    #[test]
    fn a_real_window_is_measured() {
        let watch = Watch::start(&[]).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let s = watch.end().unwrap();
        assert!(Watch::on(0, &[]).unwrap().end().is_ok() && Watch::on(9999, &[]).is_err());
        assert!(s.speed > 0.0 && s.others >= 0.0 && s.stolen >= 0.0, "{s}");
    }
}
