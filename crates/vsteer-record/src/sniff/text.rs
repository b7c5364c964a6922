//! What kind of text is it?

use super::{ESXTOP, Known, Reader};

/// Text that begins so, apart from case: a name, and help.
const BEGINS: &[(&str, &str, &str)] = &[
    (
        "<!doctype html",
        "an HTML page",
        "a browser saved a page in place of the file: download the file itself",
    ),
    ("<html", "an HTML page", "a browser saved a page in place of the file: download the file itself"),
    ("<?xml", "an XML document", "give vsteer the file that esxtop wrote: esxtop -b -a > FILE"),
    ("#type ", "objects of PowerShell as CSV", VCENTER),
    ("-----begin ", "a certificate or key", "give vsteer a recording, and keep keys away from it"),
    ("version https://git-lfs", "a pointer of Git LFS", "fetch the file itself: git lfs pull"),
    ("#!", "a script", "run the script; give vsteer what it records"),
    (
        "# help ",
        "metrics of Prometheus",
        "put saved scrapes into a folder: vsteer estimate VM=FOLDER --histogram NAME",
    ),
    (
        "# type ",
        "metrics of Prometheus",
        "put saved scrapes into a folder: vsteer estimate VM=FOLDER --histogram NAME",
    ),
];

const VCENTER: &str =
    "let vsteer ask the vCenter itself: vsteer diagnose --connect vsphere://USER@VCENTER/HOST";

/// Can this byte stand in a text? Terminals' codes begin with an escape.
pub(super) fn is_text(b: &u8) -> bool {
    b.is_ascii_graphic() || b.is_ascii_whitespace() || *b >= 0x80 || *b == 0x1b
}

/// Recognises text; `None` if it is not text, or of no known kind.
pub(super) fn what_is(first: &[u8]) -> Option<Known> {
    let first = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first);
    if !first.iter().all(is_text) {
        return None;
    }
    let text = String::from_utf8_lossy(first);
    let text = text.trim_start();
    if text.is_empty() {
        return Some(Known::new("a file of blank lines", "record again, and check that the disk has room"));
    }
    let lower = text[..text.floor_char_boundary(64)].to_ascii_lowercase();
    if let Some((_, name, help)) = BEGINS.iter().find(|(begin, ..)| lower.starts_with(begin)) {
        return Some(Known::new(*name, *help));
    }
    if text.contains("\x1b[") {
        return Some(Known::new(
            "the screen of a program, with codes of the terminal",
            "let esxtop write a batch file, without a terminal: esxtop -b -a > FILE",
        ));
    }
    if crate::sched_trace::begins(text) {
        let help = "vsteer diagnose FILE reads it";
        return Some(Known::new("a text trace of Linux' scheduler", help).read_by(Reader::SchedTrace));
    }
    if crate::rt_app::is_one(text) {
        return Some(Known::new("a workload of rt-app", "simulate it: vsteer simulate FILE"));
    }
    if is_json(text) {
        return Some(Known::new("JSON", "give a recording; a plan in JSON is for `vsteer apply`"));
    }
    if text.lines().take(5).any(|line| line.contains("CPU load average:") && line.contains("worlds")) {
        return Some(Known::new("the screen of esxtop as text", ESXTOP));
    }
    table(text)
}

/// Does it begin as JSON does? A configuration file or a log may begin with a bracket too.
fn is_json(text: &str) -> bool {
    let mut marks = text.chars().filter(|c| !c.is_whitespace());
    let next_is = |c: Option<char>, of: &[char]| c.is_none_or(|c| of.contains(&c));
    match marks.next() {
        Some('{') => next_is(marks.next(), &['"', '}']),
        Some('[') => next_is(marks.next(), &['"', '{', ']']),
        _ => false,
    }
}

/// A table, by the separators of its first two lines, or one that its column names tell.
fn table(text: &str) -> Option<Known> {
    let is_mark = |line: &&str| !line.trim().is_empty() && !line.starts_with("sep=");
    let mut lines = text.lines().filter(is_mark);
    let head = lines.next()?;
    if is_pdh(head) {
        return Some(pdh(head));
    }
    let names: Vec<&str> = head.split([',', ';', '\t']).map(|n| n.trim().trim_matches('"')).collect();
    let has = |name: &str| names.iter().any(|n| n.eq_ignore_ascii_case(name));
    if has("MetricId") && has("Timestamp") && has("Value") {
        return Some(Known::new("statistics of PowerCLI (Get-Stat)", VCENTER));
    }
    if has("VM") && has("Powerstate") {
        return Some(Known::new("a table of RVTools", VCENTER));
    }
    let counts = |line: &str, separator| line.matches(separator).count();
    let next = lines.next();
    let separates = |separator: char| {
        let n = counts(head, separator);
        n > 0 && next.is_none_or(|next| counts(next, separator) >= n.min(2))
    };
    if separates('\t') {
        let name = "a table with tabs between columns; esxtop separates columns by commas";
        return Some(Known::new(name, ESXTOP));
    }
    if has("Time") && separates(',') {
        return Some(Known::new("a table of a chart, perhaps of the vSphere Client", VCENTER));
    }
    let name = match (separates(';'), separates(',')) {
        (true, _) => "a table with semicolons between columns, without esxtop's header",
        (_, true) => "a CSV table without esxtop's header",
        _ => return None,
    };
    Some(Known::new(name, "give the file as esxtop wrote it, with its first line: esxtop -b -a > FILE"))
}

/// Does a log of performance counters begin so? esxtop uses the form of Windows.
fn is_pdh(head: &str) -> bool {
    let head = head.trim_start_matches('"');
    head.starts_with("(PDH-CSV") || head.starts_with("(PDH-TSV")
}

fn pdh(head: &str) -> Known {
    if head.contains(r"\Group Cpu(") || head.contains(r"\Physical Cpu(") || head.contains(r"\Vcpu(") {
        return Known::new("a batch file of esxtop", "vsteer diagnose FILE reads it").read_by(Reader::Esxtop);
    }
    let help = "vsteer display advise --logs FILE reads those of Horizon and Citrix";
    Known::new("a log of Windows' performance counters", help).read_by(Reader::WindowsCounters)
}
