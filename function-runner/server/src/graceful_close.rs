//! Connections that close without losing the end of the last answer.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tonic::transport::server::Connected;

/// How long to wait until the client has closed the connection too.
const LINGER: Duration = Duration::from_secs(2);

/// A connection that closes only after the client has closed its side, or after a timeout.
///
/// The kernel resets a socket that is closed with unread bytes, such as an acknowledgement. A reset discards bytes that the client has
/// not read yet: the end of the answer.
#[derive(Debug)]
pub(crate) struct GracefulClose<S> {
    stream: S,
    closing: Option<Pin<Box<Sleep>>>,
}

impl<S> GracefulClose<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, closing: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GracefulClose<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for GracefulClose<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, closing } = &mut *self;
        if closing.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
        }
        let until = closing.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        loop {
            let mut unread = [0; 4096];
            let mut unread = ReadBuf::new(&mut unread);
            match Pin::new(&mut *stream).poll_read(cx, &mut unread) {
                Poll::Ready(Ok(())) if !unread.filled().is_empty() => {}
                // Closed or broken.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return until.as_mut().poll(cx).map(Ok),
            }
        }
    }
}

impl<S> Connected for GracefulClose<S> {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinHandle;

    use super::*;

    const ANSWER: usize = 64 << 10;

    /// A client that speaks without reading, and a server that answers it and ends.
    async fn answered() -> (TcpStream, JoinHandle<()>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut server = GracefulClose::new(listener.accept().await.unwrap().0);
        client.write_all(b"word that nobody reads").await.unwrap();
        let server = tokio::spawn(async move {
            server.write_all(&[7; ANSWER]).await.unwrap();
            server.shutdown().await.unwrap();
        });
        (client, server)
    }

    #[tokio::test]
    async fn last_answer_arrives_despite_unread_input() {
        let began = tokio::time::Instant::now();
        let (mut client, server) = answered().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        client.write_all(b"and more of it").await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer.len(), ANSWER);
        // A busy machine may take longer than the server waits.
        let has_ended = server.is_finished();
        assert!(!has_ended || began.elapsed() >= LINGER, "the client has not closed it yet");
        drop(client);
        server.await.unwrap();
    }

    #[tokio::test]
    async fn close_times_out_for_a_silent_client() {
        let (_client, server) = answered().await;
        tokio::time::timeout(LINGER * 30, server).await.unwrap().unwrap();
    }
}
