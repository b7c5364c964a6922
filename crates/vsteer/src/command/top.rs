//! `vsteer top`: the live table, or rows with `-b`.

use crate::cli::Top;
use crate::interrupt::Interrupt;
use crate::source::{Failed, Several, need_vms, only_watch, open_host};
use crate::text::{csv_header, print_rows};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use vsteer_core::model;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::pace::{Described, Pace, due};
use vsteer_record::config::Config;

/// How often to look whether a host has failed or a signal has come.
const LOOK: Duration = Duration::from_millis(200);

/// Shows.
///
/// # Errors
/// As [`open_host`]; `Usage` when the live table is asked for without a terminal.
pub fn run(a: &Top, config: &Config, json: bool) -> Result<ExitCode, Fault> {
    if !a.batch && !json {
        if !std::io::stdout().is_terminal() {
            return Err(Fault::new(FaultKind::Usage, "the live table needs a terminal")
                .help("to print rows instead: vsteer top -b"));
        }
        return crate::view::run(a, config);
    }
    if let Some(recording) = &a.recording {
        super::replay::rows(recording, a.interval, a.updates, json)?;
        return Ok(ExitCode::SUCCESS);
    }
    if a.source.is_several() {
        return several(a, json);
    }
    one(a, json).map(|()| ExitCode::SUCCESS)
}

fn one(a: &Top, json: bool) -> Result<(), Fault> {
    let interrupt = Interrupt::listen();
    let mut host = open_host(&a.source)?;
    need_vms(&host.config()?, &a.source)?;
    only_watch(host.as_mut())?;
    let (mut before, mut described) = (host.sample()?, Described::default());
    let mut next = Instant::now();
    if !json {
        println!("{}", csv_header());
    }
    let mut left = a.updates.unwrap_or(u64::MAX);
    while left > 0 {
        next = due(next, a.interval);
        if interrupt.sleep_until(next) {
            return Ok(());
        }
        let now = host.sample()?;
        // Who counts by itself (a vSphere) has nothing new each time.
        if now.mono_ns <= before.mono_ns {
            continue;
        }
        let collector = host.collector();
        let model = model::derive(described.of(host.as_mut())?, &collector, &[before, now.clone()])?;
        print_rows(None, now.unix_ns, &model, json);
        before = now;
        left -= 1;
    }
    Ok(())
}

/// Rows of several hosts, as they come.
fn several(a: &Top, json: bool) -> Result<ExitCode, Fault> {
    let interrupt = Interrupt::listen();
    let mut hosts = Several::open(&a.source, a.interval, a.updates, &interrupt)?;
    let mut failed = Failed::default();
    if !json {
        println!("host,{}", csv_header());
    }
    loop {
        let update = hosts.next(LOOK);
        while let Some((place, fault)) = hosts.next_fault() {
            failed.say(&hosts.names[place], &fault, json);
        }
        if let Some((place, u)) = update {
            let name = &hosts.names[place];
            let unix_ns = u.now.unix_ns;
            match model::derive(&u.config, &u.collector, &[u.before, u.now]) {
                Ok(model) => print_rows(Some(name), unix_ns, &model, json),
                Err(fault) => failed.say(name, &fault, json),
            }
        }
        if interrupt.is_set() || hosts.is_over() {
            hosts.end();
            return Ok(failed.code());
        }
    }
}
