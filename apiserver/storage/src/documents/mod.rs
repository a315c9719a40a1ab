//! Large, immutable bodies by their digest: Specs, plans, states, logs, generated files.
//!
//! Start at [`DocumentStore`]; [`LocalDocuments`] stores them in a directory, [`S3Documents`] in a bucket. The contract of every
//! implementation is in `conformance` (feature of the same name).
//!
//! A store has no notion of "current": records in the log have digests, and only the log decides which document counts. So a
//! document is never overwritten, and a second write of one is harmless. A backend need not offer a conditional write; where it
//! does, the store uses it against mistakes.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod error;
mod local;
pub mod s3;

use std::{fmt, str::FromStr};

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use self::{
    error::{DocumentError, Refusal},
    local::LocalDocuments,
    s3::S3Documents,
};

/// The name of a document: the SHA-256 of its bytes, written `sha256:<64 hexadecimal digits>`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The 64 hexadecimal digits, in lower case.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

/// Text that is no digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no digest: expected \"sha256:\" and 64 hexadecimal digits in lower case")]
pub struct InvalidDigest(String);

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let invalid = || InvalidDigest(text.to_owned());
        let hex = text.strip_prefix("sha256:").map(str::as_bytes).filter(|hex| hex.len() == 64).ok_or_else(invalid)?;
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(invalid()),
        };
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Self(digest))
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

/// A document that was asked for up to a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measured {
    /// It has no more bytes than that.
    Whole(Bytes),
    /// Its size, without a read.
    Larger(u64),
}

/// Keeps documents.
///
/// A *scope* is where a document lives, such as `<organization>/<stack uid>`: one to eight path
/// segments of letters, digits, `-`, `_` and `.`, none of which begins with a dot. The same bytes
/// in two scopes are two documents, so that each scope can be removed by itself.
///
/// Every method may be called from many tasks at once, and again after any error.
#[async_trait]
pub trait DocumentStore: fmt::Debug + Send + Sync + 'static {
    /// Keeps `bytes` and returns their digest once they are durable. Dropping the future leaves
    /// the document there whole or not at all.
    ///
    /// # Errors
    ///
    /// [`DocumentError::Scope`]; [`DocumentError::Unavailable`] when the store is out of reach, [`DocumentError::Full`] and
    /// [`DocumentError::Refused`]; and [`DocumentError::Conflict`] where something else is in the document's place and
    /// the store writes nothing over.
    async fn put(&self, scope: &str, bytes: Bytes) -> Result<Digest, DocumentError>;

    /// The same for a document that is owed, such as the record of what was done already: it may take of the room that the
    /// store leaves free of others.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    async fn put_owed(&self, scope: &str, bytes: Bytes) -> Result<Digest, DocumentError> {
        self.put(scope, bytes).await
    }

    /// The size of a document, without a read; `None` when it does not exist.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    async fn size(&self, scope: &str, digest: &Digest) -> Result<Option<u64>, DocumentError>;

    /// Reads a document; `None` when it is not there. What is returned has that digest.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put), and [`DocumentError::Corrupt`] when what is stored has another
    /// digest.
    async fn get(&self, scope: &str, digest: &Digest) -> Result<Option<Bytes>, DocumentError>;

    /// Reads a document of at most `most` bytes, or else returns its size; `None` when it does not exist. For mostly small
    /// documents that is one request each instead of two.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    async fn get_at_most(&self, scope: &str, digest: &Digest, most: u64) -> Result<Option<Measured>, DocumentError> {
        match self.size(scope, digest).await? {
            Some(bytes) if bytes > most => Ok(Some(Measured::Larger(bytes))),
            Some(_) => Ok(self.get(scope, digest).await?.map(Measured::Whole)),
            None => Ok(None),
        }
    }

    /// The documents directly in `scope`, in the order of their digests.
    async fn list(&self, scope: &str) -> Result<Vec<Digest>, DocumentError>;

    /// Reads a file of others in the same store, by its path from the root of the store; `None` when it does not exist.
    /// Files are read-only.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put): [`DocumentError::Scope`] when it [is no path](file_segments). And
    /// [`DocumentError::TooLarge`] when it has more than `most` bytes, of which none is read then.
    async fn file(&self, path: &str, most: u64) -> Result<Option<Bytes>, DocumentError>;

    /// Removes a document. One that is not there counts as removed.
    async fn delete(&self, scope: &str, digest: &Digest) -> Result<(), DocumentError>;
}

/// Checks a scope and returns its segments. Implementations call it first in every method.
///
/// # Errors
///
/// [`DocumentError::Scope`].
pub fn scope_segments(scope: &str) -> Result<Vec<&str>, DocumentError> {
    let segments: Vec<&str> = scope.split('/').collect();
    let fine = |segment: &&str| {
        !segment.is_empty()
            && !segment.starts_with('.')
            && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    if segments.len() <= 8 && segments.iter().all(fine) {
        Ok(segments)
    } else {
        Err(DocumentError::Scope(scope.to_owned()))
    }
}

/// Checks the path of a file and returns its segments: up to 32 of letters, digits and `-_.+@= `. Only the last may begin
/// with a dot, and then goes on otherwise, so that no path leads out.
///
/// # Errors
///
/// [`DocumentError::Scope`].
pub fn file_segments(path: &str) -> Result<Vec<&str>, DocumentError> {
    let segments: Vec<&str> = path.split('/').collect();
    let is_fine = |(position, segment): (usize, &&str)| {
        let is_named = !segment.is_empty() && segment.len() <= 255;
        let may_be_hidden = position + 1 == segments.len() && position > 0 && !segment.starts_with("..");
        is_named
            && (!segment.starts_with('.') || (may_be_hidden && segment.len() > 1))
            && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.+@= ".contains(&byte))
    };
    if segments.len() <= 32 && segments.iter().enumerate().all(is_fine) {
        Ok(segments)
    } else {
        Err(DocumentError::Scope(path.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_as_it_is_read() {
        let digest = Digest::of(b"abc");
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse(), Ok(digest));
        assert_eq!(serde_json::to_string(&digest).unwrap(), format!("{text:?}"));
    }

    #[test]
    fn other_text_is_no_digest() {
        let short = "sha256:ba78";
        let upper = Digest::of(b"abc").to_string().to_uppercase();
        let foreign = format!("sha256:{}", "ä".repeat(32));
        for text in ["", "sha256:", short, &upper, &foreign, &"0".repeat(64)] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_scope_cannot_leave_its_place() {
        for scope in ["shop/0b5c", "a", "a.b/c_d-e"] {
            assert!(scope_segments(scope).is_ok(), "{scope}");
        }
        for scope in ["", "/", "a/", "/a", "a//b", "..", "a/../b", ".a", "a\\b", "a b", "a\0", "1/2/3/4/5/6/7/8/9"] {
            assert!(matches!(scope_segments(scope), Err(DocumentError::Scope(_))), "{scope}");
        }
    }
}
