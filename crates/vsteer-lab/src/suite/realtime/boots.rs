//! Boots the emulated hosts of these cases. If the emulator's defect makes a VM's Linux crash, which is not
//! the fault of the guest or the policy, boots again with a slightly later start.
//!
//! QEMU 7.2 sometimes delivers an injected interrupt twice (docs/decisions/0003-exact-virtual-time.md). If
//! that happens in the first instructions of a handler that interrupted a program, Linux crashes: about once
//! in three minutes of a busy guest. It repeats at the same instruction, so the next try starts later.

use crate::drive::Vsteer;
use crate::emulated::job::Job;
use crate::emulated::machine::CONSOLE;
use crate::emulated::{self, Options, Ran};
use crate::fetch::cache_folder;
use crate::fetch::kernels::Which;
use crate::suite::Bench;
use std::path::PathBuf;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// From the host's boot to the VMs' start, s. Each further try adds one, so that everything happens at other
/// instructions.
pub const BEFORE_S: u32 = 8;
const TRIES: u32 = 4;
/// The older kernel, on which real-time guests were promised.
pub const SERIES: Which = Which::Series(6, 18);
/// Time limit of one boot.
const LIMIT: Duration = Duration::from_secs(7200);
/// vsteer-guest's message about it (its host/started.rs).
const FELL_OVER: &str = "its Linux fell over";

/// The settings for the boots of a part of these cases.
///
/// # Errors
/// There is no cache, or its folder cannot be made.
pub fn options(bench: &Bench, kernel: Which, name: &str) -> Result<Options, Fault> {
    Ok(Options {
        cache: cache_folder()?,
        kernel,
        guest: bench.lab.guest.clone(),
        vsteer: Vsteer::beside(&bench.lab.program)?.program,
        output: PathBuf::from(bench.fresh(name)?),
        limit: LIMIT,
        seed: bench.seed,
    })
}

/// Boots, and again if the emulator's defect made the guest crash. `job` receives the time in s after which
/// its VMs start.
///
/// # Errors
/// The job's, the emulated host's; or the guest crashes each time.
pub fn boot(what: &str, options: &Options, job: impl Fn(u32) -> Result<Job, Fault>) -> Result<Ran, Fault> {
    for tried in 0..TRIES {
        let ran = emulated::run(&job(BEFORE_S + tried)?, options);
        let console = std::fs::read_to_string(options.output.join(CONSOLE)).unwrap_or_default();
        if !console.contains(FELL_OVER) {
            return ran;
        }
        eprintln!("vsteer-lab: {what}: the guest fell over (try {} of {TRIES})", tried + 1);
    }
    Err(Fault::new(FaultKind::Failed, format!("{what}: the guest fell over {TRIES} times"))
        .because("QEMU's emulation of SVM delivers interrupts twice now and then")
        .help(format!("look into {}", options.output.join(CONSOLE).display())))
}
