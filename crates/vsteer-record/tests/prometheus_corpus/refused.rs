//! Pages that are refused, and why.

use crate::case::{Case, NAME};
use crate::writer::{Style, gzip, refused, times};
use vsteer_record::unit::Unit;

fn page() -> String {
    Style::default().page(&times(7, 50))
}

/// One wrong line of the wanted histogram.
fn lines() -> Vec<Case> {
    let of = |name: &str, from: &str, to: &str, words: &'static str| {
        let changed = page().replacen(from, to, 1);
        assert_ne!(changed, page(), "{name}");
        refused(name, page(), changed, words)
    };
    let sum = format!("{NAME}_sum ");
    vec![
        of("a bound that is not a number", "le=\"0.1\"", "le=\"abc\"", "le=\"abc\", which is not a number"),
        of("an empty bound", "le=\"0.1\"", "le=\"\"", "le=\"\", which is not a number"),
        of("a bound NaN", "le=\"0.1\"", "le=\"NaN\"", "le=\"NaN\", which is not a number"),
        of("a count NaN", "le=\"0.1\"} ", "le=\"0.1\"} NaN ", "is not a count"),
        of("a negative count", "le=\"0.005\"} ", "le=\"0.005\"} -", "is not a count"),
        of("an infinite count", "le=\"0.1\"} ", "le=\"0.1\"} +Inf ", "is not a count"),
        of("a word for a count", "le=\"0.1\"} ", "le=\"0.1\"} many", "is not a sample"),
        of("open braces", "le=\"0.1\"} ", "le=\"0.1\" ", "is not a sample"),
        of("an open quote", "le=\"0.1\"} ", "le=\"0.1} ", "is not a sample"),
        of("three numbers", "_count 50", "_count 50 1 2", "is not a sample"),
        of("a label twice", "{le=\"0.1\"", "{a=\"b\",a=\"c\",le=\"0.1\"", "a label twice"),
        of("a value in braces", "_count 50", " {count:50,sum:3}\n", "OpenMetrics 2.0 value in braces"),
        of("no infinite bucket", "le=\"+Inf\"", "le=\"20\"", "it has no bucket le=\"+Inf\""),
        of("no sum", &sum, "other ", "it has no _sum"),
        of("a sum NaN", &sum, &format!("{sum}NaN\nother "), "its _sum is NaN"),
        of("an infinite sum", &sum, &format!("{sum}+Inf\nother "), "its _sum is inf"),
        of("a negative sum", &sum, &format!("{sum}-"), "values are not times"),
        of(
            "a count far from the last bucket",
            "_count 50",
            "_count 5",
            "its _count is 5, but its last bucket has 50",
        ),
        of(
            "two counts",
            "_count 50",
            &format!("_count 50\n{NAME}_count 51"),
            "another value than an earlier line",
        ),
        of("two sums", &sum, &format!("{sum}3\n{sum}"), "another value than an earlier line"),
        of("buckets that fall", "le=\"0.005\"} ", "le=\"0.005\"} 9", "values were 0.005 or less, but"),
        of(
            "two values of a bucket",
            "le=\"0.1\"} ",
            &format!("le=\"0.10\"}} 1\n{NAME}_bucket{{le=\"0.1\"}} "),
            "its bucket le=\"0.1\" has two values",
        ),
        of(
            "values below 0",
            "le=\"0.005\"} ",
            &format!("le=\"-1\"}} 1\n{NAME}_bucket{{le=\"0.005\"}} "),
            "1 of its values are below 0",
        ),
        of(
            "a unit that is no time",
            "# HELP ",
            &format!("# UNIT {NAME} bytes\n# HELP "),
            "\"bytes\", which is not a unit of time",
        ),
        of("TYPE says gauge histogram", " histogram", " gaugehistogram", "a gauge histogram"),
    ]
}

/// Pages that were cut, or are no pages.
fn whole_pages() -> Vec<Case> {
    let good = page();
    let to = |words: &str| good[..good.find(words).unwrap()].to_owned();
    let packed = gzip(good.as_bytes());
    let utf_16: Vec<u8> = format!("\u{feff}{good}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    let foreign = format!("{good}other{{a=\"b");
    vec![
        refused(
            "cut in a bucket",
            good.clone(),
            to("1\"} ") + "1\"",
            "the text ends within this line, so the scrape was cut",
        ),
        refused("cut before a value", good.clone(), to("_sum ") + "_sum ", "the scrape was cut"),
        refused(
            "cut after a line",
            good.clone(),
            to(&format!("{NAME}_bucket{{le=\"+Inf")),
            "it has no bucket le=\"+Inf\"",
        ),
        refused("cut before the sum", good.clone(), to(&format!("{NAME}_sum")), "it has no _sum"),
        refused("cut in another metric", good.clone(), foreign, "the scrape was cut"),
        refused("first page cut", to("1\"} ") + "1\"", good.clone(), "the first scrape: line"),
        refused(
            "cut gzip",
            good.clone(),
            packed[..packed.len() / 2].to_vec(),
            "the compressed bytes were cut",
        ),
        refused(
            "broken gzip",
            good.clone(),
            b"\x1f\x8b\x08\x00abcdefgh\xff\xff\xff".to_vec(),
            "cannot decompress the scrape",
        ),
        refused(
            "zeros in gzip",
            good.clone(),
            gzip(&vec![b'\n'; (16 << 20) + 1]),
            "grows to more than 16 MiB",
        ),
        refused("UTF-16", good.clone(), utf_16, "it is UTF-16 text"),
        refused(
            "HTML",
            good.clone(),
            "<html>\n<body>404</body>\n</html>\n",
            "line 1: \"<html>\" is not a sample",
        ),
        refused("JSON", good.clone(), "{\"status\":\"success\"}\n", "line 1: "),
        refused("any bytes", good, vec![0x80; 500], "line 1: "),
    ]
}

/// The wanted histogram is not there.
fn missing() -> Vec<Case> {
    let of = |name: &str, wanted: &str, text: &str, words: &'static str| Case {
        wanted: wanted.to_owned(),
        ..refused(name, page(), text, words)
    };
    let bucket = |name: &str| format!("{name}_bucket{{le=\"1\"}} 1\n");
    let many: String =
        ["zz", "http_response_duration_seconds", "a", "http_requests"].iter().map(|n| bucket(n)).collect();
    let dozen: String = (0..12).map(|k| bucket(&format!("h{k:02}"))).collect();
    vec![
        of("missing: empty page", NAME, "", "the scrape has no histogram at all"),
        of("missing: comments only", NAME, "# HELP x y\n", "the scrape has no histogram at all"),
        of("missing: counters only", NAME, "up 1\nleaky_bucket 4\n", "the scrape has no histogram at all"),
        of(
            "missing: nearest first",
            NAME,
            &many,
            "choose among http_response_duration_seconds, http_requests, ",
        ),
        of("missing: many", "h03", &dozen.replace("h03", "i"), "and 4 more"),
        of("missing: summary", "r", "r{quantile=\"0.5\"} 1\nr_sum 3\nr_count 4\n", "it is a summary"),
        of("missing: no buckets", "r", "r_sum 3\nr_count 4\n", "a sum and a count, but no buckets"),
        of(
            "missing: gauge histogram",
            "g",
            "g_bucket{le=\"+Inf\"} 2\ng_gcount 2\ng_gsum 1\n",
            "a gauge histogram",
        ),
        of("missing: labels", &format!("{NAME}{{job=\"web\"}}"), &page(), "no series of it has these labels"),
        of(
            "missing: value of a label",
            "m{a=\"x\"}",
            "m_bucket{a=\"b\",le=\"1\"} 1\n",
            "choose among {a=\"b\"}",
        ),
        of(
            "missing: a name that ends in bytes",
            "m_bytes",
            "m_bytes_bucket{le=\"+Inf\"} 0\nm_bytes_sum 0\n",
            "not a unit of time",
        ),
    ]
}

/// Two pages that do not go together.
fn pairs() -> Vec<Case> {
    let all = times(3, 90);
    let style = |unit: &str| Style { name: "m", head: format!("# UNIT m {unit}\n"), ..Style::default() };
    let of = |name: &str, before: String, after: String, words| Case {
        wanted: "m".to_owned(),
        ..refused(name, before, after, words)
    };
    let bounds = |bounds: &[f64]| Style { name: "m", bounds: bounds.to_vec(), ..Style::default() };
    let pods = |a: &[f64], b: &[f64]| {
        Style { labels: "pod=\"a\",", ..bounds(a) }.page(&all)
            + &Style { labels: "pod=\"b\",", ..bounds(b) }.page(&all)
    };
    let far = format!("{}m_bucket{{le=\"7\"}} 0\n", bounds(&[0.1]).page(&all[..40]));
    let grown = bounds(&[9.0])
        .page(&all)
        .replace("_bucket{le=\"+Inf\"} 90", "_bucket{le=\"+Inf\"} 60")
        .replace("_count 90", "_count 60");
    let mut cases = vec![
        of(
            "units that change",
            style("seconds").page(&all[..9]),
            style("milliseconds").page(&all),
            "its unit changed from s to ms",
        ),
        of(
            "no common bound",
            bounds(&[0.07]).page(&all[..40]),
            bounds(&[0.05]).page(&all),
            "the two scrapes have no bound in common",
        ),
        of(
            "series without a common bound",
            String::new(),
            pods(&[0.05], &[0.07]),
            "its series have no bound in common",
        ),
        of(
            "a bucket that falls back to 0",
            String::new(),
            far,
            "values were 0.1 or less, but 0 were 7 or less",
        ),
        of("buckets beyond the last", String::new(), grown, "or less, but 60 were inf or less"),
    ];
    let given =
        of("a given unit of a missing histogram", page(), page(), "the scrape holds no such histogram");
    cases.push(Case { unit: Some(Unit::Milliseconds), ..given });
    cases
}

pub fn cases() -> Vec<Case> {
    [lines(), whole_pages(), missing(), pairs()].concat()
}
