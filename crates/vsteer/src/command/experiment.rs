//! `vsteer experiment`: run, resume, report, unit.

mod winner;

use crate::cli::{Experiment as Arguments, ExperimentWhat, Source};
use crate::command::realtime::systemd_word;
use crate::experiment::{document, study, text};
use crate::interrupt::Interrupt;
use crate::source::open_host;
use serde_json::json;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use vsteer_act::experiment::{Ended, Log, Means, Observing, Told, carry_on, file};
use vsteer_act::journal_folder;
use vsteer_core::experiment::description::Of;
use vsteer_core::experiment::design::order;
use vsteer_core::experiment::{Experiment, Next, Progress, answer};
use vsteer_core::nouns::HostConfig;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::observe::Observe;

/// Runs one of its parts.
///
/// # Errors
/// As [`carry_on`]; `BadInput` for a file that is no experiment; when a page cannot be written.
pub fn run(a: &Arguments, json: bool) -> Result<(), Fault> {
    match &a.what {
        ExperimentWhat::Run { file, output, yes } => begin(file, output.as_deref(), *yes, json),
        ExperimentWhat::Resume { folder, yes } => resume(folder, *yes, json),
        ExperimentWhat::Report { folder, published, markdown, output, plan } => match folder {
            Some(folder) if !published => {
                plan.as_deref().map_or(Ok(()), |plan| winner::write(folder, plan))?;
                report(folder, *markdown, output.as_deref(), json)
            }
            _ => study::report(*markdown, output.as_deref(), json),
        },
        ExperimentWhat::Unit { folder } => unit(folder),
    }
}

/// This host, without VMs: an experiment's settings are its own.
fn host() -> Result<HostConfig, Fault> {
    let (_, config) = super::apply::open(None)?;
    Ok(HostConfig { vms: Vec::new(), ..config })
}

/// The host whose VMs are looked at, as `vsteer top` opens it.
fn observe(connect: Option<&str>) -> Result<Box<dyn Observe>, Fault> {
    Ok(Box::new(open_host(&Source::at(connect))?))
}

fn begin(file: &Path, output: Option<&Path>, yes: bool, json: bool) -> Result<(), Fault> {
    let experiment = file::read(file)?;
    if !yes {
        return lay_out(&experiment, json);
    }
    let folder =
        output.map_or_else(|| PathBuf::from(format!("{}.experiment", experiment.name)), Path::to_owned);
    let log = Log::create(&folder)?;
    carry(&experiment, log, json)
}

/// Says what would be done, and what is in force.
fn lay_out(experiment: &Experiment, json: bool) -> Result<(), Fault> {
    let laid = experiment.laid()?;
    let mut found = Vec::new();
    for f in &experiment.factors {
        let now = f.knob(experiment.boot.as_ref())?.map(|k| vsteer_host::knob::read(&k));
        let said = match &now {
            None => "in the workload's command".to_owned(),
            Some(Ok(now)) => format!("now {now:?}"),
            Some(Err(fault)) => format!("CANNOT be read: {fault}"),
        };
        found.push((f.name.clone(), said, matches!(now, Some(Err(_)))));
    }
    // A measure that cannot be had here is told before anything is begun.
    if Observing::open(experiment, &mut observe)?.is_some() {
        let named = experiment.measures.iter().filter_map(|m| Some((m, m.of.observed()?)));
        named.for_each(|(m, (quantity, vms))| eprintln!("  measure {}: {} of {vms}", m.name, quantity.name));
        for m in &experiment.measures {
            if let Of::Counter { event, vm } = &m.of {
                let untried = if event.is_hardwares() { " (untried)" } else { "" };
                eprintln!("  measure {}: {} of {vm}{untried}", m.name, event.name());
            }
        }
    }
    let first = order(&experiment.varied(), &laid.settings, experiment.seed, 0);
    if json {
        let settings: Vec<String> = laid.settings.iter().map(|s| experiment.words(s)).collect();
        super::print_json(&json!({
            "experiment": experiment, "settings": settings, "questions": laid.contrasts, "first_block": first,
            "factors": found.iter().map(|(name, said, cannot)| json!({ "name": name, "found": said, "cannot": cannot })).collect::<Vec<_>>(),
        }));
        return Ok(());
    }
    println!(
        "experiment {}: {} settings, {} questions, seed {}",
        experiment.name,
        laid.settings.len(),
        laid.contrasts.len(),
        experiment.seed
    );
    for (name, said, _) in &found {
        println!("  factor {name}: {said}");
    }
    println!("the first of {} blocks at least ({} at most):", experiment.runs_least, experiment.runs_most);
    for s in first {
        println!("  {}", experiment.words(&laid.settings[s]));
    }
    println!("nothing was changed. Do it: --yes");
    Ok(())
}

fn resume(folder: &Path, yes: bool, json: bool) -> Result<(), Fault> {
    if yes {
        let log = Log::open(folder)?;
        let experiment = begun(&log)?.clone();
        return carry(&experiment, log, json);
    }
    let log = Log::read(folder)?;
    let experiment = begun(&log)?;
    let laid = experiment.laid()?;
    let progress = Progress::new(experiment, &laid, log.events());
    let next = match progress.next() {
        Next::Nothing => "it is at its end".to_owned(),
        Next::End => "what was found first is put back".to_owned(),
        Next::Decide { wanted, .. } => format!("the first stage is over: {wanted} blocks are wanted"),
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
        super::print_json(
            &json!({ "experiment": experiment.name, "runs": progress.runs().count(), "next": next }),
        );
    } else {
        println!("experiment {}: {} runs are made; next: {next}", experiment.name, progress.runs().count());
        println!("nothing was done. Go on: --yes");
    }
    Ok(())
}

fn begun(log: &Log) -> Result<&Experiment, Fault> {
    log.experiment().ok_or_else(|| {
        Fault::new(
            FaultKind::NothingThere,
            format!("{} holds an experiment that never began", log.folder().display()),
        )
        .way_out("remove the folder and run it")
    })
}

fn carry(experiment: &Experiment, mut log: Log, json: bool) -> Result<(), Fault> {
    let interrupt = Interrupt::listen();
    let laid = experiment.laid()?;
    let terminal = std::io::stderr().is_terminal();
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
                format!(" (the margin asks for {wanted}, the ceiling is {blocks})")
            } else {
                String::new()
            };
            eprintln!("vsteer: the first stage is over: {blocks} blocks in all{more}");
        }
        Told::Booting => eprintln!("vsteer: the machine is booted; after it: vsteer experiment resume --yes"),
        Told::Note(note) => eprintln!("vsteer: {note}"),
    };
    let journals = journal_folder();
    let means = Means {
        host: host()?,
        journals: &journals,
        interrupted: &|| interrupt.is_set(),
        told: &mut told,
        observe: &mut observe,
    };
    let ended = carry_on(experiment, &mut log, means)?;
    if terminal {
        eprintln!();
    }
    let folder = log.folder().display().to_string();
    match ended {
        Ended::Done => {
            let answers = answer(experiment, &laid, log.events());
            if json {
                super::print_json(&answers);
            } else {
                print!("{}", text::text(&document::of(experiment, &laid, &log, &answers)));
                println!("a page: vsteer experiment report {folder} -o report.html");
            }
            Ok(())
        }
        Ended::Booting => {
            if json {
                super::print_json(&json!({ "booting": true, "folder": folder }));
            }
            Ok(())
        }
        Ended::Interrupted(lines) => {
            lines.iter().for_each(|line| eprintln!("vsteer: {line}"));
            Err(Fault::new(FaultKind::Interrupted, format!("experiment {}: interrupted", experiment.name))
                .way_out(format!("go on: vsteer experiment resume {folder} --yes")))
        }
    }
}

fn report(folder: &Path, markdown: bool, output: Option<&Path>, json: bool) -> Result<(), Fault> {
    let log = Log::read(folder)?;
    let experiment = begun(&log)?;
    let laid = experiment.laid()?;
    let answers = answer(experiment, &laid, log.events());
    if json && output.is_none() {
        super::print_json(&answers);
        return Ok(());
    }
    text::put(&document::of(experiment, &laid, &log, &answers), markdown, output, json)
}

fn unit(folder: &Path) -> Result<(), Fault> {
    let log = Log::read(folder)?;
    let experiment = begun(&log)?;
    let full =
        std::fs::canonicalize(folder).map_err(|e| Fault::io(format!("finding {}", folder.display()), &e))?;
    let program = std::env::current_exe().map_err(|e| Fault::io("finding this program", &e))?;
    let words = [&*program.to_string_lossy(), "experiment", "resume", &*full.to_string_lossy(), "--yes"]
        .map(systemd_word);
    print!(
        "# systemd: write this to /etc/systemd/system/vsteer-experiment.service, then systemctl enable vsteer-experiment; disable it when the\n\
         # experiment is at its end. untried: checked by `systemd-analyze verify` alone.\n\
         [Unit]\n\
         Description=vsteer: goes on with experiment {}\n\
         Documentation=man:vsteer-experiment(1)\n\
         After=network-online.target tuned.service libvirtd.service virtqemud.service multi-user.target\n\
         Wants=network-online.target\n\
         \n\
         [Service]\n\
         Type=exec\n\
         ExecStart={}\n\
         # Settings are put back at a stop; at a boot that it asked for itself it has ended before.\n\
         KillSignal=SIGINT\n\
         TimeoutStopSec=120s\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n",
        experiment.name,
        words.join(" ")
    );
    Ok(())
}
