//! What has the host started, how is it asked, and how is it ended?
//!
//! A VM or competitor is this very program in another mode, as a process of its own with two pipes: a line in asks for
//! a report, a line out is the report. (One with Linux is QEMU, and what comes out is all that it says: what is no report is shown.) Beside each report of a VM lies what KVM itself has counted for it until then
//! (`/sys/kernel/debug/kvm/PID-FD`): what an observer says of exits and halt polling can be held against that.

use super::job::Start;
use crate::place::Place;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What KVM counts for each VM, and is kept; of the latter what this kernel counts.
const KVM_COUNTS: [&str; 4] = ["exits", "halt_exits", "halt_poll_success_ns", "halt_poll_fail_ns"];
/// Why a VM left: where one leaves without end, one of these says for what.
const KVM_REASONS: [&str; 7] = [
    "irq_exits",
    "irq_window_exits",
    "request_irq_exits",
    "irq_injections",
    "pf_taken",
    "insn_emulation",
    "signal_exits",
];
const KVM_FOLDER: &str = "/sys/kernel/debug/kvm";

/// How Linux begins its last words; a microvm then begins anew, and counts from nothing.
const PANIC: &str = "Kernel panic";
/// What the lab looks for (its suite/realtime/media.rs): on an emulated pCPU that happens now and then (host/linux.rs).
const FELL_OVER: &str = "its Linux fell over";
/// From QEMU's start to its vCPUs' threads: it reads what it boots first.
const VCPUS_WITHIN_S: u32 = 60;
/// From being asked to an answer. One that is busy beside others takes a tenth of a second.
const ANSWERS_WITHIN: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// A VM or a competitor that runs.
pub struct Started {
    name: String,
    has_linux: bool,
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
    reports: String,
    is_vm: bool,
    kvm_counts: String,
}

impl Started {
    /// Starts one, in its group, with this file for its memory if one is named. A `moved` VM waits until it comes (host/linux.rs).
    ///
    /// # Errors
    /// When the process cannot be started; that it ends soon shows at the first report.
    pub fn start(start: &Start, group: &str, memory: Option<&Path>, moved: bool) -> Result<Started, String> {
        let mut command = Command::new("/proc/self/exe");
        match start.vcpus {
            Some(vcpus) => {
                let kind = if start.has_linux { "linux" } else { "vmm" };
                command.args([kind, "--name", &start.name, "--vcpus", &vcpus.to_string()])
            }
            None => command.args(["process", "--name", &start.name]),
        };
        command.args(["--workload", &start.workload]).args(&start.place).args(["--cgroup", group]);
        if start.vcpu_quota_us.is_some() {
            command.arg("--group-per-vcpu");
        }
        if let Some(memory) = memory {
            command.arg("--memory").arg(memory);
        }
        if moved {
            command.arg("--moved");
        }
        let told = |e| format!("starting {}: {e}", start.name);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(told)?;
        let ask = child.stdin.take().expect("stdin is piped");
        let answers = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Ok(Started {
            name: start.name.clone(),
            has_linux: start.has_linux,
            child,
            ask,
            answers,
            reports: String::new(),
            is_vm: start.vcpus.is_some(),
            kvm_counts: String::new(),
        })
    }

    /// Pins the vCPUs of a VM with Linux where they have pCPUs of their own: QEMU makes their threads a while after it began. (Those of other VMs place themselves.)
    ///
    /// # Errors
    /// They do not come, or it is refused.
    pub fn place_vcpus(&self, start: &Start) -> Result<(), String> {
        let mut place = Place::default();
        super::place(&mut start.place.iter().cloned(), &mut place)?;
        let vcpus = start.vcpus.unwrap_or(0);
        if !self.has_linux || place.vcpu_cpus.is_empty() {
            return Ok(());
        }
        let mut looked = 0;
        while self.vcpu_threads().len() < vcpus {
            if looked >= VCPUS_WITHIN_S {
                return Err(format!("{} has not {vcpus} vCPUs after {looked} s", self.name));
            }
            super::sleep_s(1);
            looked += 1;
        }
        for (vcpu, thread) in self.vcpu_threads() {
            place
                .take_vcpu(vcpu as usize, thread)
                .map_err(|why| format!("vCPU {vcpu} of {}: {why}", self.name))?;
        }
        Ok(())
    }

    /// Its vCPUs' numbers and threads.
    fn vcpu_threads(&self) -> Vec<(u32, i32)> {
        let threads =
            std::fs::read_dir(format!("/proc/{}/task", self.child.id())).into_iter().flatten().flatten();
        let number = |thread: &Path| {
            let name = std::fs::read_to_string(thread.join("comm")).ok()?;
            name.trim().strip_prefix("CPU ")?.strip_suffix("/KVM")?.parse::<u32>().ok()
        };
        threads
            .filter_map(|t| Some((number(&t.path())?, t.file_name().to_str()?.parse::<i32>().ok()?)))
            .collect()
    }

    /// Keeps KVM's counts, and a report if it is to be asked for one.
    ///
    /// # Errors
    /// It has ended, or KVM does not count.
    pub fn count(&mut self, asks: bool) -> Result<(), String> {
        if self.is_vm {
            self.kvm_counts += &kvm_counts(self.child.id())?;
        }
        if asks { self.report() } else { Ok(()) }
    }

    fn report(&mut self) -> Result<(), String> {
        let told = |e| format!("asking {} for a report: {e}", self.name);
        self.ask.write_all(b"\n").map_err(told)?;
        loop {
            if self.has_linux
                && self.answers.buffer().is_empty()
                && !comes_within(&self.answers, ANSWERS_WITHIN).map_err(told)?
            {
                return Err(format!("{}: {FELL_OVER}, and says nothing", self.name));
            }
            let mut line = String::new();
            if self.answers.read_line(&mut line).map_err(told)? == 0 {
                return Err(format!("{} has ended; what it said is above", self.name));
            }
            if line.starts_with('{') {
                self.reports += &line;
                return Ok(());
            }
            if line.contains(PANIC) {
                return Err(format!("{}: {FELL_OVER}: {}", self.name, line.trim()));
            }
            println!("{}: {}", self.name, line.trim_end());
        }
    }

    /// Its name, its reports since this was last asked, one per line, and KVM's counts, one line of `NAME=COUNT` for each
    /// report (nothing of a competitor).
    pub fn take_reports(&mut self) -> (&str, String, String) {
        (&self.name, std::mem::take(&mut self.reports), std::mem::take(&mut self.kvm_counts))
    }

    /// Goes on with the reports of the VM that has come here. KVM's counts begin anew.
    pub fn goes_on(&mut self, from: &mut Started) {
        self.reports = std::mem::take(&mut from.reports);
    }

    /// Ends the thread of its last vCPU.
    ///
    /// # Errors
    /// There is none, or it cannot be told.
    pub fn unplug(&self) -> Result<(), String> {
        let last = self.vcpu_threads().into_iter().max();
        let (_, thread) = last.ok_or_else(|| format!("{} has no vCPU", self.name))?;
        crate::vmm::unplug(self.child.id(), thread)
            .map_err(|e| format!("unplugging a vCPU of {}: {e}", self.name))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Ends it.
    ///
    /// # Errors
    /// It cannot be ended.
    pub fn end(mut self) -> Result<(), String> {
        // It may have ended by itself, which showed elsewhere.
        let _ = self.child.kill();
        self.child.wait().map(drop).map_err(|e| format!("ending {}: {e}", self.name))
    }
}

/// Waits until there is something to read. `false`: nothing came in time.
fn comes_within(from: &BufReader<ChildStdout>, limit: Timespec) -> std::io::Result<bool> {
    let mut files = [PollFd::new(from.get_ref(), PollFlags::IN)];
    Ok(poll(&mut files, Some(&limit))? > 0)
}

fn kvm_counts(process: u32) -> Result<String, String> {
    let of_process = format!("{process}-");
    let mut folders = std::fs::read_dir(KVM_FOLDER).into_iter().flatten().flatten().map(|e| e.path());
    let folder = folders
        .find(|f| f.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&of_process)))
        .ok_or_else(|| format!("KVM counts nothing for process {process} in {KVM_FOLDER}"))?;
    let mut line = String::new();
    for count in KVM_COUNTS {
        let file = folder.join(count);
        let value = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        line += &format!("{count}={} ", value.trim());
    }
    for count in KVM_REASONS {
        if let Ok(value) = std::fs::read_to_string(folder.join(count)) {
            line += &format!("{count}={} ", value.trim());
        }
    }
    Ok(line.trim_end().to_owned() + "\n")
}
