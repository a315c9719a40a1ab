//! Where runners are: names that stand for several addresses, which change.

use std::{io, net::SocketAddr, str::FromStr, time::Duration};

use anyhow::{Context as _, ensure};
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the headers of an answer may be, in bytes, in which function-runners tell why a call failed.
const LONGEST_HEADERS: u32 = 64 << 10;
/// How often a connection is tried on which nothing moves, and how long the answer may take.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How long a name may take to resolve.
const RESOLVE: Duration = Duration::from_secs(5);

/// The URL of one runner or, if its name has several addresses, of as many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    uri: Uri,
    host: String,
    port: u16,
}

impl FromStr for Address {
    type Err = anyhow::Error;

    /// Reads a URL such as `https://function-runner.stoa-system.svc:7443`.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        let uri: Uri = text.parse().with_context(|| format!("--runner {text:?} is no URL"))?;
        ensure!(uri.scheme_str() == Some("https"), "--runner {text:?} does not begin with https://");
        ensure!(matches!(uri.path(), "" | "/"), "--runner {text:?} has a path");
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        ensure!(!host.is_empty(), "--runner {text:?} names no host");
        let port = uri.port_u16().unwrap_or(443);
        Ok(Self { uri, host, port })
    }
}

impl Address {
    /// One that is talked to without TLS.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn in_clear(address: SocketAddr) -> Self {
        let uri = format!("http://{address}").parse().expect("an address makes a URL");
        Self { uri, host: address.ip().to_string(), port: address.port() }
    }

    pub(super) fn url(&self) -> String {
        self.uri.to_string().trim_end_matches('/').to_owned()
    }

    /// What the name stands for now, in the order of the resolver's preference.
    ///
    /// # Errors
    ///
    /// When nobody knows the name, or the answer takes too long.
    pub(super) async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let found = tokio::time::timeout(RESOLVE, tokio::net::lookup_host((self.host.as_str(), self.port))).await;
        Ok(found.map_err(|_| io::ErrorKind::TimedOut)??.collect())
    }

    /// A lazy channel to one address of the name. The certificate there has to be valid for the name.
    pub(super) fn channel(
        &self,
        to: SocketAddr,
        tls: Option<&ClientTlsConfig>,
    ) -> Result<Channel, tonic::transport::Error> {
        let mut endpoint = Endpoint::from(self.uri.clone())
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .http2_max_header_list_size(LONGEST_HEADERS);
        if let Some(tls) = tls {
            endpoint = endpoint.tls_config(tls.clone().domain_name(&self.host))?;
        }
        let connect = move |_: Uri| async move {
            let stream = TcpStream::connect(to).await?;
            stream.set_nodelay(true)?;
            io::Result::Ok(TokioIo::new(stream))
        };
        Ok(endpoint.connect_with_connector_lazy(tower::service_fn(connect)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_url_of_https() {
        let read = |text: &str| text.parse::<Address>().map(|address| (address.host, address.port));
        assert_eq!(read("https://runners.svc:7443").unwrap(), ("runners.svc".to_owned(), 7443));
        assert_eq!(read("https://[::1]/").unwrap(), ("::1".to_owned(), 443));
        for wrong in ["runners.svc:7443", "http://runners.svc:7443", "https://runners.svc/v1", ""] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
