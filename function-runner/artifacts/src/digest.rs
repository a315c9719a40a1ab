//! Digests of artifacts, and the check of bytes as they arrive.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A SHA-256: `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// A text that is no digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a digest; the form is sha256: with 64 lower-case hexadecimal digits")]
pub struct InvalidDigest(String);

const PREFIX: &str = "sha256:";

impl Digest {
    /// The digest of bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::of_hash(Sha256::digest(bytes).into())
    }

    /// The digest by the SHA-256 itself.
    pub fn of_hash(hash: [u8; 32]) -> Self {
        let mut text = PREFIX.to_owned();
        hash.iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
        Self(text)
    }

    /// The 64 digits.
    pub fn hex(&self) -> &str {
        &self.0[PREFIX.len()..]
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let is_hex = |hex: &str| hex.len() == 64 && hex.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
        match text.strip_prefix(PREFIX) {
            Some(hex) if is_hex(hex) => Ok(Self(text.to_owned())),
            _ => Err(InvalidDigest(text.chars().take(200).collect())),
        }
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The expected bytes of a blob.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Their digest. Absent where nothing names it yet.
    pub digest: Option<Digest>,
    /// Their number, if it is known.
    pub size: Option<u64>,
    /// The most that they may be.
    pub limit: u64,
}

/// Bytes that differ from the expected ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// There are too many.
    #[error("it has more than {0} bytes")]
    TooLarge(u64),
    /// There are too few or too many.
    #[error("it has {found} bytes instead of {expected}")]
    Size {
        /// The expected number.
        expected: u64,
        /// The number that arrived.
        found: u64,
    },
    /// They are others.
    #[error("it has the digest {found} instead of {expected}")]
    Digest {
        /// The expected digest.
        expected: Digest,
        /// The digest of the bytes.
        found: Digest,
    },
}

/// Checks bytes as they arrive.
pub(crate) struct Check {
    expected: Expected,
    hasher: Sha256,
    count: u64,
}

impl Check {
    pub(crate) fn new(expected: Expected) -> Self {
        Self { expected, hasher: Sha256::new(), count: 0 }
    }

    /// Adds bytes, unless there are more than expected.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<(), Mismatch> {
        self.count += bytes.len() as u64;
        if let Some(expected) = self.expected.size.filter(|expected| self.count > *expected) {
            return Err(Mismatch::Size { expected, found: self.count });
        }
        if self.count > self.expected.limit {
            return Err(Mismatch::TooLarge(self.expected.limit));
        }
        self.hasher.update(bytes);
        Ok(())
    }

    /// Compares all bytes, and returns their digest.
    pub(crate) fn finish(self) -> Result<Digest, Mismatch> {
        if let Some(expected) = self.expected.size.filter(|expected| self.count != *expected) {
            return Err(Mismatch::Size { expected, found: self.count });
        }
        let found = Digest::of_hash(self.hasher.finalize().into());
        match self.expected.digest {
            Some(expected) if expected != found => Err(Mismatch::Digest { expected, found }),
            _ => Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], digest: Option<Digest>, size: Option<u64>, limit: u64) -> Result<Digest, Mismatch> {
        let mut check = Check::new(Expected { digest, size, limit });
        bytes.chunks(3).try_for_each(|part| check.add(part))?;
        check.finish()
    }

    #[test]
    fn digests_are_sha256_in_lower_case() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(empty.parse::<Digest>().unwrap().hex(), &empty[7..]);
        for text in ["", "sha256:", &empty.to_uppercase(), &empty[1..], &format!("{empty}0"), &empty[7..]] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }

    #[test]
    fn other_bytes_are_found() {
        let digest = Digest::of(b"content");
        assert_eq!(check(b"content", Some(digest.clone()), Some(7), 7), Ok(digest.clone()));
        assert_eq!(check(b"content", None, None, 7), Ok(digest.clone()));
        assert_eq!(check(b"content", None, None, 6), Err(Mismatch::TooLarge(6)));
        let size = |found| Err(Mismatch::Size { expected: 7, found });
        assert_eq!(check(b"contents", Some(digest.clone()), Some(7), 9), size(8));
        assert_eq!(check(b"conten", Some(digest.clone()), Some(7), 9), size(6));
        let found = Digest::of(b"contend");
        assert_eq!(
            check(b"contend", Some(digest.clone()), Some(7), 9),
            Err(Mismatch::Digest { expected: digest, found })
        );
    }
}
