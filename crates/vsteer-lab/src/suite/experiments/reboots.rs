//! An experiment with tuned's profiles and kernel parameters on a machine that really boots: is every run
//! accounted for, and does the machine return to its original state?
//!
//! An emulated machine (QEMU, TCG) has two disks. One holds the experiment's folder and vsteer's journals.
//! The other holds the kernel parameters of the next boot, like a boot loader's configuration. The lab acts
//! as the boot loader and starts QEMU with these parameters. The machine's first program is a script that
//! starts tuned (Debian's, with its bus: [`tuned`]) and starts or resumes the experiment, as a unit would.
//! Twice the power is cut in the middle of a run (SIGKILL to QEMU). Once only vsteer is killed, inside.
//!
//! Two facts show that a profile took effect: tuned's own report, and a sysctl that one of the two profiles
//! sets.
//!
//! Left out: a boot loader's own tools (grubby, grub-mkconfig: **untried**).

use super::super::{Bench, Findings};
use super::killed::{accounts, counting};
use super::tuned;
use crate::accel;
use crate::command;
use crate::fetch::Fetcher;
use crate::fetch::kernels::{self, Which};
use crate::image::initramfs::{Initramfs, libraries, read, stripped};
use crate::interrupt;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

/// The first part of the command line.
const LINE: &str = "console=ttyS0 quiet panic=-1 tsc=reliable no_timer_check nowatchdog";
const FOUND: &str = "mitigations=auto";
/// The original profile, and the sysctl with it; with throughput-performance it is 10.
const PROFILE: &str = "balanced";
const SWAPPINESS: &str = "60";
const BLOCKS: usize = 5;
const SETTINGS: usize = 4;
/// Time limit of a boot on a busy machine.
const BOOT_LIMIT: Duration = Duration::from_secs(300);
const BOOTS_MOST: usize = 40;
/// The power is cut when this many runs were announced on the console.
const CUTS: [usize; 2] = [4, 13];
/// In this boot, the script kills vsteer inside.
const KILLED_IN_BOOT: usize = 3;

const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /state
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox --install -s /bin
export PATH=/bin HOME=/ VSTEER_STATE=/state/vsteer
for m in /modules/*.ko; do insmod "$m"; done
mount -t ext4 /dev/vda /state || { echo "lab: no state disk"; poweroff -f; }
echo "lab: boot with $(cat /proc/cmdline)"
TUNEDboots=$(cat /state/boots 2>/dev/null || echo 0); boots=$((boots+1)); echo $boots > /state/boots; sync
E=/state/reboots.experiment
# Through a pipe: on a terminal it would write its lines over each other.
go() { { if [ -e $E/log.jsonl ]; then vsteer experiment resume $E --yes; else vsteer experiment run /experiment.toml -o $E --yes; fi; } 2>&1 | cat; }
if [ $boots = KILLED ]; then
  go & pid=$!
  n=0; while [ $n -lt 600 ] && ! tail -n 1 $E/log.jsonl | grep -q starting; do sleep 0.05; n=$((n+1)); done
  killall -9 vsteer; wait $pid; echo "lab: killed vsteer"
fi
go
echo "lab: ended"
if grep -q '"ended"' $E/log.jsonl; then
  echo "lab: profile $(tuned-adm active | sed 's/.*: //')"
  echo "lab: swappiness $(cat /proc/sys/vm/swappiness)"
  echo "lab: pending $(ls /state/vsteer/journal | grep -c 'journal$')"
  sed 's/^/lab: log /' $E/log.jsonl | grep -v '"begun"'
  sync; echo "lab: done"; umount /state; poweroff -f
fi
sleep 600; echo "lab: no boot came"; poweroff -f
"#;

const EXPERIMENT: &str = r#"name = "reboots"
design = "full"
runs_least = 5
runs_most = 5
[workload]
command = { sh = "i=0; while [ $i -lt 10000 ]; do i=$((i+1)); done; echo swappiness $(cat /proc/sys/vm/swappiness)" }
[[measure]]
name = "time"
of = "time"
unit = "s"
better = "less"
[[measure]]
name = "swappiness"
of = { printed = "swappiness {}" }
unit = ""
better = "less"
[[factor]]
name = "mitigations"
levels = ["mitigations=auto", "mitigations=off"]
kernel = true
[[factor]]
name = "profile"
levels = ["balanced", "throughput-performance"]
tuned = true
[boot]
set = { sh = "printf '%-512s' '{add}' | dd of=/dev/vdb bs=512 count=1 conv=fsync 2>/dev/null" }
reboot = "reboot -f"
"#;

struct Machine {
    emulator: PathBuf,
    kernel: PathBuf,
    initramfs: PathBuf,
    state: PathBuf,
    words: PathBuf,
}

/// The results of all boots.
#[derive(Default)]
struct Booted {
    console: Vec<String>,
    /// The kernel parameters of each boot.
    boots: Vec<String>,
    /// How often the power was cut.
    cuts: usize,
}

impl Booted {
    /// Boots until the experiment is finished.
    fn until_done(bench: &Bench, machine: &Machine, begun: Instant) -> Result<Booted, Fault> {
        let mut booted = Booted::default();
        let mut announced = 0;
        loop {
            let words = words_of(machine)?;
            eprintln!(
                "vsteer-lab: [{:5.0} s] boot {} with {words:?}",
                begun.elapsed().as_secs_f64(),
                booted.boots.len() + 1
            );
            booted.boots.push(words.clone());
            let cut_at = CUTS.get(booted.cuts).copied();
            let (said, cut) = boot(machine, &words, &mut announced, cut_at)?;
            booted.cuts += usize::from(cut);
            let done = said.iter().any(|l| l == "lab: done");
            let failed = said.iter().any(|l| l.starts_with("lab: no "));
            booted.console.extend(said);
            std::fs::write(bench.output.join("reboots-console.txt"), booted.console.join("\n"))
                .map_err(|e| Fault::io("writing the console", &e))?;
            if done {
                return Ok(booted);
            }
            if failed || booted.boots.len() >= BOOTS_MOST {
                let last = booted.console[booted.console.len().saturating_sub(8)..].join(" | ");
                let what = format!("the machine gave up in boot {}", booted.boots.len());
                return Err(Fault::new(FaultKind::Failed, what).because(last));
            }
        }
    }

    /// The rest of each line that starts with `begin`.
    fn told(&self, begin: &str) -> Vec<String> {
        self.console.iter().filter_map(|l| l.strip_prefix(begin)).map(str::to_owned).collect()
    }

    fn log(&self) -> Vec<Value> {
        self.told("lab: log ").iter().filter_map(|l| serde_json::from_str(l).ok()).collect()
    }
}

pub fn run(bench: &Bench, findings: &mut Findings) -> Result<Value, Fault> {
    let machine = build(bench)?;
    let begun = Instant::now();
    let booted = Booted::until_done(bench, &machine, begun)?;
    let Booted { console, boots, cuts } = &booted;
    let log = booted.log();
    let (starting, ran, counted, cut_off) = accounts(&log);
    let asked = log.iter().filter(|l| l["booting"].is_object()).count();
    let killed = console.iter().filter(|l| *l == "lab: killed vsteer").count();
    findings.claim(
        "an experiment over tuned's profile and a kernel word boots at least 4 times and comes to its end, with the power cut twice and vsteer killed once",
        asked >= 4 && *cuts == CUTS.len() && killed == 1,
        format!("boots requested: {asked}, made: {}, power cuts: {cuts}, vsteer killed: {killed}", boots.len()),
    );
    findings.claim(
        "every run is accounted for, and all that should count do",
        starting == ran && counted == BLOCKS * SETTINGS,
        format!("{starting} announced, {ran} told, {counted} count, {cut_off} cut off"),
    );
    claim_profiles(&log, findings);
    claim_as_found(&machine, &booted, &log, findings)?;
    Ok(json!({
        "boots": boots, "asked": asked, "power_cuts": cuts, "announced": starting, "told": ran, "counted": counted,
        "cut_off": cut_off, "seconds": begun.elapsed().as_secs_f64(),
    }))
}

fn claim_profiles(log: &[Value], findings: &mut Findings) {
    // The values of the sysctl that each setting's counted runs saw.
    let mut seen: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for run in counting(log) {
        let setting = run["place"]["setting"].as_u64().unwrap_or(u64::MAX);
        seen.entry(setting).or_default().insert(run["values"][1].to_string());
    }
    let with = |value: &str| seen.values().filter(|all| all.iter().eq([value])).count();
    findings.claim(
        "every run that counts had its profile in force, by the sysctl that one of the two sets",
        with("60.0") == SETTINGS / 2 && with("10.0") == SETTINGS / 2,
        format!("vm.swappiness by setting: {seen:?}"),
    );
}

fn claim_as_found(
    machine: &Machine,
    booted: &Booted,
    log: &[Value],
    findings: &mut Findings,
) -> Result<(), Fault> {
    let taken = log.iter().filter(|l| l["ran"]["bad"]["what"] == "not_taken").count();
    let last_words = words_of(machine)?;
    let last = |begin: &str| booted.told(begin).pop();
    let (swappiness, pending) = (last("lab: swappiness "), last("lab: pending "));
    let profile = last("lab: profile ");
    let last_boot = last("lab: boot with ").unwrap_or_default();
    findings.claim(
        "the machine is as it was found: the words of the next boot, those it runs with, tuned's profile, its sysctl; no setting failed to take",
        last_words == FOUND && last_boot.contains(FOUND) && profile.as_deref() == Some(PROFILE) && swappiness.as_deref() == Some(SWAPPINESS) && taken == 0,
        format!("next boot {last_words:?}, running with {last_boot:?}, profile {profile:?}, swappiness {swappiness:?}, journals {pending:?}, not taken {taken}"),
    );
    Ok(())
}

fn words_of(machine: &Machine) -> Result<String, Fault> {
    let bytes = read(&machine.words)?;
    let text = String::from_utf8_lossy(&bytes[..512.min(bytes.len())]).into_owned();
    Ok(text.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned())
}

fn build(bench: &Bench) -> Result<Machine, Fault> {
    let kernel = kernels::resolve(&bench.lab.cache, Which::Own, &["EXT4_FS", "VIRTIO_BLK"], false)?;
    let mut fetcher = Fetcher::of_system(&bench.lab.cache, false);
    let busybox = fetcher.binary("busybox-static")?;
    let program = bench.lab.program.with_file_name("vsteer");
    let mut image = Initramfs::new(&["proc", "sys", "tmp", "state", "bin", "run", "sbin"]);
    tuned::put(&mut image, &mut fetcher)?;
    let places = ["bin/busybox", "usr/bin/busybox"].map(|p| busybox.tree.join(p));
    let found = places
        .iter()
        .find(|p| p.is_file())
        .ok_or_else(|| Fault::new(FaultKind::NothingThere, "busybox-static has no busybox"))?;
    image.put("bin/busybox", 0o755, &read(found)?);
    image.put(
        "init",
        0o755,
        INIT.replace("KILLED", &KILLED_IN_BOOT.to_string()).replace("TUNED", tuned::BEGIN).as_bytes(),
    );
    image.put("experiment.toml", 0o644, EXPERIMENT.as_bytes());
    image.put("bin/vsteer", 0o755, &stripped(&program, &bench.output)?);
    for library in libraries(&program, &[])? {
        image.put(&library.to_string_lossy()[1..], 0o755, &read(&library)?);
    }
    image.modules(&kernel, &["virtio_pci", "virtio_blk", "ext4"])?;
    let file = |name: &str| bench.output.join(name);
    let machine = Machine {
        emulator: accel::emulator()?,
        kernel: kernel.vmlinuz.clone(),
        initramfs: file("reboots-initramfs"),
        state: file("reboots-state.raw"),
        words: file("reboots-words.raw"),
    };
    let write = |path: &Path, bytes: &[u8]| {
        std::fs::write(path, bytes).map_err(|e| Fault::io(format!("writing {}", path.display()), &e))
    };
    write(&machine.initramfs, &image.finish())?;
    let mut words = vec![b' '; 4096];
    words[..FOUND.len()].copy_from_slice(FOUND.as_bytes());
    write(&machine.words, &words)?;
    write(&machine.state, &[])?;
    let sized = std::fs::File::options().write(true).open(&machine.state).and_then(|f| f.set_len(64 << 20));
    sized.map_err(|e| Fault::io("making the state disk", &e))?;
    // Checksums of metadata would need another module.
    let mut make = Command::new("mke2fs");
    make.args(["-q", "-F", "-t", "ext4", "-O", "^metadata_csum"]).arg(&machine.state);
    command::output(&mut make, Duration::from_secs(60))?;
    Ok(machine)
}

/// Starts the machine with these kernel parameters.
fn switched_on(machine: &Machine, words: &str) -> Result<Child, Fault> {
    let disk = |file: &Path| {
        format!("file={},if=virtio,format=raw,cache=writeback", file.to_string_lossy().replace(',', ",,"))
    };
    Command::new(&machine.emulator)
        .args([
            "-accel",
            "tcg",
            "-cpu",
            "max",
            "-m",
            "2048",
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
        ])
        .args(["-serial", "stdio", "-no-reboot", "-kernel"])
        .arg(&machine.kernel)
        .arg("-initrd")
        .arg(&machine.initramfs)
        .args(["-append", &format!("{LINE} {words}")])
        .args(["-drive", &disk(&machine.state), "-drive", &disk(&machine.words)])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| Fault::io("starting QEMU", &e))
}

/// Its output, line by line, as it arrives.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let out = child.stdout.take().expect("stdout is piped");
    let (send, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if send.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

/// One boot. Returns its output, and whether the power was cut.
fn boot(
    machine: &Machine,
    words: &str,
    announced: &mut usize,
    cut_at: Option<usize>,
) -> Result<(Vec<String>, bool), Fault> {
    let mut child = switched_on(machine, words)?;
    let lines = lines_of(&mut child);
    let begun = Instant::now();
    let (mut said, mut cut) = (Vec::new(), false);
    let outcome = loop {
        match lines.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => {
                *announced += usize::from(line.contains(", run ") && line.trim_start().starts_with("block "));
                said.push(line);
                if cut_at.is_some_and(|at| *announced >= at) {
                    // In the middle of the next run: its line is announced, and its result is not reported.
                    std::thread::sleep(Duration::from_millis(40));
                    cut = true;
                    break Ok(());
                }
            }
            Err(RecvTimeoutError::Disconnected) => break Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Err(fault) = interrupt::check() {
            break Err(fault);
        }
        if begun.elapsed() > BOOT_LIMIT {
            let last = said[said.len().saturating_sub(8)..].join(" | ");
            break Err(Fault::new(FaultKind::Failed, "a boot did not end").because(last));
        }
    };
    if cut || outcome.is_err() {
        let _ = child.kill();
    }
    let _ = child.wait();
    outcome.map(|()| (said, cut))
}
