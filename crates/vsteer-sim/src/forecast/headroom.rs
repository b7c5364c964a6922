//! Finds how many more VMs like a recorded one fit. Simulates the recorded host with copies of one of its
//! VMs.
//!
//! Idea: a copy has the VM's demand ([`super::demand`]), but starts at another moment of the recording. All
//! threads of one copy start at the same moment; each copy has its own, drawn by the seed. Otherwise timers
//! that happen to fire together in the recording would do so in every copy. So the spread over seeds shows
//! the effect of these moments. Copies are not pinned, or bound to a node. Weight, quotas and classes are the
//! VM's. [`crate::scenario::headroom`] does the search.
//!
//! Left out: as for any replay ([`super::replay`]); memory, except whether it fits; devices and disks that
//! all VMs share.

use super::replay::Replay;
use crate::guest::{Burst, Demand, Release};
use crate::setup::{Setup, VmSetup};
use vsteer_core::nouns::{HostConfig, VmConfig};
use vsteer_core::random::Random;
use vsteer_core::topology::NodeId;

/// `host` with `more` VMs like `kind`, anywhere or bound to `node`. Demands start anywhere in their first
/// `window_ns`.
pub fn with_more(
    host: &Replay,
    kind: &VmSetup,
    more: u32,
    node: Option<NodeId>,
    window_ns: u64,
    seed: u64,
) -> Setup {
    let cpus = node.and_then(|n| host.setup.topology.node(n)).map(|n| {
        let usable = host.setup.topology.usable();
        n.cpus.intersection(&usable)
    });
    let copies = (0..more).map(|n| {
        // An own random stream for every copy, independent of the others.
        let later_ns = Random::new(!seed, n.into()).within(0, window_ns.max(1) - 1);
        let mut copy = VmSetup { name: format!("{} (more {})", kind.name, n + 1), ..kind.clone() };
        copy.memory_node = node;
        for v in &mut copy.vcpus {
            v.affinity.clone_from(&cpus);
            v.soft_affinity = None;
            v.demand = from_moment(&v.demand, later_ns);
        }
        copy
    });
    let mut setup = Setup { seed, ..host.setup.clone() };
    setup.vms.extend(copies);
    setup
}

/// Why the memory of `more` VMs like `kind` does not fit, if the memory size is known.
pub fn too_much_memory(
    config: &HostConfig,
    kind: &VmConfig,
    more: u32,
    node: Option<NodeId>,
) -> Option<String> {
    let each = kind.memory_bytes?;
    let bound = |vm: &&VmConfig| match node {
        None => true,
        Some(n) => vm.memory_nodes.as_ref().is_some_and(|on| on.iter().eq([n.0])),
    };
    let taken: u64 = config.vms.iter().filter(bound).filter_map(|vm| vm.memory_bytes).sum();
    let (there, whose) = match node {
        None => (config.topology.memory_bytes()?, "the host".to_owned()),
        Some(n) => (config.topology.node(n)?.memory_bytes?, format!("node {n}")),
    };
    let wanted = taken.saturating_add(each.saturating_mul(more.into()));
    (wanted > there).then(|| {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        format!("the VMs need {:.1} GiB of memory, but {whose} has {:.1} GiB", gib(wanted), gib(there))
    })
}

/// The demand as seen `later_ns` after its start. Random demands do not change.
fn from_moment(demand: &Demand, later_ns: u64) -> Demand {
    match demand {
        Demand::Released { jobs, repeat_ns: Some(repeat_ns) } if *repeat_ns > 0 => {
            let later_ns = later_ns % repeat_ns;
            let moved =
                |job: &Release| Release { at_ns: (job.at_ns + repeat_ns - later_ns) % repeat_ns, ..*job };
            let mut jobs: Vec<Release> = jobs.iter().map(moved).collect();
            jobs.sort_by_key(|job| job.at_ns);
            Demand::Released { jobs, repeat_ns: Some(*repeat_ns) }
        }
        Demand::Recorded { bursts, repeat: true } => {
            let long = |b: &Burst| b.sleep_ns + b.compute_ns;
            let round_ns = bursts.iter().map(long).sum::<u64>().max(1);
            let mut left_ns = later_ns % round_ns;
            let first = bursts.iter().position(|b| {
                let here = left_ns < long(b);
                left_ns = left_ns.saturating_sub(long(b));
                here
            });
            let mut bursts = bursts.clone();
            bursts.rotate_left(first.unwrap_or(0));
            Demand::Recorded { bursts, repeat: true }
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demand_goes_on_from_another_moment() {
        let job = |at_ns, compute_ns| Release { at_ns, compute_ns };
        let released =
            Demand::Released { jobs: vec![job(10, 1), job(40, 2), job(90, 3)], repeat_ns: Some(100) };
        // 50 later, the third job is next, in 40. The first job, of the next round, comes in 60.
        let expected =
            Demand::Released { jobs: vec![job(40, 3), job(60, 1), job(90, 2)], repeat_ns: Some(100) };
        assert_eq!(from_moment(&released, 50), expected);
        assert_eq!(from_moment(&released, 150), expected, "round and round");
        assert_eq!(from_moment(&released, 0), released);
        let burst = |sleep_ns, compute_ns| Burst { sleep_ns, compute_ns };
        let recorded = |bursts| Demand::Recorded { bursts, repeat: true };
        let one = recorded(vec![burst(10, 5), burst(20, 5), burst(30, 5)]);
        assert_eq!(from_moment(&one, 14), one);
        assert_eq!(from_moment(&one, 15), recorded(vec![burst(20, 5), burst(30, 5), burst(10, 5)]));
        assert_eq!(from_moment(&one, 75 + 50), recorded(vec![burst(30, 5), burst(10, 5), burst(20, 5)]));
        assert_eq!(from_moment(&Demand::Hog, 7), Demand::Hog);
    }
}
