//! JSON lines: which key has the time of a request, which one its duration, and in which unit?
//!
//! Servers name the same thing differently, and use the same name for different units: `duration` is seconds in Caddy's logs,
//! milliseconds in Envoy's and nanoseconds where Go's `log/slog` writes it. So vsteer looks at the first lines, and recognises
//! the server by its other keys. Where nothing tells the unit, it is assumed, and said so ([`super::Sure`]).
//!
//! Sources: nginx's ngx_http_log_module, Caddy 2 "log" directive, Envoy "Access logging", Traefik 3 "Access logs", pino-http, the
//! Elastic Common Schema (`event.duration`), Go's `log/slog`.

use super::moment::{Moment, date, number, plain, since_1970, with_unit};
use super::{Found, Raw, Sure};
use crate::unit::Unit;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// Keys of the end of a request.
pub(super) const ENDS: [&str; 8] =
    ["time", "timestamp", "ts", "@timestamp", "msec", "time_iso8601", "time_local", "end_time"];
/// Keys of its beginning.
pub(super) const BEGINS: [&str; 4] = ["start", "start_time", "StartUTC", "StartLocal"];
/// Keys of its duration; with the unit where the name tells it, or one server alone uses the name.
pub(super) const TOOK: [(&str, Option<Unit>); 22] = [
    ("request_time", Some(Unit::Seconds)),
    ("duration_s", Some(Unit::Seconds)),
    ("duration_seconds", Some(Unit::Seconds)),
    ("duration_ms", Some(Unit::Milliseconds)),
    ("duration_us", Some(Unit::Microseconds)),
    ("duration_ns", Some(Unit::Nanoseconds)),
    ("response_ms", Some(Unit::Milliseconds)),
    ("response_time_ms", Some(Unit::Milliseconds)),
    ("elapsed_ms", Some(Unit::Milliseconds)),
    ("latency_ms", Some(Unit::Milliseconds)),
    ("took_ms", Some(Unit::Milliseconds)),
    // pino-http
    ("responseTime", Some(Unit::Milliseconds)),
    // The Elastic Common Schema
    ("event.duration", Some(Unit::Nanoseconds)),
    // Traefik
    ("Duration", Some(Unit::Nanoseconds)),
    ("duration", None),
    ("elapsed", None),
    ("latency", None),
    ("response_time", None),
    ("took", None),
    ("time_taken", None),
    ("request_duration", None),
    ("processing_time", None),
];
/// From this many on, whole numbers are more likely ns than ms: a response of a minute has 60,000 ms.
const LIKELY_NS: f64 = 100_000.0;

/// Which keys to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    end: Option<String>,
    begin: Option<String>,
    took: String,
    unit: Option<Unit>,
}

impl FromStr for Keys {
    type Err = String;

    /// `time=start_time,duration=duration:ms`
    fn from_str(text: &str) -> Result<Keys, String> {
        const FORM: &str = "write time=KEY,duration=KEY:UNIT, with start=KEY or end=KEY in place of time=KEY where the name does not tell";
        let mut keys = Keys { end: None, begin: None, took: String::new(), unit: None };
        for pair in text.split(',') {
            let (name, key) =
                pair.split_once('=').ok_or_else(|| format!("{pair:?} is not NAME=KEY; {FORM}"))?;
            if key.is_empty() {
                return Err(format!("{pair:?} names no key; {FORM}"));
            }
            match name {
                "time" if BEGINS.contains(&key) || key.contains("start") || key.contains("begin") => {
                    keys.begin = Some(key.to_owned());
                }
                "time" | "end" => keys.end = Some(key.to_owned()),
                "start" => keys.begin = Some(key.to_owned()),
                "duration" => {
                    let (key, unit) = match key.rsplit_once(':') {
                        Some((key, unit)) => (key, Some(unit.parse()?)),
                        None => (key, None),
                    };
                    (keys.took, keys.unit) = (key.to_owned(), unit);
                }
                other => return Err(format!("{other:?} is none of time, start, end and duration; {FORM}")),
            }
        }
        if keys.took.is_empty() || keys.end.is_none() && keys.begin.is_none() {
            return Err(format!("{text:?} lacks the time or the duration; {FORM}"));
        }
        Ok(keys)
    }
}

/// How to read JSON lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Json {
    keys: Keys,
    unit: Unit,
    pub sure: Sure,
    /// Who writes such lines, and why the unit is what it is.
    pub about: String,
}

impl Json {
    /// The unit of durations without one.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Recognises the keys from the first lines; `None` if no line has both a time and a duration.
    pub fn recognised(lines: &[Cow<'_, [u8]>], keys: Option<&Keys>, unit: Option<Unit>) -> Option<Json> {
        let objects: Vec<Map<String, Value>> = lines.iter().filter_map(|line| object(line)).collect();
        let keys = match keys {
            Some(keys) => keys.clone(),
            None => usual_keys(&objects)?,
        };
        let objects = || objects.iter().filter(|o| value(o, &keys.took).is_some());
        let (found, sure, about) = match (unit, keys.unit) {
            (Some(unit), _) | (None, Some(unit)) => (unit, Sure::Stated, "as you say".to_owned()),
            (None, None) => unit_of(&keys.took, &objects().collect::<Vec<_>>()),
        };
        let json = Json { keys, unit: found, sure, about };
        lines.iter().any(|line| matches!(json.read(line), Raw::Found(_))).then_some(json)
    }

    /// What a line says.
    pub fn read(&self, line: &[u8]) -> Raw {
        match self.values(line) {
            Ok(values) => self.of(&values).unwrap_or(Raw::Odd),
            Err(_) => repaired(line)
                .and_then(|line| self.values(&line).ok().and_then(|values| self.of(&values)))
                .unwrap_or(Raw::Odd),
        }
    }

    fn values<'a>(&self, line: &'a [u8]) -> Result<Values<'a>, serde_json::Error> {
        let mut from = serde_json::Deserializer::from_slice(line);
        let mut values = Values::default();
        Object { keys: &self.keys, prefix: None, into: &mut values }.deserialize(&mut from)?;
        from.end()?;
        Ok(values)
    }

    fn of(&self, values: &Values<'_>) -> Option<Raw> {
        let Some(took) = values.took else { return Some(Raw::Other) };
        let took_ns = match text(took)? {
            Text::None => return Some(Raw::Other),
            Text::Quoted("-" | "") => return Some(Raw::Other),
            Text::Quoted(text) => number(text.as_bytes(), self.unit.ns()).or_else(|| with_unit(text))?,
            Text::Number(text) => number(plain(text)?.as_bytes(), self.unit.ns())?,
        };
        let (moment, is_begin) = match (values.end, values.begin) {
            (Some(end), _) => (moment(end)?, false),
            (None, begin) => (moment(begin?)?, true),
        };
        Some(Raw::Found(Found { moment, is_begin, took_ns }))
    }
}

/// The object of a line, if it is one.
fn object(line: &[u8]) -> Option<Map<String, Value>> {
    serde_json::from_slice(line).or_else(|_| serde_json::from_slice(&repaired(line).unwrap_or_default())).ok()
}

/// The value of a key, which may lie in objects: `event.duration`.
fn value<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    object.get(key).or_else(|| {
        let (head, tail) = key.split_once('.')?;
        value(object.get(head)?.as_object()?, tail)
    })
}

/// The usual keys that the most lines have.
fn usual_keys(objects: &[Map<String, Value>]) -> Option<Keys> {
    let count = |key: &str| objects.iter().filter(|o| value(o, key).is_some()).count();
    let most = |keys: &mut dyn Iterator<Item = &'static str>| {
        let counted = keys.map(|key| (count(key), key)).filter(|(n, _)| *n > 0);
        // Of keys that are equally often there, the first of the list.
        counted.fold(None, |best: Option<(usize, &str)>, one| best.filter(|b| b.0 >= one.0).or(Some(one)))
    };
    let (n, took) = most(&mut TOOK.iter().map(|(key, _)| *key))?;
    let end = most(&mut ENDS.into_iter());
    let begin = most(&mut BEGINS.into_iter());
    // Traefik's `time` has whole seconds, its StartUTC a fraction.
    let is_traefik = took == "Duration" && begin.is_some();
    let end = end.filter(|(with_end, _)| !is_traefik && 2 * with_end >= n).map(|(_, key)| key.to_owned());
    let begin = begin.filter(|_| end.is_none()).map(|(_, key)| key.to_owned());
    (end.is_some() || begin.is_some()).then(|| Keys { end, begin, took: took.to_owned(), unit: None })
}

/// The unit of a key's numbers, how sure that is, and why.
fn unit_of(key: &str, objects: &[&Map<String, Value>]) -> (Unit, Sure, String) {
    let known = |unit, why: &str| (unit, Sure::Known, why.to_owned());
    if let Some((_, Some(unit))) = TOOK.iter().find(|(name, _)| *name == key) {
        return known(*unit, &format!("{key} is in {unit}"));
    }
    let values = || objects.iter().filter_map(|o| value(o, key));
    if values().all(|v| v.as_str().is_some_and(|text| with_unit(text).is_some())) {
        return known(Unit::Seconds, "each value names its unit");
    }
    let is_text = |o: &&&Map<String, Value>, key: &str, begin: &str| {
        o.get(key).and_then(Value::as_str).is_some_and(|text| text.starts_with(begin))
    };
    if objects.iter().any(|o| is_text(&o, "logger", "http.log")) {
        return known(Unit::Seconds, "Caddy writes seconds");
    }
    let of_envoy = ["response_code", "response_flags", "upstream_service_time", "upstream_host"];
    if objects.iter().any(|o| o.contains_key("start_time") && of_envoy.iter().any(|k| o.contains_key(*k))) {
        return known(Unit::Milliseconds, "Envoy and Istio write milliseconds");
    }
    let number = |v: &Value| v.as_f64().or_else(|| v.as_str()?.parse().ok());
    let mut numbers: Vec<f64> = values().filter_map(number).collect();
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.get(numbers.len() / 2).copied().unwrap_or(0.0);
    let is_whole = numbers.iter().all(|x| x.fract() == 0.0);
    let unit = match is_whole {
        true if middle >= LIKELY_NS => Unit::Nanoseconds,
        true => Unit::Milliseconds,
        false if middle >= 10.0 => Unit::Milliseconds,
        false => Unit::Seconds,
    };
    (unit, Sure::Assumed, format!("{key:?} does not say its unit"))
}

/// The relevant values of a line as raw text. No number goes through a float, and no other value is stored.
#[derive(Debug, Default)]
struct Values<'a> {
    end: Option<&'a RawValue>,
    begin: Option<&'a RawValue>,
    took: Option<&'a RawValue>,
}

/// Reads an object into the values.
struct Object<'k, 'v, 'a> {
    keys: &'k Keys,
    /// The keys of the objects that this one lies in.
    prefix: Option<&'k str>,
    into: &'v mut Values<'a>,
}

/// What a key of an object is.
enum Key<'k> {
    End,
    Begin,
    Took,
    /// A key begins so, and goes on in an object.
    Inside(&'k str),
    Other,
}

impl<'k> Keys {
    fn all(&self) -> [Option<&str>; 3] {
        [self.end.as_deref(), self.begin.as_deref(), Some(self.took.as_str())]
    }

    fn is(&'k self, prefix: Option<&str>, name: &str) -> Key<'k> {
        // The part of a wanted key that this object can have.
        let rest = |key: &'k str| match prefix {
            None => Some(key),
            Some(prefix) => key.strip_prefix(prefix)?.strip_prefix('.'),
        };
        for (i, key) in self.all().into_iter().enumerate() {
            let Some(key) = key else { continue };
            let Some(wanted) = rest(key) else { continue };
            if wanted == name {
                return [Key::End, Key::Begin, Key::Took].into_iter().nth(i).unwrap_or(Key::Other);
            }
            if wanted.strip_prefix(name).is_some_and(|more| more.starts_with('.')) {
                return Key::Inside(&key[..key.len() - wanted.len() + name.len()]);
            }
        }
        Key::Other
    }
}

struct Name<'k> {
    keys: &'k Keys,
    prefix: Option<&'k str>,
}

impl<'de, 'k> DeserializeSeed<'de> for Name<'k> {
    type Value = Key<'k>;

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Key<'k>, D::Error> {
        from.deserialize_identifier(self)
    }
}

impl<'k> Visitor<'_> for Name<'k> {
    type Value = Key<'k>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, name: &str) -> Result<Key<'k>, E> {
        Ok(self.keys.is(self.prefix, name))
    }
}

impl<'de> DeserializeSeed<'de> for Object<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let Object { keys, prefix, into } = self;
        while let Some(key) = map.next_key_seed(Name { keys, prefix })? {
            match key {
                Key::End => into.end = Some(map.next_value()?),
                Key::Begin => into.begin = Some(map.next_value()?),
                Key::Took => into.took = Some(map.next_value()?),
                Key::Other => drop(map.next_value::<IgnoredAny>()?),
                Key::Inside(prefix) => {
                    let inside: &'de RawValue = map.next_value()?;
                    let mut from = serde_json::Deserializer::from_str(inside.get());
                    // Only an object has such a key.
                    let _ = Object { keys, prefix: Some(prefix), into: &mut *into }.deserialize(&mut from);
                }
            }
        }
        Ok(())
    }
}

enum Text<'a> {
    Number(&'a str),
    Quoted(&'a str),
    None,
}

/// A number, or a string without escapes (dates contain no escapes).
fn text(v: &RawValue) -> Option<Text<'_>> {
    let raw = v.get();
    if raw == "null" {
        return Some(Text::None);
    }
    match raw.strip_prefix('"').and_then(|r| r.strip_suffix('"')) {
        Some(inner) => (!inner.contains('\\')).then_some(Text::Quoted(inner)),
        None => raw.starts_with(|c: char| c.is_ascii_digit() || c == '-').then_some(Text::Number(raw)),
    }
}

/// A date, or a number since 1970, of which the number of digits tells the unit.
fn moment(v: &RawValue) -> Option<Moment> {
    match text(v)? {
        Text::Quoted(text) => date(text.as_bytes()).or_else(|| since_1970(text)),
        Text::Number(text) => since_1970(&plain(text)?),
        Text::None => None,
    }
}

/// A line that is nearly JSON: nginx writes `\x22` unless it is told `escape=json`, and people who write templates leave a comma at the end.
fn repaired(line: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut i, mut changed) = (Vec::with_capacity(line.len() + 16), 0, false);
    while i < line.len() {
        match line[i] {
            b'\\' if line.get(i + 1) == Some(&b'x') => {
                out.extend(b"\\u00");
                i += 2;
                changed = true;
            }
            b'\\' => {
                out.extend(line.get(i..i + 2)?);
                i += 2;
            }
            b',' if line[i + 1..].trim_ascii_start().first() == Some(&b'}') => {
                i += 1;
                changed = true;
            }
            byte => {
                out.push(byte);
                i += 1;
            }
        }
    }
    changed.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::super::{MS, SECOND};
    use super::*;

    fn of(line: &str) -> Option<(u64, bool, u64)> {
        let lines = [Cow::Borrowed(line.as_bytes())];
        match Json::recognised(&lines, None, None)?.read(line.as_bytes()) {
            Raw::Found(found) => Some((found.moment.ns, found.is_begin, found.took_ns)),
            _ => None,
        }
    }

    #[test]
    fn lines_say_by_their_keys() {
        let ended = 1_571_168_506_500 * MS;
        for line in [
            r#"{"time": "2019-10-15T19:41:46.5Z", "request_time": 0.017}"#,
            r#"{"ts": 1571168506.5, "duration_ms": 17}"#,
            r#"{"timestamp": 1571168506500, "duration_us": "17000"}"#,
            r#"{"msec": "1571168506.500", "request_time": "0.017"}"#,
            r#"{"ts": 1.5711685065e9, "duration": 1.7e-2}"#,
            r#"{"ts": 1571168506.5, "duration": "17ms"}"#,
            r#"{"ts": 1571168506.5, "duration": "0.017s"}"#,
            r#"{"time": 1571168506500, "responseTime": 17}"#,
            r#"{"@timestamp": "2019-10-15T19:41:46.5Z", "event": {"duration": 17000000, "kind": "x"}}"#,
            r#"{"@timestamp": "2019-10-15T19:41:46.5Z", "event.duration": 17000000}"#,
            r#"{"msec":1571168506.500,"request_time":0.017,}"#,
            r#"{"msec":1571168506.500,"agent":"a\x22b\\xc","request_time":0.017}"#,
        ] {
            assert_eq!(of(line), Some((ended, false, 17 * MS)), "{line}");
        }
        assert_eq!(
            of(r#"{"start": 1571168506483000, "duration_s": 0.017, "path": "/"}"#),
            Some((ended - 17 * MS, true, 17 * MS))
        );
        let traefik = r#"{"Duration":17000000,"OriginDuration":1,"StartUTC":"2019-10-15T19:41:46.483Z","time":"2019-10-15T19:41:46Z"}"#;
        assert_eq!(of(traefik), Some((ended - 17 * MS, true, 17 * MS)));
        assert_eq!(of(r#"{"ts": 1, "duration": 5e-7}"#).unwrap().2, 500);
        for line in [
            "",
            "{}",
            "[1]",
            r#"{"ts": -1, "duration": 1}"#,
            r#"{"ts": 1, "duration": -1}"#,
            r#"{"ts": true, "duration": 1}"#,
            r#"{"ts": 1, "event": 5}"#,
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    fn unit(lines: &[&str]) -> (Unit, Sure) {
        let lines: Vec<Cow<'_, [u8]>> = lines.iter().map(|l| Cow::Borrowed(l.as_bytes())).collect();
        let json = Json::recognised(&lines, None, None).unwrap();
        (json.unit(), json.sure)
    }

    #[test]
    fn the_unit_is_that_of_the_server_or_assumed() {
        let envoy = r#"{"response_code":200,"duration":17,"start_time":"2019-10-15T19:41:46Z"}"#;
        assert_eq!(unit(&[envoy]), (Unit::Milliseconds, Sure::Known));
        let caddy = r#"{"logger":"http.log.access.log0","ts":1571168506.5,"duration":0.017}"#;
        assert_eq!(unit(&[caddy]), (Unit::Seconds, Sure::Known));
        assert_eq!(
            unit(&[r#"{"time":"2019-10-15T19:41:46Z","duration":17000000}"#]),
            (Unit::Nanoseconds, Sure::Assumed)
        );
        assert_eq!(unit(&[r#"{"ts":1571168506,"duration":17}"#]), (Unit::Milliseconds, Sure::Assumed));
        assert_eq!(unit(&[r#"{"ts":1571168506,"latency":0.017}"#]), (Unit::Seconds, Sure::Assumed));
        assert_eq!(unit(&[r#"{"ts":1571168506,"took":17.25}"#]), (Unit::Milliseconds, Sure::Assumed));
        assert_eq!(unit(&[r#"{"ts":1571168506,"duration_ms":17}"#]).1, Sure::Known);
    }

    #[test]
    fn messages_without_a_duration_are_no_requests() {
        let request = r#"{"ts":1571168506.5,"duration":0.017}"#;
        let lines = [Cow::Borrowed(&b"starting up"[..]), Cow::Borrowed(request.as_bytes())];
        let json = Json::recognised(&lines, None, None).unwrap();
        for line in [
            r#"{"ts":1,"msg":"autosaved config"}"#,
            r#"{"ts":1,"duration":"-"}"#,
            r#"{"ts":1,"duration":null}"#,
        ] {
            assert!(matches!(json.read(line.as_bytes()), Raw::Other), "{line}");
        }
        assert!(matches!(json.read(b"starting up"), Raw::Odd));
    }

    #[test]
    fn a_person_names_the_keys() {
        let keys: Keys = "time=http.start_time,duration=http.d:ms".parse().unwrap();
        let line = r#"{"http": {"start_time": "2019-10-15T19:41:46Z", "d": 17}, "d": 3}"#;
        let json = Json::recognised(&[Cow::Borrowed(line.as_bytes())], Some(&keys), None).unwrap();
        let Raw::Found(found) = json.read(line.as_bytes()) else { panic!("{json:?}") };
        assert_eq!((found.is_begin, found.took_ns, json.sure), (true, 17 * MS, Sure::Stated));
        assert_eq!(found.moment.ns, 1_571_168_506 * SECOND);
        for (text, why) in [
            ("time=a", "lacks"),
            ("a", "NAME=KEY"),
            ("time=,duration=b", "no key"),
            ("time=a,duration=b:day", "not a unit"),
            ("x=a,duration=b", "none of"),
        ] {
            assert!(text.parse::<Keys>().unwrap_err().contains(why), "{text}");
        }
    }
}
