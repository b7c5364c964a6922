//! The frame of the page: security policy, style, header, table of contents.

use super::Document;
use super::markup::{esc, name};
use crate::clock;
use vsteer_core::plural::counted;

/// No script, no request: even a mistake in escaping could do nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The whole page around its sections; `contents` are their ids and headings.
pub fn page(d: &Document, contents: &[(&str, &str)], sections: &str) -> String {
    let config = &d.before.stretch.config;
    let title = format!("vsteer report: {}, {}", config.hostname, clock::text(d.before.model.from_unix_ns));
    let window = |s: &super::Side| {
        format!(
            "<dt>{}</dt><dd>{}, {:.1} s, collector {}</dd>",
            s.label,
            clock::text(s.model.from_unix_ns),
            s.stretch.seconds(),
            esc(&s.model.collector)
        )
    };
    let t = &config.topology;
    let (pcpus, vms) = (t.online().len(), config.vms.len());
    let machine = [(pcpus, "pCPU"), (t.cores().len(), "core"), (t.nodes().len(), "NUMA node"), (vms, "VM")]
        .map(|(n, noun)| counted(n, noun));
    let facts = format!(
        "<dl class=\"facts\"><dt>Host</dt><dd>{}</dd><dt>Kernel</dt><dd>{}</dd><dt>Machine</dt><dd>{}</dd>{}<dt>Made by</dt><dd>vsteer {}, {}</dd></dl>",
        name(&config.hostname),
        esc(&config.kernel),
        machine.join(", "),
        d.sides().map(window).collect::<String>(),
        env!("CARGO_PKG_VERSION"),
        clock::text(d.made_unix_ns),
    );
    let heading = format!("How long VMs waited for a CPU on {}", name(&config.hostname));
    frame(&title, &heading, &facts, contents, sections)
}

/// A page of this title around sections; `heading` and `facts` are HTML.
pub fn frame(title: &str, heading: &str, facts: &str, contents: &[(&str, &str)], sections: &str) -> String {
    let links: String =
        contents.iter().map(|(id, h)| format!("<li><a href=\"#{id}\">{}</a></li>", esc(h))).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
<meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n\
<header>\n<p class=\"brand\">vsteer report</p>\n<h1>{heading}</h1>\n{facts}\n\
<nav aria-label=\"Contents\"><ul>{links}</ul></nav>\n</header>\n<main>\n{sections}</main>\n</body>\n</html>\n",
        esc(title),
        include_str!("style.css"),
    )
}
