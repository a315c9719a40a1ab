//! The errors of a document store, one variant for each reaction of a caller.

use std::error::Error;

use super::Digest;

/// Why a [`DocumentStore`](super::DocumentStore) call failed.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The scope cannot be a path.
    #[error("{0:?} is no scope: expected path segments of letters, digits, '-', '_' and '.'")]
    Scope(String),
    /// The stored bytes are not the document they should be.
    #[error("document {digest} in {scope} is corrupt: its bytes have another digest")]
    Corrupt {
        /// Where it is.
        scope: String,
        /// What was asked for.
        digest: Digest,
    },
    /// Something else is where the document belongs, in a store that writes nothing over.
    #[error("document {digest} in {scope} cannot be kept: something else is in its place")]
    Conflict {
        /// Where it belongs.
        scope: String,
        /// What was to be kept.
        digest: Digest,
    },
    /// A file is larger than whoever asks for it takes.
    #[error("{path} has more than {most} bytes")]
    TooLarge {
        /// Where it is.
        path: String,
        /// How many bytes are taken.
        most: u64,
    },
    /// The store failed or is out of reach; this may pass by itself.
    #[error("the document store is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// There is no room. Nothing of the document was kept.
    #[error("the document store is full")]
    Full(#[source] Box<dyn Error + Send + Sync>),
    /// The store does not do it, and somebody has to see to that.
    #[error("{refusal}")]
    Refused {
        /// What is amiss.
        refusal: Refusal,
        /// What was said.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

/// What is amiss where a store refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There are no credentials to show.
    #[error("there are no credentials for the document store")]
    Credentials,
    /// The credentials are wrong, or do not allow it.
    #[error("the document store denies access")]
    Access,
    /// There is no such bucket.
    #[error("the bucket does not exist")]
    Bucket,
    /// The request is not understood, as where the region is another or this is no such service.
    #[error("the document store does not take the request")]
    Request,
}

impl DocumentError {
    /// The error with all of its causes, in one line.
    pub fn in_full(&self) -> String {
        stoa_machinery::outbound::causes(self)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn an_error_is_told_with_its_causes() {
        let error = DocumentError::Full(Box::new(io::Error::other("No space left on device")));
        assert_eq!(error.in_full(), "the document store is full: No space left on device");
        let error = DocumentError::Refused { refusal: Refusal::Bucket, source: "404 Not Found (NoSuchBucket)".into() };
        assert_eq!(error.in_full(), "the bucket does not exist: 404 Not Found (NoSuchBucket)");
    }
}
