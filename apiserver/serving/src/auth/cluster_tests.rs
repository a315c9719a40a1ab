use http::HeaderMap;
use stoa_pki::{CertificateAuthority, CertificateRequest};

use super::*;
use crate::auth::{
    authenticator::{AuthenticationError, Credentials, Union},
    certificates::tests::presented,
};

fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

struct Cas {
    client: CertificateAuthority,
    proxy: CertificateAuthority,
}

impl Cas {
    fn new() -> Self {
        Self {
            client: CertificateAuthority::new("client-ca").unwrap(),
            proxy: CertificateAuthority::new("proxy-ca").unwrap(),
        }
    }

    fn data(&self) -> BTreeMap<String, String> {
        data(&[
            ("client-ca-file", self.client.certificate_pem()),
            ("requestheader-client-ca-file", self.proxy.certificate_pem()),
            ("requestheader-allowed-names", r#"["front-proxy"]"#),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
            ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
            ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#),
        ])
    }
}

async fn who(settings: &ClusterAuthentication, ca: &CertificateAuthority, name: &str) -> Result<String, String> {
    let mut headers = HeaderMap::new();
    headers.insert("x-remote-user", "proxied".parse().unwrap());
    let certificates = presented(ca, &CertificateRequest::client(name));
    let union = Union::new(settings.authenticators(&Metrics::default()));
    let found = union.authenticate(Credentials { headers: &headers, certificates: Some(&certificates) }).await;
    match found {
        Ok(user) => Ok(user.map(|user| user.name).unwrap_or_default()),
        Err(AuthenticationError::All(errors)) => {
            Err(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        }
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::test]
async fn headers_are_believed_from_the_allowed_proxy_alone() {
    let cas = Cas::new();
    let settings = ClusterAuthentication::default();
    assert!(settings.apply(&cas.data()).unwrap());
    assert_eq!(who(&settings, &cas.proxy, "front-proxy").await.as_deref(), Ok("proxied"));
    // The client CA does not make a proxy, whatever the name.
    assert_eq!(who(&settings, &cas.client, "front-proxy").await.as_deref(), Ok("front-proxy"));
    let refused = who(&settings, &cas.proxy, "impostor").await.unwrap_err();
    assert!(refused.starts_with("the common name \"impostor\" is not one of the allowed front proxies; "), "{refused}");
    let other = CertificateAuthority::new("client-ca").unwrap();
    assert!(who(&settings, &other, "front-proxy").await.is_err());
}

#[tokio::test]
async fn rotated_ca_replaces_old_one_immediately() {
    let (old, new) = (Cas::new(), Cas::new());
    let settings = ClusterAuthentication::default();
    settings.apply(&old.data()).unwrap();
    assert!(!settings.apply(&old.data()).unwrap());
    assert!(settings.apply(&new.data()).unwrap());
    assert_eq!(who(&settings, &new.proxy, "front-proxy").await.as_deref(), Ok("proxied"));
    assert!(who(&settings, &old.proxy, "front-proxy").await.is_err());
}

#[tokio::test]
async fn without_a_proxy_ca_headers_are_never_believed() {
    let cas = Cas::new();
    let settings = ClusterAuthentication::default();
    settings.apply(&cas.data()).unwrap();
    let without = data(&[("client-ca-file", cas.client.certificate_pem())]);
    assert!(settings.apply(&without).unwrap());
    // That a CA goes is a change like any other, and made once.
    let no_client_ca = data(&[]);
    assert!(settings.apply(&no_client_ca).unwrap());
    assert!(!settings.apply(&no_client_ca).unwrap());
    assert!(settings.apply(&without).unwrap());
    assert_eq!(who(&settings, &cas.client, "ann").await.as_deref(), Ok("ann"));
    assert!(who(&settings, &cas.proxy, "front-proxy").await.is_err());
}

#[tokio::test]
async fn what_cannot_be_used_changes_nothing() {
    let cas = Cas::new();
    let settings = ClusterAuthentication::default();
    settings.apply(&cas.data()).unwrap();
    let mut broken = cas.data();
    // What else it says is not believed either.
    broken.insert("requestheader-allowed-names".to_owned(), r#"["impostor"]"#.to_owned());
    broken.insert("requestheader-client-ca-file".to_owned(), Cas::new().proxy.certificate_pem().to_owned());
    broken.insert(
        "client-ca-file".to_owned(),
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(),
    );
    let error = settings.apply(&broken).unwrap_err();
    assert!(matches!(error, ClusterError::Ca { key: "client-ca-file", .. }), "{error:?}");
    broken.insert("requestheader-allowed-names".to_owned(), "front-proxy".to_owned());
    let error = settings.apply(&broken).unwrap_err();
    assert!(matches!(error, ClusterError::List { key: "requestheader-allowed-names", .. }), "{error:?}");
    assert_eq!(who(&settings, &cas.client, "ann").await.as_deref(), Ok("ann"));
    assert_eq!(who(&settings, &cas.proxy, "front-proxy").await.as_deref(), Ok("proxied"));
}
