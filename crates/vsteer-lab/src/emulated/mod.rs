//! A whole Linux host with KVM guests in QEMU's exact virtual time: `vsteer lab emulated run JOB.toml -o
//! FOLDER`.
//!
//! ```text
//! job      the job: cases of VMs, competitors, settings               modules  which kernel modules, in which order
//! text     the same, in the form for the host inside
//! image    the initramfs: vsteer-guest, vsteer and its libraries     machine  QEMU: run, watch, end
//! tree     C sources and a compiler, linux  a guest with Linux, film  a player in it, if a case needs them
//! results  the results: recordings, what the guests measured, checksums
//! ```
//! The host inside is emulated instruction by instruction. Its clock is the number of executed instructions.
//! So its behaviour repeats to the byte, for any load of the real machine. With VMs and competitors on ONE
//! pCPU its times are exact. If they have more pCPUs, these are emulated in turn and times mean nothing. Then
//! recordings only test functions, and no timing is reported ([`job::Job::inexact`]). The unit of time is an
//! instruction (of 2 ns, unless a job sets another value). There are no caches, TLBs or costs of exits. So
//! numbers are repeatable counts of work, not a processor's nanoseconds.
//!
//! Left out: Intel's VMX (QEMU emulates AMD's SVM), networks, disks. The VMs run in vsteer-guest's own VMM,
//! and in QEMU with Linux only if a case asks for it (linux.rs).

mod film;
pub mod image;
pub mod job;
mod linux;
pub mod machine;
pub mod results;
mod text;
mod tree;

use crate::accel;
use crate::command;
use crate::fetch::kernels::{self, FullKernel, Which};
use crate::files::{make_folder, remove_folder, write_file};
use crate::image::read_guest;
use crate::interrupt;
use job::Job;
use results::CaseResult;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

/// The settings of a run, in addition to the job.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder for kernels.
    pub cache: PathBuf,
    pub kernel: Which,
    /// The guest program (static).
    pub guest: PathBuf,
    pub vsteer: PathBuf,
    /// The folder for results; it replaces those of an earlier run.
    pub output: PathBuf,
    /// The time limit, wall-clock time.
    pub limit: Duration,
    /// The seed of QEMU's random numbers.
    pub seed: u64,
}

/// The results of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Ran {
    pub kernel: FullKernel,
    pub qemu: String,
    /// ns per instruction.
    pub ns_per_instruction: u32,
    pub seed: u64,
    /// Wall-clock time, s.
    pub took_s: f64,
    /// The cases, in order.
    pub cases: Vec<CaseResult>,
    /// Over all files of all cases; equal runs have equal values.
    pub sha256: String,
}

/// Fetches the kernel, boots it, does the job and reads the results.
///
/// # Errors
/// An impossible job, a kernel that is not available, a host that fails, hangs or is interrupted, with its
/// last lines.
pub fn run(job: &Job, options: &Options) -> Result<Ran, Fault> {
    job.check()?;
    interrupt::watch()?;
    let kernel = kernels::resolve(&options.cache, options.kernel, needed(options.kernel), false)?;
    run_on(kernel, job, options)
}

/// The same with a kernel that was fetched before.
///
/// # Errors
/// As [`run`].
pub fn run_on(kernel: FullKernel, job: &Job, options: &Options) -> Result<Ran, Fault> {
    job.check()?;
    interrupt::watch()?;
    let begun = Instant::now();
    let emulator = accel::emulator()?;
    eprintln!("vsteer-lab: emulated host with Linux {}", kernel.release);
    clear(&options.output)?;
    let files = machine::Files::below(&options.output);
    let text = job.for_guest();
    check_as_guest(&text, &options.guest, &options.output.join("job.txt"))?;
    let initramfs = image::build(&kernel, options, job, &text)?;
    let mib = initramfs.len() >> 20;
    // The kernel unpacks the initramfs before it frees the packed one.
    if 2 * mib > job.memory_mib as usize {
        let what =
            format!("an initramfs of {mib} MiB does not fit twice into memory_mib = {}", job.memory_mib);
        return Err(Fault::new(FaultKind::BadInput, what)
            .because("the kernel unpacks it beside itself")
            .help("raise the job's memory_mib, or install binutils, whose strip makes vsteer smaller"));
    }
    write_file(&files.initramfs, initramfs)?;
    let machine =
        machine::Machine { emulator: &emulator, kernel: &kernel, job, seed: options.seed, files: &files };
    let qemu = machine.version()?;
    results::unpack(&machine.run(options.limit)?, &options.output)?;
    let cases =
        job.cases.iter().map(|c| results::read(job, c, &options.output)).collect::<Result<Vec<_>, _>>()?;
    let sha256 = results::sha256_of_all(&cases, &options.output.join("sha256sums.txt"))?;
    let ran = Ran {
        kernel,
        qemu,
        ns_per_instruction: 1 << job.shift,
        seed: options.seed,
        took_s: begun.elapsed().as_secs_f64(),
        cases,
        sha256,
    };
    let text = serde_json::to_string_pretty(&ran).expect("results are plain data");
    write_file(&options.output.join("result.json"), text)?;
    Ok(ran)
}

/// The program that reads the job inside checks it here first, so that its errors appear before the boot.
/// `file` is the file that it reads; the file's name gives the kind of job.
///
/// # Errors
/// What is wrong with the program or the job.
pub fn check_as_guest(text: &str, guest: &Path, file: &Path) -> Result<(), Fault> {
    // Reports what is wrong with the program, if anything.
    read_guest(guest)?;
    write_file(file, text)?;
    let checked =
        command::run(std::process::Command::new(guest).arg("check-job").arg(file), Duration::from_secs(10))?;
    if checked.status.is_some_and(|s| s.success()) {
        return Ok(());
    }
    let said = command::last_words(&checked);
    Err(Fault::new(FaultKind::BadInput, "what is emulated could not do this job")
        .because(said)
        .help(format!("mend the job; {} is what vsteer-guest reads", file.display())))
}

/// The options that this kernel must have.
pub fn needed(which: Which) -> &'static [&'static str] {
    if which == Which::Own { kernels::WITH_CFS } else { kernels::FOR_EMULATED_HOST }
}

/// Empties the folder for results, if it can only contain results of an earlier run.
///
/// # Errors
/// It contains something else, or cannot be emptied.
pub fn clear(folder: &Path) -> Result<(), Fault> {
    let filled = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    // Every run leaves this file, even one that failed or was interrupted.
    if filled && !folder.join(machine::CONSOLE).is_file() {
        return Err(Fault::new(FaultKind::Usage, format!("{} holds something else", folder.display()))
            .because("it is not empty, and not the result of an earlier run, which would be replaced")
            .help("name another folder by --output"));
    }
    remove_folder(folder)?;
    make_folder(folder)?;
    write_file(&folder.join(machine::CONSOLE), "")
}

/// Reads a job from a file.
///
/// # Errors
/// It cannot be read or is not a job, with line and key.
pub fn read_job(file: &Path) -> Result<Job, Fault> {
    let text =
        std::fs::read_to_string(file).map_err(|e| Fault::io(format!("reading {}", file.display()), &e))?;
    Job::parse(&text).map_err(|e| Fault { what: format!("{}: {}", file.display(), e.what), ..e })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobodys_files_are_removed_but_our_own() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out");
        clear(&output).unwrap();
        std::fs::remove_file(output.join(machine::CONSOLE)).unwrap();
        write_file(&output.join("thesis.tex"), "x").unwrap();
        assert_eq!(clear(&output).unwrap_err().kind, FaultKind::Usage);
        assert!(output.join("thesis.tex").is_file());
        write_file(&output.join(machine::CONSOLE), "x").unwrap();
        clear(&output).unwrap();
        assert!(!output.join("thesis.tex").exists());
    }
}
