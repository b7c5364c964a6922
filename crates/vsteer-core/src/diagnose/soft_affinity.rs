//! Does a vCPU run outside the pCPUs that it prefers (Xen's soft affinity), and why?
//!
//! The rule distinguishes three causes. The hard affinity or the pool allows none of the preferred pCPUs: then the preference has no
//! effect, which is certain. The pool's scheduler ignores preferences. Or the preferred pCPUs are full, so the scheduler takes
//! others.
//!
//! Source: `xen/common/sched`, in a copy whose release was not noted. `sched_set_affinity` (`core.c`) and `has_soft_affinity`
//! (`private.h`): a preference counts only where it overlaps the hard affinity and does not contain it. `credit.c` and
//! `credit2.c` look at preferred pCPUs first at each wake-up and balancing. `null.c`, `pick_res` does so only when it assigns a
//! vCPU to a pCPU. `rt.c`, `rt_res_pick_locked` looks at the hard affinity alone, and so does `arinc653.c`.
//!
//! Left out: moves between two samples ([`crate::model::RanOn`]).

use super::{Context, Evidence, Finding, Measure, Rule, count, percent};
use crate::CpuSet;
use crate::model::{ThreadModel, VmModel};
use crate::nouns::{VmConfig, VmThread};
use crate::plural::pcpus;
use crate::setting::argv::shell_word;

pub const RULE: Rule = Rule {
    name: "soft_affinity",
    doc: "a Xen domain runs outside the pCPUs that it prefers, or its preference has no effect",
    explains: &[Measure::LocalMemory],
    check,
};

/// Schedulers of Xen that place vCPUs by their hard affinity alone.
const IGNORE: [&str; 2] = ["rtds", "arinc653"];
/// A VM that runs outside for less than this part of its run time follows its preference.
const OUTSIDE: f64 = 0.1;
/// A VM with a smaller run share hardly suffers.
const RUNS: f64 = 0.05;
/// With fewer samples, the place of one vCPU at one moment would decide.
const SAMPLES: u32 = 5;

/// The vCPUs of one VM whose preference excludes some of the pCPUs that they may use.
struct Preferring<'a> {
    vm: &'a VmConfig,
    seen: &'a VmModel,
    vcpus: Vec<(&'a VmThread, &'a CpuSet)>,
}

impl Preferring<'_> {
    /// All pCPUs that they prefer.
    fn preferred(&self) -> CpuSet {
        self.vcpus.iter().fold(CpuSet::new(), |all, (_, prefers)| all.union(prefers))
    }

    /// Those of them that they may use.
    fn usable(&self) -> CpuSet {
        let may = self.vcpus.iter().fold(CpuSet::new(), |all, (t, _)| all.union(&t.affinity));
        self.preferred().intersection(&may)
    }

    fn whose(&self) -> String {
        let name = &self.vm.name;
        if self.vcpus.len() == self.vm.vcpu_count() {
            return format!("VM {name:?}");
        }
        let numbers: CpuSet = self.vcpus.iter().filter_map(|(t, _)| t.role.vcpu()).collect();
        format!("{} {numbers} of VM {name:?}", if numbers.len() == 1 { "vCPU" } else { "vCPUs" })
    }

    fn measured(&self) -> impl Iterator<Item = (&ThreadModel, &CpuSet)> {
        self.vcpus.iter().filter_map(|(t, prefers)| {
            Some((self.seen.vcpu_threads().find(|seen| seen.role == t.role)?, *prefers))
        })
    }

    /// Run time outside, by pCPU.
    fn outside(&self) -> Vec<(u32, f64)> {
        let of = |(t, prefers): (&ThreadModel, &CpuSet)| -> Vec<(u32, f64)> {
            let outside = t.ran_on.iter().filter(|on| !prefers.contains(on.cpu));
            outside.map(|on| (on.cpu, on.run)).collect()
        };
        self.measured().flat_map(of).collect()
    }

    fn run(&self) -> f64 {
        self.measured().flat_map(|(t, _)| &t.ran_on).map(|on| on.run).sum()
    }

    fn samples(&self) -> u32 {
        self.measured().flat_map(|(t, _)| &t.ran_on).map(|on| on.samples).sum()
    }

    /// Run time outside, as a part of the run time; `None` if it was not measured or the VM hardly runs.
    fn part_outside(&self) -> Option<f64> {
        let run = self.run();
        (run >= RUNS && self.samples() >= SAMPLES)
            .then(|| self.outside().iter().map(|(_, run)| run).sum::<f64>() / run)
    }

    fn command(&self, setting: &str, cpus: impl std::fmt::Display) -> String {
        format!("vsteer plan --set {}", shell_word(&format!("{}:{setting}={cpus}", self.vm.name)))
    }
}

fn check(c: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (vm, seen) in c.vms() {
        let with = vm.vcpus().filter_map(|t| Some((t, t.prefers.as_ref()?)));
        let vcpus: Vec<_> = with.filter(|(t, prefers)| !t.affinity.is_subset(prefers)).collect();
        let (void, vcpus): (Vec<_>, Vec<_>) =
            vcpus.into_iter().partition(|(t, prefers)| !t.affinity.intersects(prefers));
        if !void.is_empty() {
            findings.push(void_preference(c, &Preferring { vm, seen, vcpus: void }));
        }
        let p = Preferring { vm, seen, vcpus };
        let ignored = vm.pool.as_ref().filter(|pool| IGNORE.contains(&pool.scheduler.as_str()));
        let outside = p.part_outside();
        let follows = outside.is_some_and(|part| part <= OUTSIDE);
        match (ignored, outside) {
            _ if p.vcpus.is_empty() || follows => {}
            (Some(pool), _) => findings.push(ignored_preference(c, &p, &pool.scheduler)),
            (None, Some(part)) => findings.push(elsewhere(c, &p, part)),
            (None, None) => {}
        }
    }
    findings
}

/// The preference and the hard affinity have no pCPU in common.
fn void_preference(c: &Context<'_>, p: &Preferring<'_>) -> Finding {
    let preferred = p.preferred();
    let pool = p.vm.pool.as_ref();
    let allowed = pool.map_or_else(|| preferred.clone(), |pool| pool.cpus.intersection(&preferred));
    let next = match pool.filter(|_| allowed.is_empty()) {
        Some(pool) => format!(
            "move the domain to a pool that has these pCPUs, or let it prefer pCPUs of the pool {:?}; without a preference: {}",
            pool.name,
            p.command("prefer", "any")
        ),
        None => format!("allow the vCPUs to run there: {}", p.command("pin", allowed)),
    };
    finding(
        c,
        p,
        format!(
            "the soft affinity of {} has no effect: the hard affinity allows none of the preferred {}",
            p.whose(),
            pcpus(&preferred)
        ),
        "Xen considers preferred pCPUs only where the hard affinity and the pool allow them. The configuration contradicts itself."
            .into(),
        vec![count("preferred pCPUs that the vCPUs may use", 0.0, "pCPUs", None)],
        "`xl vcpu-list` shows a preferred pCPU in the hard affinity of these vCPUs".into(),
        next,
    )
}

/// The scheduler does not look at preferences.
fn ignored_preference(c: &Context<'_>, p: &Preferring<'_>, scheduler: &str) -> Finding {
    let measured = p.part_outside().map(outside_evidence);
    finding(
        c,
        p,
        format!(
            "{}: Xen's scheduler {scheduler} ignores the soft affinity to {}",
            p.whose(),
            pcpus(&p.preferred())
        ),
        format!(
            "The scheduler {scheduler} places vCPUs by their hard affinity alone. Credit, Credit2 and null look at the soft \
                affinity."
        ),
        Vec::from_iter(measured),
        "the vCPUs run on the preferred pCPUs without a pin (`xl vcpu-list`, several times)".into(),
        format!("pin the vCPUs instead: {}", p.command("pin", p.usable())),
    )
}

fn outside_evidence(part: f64) -> Evidence {
    percent("run time outside the preferred pCPUs, part of the run time", part, Some(OUTSIDE))
}

/// The scheduler takes other pCPUs.
fn elsewhere(c: &Context<'_>, p: &Preferring<'_>, part: f64) -> Finding {
    let usable = p.usable();
    let busy: Vec<f64> =
        c.model.pcpus.iter().filter(|pcpu| usable.contains(pcpu.cpu)).map(|pcpu| pcpu.busy).collect();
    let mean = busy.iter().sum::<f64>() / busy.len().max(1) as f64;
    let idle: f64 = busy.iter().map(|busy| 1.0 - busy).sum();
    let outside: f64 = p.outside().iter().map(|(_, run)| run).sum();
    let least = busy.iter().copied().fold(1.0, f64::min);
    let full = !busy.is_empty() && (idle < outside || least > c.thresholds.pcpu_busy);
    let (what, why, next) = if full {
        (
            ", because these are full",
            "If the preferred pCPUs are busy, Xen lets a vCPU run on others that it may use.",
            "give the preferred pCPUs room: let other VMs there prefer other pCPUs, with: vsteer plan --set VM:prefer=PCPUS".into(),
        )
    } else {
        (
            "",
            if p.vm.pool.as_ref().is_some_and(|pool| pool.scheduler == "null") {
                "The null scheduler chooses a pCPU only when a vCPU starts or its pCPU goes away."
            } else {
                "On average the preferred pCPUs have room. They may be busy at the moments when the vCPUs wake up."
            },
            format!("if the vCPUs must stay there, pin them: {}", p.command("pin", &usable)),
        )
    };
    let mut evidence = vec![
        outside_evidence(part),
        count("samples, summed over vCPUs", f64::from(p.samples()), "samples", None),
    ];
    if !busy.is_empty() {
        evidence.push(percent("busy share of the preferred pCPUs, mean", mean, Some(c.thresholds.pcpu_busy)));
    }
    finding(
        c,
        p,
        format!(
            "{}: {:.0} % of the run time is outside the preferred {}{what}",
            p.whose(),
            100.0 * part,
            pcpus(&p.preferred())
        ),
        format!(
            "{why} A sample tells only the pCPU on which a vCPU ran last; moves between samples are not seen."
        ),
        evidence,
        if full {
            "the run time outside stays the same when the preferred pCPUs have idle time"
        } else {
            "more samples show the vCPUs on the preferred pCPUs (vsteer top, key e; or `xl vcpu-list`)"
        }
        .into(),
        next,
    )
}

/// The finding, with what the run time outside costs: accesses to memory on the node of the preferred pCPUs.
fn finding(
    c: &Context<'_>,
    p: &Preferring<'_>,
    title: String,
    mut explanation: String,
    mut evidence: Vec<Evidence>,
    disproved_by: String,
    next: String,
) -> Finding {
    let nodes: Vec<_> = c.config.topology.nodes().iter().filter(|n| !n.cpus.is_empty()).collect();
    let preferred = p.preferred();
    let homes: Vec<_> = nodes.iter().filter(|n| n.cpus.intersects(&preferred)).collect();
    let is_home = |cpu: u32| homes.iter().any(|n| n.cpus.contains(cpu));
    let remote: f64 = p.outside().iter().filter(|(cpu, _)| !is_home(*cpu)).map(|(_, run)| run).sum();
    let near = memory_on(p, &homes.iter().map(|n| n.id.0).collect());
    if homes.len() < nodes.len() {
        match near {
            Some(near) => evidence.push(percent("memory on the node of the preferred pCPUs", near, None)),
            None => explanation.push_str(
                " If the VM's memory is on the node of the preferred pCPUs, its accesses cross nodes.",
            ),
        }
    }
    Finding {
        rule: RULE.name.to_owned(),
        vm: Some(p.vm.id.clone()),
        title,
        explanation,
        evidence,
        // As in memory_remote. Where the place of the memory is not known, the loss is not known either.
        loss_pcpus: 0.1 * remote * near.unwrap_or(0.0),
        disproved_by,
        next,
        ..Finding::default()
    }
}

/// The part of the VM's memory on these nodes, by its pages or else its binding; `None` if neither is known.
fn memory_on(p: &Preferring<'_>, nodes: &CpuSet) -> Option<f64> {
    let by_pages = p.seen.memory_by_node.as_ref().and_then(|memory| {
        let total: u64 = memory.iter().map(|(_, bytes)| bytes).sum();
        let here: u64 = memory.iter().filter(|(n, _)| nodes.contains(*n)).map(|(_, bytes)| bytes).sum();
        (total > 0).then(|| here as f64 / total as f64)
    });
    by_pages.or_else(|| p.vm.memory_nodes.as_ref().filter(|bound| bound.is_subset(nodes)).map(|_| 1.0))
}
