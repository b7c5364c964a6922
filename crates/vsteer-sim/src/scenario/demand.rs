//! The demand of a vCPU in a scenario file. Each form stands for one [`crate::guest::Demand`].

use crate::guest::display::DisplaySpec;
use crate::guest::driver::{Asked, ServedSpec};
use crate::guest::lock::{LockSpec, Order};
use crate::guest::poke::Waiting;
use crate::guest::team::{LoopSpec, Pause, Schedule};
use crate::guest::{Burst, Demand, SequenceSpec, Step, Times};
use serde::de::{Error, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use vsteer_core::span::Span;

/// A time or a distribution of times: `"5ms"`, `{ exponential = "5ms" }`, `{ uniform = ["1ms", "3ms"] }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum TimesForm {
    /// Always this.
    Fixed(Span),
    /// Drawn again each time.
    Drawn(Drawn),
}

/// A distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drawn {
    /// Exponential with this mean.
    Exponential(Span),
    /// Uniform between the two, both included.
    Uniform(Span, Span),
}

/// Written by hand, because the error of an untagged enum does not say what is wrong.
impl<'de> Deserialize<'de> for TimesForm {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<TimesForm, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = TimesForm;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    r#"a time such as "5ms", { exponential = "5ms" } or { uniform = ["1ms", "3ms"] }"#,
                )
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<TimesForm, E> {
                text.parse().map(TimesForm::Fixed).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TimesForm, A::Error> {
                Drawn::deserialize(MapAccessDeserializer::new(map)).map(TimesForm::Drawn)
            }
        }
        d.deserialize_any(Form)
    }
}

impl From<TimesForm> for Times {
    fn from(form: TimesForm) -> Times {
        match form {
            TimesForm::Fixed(t) => Times::Fixed(t.ns()),
            TimesForm::Drawn(Drawn::Exponential(mean)) => Times::Exponential(mean.ns()),
            TimesForm::Drawn(Drawn::Uniform(low, high)) => Times::Uniform(low.ns(), high.ns()),
        }
    }
}

/// What a vCPU does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DemandForm {
    /// Never wakes.
    Idle,
    /// Computes without end.
    Hog,
    /// Sleeps and computes in turn (a closed loop).
    SleepCompute {
        /// Length of each sleep.
        sleep: TimesForm,
        /// CPU time of each burst.
        compute: TimesForm,
    },
    /// A timer: a job in every period, even if the last one is not done.
    Periodic {
        /// Between releases.
        period: Span,
        /// The first release; default: at a random time within a period.
        #[serde(default)]
        offset: Option<Span>,
        /// CPU time of each job.
        work: TimesForm,
    },
    /// Requests, served in order of arrival (an open loop).
    Server {
        /// Time between arrivals.
        between: TimesForm,
        /// CPU time of each request.
        service: TimesForm,
        /// A driver domain between clients and the server; default: requests arrive at the vCPU itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        through: Option<ThroughForm>,
    },
    /// A vCPU of a driver domain (Xen's Domain-0), for servers whose requests go `through` its VM.
    Driver,
    /// Frames at their times.
    Display {
        /// Time between two frames.
        period: Span,
        /// CPU time of each frame.
        work: TimesForm,
        /// Time that each frame then takes on a device, for example a GPU.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<TimesForm>,
        /// Lateness after which the clock restarts; default: it catches up without limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reset: Option<Span>,
        /// Does it skip frames whose time has passed?
        #[serde(default)]
        drop: bool,
    },
    /// A parallel loop that the VM's vCPUs share (OpenMP), executed repeatedly.
    Loop {
        /// vCPUs with the same number are a team.
        #[serde(default)]
        team: u32,
        /// Iterations of a region.
        iterations: u64,
        /// CPU time of each iteration.
        work: TimesForm,
        /// How iterations are distributed.
        schedule: Schedule,
        /// Iterations per chunk; default: the schedule's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chunk: Option<u64>,
        /// Threads; default: one per vCPU.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        threads: Option<u32>,
        /// CPU time to take a chunk, and to make a task of one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        overhead: Option<Span>,
        /// How threads wait for each other.
        #[serde(default)]
        wait: WaitForm,
        /// CPU time of the first thread between regions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        serial: Option<TimesForm>,
        /// A sleep of the first thread before that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pause: Option<PauseForm>,
    },
    /// A lock that the VM's vCPUs share.
    Lock {
        /// vCPUs with the same number share a lock.
        #[serde(default)]
        lock: u32,
        /// CPU time before each turn with the lock.
        outside: TimesForm,
        /// A sleep before the time outside.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sleep: Option<TimesForm>,
        /// CPU time with the lock.
        inside: TimesForm,
        /// How a vCPU waits for the lock.
        #[serde(default)]
        wait: WaitForm,
        /// Which vCPU gets the lock next.
        #[serde(default = "ticket")]
        order: Order,
    },
    /// While on, computes and sleeps in turn; then sleeps while off.
    OnOff {
        /// Length of each on phase.
        on: TimesForm,
        /// Length of each off phase.
        off: TimesForm,
        /// Each burst while on.
        compute: TimesForm,
        /// Each sleep while on.
        sleep: TimesForm,
    },
    /// Runs, sleeps and timers in this order, as a task of rt-app.
    Sequence {
        /// All of them.
        steps: Vec<StepForm>,
        /// From which of them on they repeat; default: from the first one on.
        #[serde(default)]
        again_from: usize,
        /// How often they are done; default: without end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rounds: Option<u64>,
    },
    /// These bursts in order.
    Recorded {
        /// Sleep and CPU time of each burst.
        bursts: Vec<(Span, Span)>,
        /// Starts again at the end.
        #[serde(default)]
        repeat: bool,
    },
}

/// A step of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum StepForm {
    /// Computes.
    Run(Span),
    /// Sleeps.
    Sleep(Span),
    /// Sleeps until the timer's next time. Timers count from the start of the vCPU.
    Timer {
        /// Timers with the same number are the same timer.
        #[serde(default)]
        timer: u32,
        /// From its last time.
        period: Span,
        /// Does it catch up if the vCPU is late? Otherwise it restarts.
        #[serde(default)]
        catches_up: bool,
    },
}

impl From<StepForm> for Step {
    fn from(form: StepForm) -> Step {
        match form {
            StepForm::Run(t) => Step::Run(t.ns()),
            StepForm::Sleep(t) => Step::Sleep(t.ns()),
            StepForm::Timer { timer, period, catches_up } => {
                Step::Timer { timer, period_ns: period.ns(), catches_up }
            }
        }
    }
}

fn ticket() -> Order {
    Order::Ticket
}

/// The way through a driver domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThroughForm {
    /// The VM: one whose demand is `driver`.
    pub vm: String,
    /// CPU time of each request in the driver domain.
    pub before: TimesForm,
    /// CPU time of each answer in the driver domain.
    pub after: TimesForm,
    /// The most requests under way; more are refused.
    #[serde(default = "backlog")]
    pub backlog: u32,
}

/// Far more than a server needs that keeps up with its requests.
fn backlog() -> u32 {
    1024
}

/// How vCPUs wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitForm {
    /// They spin.
    #[default]
    Spin,
    /// They sleep.
    Sleep,
    /// They spin for this time, and then sleep.
    SpinThenSleep(Span),
}

impl From<WaitForm> for Waiting {
    fn from(form: WaitForm) -> Waiting {
        match form {
            WaitForm::Spin => Waiting::Spin,
            WaitForm::Sleep => Waiting::Sleep,
            WaitForm::SpinThenSleep(t) => Waiting::SpinThenSleep(t.ns()),
        }
    }
}

/// When the next region begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseForm {
    /// This time after the last region.
    For(TimesForm),
    /// This time after the last region was due.
    Every(TimesForm),
}

impl From<&DemandForm> for Demand {
    fn from(form: &DemandForm) -> Demand {
        match form.clone() {
            DemandForm::Idle => Demand::Idle,
            DemandForm::Hog => Demand::Hog,
            DemandForm::SleepCompute { sleep, compute } => {
                Demand::SleepCompute { sleep: sleep.into(), compute: compute.into() }
            }
            DemandForm::Periodic { period, offset, work } => Demand::Periodic {
                period_ns: period.ns(),
                offset_ns: offset.map(Span::ns),
                work: work.into(),
            },
            DemandForm::Server { between, service, through: None } => {
                Demand::Server { between: between.into(), service: service.into() }
            }
            DemandForm::Server { between, service, through: Some(through) } => {
                Demand::Served(Box::new(ServedSpec {
                    asked: Asked::Drawn { between: between.into(), service: service.into() },
                    driver: through.vm,
                    before: through.before.into(),
                    after: through.after.into(),
                    backlog: through.backlog,
                }))
            }
            DemandForm::Driver => Demand::Driver,
            DemandForm::Display { period, work, device, reset, drop } => Demand::Display(DisplaySpec {
                period_ns: period.ns(),
                work: work.into(),
                device: device.map(Times::from),
                reset_ns: reset.map(Span::ns),
                drop,
            }),
            DemandForm::Loop {
                team,
                iterations,
                work,
                schedule,
                chunk,
                threads,
                overhead,
                wait,
                serial,
                pause,
            } => Demand::Loop(Box::new(LoopSpec {
                team,
                iterations,
                work: work.into(),
                schedule,
                chunk,
                threads,
                overhead_ns: overhead.map_or(0, Span::ns),
                wait: wait.into(),
                serial: serial.map(Times::from),
                pause: pause.map(|p| match p {
                    PauseForm::For(t) => Pause::For(t.into()),
                    PauseForm::Every(t) => Pause::Every(t.into()),
                }),
            })),
            DemandForm::Lock { lock, outside, sleep, inside, wait, order } => {
                Demand::Lock(Box::new(LockSpec {
                    lock,
                    outside: outside.into(),
                    sleep: sleep.map(Times::from),
                    inside: inside.into(),
                    wait: wait.into(),
                    order,
                }))
            }
            DemandForm::OnOff { on, off, compute, sleep } => {
                Demand::OnOff { on: on.into(), off: off.into(), compute: compute.into(), sleep: sleep.into() }
            }
            DemandForm::Sequence { steps, again_from, rounds } => {
                let steps = steps.into_iter().map(Step::from).collect();
                Demand::Sequence(Box::new(SequenceSpec { steps, again_from, rounds }))
            }
            DemandForm::Recorded { bursts, repeat } => Demand::Recorded {
                bursts: bursts.iter().map(|(s, c)| Burst { sleep_ns: s.ns(), compute_ns: c.ns() }).collect(),
                repeat,
            },
        }
    }
}
