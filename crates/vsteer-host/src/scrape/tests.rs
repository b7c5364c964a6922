use super::*;
use proptest::prelude::*;
use std::net::TcpListener;
use std::thread::JoinHandle;

/// A server that gives one answer to each who asks, piece after piece with a rest between, and then hangs up or (`hang`) waits until
/// the other side does. What was asked comes out at the end.
fn server(pieces: Vec<Vec<u8>>, rest: Duration, hang: bool) -> (Place, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            asked.push(byte[0]);
        }
        for piece in pieces {
            // Who asked may have had enough.
            if stream.write_all(&piece).is_err() {
                break;
            }
            std::thread::sleep(rest);
        }
        if hang {
            let _ = stream.read(&mut [0]);
        }
        String::from_utf8(asked).unwrap()
    });
    (Place::parse(&format!("http://{at}/metrics?x=1")).unwrap(), thread)
}

fn answer(text: &str) -> Result<String, Fault> {
    let (place, thread) = server(vec![text.as_bytes().to_vec()], Duration::ZERO, false);
    let told = place.fetch(LIMIT).map(|t| t.text);
    thread.join().unwrap();
    told
}

#[test]
fn a_page_is_read() {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let (place, thread) = server(
        vec![b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nup 1\nmore".to_vec()],
        Duration::ZERO,
        true,
    );
    let before = now();
    let text = place.fetch(LIMIT).unwrap();
    // It does not wait for a server that keeps the connection.
    assert_eq!(text.text, "up 1\n");
    assert!((before..=now()).contains(&text.unix_ns));
    let asked = thread.join().unwrap();
    assert!(asked.starts_with("GET /metrics?x=1 HTTP/1.1\r\nHost: 127.0.0.1:"), "{asked}");
    assert!(asked.contains("\r\nConnection: close\r\n"), "{asked}");
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
    assert!(answer(&format!("{head}9\r\nup \r\n0\r\n\r\n")).unwrap_err().to_string().contains("cut off"));
    for odd in ["+3", "-3", "x", "", "fffffffffffffffffffff"] {
        let said = answer(&format!("{head}{odd}\r\nup \r\n0\r\n\r\n")).unwrap_err().to_string();
        assert!(said.contains("no length of a chunk"), "{said}");
    }
}

#[test]
fn other_answers_are_told() {
    let said = |text: &str| answer(text).unwrap_err().to_string();
    let not_found = said("HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nup\n");
    assert!(not_found.contains("/metrics?x=1: it answers 404 Not Found"), "{not_found}");
    assert!(said("HTTP/1.1 302 Found\r\nLocation: /login\r\n\r\n").contains("302 Found, elsewhere: /login"));
    assert!(said("SSH-2.0-OpenSSH\r\n").contains("no answer of HTTP/1"));
    assert!(said("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n").contains("gzip"));
    assert!(said("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nup 1\n").contains("cut off"));
    assert!(said("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n").contains("no length"));
    assert!(said("HTTP/1.1 200 OK\r\nodd\r\n\r\n").contains("no header"));
    assert!(said("").contains("cut off"));
    assert!(said(&format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(20_000))).contains("too long"));
    let (place, thread) =
        server(vec![b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\xff".to_vec()], Duration::ZERO, false);
    assert_eq!(place.fetch(LIMIT).unwrap_err().kind, FaultKind::BadInput);
    thread.join().unwrap();
    // Nobody listens where somebody did.
    assert_eq!(place.fetch(LIMIT).unwrap_err().kind, FaultKind::NothingThere);
}

#[test]
fn who_hangs_or_drips_is_left() {
    let limit = Duration::from_millis(300);
    let drops =
        || vec![b"HTTP/1.1 200 OK\r\n\r\n".to_vec(); 1].into_iter().chain(vec![b"u".to_vec(); 100]).collect();
    for (pieces, rest) in [(Vec::new(), Duration::ZERO), (drops(), Duration::from_millis(50))] {
        let (place, thread) = server(pieces, rest, true);
        let begun = Instant::now();
        let said = place.fetch(limit).unwrap_err();
        assert!(said.kind == FaultKind::Failed && said.to_string().contains("in time"), "{said}");
        assert!(begun.elapsed() < 10 * limit, "{:?}", begun.elapsed());
        thread.join().unwrap();
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
        let (place, thread) = server(pieces, Duration::ZERO, false);
        // Slow machines have their time here: it is the size that is looked at.
        let said = place.fetch(Duration::from_secs(60)).unwrap_err();
        assert!(
            said.kind == FaultKind::BadInput && said.to_string().contains("longer than 16 MiB"),
            "{said}"
        );
        thread.join().unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_answer_is_too_odd(head in "(HTTP/1.1 200 OK\r\n)?(Transfer-Encoding: chunked\r\n|Content-Length: [0-9]{1,3}\r\n)?.{0,20}(\r\n){0,2}",
        rest in prop::collection::vec(any::<u8>(), 0..60), pieces in "([0-9a-f]{1,2}\r\n[a-z]{0,9}\r\n){0,3}", url in ".{0,40}") {
        let bytes = [head.as_bytes(), pieces.as_bytes(), &rest].concat();
        if let Ok(text) = page("it", &bytes[..]) {
            prop_assert!(text.len() <= bytes.len());
        }
        // What is read as a place is written as the same.
        for text in [url.clone(), format!("http://{url}")] {
            if let Ok(place) = Place::parse(&text) {
                prop_assert_eq!(Place::parse(&place.to_string()).unwrap(), place);
            }
        }
    }
}

#[test]
fn places_are_urls_or_files() {
    let http = |authority: &str, path: &str| Place::Http { authority: authority.into(), path: path.into() };
    for (text, place) in [
        ("http://h:9100/metrics", http("h:9100", "/metrics")),
        ("HTTP://h", http("h", "/")),
        ("http://h?a=b", http("h", "/?a=b")),
        ("http://[::1]:9100/m#top", http("[::1]:9100", "/m")),
        ("/var/lib/web.prom", Place::File("/var/lib/web.prom".into())),
    ] {
        assert_eq!(Place::parse(text).unwrap(), place);
    }
    assert_eq!(address("[::1]:9100"), Some(("::1", 9100)));
    assert_eq!((address("h"), address("[::1]")), (Some(("h", 80)), Some(("::1", 80))));
    assert_eq!(http("h:1", "/m").to_string(), "http://h:1/m");
    for (text, says) in [
        ("https://h/metrics", "only http is"),
        ("http:///metrics", "no host"),
        ("http://h:x/", "no host and port"),
        ("http://[::1/", "no host"),
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
    let text = Place::File(file.clone()).fetch(LIMIT).unwrap();
    assert_eq!(text, Text { unix_ns: 1_700_000_000_000_000_000, text: "up 1\n".into() });
    std::fs::remove_file(&file).unwrap();
    assert_eq!(Place::File(file).fetch(LIMIT).unwrap_err().kind, FaultKind::NothingThere);
}
