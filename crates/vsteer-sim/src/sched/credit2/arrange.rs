//! Decides which pCPUs share a queue.

use super::{NONE, Queue};
use crate::bits::Bits;
use crate::policy::Values;
use crate::setup::{Host, Pool};

/// Assigns pCPUs to queues (`cpu_add_to_runqueue`). Related pCPUs share a queue, threads of a core always, up
/// to a number that spreads them evenly. If several queues are possible, the smallest is used.
pub(super) fn arrange(host: &Host, pool: Pool, values: &Values) -> (Vec<Queue>, Vec<u32>) {
    let (pcpus, most) = (host.pcpus.len(), values.get("max_cpus_runqueue") as usize);
    let most = pcpus / ((pcpus - 1) / most + 1);
    let kind = values.get("runqueue");
    let units = host.vcpus_of(pool).count();
    let mut queues: Vec<Queue> = Vec::new();
    let mut queue_of = vec![NONE; pcpus];
    for p in host.pools[pool.i()].iter() {
        let (place, core) = (&host.pcpus[p], &host.cores[host.pcpus[p].core as usize]);
        let with_sibling = core.iter().find(|s| queue_of[*s] != NONE && kind != 0);
        let matches = |q: &Queue| {
            let peer = &host.pcpus[q.pick_bias as usize];
            match kind {
                0 => false,
                1 => peer.core == place.core,
                2 => peer.socket == place.socket,
                3 => peer.node == place.node,
                _ => true,
            }
        };
        let fits = |q: &Queue| {
            let n = q.cpus as usize;
            matches(q) && n < most && (kind == 4 || n + core.len() <= most)
        };
        let q = match with_sibling {
            Some(s) if matches(&queues[queue_of[s] as usize]) => Some(queue_of[s] as usize),
            _ => (0..queues.len()).filter(|q| fits(&queues[*q])).min_by_key(|q| (queues[*q].cpus, *q)),
        };
        let q = q.unwrap_or_else(|| {
            queues.push(Queue {
                list: Vec::with_capacity(units),
                units: Vec::with_capacity(units),
                active: Bits::new(pcpus),
                idle: Bits::new(pcpus),
                tickled: Bits::new(pcpus),
                cpus: 0,
                max_weight: 1,
                pick_bias: p as u32,
                load: 0,
                load_at: 0,
                avgload: 0,
                b_avgload: 0,
            });
            queues.len() - 1
        });
        queues[q].active.insert(p);
        queues[q].idle.insert(p);
        queues[q].cpus += 1;
        queue_of[p] = q as u32;
    }
    (queues, queue_of)
}
