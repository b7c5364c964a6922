//! Does the service give Prometheus what vsteer measures, and do alerts and dashboards work?
//!
//! Debian's own Prometheus (with native histograms) and Alertmanager scrape `vsteer serve` beside real VMs. Two VMs that compute get
//! one pCPU each, and no alert fires. Then both get the same pCPU. The alert must name the neighbour, ready time by PromQL must
//! be that of `vsteer diagnose`, and every expression of the dashboards must return series. A plan separates the VMs, and the
//! alert ends. The change is named by the person: which one a default plan chooses depends on how idle the other pCPU is. In full, an exporter
//! that others use runs beside it, and the service is stopped at last, which Prometheus must say.

pub mod ask;
pub mod cost;
mod exporter;
mod servers;

use super::{Bench, Case, Findings, Minutes};
use crate::contention::Lab;
use crate::drive::{Vsteer, wait};
use crate::{command, files, libvirtd};
use serde_json::{Value, json};
use servers::Servers;
use std::process::Command;
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "serve",
    doc: "the service under a real Prometheus: metrics as diagnose has them, alerts that name and end, dashboards",
    in_test: true,
    minutes: Minutes::new(4.0, 8.0),
    beside: false,
    run,
};

const SPEC: &str = "burn=2x1";
const LIMIT: Duration = Duration::from_secs(120);
/// An alert about a neighbour must fire, and end, within this time.
const ALERT_WITHIN: Duration = Duration::from_secs(120);
/// How long `vsteer record` and PromQL look.
const WINDOW_S: u64 = 40;
const SAME: f64 = 0.01;
const NEIGHBOUR: &str = "VsteerNoisyNeighbour";
/// The tests of the rules themselves, with made-up series.
const TESTS: &str = include_str!("../../../../../packaging/prometheus/tests.yml");

fn run(bench: &Bench) -> Result<Findings, Fault> {
    bench.on_lab(SPEC, bench.seed, |lab, v| {
        let mut findings = Findings::default();
        let mut case = Serve { bench, lab, v, servers: Servers::start(bench, v)?, findings: &mut findings };
        let figures = case.all()?;
        findings.figures = figures;
        Ok(findings)
    })
}

struct Serve<'a> {
    bench: &'a Bench,
    lab: &'a Lab,
    v: &'a Vsteer,
    servers: Servers,
    findings: &'a mut Findings,
}

impl Serve<'_> {
    fn all(&mut self) -> Result<Value, Fault> {
        let burners: Vec<String> = self
            .lab
            .state()
            .vms
            .iter()
            .filter(|vm| vm.workload.starts_with("burn"))
            .map(|vm| vm.name.clone())
            .collect();
        let [victim, neighbour] = burners.as_slice() else {
            return Err(Fault::new(FaultKind::Failed, "the lab has other VMs than asked for"));
        };
        self.pin(victim, "0")?;
        self.pin(neighbour, "1")?;
        self.rules()?;
        self.forms()?;
        wait("letting rates settle", Duration::from_secs(40))?;
        // Other work of this machine may be a noisy neighbour too.
        let before: Vec<Value> =
            self.servers.firing(NEIGHBOUR).into_iter().filter(|alert| alert["kind"] == "vm").collect();
        self.findings.claim(
            "with a pCPU each, no alert says that a VM is a noisy neighbour",
            before.is_empty(),
            format!("{before:?}"),
        );
        let planted = Instant::now();
        self.pin(neighbour, "0")?;
        let named = |all: &[Value]| {
            all.iter().any(|a| a["vm"] == victim.as_str() && a["culprit"] == neighbour.as_str())
        };
        let fired = self.servers.until(ALERT_WITHIN, NEIGHBOUR, named)?;
        self.findings.claim(
            format!(
                "both on one pCPU: the alert reaches its receiver within {} s, and names the neighbour",
                ALERT_WITHIN.as_secs()
            ),
            fired.is_some(),
            format!("after {:.0} s", planted.elapsed().as_secs_f64()),
        );
        let (diagnosed, asked) = self.compared()?;
        self.dashboards()?;
        let exporter = match self.bench.full {
            true => self.beside_exporter(victim, neighbour)?,
            false => Value::Null,
        };
        self.separated(neighbour)?;
        let applied = Instant::now();
        let ended = self.servers.until(ALERT_WITHIN, NEIGHBOUR, |all| !named(all))?;
        self.findings.claim(
            format!("after `apply` the alert ends within {} s", ALERT_WITHIN.as_secs()),
            ended.is_some(),
            format!("after {:.0} s", applied.elapsed().as_secs_f64()),
        );
        if self.bench.full {
            self.servers.stop_service();
            let down = self.servers.until(Duration::from_secs(150), "VsteerDown", |all| !all.is_empty())?;
            self.findings.claim("a service that is gone fires an alert", down.is_some(), "");
        }
        Ok(json!({ "ready": { "diagnose": diagnosed, "promql": asked }, "beside": exporter }))
    }

    fn pin(&self, vm: &str, pcpu: &str) -> Result<(), Fault> {
        libvirtd::virsh(self.lab.dir(), &["vcpupin", vm, "0", pcpu, "--live"]).map(drop)
    }

    /// promtool on the rules, as the program prints them, and their tests.
    fn rules(&mut self) -> Result<(), Fault> {
        let folder = self.servers.folder();
        files::write_file(&folder.join("tests.yml"), TESTS)?;
        for (claim, words) in [
            ("promtool: the rules are clean", vec!["check", "rules", "vsteer.rules.yml"]),
            (
                "promtool: every alert fires on its fault, and is silent without it",
                vec!["test", "rules", "tests.yml"],
            ),
        ] {
            let done = command::run(Command::new("promtool").args(words).current_dir(folder), LIMIT)?;
            let told = format!("{} {}", done.stdout.trim(), done.stderr.trim());
            self.findings.claim(claim, done.status.is_some_and(|s| s.success()), told.replace('\n', " "));
        }
        Ok(())
    }

    /// The exposition in its forms.
    fn forms(&mut self) -> Result<(), Fault> {
        let text = self.servers.metrics("text/plain")?;
        let file = self.servers.folder().join("metrics");
        files::write_file(&file, &text)?;
        let mut promtool = Command::new("sh");
        promtool.args(["-c", "promtool check metrics < \"$0\""]).arg(&file);
        let done = command::run(&mut promtool, LIMIT)?;
        let told = format!("{} lines; {}{}", text.lines().count(), done.stdout.trim(), done.stderr.trim());
        self.findings.claim(
            "promtool: the metrics are clean",
            done.status.is_some_and(|s| s.success()) && text.lines().count() > 100,
            told,
        );
        let open = self.servers.metrics("application/openmetrics-text; version=1.0.0")?;
        self.findings.claim(
            "OpenMetrics' form ends as it must, and has the same metrics",
            open.ends_with("# EOF\n")
                && open.lines().filter(|l| l.starts_with("# HELP")).count()
                    == text.lines().filter(|l| l.starts_with("# HELP")).count(),
            format!("{} lines", open.lines().count()),
        );
        Ok(())
    }

    /// Ready time per vCPU of the VMs that compute, by `vsteer diagnose` and by PromQL over about the same time.
    fn compared(&mut self) -> Result<(Vec<f64>, Vec<f64>), Fault> {
        let recording = self.bench.fresh("serve.vsteer")?;
        let length = format!("{WINDOW_S}s");
        self.v.run(
            &["record", "-o", &recording, "--for", &length, "--connect", &self.v.uri],
            false,
            LIMIT,
        )?;
        // The newest samples must be scraped.
        wait("letting Prometheus scrape", Duration::from_secs(3))?;
        let diagnosed = self.v.json(&["diagnose", &recording], LIMIT)?;
        // Between two scrapes, by the time of the samples and not of the scrapes.
        let part = |of: &str| format!("({of} - {of} offset {WINDOW_S}s)");
        let ready = "sum by (vm) (vsteer_vcpu_state_seconds_total{state=\"ready\"})";
        let before =
            format!("sum by (vm) (vsteer_vcpu_state_seconds_total{{state=\"ready\"}} offset {WINDOW_S}s)");
        let told = self
            .servers
            .query(&format!("({ready} - {before}) / scalar{}", part("vsteer_sample_time_seconds")))?;
        let mut pairs = Vec::new();
        for vm in diagnosed["model"]["vms"].as_array().into_iter().flatten() {
            let by_promql =
                told.iter().find(|(labels, _)| labels["vm"] == vm["name"]).map(|(_, value)| *value);
            let by_diagnose: f64 = vm["threads"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|t| t["role"]["vcpu"].is_u64())
                .filter_map(|t| t["shares"]["ready"].as_f64())
                .sum();
            // Of a VM that hardly waits, one wait more or less is a large part.
            if by_diagnose > 0.1 {
                pairs.push((by_diagnose, by_promql.unwrap_or(f64::NAN)));
            }
        }
        self.findings.claim_each(
            format!("ready by PromQL equals `vsteer diagnose` within {:.0} %", 100.0 * SAME),
            pairs.iter().map(|(a, b)| (b / a - 1.0).abs() <= SAME),
            2,
            "VMs",
            format!("{pairs:.4?}"),
        );
        Ok(pairs.into_iter().unzip())
    }

    /// Every expression of the dashboards returns series.
    fn dashboards(&mut self) -> Result<(), Fault> {
        for which in ["dashboard-host", "dashboard-vm"] {
            let text = self.servers.printed(which)?;
            let board: Value =
                serde_json::from_str(&text).map_err(|e| Fault::new(FaultKind::Failed, which).because(e))?;
            let mut empty = Vec::new();
            let mut all = 0;
            let targets = board["panels"]
                .as_array()
                .into_iter()
                .flatten()
                .flat_map(|p| p["targets"].as_array().into_iter().flatten());
            for target in targets {
                let expr = target["expr"].as_str().unwrap_or_default();
                let asked =
                    expr.replace("$instance", ".*").replace("$vm", ".*").replace("$__rate_interval", "1m");
                all += 1;
                if self.servers.query(&asked)?.is_empty() {
                    empty.push(asked);
                }
            }
            self.findings.claim(
                format!("{which}: every expression returns series"),
                all > 5 && empty.is_empty(),
                format!("{all} expressions, without series {empty:?}"),
            );
        }
        Ok(())
    }

    /// Gives the neighbour its own pCPU, by a plan.
    fn separated(&mut self, neighbour: &str) -> Result<(), Fault> {
        let plan = self.bench.output.join("serve.json").to_string_lossy().into_owned();
        let set = format!("{neighbour}:pin.0=1");
        let words = ["plan", "--for", "3s", "--connect", &self.v.uri, "--set", &set, "-o", &plan];
        self.v.json(&words, LIMIT)?;
        self.v.json(&["apply", &plan, "--yes", "--connect", &self.v.uri], LIMIT).map(drop)
    }
}
