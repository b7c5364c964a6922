//! Reads a password from the kernel's keyring, which keeps it in memory until the machine restarts.
//!
//! The key has type "user" and the description `vsteer:vsphere://USER@HOST:PORT`. The caller's session or
//! user keyring holds it. The kernel gives it only to processes of its owner and never writes it to disk. It
//! needs no service and no library. The keyrings of desktops (the Secret Service) need both, and servers do
//! not have them. keyctl(1) stores the key:
//!
//! ```text
//! keyctl padd user vsteer:vsphere://root@esx1:443 @u < password-file
//! ```
//!
//! Source: request_key(2), keyctl_read(3), keyrings(7). Left out: keys that survive a restart of the machine.

use super::Place;
use vsteer_core::{Fault, FaultKind};

/// The longest accepted password, bytes.
const LONGEST: usize = 4096;
const KEYCTL_READ: libc::c_long = 11;

/// The description of the key.
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
    // A key that was filled from a file may end with a newline.
    Ok(Some(text.lines().next().unwrap_or_default().to_owned()))
}

#[allow(unsafe_code)]
fn read(name: &str) -> std::io::Result<Option<Vec<u8>>> {
    let Ok(name) = std::ffi::CString::new(name) else { return Ok(None) };
    // SAFETY: both strings end in 0 and live through the call. There is no callout and no keyring to link the
    // key to.
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
            // A kernel without keyrings, or a sandbox that forbids them, has no key.
            Some(libc::ENOKEY | libc::ENOSYS | libc::EPERM) => Ok(None),
            _ => Err(e),
        };
    }
    let mut bytes = vec![0u8; LONGEST + 1];
    // SAFETY: the kernel writes at most the given number of bytes, and the buffer has that length.
    let n = unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_READ, key, bytes.as_mut_ptr(), bytes.len()) };
    let Ok(n) = usize::try_from(n) else { return Err(std::io::Error::last_os_error()) };
    // The kernel returns the length of the key, even if the key is longer than the buffer.
    bytes.truncate(n.min(LONGEST + 1));
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `KEY_SPEC_PROCESS_KEYRING` of linux/keyctl.h: this keyring ends with the test process.
    const PROCESS: libc::c_long = -2;

    #[allow(unsafe_code)]
    fn put(name: &str, bytes: &[u8]) -> bool {
        let name = std::ffi::CString::new(name).unwrap();
        // SAFETY: as in `read`; the buffer has this number of bytes.
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
