//! Which host does a URI of ssh name? `ssh://[USER@]HOST[:PORT]`, or `qemu+ssh://[USER@]HOST[:PORT]/system`.
//!
//! HOST may be a name from the user's own configuration of ssh. Only plain characters are taken: ssh gives the names to
//! programs that its configuration can start, and reads an argument that begins with `-` as an option.
//!
//! Left out: parameters of libvirt's URIs. They are for libvirt's own connection.

use super::wire::Libvirt;
use vsteer_core::{Fault, FaultKind};

/// How URIs of this backend begin.
pub const SCHEMES: &[&str] = &[SSH, LIBVIRT];
const SSH: &str = "ssh://";
const LIBVIRT: &str = "qemu+ssh://";

/// A host that ssh reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `USER@HOST` or `HOST`, for ssh and for people.
    pub destination: String,
    /// The port, where the URI names one.
    pub port: Option<u16>,
    /// Only the VMs of this libvirt.
    pub libvirt: Option<Libvirt>,
}

impl Target {
    /// What the URI names.
    ///
    /// # Errors
    /// `Usage` for a URI that is not as the module says.
    pub fn of(uri: &str) -> Result<Target, Fault> {
        let bad = |why: &str| {
            Fault::new(FaultKind::Usage, format!("{uri:?} does not name a host for ssh")).because(why).help(
                "write ssh://USER@HOST or ssh://USER@HOST:PORT; for one libvirt: qemu+ssh://USER@HOST/system",
            )
        };
        let (rest, is_libvirt) = match (uri.strip_prefix(SSH), uri.strip_prefix(LIBVIRT)) {
            (Some(rest), _) => (rest, false),
            (_, Some(rest)) => (rest, true),
            _ => return Err(bad("it has another scheme")),
        };
        if rest.contains('?') {
            return Err(bad("vsteer uses ssh's own configuration, and no parameters"));
        }
        let (place, path) = rest.split_once('/').map_or((rest, ""), |(place, path)| (place, path));
        let libvirt = match (is_libvirt, path) {
            (false, "") => None,
            (false, _) => return Err(bad("nothing may follow the host")),
            (true, "system") => Some(Libvirt::System),
            (true, "session") => Some(Libvirt::Session),
            (true, _) => return Err(bad("its path is neither /system nor /session")),
        };
        let (user, host) = place.rsplit_once('@').map_or((None, place), |(user, host)| (Some(user), host));
        if let Some(why) = user.and_then(|user| odd(user, "._-+@")) {
            return Err(bad(&format!("the user's name {why}")));
        }
        let (host, port) = host_and_port(host).ok_or_else(|| bad("the text after the host is not a port"))?;
        if let Some(why) = odd(host, "._-:%") {
            return Err(bad(&format!("the host's name {why}")));
        }
        let destination = user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}"));
        Ok(Target { destination, port, libvirt })
    }
}

/// Why a name is refused: it has other characters than letters, digits and these signs, or a program would read it as
/// an option.
fn odd(name: &str, signs: &str) -> Option<String> {
    let allowed = |c: &char| c.is_ascii_alphanumeric() || signs.contains(*c);
    match name.chars().find(|c| !allowed(c)) {
        _ if name.is_empty() => Some("is empty".to_owned()),
        _ if name.starts_with('-') => Some("begins with -".to_owned()),
        other => other.map(|c| format!("has the character {c:?}")),
    }
}

/// `host:22`, `[::1]:22`. A colon in a host's name is only for an address in brackets.
fn host_and_port(text: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    match port {
        Some(port) => port.parse().ok().filter(|port| *port > 0).map(|port| (host, Some(port))),
        None => Some((host, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_name_hosts_or_are_refused() {
        let of = |uri| Target::of(uri).map(|t| (t.destination, t.port, t.libvirt)).unwrap();
        assert_eq!(of("ssh://host"), ("host".into(), None, None));
        assert_eq!(of("ssh://root@host:2222/"), ("root@host".into(), Some(2222), None));
        assert_eq!(of("ssh://a@b@h-1.x"), ("a@b@h-1.x".into(), None, None));
        assert_eq!(of("ssh://root@[fe80::1%eth0]:22"), ("root@fe80::1%eth0".into(), Some(22), None));
        assert_eq!(of("qemu+ssh://root@h/system"), ("root@h".into(), None, Some(Libvirt::System)));
        assert_eq!(of("qemu+ssh://h:1/session"), ("h".into(), Some(1), Some(Libvirt::Session)));
        for bad in [
            "ssh://",
            "ssh://-oProxyCommand=x",
            "ssh://-l@host",
            "ssh://@host",
            "ssh://a b",
            "ssh://h;reboot",
            "ssh://$(x)@h",
            "ssh://h:0",
            "ssh://h:70000",
            "ssh://h:x",
            "ssh://[::1]x",
            "ssh://[-x]",
            "ssh://h/etc",
            "ssh://h\n",
            "qemu+ssh://h",
            "qemu+ssh://h/",
            "qemu+ssh://h/system?no_verify=1",
            "qemu+ssh://-h/system",
            "qemu:///system",
        ] {
            assert_eq!(Target::of(bad).unwrap_err().kind, FaultKind::Usage, "{bad}");
        }
    }
}
