//! The file that events go to, one JSON line each; it is turned over when it is full.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::mpsc::{SyncSender, TrySendError, sync_channel},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::profile;

/// How many events wait at most for a log that does not hold up requests; upstream's `audit-log-batch-buffer-size`.
const BUFFERED: usize = 10_000;
/// How large a file becomes when nothing is said, in megabytes; as upstream's library has it.
const DEFAULT_MEGABYTES: u64 = 100;
/// What is put into the name of a file that was turned over.
const STAMP: &str = "%Y-%m-%dT%H-%M-%S%.3f";

/// What happens to a request while its event is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogMode {
    /// Events are handed over and written by another thread; when too many wait, they are dropped and counted.
    Batch,
    /// The request waits until its event is written.
    #[default]
    Blocking,
    /// The same, and a request whose arrival cannot be recorded is refused.
    BlockingStrict,
}

/// Where events go.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// The file; `-` is standard output.
    pub path: PathBuf,
    /// What requests wait for.
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

/// The log, open.
#[derive(Debug)]
pub struct LogFile {
    sink: Sink,
    pub(super) strict: bool,
}

#[derive(Debug)]
enum Sink {
    Direct(Mutex<Output>),
    Handed(SyncSender<Vec<u8>>),
}

#[derive(Debug)]
enum Output {
    Standard(io::Stdout),
    File(Turned),
}

impl LogFile {
    /// Opens the log; what is there stays.
    ///
    /// # Errors
    ///
    /// [`LogError`].
    pub fn open(options: LogOptions) -> Result<Self, LogError> {
        let mode = options.mode;
        let output = if options.path == Path::new("-") {
            Output::Standard(io::stdout())
        } else {
            let path = options.path.clone();
            Output::File(Turned::open(options).map_err(|source| LogError { path, source })?)
        };
        let sink = match mode {
            LogMode::Blocking | LogMode::BlockingStrict => Sink::Direct(Mutex::new(output)),
            LogMode::Batch => {
                let (sender, receiver) = sync_channel::<Vec<u8>>(BUFFERED);
                std::thread::spawn(move || {
                    profile::enter_thread();
                    let mut output = output;
                    // Ends when the log is dropped and everything is written.
                    for line in receiver {
                        if let Err(error) = output.write(&line) {
                            tracing::error!(%error, "an audit event could not be written");
                        }
                    }
                });
                Sink::Handed(sender)
            }
        };
        Ok(Self { sink, strict: mode == LogMode::BlockingStrict })
    }

    /// Writes a line, or hands it over; whether that worked.
    pub(super) fn write(&self, line: Vec<u8>) -> bool {
        match &self.sink {
            Sink::Direct(output) => {
                // No more than one thread that serves requests is kept by a storage that hangs: the next makes room first.
                let written = match output.try_lock() {
                    Some(mut output) => output.write(&line),
                    None => aside(|| output.lock().write(&line)),
                };
                match written {
                    Ok(()) => true,
                    Err(error) => {
                        tracing::error!(%error, "an audit event could not be written");
                        false
                    }
                }
            }
            Sink::Handed(sender) => match sender.try_send(line) {
                Ok(()) => true,
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
            },
        }
    }
}

/// Does what may take long while another thread goes on with the tasks of this one, if this is one of several.
fn aside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        Ok(_) | Err(_) => work(),
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

/// A file that is renamed when it is full, and begun anew.
#[derive(Debug)]
struct Turned {
    options: LogOptions,
    file: File,
    size: u64,
}

/// Opens a file to write at its end, and says how large it is.
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
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc::channel,
    };

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_storage_that_hangs_keeps_no_more_than_those_who_write_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let options = LogOptions { path: folder.path().join("audit.log"), ..LogOptions::default() };
        let log = Arc::new(LogFile::open(options).unwrap());
        let ((held, is_held), (release, released)) = (channel(), channel());
        let hanging = log.clone();
        let hanging = std::thread::spawn(move || {
            let Sink::Direct(output) = &hanging.sink else { panic!("requests wait for it") };
            let _held = output.lock();
            held.send(()).unwrap();
            released.recv().unwrap();
        });
        is_held.recv().unwrap();
        let begun = Arc::new(AtomicUsize::new(0));
        let writing: Vec<_> = (0..4)
            .map(|_| {
                let (log, begun) = (log.clone(), begun.clone());
                tokio::spawn(async move {
                    begun.fetch_add(1, SeqCst);
                    log.write(b"{}\n".to_vec())
                })
            })
            .collect();
        // As many as there are threads.
        while begun.load(SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        let other = tokio::time::timeout(Duration::from_secs(20), tokio::spawn(async {})).await;
        release.send(()).unwrap();
        hanging.join().unwrap();
        for written in writing {
            assert!(written.await.unwrap());
        }
        other.expect("others go on").unwrap();
        assert_eq!(fs::read(folder.path().join("audit.log")).unwrap(), b"{}\n".repeat(4));
    }
}
