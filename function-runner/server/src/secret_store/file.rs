//! A file of the source that age encrypted: a map of secrets in YAML or JSON, each with its properties.

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Map, Value};
use stoa_engine::stored_secret::StoredSecret;
use stoa_sops::age;

use super::service::Store;
use super::{Credentials, invalid};
use crate::failure::Failure;

/// The settings of the store.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Settings {
    /// The path from the root of the source.
    path: String,
}

/// The secrets of a file.
pub(super) struct EncryptedFile {
    path: String,
    secrets: Map<String, Value>,
}

impl EncryptedFile {
    /// Decrypts the file, which the API server sent, by the identities in the keys `*.agekey` of the Secret.
    pub(super) fn new(settings: Settings, file: Option<&[u8]>, credentials: &Credentials<'_>) -> Result<Self, Failure> {
        let path = settings.path;
        let Some(file) = file else {
            return Err(invalid(format!("{path}: the API server sent no file; it is older than this function-runner")));
        };
        let identities = age::identities(credentials.0.iter().map(|(key, value)| (key.as_str(), &value[..])))
            .map_err(|error| invalid(format!("the Secret of the secret store: {error}")))?;
        let wrong = |why: &dyn std::fmt::Display| invalid(format!("{path}: {why}"));
        let clear = age::decrypt(file, &identities).map_err(|error| wrong(&error))?;
        // The text of an error may quote the content.
        let text = std::str::from_utf8(&clear).map_err(|_| wrong(&"the decrypted file is not UTF-8"))?;
        let values = crate::generate::yaml_values(text);
        match values.as_slice() {
            [Value::Object(secrets)] => Ok(Self { secrets: secrets.clone(), path }),
            _ => Err(wrong(&"the decrypted file is no map of secrets in YAML or JSON")),
        }
    }
}

#[async_trait]
impl Store for EncryptedFile {
    fn title(&self) -> &'static str {
        "the encrypted file"
    }

    async fn properties(&self, stored: &StoredSecret) -> Result<Map<String, Value>, Failure> {
        let path = &self.path;
        if stored.version.is_some() {
            return Err(invalid(format!("{stored}: {path} has no versions; remove ?version")));
        }
        match self.secrets.get(&stored.name) {
            Some(Value::Object(properties)) => Ok(properties.clone()),
            Some(Value::String(text)) => Ok(Map::from_iter([("value".to_owned(), text.clone().into())])),
            Some(_) => Err(invalid(format!("{stored}: {:?} in {path} is no map of properties", stored.name))),
            None => Err(invalid(format!("{stored}: {path} has no secret {:?}", stored.name))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use bytes::Bytes;

    use super::*;

    /// A file that `age` 1.2.1 encrypted to the key below, and whose content is
    /// `team/db: {user: shop, port: 5432}` and `token: plain`.
    const FILE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../sops/tests/data/secrets.age"));
    const KEY: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../sops/tests/data/keys.txt"));

    fn store(file: Option<&str>, key: &str) -> Result<EncryptedFile, Failure> {
        let keys = HashMap::from([("team.agekey".to_owned(), Bytes::from(key.to_owned()))]);
        let settings = Settings { path: "secrets.age".to_owned() };
        EncryptedFile::new(settings, file.map(str::as_bytes), &Credentials(&keys))
    }

    #[tokio::test]
    async fn secrets_of_a_file_have_properties() {
        let store = store(Some(FILE), KEY).unwrap();
        let texts = ["ref://team/db/user", "ref://team/db/port", "ref://token/value"];
        assert_eq!(super::super::testing::read(&store, &texts).await.unwrap(), ["shop", "5432", "plain"]);
        for (text, told) in [
            ("ref://none/x", "ref://none/x: secrets.age has no secret \"none\""),
            ("ref://team/db/x", "ref://team/db/x: the secret in the encrypted file has no property \"x\""),
            ("ref://team/db/user?version=1", "ref://team/db/user?version=1: secrets.age has no versions"),
        ] {
            let error = super::super::testing::read(&store, &[text]).await.unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn unreadable_files_name_their_path() {
        let error = |file: Option<&str>, key: &str| store(file, key).err().unwrap().problems()[0].message.clone();
        assert!(error(None, KEY).starts_with("secrets.age: the API server sent no file"));
        assert!(error(Some("plain"), KEY).starts_with("secrets.age: "));
        assert!(error(Some(FILE), "x").starts_with("the Secret of the secret store: "));
        let altered = FILE.replacen('A', "B", 3);
        assert!(error(Some(&altered), KEY).starts_with("secrets.age: "));
    }
}
