//! Encryption at rest: documents contain sensitive values only as text that nobody reads, or compares with a guess, without
//! the key.
//!
//! Start at [`Encryption`]. Its keys follow the rules of Kubernetes' EncryptionConfiguration: the first key encrypts, every key
//! decrypts, and each value names its key. A value is encrypted with AES-256-GCM, under a key that is derived for its scope,
//! and bound to its position in the Spec, so that it decrypts nowhere else. The nonce is a keyed digest of the position and
//! the value: an equal value at an equal position has an equal text, and an unchanged Spec an equal digest. Texts are padded
//! to a multiple of 32 bytes, which hides most of the length of a value.
//!
//! The states of providers are encrypted in the same way, each as a whole, with other derived keys.
//!
//! Elsewhere: `keys` reads the file with the keys, and `wrapper` has a service wrap them. `stoa_engine::sealed` decides which
//! values of a Spec are encrypted, and `state` encrypts the states of providers before it records them.

mod keys;
mod kms;
mod transit;
mod wrapper;

use std::{path::Path, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use parking_lot::RwLock;
use ring::{
    aead::{self, AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac,
};
use serde_json::{Value, json};
use stoa_engine::{
    DigestKey, FieldPath, ProviderState, ResourceId, Spec,
    digest::canonical_json,
    sealed::{self, FieldLocation},
};
use stoa_machinery::serve::Reload;

pub use stoa_cloud_signatures::AwsKeys;

use self::keys::{EncryptionKey, KeyFile};
pub use self::{
    kms::{AwsCredentials, Kms},
    transit::Transit,
    wrapper::Wrapper,
};

/// The form that is written here: `v1:<id of the key>:<base64 of nonce, ciphertext and tag>`.
const FORM: &str = "v1";
/// Values are made as long as the next multiple of this, in bytes.
const STEP: usize = 32;
/// The file in the data directory that has the keys when no other is named.
const FILE: &str = "sealing.key";

/// Why a value does not decrypt. No message contains a value or a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecryptError {
    /// The key file does not have its key.
    #[error("it is sealed with the key {0}, which is not among the sealing keys")]
    NoKey(String),
    /// It was changed, or moved here from another position.
    #[error("what is sealed in {0} was changed, or was sealed in another place")]
    Changed(String),
    /// Its form is unknown.
    #[error("what is sealed in {0} is in a form that is not known here")]
    Unknown(String),
}

impl DecryptError {
    /// How to repair it.
    pub(crate) fn advice(&self) -> &'static str {
        match self {
            Self::NoKey(_) => "put that key behind the others in the file with the sealing keys",
            Self::Changed(_) => "restore it from a backup",
            Self::Unknown(_) => "run the version of Stoa that wrote it, or a later one",
        }
    }
}

/// Encrypts and decrypts with the keys of a file.
#[derive(Clone, Debug)]
pub struct Encryption {
    file: Arc<KeyFile>,
    /// Never empty. The first encrypts, all decrypt. Work, which may be long, takes its own reference.
    keys: Arc<RwLock<Arc<[EncryptionKey]>>>,
}

impl Encryption {
    /// Reads the keys from `key_file`, or else from the data directory, where a key is generated if there is none. The caller
    /// has the data directory to itself.
    ///
    /// # Errors
    ///
    /// When there is no usable key, with how to make one. Replicas that share a log need `key_file`.
    pub fn open(key_file: Option<&Path>, is_replicated: bool, data_dir: &Path) -> anyhow::Result<Self> {
        Self::open_wrapped(None, key_file, is_replicated, data_dir)
    }

    /// The same with a service that wraps keys in the file.
    ///
    /// # Errors
    ///
    /// Also when the service does not unwrap a key.
    pub fn open_wrapped(
        wrapper: Option<Wrapper>,
        key_file: Option<&Path>,
        is_replicated: bool,
        data_dir: &Path,
    ) -> anyhow::Result<Self> {
        let file = match key_file {
            Some(path) => KeyFile::new(path, wrapper),
            None => {
                anyhow::ensure!(
                    !is_replicated,
                    "replicas on etcd need the same sealing key: name its file with --sealing-key-file. \
                     `head --bytes=32 /dev/urandom | base64` makes a key"
                );
                KeyFile::in_folder(data_dir, FILE, wrapper)?
            }
        };
        let keys = file.read()?;
        Ok(Self::with(file, keys))
    }

    /// Keys of these bytes. The first one encrypts.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn with_keys(bytes: &[u8]) -> Self {
        let keys = bytes.iter().map(|byte| EncryptionKey::new([*byte; 32])).collect();
        Self::with(KeyFile::new(Path::new("/nowhere"), None), keys)
    }

    fn with(file: KeyFile, keys: Vec<EncryptionKey>) -> Self {
        Self { file: Arc::new(file), keys: Arc::new(RwLock::new(keys.into())) }
    }

    fn keys(&self) -> Arc<[EncryptionKey]> {
        Arc::clone(&self.keys.read())
    }

    /// The Spec with its sensitive values encrypted. `scope` is the scope of its documents.
    pub(crate) fn encrypt(&self, scope: &str, spec: &Spec) -> Spec {
        let keys = self.keys();
        let cipher = Cipher::new(&keys[0], Purpose::Spec, scope);
        sealed::seal(spec, &mut |place, value| cipher.encrypt(place, value))
    }

    /// The Spec with its values decrypted; one that was stored before encryption stays as it is.
    ///
    /// # Errors
    ///
    /// The problem of the first value that does not decrypt.
    pub(crate) fn decrypt(&self, scope: &str, spec: &Spec) -> Result<Spec, DecryptError> {
        let keys = self.keys();
        let mut ciphers = Ciphers { keys: &keys, purpose: Purpose::Spec, scope, known: Vec::new() };
        sealed::open(spec, &mut |place, text| ciphers.decrypt(place, text))
    }

    /// The provider state of a resource, encrypted; it stays as it is if it is encrypted already.
    pub(crate) fn seal_state(&self, scope: &str, id: &ResourceId, state: &ProviderState) -> ProviderState {
        let ProviderState::Open(clear) = state else { return state.clone() };
        let keys = self.keys();
        let cipher = Cipher::new(&keys[0], Purpose::ProviderState, scope);
        let sealed = provider_state(id, |place| cipher.encrypt(place, &Value::from(clear.as_str())));
        ProviderState::Sealed(sealed)
    }

    /// The provider state of a resource in clear.
    ///
    /// # Errors
    ///
    /// Why it does not decrypt.
    pub(crate) fn open_state(
        &self,
        scope: &str,
        id: &ResourceId,
        state: &ProviderState,
    ) -> Result<ProviderState, DecryptError> {
        let ProviderState::Sealed(sealed) = state else { return Ok(state.clone()) };
        let keys = self.keys();
        let mut ciphers = Ciphers { keys: &keys, purpose: Purpose::ProviderState, scope, known: Vec::new() };
        provider_state(id, |place| match ciphers.decrypt(place, sealed)? {
            Value::String(clear) => Ok(ProviderState::Open(clear)),
            _ => Err(DecryptError::Unknown(place.to_json().to_string())),
        })
    }

    /// Whether an encrypted provider state has another key than new ones get.
    pub(crate) fn is_of_old_key(&self, state: &ProviderState) -> bool {
        let ProviderState::Sealed(sealed) = state else { return false };
        sealed.split(':').nth(1) != Some(self.keys()[0].name())
    }

    /// The keys for digests in the state of a Stack in a workspace; the first is of the encrypting key.
    pub(crate) fn digest_keys(&self, scope: &str, workspace: &str) -> Vec<DigestKey> {
        let keys = self.keys();
        keys.iter().map(|key| key.derived("stoa state digest", &[scope, workspace])).collect()
    }
}

impl Reload for Encryption {
    fn reload(&self) -> Result<bool, stoa_machinery::serve::ReloadError> {
        let read = self.file.read()?;
        let is_new = *self.keys() != *read;
        if is_new {
            *self.keys.write() = read.into();
        }
        Ok(is_new)
    }
}

/// Calls with the position of a provider state.
fn provider_state<T>(id: &ResourceId, with: impl FnOnce(FieldLocation<'_>) -> T) -> T {
    with(FieldLocation { resource: Some(id), path: &FieldPath::of_keys(["providerState"]) })
}

/// The kind of document that has a value. An attribute of a Spec may be at the position of a provider state.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Spec,
    ProviderState,
}

impl Purpose {
    /// The names of its keys: for the cipher and for nonces.
    fn names(self) -> [&'static str; 2] {
        match self {
            Self::Spec => ["stoa seal", "stoa seal nonce"],
            Self::ProviderState => ["stoa provider state", "stoa provider state nonce"],
        }
    }
}

/// The keys for values of one purpose in one scope, made as values name them.
struct Ciphers<'a> {
    keys: &'a [EncryptionKey],
    purpose: Purpose,
    scope: &'a str,
    known: Vec<Cipher<'a>>,
}

impl Ciphers<'_> {
    fn decrypt(&mut self, place: FieldLocation<'_>, text: &str) -> Result<Value, DecryptError> {
        let unknown = || DecryptError::Unknown(place.to_json().to_string());
        let mut parts = text.splitn(3, ':');
        let (Some(FORM), Some(name), Some(bytes)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(unknown());
        };
        let bytes = STANDARD.decode(bytes).map_err(|_| unknown())?;
        let known = match self.known.iter().position(|cipher| cipher.name == name) {
            Some(known) => known,
            None => {
                let mut keys = self.keys.iter();
                let key = keys.find(|key| key.name() == name).ok_or_else(|| DecryptError::NoKey(name.to_owned()))?;
                self.known.push(Cipher::new(key, self.purpose, self.scope));
                self.known.len() - 1
            }
        };
        let value = self.known[known].decrypt(place, &bytes);
        value.ok_or_else(|| DecryptError::Changed(place.to_json().to_string()))
    }
}

/// One key in one scope.
struct Cipher<'a> {
    name: &'a str,
    scope: &'a str,
    cipher: LessSafeKey,
    nonces: hmac::Key,
}

impl<'a> Cipher<'a> {
    fn new(key: &'a EncryptionKey, purpose: Purpose, scope: &'a str) -> Self {
        let [cipher, nonces] = purpose.names().map(|name| key.derived(name, &[scope]));
        let cipher = UnboundKey::new(&AES_256_GCM, &cipher).expect("it has 32 bytes");
        let nonces = hmac::Key::new(hmac::HMAC_SHA256, &nonces);
        Self { name: key.name(), scope, cipher: LessSafeKey::new(cipher), nonces }
    }

    fn encrypt(&self, place: FieldLocation<'_>, value: &Value) -> String {
        let bound = self.bound(place);
        let mut text = canonical_json(value);
        // Space behind a value means nothing in JSON.
        text.resize(text.len().next_multiple_of(STEP), b' ');
        let mut digest = hmac::Context::with_key(&self.nonces);
        for part in [&(bound.len() as u64).to_be_bytes(), bound.as_slice(), &text] {
            digest.update(part);
        }
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&digest.sign().as_ref()[..NONCE_LEN]);
        self.cipher
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(bound), &mut text)
            .expect("a value is smaller than the cipher takes");
        format!("{FORM}:{}:{}", self.name, STANDARD.encode([&nonce, text.as_slice()].concat()))
    }

    fn decrypt(&self, place: FieldLocation<'_>, bytes: &[u8]) -> Option<Value> {
        let (nonce, text) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = text.to_vec();
        let text = self.cipher.open_in_place(nonce, Aad::from(self.bound(place)), &mut text).ok()?;
        serde_json::from_slice(text).ok()
    }

    /// The binding of an encrypted value: the form, the scope and the position in the Spec.
    fn bound(&self, place: FieldLocation<'_>) -> Vec<u8> {
        canonical_json(&json!([FORM, self.scope, place.to_json()]))
    }
}

const _: () = assert!(aead::NONCE_LEN <= ring::digest::SHA256_OUTPUT_LEN);

#[cfg(test)]
mod tests;
