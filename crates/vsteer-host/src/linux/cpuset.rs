//! Reads which CPUs and memory nodes a process may use according to its cgroup cpuset.
//!
//! `/proc/mounts` names the one hierarchy that has the cpuset controller: version 2, version 1, the older
//! cpuset file system, or "hybrid" (version 1 beside a version 2 without the controller). `/proc/PID/cgroup`
//! gives the process's place in it. The files at that place give the answer. If the place has no such files,
//! the nearest level above that has them gives the answer. This happens because version 2 enables a
//! controller level by level, and because a container sees its own group as the top.
//!
//! Source: `Documentation/admin-guide/cgroup-v2.rst` and `cgroup-v1/cpusets.rst` (Linux 6.12); hwloc 2.9.0,
//! `hwloc_find_linux_cgroup_mntpnt` and `hwloc_admin_disable_set_from_cgroup` in `hwloc/topology-linux.c`.
//!
//! Left out: the thread's own affinity mask, which is a choice within these bounds.

use super::files::{Files, cpu_list, node_list};
use crate::root::Root;
use std::collections::BTreeSet;
use vsteer_core::CpuSet;
use vsteer_core::topology::{NodeId, Oddity};

/// The process whose cgroup to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    /// The reader itself; in a captured tree, the process that made the capture.
    Current,
    /// The process with this number, for example a QEMU.
    Pid(u32),
}

/// What a cgroup cpuset permits. `None` means that nothing restricts it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The cgroup, as a path from the top of the hierarchy.
    pub cgroup: Option<String>,
    /// The CPUs that the process may use.
    pub cpus: Option<CpuSet>,
    /// The nodes from which the process may take memory.
    pub nodes: Option<BTreeSet<NodeId>>,
    /// Unexpected contents of the files.
    pub oddities: Vec<Oddity>,
}

/// The cpuset bounds of `process`. A machine without cgroups or the cpuset controller restricts nothing.
pub fn bounds(root: &Root, process: Process) -> Bounds {
    let mut files = Files::new(root);
    let mut bounds = find(&mut files, process).unwrap_or_default();
    bounds.oddities = files.oddities;
    bounds
}

fn find(files: &mut Files, process: Process) -> Option<Bounds> {
    let mounts = files.text("/proc/mounts")?;
    let (layout, top) = mounts.lines().filter_map(mount).find(|(layout, top)| {
        // A version 2 hierarchy without the controller leaves it to a version 1 one.
        *layout != Layout::Version2
            || files
                .text(&format!("{top}/cgroup.controllers"))
                .is_some_and(|c| c.split_ascii_whitespace().any(|c| c == "cpuset"))
    })?;
    let pid = match process {
        Process::Current => "self".to_owned(),
        Process::Pid(pid) => pid.to_string(),
    };
    let cgroup =
        files.text(&format!("/proc/{pid}/cgroup")).and_then(|text| cgroup_of(&text, layout)).or_else(
            || files.text(&format!("/proc/{pid}/cpuset")).map(|t| t.trim_end_matches('\n').to_owned()),
        )?;
    let levels = levels(&cgroup);
    if levels.is_empty() && cgroup != "/" {
        files.odd(
            &format!("/proc/{pid}/cgroup"),
            format!("{cgroup:?} is not a valid cgroup: vsteer uses the root cgroup"),
        );
    }
    let mut nearest = |name: &dyn Fn(&str) -> Vec<String>| {
        levels.iter().map(String::as_str).chain([""]).find_map(|level| {
            name(&format!("{top}{level}"))
                .into_iter()
                .find_map(|path| files.text(&path).map(|text| (path, text)))
        })
    };
    let cpus = nearest(&|at| layout.file_names(at, "cpus"));
    let nodes = nearest(&|at| layout.file_names(at, "mems"));
    let mut parsed = |found: Option<(String, String)>| {
        let (path, text) = found?;
        cpu_list(&text)
            .map_err(|what| files.odd(&path, format!("{what}: vsteer assumes no restriction")))
            .ok()
            .map(|_| text)
    };
    let (cpus, nodes) = (parsed(cpus), parsed(nodes));
    Some(Bounds {
        cgroup: Some(cgroup),
        cpus: cpus.and_then(|t| cpu_list(&t).ok()),
        nodes: nodes.and_then(|t| node_list(&t).ok()).map(|n| n.into_iter().map(NodeId).collect()),
        oddities: Vec::new(),
    })
}

/// The layout of a hierarchy, which decides the names of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Version2,
    Version1,
    /// The cpuset file system, and version 1 mounted with `noprefix`.
    Bare,
}

impl Layout {
    /// The files that contain the effective `what` (`cpus`, `mems`) of the group at `at`, the best one first.
    fn file_names(self, at: &str, what: &str) -> Vec<String> {
        match self {
            Layout::Version2 => vec![format!("{at}/cpuset.{what}.effective")],
            Layout::Version1 => vec![format!("{at}/cpuset.effective_{what}"), format!("{at}/cpuset.{what}")],
            Layout::Bare => vec![format!("{at}/effective_{what}"), format!("{at}/{what}")],
        }
    }
}

/// The layout and mount point of a line of `/proc/mounts` that may carry the cpuset controller.
fn mount(line: &str) -> Option<(Layout, String)> {
    let mut words = line.split(' ');
    let (point, kind, options) = (words.nth(1)?, words.next()?, words.next()?);
    let option = |name: &str| options.split(',').any(|o| o == name);
    let layout = match kind {
        "cgroup2" => Layout::Version2,
        "cpuset" => Layout::Bare,
        "cgroup" if option("cpuset") && option("noprefix") => Layout::Bare,
        "cgroup" if option("cpuset") => Layout::Version1,
        _ => return None,
    };
    Some((layout, unescaped(point).trim_end_matches('/').to_owned()))
}

/// The kernel writes space, tab, newline and backslash as `\040` and so on (`fs/proc_namespace.c`, `mangle`).
pub(super) fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(u8::is_ascii);
        match code {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &after[3..];
            }
            None => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out + rest
}

/// The process's place in the hierarchy, from the text of `/proc/PID/cgroup` (`3:cpuset:/a`, `0::/a`).
fn cgroup_of(text: &str, layout: Layout) -> Option<String> {
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let here = match layout {
            Layout::Version2 => controllers.is_empty(),
            Layout::Version1 | Layout::Bare => controllers.split(',').any(|c| c == "cpuset"),
        };
        here.then(|| path.trim_end_matches(" (deleted)").to_owned())
    })
}

/// A group and its ancestors without the top: `/a/b` gives `/a/b`, `/a`. A path that leaves the visible part
/// (`/../x`, seen from inside a container) gives none.
fn levels(cgroup: &str) -> Vec<String> {
    if !cgroup.starts_with('/') || cgroup.split('/').any(|part| part == "..") {
        return Vec::new();
    }
    let mut path = cgroup.trim_end_matches('/');
    let mut levels = Vec::new();
    while !path.is_empty() {
        levels.push(path.to_owned());
        path = path.rsplit_once('/').map_or("", |(above, _)| above);
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    fn cpus_of(files: &[(&str, &str)], process: Process) -> Option<String> {
        let dir = tree(files);
        bounds(&Root::open(dir.path()).unwrap(), process).cpus.map(|c| c.to_string())
    }

    const V2: (&str, &str) = ("/proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");

    #[test]
    fn version_2_asks_the_nearest_level_that_has_the_controller() {
        let files = [
            V2,
            ("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io\n"),
            ("/sys/fs/cgroup/cpuset.cpus.effective", "0-7\n"),
            ("/sys/fs/cgroup/machine.slice/cpuset.cpus.effective", "2-3\n"),
            ("/proc/self/cgroup", "0::/user.slice/me\n"),
            ("/proc/9/cgroup", "0::/machine.slice/vm/libvirt/emulator\n"),
        ];
        assert_eq!(cpus_of(&files, Process::Current).as_deref(), Some("0-7"));
        assert_eq!(cpus_of(&files, Process::Pid(9)).as_deref(), Some("2-3"));
        assert_eq!(cpus_of(&files, Process::Pid(10)), None);
        let top = [V2, files[1], files[2], ("/proc/self/cgroup", "0::/\n")];
        let dir = tree(&top);
        let bounds = bounds(&Root::open(dir.path()).unwrap(), Process::Current);
        assert_eq!((bounds.cpus, bounds.oddities), (Some(CpuSet::first(8)), Vec::new()));
    }

    #[test]
    fn hybrid_takes_the_version_1_hierarchy() {
        let mounts = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
                      cgroup /sys/fs/cgroup/with\\040space cgroup rw,cpuset 0 0\n";
        let files = [
            ("/proc/mounts", mounts),
            ("/sys/fs/cgroup/unified/cgroup.controllers", "\n"),
            ("/sys/fs/cgroup/with space/a/cpuset.cpus", "1\n"),
            ("/sys/fs/cgroup/with space/a/cpuset.mems", "0,2\n"),
            ("/proc/self/cgroup", "4:cpu,cpuset:/a\n0::/b\n"),
        ];
        assert_eq!(cpus_of(&files, Process::Current).as_deref(), Some("1"));
        let dir = tree(&files);
        let bounds = bounds(&Root::open(dir.path()).unwrap(), Process::Current);
        assert_eq!(bounds.nodes, Some([NodeId(0), NodeId(2)].into()));
        assert_eq!((bounds.cgroup.as_deref(), bounds.oddities), (Some("/a"), Vec::new()));
    }

    #[test]
    fn what_lies_outside_or_is_broken_restricts_nothing_and_is_noted() {
        let files = [
            V2,
            ("/sys/fs/cgroup/cgroup.controllers", "cpuset\n"),
            ("/sys/fs/cgroup/cpuset.cpus.effective", "x-y\n"),
            ("/proc/self/cgroup", "0::/../other\n"),
        ];
        let dir = tree(&files);
        let bounds = bounds(&Root::open(dir.path()).unwrap(), Process::Current);
        assert_eq!((bounds.cpus, bounds.oddities.len()), (None, 2));
        assert_eq!(cpus_of(&[], Process::Current), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(s in "\\PC{0,40}") {
            let _ = (mount(&s), mount(&format!("x /{s} cgroup2 rw")), unescaped(&s), levels(&s));
            let _ = (cgroup_of(&s, Layout::Version1), cgroup_of(&format!("0::{s}"), Layout::Version2));
        }
    }
}
