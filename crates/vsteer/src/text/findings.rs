//! Formats findings: worst first, each with its evidence, the next step, and what would disprove it.

use super::folded;
use vsteer_core::diagnose::Finding;
use vsteer_core::plural::counted;
use vsteer_core::visible::message;

pub fn findings(all: &[Finding], window_s: f64, collector: &str) -> String {
    let mut out = format!(
        "{} over {window_s:.1} s, collector {}\n",
        counted(all.len(), "finding"),
        super::one_line(collector)
    );
    for (i, f) in all.iter().enumerate() {
        out.push_str(&format!("\n{}. {}\n", i + 1, super::one_line(&f.title)));
        out.push_str(&folded(&message(&f.explanation), "   ", 100));
        for e in &f.evidence {
            let other =
                e.against.map_or_else(String::new, |a| format!("  (compared with {a:.2} {})", e.unit));
            out.push_str(&format!(
                "     {:<58} {:>9.2} {}{other}\n",
                message(&e.quantity),
                e.value,
                message(&e.unit)
            ));
        }
        out.push_str(&folded(&message(&format!("next: {}", f.next)), "   ", 100));
        out.push_str(&folded(&message(&format!("disproved if: {}", f.disproved_by)), "   ", 100));
    }
    out
}
