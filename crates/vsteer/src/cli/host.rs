//! Which host does vsteer observe, with which collector and login?

use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use std::path::PathBuf;
use vsteer_host::backend;
use vsteer_host::observe::{self, Statistics};
use vsteer_record::config::default_of;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CollectorChoice {
    /// Use eBPF if the kernel allows it. Else poll, and print why
    Auto,
    /// Measure in the kernel: all states, lag, overlap and blame. Needs root
    Ebpf,
    /// Poll /proc, which tells only how long each thread ran and waited. Needs no privilege
    Schedstat,
    /// Sample the vCPUs of Xen 50 times a second instead of tracing: run is exact, ready and blocked are estimates
    ///
    /// The error is 1.6 percentage points after 12 s at 20 % ready. For a domain with a cap, ready and limited are
    /// measured only together.
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

/// The host to observe.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Source")]
pub struct Source {
    #[arg(long, value_name = "URI", help = "Observe the host at URI, or with this name in the configuration [default: this host]", long_help = connect_help())]
    pub connect: Vec<String>,
    /// Send vsteer to a host of ssh:// for this command, instead of running one that is installed there
    ///
    /// vsteer checks the hash there. Nothing stays on the host. That host must have this machine's type of processor, for example x86-64.
    #[arg(long, requires = "connect", hide_short_help = true)]
    pub copy_vsteer: bool,
    /// Choose how to measure
    #[arg(long, value_enum, default_value = default_of("collector.method"))]
    pub collector: CollectorChoice,
    /// Observe only the VM called NAME (repeatable) [default: all VMs]
    #[arg(long = "vm", value_name = "NAME")]
    pub vms: Vec<String>,
    /// Read vSphere's counters at this interval: 20s, 5m, 30m, 2h or 24h
    ///
    /// A vCenter keeps samples of 20s for one hour, of 5m for a day, of 30m for a week, of 2h for a month and of 24h for a year.
    /// vsteer reads the last --for of them at once, without waiting.
    #[arg(long, value_name = "INTERVAL", default_value = "20s", value_parser = statistics, help_heading = "vSphere",
        hide_short_help = true)]
    pub statistics: Statistics,
    #[command(flatten)]
    pub login: Login,
    /// The logins of hosts that the configuration names, by URI.
    #[arg(skip)]
    pub logins: BTreeMap<String, Login>,
}

/// `--connect`, from the table of backends.
fn connect_help() -> String {
    format!(
        "Observe the host at URI, or with this name in the configuration [default: this host]\n\n\
        `top`, `diagnose` and `record` take several: repeat the option.\n\n{}",
        vsteer_host::hypervisors::help()
    )
}

impl Source {
    /// Every VM of the host that the URI `connect` names, measured by the best collector.
    pub fn at(connect: Option<&str>) -> Source {
        Source {
            connect: connect.map(str::to_owned).into_iter().collect(),
            copy_vsteer: false,
            collector: CollectorChoice::Auto,
            vms: Vec::new(),
            statistics: Statistics::RealTime,
            login: Login::default(),
            logins: BTreeMap::new(),
        }
    }

    /// The URI; `None`: this host.
    pub fn uri(&self) -> Option<&str> {
        self.connect.first().map(String::as_str)
    }

    /// Does it name more than one host?
    pub fn is_several(&self) -> bool {
        self.connect.len() > 1
    }

    /// One source for each host.
    pub fn each(&self) -> Vec<Source> {
        let login = |uri: &str| self.logins.get(uri).unwrap_or(&self.login).clone();
        let one = |uri: &String| Source { connect: vec![uri.clone()], login: login(uri), ..self.clone() };
        self.connect.iter().map(one).collect()
    }
}

/// How to log in to a vSphere.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "vSphere")]
pub struct Login {
    /// Read the password from the first line of FILE, or of standard input if FILE is -
    ///
    /// Without --password-file, vsteer looks for the password in the kernel's keyring, then asks. To store it there:
    /// keyctl padd user vsteer:vsphere://USER@HOST:443 @u
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub password_file: Option<PathBuf>,
    /// Trust the certificate authorities in this PEM file, and no others
    #[arg(long, value_name = "FILE", conflicts_with = "thumbprint", hide_short_help = true)]
    pub ca: Option<PathBuf>,
    /// Trust only the certificate with this SHA-256 thumbprint
    #[arg(long, value_name = "SHA256", hide_short_help = true)]
    pub thumbprint: Option<String>,
}

impl Login {
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
    found.ok_or_else(|| format!("unknown interval; vSphere keeps {}", names.join(", ")))
}
