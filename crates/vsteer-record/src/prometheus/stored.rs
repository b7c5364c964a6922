//! Reads the samples of a histogram that a Prometheus server stored, as its HTTP API returns them.
//!
//! vsteer asks for raw samples (a range selector), each with the time of its scrape. `query_range` would return the
//! newest sample before each step instead, up to 5 min old. All samples of one scrape of one target have one time, so
//! they form a scrape again, and differences of such scrapes are those of saved pages.
//!
//! A series that a scrape lacks has not changed: its last values stay. A series counts from 0 only if an earlier scrape
//! of its target lacks it.
//!
//! Sources: "HTTP API" and "Querying basics" (prometheus.io/docs/prometheus/latest/querying), web/api/v1 and
//! util/jsonutil of prometheus@2.42. Left out: exemplars, metadata, `query_range`.

use super::found::Found;
use super::missing::{Holder, Others};
use super::native::from_bounds;
use super::series::Raw;
use super::text::{Kind, kind};
use super::wanted::Histogram;
use super::words::Labels;
use super::{Scrape, Unit};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use vsteer_core::{Fault, FaultKind, limits};

const MS_NS: u64 = 1_000_000;

/// An answer of the HTTP API.
#[derive(Deserialize)]
#[serde(bound(deserialize = "D: Deserialize<'de>"))]
struct Answer<D> {
    status: String,
    data: Option<D>,
    #[serde(rename = "errorType", default)]
    error_type: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Deserialize)]
struct Matrix<'a> {
    #[serde(borrow, rename = "resultType")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    result: Vec<OneSeries<'a>>,
}

#[derive(Deserialize)]
struct OneSeries<'a> {
    metric: BTreeMap<String, String>,
    #[serde(borrow, default)]
    values: Vec<(f64, Cow<'a, str>)>,
    #[serde(borrow, default)]
    histograms: Vec<(f64, Native<'a>)>,
}

#[derive(Deserialize)]
struct Native<'a> {
    #[serde(borrow)]
    count: Cow<'a, str>,
    #[serde(borrow)]
    sum: Cow<'a, str>,
    #[serde(borrow, default)]
    buckets: Vec<Bucket<'a>>,
}

/// Which bounds belong to a bucket, its lower and upper bound, and its count.
type Bucket<'a> = (u8, Cow<'a, str>, Cow<'a, str>, Cow<'a, str>);

/// What a server said in place of data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The kind of error, such as `bad_data`, `execution` or `timeout`.
    pub kind: String,
    /// The server's own words.
    pub why: String,
}

/// The error in an answer, if there is one.
pub fn refusal(answer: &[u8]) -> Option<Refusal> {
    let told: Answer<serde::de::IgnoredAny> = serde_json::from_slice(answer).ok()?;
    (told.status == "error").then_some(Refusal { kind: told.error_type, why: told.error })
}

fn data<'a, D: Deserialize<'a>>(answer: &'a [u8]) -> Result<(D, Vec<String>), Fault> {
    let bad = |why: String| {
        Fault::new(FaultKind::BadInput, "cannot read the server's answer")
            .because(why)
            .help("check that the address is that of a Prometheus server, for example http://HOST:9090")
    };
    let told: Answer<D> = serde_json::from_slice(answer)
        .map_err(|e| bad(format!("it is not JSON of Prometheus' HTTP API: {e}")))?;
    match told.data {
        Some(data) if told.status == "success" => Ok((data, told.warnings)),
        _ => Err(bad(format!("its status is {:?}, and its error {:?}", told.status, told.error))),
    }
}

/// The query for the raw samples of a histogram in the last `length_ms` before the query's time.
pub fn query(of: &Histogram, length_ms: u64) -> String {
    format!("{}[{length_ms}ms]", selector(of))
}

/// Selects all series of a histogram, in both forms.
pub fn selector(of: &Histogram) -> String {
    let plain = of.metric.chars().map(|c| match c {
        c if c.is_ascii_alphanumeric() || matches!(c, '_' | ':') => c.to_string(),
        c => format!("\\{c}"),
    });
    let name: String = plain.collect();
    let all: Vec<String> = ["", "_bucket", "_sum", "_count", "_created", "_gcount"]
        .iter()
        .map(|end| format!("{name}{end}"))
        .collect();
    let name = format!("__name__=~{}", in_quotes(&all.join("|")));
    let labels = of.labels.iter().map(|(k, v)| {
        let bare = k.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let k = if bare { k.clone() } else { in_quotes(k) };
        format!("{k}={}", in_quotes(v))
    });
    format!("{{{}}}", std::iter::once(name).chain(labels).collect::<Vec<_>>().join(","))
}

/// A text as PromQL has it.
fn in_quotes(text: &str) -> String {
    let plain = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        '\n' => "\\n".to_owned(),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(plain).collect::<String>())
}

/// What was scraped. Both are empty if the series do not tell.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The name in the server's configuration.
    pub job: String,
    /// Host and port.
    pub instance: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.job.as_str(), self.instance.as_str()) {
            ("", name) | (name, "") => f.write_str(name),
            (job, instance) => write!(f, "{instance} ({job})"),
        }
    }
}

impl Target {
    fn of(labels: &Labels) -> Target {
        let [job, instance] = ["job", "instance"].map(|key| labels.get(key).cloned().unwrap_or_default());
        Target { job, instance }
    }

    /// The query for the times at which it was scraped in the last `length_ms` before the query's time; `None` if the series
    /// do not tell the target.
    pub fn query(&self, length_ms: u64) -> Option<String> {
        let of = |(key, value): (&str, &String)| format!("{key}={}", in_quotes(value));
        let labels = [("job", &self.job), ("instance", &self.instance)].map(of);
        (*self != Target::default()).then(|| format!("up{{{}}}[{length_ms}ms]", labels.join(",")))
    }
}

/// The times in the answer to [`Target::query`] at which a scrape succeeded, ms since 1970.
///
/// # Errors
/// As [`Samples::take`].
pub fn times(answer: &[u8]) -> Result<Vec<i64>, Fault> {
    let (matrix, _): (Matrix<'_>, _) = data(answer)?;
    let values = matrix.result.iter().flat_map(|series| &series.values);
    Ok(values.filter(|(_, up)| up == "1").map(|(s, _)| ms(*s)).collect())
}

fn ms(s: f64) -> i64 {
    (s * 1e3).round() as i64
}

/// A scrape of one target.
#[derive(Debug)]
pub struct Stored {
    /// Which target.
    pub target: Target,
    /// When it was scraped, ns since 1970.
    pub unix_ns: u64,
    /// The histogram at that time, or why it cannot be read.
    pub scrape: Result<Scrape, Fault>,
}

/// Puts the samples of consecutive answers together to scrapes.
#[derive(Debug)]
pub struct Samples<'w> {
    of: &'w Histogram,
    unit: Option<Unit>,
    targets: BTreeMap<Target, Last>,
    others: Others,
}

/// Values of a series, at its last time.
type Last = BTreeMap<(Labels, bool), Raw>;
/// Series without buckets' bounds, and whether they are native.
type AtOnce = BTreeMap<(Labels, bool), Result<Raw, String>>;

impl<'w> Samples<'w> {
    /// Of this histogram. `unit`: as in [`Scrape::read`].
    pub fn new(of: &'w Histogram, unit: Option<Unit>) -> Samples<'w> {
        Samples { of, unit, targets: BTreeMap::new(), others: Others::default() }
    }

    /// The targets that were scraped with the histogram so far.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.targets.keys()
    }

    /// A scrape of a target before it had the histogram.
    pub fn without(&self, target: &Target, at_ms: i64) -> Stored {
        let scrape = Scrape::of_found(Found::new(self.of), self.unit);
        Stored { target: target.clone(), unix_ns: at_ms.max(0) as u64 * MS_NS, scrape }
    }

    /// Takes the answer to [`query`] and calls `each` with the scrapes that are later than `after_ms` and not later than
    /// `upto_ms` (since 1970), in their order for each target. Returns the server's warnings.
    ///
    /// # Errors
    /// `BadInput` if the answer is not one to such a query, or if it has too many series.
    pub fn take(
        &mut self,
        answer: &[u8],
        (after_ms, upto_ms): (i64, i64),
        each: &mut dyn FnMut(Stored),
    ) -> Result<Vec<String>, Fault> {
        let (matrix, warnings): (Matrix<'_>, _) = data(answer)?;
        if matrix.kind != "matrix" {
            return Err(Fault::new(FaultKind::BadInput, "cannot read the server's answer")
                .because(format!("it is a {}, not the samples of a time", matrix.kind))
                .help("check that the address is that of a Prometheus server"));
        }
        let mut times: BTreeMap<Target, BTreeMap<i64, AtOnce>> = BTreeMap::new();
        for mut series in matrix.result {
            let of = times.entry(Target::of(&series.metric)).or_default();
            let within = |s: f64| Some(ms(s)).filter(|ms| *ms > after_ms && *ms <= upto_ms);
            let name = series.metric.remove("__name__").unwrap_or_default();
            let le = series.metric.remove("le");
            let labels = series.metric;
            for (s, native) in &series.histograms {
                let Some(ms) = within(*s) else { continue };
                of.entry(ms).or_default().insert((labels.clone(), true), native.raw());
            }
            let Some(kind) = kind(&name, &self.of.metric) else { continue };
            self.note(kind, &labels);
            for (s, value) in &series.values {
                let Some(ms) = within(*s) else { continue };
                let into = of.entry(ms).or_default().entry((labels.clone(), false));
                add(into.or_insert_with(|| Ok(Raw::default())), kind, le.as_deref(), value);
            }
        }
        for (target, times) in times {
            self.scrapes(target, times, each)?;
        }
        Ok(warnings)
    }

    /// What the series tell if they are no histogram.
    fn note(&mut self, kind: Kind, labels: &Labels) {
        match kind {
            Kind::Gauge => self.others.is_gauge = true,
            Kind::Bare if labels.contains_key("quantile") => self.others.is_summary = true,
            _ => {}
        }
    }

    fn scrapes(
        &mut self,
        target: Target,
        times: BTreeMap<i64, AtOnce>,
        each: &mut dyn FnMut(Stored),
    ) -> Result<(), Fault> {
        let last = self.targets.entry(target.clone()).or_default();
        for (ms, now) in times {
            let mut odd = None;
            for (key, raw) in now {
                match raw {
                    // A gauge or a summary of that name.
                    Ok(raw)
                        if !key.1 && raw.buckets.is_empty() && raw.count.is_none() && raw.sum.is_none() => {}
                    Ok(raw) => drop(last.insert(key, raw)),
                    Err(why) => odd = Some(why),
                }
            }
            let scrape = match odd {
                Some(why) => {
                    Err(Fault::new(FaultKind::BadInput, format!("cannot read the histogram {}", self.of))
                        .because(why)
                        .help("check what the program exports"))
                }
                None => scrape(self.of, self.unit, last, self.others.is_gauge),
            };
            each(Stored { target: target.clone(), unix_ns: ms.max(0) as u64 * MS_NS, scrape });
        }
        if self.targets.values().map(BTreeMap::len).sum::<usize>() > limits::METRICS_SERIES {
            let what = format!("the histogram {} has more than {} series", self.of, limits::METRICS_SERIES);
            return Err(Fault::new(FaultKind::BadInput, what)
                .help("choose those of one VM by their labels: --histogram 'NAME{instance=\"...\"}'"));
        }
        Ok(())
    }
}

fn scrape(of: &Histogram, unit: Option<Unit>, last: &Last, is_gauge: bool) -> Result<Scrape, Fault> {
    let mut found = Found::new(of);
    found.others.is_gauge = is_gauge;
    found.samples = last.len();
    for ((labels, native), raw) in last {
        found.series(labels.clone(), raw.clone(), *native).map_err(|why| {
            Fault::new(FaultKind::BadInput, format!("cannot read the histogram {of}"))
                .because(why)
                .help("choose one series by its labels")
        })?;
    }
    Scrape::of_found(found, unit)
}

/// Adds a sample of a classic histogram.
fn add(into: &mut Result<Raw, String>, kind: Kind, le: Option<&str>, value: &str) {
    let Ok(raw) = into else { return };
    let number = value.parse::<f64>().ok();
    let counts = number.is_some_and(|v| v.is_finite() && v >= 0.0);
    if matches!(kind, Kind::Bucket | Kind::Count) && !counts {
        *into = Err(format!("one of its counts is {value}"));
        return;
    }
    match (kind, le) {
        (Kind::Bucket, Some(le)) => match le.parse::<f64>().ok().filter(|le| !le.is_nan()) {
            Some(bound) => raw.buckets.extend(number.map(|n| (bound, n))),
            None => *into = Err(format!("its bound le={le:?} is not a number")),
        },
        (Kind::Sum, _) => raw.sum = number,
        (Kind::Count, _) => raw.count = number,
        (Kind::Created, _) => raw.created_s = number,
        _ => {}
    }
}

impl Native<'_> {
    /// The series of these buckets.
    fn raw(&self) -> Result<Raw, String> {
        let number = |text: &str| {
            text.parse::<f64>()
                .ok()
                .filter(|v| !v.is_nan())
                .ok_or_else(|| format!("{text:?} is not a number"))
        };
        let buckets =
            self.buckets.iter().map(|(_, low, high, n)| Ok((number(low)?, number(high)?, number(n)?)));
        let count = number(&self.count)?;
        let buckets = from_bounds(&buckets.collect::<Result<Vec<_>, String>>()?, count)?;
        Ok(Raw { buckets, sum: self.sum.parse().ok(), count: Some(count), created_s: None })
    }
}

/// Why a server has no sample of a histogram in a time: what it has instead.
///
/// `series`: the answer of `/api/v1/series` to all series of the name (with any labels) at any time. `names`: that of
/// `/api/v1/label/__name__/values`.
///
/// # Errors
/// `BadInput` if they are no such answers.
pub fn lacks(of: &Histogram, series: &[u8], names: &[u8]) -> Result<Fault, Fault> {
    let mut others = Others::default();
    let (all, _): (Vec<BTreeMap<String, String>>, _) = data(series)?;
    let mut has_buckets = false;
    let mut sets = BTreeSet::new();
    for mut labels in all {
        let name = labels.remove("__name__").unwrap_or_default();
        has_buckets |= labels.remove("le").is_some() || name == of.metric && !labels.contains_key("quantile");
        others.is_summary |= labels.remove("quantile").is_some();
        sets.insert(labels);
    }
    let fits = |labels: &Labels| of.labels.iter().all(|(k, v)| labels.get(k) == Some(v));
    if has_buckets && sets.iter().any(fits) {
        return Ok(Fault::new(FaultKind::NothingThere, format!("cannot read the histogram {of}"))
            .because("the server has no sample of it from this time, but it has samples of other times")
            .help("check how long the server keeps samples, and whether the clocks of both machines agree"));
    }
    if has_buckets {
        sets.into_iter().for_each(|labels| others.labels(labels));
    } else {
        others.has_no_buckets = !sets.is_empty();
        let (all, _): (Vec<Cow<'_, str>>, _) = data(names)?;
        all.iter().filter_map(|name| name.strip_suffix("_bucket")).for_each(|name| others.name(name));
    }
    Ok(others.fault(of, Holder::Server))
}

#[cfg(test)]
mod tests;
