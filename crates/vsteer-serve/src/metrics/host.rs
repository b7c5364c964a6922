//! Metrics of the host: its pCPUs and nodes, its contention, what was found, and what observing costs.

use super::guests::stalls;
use super::{Metric, Series, View};
use prometheus_client::metrics::MetricType::{Counter, Gauge, Info};
use std::collections::BTreeMap;
use vsteer_core::diagnose;
use vsteer_core::model::HostModel;

pub const METRICS: &[Metric] = &[
    Metric {
        name: "vsteer_host",
        help: "The host, and how it is observed",
        unit: "",
        kind: Info,
        of: |seen, series| {
            let labels = [
                ("host", seen.config.hostname.as_str()),
                ("kernel", &seen.config.kernel),
                ("collector", &seen.collector.name),
                ("version", env!("CARGO_PKG_VERSION")),
            ];
            series.add(&labels, 1.0);
        },
    },
    Metric {
        name: "vsteer_host_contention",
        help: "Part of what the host's vCPUs wanted of pCPUs that they did not get, over the last minute: 0 none, 1 all",
        unit: "ratio",
        kind: Gauge,
        of: |seen, series| {
            let wanted = seen.minute.iter().map(|model| wanted(model, |_| true));
            wanted.for_each(|(got, lacked)| series.add(&[], contention(got, lacked)));
        },
    },
    Metric {
        name: "vsteer_node_contention",
        help: "The same of the vCPUs that ran on a NUMA node last",
        unit: "ratio",
        kind: Gauge,
        of: node_contention,
    },
    Metric {
        name: "vsteer_node_busy",
        help: "Part of the time that the pCPUs of a NUMA node were busy, over the last minute",
        unit: "ratio",
        kind: Gauge,
        of: node_busy,
    },
    Metric {
        name: "vsteer_host_vcpus_per_pcpu",
        help: "vCPUs of all VMs per pCPU: how far the host is overcommitted",
        unit: "ratio",
        kind: Gauge,
        of: |seen, series| {
            let vcpus: usize = seen.config.vms.iter().map(|vm| vm.vcpu_count()).sum();
            let pcpus = seen.config.topology.usable().len();
            if pcpus > 0 {
                series.add(&[], vcpus as f64 / pcpus as f64);
            }
        },
    },
    Metric {
        name: "vsteer_pcpu",
        help: "Time of a pCPU by mode: user, system, irq, softirq, steal, idle",
        unit: "seconds",
        kind: Counter,
        of: |seen, series| {
            for p in &seen.totals.batch().pcpus {
                let modes = [
                    ("user", Some(p.user_ns)),
                    ("system", Some(p.system_ns)),
                    ("irq", Some(p.irq_ns)),
                    ("softirq", Some(p.softirq_ns)),
                    ("steal", p.steal_ns),
                    ("idle", Some(p.idle_ns)),
                ];
                let cpu = p.cpu.to_string();
                for (mode, ns) in modes {
                    ns.iter().for_each(|ns| series.add_ns(&[("pcpu", &cpu), ("mode", mode)], *ns));
                }
            }
        },
    },
    Metric {
        name: "vsteer_host_pressure",
        help: "Stalls of the host (PSI): at least one task (some) or all (full) waited for cpu, io or memory",
        unit: "seconds",
        kind: Counter,
        of: |seen, series| {
            seen.totals.batch().pressure.iter().for_each(|pressure| stalls(series, &[], pressure));
        },
    },
    Metric {
        name: "vsteer_finding_loss_pcpus",
        help: "Each finding of the last minute, as `vsteer diagnose` has it, with the time lost in pCPUs; vm is empty for the host",
        unit: "",
        kind: Gauge,
        of: findings,
    },
    Metric {
        name: "vsteer_not_measured",
        help: "What this way of observing does not measure, and why",
        unit: "",
        kind: Gauge,
        of: |seen, series| {
            for (what, why) in &seen.collector.missing {
                series.add(&[("what", what), ("why", why)], 1.0);
            }
        },
    },
    Metric {
        name: "vsteer_samples",
        help: "Samples that the service took",
        unit: "",
        kind: Counter,
        of: |seen, series| series.add(&[], seen.costs.samples as f64),
    },
    Metric {
        name: "vsteer_samples_failed",
        help: "Samples that could not be taken",
        unit: "",
        kind: Counter,
        of: |seen, series| series.add(&[], seen.costs.failed as f64),
    },
    Metric {
        name: "vsteer_sample_time",
        help: "When the newest sample was taken, since 1970",
        unit: "seconds",
        kind: Gauge,
        of: |seen, series| series.add_ns(&[], seen.totals.batch().unix_ns),
    },
    Metric {
        name: "vsteer_sample_took",
        help: "How long the newest sample took",
        unit: "seconds",
        kind: Gauge,
        of: |seen, series| series.add_ns(&[], seen.costs.sample_ns),
    },
    Metric {
        name: "vsteer_sample_late",
        help: "How much later than planned the newest sample was taken",
        unit: "seconds",
        kind: Gauge,
        of: |seen, series| series.add_ns(&[], seen.costs.late_ns),
    },
    Metric {
        name: "vsteer_own_cpu",
        help: "CPU time of the service itself, by part: process (user and system), bpf (programs of the observer in the kernel)",
        unit: "seconds",
        kind: Counter,
        of: |seen, series| {
            series.add_ns(&[("part", "process")], seen.costs.cpu_ns);
            seen.costs.bpf_ns.iter().for_each(|ns| series.add_ns(&[("part", "bpf")], *ns));
        },
    },
    Metric {
        name: "vsteer_history_samples_missed",
        help: "Samples that the history could not take, because its disk was slow",
        unit: "",
        kind: Counter,
        of: |seen, series| series.add(&[], seen.costs.history_missed as f64),
    },
    Metric {
        name: "vsteer_trigger_messages",
        help: "Messages of a trigger: sent, failed (after all tries), dropped (its queue was full)",
        unit: "",
        kind: Counter,
        of: |seen, series| {
            for of in seen.deliveries.iter() {
                for (outcome, count) in [("sent", &of.sent), ("failed", &of.failed), ("dropped", &of.dropped)]
                {
                    series.add(&[("trigger", &of.trigger), ("outcome", outcome)], count.get() as f64);
                }
            }
        },
    },
    Metric {
        name: "vsteer_trigger_failed_tries",
        help: "Tries of a trigger to deliver a message that failed; most are repeated",
        unit: "",
        kind: Counter,
        of: |seen, series| {
            for of in seen.deliveries.iter() {
                series.add(&[("trigger", &of.trigger)], of.failed_tries.get() as f64);
            }
        },
    },
    Metric {
        name: "vsteer_switches_unseen",
        help: "Context switches that the observer missed",
        unit: "",
        kind: Counter,
        of: |seen, series| seen.costs.unseen.iter().for_each(|n| series.add(&[], *n as f64)),
    },
];

/// What vCPUs that ran last on these pCPUs got, and what they lacked, in pCPUs.
fn wanted(model: &HostModel, here: impl Fn(Option<u32>) -> bool) -> (f64, f64) {
    let mut sum = (0.0, 0.0);
    for vm in &model.vms {
        let vcpus: Vec<_> = vm.vcpu_threads().collect();
        let each = vcpus.iter().filter(|t| here(t.last_cpu)).map(|t| t.shares);
        // Where only groups are counted, nobody knows where they ran.
        let group = (vcpus.is_empty() && here(None)).then_some(vm.group);
        for shares in each.chain(group) {
            sum.0 += shares.run.unwrap_or(0.0);
            sum.1 += shares.ready.or(shares.wait).unwrap_or(0.0) + shares.costop.unwrap_or(0.0);
        }
    }
    sum
}

fn contention(got: f64, lacked: f64) -> f64 {
    if got + lacked > 0.0 { (lacked / (got + lacked)).clamp(0.0, 1.0) } else { 0.0 }
}

fn node_contention(seen: &View<'_>, series: &mut Series<'_>) {
    let Some(model) = &seen.minute else { return };
    for node in seen.config.topology.nodes().iter().filter(|node| !node.cpus.is_empty()) {
        let (got, lacked) = wanted(model, |cpu| cpu.is_some_and(|cpu| node.cpus.contains(cpu)));
        series.add(&[("node", &node.id.0.to_string())], contention(got, lacked));
    }
}

fn node_busy(seen: &View<'_>, series: &mut Series<'_>) {
    let Some(model) = &seen.minute else { return };
    for node in seen.config.topology.nodes() {
        let busy: Vec<f64> =
            model.pcpus.iter().filter(|p| node.cpus.contains(p.cpu)).map(|p| p.busy).collect();
        if !busy.is_empty() {
            series.add(&[("node", &node.id.0.to_string())], busy.iter().sum::<f64>() / busy.len() as f64);
        }
    }
}

/// A rule may find several things of one VM: their losses are one series.
fn findings(seen: &View<'_>, series: &mut Series<'_>) {
    let mut all: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for finding in diagnose::flat(&seen.findings).filter(|f| f.rule != diagnose::NOT_MEASURED) {
        let vm = finding.vm.as_ref().map_or("", |vm| seen.name(vm));
        *all.entry((finding.rule.as_str(), vm)).or_default() += finding.loss_pcpus;
    }
    all.iter().for_each(|((rule, vm), loss)| series.add(&[("rule", rule), ("vm", vm)], *loss));
}
