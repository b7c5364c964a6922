//! Does vsteer read the topology of real machines as hwloc does?
//!
//! The host crate's own test compares the 48 captured machines of Debian's hwloc source, fetched into the
//! cache, tree by tree with `lstopo`. It lists the remaining differences with reasons.

use super::{Bench, Case, Findings, Minutes};
use crate::command;
use crate::fetch::Fetcher;
use std::process::Command;
use std::time::Duration;
use vsteer_core::Fault;

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "topology",
    doc: "the topology of 48 captured machines equals lstopo's, but for at most 5 with reasons",
    in_test: true,
    minutes: Minutes::new(0.4, 1.0),
    beside: false,
    run,
};

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let source = Fetcher::of_system(&bench.lab.cache, false).source("hwloc")?;
    let trees = source.tree.join("tests/hwloc/linux");
    let mut test = Command::new("cargo");
    // The whole workspace, as `make check` built it. A single package would unify features differently and
    // rebuild.
    test.args([
        "test",
        "--workspace",
        "--locked",
        "-q",
        "--test",
        "hwloc_trees",
        "--",
        "--ignored",
        "--nocapture",
    ]);
    test.env("VSTEER_HWLOC_TREES", &trees);
    let done = command::run(&mut test, Duration::from_secs(900))?;
    let said = |text: &str| text.lines().rev().find(|l| l.contains("trees equal")).map(str::to_owned);
    let summary = said(&done.stdout).or_else(|| said(&done.stderr));
    let mut findings = Findings::default();
    findings.claim(
        "at most 5 of 48 trees differ from lstopo, each for a reason that is listed",
        done.status.is_some_and(|s| s.success()) && summary.is_some(),
        summary.unwrap_or_else(|| done.stderr.lines().rev().take(5).collect::<Vec<_>>().join(" | ")),
    );
    Ok(findings)
}
