//! Does `vsteer estimate` say of what a real Prometheus server stored what it says of the same scrapes in files?
//!
//! The first test fills a server with `promtool`, so that its samples have the times of a simulated recording. In the second
//! one a server scrapes classic and native histograms, and each difference is compared with that of the pages it was sent.
//! Both need Debian's package `prometheus`.

#[path = "common/program.rs"]
mod program;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};
use vsteer_record::prometheus::{Between, Histogram, Scrape};

const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// A simulated recording's clock begins at 0, and it with the warm-up's end, s.
const FROM_S: f64 = 5.0;
const BOUNDS: [(f64, &str); 5] =
    [(0.005, "0.005"), (0.01, "0.01"), (0.025, "0.025"), (0.05, "0.05"), (f64::INFINITY, "+Inf")];

fn main() -> ExitCode {
    let installed = || Command::new("promtool").arg("--version").output().is_ok();
    let trial = |name: &str, test: fn() -> Result<(), Failed>| {
        Trial::ignorable_test(name, move || match installed() {
            true => test().map(|()| Completion::Completed),
            false => Ok(Completion::ignored_with("Prometheus is not installed")),
        })
    };
    let trials = vec![
        trial("a_server_says_what_saved_scrapes_say", estimates_are_equal),
        trial("stored_differences_are_those_of_the_pages", differences_are_equal),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A Prometheus server that ends with this value.
struct Server {
    child: Child,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// In this folder, which holds its data, with this configuration.
    fn start(folder: &Path, config: &str) -> Result<Server, Failed> {
        std::fs::write(folder.join("prometheus.yml"), config)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = Command::new("prometheus")
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            // Older samples would be removed.
            .args(["--storage.tsdb.retention.time=100y", "--enable-feature=native-histograms"])
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.join("prometheus.log"))?)
            .spawn()?;
        let server = Server { child, url: format!("http://127.0.0.1:{port}") };
        let end = Instant::now() + STARTS_WITHIN;
        while !server.is_ready(port) {
            if Instant::now() > end {
                return Err(std::fs::read_to_string(folder.join("prometheus.log"))?.into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(server)
    }

    fn is_ready(&self, port: u16) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
        let mut answer = [0; 12];
        stream.write_all(b"GET /-/ready HTTP/1.0\r\n\r\n").is_ok()
            && stream.read_exact(&mut answer).is_ok()
            && answer.ends_with(b" 200")
    }
}

/// Response times, s, from 4 ms on (MMIX's generator).
fn times(seed: u64, n: usize) -> Vec<f64> {
    let mut state = seed;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    };
    (0..n).map(|_| 0.004 - 0.008 * draw().ln()).collect()
}

/// The lines of a histogram after these response times: names, labels and values.
fn lines(labels: &str, took: &[f64]) -> Vec<(String, String)> {
    let bucket = |(le, name): &(f64, &str)| {
        let upto = took.iter().filter(|t| *t <= le).count();
        (format!("http_seconds_bucket{{{labels},le=\"{name}\"}}"), upto.to_string())
    };
    let sum = took.iter().sum::<f64>().to_string();
    let mut all: Vec<_> = BOUNDS.iter().map(bucket).collect();
    all.push((format!("http_seconds_sum{{{labels}}}"), sum));
    all.push((format!("http_seconds_count{{{labels}}}"), took.len().to_string()));
    all
}

/// Fills a server's data with scrapes every 2 s, and a folder with the same ones. The server was started again at 40 s.
fn fill(folder: &Path) -> Result<(), Failed> {
    let took = times(1, 4_000);
    std::fs::create_dir(folder.join("scrapes"))?;
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for k in 0..=31_usize {
        let at_s = FROM_S - 1.0 + 2.0 * k as f64;
        let first = if at_s > 40.0 { 1_800 } else { 0 };
        let until = 100 * k + 7 * (k % 5);
        let mut page = lines("job=\"web\",instance=\"a:1\"", &took[first..until]);
        // Another method was asked for later.
        if k > 8 {
            page.extend(lines("job=\"web\",instance=\"a:1\",method=\"put\"", &took[900..until]));
        }
        page.push(("up{job=\"web\",instance=\"a:1\"}".to_owned(), "1".to_owned()));
        let text: String = page.iter().map(|(name, value)| format!("{name} {value}\n")).collect();
        let file = folder.join(format!("scrapes/{k:02}.prom"));
        std::fs::write(&file, text)?;
        let file = std::fs::File::options().write(true).open(&file)?;
        file.set_modified(UNIX_EPOCH + Duration::from_secs_f64(at_s))?;
        for (name, value) in page {
            let line = format!("{name} {value} {at_s:.3}\n");
            all.entry(name).or_default().push(line);
        }
    }
    // promtool wants the lines of a series together.
    let lines: String = all.into_values().flatten().collect();
    let text = format!("{lines}# EOF\n");
    std::fs::write(folder.join("all.txt"), text)?;
    let made = Command::new("promtool")
        .args(["tsdb", "create-blocks-from", "openmetrics", "all.txt", "data"])
        .current_dir(folder)
        .output()?;
    if made.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&made.stderr).as_ref().into()) }
}

fn vsteer(words: &[&str]) -> Result<Output, Failed> {
    Ok(program::vsteer().args(words).output()?)
}

fn estimates_are_equal() -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/web-servers.toml");
    let path = |name: &str| dir.path().join(name).to_str().unwrap_or_default().to_owned();
    let recording = path("host.vsteer");
    assert!(vsteer(&["simulate", scenario.to_str().unwrap_or_default(), "-o", &recording])?.status.success());
    fill(dir.path())?;
    let server = Server::start(dir.path(), "scrape_configs: []\n")?;
    let run = |source: &str, more: &[&str]| {
        let web = format!("web-1={source}");
        vsteer(&[&["estimate", &web, "--from", &recording, "--json"], more].concat())
    };
    let said = |out: &Output| String::from_utf8_lossy(&out.stderr).into_owned();
    for more in [
        &["--histogram", "http_seconds"][..],
        &["--histogram", "http_seconds{job=\"web\"}", "--interval", "20s"],
        &["--histogram", "web-1=http_seconds{method=\"put\"}", "--interval", "30s", "--unit", "ms"],
    ] {
        let (saved, stored) = (run(&path("scrapes"), more)?, run(&server.url, more)?);
        assert!(saved.status.success() && stored.status.success(), "{}{}", said(&saved), said(&stored));
        let json = |out: &Output| serde_json::from_slice::<Value>(&out.stdout).ok();
        assert_eq!(json(&saved), json(&stored), "{more:?}: {}", said(&stored));
        assert_eq!(said(&stored).contains("the counters were reset"), said(&saved).contains("were reset"));
    }
    let first = run(&server.url, &["--histogram", "http_seconds"])?;
    assert!(
        first.status.success() && said(&first).contains("at 42.000: the counters were reset"),
        "{}",
        said(&first)
    );
    let token = run(&path("scrapes"), &["--histogram", "http_seconds", "--token-file", &path("token")])?;
    assert!(
        !token.status.success() && said(&token).contains("no VM has a Prometheus server"),
        "{}",
        said(&token)
    );
    for (source, histogram, says) in [
        (server.url.clone(), "http_second", "choose among http_seconds"),
        (server.url.clone(), "http_seconds{job=\"db\"}", "choose among {instance=\"a:1\",job=\"web\"}"),
        (format!("{}/x", server.url), "http_seconds", "give the address of a Prometheus server"),
        ("http://127.0.0.1:1".to_owned(), "http_seconds", "check that the server runs"),
    ] {
        let out = run(&source, &["--histogram", histogram])?;
        assert!(!out.status.success() && said(&out).contains(says), "{histogram}: {}", said(&out));
    }
    Ok(())
}

/// A field of a protobuf message: bytes, a number, and a floating-point number.
fn bytes(number: u8, value: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2][..], &varint(value.len() as u64), value].concat()
}

fn uint(number: u8, value: u64) -> Vec<u8> {
    [&[number << 3][..], &varint(value)].concat()
}

fn double(number: u8, value: f64) -> Vec<u8> {
    [&[number << 3 | 1][..], &value.to_le_bytes()].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut all = Vec::new();
    while value > 0x7f {
        all.push(value as u8 | 0x80);
        value >>= 7;
    }
    all.push(value as u8);
    all
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

/// A page with a classic and a native histogram of these times, each with the schema's 8 buckets per octave.
fn page(took: &[f64]) -> Vec<u8> {
    let common = [uint(1, took.len() as u64), double(2, took.iter().sum())].concat();
    let upto = |le: f64| took.iter().filter(|t| **t <= le).count() as u64;
    let buckets = BOUNDS.iter().map(|(le, _)| bytes(3, &[uint(1, upto(*le)), double(2, *le)].concat()));
    let classic = [common.clone(), buckets.collect::<Vec<_>>().concat()].concat();
    let bucket = |t: f64| (8.0 * t.log2()).ceil() as i64;
    let (first, last) = (bucket(0.004), took.iter().map(|t| bucket(*t)).max().unwrap_or(0));
    let counts = (first..=last).map(|i| took.iter().filter(|t| bucket(**t) == i).count() as i64);
    let mut before = 0;
    let deltas: Vec<Vec<u8>> = counts
        .map(|n| {
            let delta = varint(zigzag(n - before));
            before = n;
            delta
        })
        .collect();
    let span = [uint(1, zigzag(first)), uint(2, deltas.len() as u64)].concat();
    let schema = [uint(5, zigzag(3)), double(6, 1e-9)].concat();
    let native = [common, schema, bytes(12, &span), bytes(13, &deltas.concat())].concat();
    let family = |name: &str, histogram: &[u8]| {
        let all = [bytes(1, name.as_bytes()), uint(3, 4), bytes(4, &bytes(7, histogram))].concat();
        [varint(all.len() as u64), all].concat()
    };
    [family("http_seconds", &classic), family("native_seconds", &native)].concat()
}

/// Serves one page after the other, and keeps those that it served.
fn export(listener: TcpListener, served: Arc<Mutex<Vec<Vec<u8>>>>) {
    const HEAD: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/vnd.google.protobuf; \
                        proto=io.prometheus.client.MetricFamily; encoding=delimited\r\n\r\n";
    let took = times(7, 10_000);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read_exact(&mut byte).is_err() {
                    break;
                }
                request.push(byte[0]);
            }
            let mut served = served.lock().expect("no other thread panics with it");
            // The fourth page is of a process that was started again.
            let k = served.len();
            let page = page(&took[if k < 4 { 0 } else { 300 }..(100 * k + 20).clamp(1, 9_000)]);
            if stream.write_all(HEAD.as_bytes()).and_then(|()| stream.write_all(&page)).is_ok() {
                served.push(page);
            }
        }
    });
}

fn differences_are_equal() -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let target = listener.local_addr()?;
    let served: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    export(listener, Arc::clone(&served));
    let config = format!(
        "global: {{scrape_interval: 500ms, scrape_timeout: 400ms}}\nscrape_configs:\n- job_name: web\n  \
         static_configs: [{{targets: ['{target}']}}]\n"
    );
    let prometheus = Server::start(dir.path(), &config)?;
    let begun = Instant::now();
    while served.lock().expect("no other thread panics with it").len() < 8 {
        if begun.elapsed() > STARTS_WITHIN {
            return Err("Prometheus does not scrape".into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    // The last one may not be stored yet.
    std::thread::sleep(Duration::from_secs(1));
    let server = vsteer_host::prometheus::Server::new(&prometheus.url, None)?;
    let now_ns = UNIX_EPOCH.elapsed()?.as_nanos() as u64;
    for name in ["http_seconds", "native_seconds"] {
        let of: Histogram = name.parse()?;
        let mut stored = Vec::new();
        server.samples(&of, None, &[(now_ns - 60_000_000_000, now_ns)], &mut |s| stored.push(s.scrape))?;
        let stored = stored.into_iter().collect::<Result<Vec<Scrape>, _>>()?;
        let pages = served.lock().expect("no other thread panics with it").clone();
        let pages = pages.iter().map(|page| Scrape::read(page, &of, None)).collect::<Result<Vec<_>, _>>()?;
        let differences = |all: &[Scrape]| -> Result<Vec<Between>, Failed> {
            Ok(all.windows(2).take(7).map(|two| two[1].since(&two[0])).collect::<Result<_, _>>()?)
        };
        let (stored, right) = (differences(&stored)?, differences(&pages)?);
        assert!(stored.len() == 7 && right.len() == 7, "{} {}", stored.len(), right.len());
        for (stored, right) in stored.iter().zip(&right) {
            assert!(is_equal(stored, right), "{name}: {stored:?} is not {right:?}");
        }
        assert_eq!(right.iter().map(|b| b.resets).sum::<usize>(), 1);
    }
    Ok(())
}

/// Bounds of native buckets are powers of 2 that both sides round, and a page also has the bound of its empty zero bucket.
fn is_equal(stored: &Between, right: &Between) -> bool {
    let counts = |of: &Between| -> Vec<(f64, f64)> {
        let mut last = 0.0;
        let new = |(le, n): &(f64, f64)| (*n > std::mem::replace(&mut last, *n)).then_some((*le, *n));
        of.counted.buckets.iter().filter_map(new).collect()
    };
    let (a, b) = (counts(stored), counts(right));
    let near =
        |((a, n), (b, m)): (&(f64, f64), &(f64, f64))| n == m && (a == b || (a / b - 1.0).abs() < 1e-12);
    a.len() == b.len()
        && a.iter().zip(&b).all(near)
        && stored.counted.sum_s == right.counted.sum_s
        && (stored.series, stored.resets) == (right.series, right.resets)
}
