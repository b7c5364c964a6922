//! Which finding is the cause of which?
//!
//! A finding explains a later one (in the order of [`super::RULES`]) if it concerns all of its VMs and all of its
//! measures: a pin to busy pCPUs explains that its VM waits for another one there. Findings with one culprit become one
//! first, and at the end what many VMs have in common. Causes are sorted by what they lose beyond what causes of fewer VMs
//! explain: a host may be full because of one weight.

use super::{Context, Finding, RULES, over_threshold};
use crate::plural::counted;
use std::collections::BTreeSet;

/// With at least this many VMs, the same finding of each becomes one finding.
const MANY: usize = 3;

/// The causes, each with its symptoms.
pub(super) fn tree(c: &Context<'_>, findings: Vec<Finding>) -> Vec<Finding> {
    let mut findings = together(findings, 2, |f| f.culprit.clone().map(|who| (f.rule.clone(), who)));
    findings.sort_by_key(|f| rank(&f.rule));
    let mut causes: Vec<Finding> = Vec::new();
    for finding in findings {
        match causes.iter_mut().find(|cause| explains(cause, &finding)) {
            // Its own evidence says so already.
            Some(cause) if finding.rule == over_threshold::RULE.name && cause.vms.len() == 1 => {}
            Some(cause) => cause.symptoms.push(finding),
            None => causes.push(finding),
        }
    }
    let mut causes = over_threshold::merged(causes);
    for cause in &mut causes {
        cause.symptoms = over_threshold::merged(std::mem::take(&mut cause.symptoms));
        cause.symptoms.sort_by(|a, b| b.loss_pcpus.total_cmp(&a.loss_pcpus));
    }
    causes
        .iter_mut()
        .filter(|f| f.rule == over_threshold::RULE.name)
        .for_each(|f| over_threshold::unexplained(c, f));
    let mut causes = together(causes, MANY, |f| f.vm.as_ref().map(|_| (f.rule.clone(), String::new())));
    let left: Vec<f64> = causes.iter().map(|f| left_unexplained(f, &causes)).collect();
    // The sort is stable: causes that leave as much keep the order of the rules.
    let mut order: Vec<usize> = (0..causes.len()).collect();
    order.sort_by(|a, b| left[*b].total_cmp(&left[*a]));
    order.into_iter().map(|i| std::mem::take(&mut causes[i])).collect()
}

/// What a cause loses, less what causes of fewer VMs, which come before it in the order of rules, lose of it.
fn left_unexplained(f: &Finding, causes: &[Finding]) -> f64 {
    let within = |other: &&Finding| {
        rank(&other.rule) < rank(&f.rule)
            && !other.vms.is_empty()
            && !other.measures.is_empty()
            && other.vms.iter().all(|vm| f.vms.contains(vm))
    };
    let explained: f64 = causes.iter().filter(within).map(|other| other.loss_pcpus).sum();
    (f.loss_pcpus - explained).max(0.0)
}

fn rank(rule: &str) -> usize {
    RULES.iter().position(|r| r.name == rule).unwrap_or(RULES.len())
}

fn explains(cause: &Finding, symptom: &Finding) -> bool {
    // A finding that loses nothing causes nothing. It says only that something was not measured.
    cause.loss_pcpus > 0.0
        && cause.rule != symptom.rule
        && !symptom.vms.is_empty()
        && !symptom.measures.is_empty()
        && symptom.vms.iter().all(|vm| cause.vms.contains(vm))
        && symptom.measures.iter().all(|measure| cause.measures.contains(measure))
}

/// A rule, and what its findings have in common.
type Key = (String, String);

/// Findings with the same key become one, of which they are the symptoms, if they are at least `least`.
fn together(findings: Vec<Finding>, least: usize, key: impl Fn(&Finding) -> Option<Key>) -> Vec<Finding> {
    let mut groups: Vec<(Option<Key>, Vec<Finding>)> = Vec::new();
    for finding in findings {
        let of = key(&finding);
        match groups.iter_mut().find(|(key, _)| of.is_some() && *key == of) {
            Some((_, all)) => all.push(finding),
            None => groups.push((of, vec![finding])),
        }
    }
    let folded = |(_, all): (_, Vec<Finding>)| if all.len() < least { all } else { vec![one(all)] };
    groups.into_iter().flat_map(folded).collect()
}

/// One finding for all of these, which are of one rule.
fn one(mut all: Vec<Finding>) -> Finding {
    all.sort_by(|a, b| b.loss_pcpus.total_cmp(&a.loss_pcpus));
    let first = &all[0];
    let vms: BTreeSet<_> = all.iter().flat_map(|f| f.vms.iter().cloned()).collect();
    let number = counted(vms.len(), "VM");
    let doc = RULES.iter().find(|r| r.name == first.rule).map_or("", |r| r.doc);
    let same =
        |of: fn(&Finding) -> &String| all.iter().all(|f| of(f) == of(first)).then(|| of(first).clone());
    Finding {
        rule: first.rule.clone(),
        title: match &first.culprit {
            Some(who) => format!("{number} wait for {who}"),
            None => format!("{number}: {doc}"),
        },
        explanation: same(|f| &f.explanation).unwrap_or_default(),
        loss_pcpus: all.iter().map(|f| f.loss_pcpus).sum(),
        disproved_by: same(|f| &f.disproved_by).unwrap_or_else(|| "see each of them (--json)".to_owned()),
        next: same(|f| &f.next).unwrap_or_else(|| format!("the worst first: {}", first.next)),
        measures: first.measures.clone(),
        culprit: first.culprit.clone(),
        vms: vms.into_iter().collect(),
        symptoms: all,
        ..Finding::default()
    }
}
