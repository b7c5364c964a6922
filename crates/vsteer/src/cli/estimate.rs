//! Options of `vsteer estimate`.

use super::words::{duration, named_number};
use clap::Args;
use std::path::PathBuf;

/// `vsteer estimate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vsteer estimate web=/var/log/nginx/access.log db=db.jsonl --from day.vsteer --interval 5m\n  \
vsteer estimate web=access.log db=db.jsonl --from now.vsteer --rate web=80 --weight web=200\n  \
vsteer estimate web=web-scrapes/ db=db.jsonl --from day.vsteer --histogram 'http_request_duration_seconds{job=\"web\"}'"
)]
pub struct Estimate {
    /// Whose requests are in which access log (may be given again): Apache's (%D), nginx's ($request_time) or JSON lines. Or
    /// in which folder scrapes of a Prometheus histogram (--histogram) were saved, each as a file that is named by its time
    /// (seconds since 1970, such as 1767225600.prom; another name: when it was written).
    #[arg(required = true, value_name = "VM=FILE|FOLDER")]
    pub logs: Vec<crate::logs::Log>,
    /// A recording of the host at that time; several: one interval after the other.
    #[arg(long, required = true, num_args = 1.., value_name = "RECORDING")]
    pub from: Vec<PathBuf>,
    /// Cut each recording into intervals of this length: each is foretold from the one before.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub interval: Option<std::time::Duration>,
    /// The logs' format, as the server's configuration has it, or one of apache, apache-combined, nginx, json; without it
    /// the one of these that fits.
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Which histogram of saved scrapes holds the requests, as a query has it: NAME or 'NAME{label="value"}', in seconds unless
    /// the name ends in another unit. With a VM before it: that VM's (may be given again).
    #[arg(long = "histogram", value_name = "[VM=]HISTOGRAM")]
    pub histograms: Vec<crate::scrapes::Named>,
    /// What will be asked of a VM after the last interval, requests per second (may be given again).
    #[arg(long = "rate", value_name = "VM=RATE", value_parser = named_number)]
    pub rates: Vec<(String, f64)>,
    /// What weight a VM will have after the last interval, on its hypervisor's scale (may be given again).
    #[arg(long = "weight", value_name = "VM=WEIGHT", value_parser = named_number)]
    pub weights: Vec<(String, f64)>,
}
