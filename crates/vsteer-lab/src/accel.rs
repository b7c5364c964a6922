//! Decides between KVM and emulation with a trial boot.
//!
//! `/dev/kvm` may exist, open and answer every ioctl, and still never get a kernel past its first page
//! (nested virtualisation that emulates what it cannot run). So the lab boots its own kernel and guest under
//! KVM and waits for some seconds. The result holds for this boot of the host and is kept in the cache. Under
//! emulation (TCG, `thread=multi`) each vCPU is still a host thread: scheduling is real, but the guest is
//! slow.

use crate::command;
use crate::files::{make_folder, remove_folder, replace_file, write_file};
use crate::process::boot_id;
use crate::{image, interrupt};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

/// The time limit of the trial. With a working KVM the guest reports within 1 to 2 s.
pub const TRIAL_LIMIT: Duration = Duration::from_secs(5);

/// What executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    Kvm,
    /// QEMU's emulation, one host thread per vCPU.
    Tcg,
}

impl fmt::Display for Accel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Accel::Kvm => "kvm",
            Accel::Tcg => "tcg",
        })
    }
}

/// A decision with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// What to use.
    pub accel: Accel,
    pub reason: String,
    /// The boot of the host for which the decision holds.
    pub boot_id: String,
}

/// Decides, or takes the decision of this boot from the cache.
///
/// # Errors
/// The cache cannot be written, or the person interrupts. A KVM that fails is not an error but a decision.
pub fn decide(
    cache: &Path,
    emulator: &Path,
    kernel: &Path,
    guest: &[u8],
    again: bool,
) -> Result<Decision, Fault> {
    let file = cache.join("accel.json");
    if !again && let Some(decision) = read(&file, &boot_id()) {
        return Ok(decision);
    }
    let (accel, reason) = match try_kvm(cache, emulator, kernel, guest)? {
        Ok(seconds) => (Accel::Kvm, format!("a trial VM reported after {seconds:.1} s under KVM")),
        Err(why) => (Accel::Tcg, why),
    };
    let decision = Decision { accel, reason, boot_id: boot_id() };
    replace_file(&file, serde_json::to_string_pretty(&decision).expect("plain data"))?;
    Ok(decision)
}

fn read(file: &Path, boot: &str) -> Option<Decision> {
    let decision: Decision = serde_json::from_str(&std::fs::read_to_string(file).ok()?).ok()?;
    (decision.boot_id == boot).then_some(decision)
}

/// Boots under KVM. Returns the seconds until the first report, or why it failed.
fn try_kvm(cache: &Path, emulator: &Path, kernel: &Path, guest: &[u8]) -> Result<Result<f64, String>, Fault> {
    if let Err(e) = std::fs::File::options().read(true).write(true).open("/dev/kvm") {
        return Ok(Err(format!("/dev/kvm cannot be opened: {e}")));
    }
    eprintln!("vsteer-lab: trying KVM for at most {} s", TRIAL_LIMIT.as_secs());
    let folder = cache.join(format!("accel-trial-{}", std::process::id()));
    make_folder(&folder)?;
    let result = boot_once(&folder, emulator, kernel, guest);
    remove_folder(&folder)?;
    result
}

fn boot_once(
    folder: &Path,
    emulator: &Path,
    kernel: &Path,
    guest: &[u8],
) -> Result<Result<f64, String>, Fault> {
    let (initramfs, console, words) =
        (folder.join("initramfs"), folder.join("console"), folder.join("stderr"));
    image::write_initramfs(&initramfs, &image::common_part(guest), "idle")?;
    write_file(&console, "")?;
    let stderr = std::fs::File::create(&words).map_err(|e| Fault::io("writing the trial's messages", &e))?;
    // Runs inside `timeout`, so that the trial ends even if the lab is killed.
    let mut child = Command::new("timeout")
        .args(["--signal=KILL", &TRIAL_LIMIT.as_secs().to_string()])
        .arg(emulator)
        .args(["-machine", "q35,accel=kvm", "-cpu", "host", "-smp", "1", "-m", "128"])
        .args([
            "-nodefaults",
            "-display",
            "none",
            "-no-reboot",
            "-append",
            image::KERNEL_COMMAND_LINE,
            "-kernel",
        ])
        .arg(kernel)
        .arg("-initrd")
        .arg(&initramfs)
        .arg("-serial")
        .arg(format!("file:{}", console.display().to_string().replace(',', ",,")))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .map_err(|e| Fault::io("starting the KVM trial (timeout, of coreutils)", &e))?;
    let begun = Instant::now();
    loop {
        let reported = std::fs::read_to_string(&console).is_ok_and(|t| t.contains("{\"vsteer_guest\":"));
        let ended = child.try_wait().map_err(|e| Fault::io("waiting for the KVM trial", &e))?;
        let interrupted = interrupt::check();
        if reported || interrupted.is_err() {
            // `timeout` passes SIGTERM on to QEMU.
            if let Some(id) = crate::process::ProcessId::of(child.id() as i32) {
                crate::process::end(&[id], Duration::from_secs(6))?;
            }
            let _ = child.wait();
            interrupted?;
            return Ok(Ok(begun.elapsed().as_secs_f64()));
        }
        if ended.is_some() {
            let said = std::fs::read_to_string(&words).unwrap_or_default();
            return Ok(Err(if begun.elapsed() >= TRIAL_LIMIT {
                format!(
                    "a trial VM under KVM did not report within {} s: KVM is there but cannot boot a kernel",
                    TRIAL_LIMIT.as_secs()
                )
            } else {
                format!("QEMU cannot use KVM: {}", said.lines().last().unwrap_or("it ended without a word"))
            }));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The emulator for this machine's architecture.
///
/// # Errors
/// It is not installed; the fault names the package.
pub fn emulator() -> Result<std::path::PathBuf, Fault> {
    command::find_program("qemu-system-x86_64").ok_or_else(|| {
        Fault::new(FaultKind::NothingThere, "qemu-system-x86_64 is not installed")
            .help("apt install --no-install-recommends qemu-system-x86")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_holds_for_its_boot_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("accel.json");
        let decision = Decision { accel: Accel::Tcg, reason: "why".into(), boot_id: "this".into() };
        write_file(&file, serde_json::to_string(&decision).unwrap()).unwrap();
        assert_eq!(read(&file, "this"), Some(decision));
        assert_eq!(read(&file, "another"), None);
        write_file(&file, "{").unwrap();
        assert_eq!(read(&file, "this"), None);
    }
}
