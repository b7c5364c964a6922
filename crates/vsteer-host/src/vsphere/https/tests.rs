use super::*;
use crate::http::server::{Answers, Identity, Server, whole};

fn known(identity: &Identity) -> Trust {
    Trust::thumbprint(&identity.thumbprint).unwrap()
}

fn to(server: &Server, identity: &Identity) -> Connection {
    Connection::new("127.0.0.1", server.at.port(), &known(identity)).unwrap()
}

/// Sends one message to a server that gives this answer.
fn of(answer: &str) -> Result<(u16, String), Fault> {
    let identity = Identity::new();
    let server = Server::secure(vec![vec![whole(answer)]], &identity);
    let told = to(&server, &identity).post("/sdk", "<ask/>");
    server.asked();
    told
}

#[test]
fn a_session_stays_on_one_connection() {
    let identity = Identity::new();
    let answers: Answers = vec![
        whole(
            "HTTP/1.1 200 OK\r\nSet-Cookie: vmware_soap_session=\"x\"; Path=/\r\nContent-Length: 3\r\n\r\nabc",
        ),
        whole("HTTP/1.1 500 no\r\ntransfer-encoding: chunked\r\n\r\n2;x\r\nab\r\n1\r\nc\r\n0\r\n\r\n"),
        whole("HTTP/1.0 200 OK\r\n\r\nabc"),
    ];
    let server = Server::secure(vec![answers], &identity);
    let mut connection = to(&server, &identity);
    assert_eq!(connection.post("/sdk", "<one/>").unwrap(), (200, "abc".to_owned()));
    assert_eq!(connection.post("/sdk", "<two/>").unwrap(), (500, "abc".to_owned()));
    connection.forget_session();
    // Without a length, the answer ends when the connection ends.
    assert_eq!(connection.post("/sdk", "<three/>").unwrap(), (200, "abc".to_owned()));
    assert_eq!(connection.client.connections(), 1);
    let asked = server.asked();
    let cookies =
        asked.iter().map(|a| a.to_ascii_lowercase().contains("\r\ncookie: vmware_soap_session=\"x\"\r\n"));
    assert_eq!(cookies.collect::<Vec<_>>(), [false, true, false]);
    for (asked, body) in asked.iter().zip(["<one/>", "<two/>", "<three/>"]) {
        let head = asked.to_ascii_lowercase();
        assert!(head.starts_with("post /sdk http/1.1\r\n") && asked.ends_with(body), "{asked}");
        assert!(head.contains("\r\nsoapaction: \"urn:vim25/6.0\"\r\n"), "{asked}");
    }
}

#[test]
fn a_connection_that_the_server_closed_is_opened_again_once() {
    let identity = Identity::new();
    let page = || whole("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na");
    // The first connection reads the second message and closes, like a server that ends idle connections.
    let connections = vec![vec![page(), Vec::new()], vec![page()]];
    let server = Server::secure(connections, &identity);
    let mut connection = to(&server, &identity);
    assert!(connection.post("/sdk", "<one/>").is_ok());
    assert_eq!(connection.post("/sdk", "<two/>").unwrap(), (200, "a".to_owned()));
    assert_eq!(connection.client.connections(), 2);
    assert_eq!(server.asked().iter().filter(|a| a.ends_with("<two/>")).count(), 2);
    // On a new connection the server may have processed the message, so the client does not send it again.
    let server = Server::secure(vec![vec![Vec::new()]], &identity);
    let mut connection = to(&server, &identity);
    assert_eq!(connection.post("/sdk", "<one/>").unwrap_err().kind, FaultKind::Failed);
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn what_breaks_off_or_never_ends_is_refused() {
    for wrong in [
        "SSH-2.0-x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
    ] {
        let said = of(wrong).unwrap_err();
        assert_eq!(
            (said.kind, said.what.as_str()),
            (FaultKind::Failed, "cannot ask over HTTPS"),
            "{wrong:?}: {said}"
        );
    }
    let said = of(&format!("HTTP/1.1 200 OK\r\n{}", "a: b\r\n".repeat(10_000))).unwrap_err();
    assert_eq!(said.kind, FaultKind::Failed, "{said}");
}

#[test]
fn redirects_are_refused() {
    let said = of("HTTP/1.1 302 Found\r\nLocation: https://elsewhere.invalid/sdk\r\n\r\n").unwrap_err();
    assert_eq!(said.kind, FaultKind::Failed);
    assert!(said.to_string().contains("redirects (302 Found) to https://elsewhere.invalid/sdk"), "{said}");
}

#[test]
fn an_answer_that_is_too_long_or_too_slow_is_refused() {
    let identity = Identity::new();
    let limits = Limits { total: Duration::from_secs(60), bytes: 2 << 20, ..LIMITS };
    let long = "HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n".to_owned() + &"a".repeat(3_000_000);
    let server = Server::secure(vec![vec![whole(&long)]], &identity);
    let mut connection =
        Connection::within(limits, "127.0.0.1", server.at.port(), &known(&identity)).unwrap();
    let said = connection.post("/sdk", "<ask/>").unwrap_err();
    drop(connection);
    assert!(said.to_string().contains("longer than 2 MiB"), "{said}");
    server.asked();

    let limits = Limits { total: Duration::from_millis(500), ..LIMITS };
    let drops = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec()].into_iter().chain(vec![b"a".to_vec(); 100]).collect();
    let server = Server::new(vec![vec![drops]], Duration::from_millis(50), true, Some(identity.config()));
    let mut connection =
        Connection::within(limits, "127.0.0.1", server.at.port(), &known(&identity)).unwrap();
    let begun = std::time::Instant::now();
    let said = connection.post("/sdk", "<ask/>").unwrap_err();
    drop(connection);
    assert!(said.to_string().contains("in time") && begun.elapsed() < Duration::from_secs(5), "{said}");
    server.asked();
}

#[test]
fn another_certificate_is_refused_and_its_thumbprint_told() {
    let (identity, other) = (Identity::new(), Identity::new());
    let server = Server::secure(vec![vec![whole("")]], &identity);
    let mut connection = Connection::new("127.0.0.1", server.at.port(), &known(&other)).unwrap();
    let said = connection.post("/sdk", "<ask/>").unwrap_err();
    assert_eq!(said.kind, FaultKind::NoPrivilege);
    let text = said.to_string();
    assert!(text.contains(&identity.thumbprint) && text.contains("--thumbprint"), "{text}");
    assert!(server.asked().is_empty(), "nothing was sent before the certificate was checked");
}

#[test]
fn nobody_there_is_told() {
    let identity = Identity::new();
    let server = Server::secure(Vec::new(), &identity);
    let at = server.at;
    server.asked();
    let said =
        Connection::new("127.0.0.1", at.port(), &known(&identity)).unwrap().post("/sdk", "").unwrap_err();
    assert_eq!(
        (said.kind, said.what),
        (FaultKind::NothingThere, format!("cannot connect to 127.0.0.1 port {}", at.port()))
    );
}
