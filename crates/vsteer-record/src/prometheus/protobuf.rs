//! Reads the protobuf form of an exposition: messages `io.prometheus.client.MetricFamily`, each after its length.
//!
//! Only the wanted family is read in full. A family of others that cannot be read is passed over and counted, because
//! its length tells where the next one begins.
//!
//! Source: metrics.proto of github.com/prometheus/client_model. Left out: messages without their lengths, exemplars,
//! times of samples.

use super::found::{Ending, Found, Odd};
use super::native::Native;
use super::series::Raw;
use super::wire::{Fields, Malformed, Value, delimited, push, varint};
use super::words::Labels;
use vsteer_core::limits;

/// Values of the field `type`.
const HISTOGRAM: u64 = 4;
const GAUGE_HISTOGRAM: u64 = 5;
const SUMMARY: u64 = 2;
/// The tag of the field `name`, with which every writer begins a family.
const NAME: u8 = 0x0a;

/// Do the bytes begin with the length of a message, and that with a metric's name? No text does.
pub(super) fn is_protobuf(bytes: &[u8]) -> bool {
    let name = || {
        let (length, message) = varint(bytes)?;
        let (name, _) = delimited(message.strip_prefix(&[NAME])?)?;
        let fits = (name.len() as u64) < length && !name.is_empty();
        fits.then(|| std::str::from_utf8(name).ok())?
    };
    name().is_some_and(|name| !name.contains(|c: char| c.is_control() || c.is_whitespace()))
}

/// Reads all families.
///
/// # Errors
/// The message that is cut, or the wanted one that cannot be read.
pub(super) fn read(mut bytes: &[u8], found: &mut Found<'_>) -> Result<(), Odd> {
    found.ending = Ending::Message;
    let mut number = 0;
    while !bytes.is_empty() {
        number += 1;
        let odd = |why: String| Odd { place: format!("message {number}"), why };
        let Some((message, rest)) = delimited(bytes) else {
            return Err(odd("the page ends within this message, so the scrape was cut".to_owned()));
        };
        bytes = rest;
        match family(message, found) {
            Ok(()) => found.samples += 1,
            Err(Failure::Of(why)) => return Err(odd(why)),
            Err(Failure::Others) => found.pass_over(|| odd("is not a MetricFamily".to_owned())),
        }
    }
    Ok(())
}

/// Why a family cannot be read.
enum Failure {
    /// The wanted one, with the reason.
    Of(String),
    /// Another one.
    Others,
}

fn family(message: &[u8], found: &mut Found<'_>) -> Result<(), Failure> {
    let (mut name, mut kind, mut unit) = ("", 0, "");
    let read = Fields(message).try_for_each(|field| {
        match field? {
            (1, v) => name = v.text()?,
            (3, v) => kind = v.uint()?,
            (5, v) => unit = v.text()?,
            _ => {}
        }
        Ok(())
    });
    if read == Err(Malformed) {
        let wanted = name == found.of.metric;
        return Err(if wanted {
            Failure::Of(format!("the family {name} is not protobuf"))
        } else {
            Failure::Others
        });
    }
    let is_histogram = kind == HISTOGRAM || kind == GAUGE_HISTOGRAM;
    if name != found.of.metric {
        if is_histogram {
            found.others.name(name);
        }
        return Ok(());
    }
    found.others.is_summary |= kind == SUMMARY;
    found.others.is_gauge |= kind == GAUGE_HISTOGRAM;
    if kind != HISTOGRAM {
        return Ok(());
    }
    if !unit.is_empty() {
        found.unit = Some(unit.to_owned());
    }
    for metric in Fields(message) {
        if let Ok((4, Value::Bytes(metric))) = metric {
            series(metric, found).map_err(|why| Failure::Of(format!("the histogram {name}: {why}")))?;
        }
    }
    Ok(())
}

/// One series of the wanted family.
fn series(message: &[u8], found: &mut Found<'_>) -> Result<(), String> {
    let malformed = |_: Malformed| "one of its series is not protobuf".to_owned();
    let (mut labels, mut histogram) = (Labels::new(), None);
    for field in Fields(message) {
        match field.map_err(malformed)? {
            (1, v) => {
                let (key, value) = v.bytes().and_then(label).map_err(malformed)?;
                labels.insert(key.to_owned(), value.to_owned());
            }
            (7, v) => histogram = Some(v.bytes().map_err(malformed)?),
            _ => {}
        }
    }
    if !found.wants(&labels) {
        return Ok(());
    }
    let Some(histogram) = histogram else { return Err("one of its series has no histogram".to_owned()) };
    let Parts { raw, native } = parts(histogram).map_err(malformed)?;
    let (count, sum) = (raw.count.unwrap_or(0.0), raw.sum.unwrap_or(0.0));
    if raw.buckets.iter().any(|(le, _)| le.is_nan()) {
        return Err("one of its bounds is not a number".to_owned());
    }
    let mut counts = raw.buckets.iter().map(|(_, n)| *n).chain([count, native.zero_count]);
    if let Some(odd) = counts.find(|n| !n.is_finite()) {
        return Err(format!("one of its counts is {odd}"));
    }
    if native.is_there() {
        found.series(labels.clone(), native.raw(count, sum, raw.created_s)?, true)?;
    } else if raw.buckets.is_empty() && count == 0.0 {
        // Nothing was counted yet, so nothing tells which form it will have.
        let none = Raw { buckets: vec![(f64::INFINITY, 0.0)], ..Raw::default() };
        found.series(labels.clone(), Raw { sum: raw.sum, ..none }, true)?;
    } else if raw.buckets.is_empty() {
        found.others.has_no_buckets = true;
    }
    let Some(all) = complete(raw) else { return Ok(()) };
    found.series(labels, all, false)
}

/// Fixed buckets with the last one, which a writer may leave out. `None` if there are none.
fn complete(mut raw: Raw) -> Option<Raw> {
    if raw.buckets.is_empty() {
        return None;
    }
    if !raw.buckets.iter().any(|(le, _)| *le == f64::INFINITY) {
        raw.buckets.push((f64::INFINITY, raw.count.unwrap_or(0.0)));
    }
    Some(raw)
}

fn label(message: &[u8]) -> Result<(&str, &str), Malformed> {
    let (mut key, mut value) = ("", "");
    for field in Fields(message) {
        match field? {
            (1, v) => key = v.text()?,
            (2, v) => value = v.text()?,
            _ => {}
        }
    }
    Ok((key, value))
}

/// A message `Histogram` in its two forms.
#[derive(Default)]
struct Parts {
    raw: Raw,
    native: Native,
}

fn parts(message: &[u8]) -> Result<Parts, Malformed> {
    const MOST: usize = limits::METRICS_BUCKETS;
    let mut of = Parts::default();
    let (mut count, mut count_float, mut zero, mut zero_float) = (0, 0.0, 0, 0.0);
    // Numbers that are 0 are left out by some writers.
    of.raw.sum = Some(0.0);
    let Parts { raw, native } = &mut of;
    for field in Fields(message) {
        let (number, v) = field?;
        match number {
            1 => count = v.uint()?,
            2 => raw.sum = Some(v.double()?),
            3 => push(&mut raw.buckets, bucket(v.bytes()?)?, MOST),
            4 => count_float = v.double()?,
            5 => native.schema = v.sint()?,
            6 => native.zero_threshold = v.double()?,
            7 => zero = v.uint()?,
            8 => zero_float = v.double()?,
            9 => push(&mut native.negative.spans, span(v.bytes()?)?, MOST),
            10 => v.sints(&mut native.negative.deltas, MOST)?,
            11 => v.doubles(&mut native.negative.counts, MOST)?,
            12 => push(&mut native.positive.spans, span(v.bytes()?)?, MOST),
            13 => v.sints(&mut native.positive.deltas, MOST)?,
            14 => v.doubles(&mut native.positive.counts, MOST)?,
            15 => raw.created_s = Some(seconds(v.bytes()?)?),
            _ => {}
        }
    }
    raw.count = Some(over(count, count_float));
    native.zero_count = over(zero, zero_float);
    Ok(of)
}

/// A count, which a floating-point number above 0 overrides.
fn over(count: u64, float: f64) -> f64 {
    if float > 0.0 { float } else { count as f64 }
}

fn bucket(message: &[u8]) -> Result<(f64, f64), Malformed> {
    let (mut count, mut float, mut bound) = (0, 0.0, 0.0);
    for field in Fields(message) {
        match field? {
            (1, v) => count = v.uint()?,
            (2, v) => bound = v.double()?,
            (4, v) => float = v.double()?,
            _ => {}
        }
    }
    Ok((bound, over(count, float)))
}

/// Offset and length of a stretch of buckets.
fn span(message: &[u8]) -> Result<(i64, u64), Malformed> {
    let (mut offset, mut length) = (0, 0);
    for field in Fields(message) {
        match field? {
            (1, v) => offset = v.sint()?,
            (2, v) => length = v.uint()?,
            _ => {}
        }
    }
    Ok((offset, length))
}

/// A time, s since 1970.
fn seconds(message: &[u8]) -> Result<f64, Malformed> {
    let (mut s, mut ns) = (0, 0);
    for field in Fields(message) {
        match field? {
            (1, v) => s = v.uint()?,
            (2, v) => ns = v.uint()?,
            _ => {}
        }
    }
    Ok(s as i64 as f64 + ns as i64 as f64 / 1e9)
}
