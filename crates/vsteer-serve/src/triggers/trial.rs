//! The message of a trial, `vsteer serve --try-trigger NAME`: is the address right, and does the receiver know the secret?

use super::message::{Event, Found, Message, new_id};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use vsteer_core::diagnose::Finding;

/// Its id and its body.
pub fn message(trigger: &str) -> (String, Vec<u8>) {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let finding = Finding {
        rule: "test".to_owned(),
        title: format!("A trial of trigger {trigger}"),
        explanation: "Nothing was found. Somebody tried whether messages arrive.".to_owned(),
        ..Finding::default()
    };
    let message = Message {
        event: Event::Test,
        host,
        found: Found { all: Arc::new(vec![finding]), at: 0, names: Arc::default() },
        began_unix_ns: unix_ns,
        last_unix_ns: unix_ns,
        unix_ns,
        noticed: Instant::now(),
    };
    let id = new_id();
    let body = message.body(&id, trigger, 0);
    (id, body)
}
