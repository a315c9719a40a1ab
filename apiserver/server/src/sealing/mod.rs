//! Sealing: sensitive values are kept only as what nobody can read, or compare with a guess, who has not the key.
//!
//! Start at [`Sealing`]. A value is sealed with AES-256-GCM, under a key of its scope that is derived from the sealing
//! key, and bound to its place, so that it opens nowhere else. The nonce is a keyed digest of the place and the value:
//! the same value in the same place has the same sealed text, and so a Spec that did not change the same digest. Texts
//! come in steps of 32 bytes, so that their length says little of the value's.
//!
//! Elsewhere: [`keys`] reads the file with the keys; which values are sealed is `stoa_engine::sealed`'s to say.

mod keys;

use std::{path::Path, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use parking_lot::RwLock;
use ring::{
    aead::{self, AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac,
};
use serde_json::{Value, json};
use stoa_engine::{
    DigestKey, Spec,
    digest::canonical_json,
    sealed::{self, FieldLocation},
};
use stoa_machinery::serve::Reload;

use self::keys::{KeyFile, SealingKey};
use crate::options::StorageOptions;

/// The form that is written here: `v1:<id of the key>:<base64 of nonce, ciphertext and tag>`.
const FORM: &str = "v1";
/// Values are made as long as the next multiple of this, in bytes.
const STEP: usize = 32;
/// The file in the data directory that has the keys when no other is named.
const FILE: &str = "sealing.key";

/// Why a sealed value does not open. Nothing here tells a value or a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SealError {
    /// The key that it was sealed with is not here.
    #[error("it is sealed with the key {0}, which is not among the sealing keys")]
    NoKey(String),
    /// It was changed, or moved here from another place.
    #[error("what is sealed in {0} was changed, or was sealed in another place")]
    Changed(String),
    /// It is not as anything is sealed here.
    #[error("what is sealed in {0} is in a form that is not known here")]
    Unknown(String),
}

impl SealError {
    /// What somebody can do about it.
    pub(crate) fn advice(&self) -> &'static str {
        match self {
            Self::NoKey(_) => "put that key behind the others in the file with the sealing keys",
            Self::Changed(_) => "restore it from a backup",
            Self::Unknown(_) => "run the version of Stoa that wrote it, or a later one",
        }
    }
}

/// Seals and opens with the keys of a file.
#[derive(Clone, Debug)]
pub(crate) struct Sealing {
    file: Arc<KeyFile>,
    /// Never empty. The first seals, all open. They are taken out for work, which may be long.
    keys: Arc<RwLock<Arc<[SealingKey]>>>,
}

impl Sealing {
    /// Takes the keys that the options name, or those in the data directory, where one is made if there is none. The
    /// caller has the data directory to itself.
    ///
    /// # Errors
    ///
    /// When there is no usable key, with how to make one.
    pub(crate) fn open(options: &StorageOptions, data_dir: &Path) -> anyhow::Result<Self> {
        let file = match &options.sealing_key_file {
            Some(path) => KeyFile::new(path),
            None => {
                anyhow::ensure!(
                    options.etcd_servers.is_empty(),
                    "replicas on etcd need the same sealing key: name its file with --sealing-key-file. \
                     `head --bytes=32 /dev/urandom | base64` makes a key"
                );
                KeyFile::in_folder(data_dir, FILE)?
            }
        };
        let keys = file.read()?;
        Ok(Self::with(file, keys))
    }

    fn with(file: KeyFile, keys: Vec<SealingKey>) -> Self {
        Self { file: Arc::new(file), keys: Arc::new(RwLock::new(keys.into())) }
    }

    /// The keys as they are now.
    fn keys(&self) -> Arc<[SealingKey]> {
        Arc::clone(&self.keys.read())
    }

    /// A Spec as it is kept, with what is sensitive of it sealed. `scope` is where its documents are.
    pub(crate) fn seal(&self, scope: &str, spec: &Spec) -> Spec {
        let keys = self.keys();
        let sealer = Sealer::new(&keys[0], scope);
        sealed::seal(spec, &mut |place, value| sealer.seal(place, value))
    }

    /// The Spec that was sealed, or was kept before anything was.
    ///
    /// # Errors
    ///
    /// What is wrong with the first value that does not open.
    pub(crate) fn unseal(&self, scope: &str, spec: &Spec) -> Result<Spec, SealError> {
        let keys = self.keys();
        let mut sealers: Vec<Sealer<'_>> = Vec::new();
        sealed::open(spec, &mut |place, text| {
            let unknown = || SealError::Unknown(place.to_json().to_string());
            let mut parts = text.splitn(3, ':');
            let (Some(FORM), Some(id), Some(bytes)) = (parts.next(), parts.next(), parts.next()) else {
                return Err(unknown());
            };
            let bytes = STANDARD.decode(bytes).map_err(|_| unknown())?;
            let known = match sealers.iter().position(|sealer| sealer.id == id) {
                Some(known) => known,
                None => {
                    let key = keys.iter().find(|key| key.id() == id).ok_or_else(|| SealError::NoKey(id.to_owned()))?;
                    sealers.push(Sealer::new(key, scope));
                    sealers.len() - 1
                }
            };
            sealers[known].open(place, &bytes).ok_or_else(|| SealError::Changed(place.to_json().to_string()))
        })
    }

    /// The keys for digests in the state of the stack whose documents are in `scope`, in a workspace. The first is of the
    /// key that seals.
    pub(crate) fn digest_keys(&self, scope: &str, workspace: &str) -> Vec<DigestKey> {
        let keys = self.keys();
        keys.iter().map(|key| key.derived("stoa state digest", &[scope, workspace])).collect()
    }
}

impl Reload for Sealing {
    fn reload(&self) -> Result<bool, stoa_machinery::serve::ReloadError> {
        let read = self.file.read()?;
        let is_new = *self.keys() != *read;
        if is_new {
            *self.keys.write() = read.into();
        }
        Ok(is_new)
    }
}

/// One key in one scope.
struct Sealer<'a> {
    id: &'a str,
    scope: &'a str,
    cipher: LessSafeKey,
    nonces: hmac::Key,
}

impl<'a> Sealer<'a> {
    fn new(key: &'a SealingKey, scope: &'a str) -> Self {
        let cipher = UnboundKey::new(&AES_256_GCM, &key.derived("stoa seal", &[scope])).expect("it has 32 bytes");
        let nonces = hmac::Key::new(hmac::HMAC_SHA256, &key.derived("stoa seal nonce", &[scope]));
        Self { id: key.id(), scope, cipher: LessSafeKey::new(cipher), nonces }
    }

    fn seal(&self, place: FieldLocation<'_>, value: &Value) -> String {
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
        format!("{FORM}:{}:{}", self.id, STANDARD.encode([&nonce, text.as_slice()].concat()))
    }

    fn open(&self, place: FieldLocation<'_>, bytes: &[u8]) -> Option<Value> {
        let (nonce, text) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = text.to_vec();
        let text = self.cipher.open_in_place(nonce, Aad::from(self.bound(place)), &mut text).ok()?;
        serde_json::from_slice(text).ok()
    }

    /// What a sealed value is bound to: the form, the scope and the place in the Spec.
    fn bound(&self, place: FieldLocation<'_>) -> Vec<u8> {
        canonical_json(&json!([FORM, self.scope, place.to_json()]))
    }
}

const _: () = assert!(aead::NONCE_LEN <= ring::digest::SHA256_OUTPUT_LEN);

/// Sealing with keys of these bytes, the first of which seals, for tests.
#[cfg(test)]
pub(crate) fn with_keys(bytes: &[u8]) -> Sealing {
    let keys = bytes.iter().map(|byte| SealingKey::new([*byte; 32])).collect();
    Sealing::with(KeyFile::new(Path::new("/nowhere")), keys)
}

#[cfg(test)]
mod tests;
