//! Does vsteer read command lines as a real QEMU does?
//!
//! `qemu_lines.txt` holds command lines with QEMU's answers; its head explains the columns. `vsteer lab run qemu-lines`
//! asks the installed QEMU again.

use vsteer_core::nouns::GuestTopology;
use vsteer_host::kvm::command_line::{self, CommandLine};

const TABLE: &str = include_str!("qemu_lines.txt");
/// So many forms, at least, are promised.
const ROWS_MIN: usize = 60;

struct Row {
    answer: &'static str,
    /// What vsteer is expected to answer instead.
    instead: Vec<&'static str>,
    words: &'static str,
}

fn rows() -> Vec<Row> {
    let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let row = |line: &'static str| {
        let columns: Vec<&str> = line.splitn(3, '|').map(str::trim).collect();
        let &[answer, instead, words] = columns.as_slice() else { panic!("{line}") };
        let instead = instead.split("; ").filter(|text| !text.is_empty()).collect();
        Row { answer, instead, words }
    };
    lines.map(row).collect()
}

fn parsed(words: &str) -> Option<CommandLine> {
    let word = |word: &str| if word == "''" { String::new() } else { word.replace("%20", " ") };
    let words: Vec<String> = ["qemu-system-x86_64"].into_iter().chain(words.split(' ')).map(word).collect();
    command_line::parse(&words)
}

/// What vsteer says in the form of the table: sockets, cores within a socket, threads; memory.
fn shown(line: &CommandLine) -> [Result<String, String>; 2] {
    let topology = |t: GuestTopology| format!("{}x{}x{}", t.sockets, t.cores, t.threads);
    [
        line.topology.clone().expect("it is QEMU's").map(topology),
        line.memory.clone().expect("it is QEMU's").map(|bytes| bytes.to_string()),
    ]
}

/// QEMU's answer in the same form. Dies and clusters are parts of a socket.
fn expected(answer: &str) -> [String; 2] {
    let columns: Vec<&str> = answer.split(' ').collect();
    let &[_, counts, memory] = columns.as_slice() else { panic!("{answer}") };
    let counts: Vec<u32> = counts.split('x').map(|n| n.parse().unwrap()).collect();
    let &[sockets, dies, clusters, cores, threads] = counts.as_slice() else { panic!("{answer}") };
    [format!("{sockets}x{}x{threads}", dies * clusters * cores), memory.to_owned()]
}

/// What is wrong with vsteer's answer.
fn wrong(row: &Row) -> Option<String> {
    let Some(line) = parsed(row.words) else {
        return (row.instead != ["not a VM"]).then(|| "vsteer sees no VM".to_owned());
    };
    let said = shown(&line);
    if row.answer == "refused" {
        let claims = said.iter().all(Result::is_ok);
        let of_others = row.instead.iter().any(|text| text.starts_with("another QEMU"));
        return (claims != of_others).then(|| format!("vsteer says {said:?}"));
    }
    let find = |what: &str| row.instead.iter().find_map(|text| text.strip_prefix(what)?.strip_prefix(": "));
    let each = said.iter().zip(expected(row.answer)).zip(["topology", "memory"]).find_map(
        |((said, expected), what)| {
            let held = match (said, find(what)) {
                (Ok(said), None) => *said == expected,
                (Err(why), Some(reason)) => why.contains(reason),
                _ => false,
            };
            (!held).then(|| format!("{what} is {said:?}"))
        },
    );
    each.or_else(|| (row.instead.contains(&"not a VM")).then(|| "vsteer sees a VM".to_owned()))
}

#[test]
fn vsteer_reads_command_lines_as_qemu_does() {
    let rows = rows();
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|row| Some(format!("{} | {}: {}", row.answer, row.words, wrong(row)?)))
        .collect();
    assert!(wrong.is_empty(), "{} of {} command lines:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
    assert!(rows.len() >= ROWS_MIN);
    let equal = rows.iter().filter(|row| row.answer != "refused" && row.instead.is_empty()).count();
    assert!(equal >= ROWS_MIN, "vsteer answers only {equal} of {}", rows.len());
}
