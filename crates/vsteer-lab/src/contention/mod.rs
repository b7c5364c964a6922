//! Starts a lab of VMs that compete for CPUs.
//!
//! The lab runs small real VMs on its own libvirt ([`crate::libvirtd`]), with more vCPUs than the host has
//! CPUs, and with known workloads. The workloads are the lab's secret: an observer sees only names, sizes and
//! an order that are drawn from the seed. Everything is recorded before it is made ([`crate::state`]). On a
//! failure or an interrupt, everything is taken down ([`down`]). Needs root. Left out: networks, disks,
//! migration.

pub mod domain;
pub mod down;
pub mod names;
pub mod spec;

use crate::accel::{self, Accel, Decision};
use crate::fetch::{self, Fetcher};
use crate::files::{make_folder, write_file};
use crate::process::{ProcessId, boot_id};
use crate::report::clock;
use crate::report::stamp::{console_file, stamped_file};
use crate::report::window::{self, VmMeasured};
use crate::state::{self, State, Vm};
use crate::{image, interrupt, libvirtd, partition, preflight};
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use spec::Spec;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

/// From a VM's start to its first report. Under emulation it takes some 10 s on a full host, and 3 s alone.
const BOOT_LIMIT: Duration = Duration::from_secs(180);
/// A VM that has not reported by then is reset once; boots take 5 to 30 s. Some emulated VMs have stopped
/// early in their boot, with nothing on their console, when several started at the same time.
const RESET_AFTER: Duration = Duration::from_secs(60);
/// After their kernel's start, guests idle for this time, so that the lab's burners do not slow down the boot
/// of others. `up` ends when all guests have begun to work.
const WORK_BEGINS: Duration = Duration::from_secs(8);
/// The least memory in which kernel and guest boot, MiB, and the step of the random addition.
const MEMORY_LEAST_MIB: u32 = 96;
const MEMORY_STEP_MIB: u32 = 8;
const MEMORY_STEPS: usize = 5;
/// Guests report once a second. At the edge of a window, work is interpolated between reports that are at
/// most this far apart.
const REPORT_GAP_MOST_NS: u64 = 2_500_000_000;
/// The memory that a program may use in addition to its files.
const PROGRAM_MIB: u32 = 192;

/// The options of `up`.
#[derive(Debug, Clone)]
pub struct Options {
    /// The lab's folder, an absolute path; must be missing or empty.
    pub dir: PathBuf,
    /// Determines names, order and sizes. If `None`, it is drawn and printed.
    pub seed: Option<u64>,
    pub spec: Spec,
    /// KVM or emulation; `None`: decided by a trial.
    pub accel: Option<Accel>,
    /// The kernel package; `None`: the distribution's own one for VMs.
    pub kernel_package: Option<String>,
    /// The guest program, static.
    pub guest: PathBuf,
    /// The `vsteer-lab` program, which is started once more to stamp the reports.
    pub program: PathBuf,
    pub cache: PathBuf,
    /// The process that uses the lab. If it has ended, the next lab takes this one down. `None` if a person
    /// keeps the lab. [`Options::new`] sets this process.
    pub owner: Option<ProcessId>,
}

impl Options {
    /// The defaults if `program` is `vsteer-lab`.
    ///
    /// # Errors
    /// There is no place for the cache.
    pub fn new(program: &Path) -> Result<Options, Fault> {
        Ok(Options {
            dir: default_dir()?,
            seed: None,
            spec: Spec::default(),
            accel: None,
            kernel_package: None,
            guest: image::find_guest(program),
            program: program.to_owned(),
            cache: fetch::cache_folder()?,
            owner: ProcessId::of(std::process::id() as i32),
        })
    }
}

/// The default folder of the lab: `$VSTEER_LAB_DIR`, otherwise a folder in the cache.
///
/// # Errors
/// There is no place for the cache.
pub fn default_dir() -> Result<PathBuf, Fault> {
    match std::env::var_os("VSTEER_LAB_DIR").filter(|v| !v.is_empty()) {
        Some(dir) => Ok(dir.into()),
        None => Ok(fetch::cache_folder()?.join("lab-contention")),
    }
}

/// A running lab.
#[derive(Debug, Clone)]
pub struct Lab {
    dir: PathBuf,
    state: State,
}

/// A VM as `status` shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VmStatus {
    /// The VM's record, including the secret workload.
    #[serde(flatten)]
    pub vm: Vm,
    /// The pid of its QEMU; `None` if it does not run.
    pub pid: Option<i32>,
    /// The age of its last report, s; `None` before the first.
    pub last_report_age_s: Option<f64>,
}

/// The lab as `status` shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    pub lab: &'static str,
    pub dir: PathBuf,
    /// The connection URI of its libvirt.
    pub uri: String,
    pub seed: u64,
    /// The VMs as requested.
    pub spec: String,
    /// KVM or emulation, and why.
    pub accel: Decision,
    /// When every workload had begun, host CLOCK_MONOTONIC, ns; `None` if the lab is not complete.
    pub begun_ns: Option<u64>,
    /// The cgroup partition of its VMs.
    pub partition: String,
    /// Its VMs, in the order of their start.
    pub vms: Vec<VmStatus>,
}

/// Holds the lab's folder until it is dropped: no other process can start or end the lab in the meantime.
pub(crate) struct Hold {
    _folder: std::fs::File,
}

pub(crate) fn hold(dir: &Path) -> Result<Hold, Fault> {
    let folder = std::fs::File::open(dir)
        .map_err(|e| Fault::io(format!("opening the folder {}", dir.display()), &e))?;
    match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Hold { _folder: folder }),
        Err(_) => Err(Fault::new(
            FaultKind::Failed,
            format!("the lab in {} is held by another vsteer-lab", dir.display()),
        )
        .because("it is being brought up or taken down at this moment")
        .help("wait for that to end, or interrupt it (it then cleans up)")),
    }
}

/// Makes sure that `dir` is empty: takes down an abandoned lab.
fn make_room(dir: &Path, held: &Hold) -> Result<(), Fault> {
    if std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none()) {
        return Ok(());
    }
    let fault = |what| Fault::new(FaultKind::Usage, format!("{}: {what}", dir.display()));
    let Some(state) = state::read(dir)? else {
        return Err(fault("this folder holds other things").help("choose another --dir"));
    };
    let Some(why) = down::left_behind(&state) else {
        return Err(fault("there is a lab already").help("take it down first: vsteer-lab down"));
    };
    eprintln!("vsteer-lab: taking down the lab that was left in {}: {why}", dir.display());
    down::down_held(dir, held)?;
    make_folder(dir)
}

/// The files from which every VM of a lab is made.
struct Parts<'a> {
    /// The lab's own program.
    program: &'a Path,
    emulator: &'a Path,
    kernel: &'a Path,
    guest: &'a [u8],
}

impl Lab {
    /// Starts a lab and waits until every guest reports. On any failure, everything is removed again.
    ///
    /// # Errors
    /// Something is missing (with the package's name), a lab exists already, no privilege, a VM does not
    /// boot.
    pub fn up(options: &Options) -> Result<Lab, Fault> {
        preflight::require(&preflight::look())?;
        if !rustix::process::geteuid().is_root() {
            return Err(Fault::new(FaultKind::NoPrivilege, "the lab's private libvirt needs root")
                .help("run it with sudo (set VSTEER_CACHE to keep using your own cache)"));
        }
        let dir = &options.dir;
        libvirtd::check_folder(dir)?;
        interrupt::watch()?;
        let guest = image::read_guest(&options.guest)?;
        let mut fetcher = Fetcher::of_system(&options.cache, false);
        let kernel = match &options.kernel_package {
            Some(package) => fetcher.kernel_from(package)?,
            None => fetcher.kernel()?,
        };
        let emulator = accel::emulator()?;
        let accel = match options.accel {
            Some(accel) => {
                Decision { accel, reason: "asked for on the command line".into(), boot_id: boot_id() }
            }
            None => accel::decide(&options.cache, &emulator, &kernel.vmlinuz, &guest, false)?,
        };
        eprintln!("vsteer-lab: {} ({})", accel.accel, accel.reason);

        make_folder(dir)?;
        let held = hold(dir)?;
        make_room(dir, &held)?;
        let result = close_folder(dir).and_then(|()| random_hex()).and_then(|random| {
            let seed = options.seed.unwrap_or(u64::from_str_radix(&random[8..16], 16).unwrap_or(1));
            let token = random[..8].to_owned();
            let mut state = State::new(token, seed, options.spec.to_string(), accel, libvirtd::uri(dir));
            state.owner = options.owner;
            let parts = Parts {
                program: &options.program,
                emulator: &emulator,
                kernel: &kernel.vmlinuz,
                guest: &guest,
            };
            Lab { dir: dir.clone(), state }.raise(&options.spec, &parts)
        });
        result.inspect_err(|_| {
            // The interrupt that led here must not stop the removal.
            interrupt::clear();
            eprintln!("vsteer-lab: taking down what was begun");
            if let Err(fault) = down::down_held(dir, &held) {
                eprintln!("vsteer-lab: {fault}");
            }
        })
    }

    fn raise(mut self, spec: &Spec, parts: &Parts<'_>) -> Result<Lab, Fault> {
        let dir = self.dir.clone();
        self.state.vms = draw_vms(spec, self.state.seed);
        self.state.made_folders = libvirtd::missing_mount_points();
        self.state.write(&dir)?;
        eprintln!("vsteer-lab: seed {}, {} VMs", self.state.seed, self.state.vms.len());

        for folder in &self.state.made_folders {
            make_folder(folder)?;
        }
        partition::make(&self.state.partition())?;
        let accel = self.state.accel.accel;
        let daemon = libvirtd::spawn(&dir, parts.program, &self.state.mount_source(), accel)?;
        self.state.started(&dir, "libvirtd", daemon)?;
        let begun = Instant::now();
        libvirtd::wait(&dir, daemon)?;
        eprintln!("vsteer-lab: private libvirt answers after {:.1} s", begun.elapsed().as_secs_f64());

        self.define_vms(parts)?;
        let stamper = self.spawn_stamper(parts.program)?;
        self.state.started(&dir, "stamp", stamper)?;
        let started = self.start_vms()?;
        eprintln!("vsteer-lab: {} VMs started, waiting for their first reports", started.len());
        self.wait_for_reports(&started)?;
        self.wait_for_work()?;
        self.state.begun_ns = Some(clock::now_ns());
        self.state.write(&dir)?;
        Ok(self)
    }

    fn define_vms(&self, parts: &Parts<'_>) -> Result<(), Fault> {
        let dir = &self.dir;
        make_folder(&dir.join("vms"))?;
        let common = image::common_part(parts.guest);
        let programs = self.state.vms.iter().filter_map(|vm| image::programs::named(&vm.workload)).collect();
        let programs = image::programs::part(&programs, parts.program, dir)?;
        for vm in &self.state.vms {
            let initramfs = dir.join("vms").join(format!("{}.initramfs", vm.name));
            let (workload, shares) = spec::split_shares(&vm.workload);
            let workload = format!("{workload},start_ms={}", WORK_BEGINS.as_millis());
            let has_program = image::programs::named(&vm.workload).is_some();
            let first = if has_program { &programs[..] } else { &[] };
            image::write_initramfs(&initramfs, &[first, &common].concat(), &workload)?;
            let xml = domain::Domain {
                name: &vm.name,
                vcpus: vm.vcpus,
                // An initramfs is in memory twice until it is unpacked. The program also needs memory.
                memory_mib: vm.memory_mib
                    + if has_program { PROGRAM_MIB + 2 * (programs.len() >> 20) as u32 } else { 0 },
                shares,
                accel: self.state.accel.accel,
                kernel: parts.kernel,
                initramfs: &initramfs,
                console: &console_file(dir, &vm.name),
                partition: &format!("/{}", self.state.partition()),
                emulator: parts.emulator,
            }
            .xml();
            let file = dir.join("vms").join(format!("{}.xml", vm.name));
            write_file(&file, xml)?;
            libvirtd::virsh(dir, &["define", &file.to_string_lossy()])?;
        }
        Ok(())
    }

    /// Starts the VMs; returns the time of each start, ns.
    fn start_vms(&mut self) -> Result<Vec<u64>, Fault> {
        let mut started = Vec::new();
        for name in self.state.vms.iter().map(|v| v.name.clone()).collect::<Vec<_>>() {
            interrupt::check()?;
            started.push(clock::now_ns());
            self.start_vm(&name)?;
        }
        Ok(started)
    }

    fn start_vm(&mut self, name: &str) -> Result<(), Fault> {
        libvirtd::virsh(&self.dir, &["start", name])?;
        match libvirtd::pid_of(&self.dir, name) {
            Some(process) => self.state.started(&self.dir, format!("qemu {name}"), process),
            None => Ok(()),
        }
    }

    /// What a VM has written to its console; empty if there is nothing to read.
    fn console(&self, name: &str) -> String {
        std::fs::read_to_string(console_file(&self.dir, name)).unwrap_or_default()
    }

    fn spawn_stamper(&self, program: &Path) -> Result<ProcessId, Fault> {
        let log = self.dir.join("log/stamp.log");
        let log =
            std::fs::File::create(&log).map_err(|e| Fault::io(format!("writing {}", log.display()), &e))?;
        let child = Command::new("setsid")
            .arg(program)
            .args(["stamp", "--dir"])
            .arg(&self.dir)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|e| Fault::io(format!("starting {} stamp", program.display()), &e))?;
        ProcessId::of(child.id() as i32).ok_or_else(|| {
            Fault::new(FaultKind::Failed, format!("{} stamp ended at once", program.display()))
        })
    }

    /// Waits until each VM has reported, and records how long it took to boot.
    fn wait_for_reports(&mut self, started_ns: &[u64]) -> Result<(), Fault> {
        let begun = Instant::now();
        let mut was_reset = BTreeSet::new();
        loop {
            interrupt::check()?;
            let mut waiting = None;
            for (vm, started_ns) in self.state.vms.iter_mut().zip(started_ns) {
                if vm.boot_s.is_none() {
                    let reports = window::read(&stamped_file(&self.dir, &vm.name)).unwrap_or_default();
                    vm.boot_s = reports.first().map(|r| r.host_ns.saturating_sub(*started_ns) as f64 / 1e9);
                }
                if vm.boot_s.is_none() {
                    waiting = Some(vm.name.clone());
                }
            }
            let Some(name) = waiting else { return Ok(()) };
            let ended = libvirtd::pid_of(&self.dir, &name).is_none();
            if !ended && begun.elapsed() > RESET_AFTER && was_reset.insert(name.clone()) {
                eprintln!("vsteer-lab: VM \"{name}\" did not report within {RESET_AFTER:?}: resetting it");
                libvirtd::virsh(&self.dir, &["reset", &name])?;
            }
            if ended && was_reset.insert(name.clone()) {
                let why = last_words(&self.console(&name));
                eprintln!("vsteer-lab: VM \"{name}\" ended before it reported ({why}): starting it again");
                self.start_vm(&name)?;
                continue;
            }
            if ended || begun.elapsed() > BOOT_LIMIT {
                let how =
                    if ended { "ended".to_owned() } else { format!("did not report within {BOOT_LIMIT:?}") };
                return Err(Fault::new(FaultKind::Failed, format!("VM \"{name}\" {how}"))
                    .because(last_words(&self.console(&name)))
                    .help("fewer or smaller VMs (--vms), or another kernel (--kernel)"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until the workloads have begun, according to the guests' own clocks.
    fn wait_for_work(&self) -> Result<(), Fault> {
        let remaining = |vm: &Vm| {
            let reports = window::read(&stamped_file(&self.dir, &vm.name)).unwrap_or_default();
            let uptime =
                reports.last().map_or(0, |r| r.report.t_ns + clock::now_ns().saturating_sub(r.host_ns));
            WORK_BEGINS.saturating_sub(Duration::from_nanos(uptime))
        };
        let longest = self.state.vms.iter().map(remaining).max().unwrap_or_default();
        let begun = Instant::now();
        while begun.elapsed() < longest {
            interrupt::check()?;
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The lab in `dir`.
    ///
    /// # Errors
    /// There is none, or it is from before the last boot of the host.
    pub fn open(dir: &Path) -> Result<Lab, Fault> {
        let none = || {
            Fault::new(FaultKind::NothingThere, format!("there is no lab in {}", dir.display()))
                .help("start one: vsteer-lab up contention")
        };
        let state = state::read(dir)?.ok_or_else(none)?;
        if !state.is_of_this_boot() {
            return Err(none().because("its record is from before the last boot").help("vsteer-lab down"));
        }
        Ok(Lab { dir: dir.to_owned(), state })
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// The lab's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The connection URI of its libvirt, for virsh and vsteer.
    pub fn uri(&self) -> &str {
        &self.state.uri
    }

    /// The present status.
    pub fn status(&self) -> Status {
        let now_ns = clock::now_ns();
        let vm = |vm: &Vm| VmStatus {
            pid: libvirtd::pid_of(&self.dir, &vm.name).map(|p| p.pid),
            last_report_age_s: window::read(&stamped_file(&self.dir, &vm.name))
                .ok()
                .and_then(|r| r.last().map(|r| now_ns.saturating_sub(r.host_ns) as f64 / 1e9)),
            vm: vm.clone(),
        };
        Status {
            lab: "contention",
            dir: self.dir.clone(),
            uri: self.state.uri.clone(),
            seed: self.state.seed,
            spec: self.state.spec.clone(),
            accel: self.state.accel.clone(),
            begun_ns: self.state.begun_ns,
            partition: self.state.partition(),
            vms: self.state.vms.iter().map(vm).collect(),
        }
    }

    /// When each VM's workload began, or will begin: host CLOCK_MONOTONIC, ns, in the order of their start.
    ///
    /// # Errors
    /// A VM has not reported yet.
    pub fn workloads_begin_ns(&self) -> Result<Vec<u64>, Fault> {
        let of = |vm: &Vm| {
            let reports = window::read(&stamped_file(&self.dir, &vm.name))?;
            let run = window::last_run(&reports);
            let last = window::taken_ns(run).last().copied().zip(run.last());
            let (taken_ns, last) = last.ok_or_else(|| {
                Fault::new(FaultKind::NothingThere, format!("VM \"{}\" has not reported", vm.name))
            })?;
            Ok((taken_ns + WORK_BEGINS.as_nanos() as u64).saturating_sub(last.report.t_ns))
        };
        self.state.vms.iter().map(of).collect()
    }

    /// What every VM measured between two times of the host's CLOCK_MONOTONIC, ns, in the order of their
    /// start. A VM without a measurement (for example one that gets no CPU and so does not report) has a
    /// reason instead.
    pub fn window(&self, since_ns: u64, until_ns: u64) -> Vec<VmMeasured> {
        let of = |vm: &Vm| {
            let accel = self.state.accel.accel;
            let window = window::read(&stamped_file(&self.dir, &vm.name))
                .and_then(|reports| window::between(&vm.name, &reports, since_ns, until_ns, accel));
            let (window, absent) = match window {
                Ok(window) => (Some(window), None),
                Err(fault) => (None, Some(fault.to_string())),
            };
            VmMeasured { vm: vm.name.clone(), workload: vm.workload.clone(), vcpus: vm.vcpus, absent, window }
        };
        self.state.vms.iter().map(of).collect()
    }

    /// Work units per second of a VM between two times ([`window::work_per_s`]). Waits for the report that
    /// follows the second time.
    ///
    /// # Errors
    /// As [`window::work_per_s`].
    pub fn work_per_s(&self, vm: &str, since_ns: u64, until_ns: u64) -> Result<f64, Fault> {
        let began = Instant::now();
        loop {
            let reports = window::read(&stamped_file(&self.dir, vm))?;
            match window::work_per_s(vm, &reports, (since_ns, until_ns), REPORT_GAP_MOST_NS) {
                Err(fault)
                    if fault.kind == FaultKind::NothingThere
                        && began.elapsed() < Duration::from_nanos(REPORT_GAP_MOST_NS) =>
                {
                    std::thread::sleep(Duration::from_millis(100));
                }
                done => return done,
            }
        }
    }
}

fn close_folder(dir: &Path) -> Result<(), Fault> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))
        .map_err(|e| Fault::io(format!("closing the folder {}", dir.display()), &e))
}

/// Sixteen random hexadecimal digits, from the kernel.
fn random_hex() -> Result<String, Fault> {
    let file = "/proc/sys/kernel/random/uuid";
    let uuid = std::fs::read_to_string(file).map_err(|e| Fault::io(format!("reading {file}"), &e))?;
    // The fixed digits of a version 4 UUID are the 13th and, in part, the 17th. So the last 12 and the first
    // 4 are all random.
    let digits: Vec<char> = uuid.chars().filter(char::is_ascii_hexdigit).collect();
    Ok(digits[20..].iter().chain(&digits[..4]).collect())
}

/// Draws the VMs: workloads in a random order, names and sizes independent of them.
fn draw_vms(spec: &Spec, seed: u64) -> Vec<Vm> {
    let mut draw = names::Draw::new(seed);
    let mut roles: Vec<(String, u32)> = Vec::new();
    for group in &spec.groups {
        roles.extend((0..group.vms).map(|_| (group.workload.clone(), group.vcpus)));
    }
    draw.shuffle(&mut roles);
    let names = draw.names(roles.len());
    let mut vm = |((workload, vcpus), name): ((String, u32), String)| Vm {
        name,
        workload,
        vcpus,
        memory_mib: MEMORY_LEAST_MIB + MEMORY_STEP_MIB * draw.below(MEMORY_STEPS) as u32,
        boot_s: None,
    };
    roles.into_iter().zip(names).map(&mut vm).collect()
}

/// The line of a console that says why a guest ended: that of a panic, else the last three.
fn last_words(console: &str) -> String {
    let lines: Vec<&str> = console.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    match lines.iter().rfind(|l| l.contains("Kernel panic")) {
        Some(panic) => format!("on its console: {panic}"),
        None => format!("last on its console: {}", lines[lines.len().saturating_sub(3)..].join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_draw_has_all_roles_and_tells_none() {
        let spec: Spec = "burn=3x2,periodic=2x1".parse().unwrap();
        let vms = draw_vms(&spec, 11);
        assert_eq!(vms, draw_vms(&spec, 11));
        let count = |w: &str, n: u32| vms.iter().filter(|v| v.workload == w && v.vcpus == n).count();
        assert_eq!((count("burn", 2), count("periodic", 1), vms.len()), (3, 2, 5));
        for vm in &vms {
            assert!(!vm.name.contains("burn") && !vm.name.contains("per"), "{}", vm.name);
            assert!((96..=128).contains(&vm.memory_mib));
        }
        // The names are the same for other roles, so they cannot depend on the roles.
        let others = draw_vms(&"idle=5x2".parse().unwrap(), 11);
        assert!(vms.iter().zip(&others).all(|(a, b)| (&a.name, a.memory_mib) == (&b.name, b.memory_mib)));
    }

    #[test]
    fn a_panic_is_named_rather_than_the_end_of_its_trace() {
        let console =
            "boot\n[ 0.03] Kernel panic - not syncing: IO-APIC + timer doesn't work!\n a\n b\n\n c\n";
        assert!(last_words(console).ends_with("Kernel panic - not syncing: IO-APIC + timer doesn't work!"));
        assert_eq!(last_words("1\n2\n\n3\n4\n"), "last on its console: 2; 3; 4");
        assert_eq!(last_words(""), "last on its console: ");
    }

    #[test]
    fn random_words_differ() {
        let (a, b) = (random_hex().unwrap(), random_hex().unwrap());
        assert!(a.len() == 16 && a != b);
    }

    #[test]
    fn a_held_lab_is_not_touched_by_another() {
        let folder = tempfile::tempdir().unwrap();
        let held = hold(folder.path()).unwrap();
        assert!(hold(folder.path()).is_err());
        drop(held);
        assert!(hold(folder.path()).is_ok());
    }
}
