//! AWS KMS: <https://docs.aws.amazon.com/kms/latest/APIReference/>.
//!
//! Texts are bound to their purpose by an encryption context, so that nothing else that the key encrypted passes as a sealing
//! key.

use std::{collections::HashMap, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::Full;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use stoa_cloud_signatures::{AwsKeys, JsonCall, endpoint, fault};

use super::{
    keys::LENGTH,
    wrapper::{self, Form, WrapError, key_of, read},
};

/// The texts that KMS makes of keys; its base64 follows.
pub(super) static FORM: Form = Form { prefix: "aws-kms:", service: "AWS KMS", flag: "--sealing-key-kms-key" };

const SERVICE: &str = "kms";
/// The encryption context.
const PURPOSE: (&str, &str) = ("purpose", "stoa-sealing-key");

/// A symmetric key of AWS KMS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kms {
    /// The id of the key, its ARN, or an alias such as `alias/stoa`.
    pub key: String,
    /// The region, such as `eu-central-1`.
    pub region: String,
    /// The URL of the service: https, or http of a loopback address. Absent: that of the region.
    pub endpoint: Option<String>,
    /// The credentials.
    pub credentials: AwsCredentials,
    /// The file with the authorities of the service's certificate, PEM. Absent: those of the system.
    pub ca_file: Option<PathBuf>,
}

/// Credentials of AWS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AwsCredentials {
    /// Access keys.
    Keys(AwsKeys),
    /// A shared credentials file, which is read at each use.
    File {
        /// The file.
        path: PathBuf,
        /// The profile in it, such as `default`.
        profile: String,
    },
}

impl AwsCredentials {
    fn keys(&self) -> Result<AwsKeys, WrapError> {
        match self {
            Self::Keys(keys) => Ok(keys.clone()),
            Self::File { path, profile } => {
                let text = String::from_utf8(read(path)?).unwrap_or_default();
                keys_of(&text, profile).map_err(|missing| {
                    WrapError::Settings(format!("{} has no {missing} in the profile {profile:?}", path.display()))
                })
            }
        }
    }
}

/// The keys of a profile in a shared credentials file, or the name of the line that is missing.
fn keys_of(text: &str, profile: &str) -> Result<AwsKeys, &'static str> {
    let (mut section, mut found) = ("", HashMap::new());
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.trim();
        } else if let Some((name, value)) = line.split_once('=').filter(|_| section == profile) {
            found.insert(name.trim().to_ascii_lowercase(), value.trim());
        }
    }
    let field = |name: &'static str| found.get(name).filter(|value| !value.is_empty()).map(|value| (*value).to_owned());
    let required = |name: &'static str| field(name).ok_or(name);
    Ok(AwsKeys {
        id: required("aws_access_key_id")?,
        secret: required("aws_secret_access_key")?,
        session_token: field("aws_session_token"),
    })
}

impl Kms {
    /// The text of a key: the prefix, and the ciphertext in base64.
    pub(super) fn wrap(&self, secret: &[u8; LENGTH]) -> Result<String, WrapError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Answer {
            ciphertext_blob: String,
        }
        let answer: Answer = self.ask("encrypt", json!({"Plaintext": STANDARD.encode(secret)}))?;
        let is_base64 = STANDARD.decode(&answer.ciphertext_blob).is_ok_and(|bytes| !bytes.is_empty());
        is_base64.then(|| format!("{}{}", FORM.prefix, answer.ciphertext_blob)).ok_or_else(|| self.no_key())
    }

    /// The key in a text.
    pub(super) fn unwrap(&self, text: &str) -> Result<[u8; LENGTH], WrapError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Answer {
            plaintext: String,
        }
        let ciphertext = text.strip_prefix(FORM.prefix).unwrap_or(text);
        let answer: Answer = self.ask("decrypt", json!({"CiphertextBlob": ciphertext}))?;
        key_of(&answer.plaintext).ok_or_else(|| self.no_key())
    }

    fn service(&self) -> String {
        match &self.endpoint {
            Some(url) => format!("AWS KMS at {url}"),
            None => format!("AWS KMS in {}", self.region),
        }
    }

    fn no_key(&self) -> WrapError {
        WrapError::Answer { service: self.service() }
    }

    /// Calls `Encrypt` or `Decrypt` with the key and the context.
    fn ask<D: for<'de> Deserialize<'de>>(&self, verb: &'static str, mut body: Value) -> Result<D, WrapError> {
        let action = if verb == "encrypt" { "Encrypt" } else { "Decrypt" };
        let (name, purpose) = PURPOSE;
        body["KeyId"] = self.key.as_str().into();
        body["EncryptionContext"] = json!({ name: purpose });
        let request = self.request(action, &body.to_string())?;
        let service = self.service();
        let (status, answer) = wrapper::call(&service, self.ca_file.as_deref(), request)?;
        if status == StatusCode::OK {
            // The text of the error may quote the answer.
            return serde_json::from_slice(&answer).map_err(|_| self.no_key());
        }
        let refused =
            |service: String, remedy: String| WrapError::Refused { service, verb, key: self.key.clone(), remedy };
        let rejected =
            |service: String, why: &'static str| WrapError::Rejected { service, verb, key: self.key.clone(), why };
        Err(match fault(&answer).as_str() {
            "AccessDeniedException" => refused(
                service,
                format!("allow kms:{action} by a policy, with the encryption context {name}={purpose}"),
            ),
            "UnrecognizedClientException"
            | "InvalidClientTokenId"
            | "InvalidSignatureException"
            | "IncompleteSignature"
            | "MissingAuthenticationTokenException"
            | "ExpiredTokenException" => refused(service, "renew the credentials, and check the clock".to_owned()),
            "NotFoundException" => rejected(service, "it does not exist in this region"),
            "DisabledException" | "KMSInvalidStateException" => rejected(service, "it is disabled or will be deleted"),
            "InvalidKeyUsageException" => rejected(service, "it is no symmetric key for encryption"),
            "IncorrectKeyException" | "InvalidCiphertextException" => {
                rejected(service, "another key, or a call with another encryption context, encrypted the text")
            }
            "ThrottlingException" => WrapError::Unavailable { service, why: "has too many requests".to_owned() },
            "" => WrapError::Unavailable { service, why: format!("answered {}", status.as_u16()) },
            other => WrapError::Unavailable { service, why: format!("answered {} {other}", status.as_u16()) },
        })
    }

    fn request(&self, action: &str, body: &str) -> Result<Request<Full<Bytes>>, WrapError> {
        let of_region = endpoint(SERVICE, &self.region).ok_or_else(|| {
            WrapError::Settings(format!("{:?} is no region of AWS; name one such as eu-central-1", self.region))
        })?;
        let url = self.endpoint.as_deref().unwrap_or(&of_region).trim_end_matches('/');
        let uri = url.parse::<Uri>().ok();
        let host = uri.as_ref().and_then(Uri::authority).map(ToString::to_string).unwrap_or_default();
        let target = format!("TrentService.{action}");
        let (region, body_bytes) = (self.region.as_str(), body.as_bytes());
        let call = JsonCall { service: SERVICE, region, host: &host, target: &target, body: body_bytes };
        let mut request = Request::post(format!("{url}/"));
        for (name, value) in call.headers(&self.credentials.keys()?, Timestamp::now()) {
            request = request.header(name, value);
        }
        let request = request.body(Full::from(body.to_owned()));
        request.map_err(|_| WrapError::Settings("the address or the credentials of AWS KMS make no request".to_owned()))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use stoa_cloud_signatures::{Canonical, Scope, aws};

    use super::super::wrapper::tests::{Seen, backwards, service};
    use super::*;

    const REGION: &str = "eu-central-1";

    fn keys() -> AwsKeys {
        AwsKeys { id: "AKID".to_owned(), secret: "s.secret".to_owned(), session_token: Some("s.session".to_owned()) }
    }

    /// KMS with two keys, `alias/stoa` and `alias/other`, and one without a permission. It makes the signature of each
    /// request itself. A ciphertext has the key and the context in clear.
    pub(in super::super) fn stub() -> String {
        service(answer)
    }

    fn answer(seen: &Seen) -> (u16, Value) {
        let fault = |name: &str| (400, json!({"__type": name, "message": "hunter2"}));
        if seen.header("authorization") != signature(seen) {
            return fault("InvalidSignatureException");
        }
        let key = seen.field("KeyId");
        if key == "alias/denied" {
            return fault("com.amazonaws.kms#AccessDeniedException");
        }
        if !["alias/stoa", "alias/other"].contains(&key) {
            return fault("NotFoundException");
        }
        let context = seen.body["EncryptionContext"].to_string();
        match seen.header("x-amz-target") {
            "TrentService.Encrypt" => {
                let text = format!("{key}\n{context}\n{}", backwards(seen.field("Plaintext")));
                (200, json!({"CiphertextBlob": STANDARD.encode(text), "KeyId": key}))
            }
            "TrentService.Decrypt" => {
                let bytes = STANDARD.decode(seen.field("CiphertextBlob")).unwrap_or_default();
                let text = String::from_utf8(bytes).unwrap_or_default();
                match text.split('\n').collect::<Vec<_>>()[..] {
                    [of, _, _] if of != key => fault("IncorrectKeyException"),
                    [_, with, text] if with == context => (200, json!({"Plaintext": backwards(text), "KeyId": key})),
                    _ => fault("InvalidCiphertextException"),
                }
            }
            _ => fault("UnknownOperationException"),
        }
    }

    /// The header `Authorization` that the request must have.
    fn signature(seen: &Seen) -> String {
        let names = ["content-type", "host", "x-amz-date", "x-amz-security-token", "x-amz-target"];
        let headers = names.map(|name| (name, seen.header(name).to_owned()));
        let body = seen.text.as_bytes();
        let request = Canonical { method: "POST", path: &seen.path, query: "", headers: &headers, body };
        let scope = Scope { region: REGION, service: "kms", time: seen.header("x-amz-date") };
        let keys = keys();
        aws(&request, &scope, (&keys.id, &keys.secret))
    }

    pub(in super::super) fn kms(endpoint: String) -> Kms {
        Kms {
            key: "alias/stoa".to_owned(),
            region: REGION.to_owned(),
            endpoint: Some(endpoint),
            credentials: AwsCredentials::Keys(keys()),
            ca_file: None,
        }
    }

    #[test]
    fn signed_calls_wrap_keys_for_one_purpose() {
        let kms = kms(stub());
        let text = kms.wrap(&[7; LENGTH]).unwrap();
        assert_eq!(kms.unwrap(&text).unwrap(), [7; LENGTH]);
        let ciphertext = STANDARD.decode(text.strip_prefix("aws-kms:").unwrap()).unwrap();
        let ciphertext = String::from_utf8(ciphertext).unwrap();
        assert!(ciphertext.contains(r#"{"purpose":"stoa-sealing-key"}"#), "{ciphertext}");
        let elsewhere = ciphertext.replace("stoa-sealing-key", "backups");
        let error = kms.unwrap(&format!("aws-kms:{}", STANDARD.encode(elsewhere))).unwrap_err();
        assert!(error.to_string().ends_with("with another encryption context, encrypted the text"), "{error}");
        let short = format!("alias/stoa\n{{\"purpose\":\"stoa-sealing-key\"}}\n{}", backwards("AAAA"));
        let error = kms.unwrap(&format!("aws-kms:{}", STANDARD.encode(short))).unwrap_err();
        assert!(matches!(error, WrapError::Answer { .. }), "{error}");
    }

    #[test]
    fn errors_name_the_key_without_credentials() {
        let (known, url) = (kms(stub()), stub());
        let text = known.wrap(&[7; LENGTH]).unwrap();
        let of_key = |key: &str| Kms { key: key.to_owned(), ..kms(url.clone()) };
        let unsigned = AwsKeys { secret: "s.other".to_owned(), ..keys() };
        let unsigned = Kms { credentials: AwsCredentials::Keys(unsigned), ..kms(url.clone()) };
        let endpoint = Some("http://127.0.0.1:1".to_owned());
        for (kms, part) in [
            (of_key("alias/other"), "cannot decrypt a sealing key with the key alias/other: another key"),
            (of_key("alias/none"), "cannot decrypt a sealing key with the key alias/none: it does not exist"),
            (of_key("alias/denied"), "does not permit `decrypt` with the key alias/denied: allow kms:Decrypt"),
            (unsigned, "does not permit `decrypt` with the key alias/stoa: renew the credentials"),
            (Kms { endpoint, ..kms(url.clone()) }, "AWS KMS at http://127.0.0.1:1 cannot be reached"),
            (Kms { region: "x y".to_owned(), ..kms(url.clone()) }, "\"x y\" is no region of AWS"),
        ] {
            let error = kms.unwrap(&text).unwrap_err();
            let message = format!("{error} {error:?} {kms:?}");
            assert!(error.to_string().contains(part), "{error}");
            for secret in ["s.secret", "s.other", "s.session", "hunter2", &text] {
                assert!(!message.contains(secret), "{message}");
            }
        }
    }

    #[test]
    fn credentials_file_is_read_at_each_use() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("credentials");
        let write = |text: &str| fs::write(&path, text).unwrap();
        let profile = "stoa".to_owned();
        let credentials = AwsCredentials::File { path: path.clone(), profile };
        let kms = Kms { credentials, ..kms(stub()) };
        let error = kms.wrap(&[7; LENGTH]).unwrap_err().to_string();
        assert!(error.starts_with("cannot read"), "{error}");
        write(
            "[default]\naws_access_key_id = AKID\naws_secret_access_key = s.secret\n[stoa]\naws_access_key_id=AKID\n",
        );
        let error = kms.wrap(&[7; LENGTH]).unwrap_err().to_string();
        assert!(error.ends_with("has no aws_secret_access_key in the profile \"stoa\""), "{error}");
        write(
            "[other]\naws_secret_access_key = s.other\n\n; keys\n[ stoa ]\r\naws_access_key_id = AKID\r\n\
             AWS_SECRET_ACCESS_KEY=s.secret\n# a comment = none\naws_session_token = s.session\n",
        );
        let text = kms.wrap(&[7; LENGTH]).unwrap();
        assert_eq!(kms.unwrap(&text).unwrap(), [7; LENGTH]);
    }
}
