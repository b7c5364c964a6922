//! TLS for addresses: the service's certificate, and the authorities of clients' certificates.
//!
//! rustls with ring, as in vsteer-host (decision 0012). TLS 1.2 and 1.3.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::trusted;

/// The files (PEM) of a service with TLS.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The service's certificate, then those between it and the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities of clients' certificates.
    pub client_ca: Option<PathBuf>,
    /// Refuse clients without a certificate, because the service has no tokens.
    pub demands_certificate: bool,
}

impl TlsFiles {
    /// All files.
    pub fn all(&self) -> Vec<PathBuf> {
        [&self.certificate, &self.key].into_iter().chain(&self.client_ca).cloned().collect()
    }

    /// Reads the files.
    ///
    /// # Errors
    /// When a file cannot be read, holds nothing of its kind, or the key is of another certificate.
    pub fn read(&self) -> Result<ServerConfig, Fault> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let failed = |e: &dyn std::fmt::Display| {
            let what = format!("cannot use {} with {}", self.certificate.display(), self.key.display());
            Fault::new(FaultKind::BadInput, what).because(e)
        };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|e| failed(&e))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let mut roots = RootCertStore::empty();
                let added = roots.add_parsable_certificates(certificates(file)?).0;
                if added == 0 {
                    return Err(empty(file, "certificate"));
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier =
                    if self.demands_certificate { verifier } else { verifier.allow_unauthenticated() };
                builder.with_client_cert_verifier(verifier.build().map_err(|e| failed(&e))?)
            }
        };
        let chain = certificates(&self.certificate)?;
        if chain.is_empty() {
            return Err(empty(&self.certificate, "certificate"));
        }
        let key = trusted::secret_text(&self.key)?;
        let key =
            PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| empty(&self.key, "private key"))?;
        let mut config = builder.with_single_cert(chain, key).map_err(|e| failed(&e))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Fault> {
    // Who can write it decides who gets in.
    let bytes = trusted::safe_bytes(file)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    all.map_err(|e| {
        Fault::new(FaultKind::BadInput, format!("{} is not a PEM file", file.display()))
            .because(format!("{e:?}"))
    })
}

fn empty(file: &Path, thing: &str) -> Fault {
    Fault::new(FaultKind::BadInput, format!("{} does not hold a {thing}", file.display()))
        .help(format!("write the {thing} to it in PEM form"))
}
