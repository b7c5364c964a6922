//! Builds what a lab VM boots: the distribution's kernel and an initramfs with one program.
//!
//! The initramfs has `vsteer-guest` as `/init`, `/dev/console` (without which process 1 has no output) and a
//! second archive after the first with `/workload`. So the role of a VM is neither on its command line nor in
//! any other place where an observer of the host or libvirt would look. Left out: root file systems, modules.

pub mod cpio;
pub mod initramfs;
pub mod modules;
pub mod programs;

use crate::files::write_file;
use cpio::Archive;
use std::io::Write;
use std::path::{Path, PathBuf};
use vsteer_core::{Fault, FaultKind};

/// The command that builds the guest program, for messages about a missing one.
pub const GUEST_BUILD: &str = "RUSTFLAGS=\"-C target-feature=+crt-static -C strip=symbols\" cargo build --release \
                               -p vsteer-guest --target x86_64-unknown-linux-gnu";

/// The kernel's command line: quiet, the serial console, the most exact timers, and power off instead of a
/// hang. `tsc=reliable`: otherwise the kernel stops using the TSC when the emulator has to wait, and then
/// every reading of the clock is a device access. `no_timer_check`: at boot the kernel waits a few jiffies
/// for timer interrupts, which an emulator on a busy host delivers late, and panics if none came.
pub const KERNEL_COMMAND_LINE: &str =
    "console=ttyS0 quiet loglevel=1 panic=-1 tsc=reliable no_timer_check nowatchdog mitigations=off";

/// The bytes of the guest program, which must run without libraries.
///
/// # Errors
/// It is missing, or needs a dynamic linker.
pub fn read_guest(program: &Path) -> Result<Vec<u8>, Fault> {
    let help = format!("build it: {GUEST_BUILD}; or name it with --guest or VSTEER_GUEST");
    let bytes = std::fs::read(program)
        .map_err(|e| Fault::io(format!("reading the guest program {}", program.display()), &e).help(&help))?;
    match has_interpreter(&bytes) {
        Some(false) => Ok(bytes),
        Some(true) => {
            Err(Fault::new(FaultKind::BadInput, format!("{} is not statically linked", program.display()))
                .because("the VM has no dynamic linker")
                .help(help))
        }
        None => {
            Err(Fault::new(FaultKind::BadInput, format!("{} is not a 64-bit program", program.display()))
                .help(help))
        }
    }
}

/// Does the ELF file need a dynamic linker (a PT_INTERP header)? `None` if it is not a 64-bit little-endian
/// ELF file. Offsets are those of `elf(5)`.
fn has_interpreter(elf: &[u8]) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let half = |at: usize| Some(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?) as usize);
    let table = usize::try_from(u64::from_le_bytes(elf.get(32..40)?.try_into().ok()?)).ok()?;
    let (size, count) = (half(54)?, half(56)?);
    for i in 0..count {
        let at = table.checked_add(size.checked_mul(i)?)?;
        if u32::from_le_bytes(elf.get(at..at.checked_add(4)?)?.try_into().ok()?) == PT_INTERP {
            return Some(true);
        }
    }
    Some(false)
}

/// The default place of the guest program: `VSTEER_GUEST`, beside this program, or cargo's folder.
pub fn find_guest(beside: &Path) -> PathBuf {
    if let Some(file) = std::env::var_os("VSTEER_GUEST").filter(|v| !v.is_empty()) {
        return file.into();
    }
    let folder = beside.parent().unwrap_or(Path::new("."));
    let of_cargo = "x86_64-unknown-linux-gnu/release/vsteer-guest";
    // `target/debug/vsteer-lab` and `target/debug/deps/test-of-it` are both below `target`.
    let mut candidates = vec![folder.join("vsteer-guest"), folder.join("../libexec/vsteer-guest")];
    candidates.extend(folder.ancestors().skip(1).take(2).map(|a| a.join(of_cargo)));
    let usable = |c: &&PathBuf| std::fs::read(c).is_ok_and(|b| has_interpreter(&b) == Some(false));
    candidates.iter().find(usable).unwrap_or(&candidates[candidates.len() - 2]).clone()
}

/// The part of the initramfs that all VMs share.
pub fn common_part(guest: &[u8]) -> Vec<u8> {
    let mut archive = Archive::new();
    archive.folder("dev");
    archive.character_device("dev/console", 5, 1);
    archive.folder("proc");
    archive.folder("sys");
    archive.file("init", 0o755, guest);
    gzip(&archive.finish())
}

/// The part with one VM's workload.
pub fn workload_part(workload: &str) -> Vec<u8> {
    let mut archive = Archive::new();
    archive.file("workload", 0o600, workload.as_bytes());
    gzip(&archive.finish())
}

/// Writes the initramfs of one VM.
///
/// # Errors
/// The file cannot be written.
pub fn write_initramfs(file: &Path, common: &[u8], workload: &str) -> Result<(), Fault> {
    write_file(file, [common, &workload_part(workload)].concat())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("writing to memory does not fail")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn elf(kinds: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56 * kinds.len()];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&(kinds.len() as u16).to_le_bytes());
        for (i, kind) in kinds.iter().enumerate() {
            bytes[64 + 56 * i..][..4].copy_from_slice(&kind.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn static_and_dynamic_programs_are_told_apart() {
        assert_eq!(has_interpreter(&elf(&[1, 1, 2])), Some(false));
        assert_eq!(has_interpreter(&elf(&[1, 3, 2])), Some(true));
        assert_eq!(has_interpreter(b"#!/bin/sh"), None);
        assert_eq!(has_interpreter(&elf(&[1, 3])[..100]), None, "cut short");
        // This test program is dynamically linked on every machine that the lab supports.
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(has_interpreter(&own), Some(true));
    }

    #[test]
    fn the_role_is_in_the_second_part_only() {
        let common = common_part(b"program");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("i.gz");
        write_initramfs(&file, &common, "burn").unwrap();
        let bytes = std::fs::read(file).unwrap();
        let mut rest = String::new();
        flate2::read::GzDecoder::new(&bytes[common.len()..]).read_to_string(&mut rest).unwrap();
        assert!(rest.contains("workload") && rest.contains("burn"));
        let mut first = Vec::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut first).unwrap();
        assert!(!first.windows(4).any(|w| w == b"burn"));
        assert_eq!(common, common_part(b"program"), "the same input gives the same bytes");
    }
}
