//! Secrets of Alibaba Cloud's KMS, by its API:
//! <https://www.alibabacloud.com/help/en/kms/key-management-service/developer-reference/api-kms-2016-01-20-getsecretvalue>.

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, StatusCode};
use jiff::Timestamp;
use percent_encoding::utf8_percent_encode;
use serde::Deserialize;
use serde_json::{Map, Value};
use stoa_cloud_signatures::{Canonical, alibaba, sha256};
use stoa_engine::stored_secret::StoredSecret;

use super::service::{RESERVED, Region, Service, Store, authority, of_text};
use super::{Credentials, invalid};
use crate::failure::Failure;

const ACTION: &str = "GetSecretValue";
const VERSION: &str = "2016-01-20";

/// The service in a region.
#[derive(Debug)]
pub(super) struct Kms {
    service: Service,
    url: String,
    key_id: String,
    key_secret: String,
    token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    secret_data: String,
    #[serde(default)]
    secret_data_type: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Fault {
    code: String,
}

impl Kms {
    /// The service with its credentials: `accessKeyId` and `accessKeySecret`, and possibly `securityToken` and `ca.crt`.
    pub(super) fn new(settings: Region, credentials: &Credentials<'_>) -> Result<Self, Failure> {
        let region = &settings.region;
        if region.is_empty() || !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(invalid(
                "provider.alicloud.region must be the name of a region, such as cn-hangzhou".to_owned(),
            ));
        }
        let url = settings.address("provider.alicloud.endpoint", &format!("https://kms.{region}.aliyuncs.com"))?;
        Ok(Self {
            service: Service::new(format!("Alibaba Cloud KMS at {url}"), credentials.authorities())?,
            key_id: credentials.text("accessKeyId")?,
            key_secret: credentials.text("accessKeySecret")?,
            token: credentials.optional_text("securityToken")?,
            url,
        })
    }

    fn request(&self, stored: &StoredSecret, now: Timestamp) -> Result<Request<Full<Bytes>>, Failure> {
        let encoded = |text: &str| utf8_percent_encode(text, RESERVED).to_string();
        let mut query = format!("SecretName={}", encoded(&stored.name));
        match stored.version.as_deref() {
            None => {}
            // The stages that every secret has.
            Some(stage @ ("ACSCurrent" | "ACSPrevious")) => query.push_str(&format!("&VersionStage={stage}")),
            Some(version) => query.push_str(&format!("&VersionId={}", encoded(version))),
        }
        let mut headers = vec![
            ("host", authority(&self.url)),
            ("x-acs-action", ACTION.to_owned()),
            ("x-acs-content-sha256", sha256(b"")),
            ("x-acs-date", now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
            ("x-acs-signature-nonce", uuid::Uuid::new_v4().simple().to_string()),
            ("x-acs-version", VERSION.to_owned()),
        ];
        if let Some(token) = &self.token {
            headers.insert(4, ("x-acs-security-token", token.clone()));
        }
        let canonical = Canonical { method: "POST", path: "/", query: &query, headers: &headers, body: b"" };
        let authorization = alibaba(&canonical, (&self.key_id, &self.key_secret));
        let mut request = Request::post(format!("{}/?{query}", self.url)).header("authorization", authorization);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::<Bytes>::default());
        request.map_err(|_| invalid("the keys of Alibaba Cloud are no header values".to_owned()))
    }
}

#[async_trait]
impl Store for Kms {
    fn title(&self) -> &'static str {
        "Alibaba Cloud KMS"
    }

    async fn properties(&self, stored: &StoredSecret) -> Result<Map<String, Value>, Failure> {
        let (status, body) = self.service.send(stored, self.request(stored, Timestamp::now())?).await?;
        if status == StatusCode::OK {
            let answer: Answer = serde_json::from_slice(&body).map_err(|_| self.service.no_secret(stored))?;
            if answer.secret_data_type == "binary" {
                return Err(self.service.refused(stored, "has a binary secret there"));
            }
            return Ok(of_text(&answer.secret_data));
        }
        let code = serde_json::from_slice::<Fault>(&body).map(|fault| fault.code).unwrap_or_default();
        Err(match code.as_str() {
            "Forbidden.ResourceNotFound" => self.service.missing(stored),
            "Forbidden.NoPermission" | "NoPermission" => {
                self.service.refused(stored, "does not permit the key to read it; allow kms:GetSecretValue")
            }
            "InvalidAccessKeyId.NotFound"
            | "InvalidAccessKeyId.Inactive"
            | "SignatureDoesNotMatch"
            | "InvalidSecurityToken.Expired" => {
                self.service.refused(stored, "does not accept the key; renew the Secret")
            }
            code if code.starts_with("Throttling") => self.service.unavailable(stored, "has too many requests"),
            _ => self.service.refused(stored, &format!("answered {}", status.as_u16())),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::json;

    use super::super::service::testing::{self, Seen};
    use super::*;

    /// Answers as the API reference says, to requests whose signature it makes itself.
    fn answer(seen: &Seen) -> (u16, String) {
        let fault = |code: &str| (400, json!({"Code": code, "Message": "hunter2"}).to_string());
        let query = seen.path.strip_prefix("/?").unwrap();
        let names = [
            "host",
            "x-acs-action",
            "x-acs-content-sha256",
            "x-acs-date",
            "x-acs-security-token",
            "x-acs-signature-nonce",
            "x-acs-version",
        ];
        let headers = names.map(|name| (name, seen.header(name).to_owned()));
        let request = Canonical { method: &seen.method, path: "/", query, headers: &headers, body: b"" };
        if seen.header("authorization") != alibaba(&request, ("LTAI", "s.secret")) {
            return fault("SignatureDoesNotMatch");
        }
        let secret = |text: &str, kind: &str| (200, json!({"SecretData": text, "SecretDataType": kind}).to_string());
        match query {
            "SecretName=team%2Fdb" => secret(r#"{"user": "shop"}"#, "text"),
            "SecretName=team%2Fdb&VersionStage=ACSPrevious" => secret(r#"{"user": "old"}"#, "text"),
            "SecretName=team%2Fdb&VersionId=v1" => secret(r#"{"user": "first"}"#, "text"),
            "SecretName=binary" => secret("AAAA", "binary"),
            "SecretName=denied" => fault("Forbidden.NoPermission"),
            "SecretName=busy" => fault("Throttling.User"),
            _ => fault("Forbidden.ResourceNotFound"),
        }
    }

    fn store(endpoint: &str, secret: &str) -> Kms {
        let keys = [("accessKeyId", "LTAI"), ("accessKeySecret", secret), ("securityToken", "s.session")];
        let keys: HashMap<_, _> = keys.map(|(key, value)| (key.to_owned(), Bytes::from(value.to_owned()))).into();
        let settings = Region { region: "cn-hangzhou".to_owned(), endpoint: endpoint.to_owned() };
        Kms::new(settings, &Credentials(&keys)).unwrap()
    }

    #[tokio::test]
    async fn signed_requests_read_secrets() {
        let endpoint = testing::start(|seen| answer(&seen)).await;
        let store = store(&endpoint, "s.secret");
        let texts = ["ref://team/db/user", "ref://team/db/user?version=ACSPrevious", "ref://team/db/user?version=v1"];
        assert_eq!(super::super::testing::read(&store, &texts).await.unwrap(), ["shop", "old", "first"]);
        for (text, told) in [
            ("ref://none/x", "InvalidArgument: ref://none/x: the secret does not exist in Alibaba Cloud KMS at"),
            ("ref://team/db/x", "InvalidArgument: ref://team/db/x: the secret in Alibaba Cloud KMS has no property"),
            ("ref://denied/x", "InvalidArgument: ref://denied/x: Alibaba Cloud KMS at"),
            ("ref://binary/x", "InvalidArgument: ref://binary/x: Alibaba Cloud KMS at"),
            ("ref://busy/x", "Unavailable: ref://busy/x: Alibaba Cloud KMS at"),
        ] {
            let error = super::super::testing::read(&store, &[text]).await.unwrap_err();
            assert!(error.starts_with(told) && !error.contains("s.") && !error.contains("hunter2"), "{error}");
        }
        let other = self::store(&endpoint, "s.other");
        let error = super::super::testing::read(&other, &["ref://team/db/user"]).await.unwrap_err();
        assert!(error.contains("does not accept the key; renew the Secret") && !error.contains("s.other"), "{error}");
    }
}
