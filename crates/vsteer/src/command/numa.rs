//! `vsteer numa`: which VM belongs on which NUMA node, and which sockets and cores should its guest see?
//!
//! It answers for a recording, for the live host, or for a described host (`--host 2x18 --vcpus 12`).

use crate::cli::Numa;
use crate::text::{NodeLoad, Nodes, OfVm};
use crate::{source, text};
use vsteer_core::diagnose::Context;
use vsteer_core::model::HostModel;
use vsteer_core::nouns::{HostConfig, VmConfig};
use vsteer_core::numa::load::Load;
use vsteer_core::numa::moves::mend;
use vsteer_core::numa::vnuma::{GIB, HostShape, NodeShape, Version, VmShape, answer};
#[cfg(feature = "host")]
use vsteer_core::plural::counted;
use vsteer_core::thresholds::Thresholds;
use vsteer_core::{Fault, FaultKind};
#[cfg(feature = "host")]
use vsteer_host::{backend::Described, hypervisors};

/// Says.
///
/// # Errors
/// As [`source::window`]; `Usage` for a shape that is none.
pub fn run(a: &Numa, thresholds: Thresholds, json: bool) -> Result<(), Fault> {
    #[cfg(feature = "host")]
    source::need_one(&a.window.source)?;
    #[cfg(feature = "host")]
    if let Some(described) = hypervisors::settings(&source::request(&a.window.source)) {
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
                OfVm { vm: vm.name.clone(), shape, answer: answer(&host.beside(&load, &vm.id), &shape) }
            };
            let vms = stretch.config.vms.iter().filter(|vm| vm.vcpu_count() > 0).map(of).collect();
            (Some(nodes(&stretch.config, &model, thresholds)), host, vms)
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
#[cfg(feature = "host")]
fn of_settings(a: &Numa, described: &Described, json: bool) -> Result<(), Fault> {
    described.notes.iter().for_each(crate::text::note);
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
            println!("{}: {}, {running} of them running", config.hostname, counted(config.vms.len(), "VM"));
            println!("{}", text::numa(None, &host, &vms));
        }
    }
    if json {
        crate::text::print_json(&serde_json::json!({ "about": described.about, "hosts": all }));
    }
    Ok(())
}

fn nodes(config: &HostConfig, model: &HostModel, thresholds: Thresholds) -> Nodes {
    let load = Load::of(config, model);
    let context = Context { config, model, thresholds };
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
            format!("cannot divide the {cores} cores of a socket into {per_socket} equal nodes"),
        ));
    }
    let n = sockets * per_socket;
    let node = NodeShape {
        cores: cores / per_socket,
        memory_gib: a.host_memory.map(|bytes| bytes as f64 / GIB / f64::from(n)),
        busy_cores: 0.0,
        used_gib: 0.0,
    };
    let esxi = version(a)?;
    Ok(HostShape { nodes: vec![node; n as usize], sockets, threads_per_core: a.threads, esxi })
}

fn version(a: &Numa) -> Result<Option<Version>, Fault> {
    let parsed = a.esxi.as_deref().and_then(Version::parse);
    match (&a.esxi, parsed) {
        (Some(said), None) => Err(Fault::new(FaultKind::Usage, format!("--esxi {said:?} is not a version"))
            .help("for example 7.0.2 or 8.0")),
        _ => Ok(parsed),
    }
}

/// A host that was observed; the version that is said on the command line comes first.
fn observed(a: &Numa, config: &HostConfig) -> Result<HostShape, Fault> {
    let seen = HostShape::of(config);
    Ok(HostShape { esxi: version(a)?.or(seen.esxi), ..seen })
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
    let (said, seen) = (vm_shape(a), VmShape::of(vm));
    VmShape {
        vcpus: seen.vcpus,
        memory_gib: seen.memory_gib,
        cores_per_socket: a.cores_per_socket.or(seen.cores_per_socket),
        hot_add: a.hot_add || seen.hot_add,
        ..said
    }
}
