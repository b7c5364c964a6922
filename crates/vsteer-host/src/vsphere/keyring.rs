//! Where may a password lie without lying in a file? In the kernel's keyring, until the machine restarts.
//!
//! A key of type "user", described as `vsteer:vsphere://USER@HOST:PORT`, that the caller's session or user keyring
//! holds. The kernel gives it to its owner's processes alone and writes it nowhere. It needs no service and no
//! library: keyrings of desktops (the Secret Service) need both, and are not there on a server. keyctl(1) puts it
//! there:
//!
//! ```text
//! keyctl padd user vsteer:vsphere://root@esx1:443 @u < password-file
//! ```
//!
//! Source: request_key(2), keyctl_read(3), keyrings(7). Left out: keys for longer than the machine runs.

use super::Place;
use vsteer_core::{Fault, FaultKind};

/// No password is longer, bytes.
const LONGEST: usize = 4096;
const KEYCTL_READ: libc::c_long = 11;

/// What the key is called.
pub fn key_of(place: &Place) -> String {
    format!("vsteer:{place}")
}

/// The password stored there; `None` if the key does not exist.
///
/// # Errors
/// `NoPrivilege` for a key that this user may not read or that has expired; `BadInput` for one that is not text.
pub fn password(place: &Place) -> Result<Option<String>, Fault> {
    let name = key_of(place);
    let what = || format!("cannot read the key {name:?} of the kernel's keyring");
    let Some(bytes) = read(&name).map_err(|e| Fault::io(what(), &e))? else { return Ok(None) };
    if bytes.len() > LONGEST {
        return Err(Fault::new(FaultKind::BadInput, what()).because("the key is too long for a password"));
    }
    let text = String::from_utf8(bytes).map_err(|e| Fault::new(FaultKind::BadInput, what()).because(e))?;
    // What was read from a file may have its line's end.
    Ok(Some(text.lines().next().unwrap_or_default().to_owned()))
}

#[allow(unsafe_code)]
fn read(name: &str) -> std::io::Result<Option<Vec<u8>>> {
    let Ok(name) = std::ffi::CString::new(name) else { return Ok(None) };
    // SAFETY: both strings end in 0 and live through the call; no callout, no keyring to link it to.
    let key = unsafe {
        libc::syscall(
            libc::SYS_request_key,
            c"user".as_ptr(),
            name.as_ptr(),
            std::ptr::null::<libc::c_char>(),
            0 as libc::c_long,
        )
    };
    if key < 0 {
        let e = std::io::Error::last_os_error();
        return match e.raw_os_error() {
            // A kernel without keyrings, or a sandbox that has none, has no key.
            Some(libc::ENOKEY | libc::ENOSYS | libc::EPERM) => Ok(None),
            _ => Err(e),
        };
    }
    let mut bytes = vec![0u8; LONGEST + 1];
    // SAFETY: the kernel writes at most as many bytes as are said, and they are there.
    let n = unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_READ, key, bytes.as_mut_ptr(), bytes.len()) };
    let Ok(n) = usize::try_from(n) else { return Err(std::io::Error::last_os_error()) };
    // It says how long the key is, also where that is more than there was room for.
    bytes.truncate(n.min(LONGEST + 1));
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `KEY_SPEC_PROCESS_KEYRING` of linux/keyctl.h: it ends with the test.
    const PROCESS: libc::c_long = -2;

    #[allow(unsafe_code)]
    fn put(name: &str, bytes: &[u8]) -> bool {
        let name = std::ffi::CString::new(name).unwrap();
        // SAFETY: as `read`; the buffer has this number of bytes.
        let key = unsafe {
            libc::syscall(
                libc::SYS_add_key,
                c"user".as_ptr(),
                name.as_ptr(),
                bytes.as_ptr(),
                bytes.len(),
                PROCESS,
            )
        };
        key >= 0
    }

    #[test]
    #[ignore = "needs a keyring that may be written, which some containers refuse"]
    fn what_was_put_there_is_found() {
        let place = |host: &str| Place { user: "root".into(), host: host.into(), port: 443 };
        assert_eq!(password(&place("vsteer-test-nobody.invalid")).unwrap(), None);
        let there = place("vsteer-test.invalid");
        assert!(put(&key_of(&there), b"pa ss\n"), "{}", std::io::Error::last_os_error());
        assert_eq!(password(&there).unwrap().as_deref(), Some("pa ss"));
        assert!(put(&key_of(&there), &[0xff, 0xfe]));
        assert_eq!(password(&there).unwrap_err().kind, FaultKind::BadInput);
    }
}
