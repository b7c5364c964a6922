//! Which findings begin and end for a trigger?
//!
//! A finding begins once it was found without a gap for as long as the trigger demands. It ends when it was absent for
//! [`ENDS_AFTER_NS`], so that a finding near its threshold does not begin again and again. Its identity is its rule and its VM.
//! A trigger tells the end of a finding only if it took the begin. Times are those of samples: while no sample is taken,
//! nothing begins or ends.

use super::message::{Event, Found, Message};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use vsteer_core::diagnose::{Finding, NOT_MEASURED};
use vsteer_core::nouns::VmId;

/// How long a finding must be absent to have ended, ns.
pub const ENDS_AFTER_NS: u64 = 60_000_000_000;
/// And after this number of looks: they are some seconds apart, or an interval if that is longer.
const ENDS_AFTER_LOOKS: u32 = 2;

/// What a trigger wants to hear of.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// These rules; empty: all.
    pub rules: Vec<String>,
    /// These VMs; empty: all.
    pub vms: Vec<String>,
    /// At least this loss, pCPUs.
    pub loss_pcpus: f64,
    /// For at least this long, ns.
    pub lasts_ns: u64,
}

/// What was found at a moment.
pub struct Look<'a> {
    /// The host's name.
    pub host: &'a str,
    /// All findings.
    pub findings: &'a Arc<Vec<Finding>>,
    /// What VMs are called.
    pub names: &'a Arc<BTreeMap<VmId, String>>,
    /// Time of the sample, ns since the machine's start.
    pub mono_ns: u64,
    /// The same, ns since 1970.
    pub unix_ns: u64,
}

impl Filter {
    fn passes(&self, found: &Found) -> bool {
        let finding = found.finding();
        let is_problem = finding.rule != NOT_MEASURED && finding.rule != "nothing_wrong";
        let is_named = |name: &str| self.vms.iter().any(|vm| vm == name);
        let by_rule = |f: &Finding| self.rules.is_empty() || self.rules.contains(&f.rule);
        let by_vm = |f: &Finding| {
            let called =
                |vm: &VmId| is_named(&vm.0) || found.names.get(vm).is_some_and(|name| is_named(name));
            self.vms.is_empty() || f.vm.iter().chain(&f.vms).any(called)
        };
        // A rule and a VM may be those of a symptom. The loss is that of the cause, which includes it.
        is_problem && finding.loss_pcpus >= self.loss_pcpus && finding.all().any(|f| by_rule(f) && by_vm(f))
    }
}

/// A finding that was there.
struct Open {
    found: Found,
    first: (u64, u64),
    last: (u64, u64),
    begun: bool,
    told: bool,
    /// Looks in a row that did not find it.
    missed: u32,
}

/// The findings of a trigger.
#[derive(Default)]
pub struct Follow {
    filter: Filter,
    open: BTreeMap<(String, Option<VmId>), Open>,
}

impl Follow {
    /// Follows what passes the filter.
    pub fn new(filter: Filter) -> Follow {
        Follow { filter, open: BTreeMap::new() }
    }

    /// Takes what was found. `tell` takes a message, and says whether there was room for it.
    pub fn see(&mut self, look: &Look<'_>, mut tell: impl FnMut(Message) -> bool) {
        let now = (look.mono_ns, look.unix_ns);
        for at in 0..look.findings.len() {
            let found = Found { all: Arc::clone(look.findings), at, names: Arc::clone(look.names) };
            if !self.filter.passes(&found) {
                continue;
            }
            let key = (found.finding().rule.clone(), found.finding().vm.clone());
            match self.open.get_mut(&key) {
                // A rule may find several things of one VM. The first costs most.
                Some(open) if open.last == now => {}
                Some(open) => (open.found, open.last, open.missed) = (found, now, 0),
                None => {
                    let new = Open { found, first: now, last: now, begun: false, told: false, missed: 0 };
                    self.open.insert(key, new);
                }
            }
        }
        let message = |event, open: &Open| Message {
            event,
            host: look.host.to_owned(),
            found: open.found.clone(),
            began_unix_ns: open.first.1,
            last_unix_ns: open.last.1,
            unix_ns: look.unix_ns,
            noticed: Instant::now(),
        };
        let lasts_ns = self.filter.lasts_ns;
        self.open.retain(|_, open| {
            let is_there = open.last == now;
            if is_there && !open.begun && now.0.saturating_sub(open.first.0) >= lasts_ns {
                open.begun = true;
                open.told = tell(message(Event::Began, open));
            }
            open.missed += u32::from(!is_there);
            // With an interval of a minute, one look that misses it says little.
            let is_quiet = open.missed >= ENDS_AFTER_LOOKS || !open.told;
            let is_long = now.0.saturating_sub(open.last.0) >= ENDS_AFTER_NS;
            let is_over = !is_there && (!open.begun || is_long && is_quiet);
            if is_over && open.told {
                tell(message(Event::Ended, open));
            }
            !is_over
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rule: &str, vm: Option<&str>, loss: f64) -> Finding {
        Finding {
            rule: rule.into(),
            vm: vm.map(|vm| VmId(vm.into())),
            loss_pcpus: loss,
            ..Finding::default()
        }
    }

    /// What a trigger with this filter tells at second `s`; `room`: does the queue take messages?
    fn told(follow: &mut Follow, s: u64, found: &[Finding], room: bool) -> Vec<(Event, String, u64)> {
        let names = Arc::new(BTreeMap::from([(VmId("id-1".into()), "web".to_owned())]));
        let findings = Arc::new(found.to_vec());
        let (mono_ns, unix_ns) = (s * 1_000_000_000, s * 1_000_000_000);
        let mut all = Vec::new();
        follow.see(&Look { host: "h", findings: &findings, names: &names, mono_ns, unix_ns }, |m| {
            all.push((m.event, m.found.finding().rule.clone(), m.began_unix_ns / 1_000_000_000));
            room
        });
        all
    }

    #[test]
    fn a_finding_begins_after_it_lasted_and_ends_after_it_was_absent() {
        let mut follow = Follow::new(Filter { lasts_ns: 20_000_000_000, ..Filter::default() });
        let one = [of("limited", Some("id-1"), 0.5)];
        for (s, found) in [(0, &one[..]), (10, &one), (20, &[]), (30, &one), (40, &one)] {
            assert_eq!(told(&mut follow, s, found, true), [], "at {s}");
        }
        let began = || vec![(Event::Began, "limited".to_owned(), 30)];
        assert_eq!(told(&mut follow, 50, &one, true), began(), "a gap begins again");
        for (s, found) in [(60, &one[..]), (70, &[]), (80, &one), (90, &[]), (130, &[])] {
            assert_eq!(told(&mut follow, s, found, true), [], "at {s}");
        }
        assert_eq!(told(&mut follow, 140, &[], true), [(Event::Ended, "limited".to_owned(), 30)]);
        assert_eq!(told(&mut follow, 150, &[], true), []);
    }

    #[test]
    fn an_end_is_told_only_if_the_begin_was_taken() {
        let mut follow = Follow::new(Filter::default());
        let one = [of("limited", None, 0.5)];
        assert_eq!(told(&mut follow, 0, &one, false).len(), 1);
        assert_eq!(told(&mut follow, 100, &[], true), []);
        assert_eq!(told(&mut follow, 110, &one, true).len(), 1, "it may begin again");
    }

    #[test]
    fn filters_look_at_the_tree_of_causes_and_symptoms() {
        let mut cause = of("overcommitted", None, 2.0);
        cause.symptoms = vec![of("limited", Some("id-2"), 0.1), of("over_threshold", Some("id-1"), 0.2)];
        let all = [cause, of("limited", Some("id-3"), 0.3), of(NOT_MEASURED, None, 0.0)];
        let passes = |rules: &[&str], vms: &[&str], loss_pcpus: f64| {
            let words = |all: &[&str]| all.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
            let filter = Filter { rules: words(rules), vms: words(vms), loss_pcpus, lasts_ns: 0 };
            let all = told(&mut Follow::new(filter), 0, &all, true);
            all.into_iter().map(|(_, rule, _)| rule).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(passes(&[], &[], 0.0), "limited overcommitted");
        assert_eq!(passes(&[], &[], 0.5), "overcommitted");
        assert_eq!(passes(&["over_threshold"], &[], 0.0), "overcommitted");
        assert_eq!(passes(&[], &["web"], 0.0), "overcommitted");
        assert_eq!(passes(&[], &["id-3"], 0.0), "limited");
        assert_eq!(passes(&["limited"], &["web"], 0.0), "", "the rule and the VM of one finding");
    }
}
