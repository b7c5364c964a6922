//! Reads the results of the emulated host, recordings and guests' reports, from the archive that it leaves.
//!
//! The archive is "newc" cpio (vsteer-guest, host/archive.rs). For each case it has `CASE/host.vsteer/` and
//! one file `CASE/NAME.reports` per VM and competitor: two lines, from near both ends of the recorded window,
//! with the host's time. For VMs there is also `CASE/NAME.kvm` in the same form with KVM's own counts, and
//! `CASE/NAME.log` if a server has a schedule. Every file's SHA-256 is reported, because two runs of one job
//! must give the same bytes.
//!
//! If times mean nothing (see [`super::job::Job::inexact`]), no times are reported: neither what guests
//! measured, nor how much work they did.

use super::job::{Case, Job, Start};
use crate::accel::Accel;
use crate::command;
use crate::files::{make_folder, write_file};
use crate::report::window::{self, GuestReport, Stamped, VmWindow};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// The results of one case.
#[derive(Debug, Clone, Serialize)]
pub struct CaseResult {
    pub name: String,
    /// The recording, for `vsteer diagnose`, `report` and the rest; `None` if the job does not record.
    pub recording: Option<PathBuf>,
    /// The access log of each VM that has one, from the VM's start. It is in the folder of the case that
    /// started the VM.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub logs: BTreeMap<String, PathBuf>,
    /// Why its times mean nothing; `None` if they are exact.
    pub inexact: Option<String>,
    /// What VMs and competitors measured; `None` if times mean nothing, and if the guests were not asked.
    pub measured: Option<Vec<Measured>>,
    /// SHA-256 of every file, by its path in the case's folder.
    pub files: BTreeMap<String, String>,
}

/// What a VM or a competitor measured over the recorded window.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    pub name: String,
    pub workload: String,
    /// vCPUs; 0 means a process.
    pub vcpus: u32,
    pub window: VmWindow,
    /// KVM's counts in this window, by KVM's names; empty for a process.
    pub kvm: BTreeMap<String, u64>,
}

/// Unpacks the archive below `folder`.
///
/// # Errors
/// It is broken, or names a path outside.
pub fn unpack(archive: &[u8], folder: &Path) -> Result<(), Fault> {
    for (name, data) in entries(archive)? {
        let path = Path::new(&name);
        if !path.components().all(|c| matches!(c, Component::Normal(_))) {
            return Err(broken(format!("it names {name:?}")));
        }
        let file = folder.join(path);
        make_folder(file.parent().expect("it lies in the folder"))?;
        write_file(&file, data)?;
    }
    Ok(())
}

fn broken(why: impl std::fmt::Display) -> Fault {
    Fault::new(FaultKind::BadInput, "the archive of the emulated host's results is broken").because(why)
}

/// The files in an archive.
fn entries(archive: &[u8]) -> Result<Vec<(String, &[u8])>, Fault> {
    let mut found = Vec::new();
    let mut rest = archive;
    loop {
        let header = rest.get(..110).ok_or_else(|| broken("it ends within a header"))?;
        let number = |field: usize| {
            let text = header.get(6 + 8 * field..14 + 8 * field).and_then(|t| std::str::from_utf8(t).ok());
            text.and_then(|t| usize::from_str_radix(t, 16).ok())
                .ok_or_else(|| broken("a header holds no number"))
        };
        if &header[..6] != b"070701" {
            return Err(broken("a header does not begin as one"));
        }
        let (size, name_size) = (number(6)?, number(11)?);
        let data_at = (110 + name_size).next_multiple_of(4);
        let (name, data) = (rest.get(110..110 + name_size), rest.get(data_at..data_at + size));
        let (Some(name), Some(data)) = (name, data) else { return Err(broken("it ends within a file")) };
        let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
        if name == "TRAILER!!!" {
            return Ok(found);
        }
        found.push((name, data));
        rest = rest.get((data_at + size).next_multiple_of(4)..).unwrap_or_default();
    }
}

/// Reads the results of one case.
///
/// # Errors
/// Reports are missing or not valid.
pub fn read(job: &Job, case: &Case, output: &Path) -> Result<CaseResult, Fault> {
    let folder = output.join(&case.name);
    let inexact = job.inexact(case);
    let vms = case.vms.iter().map(|s| (s, s.vcpus.unwrap_or(1)));
    let all = vms.chain(case.processes.iter().map(|s| (s, 0)));
    let all = all.filter(|_| case.ask);
    let measured: Vec<Measured> =
        all.map(|(s, vcpus)| measured(&folder, s, vcpus, case.moves(&s.name))).collect::<Result<_, _>>()?;
    Ok(CaseResult {
        name: case.name.clone(),
        logs: logs(job, case, output),
        recording: case.observe.then(|| folder.join("host.vsteer")),
        measured: inexact.is_none().then_some(measured).filter(|_| case.ask),
        inexact,
        files: checksums(&folder)?,
    })
}

/// The logs of a case's VMs, which are in the folder of the case that started them.
fn logs(job: &Job, case: &Case, output: &Path) -> BTreeMap<String, PathBuf> {
    let until = job.cases.iter().position(|c| c.name == case.name).map_or(0, |i| i + 1);
    let Some(first) = job.cases[..until].iter().rfind(|c| !c.continues) else { return BTreeMap::new() };
    let log = |vm: &Start| (vm.name.clone(), output.join(&first.name).join(format!("{}.log", vm.name)));
    case.vms.iter().map(log).filter(|(_, path)| path.is_file()).collect()
}

/// For a VM that `moves`, the guest's report covers the move, but KVM's counts do not and are left out.
fn measured(folder: &Path, start: &Start, vcpus: u32, moves: bool) -> Result<Measured, Fault> {
    let file = folder.join(format!("{}{}.reports", start.name, if moves { "-moved" } else { "" }));
    let text = std::fs::read_to_string(&file)
        .map_err(|e| Fault::io(format!("reading the guest's reports {}", file.display()), &e))?;
    let stamped = |line: &str| -> Result<Stamped, Fault> {
        let report: GuestReport = serde_json::from_str(line).map_err(|e| {
            Fault::new(FaultKind::BadInput, format!("{}: not a guest's report", file.display())).because(e)
        })?;
        // Taken by the host's own clock.
        Ok(Stamped { host_ns: report.t_ns, report })
    };
    let reports = text.lines().map(stamped).collect::<Result<Vec<_>, _>>()?;
    Ok(Measured {
        name: start.name.clone(),
        workload: start.workload.clone(),
        vcpus,
        window: window::between(&start.name, &reports, 0, u64::MAX, Accel::Kvm)?,
        kvm: if vcpus > 0 && !moves {
            kvm_counts(&folder.join(format!("{}.kvm", start.name)))?
        } else {
            BTreeMap::new()
        },
    })
}

/// The increase of each count from the first line to the last.
fn kvm_counts(file: &Path) -> Result<BTreeMap<String, u64>, Fault> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| Fault::io(format!("reading KVM's counts {}", file.display()), &e))?;
    rises(&text).ok_or_else(|| {
        Fault::new(FaultKind::BadInput, format!("{}: not two lines of KVM's counts", file.display()))
    })
}

fn rises(text: &str) -> Option<BTreeMap<String, u64>> {
    let counts = |line: &str| -> Option<BTreeMap<String, u64>> {
        let count = |word: &str| {
            let (name, value) = word.split_once('=')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        line.split_whitespace().map(count).collect()
    };
    let lines = text.lines().map(counts).collect::<Option<Vec<_>>>()?;
    let [before, after] = &lines[..] else { return None };
    after.iter().map(|(name, value)| Some((name.clone(), value.checked_sub(*before.get(name)?)?))).collect()
}

/// SHA-256 of every file below a folder, computed by the system's program.
fn checksums(folder: &Path) -> Result<BTreeMap<String, String>, Fault> {
    let mut command = Command::new("sh");
    command.current_dir(folder).args(["-c", "find . -type f -print0 | sort -z | xargs -0 sha256sum --"]);
    let text = command::output(&mut command, Duration::from_secs(60))?;
    let parse = |line: &str| {
        let (sum, path) = line.split_once("  ")?;
        Some((path.trim_start_matches("./").to_owned(), sum.to_owned()))
    };
    Ok(text.lines().filter_map(parse).collect())
}

/// One checksum over all cases' files, from a list of names and checksums in order, which is written to
/// `list`.
///
/// # Errors
/// The list cannot be written.
pub fn sha256_of_all(cases: &[CaseResult], list: &Path) -> Result<String, Fault> {
    let of_case = |c: &CaseResult| -> String {
        c.files.iter().map(|(path, sum)| format!("{sum}  {}/{path}\n", c.name)).collect()
    };
    write_file(list, cases.iter().map(of_case).collect::<String>())?;
    let text = command::output(Command::new("sha256sum").arg("--").arg(list), Duration::from_secs(10))?;
    Ok(text.split_whitespace().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same bytes that vsteer-guest's own test requires from its writer, between a header's fixed parts.
    fn entry(name: &str, data: &[u8]) -> Vec<u8> {
        let fields = [0, 0o100_644, 0, 0, 1, 0, data.len(), 0, 0, 0, 0, name.len() + 1, 0];
        let mut bytes = b"070701".to_vec();
        bytes.extend(fields.iter().flat_map(|f| format!("{f:08x}").into_bytes()));
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn logs_lie_with_the_case_that_started_the_vms() {
        let vm = "[[case.vm]]\nname = \"web\"\nworkload = \"burn\"\ncpus = \"1\"\n";
        let text = format!(
            "[[case]]\nname = \"a\"\n{vm}[[case]]\nname = \"b\"\n{vm}[[case]]\nname = \"c\"\ncontinues = true\n"
        );
        let job = Job::parse(&text).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("b/web.log");
        std::fs::create_dir(folder.path().join("b")).unwrap();
        std::fs::write(&file, "").unwrap();
        let of = |i: usize| logs(&job, &job.cases[i], folder.path());
        assert_eq!(of(0), BTreeMap::new());
        assert_eq!(of(1), BTreeMap::from([("web".to_owned(), file)]));
        assert_eq!(of(2), of(1));
    }

    #[test]
    fn kvms_counts_are_differences() {
        let rose = rises("exits=5 halt_poll_fail_ns=100\nexits=7 halt_poll_fail_ns=100\n").unwrap();
        assert_eq!((rose["exits"], rose["halt_poll_fail_ns"]), (2, 0));
        for bad in ["", "exits=5\n", "exits=5\nexits=4\n", "exits=5\nhalts=9\n", "exits\nexits\n"] {
            assert_eq!(rises(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn an_archive_is_unpacked_and_ends_where_it_says() {
        let bytes =
            [entry("a/b", b"hello"), entry("c", b""), entry("TRAILER!!!", b""), vec![0; 700]].concat();
        assert_eq!(&bytes[110..124], b"a/b\0\0\0hello\0\0\0");
        let folder = tempfile::tempdir().unwrap();
        unpack(&bytes, folder.path()).unwrap();
        assert_eq!(std::fs::read(folder.path().join("a/b")).unwrap(), b"hello");
        assert!(folder.path().join("c").is_file());
        for cut in [0, 50, 112, 118, 130] {
            assert_eq!(unpack(&bytes[..cut], folder.path()).unwrap_err().kind, FaultKind::BadInput, "{cut}");
        }
        let outside = [entry("../x", b"y"), entry("TRAILER!!!", b"")].concat();
        assert!(unpack(&outside, folder.path()).is_err());
        assert!(unpack(&vec![0; 4096], folder.path()).is_err(), "memory that was never written");
    }
}
