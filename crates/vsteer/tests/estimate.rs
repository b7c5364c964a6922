//! Does `vsteer estimate` say of saved scrapes what it says of the log of the same requests?

#[path = "common/program.rs"]
mod program;

use serde_json::Value;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, UNIX_EPOCH};

/// A simulated recording's clock begins at 0, and it with the warm-up's end, s.
const FROM_S: f64 = 5.0;
const TO_S: f64 = 65.0;
/// When it ended and how long it took, s.
type Request = (f64, f64);

fn vsteer(words: &[&str]) -> Output {
    program::vsteer().args(words).output().expect("vsteer starts")
}

/// Numbers above 0 and below 1 (MMIX's generator).
struct Numbers(u64);

impl Numbers {
    fn draw(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }
}

/// 50 a second that take 12 ms on average, from before the recording until after it.
fn requests(seed: u64) -> Vec<Request> {
    let mut numbers = Numbers(seed);
    let (mut at_s, mut all) = (FROM_S - 1.0, Vec::new());
    while at_s < TO_S + 1.0 {
        at_s -= 0.02 * numbers.draw().ln();
        let took_s = 0.004 - 0.008 * numbers.draw().ln();
        all.push((at_s + took_s, took_s));
    }
    all
}

fn log(file: &Path, requests: &[Request]) {
    let line = |(ended, took): &Request| format!("{{\"ts\": {ended:.6}, \"duration_s\": {took:.6}}}\n");
    std::fs::write(file, requests.iter().map(line).collect::<String>()).unwrap();
}

/// A scrape every 2 s, beside another server's.
fn scrapes(folder: &Path, requests: &[Request]) {
    std::fs::create_dir(folder).unwrap();
    for k in 0..=31 {
        let at_s = FROM_S - 1.0 + 2.0 * f64::from(k);
        let took: Vec<f64> = requests.iter().filter(|(ended, _)| *ended <= at_s).map(|(_, t)| *t).collect();
        let mut text = String::from("# HELP up Whether it is.\nup 1\n");
        for (le, name) in
            [(0.005, "0.005"), (0.01, "0.01"), (0.025, "0.025"), (0.05, "0.05"), (f64::INFINITY, "+Inf")]
        {
            let upto = took.iter().filter(|t| **t <= le).count();
            text += &format!("http_seconds_bucket{{job=\"web\",le=\"{name}\"}} {upto}\n");
            text += &format!("http_seconds_bucket{{job=\"other\",le=\"{name}\"}} 7\n");
        }
        let (sum, count) = (took.iter().sum::<f64>(), took.len());
        text +=
            &format!("http_seconds_sum{{job=\"web\"}} {sum}\nhttp_seconds_count{{job=\"web\"}} {count}\n");
        text += "http_seconds_sum{job=\"other\"} 0\nhttp_seconds_count{job=\"other\"} 7\n";
        let file = folder.join(format!("{k:02}.prom"));
        std::fs::write(&file, text).unwrap();
        let file = std::fs::File::options().write(true).open(&file).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs_f64(at_s)).unwrap();
    }
}

#[test]
fn scrapes_say_what_the_log_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/web-servers.toml");
    let folder = path("host.vsteer");
    assert!(vsteer(&["simulate", scenario.to_str().unwrap(), "-o", &folder]).status.success());
    let (web, other) = (requests(1), requests(2));
    log(&dir.path().join("web.jsonl"), &web);
    log(&dir.path().join("other.jsonl"), &other);
    scrapes(&dir.path().join("web"), &web);
    let other = format!("web-2={}", path("other.jsonl"));
    let run = |web: &str, more: &[&str]| {
        let web = format!("web-1={}", path(web));
        vsteer(&[&["estimate", &web, &other, "--from", &folder, "--json"], more].concat())
    };
    let json = |out: &Output| -> Value {
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    };
    let by_log = json(&run("web.jsonl", &[]));
    let histogram = ["--histogram", "web-1=http_seconds{job=\"web\"}"];
    let out = run("web", &histogram);
    let by_scrapes = json(&out);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(
        said.contains("web-1: a histogram gives the 95th percentile only as a bucket")
            && said.contains("25.0 to 50.0 ms"),
        "{said}"
    );
    let near = |at: &str, within: f64| {
        let of =
            |v: &Value| v.pointer(at).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {at} in {v}"));
        let (log, scrapes) = (of(&by_log), of(&by_scrapes));
        assert!((scrapes / log - 1.0).abs() <= within, "{at}: {scrapes} by scrapes, {log} by the log");
    };
    for (what, within) in
        [("rate_hz", 0.01), ("service_s", 0.01), ("gap_cv2", 0.15), ("response/mean_s", 0.01)]
    {
        near(&format!("/intervals/0/vms/0/{what}"), within);
    }
    near("/intervals/0/vms/0/response/p95_s", 0.05);
    // Who has a log is not touched.
    near("/intervals/0/vms/1/response/mean_s", 0.0);
    // What each estimator tells of the next interval: the variances that some of them are made of are not what a histogram tells best.
    let told = |v: &Value| v.pointer("/foretold/0/told").and_then(Value::as_array).cloned().unwrap();
    let (log, scrapes) = (told(&by_log), told(&by_scrapes));
    assert_eq!((log.len(), scrapes.len()), (7, 7));
    for (k, (log, scrapes)) in log.iter().zip(&scrapes).enumerate() {
        assert_eq!(log["told"][0].is_null(), scrapes["told"][0].is_null(), "{log} {scrapes}");
        if !log["told"][0].is_null() {
            let within = if log["estimator"] == "own" { 0.05 } else { 0.15 };
            near(&format!("/foretold/0/told/{k}/told/0/mean_s"), within);
        }
    }
    // What is wrong is told before anything is worked out.
    for (web, more, says) in [
        ("web", &[][..], "--histogram http_request_duration_seconds"),
        ("web", &["--histogram", "nothing"], "choose among http_seconds"),
        ("web", &["--histogram", "web-2=http_seconds"], "no VM has scrapes with this histogram"),
        ("web.jsonl", &["--histogram", "http_seconds"], "no VM has scrapes with this histogram"),
        ("web", &["--histogram", "http seconds"], "is not a histogram"),
    ] {
        let out = run(web, more);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && said.contains(says), "{more:?}: {said}");
    }
}
