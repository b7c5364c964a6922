//! `vsteer topology`: the machine's pCPUs, cores, caches and nodes, and what its kernel keeps off pCPUs, as vsteer reads them.

use crate::cli::{CollectorChoice, Source, TopologyArgs};
use crate::source::open_host;
use vsteer_core::nouns::FairTuning;
use vsteer_core::{Fault, Topology};
use vsteer_host::hypervisors;
use vsteer_host::linux::{topology, tuning};
use vsteer_host::root::Root;

#[derive(serde::Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    topology: &'a Topology,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduler: Option<&'a FairTuning>,
}

/// What the kernel keeps off pCPUs; nothing of an ordinary kernel.
fn print_scheduler(s: &FairTuning) {
    let tickless = s.nohz_full.clone().unwrap_or_default();
    for (name, cpus) in [("isolated", &s.isolated), ("nohz_full", &tickless)] {
        if !cpus.is_empty() {
            println!("{name:<9} pCPUs {cpus}");
        }
    }
    if s.preempt_rt == Some(true) {
        println!("kernel    PREEMPT_RT");
    }
}

/// Prints the topology.
///
/// # Errors
/// When the machine's files cannot be read; as [`open_host`].
pub fn run(a: &TopologyArgs, json: bool) -> Result<(), Fault> {
    let (t, scheduler) = match &a.connect {
        Some(uri) => {
            let source = Source {
                copy_vsteer: a.copy_vsteer,
                // Nothing is counted, so the collector that needs no privilege is enough.
                collector: if hypervisors::is_changed_there(Some(uri)) {
                    CollectorChoice::Schedstat
                } else {
                    CollectorChoice::Auto
                },
                ..Source::at(Some(uri))
            };
            let config = open_host(&source)?.config()?;
            (config.topology, config.scheduler)
        }
        None => {
            let root = Root::open(&a.root)?;
            (topology::read(&root)?, Some(tuning::read(&root)))
        }
    };
    if json {
        crate::text::print_json(&Printed { topology: &t, scheduler: scheduler.as_ref() });
        return Ok(());
    }
    println!("pCPUs     online {}   offline {}   allowed {}", t.online(), t.offline(), t.allowed());
    scheduler.iter().for_each(print_scheduler);
    for p in t.packages() {
        println!("package   {:<4} pCPUs {}", p.id.map_or("?".to_owned(), |i| i.to_string()), p.cpus);
    }
    for n in t.nodes() {
        let memory =
            n.memory_bytes.map_or("?".to_owned(), |b| format!("{:.1} GiB", b as f64 / f64::from(1 << 30)));
        println!("node      {:<4} pCPUs {:<14} memory {memory}", n.id.0, n.cpus.to_string());
    }
    for c in t.caches() {
        let size = c.size_bytes.map_or("?".to_owned(), |b| format!("{} KiB", b / 1024));
        println!("cache     L{} {:<12} {size:<12} pCPUs {}", c.level, format!("{:?}", c.kind), c.cpus);
    }
    for c in t.cores() {
        println!("core      {:<4} pCPUs {}", c.id.map_or("?".to_owned(), |i| i.to_string()), c.cpus);
    }
    for o in t.oddities() {
        println!("odd       {}: {}", crate::text::one_line(&o.place), crate::text::one_line(&o.what));
    }
    Ok(())
}
