//! Options of `vsteer diagnose`.

use super::window::Window;
use super::words::named_threshold;
use clap::Args;

/// `vsteer diagnose`.
#[derive(Debug, Args)]
pub struct Diagnose {
    /// Use another threshold: `ready_group=8%`, `wake_p99_ns=3ms`. May be given several times. An unknown name lists all
    #[arg(long, value_name = "NAME=VALUE", value_parser = named_threshold)]
    pub threshold: Vec<(String, f64)>,
    /// What to look at.
    #[command(flatten)]
    pub window: Window,
}
