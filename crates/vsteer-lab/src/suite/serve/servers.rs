//! The service, Prometheus and Alertmanager, with a receiver of alerts. All end with this value.

use super::super::Bench;
use crate::drive::Vsteer;
use crate::files::{make_folder, write_file, write_secret};
use crate::{command, interrupt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

const TOKEN: &str = "of-the-lab-0123456789abcdef0123456789abcdef";
const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// An alert that a receiver was sent, by name and labels; whether it still fires.
type Alerts = BTreeMap<String, (Value, bool)>;

pub struct Servers {
    folder: PathBuf,
    program: PathBuf,
    all: Vec<Child>,
    service: u16,
    prometheus: u16,
    received: Arc<Mutex<Alerts>>,
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in self.all.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn failed(what: impl Into<String>, e: &dyn std::fmt::Display) -> Fault {
    Fault::new(FaultKind::Failed, what).because(e)
}

/// A port that is free now.
///
/// # Errors
/// As the system says.
pub fn free_port() -> Result<u16, Fault> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| failed("looking for a free port", &e))?;
    Ok(listener.local_addr().map_err(|e| failed("looking for a free port", &e))?.port())
}

impl Servers {
    /// Starts all, and waits until Prometheus has scraped.
    ///
    /// # Errors
    /// One is not installed, or does not start.
    pub fn start(bench: &Bench, v: &Vsteer) -> Result<Servers, Fault> {
        let folder = bench.output.join("serve");
        make_folder(&folder)?;
        let program = v.program.with_file_name("vsteer-serve");
        let (service, prometheus, manager, cluster) =
            (free_port()?, free_port()?, free_port()?, free_port()?);
        let received: Arc<Mutex<Alerts>> = Arc::default();
        let receiver = receive(Arc::clone(&received))?;
        let mut servers = Servers { folder, program, all: Vec::new(), service, prometheus, received };
        servers.configure(receiver, manager)?;
        let mut serve = Command::new(&servers.program);
        serve.args(["--config", "none", "--socket", "none", "--tokens", "token", "--connect", &v.uri]);
        serve.args(["--listen", &format!("127.0.0.1:{service}"), "--compat-names", "--history", "history"]);
        servers.spawn(serve, "vsteer-serve")?;
        let mut alertmanager = Command::new("prometheus-alertmanager");
        alertmanager.args(["--config.file=alertmanager.yml", "--storage.path=alertmanager"]);
        alertmanager.arg(format!("--web.listen-address=127.0.0.1:{manager}"));
        alertmanager.arg(format!("--cluster.listen-address=127.0.0.1:{cluster}"));
        servers.spawn(alertmanager, "alertmanager")?;
        let mut server = Command::new("prometheus");
        server.args([
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            "--enable-feature=native-histograms",
        ]);
        server.arg(format!("--web.listen-address=127.0.0.1:{prometheus}"));
        servers.spawn(server, "prometheus")?;
        let end = Instant::now() + STARTS_WITHIN;
        while servers.query("vsteer_samples_total > 2").map_or(true, |all| all.is_empty()) {
            interrupt::check()?;
            if Instant::now() > end {
                let log = std::fs::read_to_string(servers.folder.join("prometheus.log")).unwrap_or_default();
                let last = log.lines().last().unwrap_or_default().to_owned();
                return Err(failed("Prometheus has no samples of the service", &last));
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        Ok(servers)
    }

    /// Where the files of the servers are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn configure(&self, receiver: u16, manager: u16) -> Result<(), Fault> {
        let at = |name: &str| self.folder.join(name);
        for data in ["data", "alertmanager"] {
            crate::files::remove_folder(&at(data))?;
        }
        write_secret(&at("token"), TOKEN)?;
        write_file(&at("vsteer.rules.yml"), self.printed("rules")?)?;
        write_file(
            &at("prometheus.yml"),
            format!(
                "global: {{scrape_interval: 5s, evaluation_interval: 5s}}\nrule_files: [vsteer.rules.yml]\n\
             alerting: {{alertmanagers: [{{static_configs: [{{targets: ['127.0.0.1:{manager}']}}]}}]}}\n\
             scrape_configs:\n- job_name: vsteer\n  authorization: {{credentials_file: token}}\n  \
             static_configs: [{{targets: ['127.0.0.1:{}']}}]\n",
                self.service
            ),
        )?;
        write_file(
            &at("alertmanager.yml"),
            format!(
                "route: {{receiver: lab, group_by: ['...'], group_wait: 1s, group_interval: 5s, repeat_interval: 1h}}\n\
             receivers: [{{name: lab, webhook_configs: [{{url: 'http://127.0.0.1:{receiver}/', send_resolved: true}}]}}]\n"
            ),
        )
    }

    /// Starts one that ends with the others. Its pid.
    ///
    /// # Errors
    /// It is not installed.
    pub fn spawn(&mut self, mut command: Command, name: &str) -> Result<i32, Fault> {
        let log = self.folder.join(format!("{name}.log"));
        let log =
            std::fs::File::create(&log).map_err(|e| failed(format!("creating {}", log.display()), &e))?;
        command.current_dir(&self.folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(|e| {
            failed(format!("starting {name}"), &e).help("install what `make deps-test` installs")
        })?;
        let pid = child.id().cast_signed();
        self.all.push(child);
        Ok(pid)
    }

    /// The pid of the service.
    pub fn service(&self) -> i32 {
        self.all[0].id().cast_signed()
    }

    /// What the service prints for packages: rules, dashboards.
    ///
    /// # Errors
    /// It was not built.
    pub fn printed(&self, what: &str) -> Result<String, Fault> {
        let mut serve = Command::new(&self.program);
        command::output(serve.args(["--config", "none", "--print", what]), STARTS_WITHIN)
    }

    /// Stops the service, and nothing else.
    pub fn stop_service(&mut self) {
        if let Some(service) = self.all.first_mut() {
            let _ = service.kill();
            let _ = service.wait();
        }
    }

    /// The exposition in this form.
    ///
    /// # Errors
    /// The service does not answer.
    pub fn metrics(&self, accept: &str) -> Result<String, Fault> {
        let url = format!("http://127.0.0.1:{}/metrics", self.service);
        let request =
            ureq::get(&url).header("Accept", accept).header("Authorization", format!("Bearer {TOKEN}"));
        let mut response = request.call().map_err(|e| failed("scraping the service", &e))?;
        response.body_mut().read_to_string().map_err(|e| failed("scraping the service", &e))
    }

    /// Labels and value of each series that a query returns.
    ///
    /// # Errors
    /// Prometheus refuses the query.
    pub fn query(&self, query: &str) -> Result<Vec<(Value, f64)>, Fault> {
        let url = format!("http://127.0.0.1:{}/api/v1/query", self.prometheus);
        let answer = ureq::get(&url).query("query", query).call();
        let mut answer = answer.map_err(|e| failed(format!("the query {query}"), &e))?;
        let text = answer.body_mut().read_to_string().map_err(|e| failed("asking Prometheus", &e))?;
        let told: Value = serde_json::from_str(&text).map_err(|e| failed("asking Prometheus", &e))?;
        let all = told["data"]["result"].as_array().cloned().unwrap_or_default();
        let value = |r: &Value| r["value"][1].as_str().and_then(|v| v.parse().ok()).unwrap_or(f64::NAN);
        Ok(all.iter().map(|r| (r["metric"].clone(), value(r))).collect())
    }

    /// Labels of the alerts of this name that fire, as their receiver knows them.
    pub fn firing(&self, name: &str) -> Vec<Value> {
        let received = self.received.lock().expect("no receiver panics with it");
        received
            .values()
            .filter(|(labels, fires)| *fires && labels["alertname"] == name)
            .map(|(labels, _)| labels.clone())
            .collect()
    }

    /// Waits until this holds for the firing alerts of this name; `None` if it does not in time.
    ///
    /// # Errors
    /// `Interrupted`.
    pub fn until(
        &self,
        limit: Duration,
        name: &str,
        holds: impl Fn(&[Value]) -> bool,
    ) -> Result<Option<Duration>, Fault> {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            interrupt::check()?;
            if holds(&self.firing(name)) {
                return Ok(Some(begun.elapsed()));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(None)
    }
}

/// Takes what Alertmanager posts. Its port.
fn receive(alerts: Arc<Mutex<Alerts>>) -> Result<u16, Fault> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| failed("receiving alerts", &e))?;
    let port = listener.local_addr().map_err(|e| failed("receiving alerts", &e))?.port();
    // It ends with the process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let Some(body) = posted(stream) else { continue };
            for alert in body["alerts"].as_array().into_iter().flatten() {
                let labels = alert["labels"].clone();
                let fires = alert["status"] == "firing";
                alerts.lock().expect("no reader panics with it").insert(labels.to_string(), (labels, fires));
            }
        }
    });
    Ok(port)
}

fn posted(mut stream: TcpStream) -> Option<Value> {
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).ok()? > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok()?;
    Some(serde_json::from_slice(&body).unwrap_or(json!(null)))
}
