//! Sends one message to vSphere and receives the answer, on a connection that stays open.
//!
//! vSphere's SOAP server needs POST, TLS, and the session's cookie, which this file keeps. If the server
//! closed the kept connection between two messages, vsteer sends the second one once more on a new
//! connection.
//!
//! Source: VMware, vSphere Web Services SDK Programming Guide ("HTTP session"). Left out: proxies, which
//! separate a datacenter from the Internet, so there is none inside it.

use super::Trust;
use crate::http::{Answer, Client, Failure, Limits};
use std::sync::Arc;
use std::time::Duration;
use ureq::http::{Request, header};
use vsteer_core::{Fault, FaultKind};

/// The inventory of a thousand VMs takes some megabytes and some seconds.
const LIMITS: Limits = Limits {
    total: Duration::from_secs(300),
    connect: Duration::from_secs(10),
    silence: Duration::from_secs(60),
    bytes: 256 << 20,
};

/// A connection; it opens with the first message.
pub(super) struct Connection {
    client: Client,
    host: String,
    port: u16,
    cookie: Option<String>,
}

impl Connection {
    pub(super) fn new(host: &str, port: u16, trust: &Trust) -> Result<Connection, Fault> {
        Connection::within(LIMITS, host, port, trust)
    }

    fn within(limits: Limits, host: &str, port: u16, trust: &Trust) -> Result<Connection, Fault> {
        let config = trust.config().map_err(|f| match f.kind {
            FaultKind::NothingThere => {
                f.help("name the authorities with --ca FILE, or the host's certificate with --thumbprint")
            }
            _ => f,
        })?;
        let client = Client::new(limits, Some(Arc::new(config)), None);
        Ok(Connection { client, host: host.to_owned(), port, cookie: None })
    }

    /// Forgets the session: the next message begins without one.
    pub(super) fn forget_session(&mut self) {
        self.cookie = None;
    }

    /// Sends a message and waits for the answer: status and body.
    pub(super) fn post(&mut self, path: &str, body: &str) -> Result<(u16, String), Fault> {
        let connections = self.client.connections();
        let answer = self.exchange(path, body);
        let answer = match answer {
            // The server closed a kept connection and never saw the message. A new connection that breaks is not tried
            // again.
            Err(failure) if failure.is_closed() && self.client.connections() == connections => {
                self.exchange(path, body)
            }
            other => other,
        };
        let answer = answer.map_err(|failure| self.fault(&failure))?;
        let body = String::from_utf8(answer.body);
        let not_text = |_| {
            Fault::new(FaultKind::Failed, "cannot read the answer over HTTPS")
                .because("the answer is not UTF-8")
        };
        Ok((answer.status.as_u16(), body.map_err(not_text)?))
    }

    fn exchange(&mut self, path: &str, body: &str) -> Result<Answer, Failure> {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let mut request = Request::post(format!("https://{host}:{}{path}", self.port))
            .header(header::CONTENT_TYPE, "text/xml; charset=utf-8")
            .header("SOAPAction", "\"urn:vim25/6.0\"");
        if let Some(cookie) = &self.cookie {
            request = request.header(header::COOKIE, cookie);
        }
        let request = request.body(body).map_err(|e| Failure::Unreachable(e.into()))?;
        let answer = self.client.ask(request)?;
        // The client returns only the cookie's name and value, without its attributes.
        let cookies = answer.headers.get_all(header::SET_COOKIE).iter();
        let cookies = cookies.filter_map(|c| c.to_str().ok()?.split(';').next());
        if let Some(cookie) = cookies.map(str::trim).rfind(|c| !c.is_empty()) {
            self.cookie = Some(cookie.to_owned());
        }
        Ok(answer)
    }

    fn fault(&self, failure: &Failure) -> Fault {
        let with = |doing: &str| format!("{doing} {} port {}", self.host, self.port);
        match failure {
            Failure::Unreachable(_) => Fault::new(FaultKind::NothingThere, with("cannot connect to"))
                .because(failure)
                .help("check the name and the port, and that the host runs"),
            Failure::Untrusted(_) => Fault::new(FaultKind::NoPrivilege, with("cannot trust")).because(failure).help(
                "verify the certificate, then trust its authority with --ca FILE, or this certificate alone with --thumbprint",
            ),
            Failure::Redirected { .. } => Fault::new(FaultKind::Failed, "cannot ask over HTTPS")
                .because(failure)
                .help("connect to the address of the redirect, if it is the host you mean"),
            Failure::Broken(_) | Failure::TooLong(_) => {
                Fault::new(FaultKind::Failed, "cannot ask over HTTPS").because(failure)
            }
        }
    }
}

#[cfg(test)]
mod tests;
