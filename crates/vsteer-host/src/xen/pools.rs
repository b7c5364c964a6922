//! Moves a domain into another pool, and keeps the pools and their pCPUs in order.
//!
//! If the pool does not exist, vsteer makes it from pCPUs of the domain's former pool, with the same
//! scheduler and parameters. If a pool that a plan made becomes empty, vsteer removes it; its pCPUs follow
//! the domain. vsteer recognises such a pool by its name ([`MADE`]).
//!
//! Weight and cap belong to the scheduler of a pool. A domain that enters another pool gets the defaults, so
//! vsteer sets both again at once.
//!
//! Any call of `xl` may fail. [`Move::make`] can be called again and continues where it stopped.
//! [`give_back`] finds pCPUs that are in no pool.
//!
//! Source: xl(1), xlcpupool.cfg(5) of Xen 4.17.
//!
//! Left out: a pool with pCPUs to which a vCPU is pinned. Xen would drop the pin, so vsteer refuses.

use super::config::Listed;
use super::tools::Place;
use crate::xen::words::{fault, shares_word};
use std::collections::BTreeMap;
use vsteer_core::nouns::MADE;
use vsteer_core::nouns::{CpuPool, CpuWeight};
use vsteer_core::setting::Step;
use vsteer_core::{CpuSet, Fault, FaultKind};

pub(super) struct Move<'a> {
    pub place: &'a Place,
    /// The configuration before the move.
    pub listed: &'a Listed,
    pub step: &'a Step,
    /// The domain's number.
    pub id: u16,
    pub from: &'a CpuPool,
    pub to: &'a CpuPool,
}

fn xl(place: &Place, words: &[&str]) -> Result<(), Fault> {
    place.run(&[&["xl"], words].concat()).map(drop)
}

impl Move<'_> {
    /// Moves the domain, and sets this weight and cap in the new pool.
    pub(super) fn make(&self, weight: CpuWeight, cap: u64) -> Result<(), Fault> {
        let listed = self.listed;
        match listed.pools.iter().find(|p| p.name == self.to.name) {
            // If the pool's pCPUs differ from those in the plan, another pool may have been made from them.
            Some(there) if there.scheduler == self.to.scheduler => {}
            Some(there) => {
                return Err(fault(FaultKind::Changed, self.step)
                    .because(format!("a pool {there} exists"))
                    .help("make a new plan"));
            }
            None => self.found()?,
        }
        let id = self.id.to_string();
        if listed.share(self.id).1.is_none_or(|now| now.name != self.to.name) {
            xl(self.place, &["cpupool-migrate", &id, &self.to.name])?;
        }
        if let Some(word) = shares_word(&self.to.scheduler) {
            let (weight, cap) = (weight.number().to_string(), cap.to_string());
            xl(self.place, &[word, "-d", &id, "-w", &weight, "-c", &cap])?;
        }
        let left = Listed::ask(self.place)?;
        let is_empty = left.shares.get(&self.from.name).is_none_or(|s| s.shares.is_empty());
        if self.from.name.starts_with(MADE) && is_empty && left.pools.iter().any(|p| p.name == self.from.name)
        {
            xl(self.place, &["cpupool-destroy", &self.from.name])?;
            give_back(self.place, &self.from.cpus, self.to)?;
        }
        Ok(())
    }

    fn found(&self) -> Result<(), Fault> {
        let listed = self.listed;
        let refuse = |why: String| {
            Err(fault(FaultKind::Unsupported, self.step).because(why).help("remove that pin first"))
        };
        let within = |cpus: &CpuSet| cpus.iter().all(|cpu| self.to.cpus.contains(cpu));
        let pinned = listed.vcpus.iter().find(|v| v.hard.as_ref().is_some_and(within));
        if let Some(v) = pinned {
            let name = listed.domains.iter().find(|d| d.id == v.domain).map_or("?", |d| d.name.as_str());
            return refuse(format!("vCPU {} of domain {name:?} is pinned to these pCPUs", v.index));
        }
        let left = |p: &CpuPool| p.cpus.iter().any(|cpu| !self.to.cpus.contains(cpu));
        if let Some(pool) = listed.pools.iter().find(|p| p.cpus.intersects(&self.to.cpus) && !left(p)) {
            return refuse(format!("pool {pool} would have no pCPU left"));
        }
        let made = self.take().and_then(|()| self.create());
        if made.is_err() {
            // Undo what was begun, and report the first fault.
            let _ = give_back(self.place, &self.to.cpus, self.from);
        }
        made
    }

    fn take(&self) -> Result<(), Fault> {
        for cpu in self.to.cpus.iter() {
            if let Some(pool) = self.listed.pools.iter().find(|p| p.cpus.contains(cpu)) {
                xl(self.place, &["cpupool-cpu-remove", &pool.name, &cpu.to_string()])?;
            }
        }
        Ok(())
    }

    fn create(&self) -> Result<(), Fault> {
        let name = format!("name=\"{}\"", self.to.name);
        let scheduler = format!("sched=\"{}\"", self.to.scheduler);
        let cpus: Vec<String> = self.to.cpus.iter().map(|cpu| format!("\"{cpu}\"")).collect();
        xl(self.place, &["cpupool-create", &name, &scheduler, &format!("cpus=[{}]", cpus.join(","))])?;
        let Some(word) = shares_word(&self.to.scheduler) else { return Ok(()) };
        let now = Listed::ask(self.place)?;
        let of = |listed: &Listed, pool: &str| {
            listed.shares.get(pool).map(|s| s.parameters.clone()).unwrap_or_default()
        };
        for option in differing(&of(self.listed, &self.from.name), &of(&now, &self.to.name)) {
            let line = [&[word, "-s", "-p", &self.to.name][..], &[option.0, &option.1]].concat();
            xl(self.place, &line)?;
        }
        Ok(())
    }
}

/// The scheduler's parameters that differ from the wanted ones, as options.
fn differing(
    wanted: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
) -> Vec<(&'static str, String)> {
    let options = [("tslice", "-t"), ("ratelimit", "-r")];
    let number = |value: &String| value.chars().take_while(char::is_ascii_digit).collect::<String>();
    let of = |(name, option): (&str, &'static str)| {
        let value = wanted.get(name).filter(|value| now.get(name) != Some(value))?;
        Some((option, number(value)))
    };
    options.into_iter().filter_map(of).collect()
}

/// Adds those of these pCPUs that are in no pool to this pool.
pub(super) fn give_back(place: &Place, cpus: &CpuSet, to: &CpuPool) -> Result<(), Fault> {
    let listed = Listed::ask(place)?;
    let stray = cpus.iter().filter(|cpu| !listed.pools.iter().any(|p| p.cpus.contains(*cpu)));
    for cpu in stray.collect::<Vec<u32>>() {
        xl(place, &["cpupool-cpu-add", &to.name, &cpu.to_string()])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_differ_are_set() {
        let of = |tslice: &str, ratelimit: &str| {
            [("tslice", tslice), ("ratelimit", ratelimit), ("migration-delay", "0us")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into()
        };
        assert!(differing(&of("30ms", "1000us"), &of("30ms", "1000us")).is_empty());
        let both = vec![("-t", "5".to_owned()), ("-r", "500".to_owned())];
        assert_eq!(differing(&of("5ms", "500us"), &of("30ms", "1000us")), both);
    }
}
