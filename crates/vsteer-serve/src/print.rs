//! Prints what packages and documents contain of the service: manual page, completions, reference of metrics.

use crate::options::Options;
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::{self, Write};
use vsteer_core::thresholds::Thresholds;

/// Prints it on standard output. A reader who has enough may close the pipe.
pub fn print(what: &str, thresholds: &Thresholds) {
    let mut text = Vec::new();
    let mut completions = |shell| {
        let mut command = Options::command().name("vsteer-serve").bin_name("vsteer-serve");
        clap_complete::generate(shell, &mut command, "vsteer-serve", &mut text);
    };
    match what {
        "bash" => completions(Shell::Bash),
        "zsh" => completions(Shell::Zsh),
        "fish" => completions(Shell::Fish),
        "metrics" => text = crate::metrics::reference().into_bytes(),
        "rules" => text = crate::prometheus::rules(thresholds).into_bytes(),
        "dashboard-host" => text = crate::prometheus::host_dashboard().into_bytes(),
        "dashboard-vm" => text = crate::prometheus::vm_dashboard().into_bytes(),
        _ => {
            let command = Options::command().name("vsteer-serve").bin_name("vsteer serve");
            clap_mangen::Man::new(command).render(&mut text).expect("memory takes all");
        }
    }
    let _ = io::stdout().lock().write_all(&text);
}
