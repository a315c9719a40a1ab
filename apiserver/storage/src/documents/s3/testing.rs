//! A server for tests that sends the same answer to every request, piece by piece.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// Where it is, and how often it was asked.
pub(super) struct Server {
    pub(super) url: String,
    asked: Arc<AtomicUsize>,
}

impl Server {
    /// Sends the head and the pieces of a body, with a pause after each.
    pub(super) async fn start(head: impl Into<String>, pieces: Vec<Vec<u8>>, pause: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (head, asked) = (head.into(), Arc::new(AtomicUsize::new(0)));
        let heard = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                heard.fetch_add(1, SeqCst);
                // Whoever does not read on goes away.
                let _ = answer(stream, &head, &pieces, pause).await;
            }
        });
        Self { url, asked }
    }

    pub(super) fn asked(&self) -> usize {
        self.asked.load(SeqCst)
    }
}

async fn answer(mut stream: TcpStream, head: &str, pieces: &[Vec<u8>], pause: Duration) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await?);
    }
    let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{head}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    for piece in pieces {
        stream.write_all(piece).await?;
        tokio::time::sleep(pause).await;
    }
    stream.shutdown().await
}
