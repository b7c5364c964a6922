//! `vsteer experiment`: run, ab, resume, report, unit.

mod ab;
mod unit;

use crate::cli::{Experiment as Arguments, ExperimentWhat, Source};
use crate::experiment::{document, study, text};
use crate::interrupt::Interrupt;
use crate::source::open_host;
use serde_json::json;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vsteer_act::experiment::{
    Ended, LINK_WITHIN, Log, Means, Observing, Told, Winners, carry_on, file, in_force, meters_tell,
};
use vsteer_act::journal_folder;
use vsteer_core::nouns::HostConfig;
use vsteer_core::plural::counted;
use vsteer_core::setting::uri::from_file;
use vsteer_core::{Fault, FaultKind};
use vsteer_experiment::description::Of;
use vsteer_experiment::design::order;
use vsteer_experiment::{Experiment, Next, Progress, answer};
use vsteer_host::observe::Observe;
use vsteer_host::root::Root;

/// Runs one of its parts.
///
/// # Errors
/// As [`carry_on`]; `BadInput` for a file that is no experiment; when a page cannot be written.
pub fn run(a: &Arguments, json: bool) -> Result<(), Fault> {
    match &a.what {
        ExperimentWhat::Run { file, output, yes, connect } => {
            begin(file, output.as_deref(), connect.as_deref(), *yes, json)
        }
        ExperimentWhat::Ab(a) => {
            let experiment = ab::experiment(a)?;
            // The person typed the commands: that is the consent.
            let log = Log::create(&ab::folder(a.output.as_deref()))?;
            let folder = log.folder().to_owned();
            carry(&experiment, log, json)?;
            let log = Log::read(&folder)?;
            let answers = answer(&experiment, &experiment.laid()?, log.events());
            let verdict = ab::verdict(a, &answers)?;
            if !json {
                println!("{verdict}");
            }
            Ok(())
        }
        ExperimentWhat::Resume { folder, yes } => resume(folder, *yes, json),
        ExperimentWhat::Report { folder, published, markdown, output, plan } => match folder {
            Some(folder) if !published => {
                plan.as_deref().map_or(Ok(()), |plan| write_plan(folder, plan))?;
                report(folder, *markdown, output.as_deref(), json)
            }
            _ => study::report(*markdown, output.as_deref(), json),
        },
        ExperimentWhat::Unit { folder } => unit::print(folder),
    }
}

/// This host, without VMs: an experiment's settings are its own.
fn host() -> Result<HostConfig, Fault> {
    let (_, config) = super::apply::open(None)?;
    Ok(HostConfig { vms: Vec::new(), ..config })
}

/// How long a lost link is waited for: some machines take longer to boot than others.
fn link_within() -> Duration {
    let asked = std::env::var("VSTEER_LINK_WITHIN_S").ok().and_then(|s| s.parse().ok());
    asked.map_or(LINK_WITHIN, Duration::from_secs)
}

/// The host whose VMs are looked at, as `vsteer top` opens it.
fn observe(connect: Option<&str>) -> Result<Box<dyn Observe>, Fault> {
    Ok(open_host(&Source::at(connect))?)
}

fn begin(
    file: &Path,
    output: Option<&Path>,
    connect: Option<&str>,
    yes: bool,
    json: bool,
) -> Result<(), Fault> {
    let mut experiment = file::read(file)?;
    match (connect, &experiment.connect) {
        (Some(typed), _) => experiment.connect = Some(typed.to_owned()),
        (None, Some(uri)) => from_file(uri, &[])?,
        (None, None) => {}
    }
    let folder =
        output.map_or_else(|| PathBuf::from(format!("{}.experiment", experiment.name)), Path::to_owned);
    if !yes {
        return lay_out(&experiment, &folder, connect.is_some(), json);
    }
    let log = Log::create(&folder)?;
    carry(&experiment, log, json)
}

/// Opens the observers that the measures need, and prints which VMs they observe.
///
/// # Errors
/// When this host cannot take a measure.
fn say_measures(experiment: &Experiment) -> Result<(), Fault> {
    if Observing::open(experiment, &mut observe)?.is_none() {
        return Ok(());
    }
    let named = experiment.measures.iter().filter_map(|m| Some((m, m.of.observed()?)));
    named.for_each(|(m, (quantity, vms))| eprintln!("  measure {}: {} of {vms}", m.name, quantity.name));
    for m in &experiment.measures {
        if let Of::Counter { event, vm } = &m.of {
            let untried = if event.is_hardwares() { " (untried)" } else { "" };
            eprintln!("  measure {}: {} of {vm}{untried}", m.name, event.name());
        }
    }
    Ok(())
}

/// Says what would be done, and what is in force. Runs and opens nothing that the file names; `typed`: the person gave
/// the connection.
fn lay_out(experiment: &Experiment, folder: &Path, typed: bool, json: bool) -> Result<(), Fault> {
    let laid = experiment.laid()?;
    let found = in_force(experiment)?;
    let levels: Vec<Option<usize>> = found.iter().map(|f| f.level).collect();
    let boots = [experiment.runs_least, experiment.runs_most].map(|n| experiment.boots(&laid, &levels, n));
    // Report a measure that this host cannot take before anything begins.
    if typed || experiment.connect.is_none() {
        say_measures(experiment)?;
    }
    let touches = experiment.touches()?;
    let no_meter = meters_tell(experiment, &Root::live()?, true).err().map(|fault| fault.to_string());
    if let Some(why) = &no_meter {
        eprintln!("  CANNOT be measured: {why}");
    }
    let first = order(&experiment.varied(), &laid.settings, experiment.seed, 0);
    if json {
        let settings: Vec<String> = laid.settings.iter().map(|s| experiment.words(s)).collect();
        crate::text::print_json(&json!({
            "experiment": experiment, "settings": settings, "questions": laid.contrasts, "first_block": first,
            "boots": { "least": boots[0], "most": boots[1] }, "no_meter": no_meter, "touches": touches,
            "factors": found.iter().map(|f| json!({ "name": f.name, "found": f.said, "cannot": f.cannot })).collect::<Vec<_>>(),
        }));
        return Ok(());
    }
    println!(
        "experiment {}: {}, {}, seed {}",
        experiment.name,
        counted(laid.settings.len(), "setting"),
        counted(laid.contrasts.len(), "question"),
        experiment.seed
    );
    for f in &found {
        println!("  factor {}: {}", f.name, f.said);
    }
    println!("first of {} to {} blocks:", experiment.runs_least, experiment.runs_most);
    for s in first {
        println!("  {}", experiment.words(&laid.settings[s]));
    }
    let [least, most] = boots;
    if least > 0 {
        println!(
            "The experiment reboots this machine about {least} times ({most} times with {} blocks).",
            experiment.runs_most
        );
        println!(
            "  To continue after each reboot, install the systemd unit: vsteer experiment unit {}",
            folder.display()
        );
    }
    println!("It touches:");
    touches.iter().for_each(|line| println!("  {line}"));
    println!("Dry run: pass --yes to run the experiment.");
    Ok(())
}

fn resume(folder: &Path, yes: bool, json: bool) -> Result<(), Fault> {
    if yes {
        let log = Log::open(folder)?;
        let experiment = log.begun()?.clone();
        return carry(&experiment, log, json);
    }
    let log = Log::read(folder)?;
    let experiment = log.begun()?;
    let laid = experiment.laid()?;
    let progress = Progress::new(experiment, &laid, log.events());
    let next = match progress.next() {
        Next::Nothing => "the experiment is complete".to_owned(),
        Next::End => "restore the first settings".to_owned(),
        Next::Decide { wanted, .. } => format!("the first stage is over; {wanted} blocks are needed"),
        Next::NotCounting(number, bad) => format!("run {number} no longer counts: {bad}"),
        Next::Run(p) | Next::CutOff(_, p) => {
            format!(
                "block {} of {}: {}",
                p.block + 1,
                progress.blocks(),
                experiment.words(&laid.settings[p.setting])
            )
        }
    };
    if json {
        crate::text::print_json(
            &json!({ "experiment": experiment.name, "runs": progress.runs().count(), "next": next }),
        );
    } else {
        println!("experiment {}: {} runs are done; next: {next}", experiment.name, progress.runs().count());
        println!("Dry run: pass --yes to continue.");
    }
    Ok(())
}

fn carry(experiment: &Experiment, mut log: Log, json: bool) -> Result<(), Fault> {
    let interrupt = Interrupt::listen_to_undo();
    let laid = experiment.laid()?;
    let terminal = std::io::stderr().is_terminal();
    let folder = log.folder().display().to_string();
    let mut made = Progress::new(experiment, &laid, log.events()).runs().count();
    let mut told = |told: Told<'_>| match told {
        Told::Set(s) => eprintln!("vsteer: {}", experiment.words(&laid.settings[s])),
        Told::Ran(run) => {
            made += 1;
            let what = match (&run.bad, run.took_s) {
                (Some(bad), _) => format!("does not count: {bad}"),
                (None, Some(took)) => format!("{took:.2} s{}", if run.warm_up { ", warm-up" } else { "" }),
                (None, None) => String::new(),
            };
            // On a terminal the line is written over: there may be thousands.
            let (begin, end) = if terminal && run.bad.is_none() { ("\r\x1b[K", "") } else { ("", "\n") };
            eprint!("{begin}  block {}, run {made}: {what}{end}", run.place.block + 1);
        }
        Told::Decided(blocks, wanted) => {
            let more = if wanted > blocks {
                format!(" (the margin needs {wanted}, the limit is {blocks})")
            } else {
                String::new()
            };
            eprintln!("vsteer: the first stage is over: {blocks} blocks in all{more}");
        }
        Told::Booting => {
            eprintln!(
                "vsteer: the machine reboots now; then continue: vsteer experiment resume {folder} --yes"
            );
        }
        Told::Note(note) => crate::text::note(note),
    };
    let journals = journal_folder();
    let means = Means {
        host: host()?,
        journals: &journals,
        interrupted: &|| interrupt.is_set(),
        told: &mut told,
        observe: &mut observe,
        link_within: link_within(),
    };
    let ended = carry_on(experiment, &mut log, means)?;
    if terminal {
        eprintln!();
    }
    match ended {
        Ended::Done => {
            let answers = answer(experiment, &laid, log.events());
            if json {
                crate::text::print_json(&answers);
            } else {
                print!("{}", text::text(&document::of(experiment, &laid, &log, &answers)));
                println!("for a page: vsteer experiment report {folder} -o report.html");
            }
            Ok(())
        }
        Ended::Booting => {
            if json {
                crate::text::print_json(&json!({ "booting": true, "folder": folder }));
            }
            Ok(())
        }
        Ended::Interrupted(lines) => {
            lines.iter().for_each(crate::text::note);
            Err(Fault::new(FaultKind::Interrupted, format!("experiment {}: interrupted", experiment.name))
                .help(format!("to continue: vsteer experiment resume {folder} --yes")))
        }
    }
}

fn report(folder: &Path, markdown: bool, output: Option<&Path>, json: bool) -> Result<(), Fault> {
    let log = Log::read(folder)?;
    let experiment = log.begun()?;
    let laid = experiment.laid()?;
    let answers = answer(experiment, &laid, log.events());
    if json && output.is_none() {
        crate::text::print_json(&answers);
        return Ok(());
    }
    text::put(&document::of(experiment, &laid, &log, &answers), markdown, output, json)
}

/// Writes a plan of what was better.
fn write_plan(folder: &Path, file: &Path) -> Result<(), Fault> {
    let better = Winners::of(&Log::read(folder)?)?;
    better.notes().iter().for_each(crate::text::note);
    let plan = better.plan(host)?;
    let text = serde_json::to_string_pretty(&plan).expect("a plan is plain data");
    vsteer_record::files::replace(file, text.as_bytes())?;
    eprintln!("vsteer: wrote {}; to apply it: vsteer apply {0}", file.display());
    Ok(())
}
