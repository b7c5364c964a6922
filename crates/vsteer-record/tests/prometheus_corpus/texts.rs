//! Valid texts, as servers and tools write them.

use crate::case::{Case, NAME};
use crate::writer::{Style, gzip};
use vsteer_record::unit::Unit;

fn bytes(text: String) -> Vec<u8> {
    text.into_bytes()
}

/// Styles of the writer.
fn styles() -> Vec<Case> {
    let of = |name: &str, style: Style| style.case(name, bytes);
    let plain = Style::default;
    let tail = |tail| Style { tail, ..plain() };
    let le = |le| Style { le, ..plain() };
    let labels = |labels| Style { labels, ..plain() };
    vec![
        of("classic", plain()),
        of("no comments", Style { head: String::new(), ..plain() }),
        of("OpenMetrics", Style { end: "# EOF\n", le: |le| format!("{le:?}"), ..plain() }),
        of("EOF without a line feed", Style { end: "# EOF", ..plain() }),
        of("exemplars", tail(" # {trace_id=\"4bf92f\"} 0.043 1793520003.123")),
        of("exemplars without a time", tail(" # {trace_id=\"4bf92f\"} 0.043")),
        of("exemplars without labels", tail(" # {} 0.043")),
        of("exemplars with two labels and a time", tail(" 1793520003.1 # {a=\"x # }\",b=\"\"} 1e-3 1.5")),
        of("times with a fraction", tail(" 1793520003.123")),
        of("times in ms", tail(" 1793520003123")),
        of("times before 1970", tail(" -3982045")),
        of("blanks at the ends of lines", tail(" \t ")),
        of("bounds with zeros", le(|le| format!("{le:010.5}"))),
        of("bounds with exponents", le(|le| format!("{le:e}"))),
        of("bounds with a sign", le(|le| format!("+{le}"))),
        of("bounds in capitals", le(|le| format!("{le:E}"))),
        of("counts with exponents", Style { count: |n| format!("{:e}", n as f64), ..plain() }),
        of("counts with a fraction", Style { count: |n| format!("{n}.0"), ..plain() }),
        of("labels before le", labels("job=\"web\",path=\"/\",")),
        of("escapes", labels(r#"path="C:\\a\"b\nc, } x=",handler="/","#)),
        of("labels with signs", labels("path=\"a#b{c}=\\\"d\\\"\",")),
        of("labels in other scripts", labels("city=\"Zürich 東京\",")),
        of("empty labels", labels("a=\"\",")),
        of("quoted names of labels", labels("\"http.method\"=\"GET\",")),
        of("a bound of 0", Style { bounds: vec![0.0, 0.1, 1.0], ..plain() }),
        of("one bound", Style { bounds: vec![0.1], ..plain() }),
        of("only the infinite bound", Style { bounds: Vec::new(), ..plain() }),
        of("200 bounds", Style { bounds: (1..200).map(|k| 0.01 * f64::from(k)).collect(), ..plain() }),
        of("tiny and huge bounds", Style { bounds: vec![1e-9, 0.1, 1e18], ..plain() }),
        of("created", Style { end: "http_request_duration_seconds_created 1.7935e+09\n# EOF\n", ..plain() }),
    ]
}

/// Changes of the text that mean the same.
fn changes() -> Vec<Case> {
    let of = |name: &str, change: fn(String) -> Vec<u8>| Style::default().case(name, change);
    vec![
        of("CRLF", |t| t.replace('\n', "\r\n").into()),
        of("a byte order mark", |t| format!("\u{feff}{t}").into()),
        of("a byte order mark and CRLF", |t| format!("\u{feff}{}", t.replace('\n', "\r\n")).into()),
        of("gzip", |t| gzip(t.as_bytes())),
        of("gzip in two members", |t| {
            let (one, two) = t.as_bytes().split_at(t.len() / 2);
            [gzip(one), gzip(two)].concat()
        }),
        of("gzip of a byte order mark", |t| gzip(format!("\u{feff}{t}").as_bytes())),
        of("no line feed at the end", |t| t.trim_end().into()),
        of("empty lines", |t| t.replace('\n', "\n\n \n\t\n").into()),
        of("blanks before lines", |t| t.lines().map(|l| format!("  \t{l}\n")).collect::<String>().into()),
        of("tabs before values", |t| t.replace("} ", "}\t").into()),
        of("no blank before values", |t| t.replace("} ", "}").into()),
        of("blanks within braces", |t| t.replace("{le=", "{ le = ").replace("\"} ", "\" } ").into()),
        of("a blank before braces", |t| t.replace("{le=", " {le=").into()),
        of("a comma at the end", |t| t.replace("\"}", "\",}").into()),
        of("empty braces", |t| t.replace("_sum ", "_sum{} ").replace("_count ", "_count{} ").into()),
        of("le before labels", |t| t.replace("\"} ", "\",zone=\"a\"} ").into_bytes()).without_labels(),
        of("no count", |t| drop_lines(&t, "_count ")),
        of("lines in reverse", |t| t.lines().rev().map(|l| format!("{l}\n")).collect::<String>().into()),
        of("every line twice", |t| format!("{t}{t}").into()),
        of("every line twice, bounds otherwise", |t| {
            format!("{t}{}", t.replace("le=\"1\"", "le=\"1.0\"").replace("le=\"0.5\"", "le=\"5e-1\"")).into()
        }),
        of("infinity in lower case", |t| t.replace("+Inf", "inf").into()),
        of("infinity without a sign", |t| t.replace("+Inf", "Inf").into()),
        of("infinity in full", |t| t.replace("+Inf", "+infinity").into()),
        of("an empty bucket below 0", |t| format!("{NAME}_bucket{{le=\"-0.5\"}} 0\n{t}").into()),
        of("help that is not UTF-8", |t| [b"# HELP x \xff\xfe\n".as_slice(), t.as_bytes()].concat()),
        of("comments without a word", |t| format!("#\n# \n#comment\n{t}").into()),
        of("a unit as the name's", |t| format!("# UNIT {NAME} seconds\n{t}").into()),
        of("TYPE says untyped", |t| t.replace(" histogram", " untyped").into()),
    ]
}

fn drop_lines(text: &str, with: &str) -> Vec<u8> {
    text.lines().filter(|l| !l.contains(with)).map(|l| format!("{l}\n")).collect::<String>().into()
}

impl Case {
    /// The sum and count must have the buckets' labels.
    fn without_labels(mut self) -> Case {
        for page in [&mut self.before, &mut self.after] {
            let text = String::from_utf8(std::mem::take(page)).unwrap();
            let text = text.replace("_sum ", "_sum{zone=\"a\"} ").replace("_count ", "_count{zone=\"a\"} ");
            *page = text.into();
        }
        self
    }
}

/// Names with other characters.
fn names() -> Vec<Case> {
    let of = |name: &str, wanted: &str, change: fn(String) -> String| {
        let case = Style::default().case(name, |t| change(t).into());
        Case { wanted: wanted.to_owned(), ..case }
    };
    fn in_braces(text: String) -> String {
        text.replace(&format!("{NAME}_bucket{{"), "{\"http.server.duration.seconds_bucket\",")
            .replace(&format!("{NAME}_sum"), "{\"http.server.duration.seconds_sum\"}")
            .replace(&format!("{NAME}_count"), "{\"http.server.duration.seconds_count\"}")
    }
    vec![
        of("a quoted name", "http.server.duration.seconds", in_braces),
        of("a quoted name, wanted in quotes", "{\"http.server.duration.seconds\"}", in_braces),
        of(
            "a quoted name, wanted as a line has it",
            "{\"http.server.duration.seconds_bucket\",le=\"1\"}",
            in_braces,
        ),
        of("a quoted name after le", "http.server.duration.seconds", |t| {
            let mut lines = String::new();
            for line in in_braces(t).lines() {
                let last = line.split_once(",le=").and_then(|(name, rest)| {
                    let (le, count) = rest.split_once('}')?;
                    Some(format!("{{le={le},{}}}{count}", &name[1..]))
                });
                lines += &format!("{}\n", last.unwrap_or_else(|| line.to_owned()));
            }
            lines
        }),
        of("a bare name in quotes", NAME, |t| {
            t.replace(&format!("{NAME}_bucket{{"), &format!("{{\"{NAME}_bucket\","))
        }),
        of("a name with colons", "job:http_seconds", |t| t.replace(NAME, "job:http_seconds")),
        of("a name in another script", "{\"durée seconds\"}", |t| {
            t.replace(&format!("{NAME}_bucket{{"), "{\"durée seconds_bucket\",")
                .replace(&format!("{NAME}_sum"), "{\"durée seconds_sum\"}")
                .replace(&format!("{NAME}_count"), "{\"durée seconds_count\"}")
        }),
    ]
}

/// Units by name, by the page, and by the user.
fn units() -> Vec<Case> {
    let of = |name: &'static str, unit_s: f64| {
        let style = Style { name, unit_s, head: String::new(), ..Style::default() };
        style.case(&format!("unit of {name}"), bytes)
    };
    let mut all = vec![
        of("istio_request_duration_milliseconds", 1e-3),
        of("http_server_requests_ms", 1e-3),
        of("rpc_latency_microseconds", 1e-6),
        of("rpc_latency_us", 1e-6),
        of("rpc_latency_nanoseconds", 1e-9),
        of("rpc_latency_ns", 1e-9),
        of("job_duration_minutes", 60.0),
        // Assumed.
        of("rpc_latency", 1.0),
        of("rpc_latency_ms_histogram", 1.0),
        of("http_request_duration_by_dns", 1.0),
    ];
    let plain = |name: &'static str, unit_s: f64, head: &str| Style {
        name,
        unit_s,
        head: head.to_owned(),
        ..Style::default()
    };
    all.push(plain("latency", 1e-3, "# UNIT latency milliseconds\n").case("unit of the page: ms", bytes));
    all.push(plain("latency", 60.0, "# UNIT latency minutes\n").case("unit of the page: minutes", bytes));
    all.push(plain("latency", 1.0, "# UNIT other milliseconds\n").case("unit of another metric", bytes));
    for (unit, unit_s) in [
        (Unit::Nanoseconds, 1e-9),
        (Unit::Microseconds, 1e-6),
        (Unit::Milliseconds, 1e-3),
        (Unit::Seconds, 1.0),
    ] {
        let case = plain("envoy_cluster_upstream_rq_time", unit_s, "").case(&format!("given: {unit}"), bytes);
        all.push(Case { unit: Some(unit), ..case });
    }
    let case = plain(NAME, 1e-3, "").case("given against the name", bytes);
    all.push(Case { unit: Some(Unit::Milliseconds), ..case });
    all
}

pub fn cases() -> Vec<Case> {
    [styles(), changes(), names(), units()].concat()
}
