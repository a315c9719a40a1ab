//! A proxy before an HTTP server, which does to each request what the test says.

use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response, StatusCode,
    body::{Body, Frame, Incoming, SizeHint},
    http::request::Parts,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

/// What becomes of a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It is answered with this status and error code, and goes no further.
    Answer(u16, &'static str),
    /// Its connection ends before it goes any further.
    Reset,
    /// It is carried out, and answered with this status and error code.
    AnswerAfter(u16, &'static str),
    /// It is carried out, and its connection ends without an answer.
    Lost,
    /// It is carried out, and its answer ends in the middle of the body.
    Cut,
    /// It is carried out after this time.
    Slow(Duration),
}

type Rule = dyn FnMut(&Parts) -> Option<Fault> + Send;

struct Shared {
    to: u16,
    rule: Mutex<Box<Rule>>,
    requests: AtomicU64,
    faults: AtomicU64,
}

/// A proxy on loopback; ends with the value.
pub struct Faults {
    address: SocketAddr,
    shared: Arc<Shared>,
    _end: oneshot::Sender<()>,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Faults {
    /// Starts one before a port of loopback. At first it does no harm.
    pub fn before(port: u16) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            to: port,
            rule: Mutex::new(Box::new(|_| None)),
            requests: AtomicU64::new(0),
            faults: AtomicU64::new(0),
        });
        let (end, ended) = oneshot::channel::<()>();
        let serving = serve(listener, shared.clone());
        // A thread of its own, so that tests without a runtime can have one, and a paused clock does not hold it up.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! { () = serving => {} _ = ended => {} }
            });
        });
        Self { address, shared, _end: end }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Decides from now on what becomes of each request.
    pub fn rule(&self, rule: impl FnMut(&Parts) -> Option<Fault> + Send + 'static) {
        *self.shared.rule.lock().unwrap() = Box::new(rule);
    }

    /// Does no harm from now on.
    pub fn heal(&self) {
        self.rule(|_| None);
    }

    /// How many requests there were.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(SeqCst)
    }

    /// How many of them something became of.
    pub fn faults(&self) -> u64 {
        self.shared.faults.load(SeqCst)
    }
}

async fn serve(listener: std::net::TcpListener, shared: Arc<Shared>) {
    listener.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    while let Ok((client, _)) = listener.accept().await {
        let shared = shared.clone();
        let service = service_fn(move |request| pass(shared.clone(), request));
        tokio::spawn(async move {
            // However a connection ends, its client finds out.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(client), service).await;
        });
    }
}

/// An error ends the connection without an answer.
async fn pass(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Answer>, io::Error> {
    let (parts, body) = request.into_parts();
    shared.requests.fetch_add(1, SeqCst);
    let fault = (shared.rule.lock().unwrap())(&parts);
    if fault.is_some() {
        shared.faults.fetch_add(1, SeqCst);
    }
    // All of it is read first, or else the client would be told of a broken pipe instead of what the test wants.
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    match fault {
        Some(Fault::Answer(status, code)) => return Ok(answer(status, code)),
        Some(Fault::Reset) => return Err(io::ErrorKind::ConnectionReset.into()),
        Some(Fault::Slow(time)) => tokio::time::sleep(time).await,
        _ => {}
    }
    let answered = forward(shared.to, Request::from_parts(parts, Full::new(body))).await?;
    match fault {
        Some(Fault::AnswerAfter(status, code)) => Ok(answer(status, code)),
        Some(Fault::Lost) => Err(io::ErrorKind::ConnectionReset.into()),
        Some(Fault::Cut) => Ok(answered.map(|body| Answer { whole: body.clone(), cut: true })),
        _ => Ok(answered.map(|body| Answer { whole: body, cut: false })),
    }
}

async fn forward(port: u16, request: Request<Full<Bytes>>) -> io::Result<Response<Bytes>> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    let answered = sender.send_request(request).await.map_err(io::Error::other)?;
    let (parts, body) = answered.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    Ok(Response::from_parts(parts, body))
}

fn answer(status: u16, code: &str) -> Response<Answer> {
    let text = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>of the test</Message></Error>");
    let mut response = Response::new(Answer { whole: text.into(), cut: false });
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

/// A body, or the first half of one that promises all of it.
#[derive(Debug)]
struct Answer {
    whole: Bytes,
    cut: bool,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let whole = std::mem::take(&mut self.whole);
        std::task::Poll::Ready(match (self.cut, whole.is_empty()) {
            (true, true) => Some(Err(io::ErrorKind::ConnectionReset.into())),
            (false, true) => None,
            (true, false) => Some(Ok(Frame::data(whole.slice(..whole.len() / 2)))),
            (false, false) => Some(Ok(Frame::data(whole))),
        })
    }

    fn is_end_stream(&self) -> bool {
        !self.cut && self.whole.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.whole.len() as u64)
    }
}
