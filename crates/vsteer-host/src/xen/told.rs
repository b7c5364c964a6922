//! Turns Xen's counters of its vCPUs into samples, with the names and limits that Xen's tools report.

use super::config::{Listed, tid, vm_id};
use super::listing;
use vsteer_core::CpuSet;
use vsteer_core::nouns::{
    Batch, BlameSample, Collector, Culprit, PcpuSample, Role, ThreadCounters, ThreadSample,
};
use vsteer_record::xentrace::account::{Accounts, Ran, Vcpu};
use vsteer_record::xentrace::{IDLE_DOMAIN, Runstate};

/// The accounts of vCPUs, with the known domains.
pub(super) struct Told {
    pub(super) listed: Listed,
    pub(super) accounts: Accounts,
}

impl Told {
    pub(super) fn new(listed: Listed, accounts: Accounts) -> Told {
        let mut told = Told { listed, accounts };
        told.introduce();
        told
    }

    /// Describes what the samples measure.
    pub(super) fn collector() -> Collector {
        let measured = counters(&Vcpu::new(0), &|ticks| ticks, true, true);
        Collector::new("xentrace", |c| measured.holds(c), "Xen's trace of runstates does not show it")
            .without(&["overlap_ns"], "Xen charges interrupts to no vCPU")
            .without(&["exit_ns"], "Xen's trace of runstates does not show time in the hypervisor")
            .without(&["halt_poll_ns"], "Xen does not poll before it lets a vCPU sleep")
    }

    /// Has a vCPU appeared whose domain is not known?
    pub(super) fn has_strangers(&self) -> bool {
        let known = |domain: u16| domain == IDLE_DOMAIN || self.listed.domains.iter().any(|d| d.id == domain);
        self.accounts.vcpus().iter().any(|(whose, _)| !known(whose.0))
    }

    /// Gives the accounts the domains, the affinities of vCPUs, and the present states of vCPUs, because some
    /// may never change their state.
    pub(super) fn introduce(&mut self) {
        let Told { listed, accounts } = self;
        accounts.keep(|id| listed.domains.iter().any(|d| d.id == id));
        let everywhere: CpuSet = listed.pools.iter().flat_map(|p| p.cpus.iter()).collect();
        for v in &listed.vcpus {
            let Ok(index) = u16::try_from(v.index) else { continue };
            let whose = (v.domain, index);
            let pool = listed.share(v.domain).1.map_or(&everywhere, |p| &p.cpus);
            accounts
                .allow(whose, v.hard.as_ref().map_or_else(|| pool.clone(), |hard| hard.intersection(pool)));
            let pcpu = v.pcpu.and_then(|p| u16::try_from(p).ok());
            let state = match (v.running, v.blocked, pcpu) {
                (true, ..) => Runstate::Running,
                (_, true, _) => Runstate::Blocked,
                (.., None) => Runstate::Offline,
                _ => Runstate::Runnable,
            };
            accounts.assume(whose, state, pcpu);
        }
        // If no vCPU runs on a pCPU, its idle vCPU runs there.
        for cpu in everywhere.iter().filter_map(|p| u16::try_from(p).ok()) {
            let taken = listed.vcpus.iter().any(|v| v.running && v.pcpu == Some(cpu.into()));
            let state = if taken { Runstate::Runnable } else { Runstate::Running };
            accounts.assume((IDLE_DOMAIN, cpu), state, Some(cpu));
        }
    }

    fn thread(
        &self,
        domain: &listing::Domain,
        index: u16,
        vcpu: &Vcpu,
        capped: bool,
        siblings: bool,
    ) -> ThreadSample {
        ThreadSample {
            vm: vm_id(domain),
            role: Role::Vcpu(index.into()),
            tid: tid(domain.id, index.into()),
            last_cpu: vcpu.pcpu.map(u32::from),
            waiting_ns: Some(self.accounts.waiting_ns((domain.id, index))),
            counters: counters(vcpu, &|ticks| self.accounts.ns(ticks), capped, siblings),
        }
    }

    /// All counters up to now; `epoch_ns` returns the wall-clock time at tick 0.
    pub(super) fn batch(&mut self, epoch_ns: impl FnOnce(u64) -> u64) -> Batch {
        let blame = self.accounts.take_blame();
        let ticks = self.accounts.now().unwrap_or(0);
        let mono_ns = self.accounts.ns(ticks);
        let epoch_ns = epoch_ns(mono_ns);
        let domain = |id: u16| self.listed.domains.iter().find(|d| d.id == id);
        let capped =
            |id: u16| self.listed.shares.values().any(|p| p.shares.get(&id).is_some_and(|s| s.cap > 0));
        let siblings = |id: u16| self.listed.vcpus.iter().filter(|v| v.domain == id).count() > 1;
        let all = self.accounts.vcpus();
        let threads = all.iter().filter_map(|((id, index), vcpu)| {
            Some(self.thread(domain(*id)?, *index, vcpu, capped(*id), siblings(*id)))
        });
        let pcpus = all.iter().filter(|((id, _), _)| *id == IDLE_DOMAIN).map(|((_, cpu), idle)| {
            let idle_ns = self.accounts.ns(idle.ticks[Runstate::Running as usize]);
            let whole_ns: u64 = idle.ticks.iter().map(|t| self.accounts.ns(*t)).sum();
            PcpuSample {
                cpu: u32::from(*cpu),
                user_ns: whole_ns.saturating_sub(idle_ns),
                idle_ns,
                ..PcpuSample::default()
            }
        });
        let blame = blame.into_iter().filter_map(|((id, index), ran, ns)| {
            Some(BlameSample {
                victim: vm_id(domain(id)?),
                role: Role::Vcpu(index.into()),
                culprit: match ran {
                    Ran::Domain(by) => domain(by).map_or(Culprit::Unattributed, |d| Culprit::Vm(vm_id(d))),
                    Ran::Nobody => Culprit::Placement,
                    Ran::Unknown => Culprit::Unattributed,
                },
                ns: ns as i64,
            })
        });
        Batch {
            mono_ns,
            unix_ns: epoch_ns.saturating_add(mono_ns),
            threads: threads.collect(),
            pcpus: pcpus.collect(),
            vms: Vec::new(),
            blame: blame.collect(),
            pressure: None,
        }
    }
}

/// The counters of a vCPU. `ns`: converts ticks to ns. `siblings`: does its domain have other vCPUs?
fn counters(vcpu: &Vcpu, ns: &dyn Fn(u64) -> u64, capped: bool, siblings: bool) -> ThreadCounters {
    let of = |state: Runstate| ns(vcpu.ticks[state as usize]);
    // If a domain with a cap is offline, its cap parked it. If a domain without a cap is offline, it is paused.
    let (parked, paused) = match capped {
        true => (of(Runstate::Offline), 0),
        false => (0, of(Runstate::Offline)),
    };
    let ready_ns = of(Runstate::Runnable);
    ThreadCounters {
        run_ns: Some(of(Runstate::Running)),
        ready_ns: Some(ready_ns),
        limited_ns: Some(parked),
        wait_ns: Some(ready_ns + parked),
        blocked_ns: Some(of(Runstate::Blocked) + paused),
        lag_ns: siblings.then(|| ns(vcpu.lag_ticks)),
        switches: Some(vcpu.dispatches),
        preemptions: Some(vcpu.preemptions),
        wakeups: Some(vcpu.wakes),
        migrations: Some(vcpu.migrations),
        wake_latency: Some(vcpu.wake_latency()),
        ready_spell: Some(vcpu.ready_spell()),
        ..ThreadCounters::default()
    }
}
