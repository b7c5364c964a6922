//! Runs QEMU's own VNC and SPICE servers. The guest of the virtual machine only shows the application's
//! frames. It copies each from memory shared with this program to the screen of QEMU's standard VGA
//! (guest/picture.S). An NMI over QMP wakes it.
//!
//! To show a frame, the application waits until the guest has copied the previous one. The guest is emulated
//! (TCG), not run by KVM. So it starts in a fifth of a second on any machine, and copies a 720p frame in some
//! 10 ms, which limits `source_fps`. QEMU's CPU time includes this. VNC: JPEG is sent if requested
//! (lossy=on). SPICE: no password; QEMU's options restrict what is sent, because SPICE's viewers cannot
//! request it.
//!
//! Source: `man 1 qemu-system-x86_64` (7.2: -vnc, -spice, ivshmem-plain, VGA), its QMP reference. Left out:
//! QXL (without a driver in the guest it is also a VGA) and virtio's screens, KVM.

use super::onscreen::Home;
use super::process::Process;
use super::{Display, Started};
use crate::cpu::now_ns;
use crate::picture::canvas::Size;
use crate::server::ends::Shows;
use crate::spice::Compression;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

pub const PROGRAM: &str = "qemu-system-x86_64";
pub const PACKAGE: &str = "qemu-system-x86";
/// guest/picture.S says how to make it.
const GUEST: &[u8] = include_bytes!("guest/picture.bin");
const STARTS_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_micros(500);
/// If the guest has not copied after this time, it is woken again, because it may have gone to sleep just as
/// it was woken.
const WAKES_AGAIN_NS: u64 = 20_000_000;
/// Port numbers of displays start here.
const FIRST_PORT: u16 = 5900;
/// Offsets in the shared memory; see the guest's source.
const NEWEST: u64 = 0;
const COPIED: u64 = 4;
const WIDTH: u64 = 8;
const BEGUN: u64 = 16;
const PIXELS: u64 = 4096;

/// The protocol that serves its screen.
#[derive(Debug, Clone, Copy)]
pub enum Served {
    /// VNC; viewers request their encodings.
    Vnc,
    Spice(Compression),
}

/// Starts QEMU, with a screen of this size.
///
/// # Errors
/// It is missing, or does not start; a width that its VGA does not support.
pub fn start(size: Size, served: Served) -> Result<Started, Fault> {
    if !size.width.is_multiple_of(8) {
        return Err(Fault::new(FaultKind::BadInput, format!("a screen of {} pixels' width", size.width))
            .because("QEMU's VGA has those that are a multiple of 8"));
    }
    let told = |e: std::io::Error| Fault::io("memory to share with a guest".to_owned(), &e);
    let memory =
        rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).map_err(|e| told(e.into()))?;
    let memory = File::from(memory);
    let length = (PIXELS as usize + size.bytes()).next_power_of_two();
    memory.set_len(length as u64).map_err(told)?;
    for (i, edge) in [size.width, size.height].into_iter().enumerate() {
        memory.write_all_at(&(edge as u32).to_le_bytes(), WIDTH + 4 * i as u64).map_err(told)?;
    }
    // The port is free now. If another process takes it before QEMU does, QEMU reports it.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|l| l.local_addr())
        .map_err(|e| Fault::io("a port for QEMU's server".to_owned(), &e))?
        .port();
    let serves = match served {
        Served::Vnc => {
            let display = port.checked_sub(FIRST_PORT).ok_or_else(|| {
                Fault::new(FaultKind::Unsupported, format!("port {port} for QEMU's VNC"))
                    .because("it counts from 5900")
            })?;
            format!("-vnc 127.0.0.1:{display},lossy=on")
        }
        Served::Spice(compression) => format!(
            "-display none -spice addr=127.0.0.1,port={port},disable-ticketing=on,{}",
            compression.options()
        ),
    };
    let home = Home::new(port)?;
    let guest = home.file("picture.bin");
    std::fs::write(&guest, GUEST).map_err(|e| Fault::io(format!("writing {}", guest.display()), &e))?;
    let monitor = home.file("qmp");
    let words = format!(
        "-accel tcg -nodefaults -m 32 -name picture -vga none -device VGA,addr=2,vgamem_mb={} \
         -object memory-backend-file,id=shared,size={length},share=on,mem-path=/proc/{}/fd/{} -device ivshmem-plain,memdev=shared,addr=3 \
         -kernel {} {serves} -qmp unix:{},server=on,wait=off",
        (size.bytes().next_power_of_two() >> 20).max(1),
        std::process::id(),
        memory.as_raw_fd(),
        guest.display(),
        monitor.display()
    );
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    let mut process = Process::start(PROGRAM, PACKAGE, &words, &[])?;
    process
        .until("its guest had not begun", STARTS_WITHIN, |_| word(&memory, BEGUN).is_ok_and(|w| w == 1))?;
    let failed = |e| Fault::io("speaking to QEMU's monitor".to_owned(), &e);
    let monitor = UnixStream::connect(&monitor).map_err(failed)?;
    let screen = GuestScreen::new(memory, monitor).map_err(failed)?;
    let version = screen.version.clone();
    let address = (Ipv4Addr::LOCALHOST, port).into();
    Ok(Started {
        processes: vec![process],
        display: Display::Guest(screen),
        address,
        version,
        home: Some(home),
    })
}

fn word(memory: &File, at: u64) -> std::io::Result<u32> {
    let mut bytes = [0; 4];
    memory.read_exact_at(&mut bytes, at)?;
    Ok(u32::from_le_bytes(bytes))
}

/// The guest's screen.
pub struct GuestScreen {
    memory: File,
    monitor: UnixStream,
    version: String,
    shown: u32,
}

impl GuestScreen {
    fn new(memory: File, mut monitor: UnixStream) -> std::io::Result<GuestScreen> {
        monitor.set_read_timeout(Some(STARTS_WITHIN))?;
        let mut hears = BufReader::new(monitor.try_clone()?);
        let mut greeting = String::new();
        hears.read_line(&mut greeting)?;
        monitor.write_all(b"{\"execute\": \"qmp_capabilities\"}\n")?;
        hears.read_line(&mut String::new())?;
        monitor.set_nonblocking(true)?;
        Ok(GuestScreen { memory, monitor, version: version(&greeting), shown: 0 })
    }

    /// Wakes the guest through QEMU's monitor. It ignores the monitor's answer, because the shared memory shows whether the
    /// guest copied the picture.
    fn wake(&mut self) -> std::io::Result<()> {
        let mut answers = [0; 4096];
        while self.monitor.read(&mut answers).is_ok_and(|n| n > 0) {}
        match self.monitor.write_all(b"{\"execute\": \"inject-nmi\"}\n") {
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }

    fn copied(&self) -> std::io::Result<bool> {
        Ok(word(&self.memory, COPIED)? == self.shown)
    }
}

impl Shows for GuestScreen {
    fn show(&mut self, pixels: &[u8], stop: &AtomicBool) -> Result<bool, Fault> {
        let told = |e: std::io::Error| Fault::io("showing a frame in a guest".to_owned(), &e);
        let mut woken = now_ns();
        while !self.copied().map_err(told)? {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if now_ns() > woken + WAKES_AGAIN_NS {
                woken = now_ns();
                self.wake().map_err(told)?;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        self.shown += 1;
        self.memory.write_all_at(pixels, PIXELS).map_err(told)?;
        self.memory.write_all_at(&self.shown.to_le_bytes(), NEWEST).map_err(told)?;
        self.wake().map_err(told)?;
        Ok(true)
    }
}

/// The version in a monitor's greeting.
fn version(greeting: &str) -> String {
    let said: serde_json::Value = serde_json::from_str(greeting).unwrap_or_default();
    let of = |part: &str| said["QMP"]["version"]["qemu"][part].as_u64();
    match (of("major"), of("minor"), of("micro")) {
        (Some(major), Some(minor), Some(micro)) => format!("QEMU {major}.{minor}.{micro}"),
        _ => "QEMU".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monitor_greets_with_its_version() {
        let greeting = r#"{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "x"}, "capabilities": []}}"#;
        assert_eq!(version(greeting), "QEMU 7.2.22");
        assert_eq!(version("no JSON"), "QEMU");
    }
}
