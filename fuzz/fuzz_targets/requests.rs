//! Any text is a format of access logs, a line of one, or an exposition; or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vsteer_record::access_log::{Format, checked_format};
use vsteer_record::prometheus::between;

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
    if let Ok(found) = between(before, after, "m", &[], 1.0) {
        assert!(found.series > 0);
    }
});
