//! Is every change over vSphere's API made, read back and rolled back, wherever it is killed and whatever the
//! service does in the meantime?
//!
//! A plan with each setting that vsteer changes there is applied to a simulated host and killed before and
//! after each journal write. Sessions end in the middle, a user lacks the right, a host does not answer. A VM
//! is on although it should be off, is gone, or has the name of another one. govc reports which settings are
//! in force.

use super::driven::{Driven, code};
use crate::command;
use crate::suite::{Bench, Findings};
use crate::vsphere::simulator::{Program, READER, USER};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

const KILLED: i32 = 9;
/// A name that tests every quoting on the way.
const ODD: &str = "we <b> \"x\" & 'y'; $(z) %2f";
/// A VM that is off, for changes that need this.
const OFF: &str = "DC0_H0_VM1";
/// The plan's settings; `{}` is the VM with the odd name.
const SET: [&str; 7] = [
    "{}:weight=9000",
    "{}:reservation=500MHz",
    "{}:limit=2400MHz",
    "{}:nodes=0",
    "{}:pin=0",
    "DC0_H0_VM1:cores-per-socket=2",
    "DC0_H0_VM1:latency=low",
];

pub(super) fn run(
    bench: &Bench,
    program: &Program,
    password: &str,
    findings: &mut Findings,
) -> Result<(), Fault> {
    let mut driven = Driven::new(bench, program, password, 2, 3)?;
    driven.serving.happens(&["rename", "DC0_H0_VM0", ODD])?;
    driven.serving.happens(&["power", OFF, "off"])?;
    // Former values must be restored exactly, even those that vsteer would write differently.
    driven.serving.happens(&["option", ODD, "sched.cpu.affinity", "all"])?;
    driven.serving.happens(&["option", OFF, "numa.nodeAffinity", "0"])?;
    let file = bench.fresh("vsphere-plan.json")?;
    let steps = planned(&driven, &file, &SET)?;
    findings.claim("a plan of each setting", steps == SET.len(), format!("{steps} steps"));
    made_and_taken_back(&driven, &file, findings)?;
    killed_everywhere(&driven, &file, steps, findings)?;
    refused_before(&driven, bench, findings)?;
    tried(&driven, &file, findings)?;
    sessions(&mut driven, &file, findings)?;
    nobody_half_way(&driven, &file, findings)?;
    by_name(&mut driven, bench, findings)?;
    gone(&mut driven, &file, findings)
}

/// Makes a plan; returns its number of steps.
fn planned(driven: &Driven, file: &str, set: &[&str]) -> Result<usize, Fault> {
    let uri = driven.uri();
    let mut words = vec!["plan", "--connect", &uri, "--by", "fluid", "-o", file];
    let set: Vec<String> = set.iter().map(|s| s.replace("{}", ODD)).collect();
    set.iter().for_each(|s| words.extend(["--set", s.as_str()]));
    Ok(driven.json(&words)?["steps"].as_array().map_or(0, Vec::len))
}

fn rollback(driven: &Driven) -> Result<command::Finished, Fault> {
    driven.run(&["rollback"])
}

fn made_and_taken_back(driven: &Driven, file: &str, findings: &mut Findings) -> Result<(), Fault> {
    let uri = driven.uri();
    let before = driven.truth()?;
    let dry = driven.run(&["apply", file, "--connect", &uri])?;
    let same = driven.truth()? == before;
    findings.claim(
        "without --yes it shows the steps and changes nothing",
        code(&dry) == Some(0) && dry.stdout.matches("would change VM").count() == SET.len() && same,
        format!("{:?}: {}", code(&dry), dry.stdout.lines().count()),
    );
    let done = driven.run(&["apply", file, "--connect", &uri, "--yes"])?;
    let now = driven.truth()?;
    let text = format!("{now:?}");
    let made = [
        "\"shares\": Number(9000)",
        "\"reservation\": Number(500)",
        "\"limit\": Number(2400)",
        "\"config.hardware.numCoresPerSocket\": Number(2)",
        "\"level\": String(\"low\")",
    ];
    let lacking: Vec<&&str> = made.iter().filter(|m| !text.contains(**m)).collect();
    let affinity = now.values().any(|vm| vm["config.cpuAffinity"]["affinitySet"] == serde_json::json!([0]));
    let option = |key: &str, value: &str| {
        now.values().any(|vm| {
            let text = vm["config.extraConfig"].to_string();
            text.contains(&format!("\"key\":\"{key}\",\"value\"")) && text.contains(&format!("\"{value}\""))
        })
    };
    findings.claim(
        "all seven settings are made, as govc says: shares, reservation, limit, node affinity, pCPU affinity in both its places, cores per socket, latency sensitivity",
        code(&done) == Some(0) && lacking.is_empty() && affinity && option("numa.nodeAffinity", "0") && option("sched.cpu.affinity", "0"),
        format!("{:?}, lacking {lacking:?}, affinity {affinity}: {}", code(&done), done.stderr.trim()),
    );
    let again = driven.run(&["apply", file, "--connect", &uri, "--yes"])?;
    findings.claim(
        "applied twice is refused",
        code(&again) == Some(i32::from(FaultKind::Changed.exit_code())),
        again.stderr.trim().to_owned(),
    );
    let back = rollback(driven)?;
    let after = driven.truth()?;
    findings.claim(
        "rollback, by the journal's URI alone, leaves every VM as it was",
        code(&back) == Some(0) && after == before,
        format!("{:?}: {}; {}", code(&back), back.stderr.trim(), difference(&before, &after)),
    );
    Ok(())
}

type Truth = std::collections::BTreeMap<String, serde_json::Value>;

fn difference(before: &Truth, after: &Truth) -> String {
    let other = before.iter().find(|(id, was)| after.get(*id) != Some(was));
    other.map_or("equal".to_owned(), |(id, was)| format!("{id}: was {was}, is {:?}", after.get(id)))
}

fn killed_everywhere(
    driven: &Driven,
    file: &str,
    steps: usize,
    findings: &mut Findings,
) -> Result<(), Fault> {
    let uri = driven.uri();
    let before = driven.truth()?;
    let (mut points, mut wrong) = (0, Vec::new());
    for write in 1..=2 * steps + 2 {
        for when in ["before", "after"] {
            let point = format!("{when}:{write}");
            let mut apply = driven.command(&["apply", file, "--connect", &uri, "--yes"]);
            let done = command::run(apply.env("VSTEER_FAULT_KILL", &point), super::LIMIT)?;
            if done.status.and_then(|s| s.signal()) != Some(KILLED) {
                wrong.push(format!("{point} was not killed: {}", done.stderr.trim()));
            }
            let back = rollback(driven)?;
            // Before the journal's first line there is nothing to undo, and rollback reports this.
            if ![Some(0), Some(i32::from(FaultKind::NothingThere.exit_code()))].contains(&code(&back)) {
                wrong.push(format!("{point}: rollback ended with {:?}: {}", code(&back), back.stderr.trim()));
            }
            let now = driven.truth()?;
            if now != before {
                wrong.push(format!("{point}: {}", difference(&before, &now)));
            }
            points += 1;
        }
    }
    findings.claim(
        format!("killed at each of {points} points, rollback leaves every VM as it was"),
        wrong.is_empty(),
        if wrong.is_empty() { "equal at every point".to_owned() } else { wrong.join("; ") },
    );
    Ok(())
}

fn refused_before(driven: &Driven, bench: &Bench, findings: &mut Findings) -> Result<(), Fault> {
    let uri = driven.uri();
    let before = driven.truth()?;
    let file = bench.fresh("vsphere-on.json")?;
    planned(driven, &file, &["{}:weight=9000", "{}:cores-per-socket=4"])?;
    let shown = driven.run(&[
        "plan",
        "--connect",
        &uri,
        "--by",
        "fluid",
        "--set",
        &format!("{ODD}:cores-per-socket=4"),
    ])?;
    findings.claim(
        "a plan says which step wants its VM off",
        shown.stdout.contains("the VM must be off, but it is on"),
        shown.stdout.lines().find(|l| l.contains("must be off")).unwrap_or("not a word").trim().to_owned(),
    );
    let refused = driven.run(&["apply", &file, "--connect", &uri, "--yes"])?;
    let now = driven.truth()?;
    findings.claim(
        "a step that wants its VM off is refused before the first step, and nothing is journalled",
        code(&refused) == Some(i32::from(FaultKind::Unsupported.exit_code()))
            && refused.stderr.contains("only while it is off")
            && now == before
            && code(&rollback(driven)?) == Some(i32::from(FaultKind::NothingThere.exit_code())),
        format!("{:?}: {}", code(&refused), refused.stderr.trim().replace('\n', " ")),
    );
    let high =
        driven.run(&["plan", "--connect", &uri, "--by", "fluid", "--set", &format!("{OFF}:latency=high")])?;
    findings.claim(
        "a high latency sensitivity without all memory reserved is refused when it is planned",
        code(&high) == Some(i32::from(FaultKind::Unsupported.exit_code())) && high.stderr.contains("memory"),
        high.stderr.trim().replace('\n', " "),
    );
    Ok(())
}

/// `--try`: the password comes through standard input, and then only the watchdog has it.
fn tried(driven: &Driven, file: &str, findings: &mut Findings) -> Result<(), Fault> {
    let before = driven.truth()?;
    let uri = format!(
        "vsphere://{USER}@{}/DC0_H0?thumbprint={}",
        driven.serving.address, driven.serving.thumbprint
    );
    let words = ["apply", file, "--connect", &uri, "--try", "6s", "--password-file", "-"];
    let inner = driven.command(&words);
    let mut shell = Command::new("sh");
    shell.args(["-c", "printf 'pass\\n' | \"$0\" \"$@\""]).arg(inner.get_program()).args(inner.get_args());
    shell.envs(inner.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let done = command::run(&mut shell, super::LIMIT)?;
    let meanwhile = driven.truth()?;
    let begun = Instant::now();
    let mut after = meanwhile.clone();
    while after != before && begun.elapsed() < Duration::from_secs(40) {
        std::thread::sleep(Duration::from_millis(500));
        after = driven.truth()?;
    }
    findings.claim(
        "--try undoes itself, with a password that nothing but its watchdog still knows",
        code(&done) == Some(0) && meanwhile != before && after == before,
        format!("{:?}, {:.0} s: {}", code(&done), begun.elapsed().as_secs_f64(), done.stderr.trim()),
    );
    Ok(())
}

fn sessions(driven: &mut Driven, file: &str, findings: &mut Findings) -> Result<(), Fault> {
    let uri = driven.uri();
    let before = driven.truth()?;
    driven.serving.happens(&["expire-after", "5"])?;
    let done = driven.run(&["apply", file, "--connect", &uri, "--yes"])?;
    let back = rollback(driven)?;
    driven.serving.happens(&["expire-after", "-1"])?;
    let after = driven.truth()?;
    findings.claim(
        "sessions that end after every fifth call disturb neither apply nor rollback",
        code(&done) == Some(0) && code(&back) == Some(0) && after == before,
        format!("{:?}, {:?}: {} {}", code(&done), code(&back), done.stderr.trim(), back.stderr.trim()),
    );
    driven.serving.happens(&["expire-after", "0"])?;
    let dead = driven.run(&["apply", file, "--connect", &uri, "--yes"])?;
    driven.serving.happens(&["expire-after", "-1"])?;
    findings.claim(
        "sessions that end at once are logged in to again once, and then named",
        code(&dead) == Some(i32::from(FaultKind::NoPrivilege.exit_code()))
            && dead.stderr.contains("the session ended, and so did the next one")
            && driven.truth()? == before,
        format!("{:?}: {}", code(&dead), dead.stderr.trim().replace('\n', " ")),
    );
    Ok(())
}

fn nobody_half_way(driven: &Driven, file: &str, findings: &mut Findings) -> Result<(), Fault> {
    let uri = driven.uri();
    let before = driven.truth()?;
    let reader = driven.uri_of(READER, &driven.serving.address);
    let refused = driven.run(&["apply", file, "--connect", &reader, "--yes"])?;
    findings.claim(
        "a user without the right learns which one, and nothing is changed",
        code(&refused) == Some(i32::from(FaultKind::NotApplied.exit_code()))
            && refused.stderr.contains("lacks the privilege VirtualMachine.Config.Settings")
            && driven.truth()? == before,
        format!("{:?}: {}", code(&refused), refused.stderr.trim().replace('\n', " ")),
    );
    driven.run(&["apply", file, "--connect", &uri, "--yes"])?;
    let applied = driven.truth()?;
    // If a host is unreachable or a user lacks the right, this does not mean that the VM is gone.
    let unreachable = driven.run(&["rollback", "--connect", &driven.uri_of(USER, "127.0.0.1:1")])?;
    let unable = driven.run(&["rollback", "--connect", &reader])?;
    let still = driven.truth()? == applied && applied != before;
    let back = rollback(driven)?;
    let after = driven.truth()?;
    findings.claim(
        "a rollback that reaches nobody, or may not, is still to be done, and then is",
        code(&unreachable) != Some(0)
            && code(&unable) != Some(0)
            && still
            && code(&back) == Some(0)
            && after == before,
        format!(
            "{:?}: {}; {:?}: {}; {:?}",
            code(&unreachable),
            unreachable.stderr.trim().replace('\n', " "),
            code(&unable),
            unable.stderr.trim().replace('\n', " "),
            code(&back)
        ),
    );
    Ok(())
}

/// A plan from an esxtop file knows only names.
fn by_name(driven: &mut Driven, bench: &Bench, findings: &mut Findings) -> Result<(), Fault> {
    let uri = driven.uri();
    let before = driven.truth()?;
    let (folder, file, plan) =
        (bench.fresh("vsphere-rec")?, bench.fresh("named.csv")?, bench.fresh("named.json")?);
    driven.json(&["record", "-o", &folder, "--connect", &uri, "--statistics", "2h", "--for", "1d"])?;
    driven.run(&["export", &folder, "--to", "esxtop", "-o", &file])?;
    let set = format!("{ODD}:pin=0");
    driven.json(&["plan", &file, "--by", "fluid", "--set", &set, "-o", &plan])?;
    let done = driven.run(&["apply", &plan, "--connect", &uri, "--yes"])?;
    let now = driven.truth()?;
    let changed: Vec<&String> = before.keys().filter(|id| now.get(*id) != before.get(*id)).collect();
    let names = |id: &String| now[id]["name"] == ODD;
    let back = rollback(driven)?;
    findings.claim(
        "a plan of esxtop's file finds its VM by name, changes that one, and is taken back",
        code(&done) == Some(0)
            && matches!(&changed[..], [one] if names(one))
            && code(&back) == Some(0)
            && driven.truth()? == before,
        format!("{:?}, changed {changed:?}: {}", code(&done), done.stderr.trim().replace('\n', " ")),
    );
    // A second VM of this name. The plan knows it by its former one: plans contain VMs that are off.
    let id_of = |truth: &Truth, name: &str| {
        truth.iter().find(|(_, vm)| vm["name"] == name).map(|(id, _)| id.clone()).unwrap_or_default()
    };
    let twin = id_of(&before, OFF);
    driven.serving.happens(&["rename", &twin, ODD])?;
    let before = driven.truth()?;
    let refused = driven.run(&["apply", &plan, "--connect", &uri, "--yes"])?;
    findings.claim(
        "a plan from before a VM was renamed is refused with that VM's former name, and nothing is changed",
        code(&refused) == Some(i32::from(FaultKind::Changed.exit_code()))
            && refused.stderr.contains(OFF)
            && driven.truth()? == before,
        refused.stderr.trim().replace('\n', " "),
    );
    let mine = bench.fresh("twins.json")?;
    let words = |set: &str| {
        ["plan", "--connect", &uri, "--by", "fluid", "--set", set, "-o", &mine].map(str::to_owned)
    };
    let by_name = driven.run(&words(&set).each_ref().map(String::as_str))?;
    findings.claim(
        "--set refuses a name that two VMs have, and gives the ids of both",
        code(&by_name) == Some(i32::from(FaultKind::Usage.exit_code()))
            && by_name.stderr.contains("their ids are"),
        by_name.stderr.trim().replace('\n', " "),
    );
    // The UUID distinguishes the two.
    let all = driven.json(&["plan", "--connect", &uri, "--for", "10m"])?;
    let namesake = all["parent"]["vms"].as_array().into_iter().flatten().find(|vm| vm["name"] == ODD);
    let id = namesake.and_then(|vm| vm["id"].as_str()).unwrap_or_default();
    let set = set.replacen(ODD, id, 1);
    let plan = driven.json(&words(&set).each_ref().map(String::as_str))?;
    let done = driven.run(&["apply", &mine, "--connect", &uri, "--yes"])?;
    let changed = driven.truth()?.iter().filter(|(id, now)| before.get(*id) != Some(now)).count();
    let back = rollback(driven)?;
    findings.claim(
        "a plan made over the API changes the one of two namesakes that it is of",
        code(&done) == Some(0) && changed == 1 && code(&back) == Some(0) && driven.truth()? == before,
        format!(
            "steps: {}, VMs changed: {changed}: {}",
            plan["steps"].as_array().map_or(0, Vec::len),
            done.stderr.trim()
        ),
    );
    driven.serving.happens(&["rename", &twin, OFF])
}

fn gone(driven: &mut Driven, file: &str, findings: &mut Findings) -> Result<(), Fault> {
    let uri = driven.uri();
    let odd = |truth: &Truth| truth.iter().find(|(_, vm)| vm["name"] == ODD).map(|(id, _)| id.clone());
    let mut before = driven.truth()?;
    let id = odd(&before).unwrap_or_default();
    let done = driven.run(&["apply", file, "--connect", &uri, "--yes"])?;
    driven.serving.happens(&["lose", ODD])?;
    let back = rollback(driven)?;
    before.remove(&id);
    let after = driven.truth()?;
    findings.claim(
        "of a VM that is gone nothing is taken back, of the others all, and it is said",
        code(&done) == Some(0)
            && code(&back) == Some(0)
            && after == before
            && back.stdout.contains("nothing to undo"),
        format!("{:?} {:?}: {}", code(&done), code(&back), back.stdout.trim().replace('\n', " ")),
    );
    Ok(())
}
