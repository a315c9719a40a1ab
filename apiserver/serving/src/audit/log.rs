//! The audit log file, with one JSON line per event; it is rotated when it is full.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
    task::{Context, Poll, ready},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use jiff::{SignedDuration, Timestamp};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::PollSemaphore;

/// How many events wait at most to be written; upstream's `audit-log-batch-buffer-size`.
const BUFFERED: usize = 10_000;
/// How many bytes wait at most. As many wait for room with nobody who waits for them.
const ROOM: usize = 64 << 20;
/// As how many bytes each event counts at least, so that no more than [`BUFFERED`] wait.
const LEAST: usize = ROOM / BUFFERED;
/// How long what waits may take to be written when the server ends.
const LAST: Duration = Duration::from_secs(1);
/// How large a file becomes when nothing is said, in megabytes; as upstream's library has it.
const DEFAULT_MEGABYTES: u64 = 100;
/// What is put into the name of a file that was turned over.
const STAMP: &str = "%Y-%m-%dT%H-%M-%S%.3f";

/// Whether requests wait until their audit events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogMode {
    /// No; the server drops events under load
    Batch,
    /// Yes
    #[default]
    Blocking,
    /// Yes; the server rejects a request that it cannot record
    BlockingStrict,
}

/// Where events go.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// The file; `-` is standard output.
    pub path: PathBuf,
    /// Whether requests wait. They do as long as they have time, so that their answers end after that, unless their
    /// clients are gone. Events are dropped and counted only where too many wait for which no request waits.
    pub mode: LogMode,
    /// How many days old files are kept; 0 keeps them.
    pub max_age_days: u64,
    /// How many old files are kept; 0 keeps all.
    pub max_backups: usize,
    /// How large a file may become, in megabytes; 0 is 100.
    pub max_megabytes: u64,
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
#[error("the audit log {} cannot be opened", path.display())]
pub struct LogError {
    path: PathBuf,
    source: io::Error,
}

/// The log, open. One thread writes to it, so that storage which hangs keeps no other.
#[derive(Debug)]
pub struct LogFile {
    lines: Option<Sender<Queued>>,
    /// What there is for lines that wait, in bytes.
    room: Arc<Semaphore>,
    /// What there is for lines that wait for room after whoever handed them over is gone, in bytes.
    unattended: Arc<Semaphore>,
    writer: JoinHandle<()>,
    pub(super) waits: bool,
    pub(super) strict: bool,
}

#[derive(educe::Educe)]
#[educe(Debug)]
struct Line {
    text: Vec<u8>,
    /// Hears whether it was written. A line that is dropped was not.
    #[educe(Debug(ignore))]
    told: Option<Box<dyn FnOnce(bool) + Send>>,
}

/// A line with its room among those that wait.
type Queued = (Line, OwnedSemaphorePermit);

/// A line that waits for room. It goes on waiting by itself when this is dropped, unless too many do: a client that goes away
/// must not take with it what tells of its changes.
#[derive(Debug)]
pub(super) struct Queueing {
    waiting: Option<PendingLine>,
    unattended: Arc<Semaphore>,
}

/// A line with its place among those that wait for room. It is not written when this is dropped.
#[derive(Debug)]
struct PendingLine {
    lines: Sender<Queued>,
    room: PollSemaphore,
    line: Option<Line>,
}

#[derive(Debug)]
enum Output {
    Standard(io::Stdout),
    File(Turned),
}

impl LogFile {
    /// Opens the log; what is there stays.
    pub fn open(options: LogOptions) -> Result<Self, LogError> {
        let mode = options.mode;
        let output = if options.path == Path::new("-") {
            Output::Standard(io::stdout())
        } else {
            let path = options.path.clone();
            Output::File(Turned::open(options).map_err(|source| LogError { path, source })?)
        };
        let (lines, waiting) = channel::<Queued>();
        let writer = std::thread::spawn(move || {
            let mut output = output;
            // Ends when the log is dropped and everything is written.
            for (line, _room) in waiting {
                let written = output.write(&line.text);
                if let Err(error) = &written {
                    tracing::error!(%error, "an audit event could not be written");
                }
                line.tell(written.is_ok());
            }
        });
        Ok(Self {
            lines: Some(lines),
            room: Arc::new(Semaphore::new(ROOM)),
            unattended: Arc::new(Semaphore::new(ROOM)),
            writer,
            waits: mode != LogMode::Batch,
            strict: mode == LogMode::BlockingStrict,
        })
    }

    /// Hands a line over to be written; `told` hears whether it was. Where too many wait, that is at once, or what is to wait
    /// for room is returned.
    pub(super) fn write(&self, text: Vec<u8>, told: impl FnOnce(bool) + Send + 'static) -> Option<Queueing> {
        let line = Line { text, told: Some(Box::new(told)) };
        let lines = self.lines.as_ref()?;
        match self.room.clone().try_acquire_many_owned(line.weight()) {
            Ok(room) => {
                line.queue(lines, room);
                None
            }
            Err(_) => self.waits.then(|| {
                let (lines, room) = (lines.clone(), PollSemaphore::new(self.room.clone()));
                let waiting = Some(PendingLine { lines, room, line: Some(line) });
                Queueing { waiting, unattended: self.unattended.clone() }
            }),
        }
    }
}

impl Line {
    fn weight(&self) -> u32 {
        u32::try_from(self.text.len().clamp(LEAST, ROOM)).unwrap_or(u32::MAX)
    }

    fn queue(self, lines: &Sender<Queued>, room: OwnedSemaphorePermit) {
        // Without the thread that writes it is dropped, which tells that.
        let _ = lines.send((self, room));
    }

    fn tell(mut self, is_written: bool) {
        if let Some(told) = self.told.take() {
            told(is_written);
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(told) = self.told.take() {
            told(false);
        }
    }
}

impl PendingLine {
    fn weight(&self) -> u32 {
        self.line.as_ref().map_or(0, Line::weight)
    }
}

impl Future for PendingLine {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let weight = this.weight();
        let room = ready!(this.room.poll_acquire_many(context, weight));
        if let (Some(line), Some(room)) = (this.line.take(), room) {
            line.queue(&this.lines, room);
        }
        Poll::Ready(())
    }
}

impl Future for Queueing {
    type Output = ();

    /// Ready when the line is among those that are to be written.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if let Some(waiting) = &mut this.waiting {
            ready!(Pin::new(waiting).poll(context));
            this.waiting = None;
        }
        Poll::Ready(())
    }
}

impl Drop for Queueing {
    fn drop(&mut self) {
        if let Some(waiting) = self.waiting.take()
            && let Ok(runtime) = Handle::try_current()
            && let Ok(held) = self.unattended.clone().try_acquire_many_owned(waiting.weight())
        {
            runtime.spawn(async move {
                waiting.await;
                drop(held);
            });
        }
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        self.lines = None;
        let due = Instant::now() + LAST;
        // The process may end with this.
        while !self.writer.is_finished() && Instant::now() < due {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Output {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::Standard(out) => out.lock().write_all(line),
            Self::File(file) => file.write(line),
        }
    }
}

#[derive(Debug)]
struct Turned {
    options: LogOptions,
    file: File,
    size: u64,
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)?;
    }
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

impl Turned {
    fn open(options: LogOptions) -> io::Result<Self> {
        let (file, size) = open(&options.path)?;
        Ok(Self { options, file, size })
    }

    fn limit(&self) -> u64 {
        let megabytes = if self.options.max_megabytes == 0 { DEFAULT_MEGABYTES } else { self.options.max_megabytes };
        megabytes << 20
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.size > 0 && self.size + line.len() as u64 > self.limit() {
            self.turn(Timestamp::now())?;
        }
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(())
    }

    /// Begins a new file; the old one gets the time into its name.
    fn turn(&mut self, now: Timestamp) -> io::Result<()> {
        let (stem, extension) = self.name_parts();
        let stamp = now.strftime(STAMP);
        let old = self.options.path.with_file_name(format!("{stem}-{stamp}{extension}"));
        match fs::rename(&self.options.path, old) {
            // Somebody took it away, or no new one could be opened the last time.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        (self.file, self.size) = open(&self.options.path)?;
        if let Err(error) = self.remove_old(now) {
            tracing::warn!(%error, "old audit logs could not be removed");
        }
        Ok(())
    }

    fn name_parts(&self) -> (String, String) {
        let part = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let extension = part(self.options.path.extension());
        let extension = if extension.is_empty() { extension } else { format!(".{extension}") };
        (part(self.options.path.file_stem()), extension)
    }

    fn remove_old(&self, now: Timestamp) -> io::Result<()> {
        let (stem, extension) = self.name_parts();
        let folder = self.options.path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut old: Vec<(String, PathBuf)> = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let stamp = name.strip_prefix(&format!("{stem}-")).and_then(|rest| rest.strip_suffix(&extension));
            if let Some(stamp) = stamp.filter(|stamp| stamp.len() == "2006-01-02T15-04-05.000".len()) {
                old.push((stamp.to_owned(), path));
            }
        }
        // The newest first; their names are their times.
        old.sort_by(|a, b| b.0.cmp(&a.0));
        let kept = if self.options.max_backups == 0 { usize::MAX } else { self.options.max_backups };
        let age = SignedDuration::try_from(Duration::from_secs(self.options.max_age_days * 86_400)).ok();
        let oldest = age.and_then(|age| now.checked_sub(age).ok()).map(|time| time.strftime(STAMP).to_string());
        let too_old = |stamp: &String| self.options.max_age_days > 0 && oldest.as_ref().is_some_and(|o| stamp < o);
        for (index, (stamp, path)) in old.iter().enumerate() {
            if index >= kept || too_old(stamp) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, process::Command, sync::mpsc};

    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;
    use crate::audit::Written;

    // On one thread, which a write would keep for ever.
    #[tokio::test]
    async fn storage_that_hangs_keeps_no_thread_that_serves_requests() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        // Both of its ends, so that the log is opened though nobody reads.
        let mut storage = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let log = LogFile::open(LogOptions { path, ..LogOptions::default() }).unwrap();
        // More than a pipe takes.
        let line = vec![b'x'; 1 << 20];
        let mut writing: Vec<_> = (0..4)
            .map(|_| {
                let (told, written) = oneshot::channel();
                log.write(line.clone(), move |is_written| told.send(is_written).unwrap());
                written
            })
            .collect();
        for written in &mut writing {
            assert_eq!(written.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        }
        let mut read = vec![0; writing.len() * line.len()];
        let reading = std::thread::spawn(move || {
            storage.read_exact(&mut read).unwrap();
            read
        });
        for written in writing {
            assert!(written.await.unwrap());
        }
        assert!(reading.join().unwrap().iter().all(|byte| *byte == b'x'));
    }

    #[test]
    fn what_waits_is_written_before_the_log_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let log = LogFile::open(LogOptions { path: path.clone(), ..LogOptions::default() }).unwrap();
        for _ in 0..1_000 {
            log.write(b"{}\n".to_vec(), |_| {});
        }
        drop(log);
        assert_eq!(fs::read(path).unwrap(), b"{}\n".repeat(1_000));
    }

    /// A log with room for two short lines, and what takes them.
    fn narrow(waits: bool) -> (LogFile, mpsc::Receiver<Queued>) {
        let (lines, waiting) = channel();
        let [room, unattended] = [2 * LEAST; 2].map(|bytes| Arc::new(Semaphore::new(bytes)));
        let writer = std::thread::spawn(|| {});
        (LogFile { lines: Some(lines), room, unattended, writer, waits, strict: false }, waiting)
    }

    /// Hands a line of so many bytes over.
    fn hand(log: &LogFile, length: usize) -> (Option<Queueing>, oneshot::Receiver<bool>) {
        let (told, written) = oneshot::channel();
        let queueing = log.write(vec![b'x'; length], move |is_written| {
            let _ = told.send(is_written);
        });
        (queueing, written)
    }

    #[test]
    fn overfull_log_rejects_line_immediately() {
        for (lengths, last) in [(vec![3, 3], 3), (vec![LEAST + 1], 3), (Vec::new(), 3 * LEAST)] {
            let (log, waiting) = narrow(false);
            let mut held: Vec<_> = lengths.iter().map(|length| hand(&log, *length)).collect();
            for (queueing, written) in &mut held {
                assert!(queueing.is_none());
                assert_eq!(written.try_recv(), Err(oneshot::error::TryRecvError::Empty));
            }
            let (queueing, mut written) = hand(&log, last);
            assert!(queueing.is_none());
            assert_eq!(written.try_recv(), Ok(false), "{lengths:?}");
            drop(waiting);
            assert!(held.iter_mut().all(|(_, written)| written.try_recv() == Ok(false)));
            assert_eq!(hand(&log, 3).1.try_recv(), Ok(false));
        }
    }

    #[tokio::test]
    async fn blocking_requests_wait_for_audit_queue_room() {
        let (log, waiting) = narrow(true);
        let (queueing, _first) = hand(&log, LEAST + 1);
        assert!(queueing.is_none());
        let (queueing, written) = hand(&log, LEAST);
        let mut later = Written { queueing, written: Some(written) };
        assert_eq!((&mut later).now_or_never(), None);
        drop(waiting.recv().unwrap());
        assert_eq!((&mut later).now_or_never(), None, "it is not written yet");
        let (line, _room) = waiting.try_recv().expect("there was room for it");
        assert_eq!(line.text.len(), LEAST);
        line.tell(true);
        assert!(later.await);
    }

    #[tokio::test]
    async fn abandoned_lines_still_wait_for_queue_room() {
        let (log, waiting) = narrow(true);
        let (queueing, _first) = hand(&log, 2 * LEAST);
        assert!(queueing.is_none());
        // The time of one is up, and the client of another went away.
        let (queueing, late) = hand(&log, 3);
        Written { queueing, written: None }.until(Some(Instant::now() + Duration::from_millis(20))).await;
        let (queueing, gone) = hand(&log, 4);
        drop(Written { queueing, written: None });
        let mut kept = [late, gone];
        // No more than there is room for.
        let (queueing, mut written) = hand(&log, 5);
        drop(queueing);
        assert_eq!(written.try_recv(), Ok(false));
        for written in &mut kept {
            assert_eq!(written.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        }
        drop(waiting.recv().unwrap());
        for (length, written) in [3, 4].into_iter().zip(kept) {
            let next = async {
                loop {
                    match waiting.try_recv() {
                        Ok((line, _room)) => return line,
                        Err(_) => tokio::task::yield_now().await,
                    }
                }
            };
            let line = tokio::time::timeout(Duration::from_secs(30), next).await.expect("there was room for it");
            assert_eq!(line.text.len(), length);
            line.tell(true);
            assert_eq!(written.await, Ok(true));
        }
        // They hold nothing any more.
        assert_eq!(log.unattended.available_permits(), 2 * LEAST);
    }

    #[test]
    fn dropped_line_reports_failed_write() {
        let (log, _waiting) = narrow(true);
        let (queueing, _first) = hand(&log, 2 * LEAST);
        assert!(queueing.is_none());
        let (queueing, mut written) = hand(&log, 3);
        assert_eq!(written.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        drop(queueing);
        assert_eq!(written.try_recv(), Ok(false));
    }
}
