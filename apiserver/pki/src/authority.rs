//! Certificate authorities, and the certificates they issue.

use std::{net::IpAddr, path::Path, time::Duration};

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType, date_time_ymd,
};
use x509_parser::{certificate::X509Certificate, pem::Pem};

use crate::{PkiError, files};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long an authority lives.
const AUTHORITY_VALIDITY: Duration = DAY.saturating_mul(10 * 365);
/// How long a certificate lives when the request does not say.
const CERTIFICATE_VALIDITY: Duration = DAY.saturating_mul(365);
/// Certificates begin a little in the past, for clocks that are behind.
const CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);
/// The OID of `organizationName`, in full: rcgen keeps one value for each attribute type, and this is a second type.
const ORGANIZATION_NAME: [u64; 4] = [2, 5, 4, 10];
/// The OID by which a client certificate names its user's UID (KEP-5295).
const UID: [u64; 8] = [1, 3, 6, 1, 4, 1, 57683, 2];

/// What a certificate is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// Serving TLS.
    Server,
    /// Authenticating to a server.
    Client,
    /// Both.
    Both,
}

/// From when to when a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first instant; whole seconds.
    pub not_before: Timestamp,
    /// The last instant; whole seconds.
    pub not_after: Timestamp,
}

impl Validity {
    /// From five minutes ago, for clocks that are behind, until `length` from now.
    pub fn from_now(length: Duration) -> Self {
        let now = Timestamp::now();
        Self {
            not_before: now.checked_sub(CLOCK_SKEW).unwrap_or(Timestamp::MIN),
            not_after: now.checked_add(length).unwrap_or(Timestamp::MAX),
        }
    }

    /// Whether less than a third of the time is left at `now`; when to renew.
    pub fn wants_renewal(&self, now: Timestamp) -> bool {
        let whole = self.not_after.as_second() - self.not_before.as_second();
        self.not_after.as_second() - now.as_second() < whole / 3
    }
}

/// What a new certificate is to say.
#[derive(Clone, Debug)]
pub struct CertificateRequest {
    /// The common name: the user's name in a client certificate.
    pub common_name: String,
    /// The organizations: the user's groups in a client certificate. At most two.
    pub organizations: Vec<String>,
    /// The user's UID in a client certificate.
    pub uid: Option<String>,
    /// The DNS names served.
    pub dns_names: Vec<String>,
    /// The addresses served.
    pub ip_addresses: Vec<IpAddr>,
    /// What it is good for.
    pub usage: Usage,
    /// When it is valid; ends with the authority's own validity at the latest.
    pub validity: Validity,
}

impl CertificateRequest {
    /// A certificate for a server, valid for one year. Add the names that clients use.
    pub fn server(common_name: impl Into<String>) -> Self {
        Self::new(common_name, Usage::Server)
    }

    /// A certificate for the user `common_name`, valid for one year.
    pub fn client(common_name: impl Into<String>) -> Self {
        Self::new(common_name, Usage::Client)
    }

    /// A certificate valid for one year.
    pub fn new(common_name: impl Into<String>, usage: Usage) -> Self {
        Self {
            common_name: common_name.into(),
            organizations: Vec::new(),
            uid: None,
            dns_names: Vec::new(),
            ip_addresses: Vec::new(),
            usage,
            validity: Validity::from_now(CERTIFICATE_VALIDITY),
        }
    }

    /// Adds an organization: a group.
    #[must_use]
    pub fn organization(mut self, name: impl Into<String>) -> Self {
        self.organizations.push(name.into());
        self
    }

    /// Names the user's UID.
    #[must_use]
    pub fn uid(mut self, uid: impl Into<String>) -> Self {
        self.uid = Some(uid.into());
        self
    }

    /// Adds a DNS name.
    #[must_use]
    pub fn dns(mut self, name: impl Into<String>) -> Self {
        self.dns_names.push(name.into());
        self
    }

    /// Adds an address.
    #[must_use]
    pub fn ip(mut self, address: impl Into<IpAddr>) -> Self {
        self.ip_addresses.push(address.into());
        self
    }

    /// Adds `localhost`, 127.0.0.1 and ::1.
    #[must_use]
    pub fn loopback(self) -> Self {
        self.dns("localhost").ip(std::net::Ipv4Addr::LOCALHOST).ip(std::net::Ipv6Addr::LOCALHOST)
    }

    /// Replaces the validity.
    #[must_use]
    pub fn validity(mut self, validity: Validity) -> Self {
        self.validity = validity;
        self
    }
}

/// A certificate and its private key.
#[derive(Clone, PartialEq, Eq, educe::Educe)]
#[educe(Debug)]
pub struct IssuedCertificate {
    /// The certificate, as PEM, without the authority's.
    pub certificate_pem: String,
    /// The private key, as PKCS#8 PEM.
    #[educe(Debug(ignore))]
    pub key_pem: String,
}

impl IssuedCertificate {
    /// Writes `<name>.crt` (0644) and `<name>.key` (0600) into a folder, the key first.
    ///
    /// # Errors
    ///
    /// [`PkiError::Io`].
    pub fn write(&self, folder: &Path, name: &str) -> Result<(), PkiError> {
        files::write_private(&folder.join(format!("{name}.key")), self.key_pem.as_bytes())?;
        files::write_public(&folder.join(format!("{name}.crt")), self.certificate_pem.as_bytes())
    }
}

/// A certificate authority: a self-signed certificate and the key that signs others.
#[derive(educe::Educe)]
#[educe(Debug)]
pub struct CertificateAuthority {
    certificate_pem: String,
    validity: Validity,
    #[educe(Debug(ignore))]
    issuer: Issuer<'static, KeyPair>,
}

impl CertificateAuthority {
    /// Makes a new authority, valid for ten years.
    ///
    /// # Errors
    ///
    /// [`PkiError::Generate`] when the operating system gives no randomness.
    pub fn new(common_name: &str) -> Result<Self, PkiError> {
        let validity = Validity::from_now(AUTHORITY_VALIDITY);
        let mut params = params(common_name, &[], validity)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let certificate_pem = params.self_signed(&key)?.pem();
        Ok(Self { certificate_pem, validity, issuer: Issuer::new(params, key) })
    }

    /// Takes up an authority that was made before: its certificate and private key as PEM.
    ///
    /// # Errors
    ///
    /// [`PkiError::NoCertificate`], [`PkiError::NotAnAuthority`] and [`PkiError::KeyMismatch`] when the two are not
    /// an authority's; [`PkiError::Generate`] when the key cannot be read.
    pub fn load(certificate_pem: &str, key_pem: &str) -> Result<Self, PkiError> {
        let key = KeyPair::from_pem(key_pem)?;
        let validity = with_certificate(certificate_pem, |certificate| {
            let subject = certificate.subject().to_string();
            if !certificate.is_ca() {
                return Err(PkiError::NotAnAuthority { subject });
            }
            if certificate.public_key().raw != key.subject_public_key_info() {
                return Err(PkiError::KeyMismatch { subject });
            }
            validity_of(certificate)
        })?;
        let issuer = Issuer::from_ca_cert_pem(certificate_pem, key)?;
        Ok(Self { certificate_pem: certificate_pem.to_owned(), validity, issuer })
    }

    /// Loads `<name>.crt` and `<name>.key` from a folder, or makes the authority and writes them (the key 0600).
    ///
    /// # Errors
    ///
    /// Those of [`load`](Self::load), and [`PkiError::Io`]. A certificate without its key is an error: to replace an
    /// authority that clients trust is for people to decide.
    pub fn load_or_create(folder: &Path, name: &str, common_name: &str) -> Result<Self, PkiError> {
        let certificate = folder.join(format!("{name}.crt"));
        if certificate.exists() {
            let key = folder.join(format!("{name}.key"));
            return Self::load(&files::read(&certificate)?, &files::read(&key)?);
        }
        let authority = Self::new(common_name)?;
        authority.as_issued().write(folder, name)?;
        Ok(authority)
    }

    /// The authority's certificate, as PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The authority's private key, as PKCS#8 PEM.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// The authority's own certificate and key, such as for a component that signs with them.
    pub fn as_issued(&self) -> IssuedCertificate {
        IssuedCertificate { certificate_pem: self.certificate_pem.clone(), key_pem: self.key_pem() }
    }

    /// Signs a new certificate with a new key.
    ///
    /// # Errors
    ///
    /// [`PkiError::InvalidName`], [`PkiError::TooManyOrganizations`] and [`PkiError::InvalidValidity`] for a request
    /// that no certificate can hold; [`PkiError::Generate`] when the operating system gives no randomness.
    pub fn issue(&self, request: &CertificateRequest) -> Result<IssuedCertificate, PkiError> {
        let mut validity = request.validity;
        validity.not_after = validity.not_after.min(self.validity.not_after);
        let mut params = params(&request.common_name, &request.organizations, validity)?;
        if let Some(uid) = &request.uid {
            params.distinguished_name.push(DnType::CustomDnType(UID.to_vec()), uid);
        }
        for name in &request.dns_names {
            let invalid = |_| PkiError::InvalidName { name: name.clone() };
            params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into().map_err(invalid)?));
        }
        params.subject_alt_names.extend(request.ip_addresses.iter().copied().map(SanType::IpAddress));
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        if matches!(request.usage, Usage::Server | Usage::Both) {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        if matches!(request.usage, Usage::Client | Usage::Both) {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        }
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(IssuedCertificate { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }
}

/// From when to when the first certificate in a PEM text is valid.
///
/// # Errors
///
/// [`PkiError::NoCertificate`].
pub fn certificate_validity(certificate_pem: &str) -> Result<Validity, PkiError> {
    with_certificate(certificate_pem, validity_of)
}

fn with_certificate<T>(
    pem: &str,
    read: impl FnOnce(&X509Certificate<'_>) -> Result<T, PkiError>,
) -> Result<T, PkiError> {
    let first = Pem::iter_from_buffer(pem.as_bytes())
        .filter_map(Result::ok)
        .find(|block| block.label == "CERTIFICATE")
        .ok_or(PkiError::NoCertificate)?;
    let certificate = first.parse_x509().map_err(|_| PkiError::NoCertificate)?;
    read(&certificate)
}

fn validity_of(certificate: &X509Certificate<'_>) -> Result<Validity, PkiError> {
    let time = |seconds| Timestamp::from_second(seconds).map_err(|_| PkiError::NoCertificate);
    let validity = certificate.validity();
    Ok(Validity {
        not_before: time(validity.not_before.timestamp())?,
        not_after: time(validity.not_after.timestamp())?,
    })
}

/// The parameters that all certificates share.
fn params(common_name: &str, organizations: &[String], validity: Validity) -> Result<CertificateParams, PkiError> {
    let invalid = || PkiError::InvalidValidity { not_before: validity.not_before, not_after: validity.not_after };
    let seconds = |time: Timestamp| u64::try_from(time.as_second()).map(Duration::from_secs).map_err(|_| invalid());
    if validity.not_after <= validity.not_before {
        return Err(invalid());
    }
    let mut name = DistinguishedName::new();
    match organizations {
        [] => {}
        [only] => name.push(DnType::OrganizationName, only),
        [first, second] => {
            name.push(DnType::OrganizationName, first);
            name.push(DnType::CustomDnType(ORGANIZATION_NAME.to_vec()), second);
        }
        many => return Err(PkiError::TooManyOrganizations { count: many.len() }),
    }
    name.push(DnType::CommonName, common_name);
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    params.not_before = date_time_ymd(1970, 1, 1) + seconds(validity.not_before)?;
    params.not_after = date_time_ymd(1970, 1, 1) + seconds(validity.not_after)?;
    Ok(params)
}

#[cfg(test)]
#[path = "authority_tests.rs"]
mod tests;
