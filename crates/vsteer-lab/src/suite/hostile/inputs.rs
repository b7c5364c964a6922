//! Attacks by what vsteer reads: files that change, have no end, or lead elsewhere.

use super::ground::NOBODY;
use super::{Attack, Trial};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use vsteer_core::Fault;

pub const ATTACKS: &[Attack] = &[
    Attack {
        name: "changing input",
        holds: "a file that changes while it is read is read or refused",
        attempt: changing,
    },
    Attack {
        name: "exchanged input",
        holds: "a file that is now another is read or refused",
        attempt: exchanged,
    },
    Attack {
        name: "side files",
        holds: "files beside an export hang nothing and are not quoted",
        attempt: side_files,
    },
    Attack { name: "captured host", holds: "its links lead out of it nowhere", attempt: captured },
    Attack { name: "sparse log", holds: "4 TiB without a line end are refused in time", attempt: sparse },
    Attack { name: "endless input", holds: "no command reads /dev/zero for ever", attempt: endless },
    Attack {
        name: "quotes in a script",
        holds: "a name stays inside its string of PowerShell",
        attempt: quotes,
    },
    Attack {
        name: "no processes",
        holds: "vsteer says so, and not that no VM is running",
        attempt: empty_proc,
    },
    Attack {
        name: "scenarios without time",
        holds: "times of zero and huge counts are refused or end",
        attempt: scenarios,
    },
];

/// A recording of the other user: a copy of root's.
fn theirs(t: &mut Trial) -> Result<String, Fault> {
    let recording = t.recording()?;
    let copy = t.ground.theirs.join("r");
    fs::create_dir(&copy).map_err(|e| Fault::io("making a folder", &e))?;
    let _ = std::os::unix::fs::chown(&copy, Some(NOBODY), Some(NOBODY));
    for entry in fs::read_dir(recording).into_iter().flatten().flatten() {
        let bytes = fs::read(entry.path()).unwrap_or_default();
        t.ground.give(&format!("r/{}", entry.file_name().to_string_lossy()), bytes)?;
    }
    Ok(copy.to_string_lossy().into_owned())
}

fn changing(t: &mut Trial) -> Result<(), Fault> {
    let copy = theirs(t)?;
    let tries = if t.full { 20 } else { 3 };
    for file in ["thread-0001.arrows", "manifest.json", "config.jsonl"] {
        let _writer = t.ground.nobody("rewrite", &[&format!("{copy}/{file}")], &[])?;
        for _ in 0..tries {
            t.vsteer(&["diagnose", &copy])?;
        }
        let page = t.ground.our("x.html");
        t.vsteer(&["report", &copy, "-o", &page])?;
    }
    Ok(())
}

fn exchanged(t: &mut Trial) -> Result<(), Fault> {
    let copy = theirs(t)?;
    let other = t.ground.their("other");
    let table = format!("{copy}/thread-0001.arrows");
    let targets = [t.ground.our("secret"), "/dev/zero".to_owned(), t.ground.our(".")];
    for target in targets {
        let _ = fs::remove_file(&other);
        let _ = symlink(&target, &other);
        let _exchange = t.ground.nobody("exchange", &[&table, &other], &[])?;
        for _ in 0..if t.full { 20 } else { 3 } {
            t.vsteer(&["diagnose", &copy])?;
        }
    }
    Ok(())
}

fn side_files(t: &mut Trial) -> Result<(), Fault> {
    let recording = t.recording()?;
    let export = t.ground.their("e.csv");
    let ran = t.ground.vsteer(&["export", &recording, "--to", "esxtop", "-o", &export]);
    t.judged(ran)?;
    let beside = t.ground.theirs.join("host.toml");
    let long = "[[vm]]\nname = \"x\"\n".repeat(100_000);
    let kinds: [&dyn Fn() -> std::io::Result<()>; 5] = [
        &|| symlink("/dev/zero", &beside),
        &|| symlink(t.ground.our("secret"), &beside),
        &|| {
            rustix::fs::mknodat(rustix::fs::CWD, &beside, rustix::fs::FileType::Fifo, 0o666.into(), 0)
                .map_err(Into::into)
        },
        &|| File::create(&beside).and_then(|f| f.set_len(1 << 40)),
        &|| fs::write(&beside, &long),
    ];
    let mut all = Vec::new();
    for kind in kinds {
        let _ = fs::remove_file(&beside);
        kind().map_err(|e| Fault::io("making a file beside the export", &e))?;
        all.push(t.ground.vsteer(&["diagnose", &export]));
        all.push(t.ground.vsteer(&["numa", &export]));
    }
    for ran in all {
        t.judged(ran)?;
    }
    Ok(())
}

fn captured(t: &mut Trial) -> Result<(), Fault> {
    let live = t.ground.qemu(NOBODY, "alive", &["CPU 0/KVM"], &[])?;
    let host = t.ground.our("host");
    t.must(&["capture", "-o", &host, "--for", "100ms"])?;
    drop(live);
    let live = t.ground.qemu(NOBODY, "later", &["CPU 0/KVM"], &[])?;
    let secret = t.ground.our("secret");
    for look in ["1", "2"] {
        let at = |path: &str| format!("{host}/{look}/{path}");
        for path in ["proc/cmdline", "etc/tuned/active_profile", "sys/devices/system/cpu/smt/control"] {
            let path = at(path);
            let _ = fs::remove_file(&path);
            let _ = std::path::Path::new(&path).parent().map(fs::create_dir_all);
            let _ = symlink(&secret, &path);
        }
        let _ = fs::rename(at("proc"), at("proc.away"));
        let _ = symlink("/proc", at("proc"));
    }
    let tree = format!("tree:{host}");
    for words in [
        vec!["audit", "--root", &host, "--all", "--json"],
        vec!["topology", "--root", &host, "--json"],
        vec!["diagnose", "--connect", &tree, "--for", "200ms"],
        vec!["top", "--connect", &tree, "-b", "-n", "1"],
    ] {
        let ran = t.vsteer(&words)?;
        t.need(!ran.said().contains("later"), format!("`vsteer {}` shows a VM of the live host", words[0]));
    }
    // Lists of pCPUs without an end.
    for look in ["1", "2"] {
        let cpu = format!("{host}/{look}/sys/devices/system/cpu");
        for (file, text) in [("online", "0-4294967295\n"), ("possible", "0-18446744073709551615\n")] {
            let _ = fs::write(format!("{cpu}/{file}"), text);
        }
        let proc = format!("{host}/{look}/proc");
        let _ = fs::remove_file(&proc);
        let _ = fs::rename(format!("{proc}.away"), proc);
    }
    t.vsteer(&["topology", "--root", &host, "--json"])?;
    t.vsteer(&["top", "--connect", &tree, "-b", "-n", "1"])?;
    drop(live);
    Ok(())
}

fn sparse(t: &mut Trial) -> Result<(), Fault> {
    let recording = t.recording()?;
    let log = t.ground.their("l.log");
    let made = File::create(&log).and_then(|f| f.set_len(4 << 40));
    made.map_err(|e| Fault::io("making a sparse log", &e))?;
    let vm = format!("burner-1={log}");
    let ran = t.vsteer(&["estimate", &vm, "--from", &recording])?;
    t.need(ran.code != Some(0), "zeros count as a log");
    for words in
        [vec!["diagnose", &log], vec!["simulate", &log], vec!["apply", &log], vec!["verify", &log, &log]]
    {
        let ran = t.vsteer(&words)?;
        t.need(ran.code != Some(0), format!("`vsteer {}` took zeros", words[0]));
    }
    Ok(())
}

fn endless(t: &mut Trial) -> Result<(), Fault> {
    let recording = t.recording()?;
    let page = t.ground.our("x.html");
    for words in [
        vec!["diagnose", "/dev/zero"],
        vec!["simulate", "/dev/zero"],
        vec!["apply", "/dev/zero"],
        vec!["experiment", "run", "/dev/zero"],
        vec!["steer", "--sla", "/dev/zero"],
        vec!["report", "/dev/zero", "-o", &page],
        vec!["estimate", "burner-1=/dev/zero", "--from", &recording],
    ] {
        let ran = t.vsteer(&words)?;
        t.need(ran.code != Some(0), format!("`vsteer {}` took /dev/zero", words.join(" ")));
    }
    Ok(())
}

fn quotes(t: &mut Trial) -> Result<(), Fault> {
    let recording = t.recording()?;
    let plain = t.ground.our("e.csv");
    t.must(&["export", &recording, "--to", "esxtop", "-o", &plain])?;
    let text = fs::read_to_string(&plain).map_err(|e| Fault::io("reading the export", &e))?;
    for (n, quote) in
        ['\u{2019}', '\u{2018}', '\u{201a}', '\u{201b}', '\'', '`', '\u{201d}'].into_iter().enumerate()
    {
        let evil = format!("a{quote};Remove-VM x;{quote}");
        let file = t.ground.give(&format!("e{n}.csv"), text.replace("burner-1", &evil))?;
        let ran = t.vsteer(&["plan", &file, "--only", "weights", "--format", "powercli"])?;
        if ran.code == Some(0) {
            let bad = ran.out().lines().any(|l| outside(l).contains("Remove-VM"));
            t.need(!bad, format!("with {quote:?} a name leaves its string: {}", ran.out()));
        }
    }
    Ok(())
}

/// What stands outside strings on a line of PowerShell, which takes five characters for a single quote. Two of
/// them inside a string stand for one.
fn outside(line: &str) -> String {
    let single = |c: char| matches!(c, '\'' | '\u{2018}'..='\u{201b}');
    let (mut out, mut within) = (String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (within, single(c)) {
            (false, false) if c == '#' => break,
            (false, false) => out.push(c),
            (false, true) => within = true,
            (true, true) if chars.peek().is_some_and(|c| single(*c)) => drop(chars.next()),
            (true, true) => within = false,
            (true, false) => {}
        }
    }
    out
}

fn empty_proc(t: &mut Trial) -> Result<(), Fault> {
    let before = ["-m", "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh"];
    for words in [&["top", "-b", "-n", "1"][..], &["diagnose", "--for", "300ms"]] {
        let ran = t.ground.under("unshare", &before, words);
        let ran = t.judged(ran)?;
        t.need(
            ran.code == Some(3) && ran.err().contains("/proc does not show"),
            format!("it says: {}", ran.said()),
        );
    }
    Ok(())
}

fn scenarios(t: &mut Trial) -> Result<(), Fault> {
    let plain = t.scenario()?;
    let text = fs::read_to_string(plain).map_err(|e| Fault::io("reading a scenario", &e))?;
    let with = |line: &str| format!("{text}\n{line}\n");
    let vm = |demand: &str| with(&format!("[[vm]]\nname = \"evil\"\nvcpus = 1\ndemand = {demand}"));
    let files = [
        vm("{ periodic = { period = \"0s\", work = \"0s\" } }"),
        vm("{ periodic = { period = \"1ns\", work = \"1ns\" } }"),
        vm("{ sleep_compute = { sleep = \"0s\", compute = \"0s\" } }"),
        with("[[vm]]\nname = \"evil\"\nvcpus = 4294967295\ndemand = \"hog\""),
        with("[[vm]]\nname = \"evil\"\ncount = 4000000000\nvcpus = 1\ndemand = \"hog\""),
        text.replace("cores_per_node = 2", "cores_per_node = 4000000000"),
        text.replace("for = \"3s\"", "for = \"500000h\""),
    ];
    for (n, text) in files.iter().enumerate() {
        let file = t.ground.give(&format!("s{n}.toml"), text)?;
        t.vsteer(&["simulate", &file])?;
    }
    Ok(())
}
