//! How is a setting of the host kept beyond its next boot, and what do the files say that keep it?
//!
//! Three keepers, each by the tool that owns it, so that nobody fights with it: where tuned is in force a generated profile that includes the active one (a file
//! that is written beside tuned's back is set back at its next start); the kernel's command line by the distribution's boot loader tool; a VM's pins and network
//! queues by libvirt's definition of it. What none of them keeps commands of the experiment's do, where its file names them. Here are the values and the pure
//! edits of their texts; reading, writing and calling is `vsteer-host`'s.
//!
//! Sources: tuned.conf(5) and tuned 2.20's plugins sysctl and sysfs; grub-mkconfig's `/etc/default/grub` and Debian's `/etc/default/grub.d/*.cfg`; grubby(8);
//! kernelstub 3 (`/etc/kernelstub/configuration`). Left out: GRUB_CMDLINE_XEN, systemd-boot and U-Boot by their own files.

use super::words::{word_name, words_of};
use serde::{Deserialize, Serialize};

/// A file of the kernel's and what it shall hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Setting {
    /// Its path.
    pub path: String,
    /// What it holds.
    pub from: String,
    /// What it shall hold.
    pub to: String,
}

/// A profile of tuned's that is generated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Its folder, which holds `tuned.conf`.
    pub folder: String,
    /// Profiles that it includes.
    pub includes: String,
    /// What it sets besides.
    pub settings: Vec<Setting>,
    /// Sets profile `{level}`.
    pub set: String,
    /// Prints the active one.
    pub read: String,
}

/// Its first line: a folder whose file begins so is ours to remove.
pub const MADE: &str = "# Made by vsteer; removed by vsteer rollback.";

/// Where tuned would keep this file of the kernel's: its section and key. `None`: it keeps no such file.
fn in_tuned(path: &str) -> Option<(&'static str, String)> {
    let plain =
        |p: &str| p.chars().all(|c| c.is_ascii_alphanumeric() || "/._-:".contains(c)) && !p.contains("..");
    if !plain(path) {
        return None;
    }
    match path.strip_prefix("/proc/sys/") {
        // As in sysctl.d(5): with the first separator a dot, dots and slashes change places.
        Some(rest) => {
            let swapped = rest.chars().map(|c| match c {
                '/' => '.',
                '.' => '/',
                c => c,
            });
            Some(("sysctl", swapped.collect()))
        }
        None => path.starts_with("/sys/").then(|| ("sysfs", path.to_owned())),
    }
}

/// Can tuned keep this value in this file?
pub fn tuned_can(path: &str, value: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || " ._-,+:/=".contains(c);
    in_tuned(path).is_some() && !value.is_empty() && value.trim() == value && value.chars().all(plain)
}

impl Profile {
    /// Its `tuned.conf`.
    pub fn text(&self) -> String {
        let includes: Vec<&str> = self.includes.split_whitespace().collect();
        let mut text = format!(
            "{MADE}\n[main]\nsummary=What was better in an experiment of vsteer's, over {}\ninclude={}\n",
            self.includes,
            includes.join(",")
        );
        for section in ["sysctl", "sysfs"] {
            let of = |s: &Setting| {
                in_tuned(&s.path)
                    .filter(|(its, _)| *its == section)
                    .map(|(_, key)| format!("{key}={}\n", s.to))
            };
            let lines: String = self.settings.iter().filter_map(of).collect();
            if !lines.is_empty() {
                text.push_str(&format!("\n[{section}]\n{lines}"));
            }
        }
        text
    }
}

/// Who keeps the words of the kernel's command line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "tool")]
pub enum Loader {
    /// `grubby` (Fedora, RHEL, SUSE's newer ones).
    Grubby {
        /// The program.
        program: String,
    },
    /// `/etc/default/grub`, and what makes the menu of it (Debian, Ubuntu).
    Grub {
        /// The files that are read for it, in their order.
        files: Vec<String>,
        /// Makes the menu.
        update: String,
        /// The menu.
        menu: String,
    },
    /// `kernelstub` (Pop!_OS).
    Kernelstub {
        /// The program.
        program: String,
        /// Its file.
        configuration: String,
    },
}

impl std::fmt::Display for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Loader::Grubby { .. } => "grubby",
            Loader::Grub { .. } => "/etc/default/grub and update-grub",
            Loader::Kernelstub { .. } => "kernelstub",
        })
    }
}

/// May these words stand in a boot loader's file and in a command without any quoting?
pub fn words_are_plain(words: &str) -> bool {
    words.chars().all(|c| c.is_ascii_alphanumeric() || " _.=,:@+/-".contains(c))
}

const DEFAULT: &str = "GRUB_CMDLINE_LINUX_DEFAULT";

/// A line that sets one of GRUB's command lines: the variable, and where its words stand in the line.
fn assignment(line: &str) -> Option<(&str, std::ops::Range<usize>)> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim_start().strip_prefix("export ").unwrap_or(name.trim_start());
    if name != DEFAULT && name != "GRUB_CMDLINE_LINUX" {
        return None;
    }
    let start = line.len() - value.len();
    let quote = value.chars().next().filter(|c| ['"', '\''].contains(c));
    let words = match quote {
        Some(q) => start + 1..start + 1 + value[1..].find(q)?,
        None => start..start + value.find(char::is_whitespace).unwrap_or(value.len()),
    };
    Some((name, words))
}

/// GRUB's files with words of these names taken out wherever they stand, and `add` put in where the words of ordinary entries are set last. A file that
/// needs no change is as it was, to the byte.
pub fn grub_with(files: &[(String, String)], names: &[String], add: &str) -> Vec<(String, String)> {
    let is_default = |line: &str| assignment(line).is_some_and(|(name, _)| name == DEFAULT);
    let last = files.iter().rposition(|(_, text)| text.lines().any(is_default)).unwrap_or(0);
    let edit = |(i, (path, text)): (usize, &(String, String))| {
        let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
        let at = lines.iter().rposition(|l| is_default(l)).filter(|_| i == last);
        for (n, line) in lines.iter_mut().enumerate() {
            let Some((_, range)) = assignment(line) else { continue };
            let old = &line[range.clone()];
            let mut words: Vec<&str> =
                old.split_whitespace().filter(|w| !names.iter().any(|n| n == word_name(w))).collect();
            let taken = words.len() != old.split_whitespace().count();
            if at == Some(n) {
                words.extend(add.split_whitespace());
            }
            if taken || (at == Some(n) && !add.trim().is_empty()) {
                let quoted = line[..range.start].ends_with(['"', '\'']);
                let new = words.join(" ");
                line.replace_range(range, &if quoted { new } else { format!("\"{new}\"") });
            }
        }
        if i == last && at.is_none() && !add.trim().is_empty() {
            if lines.last().is_some_and(|l| !l.ends_with('\n')) {
                lines.push("\n".to_owned());
            }
            lines.push(format!("{DEFAULT}=\"{}\"\n", add.trim()));
        }
        (path.clone(), lines.concat())
    };
    files.iter().enumerate().map(edit).collect()
}

/// The same words of all lines, or why there are none.
fn agreed(lines: impl Iterator<Item = String>, of: &str) -> Result<String, String> {
    let mut all: Vec<String> = lines.collect();
    all.dedup();
    match all.as_slice() {
        [] => Err(format!("{of} names no kernel")),
        [one] => Ok(one.clone()),
        [a, b, ..] => Err(format!("{of} gives its kernels different words: {a:?} and {b:?}")),
    }
}

/// Words of these names that GRUB's menu gives its ordinary entries.
///
/// # Errors
/// Why it gives none: no entry, or entries that differ.
pub fn of_menu(menu: &str, names: &[String]) -> Result<String, String> {
    let entry = |line: &str| {
        let mut words = line.split_whitespace();
        let is_one = words.next().is_some_and(|w| ["linux", "linux16", "linuxefi"].contains(&w));
        // Entries for repair are given GRUB_CMDLINE_LINUX alone.
        let repair = line.split_whitespace().any(|w| ["single", "recovery"].contains(&w));
        (is_one && !repair).then(|| words_of(line, names))
    };
    agreed(menu.lines().filter_map(entry), "the menu")
}

/// The same of what `grubby --info=ALL` prints.
///
/// # Errors
/// As [`of_menu`].
pub fn of_grubby(told: &str, names: &[String]) -> Result<String, String> {
    let of = |l: &str| Some(words_of(l.trim().strip_prefix("args=")?.trim_matches('"'), names));
    agreed(told.lines().filter_map(of), "grubby")
}

/// The same of kernelstub's file, which is JSON with the person's words in `user.kernel_options`; its strings are read without the rest.
///
/// # Errors
/// As [`of_menu`].
pub fn of_kernelstub(text: &str, names: &[String]) -> Result<String, String> {
    let user = text.split_once("\"user\"").map(|(_, rest)| rest);
    let list = user.and_then(|rest| rest.split_once("\"kernel_options\"")?.1.split_once('['));
    let (_, rest) = list.ok_or("kernelstub's file names no kernel_options of the user's")?;
    let (list, _) = rest.split_once(']').ok_or("kernelstub's list of words has no end")?;
    let words: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    Ok(words_of(&words.join(" "), names))
}

/// What of a VM's definition a factor's level is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Element {
    /// The queues of a network interface, which counts from 0; a level is their number, or nothing for libvirt's own choice. In force when
    /// the VM is started anew.
    Queues {
        /// The VM's name.
        vm: String,
        /// Which of its interfaces.
        #[serde(default)]
        interface: usize,
    },
    /// Where a vCPU may run; a level is a CPU list, or nothing for anywhere.
    Pin {
        /// The VM's name.
        vm: String,
        /// Which vCPU.
        vcpu: u32,
    },
}

/// How a factor's level is kept for good, as an experiment's file says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Lasting {
    /// [`Element::Queues`].
    Queues {
        /// The VM's name.
        vm: String,
        /// Which of its interfaces, from 0.
        #[serde(default)]
        interface: usize,
    },
    /// [`Element::Pin`].
    Pin {
        /// The VM's name.
        vm: String,
        /// Which vCPU.
        vcpu: u32,
    },
    /// By commands, run where the factor is set.
    Commands {
        /// Keeps `{level}`: at the next boot, or start of a VM, it is in force.
        set: String,
        /// Prints the level that is kept; nothing where none is. What it prints is what `set` is given to take it back.
        read: String,
    },
}

impl Element {
    /// Whose.
    pub fn vm(&self) -> &str {
        match self {
            Element::Queues { vm, .. } | Element::Pin { vm, .. } => vm,
        }
    }
}

#[cfg(test)]
mod tests;
