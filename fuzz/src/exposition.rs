//! Any two pages are expositions of a server's metrics, or are refused. The counts that are read do not contradict each
//! other, and as many requests are made from a histogram as it counted. The first byte says whether the rest is two texts
//! with a line between them, or one page of any bytes, which is read beside an empty one, and beside its own first half, or
//! the answer of a Prometheus server, whose samples form several scrapes.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::BTreeMap;
use std::io::Write;
use vsteer_record::prometheus::stored::{Samples, Stored};
use vsteer_record::prometheus::{Between, Histogram, Scrape, between};
use vsteer_sla::histogram::requests;

const PAGES: &str = "\0m_bucket{le=\"0.1\"} 1\nm_bucket{le=\"+Inf\"} 2\nm_sum 0.3\nm_count 2\n\n---\n\
m_bucket{le=\"0.1\"} 3\nm_bucket{le=\"+Inf\"} 5\nm_sum 1.3\nm_count 5\n";
const OPEN_METRICS: &str = "\0\n---\n# TYPE m histogram\n# UNIT m seconds\n{\"m_bucket\",a=\"\\\"\",le=\"5e-1\"} 3.0 1.5 # {b=\"c\"} 0.1\n\
m_bucket{a=\"\\\"\",le=\"+Inf\"} 5\nm_sum{a=\"\\\"\"} 1.3\nm_created{a=\"\\\"\"} 7\nother{ 1\n# EOF\n";
const ANSWER: &str = "\x02{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\",\"result\":[{\"metric\":{\"__name__\":\"m_bucket\",\
\"job\":\"a\",\"le\":\"+Inf\"},\"values\":[[1.5,\"3\"],[2,\"5\"]]},{\"metric\":{\"__name__\":\"m_sum\",\"job\":\"a\"},\"values\":[[1.5,\"3\"],\
[2,\"5.5\"]]},{\"metric\":{\"__name__\":\"m\"},\"histograms\":[[1,{\"count\":\"3\",\"sum\":\"4\",\"buckets\":[[3,\"-0.1\",\"0.1\",\"1\"],\
[0,\"1\",\"2\",\"2\"]]}]]}]}}";
/// A family `m` with one series: three values of 1 to 2 in a native bucket, and a fixed bucket up to 2.
const FAMILY: &[u8] = b"\x0a\x01m\x18\x04\x22\x2d\x3a\x2b\x08\x03\x11\0\0\0\0\0\0\x12\x40\x1a\x0b\x08\x03\x11\0\0\0\0\0\0\0\x40\
\x28\0\x31\x95\xd6\x26\xe8\x0b\x2e\x11\x3e\x62\x04\x08\x02\x10\x01\x68\x06";

fn check(found: Between) {
    assert!(found.series > 0);
    let buckets = &found.counted.buckets;
    assert!(buckets.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 <= two[1].1), "{buckets:?}");
    assert!(buckets.last().is_some_and(|(le, n)| le.is_infinite() && *n >= 0.0), "{buckets:?}");
    // Counts are whole numbers, or rounded to them. A million are as good as ten, and slower.
    if found.counted.count() < 1e4
        && let Ok(all) = requests(&found.counted, (0, 60_000_000_000))
    {
        assert_eq!(all.len(), found.counted.count().round() as usize);
    }
}

pub fn run(bytes: &[u8]) -> bool {
    let Some((kind, rest)) = bytes.split_first() else { return false };
    let of = Histogram { metric: "m".to_owned(), labels: BTreeMap::new() };
    let pages = if kind & 2 != 0 {
        stored(rest, &of)
    } else if kind & 1 == 0 {
        let text = String::from_utf8_lossy(rest);
        let (before, after) = text.split_once("\n---\n").unwrap_or(("", &text));
        vec![between(before, after, &of, None)]
    } else {
        vec![between("", rest, &of, None), between(&rest[..rest.len() / 2], rest, &of, None)]
    };
    let read: Vec<Between> = pages.into_iter().flatten().collect();
    let any = !read.is_empty();
    read.into_iter().for_each(check);
    any
}

/// The differences of the scrapes in an answer.
fn stored(answer: &[u8], of: &Histogram) -> Vec<Result<Between, vsteer_core::Fault>> {
    let mut all: BTreeMap<String, Vec<Scrape>> = BTreeMap::new();
    let mut each = |stored: Stored| {
        let scrapes = all.entry(stored.target.to_string()).or_default();
        scrapes.extend(stored.scrape);
    };
    if Samples::new(of, None).take(answer, (i64::MIN, i64::MAX), &mut each).is_err() {
        return Vec::new();
    }
    all.values().flat_map(|scrapes| scrapes.windows(2)).map(|two| two[1].since(&two[0])).collect()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(bytes).expect("memory has room");
    gz.finish().expect("memory has room")
}

pub fn seeds() -> Vec<Vec<u8>> {
    let page = [&[FAMILY.len() as u8], FAMILY].concat();
    let mut all = crate::seeds_of(&[PAGES, OPEN_METRICS, ANSWER]);
    all.extend([[b"\x01".as_slice(), &page].concat(), [b"\x01".to_vec(), packed(&page)].concat()]);
    all
}
