//! Vault's secret engines KV, by its HTTP API: <https://developer.hashicorp.com/vault/api-docs/secret/kv/kv-v2>.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http_body_util::Empty;
use hyper::header::{HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use serde::Deserialize;
use serde_json::{Map, Value};
use stoa_engine::stored_secret::StoredSecret;
use stoa_outbound::Client;
use tonic::Code;

use super::{Values, invalid};
use crate::failure::{Failure, reason};

/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The number of parallel requests.
const AT_ONCE: usize = 8;
/// The largest answer, in bytes.
const LARGEST: usize = 1 << 20;

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
pub(super) struct Vault {
    settings: Settings,
    client: Client<Empty<Bytes>>,
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
    pub(super) fn new(settings: Settings, credentials: &HashMap<String, Bytes>) -> Result<Self, Failure> {
        let uri = settings.server.parse::<Uri>().ok();
        if !uri.is_some_and(|uri| is_private(&uri)) {
            let message = "spec.secretStore.provider.vault.server must be a URL such as https://vault.example.com:8200; \
                           http is for loopback addresses alone";
            return Err(invalid(message.to_owned()));
        }
        let authorities = credentials.get("ca.crt").cloned().unwrap_or_default();
        let tls = stoa_outbound::tls(&authorities)
            .map_err(|error| invalid(format!("key ca.crt of the Secret of the secret store: {error}")))?;
        let header = |key: &str| {
            let value = credentials.get(key).map(|value| HeaderValue::from_bytes(value.trim_ascii()));
            value
                .transpose()
                .map_err(|_| invalid(format!("key {key} of the Secret of the secret store is no header value")))
        };
        let Some(mut token) = header("token")? else {
            return Err(invalid(
                "the Secret of the secret store has no key token; set secretStore.secretRef".to_owned(),
            ));
        };
        token.set_sensitive(true);
        Ok(Self { client: stoa_outbound::client(tls), token, namespace: header("namespace")?, settings })
    }

    /// The values, each secret read once for all of its properties.
    pub(super) async fn read(&self, named: &BTreeSet<StoredSecret>) -> Result<Values, Failure> {
        let mut secrets: BTreeMap<(&str, Option<&str>), Vec<&StoredSecret>> = BTreeMap::new();
        for stored in named {
            secrets.entry((&stored.name, stored.version.as_deref())).or_default().push(stored);
        }
        let reads: Vec<_> = secrets.into_values().map(|properties| self.read_secret(properties)).collect();
        let read: Vec<Values> = stream::iter(reads).buffer_unordered(AT_ONCE).try_collect().await?;
        Ok(read.into_iter().flatten().collect())
    }

    async fn read_secret(&self, properties: Vec<&StoredSecret>) -> Result<Values, Failure> {
        let Some(first) = properties.first() else { return Ok(Values::new()) };
        let found = self.properties(first).await?;
        let value = |stored: &StoredSecret| match found.get(&stored.property) {
            Some(Value::String(text)) => Ok((stored.clone(), text.clone())),
            Some(Value::Null) | None => {
                Err(invalid(format!("{stored}: the secret in Vault has no property {:?}", stored.property)))
            }
            Some(other) => Ok((stored.clone(), other.to_string())),
        };
        properties.into_iter().map(value).collect()
    }

    async fn properties(&self, stored: &StoredSecret) -> Result<Map<String, Value>, Failure> {
        let server = self.settings.server.trim_end_matches('/');
        let path = self.settings.path.trim_matches('/');
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
        let mut request = Request::get(url).header(USER_AGENT, "stoa").header("X-Vault-Token", &self.token);
        if let Some(namespace) = &self.namespace {
            request = request.header("X-Vault-Namespace", namespace);
        }
        let request = request.body(Empty::new()).map_err(|_| invalid(format!("{stored}: is no path of Vault")))?;
        let unavailable = |why: String| {
            let message = format!("{stored}: Vault at {server} {why}");
            Failure::new(Code::Unavailable, reason::UNAVAILABLE, message)
        };
        let answer = tokio::time::timeout(TIMEOUT, self.client.request(request))
            .await
            .map_err(|_| unavailable(format!("gave no answer within {} s", TIMEOUT.as_secs())))?
            .map_err(|error| unavailable(format!("cannot be reached: {}", stoa_outbound::causes(&error))))?;
        let status = answer.status();
        let reading = tokio::time::timeout(TIMEOUT, stoa_outbound::read(answer.into_body(), LARGEST));
        let body = reading.await.ok().flatten().ok_or_else(|| unavailable("sent an incomplete answer".to_owned()))?;
        match status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => {
                return Err(invalid(format!("{stored}: the secret does not exist in Vault at {server}")));
            }
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => {
                let message = "does not permit the token to read it; grant `read` by a policy, or renew the token";
                return Err(invalid(format!("{stored}: Vault at {server} {message}")));
            }
            StatusCode::BAD_REQUEST => return Err(invalid(format!("{stored}: Vault at {server} rejects the request"))),
            // 429 and 5xx: sealed, standby or overloaded.
            status => return Err(unavailable(format!("answered {}", status.as_u16()))),
        }
        let no_secret = || invalid(format!("{stored}: the answer of Vault at {server} is no secret"));
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

/// Whether the token may go there: over TLS, or to this machine.
fn is_private(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let is_loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    uri.scheme_str() == Some("https") || (uri.scheme_str() == Some("http") && is_loopback)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

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
    async fn answer(mut stream: TcpStream) -> Option<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        let head = String::from_utf8(head).ok()?;
        let path = head.strip_prefix("GET ")?.split(' ').next()?;
        let found = SECRETS.iter().find(|(of, _)| *of == path);
        let is_permitted = head.to_lowercase().contains("x-vault-token: s.token\r\n");
        let (status, body) = match found {
            _ if path.ends_with("/sealed") => ("503 Service Unavailable", r#"{"errors": ["Vault is sealed"]}"#),
            _ if !is_permitted => ("403 Forbidden", r#"{"errors": ["permission denied"]}"#),
            Some((_, body)) => ("200 OK", *body),
            None => ("404 Not Found", r#"{"errors": []}"#),
        };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.ok()
    }

    async fn stub() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream));
            }
        });
        format!("http://{address}/")
    }

    fn vault(settings: Value, token: &str) -> Result<Vault, Failure> {
        let credentials = HashMap::from([("token".to_owned(), Bytes::from(token.to_owned()))]);
        Vault::new(serde_json::from_value(settings).unwrap(), &credentials)
    }

    async fn read(vault: &Vault, texts: &[&str]) -> Result<Vec<String>, String> {
        let named = texts.iter().map(|text| StoredSecret::parse(text).unwrap().unwrap()).collect();
        match vault.read(&named).await {
            Ok(values) => Ok(values.into_values().collect()),
            Err(failure) => Err(format!("{:?}: {}", failure.code(), failure.problems()[0].message)),
        }
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
    fn token_is_sent_in_private_only() {
        for (server, is_taken) in [
            ("https://vault.example.com:8200", true),
            ("http://127.0.0.1:8200", true),
            ("http://localhost:8200", true),
            ("http://vault.example.com:8200", false),
            ("vault.example.com", false),
        ] {
            assert_eq!(vault(json!({ "server": server }), "t").is_ok(), is_taken, "{server}");
        }
        let settings = serde_json::from_value(json!({"server": "https://vault.example.com"})).unwrap();
        let error = Vault::new(settings, &HashMap::new()).err().unwrap();
        assert!(error.problems()[0].message.contains("no key token"));
    }
}
