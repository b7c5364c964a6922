//! The section of findings: worst first, each with evidence, the next step, and what would disprove it.

use super::Document;
use super::markup::{column, esc, table};
use vsteer_core::diagnose::Finding;

fn finding(number: usize, f: &Finding) -> String {
    let mut rows = String::new();
    for e in &f.evidence {
        let other = e.against.map_or_else(String::new, |a| format!("{a:.2}"));
        rows.push_str(&format!(
            "<tr><th scope=\"row\">{}</th><td class=\"n\">{:.2}</td><td class=\"n\">{other}</td><td>{}</td></tr>\n",
            esc(&e.quantity),
            e.value,
            esc(&e.unit)
        ));
    }
    let head = format!(
        "<tr>{}{}{}{}</tr>",
        column("Measured", "", ""),
        column("Value", "", "n"),
        column("Compared with", "", "n"),
        column("Unit", "", "")
    );
    let evidence = if rows.is_empty() {
        String::new()
    } else {
        table(&format!("Evidence for finding {number}"), "plain evidence", &head, &rows)
    };
    let loss = if f.loss_pcpus > 0.0 {
        format!("<span class=\"loss\">{:.2} pCPUs lost</span>", f.loss_pcpus)
    } else {
        String::new()
    };
    let symptoms = if f.symptoms.is_empty() {
        String::new()
    } else {
        let of = |s: &Finding| format!("<li>{}{}</li>", esc(&s.title), esc(&figure(s)));
        format!("<p>This explains:</p><ul>{}</ul>", f.symptoms.iter().map(of).collect::<String>())
    };
    format!(
        "<article class=\"finding\"><h3><span class=\"number\">{number}</span><span>{}</span>{loss}</h3>\
<p>{}</p>{evidence}{symptoms}<dl><dt>Next</dt><dd>{}</dd><dt>Disproved if</dt><dd>{}</dd><dt>Rule</dt><dd><code>{}</code></dd></dl>\
</article>\n",
        esc(&f.title),
        // One that lists things has a line for each.
        f.explanation.lines().map(esc).collect::<Vec<_>>().join("<br>"),
        esc(&f.next),
        esc(&f.disproved_by),
        esc(&f.rule)
    )
}

/// The first measured value of a symptom.
fn figure(s: &Finding) -> String {
    s.evidence.first().map_or_else(String::new, |e| format!(": {:.2} {}", e.value, e.unit))
}

fn list(all: &[Finding]) -> String {
    all.iter().enumerate().map(|(i, f)| finding(i + 1, f)).collect()
}

pub fn body(d: &Document) -> String {
    if d.after.is_none() {
        return list(&d.findings);
    }
    // What is still found afterwards is told in a line each: the reader has seen the evidence's kind above.
    let after: String = d.findings_after.iter().map(|f| format!("<li>{}</li>", esc(&f.title))).collect();
    format!(
        "<h3 class=\"part\">Before</h3>{}<h3 class=\"part\">After</h3><ul>{after}</ul>\n",
        list(&d.findings)
    )
}
