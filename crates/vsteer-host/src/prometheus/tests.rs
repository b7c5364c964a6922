use super::*;
use crate::http::server::{self, Identity, whole};
use std::os::unix::fs::OpenOptionsExt;

const TIMES: [(u64, u64); 1] = [(1_000_000_000_000, 1_010_000_000_000)];

/// An answer over HTTP.
fn answer(status: &str, body: &str) -> Vec<Vec<u8>> {
    whole(&format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

fn data(data: &str) -> Vec<Vec<u8>> {
    answer("200 OK", &format!("{{\"status\":\"success\",\"data\":{data}}}"))
}

fn error(status: &str, words: &str) -> Vec<Vec<u8>> {
    answer(status, &format!("{{\"status\":\"error\",\"errorType\":\"execution\",\"error\":\"{words}\"}}"))
}

/// A histogram with one bucket at these times, s.
fn matrix(times: &[u32]) -> Vec<Vec<u8>> {
    let values: Vec<String> = times.iter().map(|s| format!("[{s},\"{s}\"]")).collect();
    let series = |name: &str| {
        format!(
            "{{\"metric\":{{\"__name__\":\"{name}\",\"le\":\"+Inf\"}},\"values\":[{}]}}",
            values.join(",")
        )
    };
    let result = [series("m_bucket"), series("m_sum")].join(",");
    data(&format!("{{\"resultType\":\"matrix\",\"result\":[{result}]}}"))
}

fn serve(answers: Vec<Vec<Vec<u8>>>) -> server::Server {
    server::Server::new(vec![answers], Duration::ZERO, false, None)
}

fn ask(server: &Server, times: &[(u64, u64)]) -> Result<Vec<u64>, Fault> {
    let mut all = Vec::new();
    let of = "m".parse().unwrap();
    server.samples(&of, None, times, &mut |stored| all.push(stored.unix_ns / 1_000_000_000)).map(|_| all)
}

/// The fault for this answer to the first query.
fn fault(answer: Vec<Vec<u8>>, token: Option<&Path>) -> Fault {
    let served = serve(vec![answer]);
    let server = Server::new(&format!("http://{}", served.at), token).unwrap();
    let fault = ask(&server, &TIMES).unwrap_err();
    served.asked();
    fault
}

fn secret(folder: &tempfile::TempDir, text: &str) -> std::path::PathBuf {
    use std::io::Write;
    let path = folder.path().join("token");
    let mut file =
        std::fs::File::options().create(true).write(true).truncate(true).mode(0o600).open(&path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    path
}

#[test]
fn samples_are_asked_for_with_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let token = secret(&folder, "abc.DEF-1=\n");
    let served = serve(vec![matrix(&[999, 1000, 1005, 1010, 1011])]);
    let server = Server::new(&format!("http://{}/path/", served.at), Some(&token)).unwrap();
    // Others than those of the time do not count.
    assert_eq!(ask(&server, &TIMES).unwrap(), [1000, 1005, 1010]);
    assert!(!server.is_overheard());
    let asked = served.asked().remove(0);
    assert!(asked.starts_with("GET /path/api/v1/query?query=%7B__name__%3D~%22m%7Cm_bucket%7C"), "{asked}");
    assert!(asked.contains("%5B10001ms%5D&time=1010.000 HTTP/1.1"), "{asked}");
    assert!(asked.to_ascii_lowercase().contains("\r\nauthorization: bearer abc.def-1=\r\n"), "{asked}");
    for (text, why) in
        [("", "is empty"), ("\nabc\n", "is empty"), ("a b", "has blanks"), ("ä", "cannot have")]
    {
        let said = Server::new("http://h", Some(&secret(&folder, text))).err().unwrap().to_string();
        assert!(said.contains(why) && !said.contains("a b"), "{said}");
    }
}

#[test]
fn a_long_time_is_asked_for_in_pieces() {
    // Two hours and a second: the first hour is too much, so half an hour at a time.
    let times = [(1_000_000_000_000, 8_200_000_000_000), (9_000_000_000_000, 9_001_000_000_000)];
    let too_much =
        error("422 Unprocessable Entity", "query processing would load too many samples into memory");
    let served = serve(vec![
        too_much,
        matrix(&[1000, 2799]),
        matrix(&[2800]),
        matrix(&[]),
        matrix(&[]),
        matrix(&[8200]),
        matrix(&[9000]),
    ]);
    let server = Server::new(&format!("http://{}", served.at), None).unwrap();
    assert_eq!(ask(&server, &times).unwrap(), [1000, 2799, 2800, 8200, 9000]);
    let asked = served.asked();
    let ends = ["4599.999", "2799.999", "4599.999", "6399.999", "8199.999", "8200.000", "9001.000"];
    for (request, end) in asked.iter().zip(ends) {
        assert!(request.contains(&format!("&time={end} ")), "{end}: {request}");
    }
    // An answer that is too long is one of too much time as well.
    let served = serve(vec![matrix(&[1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007])]);
    let server = Server::trusting(&format!("http://{}", served.at), None, &Trust::System, 200).unwrap();
    assert!(matches!(server.get("query", &[]), Err(Refused::TooMuch(_))));
    drop(server);
    served.asked();
}

#[test]
fn a_refusal_has_the_servers_words_and_help() {
    let folder = tempfile::tempdir().unwrap();
    let token = secret(&folder, "t0ken");
    let unauthorized = || answer("401 Unauthorized", "");
    for (answer, token, kind, says) in [
        (error("400 Bad Request", "parse error"), None, FaultKind::Failed, "400 Bad Request: parse error"),
        (unauthorized(), None, FaultKind::NoPrivilege, "--token-file FILE"),
        (unauthorized(), Some(&token), FaultKind::NoPrivilege, "is valid and may query"),
        (answer("403 Forbidden", "no tenant"), Some(&token), FaultKind::NoPrivilege, "no tenant"),
        (answer("404 Not Found", "404 page not found"), None, FaultKind::NothingThere, "http://HOST:9090"),
        (answer("429 Too Many Requests", ""), None, FaultKind::Failed, "limits queries"),
        (answer("503 Service Unavailable", "starting"), None, FaultKind::Failed, "starting"),
        (answer("200 OK", "<html>"), None, FaultKind::BadInput, "is not JSON of Prometheus"),
    ] {
        let fault = fault(answer, token.map(|t| t.as_path()));
        let said = fault.to_string();
        assert!(
            fault.kind == kind && said.contains(says) && !said.contains("t0ken"),
            "{:?} {said}",
            fault.kind
        );
    }
}

#[test]
fn scrapes_before_a_targets_first_sample_are_asked_for() {
    let result = |name: &str, more: &str, values: &str| {
        format!("{{\"metric\":{{\"__name__\":\"{name}\",\"instance\":\"a:1\"{more}}},\"values\":[{values}]}}")
    };
    let series = [("m_bucket", ",\"le\":\"+Inf\""), ("m_sum", "")].map(|(n, l)| result(n, l, "[1005,\"3\"]"));
    let answer = |all: &str| data(&format!("{{\"resultType\":\"matrix\",\"result\":[{all}]}}"));
    let up = result("up", "", "[1000,\"1\"],[1002,\"0\"],[1004,\"1\"],[1005,\"1\"]");
    let served = serve(vec![answer(&series.join(",")), answer(&up)]);
    let server = Server::new(&format!("http://{}", served.at), None).unwrap();
    assert_eq!(ask(&server, &TIMES).unwrap(), [1000, 1004, 1005]);
    let asked = served.asked().remove(1);
    assert!(
        asked.contains("query=up%7Bjob%3D%22%22%2Cinstance%3D%22a%3A1%22%7D%5B5000ms%5D&time=1004.999 "),
        "{asked}"
    );
}

/// The token goes nowhere else.
#[test]
fn redirects_are_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let token = secret(&folder, "t0ken");
    let moved =
        whole("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/login\r\nContent-Length: 0\r\n\r\n");
    let said = fault(moved, Some(&token)).to_string();
    assert!(said.contains("redirects (302 Found) to http://127.0.0.1:1/login"), "{said}");
}

#[test]
fn what_the_server_has_instead_is_told() {
    let none = || data("{\"resultType\":\"matrix\",\"result\":[]}");
    for (series, says) in [
        ("[{\"__name__\":\"m_bucket\",\"le\":\"1\"}]", "it has samples of other times"),
        ("[]", "choose among n"),
    ] {
        let served = serve(vec![none(), data(series), data("[\"n_bucket\"]")]);
        let server = Server::new(&format!("http://{}", served.at), None).unwrap();
        let fault = ask(&server, &TIMES).unwrap_err();
        let said = fault.to_string();
        assert!(fault.kind == FaultKind::NothingThere && said.contains(says), "{said}");
        let asked = served.asked();
        assert!(asked[1].starts_with("GET /api/v1/series?match%5B%5D=%7B__name__"), "{}", asked[1]);
        assert!(asked[2].starts_with("GET /api/v1/label/__name__/values HTTP"), "{}", asked[2]);
    }
}

#[test]
fn a_server_must_be_the_one_it_claims_to_be() {
    let (ours, other) = (Identity::new(), Identity::new());
    let folder = tempfile::tempdir().unwrap();
    for (identity, trusted) in [(&ours, true), (&other, false)] {
        let path = folder.path().join("ca.pem");
        std::fs::write(&path, &identity.pem).unwrap();
        let served = server::Server::secure(vec![vec![matrix(&[1000])]], &ours);
        let url = format!("https://localhost:{}", served.at.port());
        let server = Server::trusting(&url, None, &Trust::Authorities(path), limits::METRICS_PAGE).unwrap();
        match ask(&server, &TIMES) {
            Ok(all) => assert!(trusted && all == [1000]),
            Err(fault) => assert!(!trusted && fault.kind == FaultKind::NoPrivilege, "{fault}"),
        }
    }
}

#[test]
fn an_address_is_checked() {
    for (url, why) in [
        ("file", "is not the address of a server"),
        ("http://h:9090/graph?g0.expr=up", "it has a query"),
        ("http://user:pass@h:9090", "user names and passwords"),
        ("http://h:99999", "is not a valid port"),
    ] {
        let said = Server::new(url, None).err().unwrap().to_string();
        assert!(said.contains(why), "{said}");
    }
    assert!(Server::new("http://prometheus:9090", None).unwrap().is_overheard());
    assert!(!Server::new("http://[::1]:9090", None).unwrap().is_overheard());
}
