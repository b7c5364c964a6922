//! `vsteer record`: writes samples to disk until it is stopped.

use crate::cli::Record;
use crate::interrupt::Interrupt;
use crate::source::{need_vms, open_host_with, progress, progress_done};
use crate::text;
use vsteer_core::Fault;
use vsteer_core::plural::counted;
use vsteer_host::recorder::{Heard, Recorded, check, record};

/// Records.
///
/// # Errors
/// As [`open_host_with`] and [`record`]; what was written before a full disk stays readable.
pub fn run(a: &Record, json: bool) -> Result<(), Fault> {
    let interrupt = Interrupt::listen();
    let mut host = open_host_with(&a.source, a.events.then_some(a.event_buffer))?;
    let asked = a.asked();
    check(host.as_ref(), &asked)?;
    let config = host.config()?;
    if a.ring.is_none() {
        need_vms(&config, &a.source)?;
    }
    let mut left_out = Vec::new();
    let recorded = record(host, config, &asked, &interrupt, &mut |heard| match heard {
        Heard::Progress(done, of) => progress("recording", done, of),
        Heard::Begun => crate::service_manager::ready(),
        Heard::Deaf(why) => {
            eprintln!("vsteer: recording without a trigger: {why}");
            left_out.push(why.to_string());
        }
        Heard::Mark(mark) => eprintln!("vsteer: {}", text::mark(mark)),
        Heard::OldConfig(why) => {
            eprintln!(
                "vsteer: cannot refresh the configuration; recording continues with the last one: {why}"
            );
        }
    });
    progress_done();
    say(a, &recorded?, &left_out, json);
    Ok(())
}

fn say(a: &Record, recorded: &Recorded, left_out: &[String], json: bool) {
    match recorded {
        Recorded::Past { batches, seconds, collector } if json => {
            text::print_json(&serde_json::json!({
                "recording": a.output, "batches": batches, "seconds": seconds, "collector": collector,
            }));
        }
        Recorded::Past { batches, seconds, .. } => {
            eprintln!(
                "vsteer: wrote {} of {seconds:.0} s to {}",
                counted(*batches, "sample"),
                a.output.display()
            );
        }
        Recorded::Live { batches, seconds, collector, unseen, events, marks } if json => {
            text::print_json(&serde_json::json!({
                "recording": a.output, "batches": batches, "seconds": seconds, "collector": collector,
                "switches_unseen": unseen, "events": events, "marks": marks, "triggers_left_out": left_out,
            }));
        }
        Recorded::Live { batches, seconds, events, .. } => {
            eprintln!(
                "vsteer: wrote {} over {seconds:.1} s to {}",
                counted(*batches, "sample"),
                a.output.display()
            );
            events.iter().for_each(|e| eprintln!("vsteer: {}", text::switches_recorded(e)));
        }
    }
}
