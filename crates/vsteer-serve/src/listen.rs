//! Where does the service listen? On a Unix socket whose file says who may connect, and on addresses.

use crate::options::Options;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, lchown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use vsteer_core::{Fault, FaultKind};

/// Members of this group can connect to the socket.
pub const GROUP: &str = "vsteer";
const GROUPS: &str = "/etc/group";
/// The socket's name if the service has none.
const NONE: &str = "none";

/// A place where clients connect.
pub enum Place {
    /// A socket of this machine.
    Unix(UnixListener),
    /// An address.
    Tcp(TcpListener),
}

/// The socket's path; `None` if there is none.
pub fn socket_of(options: &Options) -> Option<&Path> {
    Some(options.socket.as_path()).filter(|path| path.as_os_str() != NONE)
}

/// Listens at all places. Nobody is answered yet.
///
/// # Errors
/// When the options name no place, or one that is taken or not allowed.
pub fn all(options: &Options) -> Result<Vec<Place>, Fault> {
    let mut all = Vec::new();
    for address in &options.listen {
        let listener = TcpListener::bind(address);
        let listener = listener.map_err(|e| Fault::io(format!("cannot listen on {address}"), &e))?;
        all.push(Place::Tcp(listener));
    }
    // Last: a failure above leaves no file.
    if let Some(path) = socket_of(options) {
        all.push(Place::Unix(socket(path)?));
    }
    if all.is_empty() {
        return Err(Fault::new(FaultKind::Usage, "the service has neither a socket nor an address")
            .help("leave out --socket none, or add --listen 127.0.0.1:9177 --tokens FILE"));
    }
    Ok(all)
}

/// A socket that root and the group may open. The socket of a service that is gone is replaced.
fn socket(path: &Path) -> Result<UnixListener, Fault> {
    let failed = |e: std::io::Error| Fault::io(format!("cannot listen on {}", path.display()), &e);
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    if std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket()) {
        if UnixStream::connect(path).is_ok() {
            let what = format!("cannot listen on {}: another service answers there", path.display());
            return Err(Fault::new(FaultKind::Failed, what).help("stop it, or choose another --socket"));
        }
        std::fs::remove_file(path).map_err(failed)?;
    }
    // The socket is made with its permissions, and its group changes without following a link. So where others can write to the
    // folder, a link in place of the socket gives them nothing.
    let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o117));
    let listener = UnixListener::bind(path);
    rustix::process::umask(umask);
    let listener = listener.map_err(failed)?;
    if let Some(group) = group(&std::fs::read_to_string(GROUPS).unwrap_or_default(), GROUP) {
        // A user who is not root and not in the group cannot give it the file. Then the owner alone connects.
        let _ = lchown(path, None, Some(group));
    }
    Ok(listener)
}

/// The number of a group, by the text of /etc/group. A group that only a directory service knows is not found.
fn group(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

/// Removes the socket's file when the service ends.
pub struct Socket(pub Option<PathBuf>);

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_group_is_found_by_its_whole_name() {
        let text = "root:x:0:\nvsteers:x:7:\nvsteer:x:993:ann,bob\n";
        assert_eq!(group(text, GROUP), Some(993));
        assert_eq!(group("vsteer\n", GROUP), None);
    }

    #[test]
    fn a_socket_that_nobody_answers_is_replaced_and_one_in_use_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/serve.sock");
        let first = socket(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        assert!(socket(&path).unwrap_err().what.contains("another service answers"));
        drop(first);
        drop(socket(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "a file of somebody").unwrap();
        assert!(socket(&path).is_err());
    }
}
