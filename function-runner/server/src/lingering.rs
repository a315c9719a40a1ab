//! Connections that end without losing what was sent last.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tonic::transport::server::Connected;

/// How long to wait until the other side has closed a connection too.
const LINGER: Duration = Duration::from_secs(2);

/// A connection whose end is shut down only once the other side has closed its own, or for a while did not.
///
/// A socket that is closed with something in it that nobody read, such as word that an answer arrives, is reset, and a reset
/// takes away what the other side has not read yet: the end of that answer.
#[derive(Debug)]
pub(crate) struct Lingering<S> {
    stream: S,
    closing: Option<Pin<Box<Sleep>>>,
}

impl<S> Lingering<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, closing: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
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
                // Closed, or broken, which is no less an end.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return until.as_mut().poll(cx).map(Ok),
            }
        }
    }
}

impl<S> Connected for Lingering<S> {
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
        let mut server = Lingering::new(listener.accept().await.unwrap().0);
        client.write_all(b"word that nobody reads").await.unwrap();
        let server = tokio::spawn(async move {
            server.write_all(&[7; ANSWER]).await.unwrap();
            server.shutdown().await.unwrap();
        });
        (client, server)
    }

    #[tokio::test]
    async fn what_was_sent_last_arrives_whatever_is_said_meanwhile() {
        let (mut client, server) = answered().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        client.write_all(b"and more of it").await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer.len(), ANSWER);
        assert!(!server.is_finished(), "the client has not closed it yet");
        drop(client);
        server.await.unwrap();
    }

    #[tokio::test]
    async fn nobody_is_waited_for_who_closes_nothing() {
        let (_client, server) = answered().await;
        tokio::time::timeout(LINGER * 5, server).await.unwrap().unwrap();
    }
}
