//! `vsteer topology`: the machine's pCPUs, cores, caches and nodes, as vsteer reads them.

use crate::cli::{CollectorChoice, Source, TopologyArgs};
use crate::source::open_host;
use vsteer_core::Fault;
use vsteer_host::hypervisors;
use vsteer_host::root::Root;

/// Prints the topology.
///
/// # Errors
/// When the machine's files cannot be read; as [`open_host`].
pub fn run(a: &TopologyArgs, json: bool) -> Result<(), Fault> {
    let t = match &a.connect {
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
            open_host(&source)?.config()?.topology
        }
        None => vsteer_host::linux::topology::read(&Root::open(&a.root)?)?,
    };
    if json {
        crate::text::print_json(&t);
        return Ok(());
    }
    println!("pCPUs     online {}   offline {}   allowed {}", t.online(), t.offline(), t.allowed());
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
