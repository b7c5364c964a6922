//! Options of `vsteer config`.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use vsteer_record::config::ORDER;

#[derive(Debug, Args)]
#[command(after_help = after())]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub what: ConfigWhat,
}

fn after() -> String {
    format!(
        "\
Examples:
  vsteer config check                       Check the files that vsteer reads
  vsteer config show                        Print every key, its value and where it comes from

{ORDER} Root reads only files that nobody else can write; by sudo, the user's file is root's own. --config FILE and \
VSTEER_CONFIG=FILE replace both files. vsteer.toml(5) has all keys. No key changes a host."
    )
}

#[derive(Debug, Subcommand)]
pub enum ConfigWhat {
    /// Check the configuration, and list every fault with its line
    #[command(after_help = "\
Examples:
  vsteer config check                       Check the files that vsteer reads
  vsteer config check --json                List the faults as JSON")]
    Check(Check),
    /// Print every key with the value that counts, and where the value comes from
    #[command(after_help = "\
Examples:
  vsteer config show > vsteer.toml          Write what counts now to a file
  vsteer config show -- top --interval 5s   Show what counts for this command")]
    Show(Show),
    /// Print the shipped file: every key with its default, as a comment
    #[command(after_help = "\
Examples:
  vsteer config example > vsteer.toml")]
    Example,
}

#[derive(Debug, Args)]
pub struct Check {
    /// File to check [default: the files that vsteer reads]
    pub file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Show {
    /// Command line of vsteer whose options count too
    #[arg(last = true, value_name = "COMMAND")]
    pub words: Vec<std::ffi::OsString>,
}
