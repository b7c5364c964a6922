//! Does pinning make parallel loops faster on local VMs? OpenMP in two VMs with two vCPUs each on two pCPUs,
//! with `vsteer experiment`.
//!
//! Published, on Xen ("OpenMP task scheduling with and without CPU pinning on Xen"): 3.7, 3.4 and 3.8 %
//! faster on four cores. Here both VMs have the same two pCPUs, so that pinning leaves no pCPU idle. Pinned
//! and floating are the two levels of one factor, in blocks and in random order, set and read back with
//! virsh. There are two measures ([`loops`]), from the VMs' own reports: the mean time of a region over a
//! visit, as in the paper, and the time from one product to the next. If a pin makes regions wait less but
//! the time between them longer, it has no benefit.
//!
//! Then the observer looks at each setting ([`looks`]) to show the reason, and the result is compared with
//! the rule about the benefit of pins ([`rule`]). Times are wall-clock times: a quiet machine with two cores
//! gives narrow intervals, a busy one wide ones. For the same loops on the emulated host, whose times mean
//! nothing if several pCPUs are busy, see [`emulated`].
//!
//! GAP(openmp-floating): the simulator misses regions of one schedule in one run of three.

pub mod emulated;
mod looks;
pub mod loops;
mod rule;

use super::steered::failed;
use super::{Bench, Case, Findings, Minutes};
use crate::contention::Lab;
use crate::drive::{Vsteer, wait};
use crate::interrupt;
use crate::libvirtd;
use crate::process::cpu_ns;
use crate::report::requests::{Answered, answered, requests_file};
use loops::{Gain, Pair, ROWS, Region, SCHEDULES, THREADS, Told, VCPUS, agree, alone, simulated};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vsteer_core::Fault;
use vsteer_sim::guest::team::Schedule;

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "openmp",
    doc: "parallel loops in two local VMs, pinned and floating, by an experiment: effects with intervals beside the simulator's",
    in_test: false,
    minutes: Minutes::new(6.0, 30.0),
    beside: false,
    run,
};

/// Published gains, percent, in the order of [`SCHEDULES`].
const PUBLISHED: [f64; 3] = [3.7, 3.4, 3.8];
/// The second VM begins this long after its boot, s.
const ALONE_S: u32 = 45;
const BEGINS_LIMIT: Duration = Duration::from_secs(90);
/// The number of blocks, and the length of a visit, s.
const BLOCKS: (u32, u32) = (12, 5);
const VISIT_S: u32 = 5;
/// How long after a visit the logs contain all regions that began in it, s. If a log does not, the run does
/// not count.
const LOGGED_S: f64 = 3.0;
const LIMIT: Duration = Duration::from_secs(1_800);

/// What a run prints, for both VMs: the mean time of a region, and from one product to the next, ms, as
/// [`loops::in_window`] computes them.
const REGIONS: &str = r#"from=$(date +%s.%N); sleep VISIT; to=$(date +%s.%N); sleep LOGGED
awk -F'[:,}]' -v from="$from" -v to="$to" '
    function lies(first, last) { first = first > from ? first : from; last = last < to ? last : to; return last > first ? last - first : 0 }
    { took = $4 / 1e6; part = lies($2 - took, $2); if (took > 0) { s += part; n += part / took }
      since = FILENAME == file ? last[FILENAME] : $2; file = FILENAME; last[FILENAME] = $2
      part = lies(since, $2); if ($2 > since) { all += part; products += part / ($2 - since) } }
    END { for (i = 1; i < ARGC; i++) if (last[ARGV[i]] < to) { print ARGV[i] " ends too early" > "/dev/stderr"; exit 1 }
          printf "region_ms %.4f\nproduct_ms %.4f\nregions %.1f\n", 1000 * s / n, 1000 * all / products, n }' LOGS
"#;
/// Sets the level `$1`.
const SET: &str = r#"n=0; for vm in VMS; do for vcpu in 0 1; do
    case $1 in pinned) cpus=$vcpu;; together) cpus=$n;; *) cpus=0-1;; esac
    virsh --quiet --connect 'URI' vcpupin $vm $vcpu $cpus --live >/dev/null || exit
done; n=$((n + 1)); done
"#;
/// Prints the present level.
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

/// The lines of the request log as regions.
fn regions(log: &Path) -> Result<Vec<Region>, Fault> {
    let region = |r: &Answered| Region { begin_s: r.ts_s - r.took_s, end_s: r.ts_s };
    Ok(answered(log)?.iter().map(region).collect())
}

fn script(folder: &Path, name: &str, text: &str) -> Result<PathBuf, Fault> {
    let file = folder.join(name);
    std::fs::write(&file, text).map_err(|e| Fault::io(format!("writing {}", file.display()), &e))?;
    Ok(file)
}

/// The VMs and their request logs; the one that begins at once is the first.
fn vms_and_logs(lab: &Lab) -> (Vec<&str>, Vec<PathBuf>) {
    let mut vms: Vec<_> = lab.state().vms.iter().collect();
    vms.sort_by_key(|vm| vm.workload.ends_with(&format!("/{ALONE_S}")));
    let names: Vec<&str> = vms.iter().map(|vm| vm.name.as_str()).collect();
    let logs = names.iter().map(|name| requests_file(lab.dir(), name)).collect();
    (names, logs)
}

/// Waits until the second VM also computes. Returns the length of a region of the first one alone, and the
/// time between two regions, s.
fn first_alone(logs: &[PathBuf]) -> Result<(f64, f64), Fault> {
    let begun = Instant::now();
    while regions(&logs[1])?.len() < 2 {
        if begun.elapsed() > BEGINS_LIMIT {
            return Err(failed("the second VM has not begun"));
        }
        wait("until the second VM computes too", Duration::from_secs(1))?;
    }
    let together_s = regions(&logs[1])?.first().map_or(f64::INFINITY, |r| r.begin_s);
    alone(&regions(&logs[0])?, together_s).ok_or_else(|| failed("the first VM was never alone"))
}

/// The experiment with pinning, as files.
struct Written {
    folder: PathBuf,
    description: PathBuf,
    /// The script that sets a level.
    set: PathBuf,
    blocks: u32,
}

fn written(
    bench: &Bench,
    v: &Vsteer,
    name: &str,
    (names, logs): (&[&str], &[PathBuf]),
) -> Result<Written, Fault> {
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
         [[measure]]\nname = \"product\"\nof = {{ printed = \"product_ms {{}}\" }}\nunit = \"ms\"\nbetter = \"less\"\n\
         [[factor]]\nname = \"pinning\"\nlevels = [\"floating\", \"pinned\"]\nset = \"sh {} {{level}}\"\nread = \"sh {}\"\n",
        bench.seed,
        command.display(),
        set.display(),
        read.display()
    );
    let description = script(&folder, "openmp.toml", &description)?;
    Ok(Written { folder, description, set, blocks })
}

/// The experiment's answers, and the pCPUs that others than these VMs used during it.
fn carried_out(lab: &Lab, v: &Vsteer, names: &[&str], written: &Written) -> Result<(Value, f64), Fault> {
    let (file, log) = (written.description.to_string_lossy(), written.folder.join("openmp.experiment"));
    let before = Used::so_far(lab, names)?;
    let begun = Instant::now();
    let words = ["experiment", "run", &file, "-o", &log.to_string_lossy(), "--yes"];
    let answers = v.json(&words, LIMIT)?;
    let others = Used::so_far(lab, names)?.others_since(&before) / begun.elapsed().as_nanos() as f64;
    Ok((answers, others))
}

fn of_schedule(
    bench: &Bench,
    lab: &Lab,
    v: &Vsteer,
    (name, schedule): (&str, (Schedule, Option<u64>)),
    published: f64,
    findings: &mut Findings,
) -> Result<Value, Fault> {
    let (names, logs) = vms_and_logs(lab);
    let (alone_s, between_s) = first_alone(&logs)?;
    let written = written(bench, v, name, (&names, &logs))?;
    let (answers, others) = carried_out(lab, v, &names, &written)?;

    let each = [others / 2.0; VCPUS as usize];
    let pairs = simulated(&Told {
        scheduler: "eevdf",
        schedule,
        alone_s,
        between_s,
        others: &each,
        switch_ns: None,
    })?;
    let gains = Pair::regions(&pairs).zip(Pair::products(&pairs));
    let (regions_simulated, products_simulated) = gains.ok_or_else(|| failed("too few seeds"))?;
    let (regions, products) = (measured(&answers, 0), measured(&answers, 1));
    let both = [
        (
            "a region",
            regions,
            regions_simulated,
            format!("; published, on Xen and four cores, {published:+.1} %"),
        ),
        ("the time from product to product", products, products_simulated, String::new()),
    ];
    for (what, measured, simulated, beside) in both {
        findings.claim(
            format!("OpenMP, {name}: by how much pinning shortens {what} has the simulator's sign, or none that can be told, and its size within {} points", loops::POINTS),
            measured.n == written.blocks as usize && agree(measured, simulated),
            format!("measured {} ({} blocks), simulated {}{beside}", measured.told(), measured.n, simulated.told()),
        );
    }
    let looks = looks::looks(bench, v, name, &written.set, &logs)?;
    looks::claim(name, &looks, findings);
    rule::weighed(bench, v, name, products, findings)?;
    // Once is enough, because the result does not depend on the schedule.
    let idle = if name == SCHEDULES[0].0 {
        Some(rule::idle(bench, v, &written.set, (&names, &logs), findings)?)
    } else {
        None
    };
    Ok(
        json!({ "schedule": name, "regions": { "measured": regions, "simulated": regions_simulated, "published": published },
        "products": { "measured": products, "simulated": products_simulated }, "alone_s": alone_s, "between_s": between_s,
        "others_pcpus": others, "seen": looks, "alone": idle, "answers": answers }),
    )
}

/// The effect on one of an experiment's measures, by its number.
fn measured(answers: &Value, measure: usize) -> Gain {
    let answer = &answers["measures"][measure]["answers"][0];
    let percent = |bound: &str| answer["effect"][bound].as_f64().unwrap_or(f64::NAN);
    Gain {
        pct: -percent("likely"),
        half_pct: (percent("high") - percent("low")) / 2.0,
        n: answer["blocks"].as_u64().unwrap_or(0) as usize,
    }
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

#[cfg(test)]
mod tests {
    use super::loops::in_window;
    use super::*;

    #[test]
    fn a_run_prints_the_mean_of_what_lies_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        // Regions of 0.2 s each, and a long one still in progress when the second visit ends. Both visits
        // begin within a region.
        let lines = (0..10).map(|n| (f64::from(n) * 0.2, 0.2)).chain([(6.8, 5.0)]);
        let lines: Vec<String> = lines
            .map(|(end, took)| format!("{{\"ts\":{:.9},\"duration_us\":{}}}\n", 100.0 + end, 1e6 * took))
            .collect();
        let run = |to_s: f64, lines: &[String]| {
            let text = REGIONS.replacen("$(date +%s.%N)", "100.3", 1).replacen(
                "$(date +%s.%N)",
                &to_s.to_string(),
                1,
            );
            let text = text.replace("VISIT", "0").replace("LOGGED", "0");
            let file =
                script(folder.path(), "r.sh", &text.replace("LOGS", &format!("'{0}' '{0}'", log.display())));
            std::fs::write(&log, lines.concat()).unwrap();
            std::process::Command::new("sh").arg(file.unwrap()).output().unwrap()
        };
        let said = |out: &std::process::Output| String::from_utf8_lossy(&out.stdout).into_owned();
        let out = run(101.3, &lines);
        assert_eq!(said(&out), "region_ms 200.0000\nproduct_ms 200.0000\nregions 10.0\n");
        let out = run(102.8, &lines);
        let all = regions(&log).unwrap();
        let took = in_window([&all[..]], 100.3, 102.8).unwrap();
        assert_eq!(all.len(), 11);
        let expected = [1e3 * took.region_s, 1e3 * took.product_s, 2.0 * took.regions];
        assert_eq!(
            said(&out),
            format!(
                "region_ms {:.4}\nproduct_ms {:.4}\nregions {:.1}\n",
                expected[0], expected[1], expected[2]
            )
        );
        // A log that has not reached the visit's end yet does not count.
        let out = run(101.3, &lines[..2]);
        assert!(!out.status.success() && String::from_utf8_lossy(&out.stderr).contains("ends too early"));
    }
}
