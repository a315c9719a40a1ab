//! Files of age, version 1, with recipients of X25519: <https://github.com/C2SP/C2SP/blob/main/age.md>.
//!
//! Start at [`identities`] and [`decrypt`]. Recipients of other types, such as passphrases and SSH keys, are passed over.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD as PADDED};
use openssl::derive::Deriver;
use openssl::pkey::{Id, PKey, Private};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::hmac;

use crate::bech32;

const VERSION: &str = "age-encryption.org/v1";
const ARMOR: (&str, &str) = ("-----BEGIN AGE ENCRYPTED FILE-----", "-----END AGE ENCRYPTED FILE-----");
/// The end of names of keys of a Secret with identities, as in Flux.
const KEY_SUFFIX: &str = ".agekey";
/// The bytes of a file key.
const FILE_KEY: usize = 16;
/// The bytes of a chunk of the content, and of a tag after it.
const CHUNK: usize = 64 << 10;
const TAG: usize = 16;
/// The most recipients of a file.
const RECIPIENTS: usize = 1000;
/// Base64 without padding, whose last bits are zero.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::RequireNone),
);

/// A private key that opens files.
pub struct Identity {
    key: PKey<Private>,
    public: Vec<u8>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity")
    }
}

/// The reason that a file or key cannot be used. No message quotes either.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgeError {
    /// A Secret has no identity.
    #[error("no key ends in .agekey; add one with the identity that age-keygen writes")]
    NoIdentity,
    /// A key of a Secret has another content.
    #[error("key {0:?} has no age identity, a line AGE-SECRET-KEY-1...")]
    InvalidIdentity(String),
    /// The file is no file of age.
    #[error("it is no file of age: {0}")]
    Malformed(&'static str),
    /// No identity opens the file.
    #[error("no age key of the Secret opens it; encrypt it to the public key of one of them")]
    NotARecipient,
    /// The file was changed after its encryption.
    #[error("it was changed after its encryption")]
    Tampered,
}

const MALFORMED_HEADER: AgeError = AgeError::Malformed("its header is damaged");

/// The identities in the keys of a Secret that end in `.agekey`, in the form of `age-keygen`.
///
/// # Errors
///
/// [`AgeError::NoIdentity`] and [`AgeError::InvalidIdentity`].
pub fn identities<'s>(secret: impl IntoIterator<Item = (&'s str, &'s [u8])>) -> Result<Vec<Identity>, AgeError> {
    let mut identities = Vec::new();
    for (key, text) in secret.into_iter().filter(|(key, _)| key.ends_with(KEY_SUFFIX)) {
        let before = identities.len();
        let invalid = || AgeError::InvalidIdentity(key.to_owned());
        let text = std::str::from_utf8(text).map_err(|_| invalid())?;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            identities.push(Identity::read(line).ok_or_else(invalid)?);
        }
        if identities.len() == before {
            return Err(invalid());
        }
    }
    if identities.is_empty() { Err(AgeError::NoIdentity) } else { Ok(identities) }
}

impl Identity {
    fn read(line: &str) -> Option<Self> {
        let secret = bech32::decode(line, "age-secret-key-").filter(|secret| secret.len() == 32)?;
        let key = PKey::private_key_from_raw_bytes(&secret, Id::X25519).ok()?;
        let public = key.raw_public_key().ok()?;
        Some(Self { key, public })
    }

    /// The file key that a recipient's stanza has for this identity.
    fn unwrap(&self, share: &[u8], body: &[u8]) -> Option<Vec<u8>> {
        let peer = PKey::public_key_from_raw_bytes(share, Id::X25519).ok()?;
        let mut deriver = Deriver::new(&self.key).ok()?;
        deriver.set_peer(&peer).ok()?;
        let shared = deriver.derive_to_vec().ok().filter(|shared| shared.iter().any(|byte| *byte != 0))?;
        let salt = [share, &self.public].concat();
        let key = derive(&shared, &salt, b"age-encryption.org/v1/X25519");
        open(&key, [0; 12], body).filter(|file_key| file_key.len() == FILE_KEY)
    }
}

/// Decrypts a file, armored or not.
///
/// # Errors
///
/// [`AgeError::NotARecipient`] where no identity opens it, [`AgeError::Malformed`] and [`AgeError::Tampered`].
pub fn decrypt(file: &[u8], identities: &[Identity]) -> Result<Vec<u8>, AgeError> {
    let dearmored = dearmored(file)?;
    let file = dearmored.as_deref().unwrap_or(file);
    let Header { recipients, covered, mac, payload } = Header::read(file)?;
    let unwrapped =
        recipients.iter().find_map(|(share, body)| identities.iter().find_map(|identity| identity.unwrap(share, body)));
    let file_key = unwrapped.ok_or(AgeError::NotARecipient)?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, &derive(&file_key, b"", b"header"));
    hmac::verify(&key, covered, &mac).map_err(|_| AgeError::Tampered)?;
    let (nonce, chunks) = payload.split_at_checked(16).ok_or(AgeError::Tampered)?;
    content(&derive(&file_key, nonce, b"payload"), chunks).ok_or(AgeError::Tampered)
}

/// The binary form of an armored file; nothing for another one.
fn dearmored(file: &[u8]) -> Result<Option<Vec<u8>>, AgeError> {
    let Some(text) = std::str::from_utf8(file).ok().map(str::trim).filter(|text| text.starts_with(ARMOR.0)) else {
        return Ok(None);
    };
    let base64 = text.strip_prefix(ARMOR.0).and_then(|text| text.strip_suffix(ARMOR.1));
    let base64 = base64.ok_or(AgeError::Malformed("its armor has no end"))?;
    let base64: String = base64.split_ascii_whitespace().collect();
    PADDED.decode(base64).map(Some).map_err(|_| AgeError::Malformed("its armor is no base64"))
}

/// The header of a file.
struct Header<'f> {
    /// The shares and bodies of the recipients of X25519.
    recipients: Vec<(Vec<u8>, Vec<u8>)>,
    /// The part that the MAC covers.
    covered: &'f [u8],
    mac: Vec<u8>,
    payload: &'f [u8],
}

impl<'f> Header<'f> {
    fn read(file: &'f [u8]) -> Result<Self, AgeError> {
        let mut rest = file;
        let mut line = || -> Result<&'f str, AgeError> {
            let end = rest.iter().position(|byte| *byte == b'\n').ok_or(MALFORMED_HEADER)?;
            let line = std::str::from_utf8(&rest[..end]).map_err(|_| MALFORMED_HEADER)?;
            rest = &rest[end + 1..];
            Ok(line)
        };
        if line()? != VERSION {
            return Err(AgeError::Malformed("it does not begin with age-encryption.org/v1"));
        }
        let mut recipients = Vec::new();
        for _ in 0..RECIPIENTS {
            let first = line()?;
            if let Some(mac) = first.strip_prefix("--- ") {
                let mac = BASE64.decode(mac).map_err(|_| MALFORMED_HEADER)?;
                let covered = file.len() - rest.len() - first.len() - 1 + "---".len();
                return Ok(Self { recipients, covered: &file[..covered], mac, payload: rest });
            }
            let arguments: Vec<&str> = first.strip_prefix("-> ").ok_or(MALFORMED_HEADER)?.split(' ').collect();
            let mut body = String::new();
            // The last line is shorter than the others, and may be empty.
            loop {
                let part = line()?;
                body.push_str(part);
                match part.len() {
                    64 => {}
                    0..64 => break,
                    _ => return Err(MALFORMED_HEADER),
                }
            }
            if let ["X25519", share] = arguments.as_slice() {
                let decoded = |text: &str| BASE64.decode(text).map_err(|_| MALFORMED_HEADER);
                recipients.push((decoded(share)?, decoded(&body)?));
            }
        }
        Err(AgeError::Malformed("it has too many recipients"))
    }
}

/// The content, chunk by chunk; nothing if one of them was changed.
fn content(key: &[u8], mut chunks: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::with_capacity(chunks.len());
    for counter in 0_u64.. {
        let is_last = chunks.len() <= CHUNK + TAG;
        let (chunk, rest) = chunks.split_at(chunks.len().min(CHUNK + TAG));
        let mut nonce = [0; 12];
        nonce[3..11].copy_from_slice(&counter.to_be_bytes());
        nonce[11] = u8::from(is_last);
        let clear = open(key, nonce, chunk)?;
        // An empty last chunk is for empty content alone.
        if is_last && clear.is_empty() && counter > 0 {
            return None;
        }
        content.extend(clear);
        if is_last {
            return Some(content);
        }
        chunks = rest;
    }
    None
}

fn open(key: &[u8], nonce: [u8; 12], sealed: &[u8]) -> Option<Vec<u8>> {
    let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).ok()?);
    let mut bytes = sealed.to_vec();
    let length = key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut bytes).ok()?.len();
    bytes.truncate(length);
    Some(bytes)
}

/// 32 bytes by HKDF with SHA-256.
fn derive(secret: &[u8], salt: &[u8], info: &[u8]) -> [u8; 32] {
    let mut derived = [0; 32];
    let key = Salt::new(HKDF_SHA256, salt).extract(secret);
    let info = [info];
    let expanded = key.expand(&info, HKDF_SHA256).and_then(|okm| okm.fill(&mut derived));
    expanded.expect("HKDF with SHA-256 makes 32 bytes");
    derived
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = include_str!("../tests/data/keys.txt");
    const FILE: &str = include_str!("../tests/data/secrets.age");
    const LARGE: &[u8] = include_bytes!("../tests/data/large.age");
    const OTHER: &str = include_str!("../tests/data/other.txt");

    fn keys(text: &str) -> Vec<Identity> {
        identities([("a.agekey", text.as_bytes())]).unwrap()
    }

    #[test]
    fn files_of_age_are_decrypted() {
        let clear = decrypt(FILE.as_bytes(), &keys(KEYS)).unwrap();
        assert_eq!(String::from_utf8(clear).unwrap(), "team/db: {user: shop, port: 5432}\ntoken: plain\n");
        // Of two chunks: 70,000 zeros.
        assert_eq!(decrypt(LARGE, &keys(KEYS)).unwrap(), vec![0; 70_000]);
    }

    #[test]
    fn other_keys_and_changed_files_are_refused() {
        assert_eq!(decrypt(FILE.as_bytes(), &keys(OTHER)), Err(AgeError::NotARecipient));
        assert_eq!(decrypt(b"plain", &keys(KEYS)), Err(MALFORMED_HEADER));
        for at in [LARGE.len() - 1, LARGE.len() - 2000, LARGE.len() - 66_000] {
            let mut changed = LARGE.to_vec();
            changed[at] ^= 1;
            assert_eq!(decrypt(&changed, &keys(KEYS)), Err(AgeError::Tampered), "byte {at}");
        }
        assert_eq!(decrypt(&LARGE[..LARGE.len() - 10], &keys(KEYS)), Err(AgeError::Tampered));
        // Without its last chunk.
        let end = LARGE.len() - (70_000 - CHUNK) - TAG;
        assert_eq!(decrypt(&LARGE[..end], &keys(KEYS)), Err(AgeError::Tampered));
        // With a recipient more, which the MAC of the header covers.
        let end = LARGE.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let changed = [&LARGE[..end], b"-> other\n\n", &LARGE[end..]].concat();
        assert_eq!(decrypt(&changed, &keys(KEYS)), Err(AgeError::Tampered));
    }

    #[test]
    fn secrets_without_identities_are_named() {
        assert_eq!(identities([("password", &b"x"[..])]).unwrap_err(), AgeError::NoIdentity);
        for text in ["", "x", "# comment\n", "AGE-SECRET-KEY-1QQQQ"] {
            let error = identities([("a.agekey", text.as_bytes())]).unwrap_err();
            assert_eq!(error, AgeError::InvalidIdentity("a.agekey".to_owned()));
        }
    }
}
