//! Credentials of a registry or chart repository, from the keys of a Secret.

use std::collections::HashMap;
use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderValue;
use serde::Deserialize;

/// The key of Secrets of the type `kubernetes.io/dockerconfigjson`.
const DOCKER: &str = ".dockerconfigjson";

/// Credentials, which are for one host.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// The user and the password, which may be a token.
    basic: Option<(String, String)>,
    /// A token that the registry itself takes.
    bearer: Option<String>,
    /// Certificate authorities, PEM; empty: those of the system.
    authorities: Vec<u8>,
}

/// A Secret that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLogin {
    /// The key has other content.
    #[error("the key .dockerconfigjson of the Secret is not a configuration of Docker: {{\"auths\": {{…}}}}")]
    Docker,
    /// The key has no entry for the registry.
    #[error("the key .dockerconfigjson of the Secret has no entry for {0}")]
    NoEntry(String),
}

#[derive(Deserialize)]
struct DockerConfig {
    auths: HashMap<String, DockerEntry>,
}

#[derive(Default, Deserialize)]
struct DockerEntry {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    auth: String,
}

impl Login {
    /// The credentials for a host in keys as Secrets of the types `kubernetes.io/basic-auth` (`username`, `password`)
    /// and `kubernetes.io/dockerconfigjson` have them, or `token`, and `ca.crt`. `bearerToken` is for registries that take it as
    /// it is.
    ///
    /// # Errors
    ///
    /// If the configuration of Docker is none, or has no entry for the host.
    pub fn of_keys<'a>(host: &str, get: impl Fn(&str) -> Option<&'a [u8]>) -> Result<Self, InvalidLogin> {
        let text = |key: &str| {
            let text = get(key).and_then(|value| std::str::from_utf8(value).ok()).map(str::trim);
            text.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let authorities = get("ca.crt").unwrap_or_default().to_vec();
        let basic = match (text("password").or_else(|| text("token")), get(DOCKER)) {
            // Registries take any user beside a token.
            (Some(password), _) => Some((text("username").unwrap_or_else(|| "stoa".to_owned()), password)),
            (None, Some(docker)) => Some(of_docker(host, docker)?),
            (None, None) => None,
        };
        Ok(Self { basic, bearer: text("bearerToken"), authorities })
    }

    /// The certificate authorities, PEM; empty: those of the system.
    pub fn authorities(&self) -> &[u8] {
        &self.authorities
    }

    /// The header `Authorization` with the user and the password, if there are any.
    pub(crate) fn basic(&self) -> Option<HeaderValue> {
        let (user, password) = self.basic.as_ref()?;
        sensitive(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
    }

    /// The header `Authorization` with the token that the registry itself takes, if there is one.
    pub(crate) fn bearer(&self) -> Option<HeaderValue> {
        sensitive(&format!("Bearer {}", self.bearer.as_ref()?))
    }
}

/// A header that no log has.
pub(crate) fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The entry of a host in a configuration of Docker, whose names may have a scheme and a path.
fn of_docker(host: &str, docker: &[u8]) -> Result<(String, String), InvalidLogin> {
    let DockerConfig { auths } = serde_json::from_slice(docker).map_err(|_| InvalidLogin::Docker)?;
    let host_of = |name: &str| {
        let name = name.strip_prefix("https://").or_else(|| name.strip_prefix("http://")).unwrap_or(name);
        name.split('/').next().unwrap_or_default().to_owned()
    };
    let entry = auths.iter().find(|(name, _)| host_of(name) == host);
    let (_, entry) = entry.ok_or_else(|| InvalidLogin::NoEntry(host.to_owned()))?;
    if !entry.password.is_empty() {
        return Ok((entry.username.clone(), entry.password.clone()));
    }
    let decoded = STANDARD.decode(&entry.auth).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let pair = decoded.as_deref().and_then(|text| text.split_once(':'));
    pair.map(|(user, password)| (user.to_owned(), password.to_owned())).ok_or(InvalidLogin::Docker)
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(keys: &[(&str, &str)]) -> Result<Option<(String, String)>, InvalidLogin> {
        let keys: HashMap<String, Vec<u8>> =
            keys.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        Login::of_keys("registry.example.com:5000", |key| keys.get(key).map(Vec::as_slice)).map(|login| login.basic)
    }

    #[test]
    fn secrets_of_several_types_are_credentials() {
        let pair = |user: &str, password: &str| Ok(Some((user.to_owned(), password.to_owned())));
        assert_eq!(login(&[]), Ok(None));
        assert_eq!(login(&[("username", "ann"), ("password", "x\n")]), pair("ann", "x"));
        assert_eq!(login(&[("token", "t")]), pair("stoa", "t"));
        let docker = |name: &str, entry: &str| {
            let text = format!(r#"{{"auths": {{"{name}": {entry}}}}}"#);
            login(&[(DOCKER, &text)])
        };
        let entry = r#"{"username": "ann", "password": "x"}"#;
        assert_eq!(docker("registry.example.com:5000", entry), pair("ann", "x"));
        assert_eq!(docker("https://registry.example.com:5000/v1/", r#"{"auth": "YW5uOng6eQ=="}"#), pair("ann", "x:y"));
        let missing = InvalidLogin::NoEntry("registry.example.com:5000".to_owned());
        assert_eq!(docker("registry.example.com", entry), Err(missing));
        assert_eq!(docker("registry.example.com:5000", r#"{"auth": "?"}"#), Err(InvalidLogin::Docker));
        assert_eq!(login(&[(DOCKER, "[]")]), Err(InvalidLogin::Docker));
    }

    #[test]
    fn credentials_are_not_shown() {
        let keys: HashMap<&str, &[u8]> = HashMap::from([("password", b"hunter2".as_slice())]);
        let login = Login::of_keys("a", |key| keys.get(key).copied()).unwrap();
        let shown = format!("{login:?} {:?}", login.basic());
        assert!(!shown.contains("hunter2") && !shown.contains(&STANDARD.encode("stoa:hunter2")), "{shown}");
    }
}
