//! AutoMTLS: the mutual TLS that the plugin library offers, with certificates of one start.
//!
//! The client sends a certificate of its own by the environment, and the provider accepts no other client. The provider
//! sends its certificate in the line that begins the protocol, and the client accepts no other provider. Both signed
//! themselves, so nothing else about them is checked.
//!
//! Providers have keys of P-521, which *ring* does not verify. OpenSSL does, which libgit2 brings along.

use std::fmt;
use std::io;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use openssl::hash::MessageDigest;
use openssl::sign::Verifier;
use openssl::x509::X509;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, PeerMisbehaved, SignatureScheme};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Base64 with the standard alphabet. Providers leave out the padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The certificate in a provider's line, if the text is one.
pub(super) fn certificate(text: &str) -> Option<CertificateDer<'static>> {
    let der = BASE64.decode(text).ok()?;
    X509::from_der(&der).ok()?;
    Some(der.into())
}

/// The certificate of the client for one provider, with its key.
pub(super) struct Identity {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

impl Identity {
    /// A new one.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers.
    pub(super) fn new() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(["localhost".to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, "localhost");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.self_signed(&key)?;
        Ok(Self { certificate, key })
    }

    /// The certificate for the environment of the provider.
    pub(super) fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// What connects to the provider with this certificate, and to no other program.
    ///
    /// # Errors
    ///
    /// If the library does not accept the certificate of the client.
    pub(super) fn connector(&self, provider: CertificateDer<'static>) -> Result<Connector, Error> {
        let crypto = Arc::new(ring::default_provider());
        let verifier = Arc::new(Pinned { certificate: provider, crypto: Arc::clone(&crypto) });
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).map_err(|text| Error::General(text.to_owned()))?;
        let mut config = ClientConfig::builder_with_provider(crypto)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(vec![self.certificate.der().clone()], key)?;
        // Newer providers hang up without it.
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Connector(TlsConnector::from(Arc::new(config))))
    }
}

/// Makes connections to one provider.
#[derive(Clone)]
pub(super) struct Connector(TlsConnector);

impl Connector {
    /// Encrypts a connection.
    ///
    /// # Errors
    ///
    /// If the other end is another program.
    pub(super) async fn connect(&self, stream: UnixStream) -> io::Result<TlsStream<UnixStream>> {
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        self.0.connect(name, stream).await
    }
}

/// Accepts one certificate.
#[derive(Debug)]
struct Pinned {
    certificate: CertificateDer<'static>,
    crypto: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if *end_entity == self.certificate {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if signed.scheme != SignatureScheme::ECDSA_NISTP521_SHA512 {
            return verify_tls13_signature(
                message,
                certificate,
                signed,
                &self.crypto.signature_verification_algorithms,
            );
        }
        let is_valid = || {
            let key = X509::from_der(certificate)?.public_key()?;
            Verifier::new(MessageDigest::sha512(), &key)?.verify_oneshot(signed.signature(), message)
        };
        match is_valid() {
            Ok(true) => Ok(HandshakeSignatureValid::assertion()),
            Ok(false) | Err(_) => Err(CertificateError::BadSignature.into()),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = vec![SignatureScheme::ECDSA_NISTP521_SHA512];
        schemes.extend(self.crypto.signature_verification_algorithms.supported_schemes());
        schemes
    }
}

#[cfg(test)]
mod tests {
    use openssl::asn1::Asn1Time;
    use openssl::ec::{EcGroup, EcKey};
    use openssl::nid::Nid;
    use openssl::pkey::{PKey, Private};
    use openssl::ssl::{AlpnError, Ssl, SslAcceptor, SslMethod, SslVerifyMode, select_next_proto};
    use openssl::x509::X509Builder;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream as StdStream;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// A provider's key and certificate, as the plugin library makes them.
    fn provider() -> (PKey<Private>, X509) {
        let group = EcGroup::from_curve_name(Nid::SECP521R1).unwrap();
        let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
        let mut certificate = X509Builder::new().unwrap();
        certificate.set_version(2).unwrap();
        certificate.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
        certificate.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
        certificate.set_pubkey(&key).unwrap();
        certificate.sign(&key, MessageDigest::sha512()).unwrap();
        (key, certificate.build())
    }

    /// Accepts one connection with these, of a client with this certificate, and answers with what it reads.
    fn serve(
        stream: StdStream,
        (key, certificate): &(PKey<Private>, X509),
        client: &str,
    ) -> std::thread::JoinHandle<bool> {
        let mut acceptor = SslAcceptor::mozilla_modern_v5(SslMethod::tls()).unwrap();
        acceptor.set_private_key(key).unwrap();
        acceptor.set_certificate(certificate).unwrap();
        acceptor.cert_store_mut().add_cert(X509::from_pem(client.as_bytes()).unwrap()).unwrap();
        acceptor.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
        acceptor.set_alpn_select_callback(|_, offered| select_next_proto(b"\x02h2", offered).ok_or(AlpnError::NOACK));
        let acceptor = acceptor.build();
        std::thread::spawn(move || {
            let session = Ssl::new(acceptor.context()).unwrap();
            let Ok(mut stream) = session.accept(stream) else { return false };
            assert_eq!(stream.ssl().selected_alpn_protocol(), Some(&b"h2"[..]));
            let mut byte = [0];
            stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok()
        })
    }

    /// Whether a client that expects a certificate speaks with a server that has these.
    async fn speaks(client: &Identity, expected: &X509, server: &(PKey<Private>, X509), trusted: &Identity) -> bool {
        let (near, far) = StdStream::pair().unwrap();
        let served = serve(far, server, &trusted.pem());
        near.set_nonblocking(true).unwrap();
        let connector = client.connector(expected.to_der().unwrap().into()).unwrap();
        let spoken = async {
            let mut stream = connector.connect(UnixStream::from_std(near)?).await?;
            stream.write_all(b"x").await?;
            stream.read_u8().await
        };
        let spoken = spoken.await.is_ok_and(|byte| byte == b'x');
        served.join().unwrap() && spoken
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn only_the_expected_provider_is_accepted() {
        let (client, other) = (Identity::new().unwrap(), Identity::new().unwrap());
        let (server, stranger) = (provider(), provider());
        assert!(speaks(&client, &server.1, &server, &client).await);
        assert!(!speaks(&client, &server.1, &stranger, &client).await);
        // The provider accepts no other client either.
        assert!(!speaks(&other, &server.1, &server, &client).await);
    }

    #[test]
    fn signature_of_another_key_is_rejected() {
        use openssl::sign::Signer;
        let (server, stranger) = (provider(), provider());
        let der: CertificateDer<'static> = server.1.to_der().unwrap().into();
        let crypto = Arc::new(ring::default_provider());
        let pinned = Pinned { certificate: der.clone(), crypto };
        let signed = |key: &PKey<Private>, message: &[u8]| {
            let mut signer = Signer::new(MessageDigest::sha512(), key).unwrap();
            let signature = signer.sign_oneshot_to_vec(message).unwrap();
            let length = u16::try_from(signature.len()).unwrap().to_be_bytes();
            let scheme = u16::from(SignatureScheme::ECDSA_NISTP521_SHA512).to_be_bytes();
            [&scheme[..], &length, &signature].concat()
        };
        let verified = |bytes: Vec<u8>, message: &[u8]| {
            use rustls::internal::msgs::codec::{Codec as _, Reader};
            let signed = DigitallySignedStruct::read(&mut Reader::init(&bytes)).unwrap();
            pinned.verify_tls13_signature(message, &der, &signed).is_ok()
        };
        assert!(verified(signed(&server.0, b"hello"), b"hello"));
        assert!(!verified(signed(&server.0, b"hello"), b"other"));
        assert!(!verified(signed(&stranger.0, b"hello"), b"hello"));
    }

    #[test]
    fn certificates_have_the_form_of_the_plugin_library() {
        let der = provider().1.to_der().unwrap();
        let text = BASE64.encode(&der);
        for text in [text.trim_end_matches('='), &text] {
            assert_eq!(certificate(text).unwrap()[..], der[..]);
        }
        for text in ["", "MIIB", "?", "true"] {
            assert!(certificate(text).is_none(), "{text}");
        }
    }
}
