//! Any line of a monitor, or of /proc/net/unix, is read or passed over.

use vsteer_host::kvm::qmp::{cpus, is_taken};

pub fn run(bytes: &[u8]) -> bool {
    let text = crate::text(bytes);
    let _ = is_taken(text, "/tmp/a b");
    let wrapped = cpus(&format!("{{\"id\":\"vsteer\",\"return\":[{text}]}}"));
    cpus(text).is_some() | wrapped.is_some()
}

pub fn seeds() -> Vec<Vec<u8>> {
    let cpu = "{\"cpu-index\":0,\"thread-id\":11,\"qom-path\":\"/machine/unattached/device[0]\",\"target\":\"x86_64\"}";
    crate::seeds_of(&[cpu, &format!("{{\"id\":\"vsteer\",\"return\":[{cpu}]}}")])
}
