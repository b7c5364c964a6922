//! Does every command have an example in its help, and does each example run?

use crate::help::commands;
use crate::place::PLACE;
use crate::program;

/// The examples of a command's help.
fn examples(command: &str) -> Vec<String> {
    let help = String::from_utf8(PLACE.run(&format!("{command} --help")).stdout).unwrap();
    let after = help.lines().skip_while(|l| !l.starts_with("Example")).skip(1);
    let lines = after.take_while(|l| l.starts_with("  vsteer "));
    // A comment stands apart from its command.
    lines.map(|l| l.trim().split("   ").next().unwrap().to_owned()).collect()
}

#[test]
fn every_command_has_an_example_and_most_have_two_or_more() {
    let counts: Vec<(String, usize)> =
        commands().into_iter().map(|c| (c.clone(), examples(&c).len())).collect();
    let none: Vec<_> = counts.iter().filter(|(_, n)| *n == 0).collect();
    assert!(none.is_empty(), "without an example: {none:?}");
    let two = counts.iter().filter(|(_, n)| *n >= 2).count();
    assert!(3 * two >= 2 * counts.len(), "{two} of {} commands have two examples", counts.len());
}

/// Examples that observe or change a live host, need files of hours, or a minute: what they are and their options are checked, and
/// other tests run them on real VMs.
const LIVE: &[&str] = &[
    "vsteer apply",
    "vsteer audit --as",
    "vsteer capture",
    "vsteer diagnose",
    "vsteer estimate",
    "vsteer experiment report huge-pages",
    "vsteer experiment resume",
    "vsteer experiment run huge-pages.toml --yes",
    "vsteer export events",
    "vsteer headroom --from",
    "vsteer headroom scenarios/vdi-pool",
    "vsteer history",
    "vsteer plan -o",
    "vsteer plan --set",
    "vsteer realtime",
    "vsteer record",
    "vsteer replay flight",
    "vsteer report --for",
    "vsteer rollback",
    "vsteer simulate --from events",
    "vsteer simulate --published",
    "vsteer simulate workload",
    "vsteer steer",
    "vsteer top",
];

/// Files are there for these all the same.
const OF_FILES: &[&str] =
    &["vsteer diagnose before", "vsteer diagnose esxtop", "vsteer diagnose --connect tree:host"];

// GAP(check-minute): these commands run one after another, for 8 s.
#[test]
fn examples_run() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "scenarios",
        "host",
        "before.vsteer",
        "after.vsteer",
        "plan.json",
        "esxtop.csv.gz",
        "huge-pages.toml",
    ] {
        std::os::unix::fs::symlink(PLACE.path().join(name), folder.path().join(name)).unwrap();
    }
    std::os::unix::fs::symlink(PLACE.path().join("host/1"), folder.path().join("captured")).unwrap();
    let (mut ran, mut looked_at, mut wrong) = (0, 0, Vec::new());
    let mut all: Vec<String> = commands().iter().flat_map(|c| examples(c)).collect();
    all.sort();
    all.dedup();
    for example in all {
        let starts = |with: &[&str]| with.iter().any(|w| example.starts_with(w));
        let line = example.strip_prefix("vsteer ").unwrap();
        // Nothing of the machine is written to.
        let line = line
            .replace("/etc/bash_completion.d/vsteer", "completions")
            .replace("/usr/local/share/man/man1", "man");
        let live = starts(LIVE) && !starts(OF_FILES);
        // clap reads from left to right: it comes to the last option only when those before it are right.
        let line =
            if live { format!("{} --no-such-option", line.split(" > ").next().unwrap()) } else { line };
        let shell = format!("exec {} {line}", program::VSTEER);
        let out = std::process::Command::new("/bin/sh")
            .args(["-c", &shell])
            .env(program::NO_CONFIG.0, program::NO_CONFIG.1)
            .current_dir(folder.path())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&out.stderr);
        let right =
            if live { told.contains("unexpected argument '--no-such-option'") } else { out.status.success() };
        *(if live { &mut looked_at } else { &mut ran }) += 1;
        if !right {
            wrong.push(format!("{example}\n{told}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(ran >= 20 && looked_at >= 20, "{ran} ran, the options of {looked_at} were looked at");
}

#[test]
fn the_scenario_in_the_help_of_simulate_runs() {
    let help = PLACE.run("simulate --help").stdout;
    let help = String::from_utf8(help).unwrap();
    let (_, after) = help.split_once("docs/scenarios.md has all keys):").expect("a scenario");
    let (scenario, _) = after.split_once("Options:").expect("options follow");
    assert!(scenario.contains("[[vm]]"), "{scenario}");
    PLACE.write("small.toml", scenario);
    let out = PLACE.run("simulate small.toml");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}
