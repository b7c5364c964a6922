//! Tells others when a finding begins and when it ends: `[triggers.NAME]` of vsteer.toml.
//!
//! ```text
//! follow    which findings begin and end      message  what a receiver reads
//! deliver   the queue, the rate, the tries    sign     who sent it, and when
//! command   runs a program                    trial    `--try-trigger`
//! ```
//!
//! The thread of the server looks at the findings whenever they were judged. It never waits: a message goes into a queue or is dropped.
//! Each trigger has a thread of its own, which delivers. Those threads have no capability and can write no file, and neither can
//! the commands that they run. The thread that observes knows nothing of all this.

mod command;
mod deliver;
mod follow;
mod message;
mod sign;
#[cfg(test)]
mod tests;
mod trial;

use crate::deliveries::{Counts, Deliveries};
use crate::seen::Seen;
use crate::stop::Stop;
use deliver::{Delivery, PAUSES, QUEUE, Refused, To};
use follow::{Filter, Follow, Look};
use message::Message;
use sign::Secrets;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::post::Target;
use vsteer_host::privilege::{CapabilitySet, Kept, confine};
use vsteer_record::config::{Config, Trigger};
use vsteer_record::trusted;

/// How long the service waits for its triggers when it stops.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// A trigger whose thread does not run yet.
struct Planned {
    follow: Follow,
    to: To,
    every: Duration,
    limit: Duration,
    counts: Arc<Counts>,
}

/// All triggers of a configuration, checked.
#[derive(Default)]
pub struct Triggers(Vec<Planned>);

fn planned(name: &str, trigger: &Trigger) -> Result<Planned, Fault> {
    let to = match trigger.secret_file() {
        Some(secret) => {
            // A faulty one shows now, and not when the first message fails.
            Secrets::read(secret)?;
            // Nobody else may choose whom the service trusts.
            trigger.ca().map_or(Ok(()), |ca| trusted::open_safe("read", ca).map(drop))?;
            To::Url(Target::new(trigger.url(), trigger.ca())?, secret.to_owned())
        }
        None => {
            command::allowed(name, trigger)?;
            trigger.command().first().map_or(Ok(()), |program| command::is_safe(program))?;
            To::Command(trigger.command().to_vec())
        }
    };
    let filter = Filter {
        rules: trigger.rules().to_vec(),
        vms: trigger.vms().to_vec(),
        loss_pcpus: trigger.loss_pcpus(),
        lasts_ns: trigger.lasts().as_nanos() as u64,
    };
    let counts = Arc::new(Counts { trigger: name.to_owned(), ..Counts::default() });
    let (follow, every, limit) = (Follow::new(filter), trigger.every(), trigger.time_limit());
    Ok(Planned { follow, to, every, limit, counts })
}

/// Looks at findings, and leaves messages for the threads.
pub struct Watching(Vec<(Follow, SyncSender<Message>, Arc<Counts>)>);

/// The threads that deliver.
pub struct Deliverers(Vec<JoinHandle<()>>);

impl Triggers {
    /// Those of a configuration.
    ///
    /// # Errors
    /// When a secret cannot be used, an address is not valid, or a command may not run.
    pub fn of(config: &Config) -> Result<Triggers, Fault> {
        config
            .triggers()
            .map(|(name, trigger)| planned(name, trigger))
            .collect::<Result<_, _>>()
            .map(Triggers)
    }

    /// What becomes of their messages.
    pub fn deliveries(&self) -> Deliveries {
        self.0.iter().map(|trigger| Arc::clone(&trigger.counts)).collect()
    }

    /// Starts the threads that deliver.
    ///
    /// # Errors
    /// When a thread does not start.
    pub fn start(self, stop: &Stop) -> Result<(Watching, Deliverers), Fault> {
        let (mut watching, mut threads) = (Vec::new(), Vec::new());
        for Planned { follow, to, every, limit, counts } in self.0 {
            let (queue, messages) = sync_channel(QUEUE);
            watching.push((follow, queue, Arc::clone(&counts)));
            let delivery = Delivery { to, every, limit, pauses: PAUSES, counts, stop: stop.clone() };
            threads.push(confined(move || delivery.run(&messages))?);
        }
        Ok((Watching(watching), Deliverers(threads)))
    }

    /// Sends one message of the trigger with this name, as the service would.
    ///
    /// # Errors
    /// `Usage` for an unknown name; `Failed` if the message did not arrive.
    pub fn try_one(self, name: &str) -> Result<(), Fault> {
        let names: Vec<String> = self.0.iter().map(|t| t.counts.trigger.clone()).collect();
        let Some(Planned { to, every, limit, counts, .. }) =
            self.0.into_iter().find(|t| t.counts.trigger == name)
        else {
            let help = match names.is_empty() {
                true => "add [triggers.NAME] to /etc/vsteer/vsteer.toml".to_owned(),
                false => format!("known: {}", names.join(", ")),
            };
            return Err(Fault::new(FaultKind::Usage, format!("no trigger has the name {name:?}")).help(help));
        };
        let (id, body) = trial::message(name);
        let delivery = Delivery { to, every, limit, pauses: PAUSES, counts, stop: Stop::default() };
        let tried = confined(move || delivery.once(&id, &body))?.join();
        let failed = |why: &str| {
            Fault::new(FaultKind::Failed, format!("a message of trigger {name} did not arrive")).because(why)
        };
        match tried {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Refused::Now(why) | Refused::Forever(why))) => Err(failed(&why)),
            Err(_) => Err(failed("its thread failed")),
        }
    }
}

/// Starts a thread without privileges, which delivers. Without that, commands would have what this thread has.
fn confined<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>, Fault> {
    let work = move || {
        let kept = Kept { capabilities: CapabilitySet::empty(), writes_elsewhere: false };
        if let Err(fault) = confine(kept, &[]) {
            panic!("a trigger cannot give up its privileges: {fault}");
        }
        work()
    };
    let thread = std::thread::Builder::new().name("trigger".to_owned()).spawn(work);
    thread.map_err(|e| Fault::io("starting the thread of a trigger", &e))
}

impl Watching {
    fn see(&mut self, seen: &Seen) {
        let batch = seen.totals.batch();
        let look = Look {
            host: &seen.config.hostname,
            findings: &seen.findings,
            names: &seen.names,
            mono_ns: batch.mono_ns,
            unix_ns: batch.unix_ns,
        };
        self.look(&look);
    }

    fn look(&mut self, look: &Look<'_>) {
        for (follow, queue, counts) in &mut self.0 {
            follow.see(look, |message| match queue.try_send(message) {
                Ok(()) => true,
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                    counts.dropped.add();
                    false
                }
            });
        }
    }
}

/// Looks at each list of findings until the observer ends.
pub async fn run(mut seen: watch::Receiver<Option<Arc<Seen>>>, mut watching: Watching) {
    let mut before = None;
    while seen.changed().await.is_ok() {
        let newest = seen.borrow_and_update().clone();
        // The list is replaced when there is a newer one. While samples fail it stays, and says nothing new.
        let Some(newest) = newest.filter(|seen| seen.minute.is_some()) else { continue };
        if before.as_ref().is_none_or(|before| !Arc::ptr_eq(before, &newest.findings)) {
            watching.see(&newest);
            before = Some(Arc::clone(&newest.findings));
        }
    }
}

impl Deliverers {
    /// Waits a moment until the threads have ended their commands. The service has been asked to stop.
    pub fn finish(self) {
        let end = Instant::now() + ENDS_WITHIN;
        while self.0.iter().any(|thread| !thread.is_finished()) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
