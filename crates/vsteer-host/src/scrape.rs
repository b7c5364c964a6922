//! What does a server report about itself? The page at `http://host:port/metrics`, or in a file that a program
//! rewrites. vsteer asks for protobuf, OpenMetrics or text, whichever the server has.
//!
//! Each scrape is one GET on its own connection, over http or https, with limits of time and bytes. vsteer checks
//! certificates with the system's authorities. It takes a proxy from the environment (the first of `ALL_PROXY`,
//! `HTTPS_PROXY`, `HTTP_PROXY` that is set; `NO_PROXY` lists exceptions), but never uses one for this machine itself.
//!
//! Sources: RFC 9110, Prometheus' exposition formats (prometheus.io). Left out: redirects, passwords, tokens,
//! compression.

use crate::http::{Answer, Client, Failure, Limits};
use crate::trust::Trust;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use ureq::http::{Request, StatusCode, Uri, header};
use ureq::{Proxy, ProxyProtocol};
use vsteer_core::{Fault, FaultKind, limits};
use vsteer_record::scraped::{Page, too_long};

/// The forms that vsteer reads, the best one first: only protobuf has native histograms, and only OpenMetrics tells that
/// it is complete.
const FORMS: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
                     application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

/// Where the page is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Asked for over http or https.
    Url(Uri),
    /// Read.
    File(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Url(url) => url.fmt(f),
            Place::File(file) => write!(f, "{}", file.display()),
        }
    }
}

impl Place {
    /// Of a URL, or a file.
    ///
    /// # Errors
    /// `Unsupported` for another scheme than http and https, `BadInput` for a URL without a host or with a password.
    pub fn parse(text: &str) -> Result<Place, Fault> {
        let Some((scheme, _)) = text.split_once("://") else { return Ok(Place::File(text.into())) };
        if !["http", "https"].iter().any(|s| scheme.eq_ignore_ascii_case(s)) {
            return Err(Fault::new(FaultKind::Unsupported, text)
                .because(format!("vsteer reads http and https, not {scheme}"))
                .help("let another program write the metrics into a file regularly, and name that file"));
        }
        let bad = |why: &str| {
            Fault::new(FaultKind::BadInput, text)
                .because(why)
                .help("write http://HOST:PORT/metrics, https://HOST:PORT/metrics, or a file name")
        };
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(bad("a URL holds only visible ASCII characters"));
        }
        let url: Uri = text.parse().map_err(|e: ureq::http::uri::InvalidUri| bad(&e.to_string()))?;
        let authority =
            url.authority().filter(|a| !a.host().is_empty()).ok_or_else(|| bad("the URL names no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("vsteer does not send user names and passwords"));
        }
        // After the host and a colon there is a port, or nothing.
        let port = authority.as_str()[authority.host().len()..].strip_prefix(':').unwrap_or_default();
        if !port.is_empty() && authority.port_u16().is_none() {
            return Err(bad(&format!("{port:?} is not a valid port")));
        }
        Ok(Place::Url(url))
    }

    /// The page that is there now. `limit`: for all of it, where it is asked for.
    ///
    /// # Errors
    /// As for reading a file; `NothingThere` where nobody listens, `NoPrivilege` for a certificate that is not
    /// trusted, `Failed` for any other answer than the page and for one that takes longer, `BadInput` for what is too
    /// long.
    pub fn fetch(&self, limit: Duration) -> Result<Page, Fault> {
        self.fetch_trusting(&Trust::System, limit)
    }

    fn fetch_trusting(&self, trust: &Trust, limit: Duration) -> Result<Page, Fault> {
        let url = match self {
            Place::File(path) => return Page::read(path),
            Place::Url(url) => url,
        };
        let what = format!("cannot read {self}");
        let proxy = usable(&what, url, Proxy::try_from_env())?;
        let bytes = get(&what, url, trust, limit, proxy)?;
        Page::new(&what, SystemTime::now(), bytes)
    }
}

/// The page at a URL.
fn get(
    what: &str,
    url: &Uri,
    trust: &Trust,
    limit: Duration,
    proxy: Option<Proxy>,
) -> Result<Vec<u8>, Fault> {
    let encrypted = url.scheme_str() == Some("https");
    let tls = if encrypted || proxy.as_ref().is_some_and(|p| p.protocol() == ProxyProtocol::Https) {
        Some(Arc::new(trust.config()?))
    } else {
        None
    };
    let limits = Limits { total: limit, connect: limit, silence: limit, bytes: limits::METRICS_PAGE };
    let request = Request::get(url)
        .header(header::ACCEPT, FORMS)
        .header(header::CONNECTION, "close")
        .body(())
        .map_err(|e| Fault::new(FaultKind::BadInput, what).because(e))?;
    let through = proxy.as_ref().map(|p| format!("{}:{}", p.host(), p.port()));
    let answer = Client::new(limits, tls, proxy).ask(request);
    page(what, answer.map_err(|failure| fault(what, &failure, through.as_deref()))?)
}

/// Is it an address of this machine itself?
pub(crate) fn is_here(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// The proxy of the environment, if it is for this URL.
pub(crate) fn usable(what: &str, url: &Uri, proxy: Option<Proxy>) -> Result<Option<Proxy>, Fault> {
    let proxy = proxy.filter(|p| !is_here(url) && !p.is_no_proxy(url));
    if let Some(proxy) = &proxy
        && !matches!(proxy.protocol(), ProxyProtocol::Http | ProxyProtocol::Https)
    {
        return Err(Fault::new(FaultKind::Unsupported, what)
            .because(format!("vsteer cannot use the SOCKS proxy {}:{}", proxy.host(), proxy.port()))
            .help("name the server in NO_PROXY, or an HTTP proxy in ALL_PROXY"));
    }
    Ok(proxy)
}

/// The fault of a failed request, with help. `through`: the proxy.
pub(crate) fn fault(what: &str, failure: &Failure, through: Option<&str>) -> Fault {
    let of = |kind: FaultKind| Fault::new(kind, what).because(failure);
    if failure.is_late() {
        return of(FaultKind::Failed).help("check that the server answers within seconds");
    }
    if failure.is_closed() {
        return Fault::new(FaultKind::BadInput, what)
            .because("the answer was cut off")
            .help("run the command again; if the error repeats, read the server's log");
    }
    match (failure, through) {
        (Failure::Unreachable(e), Some(proxy)) => Fault::new(FaultKind::Failed, what)
            .because(format!("through the proxy {proxy}: {e}"))
            .help("check the proxy, or name the server in NO_PROXY"),
        (Failure::Unreachable(ureq::Error::Io(e)), None) => match e.kind() {
            std::io::ErrorKind::ConnectionRefused => {
                of(FaultKind::NothingThere).help("check that the server runs and listens on this port")
            }
            _ => Fault::io(what, e).help("check that the server runs, and its name and port"),
        },
        (Failure::Untrusted(_), _) => of(FaultKind::NoPrivilege)
            .help("set SSL_CERT_FILE to a PEM file with the authority of the server's certificate"),
        (Failure::TooLong(_), _) => too_long(what),
        (Failure::Redirected { .. }, _) => {
            of(FaultKind::Failed).help("use the address of the redirect, if you trust it")
        }
        (Failure::Unreachable(_) | Failure::Broken(_), _) => not_the_page(what, failure),
    }
}

fn not_the_page(what: &str, why: impl fmt::Display) -> Fault {
    Fault::new(FaultKind::Failed, what).because(why).help("check that the address names a metrics page")
}

/// The page in an answer.
fn page(what: &str, answer: Answer) -> Result<Vec<u8>, Fault> {
    if answer.status != StatusCode::OK {
        return Err(not_the_page(what, format!("the server answers with status {}", answer.status)));
    }
    match answer.headers.get(header::CONTENT_ENCODING).map(|e| String::from_utf8_lossy(e.as_bytes())) {
        Some(encoding) if !encoding.eq_ignore_ascii_case("identity") => Err(not_the_page(
            what,
            format!("the page has the encoding {encoding}, which vsteer did not request"),
        )),
        _ => Ok(answer.body),
    }
}

#[cfg(test)]
mod tests;
