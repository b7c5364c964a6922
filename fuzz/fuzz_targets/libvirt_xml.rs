//! Any text is a domain or refused; a part that was read can be put back and is then what it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vsteer_core::CpuSet;
use vsteer_core::nouns::Role;
use vsteer_host::kvm::{definition, xml};

fuzz_target!(|text: &str| {
    if let Ok(domain) = xml::parse(text) {
        let _ = domain.topology_shown();
    }
    let Ok(pin) = definition::pin(Role::Vcpu(0), &CpuSet::first(2)) else { return };
    if let Ok((changed, former)) = definition::changed(text, &[pin]) {
        let back = former.iter().try_fold(changed, |xml, part| definition::put(&xml, part));
        let back = back.expect("what was changed can be changed back");
        for part in &former {
            assert_eq!(definition::read(&back, part).as_ref(), Ok(part));
        }
    }
});
