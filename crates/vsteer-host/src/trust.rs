//! Is the server the one it claims to be?
//!
//! Either a trusted authority (the system's, or one in a file) signed its certificate. Or the certificate has the
//! SHA-256 thumbprint that an administrator copied from the host's console. vsteer cannot skip the check. A refusal
//! prints the thumbprint of the certificate.
//!
//! rustls with ring: twelve crates and ten seconds of build (decision 0012).

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vsteer_core::{Fault, FaultKind};

/// Where distributions keep the authorities that they trust.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Whom to trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The system's authorities.
    System,
    /// Those of this PEM file.
    Authorities(PathBuf),
    /// The one certificate with this SHA-256 thumbprint.
    Thumbprint([u8; 32]),
}

impl Trust {
    /// A thumbprint as it is written: hexadecimal, with colons or without.
    ///
    /// # Errors
    /// `Usage` for anything but 32 bytes.
    pub fn thumbprint(text: &str) -> Result<Trust, Fault> {
        vsteer_core::thumbprint::bytes(text).map(Trust::Thumbprint).ok_or_else(|| {
            Fault::new(FaultKind::Usage, format!("{text:?} is not a SHA-256 thumbprint"))
                .help("write 64 hexadecimal digits, with or without colons")
        })
    }

    /// The configuration of TLS that trusts so.
    ///
    /// # Errors
    /// `NothingThere` if the system has no list of authorities, `BadInput` for a file without any.
    pub(crate) fn config(&self) -> Result<ClientConfig, Fault> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let broken =
            |e: &dyn std::fmt::Display| Fault::new(FaultKind::Failed, "cannot set up TLS").because(e);
        let authorities = match self {
            Trust::Thumbprint(_) => None,
            Trust::System => Some(roots(&system()?)?),
            Trust::Authorities(path) => Some(roots(path)?),
        };
        let authorities = authorities.map(|roots| {
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()
        });
        let verifier = Verifier {
            authorities: authorities.transpose().map_err(|e| broken(&e))?,
            thumbprint: match self {
                Trust::Thumbprint(bytes) => Some(*bytes),
                _ => None,
            },
            provider: provider.clone(),
        };
        Ok(ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| broken(&e))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth())
    }
}

fn system() -> Result<PathBuf, Fault> {
    let said = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    said.or_else(|| SYSTEM.iter().map(PathBuf::from).find(|p| p.is_file())).ok_or_else(|| {
        Fault::new(FaultKind::NothingThere, "this system has no list of trusted certificate authorities")
            .help("install the package ca-certificates, or set SSL_CERT_FILE to a PEM file of authorities")
    })
}

fn roots(path: &Path) -> Result<RootCertStore, Fault> {
    let wrong = |e: &dyn std::fmt::Display| {
        Fault::new(
            FaultKind::BadInput,
            format!("cannot read the certificate authorities in {}", path.display()),
        )
        .because(e)
    };
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|e| wrong(&e))? {
        // Lists hold some that no longer parse: the others count.
        let _ = store.add(certificate.map_err(|e| wrong(&e))?);
    }
    if store.is_empty() {
        return Err(wrong(&"the file holds no certificate of an authority"));
    }
    Ok(store)
}

#[derive(Debug)]
struct Verifier {
    authorities: Option<Arc<WebPkiServerVerifier>>,
    thumbprint: Option<[u8; 32]>,
    provider: Arc<CryptoProvider>,
}

fn thumbprint_of(certificate: &CertificateDer<'_>) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn written(thumbprint: &[u8; 32]) -> String {
    thumbprint.iter().map(|b| format!("{b:02X}")).collect::<Vec<_>>().join(":")
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let seen = thumbprint_of(end_entity);
        let refused =
            |why: String| Err(Error::General(format!("{why}; its SHA-256 thumbprint is {}", written(&seen))));
        match (&self.thumbprint, &self.authorities) {
            (Some(known), _) if *known == seen => Ok(ServerCertVerified::assertion()),
            (Some(_), _) => refused("the server's certificate has another thumbprint".to_owned()),
            (None, Some(authorities)) => authorities
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
                .or_else(|e| refused(e.to_string())),
            (None, None) => {
                refused("no authority and no thumbprint is given to trust the certificate".to_owned())
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thumbprints() {
        let plain = "ab".repeat(32);
        let colons = vec!["AB"; 32].join(":");
        assert_eq!(Trust::thumbprint(&plain).unwrap(), Trust::thumbprint(&colons).unwrap());
        for wrong in ["", "ab", &plain[1..], "zz".repeat(32).as_str(), &format!("{plain}ab")] {
            assert!(Trust::thumbprint(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_file_without_authorities_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(Trust::Authorities(file.path().to_owned()).config().is_err());
        assert!(Trust::Authorities("/nowhere".into()).config().is_err());
        assert!(Trust::Thumbprint([0; 32]).config().is_ok());
    }
}
