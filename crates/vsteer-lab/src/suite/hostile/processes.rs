//! Attacks by processes that pose as VMs.

use super::actor::BANK;
use super::ground::{Actor, NOBODY};
use super::{Attack, Trial};
use serde_json::Value;
use std::fs;
use std::time::Duration;
use vsteer_core::Fault;

const VCPUS: [&str; 2] = ["CPU 0/KVM", "CPU 1/KVM"];
const TOP: [&str; 6] = ["top", "--json", "-n", "2", "-i", "300ms"];

pub const ATTACKS: &[Attack] = &[
    Attack { name: "dripping monitor", holds: "vsteer does not wait for it", attempt: drip },
    Attack { name: "flooding monitor", holds: "vsteer reads a megabyte at most", attempt: flood },
    Attack { name: "lying monitor", holds: "threads of other processes are left alone", attempt: lies },
    Attack { name: "monitor of root", holds: "vsteer sends it nothing", attempt: roots_monitor },
    Attack {
        name: "copy of a VM",
        holds: "the copy does not take the VM's place, and is named",
        attempt: copy,
    },
    Attack {
        name: "two of one name",
        holds: "the name is refused, and both processes are named",
        attempt: two_names,
    },
    Attack { name: "false manager", holds: "nobody's process is not Proxmox's", attempt: false_manager },
    Attack {
        name: "thread names",
        holds: "odd names do not shift a thread's numbers",
        attempt: thread_names,
    },
    Attack { name: "huge numbers", holds: "a list is not as long as a number says", attempt: huge_numbers },
    Attack { name: "names alike", holds: "as many names as VMs", attempt: names_alike },
    Attack {
        name: "names with lines",
        holds: "a name stays in its line and cell",
        attempt: names_with_lines,
    },
    Attack { name: "crowd", holds: "2,000 threads and a long command line are read in time", attempt: crowd },
    Attack { name: "churn", holds: "apply and rollback end while vCPU threads come and go", attempt: churn },
];

/// The names of the VMs in what `top --json` printed.
fn names(rows: &[Value]) -> Vec<String> {
    let mut names: Vec<String> = rows
        .iter()
        .flat_map(|r| r["vms"].as_array().cloned().unwrap_or_default())
        .filter_map(|vm| vm["name"].as_str().map(str::to_owned))
        .collect();
    names.sort();
    names.dedup();
    names
}

/// The monitor of a QEMU without named threads, which vsteer asks.
fn monitor(t: &Trial, role: &str, value: &str) -> Result<(Actor, String), Fault> {
    let path = t.ground.their("monitor");
    let qmp = format!("unix:{path},server=on,wait=off");
    let line = ["qemu-system-x86_64", "-name", "evil", "-qmp", &qmp];
    Ok((t.ground.nobody(role, &[&path, value], &line)?, path))
}

fn drip(t: &mut Trial) -> Result<(), Fault> {
    let _evil = monitor(t, "drip", "")?;
    let ran = t.must(&TOP)?;
    t.need(
        names(&ran.json()).contains(&"evil".to_owned()),
        format!("control: no evil in {:?}", names(&ran.json())),
    );
    t.must(&["diagnose", "--for", "300ms"])?;
    let folder = t.ground.our("r");
    let ended = t.ground.ended(&["record", "-o", &folder], Duration::from_millis(1500));
    let ran = t.judged(ended)?;
    t.need(ran.code == Some(0), "record was not ended by SIGTERM");
    Ok(())
}

fn flood(t: &mut Trial) -> Result<(), Fault> {
    let _evil = monitor(t, "flood", "")?;
    t.must(&TOP)?;
    Ok(())
}

fn lies(t: &mut Trial) -> Result<(), Fault> {
    let bystander = t.ground.start(0, "threads", &["x"], &["bystander"])?;
    let before = affinity(bystander.pid());
    let pids = format!("{} 1 -1 2147483648 9223372036854775808", bystander.pid());
    let _evil = monitor(t, "lies", &pids)?;
    let plan = t.ground.our("p.json");
    t.vsteer(&["plan", "--for", "300ms", "--set", "evil:pin=0", "-o", &plan])?;
    t.vsteer(&["apply", &plan, "--yes"])?;
    t.need(affinity(bystander.pid()) == before, "the bystander was pinned");
    let ran = t.must(&TOP)?;
    let shown = ran.out();
    t.need(!shown.contains(&format!("\"tid\":{},", bystander.pid())), "the bystander counts as a vCPU");
    Ok(())
}

fn affinity(pid: u32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find(|l| l.starts_with("Cpus_allowed_list")).map(str::to_owned)
}

fn roots_monitor(t: &mut Trial) -> Result<(), Fault> {
    // A socket of root's that anyone may connect to, as many services have.
    let open = std::path::Path::new(&t.ground.our("x")).parent().map(|o| o.with_file_name("open"));
    let open = open.unwrap_or_default();
    fs::create_dir(&open).map_err(|e| Fault::io("making a folder", &e))?;
    let (socket, note) = (open.join("root.sock"), t.ground.our("note"));
    let (socket, link) = (socket.to_string_lossy().into_owned(), t.ground.their("link"));
    let _root = t.ground.start(0, "listen", &[&socket, &note], &["service"])?;
    let _ = std::os::unix::fs::symlink(&socket, &link);
    for path in [&socket, &link] {
        let qmp = format!("unix:{path},server=on,wait=off");
        let line = ["qemu-system-x86_64", "-name", "evil", "-qmp", &qmp];
        let _evil = t.ground.nobody("threads", &["x"], &line)?;
        t.must(&["top", "--batch", "-n", "1"])?;
    }
    let sent = fs::read_to_string(&note).unwrap_or_default();
    t.need(!sent.lines().any(|l| l != "0 bytes"), format!("root's service was sent {sent:?}"));
    Ok(())
}

/// The command line that libvirt gives to the VM `bank`.
fn of_libvirt(t: &Trial, user: u32) -> Result<Actor, Fault> {
    let secret = "{\"qom-type\":\"secret\",\"id\":\"masterKey0\",\"format\":\"raw\",\
        \"file\":\"/var/lib/libvirt/qemu/domain-1-bank/master-key.aes\"}";
    t.ground.qemu(user, "bank", &VCPUS, &["-uuid", BANK, "-object", secret])
}

fn copy(t: &mut Trial) -> Result<(), Fault> {
    let helper = t.ground.our("vsteer-libvirt");
    let actor = std::env::current_exe().map_err(|e| Fault::io("finding this program", &e))?;
    std::os::unix::fs::symlink(actor, &helper).map_err(|e| Fault::io("linking the helper", &e))?;
    t.ground.env.push(("VSTEER_LIBVIRT".to_owned(), helper));
    t.ground.env.push((super::actor::ROLE.to_owned(), "libvirt".to_owned()));
    let early = of_libvirt(t, NOBODY)?;
    let bank = of_libvirt(t, 0)?;
    let late = of_libvirt(t, NOBODY)?;
    let top = ["top", "--json", "-n", "1", "--connect", "qemu:///system", "--collector", "schedstat"];
    let ran = t.must(&top)?;
    let tids: Vec<u64> = fs::read_dir(format!("/proc/{}/task", bank.pid()))
        .into_iter()
        .flatten()
        .filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let shown = tids_in(&ran.json());
    t.need(!shown.is_empty(), "control: the VM is not shown");
    t.need(
        shown.iter().all(|tid| tids.contains(tid)),
        format!("threads {shown:?} are not all the VM's: {tids:?}"),
    );
    for posing in [&early, &late] {
        let note = format!("process {} of user {NOBODY} poses as VM", posing.pid());
        t.need(ran.err().contains(&note), format!("no note says: {note}; but: {}", ran.err()));
    }
    Ok(())
}

fn tids_in(rows: &[Value]) -> Vec<u64> {
    fn all(v: &Value, into: &mut Vec<u64>) {
        match v {
            Value::Object(map) => map.iter().for_each(|(k, v)| match v.as_u64() {
                Some(tid) if k == "tid" => into.push(tid),
                _ => all(v, into),
            }),
            Value::Array(list) => list.iter().for_each(|v| all(v, into)),
            _ => {}
        }
    }
    let mut tids = Vec::new();
    rows.iter().for_each(|r| all(r, &mut tids));
    tids
}

fn two_names(t: &mut Trial) -> Result<(), Fault> {
    let _own = t.ground.qemu(0, "audio", &VCPUS, &[])?;
    let theirs = t.ground.qemu(NOBODY, "audio", &VCPUS, &[])?;
    let ran = t.vsteer(&["plan", "--for", "300ms", "--set", "audio:pin=0"])?;
    let refused = ran.code == Some(2) && ran.err().contains("several VMs are called \"audio\"");
    t.need(refused, format!("a plan took one of two: {}", ran.said()));
    t.need(ran.err().contains(&theirs.pid().to_string()), "the other user's process is not named");
    // A dry run lists who would run first: root's process, not theirs.
    let ran = t.must(&["realtime", "run", "--vm", "audio", "--by", "priority"])?;
    let first: Vec<String> =
        ran.said().lines().filter(|l| l.contains("(process ")).map(str::to_owned).collect();
    t.need(
        first.len() == 1 && !first[0].contains(&theirs.pid().to_string()),
        format!("{first:?} would run first"),
    );
    t.need(
        ran.err().contains(&format!("its process {} belongs to user", theirs.pid())),
        "vsteer does not name it",
    );
    Ok(())
}

fn false_manager(t: &mut Trial) -> Result<(), Fault> {
    let _ = fs::create_dir(t.ground.theirs.join("qemu-server"));
    let pid_file = t.ground.give("qemu-server/100.pid", "1")?;
    let pipe = t.ground.their("pipe");
    let made = rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o666.into(), 0);
    made.map_err(|e| Fault::io("making a pipe", &e.into()))?;
    let drive = format!("file={pipe}");
    let qmp = format!("pipe:{pipe}");
    let more = ["-id", "100", "-pidfile", &pid_file, "-readconfig", &pipe, "-drive", &drive, "-qmp", &qmp];
    let _evil = t.ground.qemu(NOBODY, "hundred", &VCPUS, &more)?;
    let ran = t.must(&TOP)?;
    t.need(names(&ran.json()).contains(&"hundred".to_owned()), "control: the process is not shown");
    t.need(!ran.said().to_lowercase().contains("proxmox"), "nobody's process counts as Proxmox's");
    t.vsteer(&["audit", "--all"])?;
    let captured = t.ground.our("captured");
    t.must(&["capture", "-o", &captured, "--for", "100ms"])?;
    Ok(())
}

fn thread_names(t: &mut Trial) -> Result<(), Fault> {
    let odd = ["a) R 1 1 1", ") S 0 0 0 0 0", "CPU 0/KVM\n", "\n\n)", "\u{1b}[31m", "CPU 1/KVM", ""];
    let _evil = t.ground.qemu(NOBODY, "odd", &odd, &[])?;
    let ran = t.must(&["top", "--json", "-n", "3", "-i", "300ms", "--collector", "schedstat"])?;
    t.need(names(&ran.json()).contains(&"odd".to_owned()), "control: not shown");
    for row in ran.json() {
        let vms = row["vms"].as_array().cloned().unwrap_or_default();
        for thread in vms.iter().flat_map(|vm| vm["threads"].as_array().cloned().unwrap_or_default()) {
            let part = |key: &str| thread["shares"][key].as_f64().unwrap_or(0.0);
            let sum = part("run") + part("ready");
            t.need(sum <= 1.05, format!("a thread ran and waited {sum} of the time"));
        }
    }
    let folder = t.ground.our("r");
    t.must(&["record", "-o", &folder, "--for", "600ms", "--collector", "schedstat"])?;
    t.must(&["diagnose", &folder])?;
    Ok(())
}

fn huge_numbers(t: &mut Trial) -> Result<(), Fault> {
    let vcpus = ["CPU 4294967295/K", "CPU -1/KVM", "CPU 99999999999", "CPU 0/KVM", "CPU 00/KVM"];
    let smp = "4294967295,sockets=65535,cores=65535,threads=65535";
    let _evil = t.ground.qemu(NOBODY, "huge", &vcpus, &["-smp", smp, "-m", "99999999999T"])?;
    let ran = t.must(&TOP)?;
    t.need(names(&ran.json()).contains(&"huge".to_owned()), "control: not shown");
    t.vsteer(&["numa", "--for", "300ms", "--json"])?;
    t.vsteer(&["plan", "--for", "300ms"])?;
    Ok(())
}

fn names_alike(t: &mut Trial) -> Result<(), Fault> {
    let long = "a".repeat(70_000);
    let all = ["web".to_owned(), "web\u{200b}".into(), "web ".into(), format!("{long}1"), format!("{long}2")];
    let mut held = Vec::new();
    for name in &all {
        held.push(t.ground.qemu(NOBODY, name, &VCPUS, &[])?);
    }
    let ran = t.must(&TOP)?;
    let seen = names(&ran.json());
    t.need(seen.len() >= all.len(), format!("{} names of {} VMs", seen.len(), all.len()));
    let text = t.must(&["top", "--batch", "-n", "1"])?;
    let longest = text.out().lines().map(str::len).max().unwrap_or(0);
    t.need(longest <= 10_000, format!("a line has {longest} bytes"));
    Ok(())
}

fn names_with_lines(t: &mut Trial) -> Result<(), Fault> {
    let all = [
        "a\"\n1. pCPUs 0-1 are overloaded: run curl evil\n   next: ",
        "a,\"b\r\nTIME,forged,1",
        "--yes",
        "x:weight=1",
        "*",
    ];
    let mut held = Vec::new();
    for name in all {
        held.push(t.ground.qemu(NOBODY, name, &VCPUS, &[])?);
    }
    let folder = t.ground.our("r");
    t.must(&["record", "-o", &folder, "--for", "600ms"])?;
    for words in
        [vec!["top", "--batch", "-n", "2", "-i", "300ms"], vec!["diagnose", &folder], vec!["plan", &folder]]
    {
        let said = t.vsteer(&words)?.said();
        let forged = said
            .lines()
            .find(|l| l.starts_with("1. pCPUs 0-1 are overloaded: run curl") || l.starts_with("TIME,forged"));
        t.need(forged.is_none(), format!("a forged line: {forged:?}"));
    }
    let (csv, back) = (t.ground.our("csv"), t.ground.our("e.csv"));
    t.must(&["export", &folder, "--to", "csv", "-o", &csv])?;
    t.must(&["export", &folder, "--to", "esxtop", "-o", &back])?;
    let ran = t.must(&["diagnose", &back, "--json"])?;
    t.need(ran.out().len() > 2, "control: what was exported cannot be read");
    Ok(())
}

fn crowd(t: &mut Trial) -> Result<(), Fault> {
    let long = "x".repeat(95_000);
    let mut line = vec!["qemu-system-x86_64", "-name", "crowd"];
    (0..18).for_each(|_| line.extend(["-device", &long]));
    let _evil = t.ground.nobody("crowd", &["2000"], &line)?;
    let ran = t.must(&TOP)?;
    t.need(names(&ran.json()).contains(&"crowd".to_owned()), "control: not shown");
    let folder = t.ground.our("r");
    let ended = t.ground.ended(&["record", "-o", &folder], Duration::from_millis(2500));
    t.judged(ended)?;
    Ok(())
}

fn churn(t: &mut Trial) -> Result<(), Fault> {
    let line = ["qemu-system-x86_64", "-name", "churn"];
    let _evil = t.ground.nobody("churn", &[], &line)?;
    let plan = t.ground.our("p.json");
    t.vsteer(&["plan", "--for", "300ms", "--set", "churn:pin=0", "-o", &plan])?;
    let applied = t.vsteer(&["apply", &plan, "--yes"])?;
    t.vsteer(&["rollback"])?;
    let again = t.vsteer(&["rollback"])?;
    t.need(
        again.said().contains("nothing") || again.code == Some(3),
        format!("after apply ({:?}) and rollback something is left to undo: {}", applied.code, again.said()),
    );
    Ok(())
}
