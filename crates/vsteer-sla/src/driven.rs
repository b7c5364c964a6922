//! How long do requests take on a Xen host, where they pass Domain-0? Simulates the host's scheduler with the
//! requests as demand.
//!
//! Each request is work for Domain-0, then for its domain, then for Domain-0 again ([`vsteer_sim::guest::driver`]).
//! All wait for pCPUs under the pool's scheduler. In Credit, a domain that uses more than its weight's share is
//! OVER and runs only if no UNDER domain waits. So weights act almost like two priorities, not like shares.
//!
//! **Domain-0's work** per request is its CPU time divided by the number of requests, half before and half after
//! the server. This includes its other work. **Other domains** have bursts and sleeps with their measured mean
//! lengths.
//!
//! Left out: scheduler parameters that `xl` does not print, and dependencies between Domain-0's vCPUs.

use super::estimate::Driver;
use super::estimate::simulated::{Passage, Simulated};
use super::facts::find;
use vsteer_core::model::{HostModel, ThreadModel};
use vsteer_core::nouns::{CpuPool, CpuWeight, HostConfig, Quota, VmConfig};
use vsteer_sim::forecast::replay::{Replay, Thread};
use vsteer_sim::guest::{Demand, Times};
use vsteer_sim::policy::Values;
use vsteer_sim::sched;
use vsteer_sim::setup::{Setup, VcpuSetup, VmSetup};

/// A vCPU that sleeps for a smaller part of the time counts as never sleeping.
const SLEEPS_FROM: f64 = 0.001;

/// The domain that the others' requests pass.
pub fn driver(config: &HostConfig) -> Option<&VmConfig> {
    config.vms.iter().find(|vm| vm.is_domain0())
}

/// Work of the driver domain, for estimators with formulas. `requests_hz`: rate of all VMs together.
pub fn passing(config: &HostConfig, model: &HostModel, names: &[&str], requests_hz: f64) -> Driver {
    let Some(driver) = driver(config) else { return Driver::default() };
    let weight = |vm: &VmConfig| vm.weight.map_or(1.0, CpuWeight::relative);
    let others: f64 = names.iter().filter_map(|name| find(config, name).ok()).map(weight).sum();
    let measured = model.vm(&driver.id);
    let run = measured.and_then(|vm| vm.group.run).unwrap_or(0.0);
    // The paper's D_0 is "the scheduling delay with which Domain-0 waits for the CPU".
    let delay = measured.and_then(|vm| vm.group.ready).unwrap_or(0.0);
    let service_s = if requests_hz > 0.0 { run / requests_hz } else { 0.0 };
    Driver { weight: weight(driver) / (weight(driver) + others), service_s, delay, run_pcpus: run }
}

/// The host of `config` with the requests of these VMs as demand. `requests_hz`: answered requests per second of
/// all VMs. Other domains use what `model` measured.
///
/// # Errors
/// Why the host cannot be simulated.
pub fn simulated(
    config: &HostConfig,
    model: &HostModel,
    names: &[&str],
    requests_hz: f64,
) -> Result<Simulated, String> {
    let driver = driver(config).ok_or("the host has no Domain-0")?;
    let told = names.iter().map(|name| find(config, name).map_err(|f| f.to_string()));
    let vms = told.collect::<Result<Vec<&VmConfig>, String>>()?;
    let pool = vms.first().and_then(|vm| vm.pool.as_ref()).ok_or("the CPU pool of the VMs is unknown")?;
    if vms.iter().any(|vm| vm.pool.as_ref().is_none_or(|p| p.name != pool.name)) {
        return Err("the VMs are in several CPU pools".to_owned());
    }
    let policy = sched::find(&pool.scheduler).map_err(|f| f.to_string())?;
    let mut values = Values::defaults(policy.about.parameters);
    pool.parameters.iter().for_each(|(name, value)| set(&mut values, name, value));
    let in_pool = |vm: &&VmConfig| vm.pool.as_ref().is_some_and(|p| p.name == pool.name);
    // Domain-0 may have a pool of its own with another scheduler, but then no other domain competes with it.
    let apart = driver.pool.as_ref().filter(|p| p.name != pool.name);
    let all: Vec<&VmConfig> = config
        .vms
        .iter()
        .filter(|vm| in_pool(vm) || vm.id == driver.id)
        .filter(|vm| !vm.threads.is_empty())
        .collect();
    let setups = all.iter().map(|vm| VmSetup {
        pool: usize::from(apart.is_some() && vm.id == driver.id),
        weight: weight(vm, policy.about.weights),
        cap_pct: vm.limits.whole_vm.map(cap_pct),
        ..VmSetup::new(vm.name.clone(), vcpus(vm, model, vm.id == driver.id))
    });
    let setups: Vec<VmSetup> = setups.collect();
    let place = |id| all.iter().position(|vm| vm.id == id);
    let places = vms
        .iter()
        .map(|vm| place(vm.id.clone()))
        .collect::<Option<Vec<_>>>()
        .ok_or("a domain has no vCPUs")?;
    let pools = std::iter::once(pool).chain(apart).map(|p: &CpuPool| p.cpus.clone()).collect();
    let setup = Setup { pools, ..Setup::new(config.topology.clone(), setups, 1) };
    let threads = all
        .iter()
        .flat_map(|vm| vm.threads.iter().map(|t| Thread { vm: vm.id.clone(), role: t.role, tid: t.tid }))
        .collect();
    let passage = Passage {
        through: driver.name.clone(),
        service_s: passing(config, model, names, requests_hz).service_s,
    };
    Ok(Simulated {
        host: Replay { setup, policy, values, threads, hand_over_ns: 0 },
        vms: places,
        weight_unit: f64::from(policy.about.default_weight),
        passage: Some(passage),
    })
}

/// Sets parameters as `xl sched-credit -s` prints them: `tslice` = `30ms`, `ratelimit` = `1000us`.
fn set(values: &mut Values, name: &str, value: &str) {
    let digits: String = value.chars().take_while(char::is_ascii_digit).collect();
    let Ok(number) = digits.parse() else { return };
    let unit = value[digits.len()..].trim();
    let name = if name == "migration-delay" { "vcpu_migration_delay" } else { name };
    // Unknown or invalid parameters keep their defaults.
    let _ = values.set(&format!("{name}_{unit}"), number);
}

fn weight(vm: &VmConfig, (least, most): (u32, u32)) -> Option<u32> {
    vm.weight.map(|w| w.number().clamp(least.into(), most.into()) as u32)
}

/// Cap of a VM, from its quota.
fn cap_pct(quota: Quota) -> u32 {
    (100 * quota.quota_us / quota.period_us.max(1)) as u32
}

fn vcpus(vm: &VmConfig, model: &HostModel, drives: bool) -> Vec<VcpuSetup> {
    let measured = model.vm(&vm.id);
    let of = |t: &vsteer_core::nouns::VmThread| {
        let thread = measured.and_then(|m| m.threads.iter().find(|seen| seen.tid == t.tid));
        let demand = if drives { Demand::Driver } else { thread.map_or(Demand::Idle, as_measured) };
        VcpuSetup {
            affinity: Some(t.affinity.clone()).filter(|a| !a.is_empty()),
            soft_affinity: t.prefers.clone(),
            ..VcpuSetup::new(demand)
        }
    };
    vm.threads.iter().map(of).collect()
}

/// Bursts and sleeps with the measured mean lengths.
fn as_measured(t: &ThreadModel) -> Demand {
    let (run, blocked) = (t.shares.run.unwrap_or(0.0), t.shares.blocked.unwrap_or(0.0));
    let wakes = t.wakeups_per_s.unwrap_or(0.0);
    if blocked < SLEEPS_FROM || wakes <= 0.0 {
        return if run > 0.0 { Demand::Hog } else { Demand::Idle };
    }
    let each = |share: f64| Times::Exponential(((1e9 * share / wakes) as u64).max(1));
    if run > 0.0 { Demand::SleepCompute { sleep: each(blocked), compute: each(run) } } else { Demand::Idle }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Sharing;
    use crate::estimate::traffic::rounds;
    use crate::window::{Response, Seen};
    use vsteer_core::CpuSet;
    use vsteer_core::model::{Shares, VmModel};
    use vsteer_core::nouns::{Manager, PressureShares, Role, Tid, VmId, VmThread};
    use vsteer_core::topology::machine;

    const MS: f64 = 1e-3;

    /// Domain-0, which used 4 % of the pCPU, and three servers in a pool of one pCPU.
    fn host() -> (HostConfig, HostModel) {
        let names = ["Domain-0", "a", "b", "c", "other"];
        let config = HostConfig {
            vms: (0..).zip(names).map(|(id, name)| vm(id, name)).collect(),
            ..HostConfig::new("x", "Xen 4.17.7", machine(1, 1, 1, 1).unwrap())
        };
        let model = HostModel {
            from_unix_ns: 0,
            window_ns: 1_000_000_000,
            vms: config.vms.iter().map(measured).collect(),
            pcpus: Vec::new(),
            pressure: PressureShares::default(),
            blame: None,
            collector: "xentrace".into(),
            missing: std::collections::BTreeMap::new(),
        };
        (config, model)
    }

    fn vm(id: u32, name: &str) -> VmConfig {
        let pool = CpuPool {
            name: "Pool-0".into(),
            scheduler: "credit".into(),
            cpus: CpuSet::first(1),
            parameters: [("tslice", "30ms"), ("ratelimit", "500us"), ("migration-delay", "100us")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        };
        VmConfig {
            manager: Manager::Xen,
            threads: vec![VmThread {
                tid: Tid(id << 16),
                role: Role::Vcpu(0),
                affinity: CpuSet::first(1),
                class: None,
                cgroup: None,
                prefers: None,
                reserved: None,
            }],
            weight: Some(CpuWeight::Credit(256)),
            pool: Some(pool),
            vsphere: None,
            ..VmConfig::new(VmId(name.into()), name, id)
        }
    }

    fn measured(vm: &VmConfig) -> VmModel {
        let shares = Shares { run: Some(0.04), blocked: Some(0.96), ..Shares::default() };
        VmModel {
            id: vm.id.clone(),
            name: vm.name.clone(),
            threads: vec![ThreadModel {
                role: Role::Vcpu(0),
                tid: vm.threads[0].tid,
                seen: 1.0,
                shares,
                switches_per_s: None,
                preemptions_per_s: None,
                wakeups_per_s: Some(10.0),
                migrations_per_s: None,
                wake_latency: None,
                ready_spell: None,
                last_cpu: None,
                ran_on: Vec::new(),
            }],
            group: shares,
            worlds: None,
            vcpus: shares,
            throttled_per_s: None,
            throttled_above_per_s: None,
            limited_estimate: None,
            io_per_s: None,
            pressure: PressureShares::default(),
            timers_per_s: None,
            timers_late: None,
            timers_refused: None,
            wake_latency: None,
            ready_spell: None,
            memory_by_node: None,
            memory_local: None,
        }
    }

    fn one(rate_hz: f64, service_s: f64) -> Seen {
        let response = Response { mean_s: 1.0, p95_s: 1.0 };
        Seen {
            rate_hz,
            gap_cv2: 1.0,
            service_s,
            beside: 0.0,
            service_cv2: 0.0,
            response,
            weight: 1.0,
            vcpus: 1,
        }
    }

    fn means_ms(sim: &Simulated, rates_hz: [f64; 3], weights: [f64; 3]) -> [f64; 3] {
        let all = [one(rates_hz[0], 6.6 * MS), one(rates_hz[1], 6.6 * MS), one(rates_hz[2], 1.7 * MS)];
        let told = sim.run(&rounds(&all, &[], &rates_hz, 60_000), &weights, &|| {});
        std::array::from_fn(|i| 1e3 * told[i].unwrap().response.mean_s)
    }

    #[test]
    fn the_host_is_as_it_was_told() {
        let (mut config, model) = host();
        let sim = simulated(&config, &model, &["a", "b", "c"], 200.0).unwrap();
        let value = |name: &str| sim.host.values.get(name);
        assert_eq!(
            (value("ratelimit_us"), value("tslice_ms"), value("vcpu_migration_delay_us")),
            (500, 30, 100)
        );
        // 4 % of a pCPU by 200 requests a second.
        let passage = sim.passage.as_ref().unwrap();
        assert_eq!((passage.through.as_str(), (1e6 * passage.service_s).round()), ("Domain-0", 200.0));
        assert_eq!(sim.vms, [1, 2, 3]);
        let other = &sim.host.setup.vms[4].vcpus[0].demand;
        let sleep = Demand::SleepCompute {
            sleep: Times::Exponential(96_000_000),
            compute: Times::Exponential(4_000_000),
        };
        assert_eq!(*other, sleep, "who has no level does what it did");
        assert_eq!(passing(&config, &model, &["a", "b", "c"], 200.0).weight, 0.25);
        config.vms.remove(0);
        assert!(simulated(&config, &model, &["a"], 1.0).err().unwrap().contains("Domain-0"));
        assert_eq!(passing(&config, &model, &["a"], 1.0), Driver::default());
    }

    #[test]
    fn who_is_alone_takes_its_service_and_the_way() {
        let (mut config, model) = host();
        config.vms.truncate(4);
        let sim = simulated(&config, &model, &["a", "b", "c"], 200.0).unwrap();
        let got = means_ms(&sim, [0.5, 0.5, 0.5], [1.0; 3]);
        assert!((got[0] - 6.8).abs() < 0.2 && (got[2] - 1.9).abs() < 0.2, "{got:?}");
    }

    /// At 88 % who is given weight gains, and who gives it loses.
    #[test]
    fn weights_count() {
        let (mut config, model) = host();
        config.vms.truncate(4);
        let sim = simulated(&config, &model, &["a", "b", "c"], 244.0).unwrap();
        let run = |weights| means_ms(&sim, [42.0, 42.0, 160.0], weights);
        let (even, more) = (run([1.0; 3]), run([1.2, 1.0, 0.8]));
        assert!((even[0] / even[1] - 1.0).abs() < 0.1 && even[2] < 0.7 * even[0], "{even:?}");
        assert!(more[0] < 0.85 * even[0] && more[2] > 1.2 * even[2], "{even:?} {more:?}");
    }
}
