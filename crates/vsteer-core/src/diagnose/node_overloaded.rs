//! Does a NUMA node carry more vCPUs than it has cores, while its VMs wait?
//!
//! Found as the flowchart of J. Park 2022 (doi:10.6109/jkiice.2022.26.10.1432) finds it: (1) ready or co-stop above a threshold,
//! (2) more vCPUs on the VM's node than the node has cores. Where that flowchart then ends, by the letter, is told as evidence;
//! what to do is said by the project's own rule ([`crate::numa::moves`]), which weighs what VMs want, all of them at once. On
//! hosts of one node there is nowhere to go and the rule is silent: `pcpus_overloaded` and `overcommitted` say what there is to say.
//!
//! On ESXi a trap is named: VMs that exchange much are pulled together on one node (action affinity, VMware KB 2097369;
//! reference 11 of the paper), so that a node is overloaded beside an idle one, and VMs that were moved come back unless they
//! are kept there.

use super::{Context, Finding, Rule, count};
use crate::nouns::{Manager, VmId};
use crate::numa::flowchart::{End, Walk, walk};
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

/// The moves in words; `it` is the VM that is spoken of.
fn moved(c: &Context<'_>, load: &Load, moves: &[Move], it: &VmId) -> String {
    let where_to = |m: &Move| {
        let node = &load.nodes[m.to];
        format!("to node {} (pCPUs {})", node.id.0, node.cpus)
    };
    if let [only] = moves
        && load.guests[only.guest].vm == *it
    {
        return format!("move it {}, its memory with it", where_to(only));
    }
    let one = |m: &Move| format!("VM {:?} {}", c.name(&load.guests[m.guest].vm), where_to(m));
    format!("move {}, memory with them", moves.iter().map(one).collect::<Vec<_>>().join(", "))
}

fn by_the_letter(load: &Load, walk: &Walk) -> String {
    match walk.end {
        End::NothingToDo => "nothing to do".to_owned(),
        End::AnotherCause => "look for another cause".to_owned(),
        End::Migrate(n) => format!("migrate to node {} and set its node affinity", load.nodes[n].id.0),
        End::ReduceOrUpgrade => "reduce the vCPUs or upgrade the CPUs".to_owned(),
    }
}

fn check(c: &Context<'_>) -> Vec<Finding> {
    let load = Load::of(c.config, c.model);
    if load.nodes.len() < 2 {
        return Vec::new();
    }
    let homes = load.homes();
    let walks = walk(&load, &|g| c.model.vm(&g.vm).is_some_and(|m| c.waits(m)));
    let mut mended: Option<Mend> = None;
    let mut findings = Vec::new();
    for (guest, home) in load.guests.iter().zip(&homes) {
        let (Some(home), Some(vm)) = (*home, c.model.vm(&guest.vm)) else { continue };
        if !c.waits(vm) {
            continue;
        }
        let Some(walked) = walks.iter().find(|w| w.vm == guest.vm) else { continue };
        let (node, wanted) = (&load.nodes[home], load.wanted(home, &homes));
        let on_node = wanted.vcpus;
        if on_node <= node.cores {
            continue;
        }
        let next = match mended.get_or_insert_with(|| mend(&load)) {
            Mend::Moves { moves, .. } => format!(
                "{}: the fewest moves after which every node has room (vsteer plan --only node)",
                moved(c, &load, moves, &guest.vm)
            ),
            Mend::NothingToDo => {
                "its node has room for what is wanted at a time: look at what wakes its vCPUs together"
                    .to_owned()
            }
            Mend::Cannot { relief, fewer_vcpus, more_cores, .. } if !relief.is_empty() => format!(
                "{}: that relieves it, and does not mend it ({})",
                moved(c, &load, relief, &guest.vm),
                crate::plan::node_cannot(*fewer_vcpus, *more_cores)
            ),
            Mend::Cannot { fewer_vcpus, more_cores, .. } => format!(
                "no other node has room: reduce the number of vCPUs, or upgrade the host's CPUs ({})",
                crate::plan::node_cannot(*fewer_vcpus, *more_cores)
            ),
        };
        let on_vsphere = c.config.vm(&guest.vm).is_some_and(|v| matches!(v.manager, Manager::Vsphere(_)));
        let idle = walked.idle_elsewhere;
        let trap = if on_vsphere && idle >= guest.demand { format!(" {TRAP}") } else { String::new() };
        let mut evidence = c.exceeded(vm);
        evidence.extend([
            count("vCPUs on the node", on_node, "vCPUs", Some(node.cores)),
            count("wanted of the node, on average", wanted.mean, "cores", Some(node.cores)),
            count("wanted of the node, 99 times in 100 at most", wanted.most(), "cores", Some(node.cores)),
            count("bunching of vCPUs (1: they want cores independently)", load.bunching, "x", None),
            count("idle elsewhere, best node", idle, "cores", Some(guest.demand)),
        ]);
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: Some(vm.id.clone()),
            title: format!(
                "VM {:?} waits on node {}, which carries {on_node:.0} vCPUs on {:.0} cores",
                vm.name, node.id.0, node.cores
            ),
            explanation: format!(
                "All vCPUs of these VMs are kept on one NUMA node; together they are more than its cores, so they take \
                 turns even when another node idles.{trap} The published flowchart by the letter: {}.",
                by_the_letter(&load, walked)
            ),
            evidence,
            loss_pcpus: c.ready(vm),
            disproved_by: "its ready time stays when it alone is moved to an idle node".into(),
            next,
        });
    }
    findings
}
