//! Changes the definition of a VM of Proxmox VE with `qm set`, and puts it back.
//!
//! Proxmox VE keeps a VM's options in files of a cluster file system, which only its own tools lock. So vsteer runs `qm` by
//! its absolute path, with the number of a VM whose process belongs to root. It reads an option with `qm config` before and
//! after. The journal keeps the option's former value, or that it was not set, which `qm set --delete` restores.
//!
//! Proxmox VE applies `cpuunits` and `cpulimit` to the running VM at once, and `affinity` when the VM starts. It has one
//! affinity for all of a VM's threads, so a plan must pin all vCPUs to the same pCPUs ([`together`]).
//!
//! Source: `man qm` of Proxmox VE 8; `PVE/QemuServer.pm` (`vmconfig_hotplug_pending`). Tested with a stand-in only.
//! Left out: other nodes of a cluster, and a `qm set` that still waits for its lock when vsteer is killed.

use super::{fault, help};
use crate::actuate::{QmOption, Restored};
use crate::kvm::host::KvmHost;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use vsteer_core::CpuSet;
use vsteer_core::nouns::{Manager, Role, VmConfig};
use vsteer_core::setting::{Affinity, Change, Quota, QuotaScope, Step, Weight};
use vsteer_core::{Fault, FaultKind};

/// Where Proxmox VE installs its tool.
pub const PROGRAM: &str = "/usr/sbin/qm";
/// `qm` itself waits 10 s for a VM's lock.
const LIMIT: Duration = Duration::from_secs(60);
/// How often to look whether it has ended.
const LOOK: Duration = Duration::from_millis(20);
/// How long another program may hold the output open when `qm` has ended.
const OPEN: Duration = Duration::from_secs(5);
/// More output than this is not read: a VM's options are some KiB.
const OUTPUT: u64 = 1 << 20;
/// Folders of the programs that `qm` itself runs.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// The option of `qm set` that holds this change, with its value; `None` if there is none.
pub(super) fn option(change: &Change) -> Option<(&'static str, String)> {
    Some(match change {
        Change::Affinity(Affinity { role: Role::Vcpu(_), to, .. }) => ("affinity", to.to_string()),
        Change::Weight(Weight { to, .. }) => ("cpuunits", to.number().to_string()),
        Change::Quota(Quota { scope: QuotaScope::WholeVm, to, .. }) => {
            let cpus = to.map_or(0.0, vsteer_core::nouns::Quota::cpus);
            ("cpulimit", format!("{}", (cpus * 1e4).round() / 1e4))
        }
        _ => return None,
    })
}

/// Does Proxmox VE also apply this change to the running VM?
pub(super) fn applies_at_once(change: &Change) -> bool {
    matches!(change, Change::Weight(_) | Change::Quota(_))
}

/// Are these values of an option the same? `cpulimit` may be written as 2 or 2.0.
fn same(a: Option<&str>, b: Option<&str>) -> bool {
    let number = |text: Option<&str>| text.and_then(|t| t.parse::<f64>().ok());
    match (number(a), number(b)) {
        (Some(a), Some(b)) => (a - b).abs() < 1e-9,
        _ => a == b,
    }
}

/// Why `qm` did not do what it was asked.
#[derive(Debug)]
struct Failed {
    /// The command and what became of it.
    what: String,
    /// What it printed last.
    said: String,
}

impl Failed {
    /// Has Proxmox VE no VM of this number?
    fn is_gone(&self) -> bool {
        self.said.contains("Configuration file") && self.said.contains("does not exist")
    }

    fn fault(self, step: &Step) -> Fault {
        let said = self.said.to_lowercase();
        let help = if said.contains("lock") {
            "another task of Proxmox VE changes the VM (a backup, a migration): apply again when it has ended"
        } else if said.contains("quorum") || said.contains("permission denied") {
            "check that this node may write the cluster's configuration: pvecm status"
        } else {
            "run the command by hand to see what Proxmox VE answers"
        };
        let cause = if self.said.is_empty() { self.what } else { format!("{}: {}", self.what, self.said) };
        fault(FaultKind::NotApplied, step).because(cause).help(help)
    }
}

/// Reads all that a program prints while it runs, and passes it on once nobody can print any more.
fn reader(from: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(from) = from {
            let _ = from.take(OUTPUT).read_to_end(&mut bytes);
        }
        let _ = tell.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    told
}

/// The exit code of a program; `None` if it did not end in time and was killed.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<i32>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.code().unwrap_or(-1)));
        }
        if begun.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    }
}

/// Runs `qm` with these words. Returns what it printed; `None` if a program that it started holds its output open.
fn run(program: &Path, words: &[&str], limit: Duration) -> Result<Option<String>, Failed> {
    let line = format!("{} {}", program.display(), words.join(" "));
    let failed = |what: String, said: &str| Failed { what, said: said.to_owned() };
    let spawned = Command::new(program)
        .args(words)
        .env_clear()
        .envs([("PATH", PATH), ("LC_ALL", "C")])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = spawned.map_err(|e| failed(format!("cannot run {line}"), &e.to_string()))?;
    let (printed, complaints) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let code =
        wait(&mut child, limit).map_err(|e| failed(format!("cannot wait for {line}"), &e.to_string()))?;
    let Some(code) = code else {
        return Err(failed(format!("{line} did not end in {} s", limit.as_secs()), ""));
    };
    let whole = |from: Receiver<String>| from.recv_timeout(OPEN).ok();
    if code == 0 {
        return Ok(whole(printed));
    }
    let complaints = whole(complaints).unwrap_or_default();
    let said = complaints.lines().map(str::trim).rfind(|l| !l.is_empty()).unwrap_or_default();
    Err(failed(format!("{line} failed with exit code {code}"), said))
}

/// A VM's options by name.
fn options(program: &Path, id: u32) -> Result<BTreeMap<String, String>, Failed> {
    let text = run(program, &["config", &id.to_string()], LIMIT)?;
    // Half an output could hide an option.
    let text = text.ok_or_else(|| Failed {
        what: format!("{} config {id} ended and left its output open", program.display()),
        said: String::new(),
    })?;
    let of =
        |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    Ok(text.lines().filter_map(of).collect())
}

/// Sets an option, or removes it, and reads it back.
fn set(program: &Path, id: u32, option: &str, value: Option<&str>) -> Result<(), Failed> {
    let (number, flag) = (id.to_string(), format!("--{option}"));
    let words: [&str; 4] = match value {
        Some(value) => ["set", &number, &flag, value],
        None => ["set", &number, "--delete", option],
    };
    run(program, &words, LIMIT)?;
    let now = options(program, id)?.remove(option);
    if same(now.as_deref(), value) {
        return Ok(());
    }
    let now = now.as_deref().unwrap_or("not set");
    let what = format!("Proxmox VE accepted {} {} {option}, but its value is {now}", words[0], words[1]);
    Err(Failed { what, said: String::new() })
}

/// The option that a step overwrites, with its present value.
pub(super) fn former(program: &Path, id: u32, step: &Step) -> Result<QmOption, Fault> {
    let Some((name, to)) = option(&step.change) else {
        return Err(fault(FaultKind::Unsupported, step).because(help::NO_QM_OPTION));
    };
    let value = options(program, id).map_err(|f| f.fault(step))?.remove(name);
    Ok(QmOption { id, name: name.to_owned(), value, to })
}

/// Makes a step in the definition.
pub(super) fn make(program: &Path, id: u32, step: &Step) -> Result<(), Fault> {
    let Some((name, to)) = option(&step.change) else {
        return Err(fault(FaultKind::Unsupported, step).because(help::NO_QM_OPTION));
    };
    set(program, id, name, Some(&to)).map_err(|f| f.fault(step))
}

/// Does the journal say what this step can have overwritten? `qm` has options that run programs.
fn is_of_step(step: &Step, former: &QmOption) -> bool {
    let is_plain = |c: char| c.is_ascii_digit() || matches!(c, ',' | '-' | '.');
    option(&step.change).is_some_and(|(name, _)| name == former.name)
        && former.value.as_deref().is_none_or(|value| value.chars().all(is_plain) && !value.starts_with('-'))
}

/// Puts an option back. The VM may be off.
pub(super) fn restore(program: &Path, step: &Step, former: &QmOption) -> Result<Restored, Fault> {
    if !is_of_step(step, former) {
        return Err(fault(FaultKind::BadInput, step)
            .because(format!("the journal wants option {:?} set to {:?}", former.name, former.value))
            .help("set it by hand if that is right: qm set"));
    }
    let now = match options(program, former.id) {
        Ok(now) => now,
        Err(failed) if failed.is_gone() => {
            return Ok(Restored::Gone(format!("Proxmox VE no longer has a VM {}", former.id)));
        }
        Err(failed) => return Err(failed.fault(step)),
    };
    if same(now.get(&former.name).map(String::as_str), former.value.as_deref()) {
        return Ok(Restored::Back);
    }
    let done = set(program, former.id, &former.name, former.value.as_deref());
    done.map(|()| Restored::Back).map_err(|failed| failed.fault(step))
}

/// The present value of an option, if somebody changed it since the step.
pub(super) fn changed_since(program: &Path, former: &QmOption) -> Option<String> {
    let now = options(program, former.id).ok()?.remove(&former.name);
    let is = |value: Option<&str>| same(now.as_deref(), value);
    let ours = is(Some(&former.to)) || is(former.value.as_deref());
    (!ours).then(|| format!("{} {}", former.name, now.as_deref().unwrap_or("not set")))
}

/// The command of a step, for people.
pub(super) fn line(program: &Path, id: u32, change: &Change) -> Option<String> {
    option(change).map(|(name, to)| format!("{} set {id} --{name} {to}", program.display()))
}

/// The command that makes this change in Proxmox's definition; `None` if `qm set` has no option for it. Untried; from
/// `man qm` of Proxmox VE 8.
pub fn proxmox_command(id: u32, change: &Change) -> Option<String> {
    line(Path::new("qm"), id, change)
}

/// The number of a VM of Proxmox VE.
pub(super) fn number(vm: &VmConfig) -> Option<u32> {
    match vm.manager {
        Manager::Proxmox(id) => Some(id),
        _ => None,
    }
}

impl KvmHost {
    /// Refuses pins of a plan that one affinity for the whole VM cannot hold.
    pub(super) fn refuse_unlike_pins(&mut self, steps: &[Step]) -> Result<(), Fault> {
        let mut pinned: BTreeMap<&str, Vec<&Step>> = BTreeMap::new();
        for step in steps.iter().filter(|step| matches!(step.change, Change::Affinity(_))) {
            pinned.entry(&step.vm.0).or_default().push(step);
        }
        for of_vm in pinned.into_values() {
            let step = of_vm[0];
            let pin = |step: &&'_ Step| match &step.change {
                Change::Affinity(Affinity { role, to, .. }) => Some((*role, to.clone())),
                _ => None,
            };
            let pins: Vec<(Role, CpuSet)> = of_vm.iter().filter_map(pin).collect();
            let vm = self.subject(step)?.vm;
            if number(&vm).is_some() && !together(&vm, &pins) {
                return Err(fault(FaultKind::Unsupported, step).because(help::ONE_AFFINITY).help(
                    "pin the running VM only (--scope live), or pin all vCPUs of the VM to the same pCPUs",
                ));
            }
        }
        Ok(())
    }
}

/// Do these pins give all vCPUs of a VM the same pCPUs, and pin no other thread?
fn together(vm: &VmConfig, pins: &[(Role, CpuSet)]) -> bool {
    let roles: BTreeSet<Role> = pins.iter().map(|(role, _)| *role).collect();
    let vcpus: BTreeSet<Role> = vm.vcpus().map(|t| t.role).collect();
    roles == vcpus && pins.windows(2).all(|pair| pair[0].1 == pair[1].1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::nouns::{CpuWeight, Quota as Limit, Tid, VmId, VmThread};

    /// `qm` of Proxmox VE as its manual describes it, for VMs whose options are in files beside it.
    fn stand_in(folder: &Path) -> std::path::PathBuf {
        let program = folder.join("qm");
        crate::stand_in::script(&program, include_str!("qm_stand_in.sh"));
        program
    }

    fn step(change: Change) -> Step {
        Step { vm: VmId("proxmox:100".into()), vm_name: "web".into(), change, reason: "a test".into() }
    }

    fn weight(to: u64) -> Step {
        step(Change::Weight(Weight { from: CpuWeight::Weight(100), to: CpuWeight::Weight(to) }))
    }

    fn quota(to: Option<Limit>) -> Step {
        step(Change::Quota(Quota { scope: QuotaScope::WholeVm, from: None, to }))
    }

    #[test]
    fn a_journal_does_not_make_qm_set_anything_else() {
        let former = |name: &str, value: Option<&str>| QmOption {
            id: 100,
            name: name.into(),
            value: value.map(Into::into),
            to: "1".into(),
        };
        assert!(is_of_step(&weight(1), &former("cpuunits", Some("100"))));
        assert!(is_of_step(&weight(1), &former("cpuunits", None)));
        for (name, value) in [
            ("hookscript", Some("local:snippets/x")),
            ("cpulimit", Some("2")),
            ("cpuunits", Some("--hookscript")),
            ("cpuunits", Some("1 x")),
        ] {
            let restored = restore(Path::new("/nonexistent"), &weight(1), &former(name, value));
            assert_eq!(restored.unwrap_err().kind, FaultKind::BadInput, "{name} {value:?}");
        }
    }

    fn conf(folder: &Path) -> String {
        std::fs::read_to_string(folder.join("100.conf")).unwrap()
    }

    #[test]
    fn an_option_is_set_and_put_back_to_what_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let program = stand_in(dir.path());
        let before = "cores: 2\ncpulimit: 2.0\nname: web\n";
        std::fs::write(dir.path().join("100.conf"), before).unwrap();
        let limit = Some(Limit { quota_us: 150_000, period_us: 100_000 });
        for (step, line) in
            [(weight(400), "cpuunits: 400"), (quota(limit), "cpulimit: 1.5"), (quota(None), "cpulimit: 0")]
        {
            let kept = former(&program, 100, &step).unwrap();
            let kept: QmOption = serde_json::from_str(&serde_json::to_string(&kept).unwrap()).unwrap();
            make(&program, 100, &step).unwrap();
            assert!(conf(dir.path()).lines().any(|l| l == line), "{}", conf(dir.path()));
            assert_eq!(changed_since(&program, &kept), None);
            // Twice, as after a kill in the middle of a rollback.
            for _ in 0..2 {
                assert_eq!(restore(&program, &step, &kept).unwrap(), Restored::Back);
                assert_eq!(conf(dir.path()), before);
            }
        }
        let calls = std::fs::read_to_string(dir.path().join("calls")).unwrap();
        let sets: Vec<&str> = calls.lines().filter(|l| l.starts_with("set")).collect();
        assert_eq!(
            sets[..3],
            ["set 100 --cpuunits 400", "set 100 --delete cpuunits", "set 100 --cpulimit 1.5"]
        );
        assert_eq!(sets.len(), 6, "what is as it was is not set again: {sets:?}");
    }

    #[test]
    fn what_another_person_set_since_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let program = stand_in(dir.path());
        std::fs::write(dir.path().join("100.conf"), "cpuunits: 100\n").unwrap();
        let kept = former(&program, 100, &weight(400)).unwrap();
        make(&program, 100, &weight(400)).unwrap();
        for (now, expected) in [
            ("cpuunits: 400\n", None),
            ("cpuunits: 100\n", None),
            ("cpuunits: 300\n", Some("cpuunits 300")),
            ("", Some("cpuunits not set")),
        ] {
            std::fs::write(dir.path().join("100.conf"), now).unwrap();
            assert_eq!(changed_since(&program, &kept).as_deref(), expected);
        }
    }

    #[test]
    fn refusals_of_qm_are_told_with_help() {
        let dir = tempfile::tempdir().unwrap();
        let program = stand_in(dir.path());
        std::fs::write(dir.path().join("100.conf"), "cpuunits: 100\n").unwrap();
        for (fail, cause, help) in [
            ("VM is locked (backup)", "exit code 255: VM is locked (backup)", "backup"),
            ("unable to open file '/etc/pve/x.tmp' - Permission denied", "Permission denied", "pvecm status"),
            ("400 Parameter verification failed.", "Parameter verification", "by hand"),
        ] {
            std::fs::write(dir.path().join("fail"), fail).unwrap();
            let fault = make(&program, 100, &weight(400)).unwrap_err();
            assert_eq!(fault.kind, FaultKind::NotApplied);
            assert!(fault.cause.as_ref().unwrap().contains(cause), "{fault}");
            assert!(fault.help.as_ref().unwrap().contains(help), "{fault}");
            assert_eq!(conf(dir.path()), "cpuunits: 100\n");
        }
        // It says that it is done, and is not.
        std::fs::write(dir.path().join("fail"), "ignore").unwrap();
        let fault = make(&program, 100, &weight(400)).unwrap_err();
        assert!(fault.cause.as_ref().unwrap().ends_with("its value is 100"), "{fault}");
        // The VM is gone: nothing to put back. Without an answer nobody knows.
        std::fs::remove_file(dir.path().join("fail")).unwrap();
        let kept = former(&program, 100, &weight(400)).unwrap();
        std::fs::remove_file(dir.path().join("100.conf")).unwrap();
        assert!(matches!(restore(&program, &weight(400), &kept).unwrap(), Restored::Gone(_)));
        std::fs::remove_file(&program).unwrap();
        assert!(restore(&program, &weight(400), &kept).is_err());
        let fault = former(&program, 100, &weight(400)).unwrap_err();
        assert!(fault.cause.unwrap().starts_with("cannot run"), "a missing program");
    }

    #[test]
    fn a_qm_that_hangs_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let program = |name: &str, text: &str| {
            let path = dir.path().join(name);
            crate::stand_in::script(&path, text);
            path
        };
        let begun = Instant::now();
        let hangs = program("hangs", "exec sleep 60");
        let failed = run(&hangs, &["config", "100"], Duration::from_millis(200)).unwrap_err();
        assert!(failed.what.contains("did not end"), "{failed:?}");
        assert!(begun.elapsed() < Duration::from_secs(10));
        // It leaves a process behind that holds its output: half of it is not taken for the whole.
        let leaves = program("leaves", "echo 'cores: 2'; (sleep 20 2>/dev/null) & exit 0");
        let failed = options(&leaves, 100).unwrap_err();
        assert!(failed.what.contains("left its output open"), "{failed:?}");
    }

    #[test]
    fn one_affinity_holds_only_equal_pins_of_all_vcpus() {
        let thread = |tid, role| VmThread {
            tid: Tid(tid),
            role,
            affinity: CpuSet::first(4),
            class: None,
            cgroup: None,
            prefers: None,
            reserved: None,
        };
        let threads = vec![thread(1, Role::Vcpu(0)), thread(2, Role::Vcpu(1)), thread(3, Role::Emulator)];
        let vm = VmConfig { threads, ..VmConfig::new(VmId("proxmox:100".into()), "web", 1) };
        let (a, b) = (CpuSet::first(2), CpuSet::single(3));
        let (first, second) = (Role::Vcpu(0), Role::Vcpu(1));
        let pins = |all: &[(Role, &CpuSet)]| {
            all.iter().map(|(role, cpus)| (*role, (*cpus).clone())).collect::<Vec<_>>()
        };
        assert!(together(&vm, &pins(&[(first, &a), (second, &a)])));
        assert!(!together(&vm, &pins(&[(first, &a), (second, &b)])), "each has its own");
        assert!(!together(&vm, &pins(&[(first, &a)])), "one is left out");
        assert!(
            !together(&vm, &pins(&[(first, &a), (second, &a), (Role::Emulator, &a)])),
            "qm has none for it"
        );
    }
}
