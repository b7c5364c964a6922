//! Is a VM whose timers bring its vCPUs (`vsteer realtime`) served too late, or refused?
//!
//! It is put first on credit. One that wants more than its weight gives is in debt sooner or later, and then its timers wait like
//! anybody's work; so is one whose timers end too soon after each other, or whose quota is used up.

use super::{Context, Finding, Rule, count, percent};
use crate::model::VmModel;
use crate::nouns::TimerCounts;

/// See the file's head.
pub const RULE: Rule = Rule {
    name: "timers_refused",
    doc: "a VM whose timers bring its vCPUs is refused or served late, for it asks for more than it may borrow",
    check,
};

/// Of its timers: beyond this share somebody hears or sees it.
const SHARE: f64 = 0.02;
/// Fewer timers a second say nothing.
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
        let next = "more weight; or a program in the guest that says which timers matter (vsteer-guest vit), so that the rest is not on credit; or \
                    more credit (vsteer realtime --warp, --limit)";
        (format!("is not put first for {:.0} % of its timers", 100.0 * refused), next)
    } else {
        let next = "who runs there meanwhile: other VMs' timers, or real-time threads of the host, go before it (vsteer realtime report; diagnose \
                    names whom it waits for)";
        (format!("is served late for {:.0} % of its timers", 100.0 * late), next)
    };
    Some(Finding {
        rule: RULE.name.to_owned(),
        vm: Some(vm.id.clone()),
        title: format!("VM {:?} {what}", vm.name),
        explanation: "It is put first on credit when a timer of its ends. What it takes beyond its weight it owes; in debt it waits its turn.".into(),
        evidence: vec![
            count("its timers", asked, "/s", None),
            percent("refused", refused, Some(SHARE)),
            percent(&format!("served {:.1} ms later or more", TimerCounts::LATE_NS as f64 / 1e6), late, Some(SHARE)),
        ],
        loss_pcpus: c.ready(vm),
        disproved_by: "it is refused as often with twice the weight".into(),
        next: next.to_owned(),
    })
}
