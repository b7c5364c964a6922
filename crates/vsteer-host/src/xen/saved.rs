//! Reads a saved trace, together with the output that Xen's tools printed at that time.
//!
//! `xentrace -D -e 0x00021000 host.xentrace` writes the trace. Files next to it hold what the tools printed:
//!
//! ```text
//! info.txt     xl info -n        without it vsteer cannot convert ticks to time
//! domains.txt  xl list -v        without it the names of domains are their numbers
//! vcpus.txt    xl vcpu-list      without it vCPUs that never changed their state are missing
//! pools.txt    xl cpupool-list   pool-cpus.txt: the same with -c
//! scheduler.txt  xl sched-credit or xl sched-credit2: weights and caps
//! rtds.txt     xl sched-rtds -v all: the reservations
//! ```
//!
//! Left out: the wall clock, which a trace does not contain. vsteer takes the time of the file's last change
//! instead.

use super::config::{Listed, Texts};
use super::listing::Domain;
use super::told::Told;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::UNIX_EPOCH;
use vsteer_core::limits;
use vsteer_core::nouns::{Batch, Collector, HostConfig};
use vsteer_core::plural::counted;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::files;
use vsteer_record::xentrace::account::Accounts;
use vsteer_record::xentrace::{self, Change, IDLE_DOMAIN, Record, Runstate, Trace};

/// The time between two samples, ns.
const EVERY_NS: u64 = 1_000_000_000;

/// The content of a saved trace.
#[derive(Debug)]
pub struct Saved {
    /// The host's configuration at that time.
    pub config: HostConfig,
    /// What the samples measure.
    pub collector: Collector,
    /// One sample per second, and one at each end.
    pub batches: Vec<Batch>,
    /// Notes about missing or unknown parts.
    pub notes: Vec<String>,
}

/// Reads a trace and the files next to it.
///
/// # Errors
/// `BadInput` for a file that is not a trace or has no `info.txt` next to it; `NothingThere` for one without
/// changes.
pub fn read(file: &Path) -> Result<Saved, Fault> {
    let failed = |e: &std::io::Error| Fault::io(format!("cannot read {}", file.display()), e);
    let bytes = files::read_at_most(file, limits::XEN_TRACE).map_err(|e| failed(&e))?;
    let Trace { changes, lost, cut, .. } = xentrace::read(&bytes)?;
    let mut notes = Vec::new();
    if cut {
        notes.push(format!("{}: left out the last record, which is cut off", file.display()));
    }
    let mut beside = |name: &str| {
        let text = files::text_beside(file, name).unwrap_or_else(|e| {
            notes.push(format!("left out {}: {e}", file.with_file_name(name).display()));
            None
        });
        text.unwrap_or_default()
    };
    let mut listed = Listed::of(&Texts {
        info: beside("info.txt"),
        domains: beside("domains.txt"),
        vcpus: beside("vcpus.txt"),
        pools: beside("pools.txt"),
        pools_with_cpus: beside("pool-cpus.txt"),
        shares: beside("scheduler.txt"),
        reservations: beside("rtds.txt"),
    });
    let khz = listed.khz().map_err(|f| {
        f.help(format!("save the output of `xl info -n` as {}", file.with_file_name("info.txt").display()))
    })?;
    name_strangers(&mut listed, &changes, &mut notes);
    let mut accounts = Accounts::new(khz, 0);
    // The trace is complete, so the first change of each vCPU says what the vCPU did before.
    let mut seen = BTreeSet::new();
    for c in changes.iter().filter(|c| seen.insert((c.domain, c.vcpu))) {
        let pcpu = (c.from == Runstate::Running).then_some(c.pcpu);
        accounts.assume((c.domain, c.vcpu), c.from, pcpu);
    }
    let mut told = Told::new(listed, accounts);
    let changed_ns = std::fs::metadata(file).and_then(|m| m.modified()).map_err(|e| failed(&e))?;
    let changed_ns = changed_ns.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let batches = batches(&mut told, changes, changed_ns);
    if batches.len() < 2 {
        return Err(Fault::new(
            FaultKind::NothingThere,
            format!("{} holds no runstate changes", file.display()),
        )
        .because("no vCPU changed its runstate, or the trace has other events")
        .help("trace runstates: xentrace -D -e 0x00021000 FILE"));
    }
    if lost > 0 {
        notes.push(format!(
            "{}: Xen dropped {} for lack of room: some waits are missing",
            file.display(),
            counted(lost, "record")
        ));
    }
    let config = told.listed.config()?;
    Ok(Saved { config, collector: Told::collector(), batches, notes })
}

/// Domains that no list contains get their numbers as names.
fn name_strangers(listed: &mut Listed, changes: &[Change], notes: &mut Vec<String>) {
    let ids: BTreeSet<u16> = changes
        .iter()
        .map(|c| c.domain)
        .filter(|id| *id != IDLE_DOMAIN && !listed.domains.iter().any(|d| d.id == *id))
        .collect();
    if !ids.is_empty() {
        notes.push(format!("domains.txt lacks {} domains, which get their number as name", ids.len()));
    }
    listed.domains.extend(ids.into_iter().map(|id| Domain {
        id,
        name: if id == 0 { "Domain-0".to_owned() } else { format!("domain {id}") },
        uuid: format!("domain-{id}"),
        memory_mib: 0,
        paused: false,
    }));
}

/// One sample per second from the ordered changes. If nothing changes for longer, the next sample is at the
/// next change.
fn batches(told: &mut Told, changes: Vec<Change>, epoch_ns: u64) -> Vec<Batch> {
    let (Some(first), Some(last)) = (changes.first(), changes.last()) else { return Vec::new() };
    let (begin, last) = (first.ticks, last.ticks);
    // Wall-clock time at tick 0.
    let epoch_ns = epoch_ns.saturating_sub(told.accounts.ns(begin));
    let every = told.accounts.ticks(EVERY_NS).max(1);
    let mut changes = changes.into_iter().peekable();
    let mut batches = Vec::new();
    let mut at = begin;
    loop {
        while let Some(change) = changes.next_if(|c| c.ticks <= at) {
            told.accounts.see(Record::Change(change));
        }
        told.accounts.settle_to(at);
        batches.push(told.batch(|_| epoch_ns));
        let Some(next) = changes.peek() else { return batches };
        at = at.saturating_add(every).max(next.ticks).min(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn change(bytes: &mut Vec<u8>, ticks: u64, vcpu: u32, from: u32, to: u32) {
        let words = [0x9002_1001 | from << 8 | to << 4, ticks as u32, (ticks >> 32) as u32, 1 << 16 | vcpu];
        words.iter().for_each(|w| bytes.extend(w.to_le_bytes()));
    }

    /// The first change of a vCPU says what the vCPU did before, even if a list from another time differs.
    /// Samples come every second. Across a gap of any length there is only one.
    #[test]
    fn a_trace_is_told_from_its_first_change_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut records = Vec::new();
        change(&mut records, 1_000_000, 1, 2, 1);
        change(&mut records, 1_500_000, 1, 1, 0);
        change(&mut records, 3_000_000, 0, 0, 2);
        change(&mut records, 1 << 44, 1, 0, 2);
        let mut bytes: Vec<u8> = Vec::new();
        [0x2001_f003, 0, records.len() as u32].iter().for_each(|w: &u32| bytes.extend(w.to_le_bytes()));
        bytes.extend(&records);
        let file = folder.path().join("host.xentrace");
        std::fs::File::create(&file).unwrap().write_all(&bytes).unwrap();
        assert_eq!(read(&file).unwrap_err().kind, FaultKind::BadInput, "no info.txt");
        std::fs::write(folder.path().join("info.txt"), "nr_cpus : 1\ncpu_mhz : 1.000\n").unwrap();
        std::fs::write(
            folder.path().join("vcpus.txt"),
            "one  1  0  0  -b-  1.0  all / all\none  1  1  0  -b-  1.0  all / all\n",
        )
        .unwrap();
        let saved = read(&file).unwrap();
        assert!(saved.batches.len() < 10, "{}", saved.batches.len());
        let times: Vec<u64> = saved.batches.iter().map(|b| b.unix_ns).collect();
        assert!(times.windows(2).all(|w| w[0] < w[1]), "{times:?}");
        // 3 s on a clock of 1 MHz is 2 s after the first change.
        let third = &saved.batches[2];
        let of = |vcpu: u32| third.threads.iter().find(|t| t.role.vcpu() == Some(vcpu)).unwrap();
        let (zero, one) = (&of(0).counters, &of(1).counters);
        assert_eq!((zero.run_ns, zero.blocked_ns), (Some(2_000_000_000), Some(0)));
        assert_eq!((one.ready_ns, one.run_ns), (Some(500_000_000), Some(1_500_000_000)));
    }
}
