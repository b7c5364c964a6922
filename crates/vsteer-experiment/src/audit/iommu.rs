//! Is there an IOMMU, for devices that are given to VMs?
//!
//! Without devices that are passed through it makes no difference (the published study measured none). Source: /sys/class/iommu.

use super::{Check, Finding, Tree};

/// See the file's head.
pub const CHECK: Check = Check { name: "iommu", doc: "IOMMU for devices of VMs", look };

fn look(t: &Tree) -> Vec<Finding> {
    let units = t.files.keys().filter(|p| p.starts_with("/sys/class/iommu/")).count();
    if units > 0 {
        return vec![Finding::good("IOMMU", format!("{units} units"), "devices can be given to VMs")];
    }
    let why = if t.is_guest() {
        "a guest seldom has one"
    } else {
        "none is in use: devices cannot be given to VMs (firmware setting, or intel_iommu=on, amd_iommu=on); no effect on anything else"
    };
    vec![Finding::none("IOMMU", why)]
}
