//! Metrics of others beside the wanted histogram. None of them refuses a page.

use crate::case::Case;
use crate::writer::{Style, gzip};

/// What stands before the wanted histogram, and after it.
const TEXTS: [(&str, &str); 34] = [
    ("counter with an exemplar", "# TYPE other counter\nother_total 5 # {trace_id=\"x\"} 1.0 1793520000.1\n"),
    ("info", "# TYPE build info\nbuild_info{version=\"1.2\"} 1\n"),
    ("state set", "# TYPE s stateset\ns{s=\"a\"} 1\ns{s=\"b\"} 0\n"),
    (
        "gauge histogram",
        "# TYPE g gaugehistogram\ng_bucket{le=\"1\"} 4\ng_bucket{le=\"+Inf\"} 2\ng_gcount 2\ng_gsum 1\n",
    ),
    ("summary", "# TYPE r summary\nr{quantile=\"0.5\"} 3\nr_sum 17\nr_count 2\n"),
    ("summary of nothing", "r{quantile=\"0.5\"} NaN\nr_sum 0\nr_count 0\n"),
    ("unknown type", "# TYPE u unknown\nu 1\n"),
    ("unit that is no time", "# TYPE u_bytes gauge\n# UNIT u_bytes bytes\nu_bytes 1\n"),
    (
        "a value in braces",
        "n {count:12,sum:1.5,schema:3,zero_threshold:0.001,zero_count:0,positive_spans:[0:2],positive_buckets:[1,2]}\n",
    ),
    (
        "a value in braces after labels",
        "n{a=\"b\"} {count:12,sum:1.5,bucket:[1.0:12,+Inf:12]} st@1793520000.0\n",
    ),
    ("a start time", "n_total{a=\"b\"} 1 st@1793520000.0\n"),
    ("HTTP headers", "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n"),
    ("HTML", "<html><body>\n<pre>\n"),
    ("a sentence", "Now scraping web-1.\n"),
    ("a value that is not a number", "n{a=\"b\"} abc\n"),
    ("no value", "n{a=\"b\"}\n"),
    ("a hexadecimal value", "n 0x1p-2\n"),
    ("a date as time", "n 1 2026-11-01\n"),
    ("two times", "n 1 2 3\n"),
    ("open braces", "n{a=\"b\" 1\n"),
    ("an open quote", "n{a=\"b} 1\n"),
    ("an open escape", "n{a=\"\\\n"),
    ("a label without quotes", "n{a=b} 1\n"),
    ("a label without a name", "n{=\"b\"} 1\n"),
    ("two commas", "n{a=\"b\",,c=\"d\"} 1\n"),
    ("two names", "{\"n\",\"m\"} 1\n"),
    ("no name", "{a=\"b\"} 1\n"),
    ("a name that begins with a digit", "1n 1\n"),
    ("a name in quotes", "{\"my.metric\",a=\"b\"} 1\n"),
    ("a control character", "n{a=\"\x00\x01\"} 1\nn\x07 1\n"),
    ("a histogram that falls", "h_bucket{le=\"1\"} 5\nh_bucket{le=\"+Inf\"} 2\nh_count 9\n"),
    ("a histogram without an end", "h_bucket{le=\"1\"} 5\n"),
    (
        "names that begin alike",
        "http_request_duration_seconds_total 4\nhttp_request_duration_seconds_max 4\nhttp_request_duration_seconds_bucket_total x\nhttp_request_duration_seconds2_bucket{le=\"1\"} 7\nhttp_request_duration_seconds2_count -1\n",
    ),
    ("a bucket without le", "http_request_duration_seconds_bucket 7\n"),
];

pub fn cases() -> Vec<Case> {
    let around = |text: &'static str| move |page: String| format!("{text}{page}{text}").into_bytes();
    let plain = Style::default();
    let of = |(name, text): &(&str, &'static str)| plain.case(&format!("beside: {name}"), around(text));
    let mut all: Vec<Case> = TEXTS.iter().map(of).collect();
    all.push(plain.case("beside: everything", |page| {
        let all: String = TEXTS.iter().map(|(_, text)| *text).collect();
        gzip(format!("{all}{page}{all}").as_bytes())
    }));
    all.push(plain.case("beside: a line that is not UTF-8", |page| {
        [b"n{a=\"\xff\xc0\"} 1\n\xff\xff\n".as_slice(), page.as_bytes()].concat()
    }));
    all.push(
        plain.case("beside: a line of 1 MB", |page| format!("{} 1\n{page}", "n".repeat(1 << 20)).into()),
    );
    all
}
