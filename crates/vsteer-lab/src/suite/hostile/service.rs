//! Attacks on the service: on its socket, its files, and what it answers.

use super::ground::NOBODY;
use super::{Attack, Trial};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use vsteer_core::Fault;

pub const ATTACKS: &[Attack] = &[
    Attack {
        name: "service's socket is a link",
        holds: "what it leads to stays, and nothing listens there",
        attempt: socket_link,
    },
    Attack {
        name: "service's socket is another's",
        holds: "the service refuses, and sends that one nothing",
        attempt: socket_of_another,
    },
    Attack {
        name: "service's socket is open",
        holds: "a user who is not of its group cannot connect",
        attempt: socket_closed,
    },
    Attack {
        name: "tokens of others",
        holds: "tokens that another user could know are refused, and a pipe hangs nothing",
        attempt: tokens,
    },
    Attack {
        name: "textfile is a link",
        holds: "what it leads to stays, and the service says what it could not write",
        attempt: textfile,
    },
    Attack { name: "history of another", holds: "the service does not write into it", attempt: history },
    Attack {
        name: "clients without a token",
        holds: "they hear nothing of the host, whatever path they try",
        attempt: strangers,
    },
];

/// How long the service runs in an attempt.
const RUNS: Duration = Duration::from_millis(2500);
const SERVE: [&str; 3] = ["serve", "--config", "none"];
const TOKEN: &str = "of-the-lab-0123456789abcdef0123456789abcdef";

fn words<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SERVE.into_iter().chain(more.iter().copied()).collect()
}

fn link(target: &str, at: &str) -> Result<(), Fault> {
    symlink(target, at).map_err(|e| Fault::io(format!("linking {at}"), &e))
}

/// Runs the service, and `meanwhile` beside it.
fn beside<T: Send>(
    t: &mut Trial,
    words: &[&str],
    meanwhile: impl FnOnce() -> T + Send,
) -> Result<(T, String, Option<i32>), Fault> {
    let ground = &t.ground;
    let (seen, ran) = std::thread::scope(|scope| {
        let other = scope.spawn(meanwhile);
        let ran = ground.ended(words, RUNS);
        (other.join().expect("nothing panics beside the service"), ran)
    });
    let ran = t.judged(ran)?;
    Ok((seen, ran.said(), ran.code))
}

/// Tries until it gives something, or the service will soon end.
fn soon<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + RUNS - Duration::from_millis(400);
    loop {
        match attempt() {
            None if Instant::now() < end => std::thread::sleep(Duration::from_millis(20)),
            other => return other,
        }
    }
}

fn socket_link(t: &mut Trial) -> Result<(), Fault> {
    let (socket, victim) = (t.ground.their("serve.sock"), t.ground.our("victim"));
    link(&victim, &socket)?;
    let ran = t.ground.ended(&words(&["--socket", &socket]), RUNS);
    let ran = t.judged(ran)?;
    t.need(
        ran.code.is_some_and(|code| code != 0) && ran.err().contains("serve.sock"),
        "it did not refuse the link",
    );
    let metadata = fs::metadata(&victim).map_err(|e| Fault::io("reading root's file", &e))?;
    t.need(
        metadata.mode() & 0o7777 == 0o600 && metadata.gid() == 0,
        "the permissions of root's file changed",
    );
    Ok(())
}

fn socket_of_another(t: &mut Trial) -> Result<(), Fault> {
    let (socket, note) = (t.ground.their("serve.sock"), t.ground.their("note"));
    let _other = t.ground.nobody("listen", &[&socket, &note], &[])?;
    let ran = t.ground.ended(&words(&["--socket", &socket]), RUNS);
    let ran = t.judged(ran)?;
    t.need(ran.code.is_some_and(|code| code != 0), "it did not refuse");
    let is_there = fs::symlink_metadata(&socket).is_ok_and(|m| m.file_type().is_socket());
    t.need(is_there && UnixStream::connect(&socket).is_ok(), "the other's socket is gone");
    let heard = fs::read(&note).unwrap_or_default();
    t.need(heard.len() < 64, format!("it heard {}", String::from_utf8_lossy(&heard)));
    Ok(())
}

fn socket_closed(t: &mut Trial) -> Result<(), Fault> {
    let (socket, note) = (t.ground.their("serve.sock"), t.ground.their("note"));
    let ground = &t.ground;
    let (tried, ran) = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            // Root may connect, so the service listens.
            soon(|| UnixStream::connect(&socket).ok())?;
            Some(ground.nobody("connect", &[&socket, &note], &[]))
        });
        let ran = ground.ended(&words(&["--socket", &socket]), RUNS);
        (other.join().expect("nothing panics beside the service"), ran)
    });
    let ran = t.judged(ran)?;
    let said = tried.transpose()?.map(|_actor| fs::read_to_string(&note).unwrap_or_default());
    t.need(
        said.as_deref() == Some("permission denied"),
        format!("another user: {said:?}; the service: {}", ran.err()),
    );
    Ok(())
}

fn tokens(t: &mut Trial) -> Result<(), Fault> {
    let theirs = t.ground.give("tokens", TOKEN)?;
    let (open, pipe) = (t.ground.our("open"), t.ground.their("pipe"));
    fs::write(&open, TOKEN)
        .and_then(|()| fs::set_permissions(&open, fs::Permissions::from_mode(0o644)))
        .map_err(|e| Fault::io("writing tokens", &e))?;
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .map_err(|e| Fault::io("making a pipe", &e.into()))?;
    for file in [&theirs, &open, &pipe] {
        let all = words(&["--socket", "none", "--listen", "127.0.0.1:0", "--tokens", file]);
        let ran = t.ground.ended(&all, RUNS);
        let ran = t.judged(ran)?;
        t.need(
            ran.code.is_some_and(|code| code != 0) && ran.took < RUNS && ran.err().contains(folder(file)),
            format!("{file} was not refused at once: {:?} {}", ran.code, ran.err().trim_end()),
        );
        t.need(!ran.said().contains(TOKEN), "it printed a token");
    }
    Ok(())
}

/// A fault may name the folder, if that is what another user could change.
fn folder(file: &str) -> &str {
    file.rsplit_once('/').map_or(file, |(folder, _)| folder)
}

fn textfile(t: &mut Trial) -> Result<(), Fault> {
    let (socket, file) = (t.ground.our("serve.sock"), t.ground.their("vsteer.prom"));
    link(&t.ground.our("victim"), &file)?;
    let ran = t.ground.ended(&words(&["--socket", &socket, "--textfile", &file]), RUNS);
    let ran = t.judged(ran)?;
    // Its threads have no capability, so root's may not write there.
    t.need(ran.err().contains(&file), format!("it does not say what it could not write: {}", ran.err()));
    Ok(())
}

fn history(t: &mut Trial) -> Result<(), Fault> {
    let (socket, folder) = (t.ground.our("serve.sock"), t.ground.their("history"));
    fs::create_dir(&folder)
        .and_then(|()| std::os::unix::fs::chown(&folder, Some(NOBODY), Some(NOBODY)))
        .map_err(|e| Fault::io("making a folder", &e))?;
    link(&t.ground.our("victim"), &format!("{folder}/journal.jsonl"))?;
    let ran = t.ground.ended(&words(&["--socket", &socket, "--history", &folder]), RUNS);
    let ran = t.judged(ran)?;
    t.need(
        ran.code.is_some_and(|code| code != 0) && ran.err().contains(&folder),
        "it did not refuse the folder",
    );
    Ok(())
}

/// What a client without a token gets.
fn asked(port: u16, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    Some(String::from_utf8_lossy(&all).into_owned())
}

fn strangers(t: &mut Trial) -> Result<(), Fault> {
    let tokens = t.ground.our("tokens");
    fs::write(&tokens, TOKEN)
        .and_then(|()| fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)))
        .map_err(|e| Fault::io("writing tokens", &e))?;
    let free = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
    let port = free.map_err(|e| Fault::io("looking for a free port", &e))?.port();
    let listen = format!("127.0.0.1:{port}");
    let all = words(&["--socket", "none", "--listen", &listen, "--tokens", &tokens]);
    let get = |path: &str, more: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {listen}\r\nConnection: close\r\n{more}\r\n");
        asked(port, &request)
    };
    let (answers, said, _) = beside(t, &all, || {
        let right = format!("Authorization: Bearer {TOKEN}\r\n");
        // Until the service knows its VM.
        let known = soon(|| get("/metrics", &right).filter(|all| all.contains("ordinary")));
        let wrong = format!("Authorization: Bearer {}\r\n", TOKEN.replace('0', "1"));
        let mut answers = Vec::new();
        for path in
            ["/metrics", "/api/v1/state", "//metrics", "/%6detrics", "/api/v1/../../metrics", "/nothing"]
        {
            for more in ["", &wrong, "Authorization: Basic cm9vdDo=\r\n"] {
                answers.push((path, get(path, more).unwrap_or_default()));
            }
        }
        // A page of another site that uses a name of its own for this address.
        answers.push((
            "Host",
            asked(
                port,
                &format!("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n{right}Connection: close\r\n\r\n"),
            )
            .unwrap_or_default(),
        ));
        (known.is_some(), answers)
    })?;
    t.need(answers.0, format!("control: a client with the token did not see the VM: {said}"));
    for (path, answer) in answers.1 {
        let status = answer.split(' ').nth(1).unwrap_or_default();
        t.need(
            status.starts_with('4') && !answer.contains("ordinary") && !answer.contains("vsteer_vcpu"),
            format!("{path}: {}", answer.chars().take(200).collect::<String>()),
        );
    }
    Ok(())
}
