//! A trace that somebody saved, with what Xen's tools said at that time.
//!
//! `xentrace -D -e 0x00021000 host.xentrace` writes it; beside it lie, under these names, what the tools printed:
//!
//! ```text
//! info.txt     xl info -n        without it no tick can be told as time
//! domains.txt  xl list -v        without it domains have numbers for names
//! vcpus.txt    xl vcpu-list      without it vCPUs that never changed their state are missing
//! pools.txt    xl cpupool-list   pool-cpus.txt: the same with -c
//! scheduler.txt  xl sched-credit or xl sched-credit2: weights and caps
//! ```
//!
//! Left out: the clock on the wall, which a trace does not tell; it is taken to begin at the file's last change.

use super::config::{Listed, Texts};
use super::listing::Domain;
use super::told::Told;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::UNIX_EPOCH;
use vsteer_core::nouns::{Batch, Collector, HostConfig};
use vsteer_core::{Fault, FaultKind};
use vsteer_record::xentrace::account::Accounts;
use vsteer_record::xentrace::{IDLE_DOMAIN, Reader, Record};

/// From one sample to the next, ns.
const EVERY_NS: u64 = 1_000_000_000;

/// What a saved trace holds.
#[derive(Debug)]
pub struct Saved {
    /// How the host was set up.
    pub config: HostConfig,
    /// How it was sampled.
    pub collector: Collector,
    /// A sample a second, and one at each end.
    pub batches: Vec<Batch>,
    /// What is not whole, or not known.
    pub notes: Vec<String>,
}

/// Reads a trace and what lies beside it.
///
/// # Errors
/// `BadInput` for a file that is no trace, or without `info.txt` beside it; `NothingThere` for one without a change.
pub fn read(file: &Path) -> Result<Saved, Fault> {
    let failed = |e: &std::io::Error| Fault::io(format!("reading {}", file.display()), e);
    let bytes = std::fs::read(file).map_err(|e| failed(&e))?;
    let mut changes = Vec::new();
    let mut reader = Reader::default();
    reader.feed(&bytes, &mut |record| changes.push(record))?;
    let mut notes = Vec::new();
    if reader.is_cut() {
        notes.push(format!("{}: the last record is cut off and left out", file.display()));
    }
    let beside = |name: &str| std::fs::read_to_string(file.with_file_name(name)).unwrap_or_default();
    let mut listed = Listed::of(&Texts {
        info: beside("info.txt"),
        domains: beside("domains.txt"),
        vcpus: beside("vcpus.txt"),
        pools: beside("pools.txt"),
        pools_with_cpus: beside("pool-cpus.txt"),
        shares: beside("scheduler.txt"),
    });
    let khz = listed.khz().map_err(|f| {
        f.way_out(format!("keep what `xl info -n` says in {}", file.with_file_name("info.txt").display()))
    })?;
    name_strangers(&mut listed, &changes, &mut notes);
    let mut told = Told::new(listed, Accounts::new(khz, 0));
    let changed_ns = std::fs::metadata(file).and_then(|m| m.modified()).map_err(|e| failed(&e))?;
    let changed_ns = changed_ns.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let batches = batches(&mut told, changes, changed_ns);
    if batches.len() < 2 {
        return Err(Fault::new(FaultKind::NothingThere, format!("{} holds no changes", file.display()))
            .because("no vCPU changed its runstate, or other events were traced")
            .way_out("trace runstates: xentrace -D -e 0x00021000 FILE"));
    }
    if told.accounts.lost > 0 {
        notes.push(format!(
            "{}: Xen had no room for {} records: waits are missing",
            file.display(),
            told.accounts.lost
        ));
    }
    let config = told.listed.config()?;
    Ok(Saved { config, collector: Told::collector(), batches, notes })
}

/// Domains that no list names are named by their numbers.
fn name_strangers(listed: &mut Listed, changes: &[Record], notes: &mut Vec<String>) {
    let ids: BTreeSet<u16> = changes
        .iter()
        .filter_map(|r| if let Record::Change(c) = r { Some(c.domain) } else { None })
        .filter(|id| *id != IDLE_DOMAIN && !listed.domains.iter().any(|d| d.id == *id))
        .collect();
    if !ids.is_empty() {
        notes.push(format!("{} domains are not in domains.txt and have numbers for names", ids.len()));
    }
    listed.domains.extend(ids.into_iter().map(|id| Domain {
        id,
        name: if id == 0 { "Domain-0".to_owned() } else { format!("domain {id}") },
        uuid: format!("domain-{id}"),
        memory_mib: 0,
    }));
}

fn batches(told: &mut Told, changes: Vec<Record>, epoch_ns: u64) -> Vec<Batch> {
    let ticks = changes.iter().filter_map(|r| if let Record::Change(c) = r { Some(c.ticks) } else { None });
    let (Some(first), Some(last)) = (ticks.clone().min(), ticks.max()) else { return Vec::new() };
    changes.into_iter().for_each(|record| told.accounts.see(record));
    let every = told.accounts.ticks(EVERY_NS).max(1);
    let mut batches = Vec::new();
    let mut at = first;
    loop {
        told.accounts.settle_to(at);
        // Its own clock began when the machine did.
        batches.push(told.batch(|mono_ns| epoch_ns.saturating_sub(mono_ns)));
        if at == last {
            return batches;
        }
        at = at.saturating_add(every).min(last);
    }
}
