//! Does a NUMA node carry more vCPUs than it has cores, while its VMs wait?
//!
//! Found as the flowchart of J. Park 2022 (doi:10.6109/jkiice.2022.26.10.1432) finds it: (1) ready or co-stop above a threshold,
//! any of vsteer's, (2) more vCPUs on the VM's node than the node has cores. Where that flowchart then ends, by the letter and by the
//! paper's own thresholds, is told as evidence;
//! what to do is said by the project's own rule ([`crate::numa::moves`]), which weighs what VMs want, all of them at once. On
//! hosts of one node there is nowhere to go and the rule is silent: `pcpus_overloaded` and `overcommitted` say what there is to say.
//!
//! On ESXi a trap is named: VMs that exchange much are pulled together on one node (action affinity, VMware KB 2097369;
//! reference 11 of the paper), so that a node is overloaded beside an idle one, and VMs that were moved come back unless they
//! are kept there.

use super::{Context, Evidence, Finding, Rule, count};
use crate::model::VmModel;
use crate::numa::flowchart::{End, Walk};
use crate::numa::load::Load;
use crate::numa::moves::{Mend, Move, mend};

/// See the file's head.
pub const RULE: Rule = Rule {
    name: "node_overloaded",
    doc: "a NUMA node carries more vCPUs than cores while its VMs wait",
    check,
};

const TRAP: &str = "ESXi may have brought them together by itself: VMs that exchange much are pulled to one node \
                    (Numa.LocalityWeightActionAffinity, KB 2097369), which then stays overloaded beside an idle one.";

/// The moves in words.
fn moved(c: &Context<'_>, load: &Load, moves: &[Move]) -> String {
    let one = |m: &Move| {
        let node = &load.nodes[m.to];
        format!("VM {:?} to node {} (pCPUs {})", c.name(&load.guests[m.guest].vm), node.id.0, node.cpus)
    };
    format!("move {}, memory with it", moves.iter().map(one).collect::<Vec<_>>().join(", "))
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
            "{}: the fewest moves after which every node has room (vsteer plan --only node)",
            moved(c, load, &moves)
        ),
        Mend::NothingToDo => {
            "its node has room for what is wanted at a time: look at what wakes its vCPUs together".to_owned()
        }
        Mend::Cannot { relief, fewer_vcpus, more_cores, .. } if !relief.is_empty() => format!(
            "{}: that relieves it, and does not mend it ({})",
            moved(c, load, &relief),
            crate::numa::moves::cannot(fewer_vcpus, more_cores)
        ),
        Mend::Cannot { fewer_vcpus, more_cores, .. } => format!(
            "no other node has room: reduce the number of vCPUs, or upgrade the host's CPUs ({})",
            crate::numa::moves::cannot(fewer_vcpus, more_cores)
        ),
    }
}

/// VMs of vSphere's that wait, and nobody says on which node they are: then nothing can be said of nodes.
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
        title: format!("{} VM(s) wait, and on which NUMA node ESXi keeps them is not told", waiting.len()),
        explanation: "A node can be overloaded beside one that idles; which it is depends on the VMs' home nodes, which esxtop \
                      shows on its screen and does not write."
            .into(),
        evidence: waiting.iter().flat_map(|vm| c.exceeded(vm)).collect(),
        loss_pcpus: 0.0,
        disproved_by: "none of them shares its node with another".into(),
        next: "say home_nodes for each VM in host.toml beside the file: NHN on esxtop's memory screen (m, f, NUMA)".into(),
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
        // In the flowchart's order: who waits longest first.
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
            count("wanted of the node, on average", wanted.mean, "cores", Some(node.cores)),
            count("wanted of the node, 99 times in 100 at most", wanted.most(), "cores", Some(node.cores)),
            count("bunching of vCPUs (1: they want cores independently)", load.bunching, "x", None),
            count("idle elsewhere, best node", first.idle_elsewhere, "cores", Some(wants)),
        ]);
        Some(Finding {
            rule: RULE.name.to_owned(),
            vm: Some(worst.id.clone()),
            title: format!(
                "node {} carries {:.0} vCPUs on {:.0} cores, and {} of its VMs wait: {}",
                node.id.0,
                wanted.vcpus,
                node.cores,
                waiting.len(),
                names.join(", ")
            ),
            explanation: format!(
                "All vCPUs of these VMs are kept on one NUMA node; together they are more than its cores, so they take \
                 turns even when another node idles.{trap} The published flowchart by the letter, one VM after another: {}.",
                letter.join("; ")
            ),
            evidence,
            loss_pcpus: waiting.iter().map(|(_, vm)| c.ready(vm)).sum(),
            disproved_by: "ready time stays when one of them alone is moved to an idle node".into(),
            next: next(c, &load),
        })
    };
    (0..load.nodes.len()).filter_map(of_node).chain(homeless(c, &load)).collect()
}
