//! `vsteer config`: is the configuration right, what counts, and which keys are there?

use crate::cli::{Check, Cli, ConfigArgs, ConfigWhat, Show};
use crate::settings::{variable, with_defaults};
use clap::ArgMatches;
use clap::parser::ValueSource;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use vsteer_core::visible::message;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::config::{self, Config, Key, Kind, Loaded, Places};

/// Runs one of its parts. `chosen`: the value of `--config`.
///
/// # Errors
/// As [`Loaded::strict`]; `Usage` for a command line that vsteer refuses.
pub fn run(a: &ConfigArgs, chosen: Option<&Path>, json: bool) -> Result<ExitCode, Fault> {
    match &a.what {
        ConfigWhat::Check(a) => check(a, chosen, json),
        ConfigWhat::Show(a) => show(a, chosen, json).map(|()| ExitCode::SUCCESS),
        ConfigWhat::Example => {
            print!("{}", config::example());
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn check(a: &Check, chosen: Option<&Path>, json: bool) -> Result<ExitCode, Fault> {
    let places = match &a.file {
        Some(file) => Places::One(file.clone()),
        None => Places::of(chosen, &variable),
    };
    let loaded = Loaded::of(&places, &variable);
    let fault = loaded.fault();
    let files = loaded.config.files();
    if json {
        crate::text::print_json(&serde_json::json!({
            "files": files, "faults": loaded.wrong, "unread": loaded.faults, "more": loaded.more,
            "notes": loaded.notes,
        }));
        return Ok(fault.map_or(ExitCode::SUCCESS, |fault| ExitCode::from(fault.kind.exit_code())));
    }
    loaded.notes.iter().for_each(crate::text::note);
    if let Some(fault) = fault {
        return Err(fault);
    }
    files.iter().for_each(|file| println!("{}: no fault", message(&file.display().to_string())));
    if files.is_empty() {
        println!("no configuration is read: the built-in defaults count");
    }
    Ok(ExitCode::SUCCESS)
}

fn show(a: &Show, chosen: Option<&Path>, json: bool) -> Result<(), Fault> {
    let loaded = Loaded::of(&Places::of(chosen, &variable), &variable);
    loaded.notes.iter().for_each(crate::text::note);
    let config = loaded.strict()?;
    let typed = typed(&a.words, &config)?;
    let of = |key: &Key| typed.as_ref().and_then(|(command, matches)| of_option(key, command, matches));
    if json {
        let hosts: Vec<_> = config.host_names().filter_map(|name| Some((name, config.host(name)?))).collect();
        let hosts: serde_json::Map<String, serde_json::Value> = hosts
            .into_iter()
            .map(|(name, h)| {
                let host = serde_json::json!({
                    "connect": h.connect, "ca": h.ca, "thumbprint": h.thumbprint, "password_file": h.password_file,
                });
                (name.to_owned(), host)
            })
            .collect();
        let triggers = config.triggers().map(|(name, t)| (name.to_owned(), t.said().collect()));
        let triggers: BTreeMap<String, BTreeMap<&str, String>> = triggers.collect();
        crate::text::print_json(&serde_json::json!({
            "files": config.files(), "keys": config::rows(&config, &of), "hosts": hosts, "triggers": triggers,
        }));
    } else {
        print!("{}", config::show(&config, &of));
    }
    Ok(())
}

/// A command line of vsteer, as the program would read it.
fn typed(words: &[OsString], config: &Config) -> Result<Option<(String, ArgMatches)>, Fault> {
    let Some(name) = words.iter().find_map(|w| w.to_str().filter(|w| !w.starts_with('-'))) else {
        return Ok(None);
    };
    let known = <Cli as clap::CommandFactory>::command().find_subcommand(name).is_some();
    let command = if known { with_defaults(name, config) } else { <Cli as clap::CommandFactory>::command() };
    let all = std::iter::once(OsString::from("vsteer")).chain(words.iter().cloned());
    let matches = command.try_get_matches_from(all).map_err(|e| {
        let text = e.to_string();
        let first = text.lines().next().unwrap_or_default();
        Fault::new(FaultKind::Usage, "vsteer refuses this command line")
            .because(first.strip_prefix("error: ").unwrap_or(first))
            .help("write it as after `vsteer`, for example: vsteer config show -- top --interval 5s")
    })?;
    Ok(matches.subcommand().map(|(name, of)| (name.to_owned(), of.clone())).filter(|_| known))
}

/// What the command line says in place of a key.
fn of_option(key: &Key, command: &str, matches: &ArgMatches) -> Option<Vec<String>> {
    let raw = |id: &str| -> Option<Vec<String>> {
        matches.try_contains_id(id).ok()?;
        let typed = matches.value_source(id) == Some(ValueSource::CommandLine);
        let values = matches.get_raw(id).filter(|_| typed)?;
        Some(values.map(|v| v.to_string_lossy().into_owned()).collect())
    };
    if let Kind::Threshold(row) = key.kind {
        let all = raw("threshold")?;
        let named = |text: &String| {
            let (name, value) = text.split_once('=')?;
            (name.trim() == row.name).then(|| value.trim().to_owned())
        };
        return all.iter().rev().find_map(named).map(|value| vec![value]);
    }
    match (key.section, key.name) {
        ("connection", "connect") => raw("connect").filter(|all| all.len() == 1),
        _ => key.options.iter().find(|(of, _)| *of == command).and_then(|(_, id)| raw(id)),
    }
}
