//! The table of time per VM, before and after side by side.

use super::markup::{bar, column, millis, name, percent, table};
use super::{Document, Side};
use vsteer_core::model::VmModel;
use vsteer_core::nouns::VmId;

/// A column: heading, unit, value, and how it is shown.
type Quantity = (&'static str, &'static str, fn(&VmModel) -> Option<f64>, fn(Option<f64>) -> String);
const QUANTITIES: [Quantity; 7] = [
    ("Ready", "%", |v| v.vcpus_or_group().0.ready, percent),
    ("Co-stop", "%", |v| v.vcpus_or_group().0.costop, percent),
    ("Lag", "%", |v| v.vcpus_or_group().0.lag, percent),
    ("Limited", "%", |v| v.vcpus_or_group().0.limited, percent),
    ("Run", "%", |v| v.vcpus_or_group().0.run, percent),
    ("Wake-up p50", "ms", |v| Some(v.wake_latency?.p50_ns), millis),
    ("Wake-up p99", "ms", |v| Some(v.wake_latency?.p99_ns), millis),
];

/// Where the collector cannot split waiting into ready and limited, one column holds both.
fn quantities(d: &Document) -> Vec<Quantity> {
    let splits = d.sides().any(|s| s.model.vms.iter().any(|v| v.vcpus_or_group().0.ready.is_some()));
    let both: Quantity = ("Ready or limited", "%", |v| v.vcpus_or_group().0.wait, percent);
    let estimate: Quantity = ("Of it limited", "%", |v| v.limited_estimate, about);
    let estimates = d.sides().any(|s| s.model.vms.iter().any(|v| v.limited_estimate.is_some()));
    // Only ESXi and the simulator co-stop.
    let costops = d.sides().any(|s| s.model.vms.iter().any(|v| v.vcpus_or_group().0.costop.is_some()));
    let there = |q: &Quantity| match q.0 {
        "Ready" | "Limited" => splits,
        "Co-stop" => costops,
        _ => true,
    };
    let rest = QUANTITIES.into_iter().filter(there);
    let unsplit = [(!splits).then_some(both), (!splits && estimates).then_some(estimate)];
    unsplit.into_iter().flatten().chain(rest).collect()
}

/// A percentage that is estimated.
fn about(share: Option<f64>) -> String {
    let shown = percent(share);
    if share.is_some() { format!("~{shown}") } else { shown }
}

fn cells(all: &[Quantity], most: &[f64], vm: Option<&VmModel>, class: &str) -> String {
    let Some(vm) = vm else {
        return format!("<td colspan=\"{}\" class=\"none\">not there</td>", all.len());
    };
    all.iter()
        .zip(most)
        .map(|((_, _, of, shown), most)| {
            let v = of(vm);
            let part = v.map_or(0.0, |v| if *most > 0.0 { v / most } else { 0.0 });
            let bar = if v.is_some() { bar(part, class) } else { String::new() };
            format!("<td class=\"n\">{}{bar}</td>", shown(v))
        })
        .collect()
}

pub fn body(d: &Document) -> String {
    let all = quantities(d);
    let vms_of = |s: &Side| s.model.vms.iter().map(|v| v.id.clone()).collect::<Vec<VmId>>();
    let mut ids = vms_of(&d.before);
    ids.extend(d.after.iter().flat_map(vms_of).filter(|id| d.before.model.vm(id).is_none()));
    // Who waited most comes first.
    let wait = |id: &VmId| d.before.model.vm(id).and_then(|v| v.vcpus_or_group().0.wait).unwrap_or(0.0);
    ids.sort_by(|a, b| wait(b).total_cmp(&wait(a)));
    let most: Vec<f64> = all
        .iter()
        .map(|(.., of, _)| d.sides().flat_map(|s| &s.model.vms).filter_map(of).fold(0.0, f64::max))
        .collect();
    let mut rows = String::new();
    for id in &ids {
        let any = d.sides().find_map(|s| s.model.vm(id));
        let seen = any.map_or(0, |v| v.vcpu_threads().count());
        // Of a group nobody may know how many of its worlds are vCPUs.
        let said = || d.sides().find_map(|s| s.stretch.config.vm(id)).map_or(0, |vm| vm.vcpu_count());
        let vcpus = match if seen > 0 { seen } else { said() } {
            0 => "–".to_owned(),
            n => n.to_string(),
        };
        let label = any.map_or_else(String::new, |v| name(&v.name));
        let before = cells(&all, &most, d.before.model.vm(id), "before");
        match &d.after {
            None => rows.push_str(&format!(
                "<tr class=\"first\"><th scope=\"row\">{label}</th><td class=\"n\">{vcpus}</td>{before}</tr>\n"
            )),
            Some(after) => rows.push_str(&format!(
                "<tr class=\"first\"><th scope=\"rowgroup\" rowspan=\"2\">{label}</th><td class=\"n\" rowspan=\"2\">{vcpus}</td>\
<td class=\"when\">before</td>{before}</tr>\n<tr><td class=\"when\">after</td>{}</tr>\n",
                cells(&all, &most, after.model.vm(id), "after")
            )),
        }
    }
    let when = if d.after.is_some() { column("", "", "") } else { String::new() };
    let head = format!(
        "<tr>{}{}{when}{}</tr>",
        column("VM", "", ""),
        column("vCPUs", "", "n"),
        all.iter().map(|(h, unit, ..)| column(h, unit, "n")).collect::<String>()
    );
    let groups = d.sides().flat_map(|s| &s.model.vms).any(|v| v.vcpu_threads().next().is_none());
    let caption = if groups {
        "Time of each VM, in % of one pCPU: summed over its vCPUs, or over all worlds of its group if vCPUs are not counted apart"
    } else {
        "Time of each VM, summed over its vCPUs, in % of one pCPU"
    };
    let mut out = table(caption, "vms", &head, &rows);
    out.push_str(
        "<p class=\"note\"><b>Ready</b>: could run and had no pCPU. <b>Lag</b>: that part of it in which another vCPU of the \
same VM ran. <b>Limited</b>: held by a quota. <b>Co-stop</b>: held back so that siblings catch up (ESXi). <b>Run</b>: on a pCPU. <b>Wake-up</b>: from being woken to running, median and \
99th percentile. A dash: this collector does not measure it.</p>\n",
    );
    out
}
