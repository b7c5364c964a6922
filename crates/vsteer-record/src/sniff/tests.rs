use super::*;
use proptest::prelude::*;
use std::io::Write;

fn named(bytes: &[u8]) -> String {
    what_is(bytes).map_or_else(|| "unknown".to_owned(), |k| k.name)
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

#[test]
fn files_are_named_by_their_first_bytes() {
    let tar = [&[b'x'; 257][..], b"ustar\x0000"].concat();
    let twice = gzipped(&gzipped(b"x"));
    let cases: &[(&[u8], &str)] = &[
        (b"", "an empty file"),
        (b"\r\n \n", "a file of blank lines"),
        (&[0; 512], "a file of zero bytes"),
        (b"BZh91AY&SY\x80\0", "compressed by bzip2"),
        (b"\x28\xb5\x2f\xfd\x04", "compressed by zstd"),
        (b"\xfd7zXZ\0\0", "compressed by xz"),
        (b"PK\x03\x04\x14\0esxtop.csv", "a ZIP archive"),
        (b"PK\x03\x04\x14\0[Content_Types].xml", "an xlsx workbook of Excel"),
        (
            b"PK\x03\x04mimetypeapplication/vnd.oasis.opendocument.spreadsheet",
            "an ods workbook of LibreOffice",
        ),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0", "an old Excel or Word document"),
        (b"%PDF-1.7", "a PDF document"),
        (b"<!DOCTYPE html>\n<html>", "an HTML page"),
        (b"\n<HTML><head>", "an HTML page"),
        (b"<?xml version=\"1.0\"?>", "an XML document"),
        (b"{\"a\": 1}", "JSON"),
        (b"[{\"a\": 1}]", "JSON"),
        (&tar, "a tar archive"),
        (&gzipped(&tar), "a gzip of a tar archive"),
        (&gzipped(b"time\tready\n1\t2\n"), "a gzip of a table with tabs"),
        (&gzipped(b""), "a gzip of an empty file"),
        (&twice, "gzip data"),
        (b"\x1f\x8bnonsense", "damaged gzip data"),
        (b"\xff\xfe(\0P\0", "text in UTF-16LE"),
        (b"(\0P\0D\0H\0", "text in UTF-16LE without"),
        (b"\0(\0P\0D\0H", "text in UTF-16BE without"),
        (b"\xff\xfe\0\0(\0\0\0", "text in UTF-32"),
        (b"time\tready\n1\t2\n", "a table with tabs"),
        (b"time;ready\n1;2\n", "a table with semicolons"),
        (b"cpu,ready\n1,2\n", "a CSV table"),
        (b"\"Time\",\"Readiness for web\"\n\"11/24/2026 8:00\",\"20\"\n", "a table of a chart"),
        (b"\"MetricId\",\"Timestamp\",\"Value\",\"Unit\"\n", "statistics of PowerCLI"),
        (b"#TYPE VMware.VimAutomation.ViCore.Impl.V1.Stat.FloatSampleImpl\n", "objects of PowerShell"),
        (
            b"10:05:33am up 20 days, 583 worlds, 12 VMs, 34 vCPUs; CPU load average: 0.5\n",
            "the screen of esxtop",
        ),
        (b"\x1b[2J\x1b[H10:05:33am", "the screen of a program"),
        (b"\"(PDH-CSV 4.0) (UTC)(0)\",\"\\\\h\\Group Cpu(1:a)\\% Run\"\n", "a batch file of esxtop"),
        (b"\"(PDH-CSV 4.0)\",\"\\\\h\\Processor(_Total)\\% Processor Time\"\n", "a log of Windows"),
        (&[0x03, 0xf0, 0x01, 0x20, 0, 0, 0, 0], "a trace of `xentrace`"),
        (b"hello", "unknown"),
        (b"PAR1\x15\x04", "a Parquet table"),
        (b"PAR1,PAR2\n1,2\n", "a CSV table"),
        (b"MZ\x90\0", "a Windows program"),
        (b"MZone;b\n1;2\n", "a table with semicolons"),
        (b"[2026-11-24 08:00:00] started", "unknown"),
        (b"[[vm]]\nname = \"a\"\n", "unknown"),
        (b"[vm]\nname = \"a\"\n", "unknown"),
        (b"\x00\x01\x02\x03", "unknown"),
    ];
    for (bytes, name) in cases {
        assert!(named(bytes).starts_with(name), "{:?}: {}", String::from_utf8_lossy(bytes), named(bytes));
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), text in "\\PC{0,100}") {
        let _ = what_is(&bytes);
        let _ = what_is(text.as_bytes());
        let _ = what_is(&gzipped(text.as_bytes()));
        let _ = what_is(&[&[0x1f, 0x8b, 8, 0][..], &bytes].concat());
        if let Some(known) = what_is(&bytes) {
            prop_assert!(!known.name.is_empty() && !known.help.is_empty());
        }
    }
}
