//! Formats a verdict.

use super::one_line;
use vsteer_core::verify::{NotJudged, Outcome, Verdict};

/// The whole verdict.
pub fn verdict(v: &Verdict) -> String {
    let overall = match v.overall() {
        Some(Outcome::Better) => "better",
        Some(Outcome::Worse) => "worse",
        Some(Outcome::NoDifference) => "no difference",
        None if v.findings.is_empty() => "none: nothing could be compared",
        None => "better for some VMs, worse for others",
    };
    let mut out = format!(
        "verdict: {overall}\n   values are sums over vCPUs, in % of one pCPU; the chance of any false alarm is at most {:.0} %\n",
        100.0 * v.options.alpha
    );
    out.push_str(&format!(
        "   {:<22} {:<6} {:>8} {:>9} {:>18} {:>10}  {:<14} blocks x samples\n",
        "VM", "", "before", "after", "difference", "visible", "result"
    ));
    for f in &v.findings {
        let c = &f.comparison;
        let word = match f.outcome {
            Outcome::Better => "better",
            Outcome::Worse => "worse",
            Outcome::NoDifference => match f.not_judged {
                Some(NotJudged::WorkNotMeasured) => "work unknown",
                Some(NotJudged::LoadChanged) => "load changed",
                None => "no difference",
            },
        };
        let forecast = f.forecast.map_or_else(String::new, |i| {
            let hit =
                if (i.low..=i.high).contains(&c.after) { "as forecast" } else { "outside its forecast" };
            format!("  {hit} [{:.1}, {:.1}]", 100.0 * i.low, 100.0 * i.high)
        });
        let quantity = f.compared();
        out.push_str(&format!(
            "   {:<22} {quantity:<6} {:>8.1} {:>9.1} {:>+9.1} ±{:>7.1} {:>10.1}  {word:<14} {} x {}{forecast}\n",
            one_line(&f.name),
            100.0 * c.before,
            100.0 * c.after,
            100.0 * c.difference(),
            100.0 * f.half_width,
            100.0 * f.smallest_visible,
            c.blocks.0.min(c.blocks.1),
            c.block,
        ));
    }
    if let Some(load) = &v.load {
        let (word, which) = if load.difference() < 0.0 { ("fell", "shorter") } else { ("rose", "longer") };
        out.push_str(&format!(
            "   the load {word} by itself, from {:.2} to {:.2} pCPUs: {which} waits are not put down to the change\n",
            load.before, load.after
        ));
    }
    if v.findings.iter().any(|f| f.not_judged == Some(NotJudged::WorkNotMeasured)) {
        out.push_str(
            "   work unknown: the VM ran for another time, which may be the same work; measure requests or units of work in the guest\n",
        );
    }
    if v.findings.iter().any(|f| f.with_limited) {
        out.push_str(
            "   wait: ready plus limited by a quota; one of the recordings does not separate them\n",
        );
    }
    if let Some(score) = v.score() {
        let off = score.ready_off.map_or_else(String::new, |off| {
            format!("; ready shares differ by {:.1} percentage points on average", 100.0 * off)
        });
        out.push_str(&format!(
            "   forecast: {} of {} values within their intervals{off}\n",
            score.within, score.of
        ));
    }
    for n in &v.not_compared {
        out.push_str(&format!("   {:<22} not compared: {}\n", one_line(&n.name), n.why));
    }
    out
}
