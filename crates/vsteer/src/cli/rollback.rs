//! Options of `vsteer rollback`.

use super::host::Login;
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer rollback                           Undo every plan that is applied, newest first
  vsteer rollback 3f9c1a2b                  Undo one plan

vsteer does not overwrite a setting that somebody else changed since: it shows both values, and undoes nothing of that plan.")]
pub struct Rollback {
    /// Id of the plan to undo [default: every applied plan, newest first]
    pub id: Option<String>,
    /// Undo on the host at URI [default: the URI in the journal]
    #[arg(long, value_name = "URI", help_heading = "Source")]
    pub connect: Option<String>,
    /// Undo also settings that somebody else changed since
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub login: Login,
}
