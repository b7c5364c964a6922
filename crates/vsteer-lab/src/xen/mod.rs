//! A real Xen in exact virtual time: `vsteer lab xen run JOB.toml -o FOLDER`.
//!
//! ```text
//! job        the job: cases of domains                   packages  the hypervisor, its tools, a kernel for Domain-0
//! image      Domain-0's initramfs                        results   traces, what the domains report
//! program    what Linux domains run
//! ```
//! The distribution's hypervisor boots in QEMU, whose clock is the number of executed instructions. It works
//! as on the emulated host ([`crate::emulated`]) and with the same limits: Domain-0 has one pCPU, idle except
//! for its tools, and all domains share the other. Domain-0's first program is vsteer-guest, which starts
//! Xen's own tools and the domains. The domains run a program of their own that prints what Xen reports about
//! its vCPU. The results are a trace of the scheduler as `xentrace` writes it, and those reports: two
//! independent descriptions of the same seconds.
//!
//! With the wall clock (`clock = "wall"`) nothing is exact, but several pCPUs may be busy and domains may run
//! Linux.
//!
//! Left out: networks, disks.

pub mod image;
pub mod job;
pub mod packages;
pub mod program;
pub mod results;

use crate::accel;
use crate::emulated::machine::{self, Files};
use crate::emulated::{check_as_guest, clear, results as archive};
use crate::fetch::Package;
use crate::files::write_file;
use crate::image::read_guest;
use crate::interrupt;
use job::{Clock, Job};
use results::CaseResult;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vsteer_core::Fault;

/// The settings of a run, in addition to the job.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder for packages.
    pub cache: PathBuf,
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
    pub scheduler: &'static str,
    /// Domain-0's kernel.
    pub kernel: String,
    /// Hypervisor, tools and kernel, with versions and checksums.
    pub packages: Vec<Package>,
    /// ns per instruction; `None` with the wall clock.
    pub ns_per_instruction: Option<u32>,
    pub seed: u64,
    /// Wall-clock time, s.
    pub took_s: f64,
    /// The cases, in order.
    pub cases: Vec<CaseResult>,
}

/// Fetches what is needed, boots it, does the job and reads the results.
///
/// # Errors
/// An impossible job, packages that are not available, a host that fails, hangs or is interrupted, with its
/// last lines.
pub fn run(job: &Job, options: &Options) -> Result<Ran, Fault> {
    interrupt::watch()?;
    let begun = Instant::now();
    let emulator = accel::emulator()?;
    clear(&options.output)?;
    let files = Files::below(&options.output);
    let text = job.for_guest();
    let guest = read_guest(&options.guest)?;
    check_as_guest(&text, &options.guest, &options.output.join("xen-job"))?;
    let parts = packages::fetch(&options.cache, &options.output)?;
    eprintln!(
        "vsteer-lab: emulated Xen, {}, Domain-0 with Linux {}",
        job.scheduler.word(),
        parts.kernel.release
    );
    let kernel = options.output.join("vmlinux");
    let vmlinux = packages::vmlinux(&parts.kernel.vmlinuz, &options.output.join("packed"))?;
    write_file(&kernel, &vmlinux)?;
    // Domains boot the same kernel as Domain-0.
    let linux = match job.has_linux() {
        true => Some(image::Linux { vmlinux, initramfs: program::initramfs(&guest, &options.output)? }),
        false => None,
    };
    let serves = job.cases.iter().any(|case| case.serve_s > 0);
    let initramfs = image::build(&parts, options, &guest, &text, &job.files, linux, serves)?;
    write_file(&files.initramfs, initramfs)?;
    let arguments = arguments(job, options, &parts.hypervisor, &kernel, &files);
    let archive = machine::boot(&emulator, &arguments, &files, options.limit);
    // Neither is needed any more, because they can be made again.
    for file in [&kernel, &parts.hypervisor] {
        let _ = std::fs::remove_file(file);
    }
    archive::unpack(&archive?, &options.output)?;
    let cases = job.cases.iter().map(|c| results::read(c, &options.output)).collect::<Result<Vec<_>, _>>()?;
    let ran = Ran {
        scheduler: job.scheduler.word(),
        kernel: parts.kernel.release,
        packages: parts.packages,
        ns_per_instruction: (job.clock == Clock::Virtual).then_some(1 << machine::SHIFT),
        seed: options.seed,
        took_s: begun.elapsed().as_secs_f64(),
        cases,
    };
    let text = serde_json::to_string_pretty(&ran).expect("results are plain data");
    write_file(&options.output.join("result.json"), text)?;
    Ok(ran)
}

/// QEMU's arguments. They are the emulated host's, except for what boots: the hypervisor takes kernel and
/// initramfs as modules (multiboot), and has the serial line.
fn arguments(job: &Job, options: &Options, xen: &Path, kernel: &Path, files: &Files) -> Vec<String> {
    let words = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let path = |p: &Path| p.to_string_lossy().into_owned();
    let time = match job.clock {
        Clock::Virtual => format!(
            "-accel tcg,thread=single -icount shift={},sleep=off -rtc base=2026-01-01T00:00:00,clock=vm",
            machine::SHIFT
        ),
        Clock::Wall => "-accel tcg,thread=multi".to_owned(),
    };
    let mut all = words(format!(
        "-machine pc {time} -seed {} -cpu qemu64 -smp {} -m {} -nodefaults -no-user-config -vga none -display none \
         -serial stdio -no-reboot",
        options.seed, job.pcpus, job.memory_mib
    ));
    all.extend(files.window());
    let half = job.memory_mib / 2;
    let xen_line = format!(
        "console=com1 com1=115200,8n1 dom0_mem={half}M,max:{half}M dom0_max_vcpus=1 dom0_vcpus_pin loglvl=warning \
         guest_loglvl=warning noreboot sched={}",
        job.scheduler.word()
    );
    all.extend(["-kernel".into(), path(xen), "-append".into(), xen_line]);
    // A comma separates modules, so it is doubled.
    let comma = |p: &Path| path(p).replace(',', ",,");
    let modules = format!("{} console=hvc0 quiet panic=-1,{}", comma(kernel), comma(&files.initramfs));
    all.extend(["-initrd".into(), modules]);
    all
}
