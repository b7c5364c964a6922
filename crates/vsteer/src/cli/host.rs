//! Which host is looked at, by which collector, with which login?

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use vsteer_host::backend;
use vsteer_host::observe::{self, Statistics};

/// How samples are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CollectorChoice {
    /// eBPF where the kernel allows it, else polling, saying why.
    Auto,
    /// Measured in the kernel: all states, lag, overlap, blame. Needs root.
    Ebpf,
    /// Polling /proc: run and wait only. Needs no privilege beyond reading.
    Schedstat,
    /// Xen, where no trace is wanted: vCPUs are looked at some fifty times a second. Run is exact, ready and blocked are estimated
    /// (1.6 points after 12 s at 20 % ready), of a domain with a cap only ready and limited together.
    Sampled,
}

impl From<CollectorChoice> for observe::CollectorChoice {
    fn from(choice: CollectorChoice) -> observe::CollectorChoice {
        match choice {
            CollectorChoice::Auto => observe::CollectorChoice::Auto,
            CollectorChoice::Ebpf => observe::CollectorChoice::Ebpf,
            CollectorChoice::Schedstat => observe::CollectorChoice::Schedstat,
            CollectorChoice::Sampled => observe::CollectorChoice::Sampled,
        }
    }
}

/// Where to look.
#[derive(Debug, Clone, Args)]
pub struct Source {
    /// The host to observe [default: this one].
    #[arg(long, value_name = "URI", help = connect_help())]
    pub connect: Option<String>,
    /// How samples are taken.
    #[arg(long, value_enum, default_value = "auto")]
    pub collector: CollectorChoice,
    /// Only VMs of this name (may be given again).
    #[arg(long = "vm", value_name = "NAME")]
    pub vms: Vec<String>,
    /// With --connect vsphere://: which of the counters that it keeps are read: those of the last hour, every 20s, or its statistics of
    /// every 5m, 30m, 2h or 24h (a day, a week, a month, a year of them). The last --for of them is read at once: nothing is waited for.
    #[arg(long, value_name = "INTERVAL", default_value = "20s", value_parser = statistics)]
    pub statistics: Statistics,
    /// How a vSphere is logged in to.
    #[command(flatten)]
    pub login: Login,
}

/// What `--connect` takes, from the table of backends.
fn connect_help() -> String {
    format!("The host to observe [default: this one].\n{}", vsteer_host::backends::help())
}

impl Source {
    /// All VMs of this URI, sampled as is best.
    pub fn at(connect: Option<&str>) -> Source {
        Source {
            connect: connect.map(str::to_owned),
            collector: CollectorChoice::Auto,
            vms: Vec::new(),
            statistics: Statistics::RealTime,
            login: Login::default(),
        }
    }
}

/// How a vSphere is logged in to, beside the URI.
#[derive(Debug, Clone, Default, Args)]
pub struct Login {
    /// With --connect vsphere://: the file whose first line is the password; `-`: standard input. Without it: the kernel's keyring
    /// (`keyctl padd user vsteer:vsphere://USER@HOST:443 @u`), else a prompt.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// With --connect vsphere://: trust the authorities in this PEM file in place of the system's.
    #[arg(long, value_name = "FILE", conflicts_with = "thumbprint")]
    pub ca: Option<PathBuf>,
    /// With --connect vsphere://: trust the one certificate with this SHA-256 thumbprint.
    #[arg(long, value_name = "SHA256")]
    pub thumbprint: Option<String>,
}

impl Login {
    /// As backends take it.
    pub fn to_backend(&self) -> backend::Login {
        backend::Login {
            password_file: self.password_file.clone(),
            authorities: self.ca.clone(),
            thumbprint: self.thumbprint.clone(),
            secret: None,
        }
    }
}

fn statistics(text: &str) -> Result<Statistics, String> {
    let names: Vec<&str> = Statistics::ALL.iter().map(|(_, name)| *name).collect();
    let found = Statistics::ALL.iter().find(|(_, name)| *name == text).map(|(of, _)| *of);
    found.ok_or_else(|| format!("{text:?} is none of {}", names.join(", ")))
}
