//! Completions, manual pages and exit codes of the program.

use crate::cli::Cli;
use clap::CommandFactory;
use clap_mangen::roff::{Roff, bold, roman};
use std::path::Path;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::config::{HOST_KEYS, Key, ORDER, SECTIONS, TRIGGER_KEYS, keys};
use vsteer_record::own_folder::OwnFolder;

/// `vsteer completions SHELL`.
///
/// # Errors
/// None.
pub fn completions(shell: clap_complete::Shell) -> Result<(), Fault> {
    clap_complete::generate(shell, &mut Cli::command(), "vsteer", &mut std::io::stdout());
    Ok(())
}

/// `vsteer man FOLDER`.
///
/// # Errors
/// When the folder cannot be written.
pub fn man(folder: &Path) -> Result<(), Fault> {
    let failed =
        |e: &std::io::Error| Fault::io(format!("cannot write manual pages to {}", folder.display()), e);
    let held = OwnFolder::make_or_open(folder)?;
    clap_mangen::generate_to(Cli::command(), held.path()).map_err(|e| failed(&e))?;
    std::fs::write(held.path().join("vsteer.toml.5"), configuration_page()).map_err(|e| failed(&e))
}

/// vsteer.toml(5), from the table of keys.
fn configuration_page() -> String {
    let version = format!("vsteer {}", env!("CARGO_PKG_VERSION"));
    let mut page = Roff::new();
    page.control("TH", ["vsteer.toml", "5", "", version.as_str()]);
    page.control("SH", ["NAME"]).text([roman("vsteer.toml - configuration of vsteer")]);
    page.control("SH", ["SYNOPSIS"]);
    page.text([roman("/etc/vsteer/vsteer.toml")]).control("br", []);
    page.text([roman("$XDG_CONFIG_HOME/vsteer/vsteer.toml, else ~/.config/vsteer/vsteer.toml")]);
    page.control("SH", ["DESCRIPTION"]).text([roman(
        "The file is TOML. Its keys are defaults that a person sets once for a host. No key changes a host or gives consent to a \
        change. Only [triggers.NAME] names programs, which the service runs. A value is text with its unit, for example \"2s\", \"64M\" or \"5%\".",
    )]);
    page.control("PP", []).text([roman(ORDER)]);
    page.control("PP", []).text([roman(
        "--config FILE and VSTEER_CONFIG=FILE replace both files; none reads no file. Root reads only files that nobody else \
        can write. By sudo, the user's file is root's own. A faulty file stops every command but those that undo a change.",
    )]);
    for (section, about) in SECTIONS {
        page.control("SH", [format!("[{section}]").as_str()]).text([roman(*about)]);
        keys().iter().filter(|key| key.section == *section).for_each(|key| paragraph(&mut page, key));
    }
    page.control("SH", ["[hosts.NAME]"]).text([roman(
        "Names of hosts, for --connect NAME. A name has letters, digits, and - _ . but no colon, so it never hides a URI.",
    )]);
    for (name, example, meaning) in HOST_KEYS {
        page.control("TP", []).text([bold(*name), roman(format!(" = {example:?}"))]).text([roman(*meaning)]);
    }
    page.control("SH", ["[triggers.NAME]"]).text([roman(
        "A trigger posts a message or runs a command when a finding begins and when it ends. docs/serve.md describes messages and their signature.",
    )]);
    TRIGGER_KEYS.iter().for_each(|key| paragraph(&mut page, key));
    page.control("SH", ["SEE ALSO"]).text([roman("vsteer(1), vsteer-config(1)")]);
    page.render()
}

fn paragraph(page: &mut Roff, key: &Key) {
    let default = if key.kind.is_list() { "[]".to_owned() } else { format!("{:?}", key.default) };
    page.control("TP", []).text([bold(key.name), roman(format!(" = {default}"))]);
    page.text([roman(sentence(key))]);
}

/// What a key means, what it takes, and what counts before it.
fn sentence(key: &Key) -> String {
    let before = key.overriders();
    let overridden = if before.is_empty() { String::new() } else { format!(" Overridden by {before}.") };
    format!("{} ({}){overridden}", key.meaning, key.kind.about())
}

/// `vsteer exit-codes`.
///
/// # Errors
/// None.
pub fn exit_codes(json: bool) -> Result<(), Fault> {
    if json {
        let all: Vec<_> = FaultKind::ALL
            .iter()
            .map(|k| serde_json::json!({ "code": k.exit_code(), "kind": k, "meaning": k.meaning() }))
            .collect();
        crate::text::print_json(&all);
    } else {
        println!("{:>4}  done", 0);
        for k in FaultKind::ALL {
            println!("{:>4}  {}", k.exit_code(), k.meaning());
        }
    }
    Ok(())
}
