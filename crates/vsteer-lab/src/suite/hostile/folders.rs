//! Attacks by folders that another user owns, into which root writes or from which it removes.

use super::ground::NOBODY;
use super::{Attack, Trial};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use vsteer_core::Fault;

pub const ATTACKS: &[Attack] = &[
    Attack {
        name: "stolen recording",
        holds: "no file goes into the folder that takes its name",
        attempt: stolen,
    },
    Attack {
        name: "stolen capture",
        holds: "no file goes into the folder that takes its name",
        attempt: capture,
    },
    Attack {
        name: "stolen export",
        holds: "no file goes into the folder that takes its name",
        attempt: export,
    },
    Attack { name: "empty folder", holds: "vsteer does not use another user's folder", attempt: empty },
    Attack { name: "former recording", holds: "only recordings of root are replaced", attempt: former },
    Attack { name: "umask 0", holds: "others can write nothing that vsteer makes", attempt: umask },
    Attack { name: "name as a path", holds: "a VM's name leads out of no folder", attempt: name_as_path },
];

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> = entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Runs `words` while every name that appears in the other user's folder becomes a link to a folder of root's.
fn while_stolen(t: &mut Trial, words: &dyn Fn(&str) -> Vec<String>) -> Result<(), Fault> {
    let target = t.ground.ours.join("target");
    fs::create_dir(&target).map_err(|e| Fault::io("making a folder", &e))?;
    let thief = t.ground.nobody("steal", &[&t.ground.their("."), &target.to_string_lossy()], &[])?;
    let tries = if t.full { 20 } else { 3 };
    for n in 0..tries {
        let words = words(&t.ground.their(&format!("out-{n}")));
        t.vsteer(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
    }
    drop(thief);
    t.need(names(&target).is_empty(), format!("root wrote {:?} into its own folder", names(&target)));
    t.need(!names(&t.ground.theirs).is_empty(), "control: nothing was written at all");
    Ok(())
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

fn stolen(t: &mut Trial) -> Result<(), Fault> {
    while_stolen(t, &|out| words(&["record", "-o", out, "-i", "50ms", "--for", "400ms", "--ring", "1M"]))
}

fn capture(t: &mut Trial) -> Result<(), Fault> {
    while_stolen(t, &|out| words(&["capture", "-o", out, "--for", "100ms"]))
}

fn export(t: &mut Trial) -> Result<(), Fault> {
    let recording = t.recording()?;
    while_stolen(t, &|out| words(&["export", &recording, "--to", "csv", "-o", out]))
}

fn empty(t: &mut Trial) -> Result<(), Fault> {
    let recording = t.recording()?;
    let out = t.ground.theirs.join("out");
    let commands: [&[&str]; 4] = [
        &["capture", "--for", "100ms", "-o"],
        &["audit", "--capture"],
        &["export", &recording, "--to", "parquet", "-o"],
        &["man"],
    ];
    for command in commands {
        let _ = fs::remove_dir_all(&out);
        fs::create_dir(&out).map_err(|e| Fault::io("making a folder", &e))?;
        let _ = std::os::unix::fs::chown(&out, Some(NOBODY), Some(NOBODY));
        let path = out.to_string_lossy().into_owned();
        let ran = t.vsteer(&[command, &[&path]].concat())?;
        t.need(names(&out).is_empty(), format!("`vsteer {}` wrote {:?}", command[0], names(&out)));
        t.need(ran.code != Some(0), format!("`vsteer {}` used the folder", command[0]));
    }
    Ok(())
}

fn former(t: &mut Trial) -> Result<(), Fault> {
    let (out, former) = (t.ground.our("out"), t.ground.theirs.join("former"));
    let words = ["record", "-o", &out, "--keep-former", &former.to_string_lossy(), "--for", "300ms"]
        .map(str::to_owned);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    t.must(&words)?;
    let victims = t.ground.ours.join("victims");
    fs::create_dir(&victims)
        .and_then(|()| fs::write(victims.join("notes"), "mine"))
        .map_err(|e| Fault::io("notes", &e))?;
    // A link to root's folder, under the former name and under the name in between.
    for name in ["former", "former.old"] {
        let link = t.ground.theirs.join(name);
        let _ = symlink(&victims, &link);
        t.vsteer(&words)?;
        t.need(victims.join("notes").exists(), format!("{name} led to root's notes, which are gone"));
        let _ = fs::remove_file(&link);
    }
    // A folder with other files, and one of another user.
    let _ = fs::create_dir(&former);
    let _ = fs::write(former.join("notes"), "mine");
    let ran = t.vsteer(&words)?;
    t.need(ran.code != Some(0) && former.join("notes").exists(), "a folder without a recording was replaced");
    let _ = fs::remove_dir_all(&former);
    t.must(&words)?;
    Ok(())
}

fn umask(t: &mut Trial) -> Result<(), Fault> {
    let recording = t.recording()?;
    let (out, page, plan) = (t.ground.our("out"), t.ground.our("r.html"), t.ground.our("p.json"));
    let runs: [&[&str]; 3] = [
        &["record", "-o", &out, "--for", "300ms"],
        &["plan", &recording, "-o", &plan],
        &["report", &recording, "-o", &page],
    ];
    // A shell sets it, because it is the process's.
    for words in runs {
        let shell = ["-c", "umask 0; exec \"$@\"", "sh"];
        let ran = t.ground.under("sh", &shell, words);
        t.judged(ran)?;
    }
    // Files take the umask of who made them; a folder must not.
    let mode = fs::metadata(&out).map(|m| m.mode());
    t.need(mode.as_ref().is_ok_and(|m| m & 0o022 == 0), format!("the recording has mode {mode:?}"));
    Ok(())
}

fn name_as_path(t: &mut Trial) -> Result<(), Fault> {
    let all = ["../../../../../../tmp/pwn", "/etc/cron.d/x", ".", "..", "a/b"];
    let mut held = Vec::new();
    for name in all {
        held.push(t.ground.qemu(NOBODY, name, &["CPU 0/KVM"], &[])?);
    }
    let inside = t.ground.ours.join("inside");
    fs::create_dir(&inside).map_err(|e| Fault::io("making a folder", &e))?;
    let path = |name: &str| inside.join(name).to_string_lossy().into_owned();
    let before = names(&t.ground.ours);
    let recording = path("r");
    t.must(&["record", "-o", &recording, "--for", "300ms"])?;
    for to in ["csv", "parquet", "zip", "perfetto"] {
        t.must(&["export", &recording, "--to", to, "-o", &path(to)])?;
    }
    let captured = path("captured");
    t.must(&["capture", "-o", &captured, "--redact", "--for", "100ms"])?;
    t.need(names(&t.ground.ours) == before, "a file was written beside the folder");
    t.need(!Path::new("/tmp/pwn").exists() && !Path::new("/etc/cron.d/x").exists(), "a name was a path");
    Ok(())
}
