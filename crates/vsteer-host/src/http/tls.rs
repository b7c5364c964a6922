//! TLS as a link of ureq's chain of connectors, with a configuration of rustls that vsteer made.
//!
//! ureq has such a link (`RustlsConnector`), but makes the configuration itself and takes no verifier from outside.

use super::{Failure, tls_failure};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Instant;
use ureq::Error;
use ureq::unversioned::transport::time::{self, Duration};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport, TransportAdapter,
};

/// Encrypts what is asked over https.
pub(super) struct Tls {
    config: Option<Arc<ClientConfig>>,
}

impl Tls {
    /// Without a configuration https fails.
    pub(super) fn new(config: Option<Arc<ClientConfig>>) -> Tls {
        Tls { config }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl<In: Transport> Connector<In> for Tls {
    type Out = Either<In, Encrypted>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let Some(transport) = chained else { return Ok(None) };
        if !details.needs_tls() || transport.is_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let config = self.config.clone().ok_or(Error::TlsRequired)?;
        let host = details.uri.host().unwrap_or_default();
        // An IPv6 address stands in brackets in a URI, and without them in a certificate.
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host).to_owned();
        let name = ServerName::try_from(host)
            .map_err(|_| Error::Tls("the server's name is not valid in a certificate"))?;
        let mut connection =
            ClientConnection::new(config, name).map_err(|e| Failure::Untrusted(e).boxed())?;
        let mut socket = TransportAdapter::new(transport.boxed(), Arc::clone(&details.current_time));
        socket.set_timeout(left(details));
        while connection.is_handshaking() {
            connection.complete_io(&mut socket).map_err(tls_failure)?;
        }
        let buffers =
            LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Either::B(Encrypted { buffers, stream: StreamOwned::new(connection, socket) })))
    }
}

/// What is left of the time to connect.
fn left(details: &ConnectionDetails<'_>) -> NextTimeout {
    let mut timeout = details.timeout;
    if let (Duration::Exact(after), time::Instant::Exact(begin)) = (timeout.after, details.now) {
        let gone = Instant::now().saturating_duration_since(begin);
        timeout.after = Duration::Exact(after.saturating_sub(gone));
    }
    timeout
}

/// A connection through TLS.
pub(super) struct Encrypted {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encrypted").finish_non_exhaustive()
    }
}

impl Transport for Encrypted {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.sock.set_timeout(timeout);
        self.stream.write_all(&self.buffers.output()[..amount]).map_err(tls_failure)?;
        // rustls may have kept some of it.
        self.stream.flush().map_err(tls_failure)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.sock.set_timeout(timeout);
        let amount = self.stream.read(self.buffers.input_append_buf()).map_err(tls_failure)?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
