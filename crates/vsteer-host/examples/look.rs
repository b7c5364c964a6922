//! Looks at the VMs of this host for some seconds and prints what is set up and where time went.
//! `look [SECONDS [auto|ebpf|schedstat|both [URI]]]`

use vsteer_core::model;
use vsteer_host::kvm::host::{KvmHost, Options};
use vsteer_host::observe::{CollectorChoice, Observe};

fn main() {
    if let Err(fault) = run() {
        eprintln!("{fault}");
        std::process::exit(i32::from(fault.kind.exit_code()));
    }
}

fn run() -> Result<(), vsteer_core::Fault> {
    let argument = |i| std::env::args().nth(i);
    let seconds: u64 = argument(1).and_then(|s| s.parse().ok()).unwrap_or(2);
    let way = argument(2).unwrap_or_default();
    let collector = match way.as_str() {
        "ebpf" | "both" => CollectorChoice::Ebpf,
        "schedstat" => CollectorChoice::Schedstat,
        _ => CollectorChoice::Auto,
    };
    let mut host = KvmHost::open(Options { connect: argument(3), collector, ..Options::default() })?;
    let config = host.config()?;
    println!("{}", serde_json::to_string_pretty(&config.vms).expect("plain values"));
    println!("{:?} {} {}", config.cgroups, config.kernel, config.fingerprint());
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for i in 0..=seconds {
        if i > 0 {
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
        if way == "both" {
            let (a, b) = host.sample_both()?;
            first.push(a);
            second.push(b);
        } else {
            first.push(host.sample()?);
        }
    }
    let collectors = [Some(host.collector()), host.second_collector()];
    for (collector, batches) in collectors.into_iter().flatten().zip([&first, &second]) {
        let derived = model::derive(&config, &collector, batches)?;
        println!(
            "{} {:.3} s, busy {:?}",
            derived.collector,
            derived.window_ns as f64 / 1e9,
            derived.busy_mean()
        );
        for vm in &derived.vms {
            println!("  {:?} {:?} throttled/s {:?}", vm.name, vm.memory_by_node, vm.throttled_per_s);
            for t in &vm.threads {
                println!("    {:12} {:7} {:?}", t.role.to_string(), t.tid.0, t.shares);
            }
        }
    }
    for note in host.notes() {
        println!("note: {note}");
    }
    Ok(())
}
