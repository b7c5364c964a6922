//! Files that cannot be read: does the fault say what they are?

use super::forms::{contents, gzip};
use super::made::{Form, PLAIN};
use super::{Place, cells};

fn header_and(rows: &[&str]) -> Vec<u8> {
    let head = r#""(PDH-CSV 4.0) (UTC)(0)","\\h\Group Cpu(7:web)\% Run""#;
    std::iter::once(head).chain(rows.iter().copied()).flat_map(|l| [l.as_bytes(), b"\n"].concat()).collect()
}

/// Bytes, and words of the fault: of the cause, and of the help.
fn not_esxtops() -> Vec<(&'static str, Vec<u8>, &'static str, &'static str)> {
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let big = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>();
    let base = PLAIN.text(&cells(&contents()[0]));
    let tar = [&[b'x'; 257][..], b"ustar\x0000", &[0; 200]].concat();
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        ("empty", Vec::new(), "an empty file", "record again"),
        ("empty gzip", gzip(b""), "the decompressed data is an empty file", "record again"),
        ("blank", text("\n\n"), "a file of blank lines", "record again"),
        ("zeros", vec![0; 9000], "a file of zero bytes", "again"),
        ("zip", text("PK\x03\x04\x14\0esxtop.csv"), "a ZIP archive", "unzip"),
        ("xlsx", text("PK\x03\x04\x14\0[Content_Types].xml"), "an xlsx workbook", "as CSV"),
        ("ods", text("PK\x03\x04mimetypeapplication/vnd.oasis.opendocument.spreadsheet"), "ods", "as CSV"),
        ("xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 ".to_vec(), "an old Excel", "as CSV"),
        ("pdf", text("%PDF-1.7\n"), "a PDF document", "data"),
        ("html", text("<!DOCTYPE html>\n<html></html>"), "an HTML page", "download the file"),
        ("xml", text("<?xml version=\"1.0\"?><a/>"), "an XML document", "esxtop -b"),
        ("json", text("{\"hello\": 1}"), "JSON", "recording"),
        ("tar", tar.clone(), "a tar archive", "tar -xf"),
        ("gzip of tar", gzip(&tar), "the decompressed data is a tar archive", "tar -xf"),
        ("zstd", b"\x28\xb5\x2f\xfd\x04\0".to_vec(), "compressed by zstd", "zstd -d"),
        ("bzip2", b"BZh91AY&SY\x80\0".to_vec(), "compressed by bzip2", "bunzip2"),
        ("xz", b"\xfd7zXZ\0\0\x04".to_vec(), "compressed by xz", "unxz"),
        ("lz4", b"\x04\x22\x4d\x18\x40".to_vec(), "compressed by lz4", "lz4 -d"),
        ("gzip of xz", gzip(b"\xfd7zXZ\0\0\x04"), "the decompressed data is compressed by xz", "unxz"),
        (
            "TSV",
            text("time\tready\n1\t2\n"),
            "tabs between columns; esxtop separates columns by commas",
            "esxtop -b",
        ),
        ("gzip of TSV", gzip(b"time\tready\n1\t2\n"), "decompressed data is a table with tabs", "esxtop -b"),
        ("CSV", text("cpu,ready\n1,2\n"), "a CSV table without esxtop's header", "first line"),
        ("semicolons", text("cpu;ready\n1;2\n"), "a table with semicolons", "first line"),
        ("UTF-16LE without mark", utf16(&base), "UTF-16LE without a byte-order mark", "iconv -f UTF-16LE"),
        ("UTF-16BE without mark", big(&base), "UTF-16BE without a byte-order mark", "iconv -f UTF-16BE"),
        ("UTF-32", b"\xff\xfe\0\0(\0\0\0".to_vec(), "text in UTF-32", "iconv -f UTF-32"),
        (
            "chart",
            text("\"Time\",\"Readiness for web\"\n\"1\",\"2\"\n"),
            "a table of a chart",
            "--connect vsphere://",
        ),
        (
            "Get-Stat",
            text("\"MetricId\",\"Timestamp\",\"Value\"\n"),
            "PowerCLI (Get-Stat)",
            "--connect vsphere://",
        ),
        ("Get-Stat 5", text("#TYPE VMware.VimAutomation.X\n\"a\"\n"), "objects of PowerShell", "vsphere://"),
        (
            "RVTools",
            text("VM,Powerstate,Template\nweb,poweredOn,False\n"),
            "a table of RVTools",
            "vsphere://",
        ),
        (
            "screen",
            text("10:05:33am up 20 days, 583 worlds, 1 VM; CPU load average: 0.5\n"),
            "the screen of esxtop",
            "-b",
        ),
        ("terminal", text("\x1b[2J\x1b[H10:05:33am"), "the screen of a program", "esxtop -b"),
        ("xentrace", vec![3, 0xf0, 1, 0x20, 0, 0, 0, 0], "a trace of `xentrace`", "replay"),
        ("hello", text("hello"), "it begins with \"hello\"", "esxtop -b"),
    ]
}

#[test]
fn what_a_file_is_instead_is_said() {
    let place = Place::new();
    let all = not_esxtops();
    assert!(all.len() >= 30);
    for (name, bytes, why, help) in all {
        let fault = place.read(&bytes).err().unwrap_or_else(|| panic!("{name} was read"));
        assert!(fault.what.contains("not a batch file of esxtop"), "{name}: {fault}");
        assert!(fault.cause.as_deref().is_some_and(|c| c.contains(why)), "{name}: {fault}");
        assert!(fault.help.as_deref().is_some_and(|h| h.contains(help)), "{name}: {fault}");
    }
}

/// Files that begin as esxtop's do, and of which nothing can be read.
#[test]
fn why_nothing_can_be_read_is_said() {
    let place = Place::new();
    let one_slash = PLAIN.text(&cells(&contents()[0])).replace("\"\\\\", "\"\\");
    let own = PLAIN.text(&[vec!["(PDH-CSV 4.0) (UTC)(0)".into(), "\\\\h\\Group Cpu(1:idle)\\% Run".into()]]);
    let windows = r#""(PDH-CSV 4.0) (UTC)(0)","\\h\Processor(_Total)\% Processor Time""#.to_owned() + "\n";
    let dashes = Form { time: |h, m, s| format!("24-11-2026 {h}:{m:02}:{s:02}"), ..PLAIN };
    let serial = Form { time: |_, m, s| format!("46350.3{m:02}{s:02}"), quoted: false, ..PLAIN };
    let narrow = Form { time: |_, _, _| "########".to_owned(), quoted: false, ..PLAIN };
    let cut = |bytes: Vec<u8>, n: usize| bytes[..bytes.len().min(n)].to_vec();
    let files: [(&str, Vec<u8>, &str); 14] = [
        ("header only", header_and(&[]), "0 complete rows"),
        ("one row", header_and(&["\"11/24/2026 08:00:00\",\"1.00\""]), "the first row only gives the start"),
        (
            "more values",
            header_and(&[r#""11/24/2026 08:00:00","1.00","2.00""#; 3]),
            "3 values, but the header names 2",
        ),
        ("fewer values", header_and(&[r#""11/24/2026 08:00:00""#; 3]), "1 values, but the header names 2"),
        ("no time", header_and(&[r#""yesterday","1.00""#; 3]), "\"yesterday\" is not a time"),
        ("month 13", header_and(&[r#""13/13/2026 08:00:00","1.00""#; 3]), "is not a time"),
        ("dashes", dashes.file(&contents()[0]), "is not a time"),
        ("days as numbers", serial.file(&contents()[0]), "is not a time"),
        ("narrow column", narrow.file(&contents()[0]), "its column was too narrow"),
        ("one backslash", one_slash.into_bytes(), "begins with two backslashes"),
        ("ESXi's own", own.into_bytes(), "these groups are ESXi's own: idle"),
        (
            "Windows' counters",
            windows.into_bytes(),
            "its counters are not those of esxtop: the first is \"% Processor Time\"",
        ),
        ("cut in the header", cut(PLAIN.file(&contents()[0]), 60), "holds no VM"),
        ("cut gzip", cut(gzip(&PLAIN.file(&contents()[0])), 200), "compressed data"),
    ];
    for (name, bytes, why) in files {
        let fault = place.read(&bytes).err().unwrap_or_else(|| panic!("{name} was read"));
        assert!(fault.to_string().contains(why), "{name}: {fault}");
        assert!(fault.help.is_some(), "{name}: {fault}");
    }
}

#[test]
fn a_missing_file_is_missing() {
    let place = Place::new();
    let fault = vsteer_record::esxtop::read(&place.0.path().join("gone.csv")).err().unwrap();
    assert_eq!(fault.kind, vsteer_core::FaultKind::NothingThere);
    assert!(fault.to_string().contains("gone.csv") && fault.to_string().contains("No such file"), "{fault}");
    assert!(!vsteer_record::esxtop::is_one(&place.0.path().join("gone.csv")));
}
