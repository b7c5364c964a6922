//! What a vCPU does, as a scenario says it. Each form is one of [`crate::sim::guest::Demand`]'s.

use super::span::Span;
use crate::sim::guest::{Burst, Demand, Times};
use serde::de::{Error, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// A time or a distribution of times: `"5ms"`, `{ exponential = "5ms" }`, `{ uniform = ["1ms", "3ms"] }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum TimesForm {
    /// Always this.
    Fixed(Span),
    /// Drawn anew each time.
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

/// By hand: an untagged enum would say of a wrong time only that it is none of its forms.
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
        /// Each sleep.
        sleep: TimesForm,
        /// Each burst.
        compute: TimesForm,
    },
    /// A timer: a job at every period, whether or not the last one is done.
    Periodic {
        /// Between releases.
        period: Span,
        /// The first release; none: anywhere within a period, by the seed.
        #[serde(default)]
        offset: Option<Span>,
        /// CPU time of each job.
        work: TimesForm,
    },
    /// Requests, first come first served (an open loop).
    Server {
        /// Between arrivals.
        between: TimesForm,
        /// CPU time of each request.
        service: TimesForm,
    },
    /// While on, computes and sleeps in turn; then sleeps while off.
    OnOff {
        /// Each on phase.
        on: TimesForm,
        /// Each off phase.
        off: TimesForm,
        /// Each burst while on.
        compute: TimesForm,
        /// Each sleep while on.
        sleep: TimesForm,
    },
    /// These bursts in order.
    Recorded {
        /// Sleep and CPU time of each burst.
        bursts: Vec<(Span, Span)>,
        /// Begin again at the end.
        #[serde(default)]
        repeat: bool,
    },
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
            DemandForm::Server { between, service } => {
                Demand::Server { between: between.into(), service: service.into() }
            }
            DemandForm::OnOff { on, off, compute, sleep } => {
                Demand::OnOff { on: on.into(), off: off.into(), compute: compute.into(), sleep: sleep.into() }
            }
            DemandForm::Recorded { bursts, repeat } => Demand::Recorded {
                bursts: bursts.iter().map(|(s, c)| Burst { sleep_ns: s.ns(), compute_ns: c.ns() }).collect(),
                repeat,
            },
        }
    }
}
