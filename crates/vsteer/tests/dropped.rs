//! Does a running `record` or `top` hold only what it still needs, and does it record VMs that start later all the same?

#[path = "common/program.rs"]
mod program;

#[path = "common/qemu.rs"]
#[allow(dead_code)] // The other test also runs vsteer as another user.
mod qemu;

use qemu::Qemu;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vsteer_host::privilege::CapabilitySet;

/// A running vsteer, killed with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn vsteer(words: &[&str], to: &Path) -> Command {
    let mut c = program::vsteer();
    c.args(words).arg("-o").arg(to).stdin(Stdio::null()).stdout(Stdio::null());
    c
}

/// Waits for what must come true within a minute.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Field by field, the values in the status of each thread of a process.
fn of_threads(pid: u32, field: &str) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let texts = tasks.filter_map(|t| std::fs::read_to_string(t.path().join("status")).ok());
    let value = |text: String| {
        let line = text.lines().find_map(|l| l.strip_prefix(field)).map(str::to_owned);
        line.unwrap_or_default().trim_start_matches(':').trim().to_owned()
    };
    texts.map(value).collect()
}

fn nice_levels(pid: u32) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let texts = tasks.filter_map(|t| std::fs::read_to_string(t.path().join("stat")).ok());
    // Field 19 of `man 5 proc`; the third is the first after the name.
    texts.filter_map(|t| t.rsplit_once(')')?.1.split_ascii_whitespace().nth(16)?.parse().ok()).collect()
}

fn interrupt(mut running: Running) {
    let pid = rustix::process::Pid::from_child(&running.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(running.0.wait().unwrap().success());
}

#[test]
#[ignore = "needs root: it loads eBPF; and QEMU"]
fn record_keeps_one_capability_and_sees_vms_that_start_later() {
    let (dir, first) = (tempfile::tempdir().unwrap(), Qemu::start("first", None));
    let to = dir.path().join("r");
    let words = ["record", "--collector", "ebpf", "--events", "--interval", "100ms"];
    let running = Running(vsteer(&words, &to).stderr(Stdio::null()).spawn().unwrap());
    let pid = running.0.id();
    // That thread starts after vsteer has dropped its privileges. (One waits for signals, and one reads traces: they need none.)
    until("the thread that records switches", || of_threads(pid, "CapEff").len() > 3);
    let tracing = std::fs::read_dir("/sys/devices/system/node")
        .map_or(0, |n| n.flatten().filter(|n| n.file_name().to_string_lossy().starts_with("node")).count())
        > 1;
    let looks = if tracing { CapabilitySet::SYS_PTRACE } else { CapabilitySet::empty() };
    let most = CapabilitySet::DAC_OVERRIDE | looks;
    // Kernels before 5.19 ask for more at each update of a table.
    let tables = CapabilitySet::BPF | CapabilitySet::PERFMON;
    for field in ["CapEff", "CapPrm", "CapBnd"] {
        for held in of_threads(pid, field) {
            let held = CapabilitySet::from_bits_retain(u64::from_str_radix(&held, 16).unwrap());
            assert!(most.contains(held - tables), "{field}: {held:?}");
        }
    }
    // The thread that records switches would else wait where VMs wait.
    assert!(nice_levels(pid).contains(&-15), "{:?}", nice_levels(pid));
    assert!(of_threads(pid, "NoNewPrivs").iter().all(|one| one == "1"));
    let later = Qemu::start("later", None);
    // The configuration, which names it, is read every ten seconds.
    std::thread::sleep(Duration::from_secs(14));
    interrupt(running);
    let told = program::vsteer().arg("diagnose").arg(&to).arg("--json").output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    for vm in [&first, &later] {
        let model = told["model"]["vms"].as_array().unwrap().iter().find(|v| v["name"] == vm.name.as_str());
        let run = model.and_then(|m| m["group"]["run"].as_f64());
        assert!(run.is_some_and(|run| run > 0.0), "{}: {model:?}", vm.name);
    }
}

#[test]
#[ignore = "needs root: it loads eBPF; and QEMU"]
fn top_keeps_one_capability() {
    let vm = Qemu::start("shown", None);
    let mut c = program::vsteer();
    c.args(["top", "-b", "-i", "200ms", "--vm", &vm.name]).stdout(Stdio::null()).stderr(Stdio::null());
    let running = Running(c.spawn().unwrap());
    until("no new privileges", || of_threads(running.0.id(), "NoNewPrivs").iter().all(|one| one == "1"));
    std::thread::sleep(Duration::from_millis(500));
    for held in of_threads(running.0.id(), "CapEff") {
        let held = CapabilitySet::from_bits_retain(u64::from_str_radix(&held, 16).unwrap());
        assert!(
            !held.intersects(CapabilitySet::SYS_ADMIN | CapabilitySet::SETUID | CapabilitySet::SYS_NICE),
            "{held:?}"
        );
    }
    interrupt(running);
}

#[test]
#[ignore = "needs root: it drops capabilities; and QEMU and Landlock"]
fn record_writes_nowhere_else_and_top_nowhere() {
    let (dir, vm) = (tempfile::tempdir().unwrap(), Qemu::start("limited", None));
    let said = |words: &[&str], tries: &Path| {
        let mut c = program::vsteer();
        c.args(words).args(["--collector", "schedstat", "--vm", &vm.name]).env("VSTEER_TRY_WRITE", tries);
        let done = c.current_dir(dir.path()).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let outside = dir.path().join("outside");
    let record = ["record", "--for", "1s", "-o", "r"];
    let refused = said(&record, &outside);
    assert!(refused.contains("PermissionDenied") && !outside.exists(), "{refused}");
    std::fs::remove_dir_all(dir.path().join("r")).unwrap();
    let made = said(&record, &dir.path().join("r/inside"));
    assert!(made.contains("Ok(\"made\")") && dir.path().join("r/inside").exists(), "{made}");
    // With a former recording, the folder that holds both may be written, for renaming.
    let made = said(&[&record[..], &["--keep-former", "f"]].concat(), &outside);
    assert!(made.contains("Ok(\"made\")") && dir.path().join("f/inside").exists(), "{made}");
    std::fs::remove_file(&outside).unwrap();
    let refused = said(&["top", "-b", "-n", "1", "-i", "200ms"], &outside);
    assert!(refused.contains("PermissionDenied") && !outside.exists(), "{refused}");
}
