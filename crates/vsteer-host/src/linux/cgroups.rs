//! Finds a thread's cgroup, and reads its weight, quota, real-time budget and other settings.
//!
//! `/proc/mounts` names the one hierarchy that has the cpu controller: version 2, version 1, or "hybrid"
//! (version 1 beside a version 2 without the controller). `/proc/PID/task/TID/cgroup` gives each thread's
//! place in it. libvirt gives each VM its own group with the children `emulator` and `vcpuN`. The common part
//! of all threads' paths is the VM's group.
//!
//! Source: `Documentation/admin-guide/cgroup-v2.rst`, `Documentation/scheduler/sched-bwc.rst` and
//! `sched-rt-group.rst` (Linux 6.12); `src/util/vircgroup*.c` (libvirt 9.0) for the names.
//!
//! Left out: a cgroup namespace that hides the path (`/../..`), which counts as no cgroup; partitions of a cpuset
//! controller of version 2 beside a cpu controller of version 1.

use super::cpuset::unescaped;
use super::files::cpu_list;
use super::task::text;
use crate::root::Root;
use vsteer_core::CpuSet;
use vsteer_core::nouns::{CgroupLayout, CpuWeight, GroupScheduling, Quota, RtBudget, Tid, UCLAMP_MOST};

/// A hierarchy: its mount point, and whether it is version 2.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tree {
    top: String,
    unified: bool,
    /// The controller's name in `/proc/PID/cgroup`, for version 1.
    controller: &'static str,
}

/// The hierarchies of a machine with the controllers cpu and cpuset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroups {
    /// How they are mounted.
    pub layout: CgroupLayout,
    cpu: Option<Tree>,
    cpuset: Option<Tree>,
    /// Where version 2 is mounted, with or without controllers.
    unified: Option<String>,
}

impl Cgroups {
    /// The hierarchies mounted on the machine.
    pub fn find(root: &Root) -> Cgroups {
        let mounts = mounts(&text(root, "/proc/mounts").unwrap_or_default());
        let unified = mounts.iter().find(|m| m.kind == "cgroup2").map(|m| m.point.clone());
        let tree = |controller: &'static str| {
            let in_unified = unified.as_ref().filter(|top| {
                text(root, &format!("{top}/cgroup.controllers"))
                    .is_some_and(|c| c.split_ascii_whitespace().any(|c| c == controller))
            });
            let version1 =
                || mounts.iter().find(|m| m.kind == "cgroup" && m.options.iter().any(|o| o == controller));
            in_unified
                .map(|top| Tree { top: top.clone(), unified: true, controller })
                .or_else(|| version1().map(|m| Tree { top: m.point.clone(), unified: false, controller }))
        };
        let (cpu, cpuset) = (tree("cpu"), tree("cpuset"));
        let layout = match (&cpu, &unified) {
            (Some(t), _) if t.unified => CgroupLayout::V2,
            (Some(_), Some(_)) => CgroupLayout::Hybrid,
            (Some(_), None) => CgroupLayout::V1,
            (None, Some(_)) => CgroupLayout::V2,
            (None, None) if mounts.iter().any(|m| m.kind == "cgroup") => CgroupLayout::V1,
            (None, None) => CgroupLayout::None,
        };
        Cgroups { layout, cpu, cpuset, unified }
    }

    /// The hierarchy of version 2 alone, also one without controllers: it counts pressure.
    pub fn v2(&self) -> Option<Cgroups> {
        let tree = |controller| Some(Tree { top: self.unified.clone()?, unified: true, controller });
        self.unified.as_ref()?;
        Some(Cgroups { cpu: tree("cpu"), cpuset: tree("cpuset"), ..self.clone() })
    }

    /// A version 2 hierarchy that is mounted there.
    #[cfg(test)]
    pub fn unified(top: &str) -> Cgroups {
        let tree = |controller| Some(Tree { top: top.to_owned(), unified: true, controller });
        Cgroups {
            layout: CgroupLayout::V2,
            cpu: tree("cpu"),
            cpuset: tree("cpuset"),
            unified: Some(top.to_owned()),
        }
    }

    /// A thread's cgroup of the cpu controller; `None` without such a controller, or if the thread is gone.
    pub fn of_thread(&self, root: &Root, pid: u32, tid: Tid) -> Option<String> {
        place(self.cpu.as_ref()?, root, pid, tid)
    }

    /// A thread's cgroup of the cpuset controller.
    pub fn cpuset_of_thread(&self, root: &Root, pid: u32, tid: Tid) -> Option<String> {
        place(self.cpuset.as_ref()?, root, pid, tid)
    }

    /// Does the cpu controller belong to version 2?
    pub fn is_unified(&self) -> bool {
        self.cpu.as_ref().is_some_and(|t| t.unified)
    }

    /// Path of the file `name` of `cgroup`, below the cpu controller; `None` where that controller is not mounted.
    pub fn file(&self, cgroup: &str, name: &str) -> Option<String> {
        path(self.cpu.as_ref()?, cgroup, name)
    }

    /// The path of a file of a cgroup of the cpuset controller.
    pub fn cpuset_file(&self, cgroup: &str, name: &str) -> Option<String> {
        path(self.cpuset.as_ref()?, cgroup, name)
    }

    fn read(&self, root: &Root, cgroup: &str, name: &str) -> Option<String> {
        text(root, &self.file(cgroup, name)?)
    }

    /// The weight; `None` without the controller. Version 2 writes 0 for an idle group, which is not a weight: the kernel
    /// then uses 3 of 1024 (kernel/sched/core.c: `WEIGHT_IDLEPRIO`), for which the least weight stands here.
    pub fn weight(&self, root: &Root, cgroup: &str) -> Option<CpuWeight> {
        if self.is_unified() {
            let weight: u64 = self.read(root, cgroup, "cpu.weight")?.trim().parse().ok()?;
            Some(CpuWeight::Weight(weight.max(1)))
        } else {
            self.read(root, cgroup, "cpu.shares")?.trim().parse().ok().map(CpuWeight::Shares)
        }
    }

    /// The quota; `None` also if there is no quota.
    pub fn quota(&self, root: &Root, cgroup: &str) -> Option<Quota> {
        if self.is_unified() {
            return cpu_max(&self.read(root, cgroup, "cpu.max")?);
        }
        let quota: i64 = self.read(root, cgroup, "cpu.cfs_quota_us")?.trim().parse().ok()?;
        let period: u64 = self.read(root, cgroup, "cpu.cfs_period_us")?.trim().parse().ok()?;
        u64::try_from(quota).ok().filter(|_| period > 0).map(|quota_us| Quota { quota_us, period_us: period })
    }

    /// The period of its quota, even without a quota.
    pub fn period_us(&self, root: &Root, cgroup: &str) -> Option<u64> {
        let text = if self.is_unified() {
            self.read(root, cgroup, "cpu.max")?.split_ascii_whitespace().nth(1)?.to_owned()
        } else {
            self.read(root, cgroup, "cpu.cfs_period_us")?
        };
        text.trim().parse().ok()
    }

    /// Its real-time budget; `None` if the kernel does not budget real time per cgroup.
    pub fn rt_budget(&self, root: &Root, cgroup: &str) -> Option<RtBudget> {
        Some(RtBudget {
            cgroup: cgroup.to_owned(),
            runtime_us: self.read(root, cgroup, "cpu.rt_runtime_us")?.trim().parse().ok()?,
            period_us: self.read(root, cgroup, "cpu.rt_period_us")?.trim().parse().ok()?,
        })
    }

    /// The budgets of every cgroup from the root's children down to `cgroups`, parents first.
    pub fn rt_budgets<'a>(&self, root: &Root, cgroups: impl Iterator<Item = &'a str>) -> Vec<RtBudget> {
        lineages(cgroups).iter().filter_map(|path| self.rt_budget(root, path)).collect()
    }

    /// The quotas of every cgroup from the root's children down to `cgroups`, parents first.
    pub fn quotas<'a>(&self, root: &Root, cgroups: impl Iterator<Item = &'a str>) -> Vec<(String, Quota)> {
        let of = |path: String| self.quota(root, &path).map(|quota| (path, quota));
        lineages(cgroups).into_iter().filter_map(of).collect()
    }

    /// Its other settings, as far as they differ from the kernel's defaults.
    pub fn scheduling(&self, root: &Root, cgroup: &str) -> GroupScheduling {
        let number = |name: &str| self.read(root, cgroup, name)?.trim().parse::<u64>().ok();
        let burst = if self.is_unified() { "cpu.max.burst" } else { "cpu.cfs_burst_us" };
        let clamp = |name: &str| uclamp(&self.read(root, cgroup, name)?);
        // The cpuset controller's groups are these only within one hierarchy.
        let one_tree = self.is_unified() && self.cpuset.as_ref().is_some_and(|t| t.unified);
        let partition = || text(root, &self.cpuset_file(cgroup, "cpuset.cpus.partition")?);
        let partition = one_tree.then(partition).flatten().map(|kind| kind.trim().to_owned());
        let cpus = one_tree.then(|| self.narrower_cpuset(root, cgroup)).flatten();
        GroupScheduling {
            cgroup: cgroup.to_owned(),
            cpus,
            shared: false,
            idle: number("cpu.idle") == Some(1),
            burst_us: number(burst).filter(|us| *us > 0),
            uclamp_min: clamp("cpu.uclamp.min").filter(|least| *least > 0),
            uclamp_max: clamp("cpu.uclamp.max").filter(|most| *most < UCLAMP_MOST),
            partition: partition.filter(|kind| !["", "member"].contains(&kind.as_str())),
        }
    }

    /// The pCPUs of its cpuset, if the group above may use others, too.
    fn narrower_cpuset(&self, root: &Root, cgroup: &str) -> Option<CpuSet> {
        let read = |group: &str, name: &str| {
            let list = cpu_list(&text(root, &self.cpuset_file(group, name)?)?).ok()?;
            (!list.is_empty()).then_some(list)
        };
        let cpus = read(cgroup, "cpuset.cpus")?;
        let above =
            cgroup.rsplit_once('/').map_or("/", |(above, _)| if above.is_empty() { "/" } else { above });
        let narrower = read(above, "cpuset.cpus.effective").is_none_or(|above| !above.is_subset(&cpus));
        narrower.then_some(cpus)
    }

    /// How often its quota ran out since the cgroup was made, and for how long.
    pub fn throttled(&self, root: &Root, cgroup: &str) -> Option<Throttled> {
        throttled(&self.read(root, cgroup, "cpu.stat")?)
    }

    /// The names of its child groups.
    pub fn children(&self, root: &Root, cgroup: &str) -> Vec<String> {
        let Some(folder) = self.file(cgroup, "") else { return Vec::new() };
        let names = root.names(&folder).unwrap_or_default();
        names.into_iter().filter(|n| root.has_folder(&format!("{folder}/{n}"))).collect()
    }

    /// The processes of a cgroup and all its descendants.
    pub fn processes(&self, root: &Root, cgroup: &str) -> Vec<u32> {
        // Deeper than any manager builds. The bound is needed because the tree may change while vsteer reads
        // it.
        const DEPTH_MAX: usize = 6;
        let (mut all, mut level) = (Vec::new(), vec![cgroup.to_owned()]);
        for _ in 0..DEPTH_MAX {
            let mut next = Vec::new();
            for group in &level {
                let procs = self.read(root, group, "cgroup.procs").unwrap_or_default();
                all.extend(procs.lines().filter_map(|l| l.parse::<u32>().ok()));
                next.extend(self.children(root, group).into_iter().map(|c| format!("{group}/{c}")));
            }
            level = next;
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}

fn place(tree: &Tree, root: &Root, pid: u32, tid: Tid) -> Option<String> {
    let text = text(root, &format!("/proc/{pid}/task/{}/cgroup", tid.0))?;
    let controller = if tree.unified { "" } else { tree.controller };
    cgroup_of(&text, controller).filter(|path| is_plain(path))
}

fn path(tree: &Tree, cgroup: &str, name: &str) -> Option<String> {
    is_plain(cgroup).then(|| format!("{}{}/{name}", tree.top, cgroup.trim_end_matches('/')))
}

/// Is this an absolute path without `..`?
pub fn is_plain(cgroup: &str) -> bool {
    cgroup.starts_with('/')
        && !cgroup.contains('\0')
        && cgroup.split('/').all(|part| part != ".." && part != ".")
}

/// The path in a line of `/proc/PID/cgroup` (`ID:CONTROLLERS:PATH`) that has `controller`; `""` means version
/// 2.
pub fn cgroup_of(text: &str, controller: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let carries = if controller.is_empty() {
            id == "0" && controllers.is_empty()
        } else {
            controllers.split(',').any(|c| c == controller)
        };
        carries.then(|| path.strip_suffix(" (deleted)").unwrap_or(path).to_owned())
    })
}

/// A cgroup and its ancestors without the root, the topmost first.
pub fn lineage(cgroup: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for part in cgroup.split('/').filter(|p| !p.is_empty()) {
        let above = all.last().map_or("", String::as_str);
        all.push(format!("{above}/{part}"));
    }
    all
}

/// These cgroups and their ancestors, each once, parents first.
pub fn lineages<'a>(cgroups: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut all: Vec<String> = cgroups.flat_map(lineage).collect();
    all.sort_by_key(|path| (path.matches('/').count(), path.clone()));
    all.dedup();
    all
}

/// Is this the cgroup `own`, or one beneath it?
pub fn is_beneath(path: &str, own: &str) -> bool {
    path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The deepest cgroup that contains all of `cgroups`; `None` if there are none, or if only the root contains
/// them all.
pub fn common<'a>(mut cgroups: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut shared = lineage(cgroups.next()?);
    for other in cgroups {
        let other = lineage(other);
        let same = shared.iter().zip(&other).take_while(|(a, b)| a == b).count();
        shared.truncate(same);
    }
    shared.pop()
}

/// `cpu.max` of version 2: `max 100000`, or `50000 100000`.
pub fn cpu_max(text: &str) -> Option<Quota> {
    let (quota, period) = text.trim().split_once(' ')?;
    let quota = Quota { quota_us: quota.parse().ok()?, period_us: period.trim().parse().ok()? };
    (quota.period_us > 0).then_some(quota)
}

/// `cpu.uclamp.min` and `.max`: `max`, or a percentage with at most two decimals; in hundredths of a percent.
fn uclamp(text: &str) -> Option<u16> {
    let text = text.trim();
    if text == "max" {
        return Some(UCLAMP_MOST);
    }
    let percent: f64 = text.parse().ok()?;
    (0.0..=100.0).contains(&percent).then(|| (100.0 * percent).round() as u16)
}

/// What a cgroup's quota has done since the cgroup was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throttled {
    /// How often it ran out.
    pub times: u64,
    /// For how long it held the cgroup's run queues, ns, summed over pCPUs.
    pub ns: u64,
}

/// `cpu.stat`: `nr_throttled`, and `throttled_usec` (version 2) or `throttled_time` (version 1, ns).
pub fn throttled(text: &str) -> Option<Throttled> {
    let number = |name: &str| -> Option<u64> {
        let mut values = text.lines().filter_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        values.next()?.trim().parse().ok()
    };
    let us = || Some(number("throttled_usec")?.saturating_mul(1000));
    let ns = number("throttled_time").or_else(us).unwrap_or(0);
    Some(Throttled { times: number("nr_throttled")?, ns })
}

struct Mount {
    point: String,
    kind: String,
    options: Vec<String>,
}

fn mounts(text: &str) -> Vec<Mount> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let (point, kind, options) = (words.nth(1)?, words.next()?, words.next()?);
        let options = options.split(',').map(str::to_owned).collect();
        Some(Mount { point: unescaped(point), kind: kind.to_owned(), options })
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn places_and_what_they_share() {
        let text = "9:name=systemd:/x\n2:cpu,cpuacct:/machine/a:b/vcpu0 (deleted)\n1:cpuset:/c\n0::/u\n";
        assert_eq!(cgroup_of(text, "cpu").as_deref(), Some("/machine/a:b/vcpu0"));
        assert_eq!(cgroup_of(text, "").as_deref(), Some("/u"));
        assert_eq!(cgroup_of(text, "cpuacc"), None);
        assert_eq!(
            common(["/m/q/emulator", "/m/q/vcpu0", "/m/q/vcpu10"].into_iter()).as_deref(),
            Some("/m/q")
        );
        assert_eq!(common(["/m/q1", "/m/q10"].into_iter()).as_deref(), Some("/m"));
        assert_eq!(common(["/a", "/b"].into_iter()), None);
        assert_eq!(common(["/"].into_iter()), None);
        assert_eq!(lineage("/a/b"), ["/a", "/a/b"]);
        assert!(is_plain("/a/..b") && !is_plain("/../a") && !is_plain("a") && !is_plain("/a/.."));
    }

    #[test]
    fn values() {
        assert_eq!(cpu_max("max 100000\n"), None);
        assert_eq!(cpu_max("50000 100000\n"), Some(Quota { quota_us: 50_000, period_us: 100_000 }));
        assert_eq!(cpu_max("5 0"), None);
        assert_eq!(
            ["0.00\n", "12.34\n", "max\n", "101", "nan", "-1"].map(uclamp),
            [Some(0), Some(1234), Some(UCLAMP_MOST), None, None, None]
        );
        let told = |text: &str| throttled(text).map(|t| (t.times, t.ns));
        assert_eq!(told("nr_periods 5\nnr_throttled 3\nthrottled_time 9000\n"), Some((3, 9_000)));
        assert_eq!(told("usage_usec 8\nnr_periods 5\nnr_throttled 3\nthrottled_usec 9\n"), Some((3, 9_000)));
        assert_eq!((told("nr_throttled 3\n"), told("usage_usec 8\n")), (Some((3, 0)), None));
        assert_eq!(unescaped("/a\\040b\\134"), "/a b\\");
    }

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let root = Root::open(dir.path()).unwrap();
        (dir, root)
    }

    #[test]
    fn layouts_are_told_apart() {
        let v1 = "cgroup /c/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup /c/cpuset cgroup rw,cpuset 0 0\n";
        let v2 = "cgroup2 /u cgroup2 rw 0 0\n";
        let of = |mounts: &str, controllers: &str| {
            let (_dir, root) = tree(&[("/proc/mounts", mounts), ("/u/cgroup.controllers", controllers)]);
            Cgroups::find(&root).layout
        };
        assert_eq!(of(v1, ""), CgroupLayout::V1);
        assert_eq!(of(v2, "cpuset cpu io\n"), CgroupLayout::V2);
        assert_eq!(of(&format!("{v1}{v2}"), ""), CgroupLayout::Hybrid);
        assert_eq!(of("proc /proc proc rw 0 0\n", ""), CgroupLayout::None);
    }

    #[test]
    fn a_version_1_group_is_read() {
        let (_dir, root) = tree(&[
            ("/proc/mounts", "cgroup /c/cpu cgroup rw,cpu 0 0\n"),
            ("/c/cpu/m/q/cpu.shares", "2048\n"),
            ("/c/cpu/m/q/cpu.cfs_quota_us", "-1\n"),
            ("/c/cpu/m/q/cpu.cfs_period_us", "100000\n"),
            ("/c/cpu/m/q/cpu.rt_runtime_us", "0\n"),
            ("/c/cpu/m/q/cpu.rt_period_us", "1000000\n"),
            ("/c/cpu/m/q/cgroup.procs", ""),
            ("/c/cpu/m/q/v/cpu.cfs_quota_us", "20000\n"),
            ("/c/cpu/m/q/v/cpu.cfs_period_us", "100000\n"),
            ("/c/cpu/m/q/v/cgroup.procs", "7\n7\n5\n"),
        ]);
        let c = Cgroups::find(&root);
        assert_eq!(c.weight(&root, "/m/q"), Some(CpuWeight::Shares(2048)));
        assert_eq!(c.quota(&root, "/m/q"), None);
        assert_eq!(c.quota(&root, "/m/q/v").map(Quota::cpus), Some(0.2));
        assert_eq!(c.processes(&root, "/m/q"), [5, 7]);
        let budgets = c.rt_budgets(&root, ["/m/q/v", "/m/q"].into_iter());
        assert_eq!(
            budgets.iter().map(|b| (b.cgroup.as_str(), b.runtime_us)).collect::<Vec<_>>(),
            [("/m/q", 0)]
        );
        assert_eq!(c.weight(&root, "/../etc"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(s in "\\PC{0,60}") {
            let _ = (cgroup_of(&s, "cpu"), cpu_max(&s), throttled(&s), mounts(&s).len(), unescaped(&s));
            let _ = (cgroup_of(&format!("1:cpu:{s}"), "cpu"), cpu_max(&format!("{s} 100000")));
        }

        #[test]
        fn what_is_shared_holds_all(groups in proptest::collection::vec("(/[ab]{1,2}){1,4}", 1..5)) {
            if let Some(shared) = common(groups.iter().map(String::as_str)) {
                for g in &groups {
                    prop_assert!(lineage(g).contains(&shared), "{} {}", g, shared);
                }
            }
        }
    }
}
