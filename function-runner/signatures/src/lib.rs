//! Signatures of commits, tags and OCI artifacts, verified by public keys.
//!
//! Start at [`TrustedKeys`]. It reads no file, socket or clock: a signature counts by the time that it names, so the same
//! input always gives the same result. Parsers are here, and `ring` verifies.
//!
//! Elsewhere: the function-runner fetches the objects, and decides which of them need a signature.

mod algorithm;
mod armor;
mod cosign;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod git;
mod keys;
mod openpgp;
mod ssh;

pub use self::cosign::{CERTIFICATE_ANNOTATION, SIGNATURE_ANNOTATION, SIMPLE_SIGNING, signature_tag};
pub use self::git::{SignedTag, tag_of};
pub use self::keys::{InvalidKeys, TrustedKeys};

/// The key that made a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    /// The fingerprint: `SHA256:…` for SSH, 40 hex digits for OpenPGP, `sha256:<hex>` of the public key for cosign.
    pub key: String,
    /// The owner by the list of keys: a principal, a comment or a user ID. Empty if the list has none.
    pub name: String,
}

impl std::fmt::Display for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.name.is_empty() { f.write_str(&self.key) } else { write!(f, "{} ({})", self.key, self.name) }
    }
}

/// The reason that an object is not verified, as the end of a sentence about the object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    /// The object has no signature.
    #[error("has no signature")]
    Missing,
    /// No trusted key made the signature.
    #[error("has a signature by {key}, {why}")]
    Untrusted {
        /// The key that the signature names.
        key: String,
        /// The problem of the key, such as `which is no trusted key`.
        why: String,
    },
    /// The signature cannot be read, or does not match the object.
    #[error("has a signature that {why}")]
    Invalid {
        /// The problem, as the end of a clause about the signature.
        why: String,
    },
}

impl Unverified {
    /// The signature is keyless: its certificate is of Sigstore, whose services are not asked.
    pub fn keyless() -> Self {
        let why = "and keyless signatures are not supported: use `cosign sign --key`".to_owned();
        Self::Untrusted { key: "a certificate of Sigstore".to_owned(), why }
    }

    fn invalid(why: impl Into<String>) -> Self {
        Self::Invalid { why: why.into() }
    }

    fn unknown(key: impl Into<String>) -> Self {
        Self::Untrusted { key: key.into(), why: "which is no trusted key".to_owned() }
    }
}
