//! Attacks on the files that root writes: links, pipes, and a folder whose owner exchanges files.

use super::{Attack, Trial};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use vsteer_core::Fault;

pub const ATTACKS: &[Attack] = &[
    Attack {
        name: "stolen file",
        holds: "root's file stays, and success means vsteer's bytes",
        attempt: stolen,
    },
    Attack { name: "output is a link", holds: "no link is followed", attempt: links },
    Attack { name: "output is a pipe", holds: "vsteer does not wait for a reader", attempt: pipe },
    Attack { name: "output is a device", holds: "it stays a device", attempt: device },
    Attack { name: "full pipe", holds: "SIGTERM ends vsteer", attempt: full_pipe },
    Attack { name: "environment", holds: "no program of another user runs", attempt: environment },
];

fn stolen(t: &mut Trial) -> Result<(), Fault> {
    let recording = t.recording()?;
    let victim = t.ground.our("victim");
    t.must(&["report", &recording, "-o", &t.ground.their("control.html")])?;
    let _thief = t.ground.nobody("steal", &[&t.ground.their("."), &victim], &[])?;
    for n in 0..if t.full { 50 } else { 6 } {
        let page = t.ground.their(&format!("r-{n}.html"));
        t.vsteer(&["report", &recording, "-o", &page])?;
    }
    let kept = fs::read_to_string(&victim).unwrap_or_default();
    t.need(kept == "KEEP", "root's file has other text");
    Ok(())
}

fn links(t: &mut Trial) -> Result<(), Fault> {
    let recording = t.recording()?;
    let (dangling, hard) = (t.ground.theirs.join("dangling"), t.ground.theirs.join("hard"));
    let new = t.ground.ours.join("new");
    for words in [["report", &recording, "-o"], ["plan", &recording, "-o"]] {
        for link in [&dangling, &hard] {
            let _ = fs::remove_file(link);
        }
        let _ = symlink(&new, &dangling);
        let made = fs::hard_link(t.ground.ours.join("victim"), &hard);
        made.map_err(|e| Fault::io("making a hard link", &e))?;
        for link in [&dangling, &hard] {
            t.vsteer(&[&words[..], &[&link.to_string_lossy()]].concat())?;
        }
        t.need(!new.exists(), "a dangling link was followed");
    }
    Ok(())
}

fn pipe(t: &mut Trial) -> Result<(), Fault> {
    let recording = t.recording()?;
    let pipe = t.ground.their("pipe");
    let made = rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o666.into(), 0);
    made.map_err(|e| Fault::io("making a pipe", &e.into()))?;
    for words in [["report", &recording, "-o", &pipe], ["plan", &recording, "-o", &pipe]] {
        let ran = t.vsteer(&words)?;
        t.need(ran.code != Some(0), "a pipe that nothing reads counted as written");
    }
    // As inputs: no command waits for a writer.
    for words in [
        vec!["diagnose", &pipe],
        vec!["apply", &pipe],
        vec!["simulate", &pipe],
        vec!["report", &pipe, "-o", "x"],
    ] {
        let ended = t.ground.ended(&words, std::time::Duration::from_secs(1));
        t.judged(ended)?;
    }
    Ok(())
}

fn device(t: &mut Trial) -> Result<(), Fault> {
    let recording = t.recording()?;
    let null = t.ground.our("null");
    let made = rustix::fs::mknodat(
        rustix::fs::CWD,
        &null,
        rustix::fs::FileType::CharacterDevice,
        0o666.into(),
        rustix::fs::makedev(1, 3),
    );
    made.map_err(|e| Fault::io("making a device", &e.into()))?;
    for words in [["report", &recording, "-o", &null], ["plan", &recording, "-o", &null]] {
        t.must(&words)?;
    }
    let kind = fs::symlink_metadata(&null).map(|m| m.file_type());
    let is_device = kind.is_ok_and(|k| std::os::unix::fs::FileTypeExt::is_char_device(&k));
    t.need(is_device, "the device was replaced by a file");
    Ok(())
}

fn full_pipe(t: &mut Trial) -> Result<(), Fault> {
    let blocked = t.ground.blocked(&["top", "--batch", "-i", "10ms"])?;
    t.runs += 1;
    t.need(blocked, "vsteer did not end in 2 s, because nobody reads its output");
    Ok(())
}

fn environment(t: &mut Trial) -> Result<(), Fault> {
    let marker = t.ground.our("ran");
    let script = format!("#!/bin/sh\ntouch {marker}\n");
    let programs = [
        "ssh",
        "virsh",
        "xl",
        "xentrace",
        "tuned-adm",
        "grubby",
        "update-grub",
        "systemctl",
        "keyctl",
        "less",
        "vsteer-libvirt",
        "vsteer-display",
    ];
    for name in programs {
        let path = t.ground.give(name, &script)?;
        let _ = fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755));
    }
    let recording = t.recording()?;
    let (evil, theirs) = (t.ground.their("less"), t.ground.theirs.clone());
    let runs: [&[&str]; 5] = [
        &["--help"],
        &["top", "-b", "-n", "1"],
        &["audit"],
        &["diagnose", &recording],
        &["display", "codecs"],
    ];
    for path in ["/usr/bin:/bin:", "/usr/bin:/bin:."] {
        for words in runs {
            let ran = t.ground.vsteer_with(words, |c| {
                c.current_dir(&theirs).env("PATH", path);
                for name in ["PAGER", "MANPAGER", "EDITOR", "BROWSER", "SSH_ASKPASS", "SHELL"] {
                    c.env(name, &evil);
                }
                c.env("RUST_LOG", "trace").env("TMPDIR", &theirs);
            });
            t.judged(ran)?;
        }
    }
    t.need(!Path::new(&marker).exists(), "a program in the current folder ran");
    Ok(())
}
