//! `vsteer agent`: answers a vsteer on another host over ssh. People do not type it, so the help does not show it.
//!
//! A key with `command="vsteer agent"` starts it, whatever the other side asked ssh to run (`SSH_ORIGINAL_COMMAND`).

use crate::interrupt::Interrupt;
use crate::realtime_socket::timer_counts;
use std::os::fd::AsFd;
use vsteer_core::{Fault, limits};
use vsteer_host::agent::{Terms, open_here, serve};

/// Answers until the other side has gone.
///
/// # Errors
/// As [`serve`].
pub fn run() -> Result<(), Fault> {
    let interrupt = Interrupt::listen();
    let terms = Terms {
        open: &|open| open_here(open, Some(timer_counts)),
        silence: limits::AGENT_SILENCE,
        stopped: &|| interrupt.is_set(),
    };
    serve(std::io::stdin().as_fd(), std::io::stdout().as_fd(), &terms)
}
