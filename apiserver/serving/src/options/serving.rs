//! The flags of secure serving: address, port and certificate.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use clap::Args;

use crate::serve::{ReloadError, ServingCertificate};

/// Where a server listens, and with which certificate.
#[derive(Clone, Debug, Args)]
pub struct SecureServingOptions {
    /// IP address to listen on
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Port to listen on
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// Serving certificate, PEM; reloaded after a change
    #[arg(long)]
    pub tls_cert_file: PathBuf,
    /// Private key of the serving certificate, PEM
    #[arg(long)]
    pub tls_private_key_file: PathBuf,
}

impl SecureServingOptions {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.bind_address, self.secure_port)
    }

    /// Reads the certificate and its key.
    pub fn certificate(&self) -> Result<Arc<ServingCertificate>, ReloadError> {
        ServingCertificate::from_files(&self.tls_cert_file, &self.tls_private_key_file).map(Arc::new)
    }
}
