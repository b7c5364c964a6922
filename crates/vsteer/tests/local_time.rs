//! Times that people read and type are in the system's time zone; files stay in UTC. Needs the package tzdata.

#[path = "common/program.rs"]
mod program;

use std::path::PathBuf;
use std::process::Output;

fn vsteer(zone: &str, words: &[&str]) -> Output {
    program::vsteer().env("TZ", zone).args(words).output().unwrap()
}

/// A batch file of esxtop: one VM on 16 pCPUs, 13 rows 3 s apart from this minute (UTC).
fn recording(minute: &str) -> (tempfile::TempDir, PathBuf) {
    let group = ["Members", "% Run", "% Ready", "% CoStop", "% Max Limited", "% Wait"];
    let group = group.iter().zip(["17", "166.00", "18.00", "1.00", "0.00", "1515.00"]);
    let mut columns: Vec<(String, &str)> =
        group.map(|(c, v)| (format!("Group Cpu(10:web)\\{c}"), v)).collect();
    columns.extend((0..16).map(|cpu| (format!("Physical Cpu({cpu})\\% Util Time"), "62.00")));
    let line =
        |cells: Vec<String>| cells.iter().map(|c| format!("\"{c}\"")).collect::<Vec<_>>().join(",") + "\r\n";
    let names = columns.iter().map(|(c, _)| format!("\\\\esx\\{c}"));
    let mut text = line(std::iter::once("(PDH-CSV 4.0) (UTC)(0)".to_owned()).chain(names).collect());
    for row in 0..13 {
        let values = columns.iter().map(|(_, v)| (*v).to_owned());
        text += &line(std::iter::once(format!("{minute}:{:02}", 3 * row)).chain(values).collect());
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("esxtop.csv");
    std::fs::write(&file, text).unwrap();
    let host = "esxi = \"7.0.2\"\nsockets = 2\ncores_per_socket = 8\nmemory_gib = 128\n\
                [[vm]]\ngid = 10\nvcpus = 8\nmemory_gib = 8\n";
    std::fs::write(folder.path().join("host.toml"), host).unwrap();
    (folder, file)
}

#[test]
fn a_moment_is_asked_and_told_in_the_zone_of_the_system() {
    let (folder, file) = recording("11/24/2026 23:00");
    let file = file.to_str().unwrap();
    let at = |zone: &str, moment: &str| vsteer(zone, &["diagnose", file, "--at", moment]);
    for (zone, moment) in [
        ("UTC", "23:00"),
        ("Asia/Seoul", "08:00"),
        ("Asia/Seoul", "2026-11-25T08:00:10"),
        ("Asia/Seoul", "2026-11-24T23:00:10Z"),
        ("Europe/Berlin", "2026-11-25T08:00:10+09:00"),
        ("KST-9", "08:00:20"),
    ] {
        let done = at(zone, moment);
        assert!(done.status.success(), "{zone} {moment}: {}", String::from_utf8_lossy(&done.stderr));
    }
    let done = at("Asia/Seoul", "23:00");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(6), "{said}");
    assert!(said.contains("from 2026-11-25 08:00:00+09:00 to 2026-11-25 08:00:36+09:00"), "{said}");
    let page = folder.path().join("report.html");
    let made = vsteer("Asia/Seoul", &["report", file, "-o", page.to_str().unwrap()]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(std::fs::read_to_string(page).unwrap().contains("2026-11-25 08:00:00+09:00"));
}

#[test]
fn a_time_that_clocks_skipped_or_showed_twice_is_refused() {
    let (_folder, file) = recording("03/29/2026 00:59");
    let told = |moment: &str| {
        let done = vsteer("Europe/Berlin", &["diagnose", file.to_str().unwrap(), "--at", moment]);
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (code, said) = told("2026-03-29T02:30");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("2026-03-29 02:30:00 never existed in Europe/Berlin"), "{said}");
    let (code, said) = told("2026-10-25T02:30");
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("2026-10-25T02:30:00+02:00") && said.contains("2026-10-25T02:30:00+01:00"),
        "{said}"
    );
    assert_eq!(told("01:59:20").0, Some(0));
}
