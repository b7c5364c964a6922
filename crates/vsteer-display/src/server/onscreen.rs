//! Reads what another project's viewer shows. The viewer gets an X display without a screen (Xvfb), and
//! frames are read from that display.
//!
//! The number is read every few milliseconds in the upper left corner. A frame counts as presented when its
//! number is there; the rest of the frame may appear a moment later. The window may be a little off, within
//! the searched area. CPU time is the viewer's, without its display's.
//!
//! Left out: viewers with frames and menus around the picture.

use super::process::Process;
use super::xdisplay::{self, XDisplay};
use crate::cpu::now_ns;
use crate::picture::canvas::Size;
use crate::picture::number;
use crate::server::ends::Viewer;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vsteer_core::Fault;

/// The time limit for a first picture.
const CONNECTS_WITHIN: Duration = Duration::from_secs(30);
/// The time between two looks at the viewer's display.
const LOOK_EVERY: Duration = Duration::from_millis(3);
/// How much wider and higher the viewer's display is: the size of the area that is searched for the number.
const AROUND: usize = 40;

/// A temporary folder for certificates and settings, removed at the end.
pub struct Home(PathBuf);

impl Home {
    /// A different folder for each port.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(port: u16) -> Result<Home, Fault> {
        let path = std::env::temp_dir().join(format!("vsteer-display-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|e| Fault::io(format!("making {}", path.display()), &e))?;
        Ok(Home(path))
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The environment of a program that uses this folder and this display.
    pub fn environment(&self, display: u32) -> Vec<(&'static str, String)> {
        let home = self.0.display().to_string();
        let folders = ["HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"].map(|key| (key, home.clone()));
        folders.into_iter().chain([("DISPLAY", format!(":{display}"))]).collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Derives what was negotiated from the viewer's output.
type Told = Box<dyn Fn(&[String]) -> (String, Option<Fault>)>;

pub struct OnScreen {
    // Fields are dropped in this order: the viewer ends before its display.
    process: Process,
    display: XDisplay,
    _screen: Process,
    _home: Home,
    size: Size,
    corner: Vec<u8>,
    /// The number when the corner was last read.
    seen: Option<u32>,
    told: Told,
}

impl OnScreen {
    /// Starts the viewer in its own display, and waits for a first picture.
    ///
    /// # Errors
    /// It or Xvfb is missing, or does not start.
    pub fn start(
        (program, package): (&'static str, &str),
        words: &[String],
        home: Home,
        picture: Size,
        told: Told,
        stop: &AtomicBool,
    ) -> Result<OnScreen, Fault> {
        let size = Size { width: picture.width + AROUND, height: picture.height + AROUND };
        let (screen, number) = xdisplay::virtual_screen(size)?;
        let display = XDisplay::open(number, size, 1)?;
        let process = Process::start(program, package, words, &home.environment(number))?;
        let mut viewer = OnScreen {
            process,
            display,
            _screen: screen,
            _home: home,
            size,
            corner: Vec::new(),
            seen: None,
            told,
        };
        let until = now_ns() + CONNECTS_WITHIN.as_nanos() as u64;
        while viewer.number()?.is_none() && now_ns() < until && !stop.load(Ordering::Relaxed) {
            viewer.process.runs()?;
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(viewer)
    }
}

impl Viewer for OnScreen {
    fn changed(&mut self) -> Result<bool, Fault> {
        std::thread::sleep(LOOK_EVERY);
        let before = self.seen;
        let now = self.number()?.map(|(frame, _)| frame);
        self.process.runs()?;
        Ok(now != before)
    }

    fn number(&mut self) -> Result<Option<(u32, [usize; 2])>, Fault> {
        let corner = Size {
            width: (number::WIDTH + AROUND).min(self.size.width),
            height: (number::HEIGHT + AROUND).min(self.size.height),
        };
        self.display.read([0, 0], corner, &mut self.corner)?;
        let found = number::read(&self.corner, corner);
        self.seen = found.map(|(frame, _)| frame);
        Ok(found)
    }

    fn part(&mut self, at: [usize; 2], size: Size) -> Result<Option<Vec<u8>>, Fault> {
        if at[0] + size.width > self.size.width || at[1] + size.height > self.size.height {
            return Ok(None);
        }
        let mut pixels = Vec::new();
        self.display.read(at, size, &mut pixels)?;
        Ok(Some(pixels))
    }

    fn cpu_ns(&self) -> Option<u64> {
        self.process.cpu_ns()
    }

    fn negotiated(&mut self) -> (String, Option<Fault>) {
        // The viewer writes the rest of its log when it ends.
        self.process.end();
        (self.told)(&self.process.said())
    }
}
