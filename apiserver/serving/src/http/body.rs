//! Bodies: reading a request's, bounded, and writing a response's piece by piece.

use std::{
    convert::Infallible,
    io::{self, Write},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http_body_util::{BodyExt, Empty, Full, LengthLimitError, Limited, combinators::UnsyncBoxBody};
use hyper::body::{Frame, SizeHint};
use stoa_meta::status::ApiError;

/// A response's body; it may stream.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

pub use stoa_meta::request::MAX_REQUEST_BYTES;

/// The most that is taken of a body that is larger than that, in bytes.
const MAX_DRAINED_BYTES: usize = 16 * MAX_REQUEST_BYTES;

/// How long it is taken.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// A body of no bytes.
pub fn empty() -> Body {
    Empty::new().map_err(never).boxed_unsync()
}

/// A body of these bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(never).boxed_unsync()
}

pub(crate) fn failed(error: io::Error) -> Body {
    let frames = futures_util::stream::once(async { Err::<Frame<Bytes>, _>(error) });
    http_body_util::StreamBody::new(frames).boxed_unsync()
}

fn never(error: Infallible) -> io::Error {
    match error {}
}

/// Reads a request's body whole.
/// Fails with 413 `RequestEntityTooLarge` over [`MAX_REQUEST_BYTES`], and 500 when the client breaks off, as upstream.
pub(crate) async fn read<B>(body: B) -> Result<Bytes, ApiError>
where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    read_at_most(body, MAX_REQUEST_BYTES).await
}

/// The same with another limit, in bytes.
pub(crate) async fn read_at_most<B>(body: B, limit: usize) -> Result<Bytes, ApiError>
where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    read_with_patience(body, limit, DRAIN_TIMEOUT).await
}

/// The same; of a body that is refused, `patience` is how long the rest is taken.
async fn read_with_patience<B>(body: B, limit: usize, patience: Duration) -> Result<Bytes, ApiError>
where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut body = std::pin::pin!(body);
    let refusal = || ApiError::request_entity_too_large(format_args!("limit is {limit}"));
    if body.size_hint().lower() > limit as u64 {
        drain(body, patience).await;
        return Err(refusal());
    }
    match Limited::new(body.as_mut(), limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            drain(body, patience).await;
            Err(refusal())
        }
        Err(error) => Err(broken_off(&*error)),
    }
}

/// 500 without a reason, which is what upstream makes of any failure to read, in Go's words for the two that there are.
fn broken_off(error: &(dyn std::error::Error + 'static)) -> ApiError {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    let malformed = causes.any(|cause| {
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        matches!(kind, Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData))
    });
    ApiError::new(500, "", if malformed { "invalid byte in chunk length" } else { "unexpected EOF" })
}

/// Takes what comes of a body that is refused, for a while: a client of HTTP/1.1 that still sends when its connection
/// is closed may never see the answer.
async fn drain<B: hyper::body::Body<Data = Bytes>>(mut body: Pin<&mut B>, patience: Duration) {
    let drained = async {
        let mut left = MAX_DRAINED_BYTES;
        while let Some(Ok(frame)) = body.as_mut().frame().await {
            match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    // Whether it came to an end or not, the answer is the same.
    let _ = tokio::time::timeout(patience, drained).await;
}

/// Appends the next piece of a body, and says whether there may be more.
///
/// Pieces are made when the connection has room for them, so that a long list is never whole in memory.
pub(crate) type Pieces = Box<dyn FnMut(&mut Vec<u8>) -> bool + Send>;

/// A body that is one piece and a line's end.
pub(crate) fn once(bytes: impl AsRef<[u8]> + Send + 'static) -> Pieces {
    Box::new(move |out| {
        out.extend_from_slice(bytes.as_ref());
        out.push(b'\n');
        false
    })
}

/// How many bytes of pieces are gathered into one frame.
pub(crate) const FRAME_BYTES: usize = 64 * 1024;

/// Room for a frame: the last piece goes over [`FRAME_BYTES`], as a rule by less than this has.
pub(crate) fn frame() -> Vec<u8> {
    Vec::with_capacity(FRAME_BYTES + FRAME_BYTES / 8)
}

/// Appends pieces until `out` is longer than `limit`; says whether there may be more.
pub(crate) fn fill(pieces: &mut Pieces, out: &mut Vec<u8>, limit: usize) -> bool {
    while out.len() <= limit {
        if !pieces(out) {
            return false;
        }
    }
    true
}

/// A body that is written as it is sent, and compressed on the way if asked for.
struct Streamed {
    /// What was written already, to be sent first.
    start: Vec<u8>,
    /// What comes after; nothing once it is exhausted.
    rest: Option<Pieces>,
    /// The compressor; nothing when there is none or it has been finished.
    gzip: Option<GzEncoder<Vec<u8>>>,
}

/// Level 1 costs half as much here, and gives away more than that on JSON.
const GZIP_LEVEL: u32 = 2;

pub(crate) fn streamed(start: Vec<u8>, rest: Option<Pieces>, gzip: bool) -> Body {
    if rest.is_none() && !gzip {
        return full(start);
    }
    let gzip = gzip.then(|| GzEncoder::new(Vec::new(), Compression::new(GZIP_LEVEL)));
    Streamed { start, rest, gzip }.boxed_unsync()
}

impl Streamed {
    fn next(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let mut plain = std::mem::take(&mut self.start);
            if plain.is_empty()
                && let Some(pieces) = &mut self.rest
            {
                plain = frame();
                if !fill(pieces, &mut plain, FRAME_BYTES) {
                    self.rest = None;
                }
            }
            let Some(encoder) = &mut self.gzip else { return Ok(plain) };
            encoder.write_all(&plain)?;
            let out = if self.rest.is_none() {
                self.gzip.take().expect("matched above").finish()?
            } else {
                std::mem::take(encoder.get_mut())
            };
            // The compressor may keep all it was given; then it takes more to have something to send.
            if !out.is_empty() || self.rest.is_none() {
                return Ok(out);
            }
        }
    }
}

impl hyper::body::Body for Streamed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(match self.next() {
            Ok(bytes) if bytes.is_empty() => None,
            Ok(bytes) => Some(Ok(Frame::data(bytes.into()))),
            Err(error) => Some(Err(error)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.start.is_empty() && self.rest.is_none() && self.gzip.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use futures_util::StreamExt as _;

    use super::*;

    fn numbers(count: usize) -> Pieces {
        let mut next = 0;
        Box::new(move |out| {
            out.extend_from_slice(format!("{next},").as_bytes());
            next += 1;
            next < count
        })
    }

    async fn collect(body: Body) -> Vec<u8> {
        body.collect().await.unwrap().to_bytes().to_vec()
    }

    #[tokio::test]
    async fn compressed_pieces_are_one_gzip_member() {
        let mut expected = Vec::new();
        assert!(!fill(&mut numbers(100_000), &mut expected, usize::MAX - 1));
        let mut pieces = numbers(100_000);
        let mut start = Vec::new();
        assert!(fill(&mut pieces, &mut start, 1000));

        let compressed = collect(streamed(start, Some(pieces), true)).await;

        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(compressed.as_slice()).read_to_end(&mut plain).unwrap();
        assert_eq!(plain, expected);
        assert!(compressed.len() < expected.len() / 2);
    }

    #[tokio::test]
    async fn plain_pieces_arrive_whole_and_in_order() {
        let body = streamed(b"x".to_vec(), Some(numbers(3)), false);
        assert_eq!(collect(body).await, b"x0,1,2,");
    }

    #[tokio::test]
    async fn body_over_the_limit_is_refused() {
        let error = read(Full::new(Bytes::from(vec![0; MAX_REQUEST_BYTES + 1]))).await.unwrap_err();
        assert_eq!(error, ApiError::request_entity_too_large("limit is 3145728"));
        assert_eq!(error.message(), "Request entity too large: limit is 3145728");
        let most = read(Full::new(Bytes::from(vec![0; MAX_REQUEST_BYTES]))).await.unwrap();
        assert_eq!(most.len(), MAX_REQUEST_BYTES);
    }

    #[tokio::test]
    async fn body_that_breaks_off_is_told_as_by_go() {
        for (kind, said) in [
            (io::ErrorKind::UnexpectedEof, "unexpected EOF"),
            (io::ErrorKind::InvalidData, "invalid byte in chunk length"),
        ] {
            let pieces = [Ok(Frame::data(Bytes::from_static(b"{"))), Err(io::Error::from(kind))];
            let error = read(http_body_util::StreamBody::new(futures_util::stream::iter(pieces))).await.unwrap_err();
            assert_eq!((error.code(), error.message()), (500, said));
        }
    }

    /// A body of as many frames of 64 KiB, and how many are left once it was refused.
    async fn left_of(frames: usize) -> usize {
        let mut left = frames;
        let stream = futures_util::stream::iter(std::iter::from_fn(|| {
            left = left.checked_sub(1)?;
            Some(Ok::<_, io::Error>(Frame::data(Bytes::from_static(&[0; 64 << 10]))))
        }));
        let error = read(http_body_util::StreamBody::new(stream)).await.unwrap_err();
        assert_eq!(error.code(), 413);
        left
    }

    #[tokio::test]
    async fn server_drains_endless_rejected_body_briefly() {
        let much = Ok::<_, io::Error>(Frame::data(Bytes::from(vec![0; MAX_REQUEST_BYTES + 1])));
        let endless = futures_util::stream::iter([much]).chain(futures_util::stream::pending());
        let (body, patience) = (http_body_util::StreamBody::new(endless), Duration::from_millis(50));
        let began = std::time::Instant::now();
        let refused =
            tokio::time::timeout(Duration::from_secs(60), read_with_patience(body, MAX_REQUEST_BYTES, patience)).await;
        assert_eq!(refused.expect("it ends"), Err(ApiError::request_entity_too_large("limit is 3145728")));
        assert!(began.elapsed() >= patience);
    }

    #[tokio::test]
    async fn server_drains_only_short_rejected_bodies() {
        assert_eq!(left_of(100).await, 0);
        assert!(left_of(10_000).await > 9_000);
    }
}
