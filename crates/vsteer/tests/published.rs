//! Is docs/published.md what `vsteer simulate --published` says?
//! `VSTEER_WRITE_DOCS=1 cargo test -p vsteer --test published -- --ignored` writes it anew.

#[path = "common/program.rs"]
mod program;

use serde_json::Value;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/published.md");

fn vsteer(words: &[&str]) -> String {
    let out = program::vsteer().args(words).output().expect("vsteer starts");
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("it prints text")
}

#[test]
fn the_page_has_every_figure_with_its_band() {
    let page = std::fs::read_to_string(PAGE).expect("docs/published.md");
    // One paper is enough for the form; all of them are in the other test.
    let told: Value =
        serde_json::from_str(&vsteer(&["simulate", "--published=coscheduling", "--json"])).unwrap();
    let rows = told["rows"].as_array().unwrap();
    assert_eq!(told["summary"]["rows"], rows.len());
    for row in rows {
        assert!(page.contains(&format!("| {} |", row["what"].as_str().unwrap())), "{row}");
        assert!(row["within"].is_boolean() && row["band"].is_array(), "{row}");
    }
    let section = vsteer(&["simulate", "--published=coscheduling", "--markdown"]);
    let table = section.lines().filter(|l| l.starts_with("| "));
    table.for_each(|line| assert!(page.contains(line), "VSTEER_WRITE_DOCS=1 writes it anew: {line}"));
}

#[test]
fn the_same_bytes_each_time() {
    let run = || vsteer(&["simulate", "--published=vit", "--json", "--seeds", "2"]);
    assert_eq!(run(), run());
}

#[test]
#[ignore = "simulates every published experiment"]
fn the_page_is_what_the_command_says() {
    let page = vsteer(&["simulate", "--published", "--markdown"]);
    if std::env::var_os("VSTEER_WRITE_DOCS").is_some() {
        std::fs::write(PAGE, &page).unwrap();
    }
    let written = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert_eq!(written, page, "VSTEER_WRITE_DOCS=1 writes it anew");
}

#[test]
fn a_paper_that_is_not_there_is_refused_by_name() {
    let out = program::vsteer().args(["simulate", "--published=vti"]).output().unwrap();
    assert!(!out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("vdi, xen-weights, vit"));
}

/// More seeds decide rows. They never turn "within" into "outside", or the other way round.
#[test]
#[ignore = "simulates every published experiment with several numbers of seeds"]
fn more_seeds_only_decide() {
    let told = |seeds: &str| -> Value {
        serde_json::from_str(&vsteer(&["simulate", "--published", "--json", "--seeds", seeds])).unwrap()
    };
    let all: Vec<Value> = ["5", "10", "30", "100"].map(told).into();
    for pair in all.windows(2) {
        let rows = |told: &Value| told["rows"].as_array().unwrap().clone();
        for (few, many) in rows(&pair[0]).iter().zip(&rows(&pair[1])) {
            let (before, after) = (few["verdict"].as_str().unwrap(), many["verdict"].as_str().unwrap());
            assert!(before == after || before == "undecided", "{}: {before}, then {after}", few["what"]);
        }
        let undecided = |told: &Value| told["summary"]["undecided"].as_u64().unwrap();
        assert!(undecided(&pair[1]) <= undecided(&pair[0]));
    }
    assert_eq!(all[3]["summary"]["outside"], 0, "a row outside its band has no reason");
}
