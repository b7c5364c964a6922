//! How does each of these cases boot its emulated hosts? And what where a VM with Linux falls over there, by no fault of its own or of the
//! policy's? The same again, a little later.
//!
//! QEMU 7.2 delivers an injected interrupt twice now and then (docs/decisions/0003-exact-virtual-time.md). Where that happens in the first instructions of a handler
//! that interrupted a program, Linux falls over: once in three minutes of a guest that is busy. It does so again at the same instruction, so what is
//! tried then begins later.

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

/// From the host's boot to the VMs' start, s; one more in each try, and all that follows comes at other instructions.
pub const BEFORE_S: u32 = 8;
const TRIES: u32 = 4;
/// The older kernel: what real-time guests were promised on.
pub const SERIES: Which = Which::Series(6, 18);
/// One boot's limit.
const LIMIT: Duration = Duration::from_secs(7200);
/// How vsteer-guest says so (its host/started.rs).
const FELL_OVER: &str = "its Linux fell over";

/// How a part of these cases boots.
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

/// Boots, and again where the emulator's defect made the guest fall over. The job is told after how many s its VMs start.
///
/// # Errors
/// The job's, the emulated host's; or the guest falls over each time.
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
