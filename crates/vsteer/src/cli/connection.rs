//! Which host does a command line mean, where the configuration has names of hosts and a default?
//!
//! A name has no colon and every URI has one, so a name never hides a URI. What is typed counts before the configuration.

use super::{Command, ExperimentWhat, Login, RealtimeWhat, Source};
use vsteer_record::config::{Config, is_host_name};

/// What a command connects to.
struct Connection<'a> {
    connect: &'a mut Option<String>,
    login: Option<&'a mut Login>,
    /// Does it only observe, and no recording? Then the configured default counts.
    observes: bool,
}

impl<'a> Connection<'a> {
    fn observing(source: &'a mut Source, observes: bool) -> Option<Connection<'a>> {
        Some(Connection { connect: &mut source.connect, login: Some(&mut source.login), observes })
    }

    fn of(command: &'a mut Command) -> Option<Connection<'a>> {
        let plain = |connect| Some(Connection { connect, login: None, observes: false });
        match command {
            Command::Top(a) => Connection::observing(&mut a.source, a.recording.is_none()),
            Command::Record(a) => Connection::observing(&mut a.source, true),
            Command::Diagnose(a) => Connection::observing(&mut a.window.source, a.window.recording.is_none()),
            Command::Plan(a) => Connection::observing(&mut a.window.source, a.window.recording.is_none()),
            Command::Numa(a) => {
                let observes = a.window.recording.is_none() && a.host.is_none();
                Connection::observing(&mut a.window.source, observes)
            }
            Command::Apply(a) => {
                Some(Connection { connect: &mut a.connect, login: Some(&mut a.login), observes: false })
            }
            Command::Rollback(a) => {
                Some(Connection { connect: &mut a.connect, login: Some(&mut a.login), observes: false })
            }
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
        let connection = Connection::of(self)?;
        let default = config.text("connection.connect");
        if connection.observes && connection.connect.is_none() && !default.is_empty() {
            *connection.connect = Some(default.to_owned());
        }
        let name = connection.connect.clone().filter(|text| is_host_name(text))?;
        let Some(host) = config.host(&name) else {
            // libvirt has names of its own.
            let known: Vec<&str> = config.host_names().collect();
            return (!known.is_empty()).then(|| {
                format!(
                    "the configuration has no host {name:?}, so libvirt looks for it; known: {}",
                    known.join(", ")
                )
            });
        };
        *connection.connect = Some(host.connect.clone());
        if let Some(login) = connection.login {
            // A certificate that is typed counts alone.
            if login.ca.is_none() && login.thumbprint.is_none() {
                (login.ca, login.thumbprint) = (host.ca.clone(), host.thumbprint.clone());
            }
            login.password_file = login.password_file.take().or_else(|| host.password_file.clone());
        }
        None
    }
}
