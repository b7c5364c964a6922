//! Runs VMs first when their timers end, by a sched_ext policy.

use super::service::Desk;
use super::{BY_POLICY, Opened, Refusals, Wanted};
use crate::cli::{RealtimeRun, RealtimeSource};
use crate::interrupt::{Interrupt, Woken};
use serde_json::{Value, json};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use vsteer_core::nouns::HostConfig;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::kvm::channel::Channels;
use vsteer_host::pace::Pace;
use vsteer_host::realtime::{Counted, Ended, Kernel, Realtime as Scheduling, Settings, Sources, settings};
use vsteer_host::root::Root;

/// After a cgroup came or went VMs are looked for, so much later and so often: threads move in later.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOKS: u32 = 3;

/// Schedules until interrupted, then reports.
///
/// # Errors
/// As [`Scheduling::start`]; the kernel ended the policy.
pub fn keep(
    wanted: &Wanted<'_>,
    interrupt: &Interrupt,
    mut host: Opened,
    kernel: Kernel,
    config: HostConfig,
    desk: Desk,
) -> Result<(), Fault> {
    let Wanted { a, json, .. } = wanted;
    let root = Root::live()?;
    let settings = meant_settings(a, &root, &config);
    let counted = a.costs.then(Counted::begin).transpose()?;
    let mut keeping = Keeping {
        wanted,
        root,
        concurrency: settings.concurrency,
        scheduling: Scheduling::start(kernel, &settings)?,
        channels: Channels::default(),
        refusals: Refusals::default(),
        counted,
        begin: Instant::now(),
        begun_again: None,
    };
    let _told = Told::begun();
    keeping.follow(&config)?;
    desk.ready();
    if let Some(warm_up) = a.warm_up {
        keeping.warm_up(warm_up, interrupt, &mut host)?;
    }
    keeping.begin = Instant::now();
    keeping.until_ended(interrupt, &mut host, &desk)?;
    // What this does from here on costs who is measured.
    keeping.scheduling.count(false)?;
    keeping.scheduling.ended()?.map_or(Ok(()), |ended| Err(fault(ended)))?;
    let told = keeping.told()?;
    keeping.scheduling.stop();
    if *json {
        crate::text::print_json(&told);
    } else {
        print!("{}", super::text::report(&told));
    }
    Ok(())
}

/// Tells the system's log that the policy begins, and when it ends, for whatever reason.
struct Told;

impl Told {
    fn begun() -> Told {
        vsteer_act::log_policy(true);
        Told
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        vsteer_act::log_policy(false);
    }
}

struct Keeping<'a> {
    wanted: &'a Wanted<'a>,
    root: Root,
    concurrency: u32,
    scheduling: Scheduling,
    channels: Channels,
    refusals: Refusals,
    counted: Option<Counted>,
    /// The counts that are reported start here.
    begin: Instant,
    /// Why the kernel last ended the policy, if it was restarted.
    begun_again: Option<String>,
}

impl Keeping<'_> {
    /// Schedules, and counts nothing yet.
    fn warm_up(&mut self, length: Duration, interrupt: &Interrupt, host: &mut Opened) -> Result<(), Fault> {
        self.scheduling.count(false)?;
        interrupt.sleep_until(Instant::now() + length);
        self.follow(&host.config()?)?;
        interrupt.sleep_until(Instant::now() + LOOK_EVERY);
        self.scheduling.count(true)
    }

    /// Follows VMs that come and go, and answers who asks, until interrupted or for as long as was asked for.
    fn until_ended(&mut self, interrupt: &Interrupt, host: &mut Opened, desk: &Desk) -> Result<(), Fault> {
        let end = self.wanted.a.length.map(|l| self.begin + l);
        // Threads of VMs that were just started may still move into their cgroups.
        let mut looks = if self.wanted.a.warm_up.is_none() { LOOKS } else { 0 };
        self.scheduling.changes_seen();
        while end.is_none_or(|end| Instant::now() < end) {
            let look = (looks > 0).then(|| Instant::now() + LOOK_EVERY);
            let until = [end, look].into_iter().flatten().min();
            let always = [self.scheduling.changes(), desk.asked()];
            let readable: Vec<BorrowedFd<'_>> = always.into_iter().chain(self.channels.asked()).collect();
            match interrupt.wait(until, &readable) {
                Woken::Interrupted => break,
                Woken::Readable(0) => {
                    self.scheduling.changes_seen();
                    if let Some(ended) = self.scheduling.ended()? {
                        self.begin_again(ended, &host.config()?)?;
                    }
                    looks = LOOKS;
                }
                Woken::Readable(1) => desk.answer(&self.told()?),
                Woken::Readable(_) => self.channels.answer(),
                Woken::Time if looks > 0 => {
                    looks -= 1;
                    self.follow(&host.config()?)?;
                }
                Woken::Time => {}
            }
        }
        Ok(())
    }

    fn follow(&mut self, config: &HostConfig) -> Result<(), Fault> {
        let refused = self.scheduling.follow(self.wanted.meant.of(config))?;
        let opted = self.wanted.meant.of(config).filter(|vm| !refused.contains_key(&vm.name));
        self.channels.tell(&self.root, opted);
        self.refusals.take(refused);
        Ok(())
    }

    /// Restarts the policy after the kernel ended it because a pCPU came or went. Counts start at 0 again.
    fn begin_again(&mut self, ended: Ended, config: &HostConfig) -> Result<(), Fault> {
        if !ended.may_begin_again {
            return Err(fault(ended));
        }
        eprintln!("vsteer: restarting the policy: {}", ended.why);
        self.scheduling.replace(&meant_settings(self.wanted.a, &self.root, config))?;
        self.begun_again = Some(ended.why);
        self.begin = Instant::now();
        self.follow(config)
    }

    fn told(&self) -> Result<Value, Fault> {
        Ok(json!({
            "by": BY_POLICY,
            "pid": std::process::id(),
            "seconds": self.begin.elapsed().as_secs_f64(),
            "honoured": !self.wanted.a.measure_only,
            "threads_that_weigh": self.concurrency,
            "vms": self.scheduling.report()?,
            "refused": self.refusals.0,
            "guests_told": self.channels.len(),
            "begun_again": self.begun_again,
            "callbacks": self.counted.as_ref().map(Counted::costs),
        }))
    }
}

fn meant_settings(a: &RealtimeRun, root: &Root, config: &HostConfig) -> Settings {
    let sources = match a.source {
        RealtimeSource::Timer => Sources::Timer,
        RealtimeSource::Call => Sources::Call,
        RealtimeSource::Both => Sources::Both,
    };
    Settings { honour: !a.measure_only, sources, warp: a.warp, limit: a.limit, ..settings(root, config) }
}

fn fault(ended: Ended) -> Fault {
    Fault::new(FaultKind::Failed, "the kernel ended the real-time policy")
        .because(ended.why)
        .help("the kernel's own scheduler has taken over; please report this")
}
