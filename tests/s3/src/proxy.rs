//! An HTTP server on loopback that stands before another one.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response, StatusCode,
    body::{Body, Frame, Incoming, SizeHint},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

/// Listens until the value goes.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    _end: oneshot::Sender<()>,
}

impl Proxy {
    /// Starts one that answers like this. An error ends the connection without an answer.
    pub(crate) fn start<F, A>(answer: F) -> Self
    where
        F: Fn(Request<Bytes>) -> A + Send + Sync + 'static,
        A: Future<Output = io::Result<Response<Answer>>> + Send + 'static,
    {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let serving = serve(listener, Arc::new(answer));
        // A thread of its own, so that tests without a runtime can have one, and a paused clock does not hold it up.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! { () = serving => {} _ = ended => {} }
            });
        });
        Self { address, _end: end }
    }
}

async fn serve<F, A>(listener: std::net::TcpListener, answer: Arc<F>)
where
    F: Fn(Request<Bytes>) -> A + Send + Sync + 'static,
    A: Future<Output = io::Result<Response<Answer>>> + Send + 'static,
{
    listener.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    while let Ok((client, _)) = listener.accept().await {
        let answer = answer.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let answer = answer.clone();
            async move {
                // All of it is read first, or else the client would be told of a broken pipe instead of what the test wants.
                let (parts, body) = request.into_parts();
                let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
                answer(Request::from_parts(parts, body)).await
            }
        });
        tokio::spawn(async move {
            // However a connection ends, its client finds out.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(client), service).await;
        });
    }
}

/// What the server at a port of loopback answers.
pub(crate) async fn forward(port: u16, request: Request<Bytes>) -> io::Result<Response<Bytes>> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    let answered = sender.send_request(request.map(Full::new)).await.map_err(io::Error::other)?;
    let (parts, body) = answered.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    Ok(Response::from_parts(parts, body))
}

/// An error, as S3 tells it, with elements besides its code.
pub(crate) fn error(status: u16, code: &str, besides: &str) -> Response<Answer> {
    let text =
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>of the test</Message>{besides}</Error>");
    let mut response = Response::new(Answer::whole(text.into()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

/// A body, or the first half of one that promises all of it.
#[derive(Debug)]
pub(crate) struct Answer {
    whole: Bytes,
    cut: bool,
}

impl Answer {
    pub(crate) fn whole(whole: Bytes) -> Self {
        Self { whole, cut: false }
    }

    pub(crate) fn cut(whole: Bytes) -> Self {
        Self { whole, cut: true }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let whole = std::mem::take(&mut self.whole);
        Poll::Ready(match (self.cut, whole.is_empty()) {
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
