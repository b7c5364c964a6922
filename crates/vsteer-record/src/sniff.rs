//! What is this file, if it is not what a reader expected?
//!
//! A reader that refuses a file looks here first. "A ZIP archive" with "save the table as CSV" helps; "byte 0 is not
//! valid" does not. [`what_is`] looks at the first bytes: the marks of formats, then the text. What vsteer itself reads
//! is named too, because a reader of another format may have got it.
//!
//! Sources: the formats' own documents (RFC 1952, RFC 8878, APPNOTE.TXT, ISO 32000) and file(1)'s `magic` for marks.
//! Left out: formats without a mark, such as Windows' binary performance logs.

mod text;

use std::fs::File;
use std::io::Read;
use std::path::Path;
use vsteer_core::{Fault, limits};

/// What a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// A name for people, with its article: "a ZIP archive".
    pub name: String,
    /// What to do, for [`vsteer_core::Fault::help`].
    pub help: String,
    /// The reader of vsteer that reads it as it is.
    pub reader: Option<Reader>,
    /// Recognised by its words, and not by the mark of a format.
    pub is_text: bool,
}

/// A reader of vsteer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// [`crate::esxtop`].
    Esxtop,
    /// [`crate::xentrace`].
    XenTrace,
    /// [`crate::sched_trace`].
    SchedTrace,
    /// Performance counters of Windows, beside a display run.
    WindowsCounters,
}

impl Known {
    fn new(name: impl Into<String>, help: impl Into<String>) -> Known {
        Known { name: name.into(), help: help.into(), reader: None, is_text: false }
    }

    fn read_by(self, reader: Reader) -> Known {
        Known { reader: Some(reader), ..self }
    }
}

/// Recognises a file on disk.
///
/// # Errors
/// If the file is missing or cannot be read.
pub fn file(path: &Path) -> Result<Option<Known>, Fault> {
    let mut first = Vec::new();
    let read = File::open(path).and_then(|f| f.take(limits::SNIFFED as u64).read_to_end(&mut first));
    read.map_err(|e| Fault::io(format!("cannot read {}", path.display()), &e))?;
    Ok(what_is(&first))
}

const ESXTOP: &str = "make a batch file: esxtop -b -a > FILE";
const AS_CSV: &str = "open it and save the table as CSV, or give vsteer the file that esxtop wrote";

/// Marks at the start of a file: the bytes, a name, and help.
const MARKS: &[(&[u8], &str, &str)] = &[
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "decompress it first: zstd -d FILE"),
    (b"BZh", "compressed by bzip2", "decompress it first: bunzip2 -k FILE"),
    (b"\xfd7zXZ\0", "compressed by xz", "decompress it first: unxz -k FILE"),
    (b"\x04\x22\x4d\x18", "compressed by lz4", "decompress it first: lz4 -d FILE"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "unpack it first: 7z x FILE"),
    (b"Rar!\x1a\x07", "a RAR archive", "unpack it first: unrar x FILE"),
    (b"%PDF-", "a PDF document", "give vsteer the data from which it was made"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Excel or Word document", AS_CSV),
    (b"PAR1", "a Parquet table", "give vsteer the recording from which it was exported"),
    (b"ARROW1", "an Arrow table", "give vsteer the folder of the recording, not a file in it"),
    (
        b"SQLite format 3\0",
        "an SQLite database",
        "export the table as CSV, or give vsteer the file that esxtop wrote",
    ),
    (b"\x7fELF", "a Linux program", "give vsteer a recording, not a program"),
    (b"MZ", "a Windows program", "give vsteer a recording, not a program"),
    (b"\x89PNG", "a PNG picture", "give vsteer the data, not a picture of them"),
    (b"\xff\xd8\xff", "a JPEG picture", "give vsteer the data, not a picture of them"),
    (b"GIF8", "a GIF picture", "give vsteer the data, not a picture of them"),
    (
        b"PERFILE2",
        "a binary recording of Linux' perf",
        "print its events as text, which vsteer reads: perf script -F +pid -i FILE > FILE.txt",
    ),
    (
        b"\x17\x08\x44tracing",
        "a binary recording of trace-cmd",
        "print its events as text, which vsteer reads: trace-cmd report FILE > FILE.txt",
    ),
    (b"ElfFile\0", "an event log of Windows", "export performance counters instead: typeperf -f CSV"),
    (b"\xd4\xc3\xb2\xa1", "captured network packets", "give vsteer a recording"),
    (b"\xff\xfe\0\0", "text in UTF-32", "convert it: iconv -f UTF-32 -t UTF-8 FILE > NEW"),
    (b"\0\0\xfe\xff", "text in UTF-32", "convert it: iconv -f UTF-32 -t UTF-8 FILE > NEW"),
];

/// Recognises a file by its first bytes; the more, the better, up to [`vsteer_core::limits::SNIFFED`]. `None`: unknown.
pub fn what_is(first: &[u8]) -> Option<Known> {
    let first = &first[..first.len().min(limits::SNIFFED)];
    if first.is_empty() {
        return Some(Known::new("an empty file", "record again, and check that the disk has room"));
    }
    if first.starts_with(&[0x1f, 0x8b]) {
        return Some(gzip(first));
    }
    if first.starts_with(b"PK\x03\x04") || first.starts_with(b"PK\x05\x06") {
        return Some(zip(first));
    }
    if let Some((_, name, help)) = MARKS.iter().find(|(mark, ..)| is_marked(first, mark)) {
        return Some(Known::new(*name, *help));
    }
    if first.get(257..262) == Some(b"ustar") {
        return Some(Known::new("a tar archive", "unpack it first: tar -xf FILE"));
    }
    // A trace of Xen begins with the change to a pCPU's records: two words follow the header. `xentrace` may write a
    // message for people in front.
    if first.starts_with(&0x2001_f003_u32.to_le_bytes()) || first.starts_with(b"change evtmask") {
        let help = "vsteer replay FILE reads it, beside the output of `xl info -n`";
        return Some(Known::new("a trace of `xentrace`", help).read_by(Reader::XenTrace));
    }
    if first.iter().all(|b| *b == 0) {
        return Some(Known::new(
            "a file of zero bytes",
            "copy or record the file again: its space was reserved, but nothing was written",
        ));
    }
    utf16(first).or_else(|| text::what_is(first).map(|known| Known { is_text: true, ..known }))
}

/// Does the file begin with this mark? A mark of letters alone may also be the first word of a text.
fn is_marked(first: &[u8], mark: &[u8]) -> bool {
    let is_word = mark.iter().all(u8::is_ascii_alphanumeric);
    first.starts_with(mark) && !(is_word && first.iter().take(64).all(text::is_text))
}

/// Something compressed by gzip: what is inside?
fn gzip(first: &[u8]) -> Known {
    let mut inside = Vec::new();
    // The first bytes of the file end within the data, which is no error.
    let to = limits::SNIFFED as u64;
    let read = flate2::read::GzDecoder::new(first).take(to).read_to_end(&mut inside);
    if inside.is_empty() && read.is_err() {
        return Known::new("damaged gzip data", "copy or record the file again; gzip -t FILE checks it");
    }
    // What is compressed twice is not looked into further.
    let is_twice = inside.starts_with(&[0x1f, 0x8b]);
    match what_is(if is_twice { &[0xff] } else { &inside }) {
        Some(known) if known.reader == Some(Reader::XenTrace) => {
            Known::new("a gzip of a trace of `xentrace`", "decompress it first: gunzip -k FILE")
        }
        Some(known) if known.name.starts_with("a tar") => Known::new(
            "a gzip of a tar archive",
            "unpack it first: tar -xzf FILE. A bundle of vm-support holds no batch file of esxtop unless you added one",
        ),
        Some(known) => Known { name: format!("a gzip of {}", known.name), ..known },
        None => Known::new("gzip data", "decompress it first: gunzip -k FILE"),
    }
}

/// What a ZIP archive holds, by the names of its first files.
fn zip(first: &[u8]) -> Known {
    let has = |name: &[u8]| memchr::memmem::find(first, name).is_some();
    if has(b"[Content_Types].xml") || has(b"xl/workbook") || has(b"xl/worksheets") {
        let kind = if has(b"word/") { "a Word document" } else { "an xlsx workbook of Excel" };
        return Known::new(kind, AS_CSV);
    }
    if has(b"opendocument.spreadsheet") {
        return Known::new("an ods workbook of LibreOffice", AS_CSV);
    }
    if has(b"manifest.json") && has(b".vsteer/") {
        return Known::new(
            "a ZIP archive of a recording",
            "unpack it, and give vsteer the folder: unzip FILE",
        );
    }
    Known::new("a ZIP archive", "unpack it first: unzip FILE")
}

/// UTF-16 with or without its mark: of text in the Latin alphabet, every second byte is zero.
fn utf16(first: &[u8]) -> Option<Known> {
    let name = match first {
        [0xff, 0xfe, ..] => "text in UTF-16LE",
        [0xfe, 0xff, ..] => "text in UTF-16BE",
        _ => {
            let pairs = &first[..first.len().min(256)];
            let are = |zero: usize| {
                let is_one = |p: &[u8]| p[zero] == 0 && p[1 - zero] != 0;
                pairs.len() >= 4 && pairs.chunks_exact(2).all(is_one)
            };
            match (are(1), are(0)) {
                (true, _) => "text in UTF-16LE without a byte-order mark",
                (_, true) => "text in UTF-16BE without a byte-order mark",
                _ => return None,
            }
        }
    };
    let from = if name.contains("BE") { "UTF-16BE" } else { "UTF-16LE" };
    Some(Known::new(name, format!("convert it: iconv -f {from} -t UTF-8 FILE > NEW")))
}

#[cfg(test)]
mod tests;
