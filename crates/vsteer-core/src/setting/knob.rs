//! How is a text setting of the host set and read?
//!
//! A setting is a kernel file, a pair of commands, words of the kernel's command line, a tuned profile, or an
//! element of a VM's definition. This file has the values; `vsteer-host` reads and sets them.

use super::argv::Argv;
use super::lasting::{Element, Loader, Profile, TUNED_ADM, tuned_profile};
use serde::{Deserialize, Serialize};

/// How a setting of a machine is set and read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// A file to write and read.
    File {
        /// Path of the file.
        path: String,
    },
    /// Commands that set and print the value.
    Commands {
        /// Command that sets `{level}`.
        set: Argv,
        /// Command that prints the value in force.
        read: Argv,
    },
    /// The active profile of the daemon tuned; an empty level means no profile.
    Tuned {},
    /// Words of the next boot's kernel command line. The value in force is that of the running kernel.
    KernelWords {
        /// Names of the words that the levels contain.
        names: Vec<String>,
        /// Command that changes those of the next boot: `{add}` stands for the words, `{remove}` for all names.
        set: Argv,
    },
    /// Permanently, by a tuned profile. The value is a profile name. vsteer makes this profile before setting it
    /// and removes it when another profile is set.
    TunedProfile {
        /// The profile.
        profile: Box<Profile>,
    },
    /// Permanently, words of the kernel's command line, by the boot loader's tool. The value read is that of the
    /// next boot.
    BootLoader {
        /// Names of the words.
        names: Vec<String>,
        /// Which tool.
        loader: Loader,
    },
    /// Permanently, in a VM's definition.
    Definition {
        /// Whose libvirt.
        connect: String,
        /// Which element.
        element: Element,
    },
}

/// A text setting of a machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Knob {
    /// Name of the setting.
    pub name: String,
    /// How.
    pub how: How,
    /// Machine: `user@host` for ssh; `None`: this machine.
    pub on: Option<String>,
}

impl How {
    /// Does reading the value run a program or open a connection that the plan's file names?
    pub fn reads_by_program(&self) -> bool {
        match self {
            How::File { .. } | How::KernelWords { .. } => false,
            How::Commands { .. }
            | How::Tuned {}
            | How::TunedProfile { .. }
            | How::BootLoader { .. }
            | How::Definition { .. } => true,
        }
    }
}

/// A line about tuned's tool. A program that cannot be run is named too.
fn tuned(program: &str, level: &str) -> String {
    let command = tuned_profile(program, level).map(|c| c.to_string());
    format!("command: {}", command.unwrap_or_else(|why| format!("{program:?}: {why}")))
}

impl Knob {
    /// Why a dry run does not read the present value, if so.
    pub fn unread(&self) -> Option<&'static str> {
        if self.on.is_some() {
            Some("a dry run does not log in to another machine")
        } else {
            self.how
                .reads_by_program()
                .then_some("a dry run runs nothing and connects to nothing that a file names")
        }
    }

    /// Everything outside vsteer that setting this to `level`, reading it back, or undoing it touches: one line for
    /// each file, command, machine and connection.
    pub fn touches(&self, level: &str) -> Vec<String> {
        let mut all: Vec<String> = self.on.iter().map(|on| format!("machine: {on}, over ssh")).collect();
        match &self.how {
            How::File { path } => all.push(format!("file: {path}")),
            How::Commands { set, read } => {
                all.push(format!("command: {}", set.with("level", level)));
                all.push(format!("command: {read}"));
            }
            How::Tuned {} => all.push(tuned(TUNED_ADM, level)),
            How::KernelWords { names, set } => {
                let set = set.with("remove", &names.join(" ")).with("add", level);
                all.push(format!("command: {set}"));
                all.push("file: /proc/cmdline, read only".to_owned());
            }
            How::TunedProfile { profile } => {
                all.push(format!("file: {}/tuned.conf", profile.folder));
                all.extend(profile.settings.iter().map(|s| format!("file: {}", s.path)));
                all.push(tuned(&profile.program, level));
            }
            How::BootLoader { loader, .. } => match loader {
                Loader::Grubby { program } => all.push(format!("command: {program}")),
                Loader::Grub { files, update, menu } => {
                    all.extend(files.iter().map(|f| format!("file: {f}")));
                    all.push(format!("command: {update}"));
                    all.push(format!("file: {menu}, read only"));
                }
                Loader::Kernelstub { program, configuration } => {
                    all.push(format!("command: {program}"));
                    all.push(format!("file: {configuration}, read only"));
                }
            },
            How::Definition { connect, .. } => all.push(format!("libvirt: {connect}")),
        }
        all
    }
}
