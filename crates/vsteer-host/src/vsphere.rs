//! vSphere over its API: which hosts are there, how are they made, and how are their VMs set up?
//!
//! The API (vim25) is SOAP over HTTPS. Of its thousands of calls six are needed to read an inventory, so they are written by
//! hand: [`soap`] makes and reads the messages, [`https`] carries them on one connection, [`trust`] decides whether the other
//! end is whom it says. Properties come by one `RetrievePropertiesEx` over a container view, some hundred objects at a time.
//!
//! Certificates are checked. Where a host has one of its own making, its thumbprint is given, as VMware's tools want it;
//! a refusal says what it is. Passwords come from a file or standard input, never from the command line.
//!
//! Sources: VMware, vSphere Web Services API reference (vim25): ServiceInstance, SessionManager, ViewManager,
//! PropertyCollector, HostHardwareInfo, VirtualMachineConfigInfo. Tried against govmomi's simulator (v0.52.0); on a vCenter or an
//! ESXi **untried**.
//!
//! Left out: performance counters, changes, events, and every other thing: `GAP(vsphere-api)`.

mod https;
mod inventory;
mod soap;
mod trust;

pub use inventory::{Found, Inventory};
pub use trust::Trust;

use https::Connection;
use soap::Reply;
use vsteer_core::{Fault, FaultKind};

/// Whom to ask, and as whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The user.
    pub user: String,
    /// Host name or address.
    pub host: String,
    /// Port, 443 unless said.
    pub port: u16,
}

/// How such a URI begins.
pub const SCHEME: &str = "vsphere://";

impl Place {
    /// Of `vsphere://user@host:port`; `None` for another scheme.
    ///
    /// # Errors
    /// `Usage` for one without user or host, or with a password.
    pub fn of(uri: &str) -> Option<Result<Place, Fault>> {
        let rest = uri.strip_prefix(SCHEME)?.trim_end_matches('/');
        let wrong = |why: &str| {
            Err(Fault::new(FaultKind::Usage, format!("--connect {uri:?}"))
                .because(why)
                .way_out("vsphere://USER@HOST or vsphere://USER@HOST:PORT; the password by --password-file"))
        };
        // A user of a domain has an @ of his own: administrator@vsphere.local@vcenter.
        let Some((user, authority)) = rest.rsplit_once('@') else { return Some(wrong("it names no user")) };
        if user.is_empty() {
            return Some(wrong("it names no user"));
        }
        if user.contains(':') {
            return Some(wrong("a password in a URI is seen by everybody who lists processes"));
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !host.ends_with(':') && !port.contains(']') => match port.parse() {
                Ok(port) => (host, port),
                Err(_) => return Some(wrong("its port is no number")),
            },
            _ => (authority, 443),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let plain =
            !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:".contains(&b));
        if !plain {
            return Some(wrong("it names no host"));
        }
        Some(Ok(Place { user: user.to_owned(), host: host.to_owned(), port }))
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{SCHEME}{}@{}:{}", self.user, self.host, self.port)
    }
}

/// A session.
pub struct Client {
    place: Place,
    connection: Connection,
    /// What the service says of itself.
    about: String,
    managers: Managers,
}

/// The objects that calls are made of.
#[derive(Debug, Clone)]
struct Managers {
    root: String,
    properties: String,
    views: String,
    sessions: String,
}

impl Client {
    /// Connects and logs in.
    ///
    /// # Errors
    /// `NothingThere` where nobody answers; `NoPrivilege` where the certificate is not trusted, or user and password are refused;
    /// `BadInput` for an answer that is none of vSphere's.
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
            })
        });
        let managers = managers.flatten().ok_or_else(|| {
            Fault::new(FaultKind::BadInput, format!("what {place} answers"))
                .because("it is no vSphere's service content")
        })?;
        let about = reply
            .read(|answer| soap::descendant(answer, "fullName").and_then(|n| n.text().map(str::to_owned)));
        let login = format!(
            "<Login xmlns=\"urn:vim25\"><_this type=\"SessionManager\">{}</_this><userName>{}</userName><password>{}</password></Login>",
            soap::escaped(&managers.sessions),
            soap::escaped(&place.user),
            soap::escaped(password)
        );
        call(&mut connection, &place, &login)?;
        Ok(Client { about: about.flatten().unwrap_or_default(), place, connection, managers })
    }

    /// What the service says of itself: `VMware vCenter Server 7.0.3 build-...`.
    pub fn about(&self) -> &str {
        &self.about
    }

    fn call(&mut self, body: &str) -> Result<Reply, Fault> {
        call(&mut self.connection, &self.place, body)
    }
}

impl Drop for Client {
    /// The session ends with us; one that is left behind ends by itself after half an hour.
    fn drop(&mut self) {
        let sessions = soap::escaped(&self.managers.sessions);
        let _ = self.call(&format!(
            "<Logout xmlns=\"urn:vim25\"><_this type=\"SessionManager\">{sessions}</_this></Logout>"
        ));
    }
}

fn call(connection: &mut Connection, place: &Place, body: &str) -> Result<Reply, Fault> {
    let (status, text) = connection
        .post("/sdk", &soap::envelope(body))
        .map_err(|f| Fault { what: format!("{}, {place}", f.what), ..f })?;
    Reply::of(place, status, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let of =
            |uri: &str| Place::of(uri).unwrap().map(|p| (p.user, p.host, p.port)).map_err(|f| f.to_string());
        assert_eq!(of("vsphere://root@esx1"), Ok(("root".into(), "esx1".into(), 443)));
        assert_eq!(
            of("vsphere://administrator@vsphere.local@vc.example:8443/"),
            Ok(("administrator@vsphere.local".into(), "vc.example".into(), 8443))
        );
        assert_eq!(of("vsphere://root@[fe80::1]:443"), Ok(("root".into(), "fe80::1".into(), 443)));
        for wrong in
            ["vsphere://esx1", "vsphere://@esx1", "vsphere://a@", "vsphere://a@h:x", "vsphere://a@h\r\nX: y"]
        {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
        assert!(of("vsphere://root:secret@esx1").unwrap_err().contains("seen by everybody"));
        assert_eq!(Place::of("qemu:///system"), None);
    }
}
