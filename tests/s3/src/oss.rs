//! Alibaba Cloud OSS as far as documents go: what it has otherwise than S3, before an S3 server.
//!
//! From Alibaba Cloud's "Compatibility with Amazon S3", "PutObject", "HTTP status code 403" and "409": the bucket is in the
//! host's name alone; a put with a condition of S3 is `NotImplemented`; `x-oss-forbid-overwrite: true` keeps what is there,
//! but in buckets with versions; errors quote what was to be signed and whose key it was. Signatures and the rest are the S3
//! server's.

use std::{
    io,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    header::{self, HeaderValue},
};

use crate::{
    S3Server,
    proxy::{Answer, Proxy, error, forward},
};

/// What all hosts of it end with.
const DOMAIN: &str = "localhost";
const FORBID_OVERWRITE: &str = "x-oss-forbid-overwrite";

/// OSS on loopback, with one account; ends with the value. Its account and its buckets are those of the S3 server behind it.
#[derive(Debug)]
pub struct OssServer {
    server: S3Server,
    shared: Arc<Shared>,
    proxy: Proxy,
}

#[derive(Debug)]
struct Shared {
    to: u16,
    has_versions: AtomicBool,
    kept: AtomicU64,
}

impl OssServer {
    /// Starts it with a bucket.
    pub fn start(bucket: &str) -> Self {
        let server = S3Server::start_with(bucket, |_| vec![format!("--virtual-domain={DOMAIN}")]);
        let shared = Arc::new(Shared { to: server.port(), has_versions: false.into(), kept: 0.into() });
        let answering = shared.clone();
        Self { server, shared, proxy: Proxy::start(move |request| answer(answering.clone(), request)) }
    }

    /// Its URL, which a bucket goes before.
    pub fn url(&self) -> String {
        Self::url_at(self.port())
    }

    /// The URL of something before it, which listens on this port of loopback.
    pub fn url_at(port: u16) -> String {
        format!("http://{DOMAIN}:{port}")
    }

    /// Where it listens on loopback.
    pub fn port(&self) -> u16 {
        self.proxy.address.port()
    }

    /// Has versions in its buckets from now on, as far as it takes no notice of what is not to be written over.
    pub fn enable_versions(&self) {
        self.shared.has_versions.store(true, SeqCst);
    }

    /// How many puts found something that they were not to write over.
    pub fn kept(&self) -> u64 {
        self.shared.kept.load(SeqCst)
    }
}

impl Deref for OssServer {
    type Target = S3Server;

    fn deref(&self) -> &S3Server {
        &self.server
    }
}

async fn answer(shared: Arc<Shared>, mut request: Request<Bytes>) -> io::Result<Response<Answer>> {
    let headers = request.headers();
    if bucket(headers).is_none() {
        return Ok(error(403, "SecondLevelDomainForbidden", ""));
    }
    let is_put = request.method() == Method::PUT;
    if is_put && (headers.contains_key(header::IF_NONE_MATCH) || headers.contains_key(header::IF_MATCH)) {
        return Ok(error(501, "NotImplemented", "<Header>If-None-Match</Header>"));
    }
    let quoted = quote(headers);
    let forbids = match headers.get(FORBID_OVERWRITE).map(HeaderValue::as_bytes) {
        None | Some(b"false") => false,
        Some(b"true") => true,
        Some(_) => return Ok(error(400, "InvalidArgument", &quoted)),
    };
    if headers.contains_key(FORBID_OVERWRITE) && !signed(headers).any(|name| name == FORBID_OVERWRITE) {
        return Ok(error(403, "SignatureDoesNotMatch", &quoted));
    }
    if is_put && forbids && !shared.has_versions.load(SeqCst) {
        // What is not signed does no harm to a signature, so that it is the server that decides, and looks whose put it is.
        request.headers_mut().insert(header::IF_NONE_MATCH, HeaderValue::from_static("*"));
    }
    let answered = forward(shared.to, request).await?;
    let code = code(answered.body());
    Ok(match (answered.status(), code.as_str()) {
        (StatusCode::PRECONDITION_FAILED, _) => {
            shared.kept.fetch_add(1, SeqCst);
            error(409, "FileAlreadyExists", &quoted)
        }
        (_, "XAdminUserNotFound") => error(403, "InvalidAccessKeyId", &quoted),
        (StatusCode::FORBIDDEN, code) => error(403, code, &quoted),
        _ => answered.map(Answer::whole),
    })
}

/// The bucket that the host's name begins with.
fn bucket(headers: &HeaderMap) -> Option<&str> {
    let host = headers.get(header::HOST)?.to_str().ok()?;
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    name.strip_suffix(DOMAIN)?.strip_suffix('.').filter(|bucket| !bucket.is_empty() && !bucket.contains('.'))
}

/// Names of the headers that are signed.
fn signed(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    field(headers, "SignedHeaders=").split(';')
}

/// What an error of OSS says of its request.
fn quote(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let id = field(headers, "Credential=").split('/').next().unwrap_or_default();
    format!(
        "<RequestId>5C3D9175B6FC201293AD4890</RequestId><HostId>{host}</HostId><OSSAccessKeyId>{id}</OSSAccessKeyId>"
    )
}

/// A field of a signature.
fn field<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    let signature = headers.get(header::AUTHORIZATION).and_then(|text| text.to_str().ok()).unwrap_or_default();
    let field = signature.split_once(name).map_or("", |(_, rest)| rest);
    field.split_once(',').map_or(field, |(field, _)| field)
}

/// The code of an error.
fn code(body: &Bytes) -> String {
    let text = String::from_utf8_lossy(body);
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    code.map_or_else(String::new, |(code, _)| code.to_owned())
}
