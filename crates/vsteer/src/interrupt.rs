//! Ctrl-C and SIGTERM: ends loops in an orderly way, and within two seconds also what does not end by itself.
//!
//! vsteer reads files, sockets and answers of others, and any of them can stall a read. So a thread waits for
//! the signal, gives the command a moment to notice it, and then ends the program. It does not do so in commands
//! that undo changes: these need as long as the undoing takes, and a second signal ends them.

#[cfg(feature = "host")]
mod wait;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
#[cfg(feature = "host")]
pub use wait::Woken;

/// How long a command has to notice a signal.
const NOTICES_WITHIN: Duration = Duration::from_millis(1500);

/// What restores the terminal if the program is ended, set while a screen is shown.
static AT_END: Mutex<Option<fn()>> = Mutex::new(None);

const SIGNALS: [i32; 2] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];

/// Becomes true at SIGINT or SIGTERM; a second one ends the program at once.
#[derive(Clone)]
pub struct Interrupt {
    set: Arc<AtomicBool>,
    #[cfg(feature = "host")]
    signal: wait::Signal,
}

impl Interrupt {
    /// Begins to listen, for a command that may be ended at any point.
    pub fn listen() -> Interrupt {
        let interrupt = Interrupt::listen_to_undo();
        end_if_late(&interrupt.set);
        interrupt
    }

    /// Begins to listen, for a command that has something to undo when it is interrupted.
    pub fn listen_to_undo() -> Interrupt {
        let set = Arc::new(AtomicBool::new(false));
        for signal in SIGNALS {
            // Registered in this order: the first signal finds the flag unset and sets it, the second ends.
            let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&set));
            let _ = signal_hook::flag::register(signal, Arc::clone(&set));
        }
        Interrupt {
            set,
            #[cfg(feature = "host")]
            signal: wait::Signal::listen(&SIGNALS),
        }
    }

    /// Has it come?
    pub fn is_set(&self) -> bool {
        let set = self.set.load(Ordering::Relaxed);
        if set {
            NOTICED.store(true, Ordering::Relaxed);
        }
        set
    }
}

/// Has the command seen the signal? Then it ends by itself.
static NOTICED: AtomicBool = AtomicBool::new(false);

/// Sets the function that the thread of [`Interrupt::listen`] calls before it ends the program.
#[cfg(feature = "host")]
pub fn at_end(restore: Option<fn()>) {
    *AT_END.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = restore;
}

/// The thread that waits needs no privilege, and commands that drop theirs cannot drop those of other threads.
fn need_nothing() {
    #[cfg(feature = "host")]
    {
        use vsteer_host::privilege::{CapabilitySet, Kept, confine};
        let _ = confine(Kept { capabilities: CapabilitySet::empty(), writes_elsewhere: false }, &[]);
    }
}

/// What returns once a signal has come, and `false` where none can be seen; `None` where nothing can be waited for.
#[cfg(unix)]
fn signal_came(_: &Arc<AtomicBool>) -> Option<impl FnOnce() -> bool + use<>> {
    let (mut read, written) = std::os::unix::net::UnixStream::pair().ok()?;
    for signal in SIGNALS {
        if let Ok(written) = written.try_clone() {
            let _ = signal_hook::low_level::pipe::register(signal, written);
        }
    }
    Some(move || std::io::Read::read_exact(&mut read, &mut [0]).is_ok())
}

/// As for Unix. Windows has nothing that becomes readable at a signal, so this one looks now and then.
#[cfg(not(unix))]
fn signal_came(set: &Arc<AtomicBool>) -> Option<impl FnOnce() -> bool + use<>> {
    let set = Arc::clone(set);
    Some(move || {
        while !set.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(200));
        }
        true
    })
}

/// Starts the thread that ends the program if it does not end by itself. It sleeps until a signal comes.
fn end_if_late(set: &Arc<AtomicBool>) {
    let Some(came) = signal_came(set) else { return };
    let wait = move || {
        need_nothing();
        // Where no signal can be seen here, the flag alone ends the command.
        if !came() {
            return;
        }
        std::thread::sleep(NOTICES_WITHIN);
        // It ends by itself, or goes on with what it has; a second signal ends it.
        if NOTICED.load(Ordering::Relaxed) {
            return;
        }
        if let Some(restore) = AT_END.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take() {
            restore();
        }
        #[cfg(feature = "host")]
        vsteer_host::remote::end_all();
        eprintln!("vsteer: stopped in the middle, because something did not answer");
        std::process::exit(130);
    };
    let _ = std::thread::Builder::new().name("interrupt".to_owned()).spawn(wait);
}
