//! The configuration as a file: what counts now with its source, and the shipped file with every key as a comment.
//!
//! Both are TOML. A line that begins with `#` and a letter is a key; one that begins with `# ` explains.

use super::{Config, HOST_KEYS, Host, Key, SECTIONS, Source, TRIGGER_KEYS, Trigger, Value, keys};
use serde::Serialize;
use std::fmt::Write;
use vsteer_core::visible;

/// What counts first, for help and documentation.
pub const ORDER: &str = "An option on the command line counts first, then an environment variable, the user's file \
($XDG_CONFIG_HOME/vsteer/vsteer.toml, else ~/.config/vsteer/vsteer.toml), the system's file (/etc/vsteer/vsteer.toml), and the \
built-in default.";

/// Columns of a comment.
const WIDTH: usize = 100;

/// A key as `config show` prints it.
#[derive(Debug, Clone, Serialize)]
pub struct Shown {
    /// `section.name`.
    pub key: String,
    /// Its value in TOML.
    pub toml: String,
    /// `default`, `file`, `environment` or `option`.
    pub source: &'static str,
    /// The file and line, the variable, or the option.
    pub from: Option<String>,
    /// What it means.
    pub meaning: &'static str,
    /// What counts before the files: an option, a variable, or both.
    pub overridden_by: String,
}

/// A text as TOML writes it. What acts on a terminal becomes an escape.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if visible::acts(c) => out += &format!("\\U{:08x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out + "\""
}

impl Value {
    pub(super) fn toml(&self) -> String {
        match self {
            Value::One(text) => quoted(text),
            Value::List(all) => format!("[{}]", all.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(", ")),
        }
    }
}

/// Every key with what counts. `typed`: the values of an option on a command line, if it was given there.
pub fn rows(config: &Config, typed: &dyn Fn(&Key) -> Option<Vec<String>>) -> Vec<Shown> {
    let row = |(key, (value, source)): (&Key, &(Value, Source))| {
        let of_option = typed(key).map(|words| match key.kind.is_list() {
            true => Value::List(words),
            false => Value::One(words.into_iter().next_back().unwrap_or_default()),
        });
        let (name, from) = match (&of_option, source) {
            (Some(_), _) => ("option", key.overridden_by.map(str::to_owned)),
            (None, Source::Default) => ("default", None),
            (None, Source::Variable(name)) => ("environment", Some((*name).to_owned())),
            (None, Source::File(file, line)) => ("file", Some(format!("{}:{line}", file.display()))),
        };
        Shown {
            key: key.full(),
            toml: of_option.as_ref().unwrap_or(value).toml(),
            source: name,
            from,
            meaning: key.meaning,
            overridden_by: key.overriders(),
        }
    };
    keys().iter().zip(&config.values).map(row).collect()
}

/// A paragraph as comment lines.
fn comment(text: &str) -> String {
    let (mut out, mut line) = (String::new(), String::from("#"));
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH {
            let _ = writeln!(out, "{line}");
            line = "#".to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    out + &line + "\n"
}

fn explained(key: &Key) -> String {
    let before = key.overriders();
    let overridden = if before.is_empty() { String::new() } else { format!(" Overridden by {before}.") };
    comment(&format!("{} ({}){overridden}", key.meaning, key.kind.about()))
}

fn heads() -> impl Iterator<Item = (&'static str, &'static str)> {
    SECTIONS.iter().copied()
}

/// What counts, as a file that says the same.
pub fn show(config: &Config, typed: &dyn Fn(&Key) -> Option<Vec<String>>) -> String {
    let all = rows(config, typed);
    let mut out = comment(
        "What counts for vsteer now, as a configuration. A comment behind a value says where it comes from.",
    );
    for (section, about) in heads() {
        let _ = write!(out, "\n{}[{section}]\n", comment(about));
        for (key, shown) in keys().iter().zip(&all).filter(|(key, _)| key.section == section) {
            let from = match &shown.from {
                Some(from) => format!("{} {}", shown.source, visible::line(from)),
                None => shown.source.to_owned(),
            };
            let _ = writeln!(out, "{} = {}  # {from}", key.name, shown.toml);
        }
    }
    for (name, (host, file)) in &config.hosts {
        let _ =
            write!(out, "\n# file {}\n{}", visible::line(&file.display().to_string()), of_host(name, host));
    }
    for (name, trigger) in &config.triggers {
        let file = trigger.file.display().to_string();
        let _ = write!(out, "\n# file {}\n{}", visible::line(&file), of_trigger(name, trigger));
    }
    out
}

/// A name as part of a table's name.
fn named(name: &str) -> String {
    if name.contains('.') { quoted(name) } else { name.to_owned() }
}

fn of_trigger(name: &str, trigger: &Trigger) -> String {
    let mut out = format!("[triggers.{}]\n", named(name));
    trigger.said().for_each(|(key, value)| out += &format!("{key} = {value}\n"));
    out
}

fn of_host(name: &str, host: &Host) -> String {
    let path = |p: &std::path::PathBuf| quoted(&p.display().to_string());
    let rest = [
        ("ca", host.ca.as_ref().map(path)),
        ("thumbprint", host.thumbprint.as_deref().map(quoted)),
        ("password_file", host.password_file.as_ref().map(path)),
    ];
    let mut out = format!("[hosts.{}]\nconnect = {}\n", named(name), quoted(&host.connect));
    for (key, value) in rest {
        value.iter().for_each(|value| out += &format!("{key} = {value}\n"));
    }
    out
}

/// The shipped file: every key with its default, as a comment.
pub fn example() -> String {
    let mut out = comment("Configuration of vsteer: vsteer.toml(5). Every key is shown with its default.");
    out += &comment("To change one, remove the # before it. Then run: vsteer config check");
    out += "#\n";
    out += &comment(ORDER);
    let default = Config::default();
    for (section, about) in heads() {
        let _ = write!(out, "\n{}[{section}]\n", comment(about));
        for (key, (value, _)) in keys().iter().zip(&default.values).filter(|(key, _)| key.section == section)
        {
            let _ = write!(out, "\n{}#{} = {}\n", explained(key), key.name, value.toml());
        }
    }
    out += "\n";
    out += &comment(
        "Names of hosts, for --connect NAME. A name has no colon, so it never hides a URI. For example:",
    );
    out += "#\n#   [hosts.esx1]\n";
    for (name, example, meaning) in HOST_KEYS {
        let _ = writeln!(out, "#   {:<44}# {meaning}", format!("{name} = {example:?}"));
    }
    out += "\n";
    out += &comment(
        "A trigger posts a message or runs a command when a finding begins and when it ends. For example:",
    );
    out += "#\n#   [triggers.oncall]\n";
    for key in TRIGGER_KEYS {
        let _ = writeln!(out, "#   {:<44}# {}", format!("{} = {}", key.name, key.example()), key.meaning);
    }
    out
}
