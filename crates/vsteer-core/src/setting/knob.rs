//! What is a setting of the host that is text, and how is it set and read?
//!
//! A file of the kernel's, commands that set and print it, words of the kernel's command line, a profile of tuned's, an element of a
//! VM's definition. Here are the value and the pure reading of what files and tools answer; `vsteer-host` reads and sets it.

use super::lasting::{Element, Loader, Profile};
use serde::{Deserialize, Serialize};

/// How a setting of a machine is set and read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// A file.
    File {
        /// Its path.
        path: String,
    },
    /// Commands.
    Commands {
        /// Sets `{level}`.
        set: String,
        /// Prints what is in force.
        read: String,
    },
    /// Words of the kernel's command line, for the next boot; what is in force is what the running kernel was given.
    KernelWords {
        /// The names of the words that levels speak of.
        names: Vec<String>,
        /// Changes the next boot's.
        set: String,
    },
    /// For good, by a profile of tuned's: text is a profile's name, and the one of this name is made before it is set, removed when another is.
    TunedProfile {
        /// The profile.
        profile: Box<Profile>,
    },
    /// For good, words of the kernel's command line, by the boot loader's tool; what is read is what the next boot will be given.
    BootLoader {
        /// The names of the words that are spoken of.
        names: Vec<String>,
        /// Which tool.
        loader: Loader,
    },
    /// For good, in a VM's definition.
    Definition {
        /// Whose libvirt.
        connect: String,
        /// Which element.
        element: Element,
    },
}

/// A setting of a machine that is text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Knob {
    /// Its name.
    pub name: String,
    /// How.
    pub how: How,
    /// Where: `user@host` for ssh; `None`: here.
    pub on: Option<String>,
}

/// tuned's own commands. `tuned-adm profile` answers 0 where no daemon runs and does nothing: that is what reading back is for. No profile is what
/// [`TUNED_READ`] tells by nothing, and there is none of that name.
pub const TUNED_SET: &str = "if [ -n '{level}' ]; then tuned-adm profile '{level}'; else tuned-adm off; fi";
/// Prints the active profile; nothing where there is none, or no daemon runs.
pub const TUNED_READ: &str = "tuned-adm active | sed -n 's/^Current active profile: //p'";
