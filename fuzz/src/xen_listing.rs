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

/// Four pCPUs on two nodes, two pools, and names with spaces.
const LARGER: [&str; 7] = [
    "host : (none)\nxen_version : 4.17.7\nnr_cpus : 4\ncpu_mhz : 2999.998\ntotal_memory : 1536\nfree_memory : 400\n\
cpu_topology           :\ncpu:    core    socket     node\n  0:       0        0        0\n  1:       0        0        0\n\
  2:       0        1        1\n  3:       1        1        1\nnuma_info              :\n\
node:    memsize    memfree    distances\n   0:      1024        465      10,21\n   1:       512          3      21,10",
    "Name ID Mem VCPUs\tState\tTime(s) UUID Reason-Code\tSecurity Label\n\
Domain-0 0 512 1 r----- 8.9 00000000-0000-0000-0000-000000000000 - -\n\
a light  one 1 16 1 -b---- 11.1 d94758d6-e6a4-11f0-a78b-61df179a2337 - -\n\
heavy 2 16 2 --p--- 15.4 db45cca8-e6a4-11f0-8fc4-6f554d57670a - system_u:x",
    "Name ID VCPU CPU State Time(s) Affinity (Hard / Soft)\nDomain-0 0 0 0 r-- 9.0 0 / all\n\
a light  one 1 0 1 --- 11.1 all / all\nheavy 2 0 - --p 15.5 1-2 / 1\nheavy 2 1 1 -b- 15.5 all / 0,2-3",
    "Name CPUs Sched Active Domain count\nPool-0 1 credit y 1\nmy pool 2 credit2 y 2\nnone 1 null n 0",
    "Name CPU list\nPool-0 0\nmy pool 1,2\nnone 3",
    "Cpupool Pool-0: tslice=30ms ratelimit=1000us migration-delay=0us\nName ID Weight Cap\nDomain-0 0 256 0\n\
Cpupool my pool: ratelimit=1000us\nName ID Weight Cap\na light  one 1 256 0\nheavy 2 512 40",
    "Cpupool Pool-0: sched=RTDS\nName ID VCPU Period Budget Extratime\nDomain-0 0 0 10000 4000 yes\n\
my vm 2 1 5000 1000 no",
];

pub fn seeds() -> Vec<Vec<u8>> {
    [TEXTS, LARGER].map(|texts| texts.join("\n---\n").into_bytes()).into()
}
