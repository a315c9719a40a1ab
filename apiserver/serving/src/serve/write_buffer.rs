//! The write buffer of an HTTP/2 connection, which joins the frames of many streams into few writes.
//!
//! Each frame would be a call of the kernel and a record of TLS of its own, or two records, since the longest frames are
//! a little longer than a record. So long ones, and what follows them, are kept until the connection has been polled, and
//! are written earlier only when they fill their records. One event that many watches of a connection are told would be as
//! many frames: where several share it, all are kept until the others that the same event woke had their turn, too.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A frame that is at least that long is mostly one of many of the same answer, and is kept whoever shares the connection.
const LONG: usize = 8 * 1024;
/// So many bytes are kept at most: four full records of TLS.
const FULL: usize = 4 * 16 * 1024;
/// So far behind the beginning of its room is what is kept.
///
/// Where such long pieces begin is up to the allocator, and mimalloc lets them begin a page of memory: these rooms, and the
/// records of TLS that they are copied to, behind their heads. Some processors copy ten times slower (`rep movsb` on AMD's)
/// where the target is a few bytes further into its page than the source: see bug 30994 of the GNU C library.
const AWAY: usize = 64;

/// How many answers of a connection go on for long, such as watches.
#[derive(Clone, Debug, Default)]
pub(super) struct LongAnswers(Arc<AtomicUsize>);

impl LongAnswers {
    /// One more, until what is given back is dropped.
    pub(super) fn begin(&self) -> LongAnswer {
        self.0.fetch_add(1, Ordering::Relaxed);
        LongAnswer(Arc::clone(&self.0))
    }

    fn are_many(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 1
    }
}

#[derive(Debug)]
pub(super) struct LongAnswer(Arc<AtomicUsize>);

impl Drop for LongAnswer {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct Buffer {
    /// Empty, or [`AWAY`] bytes that say nothing and what is kept.
    room: Vec<u8>,
    /// Where in the room that begins which is not written yet.
    begin: usize,
}

impl Buffer {
    fn is_empty(&self) -> bool {
        self.rest().is_empty()
    }

    fn rest(&self) -> &[u8] {
        &self.room[self.begin..]
    }

    fn written(&mut self, length: usize) {
        self.begin += length;
        if self.begin == self.room.len() {
            self.room.clear();
            self.begin = 0;
        }
    }

    fn free(&self) -> usize {
        AWAY + FULL - self.room.len().max(AWAY)
    }

    /// Keeps as much as there is room for; returns how much that is.
    fn keep(&mut self, bytes: &[IoSlice<'_>]) -> usize {
        let length = total(bytes).min(self.free());
        if self.room.len() + length >= LONG {
            // All the room that it may ever need, since more is likely to follow.
            self.room.reserve_exact(AWAY + FULL - self.room.len());
        }
        if self.room.is_empty() {
            self.room.resize(AWAY, 0);
            self.begin = AWAY;
        }
        let end = self.room.len() + length;
        for bytes in bytes {
            let part = bytes.len().min(end - self.room.len());
            self.room.extend_from_slice(&bytes[..part]);
        }
        length
    }

    /// Gives back a room that a long answer needed: most connections have nothing long to say again soon.
    fn shrink(&mut self) {
        if self.is_empty() && self.room.capacity() >= LONG {
            self.room = Vec::new();
        }
    }
}

fn total(bytes: &[IoSlice<'_>]) -> usize {
    bytes.iter().map(|bytes| bytes.len()).sum()
}

#[derive(Debug)]
struct Output<S> {
    inner: S,
    kept: Buffer,
    /// Whether what was kept may still be in TLS.
    flushes: bool,
    long_answers: LongAnswers,
}

impl<S: AsyncWrite + Unpin> Output<S> {
    /// Whether what is said now is kept however short it is: behind what is kept, or because the next is likely to follow in
    /// a moment.
    fn keeps(&self) -> bool {
        !self.kept.is_empty() || self.long_answers.are_many()
    }

    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.kept.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(context, self.kept.rest()))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.kept.written(written);
            self.flushes = true;
        }
        Poll::Ready(Ok(()))
    }
}

/// The socket of a connection, as HTTP sees it.
#[derive(Debug)]
pub(super) struct Gathered<S>(Arc<Mutex<Output<S>>>);

/// Polls a connection that writes to a [`Gathered`] socket, and writes what is kept there. Only that connection's task
/// uses the socket, so that nobody ever waits for its lock.
#[derive(Debug)]
pub(super) struct Gathering<S> {
    output: Arc<Mutex<Output<S>>>,
    /// Whether the other tasks had their turn since something was kept.
    waited: bool,
}

pub(super) fn gather<S>(inner: S, long_answers: LongAnswers) -> (Gathered<S>, Gathering<S>) {
    let output = Arc::new(Mutex::new(Output { inner, kept: Buffer::default(), flushes: false, long_answers }));
    (Gathered(Arc::clone(&output)), Gathering { output, waited: false })
}

impl<S: AsyncWrite + Unpin> Gathering<S> {
    /// Polls the connection, and then writes what it has to say.
    pub(super) fn poll<F, E>(&mut self, connection: Pin<&mut F>, context: &mut Context<'_>) -> Poll<Result<(), Error>>
    where
        F: Future<Output = Result<(), E>>,
        E: Into<Error>,
    {
        if let Poll::Ready(ended) = connection.poll(context) {
            return Poll::Ready(ended.map_err(Into::into));
        }
        let mut output = self.output.lock();
        if output.kept.is_empty() && !output.flushes {
            return Poll::Pending;
        }
        if !output.kept.is_empty() && !self.waited && output.long_answers.are_many() {
            // The task is put behind those that are ready.
            self.waited = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.waited = false;
        // A socket that takes no more wakes the task, and then the rest goes, of what TLS keeps, too.
        ready!(output.poll_drain(context))?;
        ready!(Pin::new(&mut output.inner).poll_flush(context))?;
        output.flushes = false;
        output.kept.shrink();
        Poll::Pending
    }
}

pub(super) type Error = Box<dyn std::error::Error + Send + Sync>;

impl<S: AsyncRead + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathered<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut output = self.0.lock();
        if !output.keeps() && total(bytes) < LONG {
            return Pin::new(&mut output.inner).poll_write_vectored(context, bytes);
        }
        if output.kept.free() == 0 {
            ready!(output.poll_drain(context))?;
        }
        // What is left of a frame begins the next records.
        Poll::Ready(Ok(output.kept.keep(bytes)))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Leaves what is kept to [`Gathering::poll`].
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut output = self.0.lock();
        if output.kept.is_empty() { Pin::new(&mut output.inner).poll_flush(context) } else { Poll::Ready(Ok(())) }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut output = self.0.lock();
        ready!(output.poll_drain(context))?;
        Pin::new(&mut output.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin};

    use futures_util::FutureExt as _;
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufWriter, duplex};

    use super::*;

    /// Polls as the connection's task does, while `connection` writes.
    async fn drive<S: AsyncWrite + Unpin>(
        mut gathering: Gathering<S>,
        connection: impl Future<Output = io::Result<()>>,
    ) -> Result<(), Error> {
        let mut connection = pin!(async { connection.await.map_err(Error::from) });
        poll_fn(|context| gathering.poll(connection.as_mut(), context)).await
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever is written in whichever pieces, and however fast the peer reads, it hears just that.
        #[test]
        fn nothing_is_lost_or_moved(
            lengths in proptest::collection::vec((0..3 * LONG, any::<bool>()), 1..40),
            socket in 1..2 * FULL, watches in 0..3,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let (said, heard) = runtime.block_on(async {
                let (near, mut far) = duplex(socket);
                let answers = LongAnswers::default();
                let _begun: Vec<LongAnswer> = (0..watches).map(|_| answers.begin()).collect();
                let (mut socket, gathering) = gather(near, answers.clone());
                let pieces = lengths.iter().enumerate().map(|(i, (length, _))| vec![i as u8; *length]);
                let pieces: Vec<Vec<u8>> = pieces.collect();
                let said = pieces.concat();
                let writing = async {
                    for (piece, (_, wait)) in pieces.iter().zip(&lengths) {
                        socket.write_all(piece).await?;
                        socket.flush().await?;
                        if *wait {
                            tokio::task::yield_now().await;
                        }
                    }
                    socket.shutdown().await
                };
                let mut heard = Vec::new();
                let (driven, read) = tokio::join!(drive(gathering, writing), far.read_to_end(&mut heard));
                driven.expect("it is written");
                read.expect("it is read");
                (said, heard)
            });
            prop_assert_eq!(said, heard);
        }
    }

    /// A socket that counts how often it is written to.
    #[derive(Debug, Default)]
    struct Counting(Vec<usize>);

    impl AsyncWrite for Counting {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.0.push(bytes.len());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn short_answers_share_one_write_after_other_tasks() {
        for (watches, expected) in [(2, vec![30]), (1, vec![10, 10, 10])] {
            let answers = LongAnswers::default();
            let _begun: Vec<LongAnswer> = (0..watches).map(|_| answers.begin()).collect();
            let (mut socket, mut gathering) = gather(Counting::default(), answers.clone());
            let output = Arc::clone(&gathering.output);
            let mut turn = 0;
            let mut connection = pin!(poll_fn(|context| {
                turn += 1;
                // Two frames in the first turn, and in the second what another task said meanwhile.
                for _ in turn..=2 {
                    let written = Pin::new(&mut socket).poll_write(context, &[0; 10]);
                    assert!(matches!(written, Poll::Ready(Ok(10))));
                    assert!(Pin::new(&mut socket).poll_flush(context).is_ready());
                }
                Poll::<Result<(), Error>>::Pending
            }));
            for _ in 0..2 {
                poll_fn(|context| {
                    assert!(gathering.poll(connection.as_mut(), context).is_pending());
                    Poll::Ready(())
                })
                .await;
            }
            assert_eq!(output.lock().inner.0, expected);
        }
    }

    #[tokio::test]
    async fn flush_writes_tls_data_despite_newer_answers() {
        let answers = LongAnswers::default();
        let _begun = answers.begin();
        let inner = BufWriter::new(Counting::default());
        let (mut socket, gathering) = gather(inner, answers.clone());
        let output = Arc::clone(&gathering.output);
        let connection = async {
            socket.write_all(&[0; 10]).await?;
            let _second = answers.begin();
            socket.flush().await?;
            assert_eq!(output.lock().inner.get_ref().0, [10]);
            std::future::pending().await
        };
        assert!(drive(gathering, connection).now_or_never().is_none(), "it goes on");
    }

    #[tokio::test]
    async fn of_nothing_said_nothing_is_written() {
        let answers = LongAnswers::default();
        let _begun = [answers.begin(), answers.begin()];
        let (mut socket, gathering) = gather(Counting::default(), answers);
        let output = Arc::clone(&gathering.output);
        let connection = async {
            assert_eq!(socket.write(&[]).await?, 0);
            std::future::pending().await
        };
        assert!(drive(gathering, connection).now_or_never().is_none(), "it goes on");
        assert_eq!(output.lock().inner.0, [0; 0]);
    }

    #[tokio::test]
    async fn long_ones_fill_records_and_leave_no_room_behind() {
        const FRAME: usize = 16 * 1024 + 9;
        let (mut socket, gathering) = gather(Counting::default(), LongAnswers::default());
        let output = Arc::clone(&gathering.output);
        let connection = async {
            for _ in 0..10 {
                socket.write_all(&[0; FRAME]).await?;
            }
            socket.flush().await?;
            std::future::pending().await
        };
        assert!(drive(gathering, connection).now_or_never().is_none(), "it goes on");
        let output = output.lock();
        assert_eq!(output.inner.0, [FULL, FULL, 10 * FRAME - 2 * FULL]);
        assert_eq!(output.kept.room.capacity(), 0);
    }

    #[tokio::test]
    async fn a_peer_that_is_gone_ends_the_connection() {
        let (near, far) = duplex(16);
        let (mut socket, gathering) = gather(near, LongAnswers::default());
        drop(far);
        let writing = async {
            socket.write_all(b"lost").await?;
            std::future::pending().await
        };
        let ended = drive(gathering, writing).await.expect_err("nobody hears it");
        assert_eq!(ended.downcast_ref::<io::Error>().expect("of the socket").kind(), io::ErrorKind::BrokenPipe);
    }
}
