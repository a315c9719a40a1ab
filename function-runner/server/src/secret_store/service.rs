//! Requests to a service with secrets: one client, one timeout, and errors that name the secret and the service.

use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use serde::Deserialize;
use serde_json::{Map, Value};
use stoa_engine::stored_secret::StoredSecret;
use stoa_outbound::Client;
use tonic::Code;

use super::invalid;
use crate::failure::{Failure, reason};

/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The largest answer, in bytes.
const LARGEST: usize = 1 << 20;

/// A store that reads one secret after the other.
#[async_trait]
pub(super) trait Store: Send + Sync {
    /// The properties of a secret, of which `stored` names one.
    async fn properties(&self, stored: &StoredSecret) -> Result<Map<String, Value>, Failure>;

    /// The name of the service for errors, such as `Vault`.
    fn title(&self) -> &'static str;
}

/// A service over HTTPS.
#[derive(Debug)]
pub(super) struct Service {
    client: Client<Full<Bytes>>,
    /// The name and address, such as `Vault at https://vault.example.com`.
    name: String,
}

impl Service {
    /// A service that certificate authorities in PEM vouch for, or those of the system if there are none.
    pub(super) fn new(name: String, authorities: &[u8]) -> Result<Self, Failure> {
        let tls = stoa_outbound::tls(authorities)
            .map_err(|error| invalid(format!("key ca.crt of the Secret of the secret store: {error}")))?;
        Ok(Self { client: stoa_outbound::client(tls), name })
    }

    /// Sends a request about a secret.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE` without an answer in time, and for answers 429 and 5xx: the service is overloaded or away.
    pub(super) async fn send(
        &self,
        stored: &StoredSecret,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), Failure> {
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("stoa"));
        let answering = async {
            let answer = self.client.request(request).await;
            let answer = answer.map_err(|error| format!("cannot be reached: {}", stoa_outbound::causes(&error)))?;
            let status = answer.status();
            let body = stoa_outbound::read(answer.into_body(), LARGEST).await;
            body.map(|body| (status, body)).ok_or_else(|| "sent an incomplete answer".to_owned())
        };
        let late = || format!("gave no answer within {} s", TIMEOUT.as_secs());
        let answered = tokio::time::timeout(TIMEOUT, answering).await.unwrap_or_else(|_| Err(late()));
        let (status, body) = answered.map_err(|why| self.unavailable(stored, &why))?;
        if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
            return Err(self.unavailable(stored, &format!("answered {}", status.as_u16())));
        }
        Ok((status, body))
    }

    pub(super) fn unavailable(&self, stored: &StoredSecret, why: &str) -> Failure {
        Failure::new(Code::Unavailable, reason::UNAVAILABLE, format!("{stored}: {} {why}", self.name))
    }

    /// The failure of a request that the service refuses.
    pub(super) fn refused(&self, stored: &StoredSecret, why: &str) -> Failure {
        invalid(format!("{stored}: {} {why}", self.name))
    }

    pub(super) fn missing(&self, stored: &StoredSecret) -> Failure {
        invalid(format!("{stored}: the secret does not exist in {}", self.name))
    }

    /// The failure of an answer in another form.
    pub(super) fn no_secret(&self, stored: &StoredSecret) -> Failure {
        invalid(format!("{stored}: the answer of {} is no secret", self.name))
    }
}

/// The properties of a secret that is one text: those of a JSON object, or `value` for any other text.
pub(super) fn of_text(text: &str) -> Map<String, Value> {
    match serde_json::from_str(text) {
        Ok(Value::Object(properties)) => properties,
        _ => Map::from_iter([("value".to_owned(), text.into())]),
    }
}

/// Whether credentials may go to an address: over TLS, or to this machine.
pub(super) fn is_private(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let is_loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    uri.scheme_str() == Some("https") || (uri.scheme_str() == Some("http") && is_loopback)
}

/// An address of a service without its last slash. Errors name it, so that it has no password.
pub(super) fn address(field: &str, text: &str) -> Result<String, Failure> {
    let uri = text.parse::<Uri>().ok();
    let is_plain = |uri: &Uri| uri.query().is_none() && uri.authority().is_some_and(|it| !it.as_str().contains('@'));
    if !uri.is_some_and(|uri| is_private(&uri) && is_plain(&uri)) {
        let message = "must be an https URL without user and query; http is for loopback addresses alone";
        return Err(invalid(format!("{field} {message}")));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// The settings of a store in a region of a cloud, as in Kusion's workspace.yaml.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Region {
    /// The name of the region.
    pub(super) region: String,
    /// The address of the service; that of the region where it is empty.
    #[serde(default)]
    pub(super) endpoint: String,
}

impl Region {
    /// The [`address`] of the service, which is `of_region` unless the settings name another.
    pub(super) fn address(&self, field: &str, of_region: &str) -> Result<String, Failure> {
        address(field, if self.endpoint.is_empty() { of_region } else { &self.endpoint })
    }
}

/// The host and port of an address, for signatures of requests to it.
pub(super) fn authority(address: &str) -> String {
    let uri = address.parse::<Uri>().ok();
    uri.as_ref().and_then(Uri::authority).map(ToString::to_string).unwrap_or_default()
}

/// Bytes of a text that a URL or a signature of a request escapes: all but letters, digits and `-._~`.
pub(super) const RESERVED: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[cfg(test)]
pub(super) mod testing {
    //! A service that answers requests as its documentation says.

    use std::sync::Arc;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    /// A request: the method, the path with its query, the header lines in lower case, and the body.
    #[derive(Debug)]
    pub(in super::super) struct Seen {
        pub(in super::super) method: String,
        pub(in super::super) path: String,
        pub(in super::super) headers: Vec<(String, String)>,
        pub(in super::super) body: String,
    }

    impl Seen {
        pub(in super::super) fn header(&self, name: &str) -> &str {
            self.headers.iter().find(|(of, _)| of == name).map_or("", |(_, value)| value)
        }
    }

    type Answers = Arc<dyn Fn(Seen) -> (u16, String) + Send + Sync>;

    /// Starts a service, and returns its address.
    pub(in super::super) async fn start(answers: impl Fn(Seen) -> (u16, String) + Send + Sync + 'static) -> String {
        let answers: Answers = Arc::new(answers);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&answers)));
            }
        });
        format!("http://{address}")
    }

    async fn answer(mut stream: TcpStream, answers: Answers) -> Option<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        let head = String::from_utf8(head).ok()?;
        let mut lines = head.lines();
        let mut first = lines.next()?.split(' ').map(str::to_owned);
        let (method, path) = (first.next()?, first.next()?);
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers: Vec<_> = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        let length = headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, it)| it.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).await.ok()?;
        let (status, body) = answers(Seen { method, path, headers, body: String::from_utf8(body).ok()? });
        let length = body.len();
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
        stream.write_all(answer.as_bytes()).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_have_the_property_value() {
        assert_eq!(Value::Object(of_text(r#"{"user": "a", "port": 1}"#)), json!({"user": "a", "port": 1}));
        assert_eq!(Value::Object(of_text("hunter2")), json!({"value": "hunter2"}));
        assert_eq!(Value::Object(of_text("[1]")), json!({"value": "[1]"}));
    }

    #[test]
    fn credentials_go_over_tls_or_stay_on_the_machine() {
        for (text, is_taken) in [
            ("https://vault.example.com:8200/", true),
            ("http://127.0.0.1:8200", true),
            ("http://[::1]:8200", true),
            ("http://localhost:8200", true),
            ("http://vault.example.com:8200", false),
            ("vault.example.com", false),
            ("https://me:secret@vault.example.com", false),
            ("http://localhost@vault.example.com", false),
            ("https://vault.example.com?x=", false),
        ] {
            assert_eq!(address("server", text).is_ok(), is_taken, "{text}");
        }
        assert_eq!(address("server", "https://a.example.com/").unwrap(), "https://a.example.com");
    }
}
