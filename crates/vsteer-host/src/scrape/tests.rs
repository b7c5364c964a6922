use super::*;
use crate::http::server::{Identity, Server, whole};
use proptest::prelude::*;
use std::time::{Instant, UNIX_EPOCH};
use vsteer_core::limits;

/// A server that gives one answer, piece after piece with a rest between, and then closes or (`hang`) waits until the
/// client does.
fn server(pieces: Vec<Vec<u8>>, rest: Duration, hang: bool) -> (Place, Server) {
    let server = Server::new(vec![vec![pieces]], rest, hang, None);
    (Place::parse(&format!("http://{}/metrics?x=1", server.at)).unwrap(), server)
}

fn answer(text: &str) -> Result<String, Fault> {
    let (place, served) = server(vec![text.as_bytes().to_vec()], Duration::ZERO, false);
    let told = place.fetch(limits::SCRAPE_TIME).map(|t| String::from_utf8(t.bytes).unwrap());
    served.asked();
    told
}

#[test]
fn a_page_is_read() {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let (place, served) = server(
        vec![b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nup 1\nmore".to_vec()],
        Duration::ZERO,
        true,
    );
    let before = now();
    let text = place.fetch(limits::SCRAPE_TIME).unwrap();
    // It does not wait for a server that keeps the connection.
    assert_eq!(text.bytes, b"up 1\n");
    assert!((before..=now()).contains(&text.unix_ns));
    let asked = served.asked().concat();
    let head = asked.to_ascii_lowercase();
    assert!(head.starts_with("get /metrics?x=1 http/1.1\r\n"), "{asked}");
    for header in [
        "host: 127.0.0.1:",
        "connection: close\r\n",
        "accept-encoding: identity\r\n",
        "user-agent: vsteer\r\n",
    ] {
        assert!(head.contains(&format!("\r\n{header}")), "{header:?}: {asked}");
    }
    // Without a length it ends with the connection.
    assert_eq!(answer("HTTP/1.0 200 OK\r\n\r\nup 1\n").unwrap(), "up 1\n");
    assert_eq!(answer("HTTP/1.1 200\r\n\r\n").unwrap(), "");
}

#[test]
fn a_page_in_chunks_is_read() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n";
    assert_eq!(
        answer(&format!("{head}3;x=y\r\nup \r\nA\r\n1\nother 2\n\r\n0\r\n\r\n")).unwrap(),
        "up 1\nother 2\n"
    );
    assert!(answer(&format!("{head}3\r\nup \r\n")).unwrap_err().to_string().contains("cut off"));
    assert!(answer(&format!("{head}20\r\nup \r\n0\r\n\r\n")).unwrap_err().to_string().contains("cut off"));
    for odd in ["-3", "x", "", "fffffffffffffffffffff"] {
        let said = answer(&format!("{head}{odd}\r\nup \r\n0\r\n\r\n")).unwrap_err().to_string();
        assert!(said.contains("not valid HTTP/1.1") || said.contains("cut off"), "{odd:?}: {said}");
    }
}

#[test]
fn other_answers_are_told() {
    let said = |text: &str| answer(text).unwrap_err().to_string();
    let not_found = said("HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nup\n");
    assert!(not_found.contains("/metrics?x=1: the server answers with status 404 Not Found"), "{not_found}");
    for odd in [
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nodd\r\n\r\n",
    ] {
        let told = said(odd);
        assert!(told.contains("not valid HTTP/1.1"), "{odd:?}: {told}");
    }
    assert!(said("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n").contains("gzip"));
    assert!(said("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nup 1\n").contains("cut off"));
    assert!(said("").contains("cut off"));
    assert!(said(&format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(200_000))).contains("too big"));
    let (place, served) =
        server(vec![b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\xff".to_vec()], Duration::ZERO, false);
    // The page may be protobuf.
    assert_eq!(place.fetch(limits::SCRAPE_TIME).unwrap().bytes, [0xff]);
    let asked = served.asked().concat();
    assert!(asked.contains("proto=io.prometheus.client.MetricFamily;encoding=delimited,"), "{asked}");
    // Nobody listens where somebody did.
    assert_eq!(place.fetch(limits::SCRAPE_TIME).unwrap_err().kind, FaultKind::NothingThere);
}

#[test]
fn who_hangs_or_drips_is_left() {
    let limit = Duration::from_millis(300);
    let drops =
        || vec![b"HTTP/1.1 200 OK\r\n\r\n".to_vec(); 1].into_iter().chain(vec![b"u".to_vec(); 100]).collect();
    for (pieces, rest) in [(Vec::new(), Duration::ZERO), (drops(), Duration::from_millis(50))] {
        let (place, served) = server(pieces, rest, true);
        let begun = Instant::now();
        let said = place.fetch(limit).unwrap_err();
        assert!(said.kind == FaultKind::Failed && said.to_string().contains("in time"), "{said}");
        assert!(begun.elapsed() < 10 * limit, "{:?}", begun.elapsed());
        served.asked();
    }
}

#[test]
fn what_is_too_long_is_refused() {
    let piece = vec![b'#'; 1 << 20];
    let chunk = [b"100000\r\n".to_vec(), piece.clone(), b"\r\n".to_vec()].concat();
    let endless = "HTTP/1.1 200 OK\r\n\r\n";
    let told = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", u64::MAX);
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (head, piece) in [(endless, &piece), (told.as_str(), &piece), (chunked, &chunk)] {
        let pieces = std::iter::once(head.as_bytes().to_vec()).chain(vec![piece.clone(); 18]).collect();
        let (place, served) = server(pieces, Duration::ZERO, false);
        // Slow machines have their time here: it is the size that is looked at.
        let said = place.fetch(Duration::from_secs(60)).unwrap_err();
        assert!(said.kind == FaultKind::BadInput && said.to_string().contains("exceeds 16 MiB"), "{said}");
        served.asked();
    }
}

#[test]
fn a_redirect_is_refused() {
    let said = answer("HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 2\r\n\r\nup").unwrap_err();
    assert_eq!(said.kind, FaultKind::Failed);
    assert!(said.to_string().contains("the server redirects (302 Found) to /login"), "{said}");
}

#[test]
fn https_is_read_if_the_certificate_is_trusted() {
    let (identity, other) = (Identity::new(), Identity::new());
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, pem: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, pem).unwrap();
        Trust::Authorities(path)
    };
    let page = || vec![vec![whole("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nup 1\n")]];
    for host in ["localhost", "127.0.0.1"] {
        let served = Server::secure(page(), &identity);
        let place = Place::parse(&format!("https://{host}:{}/metrics", served.at.port())).unwrap();
        let text = place.fetch_trusting(&file("its", &identity.pem), Duration::from_secs(60)).unwrap();
        assert_eq!(text.bytes, b"up 1\n");
        assert!(served.asked().concat().starts_with("GET /metrics HTTP/1.1\r\n"));
    }
    let served = Server::secure(page(), &identity);
    let place = Place::parse(&format!("https://localhost:{}/metrics", served.at.port())).unwrap();
    let said = place.fetch_trusting(&file("other", &other.pem), Duration::from_secs(60)).unwrap_err();
    assert_eq!(said.kind, FaultKind::NoPrivilege);
    let text = said.to_string();
    assert!(text.contains(&identity.thumbprint) && text.contains("SSL_CERT_FILE"), "{text}");
    assert!(served.asked().is_empty(), "nothing is asked before the certificate is checked");
    // A server that speaks no TLS.
    let (place, served) = server(whole("HTTP/1.1 200 OK\r\n\r\n"), Duration::ZERO, true);
    let place = Place::parse(&place.to_string().replace("http:", "https:")).unwrap();
    let said = place.fetch_trusting(&file("its", &identity.pem), Duration::from_millis(300)).unwrap_err();
    assert!(said.to_string().contains("in time"), "{said}");
    drop(served);
}

#[test]
fn a_proxy_is_asked_for_the_server() {
    let answers = ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nup 1\n"];
    let served = Server::new(vec![answers.map(whole).to_vec()], Duration::ZERO, false, None);
    let proxy = Proxy::new(&format!("http://{}", served.at)).unwrap();
    let url: Uri = "http://metrics.invalid:9100/metrics".parse().unwrap();
    let body = get("it", &url, &Trust::System, Duration::from_secs(60), Some(proxy.clone())).unwrap();
    assert_eq!(body, b"up 1\n");
    let asked = served.asked();
    assert!(asked[0].starts_with("CONNECT metrics.invalid:9100 HTTP/1.1\r\n"), "{asked:?}");
    // Nobody listens there any more.
    let said = get("it", &url, &Trust::System, limits::SCRAPE_TIME, Some(proxy.clone())).unwrap_err();
    assert!(
        said.to_string().contains("through the proxy 127.0.0.1:") && said.to_string().contains("NO_PROXY"),
        "{said}"
    );
    let of = |url: &str, proxy: &Proxy| usable("it", &url.parse().unwrap(), Some(proxy.clone()));
    assert!(of("http://h/", &proxy).unwrap().is_some());
    for here in ["http://localhost:1/", "http://127.0.0.1:1/", "http://[::1]:1/"] {
        assert!(of(here, &proxy).unwrap().is_none(), "{here}");
    }
    let socks = Proxy::new("socks5://h:1080").unwrap();
    assert_eq!(of("http://h/", &socks).unwrap_err().kind, FaultKind::Unsupported);
}

proptest! {
    // Each case is a server.
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn no_answer_is_too_odd(head in "(HTTP/1.1 200 OK\r\n)?(Transfer-Encoding: chunked\r\n|Content-Length: [0-9]{1,3}\r\n)?.{0,20}(\r\n){0,2}",
        rest in prop::collection::vec(any::<u8>(), 0..60), pieces in "([0-9a-f]{1,2}\r\n[a-z]{0,9}\r\n){0,3}") {
        let bytes = [head.as_bytes(), pieces.as_bytes(), &rest].concat();
        let length = bytes.len();
        let (place, served) = server(vec![bytes], Duration::ZERO, false);
        if let Ok(text) = place.fetch(Duration::from_secs(60)) {
            prop_assert!(text.bytes.len() <= length);
        }
        served.asked();
    }

    #[test]
    fn places_are_written_as_they_are_read(url in ".{0,40}") {
        for text in [url.clone(), format!("http://{url}"), format!("https://{url}")] {
            if let Ok(place) = Place::parse(&text) {
                prop_assert_eq!(Place::parse(&place.to_string()).unwrap(), place);
            }
        }
    }
}

#[test]
fn places_are_urls_or_files() {
    for (text, written) in [
        ("http://h:9100/metrics", "http://h:9100/metrics"),
        ("HTTP://h", "http://h/"),
        ("https://h/metrics", "https://h/metrics"),
        ("http://h?a=b", "http://h/?a=b"),
        ("http://[::1]:9100/m#top", "http://[::1]:9100/m"),
    ] {
        let place = Place::parse(text).unwrap();
        assert!(matches!(place, Place::Url(_)) && place.to_string() == written, "{text:?}: {place}");
    }
    assert_eq!(Place::parse("/var/lib/web.prom").unwrap(), Place::File("/var/lib/web.prom".into()));
    for (text, says) in [
        ("ftp://h/metrics", "http and https, not ftp"),
        ("http:///metrics", "HOST:PORT"),
        ("http://h:x/", "HOST:PORT"),
        ("http://h:99999/", "HOST:PORT"),
        ("http://[::1/", "HOST:PORT"),
        ("http://a:b@h/", "passwords"),
        ("http://h/a b", "visible ASCII"),
        ("http://h/a\r\nHost: x", "visible ASCII"),
    ] {
        let said = Place::parse(text).unwrap_err().to_string();
        assert!(said.contains(says), "{text:?}: {said}");
    }
}

#[test]
fn a_file_is_of_when_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.prom");
    std::fs::write(&file, "up 1\n").unwrap();
    let at = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(at).unwrap();
    let text = Place::File(file.clone()).fetch(limits::SCRAPE_TIME).unwrap();
    assert_eq!(text, Page { unix_ns: 1_700_000_000_000_000_000, bytes: b"up 1\n".to_vec() });
    std::fs::remove_file(&file).unwrap();
    assert_eq!(Place::File(file).fetch(limits::SCRAPE_TIME).unwrap_err().kind, FaultKind::NothingThere);
}
