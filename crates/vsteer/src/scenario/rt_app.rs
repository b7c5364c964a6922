//! A workload of rt-app as a scenario, and the demand of a recording as a workload of rt-app.
//!
//! Every thread of a task is a VM with one vCPU: to Linux' scheduler both are a thread in a group of its own. The
//! description says nothing of the machine, so it gets as many cores as its tasks name pCPUs; `--set
//! machine.cores_per_node=8` gives more.
//!
//! In the other direction, each vCPU thread becomes a task. Work that came at fixed times gets timers in the mode
//! `absolute`, and work after sleeps gets sleeps ([`vsteer_sim::forecast::demand`] tells the two apart).
//!
//! Left out: tasks and vCPUs that wait for each other.

use crate::scenario::replay::Recorded;
use std::path::Path;
use vsteer_core::nouns::{Role, SchedClass};
use vsteer_core::plural::counted;
use vsteer_core::span::Span;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::export::{Format, Input};
use vsteer_record::rt_app::{Class, Event, Phase, Task, Workload, text};
use vsteer_sim::guest::{Demand, Release};
use vsteer_sim::scenario::demand::{DemandForm, StepForm};
use vsteer_sim::scenario::{ClassForm, MachineForm, OneOrEach, Scenario, SchedulerForm, VmForm};

/// The most steps of a task, with its repetitions written out.
const STEPS_MAX: usize = 1_000_000;
/// Without a duration, this long, s.
const USUAL_S: u64 = 10;
/// linux@6.12/kernel/sched/core.c: `sched_prio_to_weight`, for nice levels from -10 on.
const WEIGHTS: [u32; 30] = [
    9548, 7620, 6100, 4904, 3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172,
    137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
];
const FIRST_NICE: i8 = -10;

/// The format of `vsteer export`.
pub const FORMAT: Format =
    Format { name: vsteer_record::rt_app::NAME, doc: vsteer_record::rt_app::DOC, write: export };

fn refused(what: String, why: &str, help: &str) -> Fault {
    Fault::new(FaultKind::BadInput, what).because(why).help(help)
}

/// The scenario of a workload, and what the workload does not tell.
///
/// # Errors
/// `BadInput` for a task with more than a million steps, or with a nice level below -10.
pub fn scenario(workload: &Workload, name: &str) -> Result<(Scenario, Vec<String>), Fault> {
    let pcpus =
        workload.tasks.iter().filter_map(|t| t.cpus.as_ref()?.iter().last()).max().map_or(1, |n| n + 1);
    let mut notes = Vec::new();
    if workload.tasks.iter().any(|t| t.cpus.is_none()) {
        notes.push(format!(
            "{name} does not say how many pCPUs the host has: vsteer simulates {} \
             (more: --set machine.cores_per_node=N)",
            counted(u64::from(pcpus), "pCPU")
        ));
    }
    if workload.duration_s.is_none() {
        notes.push(format!("{name} has no duration: vsteer simulates {USUAL_S} s (another: --set for=60s)"));
    }
    let nice = workload.tasks.iter().any(|t| !matches!(t.class, Class::Other(0)));
    let vms = workload.tasks.iter().map(|task| vm(task, nice)).collect::<Result<_, _>>()?;
    let seconds = workload.duration_s.unwrap_or(USUAL_S);
    let scenario = Scenario {
        title: name.to_owned(),
        about: String::new(),
        sources: Vec::new(),
        length: Span::of_ns(seconds.min(1_000_000) * 1_000_000_000),
        warm_up: None,
        seed: 1,
        scheduler: SchedulerForm { policy: "eevdf".to_owned(), parameters: Default::default() },
        machine: MachineForm {
            sockets: 1,
            nodes_per_socket: 1,
            cores_per_node: pcpus,
            threads_per_core: 1,
            node_memory_mib: None,
        },
        costs: Default::default(),
        pools: Vec::new(),
        groups: Vec::new(),
        vms,
    };
    Ok((scenario, notes))
}

/// A task as VMs. `nice`: any task has a nice level, so that all need a weight on the kernel's scale.
fn vm(task: &Task, nice: bool) -> Result<VmForm, Fault> {
    let (weight, class) = match task.class {
        Class::Other(nice) => {
            let at = usize::try_from(nice - FIRST_NICE).map_err(|_| {
                refused(
                    format!("task {:?}", task.name),
                    &format!("its nice level {nice} has a weight that the simulated scheduler cannot have"),
                    "use a level from -10 to 19",
                )
            })?;
            (WEIGHTS[at], None)
        }
        Class::Fifo(priority) => (WEIGHTS[10], Some(ClassForm::Fifo(priority))),
        Class::Rr(priority) => (WEIGHTS[10], Some(ClassForm::Rr(priority))),
    };
    Ok(VmForm {
        name: task.name.clone(),
        count: task.instances,
        vcpus: 1,
        demand: OneOrEach(vec![demand(task)?]),
        weight: nice.then_some(weight),
        cap_pct: None,
        quota: None,
        vcpu_quota: None,
        pool: None,
        group: None,
        affinity: task.cpus.clone(),
        pins: Vec::new(),
        soft_affinity: None,
        memory_node: None,
        memory_mib: None,
        from: (task.delay_us > 0).then(|| us(task.delay_us)),
        reservation: None,
        warp: None,
        vit: false,
        class,
        guest_tick: None,
        idle: Default::default(),
    })
}

fn us(us: u64) -> Span {
    Span::of_ns(us * 1000)
}

/// The steps of a task, with the repetitions of phases written out.
fn demand(task: &Task) -> Result<DemandForm, Fault> {
    let mut timers: Vec<&str> = Vec::new();
    let mut steps: Vec<StepForm> = Vec::new();
    let (mut again_from, mut rounds) = (0, task.rounds);
    for phase in &task.phases {
        let begin = steps.len();
        let of: Vec<StepForm> = phase.events.iter().filter_map(|event| step(event, &mut timers)).collect();
        // A phase without end: the phases after it never come.
        let times = phase.rounds.unwrap_or(1);
        let many = of.len().saturating_mul(usize::try_from(times).unwrap_or(usize::MAX));
        if steps.len().saturating_add(many) > STEPS_MAX {
            return Err(refused(
                format!("task {:?}", task.name),
                &format!("its phases have more than {STEPS_MAX} steps, with their repetitions"),
                "give smaller numbers for loop",
            ));
        }
        (0..times).for_each(|_| steps.extend(&of));
        if phase.rounds.is_none() {
            (again_from, rounds) = (begin, None);
            break;
        }
    }
    let runs = |steps: &[StepForm]| steps.iter().any(|s| matches!(s, StepForm::Run(_)));
    if !runs(&steps[again_from..]) {
        if runs(&steps) {
            // It computes at its beginning only.
            (again_from, rounds) = (0, Some(1));
        } else {
            return Ok(DemandForm::Idle);
        }
    }
    let only_runs = steps.iter().all(|s| matches!(s, StepForm::Run(_)));
    if only_runs && rounds.is_none() {
        return Ok(DemandForm::Hog);
    }
    Ok(DemandForm::Sequence { steps, again_from, rounds })
}

fn step<'a>(event: &'a Event, timers: &mut Vec<&'a str>) -> Option<StepForm> {
    match event {
        Event::Run(0) | Event::Sleep(0) => None,
        Event::Run(t) => Some(StepForm::Run(us(*t))),
        Event::Sleep(t) => Some(StepForm::Sleep(us(*t))),
        Event::Timer { name, period_us, absolute } => {
            let at = timers.iter().position(|n| n == name).unwrap_or_else(|| {
                timers.push(name);
                timers.len() - 1
            });
            Some(StepForm::Timer { timer: at as u32, period: us(*period_us), catches_up: *absolute })
        }
    }
}

/// Writes the demand of each vCPU of a recording.
fn export(from: &Input<'_>, to: &Path) -> Result<Vec<String>, Fault> {
    if to.exists() {
        return Err(Fault::new(FaultKind::Usage, format!("{} already exists", to.display()))
            .help("choose another output: vsteer never overwrites an export"));
    }
    let recorded = Recorded::of(&(from.read)()?, from.path)?;
    let mut notes = Vec::new();
    let workload = workload(&recorded, &mut notes);
    if workload.tasks.is_empty() {
        return Err(Fault::new(
            FaultKind::NothingThere,
            format!("{} has no vCPU thread", from.path.display()),
        )
        .because("every VM of the recording lacks them")
        .help("record while VMs run"));
    }
    vsteer_record::files::replace(to, text(&workload).as_bytes())?;
    Ok(notes)
}

fn workload(recorded: &Recorded, notes: &mut Vec<String>) -> Workload {
    let config = &recorded.stretch.config;
    let called = config.called();
    let mut tasks = Vec::new();
    for vm in &config.vms {
        for thread in vm.vcpus() {
            let Role::Vcpu(index) = thread.role else { continue };
            let name = format!("{} vcpu{index}", called[&vm.id]);
            let Some(wanted) = recorded.wanted(thread.tid) else { continue };
            let Some((phase, rounds)) = phase(&wanted.demand) else {
                notes.push(format!("left out {name:?}: its demand has no form in rt-app"));
                continue;
            };
            if wanted.broken > 0 {
                let bursts = counted(wanted.broken as u64, "burst");
                notes.push(format!("{name:?}: left out {bursts} that the recording has only in part"));
            }
            let cpus = thread.affinity.intersection(config.topology.online());
            tasks.push(Task {
                name,
                instances: 1,
                delay_us: 0,
                rounds,
                cpus: Some(cpus).filter(|cpus| !cpus.is_empty()),
                class: class(thread.class),
                phases: vec![phase],
            });
        }
    }
    Workload { duration_s: Some(recorded.window_ns.div_ceil(1_000_000_000).max(1)), tasks }
}

/// Weights of cgroups have no place in a workload: every task has the nice level of its thread.
fn class(class: Option<SchedClass>) -> Class {
    match class {
        Some(SchedClass::Fifo(priority)) => Class::Fifo(priority),
        Some(SchedClass::RoundRobin(priority)) => Class::Rr(priority),
        Some(SchedClass::Other(nice) | SchedClass::Batch(nice)) => Class::Other(nice),
        _ => Class::Other(0),
    }
}

/// The demand as a phase, and how often it is repeated.
fn phase(demand: &Demand) -> Option<(Phase, Option<u64>)> {
    let (events, rounds) = match demand {
        Demand::Hog => (vec![Event::Run(1_000_000)], None),
        Demand::Idle => (vec![Event::Sleep(1_000_000)], None),
        Demand::Recorded { bursts, repeat } => {
            let mut clock = Rounded::default();
            let events = bursts
                .iter()
                .flat_map(|b| [Event::Sleep(clock.sleep(b.sleep_ns)), Event::Run(clock.run(b.compute_ns))]);
            (
                events.filter(|e| !matches!(e, Event::Run(0) | Event::Sleep(0))).collect(),
                (!repeat).then_some(1),
            )
        }
        Demand::Released { jobs, repeat_ns } => (timed(jobs, *repeat_ns), repeat_ns.is_none().then_some(1)),
        _ => return None,
    };
    (!events.is_empty()).then_some((Phase { rounds: Some(1), events }, rounds))
}

/// Jobs at their times: one timer, which catches up.
fn timed(jobs: &[Release], repeat_ns: Option<u64>) -> Vec<Event> {
    let mut clock = Rounded::default();
    let timer = |period_us| Event::Timer { name: "unique".to_owned(), period_us, absolute: true };
    let mut last_ns = 0;
    let mut events = Vec::new();
    for job in jobs {
        let gap_ns = job.at_ns.saturating_sub(last_ns);
        last_ns = job.at_ns;
        events.push(timer(clock.sleep(gap_ns)));
        events.extend(Some(clock.run(job.compute_ns)).filter(|us| *us > 0).map(Event::Run));
    }
    events.extend(repeat_ns.map(|ns| timer(clock.sleep(ns.saturating_sub(last_ns)))));
    events
}

/// Rounds times to us, so that their sums are right: no error adds up.
#[derive(Default)]
struct Rounded {
    slept: (u64, u64),
    ran: (u64, u64),
}

impl Rounded {
    fn part((exact_ns, told_us): &mut (u64, u64), ns: u64) -> u64 {
        *exact_ns += ns;
        let us = (*exact_ns + 500) / 1000 - *told_us;
        *told_us += us;
        us
    }

    fn sleep(&mut self, ns: u64) -> u64 {
        Rounded::part(&mut self.slept, ns)
    }

    fn run(&mut self, ns: u64) -> u64 {
        Rounded::part(&mut self.ran, ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use vsteer_record::rt_app;
    use vsteer_sim::guest::{Burst, Step};

    fn read(text: &str) -> Result<(Scenario, Vec<String>), Fault> {
        scenario(&rt_app::read(text).unwrap(), "w.json")
    }

    #[test]
    fn tasks_become_vms_with_the_kernels_weights() {
        let (s, notes) = read(
            r#"{"global": {"duration": 3}, "tasks": {
                "a": {"instance": 2, "priority": 5, "cpus": [0, 3], "run": 10, "timer": {"ref": "unique", "period": 100}},
                "b": {"policy": "SCHED_FIFO", "delay": 7, "loop": 2, "run": 10, "sleep": 20},
                "c": {"run": 1000}, "d": {"sleep": 5},
                "e": {"phases": {"p": {"loop": 2, "run": 1}, "q": {"loop": -1, "sleep": 2, "run": 3}, "r": {"run": 9}}}}}"#,
        )
        .unwrap();
        assert_eq!(
            (s.machine.cores_per_node, s.length.ns(), notes.len()),
            (4, 3_000_000_000, 1),
            "{notes:?}"
        );
        let vm = |i: usize| &s.vms[i];
        assert_eq!((vm(0).count, vm(0).weight, vm(1).class), (2, Some(335), Some(ClassForm::Fifo(10))));
        assert_eq!(vm(1).from, Some(Span::of_ns(7_000)));
        let forms: Vec<&DemandForm> = s.vms.iter().map(|vm| &vm.demand.0[0]).collect();
        assert_eq!((forms[2], forms[3]), (&DemandForm::Hog, &DemandForm::Idle));
        let run = |t| StepForm::Run(us(t));
        let steps = vec![run(1), run(1), StepForm::Sleep(us(2)), run(3)];
        assert_eq!(*forms[4], DemandForm::Sequence { steps, again_from: 2, rounds: None });
        // It is a valid scenario, also as a table, which `--set` changes.
        let table = toml::Table::try_from(&s).unwrap();
        assert_eq!(Scenario::deserialize(toml::Value::Table(table)).unwrap(), s);
        assert!(s.case().is_ok(), "{:?}", s.case().err().map(|r| r.fault));
        let fault = read(r#"{"tasks": {"a": {"priority": -20, "run": 1, "sleep": 1}}}"#).unwrap_err();
        assert!(fault.to_string().contains("-10 to 19"));
        let many = r#"{"tasks": {"a": {"phases": {"p": {"loop": 2000000, "run": 1, "sleep": 1}}}}}"#;
        assert!(read(many).unwrap_err().to_string().contains("more than 1000000 steps"));
    }

    /// A demand that is written, read back and simulated is the same demand.
    #[test]
    fn a_recorded_demand_survives_the_file() {
        let burst = |sleep_ns, compute_ns| Burst { sleep_ns, compute_ns };
        let job = |at_ns, compute_ns| Release { at_ns, compute_ns };
        for (demand, steps) in [
            (
                Demand::Recorded { bursts: vec![burst(1_400, 2_400), burst(1_400, 2_400)], repeat: true },
                vec![Step::Sleep(1_000), Step::Run(2_000), Step::Sleep(2_000), Step::Run(3_000)],
            ),
            (
                Demand::Released {
                    jobs: vec![job(5_000, 1_000), job(25_400, 2_000)],
                    repeat_ns: Some(40_000),
                },
                [(5_000, Some(1_000)), (20_000, Some(2_000)), (15_000, None)]
                    .into_iter()
                    .flat_map(|(period_ns, run)| {
                        let timer = Step::Timer { timer: 0, period_ns, catches_up: true };
                        [Some(timer), run.map(Step::Run)].into_iter().flatten()
                    })
                    .collect(),
            ),
        ] {
            let (phase, rounds) = phase(&demand).unwrap();
            let task = Task {
                name: "vm vcpu0".to_owned(),
                instances: 1,
                delay_us: 0,
                rounds,
                cpus: None,
                class: Class::Other(0),
                phases: vec![phase],
            };
            let written = text(&Workload { duration_s: Some(1), tasks: vec![task] });
            let (scenario, _) = read(&written).unwrap();
            let Demand::Sequence(spec) = Demand::from(&scenario.vms[0].demand.0[0]) else {
                panic!("{written}")
            };
            assert_eq!((spec.steps, spec.again_from, spec.rounds), (steps, 0, None), "{written}");
        }
    }
}
