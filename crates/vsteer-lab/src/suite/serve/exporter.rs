//! What does an exporter that others use cost beside the service, on the same VMs, and what does it show of the same fault?
//!
//! Debian's `prometheus-libvirt-exporter` asks libvirt at each scrape, and so makes libvirtd work. The service counts all the time,
//! and writes what it has counted. So both costs are given: of a scrape, and of a second in which nobody scrapes.

use super::Serve;
use crate::process::cpu_ns;
use crate::suite::worst;
use crate::{command, libvirtd};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

const PACKAGE: &str = "prometheus-libvirt-exporter";
const SCRAPES: u32 = 10;
/// Longer than the service's interval: each scrape shows a new sample.
const APART: Duration = Duration::from_millis(1100);
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// What an exposition is: its series, and the names of its metrics.
struct Shown {
    series: usize,
    names: BTreeSet<String>,
}

fn shown(text: &str) -> Shown {
    let series = || text.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
    let name = |l: &str| l.split(['{', ' ']).next().unwrap_or_default().to_owned();
    Shown { series: series().count(), names: series().map(name).collect() }
}

/// Names of metrics that speak of a wait for a CPU, or of who causes it.
fn of_waits(all: &Shown) -> Vec<&str> {
    const WORDS: [&str; 7] = ["ready", "delay", "wait", "steal", "blame", "limited", "vcpu_state"];
    all.names.iter().map(String::as_str).filter(|n| WORDS.iter().any(|w| n.contains(w))).collect()
}

/// What scrapes cost.
struct Cost {
    /// The slowest, s.
    slowest: f64,
    /// CPU time of the processes, of one scrape, ms.
    cpu_ms: Vec<f64>,
    /// CPU time of the processes in as long a time without scrapes, part of a core.
    idle: Vec<f64>,
}

/// Scrapes ten times, and waits as long.
fn cost(pids: &[i32], scrape: &dyn Fn() -> Result<String, Fault>) -> Result<(Cost, String), Fault> {
    let used = || pids.iter().map(|pid| cpu_ns(*pid)).collect::<Result<Vec<f64>, Fault>>();
    let mut text = scrape()?;
    let (begun, before) = (Instant::now(), used()?);
    std::thread::sleep(APART * SCRAPES);
    let (between, idle_s) = (used()?, begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    let mut took = Vec::new();
    for _ in 0..SCRAPES {
        std::thread::sleep(APART);
        let asked = Instant::now();
        text = scrape()?;
        took.push(asked.elapsed().as_secs_f64());
    }
    let (after, busy_s) = (used()?, begun.elapsed().as_secs_f64());
    let idle: Vec<f64> = before.iter().zip(&between).map(|(a, b)| (b - a) / 1e9 / idle_s).collect();
    let of_scrapes = |((a, b), idle): ((&f64, &f64), &f64)| {
        (b - a - idle * busy_s * 1e9).max(0.0) / 1e6 / f64::from(SCRAPES)
    };
    let cpu_ms = between.iter().zip(&after).zip(&idle).map(of_scrapes).collect();
    Ok((Cost { slowest: worst(took), cpu_ms, idle }, text))
}

/// A word in the sentence that compares.
fn told(of: &Shown, cost: &Cost) -> String {
    format!(
        "{} series, {} metrics of waits, a scrape takes {:.1} ms at most and {:.1?} ms of CPU, \
        a second without a scrape {:.2?} % of a core",
        of.series,
        of_waits(of).len(),
        1e3 * cost.slowest,
        cost.cpu_ms,
        cost.idle.iter().map(|part| 100.0 * part).collect::<Vec<f64>>(),
    )
}

impl Serve<'_> {
    /// Both VMs are on one pCPU when this is called.
    pub(super) fn beside_exporter(&mut self, victim: &str, neighbour: &str) -> Result<Value, Fault> {
        let mut query = Command::new("dpkg-query");
        let version = command::output(query.args(["-W", "-f", "${Version}", PACKAGE]), STARTS_WITHIN)?;
        let port = super::servers::free_port()?;
        let mut exporter = Command::new(PACKAGE);
        exporter.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        exporter.arg(format!("--libvirt.uri={}", self.v.uri));
        let exporter = self.servers.spawn(exporter, PACKAGE)?;
        let libvirtd = libvirtd::daemon(self.lab.dir())
            .ok_or_else(|| Fault::new(FaultKind::Failed, "the lab's libvirtd has no pid"))?;
        let url = format!("http://127.0.0.1:{port}/metrics");
        let ask = || {
            let failed = |e: ureq::Error| Fault::new(FaultKind::Failed, "scraping the exporter").because(e);
            let mut answer = ureq::get(&url).call().map_err(failed)?;
            answer.body_mut().read_to_string().map_err(failed)
        };
        let end = Instant::now() + STARTS_WITHIN;
        while ask().is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(200));
        }
        let (theirs, their_text) = cost(&[exporter, libvirtd], &ask)?;
        let (ours, our_text) = cost(&[self.servers.service()], &|| self.servers.metrics("text/plain"))?;
        let (they, we) = (shown(&their_text), shown(&our_text));
        let names_both = |line: &str| {
            line.starts_with("vsteer_blame_seconds_total{")
                && line.contains(&format!("vm=\"{victim}\""))
                && line.contains(neighbour)
                && line.rsplit(' ').next().and_then(|v| v.parse().ok()).is_some_and(|s: f64| s > 1.0)
        };
        let vcpus = their_text.lines().filter(|l| l.starts_with("libvirt_domain_info_virtual_cpus")).count();
        self.findings.claim(
            format!(
                "beside {PACKAGE} {version}: both show both VMs, and the service names the noisy neighbour"
            ),
            vcpus >= 2 && our_text.lines().any(names_both),
            format!(
                "the exporter, with libvirtd: {}; the service: {}",
                told(&they, &theirs),
                told(&we, &ours)
            ),
        );
        let figures = |of: &Shown, cost: &Cost| {
            json!({
                "series": of.series, "of_waits": of_waits(of), "slowest_s": cost.slowest,
                "cpu_ms": cost.cpu_ms, "idle_core": cost.idle,
            })
        };
        Ok(
            json!({ "package": PACKAGE, "version": version, "exporter": figures(&they, &theirs), "vsteer": figures(&we, &ours) }),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_lines_that_are_not_comments() {
        let all = shown("# HELP a_delay b\na_delay{vm=\"x\"} 1\na_delay{vm=\"y\"} 2\n\nb 3\n");
        assert_eq!((all.series, of_waits(&all)), (3, vec!["a_delay"]));
    }
}
