//! From the names of hosts to addresses.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
    vec,
};

use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::Service;

/// Finds addresses as the system does, but for `localhost` and names below it: those are loopback, whatever somebody else
/// says of them (RFC 6761, section 6.3). Many systems know but the first, and ask the network for the others.
#[derive(Clone, Debug)]
pub struct Resolver(GaiResolver);

impl Resolver {
    pub(crate) fn new() -> Self {
        Self(GaiResolver::new())
    }
}

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        if is_loopback(name.as_str()) {
            // The port is the connector's to set.
            let addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))];
            return Box::pin(async move { Ok(Vec::from(addresses).into_iter()) });
        }
        let found = self.0.call(name);
        Box::pin(async move { Ok(found.await?.collect::<Vec<_>>().into_iter()) })
    }
}

/// Whether a name is `localhost` or below it.
fn is_loopback(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case("localhost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_below_localhost_are_loopback_and_others_are_not() {
        for name in ["localhost", "documents.localhost", "a.b.LocalHost", "documents.localhost."] {
            assert!(is_loopback(name), "{name}");
        }
        for name in ["localhost.example.com", "notlocalhost", "documents.notlocalhost", "", ".", "localhost.."] {
            assert!(!is_loopback(name), "{name}");
        }
    }

    #[tokio::test]
    async fn no_name_server_is_asked_for_them() {
        let found = Resolver::new().call("documents.localhost".parse().unwrap()).await.unwrap();
        assert!(found.into_iter().all(|address| address.ip().is_loopback()));
        // By the system, which knows addresses without asking.
        let found: Vec<SocketAddr> = Resolver::new().call("192.0.2.1".parse().unwrap()).await.unwrap().collect();
        assert_eq!(found, [SocketAddr::from(([192, 0, 2, 1], 0))]);
    }
}
