//! Dashboards for Grafana (schema 39, Grafana 10 and later): one of a host, one of a VM.
//!
//! A dashboard is a table of panels; this file turns it into Grafana's JSON. The panels lie in rows of two. `lab run serve` sends
//! every expression to a real Prometheus; no Grafana was to be had, so how the panels look is untried. GAP(grafana)

use serde_json::{Value, json};

struct Panel {
    title: &'static str,
    about: &'static str,
    unit: &'static str,
    look: Look,
    /// Expression, legend.
    of: &'static [(&'static str, &'static str)],
}

#[derive(Clone, Copy, PartialEq)]
enum Look {
    /// A number.
    Stat,
    Lines,
    /// Lines on top of each other.
    Stacked,
    Table,
}

const OF_HOST: &[Panel] = &[
    Panel {
        title: "Contention",
        about: "Part of the CPU time that the VMs wanted and did not get, over the last minute",
        unit: "percentunit",
        look: Look::Stat,
        of: &[("vsteer_host_contention_ratio{instance=~\"$instance\"}", "{{instance}}")],
    },
    Panel {
        title: "vCPUs per pCPU",
        about: "How far the host is overcommitted",
        unit: "none",
        look: Look::Stat,
        of: &[("vsteer_host_vcpus_per_pcpu_ratio{instance=~\"$instance\"}", "{{instance}}")],
    },
    Panel {
        title: "VMs that wait most",
        about: "Ready per vCPU: a vCPU is ready but not running",
        unit: "percentunit",
        look: Look::Lines,
        of: &[("topk(10, vsteer:vm_ready:ratio{instance=~\"$instance\"})", "{{vm}}")],
    },
    Panel {
        title: "Who makes VMs wait",
        about: "Ready time of a VM per vCPU by who had the CPU",
        unit: "percentunit",
        look: Look::Lines,
        of: &[(
            "topk(10, vsteer:vm_blame:ratio{instance=~\"$instance\"} > 0.005)",
            "{{kind}} {{culprit}} → {{vm}}",
        )],
    },
    Panel {
        title: "Wake-up latency, 99th percentile",
        about: "From a vCPU's wake-up to its running",
        unit: "s",
        look: Look::Lines,
        of: &[("topk(10, vsteer:vm_wake_p99:seconds{instance=~\"$instance\"})", "{{vm}}")],
    },
    Panel {
        title: "pCPU time",
        about: "Time of all pCPUs by mode",
        unit: "none",
        look: Look::Stacked,
        of: &[(
            "sum by (mode) (rate(vsteer_pcpu_seconds_total{instance=~\"$instance\",mode!=\"idle\"}[$__rate_interval]))",
            "{{mode}}",
        )],
    },
    Panel {
        title: "Throttled by a quota",
        about: "Limited per vCPU",
        unit: "percentunit",
        look: Look::Lines,
        of: &[("topk(10, vsteer:vm_limited:ratio{instance=~\"$instance\"})", "{{vm}}")],
    },
    Panel {
        title: "Pressure of the host",
        about: "At least one task waited (some), or all did (full)",
        unit: "percentunit",
        look: Look::Lines,
        of: &[(
            "rate(vsteer_host_pressure_seconds_total{instance=~\"$instance\"}[$__rate_interval])",
            "{{resource}} {{kind}}",
        )],
    },
    Panel {
        title: "Findings of the last minute",
        about: "As in vsteer diagnose, with the time lost in pCPUs",
        unit: "none",
        look: Look::Table,
        of: &[("sort_desc(vsteer_finding_loss_pcpus{instance=~\"$instance\"})", "{{rule}} {{vm}}")],
    },
    Panel {
        title: "Cost of vsteer",
        about: "CPU time of the service: the process, and its programs in the kernel",
        unit: "percentunit",
        look: Look::Lines,
        of: &[("rate(vsteer_own_cpu_seconds_total{instance=~\"$instance\"}[$__rate_interval])", "{{part}}")],
    },
];

const OF_VM: &[Panel] = &[
    Panel {
        title: "Ready",
        about: "Part of the time that a vCPU waits for a pCPU, mean over the vCPUs",
        unit: "percentunit",
        look: Look::Stat,
        of: &[("vsteer:vm_ready:ratio{instance=~\"$instance\",vm=~\"$vm\"}", "{{vm}}")],
    },
    Panel {
        title: "vCPUs",
        about: "vCPUs of the VM",
        unit: "none",
        look: Look::Stat,
        of: &[("vsteer_vm_vcpus{instance=~\"$instance\",vm=~\"$vm\"}", "{{vm}}")],
    },
    Panel {
        title: "States of the vCPUs",
        about: "Mean number of vCPUs in each state",
        unit: "none",
        look: Look::Stacked,
        of: &[(
            "sum by (state) (rate(vsteer_vcpu_state_seconds_total{instance=~\"$instance\",vm=~\"$vm\"}[$__rate_interval]))",
            "{{state}}",
        )],
    },
    Panel {
        title: "Ready by vCPU",
        about: "A vCPU that waits more than the others is pinned to a busy pCPU, or is the only one that runs",
        unit: "percentunit",
        look: Look::Lines,
        of: &[(
            "rate(vsteer_vcpu_state_seconds_total{instance=~\"$instance\",vm=~\"$vm\",state=~\"ready|wait\"}[$__rate_interval])",
            "{{vm}} vCPU {{vcpu}}",
        )],
    },
    Panel {
        title: "Who makes it wait",
        about: "Ready time per vCPU by who had the CPU",
        unit: "percentunit",
        look: Look::Stacked,
        of: &[("vsteer:vm_blame:ratio{instance=~\"$instance\",vm=~\"$vm\"} > 0", "{{kind}} {{culprit}}")],
    },
    Panel {
        title: "Wake-up latency",
        about: "From a vCPU's wake-up to its running, 99th percentile",
        unit: "s",
        look: Look::Lines,
        of: &[("vsteer:vm_wake_p99:seconds{instance=~\"$instance\",vm=~\"$vm\"}", "{{vm}}")],
    },
    Panel {
        title: "Parts of states",
        about: "Lag, waking, overlap, exits and halt polling",
        unit: "none",
        look: Look::Lines,
        of: &[(
            "sum by (part) (rate(vsteer_vcpu_part_seconds_total{instance=~\"$instance\",vm=~\"$vm\"}[$__rate_interval]))",
            "{{part}}",
        )],
    },
    Panel {
        title: "Weight and allowed pCPUs",
        about: "Weight relative to the default; pCPUs that the vCPUs may use",
        unit: "none",
        look: Look::Lines,
        of: &[
            ("vsteer_vm_weight_ratio{instance=~\"$instance\",vm=~\"$vm\"}", "weight"),
            ("vsteer_vm_allowed_pcpus{instance=~\"$instance\",vm=~\"$vm\"}", "allowed pCPUs"),
        ],
    },
];

/// The dashboard of a host.
pub fn host() -> String {
    dashboard("vsteer-host", "vsteer: host", OF_HOST, &["instance"])
}

/// The dashboard of a VM.
pub fn vm() -> String {
    dashboard("vsteer-vm", "vsteer: VM", OF_VM, &["instance", "vm"])
}

fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

fn variable(name: &str) -> Value {
    let of = if name == "vm" { "vsteer_vm_vcpus{instance=~\"$instance\"}" } else { "vsteer_host_info" };
    let query = format!("label_values({of}, {name})");
    json!({ "name": name, "type": "query", "datasource": source(), "definition": query, "refresh": 2, "sort": 1,
        "multi": name == "instance", "includeAll": name == "instance", "query": { "query": query, "refId": name } })
}

fn dashboard(uid: &str, title: &str, panels: &[Panel], variables: &[&str]) -> String {
    let mut list = vec![
        json!({ "name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus" }),
    ];
    list.extend(variables.iter().map(|name| variable(name)));
    let panels: Vec<Value> = panels.iter().enumerate().map(|(i, p)| panel(i, p)).collect();
    let all = json!({
        "uid": uid, "title": title, "tags": ["vsteer"], "schemaVersion": 39, "editable": true, "refresh": "15s",
        "time": { "from": "now-1h", "to": "now" }, "timezone": "browser",
        "templating": { "list": list }, "panels": panels,
    });
    serde_json::to_string_pretty(&all).expect("plain data is JSON") + "\n"
}

fn panel(i: usize, p: &Panel) -> Value {
    let kind = match p.look {
        Look::Stat => "stat",
        Look::Lines | Look::Stacked => "timeseries",
        Look::Table => "table",
    };
    let target = |(k, (expr, legend)): (usize, &(&str, &str))| {
        let name = char::from(b'A' + k as u8).to_string();
        let once = p.look == Look::Table;
        json!({ "refId": name, "expr": expr, "legendFormat": legend, "datasource": source(), "instant": once,
            "range": !once, "format": if once { "table" } else { "time_series" } })
    };
    let mut custom = json!({});
    if p.look == Look::Stacked {
        custom = json!({ "stacking": { "mode": "normal" }, "fillOpacity": 40, "lineWidth": 1 });
    }
    json!({
        "id": i + 1, "title": p.title, "description": p.about, "type": kind, "datasource": source(),
        "gridPos": { "x": 12 * (i % 2), "y": 8 * (i / 2), "w": 12, "h": 8 },
        "fieldConfig": { "defaults": { "unit": p.unit, "min": 0, "custom": custom }, "overrides": [] },
        "targets": p.of.iter().enumerate().map(target).collect::<Vec<_>>(),
    })
}
