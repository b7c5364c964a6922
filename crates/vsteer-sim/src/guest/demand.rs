//! The demands that a vCPU can have, and their valid values.

use super::display::DisplaySpec;
use super::driver::ServedSpec;
use super::lock::LockSpec;
use super::release::Release;
use super::sequence::SequenceSpec;
use super::team::LoopSpec;
use super::times::{Times, positive};
use serde::{Deserialize, Serialize};
use vsteer_core::span::LONGEST_NS;
use vsteer_core::{Fault, FaultKind};

/// A recorded burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burst {
    /// Sleep before it, ns; 0 continues the previous burst.
    pub sleep_ns: u64,
    /// CPU time, ns.
    pub compute_ns: u64,
}

/// The demand of one vCPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Demand {
    /// Never wakes.
    Idle,
    /// Computes without end.
    Hog,
    /// Sleeps and computes in turn; the sleep starts when the work is done (a closed loop).
    SleepCompute {
        /// Length of each sleep.
        sleep: Times,
        /// CPU time of each burst.
        compute: Times,
    },
    /// A job released every `period_ns`, even if the last one is not done; its deadline is the next release.
    Periodic {
        /// Between releases, ns.
        period_ns: u64,
        /// The first release, ns after the vCPU starts; `None`: at a random time within the first period.
        offset_ns: Option<u64>,
        /// CPU time of each job.
        work: Times,
    },
    /// One server, requests served in order of arrival (an open loop).
    Server {
        /// Time between arrivals.
        between: Times,
        /// CPU time of each request.
        service: Times,
    },
    /// While on (by the clock), computes and sleeps in turn; then sleeps while off.
    OnOff {
        /// Length of each on phase; a burst still running at its end is completed.
        on: Times,
        /// Length of each off phase.
        off: Times,
        /// Each burst while on.
        compute: Times,
        /// Each sleep while on.
        sleep: Times,
    },
    /// These jobs at their times, in order, even if the last one is not done (an open loop): timers,
    /// arrivals.
    Released {
        /// Recorded work, in order of time.
        jobs: Vec<Release>,
        /// Time after which the jobs repeat, ns; `None`: sleeps forever afterwards.
        repeat_ns: Option<u64>,
    },
    /// These bursts in order. The vCPU sleeps between them, from the end of the last burst on (a closed
    /// loop).
    Recorded {
        /// Recorded work, in order of time.
        bursts: Vec<Burst>,
        /// Starts again at the end; otherwise sleeps forever.
        repeat: bool,
    },
    /// Runs, sleeps and timers in a given order.
    Sequence(Box<SequenceSpec>),
    /// Frames at their times: decoded, shown when due, dropped or shown late.
    Display(DisplaySpec),
    /// A member of a team of vCPUs that share parallel loops (OpenMP).
    Loop(Box<LoopSpec>),
    /// One of several vCPUs of a VM that share a lock.
    Lock(Box<LockSpec>),
    /// A server whose requests and answers pass through a driver domain (Xen's Domain-0).
    Served(Box<ServedSpec>),
    /// A vCPU of a driver domain, which passes on the requests and answers of its servers.
    Driver,
    /// A demand with sleeps in a guest that checks its timers only at ticks. As in Linux without
    /// high-resolution timers (`timespec_to_jiffies`), a sleep is rounded up to whole ticks, plus one for the
    /// current tick.
    Ticked {
        /// The time between ticks of the guest, ns; ticks fall on multiples of it.
        tick_ns: u64,
        /// `SleepCompute`, `OnOff` or `Recorded`; releases and arrivals from outside are not rounded. Or
        /// `Display`, whose timers name times: they fire at the first tick at or after that time.
        demand: Box<Demand>,
    },
}

impl Demand {
    /// Checks whether the demand can be simulated. Each message starts with `whose`.
    ///
    /// # Errors
    /// `BadInput` for a time of 0 or above [`LONGEST_NS`], and for a recording that never computes.
    pub fn check(&self, whose: &str) -> Result<(), Fault> {
        let key = |k: &str| format!("{whose}: {k}");
        match self {
            Demand::Idle | Demand::Hog | Demand::Driver => Ok(()),
            Demand::SleepCompute { sleep, compute } => {
                sleep.check(&key("sleep"))?;
                compute.check(&key("compute"))
            }
            Demand::Periodic { period_ns, offset_ns, work } => {
                positive(&key("period"), *period_ns)?;
                positive(&key("offset"), offset_ns.unwrap_or(0).saturating_add(1))?;
                work.check(&key("work"))
            }
            Demand::Server { between, service } => {
                between.check(&key("between"))?;
                service.check(&key("service"))
            }
            Demand::OnOff { on, off, compute, sleep } => {
                on.check(&key("on"))?;
                off.check(&key("off"))?;
                compute.check(&key("compute"))?;
                sleep.check(&key("sleep"))
            }
            Demand::Released { jobs, repeat_ns } => {
                Release::check_all(jobs, whose)?;
                let last_ns = jobs.last().map_or(0, |r| r.at_ns);
                match repeat_ns {
                    Some(ns) if *ns <= last_ns => {
                        let what =
                            format!("the jobs repeat after {ns} ns, but the last job comes at {last_ns} ns");
                        Err(Fault::new(FaultKind::BadInput, key(&what))
                            .help(format!("give more than {last_ns} ns")))
                    }
                    Some(ns) if *ns > LONGEST_NS => {
                        let what = format!("the jobs repeat after {ns} ns");
                        Err(Fault::new(FaultKind::BadInput, key(&what))
                            .help(format!("give at most {LONGEST_NS} ns (ten years)")))
                    }
                    _ => Ok(()),
                }
            }
            Demand::Recorded { bursts, .. } => {
                if let Some(i) =
                    bursts.iter().position(|b| b.compute_ns == 0 || b.compute_ns.max(b.sleep_ns) > LONGEST_NS)
                {
                    return positive(&key(&format!("recorded burst {}", i + 1)), 0);
                }
                Ok(())
            }
            Demand::Sequence(spec) => spec.check(whose),
            Demand::Display(spec) => spec.check(whose),
            Demand::Loop(spec) => spec.check(whose),
            Demand::Lock(spec) => spec.check(whose),
            Demand::Served(spec) => spec.check(whose),
            Demand::Ticked { tick_ns, demand } => {
                positive(&key("tick"), *tick_ns)?;
                match **demand {
                    Demand::SleepCompute { .. }
                    | Demand::OnOff { .. }
                    | Demand::Recorded { .. }
                    | Demand::Display(_) => demand.check(whose),
                    _ => Err(Fault::new(FaultKind::BadInput, key("a guest tick needs a demand with sleeps"))
                        .help("use sleep_compute, on_off, recorded or display")),
                }
            }
        }
    }

    /// Does it depend on other vCPUs?
    pub fn is_linked(&self) -> bool {
        matches!(self, Demand::Loop(_) | Demand::Lock(_) | Demand::Served(_) | Demand::Driver)
    }

    /// May its guest poll while it sleeps? A demand that waits for others has its own way to wait.
    pub(crate) fn may_poll(&self) -> bool {
        !self.is_linked()
    }
}
