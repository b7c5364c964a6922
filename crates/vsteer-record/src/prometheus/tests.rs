use super::*;
use proptest::prelude::*;

/// The histogram of Prometheus' "Exposition formats", with what stands around it there.
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

/// Counts of 0.1, 0.5, +Inf, and the sum, of one series.
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
    let nothing = between(DOCUMENTED, DOCUMENTED, NAME, &[], 60.0).unwrap();
    assert_eq!((nothing.count, nothing.mean, nothing.p95, nothing.series), (0.0, None, None, 1));
    let since_start = between("", DOCUMENTED, NAME, &[], 3600.0).unwrap();
    assert_eq!(since_start.count, 144_320.0);
    assert!((since_start.mean.unwrap() - 53_423.0 / 144_320.0).abs() < 1e-12);
    // The 137,104th is beyond 1 s.
    assert_eq!(since_start.p95, Some(Quantile { value: 1.0, bucket: (1.0, f64::INFINITY) }));
    let escaped = parse(DOCUMENTED).unwrap().into_iter().find(|s| s.name.starts_with("msdos")).unwrap();
    assert_eq!(escaped.labels["error"], "Cannot find file:\n\"FILE.TXT\"");
    assert_eq!(escaped.labels["path"], r"C:\DIR\FILE.TXT");
}

#[test]
fn differences_are_summed_with_le_kept() {
    let before = text(r#"vm="a""#, [10, 20, 20], 4.0) + &text(r#"vm="b""#, [0, 0, 0], 0.0);
    let after = text(r#"vm="a""#, [60, 70, 70], 9.0) + &text(r#"vm="b""#, [30, 50, 50], 10.0);
    let both = between(&before, &after, "m", &[], 10.0).unwrap();
    // 80 of 100 at 0.1 or less, all at 0.5: the 95th is 15 of 20 within.
    assert_eq!(
        (both.count, both.rate_hz, both.mean, both.series, both.resets),
        (100.0, 10.0, Some(0.15), 2, 0)
    );
    let p95 = both.p95.unwrap();
    assert!((p95.value - 0.4).abs() < 1e-12 && p95.bucket == (0.1, 0.5), "{p95:?}");
    let one = between(&before, &after, "m", &[("vm", "a")], 10.0).unwrap();
    assert_eq!((one.count, one.series, one.p95.unwrap().bucket), (50.0, 1, (0.0, 0.1)));
    assert!((one.p95.unwrap().value - 0.095).abs() < 1e-12);
}

#[test]
fn a_reset_is_noticed() {
    let after =
        between(&text("", [100, 200, 200], 40.0), &text("", [10, 20, 20], 2.0), "m", &[], 1.0).unwrap();
    assert_eq!((after.count, after.resets, after.mean), (20.0, 1, Some(0.1)));
}

#[test]
fn what_is_wrong_is_told() {
    let of = |before: &str, after: &str, labels: &[(&str, &str)], seconds| {
        between(before, after, "m", labels, seconds).unwrap_err().to_string()
    };
    let good = text(r#"vm="a""#, [1, 2, 2], 1.0);
    assert!(of("", DOCUMENTED, &[], 1.0).contains(NAME));
    assert!(of("", "", &[], 1.0).contains("no histogram at all"));
    assert!(of("", &good, &[("vm", "z")], 1.0).contains(r#"vm="a""#));
    assert!(of("", &good, &[], 0.0).contains("earlier"));
    assert!(of("", &text("", [3, 2, 2], 1.0), &[], 1.0).contains("cumulative"));
    assert!(of("", "m_bucket{le=\"1\"} 2\nm_count 2\nm_sum 1\n", &[], 1.0).contains("+Inf"));
    assert!(of("", "m_bucket{le=\"+Inf\"} 2\nm_count 3\nm_sum 1\n", &[], 1.0).contains("_count grew by 3"));
    let other = good.clone()
        + "m_bucket{vm=\"b\",le=\"7\"} 1\nm_bucket{vm=\"b\",le=\"+Inf\"} 1\nm_count{vm=\"b\"} 1\n";
    assert!(of("", &other, &[], 1.0).contains("different bounds"));
    assert!(of("a\n<html>\n", &good, &[], 1.0).contains("first scrape: line 1"));
    let summary = between("", DOCUMENTED, "rpc_duration_seconds", &[], 1.0).unwrap_err().to_string();
    assert!(summary.contains("summary"), "{summary}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_text_is_too_odd(before in "[a-z_{}=\",\\\\ 0-9.+#\n]{0,80}", after in ".{0,80}") {
        let _ = between(&before, &after, "m", &[], 1.0);
        let _ = between(&after, &before, "m", &[("a", "b")], 1.0);
    }

    /// The true percentile is in the bucket that is told.
    #[test]
    fn the_percentile_is_in_its_bucket(took in prop::collection::vec(0.001..1.0f64, 1..200)) {
        let upto = |le: f64| took.iter().filter(|t| **t <= le).count() as u64;
        let scrape = text("", [upto(0.1), upto(0.5), took.len() as u64], took.iter().sum());
        let p95 = between("", &scrape, "m", &[], 1.0).unwrap().p95.unwrap();
        let mut sorted = took.clone();
        sorted.sort_by(f64::total_cmp);
        let truly = sorted[((0.95 * took.len() as f64).ceil() as usize).max(1) - 1];
        prop_assert!(truly > p95.bucket.0 && truly <= p95.bucket.1 && p95.value <= p95.bucket.1 && p95.value >= p95.bucket.0);
    }
}
