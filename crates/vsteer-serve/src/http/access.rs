//! Which clients get an answer? On a Unix socket all that can open its file. On an address those with a token, or with a
//! certificate of an authority that the administrator chose.

use super::tls::TlsFiles;
use crate::files::FromFiles;
use crate::options::Options;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::path::Path;
use std::sync::Arc;
use vsteer_core::{Fault, FaultKind};

/// The shortest token: 128 bits in hexadecimal digits.
const SHORTEST: usize = 32;

/// The tokens of clients.
#[derive(Debug, Default)]
struct Tokens(Vec<Vec<u8>>);

impl Tokens {
    /// Reads a file with a token on each line. Empty lines and comments (`#`) do not count.
    fn read(file: &Path) -> Result<Tokens, Fault> {
        let text = vsteer_record::trusted::secret_text(file)?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let all: Vec<Vec<u8>> = lines.map(|line| line.as_bytes().to_vec()).collect();
        let help = "make one: head -c 32 /dev/urandom | base64 > FILE";
        if all.is_empty() {
            let what = format!("{} holds no token", file.display());
            return Err(Fault::new(FaultKind::BadInput, what).help(help));
        }
        if all.iter().any(|token| token.len() < SHORTEST) {
            let what = format!("a token in {} is shorter than {SHORTEST} characters", file.display());
            return Err(Fault::new(FaultKind::BadInput, what).because("it could be guessed").help(help));
        }
        Ok(Tokens(all))
    }

    /// Compares with every byte of every token: the time that this takes says nothing about them.
    fn knows(&self, token: &[u8]) -> bool {
        self.0.iter().fold(false, |known, one| known | is_equal(one, token))
    }
}

/// What clients of an address must show.
pub struct Access {
    tokens: Option<FromFiles<Tokens>>,
    /// With TLS: the certificates.
    pub tls: Option<FromFiles<rustls::ServerConfig>>,
    /// Names by which clients call this service, besides localhost and addresses.
    names: Vec<String>,
}

impl Access {
    /// What the options say, with the files read.
    ///
    /// # Errors
    /// When an address would be open to everybody, or a file is faulty.
    pub fn of(options: &Options) -> Result<Access, Fault> {
        let usage = |what: String| Fault::new(FaultKind::Usage, what);
        let tls = match (&options.tls_certificate, &options.tls_key) {
            (Some(certificate), Some(key)) => Some(TlsFiles {
                certificate: certificate.clone(),
                key: key.clone(),
                client_ca: options.client_ca.clone(),
                demands_certificate: options.tokens.is_none(),
            }),
            (None, None) if options.client_ca.is_some() => {
                return Err(usage("--client-ca works only with TLS".to_owned())
                    .help("add --tls-certificate FILE and --tls-key FILE"));
            }
            (None, None) => None,
            _ => return Err(usage("--tls-certificate and --tls-key belong together".to_owned())),
        };
        if let Some(address) = options.listen.first()
            && options.tokens.is_none()
            && options.client_ca.is_none()
        {
            return Err(usage(format!("everybody who reaches {address} would get answers"))
                .help("add --tokens FILE, or --client-ca FILE"));
        }
        let open = options.listen.iter().find(|address| !address.ip().is_loopback());
        if let Some(open) = open.filter(|_| tls.is_none()) {
            return Err(usage(format!("cannot listen on {open} without TLS"))
                .because("other machines reach this address, and others on the network could read a token")
                .help("add --tls-certificate FILE and --tls-key FILE, or listen on 127.0.0.1"));
        }
        let tokens = options
            .tokens
            .clone()
            .map(|file| FromFiles::new(vec![file.clone()], Box::new(move || Tokens::read(&file))));
        let tls = tls.map(|files| FromFiles::new(files.all(), Box::new(move || files.read())));
        Ok(Access { tokens: tokens.transpose()?, tls: tls.transpose()?, names: options.names.clone() })
    }

    /// Reads changed files again. The faults of those that cannot be used.
    pub fn renew(&self) -> Vec<Fault> {
        let tokens = self.tokens.as_ref().and_then(|tokens| tokens.renew().err());
        let tls = self.tls.as_ref().and_then(|tls| tls.renew().err());
        tokens.into_iter().chain(tls).collect()
    }

    fn knows(&self, token: &[u8]) -> bool {
        self.tokens.as_ref().is_some_and(|tokens| tokens.get().knows(token))
    }

    /// Is the service called so? A page of another site can make a browser send requests to this machine, but those requests
    /// carry the other site's name.
    fn is_called(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        };
        name == "localhost"
            || name.parse::<std::net::IpAddr>().is_ok()
            || self.names.iter().any(|h| h.eq_ignore_ascii_case(name))
    }
}

fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let differ = a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b));
    std::hint::black_box(differ) == 0 && a.len() == b.len()
}

/// What a connection has shown before its requests.
#[derive(Clone)]
pub(super) struct Shown {
    pub access: Arc<Access>,
    /// The client has a certificate, so it needs no token.
    pub certificate: bool,
}

/// Lets requests through that show what they must.
pub(super) async fn check(State(shown): State<Shown>, request: Request, next: Next) -> Response {
    match refusal(&shown, request.headers()) {
        Some(refusal) => refusal,
        None => next.run(request).await,
    }
}

/// Lets requests through that call the service by its name.
pub(super) async fn check_name(State(shown): State<Shown>, request: Request, next: Next) -> Response {
    match misnamed(&shown, request.headers()) {
        Some(refusal) => refusal,
        None => next.run(request).await,
    }
}

fn text<'a>(head: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    head.get(name).and_then(|value| value.to_str().ok())
}

/// The refusal for a request that calls the service by another name.
fn misnamed(shown: &Shown, head: &HeaderMap) -> Option<Response> {
    let is_called = text(head, &header::HOST).is_some_and(|host| shown.access.is_called(host));
    let what = "this service has another name: start it with --name\n";
    (!is_called).then(|| (StatusCode::MISDIRECTED_REQUEST, what).into_response())
}

/// Why a request with this head gets no answer; `None` if it does.
fn refusal(shown: &Shown, head: &HeaderMap) -> Option<Response> {
    if let Some(refusal) = misnamed(shown, head) {
        return Some(refusal);
    }
    let bearer = text(head, &header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    if !shown.certificate && !bearer.is_some_and(|token| shown.access.knows(token.trim().as_bytes())) {
        let asks = [(header::WWW_AUTHENTICATE, "Bearer")];
        let what = "this service needs a token: Authorization: Bearer TOKEN\n";
        return Some((StatusCode::UNAUTHORIZED, asks, what).into_response());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_as_a_whole() {
        let one = "0123456789abcdef0123456789abcdef";
        let tokens = Tokens(vec![b"x".repeat(32), one.into()]);
        assert!(tokens.knows(one.as_bytes()));
        for wrong in ["", &one[..31], &format!("{one}0"), "1123456789abcdef0123456789abcdef"] {
            assert!(!tokens.knows(wrong.as_bytes()), "{wrong:?}");
        }
    }

    #[test]
    fn the_service_answers_to_its_names_only() {
        let access = Access { tokens: None, tls: None, names: vec!["vm7.lan".into()] };
        for host in ["localhost:9177", "127.0.0.1", "[::1]:80", "10.0.0.7:9177", "VM7.lan:80"] {
            assert!(access.is_called(host), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example:9177", "127.0.0.1.evil.example"] {
            assert!(!access.is_called(host), "{host}");
        }
    }

    fn write_secret(path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    #[test]
    fn files_without_a_good_token_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        let read = |text: &str| {
            write_secret(&file, text);
            Tokens::read(&file).map(|tokens| tokens.0.len()).map_err(|fault| fault.what)
        };
        assert_eq!(read(&format!("# of Prometheus\n{}\n\n", "a".repeat(32))), Ok(1));
        assert!(read("# nothing\n").unwrap_err().ends_with("holds no token"));
        assert!(read("secret\n").unwrap_err().ends_with("is shorter than 32 characters"));
    }

    /// What each command line opens: nothing without a token or certificate, nothing to other machines without TLS.
    #[test]
    fn an_address_is_never_open_to_everybody() {
        use clap::Parser;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        write_secret(at("tokens"), "t".repeat(40));
        let key = rcgen::generate_simple_self_signed(["vm7.lan".to_owned()]).unwrap();
        write_secret(at("cert"), key.cert.pem());
        write_secret(at("key"), key.signing_key.serialize_pem());
        let of = |words: &str| {
            let words = words.split(' ').map(|w| match w {
                "tokens" | "cert" | "key" => at(w),
                other => other.to_owned(),
            });
            let options = Options::try_parse_from(std::iter::once("serve".to_owned()).chain(words)).unwrap();
            Access::of(&options).map(|access| access.tls.is_some()).map_err(|fault| fault.what)
        };
        let tls = "--tls-certificate cert --tls-key key";
        assert_eq!(of("--listen 127.0.0.1:0 --tokens tokens"), Ok(false));
        assert_eq!(of(&format!("--listen 0.0.0.0:0 --tokens tokens {tls}")), Ok(true));
        assert_eq!(of(&format!("--listen [::]:0 --client-ca cert {tls}")), Ok(true));
        for (words, part) in [
            ("--listen 127.0.0.1:0".to_owned(), "everybody who reaches 127.0.0.1:0"),
            (format!("--listen 127.0.0.1:0 {tls}"), "everybody who reaches"),
            ("--listen 127.0.0.1:0 --listen 0.0.0.0:1 --tokens tokens".to_owned(), "0.0.0.0:1 without TLS"),
            ("--listen [2001:db8::1]:1 --tokens tokens".to_owned(), "without TLS"),
            ("--listen 127.0.0.1:0 --client-ca cert".to_owned(), "only with TLS"),
            ("--listen 0.0.0.0:0 --tokens tokens --tls-certificate cert".to_owned(), "belong together"),
            (
                "--listen 0.0.0.0:0 --tokens tokens --tls-certificate key --tls-key key".to_owned(),
                "does not hold a certificate",
            ),
            (
                "--listen 0.0.0.0:0 --tokens tokens --tls-certificate cert --tls-key cert".to_owned(),
                "does not hold a private key",
            ),
        ] {
            let what = of(&words).unwrap_err();
            assert!(what.contains(part), "{words}: {what}");
        }
    }
}
