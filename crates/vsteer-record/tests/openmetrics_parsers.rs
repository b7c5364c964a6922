//! Does the reader of expositions accept what OpenMetrics' own parser tests accept?
//!
//! The repository github.com/prometheus/OpenMetrics has some 200 pages, each with the answer whether a parser must accept it:
//!
//! ```sh
//! git clone https://github.com/prometheus/OpenMetrics
//! VSTEER_OPENMETRICS_PARSERS=OpenMetrics/tests/testdata/parsers \
//!     cargo test -p vsteer-record --test openmetrics_parsers -- --ignored --nocapture
//! ```
//!
//! vsteer is not such a parser, because it wants one histogram. So two answers are compared:
//! - asked for a histogram that the page does not have, vsteer must read each valid page;
//! - asked for a histogram of the page, vsteer must read it if the page is valid, and refuse it otherwise.
//!
//! [`KNOWN`] lists each difference with its reason. A listed difference that does not occur fails the test.

use std::collections::BTreeSet;
use std::path::Path;
use vsteer_record::prometheus::{Histogram, Scrape};

const VARIABLE: &str = "VSTEER_OPENMETRICS_PARSERS";
/// How many pages there are.
const PAGES_MIN: usize = 200;

/// Pages with another answer: folder, reason.
const KNOWN: &[(&str, &str)] = &[
    ("bad_grouping_or_ordering_0", ORDER),
    ("bad_histograms_1", LINES),
    ("bad_histograms_11", RACE),
    ("bad_histograms_12", "vsteer reads +Inf in any case, as Prometheus does"),
    ("bad_histograms_13", RACE),
    ("bad_histograms_2", LINES),
    ("bad_histograms_3", "a bound below 0 does no harm if no value is below it"),
    ("bad_histograms_4", LINES),
    ("bad_histograms_5", LINES),
    ("bad_histograms_9", ORDER),
    ("exemplars_wide_chars", NO_SUM),
    ("exemplars_with_hash_in_label_values", NO_SUM),
    ("gaugehistogram_exemplars", GAUGE),
    ("histogram_exemplars", NO_SUM),
    ("negative_bucket_gaugehistogram", GAUGE),
    ("negative_bucket_histogram", NO_SUM),
    ("simple_gaugehistogram", GAUGE),
];
const ORDER: &str = "vsteer needs no order of lines";
const LINES: &str =
    "_sum may be missing while nothing was counted, and _count always, because the last bucket has it";
const RACE: &str =
    "a server may count while it writes the page, so _count and the last bucket may differ by 10";
const NO_SUM: &str = "OpenMetrics needs no _sum, but vsteer needs the mean";
const GAUGE: &str =
    "a gauge histogram's counts also fall, so two scrapes tell nothing about the time between them";

/// The histograms of a page: names with a type, and names of buckets.
fn histograms(page: &str) -> BTreeSet<String> {
    let of = |line: &str| match line.strip_prefix("# TYPE ") {
        Some(typed) => typed.strip_suffix(" histogram").map(str::to_owned),
        None => line.split_once("_bucket").map(|(name, _)| name.to_owned()),
    };
    page.lines()
        .filter(|line| !line.starts_with("# TYPE") || line.ends_with(" histogram"))
        .filter_map(of)
        .collect()
}

#[test]
#[ignore = "needs VSTEER_OPENMETRICS_PARSERS: the folder of OpenMetrics' parser tests (the file's head says how)"]
fn openmetrics_own_pages_are_read_or_refused() {
    let folder =
        std::env::var_os(VARIABLE).expect("VSTEER_OPENMETRICS_PARSERS names the folder of the tests");
    let mut all: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    let (mut differ, mut counts) = (BTreeSet::new(), [[0; 2]; 2]);
    for page in &all {
        let name = page.file_name().unwrap().to_string_lossy().into_owned();
        let valid =
            std::fs::read_to_string(page.join("test.json")).unwrap().contains("\"shouldParse\": true");
        for why in different(&page.join("metrics"), valid, &mut counts) {
            if KNOWN.iter().all(|(known, _)| *known != name) {
                println!("DIFFERS {name}: {why}");
            }
            differ.insert(name.clone());
        }
    }
    let [[refused, read], [valid_refused, valid_read]] = counts;
    println!(
        "{} pages; histograms of valid pages: {valid_read} read, {valid_refused} refused; of invalid ones: {read} read, \
         {refused} refused",
        all.len()
    );
    let known: BTreeSet<String> = KNOWN.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert!(all.len() >= PAGES_MIN, "{} pages", all.len());
    assert_eq!(differ, known);
}

/// How vsteer's answers differ. Counts histograms: of valid pages or not, read or not.
fn different(page: &Path, valid: bool, counts: &mut [[usize; 2]; 2]) -> Vec<String> {
    let bytes = std::fs::read(page).unwrap();
    let mut all = Vec::new();
    if let (true, Err(fault)) = (valid, Scrape::read(&bytes, &"no_such_metric".parse().unwrap(), None)) {
        all.push(format!("another metric's page is refused: {fault}"));
    }
    for name in histograms(&String::from_utf8_lossy(&bytes)) {
        let Ok(of) = name.parse::<Histogram>() else { continue };
        let read = Scrape::read(&bytes, &of, None).and_then(|scrape| scrape.checked());
        counts[usize::from(valid)][usize::from(read.is_ok())] += 1;
        match read {
            Ok(()) if !valid => all.push(format!("the histogram {name} is read")),
            Err(fault) if valid => all.push(format!("the histogram {name} is refused: {fault}")),
            _ => {}
        }
    }
    all
}
