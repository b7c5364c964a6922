//! What all tests of the observer begin with.

use vsteer_bpf::{Observer, Options};
use vsteer_core::FaultKind;

/// One that observes, or none where eBPF is refused, which is said.
pub fn observer(options: Options) -> Option<Observer> {
    match Observer::start(options) {
        Ok(observer) => Some(observer),
        Err(f) if matches!(f.kind, FaultKind::NoPrivilege | FaultKind::Unsupported) => {
            eprintln!("skipped: {f}");
            None
        }
        Err(f) => panic!("{f}"),
    }
}
