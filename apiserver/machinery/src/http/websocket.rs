//! Watches over a WebSocket: one text frame per event, for browsers and for whoever can read no endless body.
//!
//! The answers to a handshake are those of `golang.org/x/net/websocket`, which upstream serves watches with.

use futures_util::{SinkExt as _, StreamExt as _, stream::BoxStream};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message, Utf8Bytes,
        handshake::derive_accept_key,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};
use tokio_util::sync::CancellationToken;

use super::{
    body::{self, Body},
    watch::Encoder,
};
use crate::registry::Event;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;

/// The one version of the protocol that there is.
const VERSION: &str = "13";

/// How much a client may send at once; whatever it sends is ignored.
pub(super) const MAX_RECEIVED_BYTES: usize = 64 * 1024;

/// What bounds the frames that are received.
pub(super) fn config() -> WebSocketConfig {
    WebSocketConfig::default().max_message_size(Some(MAX_RECEIVED_BYTES)).max_frame_size(Some(MAX_RECEIVED_BYTES))
}

/// Whether a request asks for a WebSocket.
pub(crate) fn is_requested(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).and_then(|value| value.to_str().ok()).unwrap_or("");
    upgrade.eq_ignore_ascii_case("websocket")
        && headers
            .get_all(header::CONNECTION)
            .iter()
            .any(|value| value.to_str().is_ok_and(|text| text.to_ascii_lowercase().contains("upgrade")))
}

/// The subprotocols that a client offers.
pub(crate) fn protocols(headers: &HeaderMap) -> Vec<&str> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|protocol| !protocol.is_empty()).collect()
}

/// A watch that is about to be sent in frames.
pub(crate) struct Frames {
    pub(crate) events: BoxStream<'static, Event>,
    pub(crate) encoder: Encoder,
    /// When the watch ends.
    pub(crate) end: Instant,
    /// Ends it earlier.
    pub(crate) stop: CancellationToken,
}

impl Frames {
    /// Answers a handshake; the frames follow as soon as the connection has been handed over.
    pub(crate) fn answer(self, request: &HeaderMap, upgrade: OnUpgrade) -> Response<Body> {
        let handshake = match handshake(request) {
            Ok(handshake) => handshake,
            Err(refusal) => return *refusal,
        };
        tokio::spawn(async move {
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

    async fn send<S>(mut self, socket: WebSocketStream<S>)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sink, mut source) = socket.split();
        let gone = async move { while source.next().await.is_some_and(|received| received.is_ok()) {} };
        tokio::pin!(gone);
        loop {
            let event = tokio::select! {
                event = self.events.next() => event,
                () = &mut gone => return,
                () = tokio::time::sleep_until(self.end) => None,
                () = self.stop.cancelled() => None,
            };
            let Some(event) = event else { break };
            let mut frame = Vec::new();
            self.encoder.write(&mut frame, &event);
            let text = Utf8Bytes::try_from(bytes::Bytes::from(frame)).expect("events are encoded as JSON");
            // A client that stops reading must not keep the watch for ever.
            let sent = tokio::time::timeout_at(self.end, sink.send(Message::Text(text))).await;
            if !matches!(sent, Ok(Ok(()))) || matches!(event, Event::Error(_)) {
                break;
            }
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
    // Browsers always say where a page is from, and nothing else is expected to ask for this.
    if text(header::ORIGIN).is_empty() {
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

fn refusal(code: StatusCode, message: &'static str) -> Box<Response<Body>> {
    let mut response = Response::new(body::full(message));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    Box::new(response)
}

#[cfg(test)]
mod tests {
    use super::*;

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
