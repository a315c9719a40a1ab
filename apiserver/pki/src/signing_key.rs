//! The key pair with which kube-apiserver signs service account tokens.

use std::fmt;

use rcgen::{KeyPair, PublicKeyData};

use crate::PkiError;

/// An ECDSA P-256 key pair with no certificate.
///
/// What `--service-account-signing-key-file` (the private half) and `--service-account-key-file` (the public half) of
/// kube-apiserver read; tokens signed with it are ES256.
pub struct SigningKey {
    pair: KeyPair,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.pair.subject_public_key_info()).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Makes a new pair.
    ///
    /// # Errors
    ///
    /// [`PkiError::Generate`] when the operating system gives no randomness.
    pub fn generate() -> Result<Self, PkiError> {
        Ok(Self { pair: KeyPair::generate()? })
    }

    /// The private half, as PKCS#8 PEM.
    pub fn private_pem(&self) -> String {
        self.pair.serialize_pem()
    }

    /// The public half, as `PUBLIC KEY` PEM.
    pub fn public_pem(&self) -> String {
        self.pair.public_key_pem()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_are_pem_and_only_the_public_one_is_shown() {
        let key = SigningKey::generate().unwrap();
        assert!(key.private_pem().starts_with("-----BEGIN PRIVATE KEY-----"));
        assert!(key.public_pem().starts_with("-----BEGIN PUBLIC KEY-----"));
        let again = KeyPair::from_pem(&key.private_pem()).unwrap();
        assert_eq!(again.public_key_pem(), key.public_pem());
        let private = key.pair.serialized_der();
        assert!(!format!("{key:?}").contains(&format!("{:?}", &private[40..60])));
    }
}
