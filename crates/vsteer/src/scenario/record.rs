//! Writes a simulation as a recording: samples and switches that other commands read like those of a host.

use crate::interrupt::Interrupt;
use std::path::Path;
use vsteer_core::Fault;
use vsteer_core::nouns::{HostConfig, Tid};
use vsteer_record::{EventSummary, EventWriter, FORMAT, Manifest, Task, Writer, shown_as};
use vsteer_sim::blame::Blame;
use vsteer_sim::samples;
use vsteer_sim::scenario::Case;
use vsteer_sim::scenario::outcome::{Follow, Run, run};
use vsteer_sim::sched::Simulation;
use vsteer_sim::setup::{Host, Setup};
use vsteer_sim::trace::Trace;

/// Between two samples, simulated ns: as often as `vsteer record` takes them.
const STRIDE_NS: u64 = 200_000_000;
/// Least number of samples in a recording, however short the run: a report draws lines between them.
const SAMPLES_MIN: u64 = 50;

/// Runs `case` with `seed` and records it into `folder`.
///
/// # Errors
/// As the run, and when the folder cannot be written.
pub fn recorded(
    case: &Case,
    seed: u64,
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<(Run, EventSummary), Fault> {
    recorded_into(case, seed, folder, interrupt).map_err(|fault| shown_as(fault, folder))
}

fn recorded_into(
    case: &Case,
    seed: u64,
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<(Run, EventSummary), Fault> {
    let trace = Trace::default();
    let config = samples::config(&case.setup, case.policy.about.name, case.policy.about.default_weight);
    let manifest = Manifest {
        format: FORMAT,
        vsteer: env!("CARGO_PKG_VERSION").to_owned(),
        hostname: config.hostname.clone(),
        fingerprint: config.fingerprint(),
        mono_ns: case.begin_ns,
        unix_ns: case.begin_ns,
        collector: samples::collector(true),
    };
    let writer = Writer::create(folder, &manifest, &config, None)?;
    let mut events = EventWriter::create(writer.folder(), None)?;
    for vm in &config.vms {
        for t in &vm.threads {
            events.name(Task {
                mono_ns: case.begin_ns,
                tid: t.tid,
                tgid: vm.pid,
                comm: t.role.to_string().chars().take(15).collect(),
                vm: Some(vm.id.clone()),
                role: Some(t.role),
            })?;
        }
    }
    let stride_ns = STRIDE_NS.min((case.end_ns - case.begin_ns) / SAMPLES_MIN).max(1);
    let host = Host::new(&case.setup)?;
    let blame = Blame::new(&host);
    let mut follow = Recorder {
        writer,
        events,
        trace: trace.clone(),
        blame: blame.clone(),
        config,
        cpus: host.pcpus.iter().map(|p| p.cpu).collect(),
        tids: host.vcpus.iter().map(|v| samples::tid(&case.setup, v)).collect(),
        begin_ns: case.begin_ns,
        stride_ns,
        interrupt,
        fault: None,
    };
    let build = |s: &Setup| (case.policy.watched)(s, &case.values, (trace.clone(), blame.clone()));
    let ran = run(case, seed, build, &mut follow)?;
    follow.finish().map(|summary| (ran, summary))
}

/// Prints where the run was recorded, and how many switches it has.
pub fn told(folder: &Path, switches: u64) {
    let f = folder.display();
    eprintln!(
        "vsteer: recorded {switches} context switches in {f} (next: vsteer report {f}, vsteer diagnose {f})"
    );
}

struct Recorder<'a> {
    writer: Writer,
    events: EventWriter,
    trace: Trace,
    blame: Blame,
    config: HostConfig,
    /// The kernel's numbers of pCPUs, and the threads of vCPUs.
    cpus: Vec<u32>,
    tids: Vec<Tid>,
    begin_ns: u64,
    stride_ns: u64,
    interrupt: &'a Interrupt,
    /// What went wrong where it could not be told.
    fault: Option<Fault>,
}

impl Recorder<'_> {
    fn take_switches(&mut self, end: bool) -> Result<(), Fault> {
        let Recorder { events, trace, cpus, tids, begin_ns, .. } = self;
        let mut outcome = Ok(());
        trace.drain(
            |p| cpus[p.i()],
            |v| tids[v.i()],
            end,
            |switch| {
                if switch.ns >= *begin_ns && outcome.is_ok() {
                    outcome = events.push(switch);
                }
            },
        );
        outcome
    }

    fn finish(mut self) -> Result<EventSummary, Fault> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        self.take_switches(true)?;
        let summary =
            EventSummary { recorded: self.events.recorded(), closed: true, ..EventSummary::default() };
        self.events.finish(&summary)?;
        self.writer.finish()?;
        Ok(summary)
    }
}

impl Follow for Recorder<'_> {
    fn stride_ns(&self) -> u64 {
        self.stride_ns
    }

    fn sample(&mut self, setup: &Setup, simulation: &dyn Simulation) -> Result<(), Fault> {
        self.take_switches(false)?;
        self.events.write()?;
        let blame = self.blame.drain(simulation.now_ns());
        self.writer.append(&samples::batch(setup, simulation, blame), &self.config)
    }

    fn go_on(&mut self, _now_ns: u64) -> bool {
        // Here too, so that a long warm-up does not pile them up.
        self.fault = self.take_switches(false).err();
        self.fault.is_none() && !self.interrupt.is_set()
    }
}
