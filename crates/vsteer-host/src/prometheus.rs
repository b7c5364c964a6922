//! What did a Prometheus server store of a histogram? Asks its HTTP API for the raw samples of a time.
//!
//! vsteer asks for an hour at a time, and for half of it when the server or the limit of an answer refuses so much. So
//! memory does not depend on the length of a recording. Requests, certificates, proxies and the refusal of redirects are
//! those of [`crate::scrape`]. A token comes from a file and goes to this server alone. Servers with the same API
//! (Thanos, Mimir, VictoriaMetrics) work too; their address has a path.
//!
//! Sources: "HTTP API" (prometheus.io/docs/prometheus/latest/querying/api), RFC 6750. Left out: passwords, client
//! certificates, remote read.

use crate::http::{Answer, Client, Failure, Limits};
use crate::scrape::{self, Place, is_here, usable};
use crate::trust::Trust;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ureq::http::{HeaderValue, Request, StatusCode, Uri, header};
use ureq::{Proxy, ProxyProtocol};
use vsteer_core::{Fault, FaultKind, limits};
use vsteer_record::prometheus::Histogram;
use vsteer_record::prometheus::stored::{self, Samples, Stored, Target};
use vsteer_record::trusted::secret_text;
use vsteer_record::unit::Unit;

/// The length of the first query, ms, and that of the shortest.
const PIECE_MS: u64 = 3_600_000;
const LEAST_MS: u64 = 1_000;
/// To connect.
const CONNECT: Duration = Duration::from_secs(10);
/// How much of a server's words a fault shows, characters.
const SHOWN: usize = 300;

/// A Prometheus server.
pub struct Server {
    base: String,
    client: Client,
    through: Option<String>,
    token: Option<HeaderValue>,
    /// The address is plain http, and not of this machine.
    is_plain: bool,
}

impl Server {
    /// The server at this address. `token`: the file whose first line is the token that the server asks for.
    ///
    /// # Errors
    /// As [`Place::parse`] and as reading a secret file; `Usage` for an address with a query; `BadInput` for a file
    /// without a token.
    pub fn new(url: &str, token: Option<&Path>) -> Result<Server, Fault> {
        Server::trusting(url, token, &Trust::System, limits::METRICS_PAGE)
    }

    fn trusting(url: &str, token: Option<&Path>, trust: &Trust, bytes: u64) -> Result<Server, Fault> {
        let Place::Url(uri) = Place::parse(url)? else {
            return Err(Fault::new(FaultKind::Usage, format!("{url:?} is not the address of a server"))
                .help("write http://HOST:9090"));
        };
        if uri.query().is_some() || url.contains('#') {
            return Err(Fault::new(FaultKind::Usage, format!("{url} is not the address of a server"))
                .because("it has a query")
                .help("write http://HOST:9090; --histogram names what to ask for"));
        }
        let what = format!("cannot ask {uri}");
        let proxy = usable(&what, &uri, Proxy::try_from_env())?;
        let through_tls = proxy.as_ref().is_some_and(|p| p.protocol() == ProxyProtocol::Https);
        let tls = if uri.scheme_str() == Some("https") || through_tls {
            Some(Arc::new(trust.config()?))
        } else {
            None
        };
        let limits =
            Limits { total: limits::QUERY_TIME, connect: CONNECT, silence: limits::QUERY_TIME, bytes };
        let through = proxy.as_ref().map(|p| format!("{}:{}", p.host(), p.port()));
        let base = uri.to_string().trim_end_matches('/').to_owned();
        let token = token.map(bearer).transpose()?;
        let is_plain = uri.scheme_str() == Some("http") && !is_here(&uri);
        Ok(Server { base, client: Client::new(limits, tls, proxy), through, token, is_plain })
    }

    /// Does a token go over the network without encryption?
    pub fn is_overheard(&self) -> bool {
        self.is_plain
    }

    /// The scrapes of a histogram in these times (ns since 1970, in order, without overlap), one after the other for each
    /// target. Returns what the server warned of. `unit`: as for [`vsteer_record::prometheus::Scrape::read`].
    ///
    /// # Errors
    /// `NothingThere` where nobody listens, or if the server has no sample of the histogram from these times, with what it
    /// has instead; `NoPrivilege` for a certificate or a token that is refused; `Failed` for any other answer than the
    /// samples, with the server's words; `BadInput` for one that cannot be read.
    pub fn samples(
        &self,
        of: &Histogram,
        unit: Option<Unit>,
        times: &[(u64, u64)],
        each: &mut dyn FnMut(Stored),
    ) -> Result<Vec<String>, Fault> {
        let mut samples = Samples::new(of, unit);
        let (mut any, mut warnings) = (false, Vec::new());
        let mut each = |stored: Stored| {
            any |= stored.scrape.as_ref().map_or(true, |s| s.checked().is_ok());
            each(stored);
        };
        let mut piece_ms = PIECE_MS;
        for (from_ns, to_ns) in times {
            // A query's time is above 0.
            let (mut from_ms, to_ms) = ((from_ns / 1_000_000).max(1), to_ns / 1_000_000);
            while from_ms <= to_ms {
                let upto_ms = to_ms.min(from_ms + piece_ms - 1);
                let Some(answer) = self.piece(of, (from_ms, upto_ms))? else {
                    piece_ms = (upto_ms - from_ms).div_ceil(2).max(LEAST_MS);
                    continue;
                };
                let span = (from_ms.cast_signed() - 1, upto_ms.cast_signed());
                let begin_ms = from_ns.div_ceil(1_000_000);
                warnings.extend(self.take(&mut samples, &answer, span, begin_ms, &mut each)?);
                from_ms = upto_ms + 1;
            }
        }
        warnings.sort();
        warnings.dedup();
        if any { Ok(warnings) } else { Err(self.lacks(of)) }
    }

    /// Passes on the scrapes of an answer. Before the first one of a target come those without the histogram, from `begin_ms`
    /// on: they show that it counted from 0.
    fn take(
        &self,
        samples: &mut Samples<'_>,
        answer: &[u8],
        span: (i64, i64),
        begin_ms: u64,
        each: &mut dyn FnMut(Stored),
    ) -> Result<Vec<String>, Fault> {
        let known: BTreeSet<Target> = samples.targets().cloned().collect();
        let mut all = Vec::new();
        let warnings = samples.take(answer, span, &mut |stored| all.push(stored)).map_err(|f| self.at(f))?;
        let mut begun = BTreeSet::new();
        for stored in all {
            if !known.contains(&stored.target) && begun.insert(stored.target.clone()) {
                let first_ms = stored.unix_ns / 1_000_000;
                for at_ms in self.times(&stored.target, (begin_ms, first_ms))? {
                    each(samples.without(&stored.target, at_ms));
                }
            }
            each(stored);
        }
        Ok(warnings)
    }

    /// When a target was scraped from `from_ms` until before `to_ms`.
    fn times(&self, target: &Target, (from_ms, to_ms): (u64, u64)) -> Result<Vec<i64>, Fault> {
        let Some(length_ms) = to_ms.checked_sub(from_ms).filter(|ms| *ms > 0) else { return Ok(Vec::new()) };
        let Some(query) = target.query(length_ms) else { return Ok(Vec::new()) };
        let answer =
            self.get("query", &[("query", &query), ("time", &seconds(to_ms - 1))]).map_err(Refused::fault)?;
        let within = |ms: &i64| (from_ms.cast_signed()..to_ms.cast_signed()).contains(ms);
        Ok(stored::times(&answer).map_err(|f| self.at(f))?.into_iter().filter(within).collect())
    }

    /// The answer for the samples of a time, both ends included; `None` if it is too much at once.
    fn piece(&self, of: &Histogram, (from_ms, upto_ms): (u64, u64)) -> Result<Option<Vec<u8>>, Fault> {
        // Prometheus 3 leaves out a sample at the very begin of a range, and Prometheus 2 does not.
        let query = stored::query(of, upto_ms - from_ms + 1);
        let time = seconds(upto_ms);
        let is_short = upto_ms - from_ms < LEAST_MS;
        match self.get("query", &[("query", &query), ("time", &time)]) {
            Ok(body) => Ok(Some(body)),
            Err(Refused::TooMuch(_)) if !is_short => Ok(None),
            Err(refused) => Err(refused.fault()),
        }
    }

    /// Why the server has not a single sample.
    fn lacks(&self, of: &Histogram) -> Fault {
        let any = Histogram { metric: of.metric.clone(), labels: Default::default() };
        let series = self.get("series", &[("match[]", &stored::selector(&any))]);
        let names = self.get("label/__name__/values", &[]);
        let (series, names) = match (series, names) {
            (Ok(series), Ok(names)) => (series, names),
            (Err(refused), _) | (_, Err(refused)) => return refused.fault(),
        };
        let fault = stored::lacks(of, &series, &names).unwrap_or_else(|odd| odd);
        self.at(fault)
    }

    fn at(&self, fault: Fault) -> Fault {
        Fault { what: format!("{}: {}", self.base, fault.what), ..fault }
    }

    fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Vec<u8>, Refused> {
        let mut url = format!("{}/api/v1/{path}", self.base);
        for (i, (key, value)) in parameters.iter().enumerate() {
            let _ = write!(url, "{}{}={}", if i == 0 { '?' } else { '&' }, encoded(key), encoded(value));
        }
        let what = format!("cannot ask {}", self.base);
        let bad = |e: &dyn std::fmt::Display| {
            Refused::Other(
                Fault::new(FaultKind::BadInput, what.clone()).because(e).help("use a shorter name"),
            )
        };
        let url: Uri = url.parse().map_err(|e: ureq::http::uri::InvalidUri| bad(&e))?;
        let mut request = Request::get(url).header(header::ACCEPT, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(()).map_err(|e| bad(&e))?;
        match self.client.ask(request) {
            Ok(answer) => self.checked(&what, answer),
            Err(failure @ Failure::TooLong(_)) => Err(Refused::TooMuch(
                Fault::new(FaultKind::BadInput, what)
                    .because(failure)
                    .help("choose one VM's series by their labels: --histogram 'NAME{instance=\"...\"}'"),
            )),
            Err(Failure::Redirected { status, to }) => Err(Refused::Other(
                Fault::new(FaultKind::Failed, what)
                    .because(Failure::Redirected { status, to })
                    .help("use the address of the redirect without /api/v1/..., if you trust it"),
            )),
            Err(failure) => Err(Refused::Other(scrape::fault(&what, &failure, self.through.as_deref()))),
        }
    }

    /// The body of an answer with data.
    fn checked(&self, what: &str, answer: Answer) -> Result<Vec<u8>, Refused> {
        if answer.status == StatusCode::OK {
            return Ok(answer.body);
        }
        let refusal = stored::refusal(&answer.body);
        let is_api = refusal.is_some();
        let words =
            refusal.map_or_else(|| String::from_utf8_lossy(&answer.body).trim().to_owned(), |r| r.why);
        let words: String = words.chars().take(SHOWN).collect();
        let why = match words.is_empty() {
            true => format!("the server answers with status {}", answer.status),
            false => format!("the server answers with status {}: {words}", answer.status),
        };
        let of = |kind: FaultKind, help: &str| Fault::new(kind, what).because(why.clone()).help(help);
        let token = match self.token {
            None => "give a token that may query: --token-file FILE",
            Some(_) => "check that the token in --token-file is valid and may query",
        };
        Err(match answer.status.as_u16() {
            401 | 403 => Refused::Other(of(FaultKind::NoPrivilege, token)),
            // Too many samples, or the time of a query is over.
            422 | 503 if is_api => Refused::TooMuch(of(
                FaultKind::Failed,
                "choose one VM's series by their labels, or read the server's log",
            )),
            429 => Refused::Other(of(
                FaultKind::Failed,
                "the server limits queries: run the command again later",
            )),
            404 | 405 => Refused::Other(of(
                FaultKind::NothingThere,
                "give the address of a Prometheus server, for example http://HOST:9090, with its path if it has one",
            )),
            _ => Refused::Other(of(FaultKind::Failed, "read the server's log")),
        })
    }
}

/// Why a query has no data.
enum Refused {
    /// A shorter time may be answered.
    TooMuch(Fault),
    Other(Fault),
}

impl Refused {
    fn fault(self) -> Fault {
        let (Refused::TooMuch(fault) | Refused::Other(fault)) = self;
        fault
    }
}

/// The header with the token of a file.
fn bearer(file: &Path) -> Result<HeaderValue, Fault> {
    let text = secret_text(file)?;
    let token = text.lines().next().unwrap_or_default().trim();
    let bad = |why: &str| {
        Fault::new(FaultKind::BadInput, format!("cannot use the token in {}", file.display()))
            .because(why)
            .help("write the token alone into the first line of the file")
    };
    if token.is_empty() {
        return Err(bad("the first line is empty"));
    }
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(bad("the first line has blanks or characters that a token cannot have"));
    }
    let mut header =
        HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| bad("it is not a token"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// A time as the interface takes it.
fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

/// As a URL's query has it.
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for b in text.bytes() {
        match b {
            b if b.is_ascii_alphanumeric() || b"-._~".contains(&b) => out.push(char::from(b)),
            b => {
                let _ = write!(out, "%{b:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests;
