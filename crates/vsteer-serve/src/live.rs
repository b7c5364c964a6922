//! What the live page hears: every sample as one event, compact, and made once for all clients that listen.
//!
//! An event has sums of the host and one row for each VM. A client that does not read fast enough is dropped, and so is one above
//! the limit; both can come again.

use crate::ring::{Ring, shares, waits};
use crate::seen::Seen;
use axum::body::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, watch};
use vsteer_core::diagnose::Finding;
use vsteer_core::model::VmModel;
use vsteer_core::nouns::VmId;

/// Streams at a time, over all addresses.
pub const STREAMS: usize = 32;
/// Events that wait for one client.
const QUEUE: usize = 4;
/// Fields of a VM's row, in their order.
const FIELDS: [&str; 10] =
    ["id", "name", "vcpus", "run", "ready", "limited", "costop", "lag", "wake_p99_ns", "finding"];

/// The last minutes, and who listens.
#[derive(Default)]
pub struct Live {
    ring: Mutex<Ring>,
    clients: Mutex<Vec<mpsc::Sender<Bytes>>>,
}

impl Live {
    /// The last minutes.
    pub fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what was seen, and tells it.
    fn tell(&self, seen: &Seen) {
        self.ring().see(seen);
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|client| !client.is_closed());
        if !clients.is_empty() {
            let event = event(seen);
            clients.retain(|client| client.try_send(event.clone()).is_ok());
        }
    }

    /// A new client; `None` if there are too many.
    pub fn listen(&self) -> Option<(mpsc::Sender<Bytes>, mpsc::Receiver<Bytes>)> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|client| !client.is_closed());
        if clients.len() >= STREAMS {
            return None;
        }
        let (send, receive) = mpsc::channel(QUEUE);
        clients.push(send.clone());
        Some((send, receive))
    }
}

/// Tells each sample until the observer ends.
pub async fn run(mut seen: watch::Receiver<Option<Arc<Seen>>>, live: Arc<Live>) {
    while seen.changed().await.is_ok() {
        let newest = seen.borrow_and_update().clone();
        if let Some(newest) = newest {
            live.tell(&newest);
        }
    }
}

/// The event of a sample.
pub fn event(seen: &Seen) -> Bytes {
    Bytes::from(format!("event: sample\ndata: {}\n\n", sample(seen)))
}

/// Four digits are enough for a share, and keep the event short.
fn short(value: Option<f64>) -> Value {
    value.map_or(Value::Null, |value| json!((value * 1e4).round() / 1e4))
}

fn sample(seen: &Seen) -> Value {
    let worst = worst(&seen.findings);
    let vms = seen.now.iter().flat_map(|model| &model.vms);
    let unknown = |vm: &VmModel| shares(vm).run.is_none();
    let exact = seen.now.as_ref().is_none_or(|model| model.vms.iter().all(|vm| unknown(vm) || waits(vm).2));
    let pcpus = seen.now.iter().flat_map(|model| &model.pcpus);
    let limits = seen.thresholds;
    json!({
        "schema": "vsteer.live/1",
        "unix_ns": seen.totals.batch().unix_ns,
        "host": host(seen),
        "collector": seen.collector.name,
        // Ready and limited are measured apart; otherwise both are estimates.
        "exact": exact,
        "samples": seen.costs.samples,
        "failed": seen.costs.failed,
        "minute_unix_ns": seen.minute.as_ref().map(|minute| minute.from_unix_ns),
        "limits": {
            "ready": limits.ready_per_vcpu,
            "ready_critical": limits.ready_per_vcpu_critical,
            "costop": limits.costop_per_vcpu,
            "limited": limits.limited_per_vcpu,
            "wake_p99_ns": limits.wake_p99_ns,
        },
        "pcpus": pcpus.map(|p| json!([p.cpu, short(Some(p.busy))])).collect::<Vec<_>>(),
        "fields": FIELDS,
        "vms": vms.map(|vm| row(vm, worst.get(&vm.id).copied())).collect::<Vec<_>>(),
    })
}

fn host(seen: &Seen) -> Value {
    let Some(model) = seen.now.as_deref() else {
        return json!({ "name": seen.config.hostname, "pcpus": seen.totals.batch().pcpus.len() });
    };
    let sum = |of: fn(&VmModel) -> Option<f64>| short(model.vms.iter().filter_map(of).reduce(|a, b| a + b));
    let steal = model.pcpus.iter().filter_map(|p| p.steal).reduce(|a, b| a + b);
    json!({
        "name": seen.config.hostname,
        "pcpus": model.pcpus.len(),
        "window_ns": model.window_ns,
        "busy": short(model.busy_mean()),
        "steal": short(steal.map(|steal| steal / model.pcpus.len() as f64)),
        "run": sum(|vm| shares(vm).run),
        "ready": sum(|vm| waits(vm).0),
        "limited": sum(|vm| waits(vm).1),
        "costop": sum(|vm| shares(vm).costop),
        "psi_cpu_some": short(model.pressure.cpu_some),
        "psi_io_some": short(model.pressure.io_some),
        "psi_io_full": short(model.pressure.io_full),
        "psi_memory_some": short(model.pressure.memory_some),
        "psi_memory_full": short(model.pressure.memory_full),
    })
}

fn row(vm: &VmModel, finding: Option<&str>) -> Value {
    let (shares, (ready, limited, _)) = (shares(vm), waits(vm));
    json!([
        vm.id,
        vm.name,
        vm.vcpu_threads().count(),
        short(shares.run),
        short(ready),
        short(limited),
        short(shares.costop),
        short(shares.lag),
        vm.wake_latency.map(|wake| wake.p99_ns.round()),
        finding,
    ])
}

/// By VM: the rule of the finding that costs most, of those that concern the VM.
fn worst(findings: &[Finding]) -> BTreeMap<&VmId, &str> {
    let mut worst: BTreeMap<&VmId, &Finding> = BTreeMap::new();
    for finding in findings.iter().flat_map(Finding::all) {
        for vm in finding.vm.iter().chain(&finding.vms) {
            let so_far = worst.entry(vm).or_insert(finding);
            if finding.loss_pcpus > so_far.loss_pcpus {
                *so_far = finding;
            }
        }
    }
    worst.into_iter().map(|(vm, finding)| (vm, finding.rule.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_bounded_and_slow_ones_dropped() {
        let live = Live::default();
        let mut all: Vec<_> = (0..STREAMS).map(|_| live.listen().unwrap()).collect();
        assert!(live.listen().is_none());
        all.pop();
        let (send, mut next) = live.listen().expect("one has left");
        drop(send);
        let tell = || {
            let mut clients = live.clients.lock().unwrap();
            clients.retain(|client| client.try_send(Bytes::from_static(b"x")).is_ok());
            clients.len()
        };
        (0..QUEUE).for_each(|_| assert_eq!(tell(), STREAMS));
        while next.try_recv().is_ok() {}
        assert_eq!(tell(), 1, "only the client that reads is left");
        assert!(live.listen().is_some());
    }

    #[test]
    fn a_vm_has_its_worst_finding() {
        let of = |rule: &str, vm: &str, loss: f64| Finding {
            rule: rule.into(),
            vm: Some(VmId(vm.into())),
            loss_pcpus: loss,
            ..Finding::default()
        };
        let mut cause = of("cause", "a", 0.1);
        cause.symptoms = vec![of("symptom", "b", 0.2), of("symptom", "a", 0.3)];
        let all = [cause, of("other", "b", 0.1)];
        let worst = worst(&all);
        assert_eq!(worst[&VmId("a".into())], "symptom");
        assert_eq!(worst[&VmId("b".into())], "symptom");
    }
}
