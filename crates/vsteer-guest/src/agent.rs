//! Has the host opted this VM in? It says so through a port of virtio-serial, a word and a line's end; programs read it from a byte that
//! they have mapped ([`FLAG`]).
//!
//! When the host's end is closed, as it is when whoever listened there ends, the VM is opted in no more.
//!
//! Left out: fw_cfg, which cannot change while the VM runs.

use std::convert::Infallible;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// The port's name, as the VM's definition has it.
const NAME: &str = "org.vsteer.realtime.0";
/// Where udev puts ports by their names, and where the kernel itself tells them.
const BY_NAME: &str = "/dev/virtio-ports";
const PORTS: &str = "/sys/class/virtio-ports";
/// What programs look at: `1` or `0`. Never cut off, since it is mapped.
pub const FLAG: &str = "/run/vsteer/vit";
/// Without a host at the other end reading gives nothing, at once.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// So often is a port looked for that is not there.
const LOOKS: u32 = 10;

/// Listens for ever.
///
/// # Errors
/// There is no such port, or the byte cannot be kept.
pub fn run(mut words: impl Iterator<Item = String>) -> Result<Infallible, String> {
    let port = words.next();
    let flag = words.next().unwrap_or_else(|| FLAG.to_owned());
    if words.next().is_some() {
        return Err("vit-agent [PORT [FILE]]".to_owned());
    }
    let kept = keep(Path::new(&flag))?;
    let mut port = open(port.as_deref()).map_err(|(port, e)| match e.kind() {
        ErrorKind::NotFound => format!(
            "the VM has no port {port}: give it a channel of that name (libvirt: <channel type='unix'><target type='virtio' \
             name='org.vsteer.realtime.0'/></channel>), and load virtio_console"
        ),
        _ => format!("{port}: {e}"),
    })?;
    let mut heard = Heard::default();
    // Whoever listens there already says it again.
    let mut asked = false;
    loop {
        if !asked {
            asked = port.write(b"hello\n").is_ok();
        }
        let mut bytes = [0; 64];
        let on = match port.read(&mut bytes) {
            Ok(0) => {
                heard = Heard::default();
                asked = false;
                Some(false)
            }
            Ok(n) => heard.hear(&bytes[..n]),
            Err(e) if e.kind() == ErrorKind::Interrupted => None,
            Err(e) => return Err(format!("reading the port: {e}")),
        };
        if let Some(on) = on {
            kept.write_at(if on { b"1" } else { b"0" }, 0).map_err(|e| format!("{flag}: {e}"))?;
        }
        if on == Some(false) {
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

/// The port, which the kernel tells of some time after the VM began.
fn open(named: Option<&str>) -> Result<File, (String, std::io::Error)> {
    let mut looked = 0;
    loop {
        let port = named.map_or_else(|| port_named(Path::new(PORTS), NAME), str::to_owned);
        match OpenOptions::new().read(true).write(true).open(&port) {
            Ok(file) => return Ok(file),
            Err(e) if e.kind() == ErrorKind::NotFound && looked < LOOKS => std::thread::sleep(LOOK_AGAIN),
            Err(e) => return Err((port, e)),
        }
        looked += 1;
    }
}

/// A port's device: without udev it has no name in `/dev`.
fn port_named(ports: &Path, name: &str) -> String {
    let is_it = |port: &Path| std::fs::read_to_string(port.join("name")).is_ok_and(|n| n.trim() == name);
    let mut all = std::fs::read_dir(ports).into_iter().flatten().flatten().map(|entry| entry.path());
    let device = all.find(|port| is_it(port)).and_then(|port| Some(port.file_name()?.to_str()?.to_owned()));
    // By its name it can be said what is missing.
    device.map_or_else(|| format!("{BY_NAME}/{name}"), |device| format!("/dev/{device}"))
}

/// The byte, off.
fn keep(flag: &Path) -> Result<File, String> {
    let told = |e: std::io::Error| format!("{}: {e}", flag.display());
    if let Some(folder) = flag.parent() {
        std::fs::create_dir_all(folder).map_err(told)?;
    }
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o644).open(flag).map_err(told)?;
    file.write_at(b"0\n", 0).map_err(told)?;
    Ok(file)
}

/// What came in so far of a line.
#[derive(Default)]
struct Heard(Vec<u8>);

impl Heard {
    /// What the last whole word among these says; words that are unknown say nothing.
    fn hear(&mut self, bytes: &[u8]) -> Option<bool> {
        const LONGEST: usize = 16;
        let mut said = None;
        for byte in bytes {
            if *byte != b'\n' {
                self.0.push(*byte);
                self.0.truncate(LONGEST);
                continue;
            }
            match self.0.as_slice() {
                b"on" => said = Some(true),
                b"off" => said = Some(false),
                _ => {}
            }
            self.0.clear();
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_in_pieces_and_the_last_counts() {
        let mut heard = Heard::default();
        assert_eq!(heard.hear(b"o"), None);
        assert_eq!(heard.hear(b"n\n"), Some(true));
        assert_eq!(heard.hear(b"on\noff\n"), Some(false));
        assert_eq!(heard.hear(b"once\nONLY\non"), None);
        assert_eq!(heard.hear(b"\n"), Some(true));
        assert_eq!(heard.hear(&[b'x'; 1000]), None);
        assert_eq!(heard.hear(b"\non\n"), Some(true));
    }

    #[test]
    fn a_port_is_found_by_its_name() {
        let folder = std::env::temp_dir().join(format!("vsteer-ports-{}", std::process::id()));
        for (device, name) in
            [("vport0p1", "org.qemu.guest_agent.0\n"), ("vport0p2", "org.vsteer.realtime.0\n")]
        {
            std::fs::create_dir_all(folder.join(device)).unwrap();
            std::fs::write(folder.join(device).join("name"), name).unwrap();
        }
        assert_eq!(port_named(&folder, NAME), "/dev/vport0p2");
        assert_eq!(port_named(&folder, "another"), "/dev/virtio-ports/another");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_byte_is_kept_in_place() {
        let folder = std::env::temp_dir().join(format!("vsteer-agent-{}", std::process::id()));
        let flag = folder.join("vit");
        let one = keep(&flag).unwrap();
        one.write_at(b"1", 0).unwrap();
        assert_eq!(std::fs::read(&flag).unwrap(), b"1\n");
        keep(&flag).unwrap();
        assert_eq!(std::fs::read(&flag).unwrap(), b"0\n");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
