//! Real-time timers for VMs: which VMs are opted in, what each asked for, and what each got.
//!
//! The policy runs in the kernel ([`vsteer_bpf::Policy`]). This file translates VMs into the kernel's terms: a VM is
//! the cgroup that holds all of its threads and no others, and the inode number of the folder identifies the cgroup.
//!
//! The policy enforces quotas (`cpu.max`) if the kernel reports them to it. If not, vsteer refuses a VM with a quota,
//! because the kernel does not enforce quotas for tasks of a policy.

use crate::linux::cgroups::Cgroups;
use crate::linux::tuning;
use crate::root::Root;
use serde::Serialize;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use vsteer_bpf::Policy;
pub use vsteer_bpf::{Asked, Counts, Ended, Kernel, Settings, Sources};
use vsteer_core::nouns::{Histogram, HostConfig, TimerCounts, VmConfig, VmId};
use vsteer_core::topology::Topology;
use vsteer_core::{Fault, FaultKind};

const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// While it lives the kernel counts how often eBPF programs run and for how long, which costs each some tens of ns.
pub struct Counted {
    former: String,
}

impl Counted {
    /// Counts from here on.
    ///
    /// # Errors
    /// The setting cannot be had.
    pub fn begin() -> Result<Counted, Fault> {
        let told = |e: std::io::Error| Fault::io(format!("cannot set {STATS}"), &e);
        let former = std::fs::read_to_string(STATS).map_err(told)?;
        std::fs::write(STATS, "1").map_err(told)?;
        Ok(Counted { former })
    }

    /// What each program of the policy has cost since.
    pub fn costs(&self) -> Vec<CallbackCost> {
        let per_run = |c: &vsteer_bpf::ProgramCost| (c.runs > 0).then(|| c.ns as f64 / c.runs as f64);
        let told = |c: vsteer_bpf::ProgramCost| CallbackCost {
            ns_per_run: per_run(&c),
            name: c.name,
            verified_instructions: c.verified,
            runs: c.runs,
        };
        Policy::costs().into_iter().map(told).collect()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // What cannot be put back is a setting that costs next to nothing.
        let _ = std::fs::write(STATS, self.former.trim());
    }
}

/// What one callback of the policy costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallbackCost {
    /// Its name.
    pub name: String,
    /// Instructions that the kernel looked at to check it.
    pub verified_instructions: u32,
    /// How often it ran.
    pub runs: u64,
    /// For how long each time, ns; `None` where it did not run.
    pub ns_per_run: Option<f64>,
}

/// The policy, and the VMs that are opted in.
pub struct Realtime {
    kernel: Kernel,
    policy: Policy,
    root: Root,
    cgroups: Cgroups,
    opted: BTreeMap<VmId, Opted>,
}

struct Opted {
    name: String,
    cgroup: u64,
}

/// What one VM asked for and got. Times in us; `None` where nothing was asked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VmReport {
    /// Which.
    pub id: VmId,
    /// Its name.
    pub name: String,
    /// How often what it asked for was granted.
    #[serde(flatten)]
    pub counts: Counts,
    /// The same in short.
    pub timers: TimerCounts,
    /// The most that its virtual time was ahead of the others' when a timer ended: what it has borrowed, ms.
    pub ahead_max_ms: f64,
    /// From expiry to running.
    pub expiry_to_running_us: Option<Lateness>,
    /// CPU time of all its threads since counting began, s.
    pub cpu_s: f64,
}

/// How late timers are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lateness {
    /// Mean, us.
    pub mean: f64,
    /// 99th percentile, us: the upper edge of its bucket, an eighth of an octave wide.
    pub p99: f64,
    /// The longest, us.
    pub max: f64,
    /// As [`Buckets::histogram`].
    pub histogram: Vec<(f64, u64)>,
}

/// Times, where only their buckets are known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Buckets {
    /// How many.
    pub count: u64,
    /// Half of them are shorter, us.
    pub p50: f64,
    /// 99th percentile, us.
    pub p99: f64,
    /// Buckets that are not empty: the upper edge, us, and how many lie below it and not in an earlier one.
    pub histogram: Vec<(f64, u64)>,
}

impl Buckets {
    /// `None` where there are none.
    pub fn of(h: &Histogram) -> Option<Buckets> {
        Some(Buckets {
            count: h.total(),
            p50: h.quantile_ns(0.5)? / 1e3,
            p99: h.quantile_ns(0.99)? / 1e3,
            histogram: buckets(h),
        })
    }
}

fn buckets(h: &Histogram) -> Vec<(f64, u64)> {
    let edge = |bucket: u16| Histogram::lower_edge_ns(bucket + 1) as f64 / 1e3;
    h.counts.iter().map(|(bucket, count)| (edge(*bucket), *count)).collect()
}

/// What would become of these VMs, by name: why one cannot be opted in.
///
/// # Errors
/// The host cannot be read.
pub fn preview<'a>(
    kernel: &Kernel,
    vms: impl Iterator<Item = &'a VmConfig>,
) -> Result<Vec<(String, Option<Fault>)>, Fault> {
    let root = Root::live()?;
    let cgroups = Cgroups::find(&root);
    Ok(vms.map(|vm| (vm.name.clone(), cgroup_of(kernel, &root, &cgroups, vm).err())).collect())
}

/// How the policy schedules on this host, unless a person says otherwise: weights mean what they mean to the kernel's
/// own scheduler.
pub fn settings(root: &Root, config: &HostConfig) -> Settings {
    let cpus = config.topology.threads().count() as u32;
    let concurrency = if tuning::weighs_by_threads(root) { cpus } else { 1 };
    Settings { concurrency, queue_of: queues(&config.topology), ..Settings::default() }
}

/// pCPUs that share their last cache share a queue.
fn queues(topology: &Topology) -> Vec<u32> {
    let cpus = topology.threads().map(|t| t.cpu + 1).max().unwrap_or(1);
    let mut firsts: Vec<Option<u32>> = Vec::new();
    let mut queue_of = |cpu: u32| {
        let first = topology.llc_of(cpu).and_then(|cache| cache.cpus.iter().min());
        firsts.iter().position(|f| *f == first).unwrap_or_else(|| {
            firsts.push(first);
            firsts.len() - 1
        })
    };
    (0..cpus).map(|cpu| queue_of(cpu) as u32).collect()
}

impl Realtime {
    /// The policy schedules from here on; nobody is opted in yet.
    ///
    /// # Errors
    /// As [`Policy::start`].
    pub fn start(kernel: Kernel, settings: &Settings) -> Result<Realtime, Fault> {
        let root = Root::live()?;
        let cgroups = Cgroups::find(&root);
        let policy = Policy::start(&kernel, settings)?;
        Ok(Realtime { kernel, policy, root, cgroups, opted: BTreeMap::new() })
    }

    /// Starts again after the kernel ended the policy: no VM is opted in yet, and the counts restart.
    ///
    /// # Errors
    /// As [`Policy::start`].
    pub fn replace(&mut self, settings: &Settings) -> Result<(), Fault> {
        self.policy.detach();
        self.opted.clear();
        self.policy = Policy::start(&self.kernel, settings)?;
        Ok(())
    }

    /// Opts these VMs in, and those out that are gone or not named any more. Why others cannot be, by their names.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn follow<'a>(
        &mut self,
        vms: impl Iterator<Item = &'a VmConfig>,
    ) -> Result<BTreeMap<String, Fault>, Fault> {
        let (mut wanted, mut refused) = (BTreeMap::new(), BTreeMap::new());
        for vm in vms {
            match cgroup_of(&self.kernel, &self.root, &self.cgroups, vm) {
                Ok(cgroup) => {
                    wanted.insert(vm.id.clone(), Opted { name: vm.name.clone(), cgroup });
                }
                Err(fault) => {
                    refused.insert(vm.name.clone(), fault);
                }
            }
        }
        // A VM that restarted has another cgroup.
        for (id, former) in &self.opted {
            if wanted.get(id).is_none_or(|now| now.cgroup != former.cgroup) {
                self.policy.opt_out(former.cgroup)?;
            }
        }
        for now in wanted.values() {
            self.policy.opt_in(now.cgroup)?;
        }
        self.opted = wanted;
        Ok(refused)
    }

    /// Counts from here on, or no more.
    ///
    /// # Errors
    /// As [`Policy::count`].
    pub fn count(&mut self, on: bool) -> Result<(), Fault> {
        self.policy.count(on)
    }

    /// Can be read from once a VM may have come or gone, or the policy has ended, until [`Realtime::changes_seen`].
    pub fn changes(&self) -> BorrowedFd<'_> {
        self.policy.changes()
    }

    /// What has changed so far is known.
    pub fn changes_seen(&self) {
        self.policy.changes_seen();
    }

    /// Why the kernel has ended the policy; `None` while it schedules.
    ///
    /// # Errors
    /// As [`Policy::ended`].
    pub fn ended(&self) -> Result<Option<Ended>, Fault> {
        self.policy.ended()
    }

    /// What each VM asked for and got.
    ///
    /// # Errors
    /// As [`Policy::asked`].
    pub fn report(&self) -> Result<Vec<VmReport>, Fault> {
        let mut all = Vec::new();
        for (id, opted) in &self.opted {
            if let Some(asked) = self.policy.asked(opted.cgroup)? {
                all.push(report(id, &opted.name, &asked));
            }
        }
        Ok(all)
    }

    /// Hands all tasks back to the kernel's own scheduler.
    pub fn stop(self) {
        self.policy.stop();
    }
}

/// A VM as the kernel knows it: its cgroup's inode number.
fn cgroup_of(kernel: &Kernel, root: &Root, cgroups: &Cgroups, vm: &VmConfig) -> Result<u64, Fault> {
    let refused = |why: &str, help: &str| {
        Fault::new(FaultKind::Unsupported, format!("cannot serve real-time timers of VM {:?}", vm.name))
            .because(why)
            .help(help)
    };
    let cgroup = vm.cgroup.as_deref().ok_or_else(|| {
        refused(
            "the VM has no cgroup of its own, and the policy recognises VMs by their cgroup",
            "start the VM in its own cgroup (libvirt and Proxmox do so)",
        )
    })?;
    if cgroups.quota(root, cgroup).is_some() && !kernel.tells_quotas {
        return Err(refused(
            "the VM has a quota (cpu.max), which this kernel neither enforces under a sched_ext policy nor reports to it",
            "remove the quota, or use Linux 6.17 or later",
        ));
    }
    let folder =
        cgroups.file(cgroup, "").ok_or_else(|| refused("the VM's cgroup is gone", "name a VM that runs"))?;
    let folder = root.path().join(folder.trim_start_matches('/'));
    let about =
        std::fs::metadata(&folder).map_err(|e| Fault::io(format!("cannot read {}", folder.display()), &e))?;
    Ok(about.ino())
}

fn report(id: &VmId, name: &str, asked: &Asked) -> VmReport {
    let times = asked.late.total();
    let late = (times > 0).then(|| Lateness {
        mean: asked.late_sum_ns as f64 / 1e3 / times as f64,
        p99: asked.late.quantile_ns(0.99).unwrap_or(0.0) / 1e3,
        max: asked.late_max_ns as f64 / 1e3,
        histogram: buckets(&asked.late),
    });
    let timers = TimerCounts {
        asked: asked.counts.expired,
        honoured: asked.counts.honoured,
        late: asked.late.from_edge(TimerCounts::LATE_NS),
        refused: asked.counts.in_debt + asked.counts.too_soon + asked.counts.over_quota,
    };
    VmReport {
        id: id.clone(),
        name: name.to_owned(),
        timers,
        counts: asked.counts,
        ahead_max_ms: asked.ahead_max_ns as f64 / 1e6,
        expiry_to_running_us: late,
        cpu_s: asked.cpu_ns as f64 / 1e9,
    }
}
