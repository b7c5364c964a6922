//! Experiments by the program itself: run, killed, gone on with, rolled back; workloads that misbehave; what is told of it all.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A folder with a knob in it, and a state folder.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("knob"), "found").unwrap();
        Place { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn knob(&self) -> String {
        std::fs::read_to_string(self.path("knob")).unwrap()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut c = Command::new(env!("CARGO_BIN_EXE_vsteer"));
        c.args(words).current_dir(self.dir.path()).env("VSTEER_STATE", self.path("state"));
        c
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("vsteer runs")
    }

    fn json(&self, words: &[&str]) -> Value {
        let done = self.command(words).arg("--json").output().unwrap();
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_slice(&done.stdout).unwrap()
    }

    fn spawn(&self, words: &[&str]) -> Child {
        self.command(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Writes an experiment over the knob: `head` before the workload's command, `tail` after it.
    fn write(&self, name: &str, head: &str, command: &str, tail: &str) {
        let text = format!(
            "name = \"{name}\"\ndesign = \"one-at-a-time\"\n{head}\n[workload]\ncommand = '''{command}'''\n{tail}\n[[factor]]\nname = \"knob\"\n\
             levels = [\"a\", \"b\"]\nfile = \"{}\"\n",
            self.path("knob").display()
        );
        std::fs::write(self.path(&format!("{name}.toml")), text).unwrap();
    }

    fn log(&self, name: &str) -> Vec<Value> {
        let text =
            std::fs::read_to_string(self.path(&format!("{name}.experiment/log.jsonl"))).unwrap_or_default();
        text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect()
    }
}

/// Waits until the log says something of this kind so often.
fn until(place: &Place, name: &str, kind: &str, count: usize) {
    let begun = Instant::now();
    while place.log(name).iter().filter(|l| l[kind].is_object()).count() < count {
        assert!(begun.elapsed() < Duration::from_secs(120), "no {count} lines of {kind}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

#[test]
fn nothing_is_changed_without_yes_and_everything_is_put_back_with_it() {
    let p = Place::new();
    p.write("e", "warm_up = 1", "sleep 0.02; test $(cat knob) = a || sleep 0.04", "");
    let told = p.run(&["experiment", "run", "e.toml"]);
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(
        told.status.success() && text.contains("now \"found\"") && text.contains("nothing was changed"),
        "{text}"
    );
    assert!(!p.path("e.experiment").exists() && p.knob() == "found");

    let answers = p.json(&["experiment", "run", "e.toml", "--yes"]);
    assert_eq!((p.knob().as_str(), answers["ended"].as_bool()), ("found", Some(true)));
    assert_eq!((answers["counted"].as_u64(), answers["runs"].as_u64()), (Some(10), Some(20)));
    let first = &answers["measures"][0]["answers"][0];
    assert_eq!(
        (first["name"].as_str(), first["outcome"].as_str()),
        (Some("knob: b"), Some("worse")),
        "{first}"
    );
    // Nothing is left to take back, and a second run does not write over the first.
    assert_eq!(p.run(&["rollback"]).status.code(), Some(3));
    assert_eq!(p.run(&["experiment", "run", "e.toml", "--yes"]).status.code(), Some(7));
    assert_eq!(p.json(&["experiment", "report", "e.experiment"]), answers);
    let markdown =
        String::from_utf8(p.run(&["experiment", "report", "e.experiment", "--markdown"]).stdout).unwrap();
    assert!(
        markdown.contains("| knob: b |") && markdown.contains("## Every run accounted for"),
        "{markdown}"
    );
    assert!(p.run(&["experiment", "report", "e.experiment", "-o", "r.html"]).status.success());
    let page = std::fs::read_to_string(p.path("r.html")).unwrap();
    assert!(page.contains("default-src 'none'") && page.contains("<svg") && !page.contains("<script"));
}

#[test]
fn what_was_better_is_a_plan_that_is_applied_and_taken_back() {
    let p = Place::new();
    p.write("e", "", "test $(cat knob) = b && sleep 0.02 || sleep 0.12", "");
    p.json(&["experiment", "run", "e.toml", "--yes"]);
    let made = p.run(&["experiment", "report", "e.experiment", "--plan", "plan.json"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let shown = String::from_utf8(p.run(&["apply", "plan.json"]).stdout).unwrap();
    assert!(shown.contains("would host: knob: \"found\" -> \"b\"") && p.knob() == "found", "{shown}");
    assert!(p.run(&["apply", "plan.json", "--yes"]).status.success());
    assert_eq!(p.knob(), "b");
    assert!(p.run(&["rollback"]).status.success());
    assert_eq!(p.knob(), "found");
    // What is no better is not planned.
    p.write("same", "", "true", "");
    p.json(&["experiment", "run", "same.toml", "--yes"]);
    assert_eq!(
        p.run(&["experiment", "report", "same.experiment", "--plan", "none.json"]).status.code(),
        Some(3)
    );
}

/// An experiment over a setting that commands set, and that `lasting` keeps; `b` is better.
fn with_lasting(set: &str, read: &str) -> String {
    format!(
        "name = \"k\"\ndesign = \"pair\"\n[workload]\ncommand = \"test $(cat knob) = b && sleep 0.02 || sleep 0.12\"\n[[factor]]\n\
         name = \"knob\"\nlevels = [\"a\", \"b\"]\nset = \"printf %s {{level}} > knob\"\nread = \"cat knob\"\n\
         lasting = {{ commands = {{ set = \"{set}\", read = \"{read}\" }} }}\n"
    )
}

#[test]
fn what_commands_keep_is_set_now_and_kept_and_both_are_taken_back() {
    let p = Place::new();
    let kept = || std::fs::read_to_string(p.path("kept")).unwrap_or_default();
    let plan = |name: &str, text: &str| {
        std::fs::write(p.path("k.toml"), text).unwrap();
        let folder = format!("{name}.experiment");
        p.json(&["experiment", "run", "k.toml", "--yes", "-o", &folder]);
        assert_eq!((p.knob().as_str(), kept().as_str()), ("found", ""), "an experiment keeps nothing");
        let made = p.run(&["experiment", "report", &folder, "--plan", "plan.json"]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(p.run(&["apply", "plan.json"]).stdout).unwrap()
    };
    let shown = plan("good", &with_lasting("printf %s '{level}' > kept", "cat kept 2>/dev/null || true"));
    for line in ["would host: knob: \"found\" -> \"b\"", "would host: knob, kept: \"\" -> \"b\""] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
    assert!(p.run(&["apply", "plan.json", "--yes"]).status.success());
    assert_eq!((p.knob().as_str(), kept().as_str()), ("b", "b"));
    assert!(p.run(&["rollback"]).status.success());
    assert_eq!((p.knob().as_str(), kept().as_str()), ("found", ""));
    // A keeper that answers and keeps nothing is found out, and what runs is put back.
    plan("stuck", &with_lasting("true {level}", "true"));
    let done = p.run(&["apply", "plan.json", "--yes"]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned() + &String::from_utf8_lossy(&done.stdout);
    assert!(!done.status.success() && said.contains("knob, kept"), "{said}");
    assert_eq!(p.knob(), "found", "{said}");
    // One that cannot be given a level is refused before anything runs.
    std::fs::write(p.path("k.toml"), with_lasting("true", "true")).unwrap();
    let done = p.run(&["experiment", "run", "k.toml", "--yes"]);
    assert_eq!(done.status.code(), Some(6), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn ctrl_c_puts_settings_back_and_resume_goes_on() {
    let p = Place::new();
    p.write("e", "", "sleep 0.1", "");
    let mut child = p.spawn(&["experiment", "run", "e.toml", "--yes"]);
    until(&p, "e", "starting", 3);
    assert_ne!(p.knob(), "found");
    signal(&child, rustix::process::Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(p.knob(), "found");
    assert_eq!(p.run(&["rollback"]).status.code(), Some(3), "it is all taken back");
    let answers = p.json(&["experiment", "resume", "e.experiment", "--yes"]);
    assert_eq!((answers["counted"].as_u64(), p.knob().as_str()), (Some(10), "found"));
    let cut: Vec<&Value> = answers["bad"].as_array().unwrap().iter().collect();
    assert!(cut.iter().all(|r| r[1].as_str().unwrap().contains("cut off")), "{cut:?}");
}

#[test]
fn killed_it_is_rolled_back_and_gone_on_with() {
    let p = Place::new();
    p.write("e", "", "sleep 0.1", "");
    let mut child = p.spawn(&["experiment", "run", "e.toml", "--yes"]);
    until(&p, "e", "starting", 4);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ne!(p.knob(), "found", "nobody was there to put it back");
    let back = p.run(&["rollback"]);
    assert!(back.status.success() && p.knob() == "found", "{}", String::from_utf8_lossy(&back.stderr));
    assert!(String::from_utf8_lossy(&back.stdout).contains("host: taken back: knob"), "{back:?}");
    // Two at once do not carry on the same.
    let mut child = p.spawn(&["experiment", "resume", "e.experiment", "--yes"]);
    until(&p, "e", "resumed", 1);
    assert_eq!(p.run(&["experiment", "resume", "e.experiment", "--yes"]).status.code(), Some(7));
    assert!(child.wait().unwrap().success());
    let log = p.log("e");
    let count = |kind: &str| log.iter().filter(|l| l[kind].is_object()).count();
    assert_eq!(count("starting"), count("ran"), "every run that was announced is told");
    assert_eq!(p.json(&["experiment", "report", "e.experiment"])["counted"].as_u64(), Some(10));
    assert_eq!(p.knob(), "found");
}

#[test]
fn workloads_that_misbehave_are_told_and_never_averaged_in() {
    let p = Place::new();
    let reasons = |name: &str| -> Vec<String> {
        let answers = p.json(&["experiment", "run", &format!("{name}.toml"), "--yes"]);
        assert_eq!(p.knob(), "found", "{name}");
        let all = answers["bad"].as_array().unwrap();
        all.iter().map(|r| r[1].as_str().unwrap().to_owned()).collect()
    };
    p.write("fails", "", "test $(cat knob) = a", "");
    let all = reasons("fails");
    assert!(all.len() == 15 && all.iter().all(|r| r.contains("it failed (1)")), "{all:?}");
    p.write("hangs", "timeout_s = 0.2", "test $(cat knob) = a || sleep 30", "");
    let all = reasons("hangs");
    assert!(all.len() == 15 && all.iter().all(|r| r.contains("time limit")), "{all:?}");
    p.write("silent", "", "echo rate 3", "[[measure]]\nname = \"speed\"\nof = { printed = \"speed {}\" }\n");
    let all = reasons("silent");
    assert!(all.len() == 30 && all.iter().all(|r| r.contains("did not print speed")), "{all:?}");
    // Once, at its sixth run, it takes more than ten times as long.
    p.write("tenfold", "", "echo x >> count; sleep 0.03; test $(wc -l < count) != 6 || sleep 3", "");
    let all = reasons("tenfold");
    assert!(all.len() == 1 && all[0].contains("times as long"), "{all:?}");
    p.write("unprepared", "", "true", "prepare = \"false\"");
    assert!(reasons("unprepared").iter().all(|r| r.contains("could not be prepared")));
    let gone = "[[measure]]\nname = \"time\"\nof = \"time\"\n[[measure]]\nname = \"idle\"\nof = { idle_watts = { meter = \"exit 1\", for_s = 1.0 } }\n";
    p.write("meterless", "", "true", gone);
    let answers = p.json(&["experiment", "run", "meterless.toml", "--yes"]);
    assert_eq!(
        (answers["counted"].as_u64(), answers["missing"].as_array().map(Vec::len)),
        (Some(10), Some(10))
    );
}

#[test]
fn a_setting_that_does_not_take_is_told_by_what_is_in_force() {
    let p = Place::new();
    // As tuned-adm does without its daemon: it says that all is well, and nothing happens.
    let text = "name = \"stuck\"\ndesign = \"pair\"\n[workload]\ncommand = \"true\"\n[[factor]]\nname = \"profile\"\nlevels = [\"balanced\", \"fast\"]\n\
                set = \"true\"\nread = \"echo balanced\"\n";
    std::fs::write(p.path("stuck.toml"), text).unwrap();
    let answers = p.json(&["experiment", "run", "stuck.toml", "--yes"]);
    assert_eq!(answers["given_up"][0].as_str(), Some("profile=fast"), "{answers}");
    assert_eq!(answers["counted"].as_u64(), Some(5));
    let why = answers["bad"][0][1].as_str().unwrap();
    assert!(why.contains("\"fast\" was set, in force is \"balanced\""), "{why}");
    assert_eq!(answers["measures"][0]["answers"][0]["outcome"].as_str(), Some("too_few"));
}

#[test]
fn a_full_disk_ends_it_with_settings_put_back() {
    let p = Place::new();
    p.write("e", "runs_least = 50\nruns_most = 50", "sleep 0.01", "");
    // 512-byte blocks: some lines fit, then no more. The journal is as small.
    let line = format!(
        "trap '' XFSZ; ulimit -f 24; exec {} experiment run e.toml --yes -o e.experiment",
        env!("CARGO_BIN_EXE_vsteer")
    );
    let mut c = Command::new("/bin/sh");
    c.args(["-c", &line]).current_dir(p.dir.path()).env("VSTEER_STATE", p.path("state"));
    let done = c.output().unwrap();
    assert_eq!(done.status.code(), Some(9), "{}", String::from_utf8_lossy(&done.stderr));
    // Where the journal too had no room for "taken back", the setting is back all the same, and rollback is safe.
    assert_eq!(p.knob(), "found");
    let made = p.log("e").iter().filter(|l| l["ran"].is_object()).count();
    assert!(made > 0 && made < 100, "{made} runs fitted");
    let answers = p.json(&["experiment", "resume", "e.experiment", "--yes"]);
    assert_eq!(
        (answers["counted"].as_u64(), p.knob().as_str()),
        (Some(100), "found"),
        "{:?}",
        answers["bad"]
    );
}

#[test]
fn a_file_that_is_no_experiment_is_refused_with_its_line() {
    let p = Place::new();
    std::fs::write(p.path("bad.toml"), "name = \"x\"\ndesign = \"pear\"\n").unwrap();
    let done = p.run(&["experiment", "run", "bad.toml"]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        done.status.code() == Some(6) && said.contains("line 2") && said.contains("docs/experiments.md"),
        "{said}"
    );
    assert_eq!(p.run(&["experiment", "report", "nowhere"]).status.code(), Some(3));
}

#[test]
fn the_examples_can_be_laid_out() {
    let p = Place::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/examples");
    let mut seen = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let file = file.unwrap().path();
        let told = p.json(&["experiment", "run", &file.to_string_lossy()]);
        assert!(told["settings"].as_array().is_some_and(|s| s.len() > 1), "{}", file.display());
        seen += 1;
    }
    assert!(seen >= 3);
}

#[test]
fn the_published_study_is_reproduced() {
    let p = Place::new();
    let told = p.json(&["experiment", "report", "--published"]);
    let all = |list: &str, key: &str| told[list].as_array().unwrap().iter().all(|c| c[key] == true);
    assert!(
        all("cells", "agrees")
            && all("comparisons", "agrees")
            && all("comparisons", "right")
            && all("pairs", "agrees")
    );
    assert!(p.run(&["experiment", "report", "--published", "-o", "s.html"]).status.success());
    let text = String::from_utf8(p.run(&["experiment", "report", "--published"]).stdout).unwrap();
    assert!(text.contains("15.6 % (15.3 to 15.9)"), "{text}");
}

#[test]
fn the_unit_for_systemd_resumes() {
    let p = Place::new();
    p.write("e", "", "true", "");
    p.json(&["experiment", "run", "e.toml", "--yes"]);
    let unit = String::from_utf8(p.run(&["experiment", "unit", "e.experiment"]).stdout).unwrap();
    assert!(
        unit.contains(" experiment resume ") && unit.contains("--yes") && unit.contains("untried"),
        "{unit}"
    );
    let Ok(_) = Command::new("systemd-analyze").arg("--version").output() else { return };
    let file = p.path("vsteer-experiment.service");
    std::fs::write(&file, unit).unwrap();
    let done = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let ours: Vec<&str> = said.lines().filter(|l| l.contains("vsteer-experiment.service")).collect();
    assert!(ours.is_empty(), "{ours:?}");
}

#[test]
fn the_audit_tells_three_states_and_captures_what_it_reads() {
    let p = Place::new();
    let here = p.json(&["audit"]);
    assert!(here["findings"].as_array().is_some_and(|f| f.len() >= 19), "{here}");
    assert!(p.run(&["audit", "--capture", "tree"]).status.success());
    let again = p.json(&["audit", "--root", "tree"]);
    let settings = |v: &Value| -> Vec<(String, String)> {
        let all = v["findings"].as_array().unwrap().iter();
        all.map(|f| (f["setting"].as_str().unwrap().to_owned(), f["state"].as_str().unwrap().to_owned()))
            .collect()
    };
    assert_eq!(settings(&here), settings(&again));
    let told = String::from_utf8(p.run(&["audit", "--all", "--root", "tree"]).stdout).unwrap();
    assert!(told.contains("do not apply") && told.contains('–'), "{told}");
}
