//! `vsteer record`: writes samples to disk until it is stopped.

use crate::cli::Record;
use crate::interrupt::Interrupt;
use crate::source::{Failed, need_vms, open_host_with, open_one_of, progress, progress_done};
use crate::text;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;
use vsteer_core::plural::counted;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::backend::Host;
use vsteer_host::recorder::{Heard, Recorded, check, record};
use vsteer_host::several::{names, side_by_side};
use vsteer_record::own_folder::OwnFolder;

/// Records. `folder`: where recordings without a name of their own go.
///
/// # Errors
/// `Usage` if nothing says where to; as [`open_host_with`] and [`record`]; what was written before a full disk stays readable.
pub fn run(a: &Record, folder: Option<&Path>, json: bool) -> Result<ExitCode, Fault> {
    let output = match (&a.output, folder) {
        (Some(output), _) => output.clone(),
        (None, Some(folder)) => folder.join(format!("{}.vsteer", crate::clock::file_name(SystemTime::now()))),
        (None, None) => {
            return Err(Fault::new(FaultKind::Usage, "record needs a folder to write to")
                .help("add -o FOLDER, or set `paths.recordings` in the configuration"));
        }
    };
    let interrupt = Interrupt::listen();
    if a.source.is_several() {
        return several(a, &output, &interrupt, json);
    }
    let host = open_host_with(&a.source, a.events.then_some(a.event_buffer))?;
    let (recorded, left_out) = recorded(a, &output, host, None, &interrupt)?;
    if json {
        text::print_json(&as_json(&output, &recorded, &left_out));
    } else {
        say(&output, &recorded);
    }
    Ok(ExitCode::SUCCESS)
}

/// Records each host into a folder of its name. A host that fails does not stop the others.
fn several(a: &Record, output: &Path, interrupt: &Interrupt, json: bool) -> Result<ExitCode, Fault> {
    let (names, each) = (names(&a.source.connect)?, a.source.each());
    // Nobody else may put links into the folders in which the recordings are made.
    let folders = [Some(output), a.second.as_deref(), a.keep_former.as_deref()];
    for folder in folders.into_iter().flatten() {
        OwnFolder::make_or_open(folder)?;
    }
    let of = |i: usize| {
        let into = |folder: &PathBuf| folder.join(&names[i]);
        Record {
            second: a.second.as_ref().map(into),
            keep_former: a.keep_former.as_ref().map(into),
            source: each[i].clone(),
            ..a.clone()
        }
    };
    let failed = Mutex::new(Failed::default());
    let results = side_by_side(names.len(), interrupt, &|i| {
        let a = of(i);
        let host = open_one_of(&a.source, &names[i], a.events.then_some(a.event_buffer));
        let result =
            host.and_then(|host| recorded(&a, &output.join(&names[i]), host, Some(&names[i]), interrupt));
        // Now, because the others may record for hours.
        result.inspect_err(|fault| {
            failed.lock().unwrap_or_else(PoisonError::into_inner).say(&names[i], fault, false);
        })
    });
    let mut all = Vec::new();
    for (i, result) in results.iter().enumerate() {
        let mut line = match result {
            Ok((recorded, left_out)) => {
                if !json {
                    say(&output.join(&names[i]), recorded);
                }
                as_json(&output.join(&names[i]), recorded, left_out)
            }
            Err(fault) => serde_json::json!({ "fault": fault }),
        };
        line["host"] = serde_json::json!(names[i]);
        all.push(line);
    }
    if json {
        text::print_json(&all);
    }
    Ok(failed.into_inner().unwrap_or_else(PoisonError::into_inner).code())
}

/// Records an open host. What was recorded, and the triggers that could not fire.
fn recorded(
    a: &Record,
    output: &Path,
    mut host: Box<dyn Host>,
    name: Option<&str>,
    interrupt: &Interrupt,
) -> Result<(Recorded, Vec<String>), Fault> {
    let of = name.map_or_else(String::new, |name| format!("{name}: "));
    let asked = a.asked(output);
    check(host.as_ref(), &asked)?;
    let config = host.config()?;
    if a.ring.is_none() {
        need_vms(&config, &a.source)?;
    }
    let mut left_out = Vec::new();
    let recorded = record(host, config, &asked, interrupt, &mut |heard| match heard {
        Heard::Progress(done, of) => progress("recording", done, of),
        Heard::Begun => vsteer_host::service_manager::ready(),
        Heard::Deaf(why) => {
            text::note(format!("{of}recording without a trigger: {why}"));
            left_out.push(why.to_string());
        }
        Heard::Mark(mark) => text::note(format!("{of}{}", text::mark(mark))),
        Heard::OldConfig(why) => text::note(format!(
            "{of}cannot refresh the configuration; recording continues with the last one: {why}"
        )),
    });
    progress_done();
    Ok((recorded?, left_out))
}

fn as_json(output: &Path, recorded: &Recorded, left_out: &[String]) -> serde_json::Value {
    match recorded {
        Recorded::Past { batches, seconds, collector } => serde_json::json!({
            "recording": output, "batches": batches, "seconds": seconds, "collector": collector,
        }),
        Recorded::Live { batches, seconds, collector, unseen, events, marks } => serde_json::json!({
            "recording": output, "batches": batches, "seconds": seconds, "collector": collector,
            "switches_unseen": unseen, "events": events, "marks": marks, "triggers_left_out": left_out,
        }),
    }
}

fn say(output: &Path, recorded: &Recorded) {
    match recorded {
        Recorded::Past { batches, seconds, .. } => {
            eprintln!(
                "vsteer: wrote {} of {seconds:.0} s to {}",
                counted(*batches, "sample"),
                output.display()
            );
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
