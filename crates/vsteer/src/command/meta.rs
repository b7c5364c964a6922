//! Completions, manual pages and exit codes of the program.

use crate::cli::Cli;
use clap::CommandFactory;
use std::path::Path;
use vsteer_core::{Fault, FaultKind};
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
    clap_mangen::generate_to(Cli::command(), held.path()).map_err(|e| failed(&e))
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
