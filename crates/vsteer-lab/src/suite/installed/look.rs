//! Does it see the VMs, for root, by sudo, for a user of libvirt, and for one without rights?

use super::On;
use crate::installed::host::Ran;
use std::time::Instant;
use vsteer_core::Fault;

/// Two VMs without an operating system: `spin` burns its vCPU, `tick` wakes 18 times a second. Their disks are boot
/// sectors: `sti; jmp` to itself, and `sti; hlt; jmp` to `hlt`.
const VMS: &str = r#"
set -eu
systemctl start libvirtd
cd /var/lib/libvirt/images
sector() { { printf "$1"; head -c $((510 - $2)) /dev/zero; printf '\125\252'; head -c 65024 /dev/zero; } > "$3"; }
sector '\373\353\376' 3 spin.img
sector '\373\364\353\375' 4 tick.img
for vm in spin tick; do
    printf "<domain type='qemu'><name>%s</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>
    <os><type arch='x86_64' machine='pc'>hvm</type></os><devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='%s/%s.img'/><target dev='hda' bus='ide'/></disk>
    <memballoon model='none'/><controller type='usb' model='none'/></devices></domain>" $vm "$PWD" $vm > /tmp/$vm.xml
    virsh -q define /tmp/$vm.xml
    virsh -q autostart $vm
    virsh -q start $vm
done
"#;

impl On<'_> {
    pub(super) fn observes(&mut self) -> Result<(), Fault> {
        self.claim(
            "two VMs of libvirt run below machine.slice",
            &format!("{VMS}\ncat /proc/$(cat /run/libvirt/qemu/spin.pid)/cgroup"),
            |r| r.is_ok() && r.out.contains("machine.slice"),
        )?;
        let names_both = |r: &Ran| r.is_ok() && r.out.contains("spin") && r.out.contains("tick");
        let begun = Instant::now();
        self.claim("top names both VMs", "vsteer top -b -n 1", names_both)?;
        let took = begun.elapsed().as_secs_f64();
        self.claim("top's first rows come within 10 s", "true", |_| took < 10.0)?;
        self.claim("diagnose runs to its end", "vsteer diagnose --for 3s", |r| {
            r.is_ok() && r.out.contains("finding")
        })?;
        self.claim_as("admin", "top by sudo names both VMs", "sudo vsteer top -b -n 1", names_both)?;
        self.claim_as(
            "vmadmin",
            "a user of group libvirt sees both VMs, or vsteer says what is missing",
            "vsteer top -b -n 1 --connect qemu:///system",
            |r| names_both(r) || (r.code == Some(4) && r.err.contains("help:")),
        )?;
        self.claim_as(
            "plain",
            "a user without rights sees both VMs, and vsteer says what it cannot count",
            "vsteer top -b -n 1 --connect qemu:///system",
            |r| names_both(r) && r.err.contains("schedstat instead of eBPF"),
        )?;
        Ok(())
    }
}
