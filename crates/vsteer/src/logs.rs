//! Which logs hold which VM's requests? Parses `VM=FILE` on the command line, and reads the logs of each VM as one.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use vsteer_core::plural::counted;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::access_log::{self, Said, Summary, checked_clock, plausible};

/// A VM's log, a folder of scrapes, or the address of a Prometheus server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    pub vm: String,
    pub file: PathBuf,
}

impl Log {
    /// Is it the address of a Prometheus server?
    pub fn is_server(&self) -> bool {
        is_server(&self.file)
    }
}

/// Is this name the address of a server?
pub fn is_server(name: &Path) -> bool {
    let name = name.as_os_str().as_encoded_bytes();
    [&b"http://"[..], b"https://"]
        .iter()
        .any(|scheme| name.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme)))
}

impl FromStr for Log {
    type Err = String;

    fn from_str(text: &str) -> Result<Log, String> {
        let (vm, file) = text.split_once('=').ok_or_else(|| format!("{text:?} is not VM=FILE"))?;
        if vm.is_empty() || file.is_empty() {
            return Err(format!("{text:?} is not VM=FILE"));
        }
        Ok(Log { vm: vm.to_owned(), file: file.into() })
    }
}

/// All files of one VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfVm {
    pub vm: String,
    pub files: Vec<PathBuf>,
}

/// The VMs in the order in which they were named first, each with its files.
///
/// # Errors
/// `Usage` for a file that is given twice, and for a folder of scrapes beside other files of the same VM.
pub fn by_vm(logs: &[Log]) -> Result<Vec<OfVm>, Fault> {
    let mut all: Vec<OfVm> = Vec::new();
    for log in logs {
        let at = all.iter().position(|of| of.vm == log.vm).unwrap_or_else(|| {
            all.push(OfVm { vm: log.vm.clone(), files: Vec::new() });
            all.len() - 1
        });
        let twice = all[at].files.iter().find(|file| **file == log.file || same(file, &log.file));
        if let Some(file) = twice {
            let what = format!("VM {:?}: {} is given twice", log.vm, file.display());
            return Err(
                Fault::new(FaultKind::Usage, what).help("its requests would count twice: give it once")
            );
        }
        all[at].files.push(log.file.clone());
    }
    let scrapes = |file: &PathBuf| file.is_dir() || is_server(file);
    let mixed = all.iter().find(|of| of.files.len() > 1 && of.files.iter().any(scrapes));
    match mixed {
        None => Ok(all),
        Some(of) => Err(Fault::new(FaultKind::Usage, format!("VM {:?} has scrapes and another file", of.vm))
            .help("give either logs, or one folder of scrapes, or one Prometheus server for each VM")),
    }
}

fn same(a: &Path, b: &Path) -> bool {
    a.canonicalize().ok().zip(b.canonicalize().ok()).is_some_and(|(a, b)| a == b)
}

/// The requests of a VM that are of these times (ns since 1970). Says on standard error what it assumed and what it passed over.
///
/// # Errors
/// As [`access_log::read`].
pub fn read(of: &OfVm, said: &Said, times: &[(u64, u64)], allow_odd: bool) -> Result<access_log::Log, Fault> {
    let files: Vec<&Path> = of.files.iter().map(PathBuf::as_path).collect();
    let log = access_log::read(&files, said, times, allow_odd)?;
    log.files.iter().flat_map(notes).for_each(|note| crate::text::note(&note));
    Ok(log)
}

/// What a person should know of a file.
fn notes(file: &Summary) -> Vec<String> {
    let name = file.file.display();
    let mut notes = Vec::new();
    if file.is_unit_assumed {
        notes.push(format!(
            "{name}: durations are taken as {}: {}. Say it with --unit",
            file.unit, file.about
        ));
    }
    if file.lacks_zone {
        notes.push(format!("{name}: times without a zone are taken as UTC. Say the zone with --zone"));
    }
    let lines = |n: u64| counted(usize::try_from(n).unwrap_or(usize::MAX), "line");
    if file.skipped > 0 {
        notes.push(format!("{name}: skipped {} in another format", lines(file.skipped)));
    }
    if file.others > 0 {
        notes.push(format!("{name}: passed over {} without a request or its duration", lines(file.others)));
    }
    notes
}

/// Is the log of the time of a recording?
///
/// # Errors
/// As [`checked_clock`].
pub fn of_the_time(of: &OfVm, log: &access_log::Log, span_ns: (u64, u64)) -> Result<(), Fault> {
    let ended_ns = log.ended_ns.unwrap_or_default();
    checked_clock(&of.name(), log.all, ended_ns, span_ns)
}

/// Can the durations be right, beside what the VM did? A warning goes to standard error.
///
/// # Errors
/// As [`plausible::check`].
pub fn plausible(of: &OfVm, log: &access_log::Log, seen: &plausible::Seen) -> Result<(), Fault> {
    let Some((unit, sure)) = log.unit else { return Ok(()) };
    let warning = plausible::check(&of.name(), unit, sure, seen)?;
    warning.iter().for_each(crate::text::note);
    Ok(())
}

impl OfVm {
    /// The files, for people.
    fn name(&self) -> String {
        let names: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        names.join(" and ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_somebodys() {
        assert_eq!("web=/l".parse(), Ok(Log { vm: "web".into(), file: "/l".into() }));
        assert!("web".parse::<Log>().unwrap_err().contains("VM=FILE"));
    }

    #[test]
    fn logs_of_a_vm_are_joined_and_none_counts_twice() {
        let of = |all: &[&str]| by_vm(&all.iter().map(|text| text.parse().unwrap()).collect::<Vec<Log>>());
        let all = of(&["web=/1", "db=/2", "web=/3"]).unwrap();
        assert_eq!(all[0], OfVm { vm: "web".into(), files: vec!["/1".into(), "/3".into()] });
        assert_eq!(all[1].vm, "db");
        assert!(of(&["web=/1", "web=/1"]).unwrap_err().to_string().contains("given twice"));
        assert!(of(&["web=/", "web=/1"]).unwrap_err().to_string().contains("has scrapes and another file"));
        assert!(
            of(&["web=http://h:9090", "web=/1"]).unwrap_err().to_string().contains("one Prometheus server")
        );
        // One file may be of two VMs behind one server.
        assert!(of(&["web=/1", "db=/1"]).is_ok());
    }
}
