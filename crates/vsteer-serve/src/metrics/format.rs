//! The three forms of the exposition, and which one a client asks for.

use super::histograms::{SCHEMA, classic, native, sum_s};
use super::{Metric, Series, View};
use crate::seen::Seen;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, MetricEncoder, NativeHistogram, NativeHistogramBuckets, NoLabelSet,
    prometheus_protobuf, prometheus_text, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vsteer_core::nouns::Histogram;

/// A form of the exposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// Prometheus' own text.
    Text,
    /// OpenMetrics' text.
    OpenMetrics,
    /// Prometheus' protobuf, with native histograms.
    Protobuf,
}

impl Format {
    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }

    /// The form that an `Accept` header asks for most; text if it names none of ours.
    pub fn accepted(header: Option<&str>) -> Format {
        let mut best = (0.0, Format::Text);
        for range in header.unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let parameters: Vec<(&str, &str)> = parts.filter_map(|p| p.split_once('=')).collect();
            let of = |name: &str| parameters.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
            let format = match media {
                "application/vnd.google.protobuf"
                    if of("encoding").is_none_or(|e| e == "delimited")
                        && of("proto").is_none_or(|p| p == "io.prometheus.client.MetricFamily") =>
                {
                    Format::Protobuf
                }
                "application/openmetrics-text"
                    if of("version").is_none_or(|v| v == "1.0.0" || v == "0.0.1") =>
                {
                    Format::OpenMetrics
                }
                "text/plain" | "text/*" | "*/*" => Format::Text,
                _ => continue,
            };
            let weight = of("q").map_or(1.0, |q| q.parse().unwrap_or(0.0));
            if weight > best.0 {
                best = (weight, format);
            }
        }
        best.1
    }
}

/// What was seen, as metrics.
///
/// # Panics
/// Never: writing into memory does not fail.
pub fn render(seen: &Arc<Seen>, metrics: &'static [&'static [Metric]], format: Format) -> Vec<u8> {
    let mut registry = Registry::default();
    let with_native = format == Format::Protobuf;
    registry.register_collector(Box::new(Exposition { seen: Arc::clone(seen), metrics, with_native }));
    // Growing by doubling would leave holes of megabytes in memory.
    static LENGTH: AtomicUsize = AtomicUsize::new(0);
    let mut out = String::new();
    if format != Format::Protobuf {
        out.reserve(LENGTH.load(Ordering::Relaxed) / 8 * 9);
    }
    match format {
        Format::Text => prometheus_text::encode(&mut out, &registry).expect("a string takes all"),
        Format::OpenMetrics => text::encode(&mut out, &registry).expect("a string takes all"),
        Format::Protobuf => {
            return prometheus_protobuf::encode_to_vec(&registry).expect("memory takes all");
        }
    }
    LENGTH.fetch_max(out.len(), Ordering::Relaxed);
    out.into_bytes()
}

#[derive(Debug)]
struct Exposition {
    seen: Arc<Seen>,
    metrics: &'static [&'static [Metric]],
    /// With native histograms, which text does not have.
    with_native: bool,
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let view = View::of(&self.seen);
        self.metrics
            .iter()
            .copied()
            .flatten()
            .try_for_each(|metric| one(&view, metric, self.with_native, &mut encoder))
    }
}

/// One metric. Without a series nothing of it is written.
fn one(
    view: &View<'_>,
    metric: &Metric,
    with_native: bool,
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), std::fmt::Error> {
    let unit = (!metric.unit.is_empty()).then(|| match metric.unit {
        "seconds" => Unit::Seconds,
        "bytes" => Unit::Bytes,
        other => Unit::Other(other.to_owned()),
    });
    let family = RefCell::new(Family::NotBegun { encoder, metric, unit: unit.as_ref() });
    let result = Cell::new(Ok(()));
    let add = |series: &dyn Fn(&mut MetricEncoder<'_>) -> Result<(), std::fmt::Error>| {
        if let Err(e) = family.borrow_mut().begun().and_then(series) {
            result.set(Err(e));
        }
    };
    (metric.of)(
        view,
        &mut Series {
            number: &mut |labels, value| {
                add(&|family| match metric.kind {
                    MetricType::Info => family.encode_info(&labels),
                    MetricType::Counter => {
                        family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)
                    }
                    _ => family.encode_family(&labels)?.encode_gauge(&value),
                });
            },
            histogram: &mut |labels, h| {
                add(&|family| encode_histogram(&mut family.encode_family(&labels)?, h, with_native));
            },
        },
    );
    result.into_inner()
}

/// The head of a metric is written with its first series.
enum Family<'e, 'd> {
    NotBegun { encoder: &'e mut DescriptorEncoder<'d>, metric: &'e Metric, unit: Option<&'e Unit> },
    Begun(MetricEncoder<'e>),
    Failed,
}

impl<'e> Family<'e, '_> {
    fn begun(&mut self) -> Result<&mut MetricEncoder<'e>, std::fmt::Error> {
        if let Family::NotBegun { .. } = self
            && let Family::NotBegun { encoder, metric, unit } = std::mem::replace(self, Family::Failed)
        {
            *self = Family::Begun(encoder.encode_descriptor(metric.name, metric.help, unit, metric.kind)?);
        }
        match self {
            Family::Begun(family) => Ok(family),
            _ => Err(std::fmt::Error),
        }
    }
}

fn encode_histogram(
    encoder: &mut prometheus_client::encoding::MetricEncoder<'_>,
    h: &Histogram,
    with_native: bool,
) -> Result<(), std::fmt::Error> {
    if !with_native {
        return encoder.encode_histogram::<NoLabelSet>(sum_s(h), h.total(), &classic(h), None);
    }
    let (spans, deltas) = native(h);
    let none = NativeHistogramBuckets { spans: &[], deltas: &[] };
    let native = NativeHistogram {
        schema: SCHEMA,
        zero_threshold: 1e-9,
        zero_count: 0,
        negative: none,
        positive: NativeHistogramBuckets { spans: &spans, deltas: &deltas },
        created: None,
    };
    encoder.encode_histogram_with_native::<NoLabelSet>(sum_s(h), h.total(), &classic(h), None, native)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_the_form_that_it_asks_for_most() {
        // What Prometheus 2.42 sends, without and with native histograms; a browser; curl; nobody.
        let plain = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                     text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
                      application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        assert_eq!(Format::accepted(Some(plain)), Format::OpenMetrics);
        assert_eq!(Format::accepted(Some(native)), Format::Protobuf);
        for header in [Some(browser), Some("*/*"), Some(""), Some("application/json;q=x"), None] {
            assert_eq!(Format::accepted(header), Format::Text, "{header:?}");
        }
        assert_eq!(Format::accepted(Some("application/openmetrics-text; version=2.0.0")), Format::Text);
    }

    #[derive(Debug)]
    struct One(Histogram, bool);

    impl Collector for One {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
            let unit = Unit::Seconds;
            let mut family = encoder.encode_descriptor("t", "A time", Some(&unit), MetricType::Histogram)?;
            encode_histogram(&mut family.encode_family(&[("vm", "web")])?, &self.0, self.1)
        }
    }

    /// vsteer's reader of expositions finds every time of a histogram in each form.
    #[test]
    fn vsteer_reads_its_own_histograms() {
        let times_ns = [3_000, 70_000, 71_000, 9_000_000, 9_100_000, 250_000_000, 4_000_000_000_u64];
        let h = times_ns.iter().fold(Histogram::default(), |all, ns| {
            all.merged(&Histogram { counts: vec![(Histogram::bucket_of(*ns), 1)] })
        });
        let registry = |with_native| {
            let mut registry = Registry::default();
            registry.register_collector(Box::new(One(h.clone(), with_native)));
            registry
        };
        let (mut plain, mut open) = (String::new(), String::new());
        prometheus_text::encode(&mut plain, &registry(false)).unwrap();
        text::encode(&mut open, &registry(false)).unwrap();
        let protobuf = prometheus_protobuf::encode_to_vec(&registry(true)).unwrap();
        let of = "t_seconds{vm=\"web\"}".parse().unwrap();
        let read = |page: &[u8]| vsteer_record::prometheus::between("", page, &of, None).unwrap().counted;
        for (page, is_native) in [(plain.as_bytes(), false), (open.as_bytes(), false), (&protobuf, true)] {
            let counted = read(page);
            assert!((counted.sum_s - sum_s(&h)).abs() < 1e-12, "{counted:?}");
            assert_eq!(counted.count(), 7.0);
            if !is_native {
                let mut upto = 0;
                let cumulative = |(edge, own): (f64, u64)| {
                    upto += own;
                    (edge, upto as f64)
                };
                let right: Vec<(f64, f64)> = classic(&h).into_iter().map(cumulative).collect();
                assert_eq!(counted.buckets, right);
                continue;
            }
            // Each time is in its bucket of an eighth of an octave, or in the one beside it.
            for (i, ns) in times_ns.iter().enumerate() {
                let near = |eighths: f64| *ns as f64 / 1e9 * (eighths / 8.0).exp2();
                let upto = |s: f64| counted.buckets.iter().rfind(|(le, _)| *le <= s).map_or(0.0, |(_, n)| *n);
                assert!(upto(near(-2.0)) <= i as f64 && upto(near(2.0)) > i as f64, "{ns}: {counted:?}");
            }
        }
    }
}
