//! Certificates and authorities in files, taken up anew when the files change.
//!
//! Start at [`Reload`], which is what is kept in files, and [`keep_reloading`], which looks into them every so often.
//! [`ServingCertificate`] is what a server shows, [`CaBundle`] whom it believes, and [`MutualTls`] the settings of a server
//! that lets nobody in whom its authorities do not vouch for. [`ServerVerifier`] is for whoever is a client.
//!
//! Nothing here knows what is served, or to whom it leads that somebody is let in.

mod authorities;
mod mutual;
mod reload;
mod servers;
mod serving;

pub use authorities::{CaBundle, CaError};
pub use mutual::MutualTls;
pub use reload::{Reload, ReloadError, keep_reloading, read};
pub use servers::ServerVerifier;
pub use serving::{CertificateError, ServingCertificate};
