use http::HeaderMap;
use jiff::Timestamp;
use rustls_pki_types::pem::PemObject as _;
use stoa_pki::{CertificateAuthority, CertificateRequest, IssuedCertificate, Validity};

use super::*;

fn der(issued: &IssuedCertificate) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap()
}

/// What a peer with that certificate presents.
pub(crate) fn presented(ca: &CertificateAuthority, request: &CertificateRequest) -> PeerCertificates {
    PeerCertificates::new(vec![der(&ca.issue(request).unwrap())]).unwrap()
}

fn authority() -> CertificateAuthority {
    CertificateAuthority::new("client-ca").unwrap()
}

fn trusting(ca: &CertificateAuthority) -> ClientCertificates {
    let dynamic = DynamicCa::new("client CA");
    dynamic.set(ca.certificate_pem()).unwrap();
    ClientCertificates::new(Arc::new(dynamic))
}

async fn ask(
    way: &ClientCertificates,
    certificates: &PeerCertificates,
) -> Result<Option<UserInfo>, AuthenticationError> {
    let headers = HeaderMap::new();
    way.authenticate(Credentials { headers: &headers, certificates: Some(certificates) }).await
}

#[tokio::test]
async fn the_name_is_the_user_and_organizations_are_groups() {
    let ca = authority();
    let certificates = presented(&ca, &CertificateRequest::client("ann").organization("dev").organization("ops"));
    let user = ask(&trusting(&ca), &certificates).await.unwrap().unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("ann", ""));
    assert_eq!(user.groups, ["dev", "ops"]);
    let id = &user.extra[CREDENTIAL_ID][0];
    assert!(id.starts_with("X509SHA256=") && id.len() == 11 + 64, "{id}");
}

#[tokio::test]
async fn a_certificate_may_have_the_uid_of_the_user() {
    let ca = authority();
    let of = |uid: &str| presented(&ca, &CertificateRequest::client("ann").uid(uid));
    let user = ask(&trusting(&ca), &of("0f3c")).await.unwrap().unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("ann", "0f3c"));
    let error = ask(&trusting(&ca), &of("")).await.unwrap_err();
    assert!(matches!(error, AuthenticationError::UntoldUid), "{error:?}");
}

#[tokio::test]
async fn another_ca_of_the_same_name_vouches_for_nobody() {
    let certificates = presented(&authority(), &CertificateRequest::client("ann"));
    let error = ask(&trusting(&authority()), &certificates).await.unwrap_err();
    assert!(matches!(error, AuthenticationError::Certificate { ca: "client CA", .. }), "{error:?}");
}

#[tokio::test]
async fn expired_and_future_certificates_are_refused() {
    let ca = authority();
    let way = trusting(&ca);
    let now = Timestamp::now().as_second();
    for (from, to) in [(-7200, -3600), (3600, 7200)] {
        let at = |offset: i64| Timestamp::from_second(now + offset).unwrap();
        let validity = Validity { not_before: at(from), not_after: at(to) };
        let certificates = presented(&ca, &CertificateRequest::client("ann").validity(validity));
        let error = ask(&way, &certificates).await.unwrap_err();
        assert!(matches!(error, AuthenticationError::Certificate { .. }), "{error:?}");
    }
}

#[test]
fn an_authority_that_has_expired_vouches_for_nobody() {
    let (old, new) = (authority(), authority());
    let bundle = |cas: &[&CertificateAuthority]| {
        let dynamic = DynamicCa::new("client CA");
        dynamic.set(&cas.iter().map(|ca| ca.certificate_pem()).collect::<String>()).unwrap();
        dynamic
    };
    let expiry = stoa_pki::certificate_validity(old.certificate_pem()).unwrap().not_after.as_second();
    let after = UnixTime::since_unix_epoch(Duration::from_secs(expiry as u64 + 100));
    let outlives =
        Validity { not_before: Timestamp::now(), not_after: Timestamp::from_second(expiry + 10_000).unwrap() };
    let request = CertificateRequest::client("ann").validity(outlives);
    for cas in [vec![&old], vec![&old, &new]] {
        let refused = bundle(&cas).verify_at(&presented(&old, &request), after).unwrap();
        assert!(matches!(refused, Err(AuthenticationError::Certificate { .. })), "{refused:?}");
        assert!(bundle(&cas).verify_at(&presented(&old, &request), UnixTime::now()).unwrap().is_ok());
    }
}

#[tokio::test]
async fn a_server_certificate_is_no_client() {
    let ca = authority();
    let certificates = presented(&ca, &CertificateRequest::server("ann").loopback());
    let error = ask(&trusting(&ca), &certificates).await.unwrap_err();
    assert!(matches!(error, AuthenticationError::Certificate { .. }), "{error:?}");
}

#[tokio::test]
async fn a_certificate_cannot_vouch_for_another() {
    let ca = authority();
    let leaf = ca.issue(&CertificateRequest::client("ann")).unwrap();
    let other = CertificateAuthority::new("ann").unwrap();
    let forged = der(&other.issue(&CertificateRequest::client("root").organization("system:masters")).unwrap());
    let certificates = PeerCertificates::new(vec![forged, der(&leaf)]).unwrap();
    assert!(ask(&trusting(&ca), &certificates).await.is_err());
}

#[tokio::test]
async fn missing_name_or_ca_yields_no_opinion() {
    let ca = authority();
    let nameless = presented(&ca, &CertificateRequest::client(""));
    assert_eq!(ask(&trusting(&ca), &nameless).await.unwrap(), None);
    let without_ca = ClientCertificates::new(Arc::new(DynamicCa::new("client CA")));
    assert_eq!(ask(&without_ca, &presented(&ca, &CertificateRequest::client("ann"))).await.unwrap(), None);
}

#[tokio::test]
async fn a_verification_ends_with_the_bundle_that_made_it() {
    let (old, new) = (authority(), authority());
    let dynamic = Arc::new(DynamicCa::new("client CA"));
    let way = ClientCertificates::new(dynamic.clone());
    let certificates = presented(&old, &CertificateRequest::client("ann"));
    dynamic.set(old.certificate_pem()).unwrap();
    assert!(ask(&way, &certificates).await.unwrap().is_some());
    dynamic.set(new.certificate_pem()).unwrap();
    assert!(ask(&way, &certificates).await.is_err());
    dynamic.set(&format!("{}{}", new.certificate_pem(), old.certificate_pem())).unwrap();
    assert!(ask(&way, &certificates).await.unwrap().is_some());
    dynamic.clear();
    assert_eq!(ask(&way, &certificates).await.unwrap(), None);
}

#[test]
fn invalid_bundle_leaves_previous_ca() {
    let ca = authority();
    let dynamic = DynamicCa::new("client CA");
    assert!(dynamic.set(ca.certificate_pem()).unwrap());
    assert!(matches!(dynamic.set("no PEM"), Err(CaError::Empty)));
    assert!(dynamic.set("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----").is_err());
    assert!(dynamic.verify(&presented(&ca, &CertificateRequest::client("ann"))).unwrap().is_ok());
}
