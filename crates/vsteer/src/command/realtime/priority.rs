//! Runs VMs first by a real-time class of the kernel, on hosts without sched_ext.

use super::service::Desk;
use super::{BY_PRIORITY, Opened, Refusals, Wanted};
use crate::command::steer::GUARD;
use crate::interrupt::{Interrupt, Woken};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Instant;
use vsteer_act::priority::Priority;
use vsteer_act::priority::keeping::{self, Asked, Attend, Keeping};
use vsteer_core::Fault;
use vsteer_core::nouns::HostConfig;

/// Keeps VMs first until interrupted, then puts everything back and reports.
///
/// # Errors
/// As [`Keeping::keep`] and [`Keeping::end`].
pub fn keep(
    wanted: &Wanted<'_>,
    interrupt: &Interrupt,
    host: Opened,
    config: HostConfig,
    desk: Desk,
) -> Result<(), Fault> {
    let Wanted { a, meant, json } = wanted;
    let priority = Priority::start(a.limit, &[GUARD])?;
    priority.notes().iter().for_each(crate::text::note);
    let asked = Asked {
        meant: &|vm| meant.is(vm),
        connect: a.connect.as_deref(),
        measure_only: a.measure_only,
        warm_up: a.warm_up,
        length: a.length,
    };
    let mut keeping = Keeping::new(asked, host, config, priority);
    let mut attend = Attending { interrupt, desk: &desk, refusals: Refusals::default() };
    let kept = keeping.keep(&mut attend);
    let told = keeping.told();
    let receipts = keeping.end();
    kept?;
    let mut told = attend.whole(told?);
    told["put_back"] = json!(receipts?.iter().map(|r| r.steps.len()).sum::<usize>());
    if *json {
        crate::text::print_json(&told);
    } else {
        print!("{}", super::text::report(&told));
    }
    Ok(())
}

/// Signals, and those who ask at the desk.
struct Attending<'a> {
    interrupt: &'a Interrupt,
    desk: &'a Desk,
    refusals: Refusals,
}

impl Attending<'_> {
    /// What is told, with who does it and who was refused.
    fn whole(&self, mut told: Value) -> Value {
        told["by"] = json!(BY_PRIORITY);
        told["refused"] = json!(self.refusals.0);
        told
    }
}

impl Attend for Attending<'_> {
    fn ready(&mut self) {
        self.desk.ready();
    }

    fn wait(&mut self, then: Option<Instant>) -> keeping::Woken {
        match self.interrupt.wait(then, &[self.desk.asked()]) {
            Woken::Interrupted => keeping::Woken::Stop,
            Woken::Readable(_) => keeping::Woken::Asked,
            Woken::Time => keeping::Woken::Time,
        }
    }

    fn answer(&mut self, told: Value) {
        self.desk.answer(&self.whole(told));
    }

    fn refused(&mut self, why: BTreeMap<String, Fault>) {
        self.refusals.take(why);
    }
}
