//! How are names in a capture replaced, so that the same name has the same replacement everywhere?
//!
//! Names of VMs, of the host and of users come from the places that define them. UUIDs and MAC addresses are
//! recognised by their form, in every file and path. A name is replaced where it stands as a word of its own. A name
//! that is short, a number, or a word of QEMU or the kernel is replaced only where a VM's name is expected, since
//! `cpu` may be a name too.
//!
//! Left out: names that nothing here defines, such as those of tuned profiles.

use crate::root::{Entry, Seen};
use std::collections::{BTreeMap, BTreeSet};

/// Words that QEMU, libvirt, systemd or the kernel write by themselves.
const RESERVED: [&str; 20] = [
    "cpu", "kvm", "qemu", "tcg", "libvirt", "machine", "slice", "scope", "emulator", "guest", "name",
    "system", "host", "linux", "vcpu", "user", "root", "proc", "sys", "domain",
];
/// What stands right before a VM's name.
const BEFORE_A_NAME: [&str; 5] = ["guest=", "<name>", "x2d", "--name\0", "/etc/libvirt/qemu/"];

/// Original names, each with its replacement.
#[derive(Debug, Default)]
pub struct Names {
    words: BTreeMap<String, String>,
    uuids: BTreeMap<String, u64>,
    macs: BTreeMap<String, u64>,
}

impl Names {
    /// Adds a name of one kind (`vm`, `host`, `user`); an empty or a known one is left alone.
    pub fn add(&mut self, kind: &str, name: &str) {
        let name = name.trim();
        if name.is_empty() || self.words.contains_key(name) {
            return;
        }
        let known: BTreeSet<&String> = self.words.values().filter(|new| new.starts_with(kind)).collect();
        let new = format!("{kind}-{}", known.len() + 1);
        // As systemd writes it in the name of a unit.
        let escaped = escape(name);
        if escaped != name {
            self.words.insert(escaped, new.clone());
        }
        self.words.insert(name.to_owned(), new);
    }

    /// All paths and texts with names replaced.
    pub fn redact(&mut self, seen: Seen) -> Seen {
        let mut all = Seen::new();
        for (path, entry) in seen {
            let named = !path.starts_with("/sys/devices/") && !path.starts_with("/sys/module/");
            let entry = match entry {
                Entry::File(bytes) => match String::from_utf8(bytes) {
                    Ok(text) => Entry::File(self.text(&path, &text, named && may_name(&path)).into_bytes()),
                    Err(e) => Entry::File(e.into_bytes()),
                },
                other => other,
            };
            let path = self.text("", &path, named);
            all.insert(path, entry);
        }
        all
    }

    fn text(&mut self, path: &str, text: &str, named: bool) -> String {
        if path == "/etc/machine-id" {
            let n = number(&mut self.uuids, text.trim().to_ascii_lowercase());
            return format!("{n:032x}\n");
        }
        if path == "/proc/sys/kernel/hostname"
            && let Some(new) = self.words.get(text.trim())
        {
            return format!("{new}\n");
        }
        let mut text = if path == "/proc/cmdline" { values_removed(text) } else { text.to_owned() };
        text = self.addresses(&text);
        if named {
            text = replaced(&text, &self.words);
        }
        text
    }

    /// UUIDs and MAC addresses replaced.
    fn addresses(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        let mut before = None;
        while let Some(c) = rest.chars().next() {
            let begins = !before.is_some_and(|b: char| b.is_ascii_alphanumeric()) || out.ends_with("x2d");
            if begins && c.is_ascii_hexdigit() {
                if let Some((length, key, sign)) = uuid(rest) {
                    let n = number(&mut self.uuids, key);
                    out.push_str(&["00000000", "0000", "0000", "0000", &format!("{n:012x}")].join(sign));
                    (rest, before) = (&rest[length..], Some('0'));
                    continue;
                }
                if let Some(key) = mac(rest) {
                    let n = number(&mut self.macs, key.to_ascii_lowercase());
                    let b = n.to_be_bytes();
                    out.push_str(&format!("02:00:00:{:02x}:{:02x}:{:02x}", b[5], b[6], b[7]));
                    (rest, before) = (&rest[key.len()..], Some('0'));
                    continue;
                }
            }
            out.push(c);
            before = Some(c);
            rest = &rest[c.len_utf8()..];
        }
        out
    }
}

/// May a file of this path hold a name that somebody chose?
fn may_name(path: &str) -> bool {
    !matches!(
        path,
        "/proc/stat"
            | "/proc/cpuinfo"
            | "/proc/uptime"
            | "/proc/mounts"
            | "/proc/sys/kernel/osrelease"
            | "/proc/sys/kernel/version"
    )
}

/// The number of a key, counted from 1.
fn number(of: &mut BTreeMap<String, u64>, key: String) -> u64 {
    let next = of.len() as u64 + 1;
    *of.entry(key).or_insert(next)
}

/// As systemd escapes a name in a unit's name: what is not a letter, digit, `:`, `_` or `.` becomes `\xNN`.
fn escape(name: &str) -> String {
    let mut out = String::new();
    for b in name.bytes() {
        if b.is_ascii_alphanumeric() || b":_.".contains(&b) {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("\\x{b:02x}"));
        }
    }
    out
}

/// Is it a name that may stand anywhere by chance?
fn is_odd(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    name.chars().count() < 3 || name.chars().all(|c| c.is_ascii_digit()) || RESERVED.contains(&lower.as_str())
}

/// `text` with each name replaced wherever it is a word of its own; of several that fit, the longest. One pass, since a
/// replacement may look like another name.
fn replaced(text: &str, words: &BTreeMap<String, String>) -> String {
    let mut names: Vec<(&String, &String, bool)> = words
        .iter()
        .filter(|(name, _)| text.contains(name.as_str()))
        .map(|(name, new)| (name, new, is_odd(name)))
        .collect();
    names.sort_by_key(|(name, ..)| std::cmp::Reverse(name.len()));
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let before = &text[..at];
        let expected = BEFORE_A_NAME.iter().any(|b| before.ends_with(b));
        let begins = !before.chars().next_back().is_some_and(char::is_alphanumeric);
        let fits = |(name, _, odd): &&(&String, &String, bool)| {
            text[at..].starts_with(name.as_str())
                && (expected || (begins && !odd))
                && !text[at + name.len()..].chars().next().is_some_and(char::is_alphanumeric)
        };
        match names.iter().find(fits) {
            Some((name, new, _)) if before.ends_with("x2d") || name.contains("\\x") => {
                out.push_str(&escape(new));
                at += name.len();
            }
            Some((name, new, _)) => {
                out.push_str(new);
                at += name.len();
            }
            None => {
                out.push(c);
                at += c.len_utf8();
            }
        }
    }
    out
}

/// A UUID that `text` begins with: its length, its digits, and what separates its parts.
fn uuid(text: &str) -> Option<(usize, String, &'static str)> {
    ["-", "_", "\\x2d"].into_iter().find_map(|sign| {
        let (mut at, mut key) = (0, String::new());
        for (i, digits) in [8, 4, 4, 4, 12].into_iter().enumerate() {
            if i > 0 {
                at += text.get(at..)?.starts_with(sign).then_some(sign.len())?;
            }
            let part = text.get(at..at + digits)?;
            part.bytes().all(|b| b.is_ascii_hexdigit()).then_some(())?;
            key.push_str(&part.to_ascii_lowercase());
            at += digits;
        }
        let ends = !text[at..].chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
        ends.then_some((at, key, sign))
    })
}

/// A MAC address that `text` begins with.
fn mac(text: &str) -> Option<&str> {
    let mac = text.get(..17)?;
    let fits =
        mac.bytes().enumerate().all(|(i, b)| if i % 3 == 2 { b == b':' } else { b.is_ascii_hexdigit() });
    let ends = !text[17..].chars().next().is_some_and(|c| c.is_ascii_alphanumeric() || c == ':');
    (fits && ends).then_some(mac)
}

/// The kernel's command line without values that may name a machine, a disk or a network.
fn values_removed(text: &str) -> String {
    let word = |w: &str| {
        let Some((name, value)) = w.split_once('=') else { return w.to_owned() };
        let plain = value.bytes().all(|b| b.is_ascii_alphanumeric() || b",-_.:".contains(&b));
        let names = ["ip", "hostname", "nameserver", "root", "resume", "BOOT_IMAGE", "ks", "rootflags"];
        let tells = names.contains(&name)
            || ["nfs", "rd.", "inst.", "systemd.", "ds", "netroot", "iscsi", "crypt"]
                .iter()
                .any(|b| name.starts_with(b));
        if plain && !tells { w.to_owned() } else { format!("{name}=removed") }
    };
    text.split_whitespace().map(word).collect::<Vec<_>>().join(" ") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seen(files: &[(&str, &str)]) -> Seen {
        files.iter().map(|(p, t)| ((*p).to_owned(), Entry::File(t.as_bytes().to_vec()))).collect()
    }

    #[test]
    fn the_same_name_has_the_same_replacement_everywhere() {
        let mut names = Names::default();
        names.add("host", "node7.corp");
        names.add("vm", "pay-roll");
        names.add("vm", "cpu");
        names.add("host", "vm");
        names.add("user", "alice");
        let uuid = "63715d0b-76a4-4a2a-8db6-9bda3af71014";
        let all = names.redact(seen(&[
            (
                "/etc/libvirt/qemu/pay-roll.xml",
                &format!("<name>pay-roll</name><uuid>{uuid}</uuid><mac address='52:54:00:AA:00:01'/>"),
            ),
            ("/etc/libvirt/qemu/cpu.xml", "<name>cpu</name>"),
            (
                "/proc/7/cmdline",
                &format!("qemu-system-x86_64\0-name\0guest=pay-roll,x\0-uuid\0{}\0", uuid.to_uppercase()),
            ),
            ("/proc/7/cgroup", "0::/machine.slice/machine-qemu\\x2d3\\x2dpay\\x2droll.scope/libvirt"),
            ("/proc/7/task/8/comm", "CPU 0/KVM cpu pay-rolls"),
            ("/proc/cmdline", "root=UUID=1234 hostname=node7.corp isolcpus=2-3 quiet"),
            ("/proc/sys/kernel/hostname", "node7.corp\n"),
            ("/sys/fs/cgroup/user.slice/alice/cpu.max", "max 100000"),
        ]));
        let text: BTreeMap<&str, String> = all
            .iter()
            .map(|(path, e)| match e {
                Entry::File(b) => (path.as_str(), String::from_utf8(b.clone()).unwrap()),
                _ => unreachable!(),
            })
            .collect();
        let new = "00000000-0000-0000-0000-000000000001";
        assert_eq!(
            text["/etc/libvirt/qemu/vm-1.xml"],
            format!("<name>vm-1</name><uuid>{new}</uuid><mac address='02:00:00:00:00:01'/>")
        );
        assert_eq!(text["/etc/libvirt/qemu/vm-2.xml"], "<name>vm-2</name>");
        assert!(text["/proc/7/cmdline"].contains("guest=vm-1,x") && text["/proc/7/cmdline"].contains(new));
        assert_eq!(text["/proc/7/cgroup"], "0::/machine.slice/machine-qemu\\x2d3\\x2dvm\\x2d1.scope/libvirt");
        assert_eq!(text["/proc/7/task/8/comm"], "CPU 0/KVM cpu pay-rolls", "pay-rolls is another name");
        assert_eq!(text["/proc/cmdline"], "root=removed hostname=removed isolcpus=2-3 quiet\n");
        assert_eq!(text["/proc/sys/kernel/hostname"], "host-1\n");
        assert!(text.contains_key("/sys/fs/cgroup/user.slice/user-1/cpu.max"));
    }

    proptest! {
        #[test]
        fn any_text_is_redacted_once(text in "([0-9a-f]{4,12}|[-_:]|52:54:00:aa:00:01|\\PC){0,20}") {
            let mut names = Names::default();
            names.add("vm", "web");
            let once = names.text("/proc/7/cmdline", &text, true);
            prop_assert!(once.len() >= text.len() / 4);
        }
    }
}
