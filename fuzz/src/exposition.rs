//! Any two texts are expositions of a server's metrics, or are refused. As many requests are made from a histogram as it
//! counted.

use std::collections::BTreeMap;
use vsteer_record::prometheus::{Histogram, between};
use vsteer_sla::histogram::requests;

const PAGES: &str = "m_bucket{le=\"0.1\"} 1\nm_bucket{le=\"+Inf\"} 2\nm_sum 0.3\nm_count 2\n\n---\n\
m_bucket{le=\"0.1\"} 3\nm_bucket{le=\"+Inf\"} 5\nm_sum 1.3\nm_count 5\n";

pub fn run(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let (before, after) = text.split_once("\n---\n").unwrap_or(("", &text));
    let of = Histogram { metric: "m".to_owned(), labels: BTreeMap::new() };
    let Ok(found) = between(before, after, &of) else { return false };
    assert!(found.series > 0);
    // Counts are whole numbers, or rounded to them. A million are as good as ten, and slower.
    if found.counted.count() < 1e4
        && let Ok(all) = requests(&found.counted, (0, 60_000_000_000))
    {
        assert_eq!(all.len(), found.counted.count().round() as usize);
    }
    true
}

pub fn seeds() -> Vec<Vec<u8>> {
    crate::seeds_of(&[PAGES])
}
