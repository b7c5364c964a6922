//! Plans and experiments from somebody else: a dry run executes nothing that they name, shows what they touch, and an id
//! or a connection of theirs opens nothing.
//!
//! The plans are those of an attack on vsteer in November 2026, which ran commands as root from a dry run.

#![cfg(feature = "host")]

#[path = "common/program.rs"]
mod program;

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use vsteer_core::setting::argv::Argv;
use vsteer_core::setting::knob::How;
use vsteer_core::setting::lasting::{Element, Loader, Profile};

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut c = program::vsteer();
        c.args(words).current_dir(self.0.path()).env("VSTEER_STATE", self.path("state")).output().unwrap()
    }

    /// Did anything leave its mark?
    fn marks(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.0.path()).unwrap().map(|e| e.unwrap().file_name());
        names.map(|n| n.to_string_lossy().into_owned()).filter(|n| n.starts_with("ran")).collect()
    }

    fn plan(&self, id: Option<&str>, how: How, on: Option<&str>) -> PathBuf {
        let mut plan = common::plan("halve the wait of web-1", "huge pages", how, on, ("madvise", "never"));
        if let Some(id) = id {
            plan.id = id.to_owned();
        }
        let file = self.path("plan.json");
        std::fs::write(&file, serde_json::to_vec(&plan).unwrap()).unwrap();
        file
    }

    /// A program that leaves a mark.
    fn program(&self) -> String {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path("program");
        std::fs::write(&path, format!("#!/bin/sh\ntouch {}\n", self.path("ran").display())).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path.to_string_lossy().into_owned()
    }
}

fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

fn path(p: &Path) -> &str {
    p.to_str().unwrap()
}

#[test]
fn a_dry_run_of_a_plan_executes_nothing_and_shows_every_command_machine_and_file() {
    let p = Place::new();
    let program = p.program();
    let command = Argv::new([&program, "{level}"]).unwrap();
    let profile = |program: &str| Profile {
        name: "vsteer-x".into(),
        folder: "/etc/tuned/vsteer-x".into(),
        includes: "balanced".into(),
        settings: Vec::new(),
        program: program.into(),
    };
    for (how, on, shown) in [
        (
            How::Commands { set: command.clone(), read: command.clone() },
            None,
            format!("command: {program} never"),
        ),
        (
            How::BootLoader { names: vec!["a".into()], loader: Loader::Grubby { program: program.clone() } },
            None,
            format!("command: {program}"),
        ),
        (
            How::TunedProfile { profile: Box::new(profile(&program)) },
            None,
            format!("command: {program} profile never"),
        ),
        (
            How::File { path: "/proc/sys/x".into() },
            Some("root@other"),
            "machine: root@other, over ssh".into(),
        ),
    ] {
        let file = p.plan(None, how, on);
        let done = p.run(&["apply", path(&file)]);
        assert!(done.status.success() && text(&done).contains(&shown), "{}", text(&done));
        assert_eq!(p.marks(), [""; 0], "{}", text(&done));
        let json: serde_json::Value =
            serde_json::from_slice(&p.run(&["apply", path(&file), "--json"]).stdout).unwrap();
        assert!(json[0]["touches"].as_array().unwrap().iter().any(|t| t == &shown), "{json}");
        assert!(json[0]["unread"].is_string() && p.marks().is_empty(), "{json}");
    }
    let file = p.plan(None, How::File { path: path(&p.path("victim")).to_owned() }, None);
    std::fs::write(p.path("victim"), "madvise").unwrap();
    let done = p.run(&["apply", path(&file)]);
    assert!(text(&done).contains(&format!("file: {}", p.path("victim").display())), "{}", text(&done));
    assert_eq!(std::fs::read_to_string(p.path("victim")).unwrap(), "madvise");
}

#[test]
fn a_connection_that_a_plan_names_is_opened_only_if_the_person_typed_it() {
    let p = Place::new();
    let uri = format!("qemu+ext:///system?command={}", p.program());
    let element = Element::Pin { vm: "web-1".into(), vcpu: 0 };
    let file = p.plan(None, How::Definition { connect: uri, element }, None);
    for words in [&["apply", path(&file)][..], &["apply", path(&file), "--yes"]] {
        let done = p.run(words);
        assert_eq!(done.status.code(), Some(6), "{}", text(&done));
        assert!(
            text(&done).contains("vsteer does not open") && text(&done).contains("--trust-uri"),
            "{}",
            text(&done)
        );
    }
    assert_eq!(p.marks(), [""; 0]);
}

#[test]
fn a_plan_holds_no_shell_text() {
    let p = Place::new();
    let how = How::Commands { set: Argv::parse("a").unwrap(), read: Argv::parse("b").unwrap() };
    let file = p.plan(None, how, None);
    let plan = std::fs::read_to_string(&file).unwrap().replace("[\"b\"]", "\"touch ran; echo madvise\"");
    std::fs::write(&file, plan).unwrap();
    let done = p.run(&["apply", path(&file), "--yes"]);
    assert_eq!(done.status.code(), Some(6), "{}", text(&done));
    assert!(text(&done).contains("needs a shell"), "{}", text(&done));
    assert_eq!(p.marks(), [""; 0]);
}

#[test]
fn an_id_is_never_a_path() {
    let p = Place::new();
    std::fs::create_dir_all(p.path("state/journal")).unwrap();
    let victim = p.path("victim.journal");
    std::fs::write(&victim, "precious").unwrap();
    let outside = path(&p.path("victim")).to_owned();
    for id in [outside.as_str(), "../../victim", "", "a/b", ".", "a\nb"] {
        let file = p.plan(Some(id), How::File { path: "/proc/sys/vm/swappiness".into() }, None);
        for words in
            [&["apply", path(&file), "--confirm"][..], &["apply", path(&file), "--yes"], &["rollback", id]]
        {
            let done = p.run(words);
            assert_eq!(done.status.code(), Some(6), "{id:?}: {words:?}: {}", text(&done));
        }
    }
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
}

#[test]
fn a_dry_run_of_an_experiment_executes_nothing_and_shows_every_command() {
    let p = Place::new();
    let program = p.program();
    let file = format!(
        "name = \"e\"\ndesign = \"pair\"\n[workload]\nprepare = \"{program} prepare\"\ncommand = \"{program}\"\n\
         [[measure]]\nname = \"watts\"\nof = {{ idle_watts = {{ meter = \"{program} watts\" }} }}\n\
         [[measure]]\nname = \"time\"\nof = \"time\"\n\
         [[factor]]\nname = \"f\"\nlevels = [\"a\", \"b\"]\nset = [\"{program}\", \"{{level}}\"]\nread = \"{program} read\"\n"
    );
    // The first measure cannot be a power meter's.
    let file = file.replacen(
        "[[measure]]\nname = \"watts\"",
        "[[measure]]\nname = \"time\"\nof = \"time\"\n[[measure]]\nname = \"watts\"",
        1,
    );
    let file = file.replacen("[[measure]]\nname = \"time\"\nof = \"time\"\n[[factor]]", "[[factor]]", 1);
    std::fs::write(p.path("e.toml"), &file).unwrap();
    let done = p.run(&["experiment", "run", "e.toml"]);
    let shown = text(&done);
    assert!(done.status.success(), "{shown}");
    for line in ["prepare", "read", "{level}", "watts"] {
        assert!(shown.contains(&format!("{program} {line}")), "{line}: {shown}");
    }
    assert!(shown.contains("not read, because a dry run"), "{shown}");
    assert_eq!(p.marks(), [""; 0]);

    let uri = format!("qemu+ext:///system?command={program}");
    std::fs::write(p.path("e.toml"), format!("connect = \"{uri}\"\n{file}")).unwrap();
    for words in [&["experiment", "run", "e.toml"][..], &["experiment", "run", "e.toml", "--yes"]] {
        let done = p.run(words);
        assert_eq!(done.status.code(), Some(6), "{}", text(&done));
    }
    assert_eq!(p.marks(), [""; 0]);
}

#[test]
fn a_zip_of_a_recording_has_only_what_a_recording_is_made_of() {
    let p = Place::new();
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/noisy-neighbour.toml");
    assert!(p.run(&["simulate", scenario, "--set", "for=2s", "-o", "r.vsteer"]).status.success());
    std::fs::write(p.path("secret"), "precious").unwrap();
    std::os::unix::fs::symlink(p.path("secret"), p.path("r.vsteer/notes.txt")).unwrap();
    std::os::unix::fs::symlink(p.path("secret"), p.path("r.vsteer/thread-0099.arrows")).unwrap();
    std::fs::write(p.path("r.vsteer/password"), "precious").unwrap();
    let done = p.run(&["export", "r.vsteer", "--to", "zip", "-o", "r.zip"]);
    assert!(done.status.success(), "{}", text(&done));
    let packed = std::fs::read(p.path("r.zip")).unwrap();
    let has = |word: &str| packed.windows(word.len()).any(|w| w == word.as_bytes());
    assert!(has("r.vsteer/manifest.json") && has("r.vsteer/thread-0001.arrows"));
    assert!(!has("notes.txt") && !has("password") && !has("thread-0099"));
}

/// 700 kB of gzip that took 1 GB of memory: a header that never ends, a header of nothing but columns, and rows.
#[test]
fn a_small_compressed_file_does_not_take_much_memory() {
    use std::io::Write;
    const HEADER: &str = "\"(PDH-CSV 4.0) (UTC)(0)\"";
    let vm = format!("{HEADER},\"\\\\h\\Group Cpu(7:web)\\% Run\"\r\n");
    let row = |text: &str| format!("{vm}\"11/24/2026 08:00:00\",\"1\"\r\n{text}");
    let p = Place::new();
    for (name, head, filling, says) in [
        ("endless", format!("{HEADER},\"\\\\h\\"), "a", "a row exceeds 32 MiB"),
        ("columns", HEADER.to_owned(), ",a", "the header names over 500000 columns"),
        ("rows", row(""), "\r\n", "grow to more than 500 times their size"),
        ("row", row("\"11/24/2026 08:00:05\""), ",\"1\"", "a row exceeds 32 MiB"),
    ] {
        let file = p.path(&format!("{name}.csv.gz"));
        let to = std::fs::File::create(&file).unwrap();
        let mut gz = flate2::write::GzEncoder::new(to, flate2::Compression::best());
        gz.write_all(head.as_bytes()).unwrap();
        let block = filling.repeat((1 << 20) / filling.len());
        (0..match name {
            "columns" => 2,
            "rows" => 80,
            _ => 40,
        })
            .for_each(|_| gz.write_all(block.as_bytes()).unwrap());
        gz.finish().unwrap();
        assert!(std::fs::metadata(&file).unwrap().len() < 1 << 20);
        // Kilobytes of address space: without the limits, vsteer ends here for lack of memory.
        let line = format!("ulimit -v 400000; exec {} replay {name}.csv.gz", program::VSTEER);
        let done = Command::new("sh")
            .args(["-c", &line])
            .env(program::NO_CONFIG.0, program::NO_CONFIG.1)
            .current_dir(p.0.path())
            .output()
            .unwrap();
        let shown = text(&done);
        assert_eq!(done.status.code(), Some(6), "{name}: {shown}");
        assert!(shown.contains(&format!("{name}.csv.gz")) && shown.contains(says), "{name}: {shown}");
        assert!(shown.contains("help:"), "{name}: {shown}");
    }
}

#[test]
fn an_experiments_folder_of_somebody_elses_and_its_links_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let p = Place::new();
    std::fs::write(p.path("victim"), "precious").unwrap();
    std::fs::write(
        p.path("e.toml"),
        "name = \"e\"\ndesign = \"pair\"\n[workload]\ncommand = \"true {f}\"\n[[factor]]\nname = \"f\"\nlevels = [\"a\", \"b\"]\n",
    )
    .unwrap();
    let folder = p.path("e.experiment");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
    let refused = p.run(&["experiment", "run", "e.toml", "--yes"]);
    assert!(
        refused.status.code() == Some(4) && text(&refused).contains("others may write it"),
        "{}",
        text(&refused)
    );
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink(p.path("victim"), folder.join("run-00000.out")).unwrap();
    std::os::unix::fs::symlink(p.path("victim"), folder.join("run-00001.err")).unwrap();
    let done = p.run(&["experiment", "run", "e.toml", "--yes"]);
    assert!(done.status.success(), "{}", text(&done));
    assert_eq!(std::fs::read_to_string(p.path("victim")).unwrap(), "precious");
}

#[test]
fn names_and_values_from_files_do_not_act_on_the_terminal() {
    let p = Place::new();
    let evil = "\u{1b}]0;pwned\u{7}\u{202e}\u{9b}2J";
    let file = p.plan(None, How::File { path: format!("/proc/sys/{evil}") }, Some("root@other"));
    let plan = std::fs::read_to_string(&file).unwrap();
    let plan =
        plan.replace("halve the wait of web-1", "\\u001b[31mtitle").replace("huge pages", "\\u001b[2Kpages");
    let lines = "\"irreversible\":[\"\\u001b]2;irr\\u0007\"],\"contested\":[\"\\u001b]2;con\\u0007\"]";
    std::fs::write(&file, plan.replace("\"irreversible\":[]", lines)).unwrap();
    for words in
        [&["apply", path(&file)][..], &["apply", "\u{1b}[2Jnone.json"], &["diagnose", "\u{1b}[2Jnone"]]
    {
        let shown = text(&p.run(words));
        let acts = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!shown.chars().any(acts), "{shown:?}");
    }
    let shown = text(&p.run(&["apply", path(&file)]));
    assert!(shown.contains("may not last: \\u{1b}]2;con"), "{shown}");
}

#[test]
fn a_file_that_a_plan_names_neither_blocks_nor_fills_the_memory() {
    let p = Place::new();
    let pipe = p.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::write(p.path("large"), vec![b'x'; 5 << 20]).unwrap();
    for name in [path(&pipe), "/dev/zero", path(&p.path("large"))] {
        let file = p.plan(None, How::File { path: name.to_owned() }, None);
        for words in [&["apply", path(&file)][..], &["apply", path(&file), "--yes"]] {
            let done = p.run(words);
            assert!(!done.status.success() && text(&done).contains(name), "{}", text(&done));
        }
    }
}

#[test]
fn state_is_private_whatever_the_umask() {
    use std::os::unix::fs::PermissionsExt;
    let p = Place::new();
    for name in ["one", "two"] {
        std::fs::write(p.path(name), "madvise").unwrap();
        let file = p.plan(Some(name), How::File { path: path(&p.path(name)).to_owned() }, None);
        let line = format!("umask 0; exec {} apply {} --yes", program::VSTEER, path(&file));
        let mut c = Command::new("sh");
        let done = c
            .args(["-c", &line])
            .env(program::NO_CONFIG.0, program::NO_CONFIG.1)
            .env("VSTEER_STATE", p.path("state"))
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", text(&done));
    }
    let mode = |p: &Path| std::fs::metadata(p).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&p.path("state/journal")), 0o700);
    for entry in std::fs::read_dir(p.path("state/journal")).unwrap().map(|e| e.unwrap().path()) {
        assert_eq!(mode(&entry), 0o600, "{}", entry.display());
    }
    assert!(p.run(&["rollback"]).status.success());
}
