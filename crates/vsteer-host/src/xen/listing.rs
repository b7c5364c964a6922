//! Parses the tables that Xen's tools print.
//!
//! A domain's name may contain blanks, so vsteer reads rows from the right end, where the numbers are. If a
//! table lacks a value (an older tool, a scheduler without weights), it is `None`.
//!
//! Source: tools/xl/xl_info.c, xl_vcpu.c, xl_sched.c, xl_cpupool.c of Xen 4.17. Tested with output of 4.17.7.
//!
//! Left out: `xl list -l`. Its JSON shows a domain's settings at creation, not the present ones.

use std::collections::BTreeMap;
use vsteer_core::CpuSet;
use vsteer_core::cpuset::MAX_CPU;
use vsteer_core::nouns::{CpuPool, Reserved};

/// A domain, from `xl list -v`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// The domain's number, which is new at every start.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// The identity of the domain, which stays the same as long as the domain is defined.
    pub uuid: String,
    /// Its memory.
    pub memory_mib: u64,
    /// Is the domain paused?
    pub paused: bool,
}

/// A vCPU, from `xl vcpu-list`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vcpu {
    /// Its domain's number.
    pub domain: u16,
    /// The vCPU's own number.
    pub index: u32,
    /// The present or last pCPU; `None` while the vCPU is offline.
    pub pcpu: Option<u32>,
    /// Does the vCPU run on that pCPU now?
    pub running: bool,
    /// Does it wait for an event?
    pub blocked: bool,
    /// Hard affinity: the pCPUs that it may use; `None` means any.
    pub hard: Option<CpuSet>,
    /// Soft affinity: the pCPUs that it prefers; `None` means any.
    pub soft: Option<CpuSet>,
}

/// Weight and cap of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// 1 to 65,535; the default is 256.
    pub weight: u32,
    /// Percent of a pCPU; 0 means no cap.
    pub cap: u32,
}

/// A pool in the schedulers' tables: its parameters (`tslice` = `30ms`) and the shares of its domains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolShares {
    /// Parameters of the pool's scheduler.
    pub parameters: BTreeMap<String, String>,
    /// By the domain's number.
    pub shares: BTreeMap<u16, Share>,
}

/// The values of `xl info`, by name.
pub type Info = BTreeMap<String, String>;

/// The name-value pairs of `xl info`, without its tables.
pub fn info(text: &str) -> Info {
    let pair = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let name = name.trim();
        (!name.contains(' ')).then(|| (name.to_owned(), value.trim().to_owned()))
    };
    text.lines().filter_map(pair).collect()
}

/// A pCPU, from `xl info -n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    /// The pCPU's number.
    pub cpu: u32,
    /// Its core, unique within the socket.
    pub core: u32,
    /// Its socket.
    pub socket: u32,
    /// Its memory node.
    pub node: u32,
}

/// A memory node, from `xl info -n`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Its memory.
    pub memory_mib: u64,
    /// The distances to each node, in order.
    pub distances: Vec<u32>,
}

/// The tables of `xl info -n`.
pub fn topology(text: &str) -> (Vec<Seat>, Vec<Node>) {
    let (mut seats, mut nodes) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let Some((first, rest)) = line.split_once(':') else { continue };
        let Ok(first) = first.trim().parse::<u32>() else { continue };
        let numbers = |text: &str| -> Option<Vec<u64>> {
            text.split(|c: char| c.is_whitespace() || c == ',')
                .filter(|w| !w.is_empty())
                .map(|w| w.parse().ok())
                .collect()
        };
        let Some(n) = numbers(rest) else { continue };
        match n[..] {
            [core, socket, node] if nodes.is_empty() => {
                let small = |n: u64| u32::try_from(n).ok();
                let seat = || {
                    Some(Seat { cpu: first, core: small(core)?, socket: small(socket)?, node: small(node)? })
                };
                // No machine has a higher number.
                seats.extend(seat().filter(|s| s.cpu <= MAX_CPU));
            }
            [memory_mib, _free, ref distances @ ..] => nodes.push(Node {
                id: first,
                memory_mib,
                distances: distances.iter().map(|d| *d as u32).collect(),
            }),
            _ => {}
        }
    }
    (seats, nodes)
}

/// The rows of `xl list -v`, without those that cannot be parsed.
pub fn domains(text: &str) -> Vec<Domain> {
    let row = |line: &str| {
        // Name ID Mem VCPUs State Time UUID Reason Label [NODE Affinity]. The UUID is the field that cannot
        // be confused with another.
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().rposition(|w| is_uuid(w))?;
        let [id, memory, _vcpus, state, _time] = words.get(at.checked_sub(5)?..at)? else { return None };
        let (id, memory_mib) = (id.parse().ok()?, memory.parse().ok()?);
        let (name, uuid) = (words[..at - 5].join(" "), words[at].to_owned());
        Some(Domain { id, name, uuid, memory_mib, paused: state.contains('p') })
    };
    text.lines().filter_map(row).collect()
}

fn is_uuid(word: &str) -> bool {
    let lengths = [8, 4, 4, 4, 12];
    let parts: Vec<&str> = word.split('-').collect();
    parts.len() == 5
        && parts.iter().zip(lengths).all(|(p, n)| p.len() == n && p.chars().all(|c| c.is_ascii_hexdigit()))
}

/// The rows of `xl vcpu-list`.
pub fn vcpus(text: &str) -> Vec<Vcpu> {
    let row = |line: &str| {
        let (rest, soft) = line.rsplit_once(" / ")?;
        // Name ID VCPU CPU State Time Hard
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [.., domain, index, pcpu, state, _time, hard] = words[..] else { return None };
        let set = |text: &str| match text.trim() {
            "all" => Some(None),
            text => text.parse().ok().map(Some),
        };
        Some(Vcpu {
            domain: domain.parse().ok()?,
            index: index.parse().ok()?,
            pcpu: pcpu.parse().ok(),
            running: state.starts_with('r'),
            blocked: state.contains('b'),
            hard: set(hard)?,
            soft: set(soft)?,
        })
    };
    text.lines().filter_map(row).collect()
}

/// The pools of `xl cpupool-list`, with the pCPUs of `xl cpupool-list -c`.
pub fn pools(text: &str, with_cpus: &str) -> Vec<CpuPool> {
    let cpus: BTreeMap<String, CpuSet> = with_cpus
        .lines()
        .filter_map(|line| {
            let (name, set) = line.trim_end().rsplit_once(char::is_whitespace)?;
            Some((name.trim().to_owned(), set.parse().ok()?))
        })
        .collect();
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name @ .., count, scheduler, _active, _domains] = &words[..] else { return None };
        count.parse::<u32>().ok()?;
        let name = name.join(" ");
        let cpus = cpus.get(&name).cloned().unwrap_or_default();
        Some(CpuPool { name, scheduler: (*scheduler).to_owned(), cpus, parameters: BTreeMap::new() })
    };
    text.lines().filter_map(row).collect()
}

/// The rows of `xl sched-rtds -v all`, by domain and vCPU.
pub fn reservations(text: &str) -> BTreeMap<(u16, u32), Reserved> {
    let row = |line: &str| {
        // Name ID VCPU Period Budget Extratime
        let words: Vec<&str> = line.split_whitespace().collect();
        let [.., domain, vcpu, period, budget, extra] = words[..] else { return None };
        let extra_time = match extra {
            "yes" => true,
            "no" => false,
            _ => return None,
        };
        let (period_us, budget_us) = (period.parse().ok()?, budget.parse().ok()?);
        Some(((domain.parse().ok()?, vcpu.parse().ok()?), Reserved { budget_us, period_us, extra_time }))
    };
    text.lines().filter_map(row).collect()
}

/// `xl sched-credit` or `xl sched-credit2`: every pool that has this scheduler.
pub fn shares(text: &str) -> BTreeMap<String, PoolShares> {
    let mut all: BTreeMap<String, PoolShares> = BTreeMap::new();
    let mut pool = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Cpupool ") {
            let Some((name, parameters)) = rest.rsplit_once(':') else { continue };
            let pair = |word: &str| word.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned()));
            let own = all.entry(name.to_owned()).or_default();
            own.parameters = parameters.split_whitespace().filter_map(pair).collect();
            pool = Some(name.to_owned());
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let ([.., id, weight, cap], Some(pool)) = (&words[..], &pool) else { continue };
        if let (Ok(id), Ok(weight), Ok(cap)) = (id.parse(), weight.parse(), cap.parse()) {
            all.entry(pool.clone()).or_default().shares.insert(id, Share { weight, cap });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Printed by Xen 4.17.7 in the lab (`vsteer lab run xen`), with one name made unusual.
    const LIST: &str = "\
Name                                        ID   Mem VCPUs	State	Time(s)   UUID                            Reason-Code	Security Label
Domain-0                                     0   512     1     r-----       8.9 00000000-0000-0000-0000-000000000000        -                -
a light  one                                 1    16     1     r-----      11.1 d94758d6-e6a4-11f0-a78b-61df179a2337        -                -
heavy                                        2    16     1     --p---      15.4 db45cca8-e6a4-11f0-8fc4-6f554d57670a        -                -
";
    const VCPUS: &str = "\
Name                                ID  VCPU   CPU State   Time(s) Affinity (Hard / Soft)
Domain-0                             0     0    0   r--       9.0  0 / all
a light  one                         1     0    1   ---      11.1  all / all
heavy                                2     0    -   --p      15.5  1-2 / 1
heavy                                2     1    1   -b-      15.5  all / 0,2-3
";

    #[test]
    fn tables_of_domains_and_vcpus() {
        let all = domains(LIST);
        let told: Vec<_> = all.iter().map(|d| (d.id, d.name.as_str(), d.memory_mib)).collect();
        assert_eq!(told, [(0, "Domain-0", 512), (1, "a light one", 16), (2, "heavy", 16)]);
        assert_eq!(all.iter().map(|d| d.paused).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(all[2].uuid, "db45cca8-e6a4-11f0-8fc4-6f554d57670a");
        let all = vcpus(VCPUS);
        assert_eq!(all.len(), 4);
        assert_eq!((all[0].pcpu, all[0].running, all[0].soft.clone()), (Some(0), true, None));
        assert_eq!(all[0].hard, Some(CpuSet::single(0)));
        assert_eq!((all[2].pcpu, all[2].running, all[2].blocked), (None, false, false));
        assert_eq!((all[3].index, all[3].blocked), (1, true));
        assert_eq!(all[3].soft, Some("0,2-3".parse().unwrap()));
    }

    #[test]
    fn tables_of_pools_and_schedulers() {
        let list = "Name               CPUs   Sched     Active   Domain count\nPool-0               1    credit       y          1\nmy pool              2    credit2      y          2\n";
        let with = "Name               CPU list\nPool-0             0\nmy pool            1,2\n";
        let all = pools(list, with);
        assert_eq!(all.len(), 2);
        assert_eq!(
            (all[1].name.as_str(), all[1].scheduler.as_str(), all[1].cpus.len()),
            ("my pool", "credit2", 2)
        );
        let text = "\
Cpupool Pool-0: tslice=30ms ratelimit=1000us migration-delay=0us
Name                                ID Weight  Cap
Domain-0                             0    256    0
Cpupool vsteer: tslice=30ms ratelimit=1000us migration-delay=0us
Name                                ID Weight  Cap
light                                1    256    0
heavy                                2    512   40
";
        // As documented in xl(1), because no hypervisor of Debian has this scheduler.
        let rtds = "Cpupool Pool-0: sched=RTDS\nName                                ID VCPU    Period    Budget Extratime\nDomain-0                             0    0     10000      4000        yes\nmy vm                                2    1      5000      1000         no\n";
        let told = reservations(rtds);
        assert_eq!(told[&(2, 1)], Reserved { budget_us: 1000, period_us: 5000, extra_time: false });
        assert_eq!((told.len(), told[&(0, 0)].extra_time), (2, true));
        let all = shares(text);
        assert_eq!(all["vsteer"].shares[&2], Share { weight: 512, cap: 40 });
        assert_eq!(all["Pool-0"].parameters["tslice"], "30ms");
        assert_eq!(all["Pool-0"].shares.len(), 1);
    }

    #[test]
    fn info_with_its_topology() {
        // The tables have the format of xl_info.c (output_topologyinfo, output_numainfo); the numbers are
        // invented.
        let text = "host                   : (none)\nxen_version            : 4.17.7\ncpu_mhz                : 2999.998\ncpu_topology           :\ncpu:    core    socket     node\n  0:       0        0        0\n  1:       1        0        1\nnuma_info              :\nnode:    memsize    memfree    distances\n   0:      1024        465      10,21\n   1:       512          3      21,10\n";
        assert_eq!(info(text)["xen_version"], "4.17.7");
        let (seats, nodes) = topology(text);
        assert_eq!(seats[1], Seat { cpu: 1, core: 1, socket: 0, node: 1 });
        assert_eq!(nodes[1], Node { id: 1, memory_mib: 512, distances: vec![21, 10] });
    }

    proptest! {
        #[test]
        fn no_text_makes_them_panic(text in "([ -~\\n\\t]|\\PC){0,300}") {
            let _ = (info(&text), topology(&text), domains(&text), vcpus(&text), pools(&text, &text), shares(&text), reservations(&text));
        }
    }
}
