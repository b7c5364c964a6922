//! Do the two collectors agree, and does eBPF account for the whole time?
//!
//! Both record the same 20 s. Per vCPU, ready plus limited (polling cannot separate them) must agree within 1
//! % of each other or 0.1 % of the window. The residual of eBPF's four states must be within 0.5 %. This is
//! done without a quota, and with nested ones: one per vCPU, one for a whole VM, and one above all VMs.
//!
//! The window of each vCPU begins and ends with a sample at which it does not wait. The reason: schedstat
//! counts a wait only when it ends. Waits of 200 ms occur. One that is open at the window's end would be
//! missing, which is ten times the allowed difference.

use super::surroundings::Watch;
use super::{Bench, Case, Evidence, Findings, Minutes};
use crate::contention::Lab;
use crate::drive::Vsteer;
use crate::{libvirtd, partition};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use vsteer_core::Fault;
use vsteer_core::nouns::{Batch, Tid};
use vsteer_record::Recording;

/// The least length of each window. The reason is not noise but a bias: when a waking thread preempts
/// another, the kernel's clock for the latter stops at the wake-up (`rq_clock_skip_update()`), 6 to 10 us
/// before the switch that eBPF sees. With timers of 10 ms there are 600 preemptions per second and vCPU,
/// which gives up to four fifths of the allowed difference. This is the full size; the short one has timers
/// of 40 ms.
const SECONDS: u64 = 20;
/// If a VM's quota is used up, at least this part of its time must be limited.
const LIMITED_LEAST: f64 = 0.2;
/// The quota above all VMs, in pCPUs: a little less than those of the VMs together.
const ABOVE_ALL: f64 = 1.05;
/// Length of the recording, so that windows of the required length can begin and end between waits.
const RECORDED: u64 = 45;

/// How often a recording is made again in which some vCPU waited at nearly every sample, so that its window is too short.
const RECORD_AGAIN: usize = 2;

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "collectors",
    doc: "eBPF and schedstat agree per vCPU, and eBPF's states leave no residual; with and without quotas",
    in_test: true,
    minutes: Minutes::new(2.2, 2.4),
    beside: false,
    run,
};

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    let timers = if bench.full { "periodic:2" } else { "periodic(period_us=40000):2" };
    let figures = bench.on_lab(&format!("burn=1x2,burn=1x4,{timers}"), bench.seed, |lab, v| {
        let plain = window(bench, v, "no quota", &mut findings)?;
        let (two, four) = (name_of(lab, 2), name_of(lab, 4));
        libvirtd::virsh(lab.dir(), &["schedinfo", &two, "--live", "--set", "vcpu_quota=30000"])?;
        libvirtd::virsh(lab.dir(), &["schedinfo", &two, "--live", "--set", "global_quota=50000"])?;
        libvirtd::virsh(lab.dir(), &["schedinfo", &four, "--live", "--set", "global_quota=60000"])?;
        partition::limit(&lab.state().partition(), ABOVE_ALL)?;
        let pids = lab.state().vms.iter().filter_map(|vm| Some(libvirtd::pid_of(lab.dir(), &vm.name)?.pid));
        let watch = Watch::start(&pids.collect::<Vec<_>>())?;
        let limited = window(bench, v, "quotas", &mut findings)?;
        let disturbed = watch.end()?.disturbed();
        for (vm, what) in
            [(&two, "0.3 pCPUs per vCPU and 0.5 for the VM"), (&four, "0.6 pCPUs for a VM of 4 vCPUs")]
        {
            let share =
                limited["vms"].as_array().and_then(|all| all.iter().find(|x| x["name"] == vm.as_str()));
            let share = share.and_then(|x| x["vcpus"]["limited"].as_f64()).unwrap_or(0.0);
            let claim = format!("{what}: limited is measured");
            let found = format!("{:.1} % summed over vCPUs", 100.0 * share);
            // If others keep a VM from its pCPUs, it does not use up its quota.
            match &disturbed {
                Some(why) if share <= LIMITED_LEAST => findings.not_judged(claim, why, found),
                _ => findings.claim(claim, share > LIMITED_LEAST, found),
            }
        }
        Ok(json!({ "plain": plain, "quotas": limited }))
    })?;
    findings.figures = figures;
    Ok(findings)
}

/// The name of a burner with this number of vCPUs.
fn name_of(lab: &Lab, vcpus: u32) -> String {
    let vm = lab.state().vms.iter().find(|v| v.vcpus == vcpus && v.workload.starts_with("burn"));
    vm.map(|v| v.name.clone()).unwrap_or_default()
}

fn window(bench: &Bench, v: &Vsteer, what: &str, findings: &mut Findings) -> Result<Value, Fault> {
    let (mut ebpf, mut polled, mut held) = recorded(bench, v)?;
    for _ in 0..RECORD_AGAIN {
        if !held.too_short {
            break;
        }
        (ebpf, polled, held) = recorded(bench, v)?;
    }
    held.claim(what, findings);
    let says = polled["missing"]["blocked_ns"].is_string() && polled["missing"]["ready_ns"].is_string();
    findings.claim(
        format!("{what}: polling says why it has no blocked and no ready"),
        says,
        polled["missing"].to_string(),
    );
    ebpf["vcpu_lines"] = json!(held.lines);
    Ok(ebpf)
}

/// What both collectors say of one recording, and how they compare.
fn recorded(bench: &Bench, v: &Vsteer) -> Result<(Value, Value, Held), Fault> {
    let (a, b) = (bench.fresh("ebpf.vsteer")?, bench.fresh("schedstat.vsteer")?);
    record_both(v, &a, &b)?;
    let ebpf = v.json(&["diagnose", &a], Duration::from_secs(60))?["model"].take();
    let polled = v.json(&["diagnose", &b], Duration::from_secs(60))?["model"].take();
    let both = [Recording::open(Path::new(&a))?.batches, Recording::open(Path::new(&b))?.batches];
    let mut held = Held::default();
    for vm in ebpf["vms"].as_array().into_iter().flatten() {
        for t in vm["threads"].as_array().into_iter().flatten().filter(|t| t["role"]["vcpu"].is_u64()) {
            held.hold(vm["name"].as_str().unwrap_or("?"), t, &both);
        }
    }
    Ok((ebpf, polled, held))
}

/// Records with eBPF into one folder and with polling into the other, in one process.
fn record_both(v: &Vsteer, ebpf: &str, polled: &str) -> Result<(), Fault> {
    let words = [
        "record",
        "-o",
        ebpf,
        "--second",
        polled,
        "--collector",
        "ebpf",
        // Not a multiple of a quota's period, because then a vCPU might be throttled at every sample or at
        // none.
        "--interval",
        "130ms",
        "--for",
        &format!("{RECORDED}s"),
        "--connect",
        &v.uri,
    ];
    v.run(&words, false, Duration::from_secs(RECORDED + 60)).map(drop)
}

/// The comparison of both collectors, vCPU by vCPU.
#[derive(Default)]
struct Held {
    /// The largest difference between waits, as a part of the allowed difference, and its vCPU.
    worst_wait: f64,
    worst_is: String,
    /// Some vCPU's window is shorter than [`SECONDS`].
    too_short: bool,
    worst_residual: f64,
    /// The largest part of the time that a vCPU waits.
    most_waited: f64,
    lines: Vec<Value>,
}

impl Held {
    fn hold(&mut self, name: &str, t: &Value, both: &[Vec<Batch>; 2]) {
        let of = |term: &str| t["shares"][term].as_f64().unwrap_or(f64::NAN);
        let residual = (1.0 - of("run") - of("ready") - of("limited") - of("blocked")).abs();
        let tid = t["tid"].as_u64().unwrap_or(0);
        // NaN (not measured, or never seen awake without waiting) must not count as agreement.
        let w =
            waits(both, Tid(tid as u32)).unwrap_or(Waits { ns: f64::NAN, ebpf: f64::NAN, polled: f64::NAN });
        self.most_waited = self.most_waited.max(w.ebpf / w.ns);
        let off = (w.ebpf - w.polled).abs() / (0.01 * w.ebpf.max(w.polled)).max(0.001 * w.ns);
        let vcpu = &t["role"]["vcpu"];
        self.too_short |= w.ns < SECONDS as f64 * 1e9;
        let nothing = off.is_nan() || w.ns < SECONDS as f64 * 1e9;
        if nothing || off > self.worst_wait {
            self.worst_wait = if nothing { f64::INFINITY } else { off };
            self.worst_is = format!(
                "{name} vCPU {vcpu}: {:.1} ms by eBPF, {:.1} ms by schedstat in {:.1} s",
                w.ebpf / 1e6,
                w.polled / 1e6,
                w.ns / 1e9
            );
        }
        self.worst_residual =
            if residual.is_nan() { f64::INFINITY } else { self.worst_residual.max(residual) };
        self.lines.push(json!({ "vm": name, "vcpu": vcpu, "window_ns": w.ns, "ebpf_wait_ns": w.ebpf,
            "schedstat_wait_ns": w.polled, "ready": of("ready"), "limited": of("limited"), "residual": residual }));
    }

    fn claim(&self, what: &str, findings: &mut Findings) {
        let Held { worst_wait, worst_is, worst_residual, most_waited, .. } = self;
        let vcpus = self.lines.len();
        findings.claim_on(
            format!("{what}: ready and limited agree within 1 % or 0.1 % of the window, on every vCPU"),
            // Two counters that count nothing would also agree.
            Evidence::amount(100.0 * most_waited, 1.0, "% ready and limited of the vCPU that waits most"),
            vcpus > 0 && *worst_wait <= 1.0,
            format!("{vcpus} vCPUs, worst at {worst_wait:.2} of what is allowed: {worst_is}"),
        );
        findings.claim(
            format!("{what}: running, ready, limited and blocked leave at most 0.5 %, on every vCPU"),
            vcpus > 0 && *worst_residual <= 0.005,
            format!("worst {:.4} %", 100.0 * worst_residual),
        );
    }
}

/// What both counted in one vCPU's window, ns.
struct Waits {
    ns: f64,
    ebpf: f64,
    polled: f64,
}

/// From the first to the last sample at which the thread does not wait; `None` if there are not two such
/// samples.
fn waits([ebpf, polled]: &[Vec<Batch>; 2], tid: Tid) -> Option<Waits> {
    let of = |b: &Batch| b.threads.iter().find(|t| t.tid == tid).cloned();
    let moments: Vec<(f64, f64, f64)> = ebpf
        .iter()
        .zip(polled)
        .filter_map(|(a, b)| {
            let (seen, told) = (of(a)?, of(b)?);
            let c = &seen.counters;
            // The kernel's run delay begins when a wake-up arrives.
            let wait = c.ready_ns? + c.limited_ns? - c.waking_ns?;
            (seen.waiting_ns? == 0).then_some((a.mono_ns as f64, wait as f64, told.counters.wait_ns? as f64))
        })
        .collect();
    let (first, last) = (moments.first()?, moments.last()?);
    Some(Waits { ns: last.0 - first.0, ebpf: last.1 - first.1, polled: last.2 - first.2 })
}
