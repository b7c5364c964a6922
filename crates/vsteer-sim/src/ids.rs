//! Numbers of pCPUs, vCPUs, VMs, groups and pools as separate types, so that they cannot be confused.

use serde::{Deserialize, Serialize};
use vsteer_core::nouns::VmId;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The number as an index.
            #[inline(always)]
            pub fn i(self) -> usize {
                self.0 as usize
            }
        }
    };
}
number!(
    /// A pCPU, counted from 0 over the usable ones of the host in the order of the kernel's numbers.
    Pcpu
);
number!(
    /// A vCPU, counted from 0 over all VMs of the host.
    Vcpu
);
number!(
    /// A VM of the host, in the setup's order.
    Vm
);
number!(
    /// A group of the tree; 0 is the root.
    Group
);
number!(
    /// A CPU pool.
    Pool
);

/// The identity of a simulated VM.
pub fn vm_id(index: usize) -> VmId {
    VmId(format!("simulated-{index}").into())
}
