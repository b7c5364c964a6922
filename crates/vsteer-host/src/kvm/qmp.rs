//! Asks the VM's own monitor which threads run vCPUs (`query-cpus-fast`), if the threads' names do not say
//! so.
//!
//! A monitor serves one client at a time. libvirt and Proxmox hold theirs, and a second client would take
//! their place or wait forever. So vsteer asks only a VM without a manager, only on a socket without a client
//! (`/proc/net/unix`), and waits at most half a second.
//!
//! Source: `docs/interop/qmp-spec.txt` (QEMU 7.2).
//!
//! Left out: monitors over TCP, and everything else a monitor could report.

use crate::linux::task::text;
use crate::root::Root;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use vsteer_core::nouns::Tid;

const LIMIT: Duration = Duration::from_millis(500);
/// The most lines to read before the answer. A monitor sends fewer, even with events in between.
const LINES_MAX: usize = 200;

/// The vCPU of each thread, from the monitor at `path`.
///
/// # Errors
/// A sentence with the reason: another client is connected, the monitor does not answer, or it answers
/// something else.
pub fn vcpu_threads(root: &Root, path: &str) -> Result<BTreeMap<Tid, u32>, String> {
    let sockets = text(root, "/proc/net/unix").ok_or("vsteer cannot read /proc/net/unix")?;
    if is_taken(&sockets, path) {
        return Err(format!("another program is connected to its monitor {path}"));
    }
    // If the path belongs to another mount namespace, or another user owns its folder, the connection simply
    // fails.
    let mut stream =
        UnixStream::connect(path).map_err(|e| format!("cannot connect to its monitor {path}: {e}"))?;
    let late = |e: std::io::Error| format!("its monitor {path} does not answer: {e}");
    stream.set_read_timeout(Some(LIMIT)).map_err(late)?;
    stream.set_write_timeout(Some(LIMIT)).map_err(late)?;
    let request = "{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"query-cpus-fast\",\"id\":\"vsteer\"}\n";
    let begun = Instant::now();
    let mut lines = BufReader::new(stream.try_clone().map_err(late)?).lines();
    lines.next().ok_or("its monitor closed the connection")?.map_err(late)?; // The monitor's greeting.
    stream.write_all(request.as_bytes()).map_err(late)?;
    for line in lines.take(LINES_MAX) {
        if let Some(all) = cpus(&line.map_err(late)?) {
            return Ok(all);
        }
        if begun.elapsed() > LIMIT {
            break;
        }
    }
    Err(format!("its monitor {path} does not report its vCPUs"))
}

/// The answer to `query-cpus-fast`; `None` for any other line.
pub fn cpus(line: &str) -> Option<BTreeMap<Tid, u32>> {
    let answer: Value = serde_json::from_str(line).ok()?;
    if answer.get("id")?.as_str()? != "vsteer" {
        return None;
    }
    let mut all = BTreeMap::new();
    for cpu in answer.get("return")?.as_array()? {
        let number = |key: &str| cpu.get(key).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
        all.insert(Tid(number("thread-id")?), number("cpu-index")?);
    }
    Some(all)
}

/// Does this text of `/proc/net/unix` show an established connection at this path (state 03, `man 5 proc`)?
pub fn is_taken(sockets: &str, path: &str) -> bool {
    sockets.lines().any(|line| {
        let mut words = line.split_ascii_whitespace();
        let state = words.nth(5);
        // The inode stands between them. The path is the rest of the line and may contain spaces.
        let at = words.next().and_then(|inode| line.rsplit_once(&format!("{inode} "))).map(|(_, p)| p);
        state == Some("03") && at == Some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers() {
        let line = r#"{"return":[{"cpu-index":0,"thread-id":71,"qom-path":"/m"},{"cpu-index":1,"thread-id":72}],"id":"vsteer"}"#;
        assert_eq!(cpus(line), Some(BTreeMap::from([(Tid(71), 0), (Tid(72), 1)])));
        assert_eq!(cpus(r#"{"return":{}}"#), None);
        let sockets = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 20453 /tmp/a b\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 20454 /tmp/c d\n";
        assert!(is_taken(sockets, "/tmp/c d") && !is_taken(sockets, "/tmp/a b"));
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_skipped(s in "\\PC{0,60}") {
            let _ = (cpus(&s), cpus(&format!("{{\"id\":\"vsteer\",\"return\":[{s}]}}")), is_taken(&s, "/tmp/a"));
        }
    }
}
