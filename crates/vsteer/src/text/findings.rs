//! Formats findings: worst first, each with its evidence, what it explains, the next step, and what would disprove it.

use super::folded;
use vsteer_core::diagnose::{Finding, NOT_MEASURED};
use vsteer_core::plural::counted;
use vsteer_core::visible::message;

/// Symptoms that are printed of one finding; `--json` has all.
const SYMPTOMS: usize = 8;

/// `why`: also why quantities were not measured.
pub fn findings(all: &[Finding], window_s: f64, collector: &str, why: bool) -> String {
    let (missing, causes): (Vec<&Finding>, Vec<&Finding>) = all.iter().partition(|f| f.rule == NOT_MEASURED);
    let mut out = format!(
        "{} over {window_s:.1} s, collector {}\n",
        counted(causes.len(), "finding"),
        super::one_line(collector)
    );
    for (i, f) in causes.iter().enumerate() {
        out.push_str(&format!("\n{}. {}\n", i + 1, super::one_line(&f.title)));
        out.push_str(&one(f));
    }
    for f in missing {
        out.push('\n');
        out.push_str(&if why { format!("{}\n{}", super::one_line(&f.title), one(f)) } else { in_a_line(f) });
    }
    out
}

fn one(f: &Finding) -> String {
    let mut out = folded(&message(&f.explanation), "   ", 100);
    for e in &f.evidence {
        let other = e.against.map_or_else(String::new, |a| format!("  (compared with {a:.2} {})", e.unit));
        out.push_str(&format!(
            "     {:<58} {:>9.2} {}{other}\n",
            message(&e.quantity),
            e.value,
            message(&e.unit)
        ));
    }
    if !f.symptoms.is_empty() {
        out.push_str("   this explains:\n");
    }
    for s in f.symptoms.iter().take(SYMPTOMS) {
        let first = s.evidence.first();
        let figure = first.map_or_else(String::new, |e| format!(" {:>9.2} {}", e.value, message(&e.unit)));
        out.push_str(format!("     {:<58}{figure}", super::one_line(&s.title)).trim_end());
        out.push('\n');
    }
    if let Some(more) = f.symptoms.len().checked_sub(SYMPTOMS).filter(|more| *more > 0) {
        out.push_str(&format!("     and {more} more (--json lists all)\n"));
    }
    out.push_str(&folded(&message(&format!("next: {}", f.next)), "   ", 100));
    out.push_str(&folded(&message(&format!("disproved if: {}", f.disproved_by)), "   ", 100));
    out
}

fn in_a_line(f: &Finding) -> String {
    let next = if f.next.contains("ebpf") { format!("; {}", f.next) } else { String::new() };
    format!("{} (--why says why{})\n", super::one_line(&f.title), message(&next))
}
