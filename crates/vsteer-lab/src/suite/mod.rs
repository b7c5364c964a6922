//! Which promises does vsteer keep on real machines? The cases, each a set of claims with what was found.
//!
//! `vsteer lab test` runs one short case per lab; `vsteer lab all` runs every case at the size at which its promise is
//! made. `vsteer lab run NAME` runs one. A case is one file and one line in [`CASES`].

mod audit;
mod blame;
mod budget;
mod cfs;
mod collectors;
mod crash;
mod display;
mod emulated;
mod experiments;
mod findings;
mod judge;
mod loops;
mod openmp;
mod prediction;
mod realtime;
mod service;
pub mod session;
mod steered;
mod stopped;
mod surroundings;
mod topology;
mod verdicts;
mod vsphere;
mod xen;

use crate::contention::spec::Spec;
use crate::contention::{Lab, Options, down};
use crate::drive::{Vsteer, wait};
pub use budget::Minutes;
pub use findings::{Evidence, Findings, worst};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use vsteer_core::Fault;

/// Guests boot and settle before anything is measured.
const SETTLE: Duration = Duration::from_secs(5);

/// What a case works with.
#[derive(Debug, Clone)]
pub struct Bench {
    /// A lab to bring up; cases change its VMs.
    pub lab: Options,
    /// Folder for recordings and plans; emptied before a case.
    pub output: PathBuf,
    /// The promise's own size (`lab all`), or a short run (`lab test`).
    pub full: bool,
    /// Decides what is drawn.
    pub seed: u64,
}

impl Bench {
    /// A lab of these VMs.
    ///
    /// # Errors
    /// `Usage` for a spec that is none, which would be a bug here.
    pub fn with(&self, spec: &str, seed: u64) -> Result<Options, Fault> {
        let mut options = self.lab.clone();
        options.spec = spec.parse::<Spec>()?;
        options.seed = Some(seed);
        Ok(options)
    }

    /// Brings a lab of these VMs up, hands it over, and takes it down whatever happened.
    ///
    /// # Errors
    /// The lab's, or the first of `work`.
    pub fn on_lab<T>(
        &self,
        spec: &str,
        seed: u64,
        work: impl FnOnce(&Lab, &Vsteer) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let options = self.with(spec, seed)?;
        let lab = Lab::up(&options)?;
        let vsteer = Vsteer {
            state: self.output.join("state"),
            uri: lab.uri().to_owned(),
            ..Vsteer::beside(&options.program)?
        };
        let done = wait("letting the VMs settle", SETTLE).and_then(|()| work(&lab, &vsteer));
        let downed = down::down(lab.dir());
        let value = done?;
        downed?;
        Ok(value)
    }

    /// A path under the output folder that does not exist yet.
    ///
    /// # Errors
    /// When a former run's cannot be removed.
    pub fn fresh(&self, name: &str) -> Result<String, Fault> {
        let path = self.output.join(name);
        if path.is_dir() {
            std::fs::remove_dir_all(&path)
                .map_err(|e| Fault::io(format!("removing {}", path.display()), &e))?;
        }
        Ok(path.to_string_lossy().into_owned())
    }
}

pub struct Case {
    pub name: &'static str,
    /// What it holds vsteer to, one line.
    pub doc: &'static str,
    /// Is it part of `lab test`?
    pub in_test: bool,
    /// How long it takes.
    pub minutes: Minutes,
    /// May it run beside others of this kind, because no claim depends on this machine's time?
    pub beside: bool,
    pub run: fn(&Bench) -> Result<Findings, Fault>,
}

/// The cases of `lab test`.
pub fn in_test() -> Vec<&'static Case> {
    CASES.iter().chain(PARTS).filter(|c| c.in_test).collect()
}

pub const CASES: &[Case] = &[
    topology::CASE,
    audit::CASE,
    vsphere::CASE,
    vsphere::API,
    loops::CASE,
    collectors::CASE,
    blame::CASE,
    crash::CASE,
    verdicts::CASE,
    emulated::CASE,
    prediction::CASE,
    cfs::CASE,
    service::estimators::CASE,
    service::control::CASE,
    service::kill::CASE,
    service::moving::CASE,
    service::soak::CASE,
    xen::CASE,
    realtime::CASE,
    display::CASE,
    experiments::CASE,
    openmp::CASE,
    openmp::emulated::CASE,
];

/// Parts of cases that are worth running by themselves, by name: whoever runs all cases runs them as those parts.
pub const PARTS: &[Case] = &[
    service::estimators::local::CASE,
    xen::TRACED,
    xen::REPAIR,
    xen::STEER,
    xen::OPENMP,
    xen::SAMPLED,
    realtime::EMULATED,
    realtime::LOCAL,
    realtime::MEDIA,
    realtime::CYCLES,
    experiments::REBOOTS,
    display::CONTENTION,
    experiments::OBSERVED,
    experiments::LASTING,
];

/// Keeps one pCPU busy under the name that the case `blame` looks for.
///
/// # Errors
/// When it cannot be pinned there.
pub fn hog(cpu: usize, length: Duration) -> Result<(), Fault> {
    let busy = move || {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu);
        rustix::thread::sched_setaffinity(None, &set)
            .map_err(|e| Fault::io(format!("pinning the hog to pCPU {cpu}"), &e.into()))?;
        let begun = Instant::now();
        while begun.elapsed() < length {
            std::hint::black_box((0..100_000u64).sum::<u64>());
        }
        Ok(())
    };
    let thread = std::thread::Builder::new().name(blame::HOG.to_owned()).spawn(busy);
    let thread = thread.map_err(|e| Fault::io("starting the hog", &e))?;
    thread.join().expect("the hog does not panic")
}
