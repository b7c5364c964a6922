//! Where are a VM's requests visible? In an access log, or in a Prometheus histogram.

use super::Vm;
use std::path::PathBuf;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::scrape::Place;
use vsteer_record::access_log::{Format, Said, zone};
use vsteer_record::prometheus::Histogram;
use vsteer_record::unit::Unit;

/// The source of a VM's requests.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// An access log.
    Log {
        /// Path of the log.
        file: PathBuf,
        /// Format of the lines, and the unit of durations, as far as the file says them.
        said: Said,
    },
    /// A Prometheus histogram.
    Metrics {
        /// URL or file with the metrics.
        place: Place,
        /// Name and labels of the histogram.
        histogram: Histogram,
        /// Unit of its bounds and sum; `None`: as its name or the scrape says.
        unit: Option<Unit>,
    },
}

/// What the settings of a VM say of its log.
fn said(vm: &Vm) -> Result<Said, Fault> {
    let bad = |why: String| Fault::new(FaultKind::BadInput, why);
    Ok(Said {
        format: vm.format.as_deref().map(Format::parse).transpose()?,
        unit: vm.unit.as_deref().map(str::parse).transpose().map_err(|why| bad(format!("unit: {why}")))?,
        zone: vm.zone.as_deref().map(zone).transpose().map_err(|why| bad(format!("zone: {why}")))?,
    })
}

impl Source {
    /// The source in the settings of `vm`.
    pub(super) fn of(vm: &Vm) -> Result<Source, Fault> {
        let bad = |why: &str, help: &str| {
            Fault::new(FaultKind::BadInput, format!("VM {:?}", vm.name)).because(why).help(help)
        };
        let named = |f: Fault| Fault { what: format!("VM {:?}: {}", vm.name, f.what), ..f };
        match (&vm.log, &vm.metrics) {
            (None, None) => Err(bad(
                "neither log nor metrics is given",
                "name the log or the metrics that show its requests",
            )),
            (Some(_), Some(_)) => Err(bad("both log and metrics are given", "leave out one of them")),
            (Some(_), None) if vm.histogram.is_some() || vm.labels.is_some() => {
                Err(bad("histogram and labels apply to metrics, not to a log", "leave them out"))
            }
            (Some(file), None) => Ok(Source::Log { file: file.clone(), said: said(vm).map_err(named)? }),
            (None, Some(_)) if vm.format.is_some() || vm.zone.is_some() => {
                Err(bad("format and zone apply to a log, not to metrics", "leave them out"))
            }
            (None, Some(metrics)) => {
                let text = vm.histogram.as_ref().ok_or_else(|| {
                    bad(
                        "no histogram is named among the metrics",
                        "add the name of the histogram, for example histogram = \"http_request_duration_seconds\"",
                    )
                })?;
                let mut histogram: Histogram = text.parse().map_err(|why: String| {
                    bad(&format!("histogram: {why}"), "write the name as in a Prometheus query")
                })?;
                histogram.labels.extend(vm.labels.clone().unwrap_or_default());
                let unit = said(vm).map_err(named)?.unit;
                Ok(Source::Metrics { place: Place::parse(metrics).map_err(named)?, histogram, unit })
            }
        }
    }

    /// Does another VM use the same source?
    pub(super) fn is(&self, other: &Source) -> bool {
        match (self, other) {
            (Source::Log { file, .. }, Source::Log { file: other, .. }) => file == other,
            (one, other) => one == other,
        }
    }
}
