//! The algorithms of signatures that `ring` verifies.

use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};

/// A hash that signatures may use. SHA-1 and MD5 are broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    pub(crate) fn digest(self, data: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => &ring::digest::SHA256,
            Self::Sha384 => &ring::digest::SHA384,
            Self::Sha512 => &ring::digest::SHA512,
        };
        ring::digest::digest(algorithm, data).as_ref().to_vec()
    }
}

/// A curve of ECDSA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Curve {
    P256,
    P384,
}

impl Curve {
    /// The length of a number, in bytes.
    fn size(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
        }
    }
}

/// Whether an Ed25519 signature matches.
pub(crate) fn ed25519(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    matches(&signature::ED25519, key, message, signature)
}

/// Whether an ECDSA signature matches: `key` is an uncompressed point, `r` and `s` are big-endian numbers. `None` for a
/// pair of curve and hash that is not supported.
pub(crate) fn ecdsa(curve: Curve, hash: Hash, key: &[u8], message: &[u8], (r, s): (&[u8], &[u8])) -> Option<bool> {
    let algorithm: &'static dyn VerificationAlgorithm = match (curve, hash) {
        (Curve::P256, Hash::Sha256) => &signature::ECDSA_P256_SHA256_FIXED,
        (Curve::P384, Hash::Sha384) => &signature::ECDSA_P384_SHA384_FIXED,
        (Curve::P256 | Curve::P384, _) => return None,
    };
    let numbers = [r, s].map(|number| padded(number, curve.size()));
    let [Some(r), Some(s)] = numbers else { return Some(false) };
    Some(matches(algorithm, key, message, &[r, s].concat()))
}

/// Whether an RSA signature (PKCS #1 v1.5) matches. Keys have 2048 to 8192 bits.
pub(crate) fn rsa(hash: Hash, (n, e): (&[u8], &[u8]), message: &[u8], signature: &[u8]) -> bool {
    let parameters = match hash {
        Hash::Sha256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Hash::Sha384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Hash::Sha512 => &signature::RSA_PKCS1_2048_8192_SHA512,
    };
    let n = without_zeros(n);
    let Some(signature) = padded(signature, n.len()) else { return false };
    RsaPublicKeyComponents { n, e: without_zeros(e) }.verify(parameters, message, &signature).is_ok()
}

fn matches(algorithm: &'static dyn VerificationAlgorithm, key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
}

/// A big-endian number with leading zeros up to a size; `None` for a larger one.
pub(crate) fn padded(number: &[u8], size: usize) -> Option<Vec<u8>> {
    let number = without_zeros(number);
    let zeros = size.checked_sub(number.len())?;
    Some([vec![0; zeros].as_slice(), number].concat())
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_fixed_size() {
        assert_eq!(padded(&[0, 1, 2], 4), Some(vec![0, 0, 1, 2]));
        assert_eq!(padded(&[1, 2, 3], 2), None);
        assert_eq!(padded(&[], 2), Some(vec![0, 0]));
    }
}
