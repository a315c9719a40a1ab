//! Properties of WebSocket handshakes and frames.

use std::io::{self, Read, Write};

use http::{HeaderMap, HeaderValue, header};
use tokio_tungstenite::tungstenite::{WebSocket, protocol::Role};

/// Reads what is there, and then is at its end; takes all that is written.
struct Wire<'a>(&'a [u8]);

impl Read for Wire<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The first line is a handshake's key and subprotocols; the rest is what a client sends in frames, which ends sometime
/// and is never kept beyond the limit.
pub(crate) fn websocket(data: &[u8]) {
    let (head, frames) =
        data.iter().position(|byte| *byte == b'\n').map_or((data, &[][..]), |at| data.split_at(at + 1));
    if let Ok(value) = HeaderValue::from_bytes(head.trim_ascii()) {
        let headers = HeaderMap::from_iter([
            (header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13")),
            (header::SEC_WEBSOCKET_KEY, value.clone()),
            (header::SEC_WEBSOCKET_PROTOCOL, value.clone()),
            (header::UPGRADE, value.clone()),
            (header::CONNECTION, value),
            (header::ORIGIN, HeaderValue::from_static("https://localhost")),
        ]);
        super::is_requested(&headers);
        let protocols = super::protocols(&headers);
        assert!(protocols.iter().all(|protocol| !protocol.is_empty() && !protocol.contains(',')));
        let code = super::handshake(&headers).map_or_else(|refusal| refusal.status(), |answer| answer.status());
        assert!(matches!(code.as_u16(), 101 | 400), "{code}");
    }
    let mut socket = WebSocket::from_raw_socket(Wire(frames), Role::Server, Some(super::config()));
    // Every frame takes two bytes at least, and each call ends with a message or an error.
    for _ in 0..=frames.len() {
        match socket.read() {
            Ok(message) => assert!(message.len() <= super::MAX_RECEIVED_BYTES),
            Err(_) => return,
        }
    }
    panic!("more messages than bytes");
}
