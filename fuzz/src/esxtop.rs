//! Any bytes after the first words of a batch file of esxtop are read or refused. Behind a byte 1, so is a whole file. No counter falls, no time runs back, and
//! what was read can be written and read again.

use std::io::Cursor;
use vsteer_core::model;
use vsteer_record::esxtop::beside::Beside;
use vsteer_record::esxtop::{Input, Reader, write};

fn opened(bytes: Vec<u8>) -> Option<Reader> {
    let input = Input::of(Cursor::new(bytes)).expect("memory is read");
    Reader::of(input, "file".to_owned(), Beside::default()).ok()
}

pub fn run(bytes: &[u8]) -> bool {
    let text = match bytes {
        [1, whole @ ..] => whole.to_vec(),
        rest => [b"\"(PDH-CSV 4.0) (UTC)(0)\",", rest].concat(),
    };
    let Some(mut reader) = opened(text) else { return false };
    let mut batches = Vec::new();
    while let Ok(Some(batch)) = reader.sample() {
        batches.push(batch);
    }
    assert!(batches.windows(2).all(|w| w[0].mono_ns < w[1].mono_ns));
    let Ok(config) = reader.config() else { return false };
    if batches.len() > 1 {
        model::derive(&config, &reader.collector(), &batches).expect("two samples are enough");
    }
    let mut written = Vec::new();
    write::samples(&[&config], &batches, &mut written).expect("memory has room");
    assert!(opened(written).is_some() || batches.is_empty());
    true
}

/// What esxtop counts of a group or a world, of memory, and of a pCPU.
const CPU: [&str; 10] = [
    "% Used",
    "% Run",
    "% System",
    "% Wait",
    "% Ready",
    "% Overlap",
    "% CoStop",
    "% Max Limited",
    "Switches/sec",
    "Migrates/sec",
];

/// A file with these columns and these rows, whose further cells are all the same.
fn file(columns: &[String], rows: &[(&str, &str)]) -> Vec<u8> {
    let mut text: String = columns.iter().map(|c| format!("\"\\\\h\\{c}\",")).collect();
    for (time, value) in rows {
        text += &format!("\r\n\"{time}\"{}", format!(",\"{value}\"").repeat(columns.len()));
    }
    (text + "\r\n").into_bytes()
}

pub fn seeds() -> Vec<Vec<u8>> {
    let three =
        ["Group Cpu(7:web)\\% Run", "Vcpu(7:web:9:vmx-vcpu-0:web)\\% Ready", "Physical Cpu(0)\\% Util Time"];
    let all =
        |object: &str| CPU.iter().map(|counter| format!("{object}\\{counter}")).collect::<Vec<String>>();
    let mut whole = all("Group Cpu(7:a, \"\"b\"\")");
    for world in
        ["7:a, \"\"b\"\":9:vmx", "7:a, \"\"b\"\":10:vmx-vcpu-0:a, \"\"b\"\"", "7:a, \"\"b\"\":11:vmx-mks:a"]
    {
        whole.extend(all(&format!("Vcpu({world})")));
    }
    whole.extend(["Group Cpu(7:a, \"\"b\"\")\\Members".into(), "Group Memory(7:a)\\Numa % Local".into()]);
    whole
        .extend(["Group Memory(7:a)\\Memory Size MBytes".into(), "Physical Cpu(_Total)\\% Util Time".into()]);
    let memory = ["Group Cpu(7:a)\\Members", "Group Memory(7:a)\\Numa % Local"].map(str::to_owned);
    let groups = [all("Group Cpu(1:idle)"), all("Group Cpu(2:system)"), all("Group Cpu(12:web 2)")].concat();
    let german = "\u{feff}sep=;\r\n(PDH-CSV 4.0) (UTC)(0);\\\\h\\Group Cpu(7:web)\\% Run\r\n24.11.2026 08:00;1,5\r\n24.11.2026 08:00;2\r\n";
    let doubled = "hello\n\"(PDH-CSV 4.0) (UTC)(0)\",\"\\\\\\\\h\\\\Group Cpu(7:web)\\\\% Run\"\n\"2026-11-24T08:00:00Z\",\"1,50\"\n";
    let wide = german.encode_utf16().flat_map(u16::to_le_bytes);
    vec![
        [&[1], german.as_bytes()].concat(),
        [&[1], doubled.as_bytes()].concat(),
        std::iter::once(1).chain(wide).collect(),
        file(&memory, &[("11/24/2026 08:00:00", "99.9"), ("11/24/2026 08:00:05", "-")]),
        file(&three.map(str::to_owned), &[("11/24/2026 08:00:00", "1"), ("11/24/2026 08:00:05", "2")]),
        file(
            &whole,
            &[("11/24/2026 23:59:58", "1.50"), ("11/25/2026 00:00:00", "99.9"), ("11/25/2026 00:00:02", "-")],
        ),
        file(
            &groups,
            &[
                ("2026-11-24 08:00:00", "0"),
                ("2026-11-24 08:00:05.5", "1e2"),
                ("x", "1"),
                ("11/24/2026 08:00:09", ""),
            ],
        ),
    ]
}
