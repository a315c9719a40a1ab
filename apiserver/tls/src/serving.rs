//! The certificate that a server shows.

use std::{path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use rustls::{
    Error,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::reload::{Reload, ReloadError, read};

/// Why a serving certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The certificate or the key is not PEM.
    #[error("the serving certificate or its key is not PEM")]
    Pem(#[source] rustls_pki_types::pem::Error),
    /// The key does not belong to the certificate, or one of them is of a kind that cannot be used.
    #[error("the serving certificate and its key do not go together")]
    Unusable(#[source] Error),
}

/// The certificate that is served; another one can take its place while the server runs.
#[derive(educe::Educe)]
#[educe(Debug)]
pub struct ServingCertificate {
    files: Option<(PathBuf, PathBuf)>,
    #[educe(Debug(ignore))]
    current: ArcSwap<Current>,
}

struct Current {
    pem: (String, String),
    key: Arc<CertifiedKey>,
}

impl ServingCertificate {
    /// Serves this chain (the server's own certificate first) with this key, both PEM.
    ///
    /// # Errors
    ///
    /// [`CertificateError`].
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, CertificateError> {
        Ok(Self { files: None, current: ArcSwap::from_pointee(parse(chain.to_owned(), key.to_owned())?) })
    }

    /// Serves what is in two files, and what is put there later.
    ///
    /// # Errors
    ///
    /// [`ReloadError`].
    pub fn from_files(chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, ReloadError> {
        let files = (chain.into(), key.into());
        let current = parse(read(&files.0)?, read(&files.1)?)
            .map_err(|source| ReloadError::Certificate { path: files.0.clone(), source })?;
        Ok(Self { files: Some(files), current: ArcSwap::from_pointee(current) })
    }
}

impl Reload for ServingCertificate {
    fn reload(&self) -> Result<bool, ReloadError> {
        let Some((chain, key)) = &self.files else { return Ok(false) };
        let pem = (read(chain)?, read(key)?);
        if self.current.load().pem == pem {
            return Ok(false);
        }
        let failed = |source| ReloadError::Certificate { path: chain.clone(), source };
        self.current.store(Arc::new(parse(pem.0, pem.1).map_err(failed)?));
        Ok(true)
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load().key.clone())
    }
}

fn parse(chain: String, key: String) -> Result<Current, CertificateError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain.as_bytes()).collect();
    let private = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(CertificateError::Pem)?;
    let certificates = certificates.map_err(CertificateError::Pem)?;
    let certified =
        CertifiedKey::from_der(certificates, private, &ring::default_provider()).map_err(CertificateError::Unusable)?;
    Ok(Current { pem: (chain, key), key: Arc::new(certified) })
}
