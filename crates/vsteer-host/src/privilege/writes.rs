//! Limits where this process can write, by Landlock (Linux 5.13 and later, where it is switched on).
//!
//! Files that are open already, reading, sockets and running programs are not limited. Landlock also keeps a process
//! from looking into others that are not limited as it is (`/proc/PID/fd`, `/proc/PID/numa_maps`), so a command that
//! needs these must not use it.

use landlock::{ABI, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, path_beneath_rules};
use std::path::Path;
use vsteer_core::{Fault, FaultKind};

/// What every program needs: a program started with no output gets the first, a terminal is the second.
const ALWAYS: [&str; 2] = ["/dev/null", "/dev/tty"];
/// The newest rights that vsteer limits: the third version added truncation. Older kernels limit what they can.
const RIGHTS: ABI = ABI::V3;

/// From now on, this thread and all that it starts can write only beneath these folders. `false`: this kernel
/// has no Landlock, so nothing happened.
///
/// # Errors
/// If the kernel has Landlock and refuses the rules.
pub(super) fn only_beneath(folders: &[&Path]) -> Result<bool, Fault> {
    let failed = |e: &dyn std::fmt::Display| {
        Fault::new(FaultKind::Failed, "cannot limit where vsteer writes (Landlock)").because(e)
    };
    let writes = AccessFs::from_write(RIGHTS);
    let paths = folders.iter().copied().chain(ALWAYS.iter().map(Path::new));
    Ruleset::default()
        .handle_access(writes)
        .and_then(Ruleset::create)
        .and_then(|rules| rules.add_rules(path_beneath_rules(paths, writes)))
        .and_then(landlock::RulesetCreated::restrict_self)
        .map(|limits| limits.ruleset != RulesetStatus::NotEnforced)
        .map_err(|e| failed(&e))
}
