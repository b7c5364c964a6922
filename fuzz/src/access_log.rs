//! Any text is a format of access logs and lines of one, or is refused. No request ends before it begins.

use vsteer_record::access_log::{Format, checked_format};

const NAMED: [&str; 4] = ["apache", "apache-combined", "nginx", "json"];

pub fn run(bytes: &[u8]) -> bool {
    // The first line is a format, the others are of it.
    let mut lines = bytes.split(|b| *b == b'\n');
    let own = String::from_utf8_lossy(lines.next().unwrap_or_default());
    let lines: Vec<&[u8]> = lines.collect();
    let mut any = false;
    for format in NAMED.into_iter().chain([own.as_ref()]) {
        if let Ok(found) = checked_format("log", format, 2, &lines) {
            assert!(found.iter().all(|r| r.began_ns() <= r.ended_ns));
            any |= !found.is_empty();
        }
    }
    any | Format::parse(&own).map(|f| f.resolution_ns()).is_ok()
}

pub fn seeds() -> Vec<Vec<u8>> {
    crate::seeds_of(&[
        "apache\n127.0.0.1 - - [24/Nov/2026:08:00:00 +0000] \"GET / HTTP/1.1\" 200 5 1500\n",
        "%t %D\n[24/Nov/2026:08:00:00 +0000] 1500\n[24/Nov/2026:08:00:01 +0000] 900\n",
        "$msec $request_time\n1700000000.123 0.050\n1700000001.123 0.051\n",
        "json\n{\"time\":\"2026-11-24T08:00:00Z\",\"request_time\":0.05}\n",
    ])
}
