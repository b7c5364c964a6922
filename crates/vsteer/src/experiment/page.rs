//! Draws a document as one HTML file in the frame of the report.

use super::{Cell, Document, Table};
use crate::report::markup::{column, esc, section, table};
use crate::report::page::frame;

fn cell(c: &Cell, head: &(&str, bool)) -> String {
    let class = if head.1 { " class=\"n\"" } else { "" };
    let text = esc(&c.text);
    if c.class.is_empty() {
        format!("<td{class}>{text}</td>")
    } else {
        format!("<td{class}><span class=\"outcome {}\">{text}</span></td>", c.class)
    }
}

fn one(t: &Table) -> String {
    if t.rows.is_empty() {
        return String::new();
    }
    let head: String = t.head.iter().map(|(h, right)| column(h, "", if *right { "n" } else { "" })).collect();
    let row = |r: &Vec<Cell>| {
        let (first, rest) = r.split_first().expect("a row has cells");
        let rest: String = rest.iter().zip(&t.head[1..]).map(|(c, h)| cell(c, h)).collect();
        format!("<tr><th scope=\"row\">{}</th>{rest}</tr>\n", esc(&first.text))
    };
    table(&t.caption, "plain", &format!("<tr>{head}</tr>"), &t.rows.iter().map(row).collect::<String>())
}

pub fn html(d: &Document) -> String {
    let facts: String =
        d.facts.iter().map(|(n, f)| format!("<dt>{}</dt><dd>{}</dd>", esc(n), esc(f))).collect();
    let facts = format!("<dl class=\"facts\">{facts}</dl>");
    let contents: Vec<(&str, &str)> =
        d.sections.iter().map(|s| (s.id.as_str(), s.heading.as_str())).collect();
    let paragraphs = |all: &[String], class: &str| -> String {
        all.iter().map(|l| format!("<p class=\"{class}\">{}</p>\n", esc(l))).collect()
    };
    let body: String = d
        .sections
        .iter()
        .map(|s| {
            let body = format!(
                "{}{}{}{}",
                paragraphs(&s.lead, "lead"),
                s.figure.as_deref().unwrap_or_default(),
                s.tables.iter().map(one).collect::<String>(),
                paragraphs(&s.notes, "note")
            );
            section(&s.id, &s.heading, &body)
        })
        .collect();
    frame(&d.title, &esc(&d.title), &facts, &contents, &body)
}
