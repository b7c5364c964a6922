//! Does each key of the configuration change what it says, and does each source count in its turn, in the program itself?

#![cfg(feature = "host")]

mod common;
#[path = "common/program.rs"]
mod program;

use common::plan;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use vsteer_core::setting::knob::How;
use vsteer_core::thresholds::{THRESHOLDS, Thresholds, Unit};
use vsteer_record::config::{Kind, keys};

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.at(name), text).unwrap();
        self.at(name)
    }

    /// A run with this configuration.
    fn with(&self, config: &str, words: &[&str]) -> Command {
        let file = self.write("vsteer.toml", config);
        let mut c = Command::new(program::VSTEER);
        c.args(words).current_dir(self.0.path()).env("VSTEER_CONFIG", file).env_remove("VSTEER_STATE");
        c.env("XDG_STATE_HOME", self.at("home"))
            .env("TZ", "UTC")
            .env_remove("NO_COLOR")
            .env_remove("SUDO_UID");
        c
    }

    fn text(&self, config: &str, words: &[&str]) -> String {
        let out = self.with(config, words).output().unwrap();
        assert!(out.status.success(), "{words:?}: {}", said(&out));
        String::from_utf8(out.stdout).unwrap()
    }

    /// A recording of the shipped example.
    fn recording(&self) -> &'static str {
        let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/noisy-neighbour.toml");
        self.text("", &["simulate", scenario.to_str().unwrap(), "-o", "before.vsteer"]);
        "before.vsteer"
    }
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// Keys that no option has: what each changes is tested here or, for the live table, in the program's own tests.
#[test]
fn each_key_without_options_has_its_test() {
    for key in keys().iter().filter(|k| k.options.is_empty()) {
        let test = match (key.section, key.name) {
            ("thresholds", _) => "thresholds_reach_every_command_that_judges",
            ("connection", "connect") => "a_default_connection_and_names_of_hosts",
            ("paths", "state") => "journals_are_in_the_configured_folder",
            ("paths", "recordings") => "a_recording_without_a_name_goes_to_the_configured_folder",
            ("display", "time_zone") => "times_are_in_the_configured_zone",
            ("display", "colour") => "what_a_person_chooses_for_the_live_table",
            _ => panic!("nothing tests {}", key.full()),
        };
        let all = concat!(include_str!("config.rs"), include_str!("../src/view/tests.rs"));
        assert!(all.contains(&format!("fn {test}()")), "{test}");
    }
}

#[test]
fn thresholds_reach_every_command_that_judges() {
    let place = Place::new();
    let recording = place.recording();
    let findings = |config: &str, more: &[&str]| {
        let all = [&["diagnose", recording, "--json"], more].concat();
        let told: serde_json::Value = serde_json::from_str(&place.text(config, &all)).unwrap();
        told["findings"].clone()
    };
    let plain = findings("", &[]);
    let mut changed = Vec::new();
    for row in THRESHOLDS {
        let default = Thresholds::default().of(row);
        let text = row.unit.written(if row.unit == Unit::Time { default / 2.0 } else { 0.0 });
        let config = format!("[thresholds]\n{} = {text:?}\n", row.name);
        let of_file = findings(&config, &[]);
        assert_eq!(of_file, findings("", &["--threshold", &format!("{}={text}", row.name)]), "{}", row.name);
        if of_file != plain {
            changed.push((row, config));
        }
    }
    assert!(changed.len() >= 3, "{} values change what is found", changed.len());
    // What is typed counts before the file.
    let (row, config) = &changed[0];
    let typed = format!("{}={}", row.name, row.unit.written(Thresholds::default().of(row)));
    assert_eq!(findings(config, &["--threshold", &typed]), plain, "{typed}");
    // If nothing counts as a delay, there is nothing to plan.
    let nothing: String = keys()
        .iter()
        .filter_map(|key| match key.kind {
            Kind::Threshold(row) if row.name.starts_with("wake_p99") => {
                Some(format!("{} = \"3600s\"\n", row.name))
            }
            Kind::Threshold(row) if row.name.starts_with("ready") => {
                Some(format!("{} = \"9000%\"\n", row.name))
            }
            _ => None,
        })
        .collect();
    let config = format!("[thresholds]\n{nothing}");
    let steps = |config: &str| {
        let told: serde_json::Value =
            serde_json::from_str(&place.text(config, &["plan", recording, "--by", "fluid", "--json"]))
                .unwrap();
        told["steps"].as_array().unwrap().len()
    };
    assert!(steps("") > 0 && steps(&config) == 0, "{} {}", steps(""), steps(&config));
    let page = |config: &str| {
        place.text(config, &["report", recording, "-o", "report.html"]);
        std::fs::read_to_string(place.at("report.html")).unwrap()
    };
    assert!(page("").len() > page(&config).len(), "the report has fewer findings and no plan");
}

#[test]
fn a_default_connection_and_names_of_hosts() {
    let place = Place::new();
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captured/1");
    let uri = format!("tree:{}", host.canonicalize().unwrap().display());
    let config = format!("[connection]\nconnect = \"lab\"\n[hosts.lab]\nconnect = {uri:?}\n");
    let failed = |config: &str, words: &[&str]| {
        let out = place.with(config, words).output().unwrap();
        said(&out)
    };
    let rows = |config: &str, words: &[&str]| {
        let out = place.with(config, words).output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&out.stdout), said(&out))
    };
    let top = ["top", "-b", "-n", "1", "--interval", "100ms"];
    let plain = rows("", &[&top[..], &["--connect", &uri]].concat());
    // What is the same on every run: what the host is, and why it ends.
    let same = |text: &str| text.lines().filter(|l| !l.contains(',')).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(same(&rows(&config, &top)), same(&plain), "the default");
    let by_name = rows(
        &config.replace("[connection]\nconnect = \"lab\"\n", ""),
        &[&top[..], &["--connect", "lab"]].concat(),
    );
    assert_eq!(same(&by_name), same(&plain), "by its name");
    // What is typed counts first, and a URI is never a name.
    let typed = failed(&config, &[&top[..], &["--connect", "tree:gone"]].concat());
    assert!(typed.contains("gone"), "{typed}");
    // A recording is read as it is, also where the default is a service that is asked for settings.
    let recording = place.recording();
    let elsewhere = "[connection]\nconnect = \"vsphere://nobody@127.0.0.1:1\"\n";
    for command in ["diagnose", "plan", "numa"] {
        place.text(elsewhere, &[command, recording]);
    }
    place.text(elsewhere, &["numa", "--host", "2x18", "--vcpus", "4"]);
    let asked = failed(elsewhere, &["numa"]);
    assert!(asked.contains("127.0.0.1"), "{asked}");
    // A name that the file does not have is left to libvirt, which has names of its own.
    let unknown = failed(&config, &["diagnose", "--for", "100ms", "--connect", "labb"]);
    assert!(unknown.contains("has no host \"labb\"") && unknown.contains("known: lab"), "{unknown}");
}

#[test]
fn what_is_typed_says_which_certificate_to_trust() {
    let place = Place::new();
    let gone = place.at("gone.pem");
    let config = format!(
        "[hosts.esx]\nconnect = \"vsphere://root@127.0.0.1:1\"\nca = {:?}\npassword_file = {:?}\n",
        gone,
        place.write("password", "secret\n")
    );
    let out = |more: &[&str]| {
        said(&place.with(&config, &[&["numa", "--connect", "esx"], more].concat()).output().unwrap())
    };
    assert!(out(&[]).contains("gone.pem"), "{}", out(&[]));
    let typed = out(&["--thumbprint", &"ab".repeat(32)]);
    assert!(!typed.contains("gone.pem") && !typed.contains("cannot be used with"), "{typed}");
}

#[test]
fn journals_are_in_the_configured_folder() {
    let place = Place::new();
    let state = place.at("state");
    let config = format!("[paths]\nstate = {state:?}\n");
    let knob = place.write("knob", "a");
    let how = How::File { path: knob.to_str().unwrap().to_owned() };
    let text = serde_json::to_string(&plan("title", "knob", how, None, ("a", "b"))).unwrap();
    place.write("plan.json", &text);
    place.text(&config, &["apply", "plan.json", "--yes"]);
    assert_eq!(std::fs::read_to_string(&knob).unwrap().trim(), "b");
    assert_eq!(
        std::fs::read_dir(state.join("journal"))
            .unwrap()
            .filter(|e| { e.as_ref().unwrap().path().extension().is_some_and(|e| e == "journal") })
            .count(),
        1
    );
    // The variable counts before the file, and its folder has no journal.
    let other =
        place.with(&config, &["rollback", "--list"]).env("VSTEER_STATE", place.at("other")).output().unwrap();
    assert_eq!(other.status.code(), Some(3), "{}", said(&other));
    // A typo elsewhere in the file does not stop the rollback, which finds the same folder and says so.
    let typo = format!("{config}[top]\nintervall = \"2s\"\n= = =\n");
    let undone = place.with(&typo, &["rollback"]).output().unwrap();
    assert!(undone.status.success(), "{}", said(&undone));
    let told = said(&undone);
    assert!(told.contains("vsteer.toml:4:1: unknown key \"intervall\""), "{told}");
    let named = format!(
        "it looks for undo journals in {}, which {}:2 names",
        state.display(),
        place.at("vsteer.toml").display()
    );
    assert!(told.contains(&named), "{told}");
    assert_eq!(std::fs::read_to_string(&knob).unwrap().trim(), "a");
}

#[test]
fn without_a_readable_folder_a_rollback_says_that_it_takes_the_default() {
    let place = Place::new();
    let out = place.with("[paths\nstate = \"/srv/x\"\n", &["rollback", "--list"]);
    let out = { out }.env("VSTEER_STATE", "").output().unwrap();
    let told = said(&out);
    assert!(matches!(out.status.code(), Some(0 | 3)), "{told}");
    assert!(told.contains("/vsteer, the default folder; for another one, set VSTEER_STATE"), "{told}");
}

#[test]
fn a_recording_without_a_name_goes_to_the_configured_folder() {
    let place = Place::new();
    let folder = place.at("recordings");
    std::fs::create_dir(&folder).unwrap();
    // A ring may begin before there is a VM, and polling needs no privilege.
    let words = ["record", "--collector", "schedstat", "--ring", "1M", "--for", "300ms"];
    let config = format!("[paths]\nrecordings = {folder:?}\n");
    let out = place.with(&config, &words).output().unwrap();
    let told = said(&out);
    assert!(out.status.success(), "{told}");
    let names = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let made: Vec<String> = names.collect();
    assert!(made.len() == 1 && made[0].ends_with("Z.vsteer") && told.contains(&made[0]), "{made:?} {told}");
    // What is typed counts first.
    let typed = place.with(&config, &[&words[..], &["-o", "here.vsteer"]].concat()).output().unwrap();
    assert!(typed.status.success() && place.at("here.vsteer").is_dir(), "{}", said(&typed));
    let without = place.with("", &words).output().unwrap();
    assert_eq!(without.status.code(), Some(2), "{}", said(&without));
}

#[test]
fn times_are_in_the_configured_zone() {
    let place = Place::new();
    let knob = place.write("knob", "a");
    let how = How::File { path: knob.to_str().unwrap().to_owned() };
    let text = serde_json::to_string(&plan("title", "knob", how, None, ("a", "b"))).unwrap();
    place.write("plan.json", &text);
    let config = format!("[paths]\nstate = {:?}\n", place.at("state"));
    let zone = format!("{config}[display]\ntime_zone = \"Asia/Seoul\"\n");
    place.text(&config, &["apply", "plan.json", "--yes"]);
    let listed = |config: &str, tz: Option<&str>| {
        let mut c = place.with(config, &["rollback", "--list"]);
        match tz {
            Some(tz) => c.env("TZ", tz),
            None => c.env_remove("TZ"),
        };
        let out = c.output().unwrap();
        assert!(out.status.success(), "{}", said(&out));
        String::from_utf8(out.stdout).unwrap()
    };
    assert!(listed(&zone, None).contains("+09:00"), "{}", listed(&zone, None));
    assert!(listed(&zone, Some("UTC")).contains(" UTC"), "the variable counts before the file");
    place.text(&config, &["rollback"]);
}

#[test]
fn a_faulty_file_stops_all_but_what_undoes_and_explains() {
    let place = Place::new();
    let recording = place.recording();
    let faulty = "[top]\nintervall = \"2s\"\n";
    let code = |words: &[&str]| place.with(faulty, words).output().unwrap().status.code();
    for words in
        [&["diagnose", recording][..], &["topology"], &["audit"], &["config", "check"], &["config", "show"]]
    {
        assert_eq!(code(words), Some(6), "{words:?}");
    }
    let man = place.at("man");
    for words in [
        &["--help"][..],
        &["--version"],
        &["top", "--help"],
        &["man", man.to_str().unwrap()],
        &["completions", "bash"],
        &["exit-codes"],
        &["config", "example"],
        &["diagnose", recording, "--config", "none"],
    ] {
        assert_eq!(code(words), Some(0), "{words:?}");
    }
    assert_eq!(code(&["rollback", "--list"]), Some(3), "no plan is applied");
    let json = place.with(faulty, &["config", "check", "--json"]).output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json.status.code(), Some(6));
    let fault = &told["faults"][0];
    assert_eq!((fault["line"].as_u64(), fault["column"].as_u64()), (Some(2), Some(1)), "{told}");
    assert!(fault["help"].as_str().unwrap().contains("interval"), "{told}");
}

#[test]
fn the_users_file_is_read_from_its_place() {
    let place = Place::new();
    std::fs::create_dir_all(place.at("xdg/vsteer")).unwrap();
    let file = place.write("xdg/vsteer/vsteer.toml", "[top]\ninterval = \"9s\"\n");
    let run = |words: &[&str], chosen: Option<&str>| {
        let mut c = Command::new(program::VSTEER);
        c.args(words)
            .env_remove("SUDO_UID")
            .env("XDG_CONFIG_HOME", place.at("xdg"))
            .env_remove("VSTEER_CONFIG");
        if let Some(file) = chosen {
            c.env("VSTEER_CONFIG", file);
        }
        String::from_utf8(c.output().unwrap().stdout).unwrap()
    };
    let shown = run(&["config", "show"], None);
    assert!(shown.contains(&format!("interval = \"9s\"  # file {}:2", file.display())), "{shown}");
    assert!(!run(&["config", "show"], Some("none")).contains("9s"));
    assert!(!run(&["config", "show", "--config", "none"], None).contains("9s"));
    let typed = run(&["config", "show", "--", "top", "--interval", "8s"], None);
    assert!(typed.contains("interval = \"8s\"  # option --interval"), "{typed}");
    // What is shown is a configuration that says the same.
    let copy = place.write("copy.toml", &typed);
    let again = run(&["config", "show", "--config", copy.to_str().unwrap()], None);
    let values = |text: &str| {
        text.lines()
            .map(|l| l.split("  #").next().unwrap().to_owned())
            .filter(|l| !l.starts_with('#'))
            .collect::<Vec<_>>()
    };
    assert_eq!(values(&again), values(&typed));
}

/// As a user who is not root, with a system's file that only root can read. The test's own file stands for it.
#[test]
#[ignore = "needs root: it runs as another user"]
fn a_file_that_a_user_cannot_read_is_skipped_with_a_note() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let place = Place::new();
    let open =
        |name: &str, mode| std::fs::set_permissions(place.at(name), PermissionsExt::from_mode(mode)).unwrap();
    open("", 0o755);
    std::fs::create_dir_all(place.at("xdg/vsteer")).unwrap();
    place.write("xdg/vsteer/vsteer.toml", "x = 1\n");
    std::fs::copy(program::VSTEER, place.at("program")).unwrap();
    let run = || {
        let mut c = Command::new(place.at("program"));
        c.args(["config", "check"])
            .current_dir("/")
            .env("XDG_CONFIG_HOME", place.at("xdg"))
            .env_remove("VSTEER_CONFIG");
        c.uid(65_534).gid(65_534).output().unwrap()
    };
    assert_eq!(run().status.code(), Some(6), "readable and faulty: {}", said(&run()));
    for (name, mode, back) in [("xdg/vsteer/vsteer.toml", 0o600, 0o644), ("xdg/vsteer", 0o700, 0o755)] {
        open(name, mode);
        let out = run();
        assert!(
            out.status.success() && said(&out).contains("vsteer cannot read it"),
            "{name}: {}",
            said(&out)
        );
        open(name, back);
    }
}

/// No test of this folder reads the configuration of the machine.
#[test]
fn every_test_that_runs_the_program_leaves_the_machines_configuration_out() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let files = std::fs::read_dir(&folder).unwrap().chain(std::fs::read_dir(folder.join("text")).unwrap());
    for file in files.map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "rs")) {
        let name = file.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        let direct = text.contains(&["CARGO_BIN", "_EXE_vsteer"].concat());
        // That one only asks what the program is linked with.
        assert!(
            !direct || name == "needs_libc_alone.rs",
            "{name} starts the program without common/program.rs"
        );
    }
}
