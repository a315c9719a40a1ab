//! Whom certificates of a bundle vouch for when we are the client.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        VerifierBuilderError, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    server::ParsedCertificate,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::{
    prelude::{FromDer, X509Certificate},
    x509::X509Version,
};

/// Verifies servers by the certificates of a bundle: authorities, or a server's own certificate.
///
/// As Go's `x509.Certificate.Verify` does, and unlike webpki, it takes a server's own certificate that stands in the bundle,
/// be it signed by itself (as `openssl req -x509` makes one, which is an authority's, too) or by whomever. Name, time
/// and usage are checked all the same. And it takes nothing that the key of such a server has signed: only an authority vouches
/// for others.
#[derive(Debug)]
pub struct ServerVerifier {
    /// Absent where none of them is an authority.
    by_authorities: Option<Arc<WebPkiServerVerifier>>,
    trusted: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl ServerVerifier {
    /// Trusts these certificates, those aside that cannot be read.
    ///
    /// # Errors
    ///
    /// When none can be read.
    pub fn new(mut trusted: Vec<CertificateDer<'static>>) -> Result<Self, VerifierBuilderError> {
        trusted.retain(|certificate| RootCertStore::empty().add(certificate.clone()).is_ok());
        if trusted.is_empty() {
            return Err(VerifierBuilderError::NoRootAnchors);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().filter(|certificate| is_authority(certificate)).cloned());
        let by_authorities = if roots.is_empty() {
            None
        } else {
            Some(WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?)
        };
        Ok(Self { by_authorities, trusted, provider })
    }

    fn is_trusted(&self, certificate: &CertificateDer<'_>) -> bool {
        self.trusted.iter().any(|trusted| trusted.as_ref() == certificate.as_ref())
    }
}

/// Whether a certificate may vouch for others, as Go's `x509.Certificate.CheckSignatureFrom` has it: those of the first version
/// do not say.
fn is_authority(certificate: &CertificateDer<'_>) -> bool {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return false };
    match parsed.basic_constraints() {
        Ok(Some(constraints)) => constraints.value.ca,
        Ok(None) => parsed.version() != X509Version::V3,
        Err(_) => false,
    }
}

/// Checks what is left to check of a certificate that is trusted by itself.
fn check(certificate: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < parsed.validity().not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > parsed.validity().not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    let usage = parsed.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    if usage.is_some_and(|usage| !usage.value.any && !usage.value.server_auth) {
        return Err(CertificateError::InvalidPurpose.into());
    }
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.is_trusted(own) {
            return check(own, name, now).map(|()| ServerCertVerified::assertion());
        }
        let by_authorities = self.by_authorities.as_ref().ok_or(CertificateError::UnknownIssuer)?;
        by_authorities.verify_server_cert(own, intermediates, name, stapled, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls_pki_types::pem::PemObject as _;
    use stoa_pki::{CertificateAuthority, CertificateRequest, Usage};

    use super::*;

    fn certificate(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    fn verify(
        trusted: &[&CertificateDer<'static>],
        own: &CertificateDer<'_>,
        name: &str,
        now: UnixTime,
    ) -> Option<Error> {
        let verifier = ServerVerifier::new(trusted.iter().map(|&certificate| certificate.clone()).collect()).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier.verify_server_cert(own, &[], &name, &[], now).err()
    }

    #[test]
    fn client_trusts_authority_or_own_certificate() {
        let authority = CertificateAuthority::new("authority").unwrap();
        let signed = authority.issue(&CertificateRequest::server("hook").dns("hook.example.com")).unwrap();
        let [authority, own] = [authority.certificate_pem(), &signed.certificate_pem].map(certificate);
        let other = certificate(CertificateAuthority::new("other").unwrap().certificate_pem());
        let now = UnixTime::now();
        assert_eq!(verify(&[&authority], &own, "hook.example.com", now), None);
        assert_eq!(verify(&[&own], &own, "hook.example.com", now), None);
        assert!(verify(&[&other], &own, "hook.example.com", now).is_some());
        let late = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs() + 100 * 365 * 86_400));
        for trusted in [&authority, &own] {
            assert!(verify(&[trusted], &own, "other.example.com", now).is_some());
            assert!(verify(&[trusted], &own, "hook.example.com", late).is_some());
        }
    }

    #[test]
    fn verifier_accepts_self_signed_authority_certificate() {
        let params = rcgen::CertificateParams::new(vec!["hook.example.com".to_owned()]);
        let mut params = params.unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let own = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().clone();
        let now = UnixTime::now();
        assert_eq!(verify(&[&own], &own, "hook.example.com", now), None);
        assert!(verify(&[&own], &own, "other.example.com", now).is_some());
        assert!(verify(&[&own], &own, "hook.example.com", UnixTime::since_unix_epoch(Duration::ZERO)).is_some());
    }

    #[test]
    fn servers_certificate_vouches_for_no_other() {
        let mut params = rcgen::CertificateParams::new(vec!["a.example.com".to_owned()]).unwrap();
        for is_ca in [rcgen::IsCa::NoCa, rcgen::IsCa::ExplicitNoCa] {
            params.is_ca = is_ca;
            let key = rcgen::KeyPair::generate().unwrap();
            let own = params.self_signed(&key).unwrap().der().clone();
            let issuer = rcgen::Issuer::from_params(&params, &key);
            let other = rcgen::CertificateParams::new(vec!["b.example.com".to_owned()]).unwrap();
            let other = other.signed_by(&rcgen::KeyPair::generate().unwrap(), &issuer).unwrap().der().clone();
            let now = UnixTime::now();
            assert_eq!(verify(&[&own], &own, "a.example.com", now), None);
            assert_eq!(verify(&[&own], &other, "b.example.com", now), Some(CertificateError::UnknownIssuer.into()));
        }
    }

    #[test]
    fn clients_certificate_is_no_servers_though_it_is_trusted() {
        let authority = CertificateAuthority::new("authority").unwrap();
        let request = CertificateRequest::new("ann", Usage::Client).dns("hook.example.com");
        let own = certificate(&authority.issue(&request).unwrap().certificate_pem);
        let refused = verify(&[&own], &own, "hook.example.com", UnixTime::now());
        assert_eq!(refused, Some(CertificateError::InvalidPurpose.into()));
    }
}
