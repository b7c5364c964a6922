//! `vsteer top`: the live table, or rows with `-b`.

use crate::cli::Top;
use crate::interrupt::Interrupt;
use crate::source::{need_vms, only_watch, open_host};
use crate::text::{csv_header, print_rows};
use std::io::IsTerminal;
use std::time::Instant;
use vsteer_core::model;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::pace::{Pace, due};
use vsteer_record::config::Config;

/// Shows.
///
/// # Errors
/// As [`open_host`]; `Usage` when the live table is asked for without a terminal.
pub fn run(a: &Top, config: &Config, json: bool) -> Result<(), Fault> {
    if !a.batch && !json {
        if !std::io::stdout().is_terminal() {
            return Err(Fault::new(FaultKind::Usage, "the live table needs a terminal")
                .help("to print rows instead: vsteer top -b"));
        }
        return crate::view::run(a, config);
    }
    if let Some(recording) = &a.recording {
        return super::replay::rows(recording, a.interval, a.updates, json);
    }
    let interrupt = Interrupt::listen();
    let mut host = open_host(&a.source)?;
    need_vms(&host.config()?, &a.source)?;
    only_watch(host.as_mut())?;
    let mut before = host.sample()?;
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
        let model = model::derive(&host.config()?, &host.collector(), &[before, now.clone()])?;
        print_rows(now.unix_ns, &model, json);
        before = now;
        left -= 1;
    }
    Ok(())
}
