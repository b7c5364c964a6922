//! If an experiment is killed at any time, is every run accounted for, and are settings restored?
//!
//! An experiment that sets a file is killed (SIGKILL) at random times, and resumed until it is finished.
//! After some of the kills, `vsteer rollback` must restore the original file. At the end, every announced run
//! is reported, interrupted ones as such. The number of counted runs equals blocks times settings. And the
//! file has its original content.

use super::super::{Bench, Findings};
use super::overhead::lines;
use crate::command;
use crate::drive::Vsteer;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use vsteer_core::Fault;
use vsteer_core::random::Random;

const LIMIT: Duration = Duration::from_secs(120);
const KILLS: usize = 12;
const BLOCKS: usize = 10;
const SETTINGS: usize = 4;
const FOUND: &str = "as it was";

/// The runs that count: they succeeded, were not warm-ups, and were not marked as odd later.
pub fn counting(log: &[Value]) -> Vec<&Value> {
    let odd: Vec<&Value> = log.iter().map(|l| &l["not_counting"]["number"]).filter(|n| n.is_u64()).collect();
    let ran = log.iter().map(|l| &l["ran"]).filter(|r| r.is_object());
    ran.filter(|r| r["bad"].is_null() && r["warm_up"] == false && !odd.contains(&&r["number"])).collect()
}

/// What the log of a finished experiment contains: announced and reported runs, counted ones, interrupted
/// ones.
pub fn accounts(log: &[Value]) -> (usize, usize, usize, usize) {
    let starting = log.iter().filter(|l| l["starting"].is_object()).count();
    let ran: Vec<&Value> = log.iter().map(|l| &l["ran"]).filter(|r| r.is_object()).collect();
    let counted = counting(log).len();
    let cut = ran.iter().filter(|r| r["bad"]["what"] == "cut_off").count();
    (starting, ran.len(), counted, cut)
}

fn write(path: &Path, text: &str) -> Result<(), Fault> {
    std::fs::write(path, text).map_err(|e| Fault::io(format!("writing {}", path.display()), &e))
}

/// The experiment, the file that it sets, and its log's folder.
struct Killed {
    vsteer: Vsteer,
    file: String,
    knob: PathBuf,
    folder: String,
}

impl Killed {
    fn lay_out(bench: &Bench) -> Result<Killed, Fault> {
        let state = PathBuf::from(bench.fresh("killed-state")?);
        let vsteer = Vsteer { state, ..Vsteer::beside(&bench.lab.program)? };
        let (file, knob) = (bench.output.join("killed.toml"), bench.output.join("knob"));
        write(&knob, FOUND)?;
        write(
            &file,
            &format!(
                "name = \"killed\"\ndesign = \"full\"\nruns_least = {BLOCKS}\nruns_most = {BLOCKS}\n[workload]\ncommand = \"sleep 0.0{{n}}\"\n\
                 [[factor]]\nname = \"n\"\nlevels = [\"5\", \"6\"]\n[[factor]]\nname = \"knob\"\nlevels = [\"a\", \"b\"]\nfile = \"{}\"\n",
                knob.display()
            ),
        )?;
        let folder = bench.fresh("killed.experiment")?;
        Ok(Killed { vsteer, file: file.to_string_lossy().into_owned(), knob, folder })
    }

    fn setting(&self) -> Result<String, Fault> {
        std::fs::read_to_string(&self.knob)
            .map_err(|e| Fault::io(format!("reading {}", self.knob.display()), &e))
    }

    /// The command that starts the experiment, or resumes it.
    fn words(&self) -> Vec<&str> {
        if Path::new(&self.folder).join("log.jsonl").exists() {
            vec!["experiment", "resume", &self.folder, "--yes"]
        } else {
            vec!["experiment", "run", &self.file, "-o", &self.folder, "--yes"]
        }
    }

    /// Starts or resumes the experiment and kills it at a random moment. True if it was still running then.
    fn kill(&self, random: &mut Random) -> Result<bool, Fault> {
        let mut child = self
            .vsteer
            .command(&self.words())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| Fault::io("starting vsteer", &e))?;
        // From its first lines to some runs later; a busy machine needs longer for both.
        std::thread::sleep(Duration::from_millis(random.within(20, 700)));
        let landed = matches!(child.try_wait(), Ok(None));
        let _ = child.kill();
        let _ = child.wait();
        Ok(landed)
    }
}

pub fn run(bench: &Bench, findings: &mut Findings) -> Result<Value, Fault> {
    let killed = Killed::lay_out(bench)?;
    let mut random = Random::new(bench.seed, 8);
    let (mut landed, mut rolled_back, mut wrong) = (0, 0, Vec::new());
    for kill in 0..KILLS {
        landed += usize::from(killed.kill(&mut random)?);
        if kill % 3 == 0 {
            // If nothing was set yet, there is nothing to roll back, and rollback reports this.
            let mut rollback = killed.vsteer.command(&["rollback"]);
            command::run(&mut rollback, LIMIT)?;
            rolled_back += 1;
            if killed.setting()? != FOUND {
                wrong.push(format!("after kill {kill} and rollback it is {:?}", killed.setting()?));
            }
        }
        // Killed before its first line, there is a folder but no experiment.
        if begun_without_a_line(&killed.folder) {
            bench.fresh("killed.experiment")?;
        }
    }
    killed.vsteer.run(&killed.words(), true, LIMIT)?;
    let log = lines(&killed.folder)?;
    let (starting, ran, counted, cut) = accounts(&log);
    let resumed = log.iter().filter(|l| l["resumed"].is_object()).count();
    findings.claim(
        format!("killed {landed} times: every announced run is reported, and as many count as there are"),
        starting == ran && counted == BLOCKS * SETTINGS && landed >= KILLS / 2,
        format!(
            "{starting} announced, {ran} told, {counted} count, {cut} cut off, {resumed} times gone on with"
        ),
    );
    findings.claim(
        format!("after {rolled_back} rollbacks and at the end the setting is as it was found"),
        wrong.is_empty() && killed.setting()? == FOUND,
        if wrong.is_empty() { killed.setting()? } else { wrong.join("; ") },
    );
    Ok(
        json!({ "kills": landed, "announced": starting, "told": ran, "counted": counted, "cut_off": cut, "resumed": resumed }),
    )
}

fn begun_without_a_line(folder: &str) -> bool {
    lines(folder).is_ok_and(|l| l.is_empty())
}
