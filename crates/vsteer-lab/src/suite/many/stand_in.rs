//! A stand-in for a VM: this program under QEMU's name, with threads that have the names of vCPUs.
//!
//! Nothing in it is virtual. What vsteer counts of a vCPU, states and who ran meanwhile, the kernel counts alike for
//! any thread. All vCPUs of a VM wake at the same moments, as those of a guest with a periodic timer do, so they wait
//! for each other and for other VMs.

use super::super::steered::failed;
use rustix::process::getppid;
use rustix::time::{ClockId, clock_gettime};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use vsteer_core::Fault;

/// What the stand-in does stands here, as numbers.
const DOES: &str = "VSTEER_LAB_STAND_IN";
/// How often it looks whether the lab has ended.
const LOOK: Duration = Duration::from_secs(10);

/// What a stand-in does.
#[derive(Debug, Clone, Copy)]
pub struct Does {
    pub vcpus: u32,
    /// Every vCPU wakes as often, at `phase` of it.
    pub period: Duration,
    pub phase: Duration,
    /// Computes so long each time.
    pub burst: Duration,
    /// Ends by itself after this time.
    pub life: Duration,
}

/// A stand-in that runs. It ends when this value is dropped, and with this process.
pub struct StandIn(Child);

impl StandIn {
    /// Starts one of this name.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(name: &str, does: &Does) -> Result<StandIn, Fault> {
        let numbers =
            [does.period, does.phase, does.burst, does.life].map(|time| time.as_micros().to_string());
        let program = std::env::current_exe().map_err(|e| Fault::io("finding this program", &e))?;
        let mut command = Command::new(program);
        command.arg0("qemu-system-x86_64");
        command.args([
            "-name",
            &format!("{name},debug-threads=on"),
            "-smp",
            &format!("{0},sockets=1,cores={0},threads=1", does.vcpus),
        ]);
        command.env(DOES, format!("{} {} {}", std::process::id(), does.vcpus, numbers.join(" ")));
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        quiet.spawn().map(StandIn).map_err(|e| Fault::io("starting a stand-in", &e))
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits until it has ended by itself.
    ///
    /// # Errors
    /// If it failed.
    pub fn ends(mut self) -> Result<(), Fault> {
        let status = self.0.wait().map_err(|e| Fault::io("waiting for a stand-in", &e))?;
        if status.success() { Ok(()) } else { Err(failed(&format!("a stand-in: {status}"))) }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Plays what the environment says; `None` if it says nothing.
pub fn play() -> Option<ExitCode> {
    let text = std::env::var(DOES).ok()?;
    let numbers: Vec<u64> = text.split(' ').filter_map(|n| n.parse().ok()).collect();
    let &[parent, vcpus, period, phase, burst, life] = &numbers[..] else { panic!("{DOES}: {text}") };
    for vcpu in 0..vcpus {
        let small = std::thread::Builder::new().stack_size(32 << 10).name(format!("CPU {vcpu}/KVM"));
        small.spawn(move || runs(1_000 * period, 1_000 * phase, 1_000 * burst)).expect("a thread");
    }
    let (begun, life) = (Instant::now(), Duration::from_micros(life));
    let is_orphan = || getppid().is_none_or(|now| now.as_raw_nonzero().get() as u64 != parent);
    while begun.elapsed() < life && !is_orphan() {
        std::thread::sleep(LOOK.min(life.saturating_sub(begun.elapsed())));
    }
    Some(ExitCode::SUCCESS)
}

fn runs(period: u64, phase: u64, burst: u64) {
    let now = |clock| {
        let time = clock_gettime(clock);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    loop {
        let since = (now(ClockId::Monotonic) + period - phase) % period;
        std::thread::sleep(Duration::from_nanos(period - since));
        let end = now(ClockId::ThreadCPUTime) + burst;
        while now(ClockId::ThreadCPUTime) < end {
            std::hint::black_box((0..100_u64).sum::<u64>());
        }
    }
}
