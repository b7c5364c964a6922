//! Finds how many more VMs of a kind fit before a VM exceeds a level.
//!
//! Idea: add n VMs to the scenario, simulate, and check whether any VM exceeds a [`Level`]. The search
//! doubles n until a VM does, then bisects, in about 2 log n runs. It assumes that more VMs never improve a
//! value. Each seed finds its own n; the spread over seeds gives the interval. With a node, the new VMs and
//! their memory are bound to it.
//!
//! Left out: VMs of different kinds at once.

use super::outcome::{MEASURES, Run, Unit};
use super::{Refusal, Scenario, refuse};
use crate::setup::Setup;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use vsteer_core::CpuSet;
use vsteer_core::Fault;

/// A limit for a measure of every VM: at most `ready=10%`, `wake_p99=20ms`, `response_mean=9ms`; at least `frames=25/s`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Level {
    /// Index into [`MEASURES`].
    #[serde(skip)]
    measure: usize,
    /// Name of the measure.
    pub name: &'static str,
    /// The bound.
    #[serde(flatten)]
    pub bound: Bound,
    text: String,
}

/// The bound of a level.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The largest allowed value, as a fraction or in ns.
    Most(f64),
    /// The smallest allowed rate, per second.
    Least(f64),
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Level, String> {
        // A lower rate of work is worse. For switches and migrations, neither direction is worse.
        let usual = |m: &&super::outcome::Measure| match m.unit {
            Unit::Rate => DONE.contains(&m.name),
            _ => m.name != "run",
        };
        let known = || MEASURES.iter().filter(usual).map(|m| m.name).collect::<Vec<_>>().join(", ");
        let (name, value) = text.split_once('=').ok_or_else(|| {
            format!(
                "{text:?} is not a level: write NAME=VALUE, such as ready=10% or wake_p99=20ms; names: \
                {}",
                known()
            )
        })?;
        let (name, value) = (name.trim(), value.trim());
        let measure = MEASURES.iter().position(|m| m.name == name && usual(&m));
        let measure = measure.ok_or_else(|| {
            format!(
                "{name:?} is not the name of a level; names: \
            {}",
                known()
            )
        })?;
        let bound = match MEASURES[measure].unit {
            Unit::Time => Bound::Most(value.parse::<vsteer_core::span::Span>()?.ns() as f64),
            Unit::Rate => {
                let rate = value.strip_suffix("/s").map(str::trim).and_then(|r| r.parse::<f64>().ok());
                let rate = rate.filter(|r| *r > 0.0 && r.is_finite());
                let wrong = || format!("{value:?} is not a value of {name}: write a rate such as 25/s");
                Bound::Least(rate.ok_or_else(wrong)?)
            }
            _ => {
                let percent = value.strip_suffix('%').map(str::trim).and_then(|p| p.parse::<f64>().ok());
                let percent = percent.filter(|p| (0.0..=100.0).contains(p));
                let percent = percent.ok_or_else(|| {
                    format!(
                        "{value:?} is not a value of {name}: write a percentage from \
                    0% to 100%"
                    )
                })?;
                Bound::Most(percent / 100.0)
            }
        };
        Ok(Level { measure, name: MEASURES[measure].name, bound, text: text.to_owned() })
    }
}

/// Rates of work done.
const DONE: [&str; 2] = ["jobs", "frames"];

impl Level {
    /// By which factor a value is worse than the bound. Above 1, the value breaks the level.
    fn factor(&self, value: f64) -> f64 {
        let (large, small) = match self.bound {
            Bound::Most(most) => (value, most),
            Bound::Least(least) => (least, value),
        };
        if large > 0.0 { large / small } else { 0.0 }
    }

    /// The worst value of any VM of `run`.
    fn worst(&self, run: &Run) -> Option<f64> {
        let values = run.vms.iter().filter_map(|vm| vm[self.measure]);
        values.max_by(|a, b| self.factor(*a).total_cmp(&self.factor(*b)))
    }

    /// Does any VM of `run` have a value of this measure?
    pub fn told_by(&self, run: &Run) -> bool {
        run.vms.iter().any(|vm| vm[self.measure].is_some())
    }
}

/// A VM that exceeds a level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Broken {
    /// Name of the VM.
    pub vm: String,
    /// The level, as the user wrote it.
    pub level: String,
    /// The VM's value, as a fraction, in ns, or per second.
    pub value: f64,
}

/// The worst value of any VM where none exceeds a level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Worst {
    /// The level, as the user wrote it.
    pub level: String,
    /// The value, as a fraction, in ns, or per second.
    pub value: f64,
}

/// What a number of added VMs leads to.
#[derive(Debug, Clone, PartialEq)]
pub enum Tried {
    /// A VM exceeds a level.
    Breaks(Broken),
    /// None does: how near each level is.
    Fits(Vec<Worst>),
}

/// The result of one seed's search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// The seed.
    pub seed: u64,
    /// Largest number of added VMs without a violation; `None`: a VM exceeds a level without any.
    pub more: Option<u32>,
    /// How near each level is with that number.
    pub worst: Vec<Worst>,
    /// The violation with one more VM; `None`: none up to the bound of the search.
    pub breaks: Option<Broken>,
}

/// The answer over the seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Headroom {
    /// The node that the VMs were bound to; `None`: anywhere.
    pub node: Option<u32>,
    /// Mean over the seeds. A scenario that exceeds a level without added VMs counts as 0.
    pub mean: f64,
    /// Half the width of its 95 % interval; `None` with fewer than two seeds.
    pub half_width: Option<f64>,
    /// The smallest number over the seeds, which is the safe choice.
    pub least: u32,
    /// The result of each seed.
    pub seeds: Vec<Found>,
}

/// The scenario with `more` VMs like those of form `kind`, bound to `node` if given.
///
/// # Errors
/// If the kind or node does not exist.
pub fn with_more(scenario: &Scenario, kind: &str, more: u32, node: Option<u32>) -> Result<Scenario, Refusal> {
    let Some(form) = scenario.vms.iter().find(|v| v.name == kind) else {
        let known: Vec<&str> = scenario.vms.iter().map(|v| v.name.as_str()).collect();
        return Err(refuse(
            "vm",
            format!("the scenario has no VM {kind:?}"),
            format!(
                "use one of these VMs: \
            {}",
                known.join(", ")
            ),
        ));
    };
    let mut form = super::VmForm { name: format!("{kind} (more)"), count: more, ..form.clone() };
    if let Some(node) = node {
        form.affinity = Some(node_cpus(scenario, node)?);
        form.pins = Vec::new();
        form.memory_node = Some(node);
    }
    let mut scenario = scenario.clone();
    if more > 0 {
        scenario.vms.push(form);
    }
    Ok(scenario)
}

fn node_cpus(scenario: &Scenario, node: u32) -> Result<CpuSet, Refusal> {
    let m = &scenario.machine;
    let (nodes, per_node) = (m.sockets * m.nodes_per_socket, m.cores_per_node * m.threads_per_core);
    if node >= nodes {
        return Err(refuse(
            "machine",
            format!("the machine has no node {node}"),
            format!(
                "use a node from 0 \
            to {}",
                nodes - 1
            ),
        ));
    }
    Ok((node * per_node..(node + 1) * per_node).collect())
}

/// The VM of `run` that exceeds one of `levels` by the largest factor, or how near each level is.
pub fn tried(setup: &Setup, run: &Run, levels: &[Level]) -> Tried {
    let over = |(vm, level): (usize, &Level)| {
        let value = run.vms[vm][level.measure]?;
        let by = level.factor(value);
        (by > 1.0).then(|| (by, Broken { vm: setup.vms[vm].name.clone(), level: level.text.clone(), value }))
    };
    let all = (0..run.vms.len()).flat_map(|vm| levels.iter().map(move |l| (vm, l)));
    if let Some((_, broken)) = all.filter_map(over).max_by(|a, b| a.0.total_cmp(&b.0)) {
        return Tried::Breaks(broken);
    }
    let worst = |l: &Level| l.worst(run).map(|value| Worst { level: l.text.clone(), value });
    Tried::Fits(levels.iter().filter_map(worst).collect())
}

/// The search of one seed. `tries(n)` simulates with n more VMs. Tries at most `most` VMs.
///
/// # Errors
/// Those of `tries`.
pub fn search(
    seed: u64,
    most: u32,
    mut tries: impl FnMut(u32) -> Result<Tried, Fault>,
) -> Result<Found, Fault> {
    let mut worst = match tries(0)? {
        Tried::Breaks(broken) => {
            return Ok(Found { seed, more: None, worst: Vec::new(), breaks: Some(broken) });
        }
        Tried::Fits(worst) => worst,
    };
    let (mut fits, mut first) = (0, None);
    // 1, 2, 4, ... until one breaks. Then `fits` is below that number and does not break.
    while fits < most {
        let n = (fits * 2).clamp(1, most);
        match tries(n)? {
            Tried::Breaks(broken) => {
                first = Some((n, broken));
                break;
            }
            Tried::Fits(values) => (fits, worst) = (n, values),
        }
    }
    while let Some((n, _)) = &first
        && n - fits > 1
    {
        let middle = fits + (n - fits) / 2;
        match tries(middle)? {
            Tried::Breaks(broken) => first = Some((middle, broken)),
            Tried::Fits(values) => (fits, worst) = (middle, values),
        }
    }
    Ok(Found { seed, more: Some(fits), worst, breaks: first.map(|(_, broken)| broken) })
}

/// Combines the results of all seeds.
///
/// # Panics
/// Without results.
pub fn together(node: Option<u32>, seeds: Vec<Found>) -> Headroom {
    let counts: Vec<f64> = seeds.iter().map(|f| f64::from(f.more.unwrap_or(0))).collect();
    Headroom {
        node,
        mean: vsteer_core::stats::mean(&counts).expect("a headroom has a seed"),
        half_width: vsteer_core::stats::half_width(&counts),
        least: seeds.iter().map(|f| f.more.unwrap_or(0)).min().unwrap_or(0),
        seeds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn levels_are_read_in_their_unit() {
        let level: Level = "ready=2.5%".parse().unwrap();
        assert_eq!((level.name, level.bound), ("ready", Bound::Most(0.025)));
        let json = |text: &str| serde_json::to_value(text.parse::<Level>().unwrap()).unwrap();
        assert_eq!(
            (&json("ready=2.5%")["most"], &json("frames=25/s")["least"]),
            (&0.025.into(), &25.0.into())
        );
        assert_eq!("wake_p99=20ms".parse::<Level>().unwrap().bound, Bound::Most(2e7));
        assert_eq!("frames=24.5/s".parse::<Level>().unwrap().bound, Bound::Least(24.5));
        for bad in [
            "ready",
            "ready=5",
            "wake_p99=5%",
            "jobs=5%",
            "frames=25",
            "frames=0/s",
            "switches=5/s",
            "run=5%",
            "raedy=5%",
            "ready=-1%",
            "ready=101%",
        ] {
            assert!(bad.parse::<Level>().is_err(), "{bad}");
        }
    }

    #[test]
    fn of_a_rate_less_is_worse() {
        let of = |text: &str, value: f64| text.parse::<Level>().unwrap().factor(value);
        assert_eq!((of("ready=10%", 0.2), of("ready=10%", 0.05)), (2.0, 0.5));
        assert_eq!((of("frames=25/s", 50.0), of("frames=25/s", 12.5)), (0.5, 2.0));
        assert_eq!((of("frames=25/s", 0.0), of("ready=0%", 0.1)), (f64::INFINITY, f64::INFINITY));
        assert_eq!(of("ready=0%", 0.0), 0.0, "not exceeded");
    }

    proptest! {
        /// The search finds any threshold, with no more tries than necessary.
        #[test]
        fn the_search_finds_the_threshold(threshold in 0u32..3000, most in 1u32..2000) {
            let mut tried = 0;
            let broken = Broken { vm: "a".into(), level: "l".into(), value: 1.0 };
            let found = search(1, most, |n| {
                tried += 1;
                Ok(match n >= threshold {
                    true => Tried::Breaks(broken.clone()),
                    false => Tried::Fits(vec![Worst { level: "l".into(), value: f64::from(n) }]),
                })
            }).unwrap();
            prop_assert_eq!(found.worst.first().map(|w| w.value), found.more.map(f64::from));
            let expected = threshold.checked_sub(1).map(|t| t.min(most));
            prop_assert_eq!(found.more, expected);
            prop_assert_eq!(found.breaks.is_none(), threshold > most);
            prop_assert!(tried <= 26, "{} runs", tried);
        }
    }
}
