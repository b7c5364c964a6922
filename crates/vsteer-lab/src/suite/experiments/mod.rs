//! Are experiments as honest and as robust as they claim? Checks error rates, the harness's overhead, and
//! killed experiments.
//!
//! `rates`: 20,000 invented experiments per design. `overhead`: the length of a run by vsteer's clock and by
//! a bare loop's, in turn. `killed`: SIGKILL at random times, rollback and resume, with every run accounted
//! for. `observed`: how long a real VM is ready, with its shares as the factor. `lasting`: the better
//! setting, made permanent. `reboots` (at full size): an emulated machine with a disk, with its kernel's
//! command line and tuned's profile as factors: boots, a kill of the process and two power cuts.

mod killed;
mod lasting;
mod observed;
mod overhead;
mod reboots;
mod tuned;

use super::{Bench, Case, Findings, Minutes};
use serde_json::json;
use vsteer_core::Fault;
use vsteer_experiment::simulated;

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "experiments",
    doc: "error rates as claimed, at most 1 % and 10 ms of a run for the harness, killed and resumed with every run accounted for",
    in_test: true,
    minutes: Minutes::new(1.2, 45.0),
    beside: false,
    run,
};

/// The part with boots, as a separate case.
pub const REBOOTS: Case = Case {
    name: "experiment-reboots",
    doc: "an experiment over tuned's profile and kernel words: at least 4 boots, killed in the middle, every run accounted for, the machine as found",
    in_test: false,
    minutes: Minutes::new(25.0, 25.0),
    beside: false,
    run: |bench| {
        let mut findings = Findings::default();
        findings.figures = reboots::run(bench, &mut findings)?;
        Ok(findings)
    },
};

/// The part with local VMs, as a separate case.
pub const OBSERVED: Case = Case {
    name: "experiment-observed",
    doc: "ready of a VM beside burners with its shares as the factor, against the kernel's figure and the shares; a VM that ends has no value",
    in_test: false,
    minutes: Minutes::new(4.0, 4.0),
    beside: false,
    run: |bench| {
        let mut findings = Findings::default();
        findings.figures = observed::run(bench, &mut findings)?;
        Ok(findings)
    },
};

/// The part with the better setting made permanent, as a separate case.
pub const LASTING: Case = Case {
    name: "experiment-lasting",
    doc: "what was better in libvirt's definition of a real VM and in the menu that Debian's update-grub makes; taken back to the byte",
    in_test: false,
    minutes: Minutes::new(3.0, 3.0),
    beside: false,
    run: |bench| {
        let mut findings = Findings::default();
        findings.figures = lasting::run(bench, &mut findings)?;
        Ok(findings)
    },
};

/// Experiments per design.
const EXPERIMENTS: usize = 20_000;

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    let rows = simulated::all(EXPERIMENTS, bench.seed);
    for r in &rows {
        let computed = r.computed.map_or(String::new(), |c| format!(" (computed {c:.1} %)"));
        let found = format!("{:.2} %{computed} of {}", r.percent, r.experiments);
        match r.accepted {
            Some((low, high)) => findings.claim(
                format!("{}, {}: {low:.1} to {high:.1} %; {}", r.what, r.by, r.design),
                r.held(),
                found,
            ),
            None => eprintln!("vsteer-lab: for comparison: {}, {}: {found}; {}", r.what, r.by, r.design),
        }
    }
    let overhead = overhead::run(bench, &mut findings)?;
    let killed = killed::run(bench, &mut findings)?;
    let observed = if bench.full { observed::run(bench, &mut findings)? } else { json!(null) };
    if bench.full {
        lasting::run(bench, &mut findings)?;
    }
    let reboots = if bench.full { reboots::run(bench, &mut findings)? } else { json!(null) };
    findings.figures = json!({ "rates": rows, "overhead": overhead, "killed": killed, "observed": observed, "reboots": reboots });
    Ok(findings)
}
