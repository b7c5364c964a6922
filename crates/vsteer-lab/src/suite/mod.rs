//! The cases that check vsteer's promises on real machines; each is a set of claims with the found values.
//!
//! `vsteer lab test` runs one short case per lab; `vsteer lab all` runs every case at the size of its
//! promise. `vsteer lab run NAME` runs one. A case is one file and one line in [`CASES`].

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
mod forecasts;
mod harmless;
pub mod hostile;
mod installed;
mod judge;
mod libvirt_data;
mod loops;
pub mod many;
mod openmp;
mod oracle;
mod placements;
mod prediction;
mod qemu_lines;
mod realtime;
mod serve;
mod service;
pub mod session;
mod starved;
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

/// The environment of a case.
#[derive(Debug, Clone)]
pub struct Bench {
    /// The lab to start; cases change its VMs.
    pub lab: Options,
    /// Folder for recordings and plans; emptied before a case.
    pub output: PathBuf,
    /// The size of the promise (`lab all`), or a short run (`lab test`).
    pub full: bool,
    /// The seed of all random draws.
    pub seed: u64,
}

impl Bench {
    /// A lab with these VMs.
    ///
    /// # Errors
    /// `Usage` for an invalid spec, which would be a bug here.
    pub fn with(&self, spec: &str, seed: u64) -> Result<Options, Fault> {
        let mut options = self.lab.clone();
        options.spec = spec.parse::<Spec>()?;
        options.seed = Some(seed);
        Ok(options)
    }

    /// Starts a lab with these VMs, passes it to `work`, and always takes it down.
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
    /// If that of a former run cannot be removed.
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
    /// The promise that it checks, in one line.
    pub doc: &'static str,
    /// Is it part of `lab test`?
    pub in_test: bool,
    /// How long it takes.
    pub minutes: Minutes,
    /// May it run in parallel with others of this kind, because no claim depends on this machine's time?
    pub beside: bool,
    pub run: fn(&Bench) -> Result<Findings, Fault>,
}

/// The cases of `lab test`.
pub fn in_test() -> Vec<&'static Case> {
    CASES.iter().chain(PARTS).filter(|c| c.in_test).collect()
}

pub const CASES: &[Case] = &[
    topology::CASE,
    qemu_lines::CASE,
    libvirt_data::CASE,
    audit::CASE,
    forecasts::CASE,
    harmless::CASE,
    harmless::cures::CASE,
    vsphere::CASE,
    vsphere::API,
    loops::CASE,
    starved::CASE,
    collectors::CASE,
    blame::CASE,
    oracle::CASE,
    many::CASE,
    crash::CASE,
    hostile::CASE,
    installed::CASE,
    verdicts::CASE,
    emulated::CASE,
    placements::CASE,
    prediction::CASE,
    cfs::CASE,
    serve::CASE,
    serve::cost::CASE,
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

/// Parts of cases that are worth running alone, by name. Running all cases runs them as parts of those cases.
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
/// If it cannot be pinned there.
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
