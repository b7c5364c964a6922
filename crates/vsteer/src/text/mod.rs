//! Formats results as text: tables, findings, plans, verdicts.

pub mod estimate;
mod findings;
pub mod history;
mod numa;
mod plan;
// The live table is of hosts; rows are of recordings as well.
#[cfg_attr(not(feature = "host"), allow(dead_code))]
mod top;
mod verdict;

pub use findings::findings;
pub use numa::{NodeLoad, Nodes, OfVm, numa};
pub use plan::plan;
#[cfg(feature = "host")]
pub use top::{COLUMNS, COLUMNS_HELP, Row, host_rows, node_rows, shown, vm_rows};
pub use top::{csv_header, print_rows};
pub use verdict::verdict;
use vsteer_core::plural::counted;
use vsteer_core::visible::json;
use vsteer_record::EventSummary;

/// Prints a value as JSON.
pub fn print_json(value: &impl serde::Serialize) {
    println!("{}", json(&serde_json::to_string_pretty(value).expect("results are plain data")));
}

/// Prints a note to standard error. It may contain names and answers that come from other people.
pub fn note(text: impl AsRef<str>) {
    eprintln!("vsteer: {}", vsteer_core::visible::message(text.as_ref()));
}

/// What became of the switches, for people.
pub fn switches_recorded(e: &EventSummary) -> String {
    let all = (e.recorded + e.lost).max(1) as f64;
    let compared = e.coverage().map_or_else(String::new, |c| {
        format!("; recorded plus lost are {:.3} % of the kernel's own count", 100.0 * c)
    });
    format!(
        "recorded {} and {}; lost {} ({:.2} %); inferred {} that the kernel did not report{compared}",
        counted(e.recorded, "context switch"),
        counted(e.wake_ups, "wake-up"),
        e.lost,
        100.0 * e.lost as f64 / all,
        e.unseen,
    )
}

/// A share as a percentage of one pCPU, `-` where it was not measured.
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |s| format!("{:.2}", 100.0 * s))
}

/// A name that may hold anything, on one line.
pub fn one_line(name: &str) -> String {
    vsteer_core::visible::line(name).into_owned()
}

/// A marked moment, with a time that `--at` takes.
pub fn mark(m: &vsteer_core::trigger::Mark) -> String {
    let at = crate::clock::word(m.unix_ns);
    let seconds = m.window_ns as f64 / 1e9;
    format!(
        "{at}  VM {:?}  {}  ({} over {seconds:.0} s)",
        one_line(&m.vm_name),
        one_line(&m.trigger.to_string()),
        one_line(&m.found.to_string())
    )
}

/// `text` folded to `width` columns, each line after `indent`.
pub fn folded(text: &str, indent: &str, width: usize) -> String {
    let mut out = String::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && indent.len() + line.len() + 1 + word.len() > width {
                out.push_str(&format!("{indent}{line}\n"));
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        out.push_str(&format!("{indent}{line}\n"));
    }
    out
}
