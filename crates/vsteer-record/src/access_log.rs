//! Reads requests from access logs (Apache's, nginx's, JSON lines), to measure how long clients waited.
//!
//! A format is the one in the server's configuration (`LogFormat` of Apache, `log_format` of nginx), or the
//! name of a common one. vsteer reads two fields of each line: when the request ended, and how long it took.
//! It skips the rest up to the next literal text of the format. Inside quotes a backslash escapes the next
//! character, as both servers write it.
//!
//! Apache's `%t` is the start of a request, nginx's `$time_local` its end, both in whole seconds. `%{usec}t`,
//! `$msec` and a JSON number are more exact. Sources: mod_log_config (httpd 2.4), ngx_http_log_module (nginx
//! 1.26).
//!
//! `fit` first checks that the lines match the format, and that the log's clock matches the recording's.
//!
//! Left out: logs with several lines per request; times in languages other than English; leap seconds.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use vsteer_core::{Fault, FaultKind};

mod fit;
mod reader;

pub use fit::{checked_clock, checked_format, resolution_ns};
pub use reader::{Reader, read};

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const US: u64 = 1_000;
/// Formats with a name, as `--format` accepts them.
pub const NAMED: [(&str, &str); 3] = [
    ("apache", r#"%h %l %u %t "%r" %>s %b %D"#),
    ("apache-combined", r#"%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-agent}i" %D"#),
    (
        "nginx",
        r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" $request_time"#,
    ),
];
/// JSON lines: keys for the end of a request, for its start, and for its duration with the unit.
const JSON_ENDS: [&str; 7] = ["time", "timestamp", "ts", "@timestamp", "msec", "time_iso8601", "time_local"];
const JSON_BEGINS: [&str; 2] = ["start", "start_time"];
const JSON_TOOK: [(&str, u64); 6] = [
    ("request_time", SECOND),
    ("duration", SECOND),
    ("duration_s", SECOND),
    ("duration_ms", MS),
    ("duration_us", US),
    ("response_ms", MS),
];

/// One request of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// When the server answered, ns since 1970.
    pub ended_ns: u64,
    /// From the request's arrival to the server's answer, ns.
    pub took_ns: u64,
}

impl Request {
    /// When the request arrived, ns since 1970.
    pub fn began_ns(&self) -> u64 {
        self.ended_ns.saturating_sub(self.took_ns)
    }
}

/// The meaning of a field of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    /// A date as servers write it, including Apache's brackets.
    Began,
    Ended,
    /// A number since 1970, in units of this many ns.
    BeganIn(u64),
    EndedIn(u64),
    /// A duration, in units of this many ns.
    Took(u64),
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    Field(Says),
}

/// How to read the lines of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// Empty for JSON lines.
    parts: Vec<Part>,
    /// nginx: its numbers of seconds have three decimal places.
    nginx: bool,
}

fn bad(why: impl Into<String>) -> Fault {
    Fault::new(FaultKind::BadInput, "cannot use this access log format".to_owned()).because(why.into())
}

impl Format {
    /// Parses a format: its name (`apache`, `apache-combined`, `nginx`, `json`) or the text of the server's
    /// configuration.
    ///
    /// # Errors
    /// `BadInput` if the format lacks the time or the duration of a request, or has two fields without text
    /// between them.
    pub fn parse(text: &str) -> Result<Format, Fault> {
        if text == "json" {
            return Ok(Format { parts: Vec::new(), nginx: false });
        }
        let text = NAMED.iter().find(|(name, _)| *name == text).map_or(text, |(_, format)| format);
        // A percent sign may be literal text in a format of nginx.
        let is_nginx = !text.contains('%') || text.contains("$request_time");
        let parts = if is_nginx { nginx(text)? } else { apache(text)? };
        let has = |of: &dyn Fn(Says) -> bool| parts.iter().any(|p| matches!(p, Part::Field(s) if of(*s)));
        if !has(&|s| matches!(s, Says::Took(_))) {
            return Err(bad("it does not log how long a request took").help(
                "add %D to Apache's LogFormat, or $request_time to nginx's log_format; or name one: apache, apache-combined, nginx, json",
            ));
        }
        if !has(&|s| !matches!(s, Says::Took(_) | Says::Nothing)) {
            return Err(
                bad("it does not log the time of a request").help("add %t (Apache) or $time_local (nginx)")
            );
        }
        if parts.windows(2).any(|w| matches!(w, [Part::Field(_), Part::Field(_)])) {
            return Err(bad("two fields have nothing between them").help("put a space between them"));
        }
        Ok(Format { parts, nginx: is_nginx })
    }

    /// The resolution of the start and end of a request, ns: the coarser one of the log's time and duration.
    /// `None` for JSON lines, because each line may differ (use [`resolution_ns`] on the requests).
    ///
    /// Apache's `%t` and nginx's `$time_local` are truncated to whole seconds. A hundred requests per second
    /// all start at the same time, and the variance of the gaps between them comes from the clock. From such
    /// logs use counts and means, not variances.
    pub fn resolution_ns(&self) -> Option<u64> {
        let of = |part: &Part| match part {
            Part::Field(Says::Began | Says::Ended) => Some(SECOND),
            // nginx writes both with milliseconds.
            Part::Field(Says::EndedIn(SECOND)) => Some(if self.nginx { MS } else { SECOND }),
            Part::Field(Says::Took(SECOND)) => Some(if self.nginx { MS } else { SECOND }),
            Part::Field(Says::BeganIn(unit) | Says::EndedIn(unit) | Says::Took(unit)) => Some(*unit),
            _ => None,
        };
        self.parts.iter().filter_map(of).max()
    }

    /// The request in a line; `None` if the line does not match the format.
    pub fn request(&self, line: &[u8]) -> Option<Request> {
        if self.parts.is_empty() {
            return of_json(line);
        }
        let (mut rest, mut at, mut took_ns) = (line.strip_suffix(b"\r").unwrap_or(line), None, None);
        for (i, part) in self.parts.iter().enumerate() {
            match part {
                Part::Text(text) => rest = rest.strip_prefix(text.as_slice())?,
                Part::Field(says) => {
                    let next = self.parts.get(i + 1).map(|p| match p {
                        Part::Text(text) => text.as_slice(),
                        Part::Field(_) => b"",
                    });
                    // Apache's date has its own brackets, with a space inside.
                    let bracket = *says == Says::Began && rest.first() == Some(&b'[');
                    let end = match next {
                        _ if bracket => find(rest, b"]")? + 1,
                        None => rest.len(),
                        Some(text) => find(rest, text)?,
                    };
                    let (field, after) = rest.split_at(end);
                    rest = after;
                    match says {
                        Says::Nothing => {}
                        // Apache's numbers are whole, nginx's always have a point. So 0.017 is not Apache's
                        // 17 ns, and 52013 is not nginx's 14 hours.
                        Says::Took(_) | Says::BeganIn(_) | Says::EndedIn(_)
                            if field.contains(&b'.') != self.nginx =>
                        {
                            return None;
                        }
                        Says::Took(unit) => took_ns = Some(number(field, *unit)?),
                        Says::Began => at = Some((date(field)?, true)),
                        Says::Ended => at = Some((date(field)?, false)),
                        Says::BeganIn(unit) => at = Some((number(field, *unit)?, true)),
                        Says::EndedIn(unit) => at = Some((number(field, *unit)?, false)),
                    }
                }
            }
        }
        told(at?, took_ns?)
    }
}

fn told((at_ns, began): (u64, bool), took_ns: u64) -> Option<Request> {
    let ended_ns = if began { at_ns.checked_add(took_ns)? } else { at_ns };
    Some(Request { ended_ns, took_ns })
}

/// The first position of `text` in `rest` that does not follow a backslash.
fn find(rest: &[u8], text: &[u8]) -> Option<usize> {
    let mut i = 0;
    while i + text.len() <= rest.len() {
        if rest[i] == b'\\' && rest.len() > i + 1 {
            i += 2;
        } else if rest[i..].starts_with(text) {
            return Some(i);
        } else {
            i += 1;
        }
    }
    None
}

/// Converts a decimal number of `unit` ns exactly, within the range of u64.
fn number(field: &[u8], unit: u64) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?;
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) {
        return None;
    }
    let mut ns = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let mut place = unit;
    for digit in part.bytes() {
        place /= 10;
        ns = ns.checked_add(u64::from(digit - b'0') * place)?;
    }
    Some(ns)
}

/// `[10/Oct/2000:13:55:36 -0700]`, with or without the brackets, or ISO 8601.
fn date(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?.trim_matches(['[', ']']);
    let at = Timestamp::strptime("%d/%b/%Y:%H:%M:%S %z", text).or_else(|_| text.parse::<Timestamp>()).ok()?;
    // The last allowed year is 2262, so that sums of such times fit into 64 bits.
    u64::try_from(i64::try_from(at.as_nanosecond()).ok()?).ok()
}

/// The meaning of a key in a JSON line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    /// End, start or duration, with the position in the list of keys. The first key of the list that the line
    /// has counts.
    Ends(usize),
    Begins(usize),
    Took(usize),
    Other,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Key, D::Error> {
        struct Name;
        impl serde::de::Visitor<'_> for Name {
            type Value = Key;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E>(self, name: &str) -> Result<Key, E> {
                let place = |keys: &[&str]| keys.iter().position(|k| *k == name);
                let took = || JSON_TOOK.iter().position(|(k, _)| *k == name).map(Key::Took);
                let at = place(&JSON_ENDS).map(Key::Ends).or_else(|| place(&JSON_BEGINS).map(Key::Begins));
                Ok(at.or_else(took).unwrap_or(Key::Other))
            }
        }
        from.deserialize_identifier(Name)
    }
}

/// The relevant values of a JSON line as raw text. No number goes through a float, and no other value is
/// stored.
#[derive(Debug, Default)]
struct Line<'a> {
    ends: Option<(usize, &'a RawValue)>,
    begins: Option<(usize, &'a RawValue)>,
    took: Option<(usize, &'a RawValue)>,
}

impl<'de> Deserialize<'de> for Line<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Line<'de>, D::Error> {
        struct Object;
        impl<'de> serde::de::Visitor<'de> for Object {
            type Value = Line<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: serde::de::MapAccess<'de>>(self, mut map: M) -> Result<Line<'de>, M::Error> {
                let mut line = Line::default();
                while let Some(key) = map.next_key::<Key>()? {
                    let (slot, place) = match key {
                        Key::Ends(place) => (&mut line.ends, place),
                        Key::Begins(place) => (&mut line.begins, place),
                        Key::Took(place) => (&mut line.took, place),
                        Key::Other => {
                            map.next_value::<serde::de::IgnoredAny>()?;
                            continue;
                        }
                    };
                    let value = map.next_value::<&'de RawValue>()?;
                    if slot.is_none_or(|(before, _)| place <= before) {
                        *slot = Some((place, value));
                    }
                }
                Ok(line)
            }
        }
        from.deserialize_map(Object)
    }
}

fn of_json(line: &[u8]) -> Option<Request> {
    let line: Line<'_> = serde_json::from_slice(line).ok()?;
    // A date, or a number since 1970. The size of the number decides between seconds, milliseconds,
    // microseconds and nanoseconds.
    let moment = |v: &RawValue| match text(v)? {
        Text::Quoted(text) => date(text.as_bytes()).or_else(|| since_1970(text)),
        Text::Number(text) => since_1970(&plain(text)?),
    };
    let (place, took) = line.took?;
    let took_ns = match text(took)? {
        Text::Quoted(text) => number(text.as_bytes(), JSON_TOOK[place].1),
        Text::Number(text) => number(plain(text)?.as_bytes(), JSON_TOOK[place].1),
    }?;
    let at = match (line.ends, line.begins) {
        (Some((_, v)), _) => (moment(v)?, false),
        (None, begins) => (moment(begins?.1)?, true),
    };
    told(at, took_ns)
}

enum Text<'a> {
    Number(&'a str),
    Quoted(&'a str),
}

/// A number, or a string without escapes (dates contain no escapes).
fn text(v: &RawValue) -> Option<Text<'_>> {
    let raw = v.get();
    match raw.strip_prefix('"').and_then(|r| r.strip_suffix('"')) {
        Some(inner) => (!inner.contains('\\')).then_some(Text::Quoted(inner)),
        None => raw.starts_with(|c: char| c.is_ascii_digit() || c == '-').then_some(Text::Number(raw)),
    }
}

/// Writes a number that has an exponent in plain decimals. JSON writers use exponents for small and large numbers.
fn plain(number: &str) -> Option<Cow<'_, str>> {
    if !number.contains(['e', 'E']) {
        return Some(Cow::Borrowed(number));
    }
    Some(Cow::Owned(format!("{:.12}", number.parse::<f64>().ok()?)))
}

/// A number since 1970. Its number of digits gives the unit: until the year 5138 seconds have at most eleven
/// digits.
fn since_1970(text: &str) -> Option<u64> {
    let whole = text.split('.').next()?.len();
    let unit = match whole {
        0..=11 => SECOND,
        12..=14 => MS,
        15..=17 => US,
        _ => 1,
    };
    number(text.as_bytes(), unit)
}

/// The fields (`%...`) of an Apache format and the text between them.
fn apache(text: &str) -> Result<Vec<Part>, Fault> {
    let mut parts = Vec::new();
    let mut chars = text.chars().peekable();
    let mut plain = String::new();
    while let Some(c) = chars.next() {
        if c == '\\' && matches!(chars.peek(), Some('"' | '\\')) {
            plain.extend(chars.next());
            continue;
        }
        // The manual allows "C-style" controls. Only the tab is in use.
        if c == '\\' && matches!(chars.peek(), Some('t')) {
            chars.next();
            plain.push('\t');
            continue;
        }
        if c != '%' {
            plain.push(c);
            continue;
        }
        // Modifiers: a condition on the status, < or >, and an argument in braces.
        let mut argument = String::new();
        let directive = loop {
            match chars.next() {
                Some('{') => argument = chars.by_ref().take_while(|c| *c != '}').collect(),
                Some('<' | '>' | '!' | ',' | '0'..='9') => {}
                Some('^') => {
                    // %^FU: such a name has three characters.
                    chars.next();
                    break chars.next().unwrap_or(' ');
                }
                Some('%') => break '%',
                Some(c) => break c,
                None => return Err(bad(format!("{text:?} ends inside a field"))),
            }
        };
        if directive == '%' {
            plain.push('%');
            continue;
        }
        if !plain.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut plain).into_bytes()));
        }
        parts.push(Part::Field(match (directive, argument.as_str()) {
            ('D', _) | ('T', "us") => Says::Took(US),
            ('T', "ms") => Says::Took(MS),
            ('T', _) => Says::Took(SECOND),
            ('t', "") => Says::Began,
            ('t', form) => apache_time(form)?,
            _ => Says::Nothing,
        }));
    }
    if !plain.is_empty() {
        parts.push(Part::Text(plain.into_bytes()));
    }
    Ok(parts)
}

fn apache_time(form: &str) -> Result<Says, Fault> {
    let (ends, form) = match form.split_once(':') {
        Some(("begin", form)) => (false, form),
        Some(("end", form)) => (true, form),
        _ => (false, form),
    };
    let unit = match form {
        "sec" => SECOND,
        "msec" => MS,
        "usec" => US,
        // A fraction of a second, in addition to a date elsewhere.
        "msec_frac" | "usec_frac" => return Ok(Says::Nothing),
        _ => {
            return Err(bad(format!("vsteer does not read dates of the form %{{{form}}}t"))
                .help("log %t or %{usec}t"));
        }
    };
    Ok(if ends { Says::EndedIn(unit) } else { Says::BeganIn(unit) })
}

/// The fields (`$...`) of an nginx format and the text between them.
fn nginx(text: &str) -> Result<Vec<Part>, Fault> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        if at > 0 {
            parts.push(Part::Text(rest.as_bytes()[..at].to_vec()));
        }
        rest = &rest[at + 1..];
        let braced = rest.starts_with('{');
        let from = usize::from(braced);
        let until = rest[from..]
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .map_or(rest.len(), |n| n + from);
        if braced && !rest[until..].starts_with('}') {
            return Err(bad(format!("{text:?} has a `${{` without its `}}`")));
        }
        parts.push(Part::Field(match &rest[from..until] {
            "request_time" => Says::Took(SECOND),
            "time_local" | "time_iso8601" => Says::Ended,
            "msec" => Says::EndedIn(SECOND),
            _ => Says::Nothing,
        }));
        rest = &rest[until + usize::from(braced)..];
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.as_bytes().to_vec()));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_format_is_read_or_refused(text in "[${}%\\\\a-z–^ \"]{0,12}", line in "\\PC{0,20}") {
            if let Ok(format) = Format::parse(&text) {
                let _ = format.request(line.as_bytes());
            }
        }
    }

    #[test]
    fn a_brace_that_is_not_closed_is_named() {
        for text in ["${k–", "${", "${msec", "$msec ${request_time x"] {
            let fault = Format::parse(text).unwrap_err();
            assert!(fault.to_string().contains("without its"), "{text}: {fault}");
        }
        assert!(Format::parse("$msec ${request_time}–").is_ok());
    }

    fn of(format: &str, line: &str) -> Option<Request> {
        Format::parse(format).unwrap().request(line.as_bytes())
    }

    /// Lines from the servers' manuals, with durations added.
    #[test]
    fn the_usual_logs_are_read() {
        let apache =
            r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326 52013"#;
        let began = 971_211_336 * SECOND;
        assert_eq!(of("apache", apache), Some(Request { ended_ns: began + 52_013_000, took_ns: 52_013_000 }));
        let combined = r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /\"q\" HTTP/1.0" 200 2326 "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)" 900"#;
        assert_eq!(of("apache-combined", combined).unwrap().took_ns, 900_000);
        let nginx = r#"192.168.33.1 - - [15/Oct/2019:19:41:46 +0000] "GET / HTTP/1.1" 200 396 "-" "HTTPie/0.9.8" 0.017"#;
        assert_eq!(
            of("nginx", nginx),
            Some(Request { ended_ns: 1_571_168_506 * SECOND, took_ns: 17_000_000 })
        );
        assert_eq!(of("nginx", apache), None);
    }

    #[test]
    fn formats_are_as_servers_are_told() {
        let line = "1571168506.017 0.250 GET";
        assert_eq!(
            of("$msec $request_time $request_method", line),
            Some(Request { ended_ns: 1_571_168_506_017 * MS, took_ns: 250 * MS })
        );
        assert_eq!(of("100% $msec $request_time", "100% 12.500 1.000").unwrap().took_ns, SECOND);
        assert_eq!(of("${msec}s $request_time", "12.500s 1.000").unwrap().ended_ns, 12_500 * MS);
        let line = "1571168506000123 1500 200";
        let told = of("%{usec}t %{us}T %>s", line).unwrap();
        assert_eq!((told.began_ns(), told.took_ns), (1_571_168_506_000_123 * US, 1500 * US));
        assert_eq!(of("%{end:msec}t %{ms}T", "1571168506000 20").unwrap().ended_ns, 1_571_168_506_000 * MS);
        assert_eq!(
            of(r#"\"%r\" 100%% %t %D"#, r#""GET /" 100% [10/Oct/2000:13:55:36 -0700] 7"#).unwrap().took_ns,
            7000
        );
    }

    #[test]
    fn json_lines_say_by_their_keys() {
        assert_eq!(of("json", r#"{"ts": 1, "duration": 5e-7}"#).unwrap().took_ns, 500);
        let told = Request { ended_ns: 1_571_168_506_500 * MS, took_ns: 17 * MS };
        for line in [
            r#"{"time": "2019-10-15T19:41:46.5Z", "request_time": 0.017}"#,
            r#"{"ts": 1571168506.5, "duration_ms": 17}"#,
            r#"{"timestamp": 1571168506500, "duration_us": "17000"}"#,
            r#"{"msec": "1571168506.500", "request_time": "0.017"}"#,
            r#"{"ts": 1.5711685065e9, "duration": 1.7e-2}"#,
            r#"{"start": 1571168506483000, "duration_s": 0.017, "path": "/"}"#,
        ] {
            assert_eq!(of("json", line), Some(told), "{line}");
        }
        for line in [
            "",
            "{}",
            "[1]",
            r#"{"ts": -1, "duration": 1}"#,
            r#"{"ts": 1, "duration": -1}"#,
            r#"{"ts": true, "duration": 1}"#,
        ] {
            assert_eq!(of("json", line), None, "{line}");
        }
    }

    #[test]
    fn formats_without_what_is_needed_are_refused() {
        let why = |text: &str| Format::parse(text).unwrap_err().to_string();
        assert!(why("%h %t %r").contains("how long"));
        assert!(why("$status $request_time").contains("the time of a request"));
        assert!(why("%t%D").contains("nothing between"));
        assert!(why("%{%d/%b}t %D").contains("does not read"));
        assert!(why("%D %{x").contains("ends inside"));
    }

    #[test]
    fn formats_know_how_exact_they_are() {
        let of = |text: &str| Format::parse(text).unwrap().resolution_ns();
        assert_eq!([of("apache"), of("nginx"), of("json")], [Some(SECOND), Some(SECOND), None]);
        assert_eq!(of("$msec $request_time"), Some(MS));
        assert_eq!(
            [of("%{usec}t %D"), of("%{sec}t %D"), of("%{usec}t %T")],
            [Some(US), Some(SECOND), Some(SECOND)]
        );
    }

    #[test]
    fn no_line_is_too_odd() {
        let format = Format::parse("apache").unwrap();
        for line in [
            &b""[..],
            b"\\",
            b"- - - [",
            b"a b c [10/Oct/2000:13:55:36 -0700] \"\" 1 2 99999999999999999999",
            &[0xff; 40],
        ] {
            assert_eq!(format.request(line), None);
        }
    }
}
