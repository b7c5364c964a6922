//! Asks Xen's control library what a vCPU does at this moment, which costs one hypercall.
//!
//! libxenctrl belongs to one version of the hypervisor. vsteer loads it by the name of that version only when
//! it is needed, so that vsteer also runs on machines without Xen. It uses two functions of the library,
//! whose form has been the same since Xen 3.
//!
//! Source: Xen 4.17, tools/include/xenctrl.h (`xc_interface_open`, `xc_vcpu_getinfo`),
//! xen/include/public/domctl.h (`struct xen_domctl_getvcpuinfo`), xen/common/domctl.c
//! (`XEN_DOMCTL_getvcpuinfo`).
//!
//! Left out: everything that `xl` also reports.

use libloading::{Library, Symbol};
use std::ffi::{c_int, c_uint, c_void};
use vsteer_core::{Fault, FaultKind};

/// `struct xen_domctl_getvcpuinfo`, filled by the library.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VcpuInfo {
    /// The vCPU's number in its domain.
    pub vcpu: u32,
    /// Nonzero if the vCPU is online.
    pub online: u8,
    /// Nonzero if the vCPU waits for an event.
    pub blocked: u8,
    /// Nonzero if the vCPU is on a pCPU.
    pub running: u8,
    /// CPU time since the vCPU's start, ns.
    pub cpu_time: u64,
    /// The present or last pCPU of the vCPU.
    pub cpu: u32,
}

type Open = unsafe extern "C" fn(*mut c_void, *mut c_void, c_uint) -> *mut c_void;
type Close = unsafe extern "C" fn(*mut c_void) -> c_int;
type GetInfo = unsafe extern "C" fn(*mut c_void, u32, u32, *mut VcpuInfo) -> c_int;

/// The open library.
pub struct Xenctrl {
    library: Library,
    interface: *mut c_void,
    get_info: GetInfo,
}

// SAFETY: the library keeps no state per thread, and `Xenctrl` is used by one thread at a time (`&mut self`).
#[allow(unsafe_code)]
unsafe impl Send for Xenctrl {}

impl Xenctrl {
    /// Loads the library for this version of Xen (`4.17.7`, `4.17.3-pre`) and opens it.
    ///
    /// # Errors
    /// `NothingThere` if that library is not installed; `NoPrivilege` if this process may not ask the
    /// hypervisor.
    #[allow(unsafe_code)]
    pub fn open(version: &str) -> Result<Xenctrl, Fault> {
        let file = file_of(version)?;
        let odd = |e: libloading::Error| {
            Fault::new(FaultKind::NothingThere, format!("cannot use Xen's control library {file}"))
                .because(e)
                .help("install the tools of the running hypervisor, or leave out --collector sampled")
        };
        // SAFETY: a library of the distribution, whose initialisation does nothing.
        let library = unsafe { Library::new(&file) }.map_err(odd)?;
        // SAFETY: xenctrl.h declares both functions with these types.
        let (open, get_info): (Symbol<'_, Open>, Symbol<'_, GetInfo>) = unsafe {
            (
                library.get(b"xc_interface_open\0").map_err(odd)?,
                library.get(b"xc_vcpu_getinfo\0").map_err(odd)?,
            )
        };
        // SAFETY: the library's own documentation calls it usual to pass no loggers and no flags.
        let interface = unsafe { open(std::ptr::null_mut(), std::ptr::null_mut(), 0) };
        if interface.is_null() {
            let why = std::io::Error::last_os_error();
            return Err(Fault::new(
                FaultKind::NoPrivilege,
                "cannot ask the hypervisor for the states of its vCPUs",
            )
            .because(why)
            .help("run as root in Domain-0"));
        }
        let get_info = *get_info;
        Ok(Xenctrl { library, interface, get_info })
    }

    /// The present state of a vCPU; `None` if it no longer exists.
    #[allow(unsafe_code)]
    pub fn vcpu(&mut self, domain: u16, vcpu: u16) -> Option<VcpuInfo> {
        let mut info = VcpuInfo::default();
        // SAFETY: the interface is open as long as `self` exists, and `info` has the layout that the library
        // writes.
        let done = unsafe { (self.get_info)(self.interface, domain.into(), vcpu.into(), &raw mut info) };
        (done == 0).then_some(info)
    }
}

impl Drop for Xenctrl {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: opened by `open`, closed once.
        if let Ok(close) = unsafe { self.library.get::<Close>(b"xc_interface_close\0") } {
            unsafe { close(self.interface) };
        }
    }
}

fn file_of(version: &str) -> Result<String, Fault> {
    let mut parts = version.split(|c: char| !c.is_ascii_digit());
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) if !major.is_empty() && !minor.is_empty() => {
            Ok(format!("libxenctrl.so.{major}.{minor}"))
        }
        _ => Err(Fault::new(
            FaultKind::BadInput,
            format!("`xl info` reports a version that vsteer cannot read: {version:?}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_that_of_the_hypervisor() {
        assert_eq!(file_of("4.17.7").unwrap(), "libxenctrl.so.4.17");
        assert_eq!(file_of("4.20-unstable").unwrap(), "libxenctrl.so.4.20");
        assert!(file_of("?").is_err() && file_of("4").is_err());
        // The layout that a C compiler produces.
        use std::mem::offset_of;
        let at = [offset_of!(VcpuInfo, online), offset_of!(VcpuInfo, cpu_time), offset_of!(VcpuInfo, cpu)];
        assert_eq!((size_of::<VcpuInfo>(), at), (24, [4, 8, 16]));
    }

    #[test]
    fn a_machine_without_it_says_what_to_install() {
        let fault = Xenctrl::open("9.99").map(drop).unwrap_err();
        assert!(fault.to_string().contains("libxenctrl.so.9.99"), "{fault}");
    }
}
