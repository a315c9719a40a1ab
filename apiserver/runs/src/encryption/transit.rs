//! Vault's transit engine, which wraps the keys in a file: <https://developer.hashicorp.com/vault/api-docs/secret/transit>.
//!
//! Start at [`Transit`]. The file has the texts that Vault made of the keys, and the keys are in memory alone.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::Full;
use serde::Deserialize;
use serde_json::json;
use stoa_outbound::causes;

use super::keys::LENGTH;

/// How a text begins that Vault made of a key.
pub(super) const PREFIX: &str = "vault:";
/// How long Vault may take for one key.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer, in bytes.
const LARGEST: usize = 64 << 10;

/// Why Vault did not wrap or unwrap a key. No message contains a key or a token.
#[derive(Debug, thiserror::Error)]
pub(super) enum TransitError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// The settings are of no use.
    #[error("{0}")]
    Settings(String),
    /// There is no answer.
    #[error("Vault at {server} {why}; try again")]
    Unavailable {
        /// The address.
        server: String,
        /// The problem.
        why: String,
    },
    /// Vault refuses.
    #[error(
        "Vault at {server} does not permit the token to {verb} with the key {key}: grant `update` on {path} by a policy, or renew the token"
    )]
    Refused {
        /// The address.
        server: String,
        /// `encrypt` or `decrypt`.
        verb: &'static str,
        /// The name of the key.
        key: String,
        /// The path that needs a policy.
        path: String,
    },
    /// The key of the engine does not exist, or did not make the text.
    #[error(
        "Vault at {server} cannot {verb} a sealing key with the key {key}: it does not exist, or it did not encrypt the text"
    )]
    Rejected {
        /// The address.
        server: String,
        /// `encrypt` or `decrypt`.
        verb: &'static str,
        /// The name of the key.
        key: String,
    },
    /// The answer has another form.
    #[error("the answer of Vault at {server} has no key of 32 bytes")]
    Answer {
        /// The address.
        server: String,
    },
}

/// A key of Vault's transit engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transit {
    /// The URL of the server: https, or http of a loopback address.
    pub server: String,
    /// The path of the engine.
    pub mount: String,
    /// The name of the key in the engine.
    pub key: String,
    /// The file with the token, which is read at each use.
    pub token_file: PathBuf,
    /// The file with the authorities of the server's certificate, PEM. Absent: those of the system.
    pub ca_file: Option<PathBuf>,
    /// The namespace of Vault Enterprise.
    pub namespace: Option<String>,
}

impl Transit {
    /// The text that Vault makes of a key.
    pub(super) fn wrap(&self, secret: &[u8; LENGTH]) -> Result<String, TransitError> {
        #[derive(Deserialize)]
        struct Data {
            ciphertext: String,
        }
        let data: Data = self.ask("encrypt", &json!({"plaintext": STANDARD.encode(secret)}))?;
        if data.ciphertext.starts_with(PREFIX) && !data.ciphertext.contains(char::is_whitespace) {
            Ok(data.ciphertext)
        } else {
            Err(self.no_key())
        }
    }

    /// The key in a text that Vault made.
    pub(super) fn unwrap(&self, text: &str) -> Result<[u8; LENGTH], TransitError> {
        #[derive(Deserialize)]
        struct Data {
            plaintext: String,
        }
        let data: Data = self.ask("decrypt", &json!({"ciphertext": text}))?;
        let bytes = STANDARD.decode(data.plaintext).ok().and_then(|bytes| <[u8; LENGTH]>::try_from(bytes).ok());
        bytes.ok_or_else(|| self.no_key())
    }

    fn no_key(&self) -> TransitError {
        TransitError::Answer { server: self.server.clone() }
    }

    /// Asks Vault on a thread of its own, since keys are read where nothing else waits for them.
    fn ask<D: for<'de> Deserialize<'de>>(
        &self,
        verb: &'static str,
        body: &serde_json::Value,
    ) -> Result<D, TransitError> {
        #[derive(Deserialize)]
        struct Answer<D> {
            data: D,
        }
        let request = self.request(verb, body)?;
        let authorities = self.ca_file.as_deref().map(read).transpose()?.unwrap_or_default();
        let tls = stoa_outbound::tls(&authorities)
            .map_err(|error| TransitError::Settings(format!("the authorities of Vault: {error}")))?;
        let unavailable = |why: String| TransitError::Unavailable { server: self.server.clone(), why };
        let asked = thread::scope(|scope| scope.spawn(|| send(tls, request)).join());
        let (status, answer) = asked
            .unwrap_or_else(|_| Err("was not asked, because of a defect in the server".to_owned()))
            .map_err(unavailable)?;
        let (server, key) = (self.server.clone(), self.key.clone());
        match status {
            StatusCode::OK => {
                let answer: Result<Answer<D>, _> = serde_json::from_slice(&answer);
                // The text of the error may quote the answer.
                answer.map(|answer| answer.data).map_err(|_| self.no_key())
            }
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => {
                Err(TransitError::Refused { server, verb, key, path: self.path(verb) })
            }
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => Err(TransitError::Rejected { server, verb, key }),
            status => Err(unavailable(format!("answered {}", status.as_u16()))),
        }
    }

    fn path(&self, verb: &str) -> String {
        format!("{}/{verb}/{}", self.mount.trim_matches('/'), self.key)
    }

    fn request(&self, verb: &str, body: &serde_json::Value) -> Result<Request<Full<Bytes>>, TransitError> {
        let token = String::from_utf8(read(&self.token_file)?).unwrap_or_default();
        let header = |text: &str, what: &str| {
            HeaderValue::from_str(text.trim())
                .map_err(|_| TransitError::Settings(format!("{what} is no text in one line")))
        };
        let mut token = header(&token, "the token of Vault")?;
        token.set_sensitive(true);
        let url = format!("{}/v1/{}", self.server.trim_end_matches('/'), self.path(verb));
        let mut request = Request::post(url).header("X-Vault-Token", token);
        if let Some(namespace) = &self.namespace {
            request = request.header("X-Vault-Namespace", header(namespace, "the namespace of Vault")?);
        }
        let request = request.header(http::header::CONTENT_TYPE, "application/json");
        let request = request.body(Full::from(body.to_string()));
        request.map_err(|_| TransitError::Settings("the address, mount or key of Vault make no URL".to_owned()))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TransitError> {
    fs::read(path).map_err(|source| TransitError::Read { path: path.to_owned(), source })
}

/// Sends a request, and returns the status and the body of its answer.
fn send(tls: rustls::ClientConfig, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot be asked: {error}"))?;
    runtime.block_on(async {
        let asked = async {
            let answer = stoa_outbound::client(tls).request(request).await;
            let answer = answer.map_err(|error| format!("cannot be reached: {}", causes(&error)))?;
            let status = answer.status();
            let body = stoa_outbound::read(answer.into_body(), LARGEST).await;
            body.map(|body| (status, body)).ok_or_else(|| "sent an incomplete answer".to_owned())
        };
        let late = || Err(format!("gave no answer within {} s", TIMEOUT.as_secs()));
        tokio::time::timeout(TIMEOUT, asked).await.unwrap_or_else(|_| late())
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    /// A transit engine, as its documentation says: the text is the key itself, written backwards.
    pub(in super::super) fn stub(token: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                answer(stream.unwrap(), token).unwrap_or_default();
            }
        });
        format!("http://{address}")
    }

    fn answer(mut stream: TcpStream, token: &str) -> Option<()> {
        let (mut seen, mut part) = (Vec::new(), [0; 4096]);
        let (head, body) = loop {
            let read = stream.read(&mut part).ok().filter(|read| *read > 0)?;
            seen.extend_from_slice(&part[..read]);
            let text = String::from_utf8_lossy(&seen).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let head = head.to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok())?;
            if body.len() == length {
                break (head, body.to_owned());
            }
        };
        let body: serde_json::Value = serde_json::from_str(&body).ok()?;
        let backwards = |text: &str| text.chars().rev().collect::<String>();
        let field = |name: &str| body[name].as_str().map(str::to_owned);
        let known = |text: String| text.strip_prefix("vault:v1:").map(str::to_owned);
        let (status, data) = if !head.contains(&format!("x-vault-token: {token}\r\n")) {
            (403, json!({"errors": ["permission denied"]}))
        } else if head.starts_with("post /v1/transit/encrypt/stoa ") {
            (200, json!({"data": {"ciphertext": format!("vault:v1:{}", backwards(&field("plaintext")?))}}))
        } else if let (true, Some(text)) =
            (head.starts_with("post /v1/transit/decrypt/stoa "), field("ciphertext").and_then(known))
        {
            (200, json!({"data": {"plaintext": backwards(&text)}}))
        } else {
            (400, json!({"errors": ["encryption key not found"]}))
        };
        let body = data.to_string();
        let answer =
            format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).ok()
    }

    pub(in super::super) fn transit(server: String, folder: &Path) -> Transit {
        let token_file = folder.join("token");
        fs::write(&token_file, "s.token\n").unwrap();
        Transit {
            server,
            mount: "transit".to_owned(),
            key: "stoa".to_owned(),
            token_file,
            ca_file: None,
            namespace: None,
        }
    }

    #[test]
    fn wrapped_keys_are_unwrapped_by_their_key_alone() {
        let folder = tempfile::TempDir::new().unwrap();
        let transit = transit(stub("s.token"), folder.path());
        let text = transit.wrap(&[7; LENGTH]).unwrap();
        assert_eq!(transit.unwrap(&text).unwrap(), [7; LENGTH]);
        let other = Transit { key: "other".to_owned(), ..transit.clone() };
        assert!(matches!(other.unwrap(&text), Err(TransitError::Rejected { verb: "decrypt", .. })));
        assert!(matches!(transit.unwrap("vault:v1:AAAA"), Err(TransitError::Answer { .. })));
        fs::write(&transit.token_file, "s.other").unwrap();
        let error = transit.unwrap(&text).unwrap_err();
        assert!(matches!(&error, TransitError::Refused { path, .. } if path == "transit/decrypt/stoa"), "{error}");
        assert!(!format!("{error} {error:?}").contains("s.other"));
    }

    #[test]
    fn unreachable_vault_is_named() {
        let folder = tempfile::TempDir::new().unwrap();
        let error = transit("http://127.0.0.1:1".to_owned(), folder.path()).unwrap("vault:v1:x").unwrap_err();
        assert!(error.to_string().starts_with("Vault at http://127.0.0.1:1 cannot be reached"), "{error}");
    }
}
