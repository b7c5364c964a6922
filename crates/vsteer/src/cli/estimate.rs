//! Options of `vsteer estimate`.

use super::words::{duration, named_number};
use clap::Args;
use std::path::PathBuf;
use vsteer_record::access_log::{Format, zone};
use vsteer_record::unit::Unit;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer estimate web=access.log --from day.vsteer --interval 5m
  vsteer estimate web=access.log --from now.vsteer --rate web=80 --weight web=200
  vsteer estimate web=old.log.gz web=new.log --unit ms --from day.vsteer
  vsteer estimate web=scrapes/ --from day.vsteer --histogram http_request_duration_seconds
  vsteer estimate web=http://prometheus:9090 --from day.vsteer --histogram latency_seconds")]
pub struct Estimate {
    /// VM and its requests: an access log, a folder of Prometheus scrapes, or the URL of a Prometheus server (repeatable)
    ///
    /// Several logs of one VM are read as one. Logs may be compressed by gzip, Zstandard or bzip2, and wrapped by Kubernetes,
    /// Docker, journald or syslog. Scrapes: one file per scrape, named by its time in seconds since 1970, for example
    /// 1767225600.prom. Any other name: the file's modification time counts. vsteer asks a Prometheus server for the samples that
    /// it stored during the recording.
    #[arg(required = true, value_name = "VM=FILE|FOLDER|URL")]
    pub logs: Vec<crate::logs::Log>,
    /// Recording of the host at that time; several recordings are consecutive intervals
    #[arg(long, required = true, num_args = 1.., value_name = "RECORDING", help_heading = "Source")]
    pub from: Vec<PathBuf>,
    /// Cut recordings into intervals of TIME, and estimate each one from the one before
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub interval: Option<std::time::Duration>,
    /// Format of the logs [default: the one that fits]
    ///
    /// The text in the server's configuration (Apache's LogFormat, nginx's log_format, Envoy's format string), or a name:
    /// apache, apache-combined, apache-vhost, nginx, tomcat, haproxy, alb, envoy, istio, traefik, iis, json. For JSON lines with
    /// keys of your own: json:time=KEY,duration=KEY:UNIT, with start=KEY if the time is that of the request's arrival.
    #[arg(long, value_name = "FORMAT", help_heading = "Source")]
    pub format: Option<Format>,
    /// Unit of durations in logs and of buckets: s, ms, us, ns or min [default: as the server or the name says]
    #[arg(long, value_name = "UNIT", help_heading = "Source")]
    pub unit: Option<Unit>,
    /// Zone of times that name none, for example +09:00 or Asia/Seoul [default: UTC]
    #[arg(long, value_name = "ZONE", value_parser = zone, help_heading = "Source")]
    pub zone: Option<jiff::tz::TimeZone>,
    /// Go on if more than 1 % of a log's lines do not match its format
    #[arg(long, help_heading = "Source")]
    pub allow_skipped: bool,
    /// Histogram of the scrapes that holds the requests, for example 'latency_seconds{job="web"}' (repeatable)
    ///
    /// Without --unit, the name or the scrape tells the unit of its values; else they are taken as seconds, and vsteer says so. Put VM= before it to choose a histogram for one VM.
    #[arg(long = "histogram", value_name = "[VM=]HISTOGRAM", help_heading = "Source")]
    pub histograms: Vec<crate::scrapes::Named>,
    /// Send the Prometheus server the bearer token in the first line of FILE
    #[arg(long, value_name = "FILE", help_heading = "Source")]
    pub token_file: Option<PathBuf>,
    /// Assume RATE requests per second for VM after the last interval (repeatable)
    #[arg(long = "rate", value_name = "VM=RATE", value_parser = named_number)]
    pub rates: Vec<(String, f64)>,
    /// Assume WEIGHT for VM after the last interval, on its hypervisor's scale (repeatable)
    #[arg(long = "weight", value_name = "VM=WEIGHT", value_parser = named_number)]
    pub weights: Vec<(String, f64)>,
}
