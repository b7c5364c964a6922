//! Does the installed QEMU still answer each command line of vsteer's table as the table says?
//!
//! `make check` compares vsteer with the table, and this case compares the table with QEMU. QEMU starts with each command
//! line, without devices and with stopped vCPUs, and its monitor on standard input says topology and memory. What the
//! machine's `smp` property says must also be what its CPUs are (`query-hotpluggable-cpus`).
//!
//! Left out: QEMUs of another version than the table's. They have other machine types and defaults.

use super::{Bench, Case, Findings, Minutes};
use crate::command;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vsteer_core::Fault;

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "qemu-lines",
    doc: "the installed QEMU answers each command line of the table as the table says",
    in_test: true,
    minutes: Minutes::new(0.4, 0.6),
    beside: true,
    run,
};

const TABLE: &str = include_str!("../../../vsteer-host/tests/qemu_lines.txt");
const PROGRAM: &str = "qemu-system-x86_64";
const CLAIM: &str = "QEMU answers each command line as the table says";
/// The least number of command lines in the table.
const ROWS_MIN: usize = 60;
/// One QEMU needs 0.1 s on a quiet machine.
const LIMIT: Duration = Duration::from_secs(60);
/// The monitor's questions.
const QUESTIONS: &str = r#"{"execute":"qmp_capabilities"}
{"execute":"qom-get","arguments":{"path":"/machine","property":"smp"}}
{"execute":"query-cpus-fast"}
{"execute":"query-memory-size-summary"}
{"execute":"query-hotpluggable-cpus"}
{"execute":"quit"}
"#;

fn run(_: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    let told = command::output(Command::new(PROGRAM).arg("-version"), LIMIT)?;
    let version = told.split_whitespace().nth(3).unwrap_or("unknown");
    let of_table = TABLE.lines().find_map(|line| line.strip_prefix("# QEMU ")).unwrap_or_default();
    let same = |text: &str| text.split('.').take(2).map(str::to_owned).collect::<Vec<_>>();
    if same(version) != same(of_table) {
        let found = format!("QEMU {version} is installed, and the table is of {of_table}");
        findings.not_judged(CLAIM, "the installed QEMU is of another version", found);
        return Ok(findings);
    }
    let rows = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut equal = Vec::new();
    let mut different = Vec::new();
    for row in rows {
        let columns: Vec<&str> = row.splitn(3, '|').map(str::trim).collect();
        let &[expected, _, words] = columns.as_slice() else { panic!("not a row: {row}") };
        let answer = answer(words)?;
        equal.push(answer == expected);
        if answer != expected {
            different.push(format!("{words}: {answer}, not {expected}"));
        }
    }
    let found = format!("{} command lines, QEMU {version}; different: {different:?}", equal.len());
    findings.claim_each(CLAIM, equal, ROWS_MIN, "command lines", found);
    Ok(findings)
}

/// A running QEMU, which ends when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// QEMU's answer in the table's form.
fn answer(words: &str) -> Result<String, Fault> {
    let word = |word: &str| if word == "''" { String::new() } else { word.replace("%20", " ") };
    let mut qemu = Command::new(PROGRAM);
    qemu.args(["-nodefaults", "-display", "none", "-S", "-accel", "tcg", "-qmp", "stdio"]);
    qemu.args(words.split(' ').map(word));
    qemu.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let fault = |e: std::io::Error| Fault::io(format!("asking {PROGRAM} {words}"), &e);
    let mut running = Running(qemu.spawn().map_err(fault)?);
    let mut input = running.0.stdin.take().expect("it is piped");
    // A QEMU that refuses the command line does not read.
    let _ = input.write_all(QUESTIONS.as_bytes());
    let mut output = running.0.stdout.take().expect("it is piped");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    let end = Instant::now() + LIMIT;
    while running.0.try_wait().map_err(fault)?.is_none() && Instant::now() < end {
        crate::interrupt::check()?;
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(running);
    let text = reader.join().expect("the reader does not panic").map_err(fault)?;
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let answers: Vec<Value> = lines.filter_map(|mut line| line.get_mut("return").map(Value::take)).collect();
    Ok(shown(&answers))
}

/// `STARTED/MOST SOCKETSxDIESxCLUSTERSxCORESxTHREADS BYTES`, or `refused`.
fn shown(answers: &[Value]) -> String {
    let [_, smp, cpus, memory, rest @ ..] = answers else { return "refused".to_owned() };
    let count = |key: &str| smp[key].as_u64().unwrap_or(0);
    let started = cpus.as_array().map_or(0, Vec::len);
    let levels = ["sockets", "dies", "clusters", "cores", "threads"].map(count);
    let shown = levels.map(|n| n.to_string()).join("x");
    let answer = format!("{started}/{} {shown} {}", count("maxcpus"), memory["base-memory"]);
    // The last answer is that to `quit`; the one before is missing where a machine type cannot plug in CPUs.
    match rest.first().and_then(Value::as_array).filter(|all| !all.is_empty()) {
        Some(all) if slots(all) != [levels[0], levels[1], levels[2] * levels[3], levels[4]] => {
            format!("{answer}, but its CPUs are {:?}", slots(all))
        }
        _ => answer,
    }
}

/// Sockets, dies of a socket, cores of a die and threads of a core, by the properties of each CPU.
fn slots(cpus: &[Value]) -> [u64; 4] {
    let distinct = |keys: &[&str]| {
        let ids =
            cpus.iter().map(|cpu| keys.iter().map(|key| cpu["props"][key].as_u64().unwrap_or(0)).collect());
        ids.collect::<BTreeSet<Vec<u64>>>().len() as u64
    };
    let sockets = distinct(&["socket-id"]);
    let dies = distinct(&["socket-id", "die-id"]);
    let cores = distinct(&["socket-id", "die-id", "core-id"]);
    [sockets, dies / sockets, cores / dies, cpus.len() as u64 / cores]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_machine_says_must_be_what_its_cpus_are() {
        let cpu =
            |socket: u32, core: u32| json!({"props": {"socket-id": socket, "core-id": core, "thread-id": 0}});
        let answers = |cpus: &[Value]| {
            let smp = json!({"cpus": 1, "maxcpus": 4, "sockets": 2, "dies": 1, "clusters": 1, "cores": 2, "threads": 1});
            shown(&[json!({}), smp, json!([{}]), json!({"base-memory": 64}), json!(cpus), json!({})])
        };
        let four = [cpu(0, 0), cpu(0, 1), cpu(1, 0), cpu(1, 1)];
        assert_eq!(answers(&four), "1/4 2x1x1x2x1 64");
        assert_eq!(answers(&[]), "1/4 2x1x1x2x1 64");
        assert!(answers(&four[..2]).ends_with("but its CPUs are [1, 1, 2, 1]"));
        assert_eq!(shown(&[]), "refused");
    }
}
