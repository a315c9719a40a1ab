//! The signals that end a server.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that is cancelled at the first SIGTERM or SIGINT, which do nothing else any more.
///
/// Follows `SetupSignalContext` in `k8s.io/apiserver/pkg/server`. Fails when the signals cannot be listened to.
///
/// # Panics
///
/// Outside of a Tokio runtime.
pub fn shutdown_signal() -> io::Result<CancellationToken> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let token = CancellationToken::new();
    let told = token.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("a signal to end");
        told.cancel();
    });
    Ok(token)
}
