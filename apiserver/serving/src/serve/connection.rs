//! Connections: accepting them, serving them, and ending them in order.

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use hyper::{
    Version,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use stoa_registry::stream_timers::StreamTimers;
use stoa_tls::keep_reloading;
use tokio::{
    net::TcpStream,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    Server,
    chain::{Chain, Connection},
    h2_executor::{Opened, Streams, apart, in_time},
    plaintext, request_guard, tls,
    write_buffer::{self, LongAnswers, gather},
    write_timeout::WriteTimeout,
};
use crate::auth::PeerCertificates;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an HTTP/1.1 client may take to send a request's head, and may be idle before it: as long as Go's clients
/// keep idle connections, so that it is rarely the server that ends one just as the next request is sent. And how long an
/// HTTP/2 client may take until its first request; from then on, pings tell whether it is there.
const HEAD_TIMEOUT: Duration = Duration::from_secs(90);
/// After how much silence an HTTP/2 client is asked whether it is still there, and how long it may take to say so.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long an HTTP/1.1 client may make no room for more to be written: as long as one of HTTP/2 may be silent. A full
/// socket has room again when a third of its buffer is free, which takes a client of a few kB a second longer.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// How many requests one HTTP/2 connection may have at once: kube-apiserver's default, as the aggregation layer sends
/// the watches of all its clients over few connections.
const MAX_STREAMS: u32 = 1000;
/// The most bytes of an HTTP/1.1 request before its body, as in Go, which reads so much more than a MiB at once. A front
/// proxy may send many groups and extras.
const MAX_HEAD_BYTES: usize = (1 << 20) + 4096;
/// The most bytes of an HTTP/2 request's headers, each of which counts as 32 more: in Go there are those of ten besides.
const MAX_HEADER_LIST: u32 = (1 << 20) + 10 * 32;
/// How many headers an HTTP/1.1 request may have: each group of a front proxy's user is one, and it switches protocols
/// by HTTP/1.1 alone. In Go their bytes alone count. Here as many take 256 kB while a head is read, however few it has.
const MAX_HEADERS: usize = 4_000;
/// How many bytes of a request may be on their way unread; upstream's `resourceBody99Percentile`.
const UPLOAD_WINDOW: u32 = 256 * 1024;

pub(super) async fn run(server: Server, stop: CancellationToken) {
    let Server { listener, tls, chain, limits, reloads, .. } = server;
    // Dropped with this future, which ends everything at once.
    let mut connections = JoinSet::new();
    let background = CancellationToken::new();
    let _end_background = background.clone().drop_guard();
    let _end_outlasting = chain.outlasting.end.clone().drop_guard();
    tokio::spawn(keep_reloading(reloads, limits.reload_interval, background));
    let closing = CancellationToken::new();

    let mut until = pin!(async {
        stop.cancelled().await;
        tracing::info!(delay = ?limits.shutdown_delay, "shutting down: not ready any more");
        chain.health.shut_down();
        sleep(limits.shutdown_delay).await;
    });
    loop {
        tokio::select! {
            () = &mut until => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let acceptor = TlsAcceptor::from(tls.config());
                    connections.spawn(connection(acceptor, stream, peer, chain.clone(), closing.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    // Out of file descriptors, most likely; trying at once would only spin.
                    if !is_the_peers_fault(&error) {
                        sleep(Duration::from_millis(100)).await;
                    }
                }
            },
        }
    }
    drop(listener);
    tracing::info!(connections = connections.len(), "shutting down: draining");
    let outlasting = &chain.outlasting;
    outlasting.end.cancel();
    closing.cancel();
    let drained = timeout(limits.drain_timeout, async {
        while connections.join_next().await.is_some() {}
        // Nobody begins any more of it now.
        outlasting.tasks.close();
        outlasting.tasks.wait().await;
    });
    let drained = drained.await;
    if drained.is_err() {
        let outlasting = outlasting.tasks.len();
        tracing::warn!(connections = connections.len(), outlasting, "shutting down: breaking off what has not ended");
        connections.shutdown().await;
    }
}

fn is_the_peers_fault(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn connection(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    peer: SocketAddr,
    chain: Arc<Chain>,
    closing: CancellationToken,
) {
    // Answers are written whole; waiting to fill a packet would only delay watch events.
    let _ = stream.set_nodelay(true);
    let handshake = timeout(HANDSHAKE_TIMEOUT, plaintext::accept(acceptor, stream));
    let stream = match closing.run_until_cancelled(handshake).await {
        Some(Ok(Ok(stream))) => stream,
        Some(failed) => {
            chain.metrics.tls_handshake_errors.inc();
            if let Ok(Err(error)) = failed {
                tracing::debug!(%error, "TLS handshake error");
            }
            return;
        }
        None => return,
    };
    let presented = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificates = PeerCertificates::new(presented.iter().map(|c| c.clone().into_owned()).collect());
    let close = closing.child_token();
    let long_answers = LongAnswers::default();
    let shared = Arc::new(Connection { certificates, peer, close: close.clone(), long_answers: long_answers.clone() });
    let asked = Arc::new(AtomicBool::new(false));
    let asks = asked.clone();
    let service = service_fn(move |request| {
        asks.store(true, Ordering::Relaxed);
        let (chain, shared) = (chain.clone(), shared.clone());
        async move {
            match request_guard::refused(&request) {
                Some(refused) => refused,
                // Streams share a task, and requests of HTTP/1.1 have the connection's to themselves.
                None if request.version() == Version::HTTP_2 => Ok(in_time(apart(chain.serve(shared, request)).await)),
                None => Ok(chain.serve(shared, request).await),
            }
        }
    });
    let ended = if stream.get_ref().1.alpn_protocol() == Some(tls::HTTP2) {
        let opened = Opened::default();
        let mut streams = Streams::new(opened.clone());
        let (socket, mut gathering) = gather(stream, long_answers);
        let serving = pin!(http2(opened).serve_connection(TokioIo::new(socket), service));
        let mut patience = StreamTimers::new();
        patience.set(sleep(HEAD_TIMEOUT));
        drive(serving, &close, http2::Connection::graceful_shutdown, |serving, context| {
            if !asked.load(Ordering::Relaxed) && patience.poll_next(context).is_ready() {
                return Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut).into()));
            }
            streams.poll(context, |context| gathering.poll(serving, context))
        })
        .await
    } else {
        let serving = pin!(
            http1().serve_connection(TokioIo::new(WriteTimeout::new(stream, STALL_TIMEOUT)), service).with_upgrades()
        );
        drive(serving, &close, http1::UpgradeableConnection::graceful_shutdown, |serving, context| {
            serving.poll(context).map_err(Into::into)
        })
        .await
    };
    if let Err(error) = ended {
        tracing::debug!(error, "connection error");
    }
}

/// Polls a connection to its end; from when `close` fires on it takes no more requests.
async fn drive<C>(
    mut serving: Pin<&mut C>,
    close: &CancellationToken,
    shut_down: impl Fn(Pin<&mut C>),
    mut poll: impl FnMut(Pin<&mut C>, &mut Context<'_>) -> Poll<Result<(), write_buffer::Error>>,
) -> Result<(), write_buffer::Error> {
    let mut closing = StreamTimers::new();
    closing.set(close.clone().cancelled_owned());
    poll_fn(|context| {
        if closing.poll_next(context).is_ready() {
            shut_down(serving.as_mut());
        }
        poll(serving.as_mut(), context)
    })
    .await
}

fn http1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        // Go writes names of headers in capitals; HTTP/1 lets them be read either way, but not all who read do.
        .title_case_headers(true)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        // What arrives together is read together, so that a buffer of that size may get more.
        .max_header_size(MAX_HEAD_BYTES);
    builder
}

fn http2(opened: Opened) -> http2::Builder<Opened> {
    let mut builder = http2::Builder::new(opened);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_LIST)
        .initial_stream_window_size(UPLOAD_WINDOW)
        .initial_connection_window_size(UPLOAD_WINDOW * 16);
    builder
}
