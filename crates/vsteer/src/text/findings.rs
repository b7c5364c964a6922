//! Formats findings: worst first, each with its evidence, the next step, and what would disprove it.

use super::folded;
use vsteer_core::diagnose::Finding;
use vsteer_core::plural::counted;

pub fn findings(all: &[Finding], window_s: f64, collector: &str) -> String {
    let mut out = format!("{} over {window_s:.1} s, collector {collector}\n", counted(all.len(), "finding"));
    for (i, f) in all.iter().enumerate() {
        out.push_str(&format!("\n{}. {}\n", i + 1, super::one_line(&f.title)));
        out.push_str(&folded(&f.explanation, "   ", 100));
        for e in &f.evidence {
            let against = e.against.map_or_else(String::new, |a| format!("  (against {a:.2} {})", e.unit));
            out.push_str(&format!("     {:<58} {:>9.2} {}{against}\n", e.quantity, e.value, e.unit));
        }
        out.push_str(&folded(&format!("next: {}", f.next), "   ", 100));
        out.push_str(&folded(&format!("disproved if: {}", f.disproved_by), "   ", 100));
    }
    out
}
