//! Which container or pod does a process belong to that made a VM wait?
//!
//! eBPF tells a process's id. Its cgroup, read after the sample, has the container's name as its manager writes it. The
//! outermost group that looks like a container's counts, because the groups below it are inside that container. A group
//! below a user's slice or a service may have any name that the user or service chose, so vsteer adds whose it is.
//!
//! A process that has ended has no cgroup any more, and its id may soon belong to another one. vsteer names a container
//! only if since the sample before last too few processes started for any id to be used twice. Otherwise, and for processes that
//! are counted together, the container stays unknown. The time charged is the same with or without a name.
//!
//! Source: `man 7 cgroups` (`/proc/PID/cgroup`); `man 5 lxc.container.conf` (`lxc.cgroup.dir`); the cgroup drivers
//! of runc 1.1 (`docker-ID.scope`), Podman 4 (`libpod-ID.scope`), CRI-O, containerd, and kubelet 1.30 (`podUID`).
//!
//! Left out: containers of systemd-nspawn, and containerd's own namespaces without systemd (`/default/ID`).
//!
//! GAP(container-guests): containers are named where they make a VM wait, but have no rows of their own as guests.
//! GAP(container-short): a process that ends before its first sample is not looked up, so its container is unknown.

use crate::root::Root;
use std::collections::{BTreeMap, BTreeSet};
use vsteer_core::nouns::{BlameSample, Culprit};

/// The most processes that are looked up for one sample: those that cost most.
const LOOKUPS: usize = 128;
/// A name longer than this is not one that a manager gives.
const NAME: usize = 128;
/// Part of an id that managers print: `docker ps`.
const SHORT_ID: usize = 12;

/// Finds containers of processes, sample by sample.
#[derive(Debug, Default)]
pub struct Containers {
    /// By process id: those found for the last sample.
    known: BTreeMap<u32, String>,
    /// Processes and threads that were started up to the last sample and to the one before.
    started: [Option<u64>; 2],
}

/// Processes and threads started since boot.
fn started(root: &Root) -> Option<u64> {
    let text = root.bytes("/proc/stat").ok()?;
    String::from_utf8_lossy(&text).lines().find_map(|l| l.strip_prefix("processes ")?.trim().parse().ok())
}

fn largest_pid(root: &Root) -> Option<u64> {
    String::from_utf8_lossy(&root.bytes("/proc/sys/kernel/pid_max").ok()?).trim().parse().ok()
}

impl Containers {
    /// Counting begins.
    pub fn begin(root: &Root) -> Containers {
        let now = started(root);
        Containers { started: [now, now], ..Containers::default() }
    }

    /// Adds the containers' names to the culprits of a sample that was just read.
    pub fn name(&mut self, root: &Root, blame: &mut [BlameSample]) {
        let mut cost: BTreeMap<u32, u64> = BTreeMap::new();
        for b in &*blame {
            if let Culprit::Process { pid, .. } = b.culprit
                && pid != 0
            {
                *cost.entry(pid).or_default() += b.ns.unsigned_abs();
            }
        }
        let mut pids: Vec<(u64, u32)> = cost.into_iter().map(|(pid, ns)| (ns, pid)).collect();
        pids.sort_unstable_by(|a, b| b.cmp(a));
        let found: BTreeMap<u32, Option<String>> = pids
            .into_iter()
            .take(LOOKUPS)
            .filter_map(|(_, pid)| Some((pid, of_cgroups(&text(root, &format!("/proc/{pid}/cgroup"))?))))
            .collect();
        // Ids are given in turn, so none is used twice until nearly all were used. Half of them leaves room for those that
        // started between a sample and this count.
        let now = started(root);
        let used = self.started[0].zip(now).map(|(before, now)| now.saturating_sub(before));
        let is_unique = used.zip(largest_pid(root)).is_some_and(|(used, most)| used < most / 2);
        let named: BTreeSet<u32> = self.apply(is_unique, &found, blame);
        self.known = if is_unique {
            let mut known = std::mem::take(&mut self.known);
            known.retain(|pid, _| named.contains(pid) && !found.contains_key(pid));
            known.extend(found.into_iter().filter_map(|(pid, name)| Some((pid, name?))));
            known
        } else {
            BTreeMap::new()
        };
        self.started = [self.started[1], now];
    }

    /// Names the culprits. One that has ended since the last sample has the name that it had then. Returns the named ids.
    fn apply(
        &self,
        is_unique: bool,
        found: &BTreeMap<u32, Option<String>>,
        blame: &mut [BlameSample],
    ) -> BTreeSet<u32> {
        let mut named = BTreeSet::new();
        for b in blame.iter_mut().filter(|_| is_unique) {
            let Culprit::Process { pid, container, .. } = &mut b.culprit else { continue };
            *container = match found.get(pid) {
                Some(now) => now.clone(),
                None => self.known.get(pid).cloned(),
            };
            named.extend(container.is_some().then_some(*pid));
        }
        named
    }
}

fn text(root: &Root, path: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&root.bytes(path).ok()?).into_owned())
}

/// The container of a process with this `/proc/PID/cgroup`; `None` if it is in none. Of version 1 the cpu controller counts
/// first.
pub fn of_cgroups(text: &str) -> Option<String> {
    let lines = || text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let of_cpu = lines().filter(|(controllers, _)| controllers.split(',').any(|c| c == "cpu"));
    let unified = lines().filter(|(controllers, _)| controllers.is_empty());
    of_cpu.chain(unified).find_map(|(_, path)| of_path(path.trim_end_matches(" (deleted)")))
}

fn of_path(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let at =
        (0..parts.len()).find_map(|at| Some((at, container(&parts[..at], parts[at], parts.get(at + 1))?)));
    let (at, name) = at?;
    if name.len() > NAME {
        return None;
    }
    let above = &parts[..at];
    let user = above.iter().find_map(|p| p.strip_prefix("user-")?.strip_suffix(".slice"));
    let service = above.iter().find(|p| p.ends_with(".service"));
    match (above.first(), user, service) {
        (Some(&"user.slice"), user, _) => Some(format!("{name} of user {}", user?)),
        (_, _, Some(service)) => Some(format!("{name} in {service}")),
        _ => Some(name),
    }
}

/// The container of a group, by its name, those above it and the next one below.
fn container(above: &[&str], part: &str, below: Option<&&str>) -> Option<String> {
    let whole = |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let by_id = |kind: &str, id: &str| whole(id).then(|| format!("{kind} {}", &id[..SHORT_ID]));
    let lxc = |name: &str| (!name.is_empty()).then(|| format!("lxc {name}"));
    const SCOPES: [(&str, &str); 5] = [
        ("docker-", "docker"),
        ("libpod-", "podman"),
        ("crio-", "cri-o"),
        ("cri-containerd-", "containerd"),
        ("nerdctl-", "containerd"),
    ];
    if let Some(name) = part.strip_prefix("lxc.payload.") {
        return lxc(name);
    }
    if part == "lxc.payload" || (part == "lxc" && above.is_empty()) {
        return below.and_then(|name| lxc(name));
    }
    if part == "docker" && above.is_empty() {
        return below.and_then(|id| by_id("docker", id));
    }
    if let Some(pod) = pod(above, part) {
        return Some(format!("pod {pod}"));
    }
    let scope = part.strip_suffix(".scope").unwrap_or(part);
    SCOPES.iter().find_map(|(prefix, kind)| by_id(kind, scope.strip_prefix(prefix)?))
}

/// The uid of a pod: `kubepods-burstable-podUID.slice` with underscores, or `podUID` below `kubepods`.
fn pod(above: &[&str], part: &str) -> Option<String> {
    let uid = match part.strip_suffix(".slice") {
        Some(slice) if slice.starts_with("kubepods") => slice.split_once("-pod")?.1,
        _ if above.iter().any(|p| p.starts_with("kubepods")) => part.strip_prefix("pod")?,
        _ => return None,
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    (!uid.is_empty() && uid.bytes().all(plain)).then(|| uid.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use vsteer_core::nouns::{Role, VmId};

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn groups_of_containers_have_their_names() {
        let of = |path: &str| of_path(&path.replace("ID", ID));
        let short = &ID[..12];
        let cases = [
            ("/lxc.payload.web/system.slice/cron.service", Some("lxc web".to_owned())),
            ("/lxc/101/ns/init.scope", Some("lxc 101".to_owned())),
            ("/lxc.payload/web", Some("lxc web".to_owned())),
            ("/lxc.payload.shop_web", Some("lxc shop_web".to_owned())),
            ("/docker/ID", Some(format!("docker {short}"))),
            ("/system.slice/docker-ID.scope", Some(format!("docker {short}"))),
            ("/machine.slice/libpod-ID.scope/container", Some(format!("podman {short}"))),
            ("/libpod_parent/libpod-ID", Some(format!("podman {short}"))),
            ("/machine.slice/crio-ID.scope", Some(format!("cri-o {short}"))),
            ("/system.slice/cri-containerd-ID.scope", Some(format!("containerd {short}"))),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod5d2a_11.slice/cri-containerd-ID.scope",
                Some("pod 5d2a-11".to_owned()),
            ),
            ("/kubepods.slice/kubepods-pod5d2a_11.slice/crio-ID.scope", Some("pod 5d2a-11".to_owned())),
            ("/kubepods/besteffort/pod5d2a-11/ID", Some("pod 5d2a-11".to_owned())),
            // Not of a container: its helpers, daemons, and names that only look like one.
            ("/lxc.monitor.web", None),
            ("/machine.slice/libpod-conmon-ID.scope", None),
            ("/system.slice/docker.service", None),
            ("/docker/short", None),
            ("/kubepods.slice/kubepods-burstable.slice", None),
            ("/pods/pod5d2a", None),
            ("/", None),
        ];
        for (path, expected) in cases {
            assert_eq!(of(path), expected, "{path}");
        }
    }

    /// A user or a container can make groups of any name, but none that looks like somebody else's container.
    #[test]
    fn made_up_groups_do_not_pose_as_another_container() {
        let of = |path: &str| of_path(&path.replace("ID", ID)).unwrap();
        assert_eq!(of("/lxc.payload.web/lxc.payload.bank"), "lxc web");
        assert_eq!(of("/lxc.payload.web/docker/ID"), "lxc web");
        assert_eq!(
            of("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope/container"),
            "podman 0123456789ab of user 1000"
        );
        assert_eq!(of("/user.slice/user-7.slice/user@7.service/lxc.payload.bank"), "lxc bank of user 7");
        assert_eq!(of("/system.slice/ci.service/lxc.payload.bank"), "lxc bank in ci.service");
        assert_eq!(of_path(&format!("/lxc.payload.{}", "x".repeat(200))), None);
    }

    #[test]
    fn the_cpu_controller_counts_before_the_unified_tree() {
        assert_eq!(of_cgroups("3:cpu,cpuacct:/lxc/a\n0::/lxc.payload.b\n").as_deref(), Some("lxc a"));
        assert_eq!(
            of_cgroups("3:cpu:/\n2:memory:/lxc/m\n0::/lxc.payload.b (deleted)\n").as_deref(),
            Some("lxc b")
        );
        assert_eq!(of_cgroups("2:memory:/lxc/m\n1:cpuset:/lxc/m\n0::/\n"), None);
    }

    fn charged(pid: u32, ns: i64) -> BlameSample {
        let culprit = Culprit::process("cc1", pid);
        BlameSample { victim: VmId("a".into()), role: Role::Vcpu(0), culprit, ns }
    }

    /// A host with these processes in containers, and this number of processes started since boot.
    fn host(folder: &Path, started: u64, processes: &[(u32, &str)]) -> Root {
        let put = |path: &str, text: &str| {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let _ = std::fs::remove_dir_all(folder.join("proc"));
        put("proc/stat", &format!("cpu 1 2\nprocesses {started}\n"));
        put("proc/sys/kernel/pid_max", "32768\n");
        processes
            .iter()
            .for_each(|(pid, group)| put(&format!("proc/{pid}/cgroup"), &format!("0::{group}\n")));
        Root::open(folder).unwrap()
    }

    fn named(containers: &mut Containers, root: &Root, mut blame: Vec<BlameSample>) -> Vec<Option<String>> {
        let sum: i64 = blame.iter().map(|b| b.ns).sum();
        containers.name(root, &mut blame);
        assert_eq!(blame.iter().map(|b| b.ns).sum::<i64>(), sum);
        let of = |b: BlameSample| match b.culprit {
            Culprit::Process { container, .. } => container,
            _ => None,
        };
        blame.into_iter().map(of).collect()
    }

    #[test]
    fn a_container_is_named_only_where_it_is_certain() {
        let dir = tempfile::tempdir().unwrap();
        let mut all = Containers::begin(&host(dir.path(), 100, &[]));
        let web = Some("lxc web".to_owned());
        let of = [(7, "/lxc.payload.web"), (8, "/system.slice/cron.service")];
        let blame = || vec![charged(7, 10), charged(8, 5), charged(9, 3), charged(0, 2)];
        assert_eq!(named(&mut all, &host(dir.path(), 300, &of), blame()), [web.clone(), None, None, None]);
        // Without a count nobody knows whether an id is the same process's.
        assert_eq!(named(&mut Containers::default(), &host(dir.path(), 300, &of), blame())[0], None);
        // It has ended since: the last of its time is still its container's.
        let ended = host(dir.path(), 400, &of[1..]);
        assert_eq!(named(&mut all, &ended, vec![charged(7, -4)]), std::slice::from_ref(&web));
        // Another one has its id now, in another container.
        let reused = host(dir.path(), 500, &[(7, "/lxc.payload.db")]);
        assert_eq!(named(&mut all, &reused, vec![charged(7, 4)]), [Some("lxc db".to_owned())]);
        // More than half of all ids were used: the id may have belonged to several.
        let many = host(dir.path(), 500 + 16_400, &[(7, "/lxc.payload.db")]);
        assert_eq!(named(&mut all, &many, vec![charged(7, 4)]), [None]);
    }

    #[test]
    fn those_that_cost_most_are_looked_up() {
        let dir = tempfile::tempdir().unwrap();
        let of: Vec<(u32, String)> = (1..=300).map(|pid| (pid, format!("/lxc.payload.c{pid}"))).collect();
        let of: Vec<(u32, &str)> = of.iter().map(|(pid, group)| (*pid, group.as_str())).collect();
        let mut all = Containers { started: [Some(1), Some(2)], ..Containers::default() };
        let blame =
            (1..=300).map(|pid| charged(pid, i64::from(pid) * if pid % 2 == 0 { -1 } else { 1 })).collect();
        let names = named(&mut all, &host(dir.path(), 3, &of), blame);
        assert_eq!(names.iter().filter(|n| n.is_some()).count(), LOOKUPS);
        assert_eq!((names[299].as_deref(), &names[0]), (Some("lxc c300"), &None));
    }
}
