//! Do `man`, `completions` and `exit-codes` tell what the program does?
//!
//! Pages and completions are compared with the commands that `--help` lists, and exit codes with real invocations.

#[path = "common/program.rs"]
mod program;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use vsteer_core::FaultKind;

fn vsteer(words: &[&str]) -> Output {
    program::vsteer().args(words).output().expect("vsteer starts")
}

fn text(words: &[&str]) -> String {
    let out = vsteer(words);
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("vsteer prints text")
}

/// The commands that a help lists, without `help` itself.
fn commands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    // Descriptions go on in lines that are indented further.
    let names = listed.filter(|l| l.starts_with("  ") && !l.starts_with("   "));
    names.filter_map(|l| l.split_whitespace().next()).filter(|n| *n != "help").map(str::to_owned).collect()
}

/// Every command and subcommand, as its words.
fn all_commands() -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for name in commands(&text(&["--help"])) {
        let below = commands(&text(&[&name, "--help"]));
        all.extend(below.into_iter().map(|sub| vec![name.clone(), sub]));
        all.push(vec![name]);
    }
    assert!(all.len() > 20, "{all:?}");
    all
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("man");
    text(&["man", folder.to_str().unwrap()]);
    let read = |name: &str| {
        let file = folder.join(name);
        std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{name}: {e}"))
    };
    let mut expected: BTreeSet<String> = BTreeSet::from(["vsteer.1".into(), "vsteer.toml.5".into()]);
    for words in all_commands() {
        let page = format!("vsteer-{}.1", words.join("-"));
        let of_page = read(&page);
        // Every long option of the help is in the page, with its hyphens escaped as roff wants them.
        let help: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
        let help = text(&help);
        let options = help.lines().filter_map(|l| l.trim_start().split(' ').find(|w| w.starts_with("--")));
        for option in options.filter(|o| help.contains(&format!("{o} "))) {
            // An option whose value may be left out is written `--published[=<PAPER>]`.
            let option = option.split(['[', '=', ',']).next().unwrap_or(option);
            let escaped = option.replace('-', "\\-");
            assert!(of_page.contains(&escaped), "{page} lacks {option}");
        }
        expected.insert(page);
    }
    let found: BTreeSet<String> =
        std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(found, expected);
    for page in &found {
        is_a_page(page, &read(page));
    }
}

#[test]
fn the_page_of_the_configuration_has_every_key() {
    let dir = tempfile::tempdir().unwrap();
    text(&["man", dir.path().join("man").to_str().unwrap()]);
    let page = std::fs::read_to_string(dir.path().join("man/vsteer.toml.5")).unwrap();
    for key in vsteer_record::config::keys() {
        assert!(page.contains(&format!("\\fB{}\\fR", key.name.replace('-', "\\-"))), "{}", key.full());
    }
}

/// What `man` needs: a title first, a name with its purpose, a synopsis, and only known requests.
fn is_a_page(name: &str, page: &str) {
    const KNOWN: [&str; 14] =
        [".TH", ".SH", ".SS", ".TP", ".IP", ".PP", ".RS", ".RE", ".br", ".ie", ".el", ".nf", ".fi", ".sp"];
    let requests: Vec<&str> = page.lines().filter(|l| l.starts_with('.')).collect();
    for request in &requests {
        let word = request.split(' ').next().unwrap();
        assert!(KNOWN.contains(&word), "{name}: {request}");
    }
    let first = requests.iter().find(|r| !r.starts_with(".ie") && !r.starts_with(".el")).unwrap();
    let (title, section) = name.rsplit_once('.').unwrap();
    assert!(first.starts_with(&format!(".TH {title} {section}")), "{name}: {first}");
    let sections: Vec<&str> = requests.iter().filter_map(|r| r.strip_prefix(".SH ")).collect();
    assert_eq!(sections[..2], ["NAME", "SYNOPSIS"], "{name}");
    let after = page.split(".SH NAME\n").nth(1).and_then(|rest| rest.lines().next()).unwrap();
    assert!(after.replace("\\-", "-").starts_with(&format!("{title} - ")), "{name}: {after}");
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let out = vsteer(&["man", file.join("below").to_str().unwrap()]);
    assert!(!out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("below"));
}

#[test]
fn completions_name_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&["completions", shell]);
        for words in all_commands() {
            let name = words.last().unwrap();
            assert!(script.contains(name.as_str()), "{shell}: {words:?}");
        }
    }
    assert_eq!(vsteer(&["completions", "csh"]).status.code(), Some(2));
}

/// Feeds a script to a shell that only parses it.
fn parses(shell: &str, arguments: &[&str], script: &str) {
    let mut child = Command::new(shell)
        .args(arguments)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{shell}: {e}"));
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{shell}: {}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn bash_parses_its_completions() {
    parses("bash", &["-n"], &text(&["completions", "bash"]));
}

#[test]
fn bash_completes_commands() {
    let script = text(&["completions", "bash"]);
    let asked =
        "COMP_WORDS=(vsteer ex); COMP_CWORD=1; _vsteer vsteer ex vsteer; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let out = Command::new("bash").args(["-c", &format!("{script}\n{asked}")]).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    let found: BTreeSet<&str> = said.lines().collect();
    let expected = BTreeSet::from(["experiment", "export", "exit-codes"]);
    assert_eq!(found, expected, "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
#[ignore = "needs zsh"]
fn zsh_parses_its_completions() {
    parses("zsh", &["-n"], &text(&["completions", "zsh"]));
}

#[test]
#[ignore = "needs fish"]
fn fish_parses_its_completions() {
    parses("fish", &["--no-execute"], &text(&["completions", "fish"]));
}

#[test]
fn exit_codes_are_those_of_the_faults() {
    let told: serde_json::Value = serde_json::from_str(&text(&["exit-codes", "--json"])).unwrap();
    let told: Vec<(u64, String)> = told
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["code"].as_u64().unwrap(), row["meaning"].as_str().unwrap().to_owned()))
        .collect();
    let faults: Vec<(u64, String)> =
        FaultKind::ALL.iter().map(|k| (u64::from(k.exit_code()), k.meaning().to_owned())).collect();
    assert_eq!(told, faults);
    let codes: BTreeSet<u64> = told.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes.len(), told.len(), "each class has a code of its own");
    let table = text(&["exit-codes"]);
    let lines: Vec<&str> = table.lines().map(str::trim).collect();
    let row = |(code, meaning): &(u64, String)| format!("{code}  {meaning}");
    let expected: Vec<String> = std::iter::once("0  done".to_owned()).chain(told.iter().map(row)).collect();
    assert_eq!(lines, expected);
}

#[test]
fn invocations_end_with_their_codes() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("plan.json"), "{\"not\": \"a plan\"}").unwrap();
    let plain = Path::new(&at("nowhere")).to_str().unwrap().to_owned();
    let cases: [(&[&str], FaultKind); 4] = [
        (&["record", "--no-such-option"], FaultKind::Usage),
        (&["diagnose", &plain], FaultKind::NothingThere),
        (&["apply", &at("plan.json")], FaultKind::BadInput),
        (&["no-such-command"], FaultKind::Usage),
    ];
    for (words, kind) in cases {
        let out = vsteer(words);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(i32::from(kind.exit_code())), "{words:?}: {said}");
        assert!(!said.trim().is_empty(), "{words:?} says nothing");
    }
}
