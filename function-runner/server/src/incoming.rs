//! Accepts TLS connections, with the certificates in force when they begin.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use stoa_tls::MutualTls;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::graceful_close::GracefulClose;

/// The timeout of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The number of handshakes at once: these clients are not authenticated yet.
const HANDSHAKES: usize = 256;
/// How long to wait when no connection can be accepted, such as without file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection of an authenticated client.
type Secured = GracefulClose<TlsStream<TcpStream>>;

/// The connections of authenticated clients, until `stop`.
pub(crate) fn secured(
    listener: TcpListener,
    tls: Arc<MutualTls>,
    stop: CancellationToken,
) -> ReceiverStream<io::Result<Secured>> {
    let (secured, accepted) = mpsc::channel(1);
    tokio::spawn(async move { stop.run_until_cancelled(accept(listener, tls, secured)).await });
    ReceiverStream::new(accepted)
}

async fn accept(listener: TcpListener, tls: Arc<MutualTls>, secured: mpsc::Sender<io::Result<Secured>>) {
    let places = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("nobody closes the semaphore");
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (acceptor, secured) = (TlsAcceptor::from(tls.config()), secured.clone());
        tokio::spawn(async move {
            let handshake = async {
                stream.set_nodelay(true)?;
                acceptor.accept(stream).await
            };
            match tokio::time::timeout(HANDSHAKE, handshake).await {
                // Nobody takes it once the server ends.
                Ok(Ok(stream)) => drop(secured.send(Ok(GracefulClose::new(stream))).await),
                Ok(Err(error)) => tracing::info!(%error, %peer, "a client was rejected"),
                Err(_) => tracing::info!(%peer, "a client did not finish its handshake"),
            }
            drop(place);
        });
    }
}
