//! Fetches the parts of an emulated Xen: the distribution's hypervisor, its tools, and a kernel for Domain-0.
//!
//! They are fetched and unpacked like everything of the lab ([`crate::fetch`]), never installed. The small
//! kernel for VMs cannot be Domain-0, so this takes the generic one, which is larger.

use crate::command;
use crate::fetch::kernels::FullKernel;
use crate::fetch::{Fetcher, Package};
use crate::files::write_file;
use crate::image::initramfs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// Xen's version in names of packages and folders.
const VERSION: &str = "4.17";
/// The packages with their libraries. Everything else that they need is on the system.
const PACKAGES: &[&str] = &[
    "xen-utils-4.17",
    "xen-utils-common",
    "libxenmisc4.17",
    "libxencall1",
    "libxendevicemodel1",
    "libxenevtchn1",
    "libxenforeignmemory1",
    "libxengnttab1",
    "libxenhypfs1",
    "libxenstore4",
    "libxentoolcore1",
    "libxentoollog1",
    "libyajl2",
    "libfdt1",
    "liblzo2-2",
    "libgcc-s1",
];
const HYPERVISOR: &str = "xen-hypervisor-4.17-amd64";
const KERNEL: &str = "linux-image-amd64";
/// The programs of Domain-0.
pub const PROGRAMS: [&str; 5] = ["xl", "xenstored", "xenconsoled", "xen-init-dom0", "xentrace"];
const UNPACK_LIMIT: Duration = Duration::from_secs(120);

/// All parts.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The hypervisor, unpacked.
    pub hypervisor: PathBuf,
    /// Domain-0's kernel, compressed.
    pub kernel: FullKernel,
    /// [`PROGRAMS`] in order.
    pub programs: Vec<PathBuf>,
    /// The folders of the packages' libraries.
    pub libraries: Vec<PathBuf>,
    /// The packages, with versions and checksums.
    pub packages: Vec<Package>,
}

/// Fetches what is not in the cache; `scratch` is for temporary files.
///
/// # Errors
/// A package that is not available, or that does not contain the expected file.
pub fn fetch(cache: &Path, scratch: &Path) -> Result<Parts, Fault> {
    let mut fetcher = Fetcher::of_system(cache, false);
    let xen = fetcher.binary(HYPERVISOR)?;
    let kernel = fetcher.kernel_from(KERNEL)?;
    let kernel =
        FullKernel::of(kernel.packages).ok_or_else(|| missing(KERNEL, "modules and a configuration"))?;
    let mut packages = PACKAGES.iter().map(|name| fetcher.binary(name)).collect::<Result<Vec<_>, Fault>>()?;
    let libraries: Vec<PathBuf> = packages
        .iter()
        .flat_map(|p| ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"].map(|l| p.tree.join(l)))
        .filter(|f| f.is_dir())
        .collect();
    let folders = [format!("usr/lib/xen-{VERSION}/bin"), "usr/sbin".to_owned(), "usr/bin".to_owned()];
    let find = |program: &&str| {
        let all = packages.iter().flat_map(|p| folders.iter().map(|f| p.tree.join(f).join(program)));
        // The common package has a script of the same name that selects the right version.
        let mut real = all.filter(|f| std::fs::read(f).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF")));
        real.next().ok_or_else(|| missing(PACKAGES[0], program))
    };
    let programs = PROGRAMS.iter().map(find).collect::<Result<Vec<_>, Fault>>()?;
    let packed = xen.tree.join(format!("boot/xen-{VERSION}-amd64.gz"));
    let hypervisor = scratch.join("xen");
    write_file(&hypervisor, unpack("gzip", &packed)?)?;
    packages.push(xen);
    packages.extend(kernel.packages.iter().cloned());
    Ok(Parts { hypervisor, kernel, programs, libraries, packages })
}

fn missing(package: &str, what: &str) -> Fault {
    Fault::new(FaultKind::NothingThere, format!("the package {package} does not hold {what}"))
}

fn unpack(program: &str, file: &Path) -> Result<Vec<u8>, Fault> {
    command::bytes(Command::new(program).arg("-dc").arg("--").arg(file), UNPACK_LIMIT)
}

/// The kernel as an ELF file. Xen could unpack it itself, but in emulation that takes half a minute.
/// `scratch` is a temporary file.
///
/// # Errors
/// It is packed in an unknown way, or the program that unpacks it is missing.
pub fn vmlinux(vmlinuz: &Path, scratch: &Path) -> Result<Vec<u8>, Fault> {
    let bytes = initramfs::read(vmlinuz)?;
    let (program, payload) = payload(&bytes).ok_or_else(|| {
        Fault::new(FaultKind::BadInput, format!("{} is packed in an unknown way", vmlinuz.display()))
    })?;
    write_file(scratch, payload)?;
    let mut command = Command::new(program);
    command.arg("-dc");
    if program == "xz" {
        // The kernel's build appends the unpacked size.
        command.arg("--single-stream");
    }
    let unpacked = command::bytes(command.arg("--").arg(scratch), UNPACK_LIMIT);
    let _ = std::fs::remove_file(scratch);
    unpacked
}

/// The compressed kernel inside a bzImage, and the program that unpacks it (Linux,
/// Documentation/arch/x86/boot.rst: setup_sects, payload_offset and payload_length of the header).
fn payload(bytes: &[u8]) -> Option<(&'static str, &[u8])> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
    if bytes.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let sectors = match bytes[0x1f1] {
        0 => 4,
        n => usize::from(n),
    };
    let begin = (sectors + 1) * 512 + word(0x248)?;
    let payload = bytes.get(begin..begin + word(0x24c)?)?;
    let kinds: [(&[u8], &str); 3] =
        [(b"\x1f\x8b", "gzip"), (b"\xfd7zXZ", "xz"), (b"\x28\xb5\x2f\xfd", "zstd")];
    kinds.into_iter().find(|(magic, _)| payload.starts_with(magic)).map(|(_, program)| (program, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packed_kernel_is_found_where_the_header_says() {
        let mut image = vec![0u8; 2048];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&8u32.to_le_bytes());
        image[1040..1048].copy_from_slice(b"\xfd7zXZ\0ab");
        assert_eq!(payload(&image), Some(("xz", &b"\xfd7zXZ\0ab"[..])));
        image[1040] = 0;
        assert_eq!(payload(&image), None);
        assert_eq!(payload(b"MZ"), None);
    }
}
