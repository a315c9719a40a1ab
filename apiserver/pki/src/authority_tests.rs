use std::net::Ipv4Addr;

use x509_parser::extensions::GeneralName;

use super::*;

fn authority() -> CertificateAuthority {
    CertificateAuthority::new("test-ca").unwrap()
}

fn read<T>(pem: &str, f: impl FnOnce(&X509Certificate<'_>) -> T) -> T {
    with_certificate(pem, |certificate| Ok(f(certificate))).unwrap()
}

#[test]
fn only_issuing_authority_verifies_certificate() {
    let ours = authority();
    let issued = ours.issue(&CertificateRequest::client("ann")).unwrap();
    let verifies = |ca: &CertificateAuthority| {
        read(ca.certificate_pem(), |ca| {
            read(&issued.certificate_pem, |leaf| leaf.verify_signature(Some(ca.public_key())).is_ok())
        })
    };
    assert!(verifies(&ours));
    assert!(!verifies(&authority()));
}

#[test]
fn client_certificate_carries_user_and_groups_only() {
    let request = CertificateRequest::client("ann").organization("system:masters").organization("dev");
    let issued = authority().issue(&request).unwrap();
    read(&issued.certificate_pem, |leaf| {
        let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| attribute.as_str().unwrap().to_owned();
        assert_eq!(leaf.subject().iter_common_name().map(text).collect::<Vec<_>>(), ["ann"]);
        assert_eq!(leaf.subject().iter_organization().map(text).collect::<Vec<_>>(), ["system:masters", "dev"]);
        let usage = leaf.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth);
        assert!(!leaf.is_ca());
    });
}

#[test]
fn a_server_certificate_carries_the_names_and_addresses() {
    let request = CertificateRequest::server("stoa").dns("stoa.default.svc").loopback();
    let issued = authority().issue(&request).unwrap();
    read(&issued.certificate_pem, |leaf| {
        let names = &leaf.subject_alternative_name().unwrap().unwrap().value.general_names;
        assert!(names.contains(&GeneralName::DNSName("stoa.default.svc")), "{names:?}");
        assert!(names.contains(&GeneralName::DNSName("localhost")), "{names:?}");
        assert!(names.contains(&GeneralName::IPAddress(&Ipv4Addr::LOCALHOST.octets())), "{names:?}");
        let usage = leaf.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.server_auth && !usage.client_auth);
    });
}

#[test]
fn a_loaded_authority_goes_on_signing() {
    let folder = tempfile::tempdir().unwrap();
    let first = CertificateAuthority::load_or_create(folder.path(), "ca", "kept").unwrap();
    let second = CertificateAuthority::load_or_create(folder.path(), "ca", "ignored").unwrap();
    assert_eq!(first.certificate_pem(), second.certificate_pem());
    let issued = second.issue(&CertificateRequest::client("ann")).unwrap();
    read(first.certificate_pem(), |ca| {
        read(&issued.certificate_pem, |leaf| {
            assert_eq!(leaf.issuer(), ca.subject());
            leaf.verify_signature(Some(ca.public_key())).unwrap();
        });
    });
}

#[test]
fn what_is_no_authority_is_not_loaded() {
    let ca = authority();
    let leaf = ca.issue(&CertificateRequest::client("ann")).unwrap();
    let error = CertificateAuthority::load(&leaf.certificate_pem, &leaf.key_pem).unwrap_err();
    assert!(matches!(error, PkiError::NotAnAuthority { .. }), "{error:?}");
    let error = CertificateAuthority::load(ca.certificate_pem(), &authority().key_pem()).unwrap_err();
    assert!(matches!(error, PkiError::KeyMismatch { .. }), "{error:?}");
    let error = CertificateAuthority::load("nothing", &ca.key_pem()).unwrap_err();
    assert!(matches!(error, PkiError::NoCertificate), "{error:?}");
}

#[test]
fn certificate_validity_ends_with_authority() {
    let ca = authority();
    let at = |seconds| Timestamp::from_second(seconds).unwrap();
    let asked = Validity { not_before: at(1_600_000_000), not_after: at(1_600_003_600) };
    let issued = ca.issue(&CertificateRequest::client("ann").validity(asked)).unwrap();
    assert_eq!(certificate_validity(&issued.certificate_pem).unwrap(), asked);

    let endless = Validity::from_now(Duration::from_secs(100 * 365 * 24 * 3600));
    let issued = ca.issue(&CertificateRequest::client("ann").validity(endless)).unwrap();
    let got = certificate_validity(&issued.certificate_pem).unwrap().not_after;
    assert_eq!(got, certificate_validity(ca.certificate_pem()).unwrap().not_after);

    let backwards = Validity { not_before: asked.not_after, not_after: asked.not_before };
    let error = ca.issue(&CertificateRequest::client("ann").validity(backwards)).unwrap_err();
    assert!(matches!(error, PkiError::InvalidValidity { .. }), "{error:?}");
}

#[test]
fn renewal_is_due_in_the_last_third() {
    let at = |seconds| Timestamp::from_second(seconds).unwrap();
    let validity = Validity { not_before: at(0), not_after: at(300) };
    assert!(!validity.wants_renewal(at(200)));
    assert!(validity.wants_renewal(at(201)));
    assert!(validity.wants_renewal(at(400)));
}

#[test]
fn requests_that_no_certificate_can_hold_are_refused() {
    let ca = authority();
    let error = ca.issue(&CertificateRequest::server("x").dns("bücher.example")).unwrap_err();
    assert!(matches!(error, PkiError::InvalidName { .. }), "{error:?}");
    let many = CertificateRequest::client("x").organization("a").organization("b").organization("c");
    assert!(matches!(ca.issue(&many).unwrap_err(), PkiError::TooManyOrganizations { count: 3 }));
}

#[test]
fn keys_are_not_printed() {
    let ca = authority();
    let issued = ca.issue(&CertificateRequest::client("ann")).unwrap();
    assert!(!format!("{ca:?}{issued:?}").contains("PRIVATE"));
}
