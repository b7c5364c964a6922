//! Does `vsteer realtime` serve a VM's timers late, or refuse to put the VM first?
//!
//! When a timer of such a VM ends, the scheduler runs the VM first, on credit. A VM that takes more than its weight
//! gives runs into debt. In debt its timers wait like any other work. The same happens if timers end too soon after
//! each other, or if the VM's quota is used up.

use super::{Context, Finding, Measure, Rule, count, percent};
use crate::model::VmModel;
use crate::nouns::TimerCounts;

pub const RULE: Rule = Rule {
    name: "timers_refused",
    doc: "a VM exceeds its credit, so its timers are served late or refused",
    explains: &[Measure::WakeLatency],
    check,
};

/// A person hears or sees the effect when more than this share of the timers is late or refused.
const SHARE: f64 = 0.02;
/// Below this rate the shares are not meaningful.
const LEAST_PER_S: f64 = 1.0;

fn check(c: &Context<'_>) -> Vec<Finding> {
    c.vms().filter_map(|(_, vm)| finding(c, vm)).collect()
}

fn finding(c: &Context<'_>, vm: &VmModel) -> Option<Finding> {
    let asked = vm.timers_per_s.filter(|n| *n >= LEAST_PER_S)?;
    let (late, refused) = (vm.timers_late?, vm.timers_refused?);
    if late.max(refused) <= SHARE {
        return None;
    }
    let (what, next) = if refused > SHARE {
        let next = "raise the VM's weight, or raise its credit (vsteer realtime --warp, --limit), or run \
            vsteer-guest vit in the guest, so that only the timers that matter use credit";
        (format!("is refused priority for {:.0} % of its timers", 100.0 * refused), next)
    } else {
        let next = "find what runs before it, another VM's timer or a real-time thread of the host: vsteer \
            realtime report, vsteer diagnose";
        (format!("runs late for {:.0} % of its timers", 100.0 * late), next)
    };
    Some(Finding {
        rule: RULE.name.to_owned(),
        vm: Some(vm.id.clone()),
        title: format!("VM {:?} {what}", vm.name),
        explanation:
            "When a timer of this VM ends, the VM runs first, on credit. What it runs beyond its share by \
            weight becomes debt. Timers of a VM in debt give it no precedence."
                .into(),
        evidence: vec![
            count("timers of this VM", asked, "/s", None),
            percent("timers refused", refused, Some(SHARE)),
            percent(
                &format!(
                    "timers served at least {:.1} ms \
                late",
                    TimerCounts::LATE_NS as f64 / 1e6
                ),
                late,
                Some(SHARE),
            ),
        ],
        loss_pcpus: c.ready(vm),
        disproved_by: "with twice the weight, the share of refused or late timers stays the same".into(),
        next: next.to_owned(),
        ..Finding::default()
    })
}
