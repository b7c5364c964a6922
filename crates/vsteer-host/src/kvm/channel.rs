//! Informs a guest that its host serves its timers, through a virtio-serial port with this name, if the VM
//! has one.
//!
//! QEMU listens for the host's end on a Unix socket. libvirt names the socket after the port. A person who
//! starts QEMU by hand writes `-chardev socket,path=…/org.vsteer.realtime.0,server=on,wait=off`. So vsteer
//! finds the socket by its name among the sockets of the VM's process, whichever manager started it.
//!
//! The VM is opted in while the host's end is open. The guest's agent sees when it closes, for any reason. If
//! an agent starts later, it sends any byte and gets the answer again.
//!
//! Source: `Documentation/filesystems/proc.rst` (Linux 6.12) for `/proc/net/unix`.

use super::socket;
use crate::linux::task;
use crate::root::Root;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use vsteer_core::nouns::{VmConfig, VmId};

/// The name of the port, and of its socket's file.
pub const PORT: &str = "org.vsteer.realtime.0";
const ON: &[u8] = b"on\n";

/// The open channels to the opted-in guests.
#[derive(Default)]
pub struct Channels {
    open: BTreeMap<VmId, UnixStream>,
}

impl Channels {
    /// Opens the channels of these guests, if they have one, and closes all others.
    pub fn tell<'a>(&mut self, root: &Root, vms: impl Iterator<Item = &'a VmConfig>) {
        let mut named = BTreeSet::new();
        for vm in vms {
            named.insert(&vm.id);
            if !self.open.contains_key(&vm.id)
                && let Some(stream) = channel_of(root, vm.pid)
            {
                self.open.insert(vm.id.clone(), stream);
            }
        }
        self.open.retain(|vm, _| named.contains(vm));
    }

    /// Number of guests with an open channel.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// True if no channel is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The descriptors that become readable when an agent starts to listen or a VM is gone.
    pub fn asked(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.open.values().map(AsFd::as_fd)
    }

    /// Answers the guests that ask again, and closes the channels of VMs that are gone.
    pub fn answer(&mut self) {
        self.open.retain(|_, stream| {
            let mut bytes = [0; 256];
            match stream.read(&mut bytes) {
                Ok(0) => false,
                Ok(_) => stream.write_all(ON).is_ok(),
                Err(e) => e.kind() == std::io::ErrorKind::WouldBlock,
            }
        });
    }
}

/// The channel of a VM's process, opened.
fn channel_of(root: &Root, pid: u32) -> Option<UnixStream> {
    let user = task::user(root, pid)?;
    told(socket::connect(&socket_of(root, pid)?, user, pid).ok()?).ok()
}

fn told(mut stream: UnixStream) -> std::io::Result<UnixStream> {
    stream.set_nonblocking(true)?;
    stream.write_all(ON)?;
    Ok(stream)
}

/// The path of the process's socket with the port's name.
fn socket_of(root: &Root, pid: u32) -> Option<String> {
    let sockets = named_sockets(&crate::linux::task::text(root, "/proc/net/unix")?);
    let folder = root.path().join(format!("proc/{pid}/fd"));
    let inodes: BTreeSet<u64> = std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let link = std::fs::read_link(entry.path()).ok()?;
            link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        })
        .collect();
    sockets.into_iter().find(|(inode, _)| inodes.contains(inode)).map(|(_, path)| path)
}

/// Inodes and paths of the sockets in `/proc/net/unix` whose file has the port's name.
fn named_sockets(text: &str) -> Vec<(u64, String)> {
    let line = |line: &str| {
        // Num RefCount Protocol Flags Type St Inode Path. The path may contain blanks.
        let mut rest = line;
        let mut inode = None;
        for field in 0..7 {
            rest = rest.trim_start();
            let (word, after) = rest.split_once(' ')?;
            inode = (field == 6).then(|| word.parse().ok()).flatten().or(inode);
            rest = after;
        }
        let path = rest.trim_end_matches('\n');
        let is_port = Path::new(path).is_absolute() && Path::new(path).file_name().is_some_and(|n| n == PORT);
        is_port.then_some((inode?, path.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    #[test]
    fn sockets_by_their_files_name() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 17530 /run/a b/org.vsteer.realtime.0\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 17531\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 17532 @/org.vsteer.realtime.0\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 17533 /run/other\n";
        assert_eq!(named_sockets(text), [(17530, "/run/a b/org.vsteer.realtime.0".to_owned())]);
    }

    #[test]
    fn a_guest_is_told_again_when_it_asks_and_sees_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(PORT);
        // This test process acts as the VM's process, because it holds the socket.
        let listener = UnixListener::bind(&path).unwrap();
        let root = Root::live().unwrap();
        let found = socket_of(&root, std::process::id()).unwrap();
        assert_eq!(Path::new(&found), path);
        let mut channels = Channels::default();
        channels.open.insert(VmId("x".into()), channel_of(&root, std::process::id()).unwrap());
        let (mut guest, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(guest.try_clone().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "on");
        channels.answer();
        guest.write_all(b"hello\n").unwrap();
        channels.answer();
        assert_eq!((lines.next().unwrap().unwrap(), channels.len()), ("on".to_owned(), 1));
        channels.tell(&root, std::iter::empty());
        assert!(lines.next().is_none() && channels.is_empty());
    }
}
