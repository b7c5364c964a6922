//! Does the program start where nothing is installed? It may need the C library and what belongs to it, nothing else.

use std::process::Command;

/// The C library, its dynamic linker, the kernel's own page, and the unwinder that every Rust program links.
const ALLOWED: [&str; 6] =
    ["linux-vdso.so", "libc.so", "libm.so", "libgcc_s.so", "ld-linux", "libpthread.so"];

#[test]
fn ldd_shows_libc_alone() {
    let output = Command::new("ldd").arg(env!("CARGO_BIN_EXE_vsteer")).output().expect("libc brings ldd");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("libc.so"), "{text}");
    for line in text.lines() {
        let name = line.split_whitespace().next().and_then(|n| n.rsplit('/').next()).unwrap_or("");
        assert!(ALLOWED.iter().any(|a| name.starts_with(a)), "it needs {line}");
    }
}
