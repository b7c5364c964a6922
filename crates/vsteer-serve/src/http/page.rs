//! Serves the live page: a few files that `make page` has built and build.rs has embedded.
//!
//! The files hold nothing about the host, so they need no token. The page itself asks for the token and reads the query
//! interface with it. The security policy lets the page load and ask nothing but this service.

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::OnceLock;

include!(concat!(env!("OUT_DIR"), "/page.rs"));

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
    base-uri 'none'; frame-ancestors 'none'; form-action 'none'";

/// Names of files below `assets/` hold a hash of the content, so a browser never needs to ask for one again.
const HASHED: &str = "assets/";

const NOT_BUILT: &str = "<!doctype html>
<html lang=\"en\"><meta charset=\"utf-8\"><title>vsteer</title>
<h1>vsteer: the live page was not built</h1>
<p>This vsteer-serve was built without Node.js, so it has no live page. Everything else works:
<ul><li><a href=\"metrics\">metrics</a> for Prometheus<li><a href=\"api/v1\">api/v1</a>, the query interface</ul>
<p>To build the page, run <code>make page</code> and then build vsteer-serve again.
</html>
";

/// The files, and whether the query interface needs a token: the page asks for one before its first request.
pub(super) fn router<S: Clone + Send + Sync + 'static>(needs_token: bool) -> Router<S> {
    let access = async move || ([(header::CACHE_CONTROL, "no-store")], Json(json!({ "token": needs_token })));
    Router::new()
        .route("/", get(async |head: HeaderMap| file("index.html", &head)))
        .route("/assets/{name}", get(asset))
        .route("/access.json", get(access))
}

async fn asset(Path(name): Path<String>, head: HeaderMap) -> Response {
    file(&format!("{HASHED}{name}"), &head)
}

fn file(name: &str, head: &HeaderMap) -> Response {
    let Some(plain) = content(name) else { return StatusCode::NOT_FOUND.into_response() };
    let accepted = head.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let gzip = accepted.is_some_and(super::coding::accepts_gzip);
    let body = if gzip { packed(name).unwrap_or(plain) } else { plain };
    let mut response = body.into_response();
    let head = response.headers_mut();
    let mut set = |name, value| head.insert(name, HeaderValue::from_static(value));
    set(header::CONTENT_TYPE, media_type(name));
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "no-referrer");
    set(header::VARY, "accept-encoding");
    let forever = "public, max-age=31536000, immutable";
    set(header::CACHE_CONTROL, if name.starts_with(HASHED) { forever } else { "no-cache" });
    if gzip && packed(name).is_some() {
        set(header::CONTENT_ENCODING, "gzip");
    }
    response
}

fn content(name: &str) -> Option<&'static [u8]> {
    let found = FILES.iter().find(|(file, _)| *file == name).map(|(_, bytes)| *bytes);
    found.or((name == "index.html").then_some(NOT_BUILT.as_bytes()))
}

/// The file as gzip, compressed once for all clients.
fn packed(name: &str) -> Option<&'static [u8]> {
    static PACKED: OnceLock<BTreeMap<&str, Vec<u8>>> = OnceLock::new();
    let all = PACKED.get_or_init(|| FILES.iter().map(|(name, bytes)| (*name, pack(bytes))).collect());
    all.get(name).map(Vec::as_slice)
}

fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most that a browser loads for the whole page, compressed.
    const MOST: usize = 300_000;

    #[test]
    fn the_page_is_small() {
        let all: usize = FILES.iter().map(|(_, bytes)| pack(bytes).len()).sum();
        assert!(all <= MOST, "the page has {all} bytes as gzip, expected at most {MOST}");
    }

    #[test]
    fn files_have_strict_headers() {
        let mut asks = HeaderMap::new();
        let answer = file("index.html", &asks);
        let text = |answer: &Response, name| answer.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(text(&answer, header::CONTENT_SECURITY_POLICY), POLICY);
        assert_eq!(text(&answer, header::X_CONTENT_TYPE_OPTIONS), "nosniff");
        assert_eq!(text(&answer, header::CACHE_CONTROL), "no-cache");
        assert!(!answer.headers().contains_key(header::CONTENT_ENCODING));
        asks.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        for (name, _) in FILES.iter().filter(|(name, _)| name.starts_with(HASHED)) {
            let answer = file(name, &asks);
            assert!(text(&answer, header::CACHE_CONTROL).ends_with("immutable"), "{name}");
            assert_eq!(text(&answer, header::CONTENT_ENCODING), "gzip", "{name}");
        }
        assert_eq!(file("../Cargo.toml", &asks).status(), StatusCode::NOT_FOUND);
    }

    /// Scripts and styles in the file itself would not run under the policy.
    #[test]
    fn the_start_file_holds_no_script_of_its_own() {
        let html = String::from_utf8_lossy(content("index.html").unwrap());
        assert!(!html.contains("<style") && !html.contains(" style="), "{html}");
        assert!(html.split("<script").skip(1).all(|rest| rest.contains(" src=")), "{html}");
    }
}
