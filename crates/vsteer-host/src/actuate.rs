//! How does vsteer apply one step of a plan, and how does it undo the step? Every backend that can change a host
//! implements this trait.
//!
//! A step is one setting of one VM. [`Actuate::former`] returns everything that the step will overwrite, so that the
//! caller can store it first. [`Actuate::act`] makes the change. [`Actuate::restore`] puts back exactly what `former`
//! returned, also what the step does not contain (a thread pinned differently from its siblings, a cgroup's cpuset, a
//! missing pin). [`Actuate::current`] reads the present value, before and after the change.
//!
//! One trace remains under libvirt: the description of a running VM keeps a restored pin as a pin to all pCPUs, because
//! libvirt has no call to remove a pin. The pin's effect, the cgroups and the definition are as before.
//!
//! Left out: order, journal and time limits. The code that applies a whole plan does these.

use vsteer_core::Fault;
use vsteer_core::setting::{Change, Scope, Step};

pub use former::{Former, Part, QmOption, Run, Settings};

mod former;

/// What came of taking a step back. That something is gone is always said in so many words, never read from a fault:
/// who cannot be asked has not said that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restored {
    /// All is as `former` says.
    Back,
    /// The definition is; in the running VM nothing was left to take back, for this reason.
    Defined(String),
    /// What was changed is gone, for this reason, and took the setting along.
    Gone(String),
}

/// A host that can be changed.
pub trait Actuate {
    /// The same change with `from` as it is now: in the running VM, for `Topology` in the definition.
    ///
    /// # Errors
    /// `NothingThere` when the VM has gone, `Changed` when its thread has; whatever keeps it from being read.
    fn current(&mut self, step: &Step) -> Result<Change, Fault>;

    /// Asked of every step before the first is made: can it be made as the host is now? A backend that finds out only
    /// when it tries says yes.
    ///
    /// # Errors
    /// What stands in the way and can be seen: a VM that must be off first, what this VM has no setting for.
    fn refusal(&mut self, _step: &Step, _scope: Scope) -> Result<(), Fault> {
        Ok(())
    }

    /// Asked of all steps of a plan together, before the first is made: can the host hold them beside each other?
    ///
    /// # Errors
    /// As [`Actuate::refusal`].
    fn refusal_together(&mut self, _steps: &[Step], _scope: Scope) -> Result<(), Fault> {
        Ok(())
    }

    /// What the step touches outside vsteer: files, commands, system calls and connections, one line each. A dry run
    /// shows them. Changes nothing.
    fn touches(&mut self, _step: &Step) -> Vec<String> {
        Vec::new()
    }

    /// The present value of a setting that the step made, if it is neither the step's nor the former one: somebody else
    /// changed it since. `None` also where it cannot be read. Changes nothing.
    fn changed_since(&mut self, step: &Step, former: &Former) -> Option<String> {
        let now = self.current(step).ok()?;
        let former = former.live.as_ref()?;
        (!step.change.is_reached(&now) && !former.same_before(&now)).then(|| now.before())
    }

    /// All that the step will overwrite where it takes effect. Changes nothing.
    ///
    /// # Errors
    /// As [`Actuate::current`]; `Unsupported` where the step cannot be made there.
    fn former(&mut self, step: &Step, scope: Scope) -> Result<Former, Fault>;

    /// Makes the change. `Topology` is made in the definition only, and a real-time budget in the running VM only, also
    /// where the scope is both. `Host` moves the running VM and its definition, whatever the scope.
    ///
    /// # Errors
    /// `NothingThere`, `Changed`: as [`Actuate::current`]; `Unsupported`: this host, manager or scope cannot;
    /// `NoPrivilege`; `NotApplied`: the kernel or the manager refused. What was begun of the step is then taken back; a
    /// fault says so where that failed too.
    fn act(&mut self, step: &Step, scope: Scope) -> Result<(), Fault>;

    /// Puts back what `former` says. Threads that ended meanwhile are passed over. May be called again, and for a step
    /// that was made in part or not at all.
    ///
    /// # Errors
    /// Whatever keeps it from being put back, or from being known to be gone: then it may still be in force.
    fn restore(&mut self, step: &Step, former: &Former) -> Result<Restored, Fault>;
}
