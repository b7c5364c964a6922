//! Lines of text in the format of a server's configuration: Apache's `LogFormat`, nginx's `log_format`, Envoy's format strings.
//!
//! vsteer reads the time of a request and how long it took, and passes over the rest up to the next literal text of the format.
//! Inside quotes a backslash escapes the next character, as all of these servers write it.
//!
//! Sources: mod_log_config (httpd 2.4), ngx_http_log_module (nginx 1.26), Envoy's documentation "Access logging" (1.31).

use super::moment::{date, number, with_unit};
use super::{Found, MS, Raw, SECOND, US};
use crate::unit::Unit;
use vsteer_core::{Fault, FaultKind};

/// The meaning of a field of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    /// A date, including brackets.
    Began,
    Ended,
    /// A number since 1970, in units of this many ns.
    BeganIn(u64),
    EndedIn(u64),
    /// A duration, in units of this many ns. Several are summed up.
    Took(u64),
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    Field(Says),
}

/// What the numbers of a server look like. So 0.017 is not Apache's 17 ns, and 52013 is not nginx's 14 hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Numbers {
    /// nginx always writes a point, and three digits behind it.
    WithPoint,
    Whole,
}

/// How to read such lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    parts: Vec<Part>,
    numbers: Numbers,
}

fn bad(why: impl Into<String>) -> Fault {
    Fault::new(FaultKind::BadInput, "cannot use this access log format".to_owned()).because(why.into())
}

impl Pattern {
    /// Parses the text of a server's configuration.
    ///
    /// # Errors
    /// `BadInput` if the format lacks the time or the duration of a request, or has two fields without text
    /// between them.
    pub fn parse(text: &str) -> Result<Pattern, Fault> {
        // nginx.conf as it stands.
        let joined = text.trim_start().strip_prefix("log_format").map(nginx_conf).transpose()?;
        let text = joined.as_deref().unwrap_or(text);
        // A percent sign may be literal text in a format of nginx.
        let is_nginx = !text.contains('%') || text.contains("$request_time");
        let mut parts = match () {
            () if text.contains("%DURATION%") || text.contains("%START_TIME") => envoy(text)?,
            () if is_nginx => nginx(text)?,
            () => apache(text)?,
        };
        keep_the_finest(&mut parts);
        let numbers = if is_nginx { Numbers::WithPoint } else { Numbers::Whole };
        Pattern { parts, numbers }.checked()
    }

    /// A format of Apache's of which no duration is wanted: every request takes no time.
    ///
    /// # Errors
    /// As [`Pattern::parse`].
    pub fn without_duration(text: &str) -> Result<Pattern, Fault> {
        Ok(Pattern { parts: apache(text)?, numbers: Numbers::Whole })
    }

    /// The same where dates say when a request ended.
    pub fn with_dates_at_end(mut self) -> Pattern {
        for part in &mut self.parts {
            if *part == Part::Field(Says::Began) {
                *part = Part::Field(Says::Ended);
            }
        }
        self
    }

    fn checked(self) -> Result<Pattern, Fault> {
        let has =
            |of: &dyn Fn(Says) -> bool| self.parts.iter().any(|p| matches!(p, Part::Field(s) if of(*s)));
        if !has(&|s| matches!(s, Says::Took(_))) {
            return Err(bad("it does not log how long a request took").help(
                "add %D to Apache's LogFormat, $request_time to nginx's log_format, or %DURATION% to Envoy's; or name a format: \
                see `vsteer estimate --help`",
            ));
        }
        if !has(&|s| !matches!(s, Says::Took(_) | Says::Nothing)) {
            return Err(bad("it does not log the time of a request")
                .help("add %t (Apache), $time_local (nginx) or %START_TIME% (Envoy)"));
        }
        if self.parts.windows(2).any(|w| matches!(w, [Part::Field(_), Part::Field(_)])) {
            return Err(bad("two fields have nothing between them").help("put a space between them"));
        }
        Ok(self)
    }

    /// The same with durations in another unit.
    pub fn with_unit(mut self, unit: Unit) -> Pattern {
        for part in &mut self.parts {
            if let Part::Field(Says::Took(of)) = part {
                *of = unit.ns();
            }
        }
        self
    }

    /// The unit of durations.
    pub fn unit(&self) -> Option<Unit> {
        let ns = self.parts.iter().find_map(|part| match part {
            Part::Field(Says::Took(ns)) => Some(*ns),
            _ => None,
        })?;
        Unit::ALL.into_iter().find(|unit| unit.ns() == ns)
    }

    /// The resolution of the start and end of a request, ns: the coarser one of the log's time and duration; `None` if the log's
    /// dates may have a fraction.
    ///
    /// Apache's `%t` and nginx's `$time_local` are truncated to whole seconds. A hundred requests per second
    /// all start at the same time, and the variance of the gaps between them comes from the clock.
    pub fn resolution_ns(&self) -> Option<u64> {
        let ms_or = |unit: u64| if self.numbers == Numbers::WithPoint && unit == SECOND { MS } else { unit };
        let of = |part: &Part| match part {
            Part::Field(Says::BeganIn(unit) | Says::EndedIn(unit) | Says::Took(unit)) => Some(ms_or(*unit)),
            _ => None,
        };
        let has_date = self.parts.iter().any(|p| matches!(p, Part::Field(Says::Began | Says::Ended)));
        if has_date { None } else { self.parts.iter().filter_map(of).max() }
    }

    /// What a line says.
    pub fn read(&self, line: &[u8]) -> Raw {
        self.found(line).unwrap_or(Raw::Odd)
    }

    fn found(&self, line: &[u8]) -> Option<Raw> {
        let (mut rest, mut at, mut took_ns, mut has_none) = (line, None, 0_u64, false);
        for (i, part) in self.parts.iter().enumerate() {
            let says = match part {
                Part::Text(text) => {
                    rest = rest.strip_prefix(text.as_slice())?;
                    continue;
                }
                Part::Field(says) => *says,
            };
            let (field, after) = rest.split_at(self.end_of(i, says, rest)?);
            rest = after;
            let value = |unit| self.value(field, unit);
            match says {
                Says::Nothing => {}
                Says::Took(_) if matches!(field, b"-" | b"-1" | b"") => has_none = true,
                Says::Took(unit) => took_ns = took_ns.checked_add(value(unit)?)?,
                Says::Began => at = Some((date(field)?, true)),
                Says::Ended => at = Some((date(field)?, false)),
                Says::BeganIn(unit) => {
                    at = Some((super::moment::Moment { ns: value(unit)?, has_zone: true }, true))
                }
                Says::EndedIn(unit) => {
                    at = Some((super::moment::Moment { ns: value(unit)?, has_zone: true }, false))
                }
            }
        }
        let (moment, is_begin) = at?;
        Some(if has_none { Raw::Other } else { Raw::Found(Found { moment, is_begin, took_ns }) })
    }

    /// Where the field that begins here ends.
    fn end_of(&self, part: usize, says: Says, rest: &[u8]) -> Option<usize> {
        // A date has its own brackets, with a space inside.
        if matches!(says, Says::Began | Says::Ended) && rest.first() == Some(&b'[') {
            return Some(memchr::memchr(b']', rest)? + 1);
        }
        let Some(Part::Text(text)) = self.parts.get(part + 1) else { return Some(rest.len()) };
        // A name may have spaces, so a field before a date in brackets ends there.
        if says == Says::Nothing && text == b" " && self.before_date(part + 2) {
            return find(rest, b" [").or_else(|| find(rest, text));
        }
        find(rest, text)
    }

    fn before_date(&self, part: usize) -> bool {
        matches!(self.parts.get(part), Some(Part::Field(Says::Began | Says::Ended)))
    }

    fn value(&self, field: &[u8], unit: u64) -> Option<u64> {
        if field.contains(&b'.') != (self.numbers == Numbers::WithPoint) {
            return None;
        }
        number(field, unit).or_else(|| with_unit(std::str::from_utf8(field).ok()?))
    }
}

/// `%T/%D` logs the same duration twice: only the finest counts.
fn keep_the_finest(parts: &mut [Part]) {
    let units =
        parts.iter().filter_map(|p| if let Part::Field(Says::Took(unit)) = p { Some(*unit) } else { None });
    let Some(finest) = units.min() else { return };
    for part in parts {
        if matches!(part, Part::Field(Says::Took(unit)) if *unit != finest) {
            *part = Part::Field(Says::Nothing);
        }
    }
}

/// The first position of `text` in `rest` that does not follow a backslash.
fn find(rest: &[u8], text: &[u8]) -> Option<usize> {
    let first = *text.first()?;
    let mut i = 0;
    loop {
        i += memchr::memchr2(first, b'\\', rest.get(i..)?)?;
        if rest[i] == b'\\' && rest.len() > i + 1 && first != b'\\' {
            i += 2;
        } else if rest[i..].starts_with(text) {
            return Some(i);
        } else {
            i += 1;
        }
    }
}

/// Collects fields and the text between them.
#[derive(Default)]
struct Parts {
    all: Vec<Part>,
    plain: String,
}

impl Parts {
    fn field(&mut self, says: Says) {
        if !self.plain.is_empty() {
            self.all.push(Part::Text(std::mem::take(&mut self.plain).into_bytes()));
        }
        self.all.push(Part::Field(says));
    }

    fn finish(mut self) -> Vec<Part> {
        if !self.plain.is_empty() {
            self.all.push(Part::Text(self.plain.into_bytes()));
        }
        self.all
    }
}

/// The fields (`%...`) of an Apache format and the text between them.
fn apache(text: &str) -> Result<Vec<Part>, Fault> {
    let mut parts = Parts::default();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\\' && matches!(chars.peek(), Some('"' | '\\')) {
            parts.plain.extend(chars.next());
            continue;
        }
        // The manual allows "C-style" controls. Only the tab is in use.
        if c == '\\' && matches!(chars.peek(), Some('t')) {
            chars.next();
            parts.plain.push('\t');
            continue;
        }
        if c != '%' {
            parts.plain.push(c);
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
            parts.plain.push('%');
            continue;
        }
        parts.field(match (directive, argument.as_str()) {
            ('D', _) | ('T', "us") => Says::Took(US),
            ('T', "ms") => Says::Took(MS),
            ('T', _) => Says::Took(SECOND),
            ('t', "") => Says::Began,
            ('t', form) => apache_time(form)?,
            _ => Says::Nothing,
        });
    }
    Ok(parts.finish())
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

/// The text of `log_format NAME [escape=...] 'TEXT' 'TEXT';`, without its first word.
fn nginx_conf(statement: &str) -> Result<String, Fault> {
    let (mut text, mut rest, mut has_text) = (String::new(), statement, false);
    while let Some(at) = rest.find(['\'', '"']) {
        let quote = rest[at..].chars().next().unwrap_or('"');
        let inside = &rest[at + 1..];
        let mut escaped = false;
        let end = inside.char_indices().find_map(|(i, c)| {
            let is_end = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            is_end.then_some(i)
        });
        let end = end.ok_or_else(|| bad("a quotation mark of log_format is not closed"))?;
        text += &inside[..end].replace("\\'", "'").replace("\\\"", "\"").replace("\\\\", "\\");
        (rest, has_text) = (&inside[end + 1..], true);
    }
    if has_text { Ok(text) } else { Err(bad("log_format has no text in quotation marks")) }
}

/// The fields (`$...`) of an nginx format and the text between them.
fn nginx(text: &str) -> Result<Vec<Part>, Fault> {
    let mut parts = Parts::default();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        parts.plain += &rest[..at];
        rest = &rest[at + 1..];
        let braced = rest.starts_with('{');
        let from = usize::from(braced);
        let until = rest[from..]
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .map_or(rest.len(), |n| n + from);
        if braced && !rest[until..].starts_with('}') {
            return Err(bad(format!("{text:?} has a `${{` without its `}}`")));
        }
        parts.field(match &rest[from..until] {
            "request_time" => Says::Took(SECOND),
            "time_local" | "time_iso8601" => Says::Ended,
            "msec" => Says::EndedIn(SECOND),
            _ => Says::Nothing,
        });
        rest = &rest[until + usize::from(braced)..];
    }
    parts.plain += rest;
    Ok(parts.finish())
}

/// The operators (`%NAME(argument)%`) of an Envoy format and the text between them.
fn envoy(text: &str) -> Result<Vec<Part>, Fault> {
    let mut parts = Parts::default();
    let mut rest = text.trim_end_matches('\n');
    while let Some(at) = rest.find('%') {
        parts.plain += &rest[..at];
        rest = &rest[at + 1..];
        let Some(stripped) = rest.strip_prefix('%') else {
            let name = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
            // A percent sign may be in the argument.
            let argument = if rest[name..].starts_with('(') { rest[name..].find(')') } else { Some(0) };
            let end = argument.and_then(|n| Some(rest[name + n..].find('%')? + name + n));
            let end = end.ok_or_else(|| bad(format!("{text:?} ends inside an operator")))?;
            parts.field(match &rest[..end] {
                // Envoy writes the whole duration in ms.
                "DURATION" => Says::Took(MS),
                "START_TIME" => Says::Began,
                "START_TIME(%s)" => Says::BeganIn(SECOND),
                form if form.starts_with("START_TIME") => {
                    return Err(bad(format!("vsteer does not read dates of the form %{form}%"))
                        .help("log %START_TIME%"));
                }
                _ => Says::Nothing,
            });
            rest = &rest[end + 1..];
            continue;
        };
        parts.plain.push('%');
        rest = stripped;
    }
    parts.plain += rest;
    Ok(parts.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_format_is_read_or_refused(text in "[${}%\\\\a-zA-Z()'–^ \"]{0,16}|log_format[ a-z'\"$;]{0,12}", line in "\\PC{0,20}") {
            if let Ok(format) = Pattern::parse(&text) {
                let _ = format.read(line.as_bytes());
            }
        }
    }

    fn of(format: &str, line: &str) -> Option<(u64, bool, u64)> {
        match Pattern::parse(format).unwrap().read(line.as_bytes()) {
            Raw::Found(found) => Some((found.moment.ns, found.is_begin, found.took_ns)),
            _ => None,
        }
    }

    #[test]
    fn a_brace_that_is_not_closed_is_named() {
        for text in ["${k–", "${", "${msec", "$msec ${request_time x"] {
            let fault = Pattern::parse(text).unwrap_err();
            assert!(fault.to_string().contains("without its"), "{text}: {fault}");
        }
        assert!(Pattern::parse("$msec ${request_time}–").is_ok());
    }

    #[test]
    fn formats_are_as_servers_are_told() {
        let (ended, line) = (1_571_168_506_017 * MS, "1571168506.017 0.250 GET");
        assert_eq!(of("$msec $request_time $request_method", line), Some((ended, false, 250 * MS)));
        assert_eq!(of("100% $msec $request_time", "100% 12.500 1.000").unwrap().2, SECOND);
        assert_eq!(of("${msec}s $request_time", "12.500s 1.000").unwrap().0, 12_500 * MS);
        let line = "1571168506000123 1500 200";
        assert_eq!(of("%{usec}t %{us}T %>s", line), Some((1_571_168_506_000_123 * US, true, 1500 * US)));
        assert_eq!(of("%{end:msec}t %{ms}T", "1571168506000 20").unwrap().0, 1_571_168_506_000 * MS);
        let quoted = r#""GET /" 100% [10/Oct/2000:13:55:36 -0700] 7"#;
        assert_eq!(of(r#"\"%r\" 100%% %t %D"#, quoted).unwrap().2, 7000);
        // The same duration twice.
        assert_eq!(of("%{usec}t %T/%D", "1571168506000123 0/1500").unwrap().2, 1500 * US);
        // As in nginx.conf.
        let conf =
            "log_format main escape=json '$remote_addr [$time_local] '\n  '\"$request\" $request_time';";
        assert_eq!(of(conf, r#"::1 [15/Oct/2019:19:41:46 +0000] "GET /" 0.017"#).unwrap().2, 17 * MS);
        let envoy = r#"[%START_TIME%] "%REQ(:METHOD)% %REQ(X-PATH?:PATH)%" %RESPONSE_CODE% 100%% %DURATION%"#;
        assert_eq!(
            of(envoy, r#"[2019-10-15T19:41:46.5Z] "GET /a" 200 100% 17"#),
            Some((1_571_168_506_500 * MS, true, 17 * MS))
        );
        let ms = Pattern::parse("%{usec}t %D").unwrap().with_unit(Unit::Milliseconds);
        assert_eq!(ms.unit(), Some(Unit::Milliseconds));
    }

    #[test]
    fn formats_without_what_is_needed_are_refused() {
        let why = |text: &str| Pattern::parse(text).unwrap_err().to_string();
        assert!(why("%h %t %r").contains("how long"));
        assert!(why("$status $request_time").contains("the time of a request"));
        assert!(why("%t%D").contains("nothing between"));
        assert!(why("%{%d/%b}t %D").contains("does not read"));
        assert!(why("%D %{x").contains("ends inside"));
        assert!(why("%START_TIME(%Y)% %DURATION%").contains("does not read"));
        assert!(why("%START_TIME% %DURATION").contains("ends inside"));
        assert!(why("log_format main $request_time").contains("quotation marks"));
    }

    #[test]
    fn formats_know_how_exact_they_are() {
        let of = |text: &str| Pattern::parse(text).unwrap().resolution_ns();
        assert_eq!([of("%t %D"), of("$time_local $request_time")], [None, None]);
        assert_eq!(of("$msec $request_time"), Some(MS));
        assert_eq!(
            [of("%{usec}t %D"), of("%{sec}t %D"), of("%{usec}t %T")],
            [Some(US), Some(SECOND), Some(SECOND)]
        );
    }

    #[test]
    fn no_line_is_too_odd() {
        let format = Pattern::parse(r#"%h %l %u %t "%r" %>s %b %D"#).unwrap();
        for line in [
            &b""[..],
            b"\\",
            b"- - - [",
            b"a b c [10/Oct/2000:13:55:36 -0700] \"\" 1 2 99999999999999999999",
            &[0xff; 40],
        ] {
            assert!(matches!(format.read(line), Raw::Odd), "{line:?}");
        }
        assert!(matches!(
            format.read(b"a b John Doe [10/Oct/2000:13:55:36 -0700] \"\\\"\" 1 2 7"),
            Raw::Found(_)
        ));
        assert!(matches!(format.read(b"a b c [10/Oct/2000:13:55:36 -0700] \"\" 1 2 -"), Raw::Other));
    }
}
