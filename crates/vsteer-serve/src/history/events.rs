//! What changed since the minute before? Events of the timeline.
//!
//! A finding begins when a rule finds it in a minute, and ends after [`ENDS_AFTER`] minutes without it, so that a finding near
//! its threshold does not begin every other minute.
//!
//! Plans have a file of their own. GAP(history-moves): that a VM went to another host is not known; QEMU's own words tell that it
//! came from elsewhere. Left out: VMs that came and went within one minute.

use super::rows::is_problem;
use std::collections::BTreeMap;
use std::fs;
use vsteer_core::diagnose::Finding;
use vsteer_core::nouns::{HostConfig, VmConfig, VmId};
use vsteer_record::history::{Event, EventKind};

/// Minutes without a finding after which it has ended.
const ENDS_AFTER: u32 = 3;
/// Events of one minute. Anyone can start VMs without end.
const MOST: usize = 1000;

/// A finding that was there in the last minutes.
struct Open {
    event: Event,
    absent: u32,
}

/// The state of the host in the minute before.
#[derive(Default)]
pub struct Events {
    config: Option<HostConfig>,
    open: BTreeMap<(String, Option<VmId>), Open>,
}

fn of_vm(unix_ms: u64, kind: EventKind, vm: &VmConfig, name: &str, text: String) -> Event {
    Event {
        unix_ms,
        kind,
        vm: Some(vm.id.to_string()),
        name: Some(name.to_owned()),
        text,
        ..Event::default()
    }
}

impl Events {
    /// The events since the last call.
    pub fn since_before(&mut self, unix_ms: u64, config: &HostConfig, findings: &[Finding]) -> Vec<Event> {
        let mut events = match &self.config {
            None => {
                let text = format!("The service began to observe host {}", config.hostname);
                vec![Event { unix_ms, kind: EventKind::Observing, text, ..Event::default() }]
            }
            Some(before) if before == config => Vec::new(),
            Some(before) => changes(unix_ms, before, config),
        };
        if self.config.as_ref() != Some(config) {
            self.config = Some(config.clone());
        }
        self.findings(unix_ms, config, findings, &mut events);
        if events.len() > MOST {
            let more = events.len() - MOST;
            events.truncate(MOST);
            let text = format!("{more} more events of this minute are left out");
            events.push(Event { unix_ms, kind: EventKind::Changed, text, ..Event::default() });
        }
        events
    }

    fn findings(&mut self, unix_ms: u64, config: &HostConfig, findings: &[Finding], events: &mut Vec<Event>) {
        self.open.values_mut().for_each(|open| open.absent += 1);
        // Causes alone: what a cause explains would be a line for each VM.
        for finding in findings.iter().filter(|f| is_problem(f)) {
            let key = (finding.rule.clone(), finding.vm.clone());
            if let Some(open) = self.open.get_mut(&key) {
                open.absent = 0;
                continue;
            }
            let event = Event {
                unix_ms,
                kind: EventKind::FindingBegan,
                vm: finding.vm.as_ref().map(|vm| vm.to_string()),
                name: finding.vm.as_ref().map(|vm| config.name_of(vm)),
                rule: Some(finding.rule.clone()),
                text: finding.title.clone(),
                loss_pcpus: Some(finding.loss_pcpus),
                ..Event::default()
            };
            events.push(event.clone());
            self.open.insert(key, Open { event, absent: 0 });
        }
        self.open.retain(|_, open| {
            let is_over = open.absent >= ENDS_AFTER;
            if is_over {
                events.push(Event { unix_ms, kind: EventKind::FindingEnded, ..open.event.clone() });
            }
            !is_over
        });
    }
}

/// Did QEMU begin with the state of a VM that ran before, on another host or until it was saved?
fn is_incoming(vm: &VmConfig) -> bool {
    // Without an accelerator it is no process of this host.
    let words = vm.accel.and_then(|_| fs::read(format!("/proc/{}/cmdline", vm.pid)).ok());
    words.is_some_and(|words| words.split(|b| *b == 0).any(|word| word == b"-incoming"))
}

/// VMs that came and went, and settings that changed.
fn changes(unix_ms: u64, before: &HostConfig, now: &HostConfig) -> Vec<Event> {
    let (old_names, names) = (before.called(), now.called());
    let mut gone: Vec<&VmConfig> = before.vms.iter().filter(|vm| now.vm(&vm.id).is_none()).collect();
    let mut events = Vec::new();
    for vm in &now.vms {
        let name = names[&vm.id].as_str();
        match before.vm(&vm.id) {
            Some(old) if old.pid != vm.pid => {
                let text = format!("VM {name:?} was restarted");
                events.push(of_vm(unix_ms, EventKind::Restarted, vm, name, text));
            }
            Some(old) => events.extend(old.differences(vm).into_iter().map(|d| {
                let text = format!("VM {name:?}, {}: {} -> {}", d.setting, d.old, d.new);
                Event {
                    setting: Some(d.setting),
                    old: Some(d.old),
                    new: Some(d.new),
                    ..of_vm(unix_ms, EventKind::Changed, vm, name, text)
                }
            })),
            // A process that nobody manages has another id after a restart.
            None => match gone.iter().position(|old| old.name == vm.name) {
                Some(i) => {
                    gone.remove(i);
                    let text = format!("VM {name:?} was restarted");
                    events.push(of_vm(unix_ms, EventKind::Restarted, vm, name, text));
                }
                None => {
                    let from = if is_incoming(vm) { ", from another host or a saved state" } else { "" };
                    events.push(of_vm(unix_ms, EventKind::Came, vm, name, format!("VM {name:?} came{from}")));
                }
            },
        }
    }
    for vm in gone {
        let name = old_names[&vm.id].as_str();
        events.push(of_vm(unix_ms, EventKind::Went, vm, name, format!("VM {name:?} went")));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::nouns::CpuWeight;
    use vsteer_core::topology::machine;

    fn host(vms: &[(&str, &str, u32, u64)]) -> HostConfig {
        let vm = |(id, name, pid, weight): &(&str, &str, u32, u64)| VmConfig {
            weight: Some(CpuWeight::Weight(*weight)),
            ..VmConfig::new(VmId((*id).into()), *name, *pid)
        };
        HostConfig {
            vms: vms.iter().map(vm).collect(),
            ..HostConfig::new("h", "6", machine(1, 1, 2, 1).unwrap())
        }
    }

    #[test]
    fn vms_come_go_restart_and_change() {
        let mut events = Events::default();
        let mut next = |vms: &[(&str, &str, u32, u64)]| -> Vec<(EventKind, String)> {
            let all = events.since_before(1, &host(vms), &[]);
            all.into_iter().map(|e| (e.kind, e.text)).collect()
        };
        assert_eq!(next(&[("a", "web", 1, 100)])[0].0, EventKind::Observing);
        assert_eq!(next(&[("a", "web", 1, 100)]), []);
        let changed = next(&[("a", "web", 1, 800)]);
        assert_eq!(changed, [(EventKind::Changed, "VM \"web\", weight: weight 100 -> weight 800".into())]);
        assert_eq!(
            next(&[("a", "web", 2, 800)]),
            [(EventKind::Restarted, "VM \"web\" was restarted".into())]
        );
        assert_eq!(next(&[("b", "web", 3, 100)])[0].0, EventKind::Restarted, "under another id");
        let both = next(&[("c", "db", 4, 100)]);
        assert_eq!(
            both,
            [(EventKind::Came, "VM \"db\" came".into()), (EventKind::Went, "VM \"web\" went".into())]
        );
    }

    #[test]
    fn a_finding_that_comes_and_goes_ends_late() {
        let (mut events, config) = (Events::default(), host(&[]));
        let found = [Finding { rule: "overcommitted".into(), title: "t".into(), ..Finding::default() }];
        let mut next = |is_there: bool| -> Vec<EventKind> {
            let all = events.since_before(1, &config, if is_there { &found } else { &[] });
            all.into_iter().map(|e| e.kind).filter(|k| *k != EventKind::Observing).collect()
        };
        assert_eq!(next(true), [EventKind::FindingBegan]);
        assert_eq!((next(false), next(true), next(false), next(false)), (vec![], vec![], vec![], vec![]));
        assert_eq!(next(false), [EventKind::FindingEnded]);
        assert_eq!(next(true), [EventKind::FindingBegan]);
    }
}
