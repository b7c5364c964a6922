//! Which plans were applied and undone since the minute before? Events of the timeline, from the undo journals of this host.
//!
//! Journals that were there already are told only if they changed after the last stored minute: then the service did not run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use vsteer_core::setting::Step;
use vsteer_record::applied::{self, Applied, Progress};
use vsteer_record::history::{Event, EventKind};

/// Changes of one VM that an event names.
const NAMED: usize = 4;

/// The journals of this host.
pub struct Plans {
    folder: PathBuf,
    /// What happened before this is in the history already, ms since 1970.
    since_ms: u64,
    /// When each journal changed last.
    read: BTreeMap<PathBuf, SystemTime>,
    /// What was told, or is in the history: plan, when it was begun, and whether it was undone. Not by file: a journal gets
    /// another name when its plan is applied again.
    told: BTreeSet<(String, u64, bool)>,
}

fn ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

impl Plans {
    /// Follows the journals in this folder. `since_ms`: what happened before is in the history already.
    pub fn new(folder: PathBuf, since_ms: u64) -> Plans {
        Plans { folder, since_ms, read: BTreeMap::new(), told: BTreeSet::new() }
    }

    /// The events since the last call, of plans for this host.
    pub fn since_before(&mut self, hostname: &str) -> Vec<Event> {
        // Without a folder no plan was ever applied. Where it may not be read, plans show as changed settings.
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let journals: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(|path| applied::is_journal(path)).collect();
        self.read.retain(|path, _| journals.contains(path));
        let mut events: Vec<Event> = journals.iter().flat_map(|path| self.look(path, hostname)).collect();
        events.sort_by_key(|event| event.unix_ms);
        events
    }

    fn look(&mut self, path: &Path, hostname: &str) -> Vec<Event> {
        let Ok(changed) = fs::metadata(path).and_then(|m| m.modified()) else { return Vec::new() };
        let is_same = self.read.insert(path.to_owned(), changed) == Some(changed);
        // A plan holds all settings of its host, so a journal may have megabytes: those without news are not read.
        if is_same || ms(changed) < self.since_ms {
            return Vec::new();
        }
        // `vsteer rollback` names those that cannot be read.
        let Ok(Some(journal)) = applied::read(path) else { return Vec::new() };
        let (begun, changed) = (journal.begun_unix_ms, ms(changed));
        let is_of_this_host = journal.plan.parent.hostname == hostname;
        let mut events = Vec::new();
        let mut tell = |unix_ms, is_undone, what| {
            let is_new = self.told.insert((journal.plan.id.clone(), begun, is_undone));
            if is_new && is_of_this_host && unix_ms >= self.since_ms {
                events.extend(told(&journal, unix_ms, is_undone, what));
            }
        };
        match journal.progress {
            Progress::Begun => {}
            Progress::Held => tell(begun, false, "is kept by a command for"),
            Progress::Applied => tell(begun, false, "was applied to"),
            Progress::Undone => {
                tell(begun, false, "was applied to");
                tell(changed, true, "was undone for");
            }
        }
        events
    }
}

/// An event for each VM of the plan.
fn told(journal: &Applied, unix_ms: u64, is_undone: bool, what: &str) -> Vec<Event> {
    let plan = &journal.plan;
    let kind = if is_undone { EventKind::PlanUndone } else { EventKind::PlanApplied };
    let mut of_vms: BTreeMap<&str, Vec<&Step>> = BTreeMap::new();
    plan.steps.iter().for_each(|step| of_vms.entry(&*step.vm.0).or_default().push(step));
    let event = |(vm, steps): (&str, Vec<&Step>)| {
        let name = plan.called(steps[0]);
        let text = format!("Plan {} {what} VM {name:?}: {}", plan.id, changes(&steps));
        let (vm, name) = (Some(vm.to_owned()), Some(name));
        Event { unix_ms, kind, vm, name, text, ..Event::default() }
    };
    of_vms.into_iter().map(event).collect()
}

fn changes(steps: &[&Step]) -> String {
    let mut named: Vec<String> = steps.iter().take(NAMED).map(|step| step.change.to_string()).collect();
    if steps.len() > NAMED {
        named.push(format!("{} more", steps.len() - NAMED));
    }
    named.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use vsteer_core::forecast::Forecast;
    use vsteer_core::nouns::{CpuWeight, HostConfig, VmConfig, VmId};
    use vsteer_core::plan::Plan;
    use vsteer_core::setting::{Change, Scope, Weight};
    use vsteer_core::topology::machine;

    fn plan() -> Plan {
        let vm = VmConfig::new(VmId("a".into()), "web", 1);
        let host = HostConfig { vms: vec![vm], ..HostConfig::new("h", "6", machine(1, 1, 2, 1).unwrap()) };
        let change = Change::Weight(Weight { from: CpuWeight::Weight(100), to: CpuWeight::Weight(50) });
        let step = Step { vm: VmId("a".into()), vm_name: "web".into(), change, reason: String::new() };
        let forecast = Forecast { method: String::new(), vms: Vec::new() };
        Plan::new(host, "t".into(), vec![step], Scope::Live, forecast)
    }

    /// Writes a journal that came as far as these lines.
    fn write(path: &Path, begun_ms: u64, lines: &[&str]) {
        let begin = json!({ "begin": { "plan": plan(), "connect": null, "unix_ns": begun_ms * 1_000_000, "sequence": 1 } });
        let _ = fs::remove_file(path);
        fs::write(path, lines.iter().fold(format!("{begin}\n"), |text, line| text + line + "\n")).unwrap();
    }

    #[test]
    fn a_plan_is_told_when_it_is_applied_and_when_it_is_undone() {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("p.journal");
        let mut plans = Plans::new(folder.path().to_owned(), 5_000);
        let mut next = |host: &str| -> Vec<(EventKind, u64)> {
            plans.since_before(host).into_iter().map(|e| (e.kind, e.unix_ms)).collect()
        };
        write(&journal, 9_000, &["{\"intent\":0}"]);
        assert_eq!(next("h"), [], "not applied yet");
        write(&journal, 9_000, &["{\"intent\":0}", "\"applied\""]);
        assert_eq!(next("h"), [(EventKind::PlanApplied, 9_000)]);
        write(&journal, 9_000, &["\"applied\"", "\"confirmed\""]);
        assert_eq!(next("h"), []);
        write(&journal, 9_000, &["\"applied\"", "\"rolled_back\""]);
        assert_eq!(next("h").into_iter().map(|e| e.0).collect::<Vec<_>>(), [EventKind::PlanUndone]);
        // Applied again: the former journal is set aside.
        fs::rename(&journal, folder.path().join("p.1.old")).unwrap();
        write(&journal, 10_000, &["\"applied\""]);
        assert_eq!(next("h"), [(EventKind::PlanApplied, 10_000)]);
        fs::write(folder.path().join("garbled.journal"), "{}\n").unwrap();
        fs::write(folder.path().join("sequence"), "7").unwrap();
        assert_eq!(next("h"), []);
    }

    #[test]
    fn what_is_older_than_the_history_and_plans_of_other_hosts_are_not_told() {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("p.journal"), 9_000, &["\"applied\""]);
        let after = |since_ms, host| Plans::new(folder.path().to_owned(), since_ms).since_before(host);
        assert_eq!(after(9_001, "h"), []);
        // Nothing has changed in it since the year 2200.
        assert_eq!(after(7_258_118_400_000, "h"), []);
        assert_eq!(after(9_000, "other"), []);
        let event = &after(9_000, "h")[0];
        let text = format!("Plan {} was applied to VM \"web\": ", plan().id);
        assert!(
            event.text.starts_with(&text) && event.text.ends_with("CPU weight: 100 -> 50"),
            "{}",
            event.text
        );
        assert_eq!((event.vm.as_deref(), event.name.as_deref()), (Some("a"), Some("web")));
    }
}
