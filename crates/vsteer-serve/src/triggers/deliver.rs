//! Brings the messages of one trigger to their receiver: a thread, a queue, a rate and repeated tries.
//!
//! A slow receiver delays neither samples nor other triggers. Messages beyond [`QUEUE`] are dropped and counted. A try that fails
//! is repeated after a pause, which doubles from 1 s to 5 minutes; an hour after its event a message is given up. Pauses are
//! longer by a random part, so that many hosts do not come back at once.

use super::command;
use super::message::{Message, new_id};
use super::sign::Secrets;
use crate::deliveries::Counts;
use crate::stop::Stop;
use ring::rand::{SecureRandom, SystemRandom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::pace::Pace;
use vsteer_host::post::Target;

/// Messages that wait, at most.
pub const QUEUE: usize = 100;

/// Where a trigger's messages go.
pub enum To {
    /// A web server, and the file of the secret.
    Url(Target, PathBuf),
    /// A program and its arguments.
    Command(Vec<String>),
}

/// Why a message did not arrive.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// Another try may help.
    Now(String),
    /// It would not.
    Forever(String),
}

/// How long to wait between tries.
#[derive(Debug, Clone, Copy)]
pub struct Pauses {
    /// After the first try.
    pub first: Duration,
    /// The longest.
    pub most: Duration,
    /// After this time since its event a message is given up.
    pub give_up: Duration,
}

/// As documented.
pub const PAUSES: Pauses = Pauses {
    first: Duration::from_secs(1),
    most: Duration::from_secs(300),
    give_up: Duration::from_secs(3600),
};

/// Delivers the messages of one trigger.
pub struct Delivery {
    /// The receiver.
    pub to: To,
    /// The least time between two messages.
    pub every: Duration,
    /// The longest time of a try.
    pub limit: Duration,
    /// Between tries.
    pub pauses: Pauses,
    /// What became of messages.
    pub counts: Arc<Counts>,
    /// Set when the service stops.
    pub stop: Stop,
}

/// A pause and up to a quarter more.
fn spread(pause: Duration) -> Duration {
    let mut byte = [0];
    let _ = SystemRandom::new().fill(&mut byte);
    pause + pause.mul_f64(f64::from(byte[0]) / 1024.0)
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

impl Delivery {
    /// Delivers until the service stops.
    pub fn run(&self, messages: &Receiver<Message>) {
        let (mut next, mut failing) = (Instant::now(), false);
        while let Ok(message) = messages.recv() {
            let id = new_id();
            let body = message.body(&id, &self.counts.trigger, self.counts.dropped.get());
            let mut pause = self.pauses.first;
            loop {
                if self.stop.sleep_until(next) {
                    return;
                }
                next = Instant::now() + self.every;
                // A thread that cannot start panics in the library: the next try may have one.
                let once = catch_unwind(AssertUnwindSafe(|| self.once(&id, &body)));
                let once = once.unwrap_or_else(|_| Err(Refused::Now("the try failed inside".to_owned())));
                let (why, is_final) = match once {
                    Ok(()) => break self.arrived(&mut failing),
                    Err(Refused::Forever(why)) => (why, true),
                    Err(Refused::Now(why)) => (why, message.noticed.elapsed() + pause > self.pauses.give_up),
                };
                self.counts.failed_tries.add();
                // Once, and not at every try.
                if !failing {
                    eprintln!(
                        "vsteer-serve: warning: trigger {}: a message did not arrive: {why}",
                        self.counts.trigger
                    );
                }
                failing = true;
                if is_final {
                    break self.counts.failed.add();
                }
                next = next.max(Instant::now() + spread(pause));
                pause = (pause * 2).min(self.pauses.most);
            }
        }
    }

    fn arrived(&self, failing: &mut bool) {
        self.counts.sent.add();
        if std::mem::take(failing) {
            eprintln!("vsteer-serve: note: trigger {}: messages arrive again", self.counts.trigger);
        }
    }

    /// Tries once to deliver a message.
    ///
    /// # Errors
    /// Why it did not arrive.
    pub fn once(&self, id: &str, body: &[u8]) -> Result<(), Refused> {
        match &self.to {
            To::Command(words) => command::run(words, body, self.limit, &self.stop).map_err(Refused::Now),
            To::Url(target, secret) => {
                let now = |fault: Fault| Refused::Now(fault.to_string());
                // Read each time: a replaced secret counts at once.
                let (secrets, unix_s) = (Secrets::read(secret).map_err(now)?, now_s());
                let head = [
                    ("content-type", "application/json"),
                    ("webhook-id", id),
                    ("webhook-timestamp", &unix_s.to_string()),
                    ("webhook-signature", &secrets.signature(id, unix_s, body)),
                ];
                let status = target.post(&head, body, self.limit).map_err(now)?;
                judged(target.host(), status)
            }
        }
    }
}

/// What a status says. The server's trouble and its "later" pass; other refusals stay.
fn judged(host: &str, status: u16) -> Result<(), Refused> {
    let why = || Fault::new(FaultKind::Failed, format!("{host} answered with status {status}")).to_string();
    match status {
        200..=299 => Ok(()),
        408 | 425 | 429 | 500.. => Err(Refused::Now(why())),
        _ => Err(Refused::Forever(why())),
    }
}
