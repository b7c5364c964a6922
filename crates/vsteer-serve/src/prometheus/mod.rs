//! What people load into Prometheus and Grafana beside the metrics: recording rules, alerts and dashboards.
//!
//! The files in packaging/prometheus and packaging/grafana are made from these tables with the default thresholds. `vsteer serve
//! --print rules` prints the rules with the thresholds of this host's configuration.

mod dashboards;
mod rules;

pub use dashboards::{host as host_dashboard, vm as vm_dashboard};
pub use rules::rules;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::name;
    use vsteer_core::thresholds::Thresholds;

    fn made(place: &str, text: &str) {
        let path = format!("{}/../../{place}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var("VSTEER_PICTURES").is_ok_and(|value| value == "write") {
            std::fs::write(&path, text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == text, "{place} differs from the tables: run `make pictures`");
    }

    #[test]
    fn the_packaged_files_are_as_the_tables_of_the_reference() {
        made("packaging/prometheus/vsteer.rules.yml", &rules(&Thresholds::default()));
        made("packaging/grafana/vsteer-host.json", &host_dashboard());
        made("packaging/grafana/vsteer-vm.json", &vm_dashboard());
    }

    /// Every name that begins with `vsteer_` is one of a metric, and every one with `vsteer:` is recorded.
    #[test]
    fn only_metrics_that_exist_are_used() {
        let all: Vec<String> = crate::metrics::tables(true).iter().copied().flatten().map(name).collect();
        let rules = rules(&Thresholds::default());
        let recorded: Vec<&str> = rules.lines().filter_map(|l| l.trim().strip_prefix("- record: ")).collect();
        let text = [rules.clone(), host_dashboard(), vm_dashboard()].concat();
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
        let used: Vec<&str> = text
            .split(|c| !is_part(c))
            .filter(|w| w.len() > 7 && (w.starts_with("vsteer_") || w.starts_with("vsteer:")))
            .collect();
        assert!(used.len() > 30, "{used:?}");
        for word in used {
            let base = word.trim_end_matches("_bucket");
            assert!(recorded.contains(&word) || all.iter().any(|n| n == base), "{word}");
        }
    }

    #[test]
    fn every_alert_has_a_section_in_its_runbook() {
        let runbook = include_str!("../../../../docs/runbooks/alerts.md");
        let rules = rules(&Thresholds::default());
        let alerts: Vec<&str> = rules.lines().filter_map(|l| l.trim().strip_prefix("- alert: ")).collect();
        assert!(alerts.len() >= 8, "{alerts:?}");
        for alert in alerts {
            assert!(runbook.lines().any(|l| l == format!("## {alert}")), "{alert} has no section");
            assert!(rules.contains(&format!("alerts.md#{}", alert.to_lowercase())), "{alert}");
        }
    }
}
