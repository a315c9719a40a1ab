//! The HTTP under the S3 client, and the meaning of answers.
//!
//! An error has the status and the code of an answer alone, since its text may quote signed data. Redirects are not followed: they
//! would lead to another server than the configured one.

use std::{error::Error, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpService,
};
use stoa_machinery::outbound;
use tokio::time::Instant;

use super::{
    super::{DocumentError, Refusal},
    oss::Oss,
};

/// Larger than any document. What comes beyond that was not kept by us, and has no place in memory.
const LARGEST: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// With a request: its answer is wanted only if it has no more bytes than this. A range would say so, too, but of an empty
/// object there is none, and OSS takes one that ends behind the object for no range at all.
#[derive(Clone, Copy, Debug)]
pub(super) struct AtMost(pub(super) u64);

/// Connections to S3 services, which all stores share.
///
/// They trust the certificate authorities of the system, and are not made through a proxy.
#[derive(Clone, Debug)]
pub struct S3Transport {
    client: outbound::Client<HttpRequestBody>,
}

impl Default for S3Transport {
    fn default() -> Self {
        let tls = outbound::tls(&[]).expect("what the system trusts is no bundle");
        Self { client: outbound::client(tls) }
    }
}

/// Gives the S3 client our connections.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    transport: S3Transport,
    answer: Duration,
    oss: Option<Arc<Oss>>,
}

impl Connector {
    /// `answer` is how long one is waited for, and for each part of it. With `oss` it is that which is spoken to.
    pub(super) fn new(transport: S3Transport, answer: Duration, oss: Option<Oss>) -> Self {
        Self { transport, answer, oss: oss.map(Arc::new) }
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &object_store::ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Connector {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if let Some(oss) = &self.oss {
            oss.prepare(&mut request).await?;
        }
        match self.exchange(request).await {
            Ok(response) => Ok(response.map(Into::into)),
            // As the crate has it, what is of this kind is sent again, and the other is not.
            Err(failure) if failure.may_pass() => Err(HttpError::new(HttpErrorKind::Request, failure)),
            Err(failure) => Err(HttpError::new(HttpErrorKind::Unknown, failure)),
        }
    }
}

impl Connector {
    async fn exchange(&self, request: Request<HttpRequestBody>) -> Result<Response<Bytes>, Failure> {
        let patience = self.patience(u64::try_from(request.body().content_length()).unwrap_or(u64::MAX));
        // The answer to it has no body, whatever it says.
        let is_head = request.method() == Method::HEAD;
        let wanted = request.extensions().get::<AtMost>().map_or(LARGEST, |most| most.0.min(LARGEST));
        let response = tokio::time::timeout(patience, self.transport.client.request(request));
        let response = response.await.map_err(|_| Failure::Slow(patience))?.map_err(|error| transport(&error))?;
        let (mut parts, body) = response.into_parts();
        if parts.status.is_success() {
            return Ok(Response::from_parts(parts, self.collect(body, wanted).await?));
        }
        let body = match self.collect(body, MIB).await {
            // What is not read is not sent, either, and the status says enough.
            Err(Failure::Large(_)) => Bytes::new(),
            body => body?,
        };
        let code = error_code(&body);
        match (parts.status, code.as_str()) {
            // What the client makes something of by itself.
            (StatusCode::NOT_FOUND, "") if is_head => Ok(Response::from_parts(parts, Bytes::new())),
            (StatusCode::NOT_FOUND, "NoSuchKey") | (StatusCode::PRECONDITION_FAILED | StatusCode::NOT_MODIFIED, _) => {
                Ok(Response::from_parts(parts, Bytes::new()))
            }
            // OSS' word for a condition that is not met.
            (StatusCode::CONFLICT, "FileAlreadyExists") => {
                parts.status = StatusCode::PRECONDITION_FAILED;
                Ok(Response::from_parts(parts, Bytes::new()))
            }
            (status, _) => Err(Failure::Answer { status, code }),
        }
    }

    /// How long so many bytes may take.
    fn patience(&self, length: u64) -> Duration {
        self.answer + Duration::from_secs(length / MIB)
    }

    /// The whole body, if it has no more bytes than `most`. Of one whose length tells that nothing is read.
    async fn collect(&self, mut body: Incoming, most: u64) -> Result<Bytes, Failure> {
        let start = Instant::now();
        let expected = body.size_hint().lower();
        if expected > most {
            return Err(Failure::Large(body.size_hint().exact()));
        }
        let mut whole = BytesMut::with_capacity(usize::try_from(expected.min(MIB)).unwrap_or_default());
        loop {
            // Whoever sends a byte now and then would hold up a step for as long as that goes on. A body that does not tell
            // its length earns its time as it comes.
            let length = u64::try_from(whole.len()).unwrap_or(u64::MAX);
            let left = self.patience(expected.max(length)).saturating_sub(start.elapsed()).min(self.answer);
            let frame = tokio::time::timeout(left, body.frame()).await;
            match frame.map_err(|_| Failure::Slow(start.elapsed()))? {
                None => return Ok(whole.freeze()),
                Some(Err(error)) => return Err(transport(&error)),
                Some(Ok(frame)) => whole.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
            }
            if u64::try_from(whole.len()).is_ok_and(|length| length > most) {
                return Err(Failure::Large(None));
            }
        }
    }
}

/// Why there is no answer, or none that says yes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    /// The service answered otherwise.
    #[error("it answered {status}{}", if code.is_empty() { String::new() } else { format!(" ({code})") })]
    Answer { status: StatusCode, code: String },
    /// No answer came in time, or not all of it.
    #[error("it did not answer within {:.1} s", .0.as_secs_f32())]
    Slow(Duration),
    /// The answer has more bytes than is wanted: so many, where it told.
    #[error("its answer is larger than what is asked for")]
    Large(Option<u64>),
    /// There is no connection, or it broke.
    #[error("{0}")]
    Transport(String),
}

impl Failure {
    /// Whether another try may do.
    fn may_pass(&self) -> bool {
        match self {
            Self::Slow(_) | Self::Transport(_) => true,
            Self::Large(_) => false,
            Self::Answer { status, code } => match *status {
                StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => true,
                // Two puts of one document at once, but where OSS keeps what is there for a time that was agreed.
                StatusCode::CONFLICT => code != "FileImmutable",
                StatusCode::NOT_IMPLEMENTED | StatusCode::INSUFFICIENT_STORAGE => false,
                // S3 asks for another try with this one.
                _ => status.is_server_error() || code == "RequestTimeout",
            },
        }
    }

    /// The same, as a store tells it.
    pub(super) fn meaning(&self) -> DocumentError {
        let source = Box::new(self.clone());
        let refused = |refusal| DocumentError::Refused { refusal, source: source.clone() };
        let (status, code) = match self {
            Self::Answer { status, code } => (status, code),
            // It will be as large the next time.
            Self::Large(_) => return refused(Refusal::Request),
            Self::Slow(_) | Self::Transport(_) => return DocumentError::Unavailable(source),
        };
        if *status == StatusCode::INSUFFICIENT_STORAGE || FULL.contains(&code.as_str()) {
            return DocumentError::Full(source);
        }
        match *status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => refused(Refusal::Access),
            _ if UNKNOWN_KEY.contains(&code.as_str()) => refused(Refusal::Access),
            StatusCode::NOT_FOUND if code == "NoSuchBucket" => refused(Refusal::Bucket),
            _ if self.may_pass() => DocumentError::Unavailable(source),
            _ => refused(Refusal::Request),
        }
    }
}

/// What services answer when they have no room, besides 507.
const FULL: &[&str] = &["QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"];

/// What services answer to a key that they do not know, besides 401 and 403.
const UNKNOWN_KEY: &[&str] = &["InvalidAccessKeyId", "XAdminUserNotFound"];

fn transport(error: &(dyn Error + 'static)) -> Failure {
    Failure::Transport(outbound::causes(error))
}

/// What an error's XML has between `<Code>` and `</Code>`, if it looks like a code.
fn error_code(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map_or("", |(code, _)| code);
    let is_code = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
    if is_code { code.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::Server, *};

    fn answer(status: u16, code: &str) -> Failure {
        Failure::Answer { status: StatusCode::from_u16(status).unwrap(), code: code.to_owned() }
    }

    /// What comes of a request to a server that is waited for a second.
    async fn exchanged(server: &Server, most: Option<u64>) -> Result<Bytes, Failure> {
        let mut request = Request::new(HttpRequestBody::empty());
        *request.uri_mut() = server.url.parse().unwrap();
        if let Some(most) = most {
            request.extensions_mut().insert(AtMost(most));
        }
        let connector = Connector::new(S3Transport::default(), Duration::from_secs(1), None);
        connector.exchange(request).await.map(Response::into_body)
    }

    #[tokio::test]
    async fn timeout_ends_slowly_dripping_body() {
        for head in ["Content-Length: 100", "X-Of: no length"] {
            let server = Server::start(head, vec![b"x".to_vec(); 100], Duration::from_millis(100)).await;
            let start = Instant::now();
            let failure = exchanged(&server, None).await.unwrap_err();
            assert!(matches!(failure, Failure::Slow(_)) && failure.may_pass(), "{failure:?}");
            assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        }
        // What is longer has more time.
        let pieces = vec![vec![b'x'; 1 << 20]; 8];
        let server = Server::start("Content-Length: 8388608", pieces, Duration::from_millis(200)).await;
        assert_eq!(exchanged(&server, None).await.unwrap().len(), 8 << 20);
    }

    #[tokio::test]
    async fn what_is_larger_than_wanted_is_not_read() {
        for (head, told) in [("Content-Length: 10", Some(10)), ("X-Of: no length", None)] {
            let server = Server::start(head, vec![b"12345".to_vec(); 2], Duration::ZERO).await;
            assert_eq!(exchanged(&server, Some(10)).await.unwrap(), "1234512345");
            assert_eq!(exchanged(&server, Some(9)).await, Err(Failure::Large(told)));
        }
        // Its length tells: nothing else comes.
        let server = Server::start("Content-Length: 2147483648", Vec::new(), Duration::from_secs(60)).await;
        for most in [Some(9), None] {
            assert_eq!(exchanged(&server, most).await, Err(Failure::Large(Some(2_147_483_648))));
        }
    }

    #[test]
    fn an_answer_is_told_without_what_it_quotes() {
        let body = b"<Error><Code>SignatureDoesNotMatch</Code><StringToSign>hunter2</StringToSign></Error>";
        assert_eq!(error_code(body), "SignatureDoesNotMatch");
        let told = answer(403, &error_code(body)).meaning().in_full();
        assert_eq!(told, "the document store denies access: it answered 403 Forbidden (SignatureDoesNotMatch)");
        for body in ["", "<html>no</html>", "<Code>a b</Code>", "<Code>", "<Code>\u{e9}</Code>"] {
            assert_eq!(error_code(body.as_bytes()), "", "{body}");
        }
        assert_eq!(answer(502, "").to_string(), "it answered 502 Bad Gateway");
    }

    #[test]
    fn client_distinguishes_transient_from_permanent_failures() {
        let check = |failure: Failure, expected: &str, is_tried_again: bool| {
            let kind = match failure.meaning() {
                DocumentError::Unavailable(_) => "unavailable".to_owned(),
                DocumentError::Full(_) => "full".to_owned(),
                DocumentError::Refused { refusal, .. } => format!("{refusal:?}"),
                other => panic!("{other:?}"),
            };
            assert_eq!((kind.as_str(), failure.may_pass()), (expected, is_tried_again), "{failure:?}");
        };
        check(answer(500, "InternalError"), "unavailable", true);
        check(answer(503, "SlowDown"), "unavailable", true);
        check(answer(429, ""), "unavailable", true);
        check(answer(400, "RequestTimeout"), "unavailable", true);
        check(answer(409, "ConditionalRequestConflict"), "unavailable", true);
        check(Failure::Slow(Duration::from_secs(1)), "unavailable", true);
        check(Failure::Transport("connection reset".to_owned()), "unavailable", true);
        check(Failure::Large(None), "Request", false);
        check(answer(409, "FileImmutable"), "Request", false);
        check(answer(400, "PublicEndpointForbidden"), "Request", false);
        check(answer(507, ""), "full", false);
        check(answer(400, "QuotaExceeded"), "full", false);
        check(answer(403, "AccessDenied"), "Access", false);
        check(answer(401, ""), "Access", false);
        check(answer(404, "XAdminUserNotFound"), "Access", false);
        check(answer(404, "NoSuchBucket"), "Bucket", false);
        check(answer(404, ""), "Request", false);
        check(answer(501, "NotImplemented"), "Request", false);
        check(answer(301, "PermanentRedirect"), "Request", false);
        check(answer(400, "AuthorizationHeaderMalformed"), "Request", false);
    }
}
