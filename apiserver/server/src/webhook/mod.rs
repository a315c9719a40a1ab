//! Webhooks: a Git server says that there was a push, or news of a pull request, and the source is looked at without waiting for
//! its interval. An event of Flux's notification controller is a report of a Reconciler.
//!
//! A Git server has no credentials of the cluster, and the API in front of Stoa accepts no others. So this is a listener of its
//! own, which can be exposed alone. It serves `POST /webhooks/<namespace>/<source>`,
//! `POST /webhooks/<namespace>/repositories/<repository>` for Repositories of packages and
//! `POST /webhooks/<namespace>/environments/<environment>` for fleets, and no other path for Git servers. The content of such a
//! delivery is neither believed nor stored: a sender with the secret only requests a fetch, which comes at its time anyway.
//! `POST /webhooks/<namespace>/reconcilers/<reconciler>` is for Flux. A sender with the secret reports deployments of this
//! Reconciler alone ([`flux_event`]).
//!
//! Any replica takes deliveries: it notes the time in the Source's status, where the controller of sources sees it.
//!
//! Anybody may connect, so that who says nothing has a short time, and who has not proved to have the secret no place that a
//! delivery needs ([`waiting`]), however long its body takes.

mod flux_event;
mod proof;
mod receivers;
mod waiting;

use std::{collections::HashMap, convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::ServerConfig;
use stoa_machinery::{ApiError, serve::ServingCertificate};
use stoa_runs::Services;
use stoa_types::hub::Reconciler;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{Semaphore, SemaphorePermit},
    task::JoinSet,
    time::Instant,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use self::{
    flux_event::NoDeployment,
    proof::{Check, Proof},
    receivers::{Hooked, record},
    waiting::{ConnectionSlot, WaitingConnections},
};

/// How long a delivery may take, from the connection to the answer.
const TIME: Duration = Duration::from_secs(20);
/// How much of that until it has sent its headers.
const SILENCE: Duration = Duration::from_secs(3);
/// How many deliveries ask the cluster for a Secret, or for a look, at once.
const AT_ONCE: usize = 64;
/// How many connections there may be that have proved nothing yet, or wait for one of those places. Each has the buffers of TLS
/// and HTTP, and of a body no more than an event of Flux ([`LARGEST_EVENT`]).
const MOST_WAITING: usize = 512;
/// The largest delivery: GitHub's largest.
const LARGEST: usize = 25 << 20;
/// The largest event of Flux. It stays in memory until its signature is checked.
const LARGEST_EVENT: usize = 128 << 10;
/// How long a secret is remembered, so that strangers make no more requests to the cluster than this allows.
const REMEMBERED: Duration = Duration::from_secs(10);

/// A listener that takes no deliveries yet.
#[derive(Debug)]
pub(crate) struct Webhooks {
    listener: TcpListener,
    tls: Arc<ServerConfig>,
}

impl Webhooks {
    /// Listens, with the server's certificate.
    ///
    /// # Errors
    ///
    /// When the address cannot be listened on, or TLS cannot be set up.
    pub(crate) async fn bind(address: SocketAddr, certificate: Arc<ServingCertificate>) -> anyhow::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(certificate);
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
        Ok(Self { listener, tls: Arc::new(tls) })
    }

    /// Takes deliveries until the token ends.
    pub(crate) async fn serve(self, services: Services, end: CancellationToken) {
        let (shared, waiting) = (Shared::new(services, self.tls), WaitingConnections::new(MOST_WAITING));
        let mut connections = JoinSet::new();
        loop {
            match end.run_until_cancelled(self.listener.accept()).await {
                None => return,
                Some(Ok((stream, peer))) => {
                    connections.spawn(connection(shared.clone(), stream, waiting.enter(peer.ip())));
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, "cannot accept a webhook's connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
            while connections.try_join_next().is_some() {}
        }
    }
}

/// What all connections need.
#[derive(Clone)]
struct Shared {
    receiver: Arc<Receiver>,
    acceptor: TlsAcceptor,
}

impl Shared {
    fn new(services: Services, tls: Arc<ServerConfig>) -> Self {
        let receiver = Receiver { services, secrets: Mutex::default(), work: Semaphore::new(AT_ONCE) };
        Self { receiver: Arc::new(receiver), acceptor: TlsAcceptor::from(tls) }
    }
}

/// Takes the delivery of a connection, until its time is over, it has said nothing for too long, or it loses its place.
async fn connection<S>(shared: Shared, stream: S, place: ConnectionSlot)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (place, heard) = (Arc::new(place), CancellationToken::new());
    let silent = async {
        if tokio::time::timeout(SILENCE, heard.cancelled()).await.is_ok() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        _ = tokio::time::timeout(TIME, exchange(shared, stream, place.clone(), heard.clone())) => {}
        () = silent => {}
        () = place.lost() => {}
    }
}

/// Takes a delivery, and says when its headers were heard.
async fn exchange<S>(shared: Shared, stream: S, place: Arc<ConnectionSlot>, heard: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Ok(stream) = shared.acceptor.accept(stream).await else { return };
    let service = service_fn(move |request| {
        let (receiver, place, heard) = (shared.receiver.clone(), place.clone(), heard.clone());
        async move {
            heard.cancel();
            Ok::<_, Infallible>(receiver.answer(request, &place).await)
        }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).keep_alive(false).max_buf_size(64 << 10);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a webhook's connection broke off");
    }
}

/// What a delivery comes to, if it is not taken.
#[derive(Debug)]
enum Refusal {
    /// There is nothing at this path.
    NoPath,
    /// It is no POST.
    NoPost,
    /// Whatever keeps a sender from being known: strangers do not learn which sources there are.
    Unknown,
    /// It is larger than any.
    TooLarge,
    /// It broke off.
    Broken,
    /// It is no event of Flux.
    NoEvent,
    /// It may be sent again.
    Unavailable,
}

impl Refusal {
    fn answer(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NoPath => (
                StatusCode::NOT_FOUND,
                "the path is /webhooks/<namespace>/<source>, /webhooks/<namespace>/repositories/<repository>, \
                 /webhooks/<namespace>/environments/<environment> or /webhooks/<namespace>/reconcilers/<reconciler>",
            ),
            Self::NoPost => (StatusCode::METHOD_NOT_ALLOWED, "deliveries are posted"),
            Self::Unknown => (
                StatusCode::UNAUTHORIZED,
                "there is no such object with a webhook, or the delivery is not signed with its token",
            ),
            Self::TooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, "a delivery has 25 MiB at most, an event of Flux 128 KiB")
            }
            Self::Broken => (StatusCode::BAD_REQUEST, "the delivery ended early"),
            Self::NoEvent => (StatusCode::BAD_REQUEST, "the delivery is not an event of Flux's provider generic-hmac"),
            Self::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "try again"),
        }
    }
}

/// The result of a delivery that was accepted.
#[derive(Clone, Copy, Debug)]
enum Delivered {
    /// The repository will be fetched.
    Noted,
    /// It is neither a push nor a pull request.
    NoNews,
    /// Its deployment is recorded.
    Recorded,
    /// It is about an object that the Reconciler does not stand for.
    OtherObject,
    /// It names no revision.
    NoRevision,
}

impl Delivered {
    fn answer(self) -> (StatusCode, &'static str) {
        match self {
            Self::Noted => (StatusCode::ACCEPTED, "the repository will be fetched"),
            Self::NoNews => (StatusCode::OK, "this is neither a push nor a pull request"),
            Self::Recorded => (StatusCode::ACCEPTED, "the deployment is recorded"),
            Self::OtherObject => {
                (StatusCode::OK, "nothing is recorded: spec.reconcilerName of the Reconciler is not this object")
            }
            Self::NoRevision => (StatusCode::OK, "nothing is recorded: the event has no revision"),
        }
    }
}

struct Receiver {
    services: Services,
    /// The secrets of sources that have a webhook, and since when they are known.
    secrets: Mutex<HashMap<Hooked, (Instant, Vec<u8>)>>,
    /// The places of those that ask the cluster.
    work: Semaphore,
}

impl Receiver {
    async fn answer(&self, request: Request<Incoming>, place: &ConnectionSlot) -> Response<Full<Bytes>> {
        let delivered = self.take(request, place).await;
        let (code, text) = delivered.map_or_else(|refusal| refusal.answer(), Delivered::answer);
        let mut response = Response::new(Full::new(Bytes::from(format!("{text}\n"))));
        *response.status_mut() = code;
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain"));
        response
    }

    /// Takes a delivery. Its place is left once it is known who sent it.
    async fn take(&self, request: Request<Incoming>, place: &ConnectionSlot) -> Result<Delivered, Refusal> {
        let hooked = Hooked::of(request.uri().path()).ok_or(Refusal::NoPath)?;
        let key = hooked.key();
        if request.method() != Method::POST {
            return Err(Refusal::NoPost);
        }
        let proof = Proof::of(request.headers()).ok_or(Refusal::Unknown)?;
        let secret = self.secret(&hooked).await.map_err(|error| {
            tracing::warn!(namespace = key.0, source = key.1, %error, "a webhook cannot be checked");
            Refusal::Unavailable
        })?;
        let unknown = || {
            tracing::info!(namespace = key.0, source = key.1, "a webhook is not signed with the token of its object");
            Refusal::Unknown
        };
        let mut check = Check::new(proof, &secret.ok_or(Refusal::Unknown)?).ok_or_else(unknown)?;
        let is_news = proof::may_be_news(request.headers());
        let is_event = matches!(hooked, Hooked::Reconciler(_));
        let largest = if is_event { LARGEST_EVENT } else { LARGEST };
        let (mut body, mut length, mut event) = (request.into_body(), 0, Vec::new());
        while let Some(frame) = body.frame().await {
            let Ok(piece) = frame.map_err(|_| Refusal::Broken)?.into_data() else { continue };
            length += piece.len();
            if length > largest {
                return Err(Refusal::TooLarge);
            }
            check.update(&piece);
            if is_event {
                event.extend_from_slice(&piece);
            }
        }
        if !check.holds() {
            return Err(unknown());
        }
        if is_event {
            let _work = self.place_of_work().await;
            place.leave();
            return self.record(&key.0, &key.1, &event).await;
        }
        if !is_news {
            return Ok(Delivered::NoNews);
        }
        let _work = self.place_of_work().await;
        place.leave();
        hooked.note(&self.services).await.map_err(|error| {
            tracing::warn!(namespace = key.0, source = key.1, %error, "a webhook cannot be noted");
            Refusal::Unavailable
        })?;
        Ok(Delivered::Noted)
    }

    /// Records the deployment of an event of Flux.
    async fn record(&self, namespace: &str, name: &str, event: &[u8]) -> Result<Delivered, Refusal> {
        let spec = self.services.lookup.cached_spec::<Reconciler>(namespace, name).ok_or(Refusal::Unknown)?;
        let deployment = match flux_event::deployment(event, name, &spec) {
            Ok(deployment) => deployment,
            Err(NoDeployment::Malformed) => return Err(Refusal::NoEvent),
            Err(NoDeployment::OtherObject) => return Ok(Delivered::OtherObject),
            Err(NoDeployment::NoRevision) => return Ok(Delivered::NoRevision),
        };
        record(&self.services, namespace, deployment).await.map_err(|error| {
            tracing::warn!(namespace, reconciler = name, %error, "an event of Flux cannot be recorded");
            Refusal::Unavailable
        })?;
        Ok(Delivered::Recorded)
    }

    /// The secret of a source's webhook; nothing when it has none.
    async fn secret(&self, hooked: &Hooked) -> Result<Option<Vec<u8>>, ApiError> {
        if let Some(secret) = self.remembered(hooked) {
            return Ok(Some(secret));
        }
        let Some((secret, key)) = hooked.secret(&self.services) else { return Ok(None) };
        let _work = self.place_of_work().await;
        // Another delivery may have asked while this one waited.
        if let Some(secret) = self.remembered(hooked) {
            return Ok(Some(secret));
        }
        let keys = self.services.cluster.secret(&hooked.key().0, &secret).await?;
        let token = keys.and_then(|mut keys| keys.remove(key)).unwrap_or_default();
        // Secrets that were made from files often end in a new line. One that is not there is remembered, too.
        let token = token.trim_ascii_end().to_vec();
        let mut secrets = self.secrets.lock();
        secrets.retain(|_, (since, _)| since.elapsed() < REMEMBERED);
        secrets.insert(hooked.clone(), (Instant::now(), token.clone()));
        Ok(Some(token))
    }

    fn remembered(&self, hooked: &Hooked) -> Option<Vec<u8>> {
        let secrets = self.secrets.lock();
        secrets.get(hooked).filter(|(since, _)| since.elapsed() < REMEMBERED).map(|(_, secret)| secret.clone())
    }

    /// A place to ask the cluster for something. It is held for no longer than that takes, since whoever sends a body may take
    /// as long as a delivery may.
    async fn place_of_work(&self) -> SemaphorePermit<'_> {
        self.work.acquire().await.expect("nobody closes it")
    }
}

#[cfg(test)]
mod tests;
