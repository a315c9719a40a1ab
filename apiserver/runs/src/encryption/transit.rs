//! Vault's transit engine: <https://developer.hashicorp.com/vault/api-docs/secret/transit>.

use std::path::PathBuf;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::Full;
use serde::Deserialize;
use serde_json::json;

use super::{
    keys::LENGTH,
    wrapper::{self, Form, WrapError, key_of, read},
};

/// The texts that Vault makes of keys.
pub(super) static FORM: Form = Form { prefix: "vault:", service: "Vault", flag: "--sealing-key-vault-server" };

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
    pub(super) fn wrap(&self, secret: &[u8; LENGTH]) -> Result<String, WrapError> {
        #[derive(Deserialize)]
        struct Data {
            ciphertext: String,
        }
        let data: Data = self.ask("encrypt", &json!({"plaintext": STANDARD.encode(secret)}))?;
        if data.ciphertext.starts_with(FORM.prefix) && !data.ciphertext.contains(char::is_whitespace) {
            Ok(data.ciphertext)
        } else {
            Err(self.no_key())
        }
    }

    /// The key in a text that Vault made.
    pub(super) fn unwrap(&self, text: &str) -> Result<[u8; LENGTH], WrapError> {
        #[derive(Deserialize)]
        struct Data {
            plaintext: String,
        }
        let data: Data = self.ask("decrypt", &json!({"ciphertext": text}))?;
        key_of(&data.plaintext).ok_or_else(|| self.no_key())
    }

    fn service(&self) -> String {
        format!("Vault at {}", self.server)
    }

    fn no_key(&self) -> WrapError {
        WrapError::Answer { service: self.service() }
    }

    fn ask<D: for<'de> Deserialize<'de>>(&self, verb: &'static str, body: &serde_json::Value) -> Result<D, WrapError> {
        #[derive(Deserialize)]
        struct Answer<D> {
            data: D,
        }
        let (service, key) = (self.service(), self.key.clone());
        let (status, answer) = wrapper::call(&service, self.ca_file.as_deref(), self.request(verb, body)?)?;
        match status {
            StatusCode::OK => {
                let answer: Result<Answer<D>, _> = serde_json::from_slice(&answer);
                // The text of the error may quote the answer.
                answer.map(|answer| answer.data).map_err(|_| self.no_key())
            }
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => {
                let remedy = format!("grant the token `update` on {} by a policy, or renew the token", self.path(verb));
                Err(WrapError::Refused { service, verb, key, remedy })
            }
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => {
                let why = "it does not exist, or it did not encrypt the text";
                Err(WrapError::Rejected { service, verb, key, why })
            }
            status => Err(WrapError::Unavailable { service, why: format!("answered {}", status.as_u16()) }),
        }
    }

    fn path(&self, verb: &str) -> String {
        format!("{}/{verb}/{}", self.mount.trim_matches('/'), self.key)
    }

    fn request(&self, verb: &str, body: &serde_json::Value) -> Result<Request<Full<Bytes>>, WrapError> {
        let token = String::from_utf8(read(&self.token_file)?).unwrap_or_default();
        let header = |text: &str, what: &str| {
            HeaderValue::from_str(text.trim())
                .map_err(|_| WrapError::Settings(format!("{what} is no text in one line")))
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
        request.map_err(|_| WrapError::Settings("the address, mount or key of Vault make no URL".to_owned()))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{fs, path::Path};

    use super::super::wrapper::tests::{Seen, backwards, service};
    use super::*;

    /// A transit engine, as its documentation says: the text is the key itself, written backwards.
    pub(in super::super) fn stub(token: &'static str) -> String {
        service(move |seen| answer(seen, token))
    }

    fn answer(seen: &Seen, token: &str) -> (u16, serde_json::Value) {
        if seen.header("x-vault-token") != token {
            return (403, json!({"errors": ["permission denied"]}));
        }
        match (seen.path.as_str(), seen.field("ciphertext").strip_prefix("vault:v1:")) {
            ("/v1/transit/encrypt/stoa", _) => {
                let text = format!("vault:v1:{}", backwards(seen.field("plaintext")));
                (200, json!({"data": {"ciphertext": text}}))
            }
            ("/v1/transit/decrypt/stoa", Some(text)) => (200, json!({"data": {"plaintext": backwards(text)}})),
            _ => (400, json!({"errors": ["encryption key not found"]})),
        }
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
        assert!(matches!(other.unwrap(&text), Err(WrapError::Rejected { verb: "decrypt", .. })));
        assert!(matches!(transit.unwrap("vault:v1:AAAA"), Err(WrapError::Answer { .. })));
        fs::write(&transit.token_file, "s.other").unwrap();
        let error = transit.unwrap(&text).unwrap_err();
        assert!(
            matches!(&error, WrapError::Refused { remedy, .. } if remedy.contains("transit/decrypt/stoa")),
            "{error}"
        );
        assert!(!format!("{error} {error:?}").contains("s.other"));
    }

    #[test]
    fn unreachable_vault_is_named() {
        let folder = tempfile::TempDir::new().unwrap();
        let error = transit("http://127.0.0.1:1".to_owned(), folder.path()).unwrap("vault:v1:x").unwrap_err();
        assert!(error.to_string().starts_with("Vault at http://127.0.0.1:1 cannot be reached"), "{error}");
    }
}
