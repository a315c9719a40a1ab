//! Makes certificate authorities and certificates for Stoa's own connections.
//!
//! Start at [`CertificateAuthority`]: [`new`](CertificateAuthority::new) makes one,
//! [`load_or_create`](CertificateAuthority::load_or_create) keeps one in a folder, and
//! [`issue`](CertificateAuthority::issue) signs what a [`CertificateRequest`] asks for. All keys are ECDSA P-256
//! and everything is PEM: certificates as `CERTIFICATE`, keys as PKCS#8 `PRIVATE KEY`.
//!
//! [`Kubeconfig`] renders the file that clients read, and [`files`] writes private keys so that only their owner can read them.
//!
//! This crate makes certificates; who believes them is decided where TLS ends.

mod authority;
mod error;
pub mod files;
mod kubeconfig;

pub use authority::{
    CertificateAuthority, CertificateRequest, IssuedCertificate, Usage, Validity, certificate_validity,
};
pub use error::PkiError;
pub use kubeconfig::Kubeconfig;
