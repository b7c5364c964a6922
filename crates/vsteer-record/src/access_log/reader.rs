//! Reads the requests of a log, one by one, in the given format or the one that fits most of the first lines.
//!
//! If a log's times are whole seconds, all requests of a second would seem to arrive at once. So vsteer
//! places each one at a moment within its second. The moments are spread like independent arrivals, and are
//! the same in every run. Durations are as in the log.
//!
//! Left out: following a log that grows (`vsteer_host::follow`).

use super::{Format, NAMED, checked_format};
use crate::files;
use std::io::BufReader;
use std::path::Path;
use vsteer_core::limits;
use vsteer_core::plural::counted;
use vsteer_core::requests::Answered;
use vsteer_core::{Fault, FaultKind};

/// If the resolution of the times is coarser than this (ns), requests are spread within their second.
const COARSE_NS: u64 = 100_000_000;
/// The number of lines from which to recognise the format.
const LOOKED_AT: usize = 100;

/// A log's format, and the state for reading its requests.
#[derive(Debug, Clone)]
pub struct Reader {
    format: Format,
    /// The resolution of the times, ns; 0 if it is fine enough.
    coarse_ns: u64,
    read: u64,
}

impl Reader {
    /// A reader with the named format, or with the format that fits most of the first lines of the log.
    ///
    /// # Errors
    /// As [`Format::parse`]; `BadInput` if the first lines do not match the named format, or match no known
    /// format.
    pub fn new(named: Option<&str>, file: &Path) -> Result<Reader, Fault> {
        let lines: Vec<Vec<u8>> = match open(file) {
            Ok(reader) => files::lines(reader, limits::LOG_LINE)
                .map_while(Result::ok)
                .filter(|l| !l.is_empty())
                .take(LOOKED_AT)
                .collect(),
            // The file may appear later.
            Err(_) if named.is_some() => Vec::new(),
            Err(fault) => return Err(fault),
        };
        let lines: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
        let name = file.display().to_string();
        let format = match named {
            Some(text) => {
                checked_format(&name, text, 1, &lines)?;
                Format::parse(text)?
            }
            None => fitting(&name, &lines)?,
        };
        let coarse_ns = format.resolution_ns().filter(|ns| *ns >= COARSE_NS).unwrap_or(0);
        Ok(Reader { format, coarse_ns, read: 0 })
    }

    /// The request of a line; `None` if the line has no request.
    pub fn request(&mut self, line: &[u8]) -> Option<Answered> {
        let request = self.format.request(line)?;
        let (began_ns, took_ns) = (request.began_ns(), request.took_ns);
        self.read += 1;
        // Multiples of the golden ratio are spread evenly, for any number of them (Weyl).
        let part = self.read.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        Some(Answered { began_ns: began_ns + ((self.coarse_ns * part) >> 32), took_ns })
    }
}

/// The known format that fits most lines.
fn fitting(name: &str, lines: &[&[u8]]) -> Result<Format, Fault> {
    let names: Vec<&str> = NAMED.iter().map(|(name, _)| *name).chain(["json"]).collect();
    let mut best: Option<(usize, Format)> = None;
    for named in &names {
        let format = Format::parse(named)?;
        let fits = lines.iter().filter(|l| format.request(l).is_some()).count();
        if fits > best.as_ref().map_or(0, |(most, _)| *most) {
            best = Some((fits, format));
        }
    }
    best.map(|(_, format)| format).ok_or_else(|| {
        let first =
            lines.first().map_or(String::new(), |l| String::from_utf8_lossy(l).chars().take(120).collect());
        Fault::new(FaultKind::BadInput, format!("cannot recognise the format of {name}"))
            .because(format!("its first line is {first:?}; vsteer tried {}", names.join(", ")))
            .help("give --format as in the server's LogFormat or log_format")
    })
}

fn open(file: &Path) -> Result<BufReader<std::fs::File>, Fault> {
    std::fs::File::open(file).map(BufReader::new).map_err(|e| {
        Fault::io(format!("cannot read {}", file.display()), &e).help("name the access log of a web server")
    })
}

/// All requests of a log, and the number of its lines without a request.
///
/// # Errors
/// As [`Reader::new`]; `BadInput` if no line has a request.
pub fn read(file: &Path, named: Option<&str>) -> Result<(Vec<Answered>, usize), Fault> {
    let mut reader = Reader::new(named, file)?;
    let (mut all, mut odd) = (Vec::new(), 0_usize);
    for line in files::lines(open(file)?, limits::LOG_LINE) {
        let line = line.map_err(|e| Fault::io(format!("cannot read {}", file.display()), &e))?;
        match reader.request(&line) {
            Some(r) => all.push(r),
            None if line.is_empty() => {}
            None => odd += 1,
        }
    }
    if all.is_empty() {
        let what = format!("the log {} holds no request", file.display());
        return Err(Fault::new(FaultKind::BadInput, what)
            .because(format!("the format does not match {}", counted(odd, "line")))
            .help("give --format as in the server's LogFormat or log_format"));
    }
    Ok((all, odd))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("access.log");
        std::fs::write(&file, text).unwrap();
        (folder, file)
    }

    #[test]
    fn formats_are_recognised_and_what_is_none_is_told() {
        let nginx =
            "192.168.33.1 - - [15/Oct/2019:19:41:46 +0000] \"GET / HTTP/1.1\" 200 396 \"-\" \"x\" 0.017\n";
        let (_keep, of) = log(&nginx.repeat(200));
        let (all, odd) = read(&of, None).unwrap();
        assert_eq!((all.len(), all[0].took_ns, odd), (200, 17_000_000, 0));
        // Requests with whole seconds are spread evenly within their second.
        let offsets: Vec<u64> = all.iter().map(|r| (r.began_ns + r.took_ns) % 1_000_000_000).collect();
        let early = offsets.iter().filter(|o| **o < 250_000_000).count();
        assert!((40..=60).contains(&early), "{early} of 200 in the first quarter");
        assert!(read(&of, Some("json")).unwrap_err().to_string().contains("fits these lines: nginx"));
        let (_keep, odd) = log("hello\n");
        assert!(read(&odd, None).unwrap_err().to_string().contains("cannot recognise the format"));
        let (_keep, empty) = log("");
        assert!(read(&empty, Some("json")).unwrap_err().to_string().contains("holds no request"));
        let (_keep, some) = log(&format!("hello\n\n{nginx}"));
        assert_eq!(read(&some, Some("nginx")).unwrap().1, 1);
    }
}
