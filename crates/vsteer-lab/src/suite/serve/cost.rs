//! What does the service cost beside 200 VMs of 8 vCPUs, and can clients stop it?
//!
//! The VMs are stand-ins ([`crate::suite::many::stand_in`]) that wake and compute as guests with timers do. Clients scrape, all at once, hang, send
//! too much, and come ten thousand at a time. Meanwhile no sample may be late, and others must get answers.

use super::ask::{Answer, ask};
use crate::drive::{Vsteer, wait};
use crate::files::{make_folder, write_secret};
use crate::interrupt;
use crate::process::{Ends, cpu_ns, schedstat_ns};
use crate::suite::many::stand_in::{Does, StandIn};
use crate::suite::many::{BpfStats, memory, programs};
use crate::suite::{Bench, Case, Evidence, Findings, Minutes, worst};
use flate2::read::GzDecoder;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "serve-cost",
    doc: "the service beside 200 VMs of 8 vCPUs: CPU time, memory, scrapes, and hostile clients",
    in_test: true,
    minutes: Minutes::new(1.7, 4.2),
    beside: false,
    run,
};

const VMS: u32 = 200;
const VCPUS: u32 = 8;
/// Every vCPU wakes four times per second and computes for 100 µs: 0.64 pCPUs for all.
const PERIOD: Duration = Duration::from_millis(250);
const BURST: Duration = Duration::from_micros(100);
/// Part of a core; bytes; bytes of a compressed scrape; time of a scrape; how late a sample may be.
const CORE: f64 = 0.06;
/// `lab test` also accepts this multiple of the CPU time of a bare exporter of two numbers per vCPU. The memory of a shared
/// machine can be two to three times as slow for minutes, which slows the exporter down as well. `lab all` does not accept it.
/// GAP(serve-memory)
const CORE_OF_BARE: f64 = 3.5;
const SCRAPE_OF_BARE: f64 = 3.5;
const BYTES: u64 = 120_000_000;
const COMPRESSED: usize = 400_000;
const SCRAPE: Duration = Duration::from_millis(50);
const LATE: Duration = Duration::from_millis(50);
const TOKEN: &str = "of-the-lab-0123456789abcdef0123456789abcdef";
const AT_ONCE: usize = 100;
const CONNECTIONS: usize = 10_000;
const PATIENCE: Duration = Duration::from_secs(20);

fn failed(what: &str, e: &dyn std::fmt::Display) -> Fault {
    Fault::new(FaultKind::Failed, what).because(e)
}

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut vms = Vec::new();
    for vm in 0..VMS {
        let phase = PERIOD / VMS * vm;
        let does = Does { vcpus: VCPUS, period: PERIOD, phase, burst: BURST, life: Duration::from_secs(600) };
        vms.push(StandIn::start(&format!("served-{vm}"), &does)?);
        interrupt::check()?;
    }
    let _counts = BpfStats::on()?;
    let service = Service::start(bench)?;
    // In its first minute it judges over a shorter time, which costs less.
    let warm = if bench.full { 75 } else { 8 };
    wait("letting the service observe", Duration::from_secs(warm))?;
    let mut findings = Findings::default();
    let (cost, bare) = service.costs(bench, &vms, &mut findings)?;
    let scraped = service.scraped(bench, bare, &mut findings)?;
    service.at_once(&mut findings)?;
    service.hostile(&mut findings)?;
    let bytes = service.memory(&mut findings)?;
    findings.figures = json!({ "core": cost, "bare_exporter": bare, "scrape": scraped, "bytes": bytes });
    Ok(findings)
}

/// CPU time of a bare exporter: it reads two numbers of each of the VMs' threads from the kernel, keeps them by name, and prints
/// them. It runs once a second, as the service does, so its memory has left the caches in between.
fn bare_exporter(vms: &[StandIn]) -> Result<Duration, Fault> {
    let before = clock_gettime(ClockId::ThreadCPUTime);
    let mut of: BTreeMap<String, f64> = BTreeMap::new();
    for (i, vm) in vms.iter().enumerate() {
        let pid = vm.pid() as i32;
        for (name, values) in [("run", schedstat_ns(pid, 0)?), ("ready", schedstat_ns(pid, 1)?)] {
            let named = |(tid, ns): (i32, f64)| {
                (format!("vcpu_{name}_seconds_total{{vm=\"served-{i}\",thread=\"{tid}\"}}"), ns / 1e9)
            };
            of.extend(values.into_iter().map(named));
        }
    }
    let mut text = String::new();
    for (name, value) in &of {
        let _ = writeln!(text, "{name} {value}");
    }
    std::hint::black_box(text);
    let took = clock_gettime(ClockId::ThreadCPUTime) - before;
    Duration::try_from(took).map_err(|e| failed("reading this thread's clock", &e))
}

/// The promise, or in `lab test` what a slow machine may take.
fn accepted(bench: &Bench, promised: f64, of_bare: f64) -> f64 {
    if bench.full { promised } else { promised.max(of_bare) }
}

fn or_of_bare(bench: &Bench, times: f64) -> String {
    if bench.full { String::new() } else { format!(", or {times} times a bare exporter") }
}

struct Service {
    program: Ends,
    socket: PathBuf,
    address: SocketAddr,
}

const SCRAPES: &str =
    "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nConnection: close\r\n";

impl Service {
    fn start(bench: &Bench) -> Result<Service, Fault> {
        let folder = bench.output.join("serve-cost");
        make_folder(&folder)?;
        let (socket, tokens) = (folder.join("socket"), folder.join("tokens"));
        write_secret(&tokens, TOKEN)?;
        let free = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
        let address = free.map_err(|e| failed("looking for a free port", &e))?;
        let program = Vsteer::beside(&bench.lab.program)?.program.with_file_name("vsteer-serve");
        let mut command = Command::new(&program);
        command.args(["--config", "none", "--listen", &address.to_string()]).arg("--socket").arg(&socket);
        command.arg("--history").arg(folder.join("history"));
        command.arg("--tokens").arg(&tokens);
        let service = Service { program: Ends::start(&mut command)?, socket, address };
        let end = Instant::now() + Duration::from_secs(60);
        while service.scrape().is_err() {
            wait("waiting for the service", Duration::from_millis(500))?;
            if Instant::now() > end {
                return Err(Fault::new(FaultKind::Failed, "the service does not answer"));
            }
        }
        Ok(service)
    }

    fn pid(&self) -> i32 {
        self.program.pid()
    }

    fn connect(&self) -> Result<UnixStream, Fault> {
        let stream = UnixStream::connect(&self.socket).map_err(|e| failed("connecting", &e))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|e| failed("connecting", &e))?;
        Ok(stream)
    }

    fn scrape(&self) -> Result<Answer, Fault> {
        ask(self.connect()?, &format!("{SCRAPES}\r\n"))
    }

    fn connect_by_address(&self) -> Result<TcpStream, Fault> {
        let stream = TcpStream::connect(self.address).map_err(|e| failed("connecting", &e))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|e| failed("connecting", &e))?;
        Ok(stream)
    }

    fn scrape_by_address(&self) -> Result<Answer, Fault> {
        ask(self.connect_by_address()?, &format!("{SCRAPES}Authorization: Bearer {TOKEN}\r\n\r\n"))
    }

    /// CPU time, with a scrape every ten seconds, of the service and of a bare exporter, as parts of a core.
    fn costs(&self, bench: &Bench, vms: &[StandIn], findings: &mut Findings) -> Result<(f64, f64), Fault> {
        let seconds = if bench.full { 60 } else { 20 };
        let (begun, start_ns, bpf) = (Instant::now(), cpu_ns(self.pid())?, programs(self.pid()));
        let mut exports = Duration::ZERO;
        for second in 1..=seconds {
            wait("the service observes", Duration::from_secs(1))?;
            exports += bare_exporter(vms)?;
            if second % 10 == 0 {
                self.scrape()?;
            }
        }
        let core = (cpu_ns(self.pid())? - start_ns) / begun.elapsed().as_nanos() as f64;
        let bare = exports.as_secs_f64() / seconds as f64;
        let sum = |all: &[(String, u64, u64)]| all.iter().map(|p| p.2).sum::<u64>();
        let in_kernel = (sum(&programs(self.pid())) - sum(&bpf)) as f64 / begun.elapsed().as_nanos() as f64;
        findings.claim_on(
            format!(
                "{VMS} VMs of {VCPUS} vCPUs at 1 s take at most {:.0} % of a core, user and system{}",
                100.0 * CORE,
                or_of_bare(bench, CORE_OF_BARE)
            ),
            Evidence::amount(100.0 * core, 0.1, "% of a core"),
            core <= accepted(bench, CORE, CORE_OF_BARE * bare),
            format!(
                "{:.2} %, and {:.2} % in eBPF programs, which the threads that switch pay; the bare exporter {:.2} %",
                100.0 * core,
                100.0 * in_kernel,
                100.0 * bare
            ),
        );
        Ok((core, bare))
    }

    /// The most memory that it had so far.
    fn memory(&self, findings: &mut Findings) -> Result<u64, Fault> {
        let bytes = memory(self.pid(), "VmHWM")?;
        findings.claim(
            format!(
                "it takes at most {} MB, also for clients that come at once or by the thousand",
                BYTES / 1_000_000
            ),
            bytes <= BYTES,
            format!("{:.0} MB", bytes as f64 / 1e6),
        );
        Ok(bytes)
    }

    /// Scrapes of ten samples, one each; a bare exporter takes `bare` seconds.
    fn scraped(&self, bench: &Bench, bare: f64, findings: &mut Findings) -> Result<f64, Fault> {
        let (mut took, mut bytes, mut series) = (Vec::new(), 0, 0);
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(1100));
            let answer = self.scrape()?;
            took.push(answer.took.as_secs_f64());
            bytes = bytes.max(answer.body.len());
            let mut text = String::new();
            GzDecoder::new(&answer.body[..])
                .read_to_string(&mut text)
                .map_err(|e| failed("unpacking a scrape", &e))?;
            series = text.lines().filter(|l| !l.starts_with('#')).count();
        }
        let longest = worst(took.iter().copied());
        findings.claim_on(
            format!(
                "a scrape of all takes at most {} ms, beside their load{}",
                SCRAPE.as_millis(),
                or_of_bare(bench, SCRAPE_OF_BARE)
            ),
            Evidence::count(series, (VMS * VCPUS) as usize, "series"),
            longest <= accepted(bench, SCRAPE.as_secs_f64(), SCRAPE_OF_BARE * bare),
            format!(
                "{series} series, {:.1} ms at most of ten new samples, the bare exporter {:.1} ms",
                1e3 * longest,
                1e3 * bare
            ),
        );
        findings.claim(
            format!("it has at most {} kB, compressed", COMPRESSED / 1000),
            bytes <= COMPRESSED,
            format!("{:.0} kB", bytes as f64 / 1e3),
        );
        Ok(longest)
    }

    /// The value of a series without labels in the newest exposition.
    fn value(&self, name: &str) -> Result<f64, Fault> {
        let mut text = String::new();
        GzDecoder::new(&self.scrape()?.body[..])
            .read_to_string(&mut text)
            .map_err(|e| failed("unpacking a scrape", &e))?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.ok_or_else(|| Fault::new(FaultKind::Failed, format!("no series is called {name}")))
    }

    /// A hundred clients at once, several times.
    fn at_once(&self, findings: &mut Findings) -> Result<(), Fault> {
        let (mut late, mut answered) = (Vec::new(), 0);
        for _ in 0..5 {
            answered += std::thread::scope(|scope| {
                let all: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(|| self.scrape().is_ok())).collect();
                all.into_iter().filter_map(|client| client.join().ok()).filter(|ok| *ok).count()
            });
            std::thread::sleep(Duration::from_millis(1100));
            late.push(self.value("vsteer_sample_late_seconds")?);
        }
        findings.claim(
            format!("{AT_ONCE} scrapes at once, five times, all get answers"),
            answered == 5 * AT_ONCE,
            format!("{answered}"),
        );
        let latest = worst(late);
        findings.claim(
            format!("no sample is later than {} ms meanwhile", LATE.as_millis()),
            latest <= LATE.as_secs_f64(),
            format!("{:.1} ms", 1e3 * latest),
        );
        Ok(())
    }

    /// Clients that hang, send too much, or come by the thousand.
    fn hostile(&self, findings: &mut Findings) -> Result<(), Fault> {
        let before = self.value("vsteer_samples_total")?;
        let begun = Instant::now();
        let mut hanging = Vec::new();
        for i in 0..400 {
            let Ok(mut stream) = self.connect_by_address() else { continue };
            let part = if i % 2 == 0 { "" } else { "GET /metrics HTTP/1.1\r\nHost: local" };
            let _ = stream.write_all(part.as_bytes());
            hanging.push(stream);
        }
        let answered = self.scrape_by_address();
        findings.claim(
            "beside 400 clients that hang, another one gets its answer",
            answered.is_ok(),
            answered
                .as_ref()
                .map_or_else(ToString::to_string, |a| format!("{:.1} ms", 1e3 * a.took.as_secs_f64())),
        );
        let sent = self.sends_a_gigabyte();
        findings.claim(
            "a request of 1 GB is cut off",
            sent < 100 << 20,
            format!("after {:.1} MB", sent as f64 / 1e6),
        );
        let mut opened = 0;
        for _ in 0..CONNECTIONS {
            opened += usize::from(TcpStream::connect(self.address).is_ok());
        }
        drop(hanging);
        let answered = self.scrape_by_address();
        findings.claim(
            format!("after {CONNECTIONS} connections it answers"),
            answered.is_ok() && opened > CONNECTIONS / 2,
            format!(
                "{opened} were accepted; {}",
                answered.map_or_else(|e| e.to_string(), |a| format!("{:.1} ms", 1e3 * a.took.as_secs_f64()))
            ),
        );
        std::thread::sleep(Duration::from_millis(1100));
        let (after, passed) = (self.value("vsteer_samples_total")?, begun.elapsed().as_secs_f64());
        findings.claim(
            "meanwhile it took every sample",
            after - before >= passed - 2.0,
            format!("{:.0} samples in {passed:.1} s", after - before),
        );
        Ok(())
    }

    /// Posts a body without end; how many bytes the service took.
    fn sends_a_gigabyte(&self) -> u64 {
        let Ok(mut stream) = self.connect_by_address() else { return 0 };
        let _ = stream.set_write_timeout(Some(PATIENCE));
        let head = format!(
            "POST /api/v1/state HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 1000000000\r\n\r\n"
        );
        if stream.write_all(head.as_bytes()).is_err() {
            return 0;
        }
        let (part, mut sent) = (vec![b'x'; 1 << 20], 0);
        while sent < 1_000_000_000 && stream.write_all(&part).is_ok() {
            sent += part.len() as u64;
        }
        sent
    }
}
