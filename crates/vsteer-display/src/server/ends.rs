//! Who is at the two ends of a session: where an application shows its frames, and who looks at them.

use crate::cpu::now_ns;
use crate::picture::canvas::Size;
use std::sync::atomic::AtomicBool;
use vsteer_core::Fault;

/// Where the application shows its frames; in its thread.
pub trait Shows {
    /// Shows one, once there is room for it; false where it was told to stop before.
    ///
    /// # Errors
    /// The display has gone.
    fn show(&mut self, pixels: &[u8], stop: &AtomicBool) -> Result<bool, Fault>;
}

/// Who looks; in the viewer's thread.
pub trait Viewer {
    /// Waits until what is seen may have changed, and says whether; it looks again now and then.
    ///
    /// # Errors
    /// It cannot go on.
    fn changed(&mut self) -> Result<bool, Fault>;

    /// When what is seen now was there, ns.
    fn seen_ns(&self) -> u64 {
        now_ns()
    }

    /// The number in the picture, and where the picture's corner is.
    ///
    /// # Errors
    /// Its display has gone.
    fn number(&mut self) -> Result<Option<(u32, [usize; 2])>, Fault>;

    /// What is seen from there on; none where so much is not seen.
    ///
    /// # Errors
    /// Its display has gone.
    fn part(&mut self, at: [usize; 2], size: Size) -> Result<Option<Vec<u8>>, Fault>;

    /// CPU time of a process of its own, ns; none where it decodes in this thread.
    fn cpu_ns(&self) -> Option<u64>;

    /// What was agreed on, as it came, and what is wrong with that; nothing is seen any more.
    fn negotiated(&mut self) -> (String, Option<Fault>);
}
