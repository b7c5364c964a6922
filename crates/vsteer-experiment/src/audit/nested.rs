//! May VMs run VMs?
//!
//! No cost was measured for VMs that run none, but guests reach more of the hypervisor's code. Source:
//! Documentation/virt/kvm/x86/nested-vmx.rst.

use super::{Check, Finding, Tree};

pub const CHECK: Check =
    Check { name: "nested", doc: "nested virtualisation", rests_on: &["/parameters/nested"], look };

fn look(t: &Tree) -> Vec<Finding> {
    let module = ["kvm_intel", "kvm_amd"]
        .into_iter()
        .find_map(|m| Some((m, t.text(&format!("/sys/module/{m}/parameters/nested"))?)));
    let Some((module, value)) = module else {
        let why = if t.has_kvm() { "this KVM has no such parameter" } else { "KVM is not loaded" };
        return vec![Finding::none("nested virtualisation", why)];
    };
    let on = ["1", "Y", "y"].contains(&value);
    let (value, reason) = if on {
        ("on", "VMs may run VMs, so guests reach more of the hypervisor's code")
    } else {
        ("off", "VMs cannot run VMs")
    };
    vec![Finding::good(format!("nested virtualisation ({module})"), value, reason)]
}
