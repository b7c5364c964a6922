//! Formats a plan before anything happens: steps, reasons and forecast.

use super::one_line;
use vsteer_core::Interval;
use vsteer_core::forecast::{Forecast, VmForecast};
use vsteer_core::plan::Plan;
use vsteer_core::setting;
use vsteer_core::setting::argv::shell_word;
use vsteer_core::setting::{Change, Step};
use vsteer_core::visible::message;

/// A ready share that changes by less, summed over a VM's vCPUs, is not worth a word between two steps.
const TOLD_FROM: f64 = 0.005;

fn forecast(f: &Forecast) -> String {
    let mut out = format!(
        "   forecast by {}: sums over vCPUs in % of one pCPU, with intervals\n   {:<22} {:>8}    {:<24} {:>8}    {:<24}  work\n",
        f.method, "VM", "ready", "ready, forecast", "run", "run, forecast"
    );
    for v in &f.vms {
        if v.withheld {
            out.push_str(&format!(
                "   {:<22} {:>8.1}    {:<24} {:>8.1}\n",
                one_line(&v.name),
                100.0 * v.ready_before,
                "no forecast, see below",
                100.0 * v.run_before
            ));
            continue;
        }
        let (r, u) = (v.ready_after, v.run_after);
        out.push_str(&format!(
            "   {:<22} {:>8.1} -> {:>8.1} [{:>5.1}, {:>5.1}] {:>9.1} -> {:>8.1} [{:>5.1}, {:>5.1}]  {:>4.0} %\n",
            one_line(&v.name),
            100.0 * v.ready_before,
            100.0 * r.likely,
            100.0 * r.low,
            100.0 * r.high,
            100.0 * v.run_before,
            100.0 * u.likely,
            100.0 * u.low,
            100.0 * u.high,
            100.0 * v.work_ratio()
        ));
    }
    out.push_str(&other_waits(f));
    let waits: Vec<_> =
        f.vms.iter().filter(|v| !v.withheld).filter_map(|v| Some((v, v.wake_p99_ns_after?))).collect();
    if !waits.is_empty() {
        out.push_str(&format!(
            "   {:<22} {:>8}    {:<24} {:>8}    {:<24}\n",
            "VM", "lag", "lag, forecast", "wake p99", "wake p99, forecast (ms)"
        ));
    }
    for (v, wake) in waits {
        let before =
            |b: Option<f64>, unit: f64| b.map_or_else(|| "-".to_owned(), |b| format!("{:.1}", unit * b));
        let after = |i: Interval, unit: f64| {
            format!("{:>8.2} [{:>5.2}, {:>5.2}]", unit * i.likely, unit * i.low, unit * i.high)
        };
        out.push_str(&format!(
            "   {:<22} {:>8} -> {:>24} {:>8} -> {:>24}\n",
            one_line(&v.name),
            before(v.lag_before, 100.0),
            v.lag_after.map_or_else(String::new, |i| after(i, 100.0)),
            before(v.wake_p99_ns_before, 1e-6),
            after(wake, 1e-6)
        ));
    }
    out.push_str(&null_error(f));
    out
}

/// Waits other than ready time, of the VMs that have a forecast of them. Limited time that neither is nor comes is left out.
fn other_waits(f: &Forecast) -> String {
    let limited = |v: &VmForecast| {
        let is = v.limited_before.is_some_and(|l| l >= TOLD_FROM);
        v.limited_after
            .filter(|l| is || l.likely >= TOLD_FROM)
            .map(|after| (v.limited_before, after, "limited"))
    };
    let costop = |v: &VmForecast| v.costop_after.map(|after| (v.costop_before, after, "co-stop"));
    let mut out = String::new();
    for v in f.vms.iter().filter(|v| !v.withheld) {
        for (before, i, what) in [costop(v), limited(v)].into_iter().flatten() {
            let before = before.map_or_else(|| "-".to_owned(), |c| format!("{:.2}", 100.0 * c));
            out.push_str(&format!(
                "   {:<22} {before:>8} -> {:>8.2} [{:>5.2}, {:>5.2}]  {what}\n",
                one_line(&v.name),
                100.0 * i.likely,
                100.0 * i.low,
                100.0 * i.high
            ));
        }
    }
    out
}

/// How far the method is off before it is corrected, where that is much.
fn null_error(f: &Forecast) -> String {
    let told = |v: &VmForecast| {
        let off = v.null_error_told().unwrap_or_default();
        let why = if v.withheld { ": too far off for a forecast" } else { "" };
        format!(
            "   Without a change, {} alone would say that VM {:?} waits {off}{why}.\n",
            f.method,
            one_line(&v.name)
        )
    };
    f.far_off().into_iter().map(told).collect()
}

/// What is expected once the first `steps` are made, where the plan says it.
fn expected_after(p: &Plan, steps: usize) -> Option<&Forecast> {
    let stage = p.on_the_way.iter().find(|stage| stage.steps == steps).map(|stage| &stage.forecast);
    stage.or_else(|| (steps == p.steps.len()).then_some(&p.forecast))
}

/// What a stage changes against the one before it; `None` where that is no ready share.
fn stage(before: &Forecast, now: &Forecast) -> Option<String> {
    let pairs = before.vms.iter().zip(&now.vms);
    let told: Vec<String> = pairs
        .filter(|(_, n)| !n.withheld)
        .filter(|(b, n)| (n.ready_after.likely - b.ready_after.likely).abs() >= TOLD_FROM)
        .map(|(b, n)| {
            let (b, n, name) =
                (100.0 * b.ready_after.likely, 100.0 * n.ready_after.likely, one_line(&b.name));
            format!("{name} {b:.1} -> {n:.1} %")
        })
        .collect();
    (!told.is_empty()).then(|| format!("ready: {}", told.join(", ")))
}

/// The whole plan.
pub fn plan(p: &Plan) -> String {
    let mut out = format!("plan {}: {}\n", p.id, message(&p.title));
    let mut vm = None;
    let (mut so_far, off) = (expected_after(p, 0), p.needs_vms_off());
    for (i, s) in p.steps.iter().enumerate() {
        if vm != Some(&s.vm) {
            let name = p.called(s);
            out.push_str(&format!("  VM {name:?}\n"));
            vm = Some(&s.vm);
        }
        out.push_str(&format!(
            "     {}\n        because {}\n",
            message(&s.change.to_string()),
            message(&s.reason)
        ));
        if let Some((_, on)) = off.iter().find(|(step, _)| *step == i) {
            out.push_str(match on {
                Some(false) => "        the VM must be off, and it is\n",
                Some(true) => {
                    "        the VM must be off, but it is on: apply refuses before the first step\n"
                }
                None => "        the VM must be off\n",
            });
        }
        if let (Some(before), Some(now)) = (so_far, expected_after(p, i + 1)) {
            stage(before, now).iter().for_each(|told| out.push_str(&format!("        then {told}\n")));
            so_far = Some(now);
        }
    }
    for line in &p.irreversible {
        out.push_str(&format!("  cannot be undone: {}\n", message(line)));
    }
    for line in &p.contested {
        out.push_str(&format!("  may not last: {}\n", message(line)));
    }
    out.push_str(&forecast(&p.forecast));
    if !p.alternatives.is_empty() {
        out.push_str("   considered, not chosen:\n");
        for a in &p.alternatives {
            out.push_str(&format!("     {}: {}\n", message(&a.title), message(&a.why_not)));
        }
    }
    out.push_str(&kept_first(p).unwrap_or_default());
    out
}

/// Who is to be in a real-time class for good may be kept there for as long as that costs nobody anything.
fn kept_first(p: &Plan) -> Option<String> {
    let is_raised =
        |s: &&Step| matches!(&s.change, Change::Class(setting::Class { to, .. }) if to.is_realtime());
    let mut names: Vec<&str> = p.steps.iter().filter(is_raised).map(|s| s.vm_name.as_str()).collect();
    names.dedup();
    let words: Vec<String> =
        names.iter().map(|name| format!("--vm {}", shell_word(&one_line(name)))).collect();
    (!words.is_empty()).then(|| {
        format!(
            "   alternative: a real-time class only while the VMs use less than their share:\n     vsteer realtime enable {} --yes\n",
            words.join(" ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::nouns::VmId;

    #[test]
    fn a_withheld_forecast_has_no_numbers_and_a_reason() {
        let vm = VmForecast::unchanged(VmId("a".into()), "web", 0.5, 0.4);
        let vms = vec![VmForecast { null_error: Some(0.31), ..vm }.checked(1)];
        let text = forecast(&Forecast { method: "simulation".to_owned(), vms });
        assert!(text.contains("40.0    no forecast, see below       50.0\n"), "{text}");
        assert!(
            text.contains("that VM \"web\" waits 31.0 points more than it did: too far off for a forecast."),
            "{text}"
        );
    }
}
