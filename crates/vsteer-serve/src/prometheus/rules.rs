//! Recording rules and alerts for Prometheus, with the thresholds of `vsteer diagnose`.
//!
//! Rates are over one minute, so the scrape interval must be 30 s at most. An alert holds for 30 s or more before it fires, which
//! a single burst does not. Each alert names its section of docs/runbooks/alerts.md.

use std::fmt::Write;
use vsteer_core::thresholds::Thresholds;

/// A series that Prometheus computes: name, expression.
struct Recorded {
    name: &'static str,
    expr: String,
}

struct Alert {
    name: &'static str,
    expr: String,
    /// How long the expression must hold.
    holds: &'static str,
    severity: &'static str,
    summary: &'static str,
    description: &'static str,
}

/// The mean over a VM's vCPUs of the time in these states.
fn of_states(name: &'static str, states: &str) -> Recorded {
    let sum = format!(
        "sum by (job, instance, vm) (rate(vsteer_vcpu_state_seconds_total{{state=~\"{states}\"}}[1m]))"
    );
    Recorded { name, expr: format!("{sum} / on (job, instance, vm) vsteer_vm_vcpus") }
}

fn recorded() -> Vec<Recorded> {
    let quantile = |of: &str| format!("histogram_quantile(0.99, {of})");
    let classic =
        quantile("sum by (job, instance, vm, le) (rate(vsteer_vm_wake_latency_seconds_bucket[1m]))");
    let native = quantile("sum by (job, instance, vm) (rate(vsteer_vm_wake_latency_seconds[1m]))");
    let blame = "sum by (job, instance, vm, kind, culprit) (rate(vsteer_blame_seconds_total[1m]))";
    vec![
        of_states("vsteer:vm_run:ratio", "run"),
        of_states("vsteer:vm_ready:ratio", "ready|wait"),
        of_states("vsteer:vm_limited:ratio", "limited"),
        of_states("vsteer:vm_costop:ratio", "costop"),
        // A Prometheus without native histograms has the buckets, and one with them the series itself.
        Recorded { name: "vsteer:vm_wake_p99:seconds", expr: format!("{native} or {classic}") },
        Recorded {
            name: "vsteer:vm_blame:ratio",
            expr: format!("{blame} / on (job, instance, vm) group_left () vsteer_vm_vcpus"),
        },
        Recorded {
            name: "vsteer:host_steal:ratio",
            expr: "sum by (job, instance) (rate(vsteer_pcpu_seconds_total{mode=\"steal\"}[1m])) \
                   / count by (job, instance) (vsteer_pcpu_seconds_total{mode=\"idle\"})"
                .to_owned(),
        },
    ]
}

fn alerts(t: &Thresholds) -> Vec<Alert> {
    let alert = |name, expr, holds, severity, summary, description| Alert {
        name,
        expr,
        holds,
        severity,
        summary,
        description,
    };
    vec![
        alert(
            "VsteerVmWaits",
            format!("vsteer:vm_ready:ratio > {}", t.ready_per_vcpu),
            "1m",
            "warning",
            "VM {{ $labels.vm }} waits for a CPU",
            "Its vCPUs were ready but not running for {{ $value | humanizePercentage }} of the time.",
        ),
        alert(
            "VsteerNoisyNeighbour",
            format!(
                "vsteer:vm_blame:ratio{{kind=~\"vm|process|container\"}} > {} \
                 and on (job, instance, vm) vsteer:vm_ready:ratio > {}",
                t.ready_per_vcpu, t.ready_per_vcpu
            ),
            "30s",
            "warning",
            "{{ $labels.culprit }} makes VM {{ $labels.vm }} wait",
            "For {{ $value | humanizePercentage }} of the time the {{ $labels.kind }} {{ $labels.culprit }} had the CPU \
             that vCPUs of {{ $labels.vm }} waited for.",
        ),
        alert(
            "VsteerVmLimited",
            format!("vsteer:vm_limited:ratio > {}", t.limited_per_vcpu),
            "1m",
            "warning",
            "VM {{ $labels.vm }} is throttled by a quota",
            "Its vCPUs were throttled for {{ $value | humanizePercentage }} of the time. Other VMs are not the cause.",
        ),
        alert(
            "VsteerVmCostop",
            format!("vsteer:vm_costop:ratio > {}", t.costop_per_vcpu),
            "1m",
            "warning",
            "VM {{ $labels.vm }} is co-stopped",
            "The hypervisor stopped its vCPUs for {{ $value | humanizePercentage }} of the time so that others catch up.",
        ),
        alert(
            "VsteerVmWakesLate",
            format!(
                "vsteer:vm_wake_p99:seconds > {} and on (job, instance, vm) vsteer:vm_run:ratio < {}",
                t.wake_p99_ns / 1e9,
                t.wakes_matter_run
            ),
            "2m",
            "warning",
            "VM {{ $labels.vm }} wakes up late",
            "One in a hundred wake-ups waits {{ $value | humanizeDuration }} or longer for a CPU.",
        ),
        alert(
            "VsteerHostContended",
            format!("vsteer_host_contention_ratio > {}", t.ready_per_vcpu_critical),
            "2m",
            "warning",
            "Host {{ $labels.instance }} has too few CPUs for its VMs",
            "Its VMs did not get {{ $value | humanizePercentage }} of the CPU time that they wanted.",
        ),
        alert(
            "VsteerHostSteal",
            format!("vsteer:host_steal:ratio > {}", t.steal),
            "5m",
            "warning",
            "Host {{ $labels.instance }} is itself a VM that waits",
            "Its own hypervisor took {{ $value | humanizePercentage }} of its CPU time.",
        ),
        alert(
            "VsteerStale",
            "time() - vsteer_sample_time_seconds > 60".to_owned(),
            "30s",
            "critical",
            "vsteer on {{ $labels.instance }} takes no samples",
            "The newest sample is {{ $value | humanizeDuration }} old.",
        ),
        alert(
            "VsteerDown",
            "up{job=~\".*vsteer.*\"} == 0".to_owned(),
            "1m",
            "critical",
            "vsteer on {{ $labels.instance }} does not answer",
            "Prometheus cannot scrape it.",
        ),
        alert(
            "VsteerSwitchesUnseen",
            "rate(vsteer_switches_unseen_total[5m]) > 1".to_owned(),
            "5m",
            "info",
            "vsteer on {{ $labels.instance }} misses context switches",
            "It misses {{ $value | humanize }} per second, so ready times and blame are too small.",
        ),
    ]
}

/// The file for Prometheus' `rule_files`.
pub fn rules(thresholds: &Thresholds) -> String {
    let mut out = "# Recording rules and alerts of vsteer. Made by `vsteer serve --print rules`.\n\
                   # The scrape interval of the job must be 30 s at most.\ngroups:\n"
        .to_owned();
    // JSON's strings are YAML's.
    let quoted = |text: &str| serde_json::to_string(text).expect("a text is JSON");
    let _ = writeln!(out, "- name: vsteer\n  rules:");
    for r in recorded() {
        let _ = writeln!(out, "  - record: {}\n    expr: {}", r.name, quoted(&r.expr));
    }
    let _ = writeln!(out, "- name: vsteer-alerts\n  rules:");
    for a in alerts(thresholds) {
        let _ = writeln!(out, "  - alert: {}\n    expr: {}\n    for: {}", a.name, quoted(&a.expr), a.holds);
        let _ = writeln!(out, "    labels: {{severity: {}}}\n    annotations:", a.severity);
        let _ = writeln!(out, "      summary: {}", quoted(a.summary));
        let _ = writeln!(out, "      description: {}", quoted(a.description));
        let runbook = format!("/usr/share/doc/vsteer/docs/runbooks/alerts.md#{}", a.name.to_lowercase());
        let _ = writeln!(out, "      runbook: {}", quoted(&runbook));
    }
    out
}
