//! What does `[triggers.NAME]` say? What the service tells others when a finding begins and when it ends, and how.
//!
//! A trigger runs a command or posts to an address. The table of its keys serves the parser, `config show`, the manual page
//! and the reference, as [`super::keys()`] does for all others. A command counts only if root wrote the file
//! ([`Trigger::is_roots`]): that file is the consent. The service checks this, because it runs the command.

use super::keys::{Key, Kind, row};
use super::{Span, Value};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Triggers of a configuration, at most. The service has a thread for each.
pub const TRIGGERS_MOST: usize = 16;
/// The longest time that one try may take.
const TRY_MOST: Duration = Duration::from_secs(60);
/// The longest time that a finding must last, and between two messages.
const HOUR: Duration = Duration::from_secs(3600);

const fn key(name: &'static str, kind: Kind, default: &'static str, meaning: &'static str) -> Key {
    Key { meaning, ..row("triggers", name, kind, default) }
}

/// Keys of `[triggers.NAME]`.
pub const TRIGGER_KEYS: &[Key] = &[
    key("url", Kind::Url, "", "Post each message to this address, signed. Required unless command is set."),
    key(
        "secret_file",
        Kind::File,
        "",
        "Sign with the secret in this file, which only root can read. Required with url.",
    ),
    key("ca", Kind::File, "", "Trust the authorities in this PEM file. Empty: those of the system."),
    key(
        "command",
        Kind::Command,
        "",
        "In place of url: run this program without a shell, with the message on its standard input. Only from a file of root's.",
    ),
    key("rules", Kind::Rules, "", "Tell only findings of these rules. Empty: of all rules."),
    key("vms", Kind::VmNames, "", "Tell only findings that concern one of these VMs. Empty: all findings."),
    key(
        "loss_pcpus",
        Kind::Pcpus,
        "0",
        "Tell only findings that cost at least this much pCPU time, in pCPUs.",
    ),
    key("lasts", Kind::Time(HOUR), "", "Tell a finding once it has lasted for this time. Empty: at once."),
    key("every", Kind::Time(HOUR), "5s", "Send at most one message in this time. Others wait, 100 at most."),
    key("time_limit", Kind::Time(TRY_MOST), "10s", "Stop a try after this time, and try again later."),
];

/// A trigger with a name of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trigger {
    /// As [`TRIGGER_KEYS`].
    pub(super) values: Vec<Value>,
    /// The file that says it.
    pub file: PathBuf,
    /// Does that file belong to root, and can nobody else write it?
    pub is_roots: bool,
}

impl Default for Trigger {
    fn default() -> Trigger {
        let values = TRIGGER_KEYS.iter().map(Key::default_value).collect();
        Trigger { values, file: PathBuf::new(), is_roots: false }
    }
}

/// The place of a key in the table.
///
/// # Panics
/// If the table lacks it: an error of the program.
fn place(name: &str) -> usize {
    TRIGGER_KEYS.iter().position(|k| k.name == name).unwrap_or_else(|| panic!("no key is called {name}"))
}

impl Trigger {
    fn text(&self, name: &str) -> &str {
        match &self.values[place(name)] {
            Value::One(text) => text,
            Value::List(_) => panic!("{name} is a list"),
        }
    }

    fn list(&self, name: &str) -> &[String] {
        match &self.values[place(name)] {
            Value::List(all) => all,
            Value::One(_) => panic!("{name} is not a list"),
        }
    }

    fn file_of(&self, name: &str) -> Option<&Path> {
        Some(self.text(name)).filter(|text| !text.is_empty()).map(Path::new)
    }

    fn time(&self, name: &str) -> Duration {
        self.text(name).parse::<Span>().map_or(Duration::ZERO, |span| Duration::from_nanos(span.ns()))
    }

    /// The address to post to; empty with a command.
    pub fn url(&self) -> &str {
        self.text("url")
    }

    /// The file of the secret.
    pub fn secret_file(&self) -> Option<&Path> {
        self.file_of("secret_file")
    }

    /// The authorities to trust; `None`: the system's.
    pub fn ca(&self) -> Option<&Path> {
        self.file_of("ca")
    }

    /// The program and its arguments; empty with an address.
    pub fn command(&self) -> &[String] {
        self.list("command")
    }

    /// Names of rules; empty: all.
    pub fn rules(&self) -> &[String] {
        self.list("rules")
    }

    /// Names of VMs; empty: all.
    pub fn vms(&self) -> &[String] {
        self.list("vms")
    }

    /// The least loss, pCPUs.
    pub fn loss_pcpus(&self) -> f64 {
        self.text("loss_pcpus").parse().unwrap_or(0.0)
    }

    /// How long a finding must last.
    pub fn lasts(&self) -> Duration {
        self.time("lasts")
    }

    /// The least time between two messages.
    pub fn every(&self) -> Duration {
        self.time("every")
    }

    /// The longest time of one try.
    pub fn time_limit(&self) -> Duration {
        self.time("time_limit")
    }

    /// What the file says in place of defaults: key, value in TOML.
    pub fn said(&self) -> impl Iterator<Item = (&'static str, String)> {
        let pairs = TRIGGER_KEYS.iter().zip(&self.values);
        pairs
            .filter(|(key, value)| **value != key.default_value())
            .map(|(key, value)| (key.name, value.toml()))
    }

    /// What contradicts what: the key that is wrong (`None`: one is missing), the fault, and what to write instead.
    pub(super) fn contradiction(&self) -> Option<(Option<&'static str>, &'static str, &'static str)> {
        let (command, has_url) = (self.command(), !self.url().is_empty());
        Some(match (command.first(), has_url) {
            (None, false) => (None, "has neither url nor command", "add url = \"https://...\""),
            (Some(_), true) => (Some("command"), "has both url and command", "keep one of them"),
            (None, true) if self.secret_file().is_none() => {
                (None, "has url without secret_file", "add secret_file = \"/etc/vsteer/FILE\"")
            }
            (Some(first), false) if !first.starts_with('/') => {
                (Some("command"), "has a command that is not a path from the root", "begin it with /")
            }
            (Some(_), false) if self.secret_file().is_some() => (
                Some("secret_file"),
                "has secret_file without url",
                "remove it: a command needs no signature",
            ),
            (Some(_), false) if self.ca().is_some() => (Some("ca"), "has ca without url", "remove it"),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::of_text;
    use super::*;

    const SECRET: &str = "secret_file = \"/etc/s\"\n";

    fn told(text: &str) -> Vec<String> {
        of_text(text).wrong.iter().map(|w| format!("{}:{} {} {}", w.line, w.column, w.what, w.help)).collect()
    }

    #[test]
    fn a_trigger_is_read_and_shown_as_it_was() {
        let text = "[triggers.page]\ncommand = [\"/usr/bin/logger\", \"-t\", \"-t\"]\nrules = [\"limited\"]\nvms = [\"web 1\"]\n\
            loss_pcpus = \"0.5\"\nlasts = \"2m\"\nevery = \"1m\"\ntime_limit = \"3s\"\n";
        let config = of_text(text).strict().unwrap();
        let of = |config: &super::super::Config| config.triggers().next().map(|(_, t)| t.clone()).unwrap();
        let page = of(&config);
        assert_eq!(page.command(), ["/usr/bin/logger", "-t", "-t"]);
        assert_eq!((page.rules().len(), page.vms(), page.loss_pcpus()), (1, &["web 1".to_owned()][..], 0.5));
        let times = [page.lasts(), page.every(), page.time_limit()].map(|t| t.as_secs());
        assert_eq!(times, [120, 60, 3]);
        assert!(!page.is_roots, "only a file says that");
        let shown = super::super::show(&config, &|_| None);
        let again = of_text(&shown).strict().unwrap_or_else(|e| panic!("{e}\n{shown}"));
        assert_eq!(of(&again), page, "{shown}");
    }

    #[test]
    fn each_fault_of_a_trigger_is_named() {
        let with = |rest: &str| told(&format!("[triggers.a]\n{rest}"));
        for (rest, expected) in [
            ("", "1:11 triggers.a has neither url nor command add url = \"https://...\""),
            (
                "url = \"https://h/x\"",
                "1:11 triggers.a has url without secret_file add secret_file = \"/etc/vsteer/FILE\"",
            ),
            (
                "command = [\"logger\"]",
                "2:11 triggers.a has a command that is not a path from the root begin it with /",
            ),
            (
                "command = \"/bin/x\"",
                "2:11 triggers.command: expected a list, found text for example [\"/usr/local/bin/page\"]",
            ),
            ("comand = [\"/bin/x\"]", "2:1 unknown key \"comand\" in [triggers.a] did you mean \"command\"?"),
            ("command = [\"/bin/x\"]\nca = \"/c\"", "3:6 triggers.a has ca without url remove it"),
            (
                "command = [\"/bin/x\"]\nrules = [\"limitd\"]",
                "3:10 triggers.rules: not a known word did you mean \"limited\"?",
            ),
            (
                "command = [\"/bin/x\"]\nloss_pcpus = \"-1\"",
                "3:14 triggers.loss_pcpus: not a number of pCPUs for example \"0.5\"",
            ),
            (
                "command = [\"/bin/x\"]\nevery = \"2h\"",
                "3:9 triggers.every: out of range between 1ms and 3600s",
            ),
        ] {
            assert_eq!(with(rest), [expected], "{rest}");
        }
        let both = with(&format!("url = \"https://h/x\"\n{SECRET}command = [\"/bin/x\"]"));
        assert_eq!(both, ["4:11 triggers.a has both url and command keep one of them"]);
        assert!(told("[triggers.\"a b\"]\n")[0].contains("cannot be the name of a trigger"));
        assert!(told("[triggers]\na = 1\n")[0].contains("triggers.a is a table, found a number"));
    }

    #[test]
    fn an_address_must_be_encrypted_unless_it_is_this_machine() {
        let with = |url: &str| told(&format!("[triggers.a]\nurl = {url:?}\n{SECRET}"));
        for good in
            ["https://h.example/x?y=1", "http://localhost:80/", "http://127.0.0.1:9/a", "http://[::1]:9/"]
        {
            assert_eq!(with(good), [""; 0], "{good}");
        }
        let bad = [
            "http://h.example/",
            "http://127.0.0.1.evil.example/",
            "http://localhost@evil/",
            "ftp://h/",
            "https://",
            "https:///x",
            "https://u:p@h/",
            "https://h/ x",
            "h",
        ];
        for bad in bad {
            assert_eq!(with(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn their_number_is_limited() {
        let all: String = (0..20).map(|n| format!("[triggers.a{n}]\ncommand = [\"/bin/x\"]\n")).collect();
        let loaded = of_text(&all);
        assert_eq!((loaded.wrong.len(), loaded.config.triggers().count()), (4, TRIGGERS_MOST));
        assert!(loaded.wrong[0].what.contains("more than 16 triggers"), "{:?}", loaded.wrong[0].what);
    }
}
