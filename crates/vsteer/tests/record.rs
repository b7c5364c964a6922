//! Does `record` leave a recording that the other commands read, however it ends? Of a real QEMU in its firmware, by the
//! polling collector, which needs no privilege.

#[path = "common/program.rs"]
mod program;

use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A QEMU with two vCPUs. It ends with this value.
struct Qemu {
    child: Child,
    name: String,
}

impl Qemu {
    fn start(test: &str) -> Qemu {
        let name = format!("{test} {}", std::process::id());
        let child = Command::new("qemu-system-x86_64")
            .args(["-name", &format!("{name},debug-threads=on"), "-display", "none", "-serial", "none"])
            .args(["-m", "32", "-accel", "tcg,thread=multi", "-smp", "2"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("qemu-system-x86_64: {e}"));
        let qemu = Qemu { child, name };
        let begun = Instant::now();
        let tasks = format!("/proc/{}/task", qemu.child.id());
        let vcpus = || {
            let names = std::fs::read_dir(&tasks).into_iter().flatten().flatten();
            names
                .filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok())
                .filter(|n| n.starts_with("CPU "))
                .count()
        };
        while vcpus() < 2 {
            assert!(begun.elapsed() < Duration::from_secs(20), "the vCPUs have not begun");
            std::thread::sleep(Duration::from_millis(50));
        }
        qemu
    }

    fn record(&self, to: &Path, more: &[&str]) -> Command {
        let mut c = program::vsteer();
        c.args(["record", "--collector", "schedstat", "--vm", &self.name, "-o"]).arg(to).args(more);
        c
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stderr(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn json(words: &[&str]) -> Value {
    let out = program::vsteer().args(words).arg("--json").output().unwrap();
    assert!(out.status.success(), "{words:?}: {}", stderr(&out));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// The one VM of a recording, and the recording's length, s.
fn diagnosed(recording: &Path) -> (Value, f64) {
    let told = json(&["diagnose", recording.to_str().unwrap()]);
    let model = &told["model"];
    assert_eq!(model["vms"].as_array().map(Vec::len), Some(1), "{model}");
    (model["vms"][0].clone(), model["window_ns"].as_f64().unwrap() / 1e9)
}

#[test]
#[ignore = "needs QEMU"]
fn a_recording_has_the_vm_and_its_length_and_is_never_overwritten() {
    let (dir, qemu) = (tempfile::tempdir().unwrap(), Qemu::start("recorded"));
    let to = dir.path().join("a.vsteer");
    let out = qemu.record(&to, &["--for", "2s", "--interval", "100ms"]).output().unwrap();
    assert!(out.status.success(), "{}", stderr(&out));
    let (vm, seconds) = diagnosed(&to);
    assert_eq!(vm["name"], qemu.name);
    let vcpus = vm["threads"].as_array().unwrap().iter().filter(|t| t["role"]["vcpu"].is_u64()).count();
    assert_eq!(vcpus, 2);
    assert!((1.5..10.0).contains(&seconds), "{seconds} s");
    // A vCPU that boots its firmware, or spins at its end, runs.
    assert!(vm["group"]["run"].as_f64().is_some_and(|run| run > 0.0), "{vm}");
    let before = std::fs::read(to.join("manifest.json")).ok();
    let again = qemu.record(&to, &["--for", "1s"]).output().unwrap();
    assert_eq!(again.status.code(), Some(2), "{}", stderr(&again));
    assert!(stderr(&again).contains("already exists"), "{}", stderr(&again));
    assert_eq!(std::fs::read(to.join("manifest.json")).ok(), before);
}

#[test]
#[ignore = "needs QEMU"]
fn an_interrupted_recording_is_whole_and_a_killed_one_can_be_read() {
    let (dir, qemu) = (tempfile::tempdir().unwrap(), Qemu::start("interrupted"));
    for (name, signal) in [("int", rustix::process::Signal::INT), ("kill", rustix::process::Signal::KILL)] {
        let to = dir.path().join(name);
        let mut child = qemu.record(&to, &["--interval", "100ms"]).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_secs(3));
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.success(), name == "int", "{name}: {status}");
        let (vm, seconds) = diagnosed(&to);
        assert_eq!(vm["name"], qemu.name);
        assert!(seconds > 0.5, "{name}: {seconds} s");
    }
}

#[test]
#[ignore = "needs QEMU"]
fn a_trigger_that_cannot_fire_is_told_and_left_out() {
    let (dir, qemu) = (tempfile::tempdir().unwrap(), Qemu::start("triggers"));
    let (to, socket) = (dir.path().join("a.vsteer"), dir.path().join("notify"));
    let manager = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    manager.set_nonblocking(true).unwrap();
    // Polling measures shares of time, but no single wait.
    let triggers = ["--trigger", "ready_p99>1ns", "--trigger", "run>0%", "--trigger-window", "1s"];
    let mut record = qemu.record(&to, &["--for", "3s", "--interval", "100ms", "--json"]);
    let out = record.args(triggers).env("NOTIFY_SOCKET", &socket).output().unwrap();
    assert!(out.status.success(), "{}", stderr(&out));
    let told = stderr(&out);
    assert!(told.contains("the trigger ready_p99>1ns can never fire"), "{told}");
    assert!(!told.contains("trigger run>0% can never fire"), "{told}");
    let done: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(done["marks"].as_u64().is_some_and(|n| n > 0), "{done}");
    let left_out = done["triggers_left_out"].as_array().unwrap();
    assert!(left_out.len() == 1 && left_out[0].as_str().unwrap().contains("ready_p99>1ns"), "{done}");
    let mut heard = [0; 64];
    let n = manager.recv(&mut heard).expect("the service manager was told");
    assert_eq!(&heard[..n], b"READY=1");
}

#[test]
#[ignore = "needs QEMU"]
fn a_vm_that_is_not_there_is_told_beside_those_that_are() {
    let (dir, qemu) = (tempfile::tempdir().unwrap(), Qemu::start("present"));
    let to = dir.path().join("a.vsteer");
    let out = program::vsteer()
        .args(["record", "--vm", "nobody", "--for", "1s", "--collector", "schedstat", "-o"])
        .arg(&to)
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(3), "{}", stderr(&out));
    assert!(stderr(&out).contains("nobody") && stderr(&out).contains(&qemu.name), "{}", stderr(&out));
    assert!(!to.exists(), "nothing is left behind");
}

#[test]
fn options_that_make_no_sense_are_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("a.vsteer");
    for more in [&["--interval", "0s"][..], &["--for", "soon"], &["--trigger", "mood>3"]] {
        let out = program::vsteer().args(["record", "-o"]).arg(&to).args(more).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{more:?}: {}", stderr(&out));
        assert!(!to.exists(), "{more:?}");
    }
}
