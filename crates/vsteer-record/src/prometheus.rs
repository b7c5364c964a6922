//! Reads two scrapes of a histogram (Prometheus' exposition format), and counts how long the requests
//! between them took.
//!
//! A histogram `m` is `m_bucket{le="..."}` (how many requests took that or less, so far), `m_sum` and
//! `m_count`. The requests in between are the difference of two texts, series by series. A counter that fell
//! was reset in between and counts from 0, as in `increase()`. Series that the labels do not distinguish are
//! summed with `le` kept, as in `sum by (le)`. `vsteer_sla::histogram` draws possible requests from the
//! difference.
//!
//! Times are seconds, according to the naming rules, unless the name ends in another unit (`_milliseconds`,
//! `_ms`, ...).
//!
//! Sources: Prometheus' "Exposition formats" (text format 0.0.4), "Histograms and summaries", "Metric and
//! label naming".
//!
//! Left out: native histograms, summaries (their quantiles cannot be subtracted), scraping itself; buckets
//! below 0; a counter that was reset and has grown beyond its former value.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use vsteer_core::requests::Counted;
use vsteer_core::{Fault, FaultKind};

/// Endings of names whose unit is not seconds, and that unit in seconds.
const UNITS: [(&str, f64); 6] = [
    ("_milliseconds", 1e-3),
    ("_ms", 1e-3),
    ("_microseconds", 1e-6),
    ("_us", 1e-6),
    ("_nanoseconds", 1e-9),
    ("_ns", 1e-9),
];

/// Names and values, sorted by name.
type Labels = BTreeMap<String, String>;

/// Selects a histogram: `name` or `name{label="value",...}`, as in a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    /// The histogram's name, without `_bucket`.
    pub metric: String,
    /// Labels that its series must have: names and values. Series with additional labels are summed.
    pub labels: BTreeMap<String, String>,
}

impl FromStr for Histogram {
    type Err = String;

    fn from_str(text: &str) -> Result<Histogram, String> {
        let read = || {
            let (metric, rest) = name(text.trim())?;
            let (labels, rest) = labels(rest)?;
            rest.is_empty().then(|| Histogram { metric: metric.to_owned(), labels })
        };
        let mut of = read()
            .ok_or_else(|| format!("{text:?} is not a histogram: write NAME or NAME{{label=\"value\"}}"))?;
        // The user may give the form of a line in the exposition text.
        of.labels.remove("le");
        Ok(match of.metric.strip_suffix("_bucket") {
            Some(metric) => Histogram { metric: metric.to_owned(), ..of },
            None => of,
        })
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.metric)?;
        if self.labels.is_empty() { Ok(()) } else { f.write_str(&braces(&self.labels)) }
    }
}

impl Histogram {
    /// The unit of its times, seconds.
    fn unit_s(&self) -> f64 {
        UNITS.iter().find(|(end, _)| self.metric.ends_with(end)).map_or(1.0, |(_, unit_s)| *unit_s)
    }
}

/// A histogram in one scrape.
#[derive(Debug, Clone)]
pub struct Scrape {
    of: Histogram,
    series: BTreeMap<Labels, Series>,
    /// If the histogram is missing, the fault that says what exists instead.
    lacks: Option<Fault>,
}

/// The requests between two scrapes.
#[derive(Debug, Clone, PartialEq)]
pub struct Between {
    /// How many requests took how long.
    pub counted: Counted,
    /// How many series were summed.
    pub series: usize,
    /// How many of these series were reset in between. Requests between the first scrape and the reset are
    /// missing.
    pub resets: usize,
}

#[derive(Debug, Clone, PartialEq)]
struct Sample {
    name: String,
    labels: Labels,
    value: f64,
}

fn bad(what: impl Into<String>, why: impl Into<String>) -> Fault {
    Fault::new(FaultKind::BadInput, what).because(why.into())
}

impl Scrape {
    /// Reads the histogram from a scrape's text. It may be missing, because many servers have none before the
    /// first request.
    ///
    /// # Errors
    /// `BadInput` with the line that cannot be read.
    pub fn read(text: &str, of: &Histogram) -> Result<Scrape, Fault> {
        let all = parse(text)?;
        let series = series(&all, &of.metric, &of.labels);
        let lacks = series.is_empty().then(|| missing(&all, of));
        Ok(Scrape { of: of.clone(), series, lacks })
    }

    /// Checks that the histogram exists.
    ///
    /// # Errors
    /// `NothingThere`, with what exists instead.
    pub fn checked(&self) -> Result<(), Fault> {
        self.lacks.clone().map_or(Ok(()), Err)
    }

    /// The requests counted since `before`.
    ///
    /// # Errors
    /// As [`Scrape::checked`] of this scrape; `BadInput` if buckets contradict each other.
    pub fn since(&self, before: &Scrape) -> Result<Between, Fault> {
        let what = format!("cannot read the histogram {}", self.of);
        self.checked()?;
        let (mut buckets, mut sum, mut count, mut resets) = (Vec::<(f64, f64)>::new(), 0.0, 0.0, 0);
        for (labels, now) in &self.series {
            let then = before.series.get(labels);
            // A count that fell means that the whole series was reset, with its buckets and sum. Other bounds
            // mean another process.
            let reset = then.is_some_and(|then| {
                now.count < then.count || now.sum_fell(then) || now.bucket_fell(then) || now.others(then)
            });
            resets += usize::from(reset);
            let then = then.filter(|_| !reset);
            count += now.count - then.map_or(0.0, |t| t.count);
            sum += now.sum - then.map_or(0.0, |t| t.sum);
            for (le, n) in &now.buckets {
                let more = n - then.and_then(|t| t.bucket(*le)).unwrap_or(0.0);
                match buckets.iter_mut().find(|(b, _)| b == le) {
                    Some((_, so_far)) => *so_far += more,
                    None => buckets.push((*le, more)),
                }
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        if self.series.values().any(|s| s.buckets.len() != buckets.len()) {
            return Err(bad(what, "its series have buckets of different bounds, which vsteer cannot add")
                .help("choose one series by its labels"));
        }
        if let Some(w) = buckets.windows(2).find(|w| w[0].1 > w[1].1) {
            return Err(bad(
                what,
                format!("{} values were {} or less, but {} were {} or less", w[0].1, w[0].0, w[1].1, w[1].0),
            )
            .help(
                "buckets are cumulative: check that both texts are complete, come from one process and are in the right order",
            ));
        }
        let most = buckets.last().filter(|(le, _)| le.is_infinite()).map(|(_, n)| *n);
        let Some(most) = most else {
            return Err(bad(what, "it has no bucket le=\"+Inf\"").help("give the complete text of a scrape"));
        };
        if most != count {
            return Err(bad(what, format!("_count grew by {count}, its last bucket by {most}"))
                .help("give the complete text of a scrape"));
        }
        let unit_s = self.of.unit_s();
        buckets.iter_mut().for_each(|(le, _)| *le *= unit_s);
        let counted = Counted { buckets, sum_s: unit_s * sum };
        Ok(Between { counted, series: self.series.len(), resets })
    }
}

/// The requests that the histogram counted between the texts `before` and `after`.
///
/// # Errors
/// As [`Scrape::read`] and [`Scrape::since`].
pub fn between(before: &str, after: &str, of: &Histogram) -> Result<Between, Fault> {
    let at = |which: &str, text: &str| {
        Scrape::read(text, of).map_err(|f| Fault { what: format!("the {which} scrape: {}", f.what), ..f })
    };
    let before = at("first", before)?;
    at("second", after)?.since(&before)
}

/// One series of a histogram: lines with the same labels except `le`.
#[derive(Debug, Clone, Default)]
struct Series {
    buckets: Vec<(f64, f64)>,
    sum: f64,
    count: f64,
}

impl Series {
    fn bucket(&self, le: f64) -> Option<f64> {
        self.buckets.iter().find(|(b, _)| *b == le).map(|(_, n)| *n)
    }

    fn bucket_fell(&self, then: &Series) -> bool {
        self.buckets.iter().any(|(le, n)| then.bucket(*le).is_some_and(|was| *n < was))
    }

    fn others(&self, then: &Series) -> bool {
        self.buckets.len() != then.buckets.len()
            || self.buckets.iter().any(|(le, _)| then.bucket(*le).is_none())
    }

    /// Times are never below 0, so a sum that falls means a reset.
    fn sum_fell(&self, then: &Series) -> bool {
        self.sum < then.sum && then.sum > 0.0 && self.sum >= 0.0
    }
}

/// The histogram's series with these labels.
fn series(all: &[Sample], metric: &str, labels: &Labels) -> BTreeMap<Labels, Series> {
    let mut found = BTreeMap::<Labels, Series>::new();
    for sample in all {
        let Some(kind) =
            sample.name.strip_prefix(metric).filter(|k| matches!(*k, "_bucket" | "_sum" | "_count"))
        else {
            continue;
        };
        if !labels.iter().all(|(k, v)| sample.labels.get(k) == Some(v)) {
            continue;
        }
        let mut key = sample.labels.clone();
        let le = key.remove("le").and_then(|le| float(&le));
        let series = found.entry(key).or_default();
        match (kind, le) {
            ("_bucket", Some(le)) if !le.is_nan() => series.buckets.push((le, sample.value)),
            ("_sum", _) => series.sum = sample.value,
            ("_count", _) => series.count = sample.value,
            _ => {}
        }
    }
    // Drops a counter with the same prefix that is not a histogram.
    found.retain(|_, s| !s.buckets.is_empty());
    found
}

fn braces(labels: &Labels) -> String {
    let all: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v:?}")).collect();
    format!("{{{}}}", all.join(","))
}

/// The fault for a missing histogram, with what exists instead.
fn missing(all: &[Sample], of: &Histogram) -> Fault {
    let there = series(all, &of.metric, &Labels::new());
    let show = |of: Vec<String>| of.into_iter().take(8).collect::<Vec<_>>().join(", ");
    let fault = |why: &str| {
        Fault::new(FaultKind::NothingThere, format!("cannot read the histogram {of}")).because(why)
    };
    if !there.is_empty() {
        let has = show(there.keys().map(braces).collect());
        return fault("no series of it has these labels").help(format!("choose among {has}"));
    }
    let mut names: Vec<&str> = all.iter().filter_map(|s| s.name.strip_suffix("_bucket")).collect();
    names.dedup();
    if all.iter().any(|s| s.name == of.metric && s.labels.contains_key("quantile")) {
        return fault("it is a summary, whose quantiles give no quantile for the time between two scrapes")
            .help("let the program export a histogram");
    }
    fault("the text holds no such histogram (no _bucket series)").help(match names.as_slice() {
        [] => "check that the text is a scrape of the right port and path, and send the server a request first: \
        the text has no histogram at all"
            .to_owned(),
        _ => format!("choose among {}", show(names.into_iter().map(str::to_owned).collect())),
    })
}

/// Parses a number like Go's ParseFloat, as far as expositions need it.
fn float(text: &str) -> Option<f64> {
    match text {
        "+Inf" | "Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        _ if text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) => {
            text.parse().ok()
        }
        _ => None,
    }
}

fn parse(text: &str) -> Result<Vec<Sample>, Fault> {
    let mut all = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim_matches([' ', '\t', '\r']);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fault = || {
            let shown: String = line.chars().take(80).collect();
            bad(
                format!("line {}", i + 1),
                format!("{shown:?} is not a sample (a name, labels in braces, a value)"),
            )
            .help("give the text that GET /metrics returns (Accept: text/plain)")
        };
        all.push(sample(line).ok_or_else(fault)?);
    }
    Ok(all)
}

fn sample(line: &str) -> Option<Sample> {
    let (name, rest) = name(line)?;
    let (labels, rest) = labels(rest)?;
    let mut words = rest.split_ascii_whitespace();
    let value = float(words.next()?)?;
    if words.next().is_some_and(|at| at.parse::<i64>().is_err()) || words.next().is_some() {
        return None;
    }
    Some(Sample { name: name.to_owned(), labels, value })
}

/// A metric's name, and the text after it.
fn name(text: &str) -> Option<(&str, &str)> {
    let end =
        text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | ':'))).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    (!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())).then_some((name, rest))
}

/// The optional labels in braces, and the text after them.
fn labels(text: &str) -> Option<(Labels, &str)> {
    let mut rest = text.trim_start();
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside.trim_start();
        while !rest.starts_with('}') {
            let (key, after) = rest.split_once('=')?;
            let (value, after) = quoted(after.trim_start())?;
            labels.insert(key.trim().to_owned(), value);
            rest = after.trim_start();
            match rest.strip_prefix(',') {
                Some(more) => rest = more.trim_start(),
                None if rest.starts_with('}') => {}
                None => return None,
            }
        }
        rest = &rest[1..];
    }
    Some((labels, rest))
}

/// A label's value, and the text after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut chars = text.strip_prefix('"')?.char_indices();
    let mut value = String::new();
    while let Some((i, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[i + 2..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                c => c,
            }),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests;
