//! Signatures of artifacts, as cosign writes them with a key.
//!
//! Start at [`Keys::verify`]. The signatures of a digest are the layers of another artifact, whose tag is made of the
//! digest: each is a text that names the digest, with a signature of ECDSA with P-256 as an annotation.

use std::collections::BTreeMap;
use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls_pki_types::{SubjectPublicKeyInfoDer, pem::PemObject as _};
use serde::Deserialize;

use super::{Digest, Document, FetchError, Registry};

/// The media type of a signed text.
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The annotation with the signature, in base64.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// The largest signed text, in bytes, and the most that are read.
const LARGEST: u64 = 64 << 10;
const MOST: usize = 64;
/// The start of a public key of P-256, before the point.
const P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Public keys, one of which has to have signed an artifact.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys(BTreeMap<String, Vec<u8>>);

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A Secret without usable keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKeys {
    /// No name ends in `.pub`.
    #[error("the Secret has no key whose name ends in .pub")]
    None,
    /// A key has another form.
    #[error("the key {0:?} of the Secret is no public key of cosign: PEM with a key of ECDSA P-256 is expected")]
    Form(String),
}

/// An artifact that is not verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// No key has signed it.
    #[error("none of the keys has signed {0}")]
    Unsigned(Digest),
    /// The signatures were not fetched.
    #[error("the signatures of {digest}")]
    Fetch {
        /// The digest of the artifact.
        digest: Digest,
        /// The reason.
        source: FetchError,
    },
}

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: Digest,
}

impl Keys {
    /// The keys of a Secret whose names end in `.pub`, as `cosign generate-key-pair` names them.
    ///
    /// # Errors
    ///
    /// If there is none, or one has another form.
    pub fn of<'a>(secret: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Result<Self, InvalidKeys> {
        let named = secret.into_iter().filter(|(name, _)| name.ends_with(".pub"));
        let keys: Result<BTreeMap<_, _>, _> = named
            .map(|(name, pem)| {
                let key = point(pem).ok_or_else(|| InvalidKeys::Form(name.to_owned()))?;
                Ok((name.to_owned(), key))
            })
            .collect();
        match keys? {
            keys if keys.is_empty() => Err(InvalidKeys::None),
            keys => Ok(Self(keys)),
        }
    }

    /// Whether one of the keys has signed a text that names the digest.
    pub fn have_signed(&self, digest: &Digest, payload: &[u8], signature: &str) -> bool {
        let Ok(signature) = STANDARD.decode(signature) else { return false };
        let named = serde_json::from_slice::<Payload>(payload).is_ok_and(|it| it.critical.image.digest == *digest);
        let has_signed = |key: &Vec<u8>| {
            UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key).verify(payload, &signature).is_ok()
        };
        named && self.0.values().any(has_signed)
    }

    /// Checks that one of the keys has signed an artifact.
    ///
    /// # Errors
    ///
    /// [`VerifyError::Unsigned`] if there is no such signature.
    pub async fn verify(&self, registry: &Registry, digest: &Digest) -> Result<(), VerifyError> {
        let fetch = |source| VerifyError::Fetch { digest: digest.clone(), source };
        let found = match registry.by_tag(&format!("sha256-{}.sig", digest.hex())).await {
            Err(FetchError::NotFound { .. }) => return Err(VerifyError::Unsigned(digest.clone())),
            found => found.map_err(fetch)?,
        };
        let layers = match found.document {
            Document::Manifest(manifest) => manifest.layers,
            Document::Index(_) => Vec::new(),
        };
        for layer in layers.iter().filter(|layer| layer.media_type == PAYLOAD).take(MOST) {
            let Some(signature) = layer.annotations.get(SIGNATURE) else { continue };
            let payload = registry.small_blob(&layer.digest, layer.size, LARGEST).await.map_err(fetch)?;
            if self.have_signed(digest, &payload, signature) {
                return Ok(());
            }
        }
        Err(VerifyError::Unsigned(digest.clone()))
    }
}

/// The point of a public key.
fn point(pem: &[u8]) -> Option<Vec<u8>> {
    let key = SubjectPublicKeyInfoDer::from_pem_slice(pem).ok()?;
    let point = key.as_ref().strip_prefix(&P256)?;
    (point.len() == 65 && point[0] == 4).then(|| point.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = include_str!("../tests/data/cosign.pub");
    const PAYLOAD: &str = include_str!("../tests/data/payload.json");
    const SIGNATURE: &str = include_str!("../tests/data/signature");

    #[test]
    fn signature_of_a_key_names_a_digest() {
        let keys = Keys::of([("cosign.pub", KEY.as_bytes()), ("password", b"x")]).unwrap();
        let digest = Digest::of(b"artifact");
        assert!(keys.have_signed(&digest, PAYLOAD.as_bytes(), SIGNATURE.trim()));
        assert!(!keys.have_signed(&Digest::of(b"other"), PAYLOAD.as_bytes(), SIGNATURE.trim()));
        assert!(!keys.have_signed(&digest, PAYLOAD.replace("tests", "other").as_bytes(), SIGNATURE.trim()));
        assert!(!keys.have_signed(&digest, PAYLOAD.as_bytes(), "AAAA"));
    }

    #[test]
    fn keys_have_one_form() {
        assert_eq!(Keys::of([("cosign.key", KEY.as_bytes())]), Err(InvalidKeys::None));
        for text in ["", "x", &KEY.replace("PUBLIC", "PRIVATE"), &KEY.replace("MFkwEwYHKoZIzj0C", "MFkwEwYHKoZIzj0D")] {
            assert_eq!(Keys::of([("a.pub", text.as_bytes())]), Err(InvalidKeys::Form("a.pub".to_owned())), "{text}");
        }
    }
}
