//! Options of `vsteer rollback`.

use super::host::Login;
use clap::Args;

/// `vsteer rollback`.
#[derive(Debug, Args)]
pub struct Rollback {
    /// Which plan; without it: every one that is applied, newest first.
    pub id: Option<String>,
    /// libvirt connection URI, as it was given to `apply`.
    #[arg(long, value_name = "URI")]
    pub connect: Option<String>,
    /// How a vSphere is logged in to; what the journal says of it need not be said again.
    #[command(flatten)]
    pub login: Login,
}
