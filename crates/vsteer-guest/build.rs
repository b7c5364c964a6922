//! Compiles the programs of the emulated host's VMs (src/vmm/payload.rs) and of Xen's domains (src/xen/payload.rs) for no
//! operating system, and lays the former flat.
//!
//! By rustc itself, not by cargo: the program needs `core` alone, no start-up code, one fixed address and no unwinding,
//! which for cargo would be a target of its own, and such targets' `core` is not part of a plain toolchain. The result
//! is a file that begins with the address of its entry, followed by the bytes from the program's address on.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Of src/vmm/abi.rs and src/vmm/payload.ld.
const PROGRAM_AT: u64 = 0x10_0000;
const PROGRAM_BYTES_MAX: u64 = 0x10_0000;

fn main() {
    println!("cargo:rerun-if-changed=src");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let (flat, domain) = (out.join("payload.bin"), out.join("domain.elf"));
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        fs::write(flat, []).expect("OUT_DIR is writable");
        fs::write(domain, []).expect("OUT_DIR is writable");
        return;
    }
    let elf = out.join("payload.elf");
    compile("src/vmm/payload", &elf);
    let elf = fs::read(elf).expect("rustc wrote it");
    fs::write(flat, flatten(&elf)).expect("OUT_DIR is writable");
    compile("src/xen/payload", &domain);
}

/// Compiles `from.rs` by `from.ld`.
fn compile(from: &str, elf: &Path) {
    let rustc = env::var_os("RUSTC").expect("cargo sets RUSTC");
    let status = Command::new(rustc)
        .args(["--edition=2024", "--crate-name=payload", "--crate-type=bin", "--cap-lints=allow"])
        .args(["--target", &env::var("TARGET").expect("cargo sets TARGET")])
        .args([
            "-Copt-level=2",
            "-Cpanic=abort",
            "-Crelocation-model=static",
            "-Cno-redzone=yes",
            "-Cstrip=debuginfo",
        ])
        .args([
            "-Clink-arg=-nostartfiles",
            "-Clink-arg=-nostdlib",
            "-Clink-arg=-static",
            "-Clink-arg=-no-pie",
        ])
        .arg(format!("-Clink-arg=-Wl,-T,{from}.ld,-z,norelro,--build-id=none"))
        .arg(format!("{from}.rs"))
        .arg("-o")
        .arg(elf)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status();
    assert!(status.is_ok_and(|s| s.success()), "rustc could not compile {from}.rs");
}

/// The entry's address, then memory from `PROGRAM_AT` on as the ELF file's loadable segments fill it (`man 5 elf`).
fn flatten(elf: &[u8]) -> Vec<u8> {
    let word = |at: usize| u64::from_le_bytes(elf[at..at + 8].try_into().expect("eight bytes"));
    let half = |at: usize| usize::from(u16::from_le_bytes([elf[at], elf[at + 1]]));
    let mut memory = Vec::new();
    for i in 0..half(56) {
        let header = word(32) as usize + i * half(54);
        if u32::from_le_bytes(elf[header..header + 4].try_into().expect("four bytes")) != 1 {
            continue;
        }
        let (offset, address, in_file, in_memory) =
            (word(header + 8) as usize, word(header + 16), word(header + 32) as usize, word(header + 40));
        let begin = address.checked_sub(PROGRAM_AT).expect("linked at PROGRAM_AT");
        assert!(begin + in_memory <= PROGRAM_BYTES_MAX, "the program does not fit");
        memory.resize(memory.len().max((begin + in_memory) as usize), 0);
        memory[begin as usize..begin as usize + in_file].copy_from_slice(&elf[offset..offset + in_file]);
    }
    [word(24).to_le_bytes().to_vec(), memory].concat()
}
