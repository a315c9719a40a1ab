//! AWS Secrets Manager, by its API: <https://docs.aws.amazon.com/secretsmanager/latest/apireference/>.

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, StatusCode};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use stoa_cloud_signatures::{AwsKeys, JsonCall, endpoint, fault};
use stoa_engine::stored_secret::StoredSecret;

use super::service::{Region, Service, Store, authority, of_text};
use super::{Credentials, invalid};
use crate::failure::Failure;

const SERVICE: &str = "secretsmanager";
const TARGET: &str = "secretsmanager.GetSecretValue";
/// The length of the shortest version id; shorter versions are labels, such as `AWSPREVIOUS`.
const SHORTEST_ID: usize = 32;

/// The service in a region.
#[derive(Debug)]
pub(super) struct SecretsManager {
    service: Service,
    region: String,
    url: String,
    keys: AwsKeys,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    secret_string: Option<String>,
}

impl SecretsManager {
    /// The service with its credentials: `accessKey` and `secretKey`, and possibly `sessionToken` and `ca.crt`.
    pub(super) fn new(settings: Region, credentials: &Credentials<'_>) -> Result<Self, Failure> {
        let of_region = endpoint(SERVICE, &settings.region).ok_or_else(|| {
            invalid("provider.aws.region must be the name of a region, such as eu-central-1".to_owned())
        })?;
        let url = settings.address("provider.aws.endpoint", &of_region)?;
        let service = Service::new(format!("AWS Secrets Manager at {url}"), credentials.authorities())?;
        let keys = AwsKeys {
            id: credentials.text("accessKey")?,
            secret: credentials.text("secretKey")?,
            session_token: credentials.optional_text("sessionToken")?,
        };
        Ok(Self { service, region: settings.region, url, keys })
    }

    fn request(&self, stored: &StoredSecret, now: Timestamp) -> Result<Request<Full<Bytes>>, Failure> {
        let mut body = json!({"SecretId": stored.name});
        if let Some(version) = &stored.version {
            let field = if version.len() >= SHORTEST_ID { "VersionId" } else { "VersionStage" };
            body[field] = version.as_str().into();
        }
        let body = body.to_string();
        let host = authority(&self.url);
        let (region, body_bytes) = (self.region.as_str(), body.as_bytes());
        let call = JsonCall { service: SERVICE, region, host: &host, target: TARGET, body: body_bytes };
        let mut request = Request::post(format!("{}/", self.url));
        for (name, value) in call.headers(&self.keys, now) {
            request = request.header(name, value);
        }
        request.body(Full::from(body)).map_err(|_| invalid("the keys of AWS are no header values".to_owned()))
    }
}

#[async_trait]
impl Store for SecretsManager {
    fn title(&self) -> &'static str {
        "AWS Secrets Manager"
    }

    async fn properties(&self, stored: &StoredSecret) -> Result<Map<String, Value>, Failure> {
        let (status, body) = self.service.send(stored, self.request(stored, Timestamp::now())?).await?;
        if status == StatusCode::OK {
            let answer: Answer = serde_json::from_slice(&body).map_err(|_| self.service.no_secret(stored))?;
            let text = answer.secret_string;
            return text
                .map(|text| of_text(&text))
                .ok_or_else(|| self.service.refused(stored, "has a binary secret there"));
        }
        Err(match fault(&body).as_str() {
            "ResourceNotFoundException" => self.service.missing(stored),
            "AccessDeniedException" => {
                self.service.refused(stored, "does not permit the key to read it; allow secretsmanager:GetSecretValue")
            }
            "UnrecognizedClientException"
            | "InvalidSignatureException"
            | "ExpiredTokenException"
            | "InvalidClientTokenId" => self.service.refused(stored, "does not accept the key; renew the Secret"),
            "DecryptionFailure" => self.service.refused(stored, "cannot decrypt it; allow kms:Decrypt for its key"),
            "ThrottlingException" => self.service.unavailable(stored, "has too many requests"),
            _ => self.service.refused(stored, &format!("answered {}", status.as_u16())),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::service::testing::{self, Seen};
    use super::*;

    /// Answers as the API reference says.
    fn answer(seen: &Seen) -> (u16, String) {
        let scope = "Credential=AKID/20";
        let is_signed = seen.header("authorization").starts_with(&format!("AWS4-HMAC-SHA256 {scope}"))
            && seen.header("authorization").contains("/eu-central-1/secretsmanager/aws4_request, SignedHeaders=")
            && seen.header("x-amz-target") == TARGET;
        let fault = |kind: &str| (400, json!({"__type": kind, "message": "hunter2"}).to_string());
        let asked: Value = serde_json::from_str(&seen.body).unwrap();
        let secret = |text: &str| (200, json!({"Name": "x", "SecretString": text}).to_string());
        match (asked["SecretId"].as_str().unwrap(), asked["VersionStage"].as_str(), asked["VersionId"].as_str()) {
            _ if !is_signed => fault("InvalidSignatureException"),
            ("team/db", None, None) => secret(r#"{"user": "shop", "port": 5432}"#),
            ("team/db", Some("AWSPREVIOUS"), None) => secret(r#"{"user": "old"}"#),
            ("team/db", None, Some("EXAMPLE1-90ab-cdef-fedc-ba987EXAMPLE")) => secret(r#"{"user": "first"}"#),
            ("token", None, None) => secret("plain text"),
            ("binary", ..) => (200, json!({"SecretBinary": "AAAA"}).to_string()),
            ("denied", ..) => fault("com.amazonaws#AccessDeniedException"),
            ("busy", ..) => (503, String::new()),
            _ => fault("ResourceNotFoundException"),
        }
    }

    fn store(endpoint: String, keys: &[(&str, &str)]) -> Result<SecretsManager, Failure> {
        let keys = keys.iter().map(|(key, value)| ((*key).to_owned(), Bytes::from((*value).to_owned())));
        let keys: HashMap<_, _> = keys.collect();
        SecretsManager::new(Region { region: "eu-central-1".to_owned(), endpoint }, &Credentials(&keys))
    }

    const KEYS: [(&str, &str); 3] = [("accessKey", "AKID"), ("secretKey", "s.secret\n"), ("sessionToken", "s.session")];

    #[tokio::test]
    async fn secrets_have_properties_and_versions() {
        let store = store(testing::start(|seen| answer(&seen)).await, &KEYS).unwrap();
        let texts = [
            "ref://team/db/port",
            "ref://team/db/user",
            "ref://team/db/user?version=AWSPREVIOUS",
            "ref://team/db/user?version=EXAMPLE1-90ab-cdef-fedc-ba987EXAMPLE",
            "ref://token/value",
        ];
        let read = super::super::testing::read(&store, &texts).await.unwrap();
        assert_eq!(read, ["5432", "shop", "old", "first", "plain text"]);
    }

    #[tokio::test]
    async fn errors_name_secret_and_service_without_keys() {
        let endpoint = testing::start(|seen| answer(&seen)).await;
        let known = store(endpoint.clone(), &KEYS).unwrap();
        let other = store(endpoint, &[("accessKey", "OTHER"), ("secretKey", "s.other")]).unwrap();
        for (store, text, told) in [
            (
                &known,
                "ref://none/x",
                "InvalidArgument: ref://none/x: the secret does not exist in AWS Secrets Manager at",
            ),
            (
                &known,
                "ref://team/db/x",
                "InvalidArgument: ref://team/db/x: the secret in AWS Secrets Manager has no property",
            ),
            (&known, "ref://denied/x", "InvalidArgument: ref://denied/x: AWS Secrets Manager at"),
            (&known, "ref://binary/x", "InvalidArgument: ref://binary/x: AWS Secrets Manager at"),
            (&known, "ref://busy/x", "Unavailable: ref://busy/x: AWS Secrets Manager at"),
            (&other, "ref://team/db/user", "InvalidArgument: ref://team/db/user: AWS Secrets Manager at"),
        ] {
            let error = super::super::testing::read(store, &[text]).await.unwrap_err();
            assert!(error.starts_with(told) && !error.contains("s.") && !error.contains("hunter2"), "{error}");
        }
        let away = self::store("http://127.0.0.1:9".to_owned(), &KEYS).unwrap();
        let error = super::super::testing::read(&away, &["ref://a/b"]).await.unwrap_err();
        assert!(
            error.starts_with("Unavailable: ref://a/b: AWS Secrets Manager at http://127.0.0.1:9 cannot"),
            "{error}"
        );
        let error = self::store(String::new(), &KEYS[..1]).unwrap_err();
        assert!(error.problems()[0].message.contains("has no key \"secretKey\""), "{error:?}");
    }
}
