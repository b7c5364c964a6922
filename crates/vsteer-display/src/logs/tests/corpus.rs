//! Logs of Windows' performance counters in the forms in which people have them. The right answers are the means of the
//! numbers below, computed here.

use super::*;

const SESSION: &str = r"\\VDI-9\VMware Blast Session Counters(session id: 2; (main))";
const NAMES: [&str; 5] = [
    r"\RTT",
    r"\Transmitted Bytes",
    r"\\VDI-9\VMware Blast Imaging Counters(Session ID: 2; Channel: Imaging; (main))\Frames per second",
    r"\\VDI-9\ICA Session(RDP-Tcp 3 (bob))\Latency - Last Recorded",
    r"\\VDI-9\Processor Information(0,1)\% Processor Time",
];
const ROWS: [[&str; 5]; 4] = [
    ["12.5", "1000000", "30", "18", "40.5"],
    ["14.25", "2000000", "24", "20", "41.5"],
    ["16", "4000000", "20", "22", "42.5"],
    ["13", "4500000", "28", "19", "43.5"],
];
/// 2026-11-25 14:40:00.125 in a zone that is 60 minutes ahead of UTC.
const BEGINS: f64 = 1_795_614_000.125;

struct Form {
    first: &'static str,
    quote: &'static str,
    separator: &'static str,
    decimal: &'static str,
    time: fn(usize) -> String,
    line_end: &'static str,
    before: &'static str,
    after: &'static str,
    /// Behind the header.
    trail: &'static str,
}

const PLAIN: Form = Form {
    first: "(PDH-CSV 4.0) (W. Europe Standard Time)(-60)",
    quote: "\"",
    separator: ",",
    decimal: ".",
    time: |i| format!("11/25/2026 14:40:0{i}.125"),
    line_end: "\r\n",
    before: "",
    after: "",
    trail: "",
};

fn names() -> Vec<String> {
    NAMES
        .iter()
        .map(|n| if n.starts_with(r"\\") { (*n).to_owned() } else { format!("{SESSION}{n}") })
        .collect()
}

fn written(form: &Form, names: &[String], rows: &[[&str; 5]]) -> String {
    let q = |text: &str| match text.contains(form.separator) {
        true => format!("\"{text}\""),
        false => format!("{0}{text}{0}", form.quote),
    };
    let head = std::iter::once(q(form.first)).chain(names.iter().map(|n| q(n)));
    let mut text = form.before.to_owned();
    text += &(head.collect::<Vec<_>>().join(form.separator) + form.trail + form.line_end);
    for (i, row) in rows.iter().enumerate() {
        let cells = row.iter().map(|v| q(&v.replace('.', form.decimal)));
        let cells = std::iter::once(q(&(form.time)(i))).chain(cells);
        text += &(cells.collect::<Vec<_>>().join(form.separator) + form.line_end);
    }
    text + form.after
}

fn utf16(text: &str, big: bool) -> Vec<u8> {
    let units = std::iter::once(0xfeff).chain(text.encode_utf16());
    units.flat_map(|u: u16| if big { u.to_be_bytes() } else { u.to_le_bytes() }).collect()
}

fn read_bytes(bytes: &[u8]) -> Result<Log, Fault> {
    of("log", &text_of(bytes), &[])
}

/// Compares with the means of `ROWS`.
#[track_caller]
fn check(what: &str, log: &Log) {
    let beside = &log.beside[0];
    for (counter, samples, mean) in [
        ("round_trip_ms", 4, (12.5 + 14.25 + 16.0 + 13.0) / 4.0),
        ("frames_per_s", 4, (30.0 + 24.0 + 20.0 + 28.0) / 4.0),
        ("latency_ms", 4, (18.0 + 20.0 + 22.0 + 19.0) / 4.0),
        ("sent_mbit_s", 3, (1e6 + 2e6 + 0.5e6) * 8.0 / 1e6 / 3.0),
    ] {
        let told = told(beside, counter);
        assert_eq!(told.samples, samples, "{what}: {counter}");
        assert!((told.mean - mean).abs() < 1e-9, "{what}: {counter}: {} {mean}", told.mean);
    }
    assert_eq!((log.samples, log.unknown_columns, log.products.len()), (4, 1, 2), "{what}");
}

#[test]
fn every_form_has_the_right_numbers() {
    let time = |time: fn(usize) -> String| Form { time, ..PLAIN };
    let forms = [
        ("as Windows writes", PLAIN),
        ("LF", Form { line_end: "\n", ..PLAIN }),
        ("blank lines", Form { line_end: "\r\n\r\n", ..PLAIN }),
        ("a mark", Form { before: "\u{feff}", ..PLAIN }),
        ("sep= in front", Form { before: "sep=,\r\n", ..PLAIN }),
        (
            "messages of typeperf",
            Form {
                before: "\r\n",
                after: "\r\nExiting, please wait...\r\nThe command completed successfully.\r\n",
                ..PLAIN
            },
        ),
        ("a message behind the header", Form { trail: ",\"Exiting, please wait...\"", ..PLAIN }),
        ("decimal commas", Form { decimal: ",", ..PLAIN }),
        ("semicolons", Form { separator: ";", ..PLAIN }),
        ("German Excel", Form { separator: ";", decimal: ",", quote: "", ..PLAIN }),
        ("tabs", Form { separator: "\t", first: "(PDH-TSV 4.0) (W. Europe Standard Time)(-60)", ..PLAIN }),
        ("a German zone", Form { first: "(PDH-CSV 4.0) (Mitteleurop\u{e4}ische Zeit)(-60)", ..PLAIN }),
        ("dots", time(|i| format!("25.11.2026 14:40:0{i}.125"))),
        ("the year first", time(|i| format!("2026-11-25 14:40:0{i}.125"))),
        ("the day first", time(|i| format!("25/11/2026 14:40:0{i}.125"))),
    ];
    for (what, form) in &forms {
        let text = written(form, &names(), &ROWS);
        let log = read_bytes(text.as_bytes()).unwrap_or_else(|why| panic!("{what}: {why}"));
        check(what, &log);
        assert!(log.notes.is_empty(), "{what}: {:?}", log.notes);
        assert_eq!(log.between_unix_s.unwrap()[0], BEGINS, "{what}");
    }
    let text = written(&PLAIN, &names(), &ROWS);
    check("UTF-16LE", &read_bytes(&utf16(&text, false)).unwrap());
    check("UTF-16BE", &read_bytes(&utf16(&text, true)).unwrap());
    let lower: Vec<String> = names().iter().map(|n| n.to_lowercase()).collect();
    check("Export-Counter", &read_bytes(written(&PLAIN, &lower, &ROWS).as_bytes()).unwrap());
    let summer = Form { first: "(PDH-CSV 4.0) (W. Europe Daylight Time)(-120)", ..PLAIN };
    let log = read_bytes(written(&summer, &names(), &ROWS).as_bytes()).unwrap();
    assert_eq!(log.between_unix_s.unwrap()[0], BEGINS - 3600.0);
    let zoneless = Form { first: "(PDH-CSV 4.0)", ..PLAIN };
    assert_eq!(read_bytes(written(&zoneless, &names(), &ROWS).as_bytes()).unwrap().between_unix_s, None);
}

/// `-1` and blanks mean no data; a cell that is not a number is missing, with a note.
#[test]
fn a_cell_without_a_number_costs_that_cell() {
    for (cell, noted) in [
        ("-1", false),
        ("-1.000000", false),
        ("", false),
        (" ", false),
        ("abc", true),
        ("1,234", true),
        ("nan", true),
    ] {
        let mut rows = ROWS;
        rows[0] = [cell; 5];
        let log = read_bytes(written(&PLAIN, &names(), &rows).as_bytes()).unwrap();
        let beside = &log.beside[0];
        let [rtt, sent] = ["round_trip_ms", "sent_mbit_s"].map(|counter| told(beside, counter));
        assert_eq!((rtt.samples, sent.samples), (3, 2), "{cell:?}");
        assert!((rtt.mean - (14.25 + 16.0 + 13.0) / 3.0).abs() < 1e-9, "{cell:?}: {}", rtt.mean);
        assert!((sent.mean - (16.0 + 4.0) / 2.0).abs() < 1e-9, "{cell:?}: {}", sent.mean);
        assert_eq!((log.samples, log.notes.len()), (4, usize::from(noted)), "{cell:?}: {:?}", log.notes);
        assert_eq!(table(&[log]).contains("line 2: column 2: "), noted, "{cell:?}");
    }
}

#[test]
fn a_row_that_does_not_fit_is_left_out_with_a_note() {
    let text = written(&PLAIN, &names(), &ROWS);
    for (more, why) in [
        ("\"11/25/2026 14:40:04.125\",\"12.5\"", "line 6: 2 columns, where the first line has 6"),
        ("\"11/25/2026 14:40:04.125\",\"12", "line 6: a quotation that does not end"),
        ("\"yesterday\",\"1\",\"1\",\"1\",\"1\",\"1\"", "line 6: \"yesterday\" is not a time"),
        ("\"11/25/2026 14:40\",\"1\",\"1\",\"1\",\"1\",\"1\"", "is not a time"),
        ("Error: no data", "line 6: \"Error: no data\" is not a line of cells"),
    ] {
        let log = read_bytes((text.clone() + more).as_bytes()).unwrap();
        check(why, &log);
        assert!(log.notes[0].contains(why), "{:?}", log.notes);
    }
}

/// The fault names the language of the counters, what shows it, and where the English names are.
#[test]
fn names_of_another_language_are_named_as_such() {
    for (set, language) in [
        ("Prozessor", "German (\"Prozessor\")"),
        ("Prozessorinformationen", "German"),
        ("Processeur", "French"),
        ("M\u{fffd}moire", "French"),
        ("Procesador", "Spanish"),
        ("Processore", "Italian"),
        ("Processador", "Portuguese"),
        ("Geheugen", "Dutch"),
        ("Pamięć", "Polish"),
        ("Процессор", "Russian"),
        ("Диск", "Cyrillic"),
        ("プロセッサ", "Japanese"),
        ("프로세서", "Korean"),
        ("处理器", "Chinese or Japanese"),
    ] {
        let names = vec![format!(r"\\VDI-9\{set}(_Total)\x"); 5];
        let why = read_bytes(written(&PLAIN, &names, &ROWS).as_bytes()).unwrap_err();
        let said = why.to_string();
        assert!(said.contains(&format!("not English, but {language}")), "{set}: {said}");
        assert!(said.contains(r"Perflib\009") && said.contains("typeperf"), "{said}");
    }
    let zone = Form { first: "(PDH-CSV 4.0) (Mitteleurop\u{fffd}ische Zeit)(-60)", ..PLAIN };
    let unknown = vec![r"\\VDI-9\Xyz(a)\b".to_owned(); 5];
    let why = read_bytes(written(&zone, &unknown, &ROWS).as_bytes()).unwrap_err().to_string();
    assert!(why.contains("not English, but German"), "{why}");
    let why = read_bytes(written(&PLAIN, &unknown, &ROWS).as_bytes()).unwrap_err().to_string();
    assert!(why.contains("knows none of its names") && why.contains(r"Perflib\009"), "{why}");
    let english = vec![r"\\VDI-9\Processor(_Total)\% Processor Time".to_owned(); 5];
    let why = read_bytes(written(&PLAIN, &english, &ROWS).as_bytes()).unwrap_err().to_string();
    assert!(why.contains("English, but of other counters") && why.contains("typeperf"), "{why}");
    // A German Windows names the counters of Horizon in English: they are read.
    let mut mixed = names();
    mixed[4] = r"\\VDI-9\Prozessorinformationen(0,1)\Prozessorzeit (%)".to_owned();
    check("German Windows", &read_bytes(written(&PLAIN, &mixed, &ROWS).as_bytes()).unwrap());
}

#[test]
fn what_is_not_such_a_log_is_named() {
    for (bytes, why) in [
        (&b""[..], "nothing is there"),
        (b"\r\n\r\n", "nothing is there"),
        (b"PK\x03\x04", "a ZIP archive or an xlsx workbook"),
        (b"\x01\0\x02\0", "binary logs end with .blg"),
        (b"codec,fps\n1,2\n", "does not begin with"),
        (
            b"\"(PDH-CSV 4.0) (UTC)(0)\",\"\\\\h\\ICA Session(a)\\Latency - Last Recorded\"\n",
            "no line of values",
        ),
    ] {
        let fault = read_bytes(bytes).unwrap_err();
        assert!(fault.to_string().contains(why) && fault.help.is_some(), "{fault}");
    }
}
