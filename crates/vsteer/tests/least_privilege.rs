//! Does the table of needs say the least that each command needs? Each row is tried as a user without privilege, with
//! exactly its capabilities, where it must work, and with each one less, where it must say which one is missing.

#[path = "common/program.rs"]
mod program;

mod common;
#[path = "common/qemu.rs"]
mod qemu;

use qemu::{NOBODY, OWNER, Qemu, as_user};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use vsteer_core::setting::knob::How;
use vsteer_host::privilege::{NEEDS, names};

/// A row that cannot be tried everywhere says so in its own text, or is of another machine.
const ELSEWHERE: [&str; 4] = ["Xen", "vSphere", "VMs of libvirt", "another host over ssh"];
/// The ways that the tests below try.
const TRIED: [&str; 11] =
    [FILES, EBPF, SCHEDSTAT, MEMORY, OTHERS, MONITOR, THREADS, CGROUP, SETTINGS, AUDIT, TOPOLOGY];
const FILES: &str = "files";
const EBPF: &str = "collector `ebpf`";
const SCHEDSTAT: &str = "collector `schedstat`";
const MEMORY: &str = "memory on several nodes";
const OTHERS: &str = "VMs of programs other than QEMU";
const MONITOR: &str = "QEMU of another user that does not name its threads";
const THREADS: &str = "affinity and class of threads, without libvirt";
const CGROUP: &str = "weight, limit, budget and memory nodes, without libvirt";
const SETTINGS: &str = "settings of the host";
const AUDIT: &str = "this host, read by `audit`";
const TOPOLOGY: &str = "this host, read by `topology`";

/// The names of the capabilities in the row of this way.
fn row(way: &str) -> Vec<String> {
    let need = NEEDS.iter().find(|n| n.way == way).unwrap_or_else(|| panic!("the table has no {way}"));
    names(need.capabilities)
}

/// Each set with one capability less, with that one.
fn one_less(all: &[String]) -> impl Iterator<Item = (Vec<String>, &String)> {
    all.iter().map(|less| (all.iter().filter(|c| *c != less).cloned().collect(), less))
}

/// A folder of nobody's, with a copy of the program that nobody can run.
struct Place {
    dir: tempfile::TempDir,
    vsteer: PathBuf,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let vsteer = dir.path().join("vsteer");
        // A process of its own writes it, or the kernel could refuse to run it ("Text file busy").
        let copied = Command::new("cp").args([program::VSTEER.as_ref(), vsteer.as_os_str()]).status();
        assert!(copied.unwrap().success());
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&vsteer, PermissionsExt::from_mode(0o755)).unwrap();
        chown(dir.path(), Some(NOBODY), Some(NOBODY)).expect("this test needs root");
        Place { dir, vsteer }
    }

    fn run(&self, capabilities: &[String], words: &[&str]) -> Output {
        let mut c = as_user(NOBODY, capabilities, &self.vsteer);
        c.args(words)
            .current_dir(self.dir.path())
            .env(program::NO_CONFIG.0, program::NO_CONFIG.1)
            .env("VSTEER_STATE", self.dir.path().join("state"));
        c.output().unwrap()
    }

    fn works(&self, capabilities: &[String], words: &[&str]) -> Output {
        let done = self.run(capabilities, words);
        assert!(done.status.success(), "{words:?} with {capabilities:?}: {}", said(&done));
        done
    }
}

fn said(done: &Output) -> String {
    let text = [done.stdout.as_slice(), b"\n", done.stderr.as_slice()].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn each_row_is_tried_or_says_that_it_is_not() {
    for need in NEEDS {
        let untried = need.way.contains("untried") || ELSEWHERE.contains(&need.way);
        assert_eq!(TRIED.contains(&need.way), !untried, "{}", need.way);
    }
}

#[test]
#[ignore = "needs root: it runs vsteer as a user with fewer capabilities; and QEMU"]
fn observing() {
    let (place, vm) = (Place::new(), Qemu::start("observed", None));
    let top = |collector: &'static str| {
        ["top", "-b", "-n", "1", "-i", "500ms", "--vm", "observed-*", "--collector", collector]
    };
    let none = row(SCHEDSTAT);
    assert!(none.is_empty());
    assert!(said(&place.works(&none, &top("schedstat"))).contains(&vm.name));
    let all = row(EBPF);
    assert!(said(&place.works(&all, &top("ebpf"))).contains(&vm.name));
    for (fewer, missing) in one_less(&all) {
        let refused = place.run(&fewer, &top("ebpf"));
        assert_eq!(refused.status.code(), Some(4), "{}", said(&refused));
        let help = format!("run as root, or with {missing}, or use the polling collector");
        assert!(said(&refused).contains(&help), "{}", said(&refused));
        let note = format!(
            "instead of eBPF (eBPF: the kernel rejects the observer: Operation not permitted (os error 1); vsteer lacks {missing})"
        );
        let falls_back = said(&place.works(&fewer, &top("auto")));
        assert!(falls_back.contains(&note) && falls_back.contains(&vm.name), "{falls_back}");
    }
    place.works(&all, &["record", "-o", "r", "--for", "1s", "--vm", "observed-*", "--collector", "ebpf"]);
    files(&place);
}

/// Commands that read the recording `r`.
fn files(place: &Place) {
    let none = row(FILES);
    assert!(none.is_empty());
    for words in [
        &["replay", "r", "--interval", "200ms"][..],
        &["export", "r", "--to", "csv", "-o", "csv"],
        &["diagnose", "r"],
        &["report", "r", "-o", "report.html"],
        &["simulate", "--list"],
        &["exit-codes"],
    ] {
        place.works(&none, words);
    }
}

#[test]
#[ignore = "needs root: it runs vsteer as a user with fewer capabilities; and QEMU"]
fn looking_into_processes_and_asking_monitors() {
    let (place, folder) = (Place::new(), tempfile::tempdir().unwrap());
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    chown(folder.path(), Some(OWNER), Some(OWNER)).unwrap();
    let vm = Qemu::start("asked", Some(&folder.path().join("monitor")));
    // The kernel's own rules for the files that such hosts need. `maps` has the rule of `numa_maps`, on any kernel.
    let (maps, fd) = (format!("/proc/{}/maps", vm.pid()), format!("/proc/{}/fd/0", vm.pid()));
    for (way, program, file) in [(MEMORY, "cat", maps), (OTHERS, "readlink", fd)] {
        let reads = |capabilities: &[String]| {
            let done = as_user(NOBODY, capabilities, Path::new(program)).arg(&file).output().unwrap();
            done.status.success() && !done.stdout.is_empty()
        };
        assert!(reads(&row(way)), "{file}");
        one_less(&row(way)).for_each(|(fewer, missing)| assert!(!reads(&fewer), "{file} without {missing}"));
    }
    let top = ["top", "-b", "-n", "1", "-i", "500ms", "--vm", "asked-*", "--collector", "schedstat"];
    let seen = said(&place.works(&row(MONITOR), &top));
    assert!(seen.contains("vcpu1"), "{seen}");
    let unseen = said(&place.works(&[], &top));
    assert!(!unseen.contains("vcpu1") && unseen.contains("ermission denied"), "{unseen}");
}

/// A cgroup of the cpu controller, on this machine's version, with one process.
struct Cgroup(PathBuf);

impl Cgroup {
    fn of(pid: u32) -> Cgroup {
        let root = Path::new("/sys/fs/cgroup");
        let controller = if root.join("cpu").is_dir() { root.join("cpu") } else { root.to_owned() };
        let folder = controller.join(format!("vsteer-least-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("cgroup.procs"), pid.to_string()).unwrap();
        Cgroup(folder)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..50 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Plans and applies. A VM of somebody else's that comes or goes in between makes the plan too old (exit code 7).
fn applied(place: &Place, vm: &Qemu, set: &str, capabilities: &[String]) -> Output {
    let plan = [
        "plan",
        "--vm",
        &vm.name,
        "--for",
        "500ms",
        "--set",
        set,
        "--collector",
        "schedstat",
        "-o",
        "plan.json",
    ];
    loop {
        let _ = std::fs::remove_file(place.dir.path().join("plan.json"));
        place.works(&[], &plan);
        let done = place.run(capabilities, &["apply", "plan.json", "--yes"]);
        if done.status.code() != Some(7) {
            return done;
        }
    }
}

#[test]
#[ignore = "needs root: it runs vsteer as a user with fewer capabilities; and QEMU"]
fn changing() {
    let place = Place::new();
    // Declared first, so that its process has ended when it is removed.
    let vm = Qemu::start("changed", None);
    let group = Cgroup::of(vm.pid());
    for (way, set) in [(THREADS, "pin=0"), (CGROUP, "weight=512")] {
        let all = row(way);
        let set = format!("{}:{set}", vm.name);
        for (fewer, missing) in one_less(&all) {
            let refused = applied(&place, &vm, &set, &fewer);
            assert_eq!(refused.status.code(), Some(8), "{}", said(&refused));
            assert!(
                said(&refused).contains(&format!("run as root, or with {missing}")),
                "{}",
                said(&refused)
            );
            // The undo of what was not made may have been refused, too.
            place.run(&all, &["rollback"]);
        }
        let done = applied(&place, &vm, &set, &all);
        assert!(done.status.success(), "{}", said(&done));
        place.works(&all, &["rollback"]);
    }
    drop(vm);
    drop(group);
}

#[test]
#[ignore = "needs root: it runs vsteer as a user with fewer capabilities"]
fn this_host() {
    let place = Place::new();
    place.works(&row(AUDIT), &["audit"]);
    place.works(&row(TOPOLOGY), &["topology"]);
    let knob = place.dir.path().join("knob");
    std::fs::write(&knob, "a").unwrap();
    let how = How::File { path: knob.to_string_lossy().into_owned() };
    let plan = common::plan("change a file", "knob", how, None, ("a", "b"));
    std::fs::write(place.dir.path().join("plan.json"), serde_json::to_vec(&plan).unwrap()).unwrap();
    let refused = place.run(&row(SETTINGS), &["apply", "plan.json", "--yes"]);
    assert!(!refused.status.success() && said(&refused).contains("ermission denied"), "{}", said(&refused));
    place.run(&row(SETTINGS), &["rollback"]);
    chown(&knob, Some(NOBODY), None).unwrap();
    place.works(&row(SETTINGS), &["apply", "plan.json", "--yes"]);
    assert_eq!(std::fs::read_to_string(&knob).unwrap(), "b");
}

/// setpriv is there: without it every other test would fail for that reason.
#[test]
#[ignore = "needs root: setpriv changes the user"]
fn setpriv_leaves_only_what_was_asked_for() {
    let told =
        as_user(NOBODY, &["CAP_BPF".to_owned()], Path::new("cat")).arg("/proc/self/status").output().unwrap();
    let text = said(&told);
    for line in ["CapEff:\t0000008000000000", "CapBnd:\t0000008000000000", "Uid:\t65534"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(Command::new("setpriv").arg("--version").output().is_ok_and(|o| o.status.success()));
}
