//! Is every exposition read with the right numbers, or refused for the right reason?
//!
//! Each input is a pair of pages, written here from lists of request times. The right answer comes from these lists:
//! at each bound that the reader returns, the times up to it are counted again. The reader's own code takes no part.

#[path = "prometheus_corpus/case.rs"]
mod case;
#[path = "prometheus_corpus/foreign.rs"]
mod foreign;
#[path = "prometheus_corpus/growth.rs"]
mod growth;
#[path = "prometheus_corpus/protobuf.rs"]
mod protobuf;
#[path = "prometheus_corpus/refused.rs"]
mod refused;
#[path = "prometheus_corpus/texts.rs"]
mod texts;
#[path = "prometheus_corpus/writer.rs"]
mod writer;

use case::Case;
use std::time::Instant;
use vsteer_record::prometheus::{Scrape, between};

fn all() -> Vec<Case> {
    [texts::cases(), foreign::cases(), refused::cases(), growth::cases(), protobuf::cases()].concat()
}

#[test]
fn every_input_is_read_right_or_refused_for_its_reason() {
    let all = all();
    let wrong: Vec<String> = all.iter().filter_map(Case::wrong).collect();
    assert!(wrong.is_empty(), "{} of {} inputs:\n{}", wrong.len(), all.len(), wrong.join("\n"));
    let mut names: Vec<&str> = all.iter().map(|c| c.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert!(names.len() == all.len() && all.len() >= 90, "{} names of {} inputs", names.len(), all.len());
}

/// A page that is cut anywhere, or has one byte changed, ends no reader. If its end is cut off, it gives no other
/// numbers than the whole page unless its last line still is a line.
#[test]
fn damaged_inputs_are_read_or_refused() {
    for case in all().into_iter().filter(|c| c.after.len() < 4000) {
        let step = (case.after.len() / 40).max(1);
        for at in (0..case.after.len()).step_by(step) {
            let mut changed = case.after.clone();
            changed[at] ^= 0x5a;
            for page in [&case.after[..at], &changed, &case.after[at..]] {
                let _ = between(&case.before, page, &case.of(), case.unit);
                let _ = between(page, &case.after, &case.of(), case.unit);
            }
        }
    }
}

/// Ten times the text takes about ten times as long, whatever is in it.
#[test]
fn time_is_linear() {
    type Line = fn(usize) -> String;
    let kinds: [(&str, Line); 5] = [
        ("series", |k| {
            format!("m_bucket{{a=\"{k}\",le=\"+Inf\"}} 1\nm_sum{{a=\"{k}\"}} 1\nm_count{{a=\"{k}\"}} 1\n")
        }),
        ("histograms", |k| format!("m{k}_bucket{{le=\"1\"}} 1\n")),
        ("odd lines", |k| format!("<p>{k}\n")),
        ("long labels", |k| format!("m_bucket{{a=\"{}\",le=\"+Inf\"}} 1\nm_sum 1\n", "\\n".repeat(k % 100))),
        ("one series", |k| {
            format!("m_bucket{{le=\"0.{}\"}} 0\nm_bucket{{le=\"+Inf\"}} 1\nm_sum 1\n", k % 100)
        }),
    ];
    let nothing = Scrape::read("up 1\n", &"m".parse().unwrap(), None).unwrap();
    for (name, line) in kinds {
        let took = |n: usize| {
            let page: String = std::iter::once("up 1\n".to_owned()).chain((0..n).map(line)).collect();
            let once = || {
                let begun = Instant::now();
                let scrape = Scrape::read(&page, &"m".parse().unwrap(), None);
                let _ = scrape.and_then(|scrape| scrape.since(&nothing));
                begun.elapsed()
            };
            (0..3).map(|_| once()).min().unwrap()
        };
        let (one, ten) = (took(1_000), took(10_000));
        assert!(ten < 40 * one, "{name}: {one:?} for 1,000, {ten:?} for 10,000");
    }
}
