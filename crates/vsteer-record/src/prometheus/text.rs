//! Reads the text forms of an exposition: Prometheus' 0.0.4, and OpenMetrics 1.0.
//!
//! A line is a sample (a name, labels, a value, and perhaps a time and an exemplar), or a comment. Four comments count:
//! the wanted histogram's `# TYPE` and `# UNIT`, `# EOF`, and none else. A line that cannot be read is a fault only if
//! it concerns the wanted histogram. vsteer passes over any other and counts it.
//!
//! Sources: Prometheus' "Exposition formats" and "UTF-8 support", OpenMetrics 1.0 (github.com/prometheus/OpenMetrics).
//!
//! Left out: the values in braces of OpenMetrics 2.0, which hold a whole histogram.

use super::found::{Ending, Found, Odd};
use super::words::{Labels, braces, float, name, quoted, skip};
use std::borrow::Cow;

/// How much of an odd line a fault shows, characters.
const SHOWN: usize = 80;

/// What a line of the wanted name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bucket,
    Sum,
    Count,
    Created,
    /// Of a gauge histogram.
    Gauge,
    /// The name itself, as a summary's quantiles have it.
    Bare,
}

/// What a name says beside the wanted one.
pub(super) fn kind(name: &str, wanted: &str) -> Option<Kind> {
    Some(match name.strip_prefix(wanted)? {
        "_bucket" => Kind::Bucket,
        "_sum" => Kind::Sum,
        "_count" => Kind::Count,
        "_created" => Kind::Created,
        "_gsum" | "_gcount" => Kind::Gauge,
        "" => Kind::Bare,
        _ => return None,
    })
}

/// A line that was read.
struct Sample<'a> {
    name: Cow<'a, str>,
    labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    value: f64,
}

/// Reads a text.
///
/// # Errors
/// The line of the wanted histogram that cannot be read; the first line, if none can; the last, if the text ends within
/// it.
pub(super) fn read(bytes: &[u8], found: &mut Found<'_>) -> Result<(), Odd> {
    found.ending = if bytes.ends_with(b"\n") { Ending::Line } else { Ending::Open };
    let mut lines = bytes.split(|b| *b == b'\n').zip(1..).peekable();
    while let Some((bytes, number)) = lines.next() {
        let odd_before = found.odd.0;
        let read = line(number, bytes, found);
        // The last piece is empty if the text ends with a line feed.
        if lines.peek().is_none() && found.samples > 0 && (read.is_err() || found.odd.0 > odd_before) {
            let why = "the text ends within this line, so the scrape was cut".to_owned();
            return Err(Odd { place: format!("line {number}"), why });
        }
        read?;
    }
    match (&found.odd.1, found.samples) {
        (Some(first), 0) => Err(first.clone()),
        _ => Ok(()),
    }
}

fn odd(number: usize, line: &str, why: &str) -> Odd {
    let shown: String = line.chars().take(SHOWN).collect();
    Odd { place: format!("line {number}"), why: format!("{shown:?} {why}") }
}

const NO_SAMPLE: &str = "is not a sample (a name, labels in braces, a value)";
const IN_BRACES: &str = "has an OpenMetrics 2.0 value in braces, which vsteer does not read";

fn line(number: usize, bytes: &[u8], found: &mut Found<'_>) -> Result<(), Odd> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_matches([' ', '\t', '\r']);
    if let Some(comment) = text.strip_prefix('#') {
        self::comment(comment, found);
        return Ok(());
    }
    if text.is_empty() {
        return Ok(());
    }
    let Some(sample) = sample(text) else {
        let in_braces = text.contains("{count:");
        if !concerns(text, &found.of.metric) {
            // A page may hold nothing else.
            found.samples += usize::from(in_braces);
            found.pass_over(|| odd(number, text, if in_braces { IN_BRACES } else { NO_SAMPLE }));
            return Ok(());
        }
        return Err(odd(number, text, if in_braces { IN_BRACES } else { NO_SAMPLE }));
    };
    found.samples += 1;
    match kind(&sample.name, &found.of.metric) {
        Some(kind) => wanted(kind, sample, found).map_err(|why| odd(number, text, &why)),
        None => {
            // A counter may have such a name too, but no `le`.
            if let Some(name) = sample.name.strip_suffix("_bucket")
                && sample.labels.iter().any(|(key, _)| key == "le")
            {
                found.others.name(name);
            }
            Ok(())
        }
    }
}

/// Does an odd line seem to be one of the wanted histogram's?
fn concerns(text: &str, wanted: &str) -> bool {
    match name(text) {
        Some((name, _)) => kind(name, wanted).is_some(),
        // The name stands somewhere within the braces.
        None => text.starts_with('{') && text.contains(wanted),
    }
}

fn comment(text: &str, found: &mut Found<'_>) {
    let text = skip(text);
    if text == "EOF" {
        found.ending = Ending::Eof;
        return;
    }
    let Some((what @ ("TYPE" | "UNIT"), rest)) = text.split_once([' ', '\t']) else { return };
    let rest = skip(rest);
    let Some((of, rest)) = quoted(rest).or_else(|| name(rest).map(|(n, rest)| (n.into(), rest))) else {
        return;
    };
    if of != found.of.metric.as_str() {
        return;
    }
    let word = rest.trim_matches([' ', '\t']);
    match what {
        "UNIT" if !word.is_empty() => found.unit = Some(word.to_owned()),
        "TYPE" if word == "gaugehistogram" => found.others.is_gauge = true,
        _ => {}
    }
}

/// Takes a line of the wanted name.
fn wanted(kind: Kind, sample: Sample<'_>, found: &mut Found<'_>) -> Result<(), String> {
    let Sample { labels: all, value, .. } = sample;
    if kind == Kind::Gauge {
        found.others.is_gauge = true;
        return Ok(());
    }
    if kind == Kind::Bare {
        found.others.is_summary |= all.iter().any(|(key, _)| key == "quantile");
        return Ok(());
    }
    let mut le = None;
    let mut labels = Labels::new();
    for (key, value) in all {
        if key == "le" {
            le = Some(value);
        } else if let Some(other) = labels.insert(key.into_owned(), value.into_owned()) {
            return Err(format!("has a label twice, also with the value {other:?}"));
        }
    }
    if (kind == Kind::Bucket && le.is_none()) || !found.wants(&labels) {
        return Ok(());
    }
    if matches!(kind, Kind::Bucket | Kind::Count) && !(value.is_finite() && value >= 0.0) {
        return Err("has a value that is not a count".to_owned());
    }
    if let (Kind::Bucket, Some(le)) = (kind, le) {
        let bound = float(&le).filter(|le| !le.is_nan());
        let bound = bound.ok_or_else(|| format!("has the bound le={le:?}, which is not a number"))?;
        return found.bucket(labels, (bound, value));
    }
    let series = found.classic(labels);
    let into = match kind {
        Kind::Sum => &mut series.sum,
        Kind::Count => &mut series.count,
        _ => &mut series.created_s,
    };
    match into.replace(value) {
        Some(before) if before.total_cmp(&value).is_ne() => {
            Err(format!("gives another value than an earlier line, {before}"))
        }
        _ => Ok(()),
    }
}

/// A line: a name, labels, a value, a time, and an exemplar (`# {labels} value time`).
fn sample(text: &str) -> Option<Sample<'_>> {
    let (mut of, rest) = match name(text) {
        Some((name, rest)) => (Some(Cow::Borrowed(name)), skip(rest)),
        None => (None, text),
    };
    let mut labels = Vec::new();
    let rest = if rest.starts_with('{') {
        let mut names = usize::from(of.is_some());
        let rest = braces(rest, &mut |key, value| match key {
            Some(key) => labels.push((key, value)),
            None => {
                names += 1;
                of = Some(value);
            }
        })?;
        (names == 1).then_some(rest)?
    } else {
        rest
    };
    let (numbers, exemplar) = match rest.split_once('#') {
        Some((numbers, exemplar)) => (numbers, Some(skip(exemplar))),
        None => (rest, None),
    };
    let value = value_and_time(numbers)?;
    if let Some(exemplar) = exemplar {
        value_and_time(braces(exemplar, &mut |_, _| {})?)?;
    }
    Some(Sample { name: of?, labels, value })
}

/// A value, and perhaps a time, which may have a fraction.
fn value_and_time(text: &str) -> Option<f64> {
    let mut words = text.split_ascii_whitespace();
    let value = float(words.next()?)?;
    let time = words.next().map(float);
    (words.next().is_none() && time.is_none_or(|t| t.is_some_and(f64::is_finite))).then_some(value)
}
