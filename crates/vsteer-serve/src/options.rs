//! The command line, with defaults from the section `[serve]` of vsteer.toml.

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use vsteer_core::Fault;
use vsteer_core::span::Span;
use vsteer_host::backend::Login;
use vsteer_host::observe::CollectorChoice;
use vsteer_record::config::{Config, Loaded, Places};

/// Observe this host, and serve metrics of its VMs
///
/// The service answers on a Unix socket: /metrics for Prometheus, and /api/v1. Clients cannot change the host.
/// Defaults come from section `serve` of /etc/vsteer/vsteer.toml.
#[derive(Debug, Clone, Parser)]
#[command(name = "vsteer serve", bin_name = "vsteer serve", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Options {
    /// Answer on this Unix socket; `none`: no socket
    ///
    /// Root and members of group `vsteer` can connect. Without such a group only root can.
    #[arg(long, value_name = "PATH", default_value = "/run/vsteer/serve.sock")]
    pub socket: PathBuf,

    /// Answer on this address too (repeatable)
    ///
    /// Clients need a token or a certificate. An address that other machines can reach also needs TLS.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Vec<SocketAddr>,

    /// Read the tokens of clients from this file, one on each line
    #[arg(long, value_name = "FILE")]
    pub tokens: Option<PathBuf>,

    /// Use TLS with this certificate chain (PEM); the service reads it again when it changes
    #[arg(long, value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,

    /// Read the private key of the certificate from this file (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Accept clients with a certificate of these authorities (PEM) in place of a token
    #[arg(long, value_name = "FILE")]
    pub client_ca: Option<PathBuf>,

    /// Let clients call this service by NAME, besides localhost and addresses (repeatable)
    #[arg(long = "name", value_name = "NAME")]
    pub names: Vec<String>,

    /// Take a sample at this interval
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,

    /// Export vCPU time and delay under libvirt's and KubeVirt's names too
    #[arg(
        long,
        value_name = "yes|no",
        num_args = 0..=1,
        require_equals = true,
        default_value = "no",
        default_missing_value = "yes",
        value_parser = clap::builder::BoolishValueParser::new()
    )]
    pub compat_names: bool,

    /// Write the metrics to this file too, for node_exporter's textfile collector (its name ends in .prom)
    #[arg(long, value_name = "FILE", value_parser = textfile)]
    pub textfile: Option<PathBuf>,

    /// Keep the history of minutes and hours in this folder; `none`: keep no history [default: /var/lib/vsteer/history]
    ///
    /// Without this option, a service that cannot write the default folder goes on without a history.
    #[arg(long, value_name = "FOLDER")]
    pub history: Option<PathBuf>,

    /// Observe the host at URI, or of this name in vsteer.toml [default: this host]
    #[arg(long, value_name = "URI")]
    pub connect: Option<String>,

    /// Read the password for vSphere from the first line of this file
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,

    /// Trust the certificate authorities in this PEM file for vSphere, and no others
    #[arg(long, value_name = "FILE", conflicts_with = "thumbprint")]
    pub ca: Option<PathBuf>,

    /// Trust only the certificate of vSphere with this SHA-256 thumbprint
    #[arg(long, value_name = "SHA256")]
    pub thumbprint: Option<String>,

    /// Observe only the VM called NAME (repeatable) [default: all VMs]
    #[arg(long = "vm", value_name = "NAME")]
    pub vms: Vec<String>,

    /// Choose how to measure
    #[arg(long, default_value = "auto", value_parser = collector)]
    pub collector: CollectorChoice,

    /// Read FILE in place of the system's and the user's vsteer.toml; `none` reads no file [env: VSTEER_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Push the metrics to an OpenTelemetry collector at this address every 10 s (OTLP over HTTP, protobuf)
    ///
    /// An address that other machines can reach must be https.
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,

    /// Send one message of trigger NAME ([triggers.NAME] of vsteer.toml), say whether it arrived, and end
    #[arg(long, value_name = "NAME")]
    pub try_trigger: Option<String>,

    /// Print alerting rules for Prometheus, a dashboard for Grafana, the reference of metrics, the manual page or completions
    #[arg(long, value_name = "WHAT", value_parser = PRINTS)]
    pub print: Option<String>,
}

const PRINTS: [&str; 8] =
    ["rules", "dashboard-host", "dashboard-vm", "metrics", "man", "bash", "zsh", "fish"];

const EXAMPLES: &str = "Examples:
  vsteer serve                                     Answer on the Unix socket only
  curl --unix-socket /run/vsteer/serve.sock http://localhost/metrics
  vsteer serve --listen 127.0.0.1:9177 --tokens /etc/vsteer/tokens
  vsteer serve --print rules > /etc/prometheus/vsteer.rules.yml
  systemctl enable --now vsteer-serve              Run it as a service of systemd";

/// Reads the command line and the configuration. Ends the process for `--help` and what clap refuses.
///
/// # Errors
/// When the configuration is faulty.
pub fn read() -> Result<(Options, Config), Fault> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let (first, _) = parsed(Options::command(), &words);
    let variable = |name: &str| std::env::var_os(name);
    let loaded = Loaded::of(&Places::of(first.config.as_deref(), &variable), &variable);
    loaded.notes.iter().for_each(|note| eprintln!("vsteer-serve: {note}"));
    let config = loaded.strict()?;
    let (options, _) = parsed(with_defaults(&config), &words);
    Ok((options.of_host(&config), config))
}

impl Options {
    /// With the URI and the login of the host that `--connect` names. What is typed counts before the configuration.
    fn of_host(mut self, config: &Config) -> Options {
        let Some(host) = self.connect.as_deref().and_then(|word| config.host(word)) else { return self };
        self.connect = Some(host.connect.clone());
        // A certificate that is typed counts alone.
        if self.ca.is_none() && self.thumbprint.is_none() {
            (self.ca, self.thumbprint) = (host.ca.clone(), host.thumbprint.clone());
        }
        self.password_file = self.password_file.or_else(|| host.password_file.clone());
        self
    }

    /// How to log in at the host.
    pub fn login(&self) -> Login {
        Login {
            password_file: self.password_file.clone(),
            authorities: self.ca.clone(),
            thumbprint: self.thumbprint.clone(),
            secret: None,
        }
    }
}

fn parsed(command: clap::Command, words: &[OsString]) -> (Options, ArgMatches) {
    let mut again = command.clone();
    let matches = command.get_matches_from(words);
    let options = Options::from_arg_matches(&matches).unwrap_or_else(|e| e.format(&mut again).exit());
    (options, matches)
}

/// The command line with the configured values as defaults.
fn with_defaults(config: &Config) -> clap::Command {
    config.options_of("serve").into_iter().fold(Options::command(), |command, (id, values)| {
        // clap keeps references, and the command line is read once in the life of the process.
        let values: Vec<&'static str> = values.into_iter().map(|v| &*Box::leak(v.into_boxed_str())).collect();
        command.mut_arg(id, |arg| arg.default_values(values))
    })
}

const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);

fn interval(text: &str) -> Result<Duration, String> {
    let time = Duration::from_nanos(text.parse::<Span>()?.ns());
    if INTERVALS.contains(&time) {
        Ok(time)
    } else {
        Err("the interval must be from 100ms to 60s".to_owned())
    }
}

fn textfile(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.extension().is_some_and(|e| e == "prom") {
        Ok(path)
    } else {
        Err("node_exporter reads only files with the ending .prom".to_owned())
    }
}

fn collector(text: &str) -> Result<CollectorChoice, String> {
    match text {
        "auto" => Ok(CollectorChoice::Auto),
        "ebpf" => Ok(CollectorChoice::Ebpf),
        "schedstat" => Ok(CollectorChoice::Schedstat),
        "sampled" => Ok(CollectorChoice::Sampled),
        _ => Err("known collectors: auto, ebpf, schedstat, sampled".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_record::config::{Kind, keys, of_text};

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    /// Each key of `[serve]` is the default of its option, and a typed value counts before it.
    #[test]
    fn each_key_is_the_default_of_its_option() {
        let of_serve = keys().iter().flat_map(|key| {
            key.options.iter().filter(|(of, _)| *of == "serve").map(move |(_, id)| (key, *id))
        });
        let mut all = 0;
        for (key, id) in of_serve {
            let value = match key.kind {
                Kind::Time(_) => "7s",
                Kind::Choice(words) => words.iter().find(|w| **w != key.default).expect("two words"),
                Kind::File => "/srv/a.prom",
                kind => kind.example(),
            };
            let toml = if key.kind.is_list() { format!("[{value:?}]") } else { format!("{value:?}") };
            let loaded = of_text(&format!("[{}]\n{} = {toml}\n", key.section, key.name));
            assert!(loaded.wrong.is_empty(), "{:?}", loaded.wrong);
            let matches = with_defaults(&loaded.config).try_get_matches_from(["vsteer serve"]).unwrap();
            let raw: Vec<_> = matches.get_raw(id).expect(id).collect();
            assert_eq!(raw, [value], "{id}");
            all += 1;
        }
        assert!(all >= 10, "{all} keys");
        let config = of_text("[serve]\ninterval = \"7s\"\ncompat_names = \"yes\"\n").config;
        let words = ["vsteer serve", "--interval", "3s", "--compat-names=no"].map(OsString::from);
        let (options, _) = parsed(with_defaults(&config), &words);
        assert_eq!((options.interval, options.compat_names), (Duration::from_secs(3), false));
    }
    #[test]
    fn a_host_of_the_configuration_brings_its_login() {
        let thumbprint = "ab".repeat(32);
        let loaded = of_text(&format!(
            "[hosts.esx1]\nconnect = \"vsphere://root@esx1\"\nthumbprint = \"{thumbprint}\"\npassword_file = \"/p\"\n"
        ));
        assert!(loaded.wrong.is_empty(), "{:?}", loaded.wrong);
        let of = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            parsed(Options::command(), &words).0.of_host(&loaded.config)
        };
        let named = of(&["vsteer serve", "--connect", "esx1"]);
        assert_eq!(named.connect.as_deref(), Some("vsphere://root@esx1"));
        assert_eq!(
            (named.thumbprint.as_deref(), named.password_file),
            (Some(thumbprint.as_str()), Some("/p".into()))
        );
        let typed = of(&["vsteer serve", "--connect", "esx1", "--ca", "/ca.pem"]);
        assert_eq!((typed.ca, typed.thumbprint), (Some("/ca.pem".into()), None));
        assert_eq!(of(&["vsteer serve", "--connect", "xen:///"]).connect.as_deref(), Some("xen:///"));
    }
}
