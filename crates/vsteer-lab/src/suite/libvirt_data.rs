//! Does vsteer read libvirt's own test data as a second reader does?
//!
//! The host crate's own test compares all command lines and definitions of libvirt's source, fetched into the cache, with
//! what a simple reader says. It lists the remaining differences with reasons. The release is fixed, because other ones
//! have other files.

use super::{Bench, Case, Findings, Minutes};
use crate::command;
use crate::fetch::Fetcher;
use std::process::Command;
use std::time::Duration;
use vsteer_core::Fault;

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "libvirt-data",
    doc: "names, vCPUs, topology, memory, pins, weights and quotas of libvirt's 1,000 command lines and 2,000 definitions",
    in_test: true,
    minutes: Minutes::new(0.4, 2.0),
    beside: false,
    run,
};

/// The release of Debian whose libvirt it is.
const RELEASE: &str = "trixie";

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let source = Fetcher::of_release(&bench.lab.cache, RELEASE).upstream("libvirt")?;
    let mut test = Command::new("cargo");
    // The whole workspace, as `make check` built it. A single package would unify features differently and
    // rebuild.
    test.args(["test", "--workspace", "--locked", "-q", "--test", "libvirt_data", "--"]);
    test.args(["--ignored", "--nocapture"]);
    test.env("VSTEER_LIBVIRT_DATA", source.tree.join("tests"));
    let done = command::run(&mut test, Duration::from_secs(900))?;
    let lines = || done.stdout.lines().chain(done.stderr.lines());
    let summary = lines().find(|line| line.contains("values compared")).map(str::to_owned);
    let different: Vec<&str> = lines().filter(|line| line.starts_with("DIFFERS")).take(5).collect();
    let last = || done.stderr.lines().rev().take(5).collect::<Vec<_>>().join(" | ");
    let mut findings = Findings::default();
    findings.claim(
        "vsteer reads libvirt's command lines and definitions as a second reader, but for listed differences",
        done.status.is_some_and(|status| status.success()) && summary.is_some(),
        format!("libvirt {}: {} {}", source.version, summary.unwrap_or_else(last), different.join("; ")),
    );
    Ok(findings)
}
