//! Does the package work on a real Debian host with systemd, as a person would use it?
//!
//! Each claim is a command in the host, and what it must do. They follow one another: install, look, change, undo, record,
//! upgrade, reboot, lose the power, remove. The package is the newest in target/packages; the one that is upgraded is the
//! same with a lower version.

mod boots;
mod change;
mod look;
mod package;
mod services;

use super::{Bench, Case, Findings, Minutes};
use crate::drive::Vsteer;
use crate::installed::host::{Host, Ran};
use crate::installed::image::Image;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "installed",
    doc: "the package on a Debian host with systemd: install, observe, change, undo, record, reboot, remove",
    in_test: true,
    minutes: Minutes::new(5.0, 35.0),
    beside: true,
    run,
};

/// The releases; the short case takes the first.
const RELEASES: [&str; 2] = ["bookworm", "trixie"];
/// `systemd-analyze security` rates from 0 (safe) to 10. The service listens on the network where the administrator wants that.
const EXPOSURE: [(&str, f64); 3] =
    [("vsteer-record.service", 3.0), ("vsteer-serve.service", 3.2), ("vsteer-steer@web.service", 3.0)];

/// The version that is upgraded.
const FORMER: &str = "0.0.1";
const PLAN: &str = "vsteer plan --for 3s --set spin:weight=50 -o /root/plan.json";
const SHARES: &str = "virsh schedinfo spin | sed -n 's/^cpu_shares *: //p'";

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let package = package()?;
    let former = package::with_version(&package, FORMER, &bench.output)?;
    let releases = if bench.full { &RELEASES[..] } else { &RELEASES[..1] };
    let mut findings = Findings::default();
    let mut figures = Vec::new();
    for release in releases {
        let image = Image::of(&bench.lab.cache, release)?;
        let begun = Instant::now();
        eprintln!("vsteer-lab: installed: {release}: booting, and installing the package");
        let host = Host::boot(&image, &bench.output.join(format!("installed-{release}")))?;
        let vsteer = Vsteer::beside(&bench.lab.program)?.program;
        let mut on = On { host, release, vsteer, findings: &mut findings };
        on.installs(&former, &package)?;
        for stage in STAGES.iter().filter(|s| bench.full || s.short) {
            eprintln!(
                "vsteer-lab: installed: {release}: after {:.0} s: {}",
                begun.elapsed().as_secs_f64(),
                stage.what
            );
            (stage.run)(&mut on)?;
        }
        figures.push(json!({ "release": release, "seconds": begun.elapsed().as_secs_f64() }));
    }
    findings.figures = json!(figures);
    Ok(findings)
}

/// A part of the case.
struct Stage {
    what: &'static str,
    /// Does the short case have it?
    short: bool,
    run: fn(&mut On<'_>) -> Result<(), Fault>,
}

/// What follows the installation.
const STAGES: [Stage; 13] = [
    Stage { what: "observing two VMs of libvirt", short: true, run: |on| on.observes() },
    Stage { what: "observing from this machine over ssh", short: true, run: |on| on.looks_over_ssh() },
    Stage { what: "trying, confirming and undoing a weight", short: true, run: |on| on.changes() },
    Stage { what: "every setting, live and in the definition", short: false, run: |on| on.sets() },
    Stage {
        what: "a QEMU without libvirt, and a user's own libvirt",
        short: false,
        run: |on| on.sets_elsewhere(),
    },
    Stage { what: "keeping a service level by the unit", short: false, run: |on| on.steers() },
    Stage { what: "recording by the unit", short: true, run: |on| on.records() },
    Stage { what: "serving metrics by the unit", short: true, run: |on| on.serves() },
    Stage { what: "upgrading the package", short: false, run: |on| on.upgrades() },
    Stage { what: "rebooting", short: false, run: |on| on.reboots() },
    Stage { what: "cutting the power", short: true, run: |on| on.loses_power() },
    Stage { what: "units that vsteer prints, over a power cut", short: false, run: |on| on.boots() },
    Stage { what: "removing the package", short: true, run: |on| on.leaves() },
];

/// The newest package of `make packages` or `make test`.
fn package() -> Result<PathBuf, Fault> {
    let folder = Path::new("target/packages");
    let named = |p: &PathBuf| {
        let name = p.file_name().unwrap_or_default().to_string_lossy();
        // A release has those of other machine types, too.
        let here = if cfg!(target_arch = "aarch64") { "_arm64.deb" } else { "_amd64.deb" };
        name.starts_with("vsteer_") && name.ends_with(here)
    };
    let all = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).filter(named);
    all.max_by_key(|p| p.metadata().and_then(|m| m.modified()).ok()).ok_or_else(|| {
        Fault::new(FaultKind::NothingThere, format!("{} has no vsteer_*.deb", folder.display()))
            .help("run make packages, and this in the project's folder")
    })
}

/// What a command did, with the command if that is not what the claim says.
fn found(script: &str, ran: &Ran, held: bool) -> String {
    if held { ran.told() } else { format!("`{}`: {}", script.trim(), ran.told()) }
}

/// A moment, and how long each of QEMU's threads had waited for a pCPU until then.
struct Since {
    begun: Instant,
    waited_ns: BTreeMap<i32, f64>,
}

impl Since {
    fn now(host: &Host) -> Result<Since, Fault> {
        Ok(Since { begun: Instant::now(), waited_ns: host.waited_ns()? })
    }

    /// The seconds since then, and how many of them the vCPU that waited longest has waited: one command runs on one
    /// vCPU at a time.
    fn took(&self, host: &Host) -> Result<(f64, f64), Fault> {
        let took = self.begun.elapsed().as_secs_f64();
        let waited = host.waited_ns()?;
        let of = |(thread, ns): (&i32, &f64)| ns - self.waited_ns.get(thread).unwrap_or(&0.0);
        Ok((took, waited.iter().map(of).fold(0.0, f64::max) / 1e9))
    }
}

struct On<'a> {
    host: Host,
    release: &'static str,
    /// The program of this machine.
    vsteer: PathBuf,
    findings: &'a mut Findings,
}

impl On<'_> {
    /// A claim about one command.
    fn claim(&mut self, claim: &str, script: &str, holds: impl Fn(&Ran) -> bool) -> Result<Ran, Fault> {
        self.claim_as("root", claim, script, holds)
    }

    /// A claim about one command, which then must be done within `limit` seconds. What QEMU's vCPUs waited for this
    /// machine's pCPUs does not count: other cases run beside this one.
    fn claim_within(
        &mut self,
        limit: f64,
        claim: &str,
        script: &str,
        holds: impl Fn(&Ran) -> bool,
    ) -> Result<Ran, Fault> {
        let since = Since::now(&self.host)?;
        let ran = self.claim(claim, script, holds)?;
        let (took, waited) = since.took(&self.host)?;
        self.findings.claim(
            format!("{}: that takes {limit} s at most", self.release),
            took - waited <= limit,
            format!("{took:.1} s, of which QEMU waited {waited:.1} s for this machine's pCPUs"),
        );
        Ok(ran)
    }

    fn claim_as(
        &mut self,
        user: &str,
        claim: &str,
        script: &str,
        holds: impl Fn(&Ran) -> bool,
    ) -> Result<Ran, Fault> {
        let ran = self.host.run_as(user, script, Duration::from_secs(180))?;
        let held = holds(&ran);
        self.findings.claim(format!("{}: {claim}", self.release), held, found(script, &ran, held));
        Ok(ran)
    }

    /// A claim about what a command prints within some seconds: the command is repeated until it holds. As in
    /// [`On::claim_within`], what QEMU's vCPUs waited does not count.
    fn claim_soon(
        &mut self,
        limit: u64,
        claim: &str,
        script: &str,
        holds: impl Fn(&Ran) -> bool,
    ) -> Result<(), Fault> {
        let since = Since::now(&self.host)?;
        loop {
            let ran = self.host.run(script)?;
            let held = holds(&ran);
            let (took, waited) = since.took(&self.host)?;
            if !held && took - waited < limit as f64 {
                std::thread::sleep(Duration::from_millis(500));
                continue;
            }
            let found = format!(
                "{}; after {took:.1} s, of which QEMU waited {waited:.1} s for this machine's pCPUs",
                found(script, &ran, held)
            );
            self.findings.claim(format!("{}: {claim}", self.release), held, found);
            return Ok(());
        }
    }

    fn shares(&mut self, claim: &str, wanted: &str) -> Result<(), Fault> {
        self.claim(claim, SHARES, |r| r.out == wanted).map(|_| ())
    }

    fn shares_soon(&mut self, limit: u64, claim: &str, wanted: &str) -> Result<(), Fault> {
        self.claim_soon(limit, claim, SHARES, |r| r.out == wanted)
    }
}
