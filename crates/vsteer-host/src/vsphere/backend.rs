//! The entry for vSphere in the backend table, and how vsteer gets the password for the login.
//!
//! The password comes from the named file, otherwise from the kernel's keyring, otherwise from the user. It
//! is never an argument or an environment variable, because other processes can read those.
//!
//! Left out: the keyrings of desktops (decision 0012).

use super::names::{is_by_name, mapped};
use super::{Access, Client, Esxi, SCHEME, Trust, keyring};
use crate::actuate::Actuate;
use crate::backend::{Backend, Changing, Described, Host, Login, Prompt, Request};
use crate::observe::CollectorChoice;
use std::time::Duration;
use vsteer_core::limits;
use vsteer_core::nouns::{Batch, Manager};
use vsteer_core::plan::Plan;
use vsteer_core::{Fault, FaultKind};

/// An ESXi host, alone or behind a vCenter.
pub const BACKEND: Backend = Backend {
    name: "vSphere",
    schemes: &[SCHEME],
    examples: &["vsphere://USER@ESXI", "vsphere://USER@VCENTER/ESXI"],
    about: "an ESXi host, through its own API or vCenter's; untried on a real one",
    sees: "ready, co-stop, limited and run times, from vSphere's own counters, every 20 s",
    sets: "shares, reservation, limit, affinity and latency sensitivity; topology of a powered-off VM",
    leaves_out: "events, resource pools, DRS and home nodes",
    recognise: |_| false,
    only_observes: false,
    steers: false,
    manages: |m| matches!(m, Manager::Vsphere(_)),
    open,
    change,
    settings: Some(settings),
};

/// The host and user that a request names.
fn access(request: &Request) -> Result<Access, Fault> {
    let missing =
        || Fault::new(FaultKind::Usage, "no vSphere host is named").help("add --connect vsphere://USER@HOST");
    let uri = request.connect.as_deref().ok_or_else(missing)?;
    with(Access::of(uri).ok_or_else(missing)??, &request.login)
}

/// Options of the command line override the URI.
fn with(mut access: Access, login: &Login) -> Result<Access, Fault> {
    match (&login.thumbprint, &login.authorities) {
        (Some(text), _) => access.trust = Trust::thumbprint(text)?,
        (None, Some(file)) => access.trust = Trust::Authorities(file.clone()),
        (None, None) => {}
    }
    if let Some(file) = &login.password_file {
        access.password_file = Some(file.clone());
    }
    Ok(access)
}

fn password(access: &Access, login: &Login, prompt: Prompt) -> Result<String, Fault> {
    if let Some(secret) = &login.secret {
        return Ok(secret.clone());
    }
    if let Some(file) = &access.password_file {
        let read = match file.to_str() {
            Some("-") => std::io::read_to_string(std::io::stdin()),
            _ => vsteer_record::files::text_at_most(file, limits::TEXT_FILE),
        };
        let text =
            read.map_err(|e| Fault::io(format!("cannot read the password in {}", file.display()), &e))?;
        return Ok(text.lines().next().unwrap_or_default().to_owned());
    }
    if let Some(found) = keyring::password(&access.place)? {
        return Ok(found);
    }
    if let Some(typed) = prompt(&format!("password of {}: ", access.place))? {
        return Ok(typed);
    }
    Err(Fault::new(
        FaultKind::Usage,
        format!("{} requires a password, but there is no terminal for a prompt", access.place),
    )
    .because("vsteer takes no password on the command line, where every user can see it")
    .help(format!(
        "use --password-file FILE, --password-file - (standard input), or: keyctl padd user {} @u",
        keyring::key_of(&access.place)
    )))
}

fn open(request: &Request) -> Result<Box<dyn Host>, Fault> {
    let access = access(request)?;
    if request.event_buffer.is_some() || request.collector != CollectorChoice::Auto {
        return Err(Fault::new(FaultKind::Usage, "vSphere has only its own counters and keeps no switches")
            .help("leave out --collector and --events"));
    }
    let password = password(&access, &request.login, request.prompt)?;
    Ok(Box::new(Esxi::observe(&access, &password, request.vms.clone(), request.statistics)?))
}

fn change(request: &Request, plan: Option<Plan>) -> Result<Changing, Fault> {
    let access = access(request)?;
    let password = password(&access, &request.login, request.prompt)?;
    let mut esxi = Esxi::open(&access, &password)?;
    let mut notes = esxi.take_notes();
    let now = plan.as_ref().map(|plan| esxi.config_of(&plan.parent.hostname)).transpose()?;
    let plan = match (plan, &now) {
        (Some(plan), Some(now)) if is_by_name(&plan) => {
            let (plan, more) = mapped(&plan, now, &mut esxi)?;
            notes.extend(more);
            Some(plan)
        }
        (plan, _) => plan,
    };
    let connect = Some(esxi.access(&access).uri());
    Ok(Changing { actuator: Box::new(esxi), now, plan, connect, secret: Some(password), notes })
}

fn settings(request: &Request) -> Result<Described, Fault> {
    let access = access(request)?;
    let password = password(&access, &request.login, request.prompt)?;
    let mut inventory = Client::login(access.place.clone(), &password, &access.trust)?.inventory()?;
    if let Some(name) = &access.esxi {
        inventory.hosts.retain(|h| h.config.hostname == *name || h.id == *name);
        if inventory.hosts.is_empty() {
            return Err(Fault::new(
                FaultKind::NothingThere,
                format!("{}: the plan's host {name:?} does not exist there", access.place),
            ));
        }
    }
    let hosts = inventory.hosts.into_iter().map(|h| (h.config, h.running.len())).collect();
    Ok(Described { about: inventory.about, hosts, notes: inventory.notes })
}

impl Host for Esxi {
    fn take_notes(&mut self) -> Vec<String> {
        Esxi::take_notes(self)
    }

    fn past(&mut self, length: Duration) -> Option<Result<Vec<Batch>, Fault>> {
        Some(Esxi::past(self, length))
    }

    fn length_of_past(&self, length: Option<Duration>) -> Result<Option<Duration>, Fault> {
        if !self.reads_statistics() {
            return Ok(None);
        }
        let missing = || {
            Fault::new(FaultKind::Usage, "--statistics needs a time span").help("add for example --for 24h")
        };
        length.map(Some).ok_or_else(missing)
    }

    fn actuator(&mut self) -> Result<&mut dyn Actuate, Fault> {
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_before_what_the_uri_says() {
        let uri = format!("vsphere://root@esx1?thumbprint={}&password-file=/a", "ab".repeat(32));
        let of =
            |login: &Login| access(&Request { login: login.clone(), ..Request::of(Some(&uri)) }).unwrap();
        assert_eq!(of(&Login::default()).trust, Trust::Thumbprint([0xab; 32]));
        let login = Login {
            authorities: Some("/ca.pem".into()),
            password_file: Some("/b".into()),
            ..Login::default()
        };
        let said = of(&login);
        assert_eq!(
            (said.trust, said.password_file),
            (Trust::Authorities("/ca.pem".into()), Some("/b".into()))
        );
    }
}
