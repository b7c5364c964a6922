//! Killed at any moment, is every run accounted for, and are settings put back?
//!
//! An experiment that sets a file is killed (SIGKILL) at drawn moments, and gone on with until it is at its end; after some of the kills `vsteer rollback`
//! must put the file back as it was found. At the end every announced run is told, those that were cut off as such; as many count as there are blocks
//! and settings; and the file is as it was found.

use super::super::{Bench, Findings};
use super::overhead::lines;
use crate::command;
use crate::drive::Vsteer;
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use vsteer_core::Fault;
use vsteer_core::random::Random;

const LIMIT: Duration = Duration::from_secs(120);
const KILLS: usize = 12;
const BLOCKS: usize = 10;
const SETTINGS: usize = 4;
const FOUND: &str = "as it was";

/// Runs that count: those that went well, warmed nothing up, and were not told later to be odd.
pub fn counting(log: &[Value]) -> Vec<&Value> {
    let odd: Vec<&Value> = log.iter().map(|l| &l["not_counting"]["number"]).filter(|n| n.is_u64()).collect();
    let ran = log.iter().map(|l| &l["ran"]).filter(|r| r.is_object());
    ran.filter(|r| r["bad"].is_null() && r["warm_up"] == false && !odd.contains(&&r["number"])).collect()
}

/// What the log of a finished experiment must hold: announced and told runs, counted ones, those cut off.
pub fn accounts(log: &[Value]) -> (usize, usize, usize, usize) {
    let starting = log.iter().filter(|l| l["starting"].is_object()).count();
    let ran: Vec<&Value> = log.iter().map(|l| &l["ran"]).filter(|r| r.is_object()).collect();
    let counted = counting(log).len();
    let cut = ran.iter().filter(|r| r["bad"]["what"] == "cut_off").count();
    (starting, ran.len(), counted, cut)
}

/// The part.
pub fn run(bench: &Bench, findings: &mut Findings) -> Result<Value, Fault> {
    let state = std::path::PathBuf::from(bench.fresh("killed-state")?);
    let vsteer = Vsteer { state, ..Vsteer::beside(&bench.lab.program)? };
    let (file, knob) = (bench.output.join("killed.toml"), bench.output.join("knob"));
    let write = |path: &std::path::Path, text: &str| {
        std::fs::write(path, text).map_err(|e| Fault::io(format!("writing {}", path.display()), &e))
    };
    let read =
        || std::fs::read_to_string(&knob).map_err(|e| Fault::io(format!("reading {}", knob.display()), &e));
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
    let file = file.to_string_lossy().into_owned();
    let mut random = Random::new(bench.seed, 8);
    let (mut landed, mut rolled_back, mut wrong) = (0, 0, Vec::new());
    for kill in 0..KILLS {
        let begun = std::path::Path::new(&folder).join("log.jsonl").exists();
        let words: &[&str] = if begun {
            &["experiment", "resume", &folder, "--yes"]
        } else {
            &["experiment", "run", &file, "-o", &folder, "--yes"]
        };
        let mut child = vsteer
            .command(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| Fault::io("starting vsteer", &e))?;
        // From its first lines to some runs later; a busy machine needs longer for both.
        std::thread::sleep(Duration::from_millis(random.within(20, 700)));
        if matches!(child.try_wait(), Ok(None)) {
            landed += 1;
        }
        let _ = child.kill();
        let _ = child.wait();
        if kill % 3 == 0 {
            // Where nothing was set yet there is nothing to take back, and it says so.
            let mut rollback = vsteer.command(&["rollback"]);
            command::run(&mut rollback, LIMIT)?;
            rolled_back += 1;
            if read()? != FOUND {
                wrong.push(format!("after kill {kill} and rollback it is {:?}", read()?));
            }
        }
        // Cut off before its first line, there is a folder and no experiment.
        if begun_without_a_line(&folder) {
            bench.fresh("killed.experiment")?;
        }
    }
    let begun = std::path::Path::new(&folder).join("log.jsonl").exists();
    let words: &[&str] = if begun {
        &["experiment", "resume", &folder, "--yes"]
    } else {
        &["experiment", "run", &file, "-o", &folder, "--yes"]
    };
    vsteer.run(words, true, LIMIT)?;
    let log = lines(&folder)?;
    let (starting, ran, counted, cut) = accounts(&log);
    let resumed = log.iter().filter(|l| l["resumed"].is_object()).count();
    findings.claim(
        format!("killed {landed} times: every announced run is told, and as many count as there are"),
        starting == ran && counted == BLOCKS * SETTINGS && landed >= KILLS / 2,
        format!(
            "{starting} announced, {ran} told, {counted} count, {cut} cut off, {resumed} times gone on with"
        ),
    );
    findings.claim(
        format!("after {rolled_back} rollbacks and at the end the setting is as it was found"),
        wrong.is_empty() && read()? == FOUND,
        if wrong.is_empty() { read()? } else { wrong.join("; ") },
    );
    Ok(
        json!({ "kills": landed, "announced": starting, "told": ran, "counted": counted, "cut_off": cut, "resumed": resumed }),
    )
}

fn begun_without_a_line(folder: &str) -> bool {
    lines(folder).is_ok_and(|l| l.is_empty())
}
