//! Reads a connection URI for vSphere: the server, the ESXi host, the trusted certificates and the password's
//! place.
//!
//! `vsphere://USER@HOST[:PORT][/ESXI][?thumbprint=..&ca=..&password-file=..]`. HOST is a vCenter or an ESXi
//! host. ESXI names one of a vCenter's hosts. vsteer adds the options of the command line to the URI, so that
//! a journal with the URI is enough to undo a plan. The URI never holds a password.
//!
//! Source: RFC 3986 for the form. Left out: all other parts of a URI.

use super::{Place, Trust};
use std::fmt::Write as _;
use std::path::PathBuf;
use vsteer_core::{Fault, FaultKind};

/// The scheme of the URI.
pub const SCHEME: &str = "vsphere://";

/// The parts of such a URI; see the head of this file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The server and the user.
    pub place: Place,
    /// One host of a vCenter, given by its name or its object id.
    pub esxi: Option<String>,
    /// Which certificates to trust.
    pub trust: Trust,
    /// The file whose first line is the password; `-` means standard input.
    pub password_file: Option<PathBuf>,
}

impl Access {
    /// Parses a URI; `None` if it has another scheme.
    ///
    /// # Errors
    /// `Usage` if the URI has no user or no host, has a password, or has an unknown parameter.
    pub fn of(uri: &str) -> Option<Result<Access, Fault>> {
        let rest = uri.strip_prefix(SCHEME)?;
        let wrong = |why: &str| {
            // The message does not repeat the URI, because the URI may wrongly contain a password.
            Fault::new(FaultKind::Usage, "cannot use --connect vsphere://...").because(why).help(
                "write vsphere://USER@HOST or vsphere://USER@HOST:PORT/ESXI; give the password with --password-file, at the prompt or in the keyring",
            )
        };
        Some(parse(rest).map_err(|why| wrong(&why)))
    }

    /// The URI.
    pub fn uri(&self) -> String {
        let mut uri = self.place.to_string();
        if let Some(esxi) = &self.esxi {
            let _ = write!(uri, "/{}", encoded(esxi));
        }
        let mut parameters = Vec::new();
        match &self.trust {
            Trust::System => {}
            Trust::Authorities(file) => parameters.push(("ca", encoded(&file.to_string_lossy()))),
            Trust::Thumbprint(bytes) => {
                parameters.push(("thumbprint", bytes.iter().map(|b| format!("{b:02x}")).collect()));
            }
        }
        // Standard input cannot be read a second time.
        if let Some(file) = self.password_file.as_ref().filter(|f| f.as_os_str() != "-") {
            parameters.push(("password-file", encoded(&file.to_string_lossy())));
        }
        for (i, (name, value)) in parameters.iter().enumerate() {
            let _ = write!(uri, "{}{name}={value}", if i == 0 { '?' } else { '&' });
        }
        uri
    }
}

fn parse(rest: &str) -> Result<Access, String> {
    let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, esxi) = rest.split_once('/').unwrap_or((rest, ""));
    // The user name may contain an @ itself, if it has a domain: administrator@vsphere.local@vcenter.
    let (user, authority) = authority.rsplit_once('@').ok_or("the URI names no user")?;
    if user.is_empty() {
        return Err("the URI names no user".to_owned());
    }
    if user.contains(':') {
        return Err("the URI holds a password, which every user of this machine can see".to_owned());
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') && !port.contains(']') => {
            (host, port.parse().map_err(|_| "the port is not a valid number")?)
        }
        _ => (authority, 443),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() || !host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:".contains(&b)) {
        return Err("the URI names no host".to_owned());
    }
    let (mut trust, mut password_file) = (Trust::System, None);
    for parameter in parameters.split('&').filter(|p| !p.is_empty()) {
        let (name, value) = parameter.split_once('=').ok_or("a parameter is not of the form NAME=VALUE")?;
        let value = decoded(value)?;
        match name {
            "thumbprint" => trust = Trust::thumbprint(&value).map_err(|f| f.what)?,
            "ca" => trust = Trust::Authorities(value.into()),
            "password-file" => password_file = Some(value.into()),
            "password" => {
                return Err("the URI holds a password, which every user of this machine can see".to_owned());
            }
            _ => {
                return Err(format!(
                    "vsteer does not know the parameter {name:?}: known are thumbprint, ca, password-file"
                ));
            }
        }
    }
    let esxi = decoded(esxi.trim_end_matches('/'))?;
    let place = Place { user: decoded(user)?, host: host.to_owned(), port };
    Ok(Access { place, esxi: Some(esxi).filter(|e| !e.is_empty()), trust, password_file })
}

/// Percent-encodes all characters except plain ones (`%XX`).
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || b"-._~/@\\+".contains(&b) {
            out.push(char::from(b));
        } else {
            let _ = write!(out, "%{b:02X}");
        }
    }
    out
}

fn decoded(text: &str) -> Result<String, String> {
    let wrong = || format!("a % in {text:?} does not begin an encoded character");
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((b, after)) = rest.split_first() {
        if *b == b'%' {
            let digits = after.get(..2).and_then(|d| std::str::from_utf8(d).ok()).ok_or_else(wrong)?;
            // Rust accepts a sign before the digits, but the URI may not have one.
            let byte = u8::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'));
            bytes.push(byte.ok_or_else(wrong)?);
            rest = &after[2..];
        } else {
            bytes.push(*b);
            rest = after;
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(uri: &str) -> Result<Access, String> {
        Access::of(uri).unwrap().map_err(|f| f.to_string())
    }

    #[test]
    fn places() {
        let place = |uri: &str| of(uri).map(|a| (a.place.user, a.place.host, a.place.port, a.esxi));
        assert_eq!(place("vsphere://root@esx1"), Ok(("root".into(), "esx1".into(), 443, None)));
        assert_eq!(
            place("vsphere://administrator@vsphere.local@vc.example:8443/"),
            Ok(("administrator@vsphere.local".into(), "vc.example".into(), 8443, None))
        );
        assert_eq!(
            place("vsphere://root@[fe80::1]:443/esx 2"),
            Ok(("root".into(), "fe80::1".into(), 443, Some("esx 2".into())))
        );
        for wrong in [
            "vsphere://esx1",
            "vsphere://@esx1",
            "vsphere://a@",
            "vsphere://a@h:x",
            "vsphere://a@h\r\nX: y",
            "vsphere://a@h?x=1",
            "vsphere://a@h?thumbprint=ab",
            "vsphere://a@h?ca",
            "vsphere://a@h/%zz",
        ] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
        for secret in ["vsphere://root:secret@esx1", "vsphere://root@esx1?password=secret"] {
            let said = of(secret).unwrap_err();
            assert!(
                said.contains("every user of this machine can see") && !said.contains("secret@"),
                "{said}"
            );
        }
        assert!(Access::of("qemu:///system").is_none());
    }

    proptest! {
        #[test]
        fn a_uri_says_all_of_it(
            user in "[a-z@.%\\\\ ]{1,12}", esxi in proptest::option::of(".{1,12}"), file in proptest::option::of("[^\0]{1,12}"),
            trust in 0..3u8,
        ) {
            prop_assume!(!user.contains(':') && file.as_deref() != Some("-"));
            prop_assume!(esxi.as_deref().is_none_or(|e| !e.ends_with('/')));
            let trust = match trust {
                0 => Trust::System,
                1 => Trust::Authorities("/etc/a b&c".into()),
                _ => Trust::Thumbprint([7; 32]),
            };
            let place = Place { user, host: "vc.example".into(), port: 8443 };
            let access = Access { place, esxi, trust, password_file: file.map(Into::into) };
            prop_assert_eq!(of(&access.uri()), Ok(access));
        }

        #[test]
        fn any_uri_is_survived(text in any::<String>()) {
            let _ = Access::of(&format!("{SCHEME}{text}"));
        }
    }
}
