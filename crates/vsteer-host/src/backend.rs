//! What does vsteer need to know of a hypervisor? How a user names it, how it is recognised, opened and changed.
//!
//! Each hypervisor is one folder and one line of [`crate::hypervisors::BACKENDS`]. Commands ask the table and the traits
//! of this file, so no command contains a `match` on a hypervisor.
//!
//! Left out: the table itself. It uses the folders, and the folders use this file.

use crate::actuate::Actuate;
use crate::observe::{CollectorChoice, Observe, Statistics};
use crate::privilege::Kept;
use crate::root::Root;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use vsteer_bpf::Observer;
use vsteer_core::nouns::{Batch, Collector, HostConfig, Manager, TimerCounts, VmId};
use vsteer_core::plan::Plan;
use vsteer_core::{Fault, FaultKind};

/// A hypervisor, or another place where VMs can be observed.
pub struct Backend {
    /// The name for people.
    pub name: &'static str,
    /// How its connection URIs begin.
    pub schemes: &'static [&'static str],
    /// Example URIs, for help texts.
    pub examples: &'static [&'static str],
    /// One phrase that says what it observes.
    pub about: &'static str,
    /// What it measures.
    pub sees: &'static str,
    /// What it can change.
    pub sets: &'static str,
    /// What it cannot do.
    pub leaves_out: &'static str,
    /// Is this machine such a host? Asked in the table's order when the user names no URI.
    pub recognise: fn(&Root) -> bool,
    /// Does it only observe? Then another backend that knows the URI changes what is there.
    pub only_observes: bool,
    /// Can `vsteer steer` set its weights while it is observed?
    pub steers: bool,
    /// Does it change VMs of this manager?
    pub manages: fn(&Manager) -> bool,
    /// Opens a host for observing.
    pub open: fn(&Request) -> Result<Box<dyn Host>, Fault>,
    /// Opens a host for changing.
    pub change: fn(&Request, Option<Plan>) -> Result<Changing, Fault>,
    /// Reads the settings of all hosts that the URI leads to, where the settings can be had without samples.
    pub settings: Option<ReadSettings>,
}

impl Backend {
    /// Does this URI lead to it?
    pub fn is_meant(&self, uri: &str) -> bool {
        self.schemes.iter().any(|scheme| uri.starts_with(scheme))
    }
}

/// Reads the settings of all hosts behind a URI.
pub type ReadSettings = fn(&Request) -> Result<Described, Fault>;

/// What VMs' timers asked for and got, by VM.
pub type Timers = fn() -> BTreeMap<VmId, TimerCounts>;

/// Asks the user for a password. `None`: there is no terminal.
pub type Prompt = fn(&str) -> Result<Option<String>, Fault>;

/// How to log in, in addition to the URI.
#[derive(Debug, Clone, Default)]
pub struct Login {
    /// The file whose first line is the password; `-` is standard input.
    pub password_file: Option<PathBuf>,
    /// The certificate authorities to trust.
    pub authorities: Option<PathBuf>,
    /// The SHA-256 thumbprint of the one certificate to trust.
    pub thumbprint: Option<String>,
    /// The password, where the caller knows it already.
    pub secret: Option<String>,
}

/// What a caller wants to open.
#[derive(Clone)]
pub struct Request {
    /// The connection URI.
    pub connect: Option<String>,
    /// The way of counting.
    pub collector: CollectorChoice,
    /// Only VMs of these names, ids, or patterns with `*`; empty: all.
    pub vms: Vec<String>,
    /// Which counters that the host kept are read.
    pub statistics: Statistics,
    /// Use the way of counting that costs least.
    pub light: bool,
    /// Record every context switch into a kernel buffer of this many bytes.
    pub event_buffer: Option<u64>,
    /// Add these counters to the samples of VMs that run on this kernel.
    pub timers: Option<Timers>,
    /// How to log in.
    pub login: Login,
    /// How to ask for a password.
    pub prompt: Prompt,
    /// Send this program to the other host and run it there, instead of one that is installed.
    pub copies_itself: bool,
}

impl Request {
    /// All VMs of this URI, counted in the default way.
    pub fn of(connect: Option<&str>) -> Request {
        Request {
            connect: connect.map(str::to_owned),
            collector: CollectorChoice::Auto,
            vms: Vec::new(),
            statistics: Statistics::RealTime,
            light: false,
            event_buffer: None,
            timers: None,
            login: Login::default(),
            prompt: |_| Ok(None),
            copies_itself: false,
        }
    }

    /// Refuses `--statistics` where the host keeps none.
    ///
    /// # Errors
    /// `Usage` when the request names statistics.
    pub fn refuse_statistics(&self) -> Result<(), Fault> {
        match self.statistics {
            Statistics::RealTime => Ok(()),
            Statistics::Every(_) => {
                Err(Fault::new(FaultKind::Usage, "cannot read --statistics: only vSphere keeps statistics")
                    .help("leave out --statistics, or add --connect vsphere://USER@HOST"))
            }
        }
    }
}

/// A host that is observed.
pub trait Host: Observe {
    /// Notes for the user that were not printed yet.
    fn take_notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// The eBPF observer, where it counts: for its recorded switches.
    fn observer(&self) -> Option<&Observer> {
        None
    }

    /// Stops counting and returns the observer, for the rest of its recorded switches.
    fn into_observer(self: Box<Self>) -> Option<Observer> {
        None
    }

    /// Are the vCPUs threads of this machine's kernel, so that its scheduler can be asked to prefer them?
    fn is_scheduled_here(&self) -> bool {
        false
    }

    /// Does the start of counting show in the first second of samples? It does while the kernel attaches eBPF programs.
    fn settles(&self) -> bool {
        self.observer().is_some()
    }

    /// Can it count in two ways at once?
    fn has_second(&self) -> bool {
        false
    }

    /// One sample, and where `both` one by the second way of counting.
    ///
    /// # Errors
    /// As [`Observe::sample`]; `Usage` when the second way cannot be used now.
    fn sample_both(&mut self, _both: bool) -> Result<(Batch, Option<Batch>), Fault> {
        Ok((self.sample()?, None))
    }

    /// How the second of [`Host::sample_both`] is sampled.
    fn second_collector(&self) -> Option<Collector> {
        None
    }

    /// The privileges that it still needs after counting has started. `None`: not known, so all are kept.
    fn still_needs(&mut self) -> Option<Kept> {
        None
    }

    /// What the host itself kept of the last `length`, all at once; `None` where samples must be waited for.
    ///
    /// # Errors
    /// When the host cannot be asked, or kept nothing.
    fn past(&mut self, _length: Duration) -> Option<Result<Vec<Batch>, Fault>> {
        None
    }

    /// How much of the past a recording of `length` takes, where the host's samples are all in the past.
    ///
    /// # Errors
    /// `Usage` where the caller must say a length and does not.
    fn length_of_past(&self, _length: Option<Duration>) -> Result<Option<Duration>, Fault> {
        Ok(None)
    }

    /// What changes its VMs while they are observed.
    ///
    /// # Errors
    /// `Unsupported` where nothing can be changed.
    fn actuator(&mut self) -> Result<&mut dyn Actuate, Fault>;
}

/// A host that is opened for changing.
pub struct Changing {
    /// What changes it.
    pub actuator: Box<dyn Actuate>,
    /// How it is set up now; `None` where reading that needs a plan and none was given.
    pub now: Option<HostConfig>,
    /// The plan that was given, for the VMs that are there.
    pub plan: Option<Plan>,
    /// The URI that opens the same host again.
    pub connect: Option<String>,
    /// The password that opens it again.
    pub secret: Option<String>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// The settings of all hosts of one service.
pub struct Described {
    /// Product name and version, as the service reports them.
    pub about: String,
    /// The hosts, each with the number of its VMs that run.
    pub hosts: Vec<(HostConfig, usize)>,
    /// What the user should know.
    pub notes: Vec<String>,
}
