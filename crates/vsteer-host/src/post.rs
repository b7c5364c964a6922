//! How does vsteer send a message to a web server? One POST on a connection of its own, with a limit of time.
//!
//! The client, its proxies and its refusals are those of [`crate::scrape`]. The address may hold a secret, as those of chat
//! services do, so faults name the host alone.
//!
//! Sources: RFC 9110. Left out: redirects, and what the server answers besides its status.

use crate::http::{Client, Failure, Limits};
use crate::scrape::{Place, usable};
use crate::trust::Trust;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ureq::Proxy;
use ureq::http::{Request, Uri, header};
use vsteer_core::{Fault, FaultKind};

/// Bytes of an answer that are read.
const ANSWER_MOST: u64 = 1 << 20;

/// Where to post.
#[derive(Debug, Clone)]
pub struct Target {
    url: Uri,
    trust: Trust,
}

impl Target {
    /// The server at this address. `ca`: a file of the authorities to trust in place of the system's.
    ///
    /// # Errors
    /// As [`Place::parse`]; `BadInput` if `url` is not a valid address.
    pub fn new(url: &str, ca: Option<&Path>) -> Result<Target, Fault> {
        let Place::Url(url) = Place::parse(url)? else {
            return Err(Fault::new(FaultKind::BadInput, format!("{url:?} is not an address")));
        };
        let trust = ca.map_or(Trust::System, |file| Trust::Authorities(file.to_owned()));
        Ok(Target { url, trust })
    }

    /// The server's name, for messages.
    pub fn host(&self) -> &str {
        self.url.host().unwrap_or_default()
    }

    /// Posts a body. Returns the status of the answer.
    ///
    /// # Errors
    /// `NoPrivilege` for a certificate that is not trusted, `Failed` if no answer came within `limit`, `Unsupported` for a
    /// SOCKS proxy.
    pub fn post(&self, head: &[(&str, &str)], body: &[u8], limit: Duration) -> Result<u16, Fault> {
        let what = format!("cannot post to {}", self.host());
        let proxy = usable(&what, &self.url, Proxy::try_from_env())?;
        let tls = match self.url.scheme_str() {
            Some("https") => Some(Arc::new(self.trust.config()?)),
            _ => None,
        };
        let limits = Limits { total: limit, connect: limit, silence: limit, bytes: ANSWER_MOST };
        let request = head
            .iter()
            .fold(Request::post(&self.url), |request, (name, value)| request.header(*name, *value));
        let request = request.header(header::CONNECTION, "close").body(body);
        let request = request.map_err(|e| Fault::new(FaultKind::BadInput, what.as_str()).because(e))?;
        match Client::new(limits, tls, proxy).status(request) {
            Ok(status) => Ok(status.as_u16()),
            Err(failure @ Failure::Untrusted(_)) => Err(Fault::new(FaultKind::NoPrivilege, what)
                .because(failure)
                .help("set ca to a PEM file with the authority of the server's certificate")),
            Err(failure) => Err(Fault::new(FaultKind::Failed, what)
                .because(failure)
                .help("check that the server runs, and that this host may connect to it")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::server::{Identity, Server, whole};

    #[test]
    fn a_server_must_be_the_one_it_claims_to_be() {
        let (ours, other) = (Identity::new(), Identity::new());
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, pem: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, pem).unwrap();
            path
        };
        let (good, bad) = (file("ours", &ours.pem), file("other", &other.pem));
        let answer = "HTTP/1.1 204 No Content\r\n\r\n";
        let post = |ca: &Path, server: &Server| {
            let url = format!("https://localhost:{}/hook", server.at.port());
            Target::new(&url, Some(ca)).unwrap().post(&[("webhook-id", "7")], b"{}", Duration::from_secs(5))
        };
        let server = Server::secure(vec![vec![whole(answer)]], &ours);
        assert_eq!(post(&good, &server), Ok(204));
        let asked = server.asked().remove(0);
        assert!(asked.starts_with("POST /hook HTTP/1.1\r\n") && asked.ends_with("\r\n\r\n{}"), "{asked}");
        assert!(asked.to_ascii_lowercase().contains("webhook-id: 7\r\n"), "{asked}");
        let server = Server::secure(vec![vec![whole(answer)]], &ours);
        let fault = post(&bad, &server).unwrap_err();
        assert_eq!(fault.kind, FaultKind::NoPrivilege, "{fault}");
    }

    #[test]
    fn a_fault_does_not_show_the_path_of_the_address() {
        let target = Target::new("http://127.0.0.1:1/secret", None).unwrap();
        let fault = target.post(&[], b"{}", Duration::from_secs(1)).unwrap_err().to_string();
        assert!(fault.contains("127.0.0.1") && !fault.contains("secret"), "{fault}");
        assert!(Target::new("/file", None).is_err());
    }
}
