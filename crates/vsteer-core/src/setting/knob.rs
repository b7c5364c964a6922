//! How is a text setting of the host set and read?
//!
//! A setting is a kernel file, a pair of commands, words of the kernel's command line, a tuned profile, or an
//! element of a VM's definition. This file has the values; `vsteer-host` reads and sets them.

use super::lasting::{Element, Loader, Profile};
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
        set: String,
        /// Command that prints the value in force.
        read: String,
    },
    /// Words of the next boot's kernel command line. The value in force is that of the running kernel.
    KernelWords {
        /// Names of the words that the levels contain.
        names: Vec<String>,
        /// Changes the next boot's.
        set: String,
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

/// Command that sets tuned's profile; an empty level means no profile. Without its daemon `tuned-adm profile` exits
/// with 0 but does nothing, so vsteer reads the value back with [`TUNED_READ`].
pub const TUNED_SET: &str = "if [ -n '{level}' ]; then tuned-adm profile '{level}'; else tuned-adm off; fi";
/// Command that prints the active profile; prints nothing without a profile or daemon.
pub const TUNED_READ: &str = "tuned-adm active | sed -n 's/^Current active profile: //p'";
