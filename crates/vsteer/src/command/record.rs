//! `vsteer record`: writes samples to disk until it is stopped.

use crate::cli::Record;
use crate::interrupt::Interrupt;
use crate::source::{need_vms, open_host_with, progress, progress_done};
use crate::text;
use std::path::Path;
use std::time::SystemTime;
use vsteer_core::plural::counted;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::recorder::{Heard, Recorded, check, record};

/// Records. `folder`: where recordings without a name of their own go.
///
/// # Errors
/// `Usage` if nothing says where to; as [`open_host_with`] and [`record`]; what was written before a full disk stays readable.
pub fn run(a: &Record, folder: Option<&Path>, json: bool) -> Result<(), Fault> {
    let output = match (&a.output, folder) {
        (Some(output), _) => output.clone(),
        (None, Some(folder)) => folder.join(format!("{}.vsteer", crate::clock::file_name(SystemTime::now()))),
        (None, None) => {
            return Err(Fault::new(FaultKind::Usage, "record needs a folder to write to")
                .help("add -o FOLDER, or set `paths.recordings` in the configuration"));
        }
    };
    let interrupt = Interrupt::listen();
    let mut host = open_host_with(&a.source, a.events.then_some(a.event_buffer))?;
    let asked = a.asked(&output);
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
    say(&output, &recorded?, &left_out, json);
    Ok(())
}

fn say(output: &Path, recorded: &Recorded, left_out: &[String], json: bool) {
    match recorded {
        Recorded::Past { batches, seconds, collector } if json => {
            text::print_json(&serde_json::json!({
                "recording": output, "batches": batches, "seconds": seconds, "collector": collector,
            }));
        }
        Recorded::Past { batches, seconds, .. } => {
            eprintln!(
                "vsteer: wrote {} of {seconds:.0} s to {}",
                counted(*batches, "sample"),
                output.display()
            );
        }
        Recorded::Live { batches, seconds, collector, unseen, events, marks } if json => {
            text::print_json(&serde_json::json!({
                "recording": output, "batches": batches, "seconds": seconds, "collector": collector,
                "switches_unseen": unseen, "events": events, "marks": marks, "triggers_left_out": left_out,
            }));
        }
        Recorded::Live { batches, seconds, events, .. } => {
            eprintln!(
                "vsteer: wrote {} over {seconds:.1} s to {}",
                counted(*batches, "sample"),
                output.display()
            );
            events.iter().for_each(|e| eprintln!("vsteer: {}", text::switches_recorded(e)));
        }
    }
}
