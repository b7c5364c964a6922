//! What has the host started, how is it asked, and how is it ended?
//!
//! A VM or competitor is this very program in another mode, as a process of its own with two pipes: a line in asks for
//! a report, a line out is the report.

use super::job::Start;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A VM or a competitor that runs.
pub struct Started {
    name: String,
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
    reports: String,
}

impl Started {
    /// Starts one, in its group.
    ///
    /// # Errors
    /// When the process cannot be started; that it ends soon shows at the first report.
    pub fn start(start: &Start, group: &str) -> Result<Started, String> {
        let mut command = Command::new("/proc/self/exe");
        match start.vcpus {
            Some(vcpus) => command.args(["vmm", "--name", &start.name, "--vcpus", &vcpus.to_string()]),
            None => command.args(["process", "--name", &start.name]),
        };
        command.args(["--workload", &start.workload]).args(&start.place).args(["--cgroup", group]);
        if start.vcpu_quota_us.is_some() {
            command.arg("--group-per-vcpu");
        }
        let told = |e| format!("starting {}: {e}", start.name);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(told)?;
        let ask = child.stdin.take().expect("stdin is piped");
        let answers = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Ok(Started { name: start.name.clone(), child, ask, answers, reports: String::new() })
    }

    /// Asks for a report and keeps it.
    ///
    /// # Errors
    /// It has ended.
    pub fn report(&mut self) -> Result<(), String> {
        let asked = self.ask.write_all(b"\n").and_then(|()| self.answers.read_line(&mut self.reports));
        match asked {
            Ok(1..) => Ok(()),
            Ok(0) => Err(format!("{} has ended; what it said is above", self.name)),
            Err(e) => Err(format!("asking {} for a report: {e}", self.name)),
        }
    }

    /// Its name and all its reports, one per line.
    pub fn reports(&self) -> (&str, &str) {
        (&self.name, &self.reports)
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
