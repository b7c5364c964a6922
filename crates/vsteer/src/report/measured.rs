//! The section on measurement: how, what was not measured, and what the recordings lack.

use super::markup::{column, esc, table};
use super::{Document, Side};
use crate::clock;

fn rows(s: &Side) -> String {
    let row = |what: &str, value: String| {
        format!("<tr><td>{}</td><th scope=\"row\">{what}</th><td>{value}</td></tr>\n", s.label)
    };
    let mut out = row("recording", format!("<code>{}</code>", esc(&s.path)));
    out += &row("begun", clock::text(s.manifest.unix_ns));
    out += &row("written by", format!("vsteer {}", esc(&s.manifest.vsteer)));
    out +=
        &row("configuration", format!("fingerprint <code>{}</code>", esc(&s.stretch.config.fingerprint())));
    let n = s.stretch.batches.len();
    let every = 1000.0 * s.stretch.seconds() / (n.max(2) - 1) as f64;
    out += &row("samples", format!("{n}, one every {every:.0} ms, collector {}", esc(&s.model.collector)));
    out += &match (&s.events, &s.excerpt) {
        (Some(e), _) => row("context switches", esc(&crate::text::switches_recorded(e))),
        (None, Some(_)) => row(
            "context switches",
            "recorded; their number is unknown, because the recorder was killed".to_owned(),
        ),
        (None, None) => row("context switches", "not recorded".to_owned()),
    };
    for (what, why) in &s.model.missing {
        out += &row("not measured", format!("<code>{}</code>: {}", esc(what), esc(why)));
    }
    for note in &s.notes {
        out += &row("incomplete", esc(note));
    }
    out
}

pub fn body(d: &Document) -> String {
    let head = format!("<tr>{}{}{}</tr>", column("", "", ""), column("What", "", ""), column("How", "", ""));
    let all: String = d.sides().map(rows).collect();
    table("Recordings", "plain measured", &head, &all)
}
