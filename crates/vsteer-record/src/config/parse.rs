//! What does a configuration say, and what in it is wrong? All faults at once, each with its place.
//!
//! A text that is not TOML is read as far as it can be, so that one typo hides neither the other faults nor the folder of
//! the undo journals, which a rollback needs.

use super::keys::{HOST_KEYS, Key, Kind, NAME_MOST, Refused, SECTIONS, is_host_name, keys, nearest};
use super::triggers::{TRIGGER_KEYS, TRIGGERS_MOST, Trigger};
use super::wrong::Spot;
use super::{Host, Value};
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use vsteer_core::setting::uri;
use vsteer_core::thumbprint;

/// What a text says.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    /// Places in the table of keys, with the values and the bytes of the text that hold them.
    pub values: Vec<(usize, Value, Range<usize>)>,
    pub hosts: BTreeMap<String, Host>,
    pub triggers: BTreeMap<String, Trigger>,
    pub wrong: Vec<Spot>,
}

impl Parsed {
    pub fn of(text: &str) -> Parsed {
        let mut parsed = Parsed::default();
        let (root, faults) = DeTable::parse_recoverable(text);
        for fault in faults {
            let span = fault.span().unwrap_or(text.len()..text.len());
            parsed.refuse(span, format!("not valid TOML: {}", fault.message()), String::new());
        }
        for (name, value) in root.get_ref() {
            parsed.section(name, value);
        }
        parsed.wrong.sort_by_key(|spot| spot.span.start);
        // The parser reports some faults twice, once for each layer.
        parsed.wrong.dedup_by(|a, b| a.span.start == b.span.start && a.what == b.what);
        parsed
    }

    fn refuse(&mut self, span: Range<usize>, what: String, instead: String) {
        self.wrong.push(Spot { span, what, instead });
    }

    fn section(&mut self, name: &Name<'_>, value: &Spanned<DeValue<'_>>) {
        let known: Vec<&str> = SECTIONS.iter().map(|(name, _)| *name).chain(["hosts", "triggers"]).collect();
        let text = name.get_ref().as_ref();
        match value.get_ref() {
            DeValue::Table(table) if text == "hosts" => {
                table.iter().for_each(|(name, value)| self.host(name, value));
            }
            DeValue::Table(table) if text == "triggers" => {
                table.iter().for_each(|(name, value)| self.trigger(name, value));
            }
            DeValue::Table(table) if known.contains(&text) => {
                table.iter().for_each(|(name, value)| self.key(text, name, value));
            }
            _ if known.contains(&text) => {
                let what = format!("{} is a table, found {}", cut(text), kind_of(value.get_ref()));
                self.refuse(name.span(), what, format!("write [{text}] on a line of its own"));
            }
            DeValue::Table(_) => {
                let near = nearest(text, &known).map(|near| format!("did you mean [{near}]?"));
                let instead = near.unwrap_or_else(|| format!("known: {}", known.join(", ")));
                self.refuse(name.span(), format!("unknown table [{}]", cut(text)), instead);
            }
            _ => {
                let sections = keys().iter().filter(|k| k.name == text).map(|k| format!("[{}]", k.section));
                let sections: Vec<String> = sections.collect();
                let instead = match sections.is_empty() {
                    true => "keys stand in tables, for example [top]".to_owned(),
                    false => format!("it belongs below {}", listed(&sections)),
                };
                self.refuse(name.span(), format!("unknown key {} outside of a table", quoted(text)), instead);
            }
        }
    }

    fn key(&mut self, section: &str, name: &Name<'_>, value: &Spanned<DeValue<'_>>) {
        let text = name.get_ref().as_ref();
        let Some(at) = keys().iter().position(|k| k.section == section && k.name == text) else {
            let of = |section: &str| -> Vec<&str> {
                keys().iter().filter(|k| k.section == section).map(|k| k.name).collect()
            };
            let elsewhere = keys().iter().find(|k| k.name == text).map(|k| k.section);
            let instead = match (elsewhere, nearest(text, &of(section))) {
                (Some(other), _) => format!("it belongs below [{other}]"),
                (None, Some(near)) => format!("did you mean {near:?}?"),
                (None, None) => format!("known: {}", of(section).join(", ")),
            };
            self.refuse(name.span(), format!("unknown key {} in [{section}]", quoted(text)), instead);
            return;
        };
        match read(&keys()[at], value) {
            Ok(found) => self.values.push((at, found, value.span())),
            Err(spots) => self.wrong.extend(spots),
        }
    }

    /// The table of a host or a trigger that has a name of its own (`what`: `host`, `trigger`).
    fn named<'v, 'i>(
        &mut self,
        what: &str,
        name: &Name<'_>,
        value: &'v Spanned<DeValue<'i>>,
    ) -> Option<&'v toml::de::DeTable<'i>> {
        let text = name.get_ref().as_ref();
        if !is_host_name(text) {
            let fault = format!("{} cannot be the name of a {what}", quoted(text));
            self.refuse(name.span(), fault, "use at most 64 letters, digits, and - _ .".to_owned());
            return None;
        }
        let DeValue::Table(table) = value.get_ref() else {
            let fault = format!("{what}s.{text} is a table, found {}", kind_of(value.get_ref()));
            self.refuse(name.span(), fault, format!("write [{what}s.{text}] on a line of its own"));
            return None;
        };
        Some(table)
    }

    fn trigger(&mut self, name: &Name<'_>, value: &Spanned<DeValue<'_>>) {
        let Some(table) = self.named("trigger", name, value) else { return };
        let text = name.get_ref().as_ref();
        if self.triggers.len() == TRIGGERS_MOST {
            let what = format!("more than {TRIGGERS_MOST} triggers");
            self.refuse(name.span(), what, "remove this one".to_owned());
            return;
        }
        let (before, mut trigger) = (self.wrong.len(), Trigger::default());
        for (key, value) in table {
            let called = key.get_ref().as_ref();
            let Some(at) = TRIGGER_KEYS.iter().position(|k| k.name == called) else {
                let known: Vec<&str> = TRIGGER_KEYS.iter().map(|k| k.name).collect();
                self.refuse_key(key, &format!("triggers.{text}"), &known);
                continue;
            };
            match read(&TRIGGER_KEYS[at], value) {
                Ok(found) => trigger.values[at] = found,
                Err(spots) => self.wrong.extend(spots),
            }
        }
        if self.wrong.len() > before {
            return;
        }
        if let Some((at, fault, instead)) = trigger.contradiction() {
            let of = at.and_then(|at| table.iter().find(|(key, _)| key.get_ref() == at));
            let span = of.map_or_else(|| name.span(), |(_, value)| value.span());
            self.refuse(span, format!("triggers.{text} {fault}"), instead.to_owned());
            return;
        }
        self.triggers.insert(text.to_owned(), trigger);
    }

    /// A key that this table does not have.
    fn refuse_key(&mut self, key: &Name<'_>, table: &str, known: &[&str]) {
        let name = key.get_ref().as_ref();
        let near = nearest(name, known).map(|near| format!("did you mean {near:?}?"));
        let instead = near.unwrap_or_else(|| format!("known: {}", known.join(", ")));
        self.refuse(key.span(), format!("unknown key {} in [{table}]", quoted(name)), instead);
    }

    fn host(&mut self, name: &Name<'_>, value: &Spanned<DeValue<'_>>) {
        let Some(table) = self.named("host", name, value) else { return };
        let text = name.get_ref().as_ref();
        let before = self.wrong.len();
        let mut host = Host::default();
        for (key, value) in table {
            if let Err(spot) = host.set(text, key, value) {
                self.wrong.push(spot);
            }
        }
        let has = |key: &str| table.keys().find(|k| k.get_ref() == key).map(Spanned::span);
        if has("connect").is_none() {
            let what = format!("hosts.{text} has no connect");
            self.refuse(name.span(), what, "add connect = \"URI\"".to_owned());
        }
        if let (Some(_), Some(at)) = (has("ca"), has("thumbprint")) {
            let what = format!("hosts.{text} has both ca and thumbprint");
            self.refuse(at, what, "keep one of them".to_owned());
        }
        if self.wrong.len() == before {
            self.hosts.insert(text.to_owned(), host);
        }
    }
}

type Name<'i> = Spanned<toml::de::DeString<'i>>;

impl Host {
    fn set(&mut self, host: &str, key: &Name<'_>, value: &Spanned<DeValue<'_>>) -> Result<(), Spot> {
        let name = key.get_ref().as_ref();
        let spot = |span, what: String, instead: String| Spot { span, what, instead };
        let Some((name, example, _)) = HOST_KEYS.iter().find(|(known, ..)| *known == name) else {
            let known: Vec<&str> = HOST_KEYS.iter().map(|(name, ..)| *name).collect();
            let near = nearest(name, &known).map(|near| format!("did you mean {near:?}?"));
            let instead = near.unwrap_or_else(|| format!("known: {}", known.join(", ")));
            return Err(spot(key.span(), format!("unknown key {} in [hosts.{host}]", quoted(name)), instead));
        };
        let what = |fault: &str| format!("hosts.{host}.{name}: {fault}");
        let DeValue::String(text) = value.get_ref() else {
            let fault = what(&format!("expected text, found {}", kind_of(value.get_ref())));
            return Err(spot(value.span(), fault, format!("for example {example:?}")));
        };
        let path = || text.starts_with('/') && !text.contains(char::is_control);
        match *name {
            "connect" if !text.contains(':') => {
                return Err(spot(value.span(), what("not a URI"), format!("for example {example:?}")));
            }
            "connect" => {
                if let Err(fault) = uri::from_file(text, &[]) {
                    let cause = fault.cause.unwrap_or_default();
                    return Err(spot(value.span(), what("vsteer does not open this URI from a file"), cause));
                }
                self.connect = text.to_string();
            }
            "thumbprint" if thumbprint::bytes(text).is_none() => {
                let instead = "64 hexadecimal digits, with or without colons".to_owned();
                return Err(spot(value.span(), what("not a SHA-256 thumbprint"), instead));
            }
            "thumbprint" => self.thumbprint = Some(text.to_string()),
            _ if !path() => {
                return Err(spot(
                    value.span(),
                    what("not a path from the root"),
                    "begin it with /".to_owned(),
                ));
            }
            "ca" => self.ca = Some(text.as_ref().into()),
            _ => self.password_file = Some(text.as_ref().into()),
        }
        Ok(())
    }
}

/// The value of a key, or all that is wrong with it.
fn read(key: &Key, value: &Spanned<DeValue<'_>>) -> Result<Value, Vec<Spot>> {
    let full = key.full();
    let spot =
        |span, fault: String, instead: String| Spot { span, what: format!("{full}: {fault}"), instead };
    let refused = |span, r: Refused| spot(span, r.fault, r.instead);
    let example = if key.default.is_empty() { key.kind.example() } else { key.default };
    match value.get_ref() {
        DeValue::Array(all) if key.kind.is_list() => {
            let (mut words, mut wrong) = (Vec::new(), Vec::new());
            for one in all {
                match one.get_ref() {
                    // A program may take one argument twice.
                    DeValue::String(text)
                        if !matches!(key.kind, Kind::Command) && words.iter().any(|w| w == text.as_ref()) =>
                    {
                        wrong.push(spot(
                            one.span(),
                            format!("{} stands there twice", quoted(text)),
                            String::new(),
                        ));
                    }
                    DeValue::String(text) => match key.kind.check(text) {
                        Ok(()) => words.push(text.to_string()),
                        Err(r) => wrong.push(refused(one.span(), r)),
                    },
                    other => {
                        let fault = format!("expected text, found {}", kind_of(other));
                        wrong.push(spot(one.span(), fault, list_example(key.kind)));
                    }
                }
            }
            if wrong.is_empty() { Ok(Value::List(words)) } else { Err(wrong) }
        }
        DeValue::String(text) if !key.kind.is_list() => {
            if text.is_empty() && key.default.is_empty() {
                return Ok(Value::One(String::new()));
            }
            key.kind.check(text).map_err(|r| vec![refused(value.span(), r)])?;
            Ok(Value::One(text.to_string()))
        }
        other if key.kind.is_list() => {
            let fault = format!("expected a list, found {}", kind_of(other));
            Err(vec![spot(value.span(), fault, list_example(key.kind))])
        }
        other => {
            let fault = format!("expected text, found {}", kind_of(other));
            Err(vec![spot(value.span(), fault, format!("for example {example:?}"))])
        }
    }
}

fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

fn cut(text: &str) -> String {
    let mut short: String = text.chars().take(NAME_MOST).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    vsteer_core::visible::line(&short).into_owned()
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", cut(text))
}

fn list_example(kind: Kind) -> String {
    match kind {
        Kind::Words(_) => "for example [\"%USED\", \"%RDY\"]".to_owned(),
        kind => format!("for example [{:?}]", kind.example()),
    }
}

/// Words in a sentence: `a, b or c`.
fn listed(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} or {last}", all.join(", ")),
    }
}
