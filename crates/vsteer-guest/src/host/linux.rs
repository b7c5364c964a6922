//! Which VMs of the emulated host have an operating system? Those whose workload needs one, and those of which the job says so: Linux, under QEMU and KVM.
//!
//! QEMU becomes what this program was started as, in its place: its process is the VM's, and its vCPUs' threads are `CPU N/KVM`. What runs inside is this
//! program once more, as the first one of a Linux (main.rs); the VM's only serial line is QEMU's standard input and output, by which it is asked for
//! reports, as the VMs of the other kind are.
//!
//! It is a *microvm*, with hardly a device to be emulated. The processor is the host's, but for what does not hold when an emulated processor
//! (QEMU 7.2) is handed on:
//! - `-xsave` and what needs it: sizes of the state that the kernel finds contradictory, after which it stops.
//! - `-kvm-pv-eoi`: the guest then says that an interrupt is served by leaving the VM, which is the first that its handlers do. QEMU delivers an injected interrupt
//!   twice where the emulated pCPU has to stop before the VM is left again (docs/decisions/0003-exact-virtual-time.md), and Linux, interrupted in the rest of a
//!   handler, waited for a lock of its own for ever.
//!
//! It has one port of virtio-serial, by which the host tells it that it is opted in (agent.rs), and a monitor, by which it is moved live into another such
//! process (`migrate`).
//!
//! Left out: disks, networks.

use super::sleep_s;
use crate::place::Place;
use std::convert::Infallible;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

const EMULATOR: &str = "/usr/bin/qemu-system-x86_64";
const MACHINE: &str = "microvm,x-option-roms=off,rtc=off,auto-kernel-cmdline=off";
const PROCESSOR: &str = "host,-kvm-pv-eoi,-xsave,-avx,-avx2,-fma,-f16c,-vaes,-vpclmulqdq";
const SOCKETS: &str = "/run/vms";
const PORT: &str = "org.vsteer.realtime.0";
const MONITOR: &str = "monitor";
const INCOMING: &str = "incoming";
const INITRAMFS: &str = "/guest/initramfs";
/// Beside three times the initramfs (that of a player is some 250 MiB): it is there twice for a moment, and what it is unpacked to may have half of the
/// memory that is not it.
const MEMORY_MIB: u64 = 256;
/// From a question to the monitor's answer, and until a VM that is awaited listens.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
/// What the monitor says when it waits for the next word.
const PROMPT: &str = "(qemu) ";
/// What tells a Linux that somebody will ask for reports.
pub const ASKED: &str = "vsteer.asked";
/// As the host's (the lab's emulated/machine.rs), and without what would be said on the console.
const KERNEL_WORDS: &str =
    "console=ttyS0 quiet loglevel=1 panic=-1 edd=off nokaslr noxsave mitigations=off tsc=reliable nowatchdog";

/// Becomes a VM with Linux that does this, or says why it cannot. Where it is to be `moved` here it waits for that.
///
/// # Errors
/// The place is refused, or QEMU cannot be started.
pub fn run(
    name: &str,
    vcpus: usize,
    workload: &str,
    place: &Place,
    moved: bool,
) -> Result<Infallible, String> {
    place.take()?;
    // A socket of the port's name is how `vsteer` finds it.
    let folder = format!("{SOCKETS}/{name}");
    std::fs::create_dir_all(&folder).map_err(|e| format!("making {folder}: {e}"))?;
    let initramfs = std::fs::metadata(INITRAMFS).map_err(|e| format!("reading {INITRAMFS}: {e}"))?;
    let memory_mib = MEMORY_MIB + 3 * (initramfs.len() >> 20);
    let incoming = [String::from("-incoming"), format!("unix:{folder}/{INCOMING}")];
    let why = Command::new(EMULATOR)
        .args(["-name", &format!("{name},debug-threads=on"), "-accel", "kvm", "-M", MACHINE])
        .args(["-cpu", PROCESSOR, "-m", &memory_mib.to_string(), "-smp", &vcpus.to_string()])
        .args(["-nodefaults", "-no-user-config"])
        .args([
            "-device",
            "virtio-serial-device",
            "-device",
            &format!("virtserialport,chardev=port,name={PORT}"),
        ])
        .args(["-chardev", &format!("socket,id=port,path={folder}/{PORT},server=on,wait=off")])
        .args(["-display", "none", "-serial", "stdio", "-no-reboot"])
        .args(["-monitor", &format!("unix:{folder}/{MONITOR},server=on,wait=off")])
        .args(["-kernel", "/guest/vmlinuz", "-initrd", INITRAMFS])
        .args(["-append", &format!("{KERNEL_WORDS} {ASKED} vsteer.workload={workload}")])
        .args(if moved { &incoming[..] } else { &[] })
        .exec();
    Err(format!("starting {EMULATOR}: {why}"))
}

/// Moves a VM, live, to the process that waits for it, and returns once it runs there.
///
/// # Errors
/// What QEMU says of it, or that it says nothing.
pub fn migrate(from: &str, to: &str) -> Result<(), String> {
    let told = |e: std::io::Error| format!("moving {from} to {to}: {e}");
    let destination = format!("{SOCKETS}/{to}/{INCOMING}");
    let mut waited = Duration::ZERO;
    while !std::path::Path::new(&destination).exists() {
        if waited >= ANSWERS_WITHIN {
            return Err(format!("moving {from}: {to} does not await it"));
        }
        sleep_s(1);
        waited += Duration::from_secs(1);
    }
    let mut monitor = UnixStream::connect(format!("{SOCKETS}/{from}/{MONITOR}")).map_err(told)?;
    monitor.set_read_timeout(Some(ANSWERS_WITHIN)).map_err(told)?;
    answer(&mut monitor).map_err(told)?;
    let mut ask = |words: String| {
        monitor.write_all(words.as_bytes())?;
        answer(&mut monitor)
    };
    // It is answered when it is done.
    let said = ask(format!("migrate unix:{destination}\n")).map_err(told)?;
    let state = ask("info migrate\n".to_owned()).map_err(told)?;
    if state.contains("Migration status: completed") {
        Ok(())
    } else {
        Err(format!("moving {from} to {to}: {} {}", said.trim(), state.trim()))
    }
}

/// What the monitor says before it waits for the next word.
fn answer(monitor: &mut UnixStream) -> std::io::Result<String> {
    let mut said = Vec::new();
    let mut part = [0; 4096];
    while !said.ends_with(PROMPT.as_bytes()) {
        match monitor.read(&mut part)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            n => said.extend(&part[..n]),
        }
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}
