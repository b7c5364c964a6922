//! Decides which process is a VM that libvirt lists.
//!
//! Anyone can start a process with any command line, so a UUID there proves nothing. vsteer believes what an
//! ordinary user cannot fake, in this order:
//!
//! 1. The user who owns the process. libvirt's description names the user of the VM's QEMU (`<seclabel
//!    model='dac'>`). Without such a label, QEMU runs as the user of its libvirt, or as a service's user: never as
//!    another person. A process of another user is never the VM.
//! 2. The cgroup. libvirt puts a VM into a group of its own, which only root (or systemd) makes.
//! 3. What the command line says: libvirt's folder for this run of the VM, and the VM's name.
//!
//! vsteer notes each process that falsely claims to be the VM, and each choice that only the command line
//! decided.
//!
//! Source: `src/security/security_dac.c`, `src/util/vircgroup.c`, `src/util/virsystemd.c` (libvirt 9.0).
//!
//! Left out: libvirt's pid files, whose place depends on its build and mount namespace. A process of the VM's
//! own user (the VM itself, once its guest has broken out) can claim to be another VM of that user.

use super::client::Listed;
use super::processes::{Origin, Process};

/// The process of a VM, and what the user should know about the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Index of the process; `None` if no process is the VM.
    pub at: Option<usize>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Chooses the process of a listed VM. `by_label`: the user in libvirt's description; `own`: the users
/// that a libvirt of this person can run as.
pub fn choose(qemus: &[Process], vm: &Listed, by_label: Option<u32>, own: &[u32]) -> Chosen {
    let uuid = vm.uuid.to_ascii_lowercase();
    let all = qemus.iter().enumerate().filter(|(_, q)| q.line.uuid.as_deref() == Some(&uuid));
    let may_be = |q: &Process| match (q.user, by_label) {
        (None, _) => true,
        (Some(user), Some(label)) => user == label,
        (Some(user), None) => own.contains(&user) || !q.is_a_persons(),
    };
    let (mine, foreign): (Vec<_>, Vec<_>) = all.partition(|(_, q)| may_be(q));
    let mut chosen = Chosen::default();
    for (_, q) in foreign {
        let user = q.user.unwrap_or_default();
        let expected = by_label.map_or("root, you or a service".to_owned(), |label| format!("user {label}"));
        chosen.notes.push(format!(
            "process {} of user {user} poses as VM {:?}, whose QEMU runs as {expected}: vsteer ignores this process",
            q.pid, vm.name
        ));
    }
    let strength = |q: &Process| {
        let line = (q.line.libvirt_id == vm.id, q.line.name.as_deref() == Some(&vm.name));
        (q.origin == Origin::Libvirt, is_group_of(&q.cgroup, vm), line)
    };
    let best = mine.iter().map(|(_, q)| strength(q)).max();
    // The oldest of those that are alike: a copy starts later than what it copies.
    let best = mine.iter().filter(|(_, q)| Some(strength(q)) == best).min_by_key(|(_, q)| q.start_ticks);
    chosen.at = best.map(|(at, _)| *at);
    if let (Some((_, kept)), true) = (best, mine.len() > 1) {
        let others: Vec<String> =
            mine.iter().filter(|(_, q)| q.pid != kept.pid).map(|(_, q)| q.pid.to_string()).collect();
        chosen.notes.push(format!(
            "several processes claim to be VM {:?}: vsteer measures {}, not {}",
            vm.name,
            kept.pid,
            others.join(", ")
        ));
    }
    chosen
}

/// Is this a cgroup that libvirt made for the VM? `cgroup` is the text of `/proc/PID/cgroup`.
///
/// A user may make groups with any name inside those that systemd delegated to them (`user.slice`), so these
/// do not count.
fn is_group_of(cgroup: &str, vm: &Listed) -> bool {
    let Some(id) = vm.id else { return false };
    let paths = cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let mut own = paths.filter(|path| !path.starts_with("/user.slice/"));
    let (scope, plain) = (format!("machine-qemu\\x2d{id}\\x2d"), format!("{id}-"));
    own.any(|path| {
        path.split('/').any(|group| {
            group.starts_with(&scope) && group.ends_with(".scope")
                || group.strip_suffix(".libvirt-qemu").is_some_and(|g| {
                    // `machine-qemu-ID-NAME.libvirt-qemu` since libvirt 1.0.4, without systemd.
                    g == vm.name || g.split("qemu-").last().is_some_and(|g| g.starts_with(&plain))
                })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kvm::command_line::CommandLine;

    const BANK: &str = "11111111-2222-3333-4444-555555555555";

    fn listed() -> Listed {
        let (uuid, name) = (BANK.to_owned(), "bank".to_owned());
        let state = "running".to_owned();
        Listed {
            uuid,
            name,
            id: Some(7),
            state,
            persistent: true,
            xml: String::new(),
            xml_inactive: None,
            sched: None,
        }
    }

    /// A process with the command line that libvirt gives to the VM.
    fn claims(pid: u32, user: u32) -> Process {
        let line = CommandLine {
            uuid: Some(BANK.to_owned()),
            name: Some("bank".to_owned()),
            of_libvirt: true,
            libvirt_id: Some(7),
            ..CommandLine::default()
        };
        let (start_ticks, cgroup) = (u64::from(pid), "0::/user.slice/user-1000.slice\n".to_owned());
        Process { pid, start_ticks, line, origin: Origin::Libvirt, user: Some(user), cgroup }
    }

    #[test]
    fn a_copy_of_another_user_is_never_the_vm() {
        // The copy is younger, as old, or older: all that differs is whose it is.
        for (own, label) in [(0, None), (0, Some(64055)), (1000, None)] {
            let user = label.unwrap_or(own);
            for copy in [claims(50, 65534), claims(100, 65534), claims(150, 65534)] {
                let real = Process { pid: 101, ..claims(100, user) };
                for all in [vec![copy.clone(), real.clone()], vec![real.clone(), copy.clone()]] {
                    let chosen = choose(&all, &listed(), label, &[own]);
                    assert_eq!(all[chosen.at.unwrap()].pid, 101);
                    assert_eq!(chosen.notes.len(), 1, "{:?}", chosen.notes);
                    assert!(
                        chosen.notes[0].contains("of user 65534 poses as VM \"bank\""),
                        "{:?}",
                        chosen.notes
                    );
                }
                let alone = choose(&[copy], &listed(), label, &[own]);
                assert_eq!((alone.at, alone.notes.len()), (None, 1));
            }
        }
    }

    #[test]
    fn a_copy_of_the_same_user_is_noted_and_the_group_decides() {
        let real = Process {
            cgroup: "3:cpu:/machine.slice/machine-qemu\\x2d7\\x2dbank.scope/libvirt/vcpu0\n".to_owned(),
            ..claims(200, 64055)
        };
        let copy = Process {
            cgroup: "0::/user.slice/user-1000.slice/machine-qemu\\x2d7\\x2dbank.scope\n".to_owned(),
            ..claims(100, 64055)
        };
        let chosen = choose(&[copy.clone(), real], &listed(), Some(64055), &[0]);
        assert_eq!(chosen.at, Some(1), "a group that a user made does not count");
        assert_eq!(chosen.notes, ["several processes claim to be VM \"bank\": vsteer measures 200, not 100"]);
        // Nothing tells these two apart but their age.
        let later = Process { pid: 300, start_ticks: 300, ..copy.clone() };
        assert_eq!(choose(&[later, copy], &listed(), Some(64055), &[0]).at, Some(1));
    }

    #[test]
    fn groups_that_libvirt_makes() {
        let of = |text: &str| is_group_of(text, &listed());
        assert!(of("0::/machine.slice/machine-qemu\\x2d7\\x2dbank.scope\n"));
        assert!(of("4:cpu:/machine/qemu-7-bank.libvirt-qemu/emulator\n"));
        assert!(of("4:cpu:/machine/bank.libvirt-qemu/emulator\n"));
        assert!(!of("4:cpu:/machine/qemu-17-bank.libvirt-qemu\n") && !of("0::/\n") && !of("x"));
        assert!(!of("0::/machine.slice/machine-qemu\\x2d70\\x2dbank.scope\n"));
    }
}
