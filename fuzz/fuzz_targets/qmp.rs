//! Any line of a monitor, or of /proc/net/unix, is read or passed over.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vsteer_host::kvm::qmp::{cpus, is_taken};

fuzz_target!(|text: &str| {
    let _ = (cpus(text), is_taken(text, "/tmp/a b"));
    let _ = cpus(&format!("{{\"id\":\"vsteer\",\"return\":[{text}]}}"));
});
