//! The forms and contents of the corpus.

use super::made::{Content, Form, PLAIN, plain_time};
use std::io::Write;

fn utf16(text: &str, big: bool) -> Vec<u8> {
    let units = std::iter::once(0xfeff).chain(text.encode_utf16());
    units.flat_map(|u: u16| if big { u.to_be_bytes() } else { u.to_le_bytes() }).collect()
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

fn excel(h: u64, m: u64, _: u64) -> String {
    format!("11/24/2026 {h}:{m:02}")
}

pub fn forms() -> Vec<Form> {
    spreadsheets().into_iter().chain(rewritten()).collect()
}

/// What spreadsheets write in different countries.
fn spreadsheets() -> Vec<Form> {
    vec![
        Form {
            name: "German Excel, text dates",
            separator: ';',
            decimal: ',',
            quoted: false,
            trimmed: true,
            line_end: "\r\n",
            ..PLAIN
        },
        Form {
            name: "German Excel",
            separator: ';',
            decimal: ',',
            quoted: false,
            trimmed: true,
            time: |h, m, _| format!("24.11.2026 {h:02}:{m:02}"),
            line_end: "\r\n",
            coarse: true,
            ..PLAIN
        },
        Form {
            name: "French Excel",
            separator: ';',
            decimal: ',',
            quoted: false,
            trimmed: true,
            time: |h, m, _| format!("24/11/2026 {h:02}:{m:02}"),
            coarse: true,
            ..PLAIN
        },
        Form { name: "American Excel", quoted: false, trimmed: true, time: excel, coarse: true, ..PLAIN },
        Form {
            name: "Japanese Excel",
            quoted: false,
            trimmed: true,
            time: |h, m, _| format!("2026/11/24 {h}:{m:02}"),
            coarse: true,
            ..PLAIN
        },
        Form {
            name: "Excel's Unicode text",
            separator: '\t',
            quoted: false,
            trimmed: true,
            encoded: |t| utf16(t, false),
            time: excel,
            line_end: "\r\n",
            coarse: true,
            ..PLAIN
        },
    ]
}

/// What esxtop writes, and what programs and people make of it.
fn rewritten() -> Vec<Form> {
    vec![
        PLAIN,
        Form { name: "with CRLF", line_end: "\r\n", ..PLAIN },
        Form { name: "with a comma at the end of lines", line_end: ",\n", ..PLAIN },
        Form { name: "gzip", encoded: |t| gzip(t.as_bytes()), ..PLAIN },
        Form { name: "UTF-8 with a mark", before: "\u{feff}", ..PLAIN },
        Form { name: "UTF-16LE", encoded: |t| utf16(t, false), line_end: "\r\n", ..PLAIN },
        Form { name: "UTF-16BE", encoded: |t| utf16(t, true), ..PLAIN },
        Form { name: "gzip of UTF-16LE", encoded: |t| gzip(&utf16(t, false)), ..PLAIN },
        Form { name: "without quotes", quoted: false, ..PLAIN },
        Form { name: "sep=, in front", before: "sep=,\r\n", ..PLAIN },
        Form { name: "sep=; in front", before: "sep=;\n", separator: ';', ..PLAIN },
        Form { name: "a mark and sep= in front", before: "\u{feff}sep=;\n", separator: ';', ..PLAIN },
        Form { name: "blanks in front", before: "\n  ", ..PLAIN },
        Form { name: "a blank line in front", before: "\r\n", ..PLAIN },
        Form {
            name: "a banner in front",
            before: "The time and date of this login\nVMware offers tools.\n\n",
            ..PLAIN
        },
        Form { name: "semicolons", separator: ';', ..PLAIN },
        Form { name: "semicolons, decimal commas", separator: ';', decimal: ',', ..PLAIN },
        Form { name: "decimal commas in quotes", decimal: ',', ..PLAIN },
        Form { name: "tabs", separator: '\t', first: "(PDH-TSV 4.0) (UTC)(0)", ..PLAIN },
        Form { name: "doubled backslashes", backslashes: 2, ..PLAIN },
        Form { name: "ISO times", time: |h, m, s| format!("2026-11-24 {h:02}:{m:02}:{s:02}"), ..PLAIN },
        Form {
            name: "ISO times in UTC",
            time: |h, m, s| format!("2026-11-24T{h:02}:{m:02}:{s:02}Z"),
            ..PLAIN
        },
        Form { name: "twelve hours", time: |h, m, s| format!("11/24/2026 {h:02}:{m:02}:{s:02} AM"), ..PLAIN },
        Form { name: "milliseconds", time: |h, m, s| plain_time(h, m, s) + ".000", ..PLAIN },
        Form { name: "the day first", time: |h, m, s| format!("24/11/2026 {h:02}:{m:02}:{s:02}"), ..PLAIN },
        Form {
            name: "resxtop in another zone",
            first: "(PDH-CSV 4.0) (W. Europe Standard Time)(-60)",
            time: |h, m, s| plain_time(h + 1, m, s),
            ..PLAIN
        },
        Form { name: "a time in two lines", time: |h, m, s| plain_time(h, m, s).replace(' ', "\n"), ..PLAIN },
    ]
}

pub fn contents() -> Vec<Content> {
    let own = || vec!["system", "idle", "hostd.2099123", "vpxa.2099456"];
    vec![
        Content {
            name: "two VMs",
            host: "esx01.example.com",
            vms: vec![(101, "web-1", 2), (102, "db-1", 4)],
            own: own(),
            local: Some(7500),
        },
        Content {
            name: "odd names",
            host: "fe80::1",
            vms: vec![(101, "web, prod; (1)", 2), (102, "a \"b\" 50%", 1), (103, "wéb:7:ü", 1)],
            own: own(),
            local: Some(9999),
        },
        Content {
            name: "groups only",
            host: "localhost",
            vms: vec![(101, "ubuntu-22.04", 0), (102, "win.2019", 0), (103, "10.0.0.12", 0), (104, "db", 0)],
            own: own(),
            local: None,
        },
        Content {
            name: "a host without ESXi's groups",
            host: "esx 2",
            vms: vec![(7, "a", 1)],
            own: Vec::new(),
            local: Some(3000),
        },
    ]
}
