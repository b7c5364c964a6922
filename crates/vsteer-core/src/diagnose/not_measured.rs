//! Which quantities were not measured, and how can they be?

use super::{Context, Finding, Rule};

pub const RULE: Rule = Rule {
    name: "not_measured",
    doc: "quantities that were not measured, and how to measure them",
    explains: &[],
    check,
};

fn check(c: &Context<'_>) -> Vec<Finding> {
    if c.model.missing.is_empty() {
        return Vec::new();
    }
    // Another collector helps only if the recording came from the one that measures less.
    let next = if c.model.collector == "schedstat" {
        "run vsteer as root with --collector ebpf: eBPF measures more than polling /proc"
    } else {
        "no vsteer option adds these; see the reason for each"
    };
    let lines: Vec<String> = c.model.missing.iter().map(|(what, why)| format!("{what}: {why}")).collect();
    vec![Finding {
        rule: RULE.name.to_owned(),
        vm: None,
        title: format!("not measured: {}", c.model.missing.keys().cloned().collect::<Vec<_>>().join(", ")),
        explanation: lines.join("\n"),
        evidence: Vec::new(),
        loss_pcpus: 0.0,
        disproved_by: "the recording contains these quantities".into(),
        next: next.into(),
        ..Finding::default()
    }]
}
