//! Plain HTTP on the TLS port, which is answered with 400 as by Go's server.

use std::{io, time::Duration};

use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::sleep};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// By how many bytes plain HTTP is known: Go's server looks at as many, which is what it reads first of TLS.
const LOOKED_AT: usize = 5;
/// How requests begin that are known for plain HTTP, as `tlsRecordHeaderLooksLikeHTTP` of Go's `net/http` has them.
const BEGINNINGS: [&[u8; LOOKED_AT]; 5] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"];
const REFUSAL: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
/// How long to wait for the rest of a beginning that comes in pieces.
const PIECES_APART: Duration = Duration::from_millis(50);

/// Agrees on TLS with a client. Who speaks plain HTTP is answered once and left.
/// Fails when there is no TLS on the connection.
pub(super) async fn accept(acceptor: TlsAcceptor, mut stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    if !is_http(&stream).await? {
        return acceptor.accept(stream).await;
    }
    discard(&stream);
    stream.write_all(REFUSAL).await?;
    stream.shutdown().await?;
    Err(io::Error::other("client sent an HTTP request to an HTTPS server"))
}

/// Whether what a client says first is plain HTTP. It is left unread.
async fn is_http(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0; LOOKED_AT];
    loop {
        let length = stream.peek(&mut first).await?;
        let begins = BEGINNINGS.iter().any(|beginning| beginning.starts_with(&first[..length]));
        if length == 0 || length == LOOKED_AT || !begins {
            return Ok(length == LOOKED_AT && begins);
        }
        // What is there already would be all that there is to wait for.
        sleep(PIECES_APART).await;
    }
}

/// Reads what there is of a request: a connection that is closed with something unread is reset, and the answer lost.
fn discard(stream: &TcpStream) {
    let mut read = [0; 4096];
    // What cannot be read is not in the way.
    let _ = stream.try_read(&mut read);
}
