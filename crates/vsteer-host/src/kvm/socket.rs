//! Connects to a UNIX socket on which a VM's own process listens.
//!
//! Any user can start a process that looks like a VM's and name any socket on its command line. So the socket
//! and the process that answers must belong to the user of the VM's process or to root (libvirt opens some
//! sockets and passes them to QEMU), and connecting never waits.
//!
//! Left out: the peer may be another process of the same user.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;

/// Connects to the socket at `path`. Fails unless the socket, and the process that listens there, belong to `user` or
/// root.
///
/// # Errors
/// A sentence without a subject ("belongs to another user"), for a caller that names the socket.
pub fn connect(path: &str, user: u32) -> Result<UnixStream, String> {
    // If the path belongs to another mount namespace, or another user owns its folder, this simply fails.
    let cannot = |e: &dyn std::fmt::Display| format!("cannot be connected to: {e}");
    let there = std::fs::symlink_metadata(path).map_err(|e| cannot(&e))?;
    if !there.file_type().is_socket() {
        return Err("is not a socket".to_owned());
    }
    let may = |who: u32| who == user || who == 0;
    if !may(there.uid()) {
        return Err("belongs to another user".to_owned());
    }
    let stream = without_waiting(path).map_err(|e| cannot(&e))?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).map_err(|e| cannot(&e))?;
    if !may(peer.uid.as_raw()) {
        return Err("is served by another user's process".to_owned());
    }
    Ok(stream)
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
        // Root's own sockets are allowed for every VM, so root gives this one away.
        let own =
            if rustix::process::geteuid().is_root() { 65_534 } else { rustix::process::geteuid().as_raw() };
        std::os::unix::fs::chown(&path, Some(own), None).unwrap();
        let at = |path: &std::path::Path, user| connect(path.to_str().unwrap(), user).map(|_| ());
        assert_eq!(at(&path, own), Ok(()));
        assert_eq!(at(&path, own + 1), Err("belongs to another user".to_owned()));
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
        let held: Vec<_> = (0..5000).map_while(|_| connect(path.to_str().unwrap(), own).ok()).collect();
        assert!(held.len() < 5000, "the listener takes no connection, so its queue fills");
        assert!(begun.elapsed().as_secs() < 5);
    }
}
