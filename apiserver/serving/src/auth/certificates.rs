//! Client certificates: their authorities, and the users that they name.
//!
//! TLS proves that the peer holds the private key of the certificate it presents, and no more. What the certificate
//! is worth is decided here, request by request, by the CA that verifies it: chain, validity and client usage are
//! checked by webpki. CAs change at run time; what the old one vouched for ends with it.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use parking_lot::Mutex;
use prometheus::Histogram;
use rustls::DistinguishedName;
use rustls_pki_types::{CertificateDer, UnixTime};
use sha2::{Digest, Sha256};
use stoa_meta::request::UserInfo;
use stoa_tls::CaBundle;
pub use stoa_tls::CaError;
use x509_parser::prelude::{FromDer, X509Certificate, X509Name};

use super::{
    authenticator::{AuthenticationError, Authenticator, Credentials},
    metrics::Metrics,
};

/// How long a verification is believed before time and signatures are looked at again.
const VERIFIED_FOR: Duration = Duration::from_secs(10);
/// The key of the extra that names the credential, as upstream's `user.CredentialIDKey`.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// The attribute of a subject's name that has the user's UID.
const UID: &str = "1.3.6.1.4.1.57683.2";

/// The certificates a peer presented, its own first; and what was found out about them, so that the many requests of
/// one connection do not verify the same signatures again.
#[derive(Debug)]
pub struct PeerCertificates {
    chain: Vec<CertificateDer<'static>>,
    subject: OnceLock<Option<Subject>>,
    verified: Mutex<Vec<(u64, Instant)>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    /// The (last) common name, or empty.
    pub(crate) common_name: String,
    pub(crate) organizations: Vec<String>,
    /// The UID, which may be empty; none where nobody can tell.
    uid: Option<String>,
    /// Until when the certificate is good, in seconds since the epoch.
    good_until: i64,
}

impl PeerCertificates {
    /// Takes the chain as presented: the peer's own first. `None` when there is none.
    pub fn new(chain: Vec<CertificateDer<'static>>) -> Option<Self> {
        (!chain.is_empty()).then(|| Self { chain, subject: OnceLock::new(), verified: Mutex::default() })
    }

    pub(crate) fn subject(&self) -> Result<&Subject, AuthenticationError> {
        let subject = self.subject.get_or_init(|| {
            let (_, certificate) = X509Certificate::from_der(&self.chain[0]).ok()?;
            let name = certificate.subject();
            let text =
                |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| attribute.as_str().map(str::to_owned).ok();
            Some(Subject {
                // Go keeps the last one of several.
                common_name: name.iter_common_name().last().map_or(Some(String::new()), text)?,
                organizations: name.iter_organization().map(text).collect::<Option<_>>()?,
                uid: uid_in(name),
                good_until: certificate.validity().not_after.timestamp(),
            })
        });
        subject.as_ref().ok_or(AuthenticationError::MalformedCertificate)
    }

    /// `X509SHA256=` and the fingerprint of the peer's own certificate, in lower-case hex.
    fn credential_id(&self) -> String {
        let mut id = "X509SHA256=".to_owned();
        for byte in Sha256::digest(&self.chain[0]) {
            id.push_str(&format!("{byte:02x}"));
        }
        id
    }
}

/// The UID that a name has; empty where it has none, and nothing where it has several or an empty one (`parseUIDFromCert` of
/// `k8s.io/apiserver/pkg/authentication/request/x509`).
fn uid_in(name: &X509Name<'_>) -> Option<String> {
    let mut uids = name.iter_attributes().filter(|attribute| attribute.attr_type().to_id_string() == UID);
    match (uids.next(), uids.next()) {
        (None, _) => Some(String::new()),
        (Some(uid), None) => uid.as_str().ok().filter(|uid| !uid.is_empty()).map(str::to_owned),
        (Some(_), Some(_)) => None,
    }
}

/// A CA bundle that may change while the server runs, and may be absent.
#[derive(educe::Educe)]
#[educe(Debug)]
pub struct DynamicCa {
    name: &'static str,
    #[educe(Debug(ignore))]
    current: ArcSwapOption<Bundle>,
}

struct Bundle {
    id: u64,
    authorities: CaBundle,
}

/// What was read to replace a bundle; it may be that there is none.
pub(super) struct Replacement(Option<Arc<Bundle>>);

impl DynamicCa {
    /// No CA yet; `name` stands in messages, such as `client CA`.
    pub fn new(name: &'static str) -> Self {
        Self { name, current: ArcSwapOption::empty() }
    }

    /// Replaces the bundle with the certificates of a PEM text; says whether it is another one than before.
    ///
    /// # Errors
    ///
    /// [`CaError`]; the bundle before stays in force then.
    pub fn set(&self, pem: &str) -> Result<bool, CaError> {
        let replacement = self.read(Some(pem))?;
        Ok(replacement.map(|replacement| self.replace(replacement)).is_some())
    }

    /// Reads a bundle that is to replace the one in force, which stays for now; nothing when it is that one.
    pub(super) fn read(&self, pem: Option<&str>) -> Result<Option<Replacement>, CaError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if self.current.load().as_ref().map(|bundle| bundle.authorities.pem()) == pem {
            return Ok(None);
        }
        let Some(pem) = pem else { return Ok(Some(Replacement(None))) };
        let authorities = CaBundle::parse(pem)?;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Some(Replacement(Some(Arc::new(Bundle { id, authorities })))))
    }

    pub(super) fn replace(&self, replacement: Replacement) {
        self.current.store(replacement.0);
    }

    pub(crate) fn subjects(&self) -> Vec<DistinguishedName> {
        self.current.load().as_ref().map(|bundle| bundle.authorities.subjects().to_vec()).unwrap_or_default()
    }

    /// Removes the bundle: from now on it vouches for nobody.
    pub fn clear(&self) {
        self.replace(Replacement(None));
    }

    /// Whether the bundle vouches for these certificates now; `None` when there is no bundle.
    ///
    /// Chain, signatures, validity and client usage are checked; a CA of the bundle that has expired vouches for nobody.
    pub(crate) fn verify(&self, certificates: &PeerCertificates) -> Option<Result<(), AuthenticationError>> {
        self.verify_at(certificates, UnixTime::now())
    }

    fn verify_at(&self, certificates: &PeerCertificates, time: UnixTime) -> Option<Result<(), AuthenticationError>> {
        let bundle = self.current.load_full()?;
        let now = Instant::now();
        let mut verified = certificates.verified.lock();
        verified.retain(|(_, at)| now.duration_since(*at) < VERIFIED_FOR);
        if verified.iter().any(|(id, _)| *id == bundle.id) {
            return Some(Ok(()));
        }
        let (own, intermediates) = certificates.chain.split_first()?;
        Some(match bundle.authorities.check(own, intermediates, time) {
            Ok(()) => {
                verified.push((bundle.id, now));
                Ok(())
            }
            Err(source) => Err(AuthenticationError::Certificate { ca: self.name, source }),
        })
    }
}

/// Believes certificates that the client CA vouches for: the common name is the user, organizations are groups.
#[derive(Debug)]
pub struct ClientCertificates {
    ca: Arc<DynamicCa>,
    remaining: Histogram,
}

impl ClientCertificates {
    /// Believes what `ca` vouches for.
    pub fn new(ca: Arc<DynamicCa>) -> Self {
        Self { ca, remaining: Metrics::default().certificates }
    }

    /// Counts in these metrics.
    #[must_use]
    pub fn counted(self, metrics: &Metrics) -> Self {
        Self { remaining: metrics.certificates.clone(), ..self }
    }
}

#[async_trait]
impl Authenticator for ClientCertificates {
    async fn authenticate(&self, credentials: Credentials<'_>) -> Result<Option<UserInfo>, AuthenticationError> {
        let Some(certificates) = credentials.certificates else { return Ok(None) };
        let Some(verified) = self.ca.verify(certificates) else { return Ok(None) };
        if let Ok(Subject { good_until, .. }) = certificates.subject() {
            self.remaining.observe(*good_until as f64 - UnixTime::now().as_secs() as f64);
        }
        verified?;
        let subject = certificates.subject()?;
        if subject.common_name.is_empty() {
            return Ok(None);
        }
        Ok(Some(UserInfo {
            name: subject.common_name.clone(),
            uid: subject.uid.clone().ok_or(AuthenticationError::UntoldUid)?,
            groups: subject.organizations.clone(),
            extra: [(CREDENTIAL_ID.to_owned(), vec![certificates.credential_id()])].into(),
        }))
    }

    fn authorities(&self) -> Vec<DistinguishedName> {
        self.ca.subjects()
    }
}

#[cfg(test)]
#[path = "certificates_tests.rs"]
pub(crate) mod tests;
