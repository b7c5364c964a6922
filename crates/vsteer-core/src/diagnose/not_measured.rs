//! What could not be measured, and how to switch it on?

use super::{Context, Finding, Rule};

/// See the file's head.
pub const RULE: Rule =
    Rule { name: "not_measured", doc: "what was not measured, and how to switch it on", check };

fn check(c: &Context<'_>) -> Vec<Finding> {
    if c.model.missing.is_empty() {
        return Vec::new();
    }
    // Only of what another collector can do is it a way out to take that.
    let next = if c.model.collector == "schedstat" {
        "run as root for the eBPF collector (--collector ebpf), which measures what polling cannot"
    } else {
        "nothing can be switched on for it: the reason is given with each"
    };
    let lines: Vec<String> = c.model.missing.iter().map(|(what, why)| format!("{what}: {why}")).collect();
    vec![Finding {
        rule: RULE.name.to_owned(),
        vm: None,
        title: format!("not measured: {}", c.model.missing.keys().cloned().collect::<Vec<_>>().join(", ")),
        explanation: lines.join("\n"),
        evidence: Vec::new(),
        loss_pcpus: 0.0,
        disproved_by: "a recording in which these are present".into(),
        next: next.into(),
    }]
}
