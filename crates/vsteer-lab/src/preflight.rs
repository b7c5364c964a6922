//! Checks that everything that the lab needs is installed, and names the missing packages.
//!
//! The Makefile or the person installs them. Left out: kernel features; a missing one gives a fault at its
//! first use.

use crate::command::find_program;
use serde::Serialize;
use std::path::PathBuf;
use vsteer_core::{Fault, FaultKind};

/// A program, and its package on Debian and Ubuntu.
const NEEDED: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("libvirtd", "libvirt-daemon"),
    ("virsh", "libvirt-clients"),
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
    ("unshare", "util-linux"),
    ("setsid", "util-linux"),
    ("timeout", "coreutils"),
];
/// The possible places of libvirt's driver for QEMU: multiarch of Debian and Ubuntu, and others.
const DRIVER: &str = "libvirt/connection-driver/libvirt_driver_qemu.so";
const DRIVER_FOLDERS: &[&str] = &["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];

/// One thing needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Need {
    pub program: String,
    /// The package with it, on Debian and Ubuntu.
    pub package: String,
    /// Where it is; `None` if it is missing.
    pub found: Option<PathBuf>,
}

/// Looks for everything that the lab needs.
pub fn look() -> Vec<Need> {
    let programs = NEEDED.iter().map(|(program, package)| Need {
        program: (*program).into(),
        package: (*package).into(),
        found: find_program(program),
    });
    let driver = DRIVER_FOLDERS.iter().map(|f| PathBuf::from(f).join(DRIVER)).find(|f| f.exists());
    let driver = Need {
        program: "libvirt_driver_qemu.so".into(),
        package: "libvirt-daemon-driver-qemu".into(),
        found: driver,
    };
    programs.chain([driver]).collect()
}

/// A fault with everything that is missing and the command that installs it.
///
/// # Errors
/// That fault.
pub fn require(needs: &[Need]) -> Result<(), Fault> {
    let missing: Vec<&Need> = needs.iter().filter(|n| n.found.is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let programs: Vec<&str> = missing.iter().map(|n| n.program.as_str()).collect();
    let mut packages: Vec<&str> = missing.iter().map(|n| n.package.as_str()).collect();
    packages.dedup();
    Err(Fault::new(FaultKind::NothingThere, format!("the lab needs {}", programs.join(", ")))
        .because("not found on the search path or in the system folders")
        .help(format!("apt install --no-install-recommends {}", packages.join(" "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let need = |program: &str, package: &str, found: bool| Need {
            program: program.into(),
            package: package.into(),
            found: found.then(|| "/x".into()),
        };
        assert!(require(&[need("virsh", "libvirt-clients", true)]).is_ok());
        let fault = require(&[
            need("virsh", "libvirt-clients", true),
            need("libvirtd", "libvirt-daemon", false),
            need("unshare", "util-linux", false),
            need("setsid", "util-linux", false),
        ])
        .unwrap_err();
        assert_eq!(fault.kind.exit_code(), 3);
        assert_eq!(fault.what, "the lab needs libvirtd, unshare, setsid");
        assert!(fault.help.unwrap().ends_with("recommends libvirt-daemon util-linux"));
    }
}
