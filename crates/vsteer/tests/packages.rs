//! Does what packages and `make install` bring fit the program: units, scripts of packages, lists of files?

#![cfg(feature = "host")]

#[path = "common/program.rs"]
mod program;

mod common;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use vsteer_act::{Entry, Journal};
use vsteer_core::setting::knob::How;
use vsteer_host::actuate::Former;
use vsteer_record::applied::ROOTS_JOURNALS;

use program::VSTEER;
const PACKAGES: [&str; 3] = ["vsteer", "vsteer-display", "vsteer-lab"];

fn project(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(project(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// File names and texts of all units.
fn units() -> Vec<(String, String)> {
    let names = std::fs::read_dir(project("packaging")).unwrap().map(|e| e.unwrap().file_name());
    let names = names.map(|n| n.into_string().unwrap()).filter(|n| n.ends_with(".service"));
    let all: Vec<_> = names.map(|n| (n.clone(), read(&format!("packaging/{n}")))).collect();
    assert!(all.len() >= 2, "{} units", all.len());
    all
}

/// The values of a setting in a unit.
fn values<'a>(unit: &'a str, setting: &'a str) -> impl Iterator<Item = &'a str> {
    unit.lines().filter_map(move |l| l.strip_prefix(setting)?.strip_prefix('='))
}

/// Words of a command line as systemd splits it: blanks, single quotes, `%%`, and `%i` for an instance called `web`.
fn words(line: &str) -> Vec<String> {
    let (mut all, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => all.push(String::new()),
            c => all.last_mut().unwrap().push(c),
        }
    }
    assert!(!quoted, "{line}");
    all.into_iter().map(|w| w.replace("%%", "\0").replace("%i", "web").replace('\0', "%")).collect()
}

#[test]
fn the_program_accepts_the_command_lines_of_units() {
    for (name, unit) in units() {
        let line = values(&unit, "ExecStart").next().unwrap_or_else(|| panic!("{name} starts nothing"));
        let words = words(line);
        if words == ["/usr/bin/vsteer-serve"] {
            // All of its options come from vsteer.toml, which its own tests read.
            continue;
        }
        assert_eq!(words[0], "/usr/bin/vsteer", "{name}");
        // clap reads from left to right: it comes to the last option only when those before it are right.
        let out = program::vsteer().args(&words[1..]).arg("--no-such-option").output().unwrap();
        let told = String::from_utf8_lossy(&out.stderr);
        assert!(told.contains("unexpected argument '--no-such-option'"), "{name}: {told}");
    }
}

/// `systemctl clean --what=state` removes a unit's state folders. Without a journal nobody can undo a plan.
#[test]
fn no_unit_owns_the_undo_journals() {
    let journals = Path::new(ROOTS_JOURNALS);
    for (name, unit) in units() {
        let owned: Vec<PathBuf> = values(&unit, "StateDirectory")
            .flat_map(|v| v.split(' '))
            .map(|folder| Path::new("/var/lib").join(folder))
            .collect();
        assert!(!owned.iter().any(|of| journals.starts_with(of)), "{name} owns {owned:?}");
        let command = words(values(&unit, "ExecStart").next().unwrap());
        let written = command.iter().filter(|w| w.starts_with("/var/lib/")).map(Path::new);
        for path in written {
            assert!(owned.iter().any(|of| path.starts_with(of)), "{name} writes {path:?}, owns {owned:?}");
        }
        // What changes VMs must be able to write a journal.
        if command[0] == "/usr/bin/vsteer" && command[1] != "record" {
            let mut may = values(&unit, "ReadWritePaths").flat_map(|v| v.split(' '));
            assert!(may.any(|of| journals.starts_with(of)), "{name} cannot write {journals:?}");
            let made = read("packaging/tmpfiles.conf");
            let mut made = made.lines().filter_map(|l| l.strip_prefix("d ")?.split(' ').next());
            assert!(made.any(|of| journals.starts_with(of)), "nothing makes the folder that {name} writes");
        }
    }
}

#[test]
#[ignore = "needs systemd-analyze, which tools/install-missing.sh test installs"]
fn systemd_accepts_the_units_and_finds_them_confined() {
    let dir = tempfile::tempdir().unwrap();
    for (name, unit) in units() {
        let file = dir.path().join(&name);
        // systemd looks for the program. `cargo test` of this crate builds no service, so another one stands in.
        std::fs::write(
            &file,
            unit.replace("/usr/bin/vsteer-serve", "/bin/true").replace("/usr/bin/vsteer", VSTEER),
        )
        .unwrap();
        let verified =
            Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output().unwrap();
        let told = String::from_utf8_lossy(&verified.stderr);
        // It also names what is wrong with this machine's other units.
        let stem = name.split(['.', '@']).next().unwrap();
        assert!(!told.lines().any(|l| l.contains(stem)), "{told}");
        // Exposure of 3.0 of 10 at most; without hardening it is 9.6.
        let security = Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--threshold=30"])
            .arg(&file)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&security.stdout);
        assert!(told.contains("exposure level"), "{security:?}");
        assert!(security.status.success(), "{name}: {}", told.lines().last().unwrap_or_default());
    }
}

/// Programs for `tools/install.sh`: the one under test, and some program in place of those that are built apart.
fn programs(dir: &Path) -> PathBuf {
    let folder = dir.join("programs");
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(VSTEER, folder.join("vsteer")).unwrap();
    for name in ["vsteer-libvirt", "vsteer-serve", "vsteer-display", "vsteer-lab", "vsteer-guest"] {
        std::fs::copy("/bin/true", folder.join(name)).unwrap();
    }
    folder
}

fn install(dir: &Path, programs: &Path, prefix: &str, words: &[&str]) -> Output {
    Command::new(project("tools/install.sh"))
        .args(words)
        .env("DESTDIR", dir)
        .env("PREFIX", prefix)
        .env("VSTEER_PROGRAMS", programs)
        .env("VSTEER_GUEST_PROGRAM", programs.join("vsteer-guest"))
        .output()
        .unwrap()
}

/// Files beneath a folder, from there on.
fn files(root: &Path) -> BTreeSet<String> {
    let (mut found, mut open) = (BTreeSet::new(), vec![root.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().map(|e| e.unwrap().path()) {
            if entry.is_dir() {
                open.push(entry);
            } else {
                found.insert(entry.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found
}

#[test]
fn make_install_puts_the_prefix_into_units_and_uninstall_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let programs = programs(dir.path());
    let root = dir.path().join("root");
    let done = install(&root, &programs, "/opt/vsteer", &["install", "vsteer"]);
    assert!(done.status.success(), "{done:?}");
    let there = files(&root);
    for file in [
        "bin/vsteer",
        "share/man/man1/vsteer-top.1.gz",
        "share/zsh/site-functions/_vsteer",
        "share/doc/vsteer/docs/runbooks/flight-recorder.md",
    ] {
        assert!(there.contains(&format!("opt/vsteer/{file}")), "{file}: {there:?}");
    }
    for (name, unit) in units() {
        let file = root.join("opt/vsteer/lib/systemd/system").join(&name);
        let installed = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(unit.contains("ExecStart=/usr/bin/vsteer"), "{name}");
        assert!(installed.contains("ExecStart=/opt/vsteer/bin/vsteer"), "{name}");
        assert!(!installed.contains("/usr/"), "{name}");
        let page = values(&installed, "Documentation").next().unwrap().strip_prefix("file:/").unwrap();
        assert!(root.join(page).is_file(), "{name} names {page}");
    }
    let mut links = 0;
    for page in there.iter().filter(|f| f.starts_with("opt/vsteer/share/doc/") && f.ends_with(".md")) {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for target in targets.filter(|t| !t.is_empty() && !t.contains(':')) {
            let to = root.join(page).parent().unwrap().join(target);
            assert!(to.exists(), "{page} links to {target}, which is not installed");
            links += 1;
        }
    }
    assert!(links > 30, "{links} links between installed pages");
    let program = Command::new(root.join("opt/vsteer/bin/vsteer")).arg("--version").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&program.stdout), format!("vsteer {}\n", env!("CARGO_PKG_VERSION")));
    // A file of somebody else stays, and its folder.
    std::fs::write(root.join("opt/vsteer/bin/other"), "").unwrap();
    let done = install(&root, &programs, "/opt/vsteer", &["uninstall"]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(files(&root), BTreeSet::from(["opt/vsteer/bin/other".to_owned()]));
    assert!(!root.join("opt/vsteer/share").exists());
    let refused = install(&root, &programs, "/opt/vsteer", &["uninstall"]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
}

#[test]
fn make_install_keeps_a_configuration_that_is_there_or_was_changed() {
    let dir = tempfile::tempdir().unwrap();
    let programs = programs(dir.path());
    let root = dir.path().join("root");
    let config = root.join("etc/vsteer/vsteer.toml");
    let done = install(&root, &programs, "/a", &["install", "vsteer"]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), read("packaging/vsteer.toml"));
    let list = std::fs::read_to_string(root.join("a/share/vsteer/installed")).unwrap();
    assert!(list.lines().any(|l| l == "/etc/vsteer/vsteer.toml"), "{list}");
    // Changed: a second install and the uninstall keep it.
    std::fs::write(&config, "[top]\n").unwrap();
    let again = install(&root, &programs, "/a", &["install", "vsteer"]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("stays as it is"), "{again:?}");
    let gone = install(&root, &programs, "/a", &["uninstall"]);
    assert!(String::from_utf8_lossy(&gone.stdout).contains("/etc/vsteer/vsteer.toml stays"), "{gone:?}");
    assert_eq!(files(&root), BTreeSet::from(["etc/vsteer/vsteer.toml".to_owned()]));
    // One of somebody else is never listed.
    let done = install(&root, &programs, "/a", &["install", "vsteer"]);
    assert!(done.status.success());
    let list = std::fs::read_to_string(root.join("a/share/vsteer/installed")).unwrap();
    assert!(!list.contains("/etc/"), "{list}");
}

#[test]
fn the_package_has_the_configuration_as_such() {
    let description = read("packaging/vsteer.yaml");
    let line = description.lines().find(|l| l.contains("dst: /etc/vsteer/vsteer.toml")).unwrap();
    assert!(line.contains("src: packaging/vsteer.toml") && line.contains("type: config|noreplace"), "{line}");
    let example = program::vsteer().args(["config", "example"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&example.stdout), read("packaging/vsteer.toml"));
}

/// Values of `src:` in a package's description.
fn sources(description: &str) -> Vec<String> {
    let named = description.lines().filter_map(|l| l.split_once("src: "));
    let named =
        named.map(|(_, rest)| rest.split([',', '}']).next().unwrap().trim().trim_matches('"').to_owned());
    named.collect()
}

#[test]
fn packages_name_what_is_there_or_is_installed() {
    for name in PACKAGES {
        let dir = tempfile::tempdir().unwrap();
        let programs = programs(dir.path());
        let root = dir.path().join("root");
        let done = install(&root, &programs, "/usr", &["install", name]);
        assert!(done.status.success(), "{name}: {done:?}");
        let description = read(&format!("packaging/{name}.yaml"));
        assert!(description.contains(&format!("\nname: {name}\n")), "{name}");
        // tools/packages.sh reads it in Cargo.toml, and compares it with what the program says.
        assert!(description.contains("\nversion: ${VSTEER_VERSION}\n"), "{name}");
        let there = files(&root);
        let mut packed = BTreeSet::new();
        let all = sources(&description);
        assert!(all.len() >= 3, "{name}: {all:?}");
        for source in all {
            let Some(made) = source.strip_prefix(&format!("target/packages/root/{name}/")) else {
                assert!(project(&source).is_file(), "{name}: {source} does not exist");
                continue;
            };
            let (before, after) = made.split_once('*').unwrap_or((made, ""));
            let of: Vec<&String> =
                there.iter().filter(|f| f.starts_with(before) && f.ends_with(after)).collect();
            assert!(!of.is_empty(), "{name}: tools/install.sh does not install {made}");
            packed.extend(of.into_iter().cloned());
        }
        // What `make install` keeps to uninstall, and the configuration, which a package has from the source.
        let apart = ["usr/share/vsteer/installed", "usr/share/vsteer/vsteer.toml", "etc/vsteer/vsteer.toml"];
        let left: Vec<_> = there.difference(&packed).filter(|f| !apart.contains(&f.as_str())).collect();
        assert!(left.is_empty(), "{name} lacks {left:?}");
        for script in
            description.lines().filter_map(|l| l.split_once("remove: ").or(l.split_once("install: ")))
        {
            let mode = project(script.1.trim()).metadata().map(|of| of.permissions().mode());
            assert!(mode.is_ok_and(|m| m & 0o111 != 0), "{name}: {}", script.1);
        }
    }
}

/// Runs a script of the package with the program under test, without systemd.
fn script(dir: &Path, name: &str, words: &[&str]) -> Output {
    let text = read(&format!("packaging/{name}"));
    assert!(text.contains("unset VSTEER_STATE VSTEER_CONFIG\n"), "only the package's own journals count");
    let text = text.replace("/usr/bin/vsteer", VSTEER).replace("unset VSTEER_STATE VSTEER_CONFIG\n", "");
    let text = text.replace("command -v systemctl", "false").replace("/run/systemd/system", "/nonexistent");
    Command::new("sh")
        .args(["-c", &text, name])
        .args(words)
        .env("VSTEER_STATE", dir.join("state"))
        .env(program::NO_CONFIG.0, program::NO_CONFIG.1)
        .output()
        .unwrap()
}

#[test]
fn a_removal_is_refused_while_a_plan_is_applied() {
    let dir = tempfile::tempdir().unwrap();
    let remove = |words: &[&str]| script(dir.path(), "preremove.sh", words);
    assert!(remove(&["remove"]).status.success());
    let knob = dir.path().join("knob");
    std::fs::write(&knob, "b").unwrap();
    let how = How::File { path: knob.to_str().unwrap().to_owned() };
    let plan = common::plan("title", "knob", how, None, ("a", "b"));
    let mut journal = Journal::begin(&dir.path().join("state/journal"), &plan, None, 1).unwrap();
    let former = Former { live: Some(plan.steps[0].change.clone()), ..Former::default() };
    // Also of a plan that was not finished: a killed apply, or `steer`.
    journal.write(Entry::Intent { step: 0, former: Box::new(former) }).unwrap();
    drop(journal);
    for words in [["remove"], ["0"]] {
        let refused = remove(&words);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{words:?}: {told}");
        assert!(told.contains(&plan.id) && told.contains("vsteer rollback"), "{told}");
    }
    for words in [["upgrade"], ["1"]] {
        assert!(remove(&words).status.success(), "{words:?}");
    }
    let undone =
        program::vsteer().arg("rollback").env("VSTEER_STATE", dir.path().join("state")).output().unwrap();
    assert!(undone.status.success(), "{undone:?}");
    assert!(remove(&["remove"]).status.success());
}

#[test]
fn a_purge_keeps_journals_of_a_plan_that_is_not_undone() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    // The script as it is, with the folders of this test in place of the host's.
    let text = read("packaging/postremove.sh").replace("/run/systemd/system", "/nonexistent");
    let text = text.replace("/var/lib/", &format!("{}/lib/", dir.path().display()));
    let text = text.replace("/etc/", &format!("{}/etc/", dir.path().display()));
    assert!(!text.contains(" /var") && !text.contains(" /etc"), "{text}");
    let purge = || Command::new("sh").args(["-c", &text, "postremove.sh", "purge"]).output().unwrap();
    for folder in ["lib/vsteer", "lib/vsteer-record", "etc/vsteer"] {
        std::fs::create_dir_all(at(folder)).unwrap();
    }
    let how = How::File { path: "knob".into() };
    let plan = common::plan("title", "knob", how, None, ("a", "b"));
    let mut journal = Journal::begin(&at("lib/vsteer/journal"), &plan, None, 1).unwrap();
    let kept = purge();
    assert!(kept.status.success(), "{kept:?}");
    assert!(String::from_utf8_lossy(&kept.stderr).contains(&plan.id), "{kept:?}");
    assert!(
        at("lib/vsteer/journal").exists() && !at("etc/vsteer").exists() && !at("lib/vsteer-record").exists()
    );
    journal.write(Entry::RolledBack).unwrap();
    drop(journal);
    assert!(purge().status.success());
    assert!(!at("lib/vsteer").exists());
}
