//! The file with the encryption keys: a key on each line, 32 random bytes in base64, or the text that a service made of them.
//! Empty lines and comments after `#` are skipped.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use parking_lot::Mutex;
use ring::{
    hkdf,
    rand::{SecureRandom as _, SystemRandom},
};
use stoa_machinery::serve::ReloadError;

use super::wrapper::{Form, WrapError, Wrapper, key_of};

/// The length of a secret, in bytes.
pub(super) const LENGTH: usize = 32;

/// A key, with `name` and `secret` as a key of Kubernetes' EncryptionConfiguration; Debug prints its name alone.
#[derive(Clone, PartialEq, Eq, educe::Educe)]
#[educe(Debug)]
pub(super) struct EncryptionKey {
    name: String,
    #[educe(Debug(ignore))]
    secret: [u8; LENGTH],
}

impl EncryptionKey {
    pub(super) fn new(secret: [u8; LENGTH]) -> Self {
        let name = stoa_engine::digest::hex(&derived(&secret, "stoa sealing key id", &[])[..4]);
        Self { name, secret }
    }

    /// The name that encrypted values have: 8 hex digits, which say nothing about the secret.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// A key for one purpose in one scope. Neither this key nor another derived one follows from it.
    pub(super) fn derived(&self, purpose: &str, scope: &[&str]) -> [u8; LENGTH] {
        derived(&self.secret, purpose, scope)
    }
}

fn derived(key: &[u8; LENGTH], purpose: &str, scope: &[&str]) -> [u8; LENGTH] {
    let info = serde_json::to_vec(&(purpose, scope)).expect("texts are JSON");
    let mut out = [0; LENGTH];
    // The key is as random as what HKDF would extract from it.
    hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, key)
        .expand(&[&info], hkdf::HKDF_SHA256)
        .and_then(|derived| derived.fill(&mut out))
        .expect("one block is what SHA-256 gives");
    out
}

/// The problem of a file with keys. No message contains a part of the file.
#[derive(Debug, thiserror::Error)]
enum KeyError {
    #[error("there is no key in it; `head --bytes=32 /dev/urandom | base64` makes one")]
    NoKey,
    #[error("line {0} is no key: 32 bytes in base64, as from `head --bytes=32 /dev/urandom | base64`")]
    Line(usize),
    #[error("line {0} has a key that is there already")]
    Twice(usize),
    #[error("line {line} is a key that {} wrapped; name the service with {}", form.service, form.flag)]
    NoWrapper { line: usize, form: &'static Form },
    #[error("line {0} cannot be unwrapped")]
    Wrapped(usize, #[source] WrapError),
}

/// The file, and the service that wraps keys in it.
#[derive(educe::Educe)]
#[educe(Debug)]
pub(super) struct KeyFile {
    path: PathBuf,
    wrapper: Option<Wrapper>,
    /// The keys by the texts that the service made of them, so that it is asked once for each.
    #[educe(Debug(ignore))]
    unwrapped: Mutex<HashMap<String, [u8; LENGTH]>>,
}

impl KeyFile {
    pub(super) fn new(path: &Path, wrapper: Option<Wrapper>) -> Self {
        Self { path: path.to_owned(), wrapper, unwrapped: Mutex::default() }
    }

    /// The file of this name in a folder; it is made, with one new key, when it is not there.
    pub(super) fn in_folder(folder: &Path, name: &str, wrapper: Option<Wrapper>) -> anyhow::Result<Self> {
        let path = folder.join(name);
        if !path.try_exists().with_context(|| format!("{} cannot be read", path.display()))? {
            let mut bytes = [0; LENGTH];
            SystemRandom::new().fill(&mut bytes).ok().context("the system has no random bytes")?;
            let line = match &wrapper {
                Some(wrapper) => wrapper.wrap(&bytes).context("a new sealing key cannot be wrapped")?,
                None => STANDARD.encode(bytes),
            };
            let text = format!("{line}\n");
            stoa_pki::files::write_private(&path, text.as_bytes())?;
            tracing::info!(
                path = %path.display(),
                "a key for sensitive values was made; without it no earlier release that has any can be rolled back to"
            );
        }
        Ok(Self::new(&path, wrapper))
    }

    pub(super) fn read(&self) -> Result<Vec<EncryptionKey>, ReloadError> {
        let text =
            fs::read_to_string(&self.path).map_err(|source| ReloadError::Read { path: self.path.clone(), source })?;
        let unwrap = |number, form, line: &str| self.unwrap(number, form, line);
        parse(&text, &unwrap)
            .map_err(|error| ReloadError::Unusable { path: self.path.clone(), source: Box::new(error) })
    }

    /// The key that a service wrapped in a line of this number.
    fn unwrap(&self, number: usize, form: &'static Form, line: &str) -> Result<[u8; LENGTH], KeyError> {
        let wrapper = self.wrapper.as_ref().filter(|wrapper| wrapper.form() == form);
        let wrapper = wrapper.ok_or(KeyError::NoWrapper { line: number, form })?;
        if let Some(known) = self.unwrapped.lock().get(line) {
            return Ok(*known);
        }
        let secret = wrapper.unwrap(line).map_err(|error| KeyError::Wrapped(number, error))?;
        self.unwrapped.lock().insert(line.to_owned(), secret);
        Ok(secret)
    }
}

/// Unwraps the key in a line of this number and form.
type Unwrap<'a> = dyn Fn(usize, &'static Form, &str) -> Result<[u8; LENGTH], KeyError> + 'a;

fn parse(text: &str, unwrap: &Unwrap<'_>) -> Result<Vec<EncryptionKey>, KeyError> {
    let mut keys = Vec::new();
    for (index, line) in text.lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let bytes = match Form::of(line) {
            Some(form) => unwrap(index + 1, form, line)?,
            None => key_of(line).ok_or(KeyError::Line(index + 1))?,
        };
        let key = EncryptionKey::new(bytes);
        if keys.contains(&key) {
            return Err(KeyError::Twice(index + 1));
        }
        keys.push(key);
    }
    if keys.is_empty() { Err(KeyError::NoKey) } else { Ok(keys) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use tempfile::TempDir;

    use super::super::{
        kms::{self, Kms},
        transit,
    };
    use super::*;

    #[test]
    fn a_file_has_a_key_on_each_line() {
        let line = |byte: u8| STANDARD.encode([byte; LENGTH]);
        let read = |text: &str| parse(text, &|line, form, _| Err(KeyError::NoWrapper { line, form }));
        let ids = |text: &str| read(text).unwrap().into_iter().map(|key| key.secret[0]).collect::<Vec<_>>();
        assert_eq!(ids(&format!("# new\n{}\r\n\n  {}  ", line(1), line(2))), [1, 2]);
        assert!(matches!(read("# none\n\n"), Err(KeyError::NoKey)));
        assert!(matches!(read(&format!("{}\nhunter2\n", line(1))), Err(KeyError::Line(2))));
        assert!(matches!(read(&STANDARD.encode([1; 31])), Err(KeyError::Line(1))));
        assert!(matches!(read(&format!("{}\n{}\n", line(1), line(1))), Err(KeyError::Twice(2))));
        for wrapped in ["vault:v1:abc", "aws-kms:abc"] {
            assert!(matches!(read(&format!("{}\n{wrapped}\n", line(1))), Err(KeyError::NoWrapper { line: 2, .. })));
        }
    }

    #[test]
    fn vault_wraps_the_new_key_of_a_first_start() {
        let folder = TempDir::new().unwrap();
        let transit = transit::tests::transit(transit::tests::stub("s.token"), folder.path());
        let file = KeyFile::in_folder(folder.path(), "sealing.key", Some(Wrapper::Transit(transit.clone()))).unwrap();
        let text = fs::read_to_string(folder.path().join("sealing.key")).unwrap();
        assert!(text.starts_with("vault:v1:") && text.lines().count() == 1, "{text}");
        let keys = file.read().unwrap();
        assert_eq!((keys.len(), file.read().unwrap()), (1, keys.clone()));
        // A key that is known is there without Vault, and another one is not.
        fs::write(&transit.token_file, "s.other").unwrap();
        assert_eq!(file.read().unwrap(), keys);
        let path = folder.path().join("sealing.key");
        let error = KeyFile::new(&path, Some(Wrapper::Transit(transit))).read().unwrap_err();
        let message = stoa_outbound::causes(&error);
        assert!(message.contains("line 1 cannot be unwrapped: Vault at"), "{message}");
        let without = KeyFile::new(&path, None).read().unwrap_err();
        assert!(stoa_outbound::causes(&without).contains("--sealing-key-vault-server"), "{without}");
    }

    #[test]
    fn restart_unwraps_the_key_that_kms_wrapped() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("sealing.key");
        let kms = kms::tests::kms(kms::tests::stub());
        let start = |kms: &Kms| KeyFile::in_folder(folder.path(), "sealing.key", Some(Wrapper::Kms(kms.clone())));
        let keys = start(&kms).unwrap().read().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("aws-kms:") && text.lines().count() == 1, "{text}");
        assert_eq!(start(&kms).unwrap().read().unwrap(), keys);
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "a restart writes nothing");
        let other = Kms { key: "alias/other".to_owned(), ..kms };
        let message = stoa_outbound::causes(&start(&other).unwrap().read().unwrap_err());
        assert!(message.contains("line 1 cannot be unwrapped: AWS KMS at"), "{message}");
        assert!(message.contains("with the key alias/other") && !message.contains(text.trim()), "{message}");
        let vault = transit::tests::transit("http://127.0.0.1:1".to_owned(), folder.path());
        let error = KeyFile::new(&path, Some(Wrapper::Transit(vault))).read().unwrap_err();
        let message = stoa_outbound::causes(&error);
        assert!(message.contains("line 1 is a key that AWS KMS wrapped"), "{message}");
        assert!(message.contains("--sealing-key-kms-key"), "{message}");
    }

    #[test]
    fn first_start_makes_a_private_key() {
        let folder = TempDir::new().unwrap();
        let key = || KeyFile::in_folder(folder.path(), "sealing.key", None).unwrap().read().unwrap();
        let first = key();
        assert_eq!((first.len(), key()), (1, first));
        let mode = fs::metadata(folder.path().join("sealing.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let other = TempDir::new().unwrap();
        assert_ne!(KeyFile::in_folder(other.path(), "sealing.key", None).unwrap().read().unwrap(), key());
    }

    #[test]
    fn a_key_is_shown_by_its_id_alone() {
        let key = EncryptionKey::new([9; LENGTH]);
        assert_eq!(format!("{key:?}"), format!("EncryptionKey {{ name: {:?} }}", key.name()));
        assert!(key.name().len() == 8 && key.name() != EncryptionKey::new([8; LENGTH]).name());
    }

    #[test]
    fn keys_for_other_purposes_and_scopes_are_others() {
        let key = EncryptionKey::new([9; LENGTH]);
        let keys = [
            key.derived("a", &["b", "c"]),
            key.derived("a", &["b"]),
            key.derived("a", &["bc"]),
            key.derived("ab", &["c"]),
            EncryptionKey::new([8; LENGTH]).derived("a", &["b", "c"]),
        ];
        for (index, derived) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(derived) && *derived != key.secret, "{index}");
        }
    }
}
