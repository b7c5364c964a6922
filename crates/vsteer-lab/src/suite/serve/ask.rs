//! A request over HTTP/1.1 on any stream, without a library: a client of the service that does nothing of its own.

use std::io::{Read, Write};
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

fn failed(what: &str, e: &dyn std::fmt::Display) -> Fault {
    Fault::new(FaultKind::Failed, what).because(e)
}

/// An answer.
pub struct Answer {
    pub body: Vec<u8>,
    pub took: Duration,
}

/// Sends a request, and reads until the other side closes.
///
/// # Errors
/// The service does not answer, or refuses the request.
pub fn ask(mut stream: impl Read + Write, head: &str) -> Result<Answer, Fault> {
    let begun = Instant::now();
    let failed = |e: std::io::Error| failed("asking the service", &e);
    stream.write_all(head.as_bytes()).map_err(failed)?;
    let mut all = Vec::new();
    stream.read_to_end(&mut all).map_err(failed)?;
    let took = begun.elapsed();
    let body = all.windows(4).position(|w| w == b"\r\n\r\n").map(|at| all.split_off(at + 4));
    match body {
        Some(body) if all.starts_with(b"HTTP/1.1 200") => Ok(Answer { body, took }),
        _ => Err(Fault::new(FaultKind::Failed, "the service refused a request")
            .because(String::from_utf8_lossy(&all).lines().next().unwrap_or_default())),
    }
}
