//! Which settings does a person choose once for a host, and where does each come from?
//!
//! An option on the command line counts first, then an environment variable, the user's file, the system's file, and the
//! built-in default. [`mod@keys`] is the table of all settings. The files are TOML. All their faults are found at once. A
//! configuration never changes a host. Only `[triggers.NAME]` names programs, which the service runs.

mod keys;
mod parse;
mod places;
mod show;
#[cfg(test)]
mod tests;
mod triggers;
mod wrong;

pub use keys::{
    HOST_KEYS, Key, Kind, RECORD_INTERVAL_MOST, SECTIONS, Variable, default_of, is_host_name, keys,
};
pub use places::{NO_FILE, Places, SYSTEM, VARIABLE, Variables};
pub use show::{ORDER, Shown, example, rows, show};
pub use triggers::{TRIGGER_KEYS, TRIGGERS_MOST, Trigger};
pub use wrong::Wrong;

use keys::{nearest, place};
use parse::Parsed;
use places::Read;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use vsteer_core::limits;
use vsteer_core::plural::counted;
use vsteer_core::span::Span;
use vsteer_core::thresholds::{self, Thresholds};
use vsteer_core::{Fault, FaultKind};
use wrong::{Spot, position};

/// The value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text in the form that the option takes. The empty text: not set.
    One(String),
    /// A list of texts.
    List(Vec<String>),
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The program.
    Default,
    /// This line of this file.
    File(PathBuf, usize),
    /// This environment variable.
    Variable(&'static str),
}

/// A host with a name of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// Its connection URI.
    pub connect: String,
    /// The file of the authorities to trust.
    pub ca: Option<PathBuf>,
    /// The certificate to trust.
    pub thumbprint: Option<String>,
    /// The file with the password.
    pub password_file: Option<PathBuf>,
}

/// What counts for this process.
#[derive(Debug, Clone)]
pub struct Config {
    /// As [`keys()`].
    values: Vec<(Value, Source)>,
    hosts: BTreeMap<String, (Host, PathBuf)>,
    triggers: BTreeMap<String, Trigger>,
    files: Vec<PathBuf>,
}

impl Default for Config {
    /// Without files and variables.
    fn default() -> Config {
        let values = keys().iter().map(|k| (k.default_value(), Source::Default)).collect();
        Config { values, hosts: BTreeMap::new(), triggers: BTreeMap::new(), files: Vec::new() }
    }
}

impl Config {
    /// The text of `section.name`; empty if it is not set.
    ///
    /// # Panics
    /// If the table lacks this key, or its value is a list: an error of the program.
    pub fn text(&self, full: &str) -> &str {
        match &self.values[place(full)].0 {
            Value::One(text) => text,
            Value::List(_) => panic!("{full} is a list"),
        }
    }

    /// Where the value of `section.name` comes from.
    ///
    /// # Panics
    /// If the table lacks this key: an error of the program.
    pub fn source(&self, full: &str) -> &Source {
        &self.values[place(full)].1
    }

    /// The folder of `section.name`, if it is set.
    pub fn folder(&self, full: &str) -> Option<&Path> {
        Some(self.text(full)).filter(|t| !t.is_empty()).map(Path::new)
    }

    /// All thresholds.
    pub fn thresholds(&self) -> Thresholds {
        let mut all = Thresholds::default();
        for (key, (value, _)) in keys().iter().zip(&self.values) {
            if let (Kind::Threshold(row), Value::One(text)) = (key.kind, value) {
                let set = thresholds::value(text).map(|value| all.set(row.name, value));
                debug_assert!(matches!(set, Ok(Ok(()))), "values are checked when they are read");
            }
        }
        all
    }

    /// What the files say in place of the defaults of a command's options: id of the argument, values.
    pub fn options_of(&self, command: &str) -> Vec<(&'static str, Vec<String>)> {
        let set = keys().iter().zip(&self.values).filter(|(_, (_, source))| *source != Source::Default);
        set.flat_map(|(key, (value, _))| {
            let of = key.options.iter().filter(|(of, _)| *of == command);
            of.map(move |(_, id)| match value {
                Value::One(text) if text.is_empty() => (*id, Vec::new()),
                Value::One(text) => (*id, vec![text.clone()]),
                Value::List(all) => (*id, all.clone()),
            })
        })
        .filter(|(_, values)| !values.is_empty())
        .collect()
    }

    /// The host of this name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.get(name).map(|(host, _)| host)
    }

    /// The names of all hosts.
    pub fn host_names(&self) -> impl Iterator<Item = &str> {
        self.hosts.keys().map(String::as_str)
    }

    /// All triggers, with their names.
    pub fn triggers(&self) -> impl Iterator<Item = (&str, &Trigger)> {
        self.triggers.iter().map(|(name, trigger)| (name.as_str(), trigger))
    }

    /// The built-in defaults, except for this key and the hosts.
    #[must_use]
    pub fn only(&self, full: &str) -> Config {
        let mut only = Config { hosts: self.hosts.clone(), ..Config::default() };
        only.values[place(full)] = self.values[place(full)].clone();
        only
    }

    /// The files that were read.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }
}

/// What was read, and what of it is wrong.
#[derive(Debug)]
pub struct Loaded {
    /// What counts. Of a faulty file, that is what could be read.
    pub config: Config,
    /// Faults of files that were read.
    pub wrong: Vec<Wrong>,
    /// Files that could not be read, or that are not trusted.
    pub faults: Vec<Fault>,
    /// How many more faults there are than [`limits::CONFIGURATION_FAULTS`] of each file.
    pub more: usize,
    /// What the user should know.
    pub notes: Vec<String>,
}

impl Loaded {
    fn empty() -> Loaded {
        let config = Config::default();
        Loaded { config, wrong: Vec::new(), faults: Vec::new(), more: 0, notes: Vec::new() }
    }

    /// Reads all files, then the environment.
    pub fn of(places: &Places, variables: Variables<'_>) -> Loaded {
        let mut loaded = Loaded::empty();
        let (files, must) = match places {
            Places::One(file) => (std::slice::from_ref(file), true),
            Places::Usual(files) => (files.as_slice(), false),
        };
        let mut connect = None;
        for file in files {
            match places::read(file, must) {
                Ok(Read::Bytes { bytes, is_roots }) => {
                    loaded.config.files.push(file.clone());
                    connect = loaded.take(file, &bytes, is_roots).or(connect);
                }
                Ok(Read::Absent) => {}
                Ok(Read::Skipped(note)) => loaded.notes.push(note),
                Err(fault) => loaded.faults.push(fault),
            }
        }
        loaded.need_host(connect);
        for (key, value) in keys().iter().zip(&mut loaded.config.values) {
            let said = key.variable.and_then(|v| Some((v, (v.means)(variables(v.name)?.to_str()?)?)));
            if let Some((variable, text)) = said {
                *value = (Value::One(text), Source::Variable(variable.name));
            }
        }
        loaded
    }

    /// Takes what a file says. `is_roots`: root alone could write it. The result: the file that says `connection.connect`, its text, and where that is.
    fn take(
        &mut self,
        file: &Path,
        bytes: &[u8],
        is_roots: bool,
    ) -> Option<(PathBuf, String, std::ops::Range<usize>)> {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(e) => {
                let valid = String::from_utf8_lossy(&bytes[..e.valid_up_to()]).into_owned();
                let at = valid.len();
                let instead = "save the file as UTF-8".to_owned();
                let spot = Spot { span: at..at, what: "not UTF-8 text".to_owned(), instead };
                self.wrong.push(Wrong::of(file, &valid, spot));
                return None;
            }
        };
        let parsed = Parsed::of(text);
        // Finding a line takes time in proportion to the text, so a text full of faults would take its square.
        self.more += parsed.wrong.len().saturating_sub(limits::CONFIGURATION_FAULTS);
        let shown = parsed.wrong.into_iter().take(limits::CONFIGURATION_FAULTS);
        self.wrong.extend(shown.map(|spot| Wrong::of(file, text, spot)));
        let mut connect = None;
        for (at, value, span) in parsed.values {
            let line = position(text, span.start).0;
            if keys()[at].full() == CONNECT {
                connect = Some((file.to_owned(), text.to_owned(), span));
            }
            self.config.values[at] = (value, Source::File(file.to_owned(), line));
        }
        let hosts = parsed.hosts.into_iter().map(|(name, host)| (name, (host, file.to_owned())));
        self.config.hosts.extend(hosts);
        let of_file = |trigger| Trigger { file: file.to_owned(), is_roots, ..trigger };
        self.config.triggers.extend(parsed.triggers.into_iter().map(|(name, t)| (name, of_file(t))));
        connect
    }

    /// The default connection may be the name of a host of either file.
    fn need_host(&mut self, connect: Option<(PathBuf, String, std::ops::Range<usize>)>) {
        let Some((file, text, span)) = connect else { return };
        let name = self.config.text(CONNECT);
        if !is_host_name(name) || self.config.hosts.contains_key(name) {
            return;
        }
        let known: Vec<&str> = self.config.host_names().collect();
        let instead = nearest(name, &known)
            .map_or_else(|| format!("add [hosts.{name}]"), |near| format!("did you mean {near:?}?"));
        let what = format!("{CONNECT}: no host has the name \"{name}\"");
        let wrong = Wrong::of(&file, &text, Spot { span, what, instead });
        // Its place in the file, not where it was found.
        let later = |w: &Wrong| w.file == wrong.file && (w.line, w.column) > (wrong.line, wrong.column);
        let at = self.wrong.iter().position(later).unwrap_or(self.wrong.len());
        self.wrong.insert(at, wrong);
        self.config.values[place(CONNECT)] = Config::default().values.swap_remove(place(CONNECT));
    }

    /// All that is wrong as one fault; `None` if nothing is.
    pub fn fault(&self) -> Option<Fault> {
        let n = self.wrong.len() + self.faults.len() + self.more;
        match (self.faults.as_slice(), n) {
            (_, 0) => return None,
            ([only], 1) => return Some(only.clone()),
            _ => {}
        }
        let mut all = counted(n, "fault");
        for fault in &self.faults {
            let _ = write!(all, "\n{}: {}", fault.what, fault.cause.as_deref().unwrap_or_default());
        }
        for wrong in &self.wrong {
            let _ = write!(all, "\n{wrong}");
        }
        if self.more > 0 {
            let _ = write!(all, "\nand {} more", self.more);
        }
        let fault = Fault::new(FaultKind::BadInput, "the configuration is faulty").because(all);
        Some(fault.help("correct it, then: vsteer config check; to use no file: --config none"))
    }

    /// The configuration, if nothing is wrong with it.
    ///
    /// # Errors
    /// `BadInput` with every fault and its place; `NoPrivilege`, `NothingThere` if a file cannot be read.
    pub fn strict(self) -> Result<Config, Fault> {
        self.fault().map_or(Ok(self.config), Err)
    }
}

const CONNECT: &str = "connection.connect";

/// What a text says, without files: values and hosts that it sets, and all that is wrong with it. For tests and fuzzing.
pub fn of_text(text: &str) -> Loaded {
    let mut loaded = Loaded::empty();
    let connect = loaded.take(Path::new("vsteer.toml"), text.as_bytes(), false);
    loaded.need_host(connect);
    loaded
}
