//! Tells systemd that this process is ready, if systemd started it as a service of `Type=notify`.
//!
//! The protocol is sd_notify(3): a datagram to the socket that `NOTIFY_SOCKET` names.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Without systemd this does nothing. What fails here must not end the service.
pub fn ready() {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET") {
        let _ = tell(&socket, b"READY=1");
    }
}

fn tell(socket: &OsStr, what: &[u8]) -> std::io::Result<()> {
    let to = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(socket)?,
        _ => return Ok(()),
    };
    UnixDatagram::unbound()?.send_to_addr(what, &to).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_by_path_and_abstract_ones_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("vsteer-test-{}", std::process::id());
        let by_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (at, socket) in [
            (path.clone().into_os_string(), UnixDatagram::bind(&path).unwrap()),
            (format!("@{name}").into(), UnixDatagram::bind_addr(&by_name).unwrap()),
        ] {
            tell(&at, b"READY=1").unwrap();
            let mut heard = [0; 16];
            let n = socket.recv(&mut heard).unwrap();
            assert_eq!(&heard[..n], b"READY=1");
        }
        assert!(tell(folder.path().join("gone").as_os_str(), b"READY=1").is_err());
    }
}
