//! Options of `vsteer rollback`.

use super::host::Login;
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer rollback                           Undo every plan that is applied, newest first
  vsteer rollback 3f9c1a2b                  Undo one plan
  vsteer rollback --list                    List applied plans; exit with 3 if there is none

vsteer does not overwrite a setting that somebody else changed since: it shows both values, and undoes nothing of that plan.")]
pub struct Rollback {
    /// Id of the plan to undo [default: every applied plan, newest first]
    pub id: Option<String>,
    /// List the plans that are applied or unfinished, newest first; undo nothing
    #[arg(long, conflicts_with_all = ["id", "connect", "force"])]
    pub list: bool,
    /// Undo on the host at URI [default: the URI in the journal]
    #[arg(long, value_name = "URI", help_heading = "Source")]
    pub connect: Option<String>,
    /// Undo also settings that somebody else changed since
    #[arg(long)]
    pub force: bool,
    /// Accepted as for `vsteer apply`; a rollback always acts
    #[arg(long, hide = true)]
    pub yes: bool,
    #[command(flatten)]
    pub login: Login,
}
