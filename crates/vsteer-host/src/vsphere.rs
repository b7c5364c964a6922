//! vSphere through its API: hosts, their VMs' settings, what the VMs wait for, and how to change the settings.
//!
//! The API (vim25) is SOAP over HTTPS. vsteer needs a dozen of its thousands of calls, so they are written by hand.
//! [`soap`] makes and reads the messages, [`https`] sends them on one connection, [`crate::trust`] checks the server's
//! certificate. Properties come through `RetrievePropertiesEx`, some hundred objects at a time ([`inventory`],
//! [`settings`]); counters through `QueryPerf` ([`counters`], [`series`]); each change is one `ReconfigVM_Task`
//! ([`reconfigure`]). [`esxi`] presents one host to the rest of the program. [`names`] finds the VMs that a plan made
//! from esxtop's files names.
//!
//! If a host has a self-signed certificate, the user gives its thumbprint, as for VMware's tools. The password comes
//! from a file, standard input, the kernel's keyring ([`keyring`]) or a terminal, never from the command line.
//!
//! A session ends after half an hour without calls, or when an administrator ends it. The refused call had no effect,
//! so vsteer logs in again and repeats it once ([`Client::call`]).
//!
//! Sources: VMware, vSphere Web Services API reference (vim25): ServiceInstance, SessionManager, ViewManager,
//! PropertyCollector, PerformanceManager, VirtualMachine, Task, HostHardwareInfo, VirtualMachineConfigInfo. Tested with
//! govmomi's simulator (v0.52.0); **untried** on a vCenter or an ESXi.
//!
//! Left out: events, resource pools, DRS: `GAP(vsphere-drs)`.

mod access;
pub mod backend;
mod counters;
mod esxi;
mod https;
mod inventory;
pub mod keyring;
mod names;
mod object;
mod reconfigure;
mod series;
mod settings;
mod soap;

pub use crate::trust::Trust;
pub use access::{Access, SCHEME};
pub use esxi::Esxi;
pub use inventory::{Found, Inventory};
pub use names::{is_by_name, mapped};

use https::Connection;
use soap::{Refused, Reply};
use vsteer_core::{Fault, FaultKind};

/// Which host to ask, and as which user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The user.
    pub user: String,
    /// Host name or address.
    pub host: String,
    /// Port, 443 unless said.
    pub port: u16,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        write!(f, "{SCHEME}{}@{host}:{}", access::encoded(&self.user), self.port)
    }
}

/// A session.
pub struct Client {
    place: Place,
    connection: Connection,
    /// Product name and version, as the vSphere reports them.
    about: String,
    managers: Managers,
    /// For logging in again, once a session has ended.
    password: String,
    /// Sessions begun so far: what belongs to a session (views, tokens) ends with it.
    sessions: u32,
}

/// The objects that calls are made of.
#[derive(Debug, Clone)]
struct Managers {
    root: String,
    properties: String,
    views: String,
    sessions: String,
    /// Of counters; a service may have none.
    performance: Option<String>,
}

impl Client {
    /// Connects and logs in.
    ///
    /// # Errors
    /// `NothingThere` where nobody answers; `NoPrivilege` where the certificate is not trusted, or user and password
    /// are refused; `BadInput` for an answer that is none of vSphere's.
    pub fn login(place: Place, password: &str, trust: &Trust) -> Result<Client, Fault> {
        let mut connection = Connection::new(&place.host, place.port, trust)?;
        let reply = call(
            &mut connection,
            &place,
            "<RetrieveServiceContent xmlns=\"urn:vim25\"><_this type=\"ServiceInstance\">ServiceInstance</_this></RetrieveServiceContent>",
        )?;
        let managers = reply.read(|answer| {
            let of = |name: &str| soap::text_of(answer, name);
            Some(Managers {
                root: of("rootFolder")?,
                properties: of("propertyCollector")?,
                views: of("viewManager")?,
                sessions: of("sessionManager")?,
                performance: of("perfManager"),
            })
        });
        let managers = managers.flatten().ok_or_else(|| {
            Fault::new(FaultKind::BadInput, format!("cannot use the answer of {place}"))
                .because("it is not the service content of vSphere")
        })?;
        let about = reply
            .read(|answer| soap::descendant(answer, "fullName").and_then(|n| n.text().map(str::to_owned)));
        let about = about.flatten().unwrap_or_default();
        let mut client =
            Client { about, place, connection, managers, password: password.to_owned(), sessions: 0 };
        client.begin_session()?;
        Ok(client)
    }

    fn begin_session(&mut self) -> Result<(), Fault> {
        self.connection.forget_session();
        let login = format!(
            "<Login xmlns=\"urn:vim25\"><_this type=\"SessionManager\">{}</_this><userName>{}</userName><password>{}</password></Login>",
            soap::escaped(&self.managers.sessions),
            soap::escaped(&self.place.user),
            soap::escaped(&self.password)
        );
        call(&mut self.connection, &self.place, &login)?;
        self.sessions += 1;
        Ok(())
    }

    /// What the service says of itself: `VMware vCenter Server 7.0.3 build-...`.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Whom it asks.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Makes a call; where the session has ended, after one more log-in. A call that is refused for that was not begun.
    fn call(&mut self, body: &str) -> Result<Reply, Refused> {
        match call(&mut self.connection, &self.place, body) {
            Err(refused) if refused.kind == "NotAuthenticated" => {
                self.begin_session()?;
                call(&mut self.connection, &self.place, body).map_err(|again| match again.kind.as_str() {
                    "NotAuthenticated" => {
                        let what = format!("{}: the session ended, and so did the next one", self.place);
                        Refused {
                            fault: Fault::new(FaultKind::NoPrivilege, what)
                                .help("find out who ends this user's sessions, then run the command again"),
                            ..again
                        }
                    }
                    _ => again,
                })
            }
            other => other,
        }
    }
}

impl Drop for Client {
    /// The session ends with us; one that is left behind ends by itself after half an hour.
    fn drop(&mut self) {
        let sessions = soap::escaped(&self.managers.sessions);
        let logout =
            format!("<Logout xmlns=\"urn:vim25\"><_this type=\"SessionManager\">{sessions}</_this></Logout>");
        // Not by `Client::call`: one that has ended needs no other.
        let _ = call(&mut self.connection, &self.place, &logout);
    }
}

fn call(connection: &mut Connection, place: &Place, body: &str) -> Result<Reply, Refused> {
    let (status, text) = connection
        .post("/sdk", &soap::envelope(body))
        .map_err(|f| Fault { what: format!("{}, {place}", f.what), ..f })?;
    Reply::of(place, status, text)
}
