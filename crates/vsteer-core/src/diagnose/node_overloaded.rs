//! Does a NUMA node carry more vCPUs than it has cores while its VMs wait?
//!
//! The rule follows the flowchart of J. Park 2022 (doi:10.6109/jkiice.2022.26.10.1432). First, ready or co-stop
//! exceeds any threshold of vsteer. Second, the VM's node carries more vCPUs than it has cores. The explanation
//! reports where the flowchart itself ends, with the paper's own thresholds. The recommendation comes from
//! [`crate::numa::moves`], which considers the demand of all VMs together. On hosts with one node the rule finds
//! nothing; `pcpus_overloaded` and `overcommitted` cover them.
//!
//! ESXi moves VMs that communicate much to one node (action affinity, VMware KB 2097369; reference 11 of the
//! paper). That node is then overloaded beside an idle one, and moved VMs return unless a node affinity keeps them
//! away.

use super::{Context, Evidence, Finding, Measure, Rule, count};
use crate::model::VmModel;
use crate::numa::flowchart::{End, Walk};
use crate::numa::load::Load;
use crate::numa::moves::{Mend, Move, mend, tied};
use crate::plural::pcpus;

pub const RULE: Rule = Rule {
    name: "node_overloaded",
    doc: "a NUMA node carries more vCPUs than it has cores, and its VMs wait",
    explains: &[Measure::Ready, Measure::CoStop, Measure::WakeLatency],
    check,
};

const TRAP: &str = "ESXi may have moved these VMs together: it places VMs that communicate much on one \
    node (Numa.LocalityWeightActionAffinity, KB 2097369). That node then stays overloaded beside an idle \
    one.";

fn moved(c: &Context<'_>, load: &Load, moves: &[Move]) -> String {
    let one = |m: &Move| {
        let node = &load.nodes[m.to];
        format!("VM {:?} to node {} ({})", c.name(&load.guests[m.guest].vm), node.id.0, pcpus(&node.cpus))
    };
    format!("move {}, with its memory", moves.iter().map(one).collect::<Vec<_>>().join(", "))
}

fn by_the_letter(load: &Load, walk: &Walk) -> String {
    match walk.end {
        End::NothingToDo => "nothing to do".to_owned(),
        End::AnotherCause => "look for another cause".to_owned(),
        End::Migrate(n) => format!("migrate to node {} and set its node affinity", load.nodes[n].id.0),
        End::ReduceOrUpgrade => "reduce the vCPUs or upgrade the CPUs".to_owned(),
    }
}

fn next(c: &Context<'_>, load: &Load) -> String {
    match mend(load) {
        Mend::Moves { moves, .. } => format!(
            "{}. No smaller set of moves gives every node room (vsteer plan --only node)",
            moved(c, load, &moves)
        ),
        Mend::NothingToDo => {
            "find what wakes the vCPUs together: the node has enough cores for the demand at most \
                times"
                .to_owned()
        }
        Mend::Cannot { relief, fewer_vcpus, more_cores, .. } if !relief.is_empty() => format!(
            "{}. The moves reduce the overload but do not remove it: {}",
            moved(c, load, &relief),
            crate::numa::moves::cannot(fewer_vcpus, more_cores)
        ),
        Mend::Cannot { fewer_vcpus, more_cores, .. } => format!(
            "reduce the number of vCPUs or upgrade the host's CPUs, because {}: {}",
            tied(load).unwrap_or_else(|| "no other node has room".to_owned()),
            crate::numa::moves::cannot(fewer_vcpus, more_cores)
        ),
    }
}

/// VMs on vSphere wait, but vsteer does not know their home nodes, so it cannot check the nodes.
fn homeless(c: &Context<'_>, load: &Load) -> Option<Finding> {
    let of_vsphere = |id| c.config.vm(id).is_some_and(|v| v.manager.keeps_settings());
    let waiting: Vec<&VmModel> = load
        .guests
        .iter()
        .filter(|g| g.home.is_none() && of_vsphere(&g.vm))
        .filter_map(|g| c.model.vm(&g.vm))
        .filter(|vm| c.waits(vm))
        .collect();
    let worst = waiting.iter().max_by(|a, b| c.ready(a).total_cmp(&c.ready(b)))?;
    Some(Finding {
        rule: RULE.name.to_owned(),
        vm: Some(worst.id.clone()),
        title: match waiting.len() {
            1 => format!("VM {:?} waits, and vsteer does not know its home NUMA node", worst.name),
            n => format!("{n} VMs wait, and vsteer does not know their home NUMA nodes"),
        },
        explanation: "One node can be overloaded while another idles. To check this, vsteer needs the VMs' \
            home nodes. esxtop shows them on its screen but does not write them to its file."
            .into(),
        evidence: waiting.iter().flat_map(|vm| c.exceeded(vm)).collect(),
        loss_pcpus: 0.0,
        vms: waiting.iter().map(|vm| vm.id.clone()).collect(),
        disproved_by: "each of these VMs is alone on its node".into(),
        next: "write home_nodes for each VM into host.toml beside the file: the value NHN on esxtop's \
            memory screen (m, f, NUMA)"
            .into(),
        ..Finding::default()
    })
}

fn check(c: &Context<'_>) -> Vec<Finding> {
    let load = Load::of(c.config, c.model);
    if load.nodes.len() < 2 {
        return Vec::new();
    }
    let homes = load.homes();
    let walks = c.flowchart(&load);
    let of_node = |n: usize| -> Option<Finding> {
        let (node, wanted) = (&load.nodes[n], load.wanted(n, &homes));
        if wanted.vcpus <= node.cores {
            return None;
        }
        // In the flowchart's order: the VM that waits longest first.
        let waiting: Vec<(&Walk, &VmModel)> = walks
            .iter()
            .filter_map(|w| Some((w, c.model.vm(&w.vm)?)))
            .filter(|(w, vm)| {
                let at = load.guests.iter().position(|g| g.vm == w.vm).and_then(|i| homes[i]);
                at == Some(n) && c.waits(vm)
            })
            .collect();
        let (first, worst) = waiting.first()?;
        let names: Vec<String> = waiting.iter().map(|(w, _)| format!("{:?}", w.name)).collect();
        let letter: Vec<String> =
            waiting.iter().map(|(w, _)| format!("{:?}: {}", w.name, by_the_letter(&load, w))).collect();
        let of_vsphere = |w: &Walk| c.config.vm(&w.vm).is_some_and(|v| v.manager.keeps_settings());
        let wants = load.guests.iter().find(|g| g.vm == worst.id).map_or(0.0, |g| g.demand);
        let trap = if of_vsphere(first) && first.idle_elsewhere >= wants {
            format!(" {TRAP}")
        } else {
            String::new()
        };
        let mut evidence: Vec<Evidence> = Vec::new();
        for (w, vm) in &waiting {
            let of = |e: Evidence| Evidence { quantity: format!("VM {:?}: {}", w.name, e.quantity), ..e };
            evidence.extend(c.exceeded(vm).into_iter().map(of));
        }
        evidence.extend([
            count("vCPUs on the node", wanted.vcpus, "vCPUs", Some(node.cores)),
            count("demand on the node, mean", wanted.mean, "cores", Some(node.cores)),
            count("demand on the node, 99th percentile", wanted.most(), "cores", Some(node.cores)),
            count("bunching of vCPUs (1: they need cores independently)", load.bunching, "x", None),
            count("idle cores of the least busy other node", first.idle_elsewhere, "cores", Some(wants)),
        ]);
        Some(Finding {
            rule: RULE.name.to_owned(),
            vm: Some(worst.id.clone()),
            title: format!(
                "NUMA node {} carries {:.0} vCPUs on {:.0} cores, and {} of its VMs wait: {}",
                node.id.0,
                wanted.vcpus,
                node.cores,
                waiting.len(),
                names.join(", ")
            ),
            explanation: format!(
                "All vCPUs of these VMs stay on one NUMA node that has fewer cores. They take turns even \
                    when another node idles.{trap} The published flowchart recommends for each VM: {}.",
                letter.join("; ")
            ),
            evidence,
            loss_pcpus: waiting.iter().map(|(_, vm)| c.ready(vm)).sum(),
            vms: waiting.iter().map(|(_, vm)| vm.id.clone()).collect(),
            disproved_by: "the ready time does not change after one of these VMs moved to an idle \
                node"
                .into(),
            next: next(c, &load),
            ..Finding::default()
        })
    };
    (0..load.nodes.len()).filter_map(of_node).chain(homeless(c, &load)).collect()
}
