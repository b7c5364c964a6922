//! The two ends of a session: where an application shows its frames, and the viewer.

use crate::cpu::now_ns;
use crate::picture::canvas::Size;
use std::sync::atomic::AtomicBool;
use vsteer_core::Fault;

/// The display on which the application shows its frames; used in the application's thread.
pub trait Shows {
    /// Shows a frame when there is room for it; false if it was told to stop earlier.
    ///
    /// # Errors
    /// The display is gone.
    fn show(&mut self, pixels: &[u8], stop: &AtomicBool) -> Result<bool, Fault>;
}

/// The viewer; used in the viewer's thread.
pub trait Viewer {
    /// Waits until the screen may have changed; true if so. It also returns from time to time without a
    /// change.
    ///
    /// # Errors
    /// It cannot continue.
    fn changed(&mut self) -> Result<bool, Fault>;

    /// Since when the present screen has been visible, ns.
    fn seen_ns(&self) -> u64 {
        now_ns()
    }

    /// The number in the picture, and the position of the picture's corner.
    ///
    /// # Errors
    /// Its display is gone.
    fn number(&mut self) -> Result<Option<(u32, [usize; 2])>, Fault>;

    /// The visible part from this position on; `None` if it is not completely visible.
    ///
    /// # Errors
    /// Its display is gone.
    fn part(&mut self, at: [usize; 2], size: Size) -> Result<Option<Vec<u8>>, Fault>;

    /// CPU time of its own process, ns; `None` if it decodes in this thread.
    fn cpu_ns(&self) -> Option<u64>;

    /// What was negotiated according to the received data, and what is wrong with it. Called after the end.
    fn negotiated(&mut self) -> (String, Option<Fault>);
}
