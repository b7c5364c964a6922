//! What is promised? The file of service levels, as a person writes it.
//!
//! ```toml
//! period = "60s"                            # how often is looked and, where needed, set; 60s if not given
//!
//! [[vm]]
//! name = "web"
//! log = "/var/log/nginx/access.log"         # followed as it grows and is rotated
//! format = "nginx"                          # or as the server's configuration has it; without it the one that fits
//! unit = "ms"                               # of durations, if the log does not say it; zone = "+09:00" of times without one
//! mean = "9ms"                              # the longest mean response time
//! p95 = "30ms"                              # the longest 95th percentile
//! rate = 45                                 # requests per second to answer, if they come
//!
//! [[vm]]
//! name = "db"
//! metrics = "http://10.0.0.7:9187/metrics"  # in place of a log; or a file that is written again and again
//! histogram = "query_duration_seconds"      # of what the metrics hold
//! labels = { job = "db" }                   # its series with these labels, summed; without it all of them
//! p95 = "30ms"
//!
//! [[host]]                                  # where a VM may go if no weights hold all levels
//! connect = "qemu+ssh://root@other/system"  # its libvirt
//! cpus = "2-7"                              # the pCPUs that VMs may use there; all of them if not given
//! ```
//! An unknown key is an error, and so is a level that cannot be.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vsteer_core::limits;
use vsteer_core::span::duration;
use vsteer_core::{CpuSet, Fault, FaultKind};
use vsteer_sla::control::Level;
use vsteer_sla::hold::Promise;

mod source;

pub use source::Source;

/// The shortest period: a shorter one has too few requests.
const PERIOD_LEAST: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_secs(60);
/// Driver domains, whose weight vsteer never changes.
const NEVER: [&str; 2] = ["Domain-0", "dom0"];

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    period: Option<String>,
    #[serde(default, rename = "vm")]
    vms: Vec<Vm>,
    #[serde(default, rename = "host")]
    hosts: Vec<Host>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    connect: String,
    cpus: Option<String>,
}

/// A host to which a VM may move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherHost {
    /// Connection URI of its libvirt.
    pub connect: String,
    /// pCPUs that VMs may use there; `None`: all.
    pub cpus: Option<CpuSet>,
}

impl Host {
    fn read(self) -> Result<OtherHost, Fault> {
        let bad = |what: String| Fault::new(FaultKind::BadInput, format!("host {:?}: {what}", self.connect));
        if !self.connect.contains("://") {
            return Err(bad("not a connection URI".to_owned())
                .help("write for example connect = \"qemu+ssh://root@other/system\""));
        }
        let cpus: Option<CpuSet> =
            self.cpus.as_deref().map(str::parse).transpose().map_err(|e| bad(format!("cpus: {e}")))?;
        if cpus.as_ref().is_some_and(|c| c.iter().next().is_none()) {
            return Err(bad("cpus: the list is empty".to_owned()));
        }
        Ok(OtherHost { connect: self.connect, cpus })
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vm {
    name: String,
    log: Option<PathBuf>,
    format: Option<String>,
    unit: Option<String>,
    zone: Option<String>,
    metrics: Option<String>,
    histogram: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    mean: Option<String>,
    p95: Option<String>,
    rate: Option<f64>,
}

/// The service levels, and where each VM's requests are visible.
#[derive(Debug, Clone, PartialEq)]
pub struct Sla {
    /// Length of a period.
    pub period: Duration,
    /// The VMs and their levels.
    pub promises: Vec<Promise>,
    /// Sources of their requests, in the same order.
    pub sources: Vec<Source>,
    /// Hosts to which a VM may move.
    pub hosts: Vec<OtherHost>,
}

impl Sla {
    /// Reads service levels from a file.
    ///
    /// # Errors
    /// If the file cannot be read; as [`Sla::parse`], with the file's name.
    pub fn read(file: &Path) -> Result<Sla, Fault> {
        let text = vsteer_record::files::text_at_most(file, limits::TEXT_FILE)
            .map_err(|e| Fault::io(format!("cannot read {}", file.display()), &e))?;
        Sla::parse(&text).map_err(|f| Fault { what: format!("{}: {}", file.display(), f.what), ..f })
    }

    /// Reads service levels from text.
    ///
    /// # Errors
    /// `BadInput` with line and key from the TOML parser, or with the VM and the fault of its levels.
    pub fn parse(text: &str) -> Result<Sla, Fault> {
        let bad = |what: String| Fault::new(FaultKind::BadInput, what);
        let text: Text = toml::from_str(text).map_err(|e| {
            bad("not a valid file of service levels".to_owned())
                .because(e.to_string().trim_end())
                .help("docs/service-levels.md describes the file; `vsteer steer --help` has an example")
        })?;
        let period =
            text.period.as_deref().map_or(Ok(PERIOD), duration).map_err(|e| bad(format!("period: {e}")))?;
        if period < PERIOD_LEAST {
            return Err(bad(format!(
                "period: {} ms is too short to measure service levels",
                period.as_millis()
            ))
            .help("write 10s or more"));
        }
        if text.vms.is_empty() {
            return Err(bad("the file holds no service level".to_owned())
                .help("add a [[vm]] with name, log or metrics, and a level"));
        }
        let hosts = text.hosts.into_iter().map(Host::read).collect::<Result<_, _>>()?;
        let mut sla = Sla { period, promises: Vec::new(), sources: Vec::new(), hosts };
        for vm in text.vms {
            let whose = format!("VM {:?}", vm.name);
            let bad = |what: String| bad(format!("{whose}: {what}"));
            if NEVER.contains(&vm.name.as_str()) {
                return Err(bad("vsteer never changes the weight of the driver domain".to_owned())
                    .help("leave this VM out"));
            }
            if sla.promises.iter().any(|p| p.vm == vm.name) {
                return Err(
                    bad("the file lists the VM twice".to_owned()).help("put all its levels into one [[vm]]")
                );
            }
            let source = Source::of(&vm)?;
            if let Some(other) = sla.sources.iter().position(|s| s.is(&source)) {
                let other = &sla.promises[other].vm;
                return Err(bad(format!("its log or histogram is also that of {other:?}"))
                    .help("give each VM a log or a histogram of its own requests"));
            }
            let time = |key: &str, text: &Option<String>| -> Result<Option<f64>, Fault> {
                let read =
                    |t: &String| duration(t).map(|d| d.as_secs_f64()).map_err(|e| bad(format!("{key}: {e}")));
                text.as_ref().map(read).transpose()
            };
            let level =
                Level { mean_s: time("mean", &vm.mean)?, p95_s: time("p95", &vm.p95)?, rate_hz: vm.rate };
            if level.mean_s.is_none() && level.p95_s.is_none() && level.rate_hz.is_none() {
                return Err(bad("no level is given".to_owned()).help("add mean, p95 or rate"));
            }
            if level.rate_hz.is_some_and(|r| !(r.is_finite() && r > 0.0)) {
                return Err(bad(format!("rate = {}: not greater than 0", level.rate_hz.unwrap_or(0.0))));
            }
            sla.promises.push(Promise { vm: vm.name, level });
            sla.sources.push(source);
        }
        Ok(sla)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_host::scrape::Place;
    use vsteer_record::access_log::Said;

    const SLA: &str = "period = \"30s\"\n[[vm]]\nname = \"web\"\nlog = \"/l/web\"\nformat = \"nginx\"\nmean = \"9ms\"\n\
        [[vm]]\nname = \"db\"\nlog = \"/l/db\"\np95 = \"30ms\"\nrate = 45\n";

    #[test]
    fn levels_are_read() {
        let sla = Sla::parse(SLA).unwrap();
        assert_eq!((sla.period.as_secs(), sla.promises.len()), (30, 2));
        assert_eq!(sla.promises[0].level, Level { mean_s: Some(0.009), p95_s: None, rate_hz: None });
        assert_eq!(sla.promises[1].level, Level { mean_s: None, p95_s: Some(0.03), rate_hz: Some(45.0) });
        let nginx = Said { format: Some("nginx".parse().unwrap()), ..Said::default() };
        assert_eq!(
            sla.sources,
            [
                Source::Log { file: "/l/web".into(), said: nginx },
                Source::Log { file: "/l/db".into(), said: Said::default() }
            ]
        );
    }

    const METRICS: &str = "[[vm]]\nname = \"web\"\nmetrics = \"http://h:9100/metrics\"\nhistogram = \"m_seconds\"\n\
        labels = { job = \"web\" }\nmean = \"9ms\"\n\
        [[vm]]\nname = \"db\"\nmetrics = \"/l/db.prom\"\nhistogram = 'm_seconds{job=\"db\"}'\np95 = \"30ms\"\n";

    #[test]
    fn metrics_are_read() {
        let sla = Sla::parse(METRICS).unwrap();
        let [
            Source::Metrics { place: http, histogram: web, .. },
            Source::Metrics { place: file, histogram: db, unit },
        ] = &sla.sources[..]
        else {
            panic!("{:?}", sla.sources)
        };
        assert_eq!(
            (http.to_string(), web.to_string()),
            ("http://h:9100/metrics".into(), r#"m_seconds{job="web"}"#.into())
        );
        assert_eq!(
            (file, db.to_string()),
            (&Place::File("/l/db.prom".into()), r#"m_seconds{job="db"}"#.into())
        );
        assert_eq!(*unit, None);
        // Two VMs behind one server, distinguished by labels.
        assert!(Sla::parse(&METRICS.replace("/l/db.prom", "http://h:9100/metrics")).is_ok());
    }

    #[test]
    fn other_hosts_are_read() {
        let of = |text: &str| Sla::parse(&format!("{SLA}[[host]]\n{text}"));
        let sla = of("connect = \"qemu+ssh://b/system\"\ncpus = \"2-3\"\n").unwrap();
        let cpus = Some("2,3".parse().unwrap());
        assert_eq!(sla.hosts, [OtherHost { connect: "qemu+ssh://b/system".into(), cpus }]);
        assert_eq!(of("connect = \"qemu://b/system\"").unwrap().hosts[0].cpus, None);
        for (text, says) in [
            ("connect = \"b\"", "not a connection URI"),
            ("connect = \"qemu://b\"\ncpus = \"x\"", "cpus"),
            ("connect = \"qemu://b\"\ncpus = \"\"", "cpus"),
            ("cpus = \"1\"", "connect"),
        ] {
            let fault = of(text).unwrap_err();
            assert!(fault.to_string().contains(says), "{text}: {fault}");
        }
    }

    #[test]
    fn what_cannot_be_promised_is_refused_by_name() {
        for (from, to, says) in [
            ("\"web\"", "\"db\"", "twice"),
            ("\"web\"", "\"Domain-0\"", "never changes"),
            ("/l/db", "/l/web", "also that of"),
            ("mean = \"9ms\"", "", "no level"),
            ("rate = 45", "rate = 0", "greater than 0"),
            ("rate = 45", "rate = nan", "greater than 0"),
            ("\"9ms\"", "\"-9ms\"", "mean"),
            ("\"9ms\"", "\"9\u{b5}s\"", "mean"),
            ("\"30s\"", "\"200ms\"", "too short"),
            ("rate", "rte", "rte"),
            ("format = \"nginx\"", "format = \"nix\"", "how long a request took"),
            ("format = \"nginx\"", "unit = \"day\"", "unit: "),
            ("format = \"nginx\"", "zone = \"Moon\"", "zone: "),
        ] {
            let fault = Sla::parse(&SLA.replacen(from, to, 1)).unwrap_err();
            assert!(fault.to_string().contains(says), "{to}: {fault}");
            assert_eq!(fault.kind, FaultKind::BadInput);
        }
        for (from, to, says) in [
            ("metrics = \"http://h:9100/metrics\"", "", "neither log nor metrics"),
            ("labels", "log = \"/l/web\"\nlabels", "both log and metrics"),
            ("metrics = \"http://h:9100/metrics\"", "log = \"/l/web\"", "apply to metrics, not to a log"),
            ("labels", "format = \"json\"\nlabels", "format and zone apply to a log"),
            ("histogram = \"m_seconds\"", "", "no histogram is named"),
            ("\"m_seconds\"", "\"m seconds\"", "is not a histogram: write NAME"),
            ("http://", "ftp://", "not ftp"),
            ("http://h:9100", "http://", "HOST:PORT"),
            ("job = \"web\"", "job = 3", "string"),
        ] {
            let fault = Sla::parse(&METRICS.replacen(from, to, 1)).unwrap_err();
            assert!(fault.to_string().contains(says), "{to}: {fault}");
            assert!(says == "string" || fault.to_string().contains("VM \"web\""), "{to}: {fault}");
        }
        let same =
            METRICS.replace("/l/db.prom", "http://h:9100/metrics").replace("job=\"db\"", "job=\"web\"");
        assert!(
            Sla::parse(&same)
                .unwrap_err()
                .to_string()
                .contains("VM \"db\": its log or histogram is also that of \"web\"")
        );
        assert!(Sla::parse("period = \"60s\"").unwrap_err().to_string().contains("holds no service level"));
    }
}
