//! Which host does a command line mean, where the configuration has names of hosts and a default?
//!
//! A name has no colon and every URI has one, so a name never hides a URI. What is typed counts before the configuration.

use super::{Command, ExperimentWhat, Login, RealtimeWhat, Source};
use vsteer_record::config::{Config, Host, is_host_name};

/// What a command connects to.
struct Connection<'a> {
    connect: Connect<'a>,
    login: Option<&'a mut Login>,
    /// Does it only observe, and no recording? Then the configured default counts.
    observes: bool,
}

/// Commands that change a host take one, commands that observe may take several.
enum Connect<'a> {
    One(&'a mut Option<String>),
    Several(&'a mut Source),
}

impl<'a> Connection<'a> {
    fn observing(source: &'a mut Source, observes: bool) -> Option<Connection<'a>> {
        Some(Connection { connect: Connect::Several(source), login: None, observes })
    }

    fn of(command: &'a mut Command) -> Option<Connection<'a>> {
        let plain =
            |connect| Some(Connection { connect: Connect::One(connect), login: None, observes: false });
        match command {
            Command::Top(a) => Connection::observing(&mut a.source, a.recording.is_none()),
            // A recorder that the system starts must not leave this host because somebody looks at another.
            Command::Record(a) => Connection::observing(&mut a.source, false),
            Command::Diagnose(a) => Connection::observing(&mut a.window.source, a.window.recording.is_none()),
            Command::Plan(a) => Connection::observing(&mut a.window.source, a.window.recording.is_none()),
            Command::Numa(a) => {
                let observes = a.window.recording.is_none() && a.host.is_none();
                Connection::observing(&mut a.window.source, observes)
            }
            Command::Apply(a) => Some(Connection {
                connect: Connect::One(&mut a.connect),
                login: Some(&mut a.login),
                observes: false,
            }),
            Command::Rollback(a) => Some(Connection {
                connect: Connect::One(&mut a.connect),
                login: Some(&mut a.login),
                observes: false,
            }),
            Command::Steer(a) => plain(&mut a.connect),
            Command::Realtime(a) => match &mut a.what {
                RealtimeWhat::Run(run) | RealtimeWhat::Enable(run) | RealtimeWhat::Unit(run) => {
                    plain(&mut run.connect)
                }
                _ => None,
            },
            Command::Experiment(a) => match &mut a.what {
                ExperimentWhat::Run { connect, .. } => plain(connect),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Command {
    /// Puts in the configured default, and the URI and login of a host that is named. The result: a note for the user.
    pub fn connect(&mut self, config: &Config) -> Option<String> {
        let Connection { connect, login, observes } = Connection::of(self)?;
        let default = config.text("connection.connect");
        match connect {
            Connect::One(connect) => {
                let host = named(config, connect.as_ref()?)?;
                let found = host.as_ref().ok().copied();
                if let Some(host) = found {
                    *connect = Some(host.connect.clone());
                    if let Some(login) = login {
                        *login = with_login(login, host);
                    }
                }
                host.err()
            }
            Connect::Several(source) => {
                if observes && source.connect.is_empty() && !default.is_empty() {
                    source.connect.push(default.to_owned());
                }
                let mut notes = Vec::new();
                for at in 0..source.connect.len() {
                    match named(config, &source.connect[at]) {
                        None => {}
                        Some(Err(note)) => notes.push(note),
                        Some(Ok(host)) => {
                            source.connect[at] = host.connect.clone();
                            source.logins.insert(host.connect.clone(), with_login(&source.login, host));
                        }
                    }
                }
                // With one host, its login is the command's.
                if let ([uri], Some(login)) = (&source.connect[..], source.logins.values().next()) {
                    debug_assert!(source.logins.contains_key(uri));
                    source.login = login.clone();
                }
                (!notes.is_empty()).then(|| notes.join("; "))
            }
        }
    }
}

/// The host that a word names, or a note that none is called so. `None`: it is a URI.
fn named<'a>(config: &'a Config, word: &str) -> Option<Result<&'a Host, String>> {
    if !is_host_name(word) {
        return None;
    }
    if let Some(host) = config.host(word) {
        return Some(Ok(host));
    }
    // libvirt has names of its own.
    let known: Vec<&str> = config.host_names().collect();
    (!known.is_empty()).then(|| {
        Err(format!(
            "the configuration has no host {word:?}, so libvirt looks for it; known: {}",
            known.join(", ")
        ))
    })
}

/// The login that was typed, and where it says nothing, the host's.
fn with_login(typed: &Login, host: &Host) -> Login {
    let mut login = typed.clone();
    // A certificate that is typed counts alone.
    if login.ca.is_none() && login.thumbprint.is_none() {
        (login.ca, login.thumbprint) = (host.ca.clone(), host.thumbprint.clone());
    }
    login.password_file = login.password_file.or_else(|| host.password_file.clone());
    login
}
