//! Watches over a WebSocket: one text frame per event, for browsers and other clients that read no endless body.
//!
//! The answers to a handshake are those of `golang.org/x/net/websocket`, which upstream serves watches with.

use futures_util::{SinkExt as _, StreamExt as _, stream::BoxStream};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use stoa_meta::request::Outlasting;
use stoa_registry::registry::Event;
use tokio::time::Instant;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message, Utf8Bytes,
        handshake::derive_accept_key,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

use super::{
    body::{self, Body},
    watch::Encoder,
};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;

const VERSION: &str = "13";

/// How much a client may send at once; whatever it sends is ignored.
pub(super) const MAX_RECEIVED_BYTES: usize = 64 * 1024;

pub(super) fn config() -> WebSocketConfig {
    WebSocketConfig::default().max_message_size(Some(MAX_RECEIVED_BYTES)).max_frame_size(Some(MAX_RECEIVED_BYTES))
}

pub(crate) fn is_requested(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).and_then(|value| value.to_str().ok()).unwrap_or("");
    upgrade.eq_ignore_ascii_case("websocket")
        && headers
            .get_all(header::CONNECTION)
            .iter()
            .any(|value| value.to_str().is_ok_and(|text| text.to_ascii_lowercase().contains("upgrade")))
}

pub(crate) fn protocols(headers: &HeaderMap) -> Vec<&str> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|protocol| !protocol.is_empty()).collect()
}

pub(crate) struct Frames {
    pub(crate) events: BoxStream<'static, Event>,
    pub(crate) encoder: Encoder,
    pub(crate) end: Instant,
    /// What it is a part of, which may end it earlier.
    pub(crate) outlasting: Outlasting,
}

/// Why there are no more frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    /// The client ended it, or its connection did.
    Gone,
    /// Time is up, or all was said.
    Stopped,
}

impl Frames {
    /// Answers a handshake; the frames follow as soon as the connection has been handed over.
    pub(crate) fn answer(self, request: &HeaderMap, upgrade: OnUpgrade) -> Response<Body> {
        let handshake = match handshake(request) {
            Ok(handshake) => handshake,
            Err(refusal) => return *refusal,
        };
        let tasks = self.outlasting.tasks.clone();
        tasks.spawn(async move {
            match upgrade.await {
                Ok(connection) => {
                    let io = TokioIo::new(connection);
                    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config())).await;
                    self.send(socket).await;
                }
                Err(error) => tracing::debug!(%error, "a connection was not handed over to its WebSocket"),
            }
        });
        handshake
    }

    async fn send<S>(self, socket: WebSocketStream<S>)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let Self { mut events, mut encoder, end, outlasting } = self;
        let (mut sink, mut source) = socket.split();
        let gone = async move { while source.next().await.is_some_and(|received| received.is_ok()) {} };
        // Heard while a frame is sent, too: a client that stops reading must keep neither the watch nor the server.
        let over = async {
            tokio::select! {
                () = gone => Over::Gone,
                () = tokio::time::sleep_until(end) => Over::Stopped,
                () = outlasting.end.cancelled() => Over::Stopped,
            }
        };
        tokio::pin!(over);
        let over = loop {
            let event = tokio::select! {
                event = events.next() => event,
                over = &mut over => break over,
            };
            let Some(event) = event.filter(|event| encoder.tells(event)) else { break Over::Stopped };
            let mut frame = Vec::new();
            encoder.write(&mut frame, &event);
            let text = Utf8Bytes::try_from(bytes::Bytes::from(frame)).expect("events are encoded as JSON");
            let sent = tokio::select! {
                sent = sink.send(Message::Text(text)) => sent,
                over = &mut over => break over,
            };
            if sent.is_err() || matches!(event, Event::Error(_)) {
                break Over::Stopped;
            }
        };
        if over == Over::Gone {
            return;
        }
        let close = Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() }));
        // The client may be gone already; then there is nobody to tell.
        let _ = tokio::time::timeout(std::time::Duration::from_secs(1), sink.send(close)).await;
    }
}

/// 101, or what is wrong with the handshake.
pub(super) fn handshake(request: &HeaderMap) -> Result<Response<Body>, Box<Response<Body>>> {
    let text = |name: HeaderName| request.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    if text(header::SEC_WEBSOCKET_VERSION) != VERSION {
        let mut response = refusal(StatusCode::BAD_REQUEST, "missing or bad WebSocket Version");
        response.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
        return Err(response);
    }
    let key = text(header::SEC_WEBSOCKET_KEY);
    if key.is_empty() {
        return Err(refusal(StatusCode::BAD_REQUEST, "mismatch challenge/response"));
    }
    // Browsers always say where a page is from, and nothing else is expected to ask for this. That of a file is `null`.
    if !is_request_uri(text(header::ORIGIN)) {
        return Err(refusal(StatusCode::FORBIDDEN, "null origin"));
    }
    let mut response = Response::new(body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    match protocols(request).as_slice() {
        [] => {}
        [one] => {
            let value = HeaderValue::from_str(one).expect("it was a header's value");
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, value);
        }
        // A watch speaks none in particular, so it cannot choose.
        [..] => return Err(refusal(StatusCode::BAD_REQUEST, "missing or bad WebSocket-Protocol")),
    }
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes())).expect("base64 is a header's value");
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response)
}

/// Whether a text is an address or a path, with escapes that are whole: about what Go's `url.ParseRequestURI` takes.
fn is_request_uri(text: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    };
    let scheme = text.split_once(':').filter(|(scheme, _)| is_scheme(scheme));
    let rest = scheme.map_or(text, |(_, rest)| rest);
    if !rest.starts_with('/') {
        // `mailto:somebody`
        return scheme.is_some() || text == "*";
    }
    let rest = rest.split('?').next().unwrap_or("");
    let authority = rest.strip_prefix("//").filter(|_| scheme.is_some());
    let authority = authority.and_then(|rest| rest.split('/').next()).unwrap_or("");
    let host = authority.rsplit('@').next().unwrap_or("");
    // Colons in brackets are those of an IPv6 address.
    let port = host[host.rfind(']').unwrap_or(0)..].rsplit_once(':').map_or("", |(_, port)| port);
    let whole = |(at, _): (usize, &str)| {
        rest.get(at + 1..at + 3).is_some_and(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    port.bytes().all(|byte| byte.is_ascii_digit())
        && !host.contains([' ', '\\', '^', '`', '{', '|', '}', '#'])
        && rest.match_indices('%').all(whole)
}

fn refusal(code: StatusCode, message: &'static str) -> Box<Response<Body>> {
    let mut response = Response::new(body::full(message));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    Box::new(response)
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use kube::CustomResourceExt as _;

    use super::*;
    use crate::http::render::Form;
    use stoa_log::Version;
    use stoa_meta::definition::ResourceDefinition;
    use stoa_registry::testing::Rack;

    /// A watch that has something to say at all times.
    fn chatter(end: Instant, outlasting: &Outlasting) -> Frames {
        let bookmark = || Event::Bookmark { version: Version(1), initial_events_end: false };
        let definition = Arc::new(ResourceDefinition::from_crd(&Rack::crd()));
        Frames {
            events: futures_util::stream::repeat_with(bookmark).boxed(),
            encoder: Encoder::new(definition, Arc::default(), Form::Object, jiff::Timestamp::now),
            end,
            outlasting: outlasting.clone(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn timeout_stop_or_disconnect_ends_unread_websocket() {
        let second = Duration::from_secs(1);
        let (soon, late) = (Instant::now() + 10 * second, Instant::now() + 3600 * second);
        for (end, stops, goes) in [(soon, false, false), (late, true, false), (late, false, true)] {
            let (near, far) = tokio::io::duplex(1024);
            let outlasting = Outlasting::default();
            let socket = WebSocketStream::from_raw_socket(near, Role::Server, Some(config())).await;
            let sending = tokio::spawn(chatter(end, &outlasting).send(socket));
            tokio::time::sleep(second).await;
            assert!(!sending.is_finished());
            if stops {
                outlasting.end.cancel();
            }
            let _far = (!goes).then_some(far);
            tokio::time::timeout(60 * second, sending).await.expect("it ends").expect("without a panic");
        }
    }

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn handshake_is_answered_as_upstream_answers_it() {
        let good = [
            (header::SEC_WEBSOCKET_VERSION, "13"),
            (header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ=="),
            (header::ORIGIN, "https://localhost"),
        ];
        let response = handshake(&headers(&good)).expect("a good handshake");
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        // The example of RFC 6455.
        assert_eq!(response.headers()[header::SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for (missing, code) in [(0, 400), (1, 400), (2, 403)] {
            let mut bad = headers(&good);
            bad.remove(&good[missing].0);
            assert_eq!(handshake(&bad).expect_err("a bad handshake").status().as_u16(), code, "{}", good[missing].0);
        }
        for (origin, taken) in [
            ("null", false),
            ("%zz", false),
            ("localhost", false),
            ("https://local%zz", false),
            ("https://localhost:x", false),
            ("https://local host", false),
            ("https://localhost:8443", true),
            ("https://[::1]:8443", true),
            ("https://", true),
            ("file:///tmp/%20", true),
            ("app:x", true),
            ("/path", true),
        ] {
            let mut other = headers(&good);
            other.insert(header::ORIGIN, HeaderValue::from_static(origin));
            assert_eq!(handshake(&other).is_ok(), taken, "{origin}");
        }
        let mut two = headers(&good);
        two.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("a, b"));
        assert_eq!(handshake(&two).expect_err("two protocols").status(), StatusCode::BAD_REQUEST);
    }

    #[test]
    fn upgrade_to_anything_else_is_no_websocket() {
        let asks = |connection, upgrade| {
            is_requested(&headers(&[(header::CONNECTION, connection), (header::UPGRADE, upgrade)]))
        };
        assert!(asks("keep-alive, Upgrade", "WebSocket"));
        assert!(!asks("keep-alive", "websocket"));
        assert!(!asks("Upgrade", "SPDY/3.1"));
    }
}
