//! Which scheduler does a recorded host have, with which parameters?
//!
//! Linux's version selects it: EEVDF since 6.6, CFS before; real-time classes above either. On Xen, the VMs' CPU pools name it. A
//! simulation's recording names its own.

use crate::policy::Values;
use crate::samples::SIMULATED;
use crate::sched::{self, Entry};
use vsteer_core::nouns::{CpuPool, FairTuning, HostConfig};
use vsteer_core::{Fault, FaultKind};

/// The first kernel whose fair class is EEVDF.
const EEVDF_SINCE: (u32, u32) = (6, 6);
/// The first kernel with a base slice of 0.7 ms (kernel/sched/fair.c, 6.15).
const SHORTER_SLICE_SINCE: (u32, u32) = (6, 15);
/// The first kernel that compares an unprotected task with the others at every tick.
const HELD_AT_TICKS_SINCE: (u32, u32) = (6, 17);
/// The first kernel known to keep all tasks of a pCPU in one queue, whatever their cgroups (kernel/sched/fair.c, 7.3.4). A
/// cgroup's weight counts once per runnable task, and a timer ends each slice.
const FLAT_SINCE: (u32, u32) = (7, 3);
/// Xen's schedulers that are simulated from recordings.
const XENS: [&str; 2] = ["credit", "credit2"];
/// Their parameters: the name that Xen's tools have for it, the simulator's, and the unit behind the tools' number.
const XENS_PARAMETERS: [(&str, &str, &str); 3] = [
    ("tslice", "tslice_ms", "ms"),
    ("ratelimit", "ratelimit_us", "us"),
    ("migration-delay", "vcpu_migration_delay_us", "us"),
];

/// The scheduler of a recorded host, and its parameters.
///
/// # Errors
/// `Unsupported` if it is unknown or not simulated; `BadInput` for parameters that it does not have.
pub(super) fn of(config: &HostConfig) -> Result<(&'static Entry, Values), Fault> {
    if let Some(name) = config.kernel.strip_prefix(SIMULATED) {
        let policy = sched::find(name)?;
        return Ok((policy, Values::defaults(policy.about.parameters)));
    }
    if config.vms.iter().any(|vm| vm.manager.is_xen()) {
        return xens(config);
    }
    let Some(linux) = version(&config.kernel) else {
        return Err(unsupported(format!("cannot simulate the kernel {:?}", config.kernel))
            .because("its version is not readable, so vsteer does not know its scheduler"));
    };
    let policy = sched::find(if linux >= EEVDF_SINCE { "eevdf" } else { "cfs" })?;
    let mut values = Values::defaults(policy.about.parameters);
    if linux >= SHORTER_SLICE_SINCE {
        values.set("base_slice_us", 700)?;
    }
    if linux >= HELD_AT_TICKS_SINCE {
        values.set("held_at_ticks", 1)?;
    }
    if linux >= FLAT_SINCE {
        values.set("flat", 1)?;
        values.set("hrtick", 1)?;
    }
    if let Some(tuning) = &config.scheduler {
        set_tuning(&mut values, tuning, policy.about.name == "eevdf")?;
    }
    Ok((policy, values))
}

/// Of Xen: all its pools must have one scheduler with the same parameters.
fn xens(config: &HostConfig) -> Result<(&'static Entry, Values), Fault> {
    let Some(pools) = config.vms.iter().map(|vm| vm.pool.as_ref()).collect::<Option<Vec<&CpuPool>>>() else {
        return Err(unsupported("not every VM's CPU pool is known, so neither is its scheduler".to_owned()));
    };
    let first = pools[0];
    let alike = |p: &&CpuPool| p.scheduler == first.scheduler && p.parameters == first.parameters;
    if let Some(other) = pools.iter().find(|p| !alike(p)) {
        return Err(unsupported(format!("the CPU pools {first} and {other} are scheduled differently")));
    }
    if !XENS.contains(&first.scheduler.as_str()) {
        return Err(unsupported(format!(
            "Xen's scheduler {} is not simulated from counters",
            first.scheduler
        )));
    }
    let policy = sched::find(&first.scheduler)?;
    let mut values = Values::defaults(policy.about.parameters);
    for (theirs, ours, unit) in XENS_PARAMETERS {
        let is_ours = policy.about.parameters.iter().any(|p| p.name == ours);
        if let Some(text) = first.parameters.get(theirs).filter(|_| is_ours) {
            let number = text.strip_suffix(unit).and_then(|number| number.parse().ok());
            number
                .and_then(|number| values.set(ours, number).ok())
                .ok_or_else(|| unsupported(format!("cannot simulate Xen's {theirs} of {text:?}")))?;
        }
    }
    Ok((policy, values))
}

fn unsupported(what: String) -> Fault {
    Fault::new(FaultKind::Unsupported, what)
}

/// The kernel's version as numbers: `6.18.44-1-amd64` is (6, 18).
fn version(kernel: &str) -> Option<(u32, u32)> {
    let mut numbers = kernel.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Sets the values that the recorded kernel reports.
fn set_tuning(values: &mut Values, tuning: &FairTuning, eevdf: bool) -> Result<(), Fault> {
    if let Some(hz) = tuning.hz {
        values.set("hz", hz.into())?;
    }
    if let (Some(ns), true) = (tuning.base_slice_ns, eevdf) {
        // The value is already scaled. Values outside the simulated range give slices that have no effect.
        values.set("base_slice_us", (ns / 1000).clamp(100, 100_000))?;
        values.set("tunable_scaling", 0)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::{Setup, VmSetup};
    use vsteer_core::nouns::Manager;
    use vsteer_core::topology::machine;

    #[test]
    fn versions_are_read_as_distributions_write_them() {
        assert_eq!(version("6.18.44-fc-v595"), Some((6, 18)));
        assert_eq!(version("6.1.0-44-amd64"), Some((6, 1)));
        assert_eq!(version("vsteer simulator, eevdf"), None);
        assert_eq!(version(""), None);
    }

    #[test]
    fn xens_scheduler_is_that_of_its_pools() {
        let vm = |name: &str| VmSetup::new(name, Vec::new());
        let setup = Setup::new(machine(1, 1, 2, 1).unwrap(), vec![vm("a"), vm("b")], 1);
        let mut config = crate::samples::config(&setup, "credit", 256);
        config.kernel = "Xen 4.17.7".to_owned();
        let usable = config.topology.usable();
        let pool = |scheduler: &str, tslice: &str| CpuPool {
            name: "Pool-0".into(),
            scheduler: scheduler.into(),
            cpus: usable.clone(),
            parameters: [("tslice", tslice), ("ratelimit", "0us")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        };
        let pools = [pool("credit", "5ms"), pool("credit", "30ms"), pool("rtds", "5ms")];
        config.vms.iter_mut().for_each(|vm| vm.manager = Manager::Xen);
        assert_eq!(of(&config).err().unwrap().kind, FaultKind::Unsupported, "no pool is known");
        config.vms.iter_mut().for_each(|vm| vm.pool = Some(pools[0].clone()));
        let (policy, values) = of(&config).unwrap();
        assert_eq!(
            (policy.about.name, values.get("tslice_ms"), values.get("ratelimit_us")),
            ("credit", 5, 0)
        );
        config.vms[1].pool = Some(pools[1].clone());
        assert!(of(&config).err().unwrap().what.contains("scheduled differently"));
        config.vms.iter_mut().for_each(|vm| vm.pool = Some(pools[2].clone()));
        assert!(of(&config).err().unwrap().what.contains("rtds"));
        for odd in ["0ms", "5000us", "5"] {
            config.vms.iter_mut().for_each(|vm| vm.pool = Some(pool("credit", odd)));
            let fault = of(&config).err().unwrap();
            assert_eq!(fault.kind, FaultKind::Unsupported, "{fault}");
        }
    }
}
