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

use super::socket;
use crate::linux::task::{self, text};
use crate::root::Root;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::time::Instant;
use vsteer_core::limits;
use vsteer_core::nouns::Tid;

/// The vCPU of each thread of the process `pid`, from its monitor at `path`.
///
/// Any user can start a process that looks like a QEMU. So vsteer connects as [`socket::connect`] says, and the
/// answer has a limit in bytes and in total time.
///
/// # Errors
/// A sentence with the reason: another client is connected, the monitor does not answer, or it answers
/// something else.
pub fn vcpu_threads(root: &Root, pid: u32, path: &str) -> Result<BTreeMap<Tid, u32>, String> {
    let sockets = text(root, "/proc/net/unix").ok_or("vsteer cannot read /proc/net/unix")?;
    if is_taken(&sockets, path) {
        return Err(format!("another program is connected to its monitor {path}"));
    }
    let user = task::user(root, pid).ok_or("vsteer cannot read whose process it is")?;
    ask(path, user, pid, Instant::now() + limits::MONITOR_TIME)
}

fn ask(path: &str, user: u32, pid: u32, end: Instant) -> Result<BTreeMap<Tid, u32>, String> {
    let mut stream = socket::connect(path, user, pid).map_err(|why| format!("its monitor {path} {why}"))?;
    let late = |e: std::io::Error| format!("its monitor {path} does not answer: {e}");
    let request = "{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"query-cpus-fast\",\"id\":\"vsteer\"}\n";
    let (mut unread, mut total, mut lines, mut asked) = (Vec::new(), 0, 0, false);
    let mut bytes = [0; 4096];
    while total < limits::MONITOR_BYTES && lines < limits::MONITOR_LINES {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        stream.set_read_timeout(Some(left)).map_err(late)?;
        let n = stream.read(&mut bytes).map_err(late)?;
        if n == 0 {
            return Err("its monitor closed the connection".to_owned());
        }
        total += n;
        unread.extend_from_slice(&bytes[..n]);
        while let Some(at) = unread.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = unread.drain(..=at).collect();
            lines += 1;
            // The first line is the monitor's greeting.
            if !asked {
                stream.set_write_timeout(Some(left)).map_err(late)?;
                stream.write_all(request.as_bytes()).map_err(late)?;
                asked = true;
            } else if let Some(all) = cpus(&String::from_utf8_lossy(&line)) {
                return Ok(all);
            }
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
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    /// Serves one client by `serve`, and asks it as `user`.
    fn asked(
        user: u32,
        serve: impl FnOnce(UnixStream) + Send,
    ) -> (Result<BTreeMap<Tid, u32>, String>, Duration) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("qmp");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                listener.set_nonblocking(true).unwrap();
                while begun.elapsed() < Duration::from_secs(5) {
                    if let Ok((stream, _)) = listener.accept() {
                        stream.set_nonblocking(false).unwrap();
                        return serve(stream);
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            let said =
                ask(path.to_str().unwrap(), user, std::process::id(), Instant::now() + limits::MONITOR_TIME);
            let took = begun.elapsed();
            if said.is_err() {
                // It may not have been asked at all.
                let _ = UnixStream::connect(&path);
            }
            server.join().unwrap();
            (said, took)
        })
    }

    fn own() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn a_monitor_answers() {
        let serve = |mut stream: UnixStream| {
            let _ = stream.write_all(b"{\"QMP\": {}}\n");
            let _ = stream.read(&mut [0; 1000]);
            let _ = stream.write_all(b"{\"return\": {}}\n{\"event\": 1}\n{\"return\":[{\"cpu-index\":0,\"thread-id\":71}],\"id\":\"vsteer\"}\n");
        };
        assert_eq!(asked(own(), serve).0.unwrap(), BTreeMap::from([(Tid(71), 0)]));
    }

    #[test]
    fn one_that_drips_or_floods_is_left_alone_in_time() {
        let drip = |mut stream: UnixStream| {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(3) && stream.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        let flood = |mut stream: UnixStream| while stream.write_all(&[b'x'; 65_536]).is_ok() {};
        let lines = |mut stream: UnixStream| while stream.write_all(b"{}\n{}\n{}\n").is_ok() {};
        for (said, took) in [asked(own(), drip), asked(own(), flood), asked(own(), lines)] {
            assert!(said.is_err() && took < 3 * limits::MONITOR_TIME, "{said:?} {took:?}");
        }
    }

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
