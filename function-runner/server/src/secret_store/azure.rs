//! Azure Key Vault, by its API: <https://learn.microsoft.com/en-us/rest/api/keyvault/secrets/get-secret/get-secret>.
//!
//! A token of Microsoft Entra ID by client credentials opens it.

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Request, StatusCode};
use percent_encoding::utf8_percent_encode;
use serde::Deserialize;
use serde_json::{Map, Value};
use stoa_engine::stored_secret::StoredSecret;
use tokio::sync::OnceCell;

use super::service::{RESERVED, Service, Store, address, of_text};
use super::{Credentials, invalid};
use crate::failure::Failure;

const API: &str = "7.4";

/// The settings of the store, as in Kusion's workspace.yaml.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Settings {
    /// The address of the vault, such as `https://shop.vault.azure.net`.
    vault_url: String,
    /// The tenant of the application.
    tenant_id: String,
    /// The cloud.
    #[serde(default)]
    environment_type: Environment,
    /// The address that sells tokens; that of the cloud where it is empty.
    #[serde(default)]
    authority_host: String,
}

/// A cloud of Azure, by the names of its SDK.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[expect(clippy::enum_variant_names, reason = "these are the names of the SDK")]
enum Environment {
    #[default]
    #[serde(alias = "PublicCloud")]
    AzurePublicCloud,
    #[serde(rename = "AzureUSGovernmentCloud", alias = "USGovernmentCloud")]
    AzureUsGovernmentCloud,
    #[serde(alias = "ChinaCloud")]
    AzureChinaCloud,
}

impl Environment {
    /// The address that sells tokens, and the resource that they are for.
    fn addresses(self) -> (&'static str, &'static str) {
        match self {
            Self::AzurePublicCloud => ("https://login.microsoftonline.com", "https://vault.azure.net"),
            Self::AzureUsGovernmentCloud => ("https://login.microsoftonline.us", "https://vault.usgovcloudapi.net"),
            Self::AzureChinaCloud => ("https://login.chinacloudapi.cn", "https://vault.azure.cn"),
        }
    }
}

/// A vault.
#[derive(Debug)]
pub(super) struct KeyVault {
    vault: Service,
    url: String,
    authority: Service,
    token_url: String,
    /// The form that buys a token.
    form: String,
    token: OnceCell<HeaderValue>,
}

#[derive(Deserialize)]
struct Token {
    access_token: String,
}

#[derive(Deserialize)]
struct Answer {
    value: String,
}

impl KeyVault {
    /// The vault with its credentials: `clientId` and `clientSecret`, and possibly `ca.crt`.
    pub(super) fn new(settings: Settings, credentials: &Credentials<'_>) -> Result<Self, Failure> {
        let Settings { vault_url, tenant_id, environment_type, authority_host } = settings;
        let url = address("provider.azure.vaultUrl", &vault_url)?;
        let is_tenant = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        if tenant_id.is_empty() || !tenant_id.bytes().all(is_tenant) {
            return Err(invalid("provider.azure.tenantId must be the id or domain of a tenant".to_owned()));
        }
        let (host, resource) = environment_type.addresses();
        let host = if authority_host.is_empty() { host.to_owned() } else { authority_host };
        let host = address("provider.azure.authorityHost", &host)?;
        let encoded = |text: &str| utf8_percent_encode(text, RESERVED).to_string();
        let form = format!(
            "client_id={}&client_secret={}&grant_type=client_credentials&scope={}",
            encoded(&credentials.text("clientId")?),
            encoded(&credentials.text("clientSecret")?),
            encoded(&format!("{resource}/.default"))
        );
        Ok(Self {
            vault: Service::new(format!("Azure Key Vault at {url}"), credentials.authorities())?,
            authority: Service::new(format!("Microsoft Entra ID at {host}"), credentials.authorities())?,
            token_url: format!("{host}/{tenant_id}/oauth2/v2.0/token"),
            url,
            form,
            token: OnceCell::new(),
        })
    }

    /// The token for all secrets of a call.
    async fn token(&self, stored: &StoredSecret) -> Result<&HeaderValue, Failure> {
        let buy = || async {
            let request = Request::post(&self.token_url).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
            let request = request.body(Full::from(self.form.clone()));
            let request = request.map_err(|_| invalid("provider.azure.authorityHost is no URL".to_owned()))?;
            let (status, body) = self.authority.send(stored, request).await?;
            if status != StatusCode::OK {
                let why = "does not accept the client; check tenantId, and clientId and clientSecret of the Secret";
                return Err(self.authority.refused(stored, why));
            }
            let token: Option<Token> = serde_json::from_slice(&body).ok();
            let header = token.and_then(|token| HeaderValue::try_from(format!("Bearer {}", token.access_token)).ok());
            let mut header = header.ok_or_else(|| self.authority.refused(stored, "sent no token"))?;
            header.set_sensitive(true);
            Ok(header)
        };
        self.token.get_or_try_init(buy).await
    }
}

#[async_trait]
impl Store for KeyVault {
    fn title(&self) -> &'static str {
        "Azure Key Vault"
    }

    async fn properties(&self, stored: &StoredSecret) -> Result<Map<String, Value>, Failure> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if !stored.name.bytes().all(is_name) {
            let message = format!("{stored}: names in Azure Key Vault have letters, digits and dashes alone");
            return Err(invalid(message));
        }
        let version = stored.version.as_deref().unwrap_or_default();
        let url = format!("{}/secrets/{}/{version}?api-version={API}", self.url, stored.name);
        let request = Request::get(url).header(AUTHORIZATION, self.token(stored).await?);
        let request = request.body(Full::<Bytes>::default());
        let request = request.map_err(|_| invalid(format!("{stored}: is no secret of Azure Key Vault")))?;
        let (status, body) = self.vault.send(stored, request).await?;
        match status {
            StatusCode::OK => {
                let answer: Answer = serde_json::from_slice(&body).map_err(|_| self.vault.no_secret(stored))?;
                Ok(of_text(&answer.value))
            }
            StatusCode::NOT_FOUND => Err(self.vault.missing(stored)),
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => {
                let why = "does not permit the client to read it; assign the role Key Vault Secrets User";
                Err(self.vault.refused(stored, why))
            }
            status => Err(self.vault.refused(stored, &format!("answered {}", status.as_u16()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::json;

    use super::super::service::testing::{self, Seen};
    use super::*;

    /// Answers as both API references say.
    fn answer(seen: &Seen) -> (u16, String) {
        if seen.path == "/shop.example.com/oauth2/v2.0/token" {
            let is_known = seen.method == "POST"
                && seen.body
                    == "client_id=app&client_secret=s.%26secret&grant_type=client_credentials&scope=https%3A%2F%2Fvault.azure.net%2F.default";
            return match is_known {
                true => (200, json!({"access_token": "s.token", "token_type": "Bearer"}).to_string()),
                false => (401, json!({"error": "invalid_client", "error_description": "hunter2"}).to_string()),
            };
        }
        let secret = |text: &str| (200, json!({"value": text, "id": "x"}).to_string());
        match seen.path.as_str() {
            _ if seen.header("authorization") != "Bearer s.token" => (401, String::new()),
            "/secrets/db/?api-version=7.4" => secret(r#"{"user": "shop"}"#),
            "/secrets/db/4387e9f3?api-version=7.4" => secret(r#"{"user": "old"}"#),
            "/secrets/token/?api-version=7.4" => secret("plain"),
            "/secrets/denied/?api-version=7.4" => (403, json!({"error": {"code": "Forbidden"}}).to_string()),
            "/secrets/broken/?api-version=7.4" => (200, "[]".to_owned()),
            _ => (404, json!({"error": {"code": "SecretNotFound"}}).to_string()),
        }
    }

    fn store(endpoint: &str, secret: &str) -> KeyVault {
        let settings = json!({"vaultUrl": endpoint, "tenantId": "shop.example.com", "authorityHost": endpoint});
        let keys = [("clientId", "app"), ("clientSecret", secret)];
        let keys: HashMap<_, _> = keys.map(|(key, value)| (key.to_owned(), Bytes::from(value.to_owned()))).into();
        KeyVault::new(serde_json::from_value(settings).unwrap(), &Credentials(&keys)).unwrap()
    }

    #[tokio::test]
    async fn secrets_are_read_with_one_token() {
        let endpoint = testing::start(|seen| answer(&seen)).await;
        let store = store(&endpoint, "s.&secret");
        let texts = ["ref://db/user", "ref://db/user?version=4387e9f3", "ref://token/value"];
        assert_eq!(super::super::testing::read(&store, &texts).await.unwrap(), ["shop", "old", "plain"]);
        for (text, told) in [
            ("ref://none/x", "InvalidArgument: ref://none/x: the secret does not exist in Azure Key Vault at"),
            ("ref://db/x", "InvalidArgument: ref://db/x: the secret in Azure Key Vault has no property \"x\""),
            ("ref://denied/x", "InvalidArgument: ref://denied/x: Azure Key Vault at"),
            ("ref://broken/x", "InvalidArgument: ref://broken/x: the answer of Azure Key Vault at"),
            ("ref://team/db/x", "InvalidArgument: ref://team/db/x: names in Azure Key Vault have letters"),
        ] {
            let error = super::super::testing::read(&store, &[text]).await.unwrap_err();
            assert!(error.starts_with(told) && !error.contains("s."), "{error}");
        }
        let other = self::store(&endpoint, "s.other");
        let error = super::super::testing::read(&other, &["ref://db/user"]).await.unwrap_err();
        assert!(error.contains("Microsoft Entra ID at") && !error.contains("s.other"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn clouds_have_addresses_of_their_own() {
        for (name, host) in [
            ("AzurePublicCloud", "https://login.microsoftonline.com"),
            ("USGovernmentCloud", "https://login.microsoftonline.us"),
            ("AzureChinaCloud", "https://login.chinacloudapi.cn"),
        ] {
            let environment: Environment = serde_json::from_value(json!(name)).unwrap();
            assert_eq!(environment.addresses().0, host);
        }
    }
}
