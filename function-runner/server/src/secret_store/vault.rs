//! Vault's secret engines KV, by its HTTP API: <https://developer.hashicorp.com/vault/api-docs/secret/kv/kv-v2>.

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::HeaderValue;
use hyper::{Request, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value};
use stoa_engine::stored_secret::StoredSecret;

use super::service::{Service, Store, address};
use super::{Credentials, invalid};
use crate::failure::Failure;

/// The settings of the store, as in Kusion's workspace.yaml.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Settings {
    /// The URL of the server.
    server: String,
    /// The path of the secret engine.
    #[serde(default = "default_path")]
    path: String,
    /// The version of the engine: `v1` or `v2`.
    #[serde(default)]
    version: Version,
}

fn default_path() -> String {
    "secret".to_owned()
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Version {
    V1,
    #[default]
    V2,
}

/// A Vault server.
#[derive(Debug)]
pub(super) struct Vault {
    settings: Settings,
    server: String,
    service: Service,
    token: HeaderValue,
    namespace: Option<HeaderValue>,
}

/// The part of an answer that has the properties.
#[derive(Deserialize)]
struct Answer {
    data: Map<String, Value>,
}

impl Vault {
    /// The server with its credentials: `token`, and possibly `namespace` and `ca.crt`.
    pub(super) fn new(settings: Settings, credentials: &Credentials<'_>) -> Result<Self, Failure> {
        let server = address("provider.vault.server", &settings.server)?;
        let service = Service::new(format!("Vault at {server}"), credentials.authorities())?;
        let mut token = credentials.header("token")?;
        token.set_sensitive(true);
        let namespace = credentials.optional("namespace").map(|_| credentials.header("namespace")).transpose()?;
        Ok(Self { service, token, namespace, server, settings })
    }
}

#[async_trait]
impl Store for Vault {
    fn title(&self) -> &'static str {
        "Vault"
    }

    async fn properties(&self, stored: &StoredSecret) -> Result<Map<String, Value>, Failure> {
        let (server, path) = (&self.server, self.settings.path.trim_matches('/'));
        let url = match (self.settings.version, &stored.version) {
            (Version::V2, None) => format!("{server}/v1/{path}/data/{}", stored.name),
            (Version::V2, Some(version)) => format!("{server}/v1/{path}/data/{}?version={version}", stored.name),
            (Version::V1, None) => format!("{server}/v1/{path}/{}", stored.name),
            (Version::V1, Some(_)) => {
                return Err(invalid(format!(
                    "{stored}: version v1 of the secret engine has no versions; remove ?version"
                )));
            }
        };
        let mut request = Request::get(url).header("X-Vault-Token", &self.token);
        if let Some(namespace) = &self.namespace {
            request = request.header("X-Vault-Namespace", namespace);
        }
        let request =
            request.body(Full::<Bytes>::default()).map_err(|_| invalid(format!("{stored}: is no path of Vault")))?;
        let (status, body) = self.service.send(stored, request).await?;
        match status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Err(self.service.missing(stored)),
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => {
                let why = "does not permit the token to read it; grant `read` by a policy, or renew the token";
                return Err(self.service.refused(stored, why));
            }
            StatusCode::BAD_REQUEST => return Err(self.service.refused(stored, "rejects the request")),
            status => return Err(self.service.unavailable(stored, &format!("answered {}", status.as_u16()))),
        }
        let no_secret = || self.service.no_secret(stored);
        let Answer { data } = serde_json::from_slice(&body).map_err(|_| no_secret())?;
        match self.settings.version {
            Version::V1 => Ok(data),
            Version::V2 => match data.get("data") {
                Some(Value::Object(data)) => Ok(data.clone()),
                _ => Err(no_secret()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::json;

    use super::super::service::testing::{self, Seen};
    use super::*;

    /// The secrets of the stub, by the path and query of a request.
    const SECRETS: [(&str, &str); 4] = [
        (
            "/v1/secret/data/team/db",
            r#"{"data": {"data": {"user": "shop", "port": 5432}, "metadata": {"version": 4}}}"#,
        ),
        ("/v1/secret/data/team/db?version=2", r#"{"data": {"data": {"user": "old"}, "metadata": {"version": 2}}}"#),
        ("/v1/kv/team/db", r#"{"data": {"user": "first"}}"#),
        ("/v1/secret/data/broken", r#"{"data": []}"#),
    ];

    /// Answers as Vault's API documentation says.
    fn answer(seen: &Seen) -> (u16, String) {
        let found = SECRETS.iter().find(|(of, _)| *of == seen.path);
        let (status, body) = match found {
            _ if seen.path.ends_with("/sealed") => (503, r#"{"errors": ["Vault is sealed"]}"#),
            _ if seen.header("x-vault-token") != "s.token" => (403, r#"{"errors": ["permission denied"]}"#),
            Some((_, body)) => (200, *body),
            None => (404, r#"{"errors": []}"#),
        };
        (status, body.to_owned())
    }

    async fn stub() -> String {
        format!("{}/", testing::start(|seen| answer(&seen)).await)
    }

    fn vault(settings: Value, token: &str) -> Result<Vault, Failure> {
        let keys = HashMap::from([("token".to_owned(), Bytes::from(token.to_owned()))]);
        Vault::new(serde_json::from_value(settings).unwrap(), &Credentials(&keys))
    }

    async fn read(vault: &Vault, texts: &[&str]) -> Result<Vec<String>, String> {
        super::super::testing::read(vault, texts).await
    }

    #[tokio::test]
    async fn both_versions_of_the_engine_are_read() {
        let server = stub().await;
        let v2 = vault(json!({"server": server}), "s.token\n").unwrap();
        let texts = ["ref://team/db/port", "ref://team/db/user", "ref://team/db/user?version=2"];
        assert_eq!(read(&v2, &texts).await.unwrap(), ["5432", "shop", "old"]);
        let v1 = vault(json!({"server": server, "path": "/kv/", "version": "v1"}), "s.token").unwrap();
        assert_eq!(read(&v1, &["ref://team/db/user"]).await.unwrap(), ["first"]);
        assert!(read(&v1, &["ref://team/db/user?version=2"]).await.unwrap_err().contains("has no versions"));
    }

    #[tokio::test]
    async fn errors_name_the_secret_and_never_the_token() {
        let server = stub().await;
        let permitted = vault(json!({"server": server}), "s.token").unwrap();
        let other = vault(json!({"server": server}), "s.other").unwrap();
        for (vault, text, told) in [
            (&permitted, "ref://none/x", "InvalidArgument: ref://none/x: the secret does not exist in Vault"),
            (
                &permitted,
                "ref://team/db/x",
                "InvalidArgument: ref://team/db/x: the secret in Vault has no property \"x\"",
            ),
            (&permitted, "ref://broken/x", "InvalidArgument: ref://broken/x: the answer of Vault"),
            (&permitted, "ref://sealed/x", "Unavailable: ref://sealed/x: Vault at"),
            (&other, "ref://team/db/user", "InvalidArgument: ref://team/db/user: Vault at"),
        ] {
            let error = read(vault, &[text]).await.unwrap_err();
            assert!(error.starts_with(told) && !error.contains("s."), "{error}");
        }
    }

    #[test]
    fn store_without_a_token_is_refused() {
        let settings = serde_json::from_value(json!({"server": "https://vault.example.com"})).unwrap();
        let error = Vault::new(settings, &Credentials(&HashMap::new())).unwrap_err();
        assert!(error.problems()[0].message.contains("no key \"token\""), "{error:?}");
    }
}
