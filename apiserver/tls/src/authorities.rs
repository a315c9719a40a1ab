//! Whom certificate authorities vouch for, as long as they are in force themselves.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Why a text cannot be used as a CA bundle.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// A block in it is broken.
    #[error("the CA bundle is not PEM")]
    Pem(#[source] rustls_pki_types::pem::Error),
    /// It holds no certificate.
    #[error("the CA bundle holds no certificate")]
    Empty,
    /// A certificate in it cannot be a trust anchor.
    #[error("the CA bundle holds an unusable certificate")]
    Certificate(#[source] Error),
    /// No verifier can be made from it.
    #[error("the CA bundle cannot verify anything")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
}

/// Certificate authorities, any of which may vouch for a client.
///
/// As a [`ClientCertVerifier`] it asks every client for a certificate and lets nobody in without one.
#[derive(Debug)]
pub struct CaBundle {
    pem: String,
    roots: Vec<Root>,
    /// By all of the roots, as long as all are in force.
    verifier: Arc<dyn ClientCertVerifier>,
}

/// The certificate of an authority, and when it is in force, in seconds since 1970.
#[derive(Debug)]
struct Root {
    certificate: CertificateDer<'static>,
    from: i64,
    until: i64,
}

impl Root {
    fn new(certificate: CertificateDer<'static>) -> Result<Self, CaError> {
        let unreadable = || CaError::Certificate(CertificateError::BadEncoding.into());
        let (_, parsed) = X509Certificate::from_der(&certificate).map_err(|_| unreadable())?;
        let validity = parsed.validity();
        let (from, until) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        Ok(Self { certificate, from, until })
    }

    fn in_force(&self, now: UnixTime) -> bool {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        (self.from..=self.until).contains(&now)
    }
}

impl CaBundle {
    /// Reads the certificates of a PEM text.
    ///
    /// # Errors
    ///
    /// [`CaError`].
    pub fn parse(pem: &str) -> Result<Self, CaError> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let certificates = certificates.map_err(CaError::Pem)?;
        let verifier = verifier(store(certificates.iter())?)?;
        let roots = certificates.into_iter().map(Root::new).collect::<Result<_, _>>()?;
        Ok(Self { pem: pem.to_owned(), roots, verifier })
    }

    /// The text it was read from.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The names of the authorities.
    pub fn subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    /// The authorities that are in force, for whoever verifies servers.
    ///
    /// # Errors
    ///
    /// [`CaError::Empty`] when none is.
    pub fn in_force(&self, now: UnixTime) -> Result<RootCertStore, CaError> {
        store(self.roots.iter().filter(|root| root.in_force(now)).map(|root| &root.certificate))
    }

    /// Whether an authority that is in force vouches for the certificate of a client.
    ///
    /// Chain, signatures, validity and client usage are checked.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        // What verifies chains takes no root for too old, unlike Go's `x509.Certificate.Verify`.
        let verifier = if self.roots.iter().all(|root| root.in_force(now)) {
            self.verifier.clone()
        } else {
            self.in_force(now).and_then(verifier).map_err(|_| CertificateError::Expired)?
        };
        verifier.verify_client_cert(own, intermediates, now).map(drop)
    }
}

fn store<'c>(certificates: impl Iterator<Item = &'c CertificateDer<'static>>) -> Result<RootCertStore, CaError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate.clone()).map_err(CaError::Certificate)?;
    }
    if roots.is_empty() { Err(CaError::Empty) } else { Ok(roots) }
}

/// Verifies what any of these vouches for.
fn verifier(roots: RootCertStore) -> Result<Arc<dyn ClientCertVerifier>, CaError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().map_err(CaError::Verifier)
}

impl ClientCertVerifier for CaBundle {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.subjects()
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(own, intermediates, now).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
