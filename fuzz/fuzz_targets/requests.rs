//! Any text is a format of access logs, a line of one, an exposition, or the place of one; or vsteer refuses the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;
use vsteer_host::scrape::Place;
use vsteer_record::access_log::{Format, checked_format};
use vsteer_record::prometheus::{Histogram, between};
use vsteer_sla::histogram::requests;

fuzz_target!(|bytes: &[u8]| {
    // The first line is a format, the others are of it.
    let mut lines = bytes.split(|b| *b == b'\n');
    let format = String::from_utf8_lossy(lines.next().unwrap_or_default());
    let lines: Vec<&[u8]> = lines.collect();
    for name in [format.as_ref(), "apache", "apache-combined", "nginx", "json"] {
        if let Ok(found) = checked_format("log", name, 2, &lines) {
            assert!(found.iter().all(|r| r.began_ns() <= r.ended_ns));
        }
        let _ = Format::parse(name).map(|f| f.resolution_ns());
    }
    let text = String::from_utf8_lossy(bytes);
    let (before, after) = text.split_once("\n---\n").unwrap_or(("", &text));
    if let Ok(place) = Place::parse(&format) {
        assert_eq!(Place::parse(&place.to_string()).unwrap(), place);
    }
    let of = Histogram { metric: "m".to_owned(), labels: BTreeMap::new() };
    let _ = format.parse::<Histogram>();
    if let Ok(found) = between(before, after, &of) {
        assert!(found.series > 0);
        // Counts are whole numbers, or rounded to them. A million are as good as ten, and slower.
        if found.counted.count() < 1e4
            && let Ok(all) = requests(&found.counted, (0, 60_000_000_000))
        {
            assert_eq!(all.len(), found.counted.count().round() as usize);
        }
    }
});
