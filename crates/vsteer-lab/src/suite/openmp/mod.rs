//! Does pinning make parallel loops faster on local VMs? OpenMP in two VMs of two vCPUs each on two pCPUs, by `vsteer experiment`.
//!
//! Published, on Xen ("OpenMP task scheduling with and without CPU pinning on Xen"): 3.7, 3.4 and 3.8 % faster on four cores. Here both VMs have the same two pCPUs,
//! so that pinning costs no idle pCPU; pinned and floating are the two levels of one factor, in blocks and in random order, set and read back by virsh.
//! A region's mean time over a visit is what is measured ([`loops`]), by the VMs' own telling.
//!
//! Then each is looked at by the observer, so that the reason is shown: moves between pCPUs, switches, what the vCPUs waited. Caches are not: no counter of
//! them is to be had here. By the clock on the wall: a quiet machine of two cores gives narrow intervals, a busy one wide ones.

pub mod loops;

use super::steered::failed;
use super::{Bench, Case, Findings};
use crate::contention::Lab;
use crate::drive::{Vsteer, wait};
use crate::interrupt;
use crate::libvirtd;
use crate::process::cpu_ns;
use crate::report::requests::{Answered, answered, requests_file};
use loops::{Gain, ROWS, Region, SCHEDULES, THREADS, Told, VCPUS, agree, alone, simulated};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vsteer_core::Fault;
use vsteer_core::model::{self, HostModel};
use vsteer_core::sim::guest::team::Schedule;
use vsteer_record::Recording;

/// See the file's head.
pub const CASE: Case = Case {
    name: "openmp",
    doc: "parallel loops in two local VMs, pinned and floating, by an experiment: effects with intervals beside the simulator's",
    in_test: false,
    run,
};

/// Published gains, percent, in the order of [`SCHEDULES`].
const PUBLISHED: [f64; 3] = [3.7, 3.4, 3.8];
/// The second VM begins so long after its boot, s.
const ALONE_S: u32 = 45;
const BEGINS_LIMIT: Duration = Duration::from_secs(90);
/// Blocks, and how long a visit is, s.
const BLOCKS: (u32, u32) = (12, 5);
const VISIT_S: u32 = 5;
/// A log has a region at most so long after its end, s.
const LOGGED_S: f64 = 1.5;
const LIMIT: Duration = Duration::from_secs(1_800);
const LOOK: &str = "10s";

/// What a run prints: the mean time of both VMs' regions that lie in it whole, ms.
const REGIONS: &str = r#"from=$(date +%s.%N); sleep VISIT; to=$(date +%s.%N); sleep LOGGED
cat LOGS | awk -F'[:,}]' -v from="$from" -v to="$to" '
    $2 <= to && $2 - $4 / 1e6 >= from { n++; us += $4 }
    END { if (!n) exit 1; printf "region_ms %.4f\nregions %d\n", us / n / 1000, n }'
"#;
/// Sets `$1`.
const SET: &str = r#"for vm in VMS; do for vcpu in 0 1; do
    case $1 in pinned) cpus=$vcpu;; *) cpus=0-1;; esac
    virsh --quiet --connect 'URI' vcpupin $vm $vcpu $cpus --live >/dev/null || exit
done; done
"#;
/// Which is set.
const READ: &str = r#"for vm in VMS; do virsh --quiet --connect 'URI' vcpupin $vm --live; done | awk '
    NF == 2 { n++; pinned += $1 == $2; floating += $2 == "0-1" }
    END { print n && pinned == n ? "pinned" : n && floating == n ? "floating" : "neither" }'
"#;

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    let mut figures = Vec::new();
    let schedules = if bench.full { &SCHEDULES[..] } else { &SCHEDULES[..1] };
    for ((name, schedule, chunk), published) in schedules.iter().zip(PUBLISHED) {
        let vm = |begin_s: u32| format!("program(run=loops/{name}/{ROWS}/{THREADS}/{begin_s})=1x{VCPUS}");
        let spec = format!("{},{}", vm(1), vm(ALONE_S));
        let found = bench.on_lab(&spec, bench.seed, |lab, v| {
            of_schedule(bench, lab, v, (name, (*schedule, *chunk)), published, &mut findings)
        });
        match found {
            Ok(found) => figures.push(found),
            Err(fault) => {
                interrupt::check()?;
                findings.claim(format!("OpenMP, {name}: it runs to its end"), false, fault.to_string());
            }
        }
    }
    findings.figures = Value::Array(figures);
    Ok(findings)
}

/// The request log's lines as regions.
fn regions(log: &Path) -> Result<Vec<Region>, Fault> {
    let region = |r: &Answered| Region { begin_s: r.ts_s - r.took_s, end_s: r.ts_s };
    Ok(answered(log)?.iter().map(region).collect())
}

fn script(folder: &Path, name: &str, text: &str) -> Result<PathBuf, Fault> {
    let file = folder.join(name);
    std::fs::write(&file, text).map_err(|e| Fault::io(format!("writing {}", file.display()), &e))?;
    Ok(file)
}

fn of_schedule(
    bench: &Bench,
    lab: &Lab,
    v: &Vsteer,
    (name, schedule): (&str, (Schedule, Option<u64>)),
    published: f64,
    findings: &mut Findings,
) -> Result<Value, Fault> {
    // The one that begins at once is the first.
    let mut vms: Vec<_> = lab.state().vms.iter().collect();
    vms.sort_by_key(|vm| vm.workload.ends_with(&format!("/{ALONE_S}")));
    let names: Vec<&str> = vms.iter().map(|vm| vm.name.as_str()).collect();
    let logs: Vec<PathBuf> = names.iter().map(|name| requests_file(lab.dir(), name)).collect();
    let begun = Instant::now();
    while regions(&logs[1])?.len() < 2 {
        if begun.elapsed() > BEGINS_LIMIT {
            return Err(failed("the second VM has not begun"));
        }
        wait("until the second VM computes too", Duration::from_secs(1))?;
    }
    let together_s = regions(&logs[1])?.first().map_or(f64::INFINITY, |r| r.begin_s);
    let (alone_s, between_s) =
        alone(&regions(&logs[0])?, together_s).ok_or_else(|| failed("the first VM was never alone"))?;

    let folder = PathBuf::from(bench.fresh(&format!("openmp-{name}"))?);
    std::fs::create_dir_all(&folder).map_err(|e| Fault::io(format!("making {}", folder.display()), &e))?;
    let list: Vec<String> = logs.iter().map(|log| format!("'{}'", log.display())).collect();
    let filled = REGIONS
        .replace("VISIT", &VISIT_S.to_string())
        .replace("LOGGED", &LOGGED_S.to_string())
        .replace("LOGS", &list.join(" "));
    let of_vms = |text: &str| text.replace("VMS", &names.join(" ")).replace("URI", &v.uri);
    let (command, set, read) = (
        script(&folder, "regions.sh", &filled)?,
        script(&folder, "set.sh", &of_vms(SET))?,
        script(&folder, "read.sh", &of_vms(READ))?,
    );
    let blocks = if bench.full { BLOCKS.0 } else { BLOCKS.1 };
    let description = format!(
        "name = \"openmp-{name}\"\nseed = {}\ndesign = \"pair\"\nruns_least = {blocks}\nruns_most = {blocks}\nsettle_s = 0.5\ntimeout_s = 60\n\
         [workload]\ncommand = \"sh {}\"\n[[measure]]\nname = \"region\"\nof = {{ printed = \"region_ms {{}}\" }}\nunit = \"ms\"\nbetter = \"less\"\n\
         [[factor]]\nname = \"pinning\"\nlevels = [\"floating\", \"pinned\"]\nset = \"sh {} {{level}}\"\nread = \"sh {}\"\n",
        bench.seed,
        command.display(),
        set.display(),
        read.display()
    );
    let file = script(&folder, "openmp.toml", &description)?;
    let (file, log) = (file.to_string_lossy(), folder.join("openmp.experiment"));
    let before = Used::so_far(lab, &names)?;
    let begun = Instant::now();
    let words = ["experiment", "run", &file, "-o", &log.to_string_lossy(), "--yes"];
    let answers = v.json(&words, LIMIT)?;
    let others = Used::so_far(lab, &names)?.others_since(&before) / begun.elapsed().as_nanos() as f64;

    let answer = &answers["measures"][0]["answers"][0];
    let percent = |bound: &str| answer["effect"][bound].as_f64().unwrap_or(f64::NAN);
    let measured = Gain {
        pct: -percent("likely"),
        half_pct: (percent("high") - percent("low")) / 2.0,
        n: answer["blocks"].as_u64().unwrap_or(0) as usize,
    };
    let each = [others / 2.0; VCPUS as usize];
    let pairs = simulated(&Told {
        scheduler: "eevdf",
        schedule,
        alone_s,
        between_s,
        others: &each,
        switch_ns: None,
    })?;
    let simulated = Gain::of(&pairs).ok_or_else(|| failed("too few seeds"))?;
    findings.claim(
        format!("OpenMP, {name}: what pinning brings has the simulator's sign, or none that can be told, and its size within {} points", loops::POINTS),
        measured.n == blocks as usize && agree(measured, simulated),
        format!(
            "measured {} ({} blocks, {}), simulated {}; published, on Xen and four cores, {published:+.1} %",
            measured.told(),
            measured.n,
            answer["outcome"].as_str().unwrap_or("no outcome"),
            simulated.told()
        ),
    );
    let looks = looks(bench, v, name, &set)?;
    let moves = |at: usize| looks[at].1["migrations_per_s"].as_f64();
    findings.claim(
        format!("OpenMP, {name}: the observer sees why: pinned vCPUs never move, floating ones do"),
        moves(0).is_some_and(|moved| moved > 0.0) && moves(1) == Some(0.0),
        looks.iter().map(|(level, seen)| format!("{level}: {seen}")).collect::<Vec<_>>().join("; "),
    );
    Ok(
        json!({ "schedule": name, "measured": measured, "simulated": simulated, "published": published, "alone_s": alone_s, "between_s": between_s,
        "others_pcpus": others, "seen": looks.iter().cloned().collect::<serde_json::Map<_, _>>(), "answers": answers }),
    )
}

/// CPU time so far, ns.
struct Used {
    vms: f64,
    all: f64,
}

impl Used {
    fn so_far(lab: &Lab, names: &[&str]) -> Result<Used, Fault> {
        let mut vms = 0.0;
        for name in names {
            let pid =
                libvirtd::pid_of(lab.dir(), name).ok_or_else(|| failed(&format!("{name} does not run")))?;
            vms += cpu_ns(pid.pid)?;
        }
        Ok(Used { vms, all: crate::process::busy_ns()? })
    }

    fn others_since(&self, before: &Used) -> f64 {
        ((self.all - before.all) - (self.vms - before.vms)).max(0.0)
    }
}

/// What the observer sees of the vCPUs while they float and while they are pinned.
fn looks(bench: &Bench, v: &Vsteer, name: &str, set: &Path) -> Result<Vec<(String, Value)>, Fault> {
    let look = |level: &str| {
        let mut sh = std::process::Command::new("sh");
        crate::command::output(sh.arg(set).arg(level), Duration::from_secs(30))?;
        let to = bench.fresh(&format!("openmp-{name}-{level}.vsteer"))?;
        v.run(&["record", "-o", &to, "--for", LOOK, "--connect", &v.uri], false, LIMIT)?;
        let r = Recording::open(Path::new(&to))?;
        let model = model::derive(r.config_at(u64::MAX), &r.manifest.collector, &r.batches)?;
        Ok((level.to_owned(), seen(&model)))
    };
    ["floating", "pinned"].into_iter().map(look).collect()
}

/// Of all vCPUs together: moves and switches per second; of each on average, the part of the time that it was ready and did not run, percent. Of each
/// pCPU, the part that was idle, percent.
fn seen(model: &HostModel) -> Value {
    let vcpus: Vec<_> =
        model.vms.iter().flat_map(|vm| &vm.threads).filter(|t| t.role.vcpu().is_some()).collect();
    let sum = |of: fn(&model::ThreadModel) -> Option<f64>| vcpus.iter().map(|t| of(t)).sum::<Option<f64>>();
    let ready = sum(|t| t.shares.ready).map(|sum| 100.0 * sum / vcpus.len().max(1) as f64);
    let busy: f64 = model.pcpus.iter().map(|p| p.busy).sum();
    json!({
        "migrations_per_s": sum(|t| t.migrations_per_s),
        "switches_per_s": sum(|t| t.switches_per_s),
        "ready_pct": ready,
        "idle_pct": 100.0 * (1.0 - busy / model.pcpus.len().max(1) as f64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_prints_the_mean_of_what_lies_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        // One that began before, two within, one that ends later.
        let lines = [(0.1, 0.5), (0.3, 0.2), (0.4, 0.1), (3.0, 0.1)]
            .map(|(end, took)| format!("{{\"ts\":{:.9},\"duration_us\":{}}}\n", now_s + end, 1e6 * took));
        std::fs::write(&log, lines.concat()).unwrap();
        let text =
            REGIONS.replace("VISIT", "1").replace("LOGGED", "0").replace("LOGS", &log.to_string_lossy());
        let file = script(folder.path(), "r.sh", &text).unwrap();
        let out = std::process::Command::new("sh").arg(file).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stdout), "region_ms 150.0000\nregions 2\n");
        assert_eq!(regions(&log).unwrap().len(), 4);
    }
}
