//! Runs an emulated host whose behaviour does not depend on the real machine, with QEMU's instruction
//! counting.
//!
//! - `-icount shift=1,sleep=off`: the clock is the number of instructions, 2 ns each (a job may change this).
//!   Time in which every pCPU idles passes at once. `thread=single`: one thread emulates the pCPUs in turn,
//!   always in the same order.
//! - `-rtc ...,clock=vm`, `-seed`, `-cpu ...,-rdrand`, `nokaslr`: no time and no randomness from outside.
//! - `-cpu EPYC,+svm`: QEMU emulates AMD's virtualisation, not Intel's. `-monitor`: QEMU's MWAIT spins, which
//!   would keep an idle pCPU busy.
//! - No disk, no network: QEMU serves these from its main thread at times that depend on the real machine,
//!   and each time changes the instruction at which the pCPUs take turns. Results leave through memory that
//!   both sides see (vsteer-guest, host/window.rs).
//! - `maxcpus=1`: vsteer-guest starts the other pCPUs after the kernel's boot. If Linux 6.1 does so itself,
//!   it waits for them without end (seen in QEMU 7.2).
//! - `tsc=reliable`: the kernel must not compare clocks at times that it chooses itself.
//!
//! Source: QEMU 7.2, `docs/devel/tcg-icount.rst`, `accel/tcg/tcg-accel-ops-rr.c`.
//!
//! Left out: QEMU's own record and replay, which would store random events that do not occur here.

use super::job::Job;
use crate::command;
use crate::fetch::kernels::FullKernel;
use crate::process::{self, ProcessId};
use crate::{interrupt, slots};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

/// An instruction takes 2^SHIFT ns, for hosts whose job cannot set this.
pub const SHIFT: u32 = 1;
/// The start of vsteer-guest's lines (its host/mod.rs).
const SAYS: &str = "vsteer-emulated: ";
/// Room for results, a power of two like every PCI resource. Unwritten parts take no disk space.
const RESULTS_MIB: u64 = 256;
/// The file that every run leaves in the folder of results.
pub const CONSOLE: &str = "console.txt";
/// The time from the last line to the power-off, wall-clock time.
const POWER_OFF_WITHIN: Duration = Duration::from_secs(15);
/// How many lines of the console a fault shows.
const LAST_LINES: usize = 12;

/// The files of a run.
#[derive(Debug, Clone)]
pub struct Files {
    /// The initramfs that it boots.
    pub initramfs: PathBuf,
    /// The memory to which it writes results.
    pub results: PathBuf,
    /// Its console output.
    pub console: PathBuf,
    /// QEMU's output.
    pub words: PathBuf,
}

impl Files {
    /// The files in this folder.
    pub fn below(folder: &Path) -> Files {
        let file = |name: &str| folder.join(name);
        Files {
            initramfs: file("initramfs"),
            results: file("results"),
            console: file(CONSOLE),
            words: file("qemu.txt"),
        }
    }
}

impl Files {
    /// QEMU's arguments for the memory with the results.
    pub fn window(&self) -> [String; 4] {
        // A comma would end the file name, so it is doubled.
        let results = self.results.to_string_lossy().replace(',', ",,");
        let memory =
            format!("memory-backend-file,id=results,share=on,size={RESULTS_MIB}M,mem-path={results}");
        ["-object".into(), memory, "-device".into(), "ivshmem-plain,memdev=results".into()]
    }
}

/// An emulated host to run.
pub struct Machine<'a> {
    pub emulator: &'a Path,
    pub kernel: &'a FullKernel,
    /// The job, which determines its size.
    pub job: &'a Job,
    pub seed: u64,
    pub files: &'a Files,
}

impl Machine<'_> {
    /// QEMU's version, as QEMU reports it.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn version(&self) -> Result<String, Fault> {
        let text = command::output(Command::new(self.emulator).arg("--version"), Duration::from_secs(10))?;
        Ok(text.lines().next().unwrap_or_default().trim().to_owned())
    }

    pub fn arguments(&self) -> Vec<String> {
        let words = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut all = words(format!(
            "-accel tcg,thread=single -icount shift={},sleep=off -rtc base=2026-01-01T00:00:00,clock=vm \
             -seed {} -cpu EPYC,+svm,+npt,-rdrand,-monitor -smp {} -m {} -nodefaults -no-user-config -display none \
             -serial stdio -no-reboot",
            self.job.shift,
            self.seed,
            self.pcpus(),
            self.job.memory_mib
        ));
        if self.job.nodes > 1 {
            let (cpus, mib) = (self.job.pcpus / self.job.nodes, self.job.memory_mib / self.job.nodes);
            for node in 0..self.job.nodes {
                all.extend(words(format!(
                    "-object memory-backend-ram,id=m{node},size={mib}M -numa node,nodeid={node},memdev=m{node},cpus={}-{}",
                    node * cpus,
                    (node + 1) * cpus - 1
                )));
            }
        }
        let path = |p: &Path| p.to_string_lossy().into_owned();
        all.extend(self.files.window());
        all.extend(["-kernel".into(), path(&self.kernel.vmlinuz)]);
        all.extend(["-initrd".into(), path(&self.files.initramfs)]);
        let kernel = "console=ttyS0 panic=-1 quiet nokaslr mitigations=off tsc=reliable maxcpus=1";
        all.extend(["-append".into(), kernel.into()]);
        all
    }

    /// The word after `-smp`. A node is a socket where cores have several threads.
    fn pcpus(&self) -> String {
        let Job { pcpus, nodes, threads, .. } = self.job;
        match threads {
            1 => pcpus.to_string(),
            _ => format!("{pcpus},sockets={nodes},cores={},threads={threads}", pcpus / nodes / threads),
        }
    }

    /// Runs the host; returns its results.
    ///
    /// # Errors
    /// As [`boot`].
    pub fn run(&self, limit: Duration) -> Result<Vec<u8>, Fault> {
        boot(self.emulator, &self.arguments(), self.files, limit)
    }
}

/// Runs a host of this kind until it powers off; returns its results. Its first program is vsteer-guest,
/// whose lines arrive on the emulator's standard output. Of the files, only the console output remains.
///
/// # Errors
/// The host reported a failure, ended without reporting that it is done, did not end within `limit`, or the
/// person interrupted. The fault has the console's last lines.
pub fn boot(emulator: &Path, arguments: &[String], files: &Files, limit: Duration) -> Result<Vec<u8>, Fault> {
    let _slot = slots::take()?;
    let results = watched_boot(emulator, arguments, files, limit).and_then(|bytes| {
        let mut results = vec![0; bytes];
        std::fs::File::open(&files.results)
            .and_then(|mut file| file.read_exact(&mut results))
            .map_err(|e| Fault::io(format!("reading {}", files.results.display()), &e))?;
        Ok(results)
    });
    // Neither is needed any more, even if the boot failed: the initramfs can be built again, and the results
    // have been read.
    for file in [&files.initramfs, &files.results] {
        let _ = std::fs::remove_file(file);
    }
    results
}

/// Boots and watches the host; returns the number of bytes of results.
fn watched_boot(
    emulator: &Path,
    arguments: &[String],
    files: &Files,
    limit: Duration,
) -> Result<usize, Fault> {
    let results = std::fs::File::create(&files.results).and_then(|f| f.set_len(RESULTS_MIB << 20));
    results.map_err(|e| Fault::io(format!("making {}", files.results.display()), &e))?;
    let words = std::fs::File::create(&files.words)
        .map_err(|e| Fault::io(format!("writing {}", files.words.display()), &e))?;
    // Runs inside `timeout`, so that it ends even if this program is killed.
    let mut child = Command::new("timeout")
        .args(["--kill-after=5", &(limit.as_secs() + 5).to_string()])
        .arg(emulator)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(words)
        .spawn()
        .map_err(|e| Fault::io(format!("starting {}", emulator.display()), &e))?;
    let lines = lines_of(child.stdout.take().expect("stdout is piped"));
    let mut said = Vec::new();
    let watched = watch(&lines, &mut said, limit);
    let gone = matches!(watched, Ok(true));
    if !gone {
        end(&mut child)?;
    }
    let ended = child.wait().map_err(|e| Fault::io("waiting for QEMU", &e))?;
    let text = said.join("\n") + "\n";
    crate::files::write_file(&files.console, &text)?;
    watched?;
    if let Some(bytes) = said.iter().find_map(|l| done(l)).filter(|_| ended.success() || !gone) {
        return Ok(bytes);
    }
    let own = said.iter().rev().find_map(|l| l.strip_prefix(&format!("{SAYS}failed: ")));
    let what = match own {
        Some(why) => format!("the emulated host gave up: {why}"),
        None => format!("the emulated host ended before it was done ({ended})"),
    };
    let emulator_says = std::fs::read_to_string(&files.words).unwrap_or_default();
    let emulator_says: Vec<&str> = emulator_says.lines().filter(|l| !l.contains("warning:")).collect();
    Err(Fault::new(FaultKind::Failed, what)
        .because(format!("its last lines: {} {}", last(&said), emulator_says.join("; ")))
        .help(format!("the whole console is in {}", files.console.display())))
}

/// N of `done, N bytes`.
fn done(line: &str) -> Option<usize> {
    line.strip_prefix(SAYS)?.strip_prefix("done, ")?.strip_suffix(" bytes")?.parse().ok()
}

fn last(said: &[String]) -> String {
    said[said.len().saturating_sub(LAST_LINES)..].join(" | ")
}

fn lines_of(out: ChildStdout) -> Receiver<String> {
    let (send, lines) = channel();
    std::thread::spawn(move || {
        let mut out = BufReader::new(out);
        let mut bytes = Vec::new();
        while out.read_until(b'\n', &mut bytes).is_ok_and(|n| n > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            bytes.clear();
            if send.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

/// Collects the console until it ends, and shows the host's progress. Returns whether it ended. A hypervisor
/// may not find the power switch; then this returns some time after the last relevant line.
fn watch(lines: &Receiver<String>, said: &mut Vec<String>, limit: Duration) -> Result<bool, Fault> {
    let begun = Instant::now();
    let mut through = None;
    loop {
        match lines.recv_timeout(Duration::from_millis(100)) {
            Ok(line) => {
                if let Some(progress) = line.strip_prefix(SAYS) {
                    eprintln!("vsteer-lab: [{:5.1} s] {progress}", begun.elapsed().as_secs_f64());
                }
                if done(&line).is_some() || line.starts_with(&format!("{SAYS}failed: ")) {
                    through = Some(Instant::now());
                }
                said.push(line);
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(true),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if through.is_some_and(|at| at.elapsed() >= POWER_OFF_WITHIN) {
            return Ok(false);
        }
        interrupt::check()?;
        if begun.elapsed() >= limit {
            let what = format!("the emulated host was not done within {} s", limit.as_secs());
            return Err(Fault::new(FaultKind::Failed, what)
                .because(format!("its last lines: {}", last(said)))
                .help("allow more by --limit, or record fewer virtual seconds"));
        }
    }
}

/// Ends `timeout`, which ends QEMU.
fn end(child: &mut Child) -> Result<(), Fault> {
    let id = i32::try_from(child.id()).ok().and_then(ProcessId::of);
    id.map_or(Ok(()), |id| process::end(&[id], Duration::from_secs(10)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_is_gathered_to_its_end_or_limit() {
        let (send, lines) = channel();
        for line in ["booting", "vsteer-emulated: up", "last"] {
            send.send(line.to_owned()).unwrap();
        }
        let mut said = Vec::new();
        let fault = watch(&lines, &mut said, Duration::from_millis(250)).unwrap_err();
        assert!(fault.to_string().contains("vsteer-emulated: up | last"), "{fault}");
        assert_eq!(said.iter().find_map(|l| done(l)), None);
        assert_eq!(done("vsteer-emulated: done, 512 bytes"), Some(512));
        drop(send);
        assert_eq!(watch(&lines, &mut said, Duration::from_secs(9)), Ok(true));
        assert_eq!(said.len(), 3);
    }

    #[test]
    fn every_node_gets_its_share() {
        let job = "pcpus = 4\nnodes = 2\n[[case]]\nname=\"a\"\n[[case.vm]]\nname=\"v\"\nworkload=\"burn\"\n";
        let job = Job::parse(job).unwrap();
        let files = Files::below(Path::new("/r,x"));
        let (vmlinuz, config, modules) = (PathBuf::from("/k"), PathBuf::new(), PathBuf::new());
        let kernel = FullKernel { release: "1".into(), vmlinuz, config, modules, packages: Vec::new() };
        let machine =
            Machine { emulator: Path::new("q"), kernel: &kernel, job: &job, seed: 7, files: &files };
        let line = machine.arguments().join(" ");
        for part in [
            "-smp 4",
            "nodeid=1,memdev=m1,cpus=2-3",
            "size=512M",
            "-seed 7",
            "shift=1,sleep=off",
            "mem-path=/r,,x/results",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }
}
