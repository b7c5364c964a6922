//! `vsteer numa`: which VM belongs on which NUMA node, and what its guest should be shown of nodes.
//!
//! Of a recording or the live host, or of a host and a VM that are only described (`--host 2x18 --vcpus 12`).

use crate::cli::Numa;
use crate::text::{NodeLoad, Nodes, OfVm};
use crate::{source, text};
use vsteer_core::diagnose::Context;
use vsteer_core::model::HostModel;
use vsteer_core::nouns::{HostConfig, VmConfig, VmId};
use vsteer_core::numa::load::Load;
use vsteer_core::numa::moves::mend;
use vsteer_core::numa::vnuma::{HostShape, NodeShape, Version, VmShape, answer};
use vsteer_core::thresholds::Thresholds;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::backend::Described;
use vsteer_host::backends;

const GIB: f64 = 1_073_741_824.0;

/// Says.
///
/// # Errors
/// As [`source::window`]; `Usage` for a shape that is none.
pub fn run(a: &Numa, json: bool) -> Result<(), Fault> {
    if let Some(described) = backends::settings(&source::request(&a.window.source)) {
        return of_settings(a, &described?, json);
    }
    let (nodes, host, vms) = match &a.host {
        Some(host) => {
            let host = described(a, *host)?;
            let vm = OfVm { vm: "the VM".into(), shape: vm_shape(a), answer: answer(&host, &vm_shape(a)) };
            (None, host, vec![vm])
        }
        None => {
            let stretch = source::window(&a.window)?;
            let model = stretch.model()?;
            let host = observed(a, &stretch.config)?;
            let load = Load::of(&stretch.config, &model);
            let of = |vm: &VmConfig| {
                let shape = shape_of(a, vm);
                OfVm { vm: vm.name.clone(), shape, answer: answer(&beside(&host, &load, &vm.id), &shape) }
            };
            let vms = stretch.config.vms.iter().filter(|vm| vm.vcpu_count() > 0).map(of).collect();
            (Some(nodes(&stretch.config, &model)), host, vms)
        }
    };
    if json {
        crate::text::print_json(&serde_json::json!({ "host": host, "nodes": nodes, "vms": vms }));
    } else {
        print!("{}", text::numa(nodes.as_ref(), &host, &vms));
    }
    Ok(())
}

/// Every host of a service that tells settings without samples: nobody measured what VMs want.
fn of_settings(a: &Numa, described: &Described, json: bool) -> Result<(), Fault> {
    described.notes.iter().for_each(|n| eprintln!("vsteer: {n}"));
    let mut all = Vec::new();
    for (config, running) in &described.hosts {
        let host = observed(a, config)?;
        let of = |vm: &VmConfig| {
            let shape = shape_of(a, vm);
            OfVm { vm: vm.name.clone(), shape, answer: answer(&host, &shape) }
        };
        let vms: Vec<OfVm> = config.vms.iter().filter(|vm| vm.vcpu_count() > 0).map(of).collect();
        if json {
            all.push(serde_json::json!({ "name": config.hostname, "host": host, "vms": vms }));
        } else {
            println!("{}, {} VMs, {running} of them on", config.hostname, config.vms.len());
            println!("{}", text::numa(None, &host, &vms));
        }
    }
    if json {
        crate::text::print_json(&serde_json::json!({ "about": described.about, "hosts": all }));
    }
    Ok(())
}

fn nodes(config: &HostConfig, model: &HostModel) -> Nodes {
    let load = Load::of(config, model);
    let context = Context { config, model, thresholds: Thresholds::default() };
    let homes = load.homes();
    let of = |i: usize| {
        let (node, wanted) = (&load.nodes[i], load.wanted(i, &homes));
        NodeLoad {
            node: node.id.0,
            cores: node.cores,
            vcpus: wanted.vcpus,
            wanted_mean: wanted.mean,
            wanted_most: wanted.most(),
            has_room: load.has_room(i, &homes),
        }
    };
    Nodes {
        nodes: (0..load.nodes.len()).map(of).collect(),
        bunching: load.bunching,
        flowchart: context.flowchart(&load),
        mend: mend(&load),
        vms: load.guests.iter().map(|g| g.name.clone()).collect(),
    }
}

/// A host that is only described.
fn described(a: &Numa, (sockets, cores): (u32, u32)) -> Result<HostShape, Fault> {
    let per_socket = a.nodes_per_socket.max(1);
    if !cores.is_multiple_of(per_socket) {
        return Err(Fault::new(
            FaultKind::Usage,
            format!("{cores} cores of a socket are not {per_socket} equal nodes"),
        ));
    }
    let n = sockets * per_socket;
    let node = NodeShape {
        cores: cores / per_socket,
        memory_gib: a.host_memory.map(|bytes| bytes as f64 / GIB / f64::from(n)),
        busy_cores: 0.0,
        used_gib: 0.0,
    };
    let esxi = version(a, a.esxi.as_deref())?;
    Ok(HostShape { nodes: vec![node; n as usize], sockets, threads_per_core: a.threads, esxi })
}

fn version(a: &Numa, text: Option<&str>) -> Result<Option<Version>, Fault> {
    let parsed = text.and_then(Version::parse);
    match (&a.esxi, parsed) {
        (Some(said), None) => Err(Fault::new(FaultKind::Usage, format!("--esxi {said:?} is no version"))
            .way_out("such as 7.0.2 or 8.0")),
        _ => Ok(parsed),
    }
}

/// A host that was observed.
fn observed(a: &Numa, config: &HostConfig) -> Result<HostShape, Fault> {
    let topology = &config.topology;
    let nodes = topology.nodes().iter().filter(|n| !n.cpus.is_empty()).map(|n| NodeShape {
        cores: topology.cores().iter().filter(|k| k.cpus.intersects(&n.cpus)).count() as u32,
        memory_gib: n.memory_bytes.map(|b| b as f64 / GIB),
        busy_cores: 0.0,
        used_gib: 0.0,
    });
    let threads = topology.cores().iter().map(|k| k.cpus.len()).max().unwrap_or(1) as u32;
    let known = config.kernel.strip_prefix("VMware ESXi ");
    let esxi = version(a, a.esxi.as_deref().or(known))?;
    Ok(HostShape {
        nodes: nodes.collect(),
        sockets: topology.packages().len().max(1) as u32,
        threads_per_core: threads,
        esxi,
    })
}

/// The host with what all but one VM use of it.
fn beside(host: &HostShape, load: &Load, vm: &VmId) -> HostShape {
    let mut host = host.clone();
    for (i, (shape, node)) in host.nodes.iter_mut().zip(&load.nodes).enumerate() {
        let others = load.guests.iter().filter(|g| g.vm != *vm && g.home == Some(i));
        shape.busy_cores = node.others + others.clone().map(|g| g.demand).sum::<f64>();
        shape.used_gib = others.map(|g| g.memory_bytes.unwrap_or(0) as f64 / GIB).sum();
    }
    host
}

/// The VM that is described, and the settings that are said of all.
fn vm_shape(a: &Numa) -> VmShape {
    VmShape {
        cores_per_socket: a.cores_per_socket,
        hot_add: a.hot_add,
        prefer_ht: a.prefer_ht,
        vcpu_min: a.vcpu_min,
        follow_cores_per_socket: a.follow_cores_per_socket,
        ..VmShape::new(a.vcpus.unwrap_or(1), a.memory.map(|bytes| bytes as f64 / GIB))
    }
}

/// A VM that was observed; what is said on the command line comes first.
fn shape_of(a: &Numa, vm: &VmConfig) -> VmShape {
    let said = vm_shape(a);
    VmShape {
        vcpus: vm.vcpu_count() as u32,
        memory_gib: vm.memory_bytes.map(|b| b as f64 / GIB),
        cores_per_socket: a.cores_per_socket.or(vm.guest_topology.map(|t| t.cores * t.threads)),
        hot_add: a.hot_add || vm.vsphere.as_ref().and_then(|v| v.cpu_hot_add).unwrap_or(false),
        ..said
    }
}
