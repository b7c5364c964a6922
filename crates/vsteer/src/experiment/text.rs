//! Draws a document as text for a terminal, and as Markdown.

use super::{Cell, Document, Table, page};
use crate::text::{folded, one_line};
use std::fmt::Write;
use std::path::Path;
use vsteer_core::Fault;

/// Prints it, as Markdown if so, or writes it as a page.
///
/// # Errors
/// When the page cannot be written.
pub fn put(document: &Document, as_markdown: bool, output: Option<&Path>, json: bool) -> Result<(), Fault> {
    let Some(path) = output else {
        print!("{}", if as_markdown { markdown(document) } else { text(document) });
        return Ok(());
    };
    let html = page::html(document);
    vsteer_record::files::replace(path, html.as_bytes())?;
    if json {
        crate::text::print_json(&serde_json::json!({ "report": path, "bytes": html.len() }));
    } else {
        eprintln!("vsteer: wrote {} ({} KiB)", path.display(), html.len() / 1024);
    }
    Ok(())
}

/// For a terminal.
pub fn text(d: &Document) -> String {
    let mut out = format!("{}\n", one_line(&d.title));
    for (name, fact) in &d.facts {
        let _ = writeln!(out, "  {name}: {}", one_line(fact));
    }
    for s in &d.sections {
        let _ = writeln!(out, "\n{}", one_line(&s.heading));
        s.lead.iter().for_each(|l| out.push_str(&folded(l, "  ", 110)));
        s.tables.iter().for_each(|t| columns(t, &mut out));
        s.notes.iter().for_each(|n| out.push_str(&folded(n, "  ", 110)));
    }
    out
}

fn columns(t: &Table, out: &mut String) {
    if t.rows.is_empty() {
        return;
    }
    let _ = writeln!(out, "  {}:", one_line(&t.caption));
    let cell = |c: &Cell| one_line(&c.text);
    let width = |i: usize| {
        let cells = t.rows.iter().map(|r| cell(&r[i]).chars().count());
        cells.chain([t.head[i].0.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..t.head.len()).map(width).collect();
    let mut line = |cells: Vec<String>| {
        let mut text = String::from("   ");
        for ((c, w), (_, right)) in cells.iter().zip(&widths).zip(&t.head) {
            let _ = if *right { write!(text, " {c:>w$} ") } else { write!(text, " {c:<w$} ") };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(t.head.iter().map(|(h, _)| (*h).to_owned()).collect());
    t.rows.iter().for_each(|r| line(r.iter().map(cell).collect()));
}

pub fn markdown(d: &Document) -> String {
    // A name may hold what Markdown would read as its own.
    let safe = |t: &str| {
        one_line(t)
            .chars()
            .flat_map(|c| if "|*_`<>[]\\#".contains(c) { vec!['\\', c] } else { vec![c] })
            .collect::<String>()
    };
    let mut out = format!("# {}\n", safe(&d.title));
    for (name, fact) in &d.facts {
        let _ = write!(out, "\n- {name}: {}", safe(fact));
    }
    out.push('\n');
    for s in &d.sections {
        let _ = writeln!(out, "\n## {}", safe(&s.heading));
        s.lead.iter().for_each(|l| {
            let _ = writeln!(out, "\n{}", safe(l));
        });
        for t in s.tables.iter().filter(|t| !t.rows.is_empty()) {
            let _ = writeln!(out, "\n{}\n", safe(&t.caption));
            let head: Vec<String> = t.head.iter().map(|(h, _)| safe(h)).collect();
            let rule: Vec<&str> =
                t.head.iter().map(|(_, right)| if *right { "---:" } else { "---" }).collect();
            let _ = writeln!(out, "| {} |\n| {} |", head.join(" | "), rule.join(" | "));
            for r in &t.rows {
                let cells: Vec<String> = r.iter().map(|c| safe(&c.text)).collect();
                let _ = writeln!(out, "| {} |", cells.join(" | "));
            }
        }
        s.notes.iter().for_each(|n| {
            let _ = writeln!(out, "\n{}", safe(n));
        });
    }
    out
}
