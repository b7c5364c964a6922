//! The reference of all metrics, docs/reference/metrics.md, from the table.

use super::{Metric, tables};
use prometheus_client::metrics::MetricType;
use std::fmt::Write;

const HEAD: &str = "\
# Metrics of vsteer serve

Made by `make pictures` from the table in `crates/vsteer-serve/src/metrics`.

`/metrics` has three forms: Prometheus' text 0.0.4, OpenMetrics, and protobuf with native histograms.
The client chooses by its `Accept` header. [serve.md](../serve.md) describes the service.

- Times are in seconds, shares from 0 to 1. Counters never fall while their VM is there.
- A value that is not measured has no series. `vsteer_not_measured` says why.
- The label `vm` is the VM's name, with a distinguishing part if two VMs have the same name.
  `vsteer_vm_info` joins it to names and ids of libvirt, Proxmox, OpenStack and KubeVirt.
";

/// The whole page.
pub fn reference() -> String {
    let all = tables(true);
    let mut out = HEAD.to_owned();
    for (title, metrics) in
        ["VMs and vCPUs", "Histograms", "Host and service", "With --compat-names"].iter().zip(all)
    {
        let _ = write!(out, "\n## {title}\n\n| metric | kind | meaning |\n|---|---|---|\n");
        metrics.iter().for_each(|metric| row(&mut out, metric));
    }
    out
}

/// The name as the text form has it: with unit and suffix.
pub fn name(metric: &Metric) -> String {
    let unit = if metric.unit.is_empty() { String::new() } else { format!("_{}", metric.unit) };
    let suffix = match metric.kind {
        MetricType::Counter => "_total",
        MetricType::Info => "_info",
        _ => "",
    };
    format!("{}{unit}{suffix}", metric.name)
}

fn row(out: &mut String, metric: &Metric) {
    let kind = metric.kind.as_str();
    let _ = writeln!(out, "| `{}` | {kind} | {} |", name(metric), metric.help);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_reference_is_as_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
        if std::env::var("VSTEER_PICTURES").is_ok_and(|value| value == "write") {
            std::fs::write(path, reference()).unwrap();
        }
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            found == reference(),
            "docs/reference/metrics.md differs from the table: run `make pictures`"
        );
    }

    #[test]
    fn every_metric_has_a_name_of_its_own_and_a_help_that_fits_a_table() {
        let all: Vec<String> = tables(true).iter().copied().flatten().map(name).collect();
        assert_eq!(all.len(), all.iter().collect::<BTreeSet<_>>().len());
        for metric in tables(true).iter().copied().flatten() {
            assert!(!metric.help.contains(['|', '\n']) && !metric.help.ends_with('.'), "{}", metric.name);
        }
    }
}
