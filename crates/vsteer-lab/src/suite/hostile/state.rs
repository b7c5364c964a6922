//! Attacks on what makes root act: journals, plans, experiments, and connections to other hosts.

use super::ground::NOBODY;
use super::{Attack, Trial};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use vsteer_core::Fault;
use vsteer_core::forecast::Forecast;
use vsteer_core::nouns::{HostConfig, VmId};
use vsteer_core::plan::Plan;
use vsteer_core::setting::argv::Argv;
use vsteer_core::setting::knob::{How, Knob};
use vsteer_core::setting::{Change, HostKnob, Scope, Step};
use vsteer_core::topology::{Parts, Topology};

pub const ATTACKS: &[Attack] = &[
    Attack { name: "locked journal", holds: "nobody can hold off an undo", attempt: locked },
    Attack { name: "state at umask 0", holds: "journals are 0600 in folders 0700", attempt: modes },
    Attack {
        name: "foreign journal",
        holds: "a rollback obeys root's journals alone",
        attempt: foreign_journal,
    },
    Attack {
        name: "weak folder above",
        holds: "state under a folder that anyone may change is refused",
        attempt: weak_above,
    },
    Attack { name: "odd SUDO_UID", holds: "a number that is none names nobody", attempt: sudo },
    Attack {
        name: "state is something else",
        holds: "a pipe or link in its place hangs nothing",
        attempt: odd_state,
    },
    Attack {
        name: "setting becomes a link",
        holds: "apply and rollback do not follow it",
        attempt: setting_link,
    },
    Attack { name: "plan changes", holds: "what is read once is what is applied", attempt: plan_changes },
    Attack { name: "foreign experiment", holds: "its commands do not run", attempt: experiment },
    Attack { name: "links in an experiment", holds: "root's files stay", attempt: experiment_links },
    Attack { name: "ssh", holds: "its control socket lies in a folder of root's alone", attempt: ssh },
];

/// A plan that sets one setting of this host.
fn plan(t: &Trial, how: How, (from, to): (&str, &str)) -> Result<String, Fault> {
    let cpus = || "0-1".parse().expect("a list of pCPUs");
    let parts = Parts { present: cpus(), online: cpus(), allowed: cpus(), ..Parts::default() };
    let host = HostConfig::new(
        "host",
        "6.1",
        Topology::new(parts).map_err(|e| Fault::io(e.to_string(), &std::io::Error::other("topology")))?,
    );
    let knob = Box::new(Knob { name: "setting".into(), how, on: None });
    let change = Change::Knob(HostKnob { knob, from: from.into(), to: to.into() });
    let step =
        Step { vm: VmId("knob:setting".into()), vm_name: "host".into(), change, reason: String::new() };
    let forecast = Forecast { method: "none".into(), vms: Vec::new() };
    let plan = Plan::new(host, "a plan".into(), vec![step], Scope::Live, forecast);
    let path = t.ground.our("plan.json");
    let text = serde_json::to_vec(&plan).expect("a plan is plain data");
    fs::write(&path, text).map_err(|e| Fault::io("writing a plan", &e))?;
    Ok(path)
}

/// A setting of the host: a file of root's with the value 1, and a plan that sets it to 2.
fn setting(t: &Trial) -> Result<(String, String), Fault> {
    let file = t.ground.our("setting");
    fs::write(&file, "1").map_err(|e| Fault::io("writing a setting", &e))?;
    Ok((plan(t, How::File { path: file.clone() }, ("1", "2"))?, file))
}

fn journals(state: &Path) -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(state).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { all.extend(journals(&path)) } else { all.push(path) }
    }
    all
}

fn value(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default().trim().to_owned()
}

fn locked(t: &mut Trial) -> Result<(), Fault> {
    let (plan, file) = setting(t)?;
    t.must(&["apply", &plan, "--yes"])?;
    t.need(value(&file) == "2", "control: the setting was not changed");
    let state = t.ground.ours.join("state");
    let mut held = Vec::new();
    for path in journals(&state) {
        held.push(t.ground.nobody("flock", &[&path.to_string_lossy()], &[])?);
    }
    t.need(!held.is_empty(), "control: there is no journal");
    let ran = t.must(&["rollback"])?;
    t.need(value(&file) == "1" && ran.took.as_secs() < 5, "the undo was held off");
    Ok(())
}

fn modes(t: &mut Trial) -> Result<(), Fault> {
    let (plan, _) = setting(t)?;
    let ran = t.ground.under("sh", &["-c", "umask 0; exec \"$@\"", "sh"], &["apply", &plan, "--yes"]);
    t.judged(ran)?;
    let state = t.ground.ours.join("state");
    let all = journals(&state);
    t.need(!all.is_empty(), "control: there is no journal");
    for path in all.iter().chain([&state]) {
        let mode = fs::metadata(path).map_or(0, |m| m.mode()) & 0o777;
        t.need(mode & 0o077 == 0, format!("{} has mode {mode:o}", path.display()));
    }
    t.must(&["rollback"])?;
    Ok(())
}

/// Root applies a plan whose undoing runs a command; then the whole state belongs to the other user.
fn foreign_state(t: &mut Trial) -> Result<std::path::PathBuf, Fault> {
    let marker = t.ground.our("ran");
    let set = Argv::new(["touch", &marker]);
    let set = set.map_err(|why| Fault::io(why.to_string(), &std::io::Error::other("a command")))?;
    let read = Argv::new(["echo", "1"])
        .map_err(|why| Fault::io(why.to_string(), &std::io::Error::other("a command")))?;
    let plan = plan(t, How::Commands { set, read }, ("1", "2"))?;
    t.vsteer(&["apply", &plan, "--yes"])?;
    let _ = fs::remove_file(&marker);
    let (state, moved) = (t.ground.ours.join("state"), t.ground.theirs.join("state"));
    let _ = fs::rename(&state, &moved);
    for path in journals(&moved).iter().chain([&moved]) {
        let _ = chown(path, Some(NOBODY), Some(NOBODY));
    }
    t.need(!journals(&moved).is_empty(), "control: there is no journal");
    Ok(moved)
}

fn foreign_journal(t: &mut Trial) -> Result<(), Fault> {
    let moved = foreign_state(t)?;
    t.ground.env.push(("VSTEER_STATE".to_owned(), moved.to_string_lossy().into_owned()));
    let ran = t.vsteer(&["rollback"])?;
    t.need(ran.code == Some(4), format!("rollback took it: {:?}: {}", ran.code, ran.said()));
    Ok(())
}

fn sudo(t: &mut Trial) -> Result<(), Fault> {
    let moved = foreign_state(t)?;
    t.ground.env.push(("VSTEER_STATE".to_owned(), moved.to_string_lossy().into_owned()));
    for uid in ["65534x", "-1", "4294967295", "4294967296", " 65534", "+65534", "", "0"] {
        let ran = t.ground.vsteer_with(&["rollback"], |c| {
            c.env("SUDO_UID", uid).env("SUDO_USER", "../theirs");
        });
        let ran = t.judged(ran)?;
        t.need(ran.code == Some(4), format!("SUDO_UID={uid:?}: rollback ended with {:?}", ran.code));
    }
    Ok(())
}

fn weak_above(t: &mut Trial) -> Result<(), Fault> {
    let (plan, file) = setting(t)?;
    let weak = t.ground.ours.with_file_name("weak");
    let state = weak.join("a/b");
    fs::create_dir_all(&state).map_err(|e| Fault::io("making a folder", &e))?;
    for (path, mode) in [(&weak, 0o777), (&weak.join("a"), 0o700), (&state, 0o700)] {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(mode));
    }
    let link = t.ground.theirs.join("link");
    let _ = symlink(t.ground.ours.join("state"), &link);
    let _ = chown(&weak, Some(0), Some(0));
    for state in
        [state.to_string_lossy().into_owned(), link.to_string_lossy().into_owned(), t.ground.their("new")]
    {
        t.ground.env = vec![("VSTEER_STATE".to_owned(), state.clone())];
        let ran = t.vsteer(&["apply", &plan, "--yes"])?;
        t.need(ran.code != Some(0) && value(&file) == "1", format!("vsteer kept its state in {state}"));
    }
    Ok(())
}

fn odd_state(t: &mut Trial) -> Result<(), Fault> {
    let (plan, file) = setting(t)?;
    let state = t.ground.ours.join("state");
    let pipe = |at: &Path| {
        let made = rustix::fs::mknodat(rustix::fs::CWD, at, rustix::fs::FileType::Fifo, 0o600.into(), 0);
        made.map_err(|e| Fault::io("making a pipe", &e.into()))
    };
    pipe(&state)?;
    for words in [vec!["apply", &plan, "--yes"], vec!["rollback"]] {
        let ran = t.vsteer(&words)?;
        t.need(ran.code != Some(0) && value(&file) == "1", "a pipe serves as the state folder");
    }
    let _ = fs::remove_file(&state);
    t.must(&["apply", &plan, "--yes"])?;
    t.must(&["rollback"])?;
    // Every file of the state is a pipe.
    for path in journals(&state) {
        let _ = fs::remove_file(&path);
        pipe(&path)?;
    }
    t.vsteer(&["rollback"])?;
    t.vsteer(&["apply", &plan, "--yes"])?;
    Ok(())
}

fn setting_link(t: &mut Trial) -> Result<(), Fault> {
    let (file, victim) = (t.ground.give("setting", "1")?, t.ground.our("victim"));
    let plan = plan(t, How::File { path: file.clone() }, ("1", "2"))?;
    t.must(&["apply", &plan])?;
    let swap = || {
        let _ = fs::remove_file(&file);
        let _ = symlink(&victim, &file);
    };
    swap();
    t.vsteer(&["apply", &plan, "--yes"])?;
    let _ = fs::remove_file(&file);
    t.ground.give("setting", "1")?;
    t.vsteer(&["apply", &plan, "--yes"])?;
    swap();
    t.vsteer(&["rollback"])?;
    t.vsteer(&["rollback", "--force"])?;
    let other = t.ground.their("other");
    let _ = fs::remove_file(&file);
    t.ground.give("setting", "1")?;
    let _ = symlink(&victim, &other);
    let _exchange = t.ground.nobody("exchange", &[&file, &other], &[])?;
    for _ in 0..if t.full { 50 } else { 5 } {
        t.vsteer(&["apply", &plan, "--yes"])?;
        t.vsteer(&["rollback"])?;
    }
    Ok(())
}

fn plan_changes(t: &mut Trial) -> Result<(), Fault> {
    let (plan, file) = setting(t)?;
    let text = fs::read_to_string(&plan).map_err(|e| Fault::io("reading a plan", &e))?;
    let theirs = t.ground.give("plan.json", &text)?;
    // Another value.
    let other = t.ground.give("other.json", text.replace("\"to\":\"2\"", "\"to\":\"9\""))?;
    // A key twice.
    let twice =
        t.ground.give("twice.json", text.replacen("{\"id\":", "{\"id\":\"aaaaaaaaaaaa\",\"id\":", 1))?;
    t.need(fs::read_to_string(&twice).unwrap_or_default() != text, "control: the plan has no id");
    let ran = t.vsteer(&["apply", &twice])?;
    t.need(ran.code == Some(6), format!("a plan with two ids: {:?}", ran.code));
    let _exchange = t.ground.nobody("exchange", &[&theirs, &other], &[])?;
    for _ in 0..if t.full { 30 } else { 5 } {
        let ran = t.vsteer(&["apply", &theirs, "--yes"])?;
        let now = value(&file);
        if ran.code == Some(0) {
            t.need(
                ran.said().contains(&now),
                format!("the setting is {now}, but vsteer printed {}", ran.said()),
            );
            t.must(&["rollback"])?;
        }
    }
    Ok(())
}

fn an_experiment(marker: &str) -> String {
    format!(
        "name = \"e\"\ndesign = \"pair\"\n[workload]\ncommand = \"touch {marker}\"\n\
         [[measure]]\nname = \"time\"\nof = \"time\"\n[[factor]]\nname = \"f\"\nlevels = [\"a\", \"b\"]\n\
         set = [\"touch\", \"{marker}\"]\nread = \"echo a\"\n"
    )
}

fn experiment(t: &mut Trial) -> Result<(), Fault> {
    let marker = t.ground.our("ran");
    // The log of a run of root's, which then belongs to the other user.
    let file = t.ground.our("e.toml");
    fs::write(&file, an_experiment(&marker)).map_err(|e| Fault::io("writing an experiment", &e))?;
    let ran = t.ground.vsteer_with(&["experiment", "run", &file, "--yes"], |_| {});
    let _ = ran?;
    let _ = fs::remove_file(&marker);
    let (folder, moved) = (t.ground.ours.join("e.experiment"), t.ground.theirs.join("e.experiment"));
    t.need(folder.is_dir(), "control: the experiment has no folder");
    let _ = fs::rename(&folder, &moved);
    for path in journals(&moved).iter().chain([&moved]) {
        let _ = chown(path, Some(NOBODY), Some(NOBODY));
    }
    for words in ["experiment resume", "experiment run"] {
        let path = moved.to_string_lossy().into_owned();
        let words: Vec<&str> = words.split(' ').chain([path.as_str(), "--yes"]).collect();
        t.vsteer(&words)?;
        t.need(!Path::new(&marker).exists(), "a command of the other user's ran");
    }
    Ok(())
}

fn experiment_links(t: &mut Trial) -> Result<(), Fault> {
    let text = "name = \"e\"\ndesign = \"pair\"\n[workload]\ncommand = \"true {f}\"\n[[factor]]\nname = \"f\"\nlevels = [\"a\", \"b\"]\n";
    let file = t.ground.give("e.toml", text)?;
    let folder = t.ground.theirs.join("e.experiment");
    fs::create_dir(&folder).map_err(|e| Fault::io("making a folder", &e))?;
    for name in ["run-00000.out", "run-00001.out", "run-00001.err", "log.jsonl"] {
        let _ = symlink(t.ground.ours.join("victim"), folder.join(name));
    }
    let _ = chown(&folder, Some(NOBODY), Some(NOBODY));
    let theirs = t.ground.theirs.clone();
    let ran = t.ground.vsteer_with(&["experiment", "run", &file, "--yes"], |c| {
        c.current_dir(theirs);
    });
    let ran = t.judged(ran)?;
    t.need(ran.code != Some(0), "root used the other user's folder");
    Ok(())
}

fn ssh(t: &mut Trial) -> Result<(), Fault> {
    // In place of ssh, a program of root's that notes how it was called and who may enter the folder.
    let (tools, note) = (t.ground.ours.join("tools"), t.ground.our("note"));
    fs::create_dir(&tools).map_err(|e| Fault::io("making a folder", &e))?;
    let script = format!(
        "#!/bin/sh\nfor word; do case $word in ControlPath=*) stat -c '%u %a' \"$(dirname \"${{word#ControlPath=}}\")\";; \
         StrictHost*) echo \"$word\";; esac; done >> {note}\nexit 255\n"
    );
    let path = tools.join("ssh");
    fs::write(&path, script).map_err(|e| Fault::io("writing a program", &e))?;
    let _ = fs::set_permissions(&path, fs::Permissions::from_mode(0o755));
    let ran =
        t.ground.vsteer_with(&["top", "-b", "-n", "1", "--connect", "xen+ssh://root@host.invalid"], |c| {
            c.env("PATH", format!("{}:/usr/bin:/bin", tools.display()));
        });
    t.judged(ran)?;
    let noted = fs::read_to_string(&note).unwrap_or_default();
    t.need(noted.contains("0 700\n"), format!("the control socket lies in: {noted}"));
    t.need(noted.contains("StrictHostKeyChecking=yes"), "unknown hosts are not refused");
    Ok(())
}
