//! An HTTP client that does as little as possible, so that what is measured is the server.
//!
//! Start at [`Endpoint::connect`]: one [`Client`] is one connection with one request at a time, as one client-go
//! process has. Bodies are read to their end, and looked at only when nothing is measured any more.

use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Go's HTTP/2 client grants these windows; others would favour one side or the other.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;

/// Which HTTP is spoken, with all servers alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    /// What client-go and kubectl speak.
    Http2,
}

impl Protocol {
    pub(crate) fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

/// A server and who we are to it.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    address: SocketAddr,
    authority: String,
    tls: Arc<ClientConfig>,
    protocol: Protocol,
}

impl Endpoint {
    /// The server at `url`, such as `https://127.0.0.1:6443`.
    pub(crate) fn new(url: &str, tls: Arc<ClientConfig>, protocol: Protocol) -> Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("{url:?} is no URL"))?;
        let authority = uri.authority().with_context(|| format!("{url:?} names no server"))?.to_string();
        // The test bed listens there; a name is what its certificate may say instead.
        let address = authority.replace("localhost", "127.0.0.1");
        let address = address.parse().with_context(|| format!("{url:?} is not on loopback"))?;
        Ok(Self { address, authority, tls, protocol })
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> Result<Client> {
        let stream = TcpStream::connect(self.address).await.with_context(|| format!("calling {}", self.authority))?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(self.address.ip());
        let tls = TlsConnector::from(self.tls.clone()).connect(name, stream).await;
        let tls = tls.with_context(|| format!("the TLS handshake with {}", self.authority))?;
        ensure!(
            tls.get_ref().1.alpn_protocol() == Some(self.protocol.alpn()),
            "{} does not speak {:?}",
            self.authority,
            self.protocol
        );
        let io = TokioIo::new(tls);
        let sender = match self.protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(io).await?;
                // Its end shows in the request that is under way.
                tokio::spawn(async move { drop(connection.await) });
                Sender::Http1(sender)
            }
            Protocol::Http2 => {
                let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                    .initial_stream_window_size(STREAM_WINDOW)
                    .initial_connection_window_size(CONNECTION_WINDOW)
                    .handshake(io)
                    .await?;
                tokio::spawn(async move { drop(connection.await) });
                Sender::Http2(sender)
            }
        };
        Ok(Client { sender, authority: self.authority.clone(), protocol: self.protocol })
    }
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    method: Method,
    path: String,
    accept: HeaderValue,
    gzip: bool,
    body: Option<(&'static str, Bytes)>,
}

impl Call {
    /// `GET`, asking for JSON that is not compressed.
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            accept: HeaderValue::from_static("application/json"),
            gzip: false,
            body: None,
        }
    }

    /// `POST` of a JSON value.
    pub(crate) fn post(path: impl Into<String>, value: &Value) -> Self {
        Self { method: Method::POST, ..Self::get(path) }.body("application/json", value)
    }

    /// `PATCH` with a JSON merge patch.
    pub(crate) fn merge(path: impl Into<String>, value: &Value) -> Self {
        Self { method: Method::PATCH, ..Self::get(path) }.body("application/merge-patch+json", value)
    }

    /// `PATCH` by server-side apply, of whatever others own, too.
    pub(crate) fn apply(path: impl Into<String>, value: &Value) -> Self {
        let path = format!("{}?fieldManager=bench&force=true", path.into());
        Self { method: Method::PATCH, ..Self::get(path) }.body("application/apply-patch+yaml", value)
    }

    /// `DELETE`.
    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self { method: Method::DELETE, ..Self::get(path) }
    }

    fn body(mut self, content_type: &'static str, value: &Value) -> Self {
        self.body = Some((content_type, Bytes::from(value.to_string())));
        self
    }

    /// Asks for another form.
    pub(crate) fn accept(mut self, accept: HeaderValue) -> Self {
        self.accept = accept;
        self
    }

    /// Asks for a compressed body, as Go's clients do by default.
    pub(crate) fn gzip(mut self) -> Self {
        self.gzip = true;
        self
    }
}

/// What was answered, as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    gzip: bool,
    frames: Vec<Bytes>,
}

impl Answer {
    /// Whether the body came compressed.
    pub(crate) fn is_gzip(&self) -> bool {
        self.gzip
    }

    /// The body as it came.
    pub(crate) fn body(&self) -> Bytes {
        self.frames.concat().into()
    }

    /// How many bytes the body has as it came over the wire.
    pub(crate) fn wire_bytes(&self) -> usize {
        self.frames.iter().map(Bytes::len).sum()
    }

    /// The body, decompressed.
    pub(crate) fn text(&self) -> Result<Vec<u8>> {
        let joined = self.frames.concat();
        if !self.gzip {
            return Ok(joined);
        }
        let mut text = Vec::new();
        GzDecoder::new(joined.as_slice()).read_to_end(&mut text).context("the body is no gzip")?;
        Ok(text)
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.text()?).context("the body is no JSON")
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    sender: Sender,
    authority: String,
    protocol: Protocol,
}

impl Client {
    /// Whether another request can be made while an answer still comes.
    pub(crate) fn is_multiplexed(&self) -> bool {
        self.protocol == Protocol::Http2
    }

    /// Sends a request and reads the whole answer, of whatever status.
    pub(crate) async fn call(&mut self, call: &Call) -> Result<Answer> {
        let response = self.begin(call).await?;
        let status = response.status();
        let gzip = match response.headers().get(CONTENT_ENCODING) {
            None => false,
            Some(encoding) if encoding == "gzip" => true,
            Some(other) => bail!("{} {}: encoded as {other:?}", call.method, call.path),
        };
        let mut body = response.into_body();
        let mut frames = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.with_context(|| format!("{} {}: reading the body", call.method, call.path))?;
            frames.extend(frame.into_data().ok());
        }
        Ok(Answer { status, gzip, frames })
    }

    /// Sends a request that has to succeed.
    ///
    /// # Errors
    ///
    /// Also when the status is another than 200 or 201, with what the server says.
    pub(crate) async fn succeed(&mut self, call: &Call) -> Result<Answer> {
        let answer = self.call(call).await?;
        if !matches!(answer.status, StatusCode::OK | StatusCode::CREATED) {
            let text = String::from_utf8_lossy(&answer.text()?).into_owned();
            bail!("{} {}: {} {}", call.method, call.path, answer.status, text.trim());
        }
        Ok(answer)
    }

    /// Sends a request and returns its body, which comes as it pleases.
    ///
    /// # Errors
    ///
    /// Also when the status is another than 200.
    pub(crate) async fn stream(&mut self, call: &Call) -> Result<Lines> {
        let response = self.begin(call).await?;
        let status = response.status();
        if status != StatusCode::OK {
            let body = response.into_body().collect().await?.to_bytes();
            bail!("{} {}: {status} {}", call.method, call.path, String::from_utf8_lossy(&body).trim());
        }
        Ok(Lines { body: response.into_body(), rest: Vec::new() })
    }

    async fn begin(&mut self, call: &Call) -> Result<http::Response<Incoming>> {
        let mut request = Request::builder().method(&call.method).header(USER_AGENT, "stoa-bench");
        request = match self.protocol {
            Protocol::Http1 => request.uri(&call.path).header(HOST, &self.authority),
            Protocol::Http2 => request.uri(format!("https://{}{}", self.authority, call.path)),
        };
        request = request.header(ACCEPT, &call.accept);
        if call.gzip {
            request = request.header(ACCEPT_ENCODING, "gzip");
        }
        let body = match &call.body {
            None => Bytes::new(),
            Some((content_type, body)) => {
                request = request.header(CONTENT_TYPE, *content_type);
                body.clone()
            }
        };
        let request = request.body(Full::new(body)).context("building a request")?;
        let response = match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        };
        response.with_context(|| format!("{} {}", call.method, call.path))
    }
}

/// A body that comes in lines: a watch.
#[derive(Debug)]
pub(crate) struct Lines {
    body: Incoming,
    rest: Vec<u8>,
}

/// Longer than any line that ends initial events.
const TAIL: usize = 1024;

impl Lines {
    /// Waits for bytes and hands over the lines that they end, without their line feeds. Returns whether there
    /// may be more.
    pub(crate) async fn next(&mut self, mut line: impl FnMut(&[u8]) -> Result<()>) -> Result<bool> {
        let Some(frame) = self.body.frame().await else { return Ok(false) };
        let Ok(data) = frame.context("reading a stream")?.into_data() else { return Ok(true) };
        let mut data = &data[..];
        while let Some(end) = data.iter().position(|byte| *byte == b'\n') {
            if self.rest.is_empty() {
                line(&data[..end])?;
            } else {
                self.rest.extend_from_slice(&data[..end]);
                line(&self.rest)?;
                self.rest.clear();
            }
            data = &data[end + 1..];
        }
        self.rest.extend_from_slice(data);
        Ok(true)
    }

    /// Reads until a line with `marker` is the last one, and returns everything. Looks only at the ends of frames, so
    /// that it costs the client no more than a list does.
    pub(crate) async fn until(&mut self, marker: &str) -> Result<Vec<Bytes>> {
        let (mut frames, mut tail) = (Vec::new(), Vec::new());
        while let Some(frame) = self.body.frame().await {
            let Ok(data) = frame.context("reading a stream")?.into_data() else { continue };
            tail.extend_from_slice(&data[data.len().saturating_sub(TAIL)..]);
            tail.drain(..tail.len().saturating_sub(TAIL));
            frames.push(data);
            if tail.ends_with(b"\n") && tail.windows(marker.len()).any(|window| window == marker.as_bytes()) {
                return Ok(frames);
            }
        }
        bail!("the stream ended without {marker}")
    }
}
