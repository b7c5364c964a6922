//! Does `confine` hold? A process of its own gives up its privileges and then tries what it must not be able to do.
//!
//! Only a running process shows whether its kernel has Landlock, so this file has a harness that lets a test ignore
//! itself then.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use vsteer_host::privilege::{CapabilitySet, Kept, confine};

/// Names the task of a child process, and the folder that it works in.
const TASK: &str = "VSTEER_CONFINED_TASK";
const FOLDER: &str = "VSTEER_CONFINED_FOLDER";
/// The child's exit code on a kernel without Landlock.
const NO_LANDLOCK: u8 = 77;

fn main() -> ExitCode {
    if let Ok(task) = std::env::var(TASK) {
        let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
        return if task == "write" { writes(&folder) } else { keeps_one_capability() };
    }
    let trials = vec![
        Trial::ignorable_test("a_confined_process_writes_only_beneath_its_folders", || {
            let dir = tempfile::tempdir()?;
            child("write", dir.path())
        }),
        Trial::ignorable_test("dropped_capabilities_do_not_return_with_a_program", || {
            let dir = tempfile::tempdir()?;
            child("drop", dir.path())
        })
        .with_kind("needs root")
        .with_ignored_flag(true),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn child(task: &str, folder: &Path) -> Result<Completion, Failed> {
    let this = std::env::current_exe()?;
    let done = Command::new(this).env(TASK, task).env(FOLDER, folder).output()?;
    match done.status.code() {
        Some(0) => Ok(Completion::Completed),
        Some(code) if code == i32::from(NO_LANDLOCK) => {
            Ok(Completion::ignored_with("this kernel has no Landlock"))
        }
        _ => Err(format!("{done:?}").into()),
    }
}

/// One line of this process's status, or of a program's that it starts.
fn status(field: &str, of_program: bool) -> String {
    let text = if of_program {
        let done = Command::new("cat").arg("/proc/self/status").output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    } else {
        fs::read_to_string("/proc/self/status").unwrap()
    };
    let line = text.lines().find_map(|l| l.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().to_owned()
}

fn writes(folder: &Path) -> ExitCode {
    let (own, other) = (folder.join("own"), folder.join("other"));
    fs::create_dir(&own).unwrap();
    fs::create_dir(&other).unwrap();
    fs::write(other.join("there"), "text").unwrap();
    let kept = Kept { capabilities: CapabilitySet::empty(), writes_elsewhere: false };
    if !confine(kept, &[&own]).unwrap() {
        return ExitCode::from(NO_LANDLOCK);
    }
    fs::write(own.join("file"), "text").unwrap();
    fs::write("/dev/null", "text").unwrap();
    assert_eq!(fs::read_to_string(other.join("there")).unwrap(), "text");
    let refused = |what: &str, tried: std::io::Result<()>| {
        let kind = tried.expect_err(what).kind();
        assert!(matches!(kind, ErrorKind::PermissionDenied | ErrorKind::CrossesDevices), "{what}: {kind}");
    };
    refused("create", fs::write(other.join("new"), "text"));
    refused("overwrite", fs::write(other.join("there"), "text"));
    refused("remove", fs::remove_file(other.join("there")));
    refused("rename into", fs::rename(own.join("file"), other.join("new")));
    refused("rename out of", fs::rename(other.join("there"), own.join("new")));
    refused("make a folder", fs::create_dir(other.join("folder")));
    // A program that it starts is limited, too.
    let script = format!("echo text > {}", other.join("new").display());
    let program = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(!program.status.success() && !other.join("new").exists(), "{program:?}");
    ExitCode::SUCCESS
}

fn keeps_one_capability() -> ExitCode {
    let kept = Kept { capabilities: CapabilitySet::DAC_OVERRIDE, writes_elsewhere: true };
    let before = u64::from_str_radix(&status("CapEff", false), 16).unwrap();
    let dropped = CapabilitySet::from_bits_retain(before) - kept.capabilities;
    assert!(!dropped.is_empty(), "this test needs root");
    assert!(!confine(kept, &[]).unwrap(), "nothing was to be limited");
    for of_program in [false, true] {
        for field in ["CapEff", "CapPrm", "CapBnd"] {
            assert_eq!(status(field, of_program), format!("{:016x}", kept.capabilities.bits()), "{field}");
        }
        assert_eq!(status("NoNewPrivs", of_program), "1");
    }
    ExitCode::SUCCESS
}
