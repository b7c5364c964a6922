//! Metrics of VMs, their vCPUs, and what makes them wait.

use super::{Metric, Series, View};
use prometheus_client::metrics::MetricType::{Counter, Gauge, Info};
use vsteer_core::nouns::{
    COUNTERS, Culprit, Kind, Limits, Manager, Pressure, Role, STALLS, ThreadCounters, VmConfig,
};

/// The states of a vCPU, by their counters. `wait` stands for ready and limited where these are not told apart.
type Get = fn(&ThreadCounters) -> Option<u64>;
const STATES: [(Get, &str); 6] = [
    (|c| c.run_ns, "run"),
    (|c| c.ready_ns, "ready"),
    (|c| c.limited_ns, "limited"),
    (|c| c.costop_ns, "costop"),
    (|c| c.blocked_ns, "blocked"),
    (|c| c.wait_ns, "wait"),
];

pub const METRICS: &[Metric] = &[
    Metric {
        name: "vsteer_vm",
        help: "A VM, with what it is called elsewhere",
        unit: "",
        kind: Info,
        of: info,
    },
    Metric {
        name: "vsteer_vcpu_state",
        help: "Time of a vCPU by state: run, ready (waits for a pCPU), limited (by a quota), costop, blocked; wait: \
            ready and limited, where vsteer cannot tell them apart",
        unit: "seconds",
        kind: Counter,
        of: |seen, series| {
            each_vcpu(seen, &mut |vm, vcpu, c| states(series, &[("vm", vm), ("vcpu", vcpu)], c));
        },
    },
    Metric {
        name: "vsteer_vcpu_part",
        help: "Parts of states: lag (ready while another vCPU ran), waking (wake-up under way), overlap (interrupts), \
            exit (run outside the guest), halt_poll",
        unit: "seconds",
        kind: Counter,
        of: |seen, series| {
            let parts = ["lag_ns", "waking_ns", "overlap_ns", "exit_ns", "halt_poll_ns"];
            let counters: Vec<_> = COUNTERS.iter().filter(|counter| parts.contains(&counter.name)).collect();
            each_vcpu(seen, &mut |vm, vcpu, c| {
                for counter in &counters {
                    let part = counter.name.trim_end_matches("_ns");
                    let labels = [("vm", vm), ("vcpu", vcpu), ("part", part)];
                    (counter.get)(c).iter().for_each(|ns| series.add_ns(&labels, *ns));
                }
            });
        },
    },
    Metric {
        name: "vsteer_vcpu_events",
        help: "Events of a vCPU: switches (it got a pCPU), preemptions, wakeups, migrations (to another pCPU)",
        unit: "",
        kind: Counter,
        of: |seen, series| {
            each_vcpu(seen, &mut |vm, vcpu, c| {
                for counter in COUNTERS.iter().filter(|counter| counter.kind == Kind::Events) {
                    let labels = [("vm", vm), ("vcpu", vcpu), ("event", counter.name)];
                    (counter.get)(c).iter().for_each(|n| series.add(&labels, *n as f64));
                }
            });
        },
    },
    Metric {
        name: "vsteer_thread_state",
        help: "Time by state of a VM's other threads, summed by role: emulator, iothread, vhost, worker",
        unit: "seconds",
        kind: Counter,
        of: |seen, series| {
            for of in seen.roles.iter().filter(|of| of.role.vcpu().is_none()) {
                states(series, &[("vm", of.name), ("role", &of.role.to_string())], &of.counters);
            }
        },
    },
    Metric {
        name: "vsteer_vm_state",
        help: "Time by state of all of a VM's worlds together, where the hypervisor counts only these",
        unit: "seconds",
        kind: Counter,
        of: |seen, series| {
            for vm in &seen.totals.batch().vms {
                vm.group.iter().for_each(|g| states(series, &[("vm", seen.name(&vm.vm))], &g.counters));
            }
        },
    },
    Metric {
        name: "vsteer_blame",
        help: "Ready time of a VM by who had the pCPU; the culprit other is all that have no series of their own",
        unit: "seconds",
        kind: Counter,
        of: blame,
    },
    Metric {
        name: "vsteer_vm_throttled_periods",
        help: "Periods in which a quota was used up; quota is own, or shared with others (of a slice or a pod)",
        unit: "",
        kind: Counter,
        of: |seen, series| {
            for vm in &seen.totals.batch().vms {
                let name = seen.name(&vm.vm);
                let of = [("own", vm.throttled_periods), ("shared", vm.throttled_above)];
                for (quota, periods) in of {
                    periods.iter().for_each(|n| series.add(&[("vm", name), ("quota", quota)], *n as f64));
                }
            }
        },
    },
    Metric {
        name: "vsteer_vm_pressure",
        help: "Stalls of a VM's cgroup (PSI): at least one task (some) or all (full) waited for cpu, io or memory",
        unit: "seconds",
        kind: Counter,
        of: |seen, series| {
            for vm in &seen.totals.batch().vms {
                vm.pressure.iter().for_each(|p| stalls(series, &[("vm", seen.name(&vm.vm))], p));
            }
        },
    },
    Metric {
        name: "vsteer_vm_timers",
        help: "Timers of a VM that `vsteer realtime` serves: asked, honoured, late (by more than 1 ms), refused",
        unit: "",
        kind: Counter,
        of: |seen, series| {
            for vm in &seen.totals.batch().vms {
                let Some(t) = vm.timers else { continue };
                let all =
                    [("asked", t.asked), ("honoured", t.honoured), ("late", t.late), ("refused", t.refused)];
                for (outcome, n) in all {
                    series.add(&[("vm", seen.name(&vm.vm)), ("outcome", outcome)], n as f64);
                }
            }
        },
    },
    Metric {
        name: "vsteer_vm_node_memory",
        help: "Memory of a VM on each NUMA node of the host, read now and then",
        unit: "bytes",
        kind: Gauge,
        of: |seen, series| {
            for vm in seen.minute.iter().flat_map(|model| &model.vms) {
                for (node, bytes) in vm.memory_by_node.iter().flatten() {
                    let labels = [("vm", seen.name(&vm.id)), ("node", &node.to_string())];
                    series.add(&labels, *bytes as f64);
                }
            }
        },
    },
    Metric {
        name: "vsteer_vm_vcpus",
        help: "vCPUs of a VM",
        unit: "",
        kind: Gauge,
        of: |seen, series| each_setting(seen, series, |vm| Some(vm.vcpu_count() as f64)),
    },
    Metric {
        name: "vsteer_vm_weight",
        help: "CPU weight of a VM, relative to the default of its scale",
        unit: "ratio",
        kind: Gauge,
        of: |seen, series| each_setting(seen, series, |vm| Some(vm.weight?.relative())),
    },
    Metric {
        name: "vsteer_vm_limit_pcpus",
        help: "Quota of a VM in pCPUs, the smallest that holds for the whole VM; none: no series",
        unit: "",
        kind: Gauge,
        of: |seen, series| each_setting(seen, series, limit),
    },
    Metric {
        name: "vsteer_vm_allowed_pcpus",
        help: "pCPUs that a VM's vCPUs may use",
        unit: "",
        kind: Gauge,
        of: |seen, series| {
            let allowed = |vm: &VmConfig| {
                let all = vm.vcpus().fold(vsteer_core::CpuSet::new(), |all, t| all.union(&t.affinity));
                (!all.is_empty()).then_some(all.len() as f64)
            };
            each_setting(seen, series, allowed);
        },
    },
    Metric {
        name: "vsteer_vm_memory",
        help: "Memory that the guest was given",
        unit: "bytes",
        kind: Gauge,
        of: |seen, series| each_setting(seen, series, |vm| Some(vm.memory_bytes? as f64)),
    },
];

fn info(seen: &View<'_>, series: &mut Series<'_>) {
    for vm in &seen.config.vms {
        let manager = manager(&vm.manager);
        let mut labels = vec![("vm", seen.name(&vm.id)), ("id", &*vm.id.0), ("manager", manager)];
        // A label of a manager cannot take the place of one of ours.
        let more = vm.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        labels.extend(more.filter(|(name, _)| !["vm", "id", "manager"].contains(name)));
        series.add(&labels, 1.0);
    }
}

fn manager(manager: &Manager) -> &'static str {
    match manager {
        Manager::Libvirt(_) => "libvirt",
        Manager::Proxmox(_) => "proxmox",
        Manager::KubeVirt => "kubevirt",
        Manager::Kata => "kata",
        Manager::Bare => "none",
        Manager::Xen => "xen",
        Manager::Vsphere(_) => "vsphere",
    }
}

/// Calls for each vCPU with its VM's name, its number and its counters.
pub(super) fn each_vcpu(seen: &View<'_>, of: &mut dyn FnMut(&str, &str, &ThreadCounters)) {
    for one in &seen.roles {
        if let Role::Vcpu(number) = one.role {
            of(one.name, &number.to_string(), &one.counters);
        }
    }
}

fn states(series: &mut Series<'_>, labels: &[(&str, &str)], counters: &ThreadCounters) {
    let mut labels = [labels, &[("state", "")]].concat();
    for (get, state) in STATES {
        // Where ready is measured, wait says nothing more.
        if state == "wait" && counters.ready_ns.is_some() {
            continue;
        }
        if let (Some(ns), Some(last)) = (get(counters), labels.last_mut()) {
            last.1 = state;
            series.add_ns(&labels, ns);
        }
    }
}

/// Each kind of stall.
pub(super) fn stalls(series: &mut Series<'_>, labels: &[(&str, &str)], pressure: &Pressure) {
    for (stall, ns) in STALLS.iter().zip(pressure.each()) {
        let labels = [labels, &[("resource", stall.file), ("kind", stall.line)]].concat();
        ns.iter().for_each(|ns| series.add_ns(&labels, *ns));
    }
}

fn blame(seen: &View<'_>, series: &mut Series<'_>) {
    for (vm, culprit, ns) in seen.culprits.all() {
        let (kind, name) = match culprit {
            None => ("other", String::new()),
            Some(Culprit::Vm(by)) if by == vm => ("itself", seen.name(by).to_owned()),
            Some(Culprit::Vm(by)) => ("vm", seen.name(by).to_owned()),
            Some(Culprit::Process { comm, container: None, .. }) => ("process", comm.clone()),
            Some(Culprit::Process { comm, container: Some(of), .. }) => ("container", format!("{of} {comm}")),
            Some(Culprit::Kernel { comm }) => ("kernel", comm.clone()),
            Some(Culprit::Placement) => ("placement", String::new()),
            Some(Culprit::Unattributed) => ("unknown", String::new()),
        };
        series.add_ns(&[("vm", seen.name(vm)), ("kind", kind), ("culprit", &name)], ns);
    }
}

fn each_setting(seen: &View<'_>, series: &mut Series<'_>, of: impl Fn(&VmConfig) -> Option<f64>) {
    for vm in &seen.config.vms {
        of(vm).iter().for_each(|value| series.add(&[("vm", seen.name(&vm.id))], *value));
    }
}

/// The smallest quota that holds for all of the VM, in pCPUs.
fn limit(vm: &VmConfig) -> Option<f64> {
    let Limits { per_vcpu, whole_vm, .. } = vm.limits;
    let own = [per_vcpu.map(|q| q.cpus() * vm.vcpu_count() as f64), whole_vm.map(|q| q.cpus())];
    let all = own.into_iter().flatten().chain(vm.quota_above().map(|q| q.quota.cpus()));
    all.reduce(f64::min)
}
