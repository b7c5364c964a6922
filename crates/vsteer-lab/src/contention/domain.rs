//! The libvirt definition of a lab VM.
//!
//! It has only what is needed to boot: kernel, initramfs, and a serial port that appends to a file (a VM that
//! restarts or migrates must not delete its earlier output). Only the content of the initramfs depends on the
//! workload. Each VM is in the lab's own cgroup partition. Left out: disks, networks, memory balloon, USB,
//! graphics.

use crate::accel::Accel;
use crate::image::KERNEL_COMMAND_LINE;
use std::path::Path;

/// The parts of one VM.
pub struct Domain<'a> {
    pub name: &'a str,
    pub vcpus: u32,
    pub memory_mib: u32,
    /// CPU shares; `None`: libvirt's default.
    pub shares: Option<u32>,
    /// KVM or emulation.
    pub accel: Accel,
    /// The kernel image.
    pub kernel: &'a Path,
    pub initramfs: &'a Path,
    /// The file to which its serial port writes.
    pub console: &'a Path,
    /// The cgroup partition, as `/name`.
    pub partition: &'a str,
    /// The emulator program.
    pub emulator: &'a Path,
}

impl Domain<'_> {
    /// The domain XML.
    pub fn xml(&self) -> String {
        let (kind, cpu) = match self.accel {
            Accel::Kvm => ("kvm", "<cpu mode='host-passthrough'/>"),
            Accel::Tcg => ("qemu", "<cpu mode='custom' match='exact'><model>qemu64</model></cpu>"),
        };
        let shares =
            self.shares.map(|n| format!("<cputune><shares>{n}</shares></cputune>\n  ")).unwrap_or_default();
        let path = |p: &Path| escape(&p.to_string_lossy());
        format!(
            "<domain type='{kind}'>\n  <name>{name}</name>\n  <memory unit='MiB'>{memory}</memory>\n  \
             <vcpu placement='static'>{vcpus}</vcpu>\n  {shares}\
             <resource><partition>{partition}</partition></resource>\n  \
             <os>\n    <type arch='x86_64' machine='q35'>hvm</type>\n    <kernel>{kernel}</kernel>\n    \
             <initrd>{initramfs}</initrd>\n    <cmdline>{KERNEL_COMMAND_LINE}</cmdline>\n  </os>\n  \
             <features><acpi/></features>\n  {cpu}\n  <clock offset='utc'/>\n  \
             <on_poweroff>destroy</on_poweroff>\n  <on_reboot>destroy</on_reboot>\n  \
             <on_crash>destroy</on_crash>\n  <devices>\n    <emulator>{emulator}</emulator>\n    \
             <controller type='usb' model='none'/>\n    \
             <serial type='file'><source path='{console}' append='on'/><target port='0'/></serial>\n    \
             <memballoon model='none'/>\n  </devices>\n</domain>\n",
            name = escape(self.name),
            memory = self.memory_mib,
            vcpus = self.vcpus,
            partition = escape(self.partition),
            kernel = path(self.kernel),
            initramfs = path(self.initramfs),
            emulator = path(self.emulator),
            console = path(self.console),
        )
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('\'', "&apos;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped_and_the_accelerator_decides_the_type() {
        let mut domain = Domain {
            name: "amber-elm",
            vcpus: 3,
            memory_mib: 96,
            shares: None,
            accel: Accel::Tcg,
            kernel: Path::new("/a'b&c/vmlinuz"),
            initramfs: Path::new("/i"),
            console: Path::new("/c"),
            partition: "/p",
            emulator: Path::new("/e"),
        };
        let xml = domain.xml();
        assert!(xml.contains("<kernel>/a&apos;b&amp;c/vmlinuz</kernel>"), "{xml}");
        assert!(xml.contains("<domain type='qemu'>") && xml.contains("'static'>3</vcpu>"));
        assert!(xml.contains("<source path='/c' append='on'/>"), "{xml}");
        assert!(!xml.contains("shares"));
        (domain.accel, domain.shares) = (Accel::Kvm, Some(512));
        let xml = domain.xml();
        assert!(xml.contains("<domain type='kvm'>") && xml.contains("<shares>512</shares>"), "{xml}");
    }
}
