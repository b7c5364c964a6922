//! `vsteer experiment unit`: a systemd unit that continues an experiment after a reboot.
//!
//! A user can enable the unit before the experiment starts, because an experiment over reboots ends this process at the
//! first one. Until the folder has a log, the unit does nothing.
//!
//! Left out: enabling the unit; several experiments at once, which would reboot the same machine.

use crate::command::realtime::systemd_word;
use std::path::{Path, PathBuf};
use vsteer_act::experiment::{FILE, Log};
use vsteer_core::{Fault, FaultKind};

/// Prints it.
///
/// # Errors
/// `BadInput` for a folder whose log is garbled or whose path systemd cannot be told.
pub fn print(folder: &Path) -> Result<(), Fault> {
    let full = full(folder)?;
    // What is relative in its commands is meant from where it is run.
    let here = std::env::current_dir().map_err(|e| Fault::io("cannot find the current folder", &e))?;
    let name = if full.join(FILE).exists() {
        Log::read(&full)?.experiment().map(|e| e.name.clone())
    } else {
        eprintln!(
            "vsteer: {} does not exist yet; to start the experiment: vsteer experiment run FILE -o {0} --yes",
            folder.display()
        );
        None
    };
    let name = name.unwrap_or_else(|| {
        let stem = full.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        stem.strip_suffix(".experiment").map_or(stem.clone(), str::to_owned)
    });
    let program = std::env::current_exe().map_err(|e| Fault::io("cannot find this program", &e))?;
    let words = [&*program.to_string_lossy(), "experiment", "resume", &*full.to_string_lossy(), "--yes"];
    let config = crate::settings::chosen().map(|file| ["--config".to_owned(), file.display().to_string()]);
    let words: Vec<String> = words
        .into_iter()
        .map(str::to_owned)
        .chain(config.into_iter().flatten())
        .map(|word| systemd_word(&word))
        .collect();
    print!(
        "# systemd: write this to /etc/systemd/system/vsteer-experiment.service, then systemctl enable vsteer-experiment, then run the\n\
         # experiment; disable it when the experiment is at its end. untried: checked by `systemd-analyze verify` alone.\n\
         [Unit]\n\
         Description=vsteer: goes on with experiment {}\n\
         Documentation=man:vsteer-experiment(1)\n\
         ConditionPathExists={}\n\
         After=network-online.target tuned.service libvirtd.service virtqemud.service multi-user.target\n\
         Wants=network-online.target\n\
         \n\
         [Service]\n\
         Type=exec\n\
         WorkingDirectory={}\n\
         ExecStart={}\n\
         # Settings are put back at a stop; at a boot that it asked for itself it has ended before.\n\
         KillSignal=SIGINT\n\
         TimeoutStopSec=120s\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n",
        name.replace('%', "%%"),
        systemd_path(&full.join(FILE))?,
        systemd_path(&here)?,
        words.join(" ")
    );
    Ok(())
}

/// From the root, also of a folder that is not there yet.
fn full(folder: &Path) -> Result<PathBuf, Fault> {
    if folder.exists() {
        return std::fs::canonicalize(folder)
            .map_err(|e| Fault::io(format!("finding {}", folder.display()), &e));
    }
    std::path::absolute(folder).map_err(|e| Fault::io(format!("finding {}", folder.display()), &e))
}

/// A path as a setting of systemd's that is not split into words.
fn systemd_path(path: &Path) -> Result<String, Fault> {
    let text = path.to_string_lossy();
    if text.contains(char::is_control) || text.ends_with(['\\', ' ']) {
        return Err(Fault::new(FaultKind::BadInput, format!("{text:?} cannot be written in a systemd unit")));
    }
    Ok(text.replace('%', "%%"))
}
