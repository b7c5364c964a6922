//! The log of an experiment: a folder with one JSON line per event, and the output of every run.
//!
//! vsteer syncs each line before it acts on it. So it never acted on an incomplete last line, and cuts that line off
//! when it opens the log. The process that writes the log holds a lock on it, so that two processes cannot run one
//! experiment.

use crate::locked::Locked;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use vsteer_core::{Fault, FaultKind};
use vsteer_experiment::progress::{LOG_VERSION, check};
use vsteer_experiment::{Event, Experiment};
use vsteer_record::trusted;

/// The log's name in its folder.
pub const FILE: &str = "log.jsonl";

/// The log and the folder that holds it.
#[derive(Debug)]
pub struct Log {
    folder: PathBuf,
    /// The open log; `None` if it was only read.
    file: Option<Locked>,
    events: Vec<Event>,
    whole: u64,
}

fn failed(what: &str, path: &Path, e: &std::io::Error) -> Fault {
    Fault::io(format!("{what} {}", path.display()), e)
}

impl Log {
    /// Creates a folder for a new experiment. Uses an existing folder again if its log is empty, because then the
    /// experiment was refused before any change.
    ///
    /// # Errors
    /// `Changed` if the folder holds an experiment.
    pub fn create(folder: &Path) -> Result<Log, Fault> {
        let path = folder.join(FILE);
        trusted::make_folder(folder)?;
        let there = std::fs::symlink_metadata(&path).is_ok();
        let file = if there { trusted::open_to_append(&path)? } else { trusted::create(&path)? };
        let file = lock(file, folder)?;
        if file.metadata().map_err(|e| failed("cannot read", &path, &e))?.len() > 0 {
            return Err(Fault::new(
                FaultKind::Changed,
                format!("the folder {} already holds an experiment", folder.display()),
            )
            .help("run vsteer experiment resume, or name another folder with -o"));
        }
        let sync = File::open(folder).and_then(|f| f.sync_all());
        sync.map_err(|e| failed("cannot sync", folder, &e))?;
        Ok(Log { folder: folder.to_owned(), file: Some(file), events: Vec::new(), whole: 0 })
    }

    /// Opens the log to continue the experiment.
    ///
    /// # Errors
    /// `NothingThere` without a log, `BadInput` for a garbled one, `Changed` if another process continues it.
    pub fn open(folder: &Path) -> Result<Log, Fault> {
        let path = folder.join(FILE);
        trusted::folder(folder)?;
        let file = lock(trusted::open_to_append(&path)?, folder)?;
        let mut log = Log::read(folder)?;
        // The next line must not run into an incomplete one.
        file.set_len(log.whole).map_err(|e| failed("cannot repair", &path, &e))?;
        log.file = Some(file);
        Ok(log)
    }

    /// Reads a log, even while another process writes it.
    ///
    /// # Errors
    /// `NothingThere` without a log; `BadInput` with the line's number.
    pub fn read(folder: &Path) -> Result<Log, Fault> {
        let path = folder.join(FILE);
        let mut text = Vec::new();
        let read = File::open(&path).and_then(|mut f| f.read_to_end(&mut text));
        read.map_err(|e| failed("cannot read", &path, &e).help("name the folder of an experiment"))?;
        let (events, whole) = parse(&text).map_err(|(line, fault)| Fault {
            what: format!("{}, line {}: {}", path.display(), line + 1, fault.what),
            ..fault
        })?;
        Ok(Log { folder: folder.to_owned(), file: None, events, whole })
    }

    /// All events, oldest first.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The experiment, if it has begun.
    pub fn experiment(&self) -> Option<&Experiment> {
        self.events.iter().find_map(|e| match e {
            Event::Begun { experiment, .. } => Some(&**experiment),
            _ => None,
        })
    }

    /// The experiment that the log records.
    ///
    /// # Errors
    /// `NothingThere` if it has not begun.
    pub fn begun(&self) -> Result<&Experiment, Fault> {
        self.experiment().ok_or_else(|| {
            Fault::new(
                FaultKind::NothingThere,
                format!("the folder {} holds an experiment that never started", self.folder().display()),
            )
            .help("remove the folder, then run the experiment")
        })
    }

    /// The folder with the log and the runs' output.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Path of a run's output, without `.out` and `.err`.
    pub fn output(&self, number: usize) -> PathBuf {
        self.folder.join(format!("run-{number:05}"))
    }

    /// Appends an event and syncs it.
    ///
    /// # Errors
    /// `NoSpace` on a full disk: then the caller must not do what the event announces.
    pub fn write(&mut self, event: Event) -> Result<(), Fault> {
        let path = self.folder.join(FILE);
        let file = self.file.as_mut().expect("only the process that opened the log to continue it writes");
        let mut line = serde_json::to_vec(&event).expect("an event is plain data");
        line.push(b'\n');
        if let Err(e) = file.write_all(&line).and_then(|()| file.sync_data()) {
            let _ = file.set_len(self.whole);
            return Err(failed("cannot write", &path, &e));
        }
        self.whole += line.len() as u64;
        self.events.push(event);
        Ok(())
    }
}

/// The events in a log, and the number of bytes in complete lines.
///
/// # Errors
/// The first line (from 0) that is not an event or contradicts the experiment.
pub fn parse(bytes: &[u8]) -> Result<(Vec<Event>, u64), (usize, Fault)> {
    let (mut events, mut whole) = (Vec::new(), 0);
    for (i, line) in bytes.split_inclusive(|b| *b == b'\n').filter(|l| l.ends_with(b"\n")).enumerate() {
        let event: Event = serde_json::from_slice(line)
            .map_err(|e| (i, Fault::new(FaultKind::BadInput, "not a valid event").because(e)))?;
        if let Event::Begun { version, .. } = &event
            && *version > LOG_VERSION
        {
            let newer = Fault::new(FaultKind::BadInput, format!("the event has the newer format {version}"));
            return Err((i, newer.help("use a newer vsteer")));
        }
        events.push(event);
        whole += line.len() as u64;
    }
    check(&events).map_err(|(i, why)| {
        (i, Fault::new(FaultKind::BadInput, "the event contradicts earlier ones").because(why))
    })?;
    Ok((events, whole))
}

fn lock(file: File, folder: &Path) -> Result<Locked, Fault> {
    let locked = Locked::at_once(file).map_err(|e| failed("cannot lock", folder, &e))?;
    locked.ok_or_else(|| {
        Fault::new(
            FaultKind::Changed,
            format!("another process is running the experiment in {}", folder.display()),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use vsteer_core::nouns::HostConfig;
    use vsteer_core::topology::{Parts, Topology};
    use vsteer_experiment::{Progress, answer};

    const EXPERIMENT: &str = "name = \"e\"\ndesign = \"pair\"\nruns_most = 6\n[workload]\ncommand = \"{x}\"\n[[factor]]\nname = \"x\"\nlevels = [\"a\", \"b\"]\n";

    fn begun() -> Event {
        let one = || vsteer_core::CpuSet::single(0);
        let parts = Parts { present: one(), online: one(), allowed: one(), ..Parts::default() };
        let host = HostConfig::new("host", "", Topology::new(parts).unwrap());
        let experiment = Box::new(crate::experiment::file::parse(EXPERIMENT).unwrap());
        Event::Begun { version: LOG_VERSION, experiment, unix_ns: 1, host: Box::new(host), found: vec![None] }
    }

    proptest! {
        /// Whatever bytes are read, the result is a consistent experiment or a refusal; the fuzz target checks the
        /// same.
        #[test]
        fn any_lines_are_a_log_or_refused(lines in prop::collection::vec(prop_oneof![
            (0usize..9, 0usize..4).prop_map(|(block, setting)| format!("{{\"set\":{{\"block\":{block},\"setting\":{setting}}}}}")),
            (0usize..9, 0usize..4, any::<f64>()).prop_map(|(block, setting, v)| format!(
                "{{\"ran\":{{\"number\":0,\"place\":{{\"block\":{block},\"setting\":{setting},\"repeat\":0,\"attempt\":0}},\"warm_up\":false,\"unix_ns\":0,\"took_s\":null,\"values\":[{v:e}],\"bad\":null}}}}"
            )),
            "\\PC{0,20}",
        ], 0..12)) {
            let mut text = serde_json::to_string(&begun()).unwrap() + "\n";
            lines.iter().for_each(|l| text.push_str(&format!("{l}\n")));
            if let Ok((events, whole)) = parse(text.as_bytes()) {
                prop_assert_eq!(whole as usize, text.len());
                let Event::Begun { experiment, .. } = &events[0] else { panic!("{:?}", events[0]) };
                let laid = experiment.laid().unwrap();
                let _ = Progress::new(experiment, &laid, &events).next();
                let _ = answer(experiment, &laid, &events);
            }
        }
    }

    #[test]
    fn half_a_line_was_never_written() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("e");
        let mut log = Log::create(&folder).unwrap();
        let set = |setting| Event::Set { block: 0, setting };
        log.write(begun()).unwrap();
        log.write(set(1)).unwrap();
        assert_eq!(Log::open(&folder).unwrap_err().kind, FaultKind::Changed, "it is locked");
        drop(log);
        let path = folder.join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}{{\"set\":{{\"blo")).unwrap();
        let mut log = Log::open(&folder).unwrap();
        log.write(set(0)).unwrap();
        drop(log);
        assert_eq!(Log::read(&folder).unwrap().events(), [begun(), set(1), set(0)]);
        for impossible in
            [set(2), Event::Set { block: 9, setting: 0 }, Event::Decided { blocks: 9, wanted: 9 }, begun()]
        {
            let line = serde_json::to_string(&impossible).unwrap();
            fs::write(&path, format!("{text}{line}\n")).unwrap();
            let found = Log::read(&folder).unwrap_err();
            assert!(found.kind == FaultKind::BadInput && found.what.contains("line 3"), "{found}");
        }
        fs::write(&path, "{}\n").unwrap();
        let garbled = Log::read(&folder).unwrap_err();
        assert!(garbled.kind == FaultKind::BadInput && garbled.what.contains("line 1"), "{garbled}");
        assert_eq!(Log::create(&folder).unwrap_err().kind, FaultKind::Changed);
    }
}
