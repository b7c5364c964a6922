//! Options of `vsteer estimate`.

use super::words::{duration, named_number};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer estimate web=access.log --from day.vsteer --interval 5m
  vsteer estimate web=access.log --from now.vsteer --rate web=80 --weight web=200
  vsteer estimate web=scrapes/ --from day.vsteer --histogram http_request_duration_seconds")]
pub struct Estimate {
    /// VM and its requests: an access log, or a folder of Prometheus scrapes (repeatable)
    ///
    /// Logs: Apache with %D, nginx with $request_time, or JSON lines. Scrapes: one file per scrape, named by its time in
    /// seconds since 1970, for example 1767225600.prom. Any other name: the file's modification time counts.
    #[arg(required = true, value_name = "VM=FILE|FOLDER")]
    pub logs: Vec<crate::logs::Log>,
    /// Recording of the host at that time; several recordings are consecutive intervals
    #[arg(long, required = true, num_args = 1.., value_name = "RECORDING", help_heading = "Source")]
    pub from: Vec<PathBuf>,
    /// Cut recordings into intervals of TIME, and estimate each one from the one before
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub interval: Option<std::time::Duration>,
    /// Format of the logs [default: the one that fits]
    ///
    /// Either the format string of the server's configuration, or apache, apache-combined, nginx or json.
    #[arg(long, value_name = "FORMAT", help_heading = "Source")]
    pub format: Option<String>,
    /// Histogram of the scrapes that holds the requests, for example 'latency_seconds{job="web"}' (repeatable)
    ///
    /// Values are seconds unless the name ends in another unit. Put VM= before it to choose a histogram for one VM.
    #[arg(long = "histogram", value_name = "[VM=]HISTOGRAM", help_heading = "Source")]
    pub histograms: Vec<crate::scrapes::Named>,
    /// Assume RATE requests per second for VM after the last interval (repeatable)
    #[arg(long = "rate", value_name = "VM=RATE", value_parser = named_number)]
    pub rates: Vec<(String, f64)>,
    /// Assume WEIGHT for VM after the last interval, on its hypervisor's scale (repeatable)
    #[arg(long = "weight", value_name = "VM=WEIGHT", value_parser = named_number)]
    pub weights: Vec<(String, f64)>,
}
