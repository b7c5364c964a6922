//! Gives up capabilities, for good.
//!
//! Capabilities belong to a thread, and threads and programs that it starts later inherit what it has. So a command
//! drops them before it starts a thread that needs some. One that was started before must call this itself, as the
//! thread that reads the observer's traces does. `no_new_privs` and the bounding set keep a program that it starts later (the
//! libvirt helper) from getting them back, even as root.

use super::{CapabilitySet, writes};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};
use std::path::Path;
use vsteer_core::{Fault, FaultKind};

/// What a command still needs once it counts.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    /// These capabilities.
    pub capabilities: CapabilitySet,
    /// Does it need to write to other places than its output, or to look into other processes?
    pub writes_elsewhere: bool,
}

/// Drops all other capabilities. From now on this process can write only beneath these folders, unless it needs to
/// write elsewhere; a kernel without Landlock allows more. It holds for this thread and those that it starts
/// from now on.
/// Returns whether writing is limited.
///
/// # Errors
/// If the kernel refuses, which only a limit of system calls from outside can cause.
pub fn confine(kept: Kept, beneath: &[&Path]) -> Result<bool, Fault> {
    let failed = |e: Errno| Fault::new(FaultKind::Failed, "cannot drop privileges").because(e);
    set_no_new_privs(true).map_err(failed)?;
    let limited = !kept.writes_elsewhere && writes::only_beneath(beneath)?;
    let own = capabilities(None).map_err(failed)?;
    let keep = kept.capabilities;
    for one in bits(!keep) {
        match remove_capability_from_bounding_set(one) {
            // Without CAP_SETPCAP the set stays; no_new_privs has the same effect. INVAL: past the kernel's last one.
            Ok(()) => {}
            Err(Errno::PERM | Errno::INVAL) => break,
            Err(e) => return Err(failed(e)),
        }
    }
    // Kernels before 4.3 have no ambient set.
    let _ = clear_ambient_capability_set();
    let left = own.permitted & keep;
    let sets = CapabilitySets {
        effective: own.effective & keep,
        permitted: left,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(failed)?;
    try_to_write();
    Ok(limited)
}

/// For a test, only in builds with debug assertions: tries to make the file that `VSTEER_TRY_WRITE` names, and says what
/// came of it.
fn try_to_write() {
    if let Some(path) = std::env::var_os("VSTEER_TRY_WRITE").filter(|_| cfg!(debug_assertions)) {
        let made = std::fs::File::create(&path).map(|_| "made");
        eprintln!("vsteer: VSTEER_TRY_WRITE: {made:?}");
    }
}

/// Runs `trial` without the use of `less`, which this thread then has again.
pub fn without<T>(less: CapabilitySet, trial: impl FnOnce() -> T) -> T {
    let Ok(own) = capabilities(None) else { return trial() };
    let _ = set_capabilities(None, CapabilitySets { effective: own.effective - less, ..own });
    let result = trial();
    let _ = set_capabilities(None, own);
    result
}

/// One capability after the other, also those that this program has no name for.
fn bits(set: CapabilitySet) -> impl Iterator<Item = CapabilitySet> {
    (0..u64::BITS).map(|i| CapabilitySet::from_bits_retain(1 << i)).filter(move |one| set.contains(*one))
}
