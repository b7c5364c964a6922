//! Pushes the metrics to an OpenTelemetry collector: OTLP over HTTP, in protobuf. Only in builds with the feature `otlp`.
//!
//! A push that fails is not repeated: the next one has newer values, and counters lose nothing.
//!
//! GAP(serve-outputs): no gRPC, no token, no compression, and findings are not sent as logs.

use crate::http::Source;
use crate::metrics::{otlp, tables};
use crate::seen::Seen;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::post::Target;

/// How often metrics are pushed.
const EVERY: Duration = Duration::from_secs(10);
/// How long a push may take.
const LIMIT: Duration = Duration::from_secs(8);

/// The collector at an address, `https://HOST:4318/v1/metrics`.
///
/// # Errors
/// `BadInput` if `url` is not a valid address; `Usage` for an address that other machines reach without TLS.
pub fn target(url: &str) -> Result<Target, Fault> {
    let target = Target::new(url, None)?;
    let host = target.host().trim_start_matches('[').trim_end_matches(']');
    let here = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    if !here && !url.starts_with("https://") {
        return Err(Fault::new(FaultKind::Usage, format!("cannot push to {host} without TLS"))
            .because("others on the network could read the metrics")
            .help("use https://, or a collector on this machine"));
    }
    Ok(target)
}

fn push(target: &Target, seen: &Seen, compat: bool, start_unix_ns: u64) -> Result<(), Fault> {
    let body = otlp(seen, tables(compat), start_unix_ns);
    let status = target.post(&[("content-type", "application/x-protobuf")], &body, LIMIT)?;
    match status {
        200..=299 => Ok(()),
        _ => Err(Fault::new(FaultKind::Failed, format!("{} answered with status {status}", target.host()))
            .help("check the address: its path is mostly /v1/metrics")),
    }
}

/// Pushes until the service ends.
pub async fn run(target: Target, source: Source) {
    let (target, mut every) = (Arc::new(target), tokio::time::interval(EVERY));
    let (mut start_unix_ns, mut failing) = (None, false);
    loop {
        every.tick().await;
        let Some(seen) = source.seen.borrow().clone() else { continue };
        let start = *start_unix_ns.get_or_insert(seen.totals.batch().unix_ns);
        let (target, compat) = (Arc::clone(&target), source.compat_names);
        // The server answers clients meanwhile.
        let pushed = tokio::task::spawn_blocking(move || push(&target, &seen, compat, start)).await;
        let Ok(pushed) = pushed else { continue };
        // Once, and not every ten seconds.
        if let Err(fault) = &pushed
            && !failing
        {
            eprintln!("vsteer-serve: warning: metrics were not pushed: {fault}");
        }
        failing = pushed.is_err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_leave_this_machine_only_encrypted() {
        for good in [
            "http://localhost:4318/v1/metrics",
            "http://[::1]:4318/v1/metrics",
            "https://h.example/v1/metrics",
        ] {
            assert!(target(good).is_ok(), "{good}");
        }
        for bad in ["http://h.example/v1/metrics", "http://127.0.0.1.example/x", "/v1/metrics", "ftp://h/"] {
            assert!(target(bad).is_err(), "{bad}");
        }
    }
}
