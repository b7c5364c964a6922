//! Takes a lab down without leaving anything behind, and checks this.
//!
//! The order is: libvirt ends the VMs. Then every process of the lab is ended: the recorded ones, those in
//! its cgroup partition, and those in its mount namespace. (The last two find processes that were not
//! recorded because of a crash.) Then cgroups, mount points that the lab made, and the folder are removed.
//! Mounts disappear with the namespace's last process. Afterwards [`leftovers`] looks for each kind of thing.
//! Repeating this, also after a crash or a reboot, is harmless.

use super::{Hold, hold};
use crate::files::remove_folder;
use crate::process::{self, ProcessId, mounts_of};
use crate::state::{self, State};
use crate::{interrupt, libvirtd, partition};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// The time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// The results of `down`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Down {
    /// Was there a lab?
    pub was_there: bool,
    /// The number of processes that were ended.
    pub processes_ended: usize,
    /// Everything that still exists; empty on success.
    pub leftovers: Leftovers,
}

/// Parts of a lab that still exist on the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Leftovers {
    /// Processes, by pid.
    pub processes: Vec<i32>,
    /// Mounts in this process's namespace, by target.
    pub mounts: Vec<String>,
    pub cgroups: Vec<PathBuf>,
    /// Folders that the lab made.
    pub folders: Vec<PathBuf>,
}

impl Leftovers {
    /// True if nothing is left.
    pub fn is_empty(&self) -> bool {
        *self == Leftovers::default()
    }
}

/// Takes the lab in `dir` down; does nothing if there is none.
///
/// # Errors
/// A process or cgroup cannot be removed, the folder contains other things, or another vsteer-lab uses it.
pub fn down(dir: &Path) -> Result<Down, Fault> {
    if !dir.exists() {
        return Ok(Down { was_there: false, processes_ended: 0, leftovers: Leftovers::default() });
    }
    let held = hold(dir)?;
    down_held(dir, &held)
}

/// As [`down`], for a caller that already holds the lab.
pub(crate) fn down_held(dir: &Path, _held: &Hold) -> Result<Down, Fault> {
    interrupt::clear();
    let Some(state) = state::read(dir)? else {
        // The folder was made and not yet recorded, or is not a lab's. Only an empty folder certainly belongs
        // to the lab.
        return match std::fs::remove_dir(dir) {
            Ok(()) => Ok(Down { was_there: false, processes_ended: 0, leftovers: Leftovers::default() }),
            Err(e) => Err(Fault::new(FaultKind::Usage, format!("{} is not a lab's folder", dir.display()))
                .because(e)
                .help("name the lab's folder with --dir")),
        };
    };
    let mut ended = 0;
    if state.is_of_this_boot() {
        destroy_vms(dir, &state);
        // Twice, because a process found last may have started another one before it ended.
        for _ in 0..2 {
            let processes: Vec<ProcessId> = processes_of(&state).into_iter().collect();
            ended += processes.len();
            process::end(&processes, GRACE)?;
        }
        partition::remove(&state.partition())?;
        for folder in state.made_folders.iter().rev().filter(|f| !is_in_use(f)) {
            // This fails if another lab has just started to use the folder, which is fine.
            let _ = std::fs::remove_dir(folder);
        }
    }
    remove_folder(dir)?;
    let leftovers = if state.is_of_this_boot() { leftovers(dir, &state) } else { Leftovers::default() };
    Ok(Down { was_there: true, processes_ended: ended, leftovers })
}

/// Why no process can use this lab any more; `None` if one may.
pub(crate) fn left_behind(state: &State) -> Option<&'static str> {
    if !state.is_of_this_boot() {
        Some("it is from before the last boot")
    } else if state.owner.is_some_and(|owner| !owner.is_alive()) {
        Some("who started it has ended")
    } else if processes_of(state).is_empty() {
        Some("nothing of it runs")
    } else {
        None
    }
}

/// Asks libvirt to end the VMs, so that QEMU ends normally. Signals then end whatever this does not.
fn destroy_vms(dir: &Path, state: &State) {
    let daemon = state.processes.iter().find(|s| s.what == "libvirtd");
    if !daemon.is_some_and(|d| d.process.is_alive()) {
        return;
    }
    for vm in &state.vms {
        if libvirtd::pid_of(dir, &vm.name).is_some()
            && let Err(fault) = libvirtd::virsh(dir, &["destroy", &vm.name])
        {
            eprintln!("vsteer-lab: {fault}; ending its process instead");
        }
    }
}

/// Every living process of the lab.
pub fn processes_of(state: &State) -> BTreeSet<ProcessId> {
    let mut found = process::with_mount_source(&state.mount_source());
    for folder in partition::folders(&state.partition()) {
        found.extend(process::in_cgroup(&folder));
    }
    found.extend(state.processes.iter().map(|s| s.process).filter(ProcessId::is_alive));
    found
}

/// Does another lab now use a folder that this lab made? It does if the folder contains something, or if
/// something is mounted over it in any mount namespace (removing the folder would remove that mount).
fn is_in_use(folder: &Path) -> bool {
    let holds_something = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    holds_something || process::is_mounted_over(folder)
}

/// What still exists of a lab that was in `dir` with this record.
pub fn leftovers(dir: &Path, state: &State) -> Leftovers {
    let own = mounts_of(std::process::id() as i32);
    let source = state.mount_source();
    let is_ours = |m: &&process::Mount| m.source == source || Path::new(&m.target).starts_with(dir);
    let made = state.made_folders.iter().filter(|f| f.exists() && !is_in_use(f)).cloned();
    Leftovers {
        processes: processes_of(state).iter().map(|p| p.pid).collect(),
        mounts: own.iter().filter(is_ours).map(|m| m.target.clone()).collect(),
        cgroups: partition::folders(&state.partition()),
        folders: made.chain(dir.exists().then(|| dir.to_owned())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accel::{Accel, Decision};
    use crate::files::{make_folder, write_file};

    fn state() -> State {
        let accel = Decision { accel: Accel::Tcg, reason: String::new(), boot_id: String::new() };
        State::new("test-of-down".into(), 1, "burn=1x1".into(), accel, String::new())
    }

    #[test]
    fn nothing_there_is_fine_and_a_foreign_folder_is_spared() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("lab");
        assert!(!down(&dir).unwrap().was_there);
        make_folder(&dir).unwrap();
        write_file(&dir.join("thesis.txt"), "years of work").unwrap();
        assert_eq!(down(&dir).unwrap_err().kind, FaultKind::Usage);
        assert!(dir.join("thesis.txt").exists());
    }

    #[test]
    fn a_crashed_lab_is_cleaned_and_a_recycled_pid_spared() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("lab");
        let made = folder.path().join("made");
        make_folder(&dir).unwrap();
        make_folder(&made).unwrap();
        let mut mine = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let id = |child: &std::process::Child| ProcessId::of(child.id() as i32).unwrap();
        let (mine_id, other_id) = (id(&mine), id(&other));
        let mut state = state();
        state.made_folders.push(made.clone());
        state.started(&dir, "stamp", mine_id).unwrap();
        // The process that had this pid when the record was written has ended.
        state.started(&dir, "libvirtd", ProcessId { start_ticks: 1, ..other_id }).unwrap();
        let down = down(&dir).unwrap();
        assert_eq!((down.was_there, down.processes_ended), (true, 1));
        assert!(down.leftovers.is_empty(), "{down:?}");
        assert!(!mine_id.is_alive() && other_id.is_alive());
        assert!(!dir.exists() && !made.exists());
        other.kill().unwrap();
        other.wait().unwrap();
        mine.wait().unwrap();
    }

    #[test]
    fn a_lab_from_before_the_last_boot_is_a_folder_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("lab");
        make_folder(&dir).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let id = ProcessId::of(child.id() as i32).unwrap();
        let mut state = State { boot_id: "another boot".into(), ..state() };
        state.started(&dir, "libvirtd", id).unwrap();
        assert_eq!(down(&dir).unwrap().processes_ended, 0);
        assert!(id.is_alive() && !dir.exists());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_lab_is_left_behind_once_nobody_can_use_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = state();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let id = ProcessId::of(child.id() as i32).unwrap();
        assert!(left_behind(&state).unwrap().contains("nothing"));
        state.started(folder.path(), "libvirtd", id).unwrap();
        assert_eq!(left_behind(&state), None);
        state.owner = ProcessId::of(std::process::id() as i32);
        assert_eq!(left_behind(&state), None);
        state.owner = Some(ProcessId { start_ticks: 1, ..id });
        assert!(left_behind(&state).unwrap().contains("who started it"));
        assert!(left_behind(&State { boot_id: "another boot".into(), ..state }).unwrap().contains("boot"));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn what_is_left_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = state();
        assert_eq!(leftovers(&folder.path().join("gone"), &state), Leftovers::default());
        let made = folder.path().join("made");
        make_folder(&made).unwrap();
        state.made_folders.push(made.clone());
        let found = leftovers(folder.path(), &state);
        assert_eq!(found.folders, [&*made, folder.path()]);
        write_file(&made.join("of-another"), "").unwrap();
        let found = leftovers(folder.path(), &state);
        assert_eq!(found.folders, [folder.path()], "what another uses is not left over");
    }
}
