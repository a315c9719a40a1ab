//! TLS for servers that let in only whom their authorities vouch for.

use std::{path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use rustls::{Error, ServerConfig, crypto::ring, server::NoServerSessionStorage};

use crate::{
    authorities::{CaBundle, CaError},
    reload::{Reload, ReloadError, read},
    serving::ServingCertificate,
};

/// The TLS settings of a server whose clients all have certificates of its authorities; both the server's certificate and
/// the authorities can be replaced while it runs. Connections that are open stay.
#[derive(educe::Educe)]
#[educe(Debug)]
pub struct MutualTls {
    certificate: Arc<ServingCertificate>,
    authorities: PathBuf,
    protocols: Vec<Vec<u8>>,
    #[educe(Debug(ignore))]
    current: ArcSwap<(Arc<CaBundle>, Arc<ServerConfig>)>,
}

impl MutualTls {
    /// Serves `certificate`, lets in the clients of the authorities in the file `authorities`, and speaks these protocols
    /// (ALPN), the best first.
    ///
    /// # Errors
    ///
    /// [`ReloadError`].
    pub fn new(
        certificate: ServingCertificate,
        authorities: impl Into<PathBuf>,
        protocols: &[&[u8]],
    ) -> Result<Self, ReloadError> {
        let (certificate, authorities) = (Arc::new(certificate), authorities.into());
        let protocols: Vec<Vec<u8>> = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let pem = read(&authorities)?;
        let failed = |source: CaError| ReloadError::Ca { path: authorities.clone(), source };
        let bundle = Arc::new(CaBundle::parse(&pem).map_err(failed)?);
        let config = config(certificate.clone(), bundle.clone(), protocols.clone());
        let config = config.map_err(|e| failed(CaError::Certificate(e)))?;
        Ok(Self { certificate, authorities, protocols, current: ArcSwap::from_pointee((bundle, config)) })
    }

    fn reload_authorities(&self) -> Result<bool, ReloadError> {
        let pem = read(&self.authorities)?;
        if self.current.load().0.pem() == pem {
            return Ok(false);
        }
        let failed = |source: CaError| ReloadError::Ca { path: self.authorities.clone(), source };
        let bundle = Arc::new(CaBundle::parse(&pem).map_err(failed)?);
        let config = config(self.certificate.clone(), bundle.clone(), self.protocols.clone());
        self.current.store(Arc::new((bundle, config.map_err(|e| failed(CaError::Certificate(e)))?)));
        Ok(true)
    }

    /// The settings for a connection that begins now.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.current.load().1.clone()
    }
}

impl Reload for MutualTls {
    fn reload(&self) -> Result<bool, ReloadError> {
        // One is taken up though the other cannot be used: a server whose own certificate has expired is of no use.
        let (authorities, certificate) = (self.reload_authorities(), self.certificate.reload());
        Ok(authorities? | certificate?)
    }
}

fn config(
    certificate: Arc<ServingCertificate>,
    authorities: Arc<CaBundle>,
    protocols: Vec<Vec<u8>>,
) -> Result<Arc<ServerConfig>, Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(authorities)
        .with_cert_resolver(certificate);
    config.alpn_protocols = protocols;
    // A session that is resumed would be that of a client whose certificate nobody looks at again.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
