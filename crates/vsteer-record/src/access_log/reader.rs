//! Reads the requests of a log, one by one, in the given format or the one that fits most of the first lines.
//!
//! If a log's times are whole seconds, all requests of a second would seem to arrive at once. So vsteer
//! places each one at a moment within its second. The moments are spread like independent arrivals, and are
//! the same in every run. Durations are as in the log.
//!
//! Only the requests of the wanted times are kept, so memory does not depend on the length of a log.
//!
//! Left out: following a log that grows (`vsteer_host::follow`).

use super::fit::Layout;
use super::{MS, Raw, SECOND, Said, Sure, US};
use crate::unit::Unit;
use crate::{files, packed, sniff};
use serde::Serialize;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use vsteer_core::limits;
use vsteer_core::plural::counted;
use vsteer_core::requests::Answered;
use vsteer_core::{Fault, FaultKind};

/// If the resolution of the times is coarser than this (ns), requests are spread within their second.
const COARSE_NS: u64 = 100_000_000;
/// The number of lines from which to recognise the format: a program may say much before the first request.
const LOOKED_AT: usize = 1000;
/// With fewer requests, whole seconds are chance.
const TELL_RESOLUTION: usize = 5;
/// The byte order mark of UTF-8.
const MARK: &[u8] = &[0xef, 0xbb, 0xbf];

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// A request.
    Request(Answered),
    /// A message of another kind, or a request without a duration.
    Other,
    /// A line that does not match the format.
    Odd,
    /// Nothing: it is empty, or a comment.
    Nothing,
}

/// A log's format, and the state for reading its requests.
#[derive(Debug, Clone)]
pub struct Reader {
    layout: Layout,
    zone: Option<jiff::tz::TimeZone>,
    /// The resolution of the times, ns; 0 if it is fine enough.
    coarse_ns: u64,
    read: u64,
    /// A time without a zone was seen.
    lacks_zone: bool,
}

impl Reader {
    /// A reader with what a person says, or with the format that fits most of the first lines of the log.
    ///
    /// # Errors
    /// `BadInput` if the first lines do not match the given format, or match no known format.
    pub fn new(said: &Said, file: &Path) -> Result<Reader, Fault> {
        let lines = match first_lines(file) {
            Ok(lines) => lines,
            // The file may appear later.
            Err(_) if said.format.is_some() => Vec::new(),
            Err(fault) => return Err(fault),
        };
        let lines: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
        let reader = Reader::of_lines(&file.display().to_string(), said, &lines);
        reader.map_err(|fault| if said.format.is_some() { fault } else { named(file, &lines, fault) })
    }

    /// The same from the first lines of the log `name`.
    ///
    /// # Errors
    /// As [`Reader::new`].
    pub fn of_lines(name: &str, said: &Said, lines: &[&[u8]]) -> Result<Reader, Fault> {
        let layout = Layout::of(name, said, lines)?;
        let mut reader = Reader { layout, zone: said.zone.clone(), coarse_ns: 0, read: 0, lacks_zone: false };
        reader.coarse_ns = reader.resolution_ns(lines).filter(|ns| *ns >= COARSE_NS).unwrap_or(0);
        (reader.read, reader.lacks_zone) = (0, false);
        Ok(reader)
    }

    /// How the log is read.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Refuses a unit that nothing tells, where nothing is at hand to compare it with.
    ///
    /// # Errors
    /// `BadInput`.
    pub fn refuse_assumed_unit(&self, name: &str) -> Result<(), Fault> {
        if self.layout.sure != Sure::Assumed {
            return Ok(());
        }
        let fault =
            Fault::new(FaultKind::BadInput, format!("the log {name} does not say the unit of its durations"));
        Err(fault
            .because(&self.layout.about)
            .help("say it, for example unit = \"ms\", or give the server's own format"))
    }

    /// What a line is.
    pub fn line(&mut self, line: &[u8]) -> Line {
        let found = match self.layout.read(line) {
            Raw::Found(found) => found,
            Raw::Other => return Line::Other,
            Raw::Odd => return Line::Odd,
            Raw::Nothing => return Line::Nothing,
        };
        self.lacks_zone |= !found.moment.has_zone;
        let Some(at_ns) = found.moment.in_zone(self.zone.as_ref()) else { return Line::Odd };
        let began_ns = if found.is_begin { at_ns } else { at_ns.saturating_sub(found.took_ns) };
        self.read += 1;
        // Multiples of the golden ratio are spread evenly, for any number of them (Weyl).
        let part = self.read.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let began_ns = began_ns.saturating_add((self.coarse_ns * part) >> 32);
        match began_ns.checked_add(found.took_ns) {
            Some(_) => Line::Request(Answered { began_ns, took_ns: found.took_ns }),
            None => Line::Odd,
        }
    }

    /// The resolution of times, ns: as the format says, else the largest of 1 s, 1 ms, 1 us and 1 ns that divides all ends (or all
    /// starts, if the log has starts).
    fn resolution_ns(&mut self, lines: &[&[u8]]) -> Option<u64> {
        if let Some(ns) = self.layout.resolution_ns() {
            return Some(ns);
        }
        let requests: Vec<Answered> = lines
            .iter()
            .filter_map(|line| if let Line::Request(r) = self.line(line) { Some(r) } else { None })
            .collect();
        let whole =
            |of: &dyn Fn(&Answered) -> u64, unit: u64| requests.iter().all(|r| of(r).is_multiple_of(unit));
        let divides = |unit: &u64| whole(&|r| r.began_ns + r.took_ns, *unit) || whole(&|r| r.began_ns, *unit);
        let units = [SECOND, MS, US, 1].into_iter();
        let found = units.filter(|ns| *ns < SECOND || requests.len() >= TELL_RESOLUTION).find(divides);
        // Dates of Apache and nginx have whole seconds, also if there are few of them.
        found.filter(|_| !requests.is_empty())
    }
}

/// The fault of a file that is no log, if it is something else that vsteer knows.
fn named(file: &Path, lines: &[&[u8]], fault: Fault) -> Fault {
    let Ok(Some(known)) = sniff::file(file) else { return fault };
    // Text may be a log that lacks something, which the fault says better.
    let is_markup = lines.first().is_some_and(|line| line.starts_with(b"<"));
    let is_other = known.reader.is_some() || is_markup || !known.is_text && !lines.is_empty();
    let what = format!("{} is not an access log", file.display());
    if is_other {
        Fault::new(FaultKind::BadInput, what).because(format!("it is {}", known.name)).help(known.help)
    } else {
        fault
    }
}

fn first_lines(file: &Path) -> Result<Vec<Vec<u8>>, Fault> {
    let lines = files::lines(open(file)?, limits::LOG_LINE).take(LOOKED_AT);
    lines.collect::<Result<_, _>>().map_err(|e| unreadable(file, &e))
}

fn unreadable(file: &Path, e: &std::io::Error) -> Fault {
    Fault::io(format!("cannot read {}", file.display()), e)
}

/// Opens a log, decompresses it, and skips a byte order mark.
fn open(file: &Path) -> Result<Box<dyn BufRead>, Fault> {
    // The format is recognised by the first lines, and then all are read again.
    if file.metadata().is_ok_and(|m| !m.is_file()) {
        return Err(Fault::new(FaultKind::BadInput, format!("cannot read {}", file.display()))
            .because("it is a pipe or a device, which can be read only once")
            .help("write the log to a file first"));
    }
    let mut from =
        packed::open(file).map_err(|e| unreadable(file, &e).help("name the access log of a web server"))?;
    let first = from.fill_buf().map_err(|e| unreadable(file, &e))?;
    if first.starts_with(&[0xff, 0xfe]) || first.starts_with(&[0xfe, 0xff]) {
        return Err(Fault::new(FaultKind::BadInput, format!("cannot read {}", file.display()))
            .because("its text is UTF-16, and logs are UTF-8")
            .help("convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW"));
    }
    if first.starts_with(MARK) {
        from.consume(MARK.len());
    }
    Ok(from)
}

/// What was read of one file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The file.
    pub file: PathBuf,
    /// How it was read.
    pub format: String,
    /// The unit of durations that do not name one.
    pub unit: String,
    /// Does nothing say that unit?
    pub is_unit_assumed: bool,
    /// Why the unit is what it is.
    pub about: String,
    /// Were there times without a zone?
    pub lacks_zone: bool,
    /// Requests.
    pub requests: u64,
    /// Lines without a request or its duration.
    pub others: u64,
    /// Lines that do not match the format.
    pub skipped: u64,
}

/// The requests of a VM.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Log {
    /// Those of the wanted times, in order of their arrival.
    pub requests: Vec<Answered>,
    /// What was read, by file.
    pub files: Vec<Summary>,
    /// The unit of the first file and how sure it is.
    pub unit: Option<(Unit, Sure)>,
    /// All requests, whenever they ended.
    pub all: u64,
    /// When the first and the last one ended, ns since 1970.
    pub ended_ns: Option<(u64, u64)>,
    /// Requests that ended in the wanted times, and the sum of their durations, s.
    pub wanted: (u64, f64),
}

/// Reads the logs of one VM, in any order. `wanted`: the times of which requests are kept, ns since 1970; empty: all.
///
/// # Errors
/// As [`Reader::new`]; `BadInput` if a file has no request, or if more than [`limits::ODD_LOG_LINES`] of its lines do not match the
/// format and `allow_odd` is not set.
pub fn read(files: &[&Path], said: &Said, wanted: &[(u64, u64)], allow_odd: bool) -> Result<Log, Fault> {
    let mut log = Log::default();
    for file in files {
        log.add(file, said, wanted, allow_odd)?;
    }
    // Several files may overlap, and within one the requests are in the order of their ends.
    log.requests.sort_by_key(|r| (r.began_ns, r.took_ns));
    Ok(log)
}

impl Log {
    fn add(&mut self, file: &Path, said: &Said, wanted: &[(u64, u64)], allow_odd: bool) -> Result<(), Fault> {
        let mut reader = Reader::new(said, file)?;
        let (mut requests, mut others, mut odd) = (0_u64, 0_u64, 0_u64);
        let mut first_odd = None;
        files::each_line(open(file)?, limits::LOG_LINE, &mut |line| match reader.line(line) {
            Line::Request(request) => {
                requests += 1;
                self.take(request, wanted);
            }
            Line::Other => others += 1,
            Line::Odd => {
                odd += 1;
                first_odd.get_or_insert_with(|| {
                    String::from_utf8_lossy(&line[..line.len().min(120)]).into_owned()
                });
            }
            Line::Nothing => {}
        })
        .map_err(|e| unreadable(file, &e))?;
        let name = file.display();
        if requests == 0 {
            let why = match (others, odd) {
                (0, 0) => "it has no line".to_owned(),
                (0, odd) => format!("the format does not match {}", lines(odd)),
                (others, _) => format!("{} have no request, or not its duration", lines(others)),
            };
            return Err(Fault::new(FaultKind::BadInput, format!("the log {name} holds no request"))
                .because(why)
                .help("give --format as in the server's LogFormat or log_format"));
        }
        let all = requests + others + odd;
        if odd as f64 > limits::ODD_LOG_LINES * all as f64 && !allow_odd {
            let shown = first_odd.unwrap_or_default();
            return Err(Fault::new(
                FaultKind::BadInput,
                format!(
                    "{} of {} in {name} do not match the format {}",
                    odd,
                    lines(all),
                    reader.layout.format
                ),
            )
            .because(format!("the first of them is {shown:?}"))
            .help("give the --format that all lines have; or leave these lines out: --allow-skipped"));
        }
        let layout = reader.layout();
        self.unit.get_or_insert((layout.unit, layout.sure));
        self.files.push(Summary {
            file: file.to_owned(),
            format: layout.format.clone(),
            unit: layout.unit.to_string(),
            is_unit_assumed: matches!(layout.sure, Sure::Assumed | Sure::Named),
            about: layout.about.clone(),
            lacks_zone: reader.lacks_zone && said.zone.is_none(),
            requests,
            others,
            skipped: odd,
        });
        Ok(())
    }

    fn take(&mut self, request: Answered, wanted: &[(u64, u64)]) {
        let (began, ended) = (request.began_ns, request.began_ns + request.took_ns);
        self.all += 1;
        self.ended_ns = Some(self.ended_ns.map_or((ended, ended), |(a, b)| (a.min(ended), b.max(ended))));
        if wanted.is_empty() || wanted.iter().any(|(from, to)| (*from..=*to).contains(&ended)) {
            self.wanted.0 += 1;
            self.wanted.1 += request.took_ns as f64 / 1e9;
        }
        if wanted.is_empty() || wanted.iter().any(|(from, to)| began <= *to && ended >= *from) {
            self.requests.push(request);
        }
    }
}

fn lines(n: u64) -> String {
    counted(usize::try_from(n).unwrap_or(usize::MAX), "line")
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::*;

    fn log(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("access.log");
        std::fs::write(&file, text).unwrap();
        (folder, file)
    }

    fn said(format: &str) -> Said {
        Said { format: Some(Format::parse(format).unwrap()), ..Said::default() }
    }

    const NGINX: &str =
        "192.168.33.1 - - [15/Oct/2019:19:41:46 +0000] \"GET / HTTP/1.1\" 200 396 \"-\" \"x\" 0.017\n";

    #[test]
    fn formats_are_recognised_and_what_is_none_is_told() {
        let (_keep, of) = log(&NGINX.repeat(200));
        let all = read(&[&of], &Said::default(), &[], false).unwrap();
        assert_eq!((all.requests.len(), all.requests[0].took_ns, all.files[0].skipped), (200, 17_000_000, 0));
        assert_eq!((all.files[0].format.as_str(), all.unit), ("nginx", Some((Unit::Seconds, Sure::Known))));
        // Requests with whole seconds are spread evenly within their second.
        let offsets: Vec<u64> = all.requests.iter().map(|r| (r.began_ns + r.took_ns) % SECOND).collect();
        let early = offsets.iter().filter(|o| **o < 250_000_000).count();
        assert!((40..=60).contains(&early), "{early} of 200 in the first quarter");
        let why = |text: &str, said: &Said| {
            let (_keep, of) = log(text);
            read(&[&of], said, &[], false).unwrap_err().to_string()
        };
        assert!(why(NGINX, &said("json")).contains("fits these lines: nginx"));
        assert!(why("hello\n", &Said::default()).contains("cannot recognise the format"));
        assert!(why("", &said("json")).contains("no line yet"));
        assert!(why("", &said("nginx")).contains("holds no request"));
        assert!(why("", &Said::default()).contains("holds no request"));
    }

    #[test]
    fn lines_of_another_format_are_counted_and_many_are_refused() {
        let (_keep, few) = log(&format!("hello\n\n{}", NGINX.repeat(150)));
        assert_eq!(read(&[&few], &said("nginx"), &[], false).unwrap().files[0].skipped, 1);
        let (_keep, many) = log(&format!("{}{}", "hello\n".repeat(2), NGINX.repeat(50)));
        let fault = read(&[&many], &Said::default(), &[], false).unwrap_err().to_string();
        assert!(fault.contains("2 of 52 lines") && fault.contains("--allow-skipped"), "{fault}");
        assert_eq!(read(&[&many], &Said::default(), &[], true).unwrap().files[0].skipped, 2);
    }

    #[test]
    fn several_files_are_one_log_in_the_order_of_time() {
        let at = |minute: u64| NGINX.replace("19:41", &format!("19:{minute:02}"));
        let (_keep, first) = log(&at(1));
        let (_keep_too, second) = log(&at(2));
        let both = read(&[&second, &first], &Said::default(), &[], false).unwrap();
        assert!(both.requests[0].began_ns + 50 * SECOND < both.requests[1].began_ns);
        assert_eq!((both.all, both.files.len()), (2, 2));
        // Only what was wanted is kept.
        let (from, to) = (both.ended_ns.unwrap().0 - SECOND, both.ended_ns.unwrap().0 + SECOND);
        let some = read(&[&second, &first], &Said::default(), &[(from, to)], false).unwrap();
        assert_eq!((some.requests.len(), some.all, some.wanted.0), (1, 2, 1));
    }

    #[test]
    fn text_in_another_coding_is_named() {
        let (_keep, marked) = log(&format!("\u{feff}{NGINX}"));
        assert_eq!(read(&[&marked], &Said::default(), &[], false).unwrap().files[0].skipped, 0);
        let folder = tempfile::tempdir().unwrap();
        let wide = folder.path().join("l");
        std::fs::write(&wide, [0xff, 0xfe, b'a', 0]).unwrap();
        assert!(read(&[&wide], &Said::default(), &[], false).unwrap_err().to_string().contains("UTF-16"));
    }

    #[test]
    fn what_can_be_read_only_once_is_refused() {
        let device = read(&[Path::new("/dev/null")], &Said::default(), &[], false);
        assert!(device.unwrap_err().to_string().contains("read only once"));
    }

    #[test]
    fn a_unit_that_nothing_tells_is_refused_where_nothing_checks_it() {
        let apache = "::1 - - [15/Oct/2019:19:41:46 +0000] \"GET / HTTP/1.1\" 200 396 17\n";
        let (_keep, of) = log(apache);
        let refused = |said: &Said| Reader::new(said, &of).unwrap().refuse_assumed_unit("l").is_err();
        assert!(refused(&Said::default()));
        assert!(!refused(&said("apache")));
        assert!(!refused(&Said { unit: Some(Unit::Milliseconds), ..Said::default() }));
    }
}
