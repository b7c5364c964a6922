//! A host of a few settings in one file, that can be changed, fail, and be compared.
//!
//! It refuses nothing that a real host would refuse; what goes wrong is asked for by a test ([`Mishap`]). Moving an
//! emulator moves two threads with different places, so that a step can be half made, and so that its own words
//! (`from`) do not say all that it overwrites.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vsteer_act::{Journal, Receipt, Setting};
use vsteer_core::forecast::Forecast;
use vsteer_core::nouns::{CpuWeight, HostConfig, Role, Tid, VmConfig, VmId, VmThread};
use vsteer_core::plan::Plan;
use vsteer_core::setting;
use vsteer_core::setting::{Change, Scope, Step};
use vsteer_core::topology::{Parts, Topology};
use vsteer_core::{CpuSet, Fault, FaultKind};
use vsteer_host::actuate::{Actuate, Former, Part, Restored, Run};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vm {
    pub weight: u64,
    pub vcpu: CpuSet,
    pub emulator: [CpuSet; 2],
    /// What its definition says of its weight, which is there also when it is off.
    pub defined: u64,
    /// Which run of it this is; none while it is off.
    pub run: Option<u32>,
}

pub type Settings = BTreeMap<String, Vm>;

/// Where in the life of a plan something goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// The n-th change (from 0) is refused before anything is done.
    Refused(usize),
    /// The n-th change fails in the middle.
    Half(usize),
    /// The n-th change is made, and reported as failed.
    MadeButFailed(usize),
    /// The n-th change is reported as made, and was not.
    Ignored(usize),
    /// The VM of the n-th change vanishes before it.
    Vanishes(usize),
    /// Somebody else changes the setting of step n before it is looked at.
    Meddled(usize),
    /// The n-th restoring is refused, once.
    Unrestorable(usize),
    /// If set, no restore succeeds, and each fails with this fault.
    Unreachable(FaultKind),
}

/// The host. Its settings live in a file, so that a killed process leaves them behind.
pub struct World {
    file: PathBuf,
    pub mishap: Option<Mishap>,
    acts: usize,
    looks: usize,
    restores: usize,
    /// Steps that were restored, in order.
    pub restored: Vec<String>,
}

/// A folder that lasts as long as the test; in memory where that can be had, since every journal entry is synced.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

pub fn begin() -> Settings {
    let vm = |weight, vcpu, a, b| Vm {
        weight,
        vcpu: cpus(vcpu),
        emulator: [cpus(a), cpus(b)],
        defined: weight,
        run: Some(1),
    };
    BTreeMap::from([
        ("a".to_owned(), vm(100, "0-3", "0-3", "2")),
        ("b".to_owned(), vm(200, "1", "0-3", "0-1")),
    ])
}

impl World {
    pub fn at(folder: &Path) -> World {
        let file = folder.join("world.json");
        let w = World { file, mishap: None, acts: 0, looks: 0, restores: 0, restored: Vec::new() };
        if !w.file.exists() {
            w.save(&begin());
        }
        w
    }

    pub fn folder(&self) -> &Path {
        self.file.parent().unwrap()
    }

    pub fn settings(&self) -> Settings {
        serde_json::from_slice(&std::fs::read(&self.file).unwrap()).unwrap()
    }

    pub fn save(&self, s: &Settings) {
        let new = self.file.with_extension("new");
        std::fs::write(&new, serde_json::to_vec(s).unwrap()).unwrap();
        std::fs::rename(new, &self.file).unwrap();
    }

    fn vm(&self, step: &Step) -> Result<Vm, Fault> {
        let gone = || Fault::new(FaultKind::NothingThere, format!("VM {:?} is gone", step.vm.0));
        self.settings().remove(&*step.vm.0).ok_or_else(gone)
    }

    fn put(&self, step: &Step, vm: Vm) {
        let mut all = self.settings();
        all.insert(step.vm.to_string(), vm);
        self.save(&all);
    }
}

impl Actuate for World {
    fn current(&mut self, step: &Step) -> Result<Change, Fault> {
        let mut vm = self.vm(step)?;
        // Every step looks twice: before and after.
        if self.mishap == Some(Mishap::Meddled(self.looks / 2)) && self.looks.is_multiple_of(2) {
            vm.weight += 1;
            vm.vcpu = cpus("3");
            vm.emulator[0] = cpus("3");
        }
        self.looks += 1;
        Ok(match step.change.clone() {
            Change::Weight(setting::Weight { to, .. }) => {
                Change::Weight(setting::Weight { from: CpuWeight::Weight(vm.weight), to })
            }
            Change::Affinity(setting::Affinity { role: Role::Emulator, tid, to, .. }) => {
                Change::Affinity(setting::Affinity {
                    role: Role::Emulator,
                    tid,
                    from: vm.emulator[0].clone(),
                    to,
                })
            }
            Change::Affinity(setting::Affinity { role, tid, to, .. }) => {
                Change::Affinity(setting::Affinity { role, tid, from: vm.vcpu, to })
            }
            other => panic!("{other} is not in this world"),
        })
    }

    fn former(&mut self, step: &Step, scope: Scope) -> Result<Former, Fault> {
        let vm = self.vm(step)?;
        let defined = matches!(step.change, Change::Weight(_)) && scope.persistent();
        let elements = vec![vm.defined.to_string()];
        let part = Part { parent: "cputune".into(), tag: "shares".into(), key: None, elements };
        let run = vm.run.map(|pid| Run { pid, start_ticks: 0 });
        let emulator =
            matches!(step.change, Change::Affinity(setting::Affinity { role: Role::Emulator, .. }));
        let places = vm.emulator.into_iter().zip([Tid(1), Tid(2)]).map(|(c, t)| (t, c));
        self.looks -= 1;
        Ok(Former {
            live: Some(self.current(step)?),
            affinities: if emulator { places.collect() } else { Vec::new() },
            definition: if defined { vec![part] } else { Vec::new() },
            run,
            ..Former::default()
        })
    }

    fn act(&mut self, step: &Step, scope: Scope) -> Result<(), Fault> {
        let n = self.acts;
        self.acts += 1;
        let failed = |what: &str| Err(Fault::new(FaultKind::NotApplied, what));
        match self.mishap {
            Some(Mishap::Refused(i)) if i == n => return failed("refused"),
            Some(Mishap::Ignored(i)) if i == n => return Ok(()),
            Some(Mishap::Vanishes(i)) if i == n => {
                let mut all = self.settings();
                all.remove(&*step.vm.0);
                self.save(&all);
            }
            _ => {}
        }
        let half = self.mishap == Some(Mishap::Half(n));
        let mut vm = self.vm(step)?;
        match &step.change {
            Change::Weight(setting::Weight { to: CpuWeight::Weight(w), .. }) => {
                vm.weight = *w;
                if scope.persistent() {
                    vm.defined = *w;
                }
            }
            Change::Affinity(setting::Affinity { role: Role::Emulator, to, .. }) => {
                vm.emulator[0] = to.clone();
                if !half {
                    vm.emulator[1] = to.clone();
                }
            }
            Change::Affinity(setting::Affinity { to, .. }) => vm.vcpu = to.clone(),
            other => panic!("{other} is not in this world"),
        }
        self.put(step, vm);
        match self.mishap {
            Some(Mishap::Half(i) | Mishap::MadeButFailed(i)) if i == n => failed("half made"),
            _ => Ok(()),
        }
    }

    fn restore(&mut self, step: &Step, former: &Former) -> Result<Restored, Fault> {
        let n = self.restores;
        self.restores += 1;
        if self.mishap == Some(Mishap::Unrestorable(n)) {
            return Err(Fault::new(FaultKind::Failed, "the manager does not answer"));
        }
        if let Some(Mishap::Unreachable(kind)) = self.mishap {
            return Err(Fault::new(kind, "the manager cannot be reached"));
        }
        let Some(mut vm) = self.settings().remove(&*step.vm.0) else {
            return Ok(Restored::Gone("the VM is not there any more".to_owned()));
        };
        let defined = former.definition.first().map(|part| part.elements.concat().parse::<u64>().unwrap());
        vm.defined = defined.unwrap_or(vm.defined);
        if vm.run != former.run.map(|run| run.pid) {
            self.put(step, vm);
            let why = "its run is over".to_owned();
            return Ok(if defined.is_some() { Restored::Defined(why) } else { Restored::Gone(why) });
        }
        match former.live.clone().unwrap() {
            Change::Weight(setting::Weight { from: CpuWeight::Weight(w), .. }) => vm.weight = w,
            Change::Affinity(setting::Affinity { role: Role::Emulator, .. }) => {
                for ((_, cpus), place) in former.affinities.iter().zip(&mut vm.emulator) {
                    *place = cpus.clone();
                }
            }
            Change::Affinity(setting::Affinity { from, .. }) => vm.vcpu = from,
            other => panic!("{other} is not in this world"),
        }
        self.put(step, vm);
        self.restored.push(format!("{}: {}", step.vm.0, step.change));
        Ok(Restored::Back)
    }
}

pub fn config() -> HostConfig {
    let parts = Parts { present: cpus("0-3"), online: cpus("0-3"), allowed: cpus("0-3"), ..Parts::default() };
    let topology = Topology::new(parts).unwrap();
    let thread = |tid, role| VmThread {
        tid: Tid(tid),
        role,
        affinity: cpus("0-3"),
        class: None,
        cgroup: None,
        prefers: None,
        reserved: None,
    };
    let vm = |name: &str| VmConfig {
        threads: vec![thread(1, Role::Vcpu(0))],
        ..VmConfig::new(VmId(name.to_owned().into()), name, 1)
    };
    HostConfig { vms: vec![vm("a"), vm("b")], ..HostConfig::new("host", "6.1", topology) }
}

/// Four steps: one setting of VM a is changed twice, so that order matters; one step moves two threads.
pub fn plan() -> Plan {
    let step = |vm: &str, change| Step {
        vm: VmId(vm.to_owned().into()),
        vm_name: vm.to_owned(),
        change,
        reason: String::new(),
    };
    let weight = |from, to| {
        Change::Weight(setting::Weight { from: CpuWeight::Weight(from), to: CpuWeight::Weight(to) })
    };
    let place = |role, from, to| {
        Change::Affinity(setting::Affinity { role, tid: Tid(1), from: cpus(from), to: cpus(to) })
    };
    let steps = vec![
        step("a", weight(100, 300)),
        step("b", place(Role::Vcpu(0), "1", "0-3")),
        step("a", weight(300, 50)),
        step("a", place(Role::Emulator, "0-3", "1")),
    ];
    let forecast = Forecast { method: "none".to_owned(), vms: Vec::new() };
    Plan::new(config(), "four steps".to_owned(), steps, Scope::Live, forecast)
}

/// What the plan makes of the world.
pub fn applied() -> Settings {
    let mut s = begin();
    let a = s.get_mut("a").unwrap();
    (a.weight, a.emulator) = (50, [cpus("1"), cpus("1")]);
    s.get_mut("b").unwrap().vcpu = cpus("0-3");
    s
}

pub fn journal_path(folder: &Path) -> PathBuf {
    folder.join(format!("{}.journal", plan().id))
}

/// Applies the plan in `folder`, unarmed and uninterrupted.
pub fn apply(world: &mut World, folder: &Path) -> Result<Receipt, Fault> {
    apply_with(world, folder, |_| Ok(()), || false)
}

pub fn apply_with(
    world: &mut World,
    folder: &Path,
    arm: impl FnOnce(&mut Journal) -> Result<(), Fault>,
    interrupted: impl Fn() -> bool,
) -> Result<Receipt, Fault> {
    vsteer_act::apply(
        &plan(),
        &config(),
        world,
        Setting { folder, connect: None, unix_ns: 7 },
        arm,
        interrupted,
    )
}
