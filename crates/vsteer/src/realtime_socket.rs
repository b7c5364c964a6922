//! The socket of the realtime service, and what it reports about the timers of VMs.

use rustix::process::Pid;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vsteer_core::nouns::{TimerCounts, VmId};

/// Who samples does not wait longer.
const TELLS_WITHIN: Duration = Duration::from_millis(500);

/// The folder of the socket and of the log.
pub fn folder() -> PathBuf {
    let journals = vsteer_act::journal_folder();
    journals.parent().map_or_else(|| journals.clone(), Path::to_owned)
}

pub fn socket() -> PathBuf {
    folder().join("realtime.sock")
}

/// Connects to the service, if one runs.
///
/// # Errors
/// When none listens, or its process cannot be asked for.
pub fn connect() -> std::io::Result<(UnixStream, Pid)> {
    let stream = UnixStream::connect(socket())?;
    let pid = rustix::net::sockopt::socket_peercred(&stream)?.pid;
    Ok((stream, pid))
}

/// What the timers of VMs asked for and got, where a service puts them first; nobody's where none does, or does not say.
pub fn timer_counts() -> BTreeMap<VmId, TimerCounts> {
    let told = connect().ok().and_then(|(mut stream, _)| {
        let mut told = String::new();
        stream.set_read_timeout(Some(TELLS_WITHIN)).ok()?;
        stream.read_to_string(&mut told).ok()?;
        serde_json::from_str::<Value>(&told).ok()
    });
    let of = |vm: &Value| {
        let id = VmId(vm["id"].as_str()?.to_owned().into());
        Some((id, TimerCounts::deserialize(&vm["timers"]).ok()?))
    };
    told.iter().filter_map(|t| t["vms"].as_array()).flatten().filter_map(of).collect()
}
