//! Is docs/schedulers.md what the table of policies says? It is made from it:
//! `VSTEER_WRITE_DOCS=1 cargo test -p vsteer-sim --test docs` writes the page again.

use std::fmt::Write;
use vsteer_sim::policy::{About, Conserving};
use vsteer_sim::sched::POLICIES;

const HEAD: &str = "\
# Schedulers of the simulator

`vsteer simulate` knows these schedulers. Each section names the source that the simulator follows, and where it deviates
(`GAP(id)`). Choose one with `policy` in a [scenario](scenarios.md). [Parameters](reference/parameters.md) lists what you can set.
A test writes this page from the schedulers themselves (`crates/vsteer-sim/src/sched/`).
";

fn ns(ns: u64) -> String {
    format!("{} ms", ns as f64 / 1e6)
}

fn section(about: &About) -> String {
    let mut s = format!("\n## {}\n\n{}.\n\nSource: {}.\n\n", about.name, about.doc, about.source);
    let (least, most) = about.weights;
    match (about.default_weight, about.proportional) {
        (0, _) => s += "- weights: none\n",
        (w, true) => writeln!(s, "- weights: shares from {least} to {most}, default {w}").unwrap(),
        (w, false) => {
            writeln!(s, "- weights: priorities from {least} to {most}, higher first, default {w}").unwrap()
        }
    }
    writeln!(s, "- caps: {}; quotas: {}", yes(about.caps), yes(about.quotas)).unwrap();
    if about.classes {
        s += "- classes: SCHED_OTHER and SCHED_BATCH with nice levels, SCHED_IDLE, SCHED_FIFO and SCHED_RR above them\n";
    }
    match about.conserving {
        Conserving::Always => s += "- leaves no pCPU idle while a vCPU that may run there is ready\n",
        Conserving::Within(most_ns) => {
            writeln!(
                s,
                "- leaves a pCPU idle for at most {} while a vCPU that may run there is ready",
                ns(most_ns)
            )
            .unwrap();
        }
        Conserving::No(why) => {
            writeln!(s, "- may leave a pCPU idle while a vCPU is ready elsewhere: {why}").unwrap()
        }
    }
    if !about.gaps.is_empty() {
        s += "\nDeviations:\n\n";
    }
    for gap in about.gaps {
        let (id, what) = gap.split_once(": ").expect("a gap is `id: what`");
        writeln!(s, "- GAP({id}): {what}").unwrap();
    }
    s
}

fn yes(b: bool) -> &'static str {
    if b { "enforced" } else { "not supported" }
}

#[test]
fn the_page_is_what_the_table_says() {
    let page = POLICIES.iter().fold(HEAD.to_owned(), |page, e| page + &section(&e.about));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schedulers.md");
    if std::env::var_os("VSTEER_WRITE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(path).unwrap_or_default(),
        page,
        "VSTEER_WRITE_DOCS=1 writes the page again"
    );
}

#[test]
fn every_gap_stands_in_an_essay() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sched");
    for e in POLICIES {
        let essay = std::fs::read_to_string(format!("{folder}/{}.rs", e.about.name)).unwrap();
        for gap in e.about.gaps {
            let id = gap.split(':').next().unwrap();
            assert!(essay.contains(&format!("`GAP({id})`")), "{}: {id}", e.about.name);
        }
        let marks = essay.matches("`GAP(").count();
        assert_eq!(marks, e.about.gaps.len(), "{}: a gap in the essay is not in the table", e.about.name);
    }
}
