//! Is the VM opted in? The guest's agent (`vsteer-guest vit-agent`) keeps one byte in a file, which this library maps,
//! so a check costs one load.

use std::ffi::{CStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering::Relaxed};

/// Default path of the agent's file; `VSTEER_VIT_FLAG` names another.
const FILE: &CStr = c"/run/vsteer/vit";
/// Value of the byte while the VM is opted in.
const ON: u8 = b'1';

static BYTE: AtomicPtr<AtomicU8> = AtomicPtr::new(std::ptr::null_mut());

/// Is the VM opted in now?
pub fn is_set() -> bool {
    let byte = BYTE.load(Relaxed);
    // SAFETY: it is null, or the first byte of a page that stays mapped.
    #[allow(unsafe_code)]
    unsafe { byte.as_ref() }.is_some_and(|byte| byte.load(Relaxed) == ON)
}

/// Maps the file, once. Without the file the library tells the host nothing.
pub fn find() {
    let named = std::env::var_os("VSTEER_VIT_FLAG").map(OsString::into_vec);
    let named = named.and_then(|bytes| std::ffi::CString::new(bytes).ok());
    let path = named.as_deref().unwrap_or(FILE);
    // SAFETY: plain system calls; a file that is shorter than a byte is not looked into, and one that is cut off later
    // is the agent's own, which never does so.
    #[allow(unsafe_code)]
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return;
        }
        let mut about: libc::stat = std::mem::zeroed();
        if libc::fstat(file, &raw mut about) == 0 && about.st_size > 0 {
            let page = libc::mmap(std::ptr::null_mut(), 1, libc::PROT_READ, libc::MAP_SHARED, file, 0);
            if page != libc::MAP_FAILED {
                BYTE.store(page.cast(), Relaxed);
            }
        }
        libc::syscall(libc::SYS_close, file);
    }
}
