//! The section on the plan: steps, reasons, forecast and alternatives.

use super::Document;
use super::markup::{column, esc, name, percent, table};
use vsteer_core::Interval;
use vsteer_core::forecast::{Forecast, VmForecast};
use vsteer_core::plan::Plan;
use vsteer_core::setting::Scope;

fn interval(i: Interval) -> String {
    format!(
        "{} <small class=\"range\">[{}, {}]</small>",
        percent(Some(i.likely)),
        percent(Some(i.low)),
        percent(Some(i.high))
    )
}

fn forecast(f: &Forecast) -> String {
    let mut rows = String::new();
    for v in &f.vms {
        let shown = |i: Interval| if v.withheld { "no forecast".to_owned() } else { interval(i) };
        let work = if v.withheld { "–".to_owned() } else { format!("{:.0}", 100.0 * v.work_ratio()) };
        rows.push_str(&format!(
            "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
<td class=\"n\">{}</td><td class=\"n\">{work}</td></tr>\n",
            name(&v.name),
            percent(Some(v.ready_before)),
            shown(v.ready_after),
            percent(Some(v.run_before)),
            shown(v.run_after),
        ));
    }
    let head = format!(
        "<tr>{}{}{}{}{}{}</tr>",
        column("VM", "", ""),
        column("Ready before", "%", "n"),
        column("expected", "% [range]", "n"),
        column("Run before", "%", "n"),
        column("expected", "% [range]", "n"),
        column("Work kept", "%", "n")
    );
    let caption = format!("Forecast by {}: sums over vCPUs in % of one pCPU", f.method);
    let told = |v: &VmForecast| {
        let why = if v.withheld { ", too far off for a forecast" } else { "" };
        let off = v.null_error_told().unwrap_or_default();
        format!(
            "<p class=\"note\">Without a change, {} alone would say that VM {} waits {off}{why}.</p>\n",
            esc(&f.method),
            name(&v.name)
        )
    };
    let notes: String = f.far_off().into_iter().map(told).collect();
    table(&caption, "plain", &head, &rows) + &notes
}

pub fn body(d: &Document, plan: &Plan, proposed: bool) -> String {
    let scope = match plan.scope {
        Scope::Live => "only in running VMs, until they stop",
        Scope::Persistent => "in the definitions only, from the next start on",
        Scope::Both => "in the running VMs and in their definitions",
    };
    let mut out = format!(
        "<p class=\"lead\">{} <span class=\"none\">plan <code>{}</code>, {scope}</span></p>\n",
        esc(&plan.title),
        esc(&plan.id)
    );
    let on_vsphere = plan.parent.has_powercli();
    if proposed && on_vsphere {
        out.push_str("<p class=\"note\">Proposed from this recording; nothing was changed. For a script to review: <code>vsteer plan --format powercli</code>.</p>\n");
    } else if proposed {
        out.push_str("<p class=\"note\">Proposed from this recording; nothing was changed. Next: <code>vsteer plan -o plan.json</code>, then <code>vsteer apply plan.json --try 60s</code>.</p>\n");
    } else if plan.parent.fingerprint() != d.before.stretch.config.fingerprint() {
        out.push_str("<p class=\"note\">The host's configuration in the first recording is not the one that this plan was made for.</p>\n");
    }
    if plan.steps.is_empty() {
        out.push_str("<p>No steps: nothing needs to change.</p>\n");
    } else {
        let mut rows = String::new();
        for (i, s) in plan.steps.iter().enumerate() {
            rows.push_str(&format!(
                "<tr><td class=\"n\">{}</td><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>\n",
                i + 1,
                name(&plan.called(s)),
                esc(&s.change.to_string()),
                esc(&s.reason)
            ));
        }
        let head = format!(
            "<tr>{}{}{}{}</tr>",
            column("", "", "n"),
            column("VM", "", ""),
            column("Change", "", ""),
            column("Because", "", "")
        );
        out.push_str(&table("Steps, in order", "plain steps", &head, &rows));
    }
    out.push_str(&forecast(&plan.forecast));
    if !plan.alternatives.is_empty() {
        let items: String = plan
            .alternatives
            .iter()
            .map(|a| format!("<dt>{}</dt><dd>{}</dd>", esc(&a.title), esc(&a.why_not)))
            .collect();
        out.push_str(&format!("<h3>Considered, not chosen</h3><dl class=\"alternatives\">{items}</dl>\n"));
    }
    if !plan.contested.is_empty() {
        let items: String = plan.contested.iter().map(|l| format!("<li>{}</li>", esc(l))).collect();
        out.push_str(&format!("<h3>What may not last</h3><ul>{items}</ul>\n"));
    }
    if plan.irreversible.is_empty() {
        out.push_str("<p class=\"note\">To undo all steps: <code>vsteer rollback</code>.</p>\n");
    } else {
        let items: String = plan.irreversible.iter().map(|l| format!("<li>{}</li>", esc(l))).collect();
        out.push_str(&format!("<h3>What cannot be undone</h3><ul>{items}</ul>\n"));
    }
    out
}
