//! Reads chosen files of this machine or of a captured tree, and writes a tree to a folder.
//!
//! A `*` in a pattern stands for the name, or part of the name, of one folder or file. A missing file is not a fault;
//! an unreadable one is noted. vsteer reads only QEMU processes, and keeps of their command lines ([`running`]) and of
//! [`Wanted::kept`] only what the caller needs.

pub mod running;

use crate::root::Root;
use std::io::ErrorKind;
use std::path::Path;
use vsteer_core::Fault;
use vsteer_core::tree::{Tree, Wanted};
use vsteer_record::own_folder::OwnFolder;
use vsteer_record::shown_as;

/// A file that is longer is none of the kernel's settings.
const TEXT_MAX: usize = 1 << 20;

/// All that is wanted of it.
pub fn read(root: &Root, wanted: &Wanted) -> Tree {
    let mut tree = Tree::default();
    for pattern in wanted.patterns {
        let parts: Vec<&str> = pattern.trim_start_matches('/').split('/').collect();
        descend(root, String::new(), &parts, &mut tree);
    }
    for path in (wanted.besides)(&tree) {
        descend(root, path, &[], &mut tree);
    }
    for (path, text) in &mut tree.files {
        *text = (wanted.kept)(path, std::mem::take(text));
    }
    running::read(root, &mut tree);
    tree
}

fn descend(root: &Root, at: String, parts: &[&str], tree: &mut Tree) {
    let Some((part, rest)) = parts.split_first() else {
        match root.bytes(&at) {
            Ok(bytes) if bytes.len() <= TEXT_MAX => {
                tree.files.insert(at, String::from_utf8_lossy(&bytes).into_owned());
            }
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                tree.unread.insert(at, e.to_string());
            }
            // Not there, a folder, or a device that answers with an error: it tells nothing.
            _ => {}
        }
        return;
    };
    if !part.contains('*') {
        return descend(root, format!("{at}/{part}"), rest, tree);
    }
    for name in entries(root.names(&at), &at, tree) {
        if fits(part, &name) {
            descend(root, format!("{at}/{name}"), rest, tree);
        }
    }
}

/// Names in a folder. A folder that cannot be read is noted; one that does not exist is empty.
fn entries(names: Result<Vec<String>, std::io::Error>, at: &str, tree: &mut Tree) -> Vec<String> {
    names.unwrap_or_else(|e| {
        if e.kind() == ErrorKind::PermissionDenied {
            tree.unread.insert(at.to_owned(), e.to_string());
        }
        Vec::new()
    })
}

/// Does a name fit a pattern with one `*`?
fn fits(pattern: &str, name: &str) -> bool {
    let Some((begin, end)) = pattern.split_once('*') else { return pattern == name };
    name.len() >= begin.len() + end.len() && name.starts_with(begin) && name.ends_with(end)
}

/// Writes a tree into a folder, which only this user can then read.
///
/// # Errors
/// When it cannot be written, or the folder belongs to another user.
pub fn capture(tree: &Tree, folder: &Path) -> Result<(), Fault> {
    let held = OwnFolder::make_private(folder)?;
    write(tree, &held.path()).map_err(|fault| shown_as(fault, folder))
}

fn write(tree: &Tree, folder: &Path) -> Result<(), Fault> {
    for (path, text) in &tree.files {
        let file = folder.join(path.trim_start_matches('/'));
        let made = std::fs::create_dir_all(file.parent().unwrap_or(folder))
            .and_then(|()| std::fs::write(&file, text));
        made.map_err(|e| Fault::io(format!("cannot write {}", file.display()), &e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_experiment::audit::WANTED;

    #[test]
    fn a_captured_tree_reads_as_it_was_captured() {
        let dir = tempfile::tempdir().unwrap();
        let mut tree = Tree::default();
        for (path, text) in [
            ("/proc/cmdline", "ro idle=poll\n"),
            ("/sys/devices/system/cpu/cpu3/cpufreq/scaling_driver", "acpi-cpufreq\n"),
            ("/sys/block/vda/mq/0/cpu_list", "0, 1\n"),
            ("/etc/tuned/active_profile", "fast\n"),
            ("/etc/tuned/fast/tuned.conf", "[sysctl]\nvm.swappiness=10\nkernel.../x=1\n"),
            ("/proc/sys/vm/swappiness", "60\n"),
        ] {
            tree.files.insert(path.into(), text.into());
        }
        capture(&tree, dir.path()).unwrap();
        std::fs::write(dir.path().join("proc/other"), "not wanted").unwrap();
        assert_eq!(read(&Root::open(dir.path()).unwrap(), &WANTED), tree);
        assert!(fits("cpu*", "cpu12") && fits("*.xml", "a.xml") && !fits("ab*b", "ab") && !fits("x", "y"));
    }

    /// As libvirt's folder (mode 0700, owned by root), read by another user.
    #[test]
    fn a_folder_that_may_not_be_read_is_told() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let closed = dir.path().join("etc/libvirt/qemu");
        std::fs::create_dir_all(&closed).unwrap();
        std::fs::write(closed.join("web.xml"), "<domain/>").unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(dir.path(), 0o755);
        let root = Root::open(dir.path()).unwrap();
        assert!(read(&root, &WANTED).files.contains_key("/etc/libvirt/qemu/web.xml"));
        mode(&closed, 0);
        // In a thread without root's rights, because root may read everything; the thread's end restores them.
        let nobody = || {
            if rustix::process::geteuid().is_root() {
                rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65_534)).unwrap();
            }
            read(&root, &WANTED)
        };
        let tree = std::thread::scope(|s| s.spawn(nobody).join().unwrap());
        mode(&closed, 0o755);
        assert_eq!(tree.unread.keys().collect::<Vec<_>>(), ["/etc/libvirt/qemu"], "{tree:?}");
        for f in vsteer_experiment::audit::audit(&tree) {
            if ["pinning", "queues", "balloon"].contains(&f.check.as_str()) {
                assert!(f.reason.contains("cannot read libvirt"), "{f:?}");
            }
        }
    }

    #[test]
    fn this_machine_is_read() {
        let tree = read(&Root::live().unwrap(), &WANTED);
        assert!(tree.text("/proc/cmdline").is_some() && tree.cpus().is_some_and(|n| n > 0));
    }
}
