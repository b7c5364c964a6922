//! Does the host have an IOMMU, which passing devices through to VMs needs?
//!
//! Without passed-through devices it makes no difference (the published study measured none). Source: /sys/class/iommu.

use super::{Check, Finding, Tree};

pub const CHECK: Check =
    Check { name: "iommu", doc: "IOMMU for devices of VMs", rests_on: &["sys/class/iommu/"], look };

fn look(t: &Tree) -> Vec<Finding> {
    let units = t.files.keys().filter(|p| p.starts_with("/sys/class/iommu/")).count();
    if units > 0 {
        return vec![Finding::good(
            "IOMMU",
            format!("{units} units"),
            "the host can pass devices through to VMs",
        )];
    }
    let why = if t.is_guest() {
        "a guest rarely has an IOMMU"
    } else {
        "no IOMMU is in use, so the host cannot pass devices through to VMs (enable it in the firmware, or \
            with intel_iommu=on or amd_iommu=on); nothing else is affected"
    };
    vec![Finding::none("IOMMU", why)]
}
