//! Are logs of all common servers read right, or refused with the true reason?
//!
//! Each input has the same 600 requests of one minute, as another server, collector or editor writes them. The right answers are
//! those that the lines were made from; dates come from jiff, which the reader does not use.

use jiff::tz::Offset;
use std::io::Write;
use std::path::Path;
use vsteer_record::access_log::{self, Format, Log, Said, Sure, plausible};
use vsteer_record::unit::Unit;

/// 2026-11-01 08:00:00 UTC.
const BEGIN_MS: i64 = 1_793_520_000_000;
const REQUESTS: i64 = 600;

/// A request: its number, when it ended (ms since 1970), how long it took (ms).
#[derive(Clone, Copy)]
struct R {
    i: i64,
    end: i64,
    took: i64,
}

fn requests() -> Vec<R> {
    (0..REQUESTS).map(|i| R { i, end: BEGIN_MS + 100 * i, took: 5 + i * 37 % 100 }).collect()
}

fn mean_s() -> f64 {
    requests().iter().map(|r| r.took as f64 / 1e3).sum::<f64>() / REQUESTS as f64
}

fn date(ms: i64, form: &str, east_s: i32) -> String {
    let zone = Offset::from_seconds(east_s).unwrap().to_time_zone();
    jiff::Timestamp::from_millisecond(ms).unwrap().to_zoned_datetime(zone).strftime(form).to_string()
}

fn clf(ms: i64) -> String {
    date(ms, "%d/%b/%Y:%H:%M:%S %z", 0)
}

fn iso(ms: i64) -> String {
    date(ms, "%Y-%m-%dT%H:%M:%S.%3fZ", 0)
}

fn s(ms: i64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

/// What must become of an input.
enum Then {
    /// All requests, of which so many have no duration, with so many lines skipped.
    Read { without: i64, skipped: u64 },
    /// The same, with a unit that was assumed: right, and said so.
    Assumed,
    /// The unit is assumed wrongly, so the comparison with the VM refuses it, and names the right one.
    WrongUnit(Unit),
    /// The unit is assumed wrongly, but so little off that it is only a warning.
    Warned,
    /// Refused, with these words.
    Refused(&'static str),
}

const WELL: Then = Then::Read { without: 0, skipped: 0 };

struct Input {
    name: &'static str,
    bytes: Vec<u8>,
    format: Option<&'static str>,
    unit: Option<Unit>,
    zone: Option<&'static str>,
    then: Then,
}

fn input(name: &'static str, line: impl Fn(R) -> String, then: Then) -> Input {
    let bytes = requests().into_iter().map(|r| line(r) + "\n").collect::<String>().into_bytes();
    Input { name, bytes, format: None, unit: None, zone: None, then }
}

impl Input {
    fn of(self, format: &'static str) -> Input {
        Input { format: Some(format), ..self }
    }

    fn changed(self, change: impl Fn(Vec<u8>) -> Vec<u8>) -> Input {
        Input { bytes: change(self.bytes), ..self }
    }
}

fn apache(r: R) -> String {
    format!(
        r#"10.0.0.{} - - [{}] "GET /a HTTP/1.1" 200 {} "-" "curl/8" {}"#,
        r.i % 250,
        clf(r.end - r.took),
        r.i,
        1000 * r.took
    )
}

fn common(r: R) -> String {
    format!(r#"10.0.0.1 - - [{}] "GET /a HTTP/1.1" 200 5 {}"#, clf(r.end - r.took), 1000 * r.took)
}

fn nginx_with(r: R, rest: &str) -> String {
    format!(r#"10.0.0.1 - - [{}] "GET /a HTTP/1.1" 200 {} "-" "curl/8" {rest}"#, clf(r.end), r.i)
}

fn nginx(r: R) -> String {
    nginx_with(r, &s(r.took))
}

fn of_apache() -> Vec<Input> {
    let swap = |from: &'static str, to: &'static str| move |r: R| apache(r).replace(from, to);
    vec![
        input("apache combined", apache, Then::Assumed),
        input("apache common", common, Then::Assumed),
        input("apache combined, named", apache, Then::Assumed).of("apache-combined"),
        input("apache common, named", common, Then::Assumed).of("apache"),
        input("apache, from httpd.conf", apache, WELL)
            .of(r#"%h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%{User-agent}i\" %D"#),
        input(
            "apache with its virtual host",
            |r| format!("www.example.com:443 {}", apache(r)),
            Then::Assumed,
        ),
        input(
            "apache common with its virtual host",
            |r| format!("www.example.com {}", common(r)),
            Then::Assumed,
        ),
        input(
            "apache, %T/%D",
            |r| apache(r).replace(&format!(" {}", 1000 * r.took), &format!(" 0/{}", 1000 * r.took)),
            WELL,
        ),
        input(
            "apache common, %T/%D",
            |r| common(r).replace(&format!(" 5 {}", 1000 * r.took), &format!(" 5 0/{}", 1000 * r.took)),
            WELL,
        ),
        input("apache, quotes in the request", swap("/a", r#"/\"x\""#), Then::Assumed),
        input("apache, a backslash at the end of the agent", swap("curl/8", r"Mozilla \\"), Then::Assumed),
        input(
            "apache, a name with a space",
            |r| if r.i % 2 == 0 { apache(r) } else { apache(r).replace("- - [", "- John Doe [") },
            Then::Assumed,
        ),
        input("apache, IPv6", swap("10.0.0.1 ", "2001:db8::1 "), Then::Assumed),
        input(
            "apache, +0530",
            |r| {
                apache(r).replace(&clf(r.end - r.took), &date(r.end - r.took, "%d/%b/%Y:%H:%M:%S %z", 19_800))
            },
            Then::Assumed,
        ),
        input("apache, a month in small letters", swap("/Nov/", "/nov/"), Then::Assumed),
        input("apache, lines end with CR LF", |r| apache(r) + "\r", Then::Assumed),
        input("apache, a byte order mark", apache, Then::Assumed)
            .changed(|b| [&[0xef, 0xbb, 0xbf][..], &b].concat()),
        input("apache, Latin-1", swap("/a", "/\u{fe}"), Then::Assumed)
            .changed(|b| b.into_iter().filter(|b| *b != 0xc3).collect()),
        input("apache, UTF-16", apache, Then::Refused("UTF-16"))
            .changed(|b| [vec![0xff, 0xfe], b.iter().flat_map(|b| [*b, 0]).collect()].concat()),
        input(
            "apache, blank lines",
            |r| if r.i % 10 == 0 { apache(r) + "\n\n" } else { apache(r) },
            Then::Assumed,
        ),
        input(
            "apache, zeros after a crash",
            |r| if r.i == 300 { apache(r) + "\n" + &"\0".repeat(200) } else { apache(r) },
            Then::Read { without: 0, skipped: 1 },
        )
        .of("%h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%{User-agent}i\" %D"),
        input("apache, %{ms}T", |r| format!("{} {}", 1000 * (r.end - r.took), r.took), WELL)
            .of("%{usec}t %{ms}T"),
        input("apache, not in order", |r| apache(requests()[(r.i * 7 % REQUESTS) as usize]), Then::Assumed),
        input(
            "apache without a duration",
            |r| common(r).rsplit_once(' ').unwrap().0.to_owned(),
            Then::Refused("do not say how long a request took"),
        ),
        input(
            "apache combined without a duration",
            |r| apache(r).rsplit_once(' ').unwrap().0.to_owned(),
            Then::Refused("do not say how long a request took"),
        ),
        input(
            "apache, a dash for the duration",
            |r| {
                if r.i % 10 == 0 {
                    apache(r).replace(&format!(" {}", 1000 * r.took), " -")
                } else {
                    apache(r)
                }
            },
            Then::Read { without: 60, skipped: 0 },
        )
        .of("%h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%{User-agent}i\" %D"),
        input(
            "apache, too many other lines",
            |r| if r.i % 20 == 0 { "AH00489: resuming".to_owned() } else { apache(r) },
            Then::Refused("--allow-skipped"),
        ),
        input("apache, a format without a duration", apache, Then::Refused("how long a request took"))
            .of("%h %l %u %t \"%r\""),
        input("apache, read as nginx", apache, Then::Refused("fits these lines: apache-combined"))
            .of("nginx"),
        input("no log at all", |r| format!("line {}", r.i), Then::Refused("cannot recognise the format")),
        input("a ZIP archive", |_| "PK\u{3}\u{4}\u{14}\0".to_owned(), Then::Refused("it is a ZIP archive")),
        input("a PDF document", |_| "%PDF-1.7\n%\u{e2}".to_owned(), Then::Refused("it is a PDF document"))
            .changed(|b| b.into_iter().filter(|b| *b != 0xc3).collect()),
        input(
            "an HTML page",
            |_| "<!DOCTYPE html><title>Log in</title>".to_owned(),
            Then::Refused("it is an HTML page"),
        ),
        input(
            "a batch file of esxtop",
            |_| r#""(PDH-CSV 4.0) (UTC)(0)","\\esx\Group Cpu(1:vm)\% Ready""#.to_owned(),
            Then::Refused("batch file of esxtop"),
        ),
        input("nothing", |_| String::new(), Then::Refused("holds no request")),
    ]
}

fn wrong_units() -> Vec<Input> {
    let tomcat = |r: R| format!(r#"10.0.0.1 - - [{}] "GET / HTTP/1.1" 200 5 "-" "x" {}"#, clf(r.end), r.took);
    let tomcat_common = |r: R| format!(r#"10.0.0.1 - - [{}] "GET / HTTP/1.1" 200 5 {}"#, clf(r.end), r.took);
    let slow =
        |r: R| format!(r#"10.0.0.1 - - [{}] "GET / HTTP/1.1" 200 5 "-" "x" {}"#, clf(r.end), 1 + r.i % 3);
    vec![
        input("tomcat, not named", tomcat, Then::WrongUnit(Unit::Milliseconds)),
        input("tomcat common, not named", tomcat_common, Then::WrongUnit(Unit::Milliseconds)),
        input("tomcat, named", tomcat, WELL).of("tomcat"),
        input("tomcat common, named", tomcat_common, WELL).of("tomcat"),
        Input { unit: Some(Unit::Milliseconds), ..input("tomcat, with its unit", tomcat, WELL) },
        input("tomcat, named as Apache's", tomcat, Then::WrongUnit(Unit::Milliseconds)).of("apache-combined"),
        input("apache, %T in seconds", slow, Then::WrongUnit(Unit::Seconds)),
        input(
            "nginx, whole milliseconds",
            |r| nginx_with(r, &r.took.to_string()),
            Then::WrongUnit(Unit::Milliseconds),
        ),
        input(
            "JSON, duration in us",
            |r| format!(r#"{{"ts":{},"duration":{}}}"#, s(r.end), 1000 * r.took),
            Then::WrongUnit(Unit::Microseconds),
        ),
        input(
            "JSON, latency as a fraction of ms",
            |r| format!(r#"{{"ts":{},"latency":{}.25}}"#, s(r.end), r.took),
            Then::Assumed,
        ),
        input(
            "JSON, seconds as whole numbers",
            |r| format!(r#"{{"ts":{},"elapsed":{}}}"#, s(r.end), 1 + r.i % 3),
            Then::Warned,
        ),
        Input {
            unit: Some(Unit::Microseconds),
            ..input(
                "JSON, duration in us, with its unit",
                |r| format!(r#"{{"ts":{},"duration":{}}}"#, s(r.end), 1000 * r.took),
                WELL,
            )
        },
    ]
}

fn of_nginx() -> Vec<Input> {
    let log_format = r#"log_format main escape=default '$remote_addr - $remote_user [$time_local] "$request" '
        '$status $body_bytes_sent "$http_referer" "$http_user_agent" $request_time';"#;
    let dashes = |r: R| if r.i % 10 == 0 { nginx_with(r, "-") } else { nginx(r) };
    vec![
        input("nginx", nginx, WELL),
        input("nginx, from nginx.conf", nginx, WELL).of(log_format),
        input("nginx, named", nginx, WELL).of("nginx"),
        input("nginx, dashes", dashes, Then::Read { without: 60, skipped: 0 }),
        input("nginx, in quotation marks", |r| nginx_with(r, &format!("\"{}\"", s(r.took))), WELL),
        input(
            "nginx, rt=",
            |r| nginx_with(r, &format!(r#"rt={} uct="0.001, 0.002" uht="-" urt="0.001""#, s(r.took))),
            WELL,
        ),
        input("nginx, with upstreams", |r| nginx_with(r, &format!("{} 0.001, 0.002 .", s(r.took))), WELL),
        input(
            "nginx, forwarded for",
            |r| nginx_with(r, &format!(r#""10.1.1.1, 10.2.2.2" {}"#, s(r.took))),
            WELL,
        ),
        input(
            "nginx, common",
            |r| format!(r#"10.0.0.1 - - [{}] "GET / HTTP/1.1" 200 5 {}"#, clf(r.end), s(r.took)),
            WELL,
        ),
        input("nginx, \\x22", |r| nginx(r).replace("/a", r"/\x22q\x22"), WELL),
        input(
            "nginx, garbage for a request",
            |r| if r.i % 7 == 0 { nginx(r).replace("GET /a HTTP/1.1", r"\x16\x03\x01") } else { nginx(r) },
            WELL,
        ),
        input(
            "nginx, no request",
            |r| if r.i % 7 == 0 { nginx(r).replace("GET /a HTTP/1.1", "") } else { nginx(r) },
            WELL,
        ),
        input("nginx, $msec", |r| format!("{} {} GET", s(r.end), s(r.took)), WELL)
            .of("$msec $request_time $request_method"),
        input(
            "nginx, $time_iso8601",
            |r| format!("{} {}", date(r.end, "%Y-%m-%dT%H:%M:%S%:z", 32_400), s(r.took)),
            WELL,
        )
        .of("$time_iso8601 $request_time"),
        input(
            "nginx, JSON",
            |r| format!(r#"{{"time_local":"{}","status":"200","request_time":"{}"}}"#, clf(r.end), s(r.took)),
            WELL,
        ),
        input(
            "nginx, JSON with \\x22",
            |r| {
                format!(
                    r#"{{"time_iso8601":"{}","agent":"a\x22b","request_time":{}}}"#,
                    iso(r.end),
                    s(r.took)
                )
            },
            WELL,
        ),
        input(
            "nginx, JSON with a comma at its end",
            |r| format!(r#"{{"msec":{},"request_time":{},}}"#, s(r.end), s(r.took)),
            WELL,
        ),
    ]
}

fn of_proxies() -> Vec<Input> {
    let haproxy = |r: R| {
        format!(
            r#"10.0.0.1:5 [{}] fe be/s1 0/0/1/{}/{} 200 11 - - ---- 2/1/0/0/0 0/0 "GET / HTTP/1.1""#,
            date(r.end - r.took, "%d/%b/%Y:%H:%M:%S.%3f", 0),
            r.took - 1,
            r.took
        )
    };
    let local = |r: R| {
        format!(
            r#"10.0.0.1:5 [{}] fe be/s1 0/0/1/{}/{} 200 11 - - ---- 2/1/0/0/0 0/0 "GET / HTTP/1.1""#,
            date(r.end - r.took, "%d/%b/%Y:%H:%M:%S.%3f", 32_400),
            r.took - 1,
            r.took
        )
    };
    let alb = |r: R| {
        format!(
            r#"http {} app/x/1 10.0.0.1:4 10.0.0.2:80 0.001 {} 0.001 200 200 1 2 "GET http://x:80/ HTTP/1.1" "curl" - - arn"#,
            iso(r.end),
            s(r.took - 2)
        )
    };
    let envoy = |r: R| {
        format!(
            r#"[{}] "GET /x HTTP/2" 200 - 0 12 {} {} "-" "curl" "id" "web" "10.0.0.1:80""#,
            iso(r.end - r.took),
            r.took,
            r.took - 1
        )
    };
    let envoy_json = |r: R, took: String| {
        format!(
            r#"{{"method":"GET","response_code":200,"duration":{took},"start_time":"{}"}}"#,
            iso(r.end - r.took)
        )
    };
    let header = |fields: &str| {
        format!("#Software: Microsoft Internet Information Services 10.0\n#Version: 1.0\n#Fields: {fields}\n")
    };
    let iis = |r: R| {
        let line = format!(
            "{} 10.0.0.9 GET /a - 80 - 10.0.0.1 curl/8 200 0 0 {}",
            date(r.end, "%Y-%m-%d %H:%M:%S", 0),
            r.took
        );
        if r.i % 200 == 0 {
            header(
                "date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) sc-status sc-substatus sc-win32-status time-taken",
            ) + &line
        } else {
            line
        }
    };
    let cloudfront = |r: R| {
        let line = format!("{}\tLAX1\t2390282\t{}", date(r.end, "%Y-%m-%d\t%H:%M:%S", 0), s(r.took));
        if r.i == 0 {
            format!("#Version: 1.0\n#Fields: date time x-edge-location sc-bytes time-taken\n{line}")
        } else {
            line
        }
    };
    let traefik = |r: R| {
        format!(
            r#"{{"Duration":{},"OriginDuration":1,"StartUTC":"{}","level":"info","time":"{}"}}"#,
            1_000_000 * r.took,
            iso(r.end - r.took),
            date(r.end, "%Y-%m-%dT%H:%M:%SZ", 0)
        )
    };
    vec![
        input("HAProxy in syslog", |r| format!("Nov  1 08:00:00 lb haproxy[7]: {}", haproxy(r)), WELL),
        input("HAProxy in syslog of ISO times", |r| format!("{} lb haproxy[7]: {}", iso(r.end), haproxy(r)), WELL),
        input("HAProxy", haproxy, WELL),
        Input { zone: Some("+09:00"), ..input("HAProxy, Korean time", local, WELL) },
        Input { zone: Some("Asia/Seoul"), ..input("HAProxy, Korean time by name", local, WELL) },
        input("HAProxy, TCP", |r| format!(r"10.0.0.1:5 [{}] fe be/s1 0/1/{} 212 -- 0/0/0/0/3 0/0", date(r.end - r.took, "%d/%b/%Y:%H:%M:%S.%3f", 0), r.took), WELL),
        input("HAProxy, aborted requests", |r| if r.i % 10 == 0 { haproxy(r).replace(&format!("/{} 200", r.took), "/-1 503") } else { haproxy(r) }, Then::Read { without: 60, skipped: 0 }),
        input("ALB", alb, WELL),
        input("ALB, failed requests", |r| if r.i % 10 == 0 { format!(r#"http {} app/x/1 10.0.0.1:4 - -1 -1 -1 502 - 1 2 "GET / HTTP/1.1" "curl""#, iso(r.end)) } else { alb(r) }, Then::Read { without: 60, skipped: 0 }),
        input("ALB, all failed", |r| format!(r#"http {} app/x/1 10.0.0.1:4 - -1 -1 -1 502 - 1 2 "GET / HTTP/1.1" "curl""#, iso(r.end)), Then::Refused("cannot recognise")),
        input("ELB", |r| alb(r).replacen("http ", "", 1), WELL),
        input("Envoy", envoy, WELL),
        input("Envoy, its own format", envoy, WELL).of(r#"[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %REST%"#),
        input("Istio", |r| format!(r#"[{}] "GET /x HTTP/1.1" 200 - via_upstream - "-" 0 12 {} {} "-" "curl" "id" "web""#, iso(r.end - r.took), r.took, r.took - 1), WELL),
        input("Envoy, JSON", |r| envoy_json(r, r.took.to_string()), WELL),
        input("Envoy, JSON of strings", |r| envoy_json(r, format!("\"{}\"", r.took)), WELL),
        input("Envoy, JSON with dashes", |r| envoy_json(r, if r.i % 5 == 0 { "\"-\"".to_owned() } else { format!("\"{}\"", r.took) }), Then::Read { without: 120, skipped: 0 }),
        input("Traefik, JSON", traefik, WELL),
        input("Traefik, CLF", |r| format!(r#"10.0.0.1 - - [{}] "GET / HTTP/1.1" 200 5 "-" "curl" {} "web@docker" "http://172.17.0.3:80" {}ms"#, clf(r.end - r.took), r.i, r.took), WELL),
        input("IIS", iis, WELL),
        input("IIS, named", iis, WELL).of("iis"),
        input("IIS without time-taken", |r| if r.i == 0 { "#Fields: date time c-ip\n".to_owned() + &date(r.end, "%Y-%m-%d %H:%M:%S ::1", 0) } else { date(r.end, "%Y-%m-%d %H:%M:%S ::1", 0) }, Then::Refused("lacks one of the columns")),
        input("CloudFront", cloudfront, Then::Assumed),
    ]
}

fn of_json() -> Vec<Input> {
    let caddy = |r: R, took: String| {
        format!(
            r#"{{"level":"info","ts":{},"logger":"http.log.access","msg":"handled request","request":{{"method":"GET"}},"duration":{took},"status":200}}"#,
            s(r.end)
        )
    };
    let plain = |r: R, time: String| format!(r#"{{"time":"{time}","duration_ms":{}}}"#, r.took);
    vec![
        input("Caddy", |r| caddy(r, s(r.took)), WELL),
        input(
            "Caddy, with other messages",
            |r| {
                if r.i % 3 == 0 {
                    format!(r#"{{"level":"info","ts":{},"msg":"autosaved config"}}"#, s(r.end))
                } else {
                    caddy(r, s(r.took))
                }
            },
            Then::Read { without: 200, skipped: 0 },
        ),
        input("Caddy, durations as text", |r| caddy(r, format!("\"{}ms\"", r.took)), WELL),
        input(
            "Caddy, wall time",
            |r| {
                caddy(r, s(r.took)).replace(
                    &format!("\"ts\":{}", s(r.end)),
                    &format!("\"ts\":\"{}\"", date(r.end, "%Y/%m/%d %H:%M:%S.%3f", 0)),
                )
            },
            WELL,
        ),
        input(
            "Go's slog",
            |r| {
                format!(
                    r#"{{"time":"{}","level":"INFO","msg":"request","duration":{}}}"#,
                    iso(r.end),
                    1_000_000 * r.took
                )
            },
            Then::Assumed,
        ),
        input("zap, Go durations", |r| format!(r#"{{"ts":{},"duration":"{}ms"}}"#, s(r.end), r.took), WELL),
        input(
            "pino",
            |r| {
                format!(
                    r#"{{"level":30,"time":{},"pid":1,"responseTime":{},"msg":"request completed"}}"#,
                    r.end, r.took
                )
            },
            WELL,
        ),
        input(
            "gunicorn, seconds as text",
            |r| format!(r#"{{"timestamp":"{}","duration":"{}s"}}"#, iso(r.end), s(r.took)),
            WELL,
        ),
        input(
            "ECS",
            |r| format!(r#"{{"@timestamp":"{}","event":{{"duration":{}}}}}"#, iso(r.end), 1_000_000 * r.took),
            WELL,
        ),
        input(
            "ECS, flat",
            |r| format!(r#"{{"@timestamp":"{}","event.duration":{}}}"#, iso(r.end), 1_000_000 * r.took),
            WELL,
        ),
        input("JSON, +0900", |r| plain(r, date(r.end, "%Y-%m-%dT%H:%M:%S.%3f%z", 32_400)), WELL),
        input("JSON, +09", |r| plain(r, date(r.end, "%Y-%m-%dT%H:%M:%S.%3f+09", 32_400)), WELL),
        input("JSON, a space and a comma", |r| plain(r, date(r.end, "%Y-%m-%d %H:%M:%S,%3f+00:00", 0)), WELL),
        Input {
            zone: Some("Asia/Seoul"),
            ..input("JSON, no zone", |r| plain(r, date(r.end, "%Y-%m-%d %H:%M:%S.%3f", 32_400)), WELL)
        },
        input("JSON, whole seconds", |r| plain(r, date(r.end, "%Y-%m-%dT%H:%M:%SZ", 0)), WELL),
        input(
            "JSON, us since 1970",
            |r| format!(r#"{{"ts":{},"duration_us":{}}}"#, 1000 * r.end, 1000 * r.took),
            WELL,
        ),
        input(
            "JSON, an exponent",
            |r| format!(r#"{{"ts":{:e},"duration_s":{:e}}}"#, r.end as f64 / 1e3, r.took as f64 / 1e3),
            WELL,
        ),
        input(
            "JSON, keys of one's own",
            |r| format!(r#"{{"at":"{}","http":{{"ms":{}}}}}"#, iso(r.end - r.took), r.took),
            WELL,
        )
        .of("json:start=at,duration=http.ms:ms"),
        input(
            "JSON, unknown keys",
            |r| format!(r#"{{"at":"{}","ms":{}}}"#, iso(r.end), r.took),
            Then::Refused("--format json:time="),
        ),
        input(
            "JSON, after the start of a program",
            |r| if r.i < 5 { "starting up".to_owned() } else { plain(r, iso(r.end)) },
            Then::Read { without: 0, skipped: 5 },
        ),
        input(
            "JSON, after a long start",
            |r| if r.i < 110 { "starting up".to_owned() } else { plain(r, iso(r.end)) },
            Then::Refused("--allow-skipped"),
        ),
        input("JSON, read as nginx", |r| plain(r, iso(r.end)), Then::Refused("fits these lines: json"))
            .of("nginx"),
    ]
}

fn packed(bytes: &[u8], by: &str) -> Vec<u8> {
    match by {
        "gzip" => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            out.write_all(bytes).unwrap();
            out.finish().unwrap()
        }
        "bzip2" => {
            let mut out = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            out.write_all(bytes).unwrap();
            out.finish().unwrap()
        }
        _ => ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest),
    }
}

fn quoted(line: &str) -> String {
    serde_json::to_string(&format!("{line}\n")).unwrap()
}

fn wrapped() -> Vec<Input> {
    let cut = |b: Vec<u8>| {
        let mut packed = packed(&b, "gzip");
        packed.truncate(packed.len() / 2);
        packed
    };
    let mut all = vec![
        input("Kubernetes", |r| format!("{} stdout F {}", iso(r.end), nginx(r)), WELL),
        input(
            "Kubernetes, JSON",
            |r| format!(r#"{} stdout F {{"ts":{},"duration_s":{}}}"#, iso(r.end), s(r.end), s(r.took)),
            WELL,
        ),
        input(
            "Docker",
            |r| format!(r#"{{"log":{},"stream":"stdout","time":"{}"}}"#, quoted(&nginx(r)), iso(r.end)),
            WELL,
        ),
        input(
            "Docker, JSON",
            |r| {
                format!(
                    r#"{{"log":{},"stream":"stdout","time":"{}"}}"#,
                    quoted(&format!(r#"{{"ts":{},"duration_s":{}}}"#, s(r.end), s(r.took))),
                    iso(r.end)
                )
            },
            WELL,
        ),
        input(
            "journald",
            |r| {
                format!(
                    r#"{{"__REALTIME_TIMESTAMP":"{}","PRIORITY":"6","MESSAGE":{}}}"#,
                    1000 * r.end,
                    quoted(&nginx(r))
                )
            },
            WELL,
        ),
        input("syslog", |r| format!("Nov  1 08:00:00 web nginx: {}", nginx(r)), WELL),
        input("syslog with a priority", |r| format!("<190>Nov  1 08:00:00 web nginx[5]: {}", nginx(r)), WELL),
        input("gzip, cut off", nginx, Then::Refused("cannot read")).changed(cut),
    ];
    for (by, name, json) in [
        ("gzip", "nginx, gzip", "pino, gzip"),
        ("bzip2", "nginx, bzip2", "pino, bzip2"),
        ("zstd", "nginx, Zstandard", "pino, Zstandard"),
    ] {
        all.push(input(name, nginx, WELL).changed(|b| packed(&b, by)));
        all.push(
            input(json, |r| format!(r#"{{"time":{},"responseTime":{}}}"#, r.end, r.took), WELL)
                .changed(|b| packed(&b, by)),
        );
    }
    all
}

/// What the VM did: 8 ms of CPU time for each request.
fn seen(log: &Log) -> plausible::Seen {
    let (requests, took_s) = log.wanted;
    plausible::Seen {
        requests,
        mean_s: took_s / requests.max(1) as f64,
        cpu_s: 0.008 * requests as f64,
        ready_s: 0.6,
        length_s: 60.0,
    }
}

/// What is wrong with how an input was read.
fn wrong(input: &Input, folder: &Path) -> Option<String> {
    let file = folder.join("access.log");
    std::fs::write(&file, &input.bytes).unwrap();
    let said = || {
        Ok::<_, vsteer_core::Fault>(Said {
            format: input.format.map(Format::parse).transpose()?,
            unit: input.unit,
            zone: input.zone.map(|zone| access_log::zone(zone).unwrap()),
        })
    };
    let read = said().and_then(|said| access_log::read(&[&file], &said, &[], false));
    let log = match (read, &input.then) {
        (Err(fault), Then::Refused(why)) => {
            let text = fault.to_string();
            return (!text.contains(why)).then(|| format!("refused, but not because {why:?}: {text}"));
        }
        (Err(fault), _) => return Some(format!("refused: {fault}")),
        (Ok(log), Then::Refused(why)) => {
            return Some(format!("read, not refused because {why:?}: {:?}", log.files));
        }
        (Ok(log), _) => log,
    };
    let (unit, sure) = log.unit.unwrap();
    let is_sure = matches!(sure, Sure::Known | Sure::Stated);
    let checked = plausible::check("the log", unit, sure, &seen(&log));
    let (without, skipped) = match input.then {
        Then::WrongUnit(right) => {
            let Err(fault) = checked else {
                return Some(format!("a wrong unit is not refused: {unit}, {checked:?}"));
            };
            let help = format!("--unit {right}");
            return (!fault.to_string().contains(&help))
                .then(|| format!("does not name the unit {right}: {fault}"));
        }
        Then::Warned => {
            let is_warned =
                matches!(&checked, Ok(Some(warning)) if warning.contains("check that its durations are in"));
            return (is_sure || !is_warned).then(|| format!("no warning: {checked:?}"));
        }
        Then::Read { without, skipped } if is_sure => (without, skipped),
        Then::Assumed if !is_sure => (0, 0),
        _ => return Some(format!("the unit {unit} is {sure:?}")),
    };
    if let Err(fault) = checked {
        return Some(format!("a right unit is refused: {fault}"));
    }
    let skips: u64 = log.files.iter().map(|file| file.skipped).sum();
    let n = REQUESTS - without - if skipped > 1 { skipped as i64 } else { 0 };
    if (log.all as i64, skips) != (n, skipped) {
        return Some(format!("{} requests and {skips} skipped lines, not {n} and {skipped}", log.all));
    }
    let (first, last) = log.ended_ns.unwrap();
    let off_s = (first as f64 / 1e9 - BEGIN_MS as f64 / 1e3)
        .abs()
        .max((last as f64 / 1e9 - (BEGIN_MS as f64 / 1e3 + 59.9)).abs());
    let mean = log.wanted.1 / log.wanted.0 as f64;
    // Logs with whole seconds are spread over that second, and some inputs lack the first or last request.
    if off_s > 2.5 + 0.1 * (REQUESTS - n) as f64 || n == REQUESTS && (mean - mean_s()).abs() > 0.0006 {
        return Some(format!("the ends are {off_s:.3} s off, the mean is {mean:.6} s for {:.6}", mean_s()));
    }
    None
}

#[test]
fn every_log_is_read_right_or_refused_with_the_true_reason() {
    let all: Vec<Input> = [of_apache(), wrong_units(), of_nginx(), of_proxies(), of_json(), wrapped()]
        .into_iter()
        .flatten()
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let faults: Vec<String> = all
        .iter()
        .filter_map(|input| wrong(input, folder.path()).map(|why| format!("{}: {why}", input.name)))
        .collect();
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), all.len(), faults.join("\n"));
    assert!(all.len() >= 110, "{} inputs", all.len());
}
