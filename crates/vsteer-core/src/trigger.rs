//! Which moments of an endless recording should be kept? Conditions on derived quantities, checked as samples arrive.
//!
//! A [`Trigger`] is what a person writes: `ready_p99>20ms`, `limited>5% and ready>1%`; alternatives by `or`. It
//! holds if one VM fulfils it. [`Watch`] keeps the last seconds of samples, derives the model of that window once a
//! second and makes a [`Mark`] for each VM that fulfils a condition. The same VM gets no further mark for a while,
//! so a bad night gives a few marks and not thousands. Time is that of the samples.
//!
//! Idea: a flight recorder keeps everything for a short time and something for a long time. Left out: parentheses,
//! arithmetic, and conditions on pCPUs or the host.

pub mod quantity;

use crate::model::{self, VmModel};
use crate::nouns::{Batch, Collector, HostConfig, VmId};
use crate::{Fault, FaultKind};
use quantity::{Kind, QUANTITIES, Quantity};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;

/// Units of time, the finest first: a value is printed in the first one that leaves it below a thousand.
const UNITS: [(&str, f64); 5] = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];

/// One comparison: `ready_p99>20ms`.
#[derive(Debug, Clone, PartialEq)]
struct Comparison {
    quantity: Quantity,
    above: bool,
    /// As written.
    limit_text: String,
    /// In ns, or as a fraction.
    limit: f64,
}

/// A condition on one VM: all comparisons of at least one of the groups hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Trigger {
    any: Vec<Vec<Comparison>>,
}

fn refused(text: &str, why: impl fmt::Display) -> Fault {
    let names: Vec<&str> = QUANTITIES.iter().map(|q| q.name).collect();
    Fault::new(FaultKind::Usage, format!("the trigger {text:?} is not valid")).because(why).help(format!(
        "write QUANTITY>VALUE or QUANTITY<VALUE, joined by `and` and `or`, such as 'ready_p99>20ms or \
            limited>5%'; \
         quantities: {}",
        names.join(", ")
    ))
}

fn comparison(text: &str) -> Result<Comparison, String> {
    let at = text.find(['>', '<']).ok_or_else(|| format!("{text:?} has neither > nor <"))?;
    let (name, value) = (text[..at].trim(), text[at + 1..].trim());
    let quantity = Quantity::named(name);
    let quantity = *quantity.ok_or_else(|| format!("{name:?} is not the name of a quantity"))?;
    let end = value.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(value.len());
    let (number, unit) = (&value[..end], value[end..].trim());
    let number: f64 = number.parse().map_err(|_| format!("{value:?} does not begin with a number"))?;
    let scale = match quantity.kind {
        Kind::Time => UNITS.iter().find(|(u, _)| *u == unit).map(|(_, s)| *s),
        Kind::Share => (unit == "%").then_some(0.01),
    };
    let unit_of = match quantity.kind {
        Kind::Time => "a time in ns, us, ms or s",
        Kind::Share => "a share in %",
    };
    let scale = scale.ok_or_else(|| format!("{name} is compared with {unit_of}, not with {value:?}"))?;
    let limit_text = format!("{number}{unit}");
    Ok(Comparison { quantity, above: &text[at..=at] == ">", limit_text, limit: number * scale })
}

impl FromStr for Trigger {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Trigger, Fault> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let all = |words: &[&str]| {
            let parts = words.split(|w| *w == "and");
            parts
                .map(|p| comparison(&p.concat()).map_err(|e| refused(text, e)))
                .collect::<Result<Vec<_>, _>>()
        };
        let any = words.split(|w| *w == "or").map(all).collect::<Result<Vec<_>, _>>()?;
        Ok(Trigger { any })
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |c: &Comparison| {
            format!("{}{}{}", c.quantity.name, if c.above { '>' } else { '<' }, c.limit_text)
        };
        let all = |cs: &Vec<Comparison>| cs.iter().map(one).collect::<Vec<_>>().join(" and ");
        f.write_str(&self.any.iter().map(all).collect::<Vec<_>>().join(" or "))
    }
}

impl Trigger {
    /// The values with which `vm` fulfils the condition, as text; `None` if it does not. A quantity that was not
    /// measured does not fulfil a condition.
    pub fn holds(&self, vm: &VmModel) -> Option<String> {
        self.any.iter().find_map(|all| {
            let found: Option<Vec<String>> = all
                .iter()
                .map(|c| {
                    let value = c.quantity.value(vm)?;
                    let holds = if c.above { value > c.limit } else { value < c.limit };
                    holds.then(|| format!("{} {}", c.quantity.name, c.quantity.shown(value)))
                })
                .collect();
            found.map(|f| f.join(", "))
        })
    }

    /// Can this collector measure at least one of the alternatives?
    ///
    /// # Errors
    /// `Unsupported`, with the collector's reason.
    pub fn measurable(&self, collector: &Collector) -> Result<(), Fault> {
        let missing = |c: &Comparison| Some((c.quantity.name, collector.missing.get(c.quantity.counter)?));
        let hindered = |all: &Vec<Comparison>| all.iter().find_map(missing);
        let first = self.any.first().and_then(hindered);
        match first.filter(|_| self.any.iter().all(|all| hindered(all).is_some())) {
            None => Ok(()),
            Some((name, why)) => {
                let fault = Fault::new(FaultKind::Unsupported, format!("the trigger {self} can never fire"));
                Err(fault.because(format!("{name} is not measured: {why}")))
            }
        }
    }
}

/// A moment worth looking at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The end of the window in which the condition held, ns since 1970 UTC.
    pub unix_ns: u64,
    /// The same, `CLOCK_MONOTONIC`, ns.
    pub mono_ns: u64,
    /// Length of that window, ns.
    pub window_ns: u64,
    /// The condition.
    pub trigger: String,
    /// Which VM fulfilled it.
    pub vm: VmId,
    /// Its name, for people.
    pub vm_name: String,
    /// What was found, in words: `ready_p99 31.457 ms`.
    pub found: String,
}

/// How often the window is looked at, ns.
const LOOK_NS: u64 = 1_000_000_000;
/// Samples kept of a window at most: closer ones are passed over, so that memory does not grow with the pace.
const KEPT: u64 = 50;
/// Shortest window that is looked at, as a part of the one asked for: a first second says little of ten.
const FULL_ENOUGH: f64 = 0.5;

/// Triggers, and the last samples that they look at.
#[derive(Debug, Clone)]
pub struct Watch {
    triggers: Vec<Trigger>,
    window_ns: u64,
    quiet_ns: u64,
    samples: VecDeque<Batch>,
    looked_ns: u64,
    fired_ns: BTreeMap<(usize, VmId), u64>,
}

impl Watch {
    /// Watches for `triggers` over a sliding window; one that fired of a VM is silent about it for `quiet_ns`.
    pub fn new(triggers: Vec<Trigger>, window_ns: u64, quiet_ns: u64) -> Watch {
        let window_ns = window_ns.max(1);
        let (samples, fired_ns) = (VecDeque::new(), BTreeMap::new());
        Watch { triggers, window_ns, quiet_ns, samples, looked_ns: 0, fired_ns }
    }

    /// Takes the next sample and says what it made of the window.
    pub fn see(&mut self, batch: &Batch, config: &HostConfig, collector: &Collector) -> Vec<Mark> {
        let now = batch.mono_ns;
        if self.triggers.is_empty() {
            return Vec::new();
        }
        let pace = self.window_ns / KEPT;
        if self.samples.back().is_some_and(|b| now.saturating_sub(b.mono_ns) < pace) {
            return Vec::new();
        }
        self.samples.push_back(batch.clone());
        while self.samples.len() > 2 && now.saturating_sub(self.samples[0].mono_ns) > self.window_ns {
            self.samples.pop_front();
        }
        let length = now.saturating_sub(self.samples[0].mono_ns);
        let too_soon = now.saturating_sub(self.looked_ns) < LOOK_NS.min(self.window_ns);
        if too_soon || (length as f64) < self.window_ns as f64 * FULL_ENOUGH {
            return Vec::new();
        }
        self.looked_ns = now;
        let Ok(model) = model::derive(config, collector, self.samples.make_contiguous()) else {
            return Vec::new();
        };
        let mut marks = Vec::new();
        for (i, trigger) in self.triggers.iter().enumerate() {
            for vm in &model.vms {
                let Some(found) = trigger.holds(vm) else { continue };
                let key = (i, vm.id.clone());
                if self.fired_ns.get(&key).is_some_and(|then| now.saturating_sub(*then) < self.quiet_ns) {
                    continue;
                }
                self.fired_ns.insert(key, now);
                marks.push(Mark {
                    unix_ns: batch.unix_ns,
                    mono_ns: now,
                    window_ns: length,
                    trigger: trigger.to_string(),
                    vm: vm.id.clone(),
                    vm_name: vm.name.clone(),
                    found,
                });
            }
        }
        // VMs start and stop over months, so expired entries are removed.
        self.fired_ns.retain(|_, then| now.saturating_sub(*then) < self.quiet_ns);
        marks
    }
}

#[cfg(test)]
mod tests;
