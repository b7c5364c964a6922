//! Experiments by the program itself: run, killed, gone on with, rolled back; workloads that misbehave; what is told of it all.

#[path = "common/program.rs"]
mod program;

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
        let mut c = program::vsteer();
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap_or_default());
        c.args(words).current_dir(self.dir.path()).env("VSTEER_STATE", self.path("state")).env("PATH", path);
        c
    }

    /// A program that stands in for the machine's own.
    fn stand_in(&self, name: &str, text: &str) {
        use std::io::Write;
        std::fs::create_dir_all(self.path("bin")).unwrap();
        // A process of its own writes it: one that another test starts meanwhile could inherit this one's open file, and
        // then the kernel refuses to run it ("Text file busy").
        let mut writer = Command::new("sh")
            .args(["-c", "cat >\"$1\" && chmod 755 \"$1\"", "sh"])
            .arg(self.path(&format!("bin/{name}")))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        writer.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{text}\n").as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
    }

    /// Another machine, which is this one: it is not reached as often as the file `down` says.
    fn other_machine(&self) {
        self.stand_in(
            "ssh",
            "for last; do :; done; n=$(cat down 2>/dev/null || echo 0)\n\
             [ \"$n\" -le 0 ] || { echo $((n-1)) > down; exit 255; }\nexec /bin/sh -c \"$last\"",
        );
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default().trim().to_owned()
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
            "name = \"{name}\"\ndesign = \"one-at-a-time\"\n{head}\n[workload]\ncommand = {{ sh = '''{command}''' }}\n{tail}\n[[factor]]\nname = \"knob\"\n\
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
        told.status.success() && text.contains("now \"found\"") && text.contains("Dry run: pass --yes"),
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
    assert!(markdown.contains("| knob: b |") && markdown.contains("## All runs"), "{markdown}");
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
    assert!(shown.contains("would change host: knob: \"found\" -> \"b\"") && p.knob() == "found", "{shown}");
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

/// An experiment over a setting that commands set, and that `lasting` keeps; `b` is better, by more than a busy
/// machine adds.
fn with_lasting(set: &str, read: &str) -> String {
    format!(
        "name = \"k\"\ndesign = \"pair\"\n[workload]\ncommand = {{ sh = \"test $(cat knob) = b && sleep 0.02 || sleep 0.3\" }}\n[[factor]]\n\
         name = \"knob\"\nlevels = [\"a\", \"b\"]\nset = {{ sh = \"printf %s {{level}} > knob\" }}\nread = \"cat knob\"\n\
         lasting = {{ commands = {{ set = {{ sh = \"{set}\" }}, read = {{ sh = \"{read}\" }} }} }}\n"
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
    for line in
        ["would change host: knob: \"found\" -> \"b\"", "would change host: knob, kept: \"\" -> \"b\""]
    {
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
fn what_was_put_back_halfway_and_set_again_is_put_back_in_the_end() {
    let p = Place::new();
    std::fs::write(p.path("other"), "found").unwrap();
    // The second is taken back first; of the first it is refused for a while.
    let text = format!(
        "name = \"e\"\ndesign = \"one-at-a-time\"\n[workload]\ncommand = \"sleep 0.1\"\n\
         [[factor]]\nname = \"first\"\nlevels = [\"a\", \"b\"]\nset = {{ sh = \"test ! -e stuck && printf %s {{level}} > other\" }}\nread = \"cat other\"\n\
         [[factor]]\nname = \"second\"\nlevels = [\"a\", \"b\"]\nfile = \"{}\"\n",
        p.path("knob").display()
    );
    std::fs::write(p.path("e.toml"), text).unwrap();
    let mut child = p.spawn(&["experiment", "run", "e.toml", "--yes"]);
    until(&p, "e", "starting", 2);
    std::fs::write(p.path("stuck"), "").unwrap();
    signal(&child, rustix::process::Signal::INT);
    assert_ne!(child.wait().unwrap().code(), Some(0));
    assert!(p.knob() == "found" && p.text("other") != "found", "{} {}", p.knob(), p.text("other"));
    std::fs::remove_file(p.path("stuck")).unwrap();
    let answers = p.json(&["experiment", "resume", "e.experiment", "--yes"]);
    assert_eq!((answers["ended"].as_bool(), answers["counted"].as_u64()), (Some(true), Some(15)));
    assert_eq!((p.knob().as_str(), p.text("other").as_str()), ("found", "found"));
    assert_eq!(p.run(&["rollback"]).status.code(), Some(3));
}

/// An experiment over two words of the kernel's command line; what the kernel runs with is in the file `cmdline`.
fn with_words(p: &Place, set: &str) {
    p.stand_in("cat", "[ \"$*\" = /proc/cmdline ] || exec /bin/cat \"$@\"\nexec /bin/cat cmdline");
    // As grubby: of the words that the next boot is given these names are removed, and these words added.
    p.stand_in(
        "words",
        "out=; for w in $(/bin/cat next); do for r in $1; do case $w in $r|$r=*) w=;; esac; done; out=\"$out $w\"; done\necho $out $2 > next",
    );
    for file in ["cmdline", "next"] {
        std::fs::write(p.path(file), "ro x=1 y=1 quiet\n").unwrap();
    }
    let text = format!(
        "name = \"e\"\ndesign = \"full\"\n[workload]\ncommand = \"true\"\n[boot]\nset = {{ sh = \"{set}\" }}\nreboot = {{ sh = \"cp next cmdline; echo x >> boots\" }}\n\
         [[factor]]\nname = \"x\"\nkernel = true\nlevels = [\"x=1\", \"x=2\"]\n[[factor]]\nname = \"y\"\nkernel = true\nlevels = [\"y=1\", \"y=2\"]\n"
    );
    std::fs::write(p.path("e.toml"), text).unwrap();
}

/// Runs it, and goes on after each boot.
fn over_boots(p: &Place) -> Value {
    let mut told = p.json(&["experiment", "run", "e.toml", "--yes"]);
    for _ in 0..60 {
        if told["booting"] != true {
            return told;
        }
        // The boot: this machine is in the same one still, so the log is made to speak of another.
        let (log, boot) = (p.path("e.experiment/log.jsonl"), "/proc/sys/kernel/random/boot_id");
        let boot = std::fs::read_to_string(boot).unwrap();
        let text = std::fs::read_to_string(&log).unwrap();
        std::fs::write(&log, text.replace(boot.trim(), "the boot before")).unwrap();
        told = p.json(&["experiment", "resume", "e.experiment", "--yes"]);
    }
    panic!("it boots and boots");
}

#[test]
fn two_words_of_the_command_line_take_one_boot_together() {
    let p = Place::new();
    with_words(&p, "words '{remove}' '{add}'");
    let dry = p.json(&["experiment", "run", "e.toml"]);
    let told = String::from_utf8(p.run(&["experiment", "run", "e.toml"]).stdout).unwrap();
    let boots = dry["boots"]["least"].as_u64().unwrap();
    assert!(told.contains(&format!("boots this machine about {boots} times")), "{told}");
    let answers = over_boots(&p);
    assert_eq!((answers["ended"].as_bool(), answers["counted"].as_u64()), (Some(true), Some(20)));
    assert_eq!(answers["bad"].as_array().map(Vec::len), Some(0), "{}", answers["bad"]);
    assert_eq!(p.text("boots").lines().count() as u64, boots);
    let sorted = |file: &str| {
        let text = p.text(file);
        let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        words.sort();
        words.join(" ")
    };
    assert_eq!([sorted("cmdline"), sorted("next")], ["quiet ro x=1 y=1", "quiet ro x=1 y=1"]);
    assert_eq!(p.run(&["rollback"]).status.code(), Some(3));
}

#[test]
fn words_that_are_not_there_after_the_boot_did_not_take() {
    let p = Place::new();
    with_words(&p, "test '{add}' = y=2 || words '{remove}' '{add}'");
    let first = p.run(&["experiment", "run", "e.toml", "--yes", "-o", "it's.experiment"]);
    let said = String::from_utf8_lossy(&first.stderr).into_owned();
    assert!(said.contains("vsteer experiment resume it's.experiment --yes"), "{said}");
    assert!(p.run(&["rollback"]).status.success());
    std::fs::copy(p.path("next"), p.path("cmdline")).unwrap();
    let answers = over_boots(&p);
    let mut given_up: Vec<&str> =
        answers["given_up"].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
    given_up.sort_unstable();
    assert_eq!(given_up, ["x=x=1, y=y=2", "x=x=2, y=y=2"]);
    let why: Vec<&str> = answers["bad"].as_array().unwrap().iter().map(|b| b[1].as_str().unwrap()).collect();
    assert!(why.len() == 4 && why.iter().all(|w| w.contains("y was set to")), "{why:?}");
    assert_eq!(answers["counted"].as_u64(), Some(10));
}

/// An experiment whose workload and setting are on another machine.
fn there(p: &Place, name: &str, command: &str) {
    p.other_machine();
    p.write(name, "", command, "on = \"other\"");
    let file = p.path(&format!("{name}.toml"));
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}on = \"other\"\n")).unwrap();
}

#[test]
fn a_lost_link_is_waited_for_and_its_run_made_again() {
    let p = Place::new();
    // Lost in the fourth run; again when the setting after the sixth is set.
    there(
        &p,
        "e",
        "echo x >> count; case $(wc -l < count) in 4) echo 2 > down; exit 255;; 6) (sleep 0.2; echo 4 > down) >/dev/null 2>&1 & esac; sleep 0.4; cat knob >> seen",
    );
    let done = p.run(&["experiment", "run", "e.toml", "--yes"]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success() && said.contains("cannot reach other over ssh"), "{said}");
    assert_eq!(said.matches("other is reachable again").count(), 2, "{said}");
    let answers = p.json(&["experiment", "report", "e.experiment"]);
    let why: Vec<&str> = answers["bad"].as_array().unwrap().iter().map(|b| b[1].as_str().unwrap()).collect();
    assert_eq!((answers["counted"].as_u64(), why), (Some(10), vec!["the run was cut off"]));
    assert_eq!(answers["given_up"].as_array().map(Vec::len), Some(0));
    assert_eq!(p.knob(), "found");
    // Each run had its setting.
    let of = |c: char| p.text("seen").chars().filter(|s| *s == c).count();
    assert_eq!((of('a'), of('b')), (5, 5));
}

#[test]
fn a_link_that_does_not_come_back_ends_it_with_everything_kept() {
    let p = Place::new();
    there(&p, "e", "echo x >> count; test $(wc -l < count) != 4 || { echo 9999 > down; exit 255; }");
    let mut c = p.command(&["experiment", "run", "e.toml", "--yes"]);
    let done = c.env("VSTEER_LINK_WITHIN_S", "1").output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        done.status.code() == Some(1) && said.contains("vsteer experiment resume e.experiment --yes"),
        "{said}"
    );
    assert!(!p.text("e.experiment/log.jsonl").contains("\"ended\"") && p.knob() != "found");
    std::fs::remove_file(p.path("down")).unwrap();
    let answers = p.json(&["experiment", "resume", "e.experiment", "--yes"]);
    assert_eq!((answers["counted"].as_u64(), answers["ended"].as_bool()), (Some(10), Some(true)));
    assert_eq!((p.knob().as_str(), p.run(&["rollback"]).status.code()), ("found", Some(3)));
}

#[test]
fn a_command_that_ends_as_a_lost_link_does_comes_to_an_end() {
    let p = Place::new();
    there(&p, "e", "test $(cat knob) = a || exit 255");
    let answers = p.json(&["experiment", "run", "e.toml", "--yes"]);
    let count = |why: &str| {
        answers["bad"].as_array().unwrap().iter().filter(|b| b[1].as_str().unwrap().contains(why)).count()
    };
    assert_eq!(
        (answers["counted"].as_u64(), count("failed with exit code 255"), count("cut off")),
        (Some(5), 15, 5)
    );
    // And one that breaks the link whenever it is run.
    there(&p, "breaks", "echo 1 > down; exit 255");
    let done = p.run(&["experiment", "run", "breaks.toml", "--yes"]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.code() == Some(1) && said.contains("without a finished run in between"), "{said}");
    assert_eq!(p.knob(), "found", "it is there, and what was set is put back");
}

#[test]
fn no_profile_of_tuneds_is_put_back_and_what_cannot_be_is_refused() {
    let p = Place::new();
    p.stand_in(
        "tuned-adm",
        "case \"$1\" in\n\
         active) if [ -s profile ]; then echo \"Current active profile: $(cat profile)\"; else echo 'No current active profile.'; fi;;\n\
         profile) [ -n \"$2\" ] || { echo 'Requested profile does not exist' >&2; exit 1; }; echo \"$2\" > profile;;\n\
         off) : > profile; echo off >> offs;;\nesac",
    );
    let text = "name = \"t\"\ndesign = \"pair\"\n[workload]\ncommand = \"true\"\n[[factor]]\nname = \"profile\"\nlevels = [\"balanced\", \"fast\"]\ntuned = true\n";
    std::fs::write(p.path("t.toml"), text).unwrap();
    let answers = p.json(&["experiment", "run", "t.toml", "--yes"]);
    assert_eq!((answers["counted"].as_u64(), answers["ended"].as_bool()), (Some(10), Some(true)));
    assert_eq!((p.text("profile").as_str(), p.text("offs").as_str()), ("", "off"));
    assert_eq!(p.run(&["rollback"]).status.code(), Some(3));
    // A file that holds nothing: nothing written is nothing set.
    std::fs::write(p.path("knob"), "").unwrap();
    p.write("e", "", "true", "");
    let dry = String::from_utf8(p.run(&["experiment", "run", "e.toml"]).stdout).unwrap();
    assert!(dry.contains("factor knob: CANNOT be restored"), "{dry}");
    let done = p.run(&["experiment", "run", "e.toml", "--yes"]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.code() == Some(5) && said.contains("could not restore an empty value"), "{said}");
    assert_eq!((p.knob().as_str(), p.log("e").len()), ("", 0));
    // Once it is set to a level the same command runs it; where nothing is a level, it is the person's word that it can be set.
    std::fs::write(p.path("knob"), "a").unwrap();
    assert_eq!(p.json(&["experiment", "run", "e.toml", "--yes"])["counted"].as_u64(), Some(10));
    let text = "name = \"n\"\ndesign = \"pair\"\n[workload]\ncommand = \"true\"\n[[factor]]\nname = \"kept\"\nlevels = [\"\", \"b\"]\nset = { sh = \"printf %s '{level}' > kept\" }\nread = { sh = \"cat kept 2>/dev/null || true\" }\n";
    std::fs::write(p.path("n.toml"), text).unwrap();
    assert_eq!(p.json(&["experiment", "run", "n.toml", "--yes"])["counted"].as_u64(), Some(10));
    assert_eq!(p.text("kept"), "");
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
    assert!(String::from_utf8_lossy(&back.stdout).contains("host: undone: knob"), "{back:?}");
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

/// Runs an experiment whose workload misbehaves: why runs do not count.
fn reasons(p: &Place, name: &str) -> Vec<String> {
    let answers = p.json(&["experiment", "run", &format!("{name}.toml"), "--yes"]);
    assert_eq!(p.knob(), "found", "{name}");
    let all = answers["bad"].as_array().unwrap();
    all.iter().map(|r| r[1].as_str().unwrap().to_owned()).collect()
}

#[test]
fn runs_that_fail_hang_or_print_nothing_are_told_and_never_averaged_in() {
    let p = Place::new();
    p.write("fails", "", "test $(cat knob) = a", "");
    let all = reasons(&p, "fails");
    assert!(
        all.len() == 15 && all.iter().all(|r| r.contains("the workload failed with exit code 1")),
        "{all:?}"
    );
    p.write("hangs", "timeout_s = 0.2", "test $(cat knob) = a || sleep 30", "");
    let all = reasons(&p, "hangs");
    assert!(all.len() == 15 && all.iter().all(|r| r.contains("time limit")), "{all:?}");
    p.write("silent", "", "echo rate 3", "[[measure]]\nname = \"speed\"\nof = { printed = \"speed {}\" }\n");
    let all = reasons(&p, "silent");
    assert!(all.len() == 30 && all.iter().all(|r| r.contains("did not print speed")), "{all:?}");
    p.write("unprepared", "", "true", "prepare = \"false\"");
    assert!(reasons(&p, "unprepared").iter().all(|r| r.contains("`prepare` failed")));
}

#[test]
fn a_run_that_takes_ten_times_as_long_does_not_count() {
    let p = Place::new();
    // Once, at its sixth run.
    p.write("tenfold", "", "echo x >> count; sleep 0.03; test $(wc -l < count) != 6 || sleep 3", "");
    let all = reasons(&p, "tenfold");
    assert!(all.len() == 1 && all[0].contains("times as long"), "{all:?}");
    // The first run does: the others tell, and it is made again.
    p.write("cold", "", "echo x >> cold; sleep 0.03; test $(wc -l < cold) != 1 || sleep 1", "");
    let answers = p.json(&["experiment", "run", "cold.toml", "--yes"]);
    let bad = answers["bad"].as_array().unwrap();
    assert!(bad.iter().any(|b| b[0]["number"] == 0 && b[1].as_str().unwrap().contains("times as long")));
    assert!(bad.len() == 2 && answers["counted"] == 10, "{bad:?}");
}

#[test]
fn a_meter_that_is_not_there_is_told_and_one_that_goes_leaves_its_measure_missing() {
    let p = Place::new();
    let gone = "[[measure]]\nname = \"time\"\nof = \"time\"\n[[measure]]\nname = \"idle\"\nof = { idle_watts = { meter = \"METER\", for_s = 1.0 } }\n";
    let never = gone.replace("METER", "touch asked-for-nothing");
    p.write("meterless", "", "true", &never);
    // A dry run names the meter's command, and does not run it.
    let dry = p.run(&["experiment", "run", "meterless.toml"]);
    let shown = String::from_utf8_lossy(&dry.stdout);
    assert!(dry.status.success() && shown.contains("power meter: touch asked-for-nothing"), "{shown}");
    assert!(!p.path("asked-for-nothing").exists());
    let done = p.run(&["experiment", "run", "meterless.toml", "--yes"]);
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && told.contains("measure \"idle\""), "{told}");
    // There when it is looked for first, and gone then.
    let gone = &gone.replace("METER", "sh -c '[ ! -e asked ] && touch asked && echo 5'");
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
    assert!(why.contains("set to \"fast\", but the value in force is \"balanced\""), "{why}");
    assert_eq!(answers["measures"][0]["answers"][0]["outcome"].as_str(), Some("too_few"));
}

#[test]
fn a_full_disk_ends_it_with_settings_put_back() {
    let p = Place::new();
    p.write("e", "runs_least = 50\nruns_most = 50", "sleep 0.01", "");
    // 512-byte blocks: some lines fit, then no more. The journal is as small.
    let line = format!(
        "trap '' XFSZ; ulimit -f 24; exec {} experiment run e.toml --yes -o e.experiment",
        program::VSTEER
    );
    let mut c = Command::new("/bin/sh");
    c.args(["-c", &line])
        .current_dir(p.dir.path())
        .env(program::NO_CONFIG.0, program::NO_CONFIG.1)
        .env("VSTEER_STATE", p.path("state"));
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
    let all = |list: &str, key: &str| {
        let of = told[list].as_array().unwrap();
        !of.is_empty() && of.iter().all(|c| c[key] == true)
    };
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
    // Before it is run, too: over boots there is nobody to make one after the first.
    let early = p.run(&["experiment", "unit", "later.experiment"]);
    let said = String::from_utf8_lossy(&early.stderr).into_owned();
    assert!(early.status.success() && said.contains("run FILE -o later.experiment --yes"), "{said}");
    let text = String::from_utf8(early.stdout).unwrap();
    let folder = p.dir.path().canonicalize().unwrap().join("later.experiment");
    for line in [
        format!("ConditionPathExists={}/log.jsonl\n", folder.display()),
        format!("experiment resume {} --yes\n", folder.display()),
        "goes on with experiment later\n".to_owned(),
    ] {
        assert!(text.contains(&line), "{line} in {text}");
    }
    assert!(!p.path("later.experiment").exists());
}

#[test]
#[ignore = "needs systemd-analyze"]
fn systemd_takes_the_unit() {
    let p = Place::new();
    p.write("e", "", "true", "");
    p.json(&["experiment", "run", "e.toml", "--yes"]);
    let unit = p.run(&["experiment", "unit", "e.experiment"]).stdout;
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
    let all = here["findings"].as_array().expect("findings are a list");
    for check in vsteer_experiment::audit::CHECKS {
        assert!(all.iter().any(|f| f["check"] == check.name), "{} says nothing", check.name);
    }
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
