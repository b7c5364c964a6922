//! Applies a step on vSphere: vsteer calls `ReconfigVM_Task`, waits for the end of the task, and reads the
//! result back.
//!
//! The UUID of the instance identifies a VM, never its name, because other VMs may have the same name. If a
//! step needs a VM that is off, vsteer refuses it before the first step of the plan ([`Actuate::refusal`]),
//! like everything else it can see beforehand. ESXi would refuse it too, but in the middle of the plan.
//!
//! During a rollback a VM counts as gone only if the service says that the object does not exist. A VM that
//! vsteer cannot reach, or that this user may no longer see, still needs its rollback.
//!
//! Source: VMware, vSphere Web Services API reference (7.0): VirtualMachine.ReconfigVM_Task, Task, TaskInfo.
//!
//! Left out: `GAP(vsphere-drs)`: in a cluster with fully automatic DRS, vCenter refuses an affinity to pCPUs,
//! which vsteer only finds out when it tries.

use super::esxi::Esxi;
use super::settings::PROPERTIES;
use super::soap::{Refused, child_text, descendant, escaped, failed_task, text_of};
use super::{Client, soap::Reply};
use crate::actuate::Settings;
use crate::actuate::{Actuate, Former, Restored};
use std::time::{Duration, Instant};
use vsteer_core::nouns::{CpuWeight, LatencySensitivity, VmId};
use vsteer_core::setting;
use vsteer_core::setting::{Change, Scope, Step};
use vsteer_core::{CpuSet, Fault, FaultKind};

/// A task that changes a VM's settings takes seconds.
const TASK: Duration = Duration::from_secs(120);
/// The time between two checks of the task: the first one and the longest one.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_MOST: Duration = Duration::from_secs(1);
/// How often to try a change again if something else in the VM's configuration changed at the same time.
const TRIES: usize = 3;

const NOT_LIVE: &str = "vSphere stores every setting with the VM, so none can end when the VM shuts down";
const NOT_HERE: &str = "vSphere has no such setting";
const WANTS_OFF: &str = "the VM is powered on, and vSphere changes this only while it is off";

fn fault(kind: FaultKind, step: &Step) -> Fault {
    Fault::new(kind, format!("cannot change VM {:?} ({})", step.vm_name, step.change))
}

/// The state of a task.
enum Task {
    Done,
    AtWork,
    Failed(Box<Refused>),
}

impl Client {
    pub(super) fn settings(&mut self, object: &str) -> Result<Settings, Refused> {
        self.object("VirtualMachine", object, &PROPERTIES).map(|o| Settings::of(&o))
    }

    /// Changes a VM with a specification, and waits until the task ends.
    pub(super) fn reconfigure(&mut self, object: &str, spec: &str) -> Result<(), Refused> {
        let answer = self.call(&format!(
            "<ReconfigVM_Task xmlns=\"urn:vim25\"><_this type=\"VirtualMachine\">{}</_this><spec>{spec}</spec></ReconfigVM_Task>",
            escaped(object)
        ))?;
        let task = answer.read(|a| text_of(a, "returnval")).flatten().ok_or_else(|| {
            Fault::new(FaultKind::BadInput, format!("cannot use the answer of {}", self.place))
                .because("it starts no task")
        })?;
        let begun = Instant::now();
        let mut pause = LOOK;
        loop {
            let answer = self.properties_of("Task", &task, &["info.state", "info.error"])?;
            match self.task(&answer) {
                Task::Done => return Ok(()),
                Task::Failed(refused) => return Err(*refused),
                Task::AtWork if begun.elapsed() > TASK => {
                    let what = format!("{}: the VM's task {task} has not finished", self.place);
                    let late = format!("vsteer waited for {} s", TASK.as_secs());
                    return Err(Fault::new(FaultKind::Failed, what).because(late).into());
                }
                Task::AtWork => {}
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(LOOK_MOST);
        }
    }

    fn task(&self, answer: &Reply) -> Task {
        let place = &self.place;
        let read = answer.read(|a| {
            let mut state = Task::AtWork;
            for set in a.descendants().filter(|n| n.tag_name().name() == "propSet") {
                let value = descendant(set, "val");
                match (child_text(set, "name").as_deref(), value) {
                    (Some("info.state"), Some(v)) if v.text() == Some("success") => return Task::Done,
                    (Some("info.state"), Some(v)) if v.text() == Some("error") => {
                        let untold = Fault::new(FaultKind::Failed, format!("{place}: the VM's task failed"));
                        if !matches!(state, Task::Failed(_)) {
                            state = Task::Failed(Box::new(untold.into()));
                        }
                    }
                    (Some("info.error"), Some(v)) => state = Task::Failed(Box::new(failed_task(place, v))),
                    _ => {}
                }
            }
            state
        });
        read.unwrap_or(Task::AtWork)
    }
}

/// The step's change with `from` taken from these settings.
fn current(step: &Step, s: &Settings) -> Result<Change, Fault> {
    let untold = |what: &str| {
        fault(FaultKind::NoPrivilege, step)
            .because(format!("vSphere does not report its {what}"))
            .help("give the user at least the role Read-only on the VM")
    };
    let foreign = |why: String| fault(FaultKind::Unsupported, step).because(why).help("set it by hand first");
    Ok(match step.change.clone() {
        Change::Topology(setting::Topology { to, .. }) => {
            s.cores_per_socket.ok_or_else(|| untold("number of cores per socket"))?;
            Change::Topology(setting::Topology { from: s.topology(), to })
        }
        Change::NodeAffinity(setting::NodeAffinity { to, .. }) => {
            Change::NodeAffinity(setting::NodeAffinity { from: s.nodes().map_err(foreign)?, to })
        }
        Change::VmAffinity(setting::VmAffinity { to, .. }) => {
            Change::VmAffinity(setting::VmAffinity { from: s.pcpus().map_err(foreign)?, to })
        }
        Change::Weight(setting::Weight { to, .. }) => Change::Weight(setting::Weight {
            from: s.weight().ok_or_else(|| untold("number of shares"))?,
            to,
        }),
        Change::ReservationMhz(setting::ReservationMhz { to, .. }) => {
            Change::ReservationMhz(setting::ReservationMhz {
                from: s.reservation().ok_or_else(|| untold("reservation"))?,
                to,
            })
        }
        Change::LimitMhz(setting::LimitMhz { to, .. }) => {
            Change::LimitMhz(setting::LimitMhz { from: s.limit().ok_or_else(|| untold("limit"))?, to })
        }
        Change::Latency(setting::Latency { to, .. }) => {
            let level = s.latency.as_deref().ok_or_else(|| untold("latency sensitivity"))?;
            let from = LatencySensitivity::of(level);
            Change::Latency(setting::Latency {
                from: from.ok_or_else(|| {
                    foreign(format!("vsteer does not know the latency sensitivity {level:?}"))
                })?,
                to,
            })
        }
        _ => return Err(fault(FaultKind::Unsupported, step).because(NOT_HERE)),
    })
}

/// Refuses a step for reasons that are visible beforehand.
fn refusal(step: &Step, scope: Scope, s: &Settings, pcpus: Option<&CpuSet>) -> Result<(), Fault> {
    let refused = |why: &str, help: &str| Err(fault(FaultKind::Unsupported, step).because(why).help(help));
    if scope == Scope::Live {
        return refused(NOT_LIVE, "make the plan without --scope live");
    }
    // Also refuses a setting that this user may not read, because then the user may not change it either.
    current(step, s)?;
    let needs_off = matches!(step.change, Change::Topology(_) | Change::Latency(_));
    if needs_off && s.powered_on != Some(false) {
        return refused(WANTS_OFF, "shut the VM down, apply the plan, start the VM again");
    }
    match &step.change {
        Change::Topology(setting::Topology { to, .. }) => {
            let vcpus = s.vcpus.unwrap_or(0);
            let cores = to.cores.saturating_mul(to.threads);
            if cores == 0 || vcpus == 0 || !vcpus.is_multiple_of(cores) {
                let why = format!("{vcpus} vCPUs are not a multiple of {cores} cores per socket");
                return refused(&why, "make a new plan");
            }
        }
        Change::Latency(setting::Latency { to: LatencySensitivity::High, .. })
            if s.memory_reserved() != Some(true) =>
        {
            return refused(
                "with high latency sensitivity a VM starts only if all its memory is reserved, and it is not",
                "reserve all of the VM's memory first",
            );
        }
        Change::Weight(setting::Weight { to, .. }) if !matches!(to, CpuWeight::Esxi(n) if (1..=1_000_000).contains(n)) =>
        {
            return refused("a VM on ESXi has 1 to 1000000 shares", "make a new plan");
        }
        Change::VmAffinity(setting::VmAffinity { to: Some(to), .. }) => {
            if let Some(there) = pcpus.filter(|there| !to.difference(there).is_empty()) {
                return refused(&format!("the host has only pCPUs {there}"), "make a new plan");
            }
        }
        _ => {}
    }
    Ok(())
}

impl Esxi {
    /// The settings of the step's VM as they are now.
    fn settings_of(&mut self, vm: &VmId, name: &str) -> Result<Settings, Fault> {
        let gone = || {
            Fault::new(FaultKind::NothingThere, format!("VM {name:?} ({vm}) no longer exists"))
                .help("observe again, then make a new plan")
        };
        let object = self.object_of(vm).ok_or_else(gone)?;
        match self.client.settings(&object) {
            Err(refused) if refused.kind == "ManagedObjectNotFound" => Err(gone()),
            other => Ok(other?),
        }
    }
}

impl Actuate for Esxi {
    fn current(&mut self, step: &Step) -> Result<Change, Fault> {
        current(step, &self.settings_of(&step.vm, &step.vm_name)?)
    }

    fn touches(&mut self, step: &Step) -> Vec<String> {
        vec![format!("vSphere API: ReconfigVM_Task of VM {:?} at {}", step.vm_name, self.client.place())]
    }

    fn refusal(&mut self, step: &Step, scope: Scope) -> Result<(), Fault> {
        let s = self.settings_of(&step.vm, &step.vm_name)?;
        let pcpus = self.pcpus_of(&step.vm);
        refusal(step, scope, &s, pcpus.as_ref())
    }

    fn former(&mut self, step: &Step, scope: Scope) -> Result<Former, Fault> {
        let s = self.settings_of(&step.vm, &step.vm_name)?;
        let pcpus = self.pcpus_of(&step.vm);
        refusal(step, scope, &s, pcpus.as_ref())?;
        self.read = Some(s.clone());
        Ok(Former { live: Some(current(step, &s)?), vsphere: Some(Box::new(s)), ..Former::default() })
    }

    fn act(&mut self, step: &Step, _: Scope) -> Result<(), Fault> {
        // The step overwrites the settings that the journal contains, so it must send the version of those
        // settings.
        let read = self.read.take().filter(|s| self.object_of(&step.vm).as_ref() == Some(&s.id));
        let mut s = match read {
            Some(s) => s,
            None => self.settings_of(&step.vm, &step.vm_name)?,
        };
        let was = current(step, &s)?;
        for left in (0..TRIES).rev() {
            let spec =
                s.spec(&step.change).ok_or_else(|| fault(FaultKind::Unsupported, step).because(NOT_HERE))?;
            match self.client.reconfigure(&s.id, &spec) {
                Ok(()) => return Ok(()),
                Err(refused) if refused.kind == "ConcurrentAccess" && left > 0 => {
                    s = self.settings_of(&step.vm, &step.vm_name)?;
                    if current(step, &s)? != was {
                        return Err(fault(FaultKind::Changed, step)
                            .because("another user changed the VM at the same time"));
                    }
                }
                Err(refused) => {
                    let of = refused.fault;
                    let why = of.cause.map_or(of.what.clone(), |c| format!("{}: {c}", of.what));
                    let ours = fault(of.kind, step).because(why);
                    return Err(Fault { help: of.help, ..ours });
                }
            }
        }
        unreachable!("the last try returns")
    }

    fn restore(&mut self, step: &Step, former: &Former) -> Result<Restored, Fault> {
        let Some(was) = &former.vsphere else { return Ok(Restored::Back) };
        let object = self.object_of(&step.vm).unwrap_or_else(|| was.id.clone());
        let kept = |refused: Refused| {
            let kind = match refused.fault.kind {
                // The service is unreachable or refuses. The VM's settings still exist.
                FaultKind::NothingThere | FaultKind::Changed => FaultKind::Failed,
                other => other,
            };
            let why = refused
                .fault
                .cause
                .map_or(refused.fault.what.clone(), |c| format!("{}: {c}", refused.fault.what));
            let ours = fault(kind, step).because(why);
            Fault { help: refused.fault.help, ..ours }
        };
        let now = match self.client.settings(&object) {
            Err(refused) if refused.kind == "ManagedObjectNotFound" => {
                return Ok(Restored::Gone("the VM no longer exists".to_owned()));
            }
            other => other.map_err(kept)?,
        };
        let Some(spec) = was.undo(&step.change, &now) else { return Ok(Restored::Back) };
        if matches!(step.change, Change::Topology(_) | Change::Latency(_)) && now.powered_on != Some(false) {
            return Err(fault(FaultKind::Unsupported, step)
                .because(WANTS_OFF)
                .help("shut the VM down, then run vsteer rollback"));
        }
        self.client.reconfigure(&object, &spec).map_err(kept)?;
        let now = self.client.settings(&object).map_err(kept)?;
        match was.undo(&step.change, &now) {
            None => Ok(Restored::Back),
            Some(_) => Err(fault(FaultKind::NotApplied, step)
                .because("vSphere accepted the rollback, but the setting has not its former value")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::nouns::GuestTopology;

    fn on(settings: Settings) -> Settings {
        let usual = Settings {
            id: "vm-1".into(),
            powered_on: Some(true),
            vcpus: Some(8),
            cores_per_socket: Some(1),
            shares: Some(8000),
            reservation_mhz: Some(0),
            limit_mhz: Some(-1),
            latency: Some("normal".into()),
            memory_mib: Some(1024),
            memory_reserved_mib: Some(0),
            ..Settings::default()
        };
        Settings {
            powered_on: settings.powered_on.or(usual.powered_on),
            memory_locked: settings.memory_locked,
            ..usual
        }
    }

    fn told(change: Change, scope: Scope, s: &Settings) -> Result<(), String> {
        let step = Step { vm: VmId("u".into()), vm_name: "web".into(), change, reason: String::new() };
        refusal(&step, scope, s, Some(&CpuSet::first(4))).map_err(|f| f.to_string())
    }

    #[test]
    fn what_stands_in_the_way_is_said_before() {
        use LatencySensitivity as L;
        let cores = |n: u32| {
            Change::Topology(setting::Topology {
                from: None,
                to: GuestTopology { sockets: 8 / n, cores: n, threads: 1 },
            })
        };
        let high = || Change::Latency(setting::Latency { from: L::Normal, to: L::High });
        let pins = |text: &str| {
            Change::VmAffinity(setting::VmAffinity { from: None, to: Some(text.parse().unwrap()) })
        };
        let is_on = on(Settings::default());
        let off = on(Settings { powered_on: Some(false), ..Settings::default() });
        let locked = Settings { memory_locked: Some(true), ..off.clone() };
        for (change, s, why) in [
            (cores(4), &is_on, "only while it is off"),
            (high(), &is_on, "only while it is off"),
            (high(), &off, "all its memory is reserved"),
            (cores(3), &off, "are not a multiple of"),
            (pins("3-4"), &is_on, "pCPUs 0-3"),
            (
                Change::Weight(setting::Weight { from: CpuWeight::Esxi(8000), to: CpuWeight::Esxi(0) }),
                &is_on,
                "1 to 1000000",
            ),
            (
                Change::RtBudget(setting::RtBudget { cgroup: "/".into(), from_us: 0, to_us: 1 }),
                &is_on,
                "no such setting",
            ),
        ] {
            let said = told(change.clone(), Scope::Both, s).unwrap_err();
            assert!(said.contains(why), "{change}: {said}");
        }
        assert_eq!(told(cores(4), Scope::Both, &off), Ok(()));
        assert_eq!(told(high(), Scope::Both, &locked), Ok(()));
        assert_eq!(told(pins("1-2"), Scope::Persistent, &is_on), Ok(()));
        assert!(
            told(pins("1-2"), Scope::Live, &is_on).unwrap_err().contains("stores every setting with the VM")
        );
        // A VM with an unknown power state does not count as off.
        let untold = Settings { powered_on: None, ..off.clone() };
        assert!(told(cores(4), Scope::Both, &untold).is_err());
        let custom = Settings { latency: Some("custom".into()), ..off };
        assert!(told(high(), Scope::Both, &custom).unwrap_err().contains("custom"));
    }
}
