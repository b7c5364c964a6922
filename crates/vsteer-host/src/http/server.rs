//! A server for tests: it gives the answers that it was told to give, in clear or through TLS.

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// What one connection does: after each request it sends these pieces.
pub(crate) type Answers = Vec<Vec<Vec<u8>>>;

/// The answer in one piece.
pub(crate) fn whole(text: &str) -> Vec<Vec<u8>> {
    vec![text.as_bytes().to_vec()]
}

/// A server that listens on this machine.
pub(crate) struct Server {
    pub(crate) at: SocketAddr,
    thread: JoinHandle<Vec<String>>,
}

impl Server {
    /// Serves one connection after another; rests `rest` after each piece. With `hang` the server waits until the
    /// client closes.
    pub(crate) fn new(
        connections: Vec<Answers>,
        rest: Duration,
        hang: bool,
        tls: Option<Arc<ServerConfig>>,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for answers in connections {
                let (mut stream, _) = listener.accept().unwrap();
                match &tls {
                    None => serve(&mut stream, answers, rest, hang, &mut asked),
                    Some(config) => {
                        let connection = ServerConnection::new(Arc::clone(config)).unwrap();
                        let mut stream = StreamOwned::new(connection, stream);
                        serve(&mut stream, answers, rest, hang, &mut asked);
                        stream.conn.send_close_notify();
                        let _ = stream.flush();
                    }
                }
            }
            asked
        });
        Server { at, thread }
    }

    /// Over TLS, without rests.
    pub(crate) fn secure(connections: Vec<Answers>, identity: &Identity) -> Server {
        Server::new(connections, Duration::ZERO, false, Some(identity.config()))
    }

    /// The requests, once all connections are served.
    pub(crate) fn asked(self) -> Vec<String> {
        self.thread.join().unwrap()
    }
}

fn serve(
    stream: &mut (impl Read + Write),
    answers: Answers,
    rest: Duration,
    hang: bool,
    asked: &mut Vec<String>,
) {
    for pieces in answers {
        let Some(request) = request(stream) else { return };
        asked.push(request);
        for piece in pieces {
            // A client that has read enough closes the connection.
            if stream.write_all(&piece).and_then(|()| stream.flush()).is_err() {
                return;
            }
            std::thread::sleep(rest);
        }
    }
    if hang {
        let _ = stream.read(&mut [0]);
    }
}

/// A request with its body; `None` if the client closes the connection instead.
fn request(stream: &mut impl Read) -> Option<String> {
    let mut bytes = Vec::new();
    let mut read = |bytes: &mut Vec<u8>| {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok().map(|()| bytes.push(byte[0]))
    };
    while !bytes.ends_with(b"\r\n\r\n") {
        read(&mut bytes)?;
    }
    let head = String::from_utf8(bytes.clone()).unwrap();
    let length =
        head.lines().find_map(|l| l.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    for _ in 0..length.unwrap_or(0) {
        read(&mut bytes)?;
    }
    Some(String::from_utf8(bytes).unwrap())
}

/// A certificate of its own making, for `localhost` and 127.0.0.1.
pub(crate) struct Identity {
    pub(crate) pem: String,
    pub(crate) thumbprint: String,
    config: Arc<ServerConfig>,
}

impl Identity {
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    pub(crate) fn new() -> Identity {
        let made =
            rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let digest = ring::digest::digest(&ring::digest::SHA256, made.cert.der());
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        Identity {
            pem: made.cert.pem(),
            thumbprint: digest.as_ref().iter().map(|b| format!("{b:02X}")).collect::<Vec<_>>().join(":"),
            config: Arc::new(config),
        }
    }
}
