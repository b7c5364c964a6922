//! Does an experiment measure waits of real VMs as the kernel counts them, and does it leave a VM that is
//! gone out of averages?
//!
//! Three burners with one vCPU each share one pCPU. The factor is the CPU shares of one of them. A burner
//! never sleeps, so it is ready whenever it does not run. The kernel itself reports how long its vCPU's
//! thread ran (`/proc/PID/task/TID/schedstat`, read by the workload's command at both ends). This is an
//! independent measurement of the same run. Its part of the time that all three run follows from the shares
//! alone, whatever else this machine does. Then one of the others is ended in the middle of a run. That run
//! and all later ones have no value for it, with the reason, while their times count.
//!
//! Left out: Xen and vSphere under an experiment (their own cases compare their observers).

use super::super::{Bench, Findings, worst};
use super::overhead::lines;
use crate::libvirtd;
use serde_json::Value;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

const LIMIT: Duration = Duration::from_secs(300);
const BLOCKS: usize = 8;
const SHARES: [u32; 2] = [1024, 16_384];
const OTHERS: u32 = 2 * 1024;
/// The allowed difference from the kernel's value for the same run, points. The kernel's value is up to a
/// tick old at either end, an emulated vCPU sleeps for a moment from time to time, and the two readings are
/// some ms apart, in which anything may change.
const KERNEL_POINTS: f64 = 3.0;
/// The allowed error of its part of the time that the three run together, which follows from the shares.
const PART: f64 = 0.10;

/// The allowed difference between switches per second from the kernel's counter and from `/proc`, because the
/// two readings are some ms apart.
const SWITCHES: f64 = 0.05;

/// Prints `kernel N`: percent of three seconds that threads `CPU ...` of a process did not run, according to
/// schedstat; and their switches per second.
const WORKLOAD: &str = r#"
w() { n=0; for t in /proc/PID/task/*; do case "$(cat $t/comm)" in CPU*) set -- $(cat $t/schedstat); n=$((n+$1));; esac; done; echo $n; }
s() { for t in /proc/PID/task/*; do case "$(cat $t/comm)" in CPU*) grep ctxt_switches $t/status;; esac; done | awk '{ n += $2 } END { print n }'; }
a=$(w); e=$(s); b=$(date +%s%N); sleep 3; c=$(w); f=$(s); d=$(date +%s%N)
awk "BEGIN { print \"kernel \" 100 - 100 * ($c - $a) / ($d - $b); print \"switches \" ($f - $e) * 1e9 / ($d - $b) }"
"#;

pub fn run(bench: &Bench, findings: &mut Findings) -> Result<Value, Fault> {
    bench.on_lab("burn=3x1", bench.seed, |lab, vsteer| {
        let names: Vec<&str> = lab.state().vms.iter().map(|vm| vm.name.as_str()).collect();
        for name in &names {
            libvirtd::virsh(lab.dir(), &["vcpupin", name, "0", "0", "--live"])?;
            libvirtd::virsh(lab.dir(), &["emulatorpin", name, "1", "--live"])?;
        }
        let (looked_at, ended) = (names[0], names[1]);
        let pid = libvirtd::pid_of(lab.dir(), looked_at)
            .ok_or_else(|| Fault::new(FaultKind::NothingThere, format!("no pid of VM {looked_at}")))?;
        let virsh = format!("virsh --quiet --connect '{}'", lab.uri());
        let write = |name: &str, head: &str, command: &str, factor: &str| {
            let file = bench.output.join(format!("{name}.toml"));
            let text = format!(
                "name = \"{name}\"\ndesign = \"pair\"\nruns_least = {BLOCKS}\nruns_most = {BLOCKS}\nsettle_s = 1\n\
                 [workload]\ncommand = {{ sh = '''{command}''' }}\n{head}\n[[factor]]\n{factor}\n"
            );
            std::fs::write(&file, text).map_err(|e| Fault::io(format!("writing {}", file.display()), &e))?;
            let folder = bench.fresh(&format!("{name}.experiment"))?;
            let uri = lab.uri();
            let words = ["experiment", "run", &file.to_string_lossy(), "-o", &folder, "--yes", "--connect", uri];
            vsteer.run(&words, true, LIMIT)?;
            Ok(folder)
        };
        let shares = write(
            "shares",
            &format!(
                "[[measure]]\nname = \"ready\"\nof = {{ ready = \"{looked_at}\" }}\n[[measure]]\nname = \"kernel\"\nof = {{ printed = \"kernel {{}}\" }}\n\
                 [[measure]]\nname = \"lag\"\nof = {{ lag = \"{looked_at}\" }}\n[[measure]]\nname = \"spell\"\nof = {{ ready_p50 = \"{looked_at}\" }}\n\
                 [[measure]]\nname = \"run\"\nof = {{ run = \"{looked_at}\" }}\nbetter = \"more\"\n[[measure]]\nname = \"all\"\nof = {{ run = \"*\" }}\n\
                 [[measure]]\nname = \"switches\"\nof = {{ counter = {{ event = \"context-switches\", vm = \"{looked_at}\" }} }}\n\
                 [[measure]]\nname = \"by_proc\"\nof = {{ printed = \"switches {{}}\" }}\n\
                 [[measure]]\nname = \"moves\"\nof = {{ counter = {{ event = \"cpu-migrations\", vm = \"*\" }} }}"
            ),
            &WORKLOAD.replace("PID", &pid.pid.to_string()),
            &format!(
                "name = \"shares\"\nlevels = [\"{}\", \"{}\"]\nset = \"{virsh} schedinfo {looked_at} --live --set cpu_shares={{level}}\"\n\
                 read = {{ sh = \"{virsh} schedinfo {looked_at} --live | awk '$1 == \\\"cpu_shares\\\" {{ print $3 }}'\" }}",
                SHARES[0], SHARES[1]
            ),
        )?;
        let report = vsteer.json(&["experiment", "report", &shares], LIMIT)?;
        ready_by_shares(findings, &report, &runs(&shares)?);
        let gone = bench.output.join("gone");
        let _ = std::fs::remove_file(&gone);
        // The third run ends the VM; two runs have begun before it.
        let command = format!(
            "echo >> {0}; sleep 0.5; [ $(wc -l < {0}) = 3 ] && {virsh} destroy {ended}; sleep 0.5 # {{x}}",
            gone.display()
        );
        let folder = write(
            "vm-ends",
            &format!("[[measure]]\nname = \"ready\"\nof = {{ ready = \"{ended}\" }}\n[[measure]]\nname = \"time\"\nof = \"time\""),
            &command,
            "name = \"x\"\nlevels = [\"a\", \"b\"]",
        )?;
        a_vm_ends(findings, &runs(&folder)?);
        Ok(report["measures"].clone())
    })
}

fn runs(folder: &str) -> Result<Vec<Value>, Fault> {
    Ok(lines(folder)?.iter().filter_map(|l| l.get("ran").cloned()).collect())
}

fn ready_by_shares(findings: &mut Findings, report: &Value, runs: &[Value]) {
    let value = |r: &Value, i: usize| r["values"][i].as_f64();
    let pairs: Vec<(f64, f64)> = runs.iter().filter_map(|r| Some((value(r, 0)?, value(r, 1)?))).collect();
    let furthest = worst(pairs.iter().map(|(ours, kernels)| (ours - kernels).abs()));
    findings.claim(
        format!("ready of each run is the kernel's own figure within {KERNEL_POINTS} points"),
        pairs.len() == 2 * BLOCKS && furthest <= KERNEL_POINTS,
        format!("{} runs, furthest apart {furthest:.2} points", pairs.len()),
    );
    // There are three vCPUs, so the mean over all is a third of what they run together.
    let part = |s: usize| {
        let of = |r: &&Value| r["place"]["setting"] == s && r["bad"].is_null();
        let each: Vec<f64> =
            runs.iter().filter(of).filter_map(|r| Some(value(r, 4)? / (3.0 * value(r, 5)?))).collect();
        each.iter().sum::<f64>() / each.len() as f64
    };
    let by_shares = SHARES.map(|w| f64::from(w) / f64::from(w + OTHERS));
    findings.claim(
        format!("of what the three run, the part that follows from the shares, within {PART}"),
        (0..2).all(|s| (part(s) - by_shares[s]).abs() <= PART),
        format!(
            "{:.3} and {:.3}, by the shares {:.3} and {:.3}",
            part(0),
            part(1),
            by_shares[0],
            by_shares[1]
        ),
    );
    let measure = &report["measures"][0];
    let mean = |s: usize| measure["settings"][s]["summary"]["mean"].as_f64().unwrap_or(f64::NAN);
    let answer = &measure["answers"][0];
    findings.claim(
        format!("{} shares in place of {} are found to make ready less", SHARES[1], SHARES[0]),
        answer["outcome"] == "better",
        format!(
            "{:.1} and {:.1} % ready; told: {} ({:.1} %)",
            mean(0),
            mean(1),
            answer["outcome"],
            answer["effect"]["likely"].as_f64().unwrap_or(f64::NAN)
        ),
    );
    let counted: Vec<(f64, f64)> = runs.iter().filter_map(|r| Some((value(r, 6)?, value(r, 7)?))).collect();
    let furthest = worst(counted.iter().map(|(ours, procs)| (ours / procs - 1.0).abs()));
    let moves: Vec<f64> = runs.iter().filter_map(|r| value(r, 8)).collect();
    findings.claim(
        format!("switches of each run by the kernel's counter are those of /proc within {SWITCHES}, and pinned vCPUs were never moved"),
        counted.len() == 2 * BLOCKS && furthest <= SWITCHES && moves.len() == 2 * BLOCKS && moves.iter().all(|m| *m == 0.0),
        format!("{} runs, furthest apart {furthest:.4}; {counted:.0?} a second; moves {moves:?}", counted.len()),
    );
    let others = |i: usize| runs.iter().filter_map(|r| value(r, i)).collect::<Vec<_>>();
    let (lag, spell) = (others(2), others(3));
    findings.claim(
        "one vCPU has no sibling to lag behind, and its waits have a median",
        lag.len() == runs.len()
            && lag.iter().all(|l| *l == 0.0)
            && !runs.is_empty()
            && spell.iter().all(|s| *s > 0.0)
            && spell.len() == runs.len(),
        format!("lag {lag:?} %, ready_p50 {spell:?} ms"),
    );
}

fn a_vm_ends(findings: &mut Findings, runs: &[Value]) {
    let had: Vec<bool> = runs.iter().map(|r| r["values"][0].is_number()).collect();
    let times = runs.iter().filter(|r| r["bad"].is_null() && r["values"][1].is_number()).count();
    let why: Vec<String> = runs.iter().filter_map(|r| r["missing"][0].as_str().map(str::to_owned)).collect();
    let first_two = had.iter().take(2).all(|h| *h) && had.iter().skip(2).all(|h| !h);
    let reasons = why.first().is_some_and(|w| w.contains("stopped during the run"))
        && why.iter().skip(1).all(|w| w.contains("no VM has this name"))
        && why.len() + 2 == runs.len();
    findings.claim(
        "a VM that ends in a run has no value in it nor after it, each with the reason, and the times of all runs count",
        first_two && reasons && times == 2 * BLOCKS && runs.len() == 2 * BLOCKS,
        format!("had {had:?}; {times} times; {}", why.iter().take(2).cloned().collect::<Vec<_>>().join(" | ")),
    );
}
