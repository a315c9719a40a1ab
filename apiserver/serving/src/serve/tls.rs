//! TLS: client certificates without a check by the handshake, and authorities that change at run time.

use std::{path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme, SupportedCipherSuite,
    client::danger::HandshakeSignatureValid,
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms,
        ring::{self, cipher_suite as suite},
        verify_tls12_signature, verify_tls13_signature,
    },
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use rustls_pki_types::{CertificateDer, UnixTime};
use stoa_tls::{Reload, ReloadError, ServingCertificate, read};

use crate::auth::{Authenticator, CaError, DynamicCa};

/// A CA bundle in a file, and what is put there later.
#[derive(Debug)]
pub struct CaFile {
    path: PathBuf,
    ca: Arc<DynamicCa>,
}

impl CaFile {
    /// Reads the file into `ca`.
    pub fn new(path: impl Into<PathBuf>, ca: Arc<DynamicCa>) -> Result<Self, ReloadError> {
        let this = Self { path: path.into(), ca };
        this.reload()?;
        Ok(this)
    }
}

impl Reload for CaFile {
    fn reload(&self) -> Result<bool, ReloadError> {
        let failed = |source: CaError| ReloadError::Ca { path: self.path.clone(), source };
        self.ca.set(&read(&self.path)?).map_err(failed)
    }
}

/// The TLS of a server, which follows the authorities that its authenticators go by.
#[derive(Debug)]
pub(crate) struct Tls {
    certificate: Arc<ServingCertificate>,
    authenticator: Arc<dyn Authenticator>,
    /// The settings in force, and the authorities they name.
    current: ArcSwap<(Vec<DistinguishedName>, Arc<ServerConfig>)>,
}

impl Tls {
    pub(crate) fn new(
        certificate: Arc<ServingCertificate>,
        authenticator: Arc<dyn Authenticator>,
    ) -> Result<Self, Error> {
        let authorities = authenticator.authorities();
        let config = Arc::new(config(certificate.clone(), authorities.clone())?);
        Ok(Self { certificate, authenticator, current: ArcSwap::from_pointee((authorities, config)) })
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        let authorities = self.authenticator.authorities();
        let current = self.current.load();
        if current.0.iter().map(AsRef::as_ref).eq(authorities.iter().map(AsRef::<[u8]>::as_ref)) {
            return current.1.clone();
        }
        match config(self.certificate.clone(), authorities.clone()) {
            Ok(config) => {
                let config = Arc::new(config);
                self.current.store(Arc::new((authorities, config.clone())));
                config
            }
            Err(error) => {
                tracing::error!(%error, "the new authorities cannot be told to clients");
                current.1.clone()
            }
        }
    }
}

/// How a client says that it speaks HTTP/2.
pub(super) const HTTP2: &[u8] = b"h2";

/// The cipher suites, the first ones rather: in the order of Go's servers, which have it their way, too. A key of 128 bits
/// takes a quarter less of the processor than the one of 256 that many clients name first.
const CIPHER_SUITES: [SupportedCipherSuite; 9] = [
    suite::TLS13_AES_128_GCM_SHA256,
    suite::TLS13_AES_256_GCM_SHA384,
    suite::TLS13_CHACHA20_POLY1305_SHA256,
    suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

fn config(certificate: Arc<ServingCertificate>, authorities: Vec<DistinguishedName>) -> Result<ServerConfig, Error> {
    let provider = Arc::new(CryptoProvider { cipher_suites: CIPHER_SUITES.to_vec(), ..ring::default_provider() });
    let verifier = Arc::new(AnyCertificate::new(&provider, authorities));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(certificate);
    config.ignore_client_order = true;
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Asks for a client certificate and takes any whose private key the client proves to hold.
///
/// What a certificate is worth depends on who signed it, which is decided for each request (`crate::auth`): a
/// certificate that one CA does not vouch for may be vouched for by another, and a bearer token may come with either.
/// Go servers do the same with `tls.RequestClientCert`.
#[derive(Debug)]
struct AnyCertificate {
    authorities: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl AnyCertificate {
    fn new(provider: &CryptoProvider, authorities: Vec<DistinguishedName>) -> Self {
        Self { authorities, algorithms: provider.signature_verification_algorithms }
    }
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Whose certificates are of any use; what a client shows all the same is judged all the same.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.authorities
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
