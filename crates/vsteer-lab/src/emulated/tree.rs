//! Adds C files, and this system's make and compiler, for cases that measure the host's own work with a
//! build.
//!
//! The build is small, so that it takes a second of virtual time. A link step at the end waits for all files,
//! which shows how well processes share a pCPU. Left out: headers and the C library, which would double the
//! image.

use crate::command::{self, find_program};
use crate::image::initramfs::Initramfs;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

const LIMIT: Duration = Duration::from_secs(30);
/// The number of files, and of functions in each.
const FILES: usize = 8;
const FUNCTIONS: usize = 4;

/// Adds the sources, and all programs that building them starts.
///
/// # Errors
/// make or the compiler is missing here.
pub fn put(initramfs: &mut Initramfs) -> Result<(), Fault> {
    for (at, program) in [("usr/bin/make", program("make")?), ("usr/bin/gcc", program("gcc")?)]
        .map(|(at, found)| (at.to_owned(), found))
        .into_iter()
        .chain(parts_of_gcc()?)
    {
        initramfs.program(&at, &program)?;
    }
    initramfs.put("tree/Makefile", 0o644, makefile().as_bytes());
    for i in 0..FILES {
        initramfs.put(&format!("tree/part{i}.c"), 0o644, source(i).as_bytes());
    }
    Ok(())
}

fn program(name: &str) -> Result<PathBuf, Fault> {
    find_program(name).ok_or_else(|| {
        Fault::new(FaultKind::NothingThere, format!("no {name} here, which the emulated host is to run"))
            .help("apt-get install gcc make")
    })
}

/// The compiler proper, the assembler and the linker, at the paths where gcc looks for them.
fn parts_of_gcc() -> Result<Vec<(String, PathBuf)>, Fault> {
    let part = |name: &str| {
        let mut gcc = Command::new("gcc");
        let said = command::output(gcc.arg(format!("-print-prog-name={name}")), LIMIT)?;
        let said = Path::new(said.trim());
        let found = if said.is_absolute() { said.to_owned() } else { program(name)? };
        Ok((found.to_string_lossy()[1..].to_owned(), found))
    };
    ["cc1", "as", "ld"].into_iter().map(part).collect()
}

fn makefile() -> String {
    let objects: Vec<String> = (0..FILES).map(|i| format!("part{i}.o")).collect();
    format!(
        "whole.o: {0}\n\tld -r -o $@ {0}\n%.o: %.c\n\tgcc -O1 -ffreestanding -c -o $@ $<\n",
        objects.join(" ")
    )
}

/// Different functions, so that the compiler must process each.
fn source(file: usize) -> String {
    let mut text = String::from("typedef unsigned long word;\n");
    for i in 0..FUNCTIONS {
        let (a, b) = (file * FUNCTIONS + i + 3, 2 * i + 5);
        let _ = writeln!(
            text,
            "word f{file}_{i}(word *v, word n)\n{{\n\tword s = {a};\n\tfor (word i = 0; i < n; i++) {{\n\
             \t\tif (v[i] % {b} == {a} % {b})\n\t\t\ts += v[i] * {a};\n\t\telse\n\t\t\ts ^= v[n - i - 1] << (i % {b});\n\
             \t\tv[i] = s >> {};\n\t}}\n\treturn s;\n}}",
            i % 7 + 1
        );
    }
    text
}
