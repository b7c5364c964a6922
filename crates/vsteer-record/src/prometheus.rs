//! What did requests take between two scrapes of a histogram? Prometheus' text exposition, two of them.
//!
//! A histogram `m` is `m_bucket{le="..."}` (how many were that or less, so far), `m_sum` and `m_count`. What came in between is the difference
//! of two texts, series by series; a counter that is smaller than before was reset in between and counts from 0, as `increase()` has it.
//! Series that the labels do not tell apart are summed with `le` kept, as `sum by (le)`. A quantile is taken as `histogram_quantile`
//! does: linearly within the bucket that it is in, of which the first begins at 0, and the bound below where it is in the last. What it
//! truly was is somewhere in its bucket, so the bucket's bounds are told with it.
//!
//! Sources: Prometheus' "Exposition formats" (text format 0.0.4), "Histograms and summaries", promql/quantile.go.
//!
//! Left out: native histograms, summaries (quantiles of which cannot be taken apart), scraping itself; buckets below 0.

use std::collections::BTreeMap;
use vsteer_core::{Fault, FaultKind};

/// The percentile that levels are about.
const PERCENTILE: f64 = 0.95;

/// Names and values, in the order of names.
type Labels = BTreeMap<String, String>;

/// One line's.
#[derive(Debug, Clone, PartialEq)]
struct Sample {
    name: String,
    labels: Labels,
    value: f64,
}

/// What came between two scrapes.
#[derive(Debug, Clone, PartialEq)]
pub struct Between {
    /// Requests.
    pub count: f64,
    /// Per second.
    pub rate_hz: f64,
    /// Their mean, seconds (or what the histogram counts). `None` where there were none.
    pub mean: Option<f64>,
    /// Their 95th percentile.
    pub p95: Option<Quantile>,
    /// Series that were summed.
    pub series: usize,
    /// Of these, counters that were reset in between: what came before the reset and after the first scrape is missed.
    pub resets: usize,
}

/// A quantile out of buckets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantile {
    /// By linear interpolation.
    pub value: f64,
    /// The bounds of its bucket; the upper may be infinite.
    pub bucket: (f64, f64),
}

fn bad(what: impl Into<String>, why: impl Into<String>) -> Fault {
    Fault::new(FaultKind::BadInput, what).because(why.into())
}

/// What the histogram `metric` (without `_bucket`) counted between the texts `before` and `after`, `seconds` apart, in series that have all
/// of `labels`.
///
/// # Errors
/// `NothingThere` where a text has no such histogram; `BadInput` where a text cannot be read, or buckets contradict each other.
pub fn between(
    before: &str,
    after: &str,
    metric: &str,
    labels: &[(&str, &str)],
    seconds: f64,
) -> Result<Between, Fault> {
    let what = format!("reading the histogram {metric}");
    if !(seconds.is_finite() && seconds > 0.0) {
        return Err(bad(what, format!("{seconds} s lie between the scrapes"))
            .way_out("give the earlier scrape first"));
    }
    let old = parse(before).map_err(|f| at("the first scrape", f))?;
    let new = parse(after).map_err(|f| at("the second scrape", f))?;
    let (old, new) = (of(&old, metric, labels), of(&new, metric, labels));
    let all = parse(after)?;
    if new.is_empty() {
        return Err(missing(what, &all, metric, labels));
    }
    let (mut buckets, mut sum, mut count, mut resets) = (Vec::<(f64, f64)>::new(), 0.0, 0.0, 0);
    for (labels, now) in &new {
        let then = old.get(labels);
        // A count that fell tells of the whole series: its buckets and sum began anew with it.
        let reset =
            then.is_some_and(|then| now.count < then.count || now.sum_fell(then) || now.bucket_fell(then));
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
    if new.values().any(|s| s.buckets.len() != buckets.len()) {
        return Err(bad(what, "series of it have buckets of different bounds, which cannot be added")
            .way_out("choose one of them by its labels"));
    }
    if let Some(w) = buckets.windows(2).find(|w| w[0].1 > w[1].1) {
        return Err(bad(
            what,
            format!("{} were {} or less, but {} were {} or less", w[0].1, w[0].0, w[1].1, w[1].0),
        )
        .way_out(
            "buckets are cumulative: see that both texts are whole, of one process, and in the order said",
        ));
    }
    let most = buckets.last().filter(|(le, _)| le.is_infinite()).map(|(_, n)| *n);
    let Some(most) = most else {
        return Err(bad(what, "there is no bucket le=\"+Inf\"").way_out("give the whole text of a scrape"));
    };
    if most != count {
        return Err(bad(what, format!("_count grew by {count}, its last bucket by {most}"))
            .way_out("give the whole text of a scrape"));
    }
    Ok(Between {
        count,
        rate_hz: count / seconds,
        mean: (count > 0.0).then(|| sum / count),
        p95: quantile(&buckets, PERCENTILE),
        series: new.len(),
        resets,
    })
}

fn at(text: &str, fault: Fault) -> Fault {
    Fault { what: format!("{text}: {}", fault.what), ..fault }
}

/// Of cumulative buckets in order, the last of which is infinite; `None` of none or where nothing was counted.
fn quantile(buckets: &[(f64, f64)], q: f64) -> Option<Quantile> {
    let total = buckets.last()?.1;
    if total <= 0.0 || buckets.len() < 2 {
        return None;
    }
    let rank = q * total;
    let i = buckets.iter().position(|(_, n)| *n >= rank)?;
    let (low, below) = if i == 0 { (0.0, 0.0) } else { buckets[i - 1] };
    let (high, upto) = buckets[i];
    if high.is_infinite() {
        return Some(Quantile { value: low, bucket: (low, high) });
    }
    // The first bucket of values that may be below 0 has no beginning.
    let value =
        if i == 0 && high <= 0.0 { high } else { low + (high - low) * (rank - below) / (upto - below) };
    Some(Quantile { value, bucket: (low.min(high), high) })
}

/// One series of a histogram: all but `le` alike.
#[derive(Debug, Default)]
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

    /// Times are not below 0.
    fn sum_fell(&self, then: &Series) -> bool {
        self.sum < then.sum && then.sum > 0.0 && self.sum >= 0.0
    }
}

/// The histogram's series that have these labels.
fn of(all: &[Sample], metric: &str, labels: &[(&str, &str)]) -> BTreeMap<Labels, Series> {
    let mut found = BTreeMap::<Labels, Series>::new();
    for sample in all {
        let Some(kind) =
            sample.name.strip_prefix(metric).filter(|k| matches!(*k, "_bucket" | "_sum" | "_count"))
        else {
            continue;
        };
        if !labels.iter().all(|(k, v)| sample.labels.get(*k).is_some_and(|is| is == v)) {
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
    // A counter of the same beginning that is no histogram.
    found.retain(|_, s| !s.buckets.is_empty());
    found
}

/// There is none: what there is instead.
fn missing(what: String, all: &[Sample], metric: &str, labels: &[(&str, &str)]) -> Fault {
    let there = of(all, metric, &[]);
    let show = |of: Vec<String>| of.into_iter().take(8).collect::<Vec<_>>().join(", ");
    let fault = |why: String| Fault::new(FaultKind::NothingThere, what.clone()).because(why);
    if !there.is_empty() {
        let wanted = show(labels.iter().map(|(k, v)| format!("{k}={v:?}")).collect());
        let has = show(
            there
                .keys()
                .map(|l| format!("{{{}}}", show(l.iter().map(|(k, v)| format!("{k}={v:?}")).collect())))
                .collect(),
        );
        return fault(format!("no series of it has the labels {wanted}")).way_out(format!("it has {has}"));
    }
    let mut names: Vec<&str> = all.iter().filter_map(|s| s.name.strip_suffix("_bucket")).collect();
    names.dedup();
    if all.iter().any(|s| s.name == metric && s.labels.contains_key("quantile")) {
        return fault("it is a summary, of whose quantiles none can be made for the time between".to_owned())
            .way_out("let the program export a histogram");
    }
    let why = "there is no such histogram (no _bucket series) in the text".to_owned();
    fault(why).way_out(match names.as_slice() {
        [] => {
            "the text has no histogram at all: see that it is a scrape of the right port and path".to_owned()
        }
        _ => format!("it has {}", show(names.into_iter().map(str::to_owned).collect())),
    })
}

/// Go's ParseFloat, as far as expositions need it.
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
                format!("{shown:?} is no sample: a name, labels in braces, a value were expected"),
            )
            .way_out("give the text that GET /metrics answers (Accept: text/plain)")
        };
        all.push(sample(line).ok_or_else(fault)?);
    }
    Ok(all)
}

/// `name{label="value",...} value [timestamp]`.
fn sample(line: &str) -> Option<Sample> {
    let end =
        line.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | ':'))).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let mut rest = rest.trim_start();
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
    let mut words = rest.split_ascii_whitespace();
    let value = float(words.next()?)?;
    if words.next().is_some_and(|at| at.parse::<i64>().is_err()) || words.next().is_some() {
        return None;
    }
    Some(Sample { name: name.to_owned(), labels, value })
}

/// A label's value, and what comes after it.
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
