//! Which log holds which VM's requests? Parses `VM=FILE` on the command line.

use std::path::PathBuf;
use std::str::FromStr;
use vsteer_core::Fault;
use vsteer_core::plural::counted;
use vsteer_core::requests::Answered;
use vsteer_record::access_log::{self, Request, checked_clock};

/// A VM's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    pub vm: String,
    pub file: PathBuf,
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

/// All requests of a log. Says on standard error how many lines hold none.
///
/// # Errors
/// As [`access_log::read`].
pub fn read(log: &Log, named: Option<&str>) -> Result<Vec<Answered>, Fault> {
    let (all, odd) = access_log::read(&log.file, named)?;
    if odd > 0 {
        let lines = counted(odd, "line");
        eprintln!("vsteer: {}: skipped {lines} in another format", log.file.display());
    }
    Ok(all)
}

/// That a log is of the time of a recording.
///
/// # Errors
/// As [`checked_clock`].
pub fn of_the_time(log: &Log, requests: &[Answered], span_ns: (u64, u64)) -> Result<(), Fault> {
    let all: Vec<Request> =
        requests.iter().map(|r| Request { ended_ns: r.began_ns + r.took_ns, took_ns: r.took_ns }).collect();
    checked_clock(&log.file.display().to_string(), &all, span_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_somebodys() {
        assert_eq!("web=/l".parse(), Ok(Log { vm: "web".into(), file: "/l".into() }));
        assert!("web".parse::<Log>().unwrap_err().contains("VM=FILE"));
    }
}
