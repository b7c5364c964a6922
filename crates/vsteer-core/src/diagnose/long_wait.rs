//! Did a vCPU wait so long in one piece that its guest may take itself for stuck?
//!
//! A guest's watchdogs measure wall-clock time. Linux warns of a soft lockup after 20 s (twice `kernel.watchdog_thresh`) and of
//! an RCU stall after 21 s; Windows has a limit of 2 minutes for DPCs. A cluster's heartbeat fails much earlier.
//!
//! Source: Linux 6.12, kernel/watchdog.c and `rcu_cpu_stall_timeout`; Microsoft, "Bug Check 0x133".

use super::{Context, Finding, Rule, millis};

pub const RULE: Rule = Rule {
    name: "long_wait",
    doc: "a vCPU waited for many seconds in one piece, and its guest's watchdog may fire",
    explains: &[],
    check,
};

/// Half of the smallest time after which a guest warns.
const LONG_NS: f64 = 10e9;
const WARNS_NS: f64 = 20e9;

fn check(c: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, vm) in c.vms() {
        let spells = vm.vcpu_threads().filter_map(|t| Some((t.role, t.ready_spell?.max_ns)));
        let Some((role, longest)) = spells.max_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
        if longest < LONG_NS {
            continue;
        }
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: Some(vm.id.clone()),
            title: format!("{role} of VM {:?} waited for {:.0} s in one piece", vm.name, longest / 1e9),
            explanation: "For the guest, time jumps. Its kernel may report a soft lockup or an RCU stall, and a cluster may take \
                the guest for dead."
                .into(),
            evidence: vec![millis("longest wait for a pCPU, ready and limited", longest, Some(WARNS_NS))],
            loss_pcpus: 0.0,
            disproved_by: "the guest's log (dmesg) has no lockup, stall or clock jump at that time".into(),
            next: "remove the cause of the wait: see the other findings of this VM; compare with dmesg of the guest".into(),
            ..Finding::default()
        });
    }
    findings
}
