//! Which VM's requests are in which log? `NAME=FILE`, and what stands in it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use vsteer_core::sla::window::Answered;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::access_log::{Format, NAMED};

/// Lines that are looked at to tell the format.
const LOOKED_AT: usize = 100;

/// A VM's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The VM.
    pub vm: String,
    /// The file.
    pub file: PathBuf,
}

impl FromStr for Log {
    type Err = String;

    fn from_str(text: &str) -> Result<Log, String> {
        let (vm, file) = text.split_once('=').ok_or("write NAME=FILE: whose log it is, and where")?;
        if vm.is_empty() || file.is_empty() {
            return Err("write NAME=FILE: whose log it is, and where".to_owned());
        }
        Ok(Log { vm: vm.to_owned(), file: file.into() })
    }
}

/// The format that is named, or the one that fits most of the first lines of the log.
///
/// # Errors
/// As [`Format::parse`]; `BadInput` where none of those with a name fits a single line.
pub fn format_of(named: Option<&str>, file: &Path) -> Result<Format, Fault> {
    if let Some(text) = named {
        return Format::parse(text);
    }
    let lines = open(file)?.split(b'\n').map_while(Result::ok).filter(|l| !l.is_empty()).take(LOOKED_AT);
    let lines: Vec<Vec<u8>> = lines.collect();
    let names: Vec<&str> = NAMED.iter().map(|(name, _)| *name).chain(["json"]).collect();
    let mut best: Option<(usize, Format)> = None;
    for name in &names {
        let format = Format::parse(name)?;
        let fits = lines.iter().filter(|l| format.request(l).is_some()).count();
        if fits > best.as_ref().map_or(0, |(most, _)| *most) {
            best = Some((fits, format));
        }
    }
    best.map(|(_, format)| format).ok_or_else(|| {
        let first = lines.first().map_or(String::new(), |l| String::from_utf8_lossy(l).chars().take(120).collect());
        Fault::new(FaultKind::BadInput, format!("{}: its format is not known", file.display()))
            .because(format!("its first line is {first:?}; tried {}", names.join(", ")))
            .way_out("give --format as the server's LogFormat or log_format has it")
    })
}

fn open(file: &Path) -> Result<BufReader<std::fs::File>, Fault> {
    std::fs::File::open(file)
        .map(BufReader::new)
        .map_err(|e| Fault::io(format!("reading {}", file.display()), &e))
}

/// All requests of a log.
///
/// # Errors
/// As [`format_of`]; `BadInput` where no line holds a request. Lines that hold none are told of on standard error.
pub fn read(log: &Log, named: Option<&str>) -> Result<Vec<Answered>, Fault> {
    let format = format_of(named, &log.file)?;
    let (mut all, mut odd) = (Vec::new(), 0_usize);
    for line in open(&log.file)?.split(b'\n') {
        let line = line.map_err(|e| Fault::io(format!("reading {}", log.file.display()), &e))?;
        match format.request(&line) {
            Some(r) => all.push(Answered { began_ns: r.began_ns(), took_ns: r.took_ns }),
            None if line.is_empty() => {}
            None => odd += 1,
        }
    }
    if all.is_empty() {
        let what = format!("{} holds no request", log.file.display());
        return Err(Fault::new(FaultKind::BadInput, what)
            .because(format!("{odd} lines are not of the format"))
            .way_out("give --format as the server's LogFormat or log_format has it"));
    }
    if odd > 0 {
        eprintln!("vsteer: {}: {odd} lines are not of the format and were passed over", log.file.display());
    }
    Ok(all)
}
