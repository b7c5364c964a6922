//! How does a setting of the host survive a reboot? The values and text edits for the tools that keep settings.
//!
//! Each tool keeps the settings that it owns, so that vsteer does not conflict with it. If tuned is active, vsteer
//! generates a tuned profile that includes the active one, because tuned overwrites files changed without it. The
//! distribution's boot loader tool keeps the kernel's command line. libvirt's definition keeps a VM's pins and
//! network queues. For other settings the experiment's file can have commands. `vsteer-host` reads, writes and
//! calls the tools.
//!
//! Sources: tuned.conf(5) and tuned 2.20's plugins sysctl and sysfs; grub-mkconfig's `/etc/default/grub` and
//! Debian's `/etc/default/grub.d/*.cfg`; grubby(8); kernelstub 3 (`/etc/kernelstub/configuration`). Left out:
//! GRUB_CMDLINE_XEN, systemd-boot and U-Boot by their own files.

use super::argv::Argv;
use super::words::{word_name, words_of};
use serde::{Deserialize, Serialize};

/// tuned's own tool.
pub const TUNED_ADM: &str = "tuned-adm";

/// The command that makes tuned use a profile; an empty name switches tuned off.
///
/// # Errors
/// As [`Argv::new`].
pub fn tuned_profile(program: &str, name: &str) -> Result<Argv, String> {
    let words: &[&str] = if name.is_empty() { &[program, "off"] } else { &[program, "profile", name] };
    Argv::new(words.iter().copied())
}

/// A kernel file with its former and new value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Setting {
    /// Path of the file.
    pub path: String,
    /// Former value.
    pub from: String,
    /// New value.
    pub to: String,
}

/// A generated tuned profile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Profile {
    /// Name of the profile.
    pub name: String,
    /// Folder of its `tuned.conf`.
    pub folder: String,
    /// Profiles that it includes.
    pub includes: String,
    /// Settings that the profile adds.
    pub settings: Vec<Setting>,
    /// tuned's tool: its path, or its name in `PATH`.
    #[serde(default = "tuned_adm")]
    pub program: String,
}

fn tuned_adm() -> String {
    TUNED_ADM.to_owned()
}

/// First line of a generated `tuned.conf`. vsteer removes only folders whose file begins with it.
pub const MADE: &str = "# Made by vsteer; removed by vsteer rollback.";

/// Section and key with which tuned keeps this kernel file; `None`: tuned cannot keep it.
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
            "{MADE}\n[main]\nsummary=Best settings of a vsteer experiment, based on {}\ninclude={}\n",
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

/// Tool that keeps the words of the kernel's command line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "tool")]
pub enum Loader {
    /// `grubby` (Fedora, RHEL, newer SUSE).
    Grubby {
        /// Path of the program.
        program: String,
    },
    /// `/etc/default/grub`, and the program that generates the menu (Debian, Ubuntu).
    Grub {
        /// Files that GRUB reads, in order.
        files: Vec<String>,
        /// Path of the program that generates the menu.
        update: String,
        /// Path of the menu file.
        menu: String,
    },
    /// `kernelstub` (Pop!_OS).
    Kernelstub {
        /// Path of the program.
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

/// Can these words be in a boot loader's file and in a command without quoting?
pub fn words_are_plain(words: &str) -> bool {
    words.chars().all(|c| c.is_ascii_alphanumeric() || " _.=,:@+/-".contains(c))
}

const DEFAULT: &str = "GRUB_CMDLINE_LINUX_DEFAULT";

/// A line that sets one of GRUB's command lines: the variable, and the range of its words in the line.
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

/// GRUB's files without the words of these names, and with `add` in the last assignment for ordinary entries. A
/// file that needs no change stays identical.
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

/// The words that all lines agree on, or why there are none.
fn agreed(lines: impl Iterator<Item = String>, of: &str) -> Result<String, String> {
    let mut all: Vec<String> = lines.collect();
    all.dedup();
    match all.as_slice() {
        [] => Err(format!("{of} has no kernel entry")),
        [one] => Ok(one.clone()),
        [a, b, ..] => Err(format!("{of} has different words for its kernels: {a:?} and {b:?}")),
    }
}

/// Words of these names in the ordinary entries of GRUB's menu.
///
/// # Errors
/// If the menu has no ordinary entry, or if entries differ.
pub fn of_menu(menu: &str, names: &[String]) -> Result<String, String> {
    let entry = |line: &str| {
        let mut words = line.split_whitespace();
        let is_one = words.next().is_some_and(|w| ["linux", "linux16", "linuxefi"].contains(&w));
        // Recovery entries get only GRUB_CMDLINE_LINUX.
        let repair = line.split_whitespace().any(|w| ["single", "recovery"].contains(&w));
        (is_one && !repair).then(|| words_of(line, names))
    };
    agreed(menu.lines().filter_map(entry), "the menu")
}

/// Like [`of_menu`], for the output of `grubby --info=ALL`.
///
/// # Errors
/// As [`of_menu`].
pub fn of_grubby(told: &str, names: &[String]) -> Result<String, String> {
    let of = |l: &str| Some(words_of(l.trim().strip_prefix("args=")?.trim_matches('"'), names));
    agreed(told.lines().filter_map(of), "grubby")
}

/// Like [`of_menu`], for kernelstub's JSON file, which has the words in `user.kernel_options`.
///
/// # Errors
/// As [`of_menu`].
pub fn of_kernelstub(text: &str, names: &[String]) -> Result<String, String> {
    let user = text.split_once("\"user\"").map(|(_, rest)| rest);
    let list = user.and_then(|rest| rest.split_once("\"kernel_options\"")?.1.split_once('['));
    let (_, rest) = list.ok_or("the kernelstub file has no user.kernel_options")?;
    let (list, _) = rest.split_once(']').ok_or(
        "the kernel_options in the kernelstub file have no closing \
        bracket",
    )?;
    let words: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    Ok(words_of(&words.join(" "), names))
}

/// Element of a VM's definition that a factor sets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Element {
    /// Number of queues of a network interface; an empty level means libvirt's default. In force from the VM's next
    /// start.
    Queues {
        /// Name of the VM.
        vm: String,
        /// Which of its interfaces.
        #[serde(default)]
        interface: usize,
    },
    /// pCPUs where a vCPU may run; an empty level means all.
    Pin {
        /// Name of the VM.
        vm: String,
        /// Number of the vCPU.
        vcpu: u32,
    },
}

/// How to keep a factor's level permanently, from an experiment's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Lasting {
    /// [`Element::Queues`].
    Queues {
        /// Name of the VM.
        vm: String,
        /// Which of its interfaces, from 0.
        #[serde(default)]
        interface: usize,
    },
    /// [`Element::Pin`].
    Pin {
        /// Name of the VM.
        vm: String,
        /// Number of the vCPU.
        vcpu: u32,
    },
    /// By commands on the machine where the factor is set.
    Commands {
        /// Command that keeps `{level}` for the next boot or VM start.
        set: Argv,
        /// Command that prints the kept level, or nothing. Rollback passes this output to `set`.
        read: Argv,
    },
}

impl Element {
    /// Name of the VM.
    pub fn vm(&self) -> &str {
        match self {
            Element::Queues { vm, .. } | Element::Pin { vm, .. } => vm,
        }
    }
}

#[cfg(test)]
mod tests;
