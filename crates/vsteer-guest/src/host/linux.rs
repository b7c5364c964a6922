//! Which VMs of the emulated host have an operating system? Those whose workload needs one: Linux, under QEMU and KVM.
//!
//! QEMU becomes what this program was started as, in its place: its process is the VM's, and its vCPU's thread is `CPU 0/KVM`. What runs inside is this
//! program once more, as the first one of a Linux (main.rs); the VM's only serial line is QEMU's standard input and output, by which it is asked for
//! reports, as the VMs of the other kind are.
//!
//! It is a *microvm*, with hardly a device to be emulated. The processor is the host's, but for what does not hold when an emulated processor
//! (QEMU 7.2) is handed on:
//! - `-xsave` and what needs it: sizes of the state that the kernel finds contradictory, after which it stops.
//! - `-kvm-pv-eoi`: the guest then says that an interrupt is served by leaving the VM, which is the first that its handlers do. QEMU delivers an injected interrupt
//!   twice where the emulated pCPU has to stop before the VM is left again (docs/decisions/0006-emulated-host.md), and Linux, interrupted in the rest of a
//!   handler, waited for a lock of its own for ever.
//!
//! It has one port of virtio-serial, by which the host tells it that it is opted in (agent.rs).
//!
//! Left out: disks, networks, more than one vCPU.

use crate::place::Place;
use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::process::Command;

const EMULATOR: &str = "/usr/bin/qemu-system-x86_64";
const MACHINE: &str = "microvm,x-option-roms=off,rtc=off,auto-kernel-cmdline=off";
const PROCESSOR: &str = "host,-kvm-pv-eoi,-xsave,-avx,-avx2,-fma,-f16c,-vaes,-vpclmulqdq";
const SOCKETS: &str = "/run/vms";
const PORT: &str = "org.vsteer.realtime.0";
/// Its initramfs is some 250 MiB, and is there twice for a moment.
const MEMORY_MIB: &str = "768";
/// As the host's (the lab's emulated/machine.rs), and without what would be said on the console.
const KERNEL_WORDS: &str =
    "console=ttyS0 quiet loglevel=1 panic=-1 edd=off nokaslr noxsave mitigations=off tsc=reliable nowatchdog";

/// Becomes a VM with Linux that does this, or says why it cannot.
///
/// # Errors
/// The place is refused, or QEMU cannot be started.
pub fn run(name: &str, vcpus: usize, workload: &str, place: &Place) -> Result<Infallible, String> {
    if vcpus != 1 {
        return Err(format!("a VM with Linux has one vCPU, not {vcpus}"));
    }
    place.take()?;
    // A socket of the port's name is how `vsteer` finds it.
    let folder = format!("{SOCKETS}/{name}");
    std::fs::create_dir_all(&folder).map_err(|e| format!("making {folder}: {e}"))?;
    let why = Command::new(EMULATOR)
        .args(["-name", &format!("{name},debug-threads=on"), "-accel", "kvm", "-M", MACHINE])
        .args(["-cpu", PROCESSOR, "-m", MEMORY_MIB, "-smp", "1", "-nodefaults", "-no-user-config"])
        .args([
            "-device",
            "virtio-serial-device",
            "-device",
            &format!("virtserialport,chardev=port,name={PORT}"),
        ])
        .args(["-chardev", &format!("socket,id=port,path={folder}/{PORT},server=on,wait=off")])
        .args(["-display", "none", "-serial", "stdio", "-no-reboot"])
        .args(["-kernel", "/guest/vmlinuz", "-initrd", "/guest/initramfs"])
        .args(["-append", &format!("{KERNEL_WORDS} vsteer.workload={workload}")])
        .exec();
    Err(format!("starting {EMULATOR}: {why}"))
}
