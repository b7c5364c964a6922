//! Connects to a UNIX socket on which a VM's own process listens.
//!
//! Any user can start a process that looks like a VM's and name any socket on its command line. So the socket
//! and the process that answers must belong to the user of the VM's process or to root (libvirt opens some
//! sockets and passes them to QEMU), and connecting never waits.
//!
//! Left out: the peer may be another process of the same user.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;

/// Connects to the socket at `path` of the process `pid` of `user`. Fails unless the socket belongs to that user or
/// root, and listens for a process of that user, for `pid` itself (which may have been root when it began to listen), or
/// for a libvirt of root's.
///
/// # Errors
/// A sentence without a subject ("belongs to another user"), for a caller that names the socket.
pub fn connect(path: &str, user: u32, pid: u32) -> Result<UnixStream, String> {
    // If the path belongs to another mount namespace, or another user owns its folder, this simply fails.
    let cannot = |e: &dyn std::fmt::Display| format!("cannot be connected to: {e}");
    let there = std::fs::symlink_metadata(path).map_err(|e| cannot(&e))?;
    if !there.file_type().is_socket() {
        return Err("is not a socket".to_owned());
    }
    if there.uid() != user && there.uid() != 0 {
        return Err("belongs to another user".to_owned());
    }
    let stream = without_waiting(path).map_err(|e| cannot(&e))?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).map_err(|e| cannot(&e))?;
    let server = peer.pid.as_raw_nonzero().get() as u32;
    let may = peer.uid.as_raw() == user || (peer.uid.is_root() && (server == pid || is_libvirt(server)));
    if !may {
        return Err("is served by another user's process".to_owned());
    }
    Ok(stream)
}

/// Is this process of root's a libvirt? Nobody else can name a process of root's.
fn is_libvirt(pid: u32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    matches!(name.trim_end(), "libvirtd" | "virtqemud")
}

/// A listener whose queue is full would block an ordinary connection for ever.
fn without_waiting(path: &str) -> std::io::Result<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_sockets_of_that_user() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        let (own, pid) = (rustix::process::geteuid().as_raw(), std::process::id());
        let at = |path: &std::path::Path, user| connect(path.to_str().unwrap(), user, pid).map(|_| ());
        assert_eq!(at(&path, own), Ok(()));
        if own == 0 {
            // This process is the VM's, which was root when it began to listen; then it is another one of root's.
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            assert_eq!(at(&path, 65_534), Ok(()));
            let other = connect(path.to_str().unwrap(), 65_534, pid + 1).map(|_| ());
            assert_eq!(other, Err("is served by another user's process".to_owned()));
            assert_eq!(at(&path, 65_533), Err("belongs to another user".to_owned()));
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        } else {
            assert_eq!(at(&path, own + 1), Err("belongs to another user".to_owned()));
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(at(&link, own), Err("is not a socket".to_owned()));
        assert!(at(&folder.path().join("none"), own).unwrap_err().contains("cannot be connected to"));
    }

    #[test]
    fn a_full_queue_is_no_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let begun = std::time::Instant::now();
        let held: Vec<_> =
            (0..5000).map_while(|_| connect(path.to_str().unwrap(), own, std::process::id()).ok()).collect();
        assert!(held.len() < 5000, "the listener takes no connection, so its queue fills");
        assert!(begun.elapsed().as_secs() < 5);
    }
}
