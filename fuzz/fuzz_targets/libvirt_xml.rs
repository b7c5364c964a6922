//! Any text is a domain or refused; a part that was read can be put back and is then what it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vsteer_core::CpuSet;
use vsteer_core::nouns::{Role, Tid};
use vsteer_core::setting::Change;
use vsteer_host::kvm::{definition, xml};

fuzz_target!(|text: &str| {
    if let Ok(domain) = xml::parse(text) {
        let _ = domain.topology_shown();
    }
    let cpus = CpuSet::first(2);
    let change = Change::Affinity { role: Role::Vcpu(0), tid: Tid(1), from: cpus.clone(), to: cpus };
    if let Ok((changed, former)) = definition::changed(text, &change) {
        let back = former.iter().try_fold(changed, |xml, part| definition::put(&xml, part));
        let back = back.expect("what was changed can be changed back");
        for part in &former {
            assert_eq!(definition::read(&back, part).as_ref(), Ok(part));
        }
    }
});
