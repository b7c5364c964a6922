//! The section on the verdict, per VM and quantity: before, after, difference with interval, and the forecast.

use super::markup::{column, esc, name, percent, table, unsigned_zero};
use vsteer_core::verify::{Finding, NotJudged, Outcome, Verdict};

/// The difference and its confidence interval on a scale from -`most` to `most`; no difference is the line.
fn whisker(f: &Finding, most: f64) -> String {
    let (difference, half) = (f.comparison.difference(), f.half_width);
    let x = |v: f64| 50.0 + 46.0 * (v / most).clamp(-1.0, 1.0);
    format!(
        "<svg class=\"whisker\" width=\"100\" height=\"18\" aria-hidden=\"true\"><line class=\"zero\" x1=\"50\" x2=\"50\" y1=\"1\" \
y2=\"17\"/><line class=\"span\" x1=\"{0:.1}\" x2=\"{1:.1}\" y1=\"9\" y2=\"9\"/><line class=\"span\" x1=\"{0:.1}\" x2=\"{0:.1}\" \
y1=\"5\" y2=\"13\"/><line class=\"span\" x1=\"{1:.1}\" x2=\"{1:.1}\" y1=\"5\" y2=\"13\"/><circle class=\"{3}\" cx=\"{2:.1}\" \
cy=\"9\" r=\"4\"/></svg>",
        x(difference - half),
        x(difference + half),
        x(difference),
        outcome(f.outcome).0
    )
}

/// Class, sign and word.
fn outcome(o: Outcome) -> (&'static str, &'static str) {
    match o {
        Outcome::Better => ("better", "▲ better"),
        Outcome::Worse => ("worse", "▼ worse"),
        Outcome::NoDifference => ("same", "= no difference"),
    }
}

pub fn body(v: &Verdict) -> String {
    let most = v
        .findings
        .iter()
        .map(|f| f.comparison.difference().abs() + f.half_width)
        .fold(0.0, f64::max)
        .max(1e-6);
    let any_forecast = v.findings.iter().any(|f| f.forecast.is_some());
    let mut rows = String::new();
    let mut last = None;
    for f in &v.findings {
        let (class, word) = match f.not_judged {
            Some(NotJudged::WorkNotMeasured) => ("same", "? work unknown"),
            Some(NotJudged::LoadChanged) => ("same", "? load changed"),
            None => outcome(f.outcome),
        };
        let quantity = f.compared();
        let first = if last == Some(f.quantity) { "" } else { " class=\"first\"" };
        last = Some(f.quantity);
        let forecast = match f.forecast {
            _ if !any_forecast => String::new(),
            None => "<td></td>".to_owned(),
            Some(i) => {
                let hit = (i.low..=i.high).contains(&f.comparison.after);
                let (class, said) = if hit { ("hit", "✓ as forecast") } else { ("missed", "✗ outside") };
                format!(
                    "<td><span class=\"{class}\">{said}</span><br><small class=\"range\">[{}, {}]</small></td>",
                    percent(Some(i.low)),
                    percent(Some(i.high))
                )
            }
        };
        rows.push_str(&format!(
            "<tr{first}><th scope=\"row\">{}</th><td>{quantity}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
<td class=\"n\">{:+.1} ± {:.1}</td><td>{}</td><td class=\"n\">{}</td><td><span class=\"outcome {class}\">{word}</span></td>{forecast}</tr>\n",
            name(&f.name),
            percent(Some(f.comparison.before)),
            percent(Some(f.comparison.after)),
            unsigned_zero(100.0 * f.comparison.difference()),
            100.0 * f.half_width,
            whisker(f, most),
            percent(Some(f.smallest_visible)),
        ));
    }
    let forecast = if any_forecast { column("Forecast", "[range]", "") } else { String::new() };
    let head = format!(
        "<tr>{}{}{}{}{}{}{}{}{forecast}</tr>",
        column("VM", "", ""),
        column("Quantity", "", ""),
        column("Before", "%", "n"),
        column("After", "%", "n"),
        column("Difference", "%", "n"),
        column("− | +", "", "middle"),
        column("Smallest visible", "%", "n"),
        column("Outcome", "", "")
    );
    let mut out = table("Before against after, sums over vCPUs in % of one pCPU", "verdicts", &head, &rows);
    if !v.not_compared.is_empty() {
        let items: String =
            v.not_compared.iter().map(|n| format!("<li>{}: {}</li>", name(&n.name), esc(&n.why))).collect();
        out.push_str(&format!("<h3>Not compared</h3><ul>{items}</ul>\n"));
    }
    out.push_str(&format!(
        "<p class=\"note\">Less ready is better, and more run of a VM that never sleeps. Of other VMs the work is unknown: the same work may \
take less CPU time. The probability of any false “better” or “worse” in this table is \
{:.0} % at most; a real difference as large as the smallest visible one is found with {:.0} %. Differences below {:.0} % of a \
pCPU are called none. Samples are averaged in blocks, each long enough to be nearly independent; a t test for unequal variances compares the averages.</p>\n",
        100.0 * v.options.alpha,
        100.0 * v.options.power,
        100.0 * v.options.least
    ));
    out
}
