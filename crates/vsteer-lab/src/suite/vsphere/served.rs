//! Does the service give Prometheus the counters of a vSphere, as they were planted?
//!
//! vSphere counts by itself, every 20 s. The service observes two such intervals.

use super::driven::Driven;
use crate::drive::{Vsteer, wait};
use crate::process::Ends;
use crate::suite::serve::ask;
use crate::suite::{Bench, Findings};
use crate::vsphere::simulator::Program;
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

const VMS: u32 = 3;
const VCPUS: u64 = 4;
/// Two intervals of vSphere, and the start.
const LIMIT: Duration = Duration::from_secs(90);
const PATIENCE: Duration = Duration::from_secs(10);
/// The service's counters are whole ns; times of samples are ms.
const SAME: f64 = 1e-3;

/// Time of the newest sample, s, and ready time of each vCPU, s.
type Ready = (f64, BTreeMap<String, f64>);

fn ready(text: &str) -> Ready {
    let value = |line: &str| line.rsplit(' ').next().and_then(|v| v.parse::<f64>().ok());
    let of = |name: &str| text.lines().filter(|l| l.starts_with(name)).map(str::to_owned).collect::<Vec<_>>();
    let time = of("vsteer_sample_time_seconds").first().and_then(|l| value(l)).unwrap_or(0.0);
    let states = of("vsteer_vcpu_state_seconds_total{");
    let all = states.iter().filter(|l| l.contains("state=\"ready\"")).filter_map(|l| {
        let (labels, _) = l.rsplit_once(' ')?;
        Some((labels.to_owned(), value(l)?))
    });
    (time, all.collect())
}

fn scrape(socket: &Path) -> Option<Ready> {
    let stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let answer =
        ask::ask(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    Some(ready(&String::from_utf8_lossy(&answer.body)))
}

/// Waits for a sample that is newer than `than`, in which there are vCPUs.
fn newer(socket: &Path, than: f64) -> Result<Ready, Fault> {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = scrape(socket).filter(|(time, all)| *time > than && !all.is_empty()) {
            return Ok(found);
        }
        if Instant::now() > end {
            return Err(Fault::new(FaultKind::Failed, "the service has no new sample of the vSphere"));
        }
        wait("waiting for the service to observe the vSphere", Duration::from_secs(1))?;
    }
}

pub(super) fn run(
    bench: &Bench,
    program: &Program,
    password: &str,
    findings: &mut Findings,
) -> Result<(), Fault> {
    let driven = Driven::new(bench, program, password, 1, VMS)?;
    let serve = Vsteer::beside(&bench.lab.program)?.program.with_file_name("vsteer-serve");
    let socket = bench.output.join("vsphere.sock");
    let mut command = Command::new(serve);
    command
        .args(["--config", "none", "--history", "none", "--connect", &driven.uri()])
        .arg("--socket")
        .arg(&socket);
    let _service = Ends::start(&mut command)?;
    let (begun, before) = newer(&socket, 0.0)?;
    let (ended, after) = newer(&socket, begun)?;
    let planted = |labels: &str| {
        let vcpu = (0..VCPUS).find(|k| labels.contains(&format!("vcpu=\"{k}\"")))?;
        Some((50 + 5 * vcpu - 10) as f64 / 1000.0)
    };
    let off = after.iter().map(|(labels, now)| {
        let share = (now - before.get(labels).unwrap_or(&f64::NAN)) / (ended - begun);
        (share - planted(labels).unwrap_or(f64::NAN)).abs()
    });
    let off: Vec<f64> = off.collect();
    findings.claim(
        "the service observes a vSphere: ready time of every vCPU grows as planted",
        off.len() as u64 == u64::from(VMS) * VCPUS && off.iter().all(|off| *off < SAME),
        format!(
            "{} vCPUs over {:.0} s, off by {:.1e} at most",
            off.len(),
            ended - begun,
            off.iter().fold(0.0, |a: f64, b| a.max(*b))
        ),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_time_is_found_in_the_exposition() {
        let text = "vsteer_vcpu_state_seconds_total{vm=\"a\",vcpu=\"0\",state=\"run\"} 3\n\
            vsteer_vcpu_state_seconds_total{vm=\"a\",vcpu=\"0\",state=\"ready\"} 0.5\nvsteer_sample_time_seconds 7\n";
        let (time, all) = ready(text);
        assert_eq!((time, all.len(), all.values().sum::<f64>()), (7.0, 1, 0.5));
    }
}
