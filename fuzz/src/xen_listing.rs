//! Any texts are what Xen's tools print, or are refused. A line of `---` separates the texts.

use vsteer_host::xen::config::{Listed, Texts};

/// As Xen 4.17 prints them, of one pCPU and one domain.
const TEXTS: [&str; 7] = [
    "host : x\nxen_version : 4.17.7\nnr_cpus : 1\ncpu_mhz : 2999.998\ncpu_topology           :\ncpu:    core    socket     node\n  \
0:       0        0        0\nnuma_info              :\nnode:    memsize    memfree    distances\n   0:      1024        465      10",
    "Name ID Mem VCPUs State Time(s) UUID Reason-Code Security Label\n\
Domain-0 0 512 1 r----- 8.9 00000000-0000-0000-0000-000000000000 - -",
    "Name ID VCPU CPU State Time(s) Affinity (Hard / Soft)\nDomain-0 0 0 0 r-- 9.0 0 / all",
    "Name CPUs Sched Active Domain count\nPool-0 1 credit y 1",
    "Name CPU list\nPool-0 0",
    "Cpupool Pool-0: tslice=30ms ratelimit=1000us migration-delay=0us\nName ID Weight Cap\nDomain-0 0 256 0",
    "Cpupool Pool-0: sched=RTDS\nName ID VCPU Period Budget Extratime\nDomain-0 0 0 10000 4000 yes",
];

pub fn run(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split("\n---\n").map(str::to_owned);
    let mut next = || parts.next().unwrap_or_default();
    let listed = Listed::of(&Texts {
        info: next(),
        domains: next(),
        vcpus: next(),
        pools: next(),
        pools_with_cpus: next(),
        shares: next(),
        reservations: next(),
    });
    listed.khz().is_ok() & listed.config().is_ok()
}

pub fn seeds() -> Vec<Vec<u8>> {
    vec![TEXTS.join("\n---\n").into_bytes()]
}
