//! Which keys does vsteer.toml have? One table: parser, defaults of options, `config show`, manual page and reference.
//!
//! A key sets what a person chooses once for a host. No key changes a host or gives consent to a change. A row that
//! names options is the default of these options. The program reads the other rows by name.
//!
//! To add a key, add a row. Left out: tables whose names the person chooses, `[hosts.NAME]` ([`HOST_KEYS`]) and
//! `[triggers.NAME]` ([`super::TRIGGER_KEYS`]).

use super::Value;
use std::sync::LazyLock;
use std::time::Duration;
use vsteer_core::diagnose::RULES;
use vsteer_core::setting::uri;
use vsteer_core::size::bytes;
use vsteer_core::span::duration;
use vsteer_core::thresholds::{self, THRESHOLDS, Threshold, Thresholds, Unit};
use vsteer_core::top_columns::COLUMNS;

/// What a value is. Every value is text, or a list of texts, in the form that the option takes.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A time with its unit, of at most this length.
    Time(Duration),
    /// A share with `%`, at most 100 %.
    Percent,
    /// A value of a threshold, with its unit.
    Threshold(&'static Threshold),
    /// A size in bytes with its unit.
    Size {
        /// Must be a power of two.
        power_of_two: bool,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of these words, each at most once.
    Words(&'static [&'static str]),
    /// A name of the time zone database.
    Zone,
    /// A folder, from the root.
    Folder,
    /// A file, from the root; or the word `none`.
    File,
    /// A list of addresses with ports, on which to listen.
    Addresses,
    /// A list of names of this host.
    Names,
    /// A connection URI, or the name of a host.
    Connection,
    /// An address to post to: https, or http on this machine.
    Url,
    /// A program with its arguments.
    Command,
    /// A list of rules of `diagnose`.
    Rules,
    /// A list of names of VMs.
    VmNames,
    /// A number of pCPUs.
    Pcpus,
}

/// An environment variable that sets a key.
#[derive(Clone, Copy)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The value of the key, if the variable has this value.
    pub means: fn(&str) -> Option<String>,
}

/// A row of the table.
#[derive(Clone, Copy)]
pub struct Key {
    /// The table of the configuration file that contains this key.
    pub section: &'static str,
    /// Its name there.
    pub name: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// Its value without a file. The empty text: not set.
    pub default: &'static str,
    /// The variable that counts before the files.
    pub variable: Option<Variable>,
    /// The options whose default it is: command, id of the argument.
    pub options: &'static [(&'static str, &'static str)],
    /// The option, as a person types it, that counts before it.
    pub overridden_by: Option<&'static str>,
    /// What it means.
    pub meaning: &'static str,
}

/// A table of the file, and what it is about.
pub const SECTIONS: &[(&str, &str)] = &[
    ("connection", "Which host vsteer observes."),
    ("collector", "How vsteer measures."),
    ("record", "Recordings of `vsteer record`."),
    ("top", "The table of `vsteer top`."),
    ("plan", "Plans of `vsteer plan`."),
    ("serve", "The service, `vsteer serve`."),
    ("thresholds", "When a delay matters: `diagnose`, `plan`, `numa`, `report` and the colours of `top`."),
    ("paths", "Folders. A folder of a unit of systemd must also be in its ReadWritePaths."),
    ("display", "How vsteer shows times and colours."),
];

/// The longest time that an option takes.
const YEAR: Duration = Duration::from_secs(365 * 86_400);
/// The longest interval of `record`.
pub const RECORD_INTERVAL_MOST: Duration = Duration::from_secs(60);

pub(super) const fn row(section: &'static str, name: &'static str, kind: Kind, default: &'static str) -> Key {
    Key { section, name, kind, default, variable: None, options: &[], overridden_by: None, meaning: "" }
}

fn verbatim(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn state_folder(text: &str) -> Option<String> {
    text.starts_with('/').then(|| text.to_owned())
}

fn no_colour(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| "never".to_owned())
}

/// All rows but those of thresholds.
const ROWS: &[Key] = &[
    Key {
        overridden_by: Some("--connect"),
        meaning: "Observe the host at this URI, or with this name in [hosts]. Empty: this host. It counts for top, \
            diagnose, plan and numa, but not for record.",
        ..row("connection", "connect", Kind::Connection, "")
    },
    Key {
        options: &[
            ("top", "collector"),
            ("record", "collector"),
            ("diagnose", "collector"),
            ("plan", "collector"),
            ("numa", "collector"),
            ("serve", "collector"),
        ],
        overridden_by: Some("--collector"),
        meaning: "Measure with this collector.",
        ..row("collector", "method", Kind::Choice(&["auto", "ebpf", "schedstat", "sampled"]), "auto")
    },
    Key {
        options: &[("diagnose", "length"), ("plan", "length"), ("numa", "length")],
        overridden_by: Some("--for"),
        meaning: "Observe a live host for this time.",
        ..row("collector", "observe_for", Kind::Time(YEAR), "20s")
    },
    Key {
        options: &[("record", "interval")],
        overridden_by: Some("--interval"),
        meaning: "Take a sample at this interval.",
        ..row("record", "interval", Kind::Time(RECORD_INTERVAL_MOST), "200ms")
    },
    Key {
        options: &[("record", "ring")],
        overridden_by: Some("--ring"),
        meaning: "Keep about the newest of this size. Empty: keep all.",
        ..row("record", "ring", Kind::Size { power_of_two: false }, "")
    },
    Key {
        options: &[("record", "event_buffer")],
        overridden_by: Some("--event-buffer"),
        meaning: "With --events, reserve this size in the kernel for context switches that were not read yet.",
        ..row("record", "event_buffer", Kind::Size { power_of_two: true }, "8M")
    },
    Key {
        options: &[("record", "trigger_window")],
        overridden_by: Some("--trigger-window"),
        meaning: "Judge the conditions of --trigger over this much time up to now.",
        ..row("record", "trigger_window", Kind::Time(YEAR), "10s")
    },
    Key {
        options: &[("record", "trigger_quiet")],
        overridden_by: Some("--trigger-quiet"),
        meaning: "After marking a time, ignore the same condition of the same VM for this time.",
        ..row("record", "trigger_quiet", Kind::Time(YEAR), "60s")
    },
    Key {
        options: &[("top", "interval"), ("replay", "interval")],
        overridden_by: Some("--interval"),
        meaning: "Update at this interval. It counts for replay too.",
        ..row("top", "interval", Kind::Time(YEAR), "2s")
    },
    Key {
        options: &[("top", "columns")],
        overridden_by: Some("--columns"),
        meaning: "Show these columns in this order. Empty: those that fit the terminal and have values.",
        ..row("top", "columns", Kind::Words(&COLUMNS), "")
    },
    Key {
        options: &[("plan", "work_loss")],
        overridden_by: Some("--work-loss"),
        meaning: "Reject plans that cost any VM more than this share of its work.",
        ..row("plan", "work_loss", Kind::Percent, "10%")
    },
    Key {
        options: &[("serve", "interval")],
        overridden_by: Some("--interval"),
        meaning: "Take a sample at this interval.",
        ..row("serve", "interval", Kind::Time(RECORD_INTERVAL_MOST), "1s")
    },
    Key {
        options: &[("serve", "socket")],
        overridden_by: Some("--socket"),
        meaning: "Answer on this Unix socket. none: no socket.",
        ..row("serve", "socket", Kind::File, "/run/vsteer/serve.sock")
    },
    Key {
        options: &[("serve", "listen")],
        overridden_by: Some("--listen"),
        meaning: "Answer on these addresses too. Clients need a token or a certificate.",
        ..row("serve", "listen", Kind::Addresses, "")
    },
    Key {
        options: &[("serve", "tokens")],
        overridden_by: Some("--tokens"),
        meaning: "Read the tokens of clients from this file, one on each line.",
        ..row("serve", "tokens", Kind::File, "")
    },
    Key {
        options: &[("serve", "tls_certificate")],
        overridden_by: Some("--tls-certificate"),
        meaning: "Use TLS with this certificate chain (PEM).",
        ..row("serve", "tls_certificate", Kind::File, "")
    },
    Key {
        options: &[("serve", "tls_key")],
        overridden_by: Some("--tls-key"),
        meaning: "The private key of tls_certificate (PEM).",
        ..row("serve", "tls_key", Kind::File, "")
    },
    Key {
        options: &[("serve", "client_ca")],
        overridden_by: Some("--client-ca"),
        meaning: "Accept clients with a certificate of these authorities (PEM) in place of a token.",
        ..row("serve", "client_ca", Kind::File, "")
    },
    Key {
        options: &[("serve", "names")],
        overridden_by: Some("--name"),
        meaning: "Names by which clients call this service, besides localhost and addresses.",
        ..row("serve", "names", Kind::Names, "")
    },
    Key {
        options: &[("serve", "textfile")],
        overridden_by: Some("--textfile"),
        meaning: "Write the metrics to this file too, for node_exporter.",
        ..row("serve", "textfile", Kind::File, "")
    },
    Key {
        options: &[("serve", "history")],
        overridden_by: Some("--history"),
        meaning: "Keep the history in this folder, and read it there. Empty: /var/lib/vsteer/history. none: keep none.",
        ..row("serve", "history", Kind::File, "")
    },
    Key {
        options: &[("serve", "compat_names")],
        overridden_by: Some("--compat-names"),
        meaning: "Export vCPU time and delay under libvirt's and KubeVirt's names too.",
        ..row("serve", "compat_names", Kind::Choice(&["no", "yes"]), "no")
    },
    Key {
        variable: Some(Variable { name: "VSTEER_STATE", means: state_folder }),
        meaning: "Keep undo journals in this folder. Empty: /var/lib/vsteer for root, else the user's state folder. \
            Undo what is applied before you change it.",
        ..row("paths", "state", Kind::Folder, "")
    },
    Key {
        overridden_by: Some("--output"),
        meaning: "Without --output, record into a new subfolder of this folder. Empty: `record` demands --output.",
        ..row("paths", "recordings", Kind::Folder, "")
    },
    Key {
        variable: Some(Variable { name: "TZ", means: verbatim }),
        meaning: "Show and read times in this time zone, for example Europe/Berlin. Empty: that of the system.",
        ..row("display", "time_zone", Kind::Zone, "")
    },
    Key {
        variable: Some(Variable { name: "NO_COLOR", means: no_colour }),
        meaning: "Use colours in the live table.",
        ..row("display", "colour", Kind::Choice(&["auto", "never"]), "auto")
    },
];

fn threshold(of: &'static Threshold) -> Key {
    // The table is made once and lives as long as the process.
    let default = of.unit.written(Thresholds::default().of(of)).leak();
    Key {
        default,
        overridden_by: Some("diagnose --threshold"),
        meaning: of.meaning,
        ..row("thresholds", of.name, Kind::Threshold(of), "")
    }
}

static ALL: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let mut all: Vec<Key> = ROWS.iter().copied().chain(THRESHOLDS.iter().map(threshold)).collect();
    let place = |key: &Key| SECTIONS.iter().position(|(name, _)| *name == key.section);
    all.sort_by_key(place);
    all
});

/// The table, in the order of [`SECTIONS`].
pub fn keys() -> &'static [Key] {
    &ALL
}

/// The place in the table of `section.name`.
///
/// # Panics
/// If the table lacks this key: an error of the program.
pub(super) fn place(full: &str) -> usize {
    keys().iter().position(|k| k.full() == full).unwrap_or_else(|| panic!("no key is called {full}"))
}

/// The built-in default of `section.name`, for the option that has it.
///
/// # Panics
/// As a wrong name is an error of the program.
pub fn default_of(full: &str) -> &'static str {
    keys()[place(full)].default
}

/// Keys of `[hosts.NAME]`: name, example, meaning.
pub const HOST_KEYS: &[(&str, &str, &str)] = &[
    ("connect", "vsphere://root@esx1", "The URI, without parameters. Required."),
    ("ca", "/etc/vsteer/ca.pem", "Trust the certificate authorities in this PEM file, and no others."),
    ("thumbprint", "AB:CD:...", "In place of ca: trust only the certificate with this SHA-256 thumbprint."),
    ("password_file", "/etc/vsteer/esx1.password", "Read the password from the first line of this file."),
];

/// The longest argument of a program, bytes.
const ARGUMENT_MOST: usize = 4096;
/// A name in a message is cut here, characters.
pub(super) const NAME_MOST: usize = 64;

/// The known name that was probably meant.
pub(super) fn nearest<'k>(text: &str, known: &[&'k str]) -> Option<&'k str> {
    // A longer name is not a typo, and comparing takes time in proportion to the lengths.
    if text.len() > NAME_MOST {
        return None;
    }
    let near = known.iter().map(|k| (*k, strsim::damerau_levenshtein(text, k))).min_by_key(|(_, off)| *off);
    near.filter(|(_, off)| *off <= 1.max(text.chars().count() / 3)).map(|(near, _)| near)
}

/// Why a value is refused: the fault, and what a person writes instead.
pub(super) struct Refused {
    pub fault: String,
    pub instead: String,
}

fn refused(fault: impl Into<String>, instead: impl Into<String>) -> Refused {
    Refused { fault: fault.into(), instead: instead.into() }
}

fn time(text: &str, most: Duration) -> Result<(), Refused> {
    let range = || {
        let most = if most == YEAR { "a year".to_owned() } else { format!("{}s", most.as_secs()) };
        format!("between 1ms and {most}")
    };
    if text.ends_with(|c: char| c.is_ascii_digit()) {
        return Err(refused(
            "the unit is missing",
            format!("write {:?}, or use ms, m, h or d", format!("{text}s")),
        ));
    }
    match duration(text) {
        Ok(time) if time <= most => Ok(()),
        Err(why) if !why.contains("between") => Err(refused("not a time", why)),
        _ => Err(refused("out of range", range())),
    }
}

fn of_threshold(row: &Threshold, text: &str) -> Result<(), Refused> {
    let example = row.unit.written(Thresholds::default().of(row));
    let unit = match row.unit {
        Unit::Share => "%",
        Unit::Time => "ms or s",
    };
    if text.ends_with(|c: char| c.is_ascii_digit()) {
        return Err(refused("the unit is missing", format!("add {unit}, as in {example:?}")));
    }
    if !row.unit.is_of(text) {
        return Err(refused("another unit is expected", format!("use {unit}, as in {example:?}")));
    }
    match thresholds::value(text) {
        Err(why) => Err(refused("not a value", why)),
        Ok(value) => Thresholds::default().set(row.name, value).map_err(|_| {
            refused("out of range", format!("between 0 and {}", row.unit.written(row.unit.most())))
        }),
    }
}

fn percent(text: &str) -> Result<(), Refused> {
    if !text.ends_with('%') {
        return Err(refused("the unit is missing", format!("write {:?}", format!("{text}%"))));
    }
    match thresholds::value(text) {
        Err(why) => Err(refused("not a percentage", why)),
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(()),
        Ok(_) => Err(refused("out of range", "between 0% and 100%")),
    }
}

fn size(text: &str, power_of_two: bool) -> Result<(), Refused> {
    if text.ends_with(|c: char| c.is_ascii_digit()) {
        return Err(refused("the unit is missing", "use K, M, G or T, as in \"64M\""));
    }
    match bytes(text) {
        Err(why) if why.contains("at least") => Err(refused("out of range", why)),
        Err(why) => Err(refused("not a size", why)),
        Ok(n) if power_of_two && !n.is_power_of_two() => {
            Err(refused("not a power of two", "for example 8M or 16M"))
        }
        Ok(_) => Ok(()),
    }
}

fn folder(text: &str) -> Result<(), Refused> {
    if text.starts_with('/') && !text.contains(char::is_control) {
        return Ok(());
    }
    Err(refused("not a path from the root", "begin it with /"))
}

fn address(text: &str) -> Result<(), Refused> {
    let parsed = text.parse::<std::net::SocketAddr>();
    parsed
        .map(drop)
        .map_err(|_| refused("not an address with a port", "for example 127.0.0.1:9177 or [::1]:9177"))
}

fn name(text: &str) -> Result<(), Refused> {
    if is_host_name(text) {
        Ok(())
    } else {
        Err(refused("not a name of a host", "for example vm7.example.org"))
    }
}

fn connection(text: &str) -> Result<(), Refused> {
    let unsafe_uri = |fault: vsteer_core::Fault| {
        refused("vsteer does not open this URI from a file", fault.cause.unwrap_or_default())
    };
    uri::from_file(text, &[]).map_err(unsafe_uri)
}

fn url(text: &str) -> Result<(), Refused> {
    let example = "for example https://alerts.example.org/vsteer";
    let Some((scheme, rest)) = text.split_once("://").filter(|_| text.bytes().all(|b| b.is_ascii_graphic()))
    else {
        return Err(refused("not an address", example));
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, _)) => host,
        None => authority.split(':').next().unwrap_or_default(),
    };
    let here = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    match scheme {
        _ if authority.contains('@') => {
            Err(refused("an address with a user name or a password", "leave it out: messages are signed"))
        }
        _ if host.is_empty() => Err(refused("the address names no host", example)),
        "https" => Ok(()),
        "http" if here => Ok(()),
        "http" => Err(refused("others on the network could read the messages", "use https")),
        _ => Err(refused("neither https nor http", example)),
    }
}

fn pcpus(text: &str) -> Result<(), Refused> {
    let known = text.parse().is_ok_and(|n: f64| (0.0..=1e6).contains(&n));
    if known { Ok(()) } else { Err(refused("not a number of pCPUs", "for example \"0.5\"")) }
}

fn argument(text: &str) -> Result<(), Refused> {
    let fits = text.len() <= ARGUMENT_MOST && !text.contains('\0');
    if fits {
        Ok(())
    } else {
        Err(refused("not an argument of a program", "at most 4096 bytes, without NUL"))
    }
}

fn word(text: &str, words: &[&str]) -> Result<(), Refused> {
    if words.contains(&text) {
        return Ok(());
    }
    let near = nearest(text, words).map(|near| format!("did you mean {near:?}?"));
    let instead = near.unwrap_or_else(|| format!("one of {}", words.join(", ")));
    Err(refused("not a known word", instead))
}

/// Is it a name of a host, and not a URI? Every URI has a colon, so a name never shadows one.
pub fn is_host_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !text.is_empty() && text.len() <= 64 && text.chars().all(allowed)
}

impl Kind {
    /// Refuses a single value that is not of this kind. Whether a named host exists is asked later.
    pub(super) fn check(self, text: &str) -> Result<(), Refused> {
        match self {
            Kind::Time(most) => time(text, most),
            Kind::Percent => percent(text),
            Kind::Threshold(row) => of_threshold(row, text),
            Kind::Size { power_of_two } => size(text, power_of_two),
            Kind::Choice(words) | Kind::Words(words) => word(text, words),
            Kind::Rules => word(text, &RULES.iter().map(|rule| rule.name).collect::<Vec<_>>()),
            Kind::Url => url(text),
            Kind::Command => argument(text),
            Kind::VmNames if text.is_empty() => Err(refused("not the name of a VM", "for example \"web\"")),
            Kind::VmNames => Ok(()),
            Kind::Pcpus => pcpus(text),
            Kind::Zone => jiff::tz::TimeZone::get(text)
                .map(drop)
                .map_err(|_| refused("not a time zone of this system", "for example Europe/Berlin or UTC")),
            Kind::File if text == "none" => Ok(()),
            Kind::Folder | Kind::File => folder(text),
            Kind::Addresses => address(text),
            Kind::Names => name(text),
            Kind::Connection if is_host_name(text) => Ok(()),
            Kind::Connection if !text.contains(':') => {
                Err(refused("neither a URI nor a name of a host", "for example qemu+ssh://root@host/system"))
            }
            Kind::Connection => connection(text),
        }
    }

    /// What a value is, for the reference.
    pub fn about(self) -> String {
        match self {
            Kind::Time(most) if most == YEAR => "time: ms, s, m, h, d".to_owned(),
            Kind::Time(most) => format!("time, at most {}s", most.as_secs()),
            Kind::Percent => "share in %".to_owned(),
            Kind::Threshold(row) if row.unit == Unit::Time => "time: ms, s".to_owned(),
            Kind::Threshold(_) => "share in %".to_owned(),
            Kind::Size { power_of_two: true } => "size: M, G; a power of two".to_owned(),
            Kind::Size { .. } => "size: M, G, T".to_owned(),
            Kind::Choice(words) => words.join(", "),
            Kind::Words(_) => "list of columns".to_owned(),
            Kind::Zone => "time zone".to_owned(),
            Kind::Folder => "folder, from the root".to_owned(),
            Kind::File => "file, from the root".to_owned(),
            Kind::Addresses => "list of addresses".to_owned(),
            Kind::Names => "list of names".to_owned(),
            Kind::Connection => "URI or name".to_owned(),
            Kind::Url => "https address".to_owned(),
            Kind::Command => "program and arguments".to_owned(),
            Kind::Rules => "list of rules".to_owned(),
            Kind::VmNames => "list of VMs".to_owned(),
            Kind::Pcpus => "number".to_owned(),
        }
    }

    /// A value of this kind, for a key that has none by default.
    pub fn example(self) -> &'static str {
        match self {
            Kind::Size { .. } => "2G",
            Kind::Folder => "/srv/vsteer",
            Kind::File => "/etc/vsteer/FILE",
            Kind::Addresses => "127.0.0.1:9177",
            Kind::Names => "vm7.example.org",
            Kind::Zone => "Europe/Berlin",
            Kind::Connection => "qemu:///system",
            Kind::Url => "https://alerts.example.org/vsteer",
            Kind::Command => "/usr/local/bin/page",
            Kind::Rules => "noisy_neighbour",
            Kind::VmNames => "web",
            _ => "",
        }
    }

    /// Is the value a list?
    pub fn is_list(self) -> bool {
        matches!(
            self,
            Kind::Words(_) | Kind::Addresses | Kind::Names | Kind::Command | Kind::Rules | Kind::VmNames
        )
    }
}

impl Key {
    /// `section.name`.
    pub fn full(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// The value without a file.
    pub(super) fn default_value(&self) -> Value {
        match self.kind.is_list() {
            true => Value::List(Vec::new()),
            false => Value::One(self.default.to_owned()),
        }
    }

    /// An example in TOML.
    pub fn example(&self) -> String {
        let text = if self.default.is_empty() { self.kind.example() } else { self.default };
        if self.kind.is_list() { format!("[{text:?}]") } else { format!("{text:?}") }
    }

    /// What counts before the files, for people: an option, a variable, both or nothing.
    pub fn overriders(&self) -> String {
        let variable = self.variable.map(|v| v.name);
        let all: Vec<&str> = self.overridden_by.into_iter().chain(variable).collect();
        all.join(", ")
    }
}
