//! Shows an application's frames in an X display, and reads pixels from a display.
//!
//! It uses shared memory, like other programs that draw moving pictures. Of two buffers, one is shown while
//! the other is drawn. Before a frame is shown, it waits until the display has taken the frame before the
//! last. A frame is one request, so no server sees half of it. Frames are drawn on the root window, because
//! there is no window manager. The shared memory is an unnamed file that both processes have open (MIT-SHM
//! 1.2), read and written by file calls.
//!
//! Source: MIT-SHM, protocol version 1.2 (X.Org). Left out: displays with other depths than 24, displays on
//! other machines.

use super::process::Process;
use crate::picture::canvas::Size;
use crate::server::ends::Shows;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};
use x11rb::connection::{Connection, RequestConnection};
use x11rb::protocol::Event;
use x11rb::protocol::shm::{self, ConnectionExt as _};
use x11rb::protocol::xproto::{ConnectionExt as _, CreateGCAux, Gcontext, ImageFormat, Window};
use x11rb::rust_connection::RustConnection;

/// The depth of the canvas's pixels.
const DEPTH: u8 = 24;
/// How often to check whether to end.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The time limit for a display; on an idle machine it takes a second.
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// The program for a display without a screen, and its package.
pub const SCREEN: (&str, &str) = ("Xvfb", "xvfb");

/// Starts Xvfb, a display without a screen, of this size. Also returns its number. It continues after its
/// last client has left (-noreset), because some clients open it twice.
///
/// # Errors
/// It is missing, or does not start.
pub fn virtual_screen(size: Size) -> Result<(Process, u32), Fault> {
    let words =
        format!("-displayfd 1 -noreset -nolisten tcp -screen 0 {}x{}x{DEPTH}", size.width, size.height);
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    let mut process = Process::start(SCREEN.0, SCREEN.1, &words, &[])?;
    let number = display_number(&process.line(STARTS_WITHIN)?)?;
    Ok((process, number))
}

/// The display number that an X server prints (`-displayfd 1`).
///
/// # Errors
/// It is not a number.
pub fn display_number(said: &str) -> Result<u32, Fault> {
    said.trim().parse().map_err(|_| {
        Fault::new(FaultKind::Failed, "an X server")
            .because(format!("{said:?} is not the number of a display"))
    })
}

/// A display with shared memory.
pub struct XDisplay {
    connection: RustConnection,
    root: Window,
    context: Gcontext,
    size: Size,
    buffers: Vec<Buffer>,
    next: usize,
}

struct Buffer {
    segment: shm::Seg,
    memory: File,
    /// Given to the display, which has not confirmed it yet.
    given: bool,
}

impl XDisplay {
    /// Opens the display with this number, for frames of this size.
    ///
    /// # Errors
    /// It does not answer, is smaller, has another depth, or has no shared memory.
    pub fn open(number: u32, size: Size, buffers: usize) -> Result<XDisplay, Fault> {
        let name = format!("X display :{number}");
        let failed = |e: &dyn std::fmt::Display| Fault::new(FaultKind::Failed, name.clone()).because(e);
        let (connection, at) =
            RustConnection::connect(Some(&format!(":{number}"))).map_err(|e| failed(&e))?;
        let screen = &connection.setup().roots[at];
        let (root, depth) = (screen.root, screen.root_depth);
        let has =
            Size { width: usize::from(screen.width_in_pixels), height: usize::from(screen.height_in_pixels) };
        if depth != DEPTH || has.width < size.width || has.height < size.height {
            let why = format!("{}x{} pixels of {depth} bits", has.width, has.height);
            return Err(failed(&why));
        }
        let there = connection.extension_information(shm::X11_EXTENSION_NAME).map_err(|e| failed(&e))?;
        if there.is_none() {
            return Err(failed(&"it has no shared memory (MIT-SHM)"));
        }
        let version =
            connection.shm_query_version().map_err(|e| failed(&e))?.reply().map_err(|e| failed(&e))?;
        if (version.major_version, version.minor_version) < (1, 2) {
            return Err(failed(&"its MIT-SHM is older than 1.2"));
        }
        let context = connection.generate_id().map_err(|e| failed(&e))?;
        connection
            .create_gc(context, root, &CreateGCAux::new().graphics_exposures(0))
            .map_err(|e| failed(&e))?;
        let mut all = Vec::new();
        for _ in 0..buffers {
            let told = |e: std::io::Error| Fault::io(format!("memory to share with {name}"), &e);
            let memory = rustix::fs::memfd_create("frame", rustix::fs::MemfdFlags::CLOEXEC)
                .map_err(|e| told(e.into()))?;
            let memory = File::from(memory);
            memory.set_len(size.bytes() as u64).map_err(told)?;
            let segment = connection.generate_id().map_err(|e| failed(&e))?;
            let theirs = std::os::fd::OwnedFd::from(memory.try_clone().map_err(told)?);
            connection
                .shm_attach_fd(segment, theirs, false)
                .map_err(|e| failed(&e))?
                .check()
                .map_err(|e| failed(&e))?;
            all.push(Buffer { segment, memory, given: false });
        }
        Ok(XDisplay { connection, root, context, size, buffers: all, next: 0 })
    }

    /// Reads a part of the display.
    ///
    /// # Errors
    /// The display is gone.
    ///
    /// # Panics
    /// If the part is not inside.
    pub fn read(&mut self, at: [usize; 2], size: Size, pixels: &mut Vec<u8>) -> Result<(), Fault> {
        assert!(at[0] + size.width <= self.size.width && at[1] + size.height <= self.size.height, "within");
        let buffer = &self.buffers[0];
        pixels.resize(size.bytes(), 0);
        self.connection
            .shm_get_image(
                self.root,
                at[0] as i16,
                at[1] as i16,
                size.width as u16,
                size.height as u16,
                u32::MAX,
                u8::from(ImageFormat::Z_PIXMAP),
                buffer.segment,
                0,
            )
            .map_err(|e| gone(&e))?
            .reply()
            .map_err(|e| gone(&e))?;
        buffer.memory.read_exact_at(pixels, 0).map_err(|e| gone(&e))
    }
}

impl Shows for XDisplay {
    /// Shows the frame at the origin.
    fn show(&mut self, pixels: &[u8], stop: &AtomicBool) -> Result<bool, Fault> {
        while self.buffers[self.next].given {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            match self.connection.poll_for_event().map_err(|e| gone(&e))? {
                Some(Event::ShmCompletion(done)) => {
                    let of = |b: &&mut Buffer| b.segment == done.shmseg;
                    if let Some(buffer) = self.buffers.iter_mut().find(of) {
                        buffer.given = false;
                    }
                }
                Some(Event::Error(e)) => return Err(gone(&format!("{e:?}"))),
                Some(_) => {}
                None => {
                    let stream = self.connection.stream();
                    let mut waits = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)];
                    let _ = poll(&mut waits, Some(&LOOK_EVERY));
                }
            }
        }
        let (width, height) = (self.size.width as u16, self.size.height as u16);
        let buffer = &mut self.buffers[self.next];
        buffer.memory.write_all_at(pixels, 0).map_err(|e| gone(&e))?;
        self.connection
            .shm_put_image(
                self.root,
                self.context,
                width,
                height,
                0,
                0,
                width,
                height,
                0,
                0,
                DEPTH,
                u8::from(ImageFormat::Z_PIXMAP),
                true,
                buffer.segment,
                0,
            )
            .map_err(|e| gone(&e))?;
        self.connection.flush().map_err(|e| gone(&e))?;
        buffer.given = true;
        self.next = (self.next + 1) % self.buffers.len();
        Ok(true)
    }
}

fn gone(e: &dyn std::fmt::Display) -> Fault {
    Fault::new(FaultKind::Failed, "an X display").because(e)
}
