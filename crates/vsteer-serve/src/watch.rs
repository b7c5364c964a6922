//! Observes the host, sample by sample, in a thread of its own, so that no client can delay a sample.

use crate::culprits::Culprits;
use crate::deliveries::Deliveries;
use crate::history;
use crate::own;
use crate::seen::{Costs, Seen};
use crate::spaced::Spaced;
use crate::totals::Totals;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch::Sender;
use vsteer_core::Fault;
use vsteer_core::diagnose::diagnose;
use vsteer_core::model::derive_blaming;
use vsteer_core::nouns::{Batch, BlameSample, HostConfig, VmId};
use vsteer_core::thresholds::Thresholds;
use vsteer_host::backend::Host;
use vsteer_host::pace::{Look, Pace, due};

/// Where each state of the host goes.
pub struct Tell {
    /// To those that want the newest.
    pub newest: Sender<Option<Arc<Seen>>>,
    /// To the history, which wants each; `None` without a history.
    pub history: Option<history::Keep>,
    /// What becomes of triggers' messages.
    pub deliveries: Arc<Deliveries>,
}

impl Tell {
    fn newest(&self, seen: &Seen) -> Arc<Seen> {
        let seen = Arc::new(seen.clone());
        self.newest.send_replace(Some(Arc::clone(&seen)));
        seen
    }

    /// Also to the history. Returns whether the history could not take it.
    fn each(&self, seen: &Seen) -> bool {
        let seen = self.newest(seen);
        self.history.as_ref().is_some_and(|keep| keep.try_send(seen).is_err())
    }
}

/// How often the settings are read, at most.
const CONFIG_EVERY: Duration = Duration::from_secs(20);
/// The time over which findings are judged.
const MINUTE_NS: u64 = 60_000_000_000;
/// After this many samples in a row that failed the service ends: its manager starts it again.
const FAILURES: u64 = 30;

fn names(config: &HostConfig) -> BTreeMap<VmId, String> {
    config.called().into_iter().map(|(vm, name)| (vm.clone(), name)).collect()
}

/// A sample, and what it blames.
fn without_blame(mut batch: Batch) -> (Arc<Batch>, Arc<Vec<BlameSample>>) {
    let blame = std::mem::take(&mut batch.blame);
    (Arc::new(batch), Arc::new(blame))
}

/// Observes until it is asked to stop.
///
/// # Errors
/// When the host cannot be sampled for long.
pub fn observe(
    host: &mut dyn Host,
    interval: Duration,
    thresholds: Thresholds,
    pace: &dyn Pace,
    tell: &Tell,
) -> Result<(), Fault> {
    let (first, blame) = without_blame(host.sample()?);
    let config = Arc::new(host.config()?);
    let mut seen = Seen {
        names: Arc::new(names(&config)),
        config,
        collector: Arc::new(host.collector()),
        totals: Totals::default().with(Arc::clone(&first)),
        blame,
        culprits: Arc::default(),
        now: None,
        minute: None,
        findings: Arc::default(),
        thresholds,
        deliveries: Arc::clone(&tell.deliveries),
        costs: Costs { samples: 1, ..Costs::default() },
    };
    let (mut minute, mut before, mut failed) = (Spaced::default(), first, 0);
    let mut culprits = Culprits::default();
    minute.see(&before, &seen.blame);
    tell.each(&seen);
    let (mut next, mut looked) = (Instant::now(), Look::since(Instant::now()));
    loop {
        next = due(next, interval);
        if pace.sleep_until(next) {
            return Ok(());
        }
        let begun = Instant::now();
        let (batch, blame) = match host.sample() {
            Ok(batch) => without_blame(batch),
            Err(fault) => {
                failed += 1;
                seen.costs.failed += 1;
                if failed >= FAILURES {
                    return Err(fault);
                }
                if failed == 1 {
                    eprintln!("vsteer-serve: warning: a sample could not be taken: {fault}");
                }
                tell.newest(&seen);
                continue;
            }
        };
        failed = 0;
        // A host that counts at intervals of its own does not have a new sample each time.
        if batch.mono_ns <= before.mono_ns {
            continue;
        }
        seen.costs = Costs {
            samples: seen.costs.samples + 1,
            sample_ns: begun.elapsed().as_nanos() as u64,
            late_ns: begun.saturating_duration_since(next).as_nanos() as u64,
            cpu_ns: own::cpu_ns(),
            bpf_ns: own::bpf_ns(),
            unseen: host.observer().map(|o| o.unseen()),
            ..seen.costs
        };
        if looked.is_older(CONFIG_EVERY) {
            let begun = Instant::now();
            match host.config() {
                Ok(now) if now != *seen.config => {
                    seen.names = Arc::new(names(&now));
                    seen.config = Arc::new(now);
                }
                Ok(_) => {}
                Err(fault) => {
                    eprintln!("vsteer-serve: warning: the settings could not be read again: {fault}");
                }
            }
            // A setting of the kernel may let more be measured than before.
            let collector = host.collector();
            if collector != *seen.collector {
                seen.collector = Arc::new(collector);
            }
            looked = Look::since(begun);
        }
        let mut here: BTreeSet<&VmId> = batch.vms.iter().map(|v| &v.vm).collect();
        // The threads of a VM lie together.
        here.extend(batch.threads.chunk_by(|a, b| a.vm == b.vm).map(|of| &of[0].vm));
        seen.blame = blame;
        culprits.see(&seen.blame, &here);
        seen.culprits = Arc::new(culprits.named());
        seen.totals = seen.totals.with(Arc::clone(&batch));
        let blamed = seen.blame.iter().map(|b| (&b.victim, &b.culprit, b.ns));
        let both = [Arc::clone(&before), Arc::clone(&batch)];
        seen.now = derive_blaming(&seen.config, &seen.collector, &both, blamed).ok().map(Arc::new);
        if minute.see(&batch, &seen.blame) {
            minute.keep_last(MINUTE_NS);
            let model = || minute.kept().derive(&seen.config, &seen.collector).ok();
            if let Some(model) = minute.kept().are_enough().then(model).flatten() {
                seen.findings = Arc::new(diagnose(&seen.config, &model, thresholds));
                seen.minute = Some(Arc::new(model));
            }
        }
        before = batch;
        if tell.each(&seen) {
            seen.costs.history_missed += 1;
        }
    }
}
