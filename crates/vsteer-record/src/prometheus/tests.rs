use super::*;
use crate::prometheus::words::float;
use proptest::prelude::*;

/// The requests between two texts, of a histogram of seconds.
fn between(before: &str, after: &str, of: &Histogram) -> Result<Between, Fault> {
    super::between(before, after, of, None)
}

fn read(text: &str, of: &Histogram) -> Result<Scrape, Fault> {
    Scrape::read(text, of, None)
}

/// The histogram of Prometheus' "Exposition formats", with the text around it there.
const DOCUMENTED: &str = r#"
# HELP http_requests_total The total number of HTTP requests.
# TYPE http_requests_total counter
http_requests_total{method="post",code="200"} 1027 1395066363000
http_requests_total{method="post",code="400"}    3 1395066363000

# Escaping in label values:
msdos_file_access_time_seconds{path="C:\\DIR\\FILE.TXT",error="Cannot find file:\n\"FILE.TXT\""} 1.458255915e9

# Minimalistic line:
metric_without_timestamp_and_labels 12.47

# A weird metric from before the epoch:
something_weird{problem="division by zero"} +Inf -3982045

# A histogram, which has a pretty complex representation in the text format:
# HELP http_request_duration_seconds A histogram of the request duration.
# TYPE http_request_duration_seconds histogram
http_request_duration_seconds_bucket{le="0.05"} 24054
http_request_duration_seconds_bucket{le="0.1"} 33444
http_request_duration_seconds_bucket{le="0.2"} 100392
http_request_duration_seconds_bucket{le="0.5"} 129389
http_request_duration_seconds_bucket{le="1"} 133988
http_request_duration_seconds_bucket{le="+Inf"} 144320
http_request_duration_seconds_sum 53423
http_request_duration_seconds_count 144320

# Finally a summary, which has a complex representation, too:
# TYPE rpc_duration_seconds summary
rpc_duration_seconds{quantile="0.01"} 3102
rpc_duration_seconds{quantile="0.99"} 76656
rpc_duration_seconds_sum 1.7560473e+07
rpc_duration_seconds_count 2693
"#;
const NAME: &str = "http_request_duration_seconds";

fn of(text: &str) -> Histogram {
    text.parse().unwrap()
}

fn m() -> Histogram {
    of("m")
}

/// One series with the counts of 0.1, 0.5, +Inf, and the sum.
fn text(labels: &str, counts: [u64; 3], sum: f64) -> String {
    let with =
        |le: &str| if labels.is_empty() { format!("le=\"{le}\"") } else { format!("{labels},le=\"{le}\"") };
    let [a, b, c] = counts;
    format!(
        "m_bucket{{{}}} {a}\nm_bucket{{{}}} {b}\nm_bucket{{{}}} {c}\nm_sum{{{labels}}} {sum}\nm_count{{{labels}}} {c}\n",
        with("0.1"),
        with("0.5"),
        with("+Inf")
    )
}

#[test]
fn the_documented_text_is_read() {
    let nothing = between(DOCUMENTED, DOCUMENTED, &of(NAME)).unwrap();
    assert_eq!((nothing.counted.count(), nothing.counted.mean_s(), nothing.series), (0.0, None, 1));
    let since_start = between("", DOCUMENTED, &of(NAME)).unwrap().counted;
    assert_eq!((since_start.count(), since_start.sum_s), (144_320.0, 53_423.0));
    assert_eq!(
        (since_start.buckets[2], since_start.buckets[5]),
        ((0.2, 100_392.0), (f64::INFINITY, 144_320.0))
    );
    let all = read(DOCUMENTED, &of(NAME)).unwrap();
    assert_eq!((all.samples, all.odd.0, all.passed_over(), all.ending), (17, 0, None, Ending::Line));
}

/// The labels of that text with escapes.
#[test]
fn escapes_are_read() {
    let line = DOCUMENTED
        .lines()
        .find(|l| l.starts_with("msdos"))
        .unwrap()
        .replace("seconds{", "seconds_bucket{le=\"1\",");
    let scrape = read(&format!("{line}\n"), &of("msdos_file_access_time_seconds{a=\"b\"}")).unwrap();
    let said = scrape.checked().unwrap_err().to_string();
    assert!(
        said.contains(r#"choose among {error="Cannot find file:\n\"FILE.TXT\"",path="C:\\DIR\\FILE.TXT"}"#),
        "{said}"
    );
    // Not an escape, so the backslash stays, as in Prometheus.
    let odd = read("m_bucket{a=\"x\\z\" le=\"1\"} 1\n", &of("m{a=\"b\"}")).unwrap();
    assert!(odd.checked().unwrap_err().to_string().contains(r#"{a="x\\z"}"#));
    for (text, number) in
        [("+Inf", f64::INFINITY), ("inf", f64::INFINITY), ("5e-1", 0.5), (".5", 0.5), ("1.", 1.0)]
    {
        assert_eq!(float(text), Some(number), "{text}");
    }
    assert!(float("NaN").unwrap().is_nan() && float("0x1p3").is_none() && float("1_0").is_none());
}

/// OpenMetrics 2.0 writes a whole native histogram in braces.
#[test]
fn values_in_braces_of_others_refuse_no_page() {
    let page =
        "# TYPE n histogram\nn {count:24,sum:100,schema:0,zero_threshold:0.001,zero_count:4} 1\n# EOF\n";
    let scrape = read(page, &of("m")).unwrap();
    assert!(scrape.has_samples() && scrape.passed_over().unwrap().contains("OpenMetrics 2.0"));
    assert!(read(page, &of("n")).unwrap_err().to_string().contains("OpenMetrics 2.0"));
}

#[test]
fn histograms_are_named_as_in_a_query() {
    let with = of(r#" http_seconds_bucket{job="web", path="a\"b}c",le="0.1"} "#);
    assert_eq!(
        (with.metric.as_str(), with.labels.len(), with.labels["path"].as_str()),
        ("http_seconds", 2, "a\"b}c")
    );
    assert_eq!(with.to_string(), r#"http_seconds{job="web",path="a\"b}c"}"#);
    assert_eq!(of(&with.to_string()), with);
    assert_eq!(of("m").to_string(), "m");
    let dots = of(r#"{"http.server.duration_bucket", "a.b"="c"}"#);
    assert_eq!((dots.metric.as_str(), dots.labels["a.b"].as_str()), ("http.server.duration", "c"));
    assert_eq!(dots, of(r#"http.server.duration{"a.b"="c"}"#));
    assert_eq!(dots, of(r#""http.server.duration"{"a.b"="c"}"#));
    assert_eq!(dots.to_string(), r#"http.server.duration{"a.b"="c"}"#);
    assert_eq!(of(r#"{"my m",a="b"}"#), of(&of(r#"{"my m",a="b"}"#).to_string()));
    for odd in [
        "",
        "{}",
        "{a=\"b\"}",
        r#"{"m","n"}"#,
        r#"m{"n"}"#,
        r#"{""}"#,
        "_bucket",
        "1m",
        "m{",
        "m{a}",
        "m{a=b}",
        r#"m{a="b""#,
        "m n",
        "m 3",
        r#"m{a=~"b"}"#,
    ] {
        let said = odd.parse::<Histogram>().unwrap_err();
        assert!(said.contains("write NAME or NAME{label="), "{said}");
    }
}

#[test]
fn a_name_tells_its_unit() {
    let text = text("", [10, 20, 20], 4.0);
    for (name, unit_s) in [("m_seconds", 1.0), ("m_milliseconds", 1e-3), ("m_ms", 1e-3), ("m_us", 1e-6)] {
        let text = text.replace("m_", &format!("{name}_"));
        let counted = between("", &text, &of(name)).unwrap().counted;
        assert_eq!((counted.sum_s, counted.buckets[1]), (4.0 * unit_s, (0.5 * unit_s, 20.0)), "{name}");
        assert!(!read(&text, &of(name)).unwrap().assumes_seconds());
        assert!(counted.buckets[2].0.is_infinite());
    }
}

#[test]
fn a_unit_is_stated_or_assumed() {
    let text = text("", [10, 20, 20], 4.0);
    assert!(read(&text, &m()).unwrap().assumes_seconds() && !read("up 1\n", &m()).unwrap().assumes_seconds());
    let stated = |word: &str| format!("# UNIT m {word}\n{text}");
    let sum = |text: &str, unit| super::between("", text, &m(), unit).unwrap().counted.sum_s;
    assert_eq!((sum(&stated("milliseconds"), None), sum(&stated("minutes"), None)), (0.004, 240.0));
    // The user knows better.
    assert_eq!(sum(&stated("milliseconds"), Some(Unit::Microseconds)), 4e-6);
    let said = read(&stated("bytes"), &m()).unwrap_err().to_string();
    assert!(said.contains("\"bytes\", which is not a unit of time"), "{said}");
    let said = between(&stated("ms"), &stated("s"), &m()).unwrap_err().to_string();
    assert!(said.contains("its unit changed from ms to s"), "{said}");
    assert_eq!(between(&text, &stated("ms"), &m()).unwrap().counted.sum_s, 0.0);
}

#[test]
fn differences_are_summed_with_le_kept() {
    let before = text(r#"vm="a""#, [10, 20, 20], 4.0) + &text(r#"vm="b""#, [0, 0, 0], 0.0);
    let after = text(r#"vm="a""#, [60, 70, 70], 9.0) + &text(r#"vm="b""#, [30, 50, 50], 10.0);
    let both = between(&before, &after, &m()).unwrap();
    assert_eq!((both.series, both.resets, both.counted.mean_s()), (2, 0, Some(0.15)));
    assert_eq!(both.counted.buckets, [(0.1, 80.0), (0.5, 100.0), (f64::INFINITY, 100.0)]);
    let one = between(&before, &after, &of(r#"m{vm="a"}"#)).unwrap();
    assert_eq!((one.counted.count(), one.series, one.counted.buckets[0]), (50.0, 1, (0.1, 50.0)));
}

#[test]
fn a_reset_is_noticed() {
    let after = between(&text("", [100, 200, 200], 40.0), &text("", [10, 20, 20], 2.0), &m()).unwrap();
    assert_eq!((after.counted.count(), after.resets, after.counted.mean_s()), (20.0, 1, Some(0.1)));
    // A new process that counts the same number, but other requests.
    let after = between(&text("", [100, 200, 200], 40.0), &text("", [10, 200, 200], 50.0), &m()).unwrap();
    assert_eq!((after.counted.count(), after.resets), (200.0, 1));
    // Other buckets alone do not mean a restart: the common ones count.
    let other = text("", [300, 400, 400], 50.0).replace("0.5", "0.7");
    let after = between(&text("", [100, 150, 200], 40.0), &other, &m()).unwrap();
    assert_eq!((after.counted.count(), after.resets, after.left_out), (200.0, 0, 2));
    assert_eq!(after.counted.buckets, [(0.1, 200.0), (f64::INFINITY, 200.0)]);
    let none = text("", [300, 350, 400], 50.0).replace("0.1", "0.2").replace("0.5", "0.7");
    let said = between(&text("", [100, 150, 200], 40.0), &none, &m()).unwrap_err().to_string();
    assert!(said.contains("the two scrapes have no bound in common"), "{said}");
    // The server says that it created the series again.
    let created = |at: u64| {
        text("", [100 * at, 200 * at, 200 * at], 40.0 * at as f64) + &format!("m_created 170{at}\n")
    };
    let after = between(&created(1), &created(2), &m()).unwrap();
    assert_eq!((after.counted.count(), after.resets), (400.0, 1));
}

#[test]
fn what_is_wrong_is_told() {
    let said =
        |before: &str, after: &str, named: &str| between(before, after, &of(named)).unwrap_err().to_string();
    let good = text(r#"vm="a""#, [1, 2, 2], 1.0);
    assert!(said("", DOCUMENTED, "m").contains(NAME));
    assert!(said("", "", "m").contains("no histogram at all"));
    let labels = said("", &good, r#"m{vm="z"}"#);
    assert!(
        labels.contains(r#"m{vm="z"}: no series"#) && labels.contains(r#"choose among {vm="a"}"#),
        "{labels}"
    );
    assert!(said("", &text("", [3, 2, 2], 1.0), "m").contains("cumulative"));
    assert!(said("", "m_bucket{le=\"1\"} 2\nm_count 2\nm_sum 1\n", "m").contains("+Inf"));
    assert!(said("", "m_bucket{le=\"+Inf\"} 2\nm_count 30\nm_sum 1\n", "m").contains("_count is 30"));
    let other = text(r#"vm="a""#, [1, 1, 2], 1.0)
        + "m_bucket{vm=\"b\",le=\"7\"} 1\nm_bucket{vm=\"b\",le=\"+Inf\"} 2\nm_sum{vm=\"b\"} 9\nm_count{vm=\"b\"} 2\n";
    assert!(said("", &other, "m").contains("its series have no bound in common"));
    assert!(said("a\n<html>\n", &good, "m").contains("first scrape: line 1"));
    assert!(said("", DOCUMENTED, "rpc_duration_seconds").contains("summary"));
    // A server may have no histogram before its first request. The fault appears only when the histogram is
    // needed.
    let asked = read(&good, &m()).unwrap();
    let never = read("up 1\n", &m()).unwrap();
    assert_eq!(asked.since(&never).unwrap().counted.count(), 2.0);
    assert_eq!(never.since(&asked).unwrap_err(), never.checked().unwrap_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_text_is_too_odd(before in "[a-z_{}=\",\\\\ 0-9.+#\n]{0,80}", after in ".{0,80}") {
        let _ = between(&before, &after, &m());
        let _ = between(&after, &before, &of("m{a=\"b\"}"));
        let _ = before.parse::<Histogram>();
    }

    /// Requests drawn from the difference give the same counts.
    #[test]
    fn requests_come_back(took in prop::collection::vec(0.001..1.0f64, 1..200)) {
        let upto = |all: &[f64], le: f64| all.iter().filter(|t| **t <= le).count() as u64;
        let scrape = text("", [upto(&took, 0.1), upto(&took, 0.5), took.len() as u64], took.iter().sum());
        let counted = between("", &scrape, &m()).unwrap().counted;
        let drawn: Vec<f64> =
            vsteer_sla::histogram::requests(&counted, (0, 60_000_000_000)).unwrap().iter().map(|r| r.took_ns as f64 / 1e9 - 1e-9).collect();
        let counts = counted.buckets.iter().map(|(le, _)| upto(&drawn, *le)).collect::<Vec<_>>();
        prop_assert_eq!(counts, counted.buckets.iter().map(|(_, n)| *n as u64).collect::<Vec<_>>());
        let off = drawn.iter().map(|t| t + 1e-9).sum::<f64>() - took.iter().sum::<f64>();
        prop_assert!(off.abs() < 1e-6, "off by {} s", off);
    }
}

/// Found by fuzzing: bounds that do not differ any more in seconds are one bound.
#[test]
fn bounds_that_are_equal_in_seconds_are_one() {
    let page = "m_bucket{le=\"1\"} 1\nm_bucket{le=\"1e300\"} 2\nm_bucket{le=\"1.7e308\"} 2\n\
        m_bucket{le=\"+Inf\"} 3\nm_sum 4\nm_count 3\n";
    let found = super::between("", page, &"m".parse().unwrap(), Some(Unit::Seconds)).unwrap();
    assert_eq!(found.counted.buckets, [(1.0, 1.0), (f64::INFINITY, 3.0)]);
}
