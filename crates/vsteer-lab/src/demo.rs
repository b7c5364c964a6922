//! The whole loop on real VMs: observe, diagnose, plan, apply, observe again, verify, report, roll back.
//!
//! The demonstration uses vsteer only through its command line, as a person would. vsteer knows only where
//! the lab's libvirt is. The claims are about what the guests themselves measured (lateness, work done), from
//! their own reports. So the VMs that had waited show whether the change helped, not the tool that made it.

use crate::case::{Check, Outcome};
use crate::contention::{Lab, Options, down};
use crate::drive::{Vsteer, wait};
use crate::report::clock::now_ns;
use crate::report::window::VmMeasured;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vsteer_core::Fault;

/// Settling time before each observation, because guests boot, and a change needs a moment to show.
const SETTLE: Duration = Duration::from_secs(6);
/// The factors to which a VM's lateness and ready share must fall.
const LATENESS_TO: f64 = 1.0 / 3.0;
const READY_TO: f64 = 0.5;
const WORK_KEPT: f64 = 0.90;
const READY_GROWTH: f64 = 0.05;
/// Two observations are comparable under two conditions: in the second, the host's other work used at most
/// this many pCPUs more, and the pCPUs were equally fast within this part. A neighbour on the same hardware
/// can change the speed, which is not an effect of a plan.
const OTHERS_GROWTH: f64 = 0.1;
const SPEED_DIFFERENCE: f64 = 0.03;
/// How often the second observation is repeated if it is not comparable; then the one most like the first
/// counts.
const OBSERVE_AGAIN: u32 = 3;

/// Lateness as the guest saw it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Lateness {
    /// The number of expiries.
    pub n: u64,
    pub mean: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// One VM over one observation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Seen {
    pub vm: String,
    /// The VM's workload, which is the lab's secret.
    pub workload: String,
    pub vcpus: u32,
    /// Ready share per vCPU, mean over its vCPUs, 0..=1, from `vsteer`.
    pub ready_share: Option<f64>,
    /// Lag share per vCPU, in the same form.
    pub lag_share: Option<f64>,
    /// Run share per vCPU, in the same form.
    pub run_share: Option<f64>,
    /// The guest's own timer lateness, ms; `None` if it runs no timers or reported nothing.
    pub lateness_ms: Option<Lateness>,
    /// Work done per second, in the guest's own units.
    pub work_units_per_s: Option<f64>,
}

/// The results of a demonstration.
#[derive(Debug, Clone, Serialize)]
pub struct Demo {
    /// The seed of the lab.
    pub seed: u64,
    pub spec: String,
    /// KVM or emulation, and why.
    pub accel: String,
    /// Length of each observation, s.
    pub window_s: f64,
    /// Before the change.
    pub before: Vec<Seen>,
    pub after: Vec<Seen>,
    /// The plan's title.
    pub plan_title: String,
    /// The number of its steps.
    pub plan_steps: usize,
    /// The complete plan.
    pub plan: Value,
    /// The output of `vsteer verify`; null without a change.
    pub verdict: Value,
    /// The report's file.
    pub report: PathBuf,
    pub checks: Vec<Check>,
    /// True if no check failed.
    pub passed: bool,
}

/// The settings of the demonstration.
#[derive(Debug, Clone)]
pub struct Show {
    /// The lab to bring up.
    pub lab: Options,
    /// Length of each observation.
    pub window: Duration,
    /// The folder for recordings, plan and report.
    pub output: PathBuf,
    /// Judge the growth of ready shares by the values themselves. Otherwise only growth beyond the verdict's
    /// own interval counts, because two observations of half a minute without a change may differ by the 5
    /// points.
    pub strict: bool,
}

fn say(line: &str) {
    eprintln!("vsteer-lab: {line}");
}

fn none_failed(checks: &[Check]) -> bool {
    checks.iter().all(|c| c.outcome() != Outcome::Failed)
}

/// Starts the lab, runs the loop on it, and always takes it down again.
///
/// # Errors
/// If the lab or a command of vsteer fails. A claim that does not hold is in the result.
pub fn demo(show: &Show) -> Result<Demo, Fault> {
    Vsteer::beside(&show.lab.program)?;
    let output =
        std::path::absolute(&show.output).map_err(|e| Fault::io(show.output.display().to_string(), &e))?;
    let show = &Show { output, ..show.clone() };
    std::fs::create_dir_all(&show.output)
        .map_err(|e| Fault::io(format!("making {}", show.output.display()), &e))?;
    say(&format!("starting real VMs: {}", show.lab.spec));
    let lab = Lab::up(&show.lab)?;
    let shown = on_lab(show, &lab);
    say("taking the lab down");
    let downed = down::down(lab.dir());
    let mut demo = shown?;
    let leftovers = downed?.leftovers;
    demo.checks.push(Check::new(
        "nothing of the lab is left",
        leftovers.is_empty(),
        format!("{leftovers:?}"),
    ));
    demo.passed = none_failed(&demo.checks);
    Ok(demo)
}

/// Files of the demo.
struct Files {
    first: String,
    second: String,
    /// The repeated first recording.
    again: String,
    plan: String,
    report: String,
}

impl Files {
    /// Those in this folder, without recordings of a demo before.
    fn fresh(output: &Path) -> Result<Files, Fault> {
        let at = |name: &str| output.join(name).to_string_lossy().into_owned();
        let files = Files {
            first: at("before.vsteer"),
            second: at("after.vsteer"),
            again: at("before-again.vsteer"),
            plan: at("plan.json"),
            report: at("report.html"),
        };
        // A demo that was interrupted may have left a repeated observation.
        for old in [&files.first, &files.second, &files.again, &repeated(&files.second)] {
            if Path::new(old).exists() {
                std::fs::remove_dir_all(old)
                    .map_err(|e| Fault::io(format!("removing the former {old}"), &e))?;
            }
        }
        Ok(files)
    }
}

/// The values of a window, with its surroundings.
type Window = (Vec<Seen>, Surroundings);

/// The results of a plan that was applied and rolled back.
struct Tried {
    /// Another window before the change, if it was more like the one after.
    before: Option<Window>,
    after: Window,
    verdict: Value,
    restored: Check,
}

fn on_lab(show: &Show, lab: &Lab) -> Result<Demo, Fault> {
    let v = Vsteer {
        state: show.output.join("state"),
        uri: lab.uri().to_owned(),
        ..Vsteer::beside(&show.lab.program)?
    };
    let files = Files::fresh(&show.output)?;
    wait("letting them settle", SETTLE)?;
    let (mut before, mut around_before) = observe(show, lab, &v, &files.first)?;
    eprint!("{}", v.run(&["diagnose", &files.first], false, Duration::from_secs(60))?);
    let plan = v.json(&["plan", &files.first, "-o", &files.plan], Duration::from_secs(60))?;
    eprint!("{}", v.run(&["plan", &files.first], false, Duration::from_secs(60))?);
    let steps = plan["steps"].as_array().map_or(0, Vec::len);
    let mut checks = Vec::new();
    let (mut after, mut verdict) = (before.clone(), Value::Null);
    let mut unlike = None;
    if steps > 0 {
        say(&format!("applying {steps} steps"));
        let tried = try_plan(show, lab, &v, &files, &around_before)?;
        if let Some(again) = tried.before {
            (before, around_before) = again;
        }
        let around;
        (after, around) = tried.after;
        verdict = tried.verdict;
        checks.push(tried.restored);
        unlike = around.unlike(&around_before);
    } else {
        v.run(&["report", &files.first, "-o", &files.report], false, Duration::from_secs(120))?;
    }
    say(&format!("report: {}", files.report));
    let claims = claims(&before, &after, &plan, &verdict, show.strict);
    // In strict mode the values are judged without excuses.
    checks.extend(claims.into_iter().map(|c| if show.strict { c } else { excused(c, unlike.as_deref()) }));
    Ok(Demo {
        seed: lab.state().seed,
        spec: show.lab.spec.to_string(),
        accel: format!("{}: {}", lab.state().accel.accel, lab.state().accel.reason),
        window_s: show.window.as_secs_f64(),
        before,
        after,
        plan_title: plan["title"].as_str().unwrap_or_default().to_owned(),
        plan_steps: steps,
        plan,
        verdict,
        report: files.report.into(),
        passed: none_failed(&checks),
        checks,
    })
}

/// Applies the plan, observes, verifies, reports, and rolls it back.
fn try_plan(
    show: &Show,
    lab: &Lab,
    v: &Vsteer,
    files: &Files,
    around_before: &Surroundings,
) -> Result<Tried, Fault> {
    let Files { first, second, plan, report, .. } = files;
    let settings = v.settings()?;
    v.json(&["apply", plan, "--yes", "--connect", &v.uri], Duration::from_secs(120))?;
    wait("letting the change settle", SETTLE)?;
    let (after, around) = observe_alike(show, lab, v, second, around_before)?;
    let verify = ["verify", first, second, "--plan", plan];
    let verdict = v.json(&verify, Duration::from_secs(60))?;
    eprint!("{}", v.run(&verify, false, Duration::from_secs(60))?);
    v.run(&["report", first, second, "--plan", plan, "-o", report], false, Duration::from_secs(120))?;
    say("taking the change back");
    v.json(&["rollback", "--connect", &v.uri], Duration::from_secs(120))?;
    let restored = v.settings()? == settings;
    // Perhaps the first window was unusual. So this observes again with the former settings and checks which
    // window is like the second.
    let mut before = None;
    if restored && around.apart(around_before) > 1.0 {
        say("no later window was like the first: observing under the former settings again");
        wait("letting the change settle", SETTLE)?;
        let again = observe(show, lab, v, &files.again)?;
        before = (around.apart(&again.1) < around.apart(around_before)).then_some(again);
    }
    let restored = Check::new(
        "rollback restores the former settings",
        restored,
        if restored { "equal" } else { "they differ" },
    );
    Ok(Tried { before, after: (after, around), verdict, restored })
}

/// Conditions other than the plan that influence a window's values.
#[derive(Debug, Clone, Copy)]
struct Surroundings {
    /// CPU use of the host's other work, pCPUs.
    others: f64,
    /// Work done per second of CPU by VMs that always work; `None` without such VMs.
    speed: Option<f64>,
}

impl Surroundings {
    /// The difference, in units of the allowed one; up to 1 counts as alike.
    fn apart(&self, before: &Surroundings) -> f64 {
        let others = (self.others - before.others) / OTHERS_GROWTH;
        let speed = before.speed.zip(self.speed).map_or(0.0, |(b, a)| (a / b - 1.0).abs() / SPEED_DIFFERENCE);
        others.max(speed)
    }

    /// A description of how these surroundings differ from those before by more than is allowed.
    fn unlike(&self, before: &Surroundings) -> Option<String> {
        (self.apart(before) > 1.0).then(|| {
            let speed =
                |s: &Surroundings| s.speed.map_or("unknown".to_owned(), |v| format!("{:.0}", v / 1e3));
            format!(
                "the machine was busy with other work, {:.2} pCPUs before and {:.2} after (speed {} and {})",
                before.others,
                self.others,
                speed(before),
                speed(self)
            )
        })
    }
}

/// If the surroundings differ, a value that missed its bound says nothing about the plan.
fn excused(check: Check, unlike: Option<&str>) -> Check {
    match unlike {
        Some(why) if check.outcome() == Outcome::Failed && !check.claim.contains("plan is found") => {
            Check::not_judged(check.claim, why, check.found)
        }
        _ => check,
    }
}

/// Where an observation is written that repeats this one.
fn repeated(recording: &str) -> String {
    format!("{recording}.again")
}

/// Observes after the change, and again while the surroundings differ from those before.
fn observe_alike(
    show: &Show,
    lab: &Lab,
    v: &Vsteer,
    recording: &str,
    before: &Surroundings,
) -> Result<(Vec<Seen>, Surroundings), Fault> {
    let remove =
        |path: &str| std::fs::remove_dir_all(path).map_err(|e| Fault::io(format!("removing {path}"), &e));
    let rename = |from: &str, to: &str| {
        std::fs::rename(from, to).map_err(|e| Fault::io(format!("renaming {from}"), &e))
    };
    let (mut after, mut around) = observe(show, lab, v, recording)?;
    for _ in 0..OBSERVE_AGAIN {
        if around.apart(before) <= 1.0 {
            break;
        }
        let speed =
            |s: &Surroundings| s.speed.map_or_else(|| "none".to_owned(), |s| format!("{:.0}", s / 1e3));
        say(&format!(
            "the surroundings differ (other work {:.2} -> {:.2} pCPUs, thousand work units per CPU second {} -> {}): \
             observing again",
            before.others,
            around.others,
            speed(before),
            speed(&around)
        ));
        let again = repeated(recording);
        let (newer, newer_around) = observe(show, lab, v, &again)?;
        if newer_around.apart(before) < around.apart(before) {
            remove(recording)?;
            rename(&again, recording)?;
            (after, around) = (newer, newer_around);
        } else {
            remove(&again)?;
        }
    }
    Ok((after, around))
}

/// One observation, from vsteer and from the guests.
fn observe(show: &Show, lab: &Lab, v: &Vsteer, recording: &str) -> Result<(Vec<Seen>, Surroundings), Fault> {
    say(&format!("observing for {:.0} s", show.window.as_secs_f64()));
    let length = format!("{}ms", show.window.as_millis());
    let since_ns = now_ns();
    let words = ["record", "-o", recording, "--for", &length, "--connect", &v.uri, "--events"];
    v.run(&words, false, show.window + Duration::from_secs(60))?;
    let until_ns = now_ns();
    // A guest that waits for a CPU reports late, so the last reports need a moment to arrive.
    wait("collecting the guests' own reports", Duration::from_secs(3))?;
    let guests = lab.window(since_ns, until_ns);
    let model = v.json(&["diagnose", recording], Duration::from_secs(60))?;
    let sum = |list: &str, of: &dyn Fn(&Value) -> Option<f64>| -> f64 {
        model["model"][list].as_array().into_iter().flatten().filter_map(of).sum()
    };
    let others = sum("pcpus", &|p| p["busy"].as_f64()) - sum("vms", &|vm| vm["group"]["run"].as_f64());
    let vms: Vec<Seen> = guests.iter().map(|g| seen(g, &model["model"])).collect();
    let working = || vms.iter().filter(|vm| is(vm, &["burn"]));
    let work: f64 = working().filter_map(|vm| vm.work_units_per_s).sum();
    let run: f64 = working().filter_map(|vm| Some(vm.run_share? * f64::from(vm.vcpus))).sum();
    let speed = (run > 0.0 && work > 0.0).then(|| work / run);
    Ok((vms, Surroundings { others, speed }))
}

fn seen(guest: &VmMeasured, model: &Value) -> Seen {
    let vms = model["vms"].as_array();
    let vm = vms.and_then(|all| all.iter().find(|vm| vm["name"] == guest.vm.as_str()));
    let share = |term: &str| Some(vm?["vcpus"][term].as_f64()? / f64::from(guest.vcpus.max(1)));
    let window = guest.window.as_ref();
    Seen {
        vm: guest.vm.clone(),
        workload: guest.workload.clone(),
        vcpus: guest.vcpus,
        ready_share: share("ready"),
        lag_share: share("lag"),
        run_share: share("run"),
        lateness_ms: window.and_then(|w| w.lateness).map(|l| Lateness {
            n: l.n,
            mean: l.mean_ms,
            p99: l.p99_ms,
        }),
        work_units_per_s: window.map(|w| w.work_units_per_s),
    }
}

fn is(vm: &Seen, kinds: &[&str]) -> bool {
    kinds.contains(&vm.workload.split([',', '(']).next().unwrap_or_default())
}

/// The claims, from the values before and after.
fn claims(before: &[Seen], after: &[Seen], plan: &Value, verdict: &Value, strict: bool) -> Vec<Check> {
    let pairs: Vec<(&Seen, &Seen)> =
        before.iter().filter_map(|b| Some((b, after.iter().find(|a| a.vm == b.vm)?))).collect();
    let measured = !before.is_empty() && before.iter().all(|vm| vm.ready_share.is_some());
    let busy = before.iter().any(|vm| is(vm, &["burn", "waker"]));
    let steps = plan["steps"].as_array().map_or(0, Vec::len);
    if !busy {
        return vec![Check::new(
            "an idle host gets no plan",
            measured && plan["steps"].is_array() && steps == 0,
            format!("{steps} steps: {}", plan["title"]),
        )];
    }
    let mut checks =
        vec![Check::new("a plan is found", steps > 0, format!("{steps} steps: {}", plan["title"]))];
    checks.push(Check::new(
        "every VM's ready share is measured before and after",
        measured && pairs.len() == before.len() && after.iter().all(|vm| vm.ready_share.is_some()),
        format!("{} VMs, of which {} are in both windows", before.len(), pairs.len()),
    ));
    checks.extend(periodic_wait_less(&pairs));
    checks.push(burners_work_on(&pairs));
    checks.extend(pairs.iter().filter_map(|pair| ready_grows_little(*pair, plan, verdict, strict)));
    checks
}

/// A VM before and after.
type Pair<'a> = (&'a Seen, &'a Seen);

/// `NaN` if `a` is 0.
fn ratio(a: f64, b: f64) -> f64 {
    if a > 0.0 { b / a } else { f64::NAN }
}

fn periodic_wait_less(pairs: &[Pair<'_>]) -> [Check; 2] {
    let mean = |vms: &mut dyn Iterator<Item = Option<f64>>| {
        let all: Vec<f64> = vms.flatten().collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    };
    let periodic: Vec<&Pair<'_>> = pairs.iter().filter(|(b, _)| is(b, &["periodic"])).collect();
    let falls = |what: &str, to: f64, of: &dyn Fn(&Seen) -> Option<f64>, unit: &str, scale: f64| {
        let (a, b) =
            (mean(&mut periodic.iter().map(|p| of(p.0))), mean(&mut periodic.iter().map(|p| of(p.1))));
        let found = match (a, b) {
            (Some(a), Some(b)) => {
                format!("{:.2} -> {:.2} {unit}, {:.1} % of it", a * scale, b * scale, 100.0 * ratio(a, b))
            }
            _ => "not reported".to_owned(),
        };
        let held = a.zip(b).is_some_and(|(a, b)| ratio(a, b) <= to);
        Check::new(format!("the periodic VMs' {what} falls to {to:.2} or less"), held, found)
    };
    [
        falls("mean lateness", LATENESS_TO, &|s| Some(s.lateness_ms?.mean), "ms", 1.0),
        falls("ready share", READY_TO, &|s| s.ready_share, "%", 100.0),
    ]
}

fn burners_work_on(pairs: &[Pair<'_>]) -> Check {
    // A VM that did not report makes the sum unknown, not smaller.
    let work = |side: fn(&Pair<'_>) -> Option<f64>| -> f64 {
        let working = pairs.iter().filter(|(b, _)| is(b, &["burn", "waker"]));
        working.map(side).sum::<Option<f64>>().unwrap_or(f64::NAN)
    };
    let kept = ratio(work(|p| p.0.work_units_per_s), work(|p| p.1.work_units_per_s));
    Check::new(
        format!("the burners keep {:.0} % of their work", 100.0 * WORK_KEPT),
        kept >= WORK_KEPT,
        format!("{:.1} %", 100.0 * kept),
    )
}

/// `None` if its ready share was not measured on both sides.
fn ready_grows_little((b, a): Pair<'_>, plan: &Value, verdict: &Value, strict: bool) -> Option<Check> {
    let (was, is) = (b.ready_share?, a.ready_share?);
    let forecast =
        plan["forecast"]["vms"].as_array().and_then(|f| f.iter().find(|f| f["name"] == b.vm.as_str()));
    let likely = forecast.and_then(|f| f["ready_after"]["likely"].as_f64()).map(|r| r / f64::from(b.vcpus));
    let said = likely.is_some_and(|l| l > was + READY_GROWTH);
    let findings = verdict["verdict"]["findings"].as_array();
    let finding = findings.and_then(|f| f.iter().find(|f| f["name"] == *b.vm && f["quantity"] == "ready"));
    // The verdict's interval is for the sum over vCPUs.
    let unsure = finding.and_then(|f| f["half_width"].as_f64()).unwrap_or(0.0) / f64::from(b.vcpus);
    let beyond = if strict { 0.0 } else { unsure };
    let surely = if strict { "" } else { " beyond what the observations can tell" };
    Some(Check::new(
        format!("the ready share of {} grows by no more than 5 points{surely}, or the plan said so", b.vm),
        is <= was + READY_GROWTH + beyond || said,
        format!("{:.1} -> {:.1} %, to ±{:.1}", 100.0 * was, 100.0 * is, 100.0 * unsure),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(name: &str, workload: &str, ready: f64, late: Option<f64>, work: f64) -> Seen {
        Seen {
            vm: name.into(),
            workload: workload.into(),
            vcpus: 2,
            ready_share: Some(ready),
            lag_share: None,
            run_share: None,
            lateness_ms: late.map(|mean| Lateness { n: 100, mean, p99: mean }),
            work_units_per_s: Some(work),
        }
    }

    fn held(before: &[Seen], after: &[Seen], steps: usize) -> Vec<bool> {
        let plan = serde_json::json!({ "title": "t", "steps": vec![0; steps], "forecast": { "vms": [] } });
        claims(before, after, &plan, &Value::Null, false).iter().map(|c| c.held).collect()
    }

    #[test]
    fn nothing_of_an_interrupted_demo_is_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        for left in ["before.vsteer", "after.vsteer", "after.vsteer.again", "before-again.vsteer", "mine"] {
            std::fs::create_dir(folder.path().join(left)).unwrap();
        }
        let files = Files::fresh(folder.path()).unwrap();
        for recording in [&files.first, &files.second, &files.again, &repeated(&files.second)] {
            assert!(!Path::new(recording).exists(), "{recording}");
        }
        assert!(folder.path().join("mine").exists());
    }

    #[test]
    fn a_missed_bound_in_unlike_surroundings_is_not_judged() {
        let failed = || Check::new("the burners keep 90 % of their work", false, "80 %");
        assert_eq!(excused(failed(), None).outcome(), Outcome::Failed);
        assert_eq!(excused(failed(), Some("busy")).outcome(), Outcome::NotJudged);
        let no_plan = Check::new("a plan is found", false, "0 steps");
        assert_eq!(excused(no_plan, Some("busy")).outcome(), Outcome::Failed);
        let calm = Surroundings { others: 0.1, speed: Some(1e6) };
        assert_eq!(calm.unlike(&calm), None);
        assert!(Surroundings { others: 0.9, ..calm }.unlike(&calm).unwrap().contains("0.90 after"));
    }

    #[test]
    fn claims_can_fail() {
        let before =
            [vm("a", "burn", 0.5, None, 100.0), vm("b", "periodic,period_us=1", 0.2, Some(9.0), 0.0)];
        let good = [vm("a", "burn", 0.52, None, 95.0), vm("b", "periodic", 0.05, Some(1.0), 0.0)];
        assert_eq!(held(&before, &good, 3), [true; 7]);
        let bad = [vm("a", "burn", 0.6, None, 80.0), vm("b", "periodic", 0.15, Some(4.0), 0.0)];
        assert_eq!(held(&before, &bad, 3), [true, true, false, false, false, false, true]);
        assert!(!held(&before, &before, 0)[0]);
        let idle = [vm("b", "periodic", 0.0, Some(0.1), 0.0)];
        assert_eq!((held(&idle, &idle, 0), held(&idle, &idle, 2)), (vec![true], vec![false]));
        // Nothing was observed, or a burner did not report.
        assert_eq!(held(&[], &[], 0), [false]);
        let silent = [Seen { work_units_per_s: None, ..before[0].clone() }, before[1].clone()];
        assert!(!held(&silent, &good, 3)[4] && !held(&before, &silent, 3)[4]);
        let unmeasured = [Seen { ready_share: None, ..good[0].clone() }, good[1].clone()];
        assert!(!held(&before, &unmeasured, 3)[1]);
    }
}
