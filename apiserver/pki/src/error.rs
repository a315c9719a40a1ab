//! What can go wrong while certificates are made or kept.

use std::{io, path::PathBuf};

/// Why a certificate or key could not be made, read or written.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// The key or certificate could not be generated or encoded.
    #[error("the certificate or its key cannot be made")]
    Generate(#[from] rcgen::Error),
    /// A DNS name in the request is not ASCII.
    #[error("{name:?} is not a DNS name that a certificate can hold")]
    InvalidName {
        /// The name as asked for.
        name: String,
    },
    /// More organizations than one certificate can hold here.
    #[error("{count} organizations asked for; a certificate holds at most two")]
    TooManyOrganizations {
        /// How many were asked for.
        count: usize,
    },
    /// The validity ends before it begins, or lies where X.509 has no dates.
    #[error("a certificate cannot be valid from {not_before} to {not_after}")]
    InvalidValidity {
        /// The beginning as asked for.
        not_before: jiff::Timestamp,
        /// The end as asked for.
        not_after: jiff::Timestamp,
    },
    /// The PEM text holds no certificate that can be read.
    #[error("the PEM text holds no readable certificate")]
    NoCertificate,
    /// The certificate may not sign others.
    #[error("the certificate of {subject:?} is not a certificate authority's")]
    NotAnAuthority {
        /// The certificate's subject.
        subject: String,
    },
    /// The private key is not the one of the certificate.
    #[error("the private key does not belong to the certificate of {subject:?}")]
    KeyMismatch {
        /// The certificate's subject.
        subject: String,
    },
    /// A file could not be read or written.
    #[error("cannot access {}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}
