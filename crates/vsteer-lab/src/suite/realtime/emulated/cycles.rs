//! Does a policy that is started and ended a thousand times leave anything behind?
//!
//! Each start makes the kernel check some twenty programs and follows all VMs; each end returns the host to
//! the kernel's own scheduler. The kernel's eBPF objects and memory are counted before and after
//! (vsteer-guest's host/cycles.rs). A cycle is four seconds of virtual time, some 3 s of the emulating CPU;
//! the full size takes most of an hour.
//!
//! Left out: times, which mean nothing on several emulated pCPUs.

use super::{Boot, jobs, of};
use crate::fetch::kernels::Which;
use crate::suite::realtime::boots;
use crate::suite::{Bench, Findings};
use serde_json::{Map, json};
use vsteer_core::Fault;

/// The promised number of cycles; and the number for which there is time, on the older kernel and in the
/// short case.
const TIMES: u32 = 1000;
const TIMES_SHORT: u32 = 20;
/// The memory that may be missing afterwards, KiB; a cycle temporarily needs far more.
const KIB_MOST: f64 = 20_480.0;

/// The claims.
///
/// # Errors
/// The emulated host's.
pub fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    let mut figures = Map::new();
    let all: &[(Which, u32)] = if bench.full {
        &[(boots::SERIES, TIMES_SHORT), (Which::Newest, TIMES)]
    } else {
        &[(Which::Newest, TIMES_SHORT)]
    };
    for (which, times) in all {
        let boot = Boot::of(&jobs::cycles(*times)?, boots::options(bench, *which, "realtime-cycles")?)?;
        let kernel = format!("Linux {}", boot.ran.kernel.release);
        let file = boot.options.output.join(jobs::CYCLES).join("cycles.txt");
        let text = std::fs::read_to_string(&file);
        let text = text.map_err(|e| Fault::io(format!("reading {}", file.display()), &e))?;
        let number = |when: &str, what: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(when)).unwrap_or_default();
            let mut words = line.split_ascii_whitespace().skip_while(|word| *word != what);
            words.nth(1).and_then(|n| n.parse().ok()).unwrap_or(f64::NAN)
        };
        let [programs, tables, kib] = ["programs", "tables", "MemAvailable"]
            .map(|what| (number("before", what), number("after", what)));
        findings.claim(
            format!("{kernel}: begun and ended {times} times the policy leaves no program, no table and no memory behind, and works"),
            programs.0 == programs.1
                && tables.0 == tables.1
                && kib.0 - kib.1 <= KIB_MOST
                && text.contains("sched_ext disabled")
                && of(&boot.said(jobs::CYCLES)?, "rt", "honoured") > 0.0,
            text.trim().replace('\n', "; "),
        );
        figures.insert(kernel, json!({ "cycles": times, "kib_gone": kib.0 - kib.1 }));
    }
    findings.figures = json!({ "kernels": figures, "seed": bench.seed });
    Ok(findings)
}
