//! The metrics in OpenTelemetry's form: the body of an OTLP export over HTTP, in protobuf.
//!
//! Names have no unit and no `_total`, as OpenTelemetry wants it. A receiver that translates to Prometheus' names gets those of
//! `/metrics`. Histograms are exponential ones of scale 3, whose buckets are those of the native histograms.
//!
//! Source: opentelemetry-proto 1.x, `metrics/v1/metrics.proto` and `collector/metrics/v1/metrics_service.proto`. The messages
//! below are the part of it that is used. Left out: exemplars, minimum and maximum.

use super::histograms::{SCHEMA, native, sum_s};
use super::{Labels, Metric, Series, View};
use crate::seen::Seen;
use prometheus_client::metrics::MetricType;
use prost::{Message, Oneof};
use vsteer_core::nouns::Histogram;

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: i32 = 2;

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<OfMetric>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct OfMetric {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    description: String,
    #[prost(string, tag = "3")]
    unit: String,
    #[prost(oneof = "Data", tags = "5, 7, 10")]
    data: Option<Data>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Data {
    #[prost(message, tag = "5")]
    Gauge(Gauge),
    #[prost(message, tag = "7")]
    Sum(Sum),
    #[prost(message, tag = "10")]
    Exponential(Exponential),
}

#[derive(Clone, PartialEq, Message)]
struct Gauge {
    #[prost(message, repeated, tag = "1")]
    points: Vec<Number>,
}

#[derive(Clone, PartialEq, Message)]
struct Sum {
    #[prost(message, repeated, tag = "1")]
    points: Vec<Number>,
    #[prost(int32, tag = "2")]
    temporality: i32,
    #[prost(bool, tag = "3")]
    is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Exponential {
    #[prost(message, repeated, tag = "1")]
    points: Vec<Distribution>,
    #[prost(int32, tag = "2")]
    temporality: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    start_unix_ns: u64,
    #[prost(fixed64, tag = "3")]
    unix_ns: u64,
    /// Part of a `oneof`, so it is written also when it is 0.
    #[prost(double, optional, tag = "4")]
    as_double: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct Distribution {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    start_unix_ns: u64,
    #[prost(fixed64, tag = "3")]
    unix_ns: u64,
    #[prost(fixed64, tag = "4")]
    count: u64,
    #[prost(double, optional, tag = "5")]
    sum: Option<f64>,
    #[prost(sint32, tag = "6")]
    scale: i32,
    #[prost(message, optional, tag = "8")]
    positive: Option<Buckets>,
}

#[derive(Clone, PartialEq, Message)]
struct Buckets {
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint64, repeated, tag = "2")]
    counts: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    /// Part of a `oneof`, so it is written also when it is empty.
    #[prost(string, optional, tag = "1")]
    string: Option<String>,
}

fn attributes(labels: Labels<'_>) -> Vec<KeyValue> {
    let one = |(key, value): &(&str, &str)| {
        let string = Some((*value).to_owned());
        KeyValue { key: (*key).to_owned(), value: Some(AnyValue { string }) }
    };
    labels.iter().map(one).collect()
}

/// Counts of neighbouring buckets. Bucket i of Prometheus is i - 1 here: it begins where that one ends.
fn buckets(h: &Histogram) -> Buckets {
    let (spans, deltas) = native(h);
    let (mut counts, mut count, mut deltas) = (Vec::new(), 0_i64, deltas.into_iter());
    let offset = spans.first().map_or(0, |(first, _)| first - 1);
    for (n, (gap, length)) in spans.into_iter().enumerate() {
        if n > 0 {
            counts.extend(std::iter::repeat_n(0, usize::try_from(gap).unwrap_or(0)));
        }
        for delta in deltas.by_ref().take(length as usize) {
            count += delta;
            counts.push(count as u64);
        }
    }
    Buckets { offset, counts }
}

/// The unit as UCUM writes it.
fn unit(of: &str) -> String {
    match of {
        "seconds" => "s",
        "bytes" => "By",
        "ratio" => "1",
        other => other,
    }
    .to_owned()
}

fn of_metric(view: &View<'_>, metric: &Metric, start_unix_ns: u64) -> Option<OfMetric> {
    let unix_ns = view.totals.batch().unix_ns;
    let (mut numbers, mut distributions) = (Vec::new(), Vec::new());
    let mut number = |labels: Labels<'_>, value| {
        numbers.push(Number {
            attributes: attributes(labels),
            start_unix_ns,
            unix_ns,
            as_double: Some(value),
        });
    };
    let mut histogram = |labels: Labels<'_>, h: &Histogram| {
        // The sum of no time is -0.
        let (positive, count, sum) = (Some(buckets(h)), h.total(), Some(sum_s(h) + 0.0));
        let attributes = attributes(labels);
        let scale = SCHEMA;
        distributions.push(Distribution { attributes, start_unix_ns, unix_ns, count, sum, scale, positive });
    };
    (metric.of)(view, &mut Series { number: &mut number, histogram: &mut histogram });
    let (name, data) = match metric.kind {
        MetricType::Histogram if distributions.is_empty() => return None,
        MetricType::Histogram => (
            metric.name.to_owned(),
            Data::Exponential(Exponential { points: distributions, temporality: CUMULATIVE }),
        ),
        _ if numbers.is_empty() => return None,
        MetricType::Counter => {
            let sum = Sum { points: numbers, temporality: CUMULATIVE, is_monotonic: true };
            (metric.name.to_owned(), Data::Sum(sum))
        }
        MetricType::Info => (format!("{}_info", metric.name), Data::Gauge(Gauge { points: numbers })),
        _ => (metric.name.to_owned(), Data::Gauge(Gauge { points: numbers })),
    };
    Some(OfMetric { name, description: metric.help.to_owned(), unit: unit(metric.unit), data: Some(data) })
}

/// What was seen, as the body of an export. `start_unix_ns`: since when sums grow.
pub fn otlp(seen: &Seen, metrics: &[&[Metric]], start_unix_ns: u64) -> Vec<u8> {
    let view = View::of(seen);
    let all = metrics.iter().copied().flatten().filter_map(|metric| of_metric(&view, metric, start_unix_ns));
    let scope = Scope { name: "vsteer".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let resource = [("service.name", "vsteer"), ("host.name", seen.config.hostname.as_str())];
    let resource = Some(Resource { attributes: attributes(&resource) });
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics: all.collect() }];
    Request { resource_metrics: vec![ResourceMetrics { resource, scope_metrics }] }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::super::{Format, render, tables};
    use super::*;
    use crate::seen::Costs;
    use crate::totals::Totals;
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use vsteer_core::nouns::{
        Batch, Collector, HostConfig, Role, ThreadCounters, ThreadSample, Tid, VmConfig, VmId,
    };
    use vsteer_core::thresholds::Thresholds;
    use vsteer_core::topology::machine;

    #[test]
    fn buckets_are_those_of_native_histograms_with_the_gaps_filled() {
        let at = |ns: u64, n: u64| (Histogram::bucket_of(ns), n);
        // 1 s: the middle of its bucket is above 1 s, in (2^0, 2^(1/8)], which is bucket 0 here.
        let h = Histogram { counts: vec![at(1 << 29, 2), at(1_000_000_000, 3)] };
        let found = buckets(&h);
        assert_eq!(found.counts.iter().sum::<u64>(), 5);
        assert_eq!((found.counts.first(), found.counts.last()), (Some(&2), Some(&3)));
        // From one to the other by factors of 2^(1/8).
        let apart = (8.0 * (1e9_f64 / f64::from(1 << 29)).log2()).round() as usize;
        assert!(found.counts.len().abs_diff(apart + 1) <= 1, "{found:?}");
        let last = found.offset + found.counts.len() as i32 - 1;
        assert!((-1..=0).contains(&last), "{found:?}");
        assert_eq!(buckets(&Histogram::default()), Buckets::default());
    }

    #[test]
    fn a_value_of_0_and_an_empty_label_are_written() {
        let zero = Number { as_double: Some(0.0), ..Number::default() };
        assert_eq!(zero.encode_to_vec(), [&[4 << 3 | 1][..], &[0; 8]].concat());
        assert_eq!(attributes(&[("", "")])[0].encode_to_vec(), [2 << 3 | 2, 2, 1 << 3 | 2, 0]);
    }

    /// A host with a VM of one vCPU, which has counted something.
    fn seen() -> Seen {
        let vm = || VmId("id-1".into());
        let wake_latency = Some(Histogram { counts: vec![(40, 3), (90, 1)] });
        let counters =
            ThreadCounters { run_ns: Some(5_000_000_000), wake_latency, ..ThreadCounters::default() };
        let thread = ThreadSample {
            vm: vm(),
            role: Role::Vcpu(0),
            tid: Tid(7),
            last_cpu: Some(0),
            waiting_ns: None,
            counters,
        };
        let batch = Batch { mono_ns: 1, unix_ns: 2_000_000_000, threads: vec![thread], ..Batch::default() };
        let config = HostConfig {
            vms: vec![VmConfig::new(vm(), "web", 1)],
            ..HostConfig::new("h", "6", machine(1, 1, 2, 1).unwrap())
        };
        Seen {
            config: Arc::new(config),
            names: Arc::new([(vm(), "web".to_owned())].into()),
            collector: Arc::new(Collector::new("schedstat", |_| true, "no")),
            totals: Totals::default().with(Arc::new(batch)),
            blame: Arc::default(),
            culprits: Arc::default(),
            now: None,
            minute: None,
            findings: Arc::default(),
            thresholds: Thresholds::default(),
            deliveries: Arc::default(),
            costs: Costs { samples: 1, ..Costs::default() },
        }
    }

    /// Name, labels and value of each number.
    fn numbers(request: &Request) -> BTreeSet<String> {
        let metrics = request.resource_metrics.iter().flat_map(|r| &r.scope_metrics).flat_map(|s| &s.metrics);
        let mut all = BTreeSet::new();
        for metric in metrics {
            let unit = match metric.unit.as_str() {
                "s" => "_seconds",
                "By" => "_bytes",
                "1" => "_ratio",
                _ => "",
            };
            let (suffix, points) = match metric.data.as_ref().unwrap() {
                Data::Gauge(gauge) => ("", &gauge.points),
                Data::Sum(sum) => ("_total", &sum.points),
                Data::Exponential(_) => continue,
            };
            for p in points {
                let label = |kv: &KeyValue| {
                    let value = kv.value.as_ref().and_then(|v| v.string.clone()).unwrap();
                    format!("{}={value:?}", kv.key)
                };
                let labels: Vec<String> = p.attributes.iter().map(label).collect();
                let labels =
                    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
                let value = p.as_double.unwrap();
                all.insert(format!("{}{unit}{suffix}{labels} {value}", metric.name));
            }
        }
        all
    }

    #[test]
    fn a_push_has_what_a_scrape_has() {
        let seen = Arc::new(seen());
        let text = String::from_utf8(render(&seen, tables(true), Format::Text)).unwrap();
        let is_histogram = |line: &str| {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            ["_bucket", "_sum", "_count"].iter().any(|end| name.ends_with(end))
        };
        let lines = text.lines().filter(|line| !line.starts_with('#') && !is_histogram(line));
        let number = |line: &str| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            format!("{series} {}", value.parse::<f64>().unwrap())
        };
        let scraped: BTreeSet<String> = lines.map(number).collect();
        let request = Request::decode(otlp(&seen, tables(true), 1).as_slice()).unwrap();
        assert!(scraped.len() > 10, "{text}");
        assert_eq!(numbers(&request), scraped);
    }

    /// OpenTelemetry's own definition of the messages reads a push. To run it: `python3 -m venv V && V/bin/pip install
    /// opentelemetry-proto`, then with `VSTEER_PYTHON=V/bin/python` this test with `--features otlp -- --ignored`.
    #[test]
    #[ignore = "needs VSTEER_PYTHON: a python3 with opentelemetry-proto"]
    fn opentelemetry_reads_a_push() {
        const CHECK: &str = "\
import sys
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest as Request
from google.protobuf.unknown_fields import UnknownFieldSet
def known(m):
    assert len(UnknownFieldSet(m)) == 0, m
    for field, value in m.ListFields():
        if field.message_type:
            for one in (value if field.is_repeated else [value]): known(one)
request = Request.FromString(open(sys.argv[1], 'rb').read())
known(request)
of = request.resource_metrics[0]
assert {a.key: a.value.string_value for a in of.resource.attributes} == {'service.name': 'vsteer', 'host.name': 'h'}
all = {m.name: m for m in of.scope_metrics[0].metrics}
state = all['vsteer_vcpu_state']
assert state.unit == 's' and state.sum.is_monotonic and state.sum.aggregation_temporality == 2, state
run = [p for p in state.sum.data_points if any(a.value.string_value == 'run' for a in p.attributes)]
assert run[0].as_double == 5.0 and run[0].start_time_unix_nano == 1 and run[0].time_unix_nano == 2000000000, run
wake = all['vsteer_vm_wake_latency'].exponential_histogram.data_points[0]
assert wake.count == 4 == sum(wake.positive.bucket_counts) and wake.scale == 3 and wake.sum > 0, wake
for p in (p for m in all.values() for d in (m.gauge, m.sum) for p in d.data_points):
    assert p.WhichOneof('value') == 'as_double', p";
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), otlp(&seen(), tables(true), 1)).unwrap();
        let python = std::env::var("VSTEER_PYTHON").expect("VSTEER_PYTHON names a python3");
        let status =
            std::process::Command::new(python).args(["-c", CHECK]).arg(file.path()).status().unwrap();
        assert!(status.success());
    }
}
