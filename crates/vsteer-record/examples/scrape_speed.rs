//! How fast is a folder of saved scrapes read, beside `mawk '{s+=$NF} END {print s/NR}'` on the same pages?
//!
//! `scrape_speed FOLDER PAGES [MAWK]` writes PAGES pages of 1 MB in Prometheus' text format. A tenth of the lines is one
//! histogram of 40 series; the rest are counters. Then it reads them as `vsteer estimate` does, page by page with the
//! difference to the page before, and reads them with mawk. User CPU time, medians of five; one JSON line. Exit code 1 if
//! vsteer takes more than [`MAWK_MOST`] times mawk's time.

mod common;

use common::{OF_CHILDREN, OWN, add_up, cost, median};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use vsteer_record::prometheus::{Histogram, Scrape};
use vsteer_record::scraped::Page;

const ROUNDS: usize = 5;
const MAWK_MOST: f64 = 3.0;
const METRIC: &str = "http_request_duration_seconds";
const HANDLERS: u64 = 40;
const BOUNDS: [&str; 12] =
    ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"];
/// Each handler's answers in each second.
const EACH: u64 = 12;
/// Lines of other metrics, so that a page has 1 MB.
const OTHERS: u64 = 11_600;

fn page(second: u64) -> String {
    let mut text = format!("# HELP {METRIC} How long requests took.\n# TYPE {METRIC} histogram\n");
    for handler in 0..HANDLERS {
        let labels = format!("handler=\"/shop/{handler}\",method=\"GET\",code=\"200\"");
        for (i, le) in (1..).zip(BOUNDS) {
            let _ = writeln!(text, "{METRIC}_bucket{{{labels},le=\"{le}\"}} {}", second * i * EACH / 12);
        }
        let count = second * EACH;
        let _ = writeln!(text, "{METRIC}_sum{{{labels}}} {}", count as f64 * 0.7);
        let _ = writeln!(text, "{METRIC}_count{{{labels}}} {count}");
    }
    text += "# HELP pool_connections_total Connections.\n# TYPE pool_connections_total counter\n";
    for i in 0..OTHERS {
        let host = i % 97;
        let _ = writeln!(
            text,
            "pool_connections_total{{pool=\"p{i}\",host=\"db{host}.example.com\",state=\"closed\"}} {}",
            second * 1000 + i * 37
        );
    }
    text
}

/// Requests that all pages but the first tell of.
fn requests(files: &[PathBuf], of: &Histogram) -> f64 {
    let mut before: Option<Scrape> = None;
    let mut sum = 0.0;
    for file in files {
        let page = Page::read(file).expect("the page is read");
        let now = Scrape::read(&page.bytes, of, None).expect("the page holds the histogram");
        if let Some(before) = &before {
            sum += now.since(before).expect("the two pages agree").counted.count();
        }
        before = Some(now);
    }
    sum
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (folder, pages) = (Path::new(&words[0]), words[1].parse::<u64>().expect("a number of pages"));
    let mawk = words.get(2).map_or("mawk", String::as_str);
    std::fs::create_dir_all(folder).unwrap();
    let named = |second: u64| folder.join(format!("{}.prom", 1_793_491_200 + second));
    let files: Vec<PathBuf> = (1..=pages).map(named).collect();
    for (second, file) in (1..).zip(&files) {
        std::fs::write(file, page(second)).unwrap();
    }
    let of: Histogram = METRIC.parse().unwrap();
    let (mut own, mut theirs) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        own.push(cost(OWN, &mut || {
            assert_eq!(requests(&files, &of), ((pages - 1) * HANDLERS * EACH) as f64);
        }));
        theirs.push(cost(OF_CHILDREN, &mut || add_up(mawk, &files)));
    }
    let bytes: u64 = files.iter().map(|f| std::fs::metadata(f).unwrap().len()).sum();
    let (own, theirs) = (median(own), median(theirs));
    let to_mawk = own / theirs;
    println!(
        "{{\"megabytes\": {}, \"pages\": {pages}, \"own_s\": {own:.3}, \"mawk_s\": {theirs:.3}, \"to_mawk\": {to_mawk:.2}}}",
        bytes / 1_000_000
    );
    std::process::exit(i32::from(to_mawk > MAWK_MOST));
}
