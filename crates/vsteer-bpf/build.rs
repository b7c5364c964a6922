//! Compiles the BPF programs with clang; src/load.rs and src/realtime.rs carry the objects and load them by libbpf.

use std::{env, path::PathBuf, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=src/bpf");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // libbpf's bpf_helpers.h and friends, from the copy that libbpf-sys builds.
    let libbpf = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys tells where its headers are");
    let arch = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "x86",
        Ok("aarch64") => "arm64",
        other => panic!("no BPF argument convention known for {other:?}"),
    };
    // Debian keeps asm/*.h in a folder per architecture, which clang's bpf target does not search.
    let multiarch = Command::new("cc").arg("-print-multiarch").output().ok();
    let multiarch = multiarch.and_then(|o| String::from_utf8(o.stdout).ok()).unwrap_or_default();

    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    for program in ["observer", "realtime"] {
        let source = format!("src/bpf/{program}.bpf.c");
        let status = Command::new(&clang)
            .args(["-target", "bpf", "-mcpu=v3", "-g", "-O2", "-Wall", "-Werror", "-Wno-unused-function"])
            .arg(format!("-D__TARGET_ARCH_{arch}"))
            .arg(format!("-I{libbpf}"))
            // The object names its sources for the verifier's messages: by paths that are the same on every machine.
            .arg(format!("-ffile-prefix-map={libbpf}=libbpf"))
            .arg(format!("-ffile-prefix-map={here}=vsteer-bpf"))
            .arg(format!("-I/usr/include/{}", multiarch.trim()))
            .args(["-c", &source, "-o"])
            .arg(out.join(format!("{program}.bpf.o")))
            .status();
        match status {
            Ok(s) if s.success() => {}
            Ok(s) => panic!("{clang} could not compile {source}: {s}"),
            Err(e) => panic!("{clang} could not be started ({e}): install the package clang, or set CLANG"),
        }
    }
}
