//! The write timeout of a connection, which ends when its client reads nothing.
//!
//! In HTTP/1.1 there is no ping that would tell. Without this a client that stops reading would keep its connection, and
//! the answer that it does not take, for as long as it likes: nobody asks an answer for more, or for its time, meanwhile.

use std::{
    future::Future as _,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// A connection that fails with [`io::ErrorKind::TimedOut`] once nothing could be written for so long.
#[derive(Debug)]
pub(super) struct WriteTimeout<S> {
    inner: S,
    patience: Duration,
    over: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    pub(super) fn new(inner: S, patience: Duration) -> Self {
        Self { inner, patience, over: None }
    }

    /// What became of a write, unless it has waited for too long.
    fn waited<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.over = None;
            return written;
        }
        let over = self.over.get_or_insert_with(|| Box::pin(sleep(self.patience)));
        over.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.waited(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, bytes);
        self.waited(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.inner).poll_flush(context);
        self.waited(context, written)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.inner).poll_shutdown(context);
        self.waited(context, written)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
        time::{Instant, timeout},
    };

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn write_timeout_ends_stalled_but_not_slow_client() {
        let (mut client, server) = duplex(16);
        let mut server = WriteTimeout::new(server, PATIENCE);
        let slow = tokio::spawn(async move {
            for _ in 0..8 {
                tokio::time::sleep(PATIENCE / 2).await;
                client.read_exact(&mut [0; 8]).await.unwrap();
            }
            client
        });
        server.write_all(&[0; 64]).await.expect("it takes some of it every now and then");
        let _client = slow.await.unwrap();
        server.write_all(&[0; 16]).await.expect("there is room");
        let began = Instant::now();
        let error = server.write_all(&[0; 1]).await.expect_err("nobody takes it");
        assert_eq!((error.kind(), began.elapsed().as_secs()), (io::ErrorKind::TimedOut, PATIENCE.as_secs()));
    }

    #[tokio::test(start_paused = true)]
    async fn write_timeout_spares_idle_connection() {
        let (_client, server) = duplex(16);
        let mut server = WriteTimeout::new(server, PATIENCE);
        server.write_all(&[0; 8]).await.unwrap();
        assert!(timeout(100 * PATIENCE, server.read_u8()).await.is_err(), "it still waits");
        server.write_all(&[0; 8]).await.unwrap();
    }
}
