//! What the attackers of the case `hostile` do: processes of another user, each with one role.
//!
//! An attacker is this program under another name and user. Its role and the role's values stand in the
//! environment. It prints one line when it is ready, and plays until it is killed.
//!
//! Left out: attacks that need a compiler or another machine.

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Names the role.
pub const ROLE: &str = "VSTEER_LAB_ROLE";
/// The values of the role, a JSON list of texts.
pub const VALUES: &str = "VSTEER_LAB_VALUES";

/// Plays the role that the environment names; `None` if it names none.
pub fn play() -> Option<ExitCode> {
    let role = std::env::var(ROLE).ok()?;
    let values: Vec<String> =
        serde_json::from_str(&std::env::var(VALUES).unwrap_or_default()).unwrap_or_default();
    let value = |n: usize| values.get(n).map(String::as_str).unwrap_or_default();
    match role.as_str() {
        "threads" => threads(&values),
        "churn" => churn(),
        "crowd" => crowd(value(0).parse().unwrap_or(0)),
        "drip" | "flood" | "lies" | "listen" => serve(&role, value(0), value(1)),
        "connect" => connect(value(0), Path::new(value(1))),
        "flock" => hold(value(0)),
        "exchange" => exchange(value(0), value(1)),
        "steal" => steal(Path::new(value(0)), Path::new(value(1))),
        "rewrite" => rewrite(Path::new(value(0))),
        "libvirt" => libvirt(),
        other => panic!("no role {other}"),
    }
    Some(ExitCode::SUCCESS)
}

fn ready() {
    println!("ready");
    let _ = std::io::stdout().flush();
}

fn for_ever() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

/// Threads with these names, which run a little now and then.
fn threads(names: &[String]) {
    for name in names {
        let name = CString::new(name.as_bytes()).unwrap_or_default();
        std::thread::spawn(move || {
            let _ = rustix::thread::set_name(&name);
            loop {
                std::hint::black_box((0..10_000_u64).sum::<u64>());
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    }
    std::thread::sleep(Duration::from_millis(20));
    ready();
    for_ever();
}

/// Threads named as vCPUs that end and start every millisecond.
fn churn() {
    ready();
    loop {
        let both = ["CPU 0/KVM", "CPU 1/KVM"].map(|name| {
            let sleep = || std::thread::sleep(Duration::from_millis(1));
            std::thread::Builder::new().name(name.to_owned()).spawn(sleep)
        });
        both.into_iter().flatten().for_each(|t| drop(t.join()));
    }
}

fn crowd(number: usize) {
    for _ in 0..number {
        let small = std::thread::Builder::new().stack_size(32 << 10).name("CPU 0/KVM".to_owned());
        let _ = small.spawn(|| for_ever());
    }
    ready();
    for_ever();
}

/// A monitor that drips bytes, sends without end, or says that other people's threads are its vCPUs; or one
/// that counts who connects and what they send, in the file `note`.
fn serve(role: &str, path: &str, note: &str) {
    let _ = fs::remove_file(path);
    let listener = UnixListener::bind(path).expect("the socket");
    let _ = fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o666));
    ready();
    for stream in listener.incoming().flatten() {
        // One that goes away is served no more.
        let _ = match role {
            "drip" => drip(stream),
            "flood" => flood(stream),
            "listen" => count(stream, note),
            _ => lie(stream, note),
        };
    }
}

/// Notes whether this user may connect to the socket.
fn connect(socket: &str, note: &Path) {
    let said = match UnixStream::connect(socket) {
        Ok(_) => "connected".to_owned(),
        Err(e) => e.kind().to_string(),
    };
    let _ = fs::write(note, said);
    ready();
    for_ever();
}

fn drip(mut stream: UnixStream) -> std::io::Result<()> {
    loop {
        stream.write_all(b"x")?;
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn flood(mut stream: UnixStream) -> std::io::Result<()> {
    loop {
        stream.write_all(&[b'x'; 65_536])?;
    }
}

fn count(mut stream: UnixStream, note: &str) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    stream.set_read_timeout(Some(Duration::from_millis(300)))?;
    let _ = stream.read_to_end(&mut bytes);
    writeln!(fs::OpenOptions::new().create(true).append(true).open(note)?, "{} bytes", bytes.len())
}

fn lie(mut stream: UnixStream, pids: &str) -> std::io::Result<()> {
    stream.write_all(b"{\"QMP\": {}}\n")?;
    let mut lines = BufReader::new(stream.try_clone()?);
    lines.read_line(&mut String::new())?;
    let cpu = |(n, pid): (usize, &str)| format!("{{\"cpu-index\":{n},\"thread-id\":{pid}}}");
    let cpus: Vec<String> = pids.split(' ').enumerate().map(cpu).collect();
    writeln!(stream, "{{\"return\":{{}}}}\n{{\"id\":\"vsteer\",\"return\":[{}]}}", cpus.join(","))?;
    std::thread::sleep(Duration::from_millis(200));
    Ok(())
}

/// Holds the lock of a file for ever, if it may open it.
fn hold(path: &str) {
    let held = File::open(path);
    if let Ok(file) = &held {
        let _ = flock(file, FlockOperation::LockExclusive);
    }
    ready();
    for_ever();
}

/// Exchanges two names without pause.
fn exchange(a: &str, b: &str) {
    ready();
    loop {
        let _ = renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE);
    }
}

/// Puts a link to `target` in the place of each name that appears in `folder`.
fn steal(folder: &Path, target: &Path) {
    ready();
    let mut number = 0;
    loop {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let stolen = entry.file_name().to_string_lossy().starts_with("stolen");
            if stolen || path.is_symlink() {
                continue;
            }
            number += 1;
            let away = folder.join(format!("stolen-{number}"));
            if fs::rename(&path, away).is_ok() {
                let _ = std::os::unix::fs::symlink(target, &path);
            }
        }
    }
}

/// Empties a file and writes it again, without pause.
fn rewrite(path: &Path) {
    let bytes = fs::read(path).unwrap_or_default();
    ready();
    loop {
        let _ = File::create(path).and_then(|mut file| {
            std::thread::sleep(Duration::from_micros(200));
            file.write_all(&bytes)
        });
    }
}

/// Answers as the helper that asks libvirt, with one VM.
fn libvirt() {
    let xml =
        format!("<domain type='kvm' id='1'><name>bank</name><uuid>{BANK}</uuid><vcpu>1</vcpu></domain>");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let request: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let answer = match request["op"].as_str() {
            Some("list") => serde_json::json!({ "undescribed": [], "domains": [{
                "uuid": BANK, "name": "bank", "id": 1, "state": "running", "persistent": true,
                "xml": xml, "xml_inactive": xml, "sched": { "cpu_shares": 1024 },
            }] }),
            Some("schedinfo") => serde_json::json!({ "cpu_shares": 1024 }),
            _ => serde_json::json!({}),
        };
        println!("{}", serde_json::json!({ "v": 1, "ok": answer }));
    }
}

/// The UUID of the VM that [`libvirt`] lists.
pub const BANK: &str = "11111111-2222-3333-4444-555555555555";

/// Where an attacker that has this value plays.
pub fn path_of(folder: &Path, name: &str) -> (PathBuf, String) {
    let path = folder.join(name);
    let text = path.to_string_lossy().into_owned();
    (path, text)
}
