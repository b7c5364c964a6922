//! Shared start of all tests of the observer.

use vsteer_bpf::{Observer, Options};

/// An observer. The tests that call this are ignored unless they run as root, so a refusal is a failure.
pub fn observer(options: Options) -> Observer {
    Observer::start(options).unwrap_or_else(|fault| panic!("{fault}"))
}
