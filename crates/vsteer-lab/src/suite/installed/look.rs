//! Does it see the VMs, for root, by sudo, for a user of libvirt, and for one without rights?

use super::On;
use crate::command::{self, Finished};
use crate::installed::host::Ran;
use std::process::Command;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// For one look.
const LIMIT: Duration = Duration::from_secs(120);

/// Two VMs without an operating system: `spin` burns its vCPU, `tick` wakes 18 times a second. Their disks are boot
/// sectors: `sti; jmp` to itself, and `sti; hlt; jmp` to `hlt`. libvirt gives up on a QEMU that does not answer in time, and
/// an emulated host beside other cases is slow, so a start is tried three times.
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
    started=no
    for again in 1 2 3; do
        if virsh -q start $vm || [ "$(virsh domstate $vm)" = running ]; then started=yes; break; fi
        sleep 5
    done
    [ $started = yes ] || { journalctl -q -u libvirtd -n 5 -o cat >&2; cat /var/log/libvirt/qemu/$vm.log >&2; exit 1; }
done
"#;

impl On<'_> {
    pub(super) fn observes(&mut self) -> Result<(), Fault> {
        let ran = self.claim(
            "two VMs of libvirt run below machine.slice",
            &format!("{VMS}\ncat /proc/$(cat /run/libvirt/qemu/spin.pid)/cgroup"),
            |r| r.is_ok() && r.out.contains("machine.slice"),
        )?;
        if !ran.is_ok() {
            // All that follows is about these VMs, and would only repeat this.
            return Err(Fault::new(
                FaultKind::Failed,
                format!("libvirt starts no VMs in the host: {}", ran.told()),
            ));
        }
        let names_both = |r: &Ran| r.is_ok() && r.out.contains("spin") && r.out.contains("tick");
        self.claim_within(10.0, "top names both VMs", "vsteer top -b -n 1", names_both)?;
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

    /// The program of this machine, which observes the host over ssh.
    pub(super) fn looks_over_ssh(&mut self) -> Result<(), Fault> {
        let folder = self.host.ssh_for_others()?;
        // As people install it: a program of the dev profile is ten times the size, which ssh to an emulated host feels.
        let program = folder.join("vsteer");
        command::output(Command::new("strip").arg("-o").arg(&program).arg(&self.vsteer), LIMIT)?;
        self.host.run("touch /root/before")?;
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
        let at = self.host.at();
        let (ssh, libvirt) = (format!("ssh://{at}"), format!("qemu+ssh://{at}/system"));
        let counted = "all 1 vCPUs";
        for (claim, options) in [
            ("from another machine, over ssh, top names both VMs", vec!["--connect", &ssh]),
            ("the same by a URI of libvirt", vec!["--connect", &libvirt]),
            (
                "the same by the program of that machine, copied for the time",
                vec!["--connect", &ssh, "--copy-vsteer"],
            ),
        ] {
            let mut vsteer = Command::new(&program);
            vsteer
                .args(["top", "-b", "-n", "1"])
                .args(options)
                .env("PATH", &path)
                .env("VSTEER_CONFIG", "none");
            let Finished { status, stdout, stderr } = command::run(&mut vsteer, LIMIT)?;
            let is_ok = status.is_some_and(|s| s.success());
            let names = |vm: &str| stdout.lines().any(|l| l.contains(&format!(",{vm},{counted}")));
            let last = stderr.lines().last().unwrap_or_default();
            let found = format!("{} lines; {last}", stdout.lines().count());
            self.findings.claim(
                format!("{}: {claim}", self.release),
                is_ok && names("spin") && names("tick"),
                found,
            );
        }
        self.claim_soon(10, "nothing of it stays there", "pgrep -f '[v]steer agent|fd/9 [a]gent'; find /tmp /run /dev/shm -name '*vsteer*' -newer /root/before", |r| {
            r.out.is_empty()
        })?;
        Ok(())
    }
}
