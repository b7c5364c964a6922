//! Any text is a domain or is refused. A part that was changed can be put back and is then what it was.

use vsteer_core::CpuSet;
use vsteer_core::nouns::Role;
use vsteer_host::kvm::{definition, xml};

pub fn run(bytes: &[u8]) -> bool {
    let text = crate::text(bytes);
    let domain = xml::parse(text);
    if let Ok(domain) = &domain {
        let _ = domain.topology_shown();
    }
    let pin = definition::pin(Role::Vcpu(0), &CpuSet::first(2)).expect("a vCPU can be pinned");
    if let Ok((changed, former)) = definition::changed(text, &[pin]) {
        let back = former.iter().try_fold(changed, |xml, part| definition::put(&xml, part));
        let back = back.expect("what was changed can be changed back");
        for part in &former {
            assert_eq!(definition::read(&back, part).as_ref(), Ok(part));
        }
    }
    domain.is_ok()
}

pub fn seeds() -> Vec<Vec<u8>> {
    crate::seeds_of(&[
        "<domain type='kvm' id='1'><name>web</name><uuid>4dea22b3-1d52-d8f3-2516-782e98ab3fa0</uuid>\
<memory unit='KiB'>1048576</memory><vcpu placement='static' cpuset='0-3'>2</vcpu><cputune><shares>512</shares>\
<vcpupin vcpu='0' cpuset='1'/><emulatorpin cpuset='0'/></cputune><cpu><topology sockets='1' cores='2' threads='1'/></cpu>\
</domain>",
    ])
}
