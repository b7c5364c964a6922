//! Which facts about running VMs does the audit read, and which of them are kept?
//!
//! For each QEMU that runs a VM: the command line's options for vCPUs, queues and the name, in QEMU's own `key=value`
//! form even if libvirt wrote JSON; and the affinity of its first thread and its vCPU threads. This file drops
//! everything else before it enters the tree, because command lines hold passwords (`-vnc`, `-object secret`), paths
//! and addresses, and a captured tree is made to be sent to others. Other processes are not kept. Reading a captured
//! tree gives the same facts.
//!
//! Source: `man 5 proc`; QEMU 7.2's `qemu-options.hx`; `vms.rs` of `vsteer_experiment::audit` explains the kept words.
//!
//! Left out: hidden QEMUs (another PID namespace, `hidepid`), and other VMMs.

use crate::kvm::command_line::{get, is_libvirts, options, pairs, qemu};
use crate::linux::task::{self, text};
use crate::root::Root;
use serde_json::Value;
use vsteer_core::tree::Tree;

/// An option that is kept: its name, the key of a first word without one, and the keys that are kept.
type Kept = (&'static str, &'static str, &'static [&'static str]);

const KEPT: &[Kept] = &[
    ("name", "guest", &["guest", "debug-threads"]),
    (
        "smp",
        "cpus",
        &[
            "cpus", "maxcpus", "drawers", "books", "sockets", "dies", "clusters", "modules", "cores",
            "threads",
        ],
    ),
    (
        "machine",
        "type",
        &[
            "type",
            "smp.cpus",
            "smp.maxcpus",
            "smp.drawers",
            "smp.books",
            "smp.sockets",
            "smp.dies",
            "smp.clusters",
            "smp.modules",
            "smp.cores",
            "smp.threads",
        ],
    ),
    ("netdev", "type", &["type", "id", "queues", "fds"]),
    ("nic", "type", &["type", "id", "model", "mac"]),
    ("net", "type", &["type", "name", "model", "macaddr"]),
    ("device", "driver", &["driver", "id", "netdev", "mac", "mq", "num-queues", "num_queues"]),
    ("drive", "file", &["if", "id"]),
];

/// The devices that are kept begin so.
const DEVICES: [&str; 5] = ["virtio-net", "virtio-blk", "virtio-scsi", "vhost-user-", "vhost-scsi"];
/// What stands for libvirt's secret: that there is one.
const OF_LIBVIRT: &str = "qom-type=secret,id=masterKey0";

/// Adds what is wanted of each QEMU.
pub fn read(root: &Root, tree: &mut Tree) {
    for name in root.names("/proc").unwrap_or_default() {
        let Ok(pid) = name.parse::<u32>() else { continue };
        let at = format!("/proc/{pid}");
        let Some(line) = text(root, &format!("{at}/cmdline")).and_then(|l| reduced(&l)) else { continue };
        tree.files.insert(format!("{at}/cmdline"), line);
        tree.files.extend(allowed(root, &at));
        for tid in task::threads(root, pid) {
            let at = format!("{at}/task/{}", tid.0);
            let Some(comm) = text(root, &format!("{at}/comm")) else { continue };
            if comm.starts_with("CPU ") || comm.starts_with("ALL CPUs") {
                tree.files.insert(format!("{at}/comm"), comm);
                tree.files.extend(allowed(root, &at));
            }
        }
    }
}

/// A `status` of which the line that matters is left.
fn allowed(root: &Root, at: &str) -> Option<(String, String)> {
    let path = format!("{at}/status");
    let text = text(root, &path)?;
    let line = text.lines().find(|l| l.starts_with("Cpus_allowed_list:"))?;
    Some((path, format!("{line}\n")))
}

/// A command line of which the words that matter are left, each ended by a NUL as in `/proc/PID/cmdline`: the
/// program's file name, then options and values in turn. `None` if it is not a QEMU that runs a VM. What has been
/// reduced is reduced to the same.
pub fn reduced(line: &str) -> Option<String> {
    let words: Vec<String> = line.trim_end_matches('\0').split('\0').map(str::to_owned).collect();
    let mut kept = vec![qemu(&words)?.to_owned()];
    for (option, value) in options(&words[1..]) {
        let option = if option == "M" { "machine" } else { option };
        let value = match option {
            "version" | "help" | "h" => return None,
            "uuid" => value.chars().all(|c| c.is_ascii_hexdigit() || c == '-').then(|| value.to_owned()),
            "id" => value.chars().all(|c| c.is_ascii_digit()).then(|| value.to_owned()),
            "object" => (value == OF_LIBVIRT || is_libvirts(value)).then(|| OF_LIBVIRT.to_owned()),
            _ => KEPT.iter().find(|k| k.0 == option).and_then(|k| of(k, value)),
        };
        let Some(value) = value else { continue };
        if option == "machine" && value == "type=none" {
            return None; // A libvirt asking QEMU what it can do.
        }
        kept.extend([format!("-{option}"), value]);
    }
    Some(kept.iter().map(|word| format!("{word}\0")).collect())
}

/// An option's value, with the keys that are kept.
fn of((option, implied, keys): &Kept, value: &str) -> Option<String> {
    // Of the kept ones QEMU takes JSON in these two; a name may begin with a brace.
    let said = if value.starts_with('{') && ["device", "netdev"].contains(option) {
        scalars(value)?
    } else {
        pairs(value, implied)
    };
    let begins =
        |key: &str, with: &[&str]| get(&said, key).is_some_and(|v| with.iter().any(|w| v.starts_with(w)));
    match *option {
        "device" if !begins("driver", &DEVICES) => return None,
        "drive" if get(&said, "if") != Some("virtio") => return None,
        _ => {}
    }
    let kept = keys.iter().filter_map(|key| Some(format!("{key}={}", get(&said, key)?.replace(',', ",,"))));
    Some(kept.collect::<Vec<_>>().join(",")).filter(|text| !text.is_empty())
}

/// The texts, numbers and switches of a JSON object; `None` where it is none.
fn scalars(value: &str) -> Option<Vec<(String, String)>> {
    let Ok(Value::Object(all)) = serde_json::from_str(value) else { return None };
    let text = |v: &Value| match v {
        Value::String(text) => Some(text.clone()),
        Value::Number(n) => Some(n.to_string()),
        Value::Bool(on) => Some(if *on { "on" } else { "off" }.to_owned()),
        _ => None,
    };
    Some(all.iter().filter_map(|(k, v)| Some((k.clone(), text(v)?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vsteer_experiment::audit::audit;

    fn line(words: &[&str]) -> String {
        words.iter().map(|w| format!("{w}\0")).collect()
    }

    #[test]
    fn what_matters_is_kept_and_secrets_are_not() {
        let said = line(&[
            "/usr/bin/qemu-system-x86_64",
            "-name",
            "{a,,b,debug-threads=on",
            "-S",
            "-object",
            r#"{"qom-type":"secret","id":"masterKey0","file":"/var/lib/libvirt/qemu/domain-12-its/master-key.aes"}"#,
            "-object",
            "secret,id=s0,data=hunter2",
            "-M",
            "pc-q35-7.2,usb=off",
            "-smp",
            "4,sockets=2",
            "-netdev",
            r#"{"type":"tap","fds":"23:24","vhost":true,"vhostfds":"25:26","id":"hostnet0"}"#,
            "-device",
            r#"{"driver":"virtio-net-pci","mq":true,"vectors":6,"netdev":"hostnet0","id":"net0","mac":"52:54:00:00:00:01"}"#,
            "-device",
            "virtio-serial-pci,id=serial0",
            "-device",
            "usb-host,serial=hunter2",
            "-drive",
            "file=/secret/hunter2.qcow2,if=virtio,id=d0",
            "-drive",
            "file=/secret/hunter2.qcow2,if=none,id=d1",
            "-vnc",
            ":1,password=on",
            "-append",
            "hunter2",
            "--uuid",
            "63715d0b-76a4-4a2a-8db6-9bda3af71014",
        ]);
        let kept = reduced(&said).unwrap();
        let expected = line(&[
            "qemu-system-x86_64",
            "-name",
            "guest={a,,b,debug-threads=on",
            "-object",
            OF_LIBVIRT,
            "-machine",
            "type=pc-q35-7.2",
            "-smp",
            "cpus=4,sockets=2",
            "-netdev",
            "type=tap,id=hostnet0,fds=23:24",
            "-device",
            "driver=virtio-net-pci,id=net0,netdev=hostnet0,mac=52:54:00:00:00:01,mq=on",
            "-drive",
            "if=virtio,id=d0",
            "-uuid",
            "63715d0b-76a4-4a2a-8db6-9bda3af71014",
        ]);
        assert_eq!(kept.replace('\0', "\n"), expected.replace('\0', "\n"));
        assert_eq!(reduced(&kept).as_ref(), Some(&kept));
        for other in
            [&["qemu-img", "-smp", "2"][..], &["kvm", "-machine", "none"], &["kvm", "-version"], &[""]]
        {
            assert_eq!(reduced(&line(other)), None, "{other:?}");
        }
    }

    #[test]
    fn other_processes_are_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &[u8]| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        file("proc/7/cmdline", b"bash\0-c\0qemu-system-x86_64 -smp 2\0");
        file("proc/8/cmdline", b"kvm\0-name\0\xff\xfe,debug-threads=on\0-vnc\0hunter2\0-smp\x002");
        file("proc/8/status", b"Name:\thunter2\nCpus_allowed_list:\t0-1\n");
        file("proc/8/task/8/comm", b"hunter2\n");
        file("proc/8/task/9/comm", b"CPU 0/KVM\n");
        file("proc/8/task/9/status", b"Name:\thunter2\nCpus_allowed_list:\t1\n");
        file("proc/8/task/x/comm", b"CPU 9/KVM\n");
        let mut tree = Tree::default();
        read(&Root::open(dir.path()).unwrap(), &mut tree);
        let paths: Vec<&str> = tree.files.keys().map(String::as_str).collect();
        assert_eq!(
            paths,
            ["/proc/8/cmdline", "/proc/8/status", "/proc/8/task/9/comm", "/proc/8/task/9/status"]
        );
        assert!(tree.files.values().all(|text| !text.contains("hunter2")), "{tree:?}");
    }

    proptest! {
        #[test]
        fn any_line_is_reduced_once(
            words in proptest::collection::vec("\\PC{0,30}|-(name|smp|M|machine|netdev|device|nic|net|drive|object|uuid|id|S)|(driver=)?virtio-(net|blk)-pci[a-z=,_{\"0-9-]{0,20}|\\{\"[a-z]{0,6}\":[a-z\"0-9]{0,6}\\}", 0..10),
            cut in 0usize..200,
        ) {
            let mut all = String::from("/usr/bin/kvm\0");
            words.iter().for_each(|w| { all.push_str(w); all.push('\0'); });
            // Cut anywhere, within a letter too.
            let cut = cut.min(all.len());
            let bytes = all.as_bytes()[..cut].to_vec();
            for text in [all, String::from_utf8_lossy(&bytes).into_owned()] {
                if let Some(kept) = reduced(&text) {
                    prop_assert_eq!(reduced(&kept), Some(kept.clone()));
                    let mut tree = Tree::default();
                    tree.files.insert("/sys/devices/system/cpu/online".into(), "0-3".into());
                    tree.files.insert("/proc/5/cmdline".into(), kept);
                    prop_assert!(audit(&tree).iter().any(|f| f.check == "pinning"));
                }
            }
        }
    }
}
