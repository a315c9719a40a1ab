//! The file operations of the log, as a seam for fault tests.
//!
//! [`Disk`] is one directory. [`Directory`] is the real one; the tests have another that loses, tears and rejects writes on
//! purpose.

use std::{
    any::Any,
    fmt,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// One directory of files. Names are single path components.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// The names of the files that are there, in any order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Reads a whole file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
    /// Makes an empty file, and replaces an existing one.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Renames a file, and replaces an existing one.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_directory(&self) -> io::Result<()>;
    /// The free bytes, as far as known. A quota may allow less.
    fn room(&self) -> io::Result<u64>;
    /// Keeps every other process out for as long as the returned value lives.
    ///
    /// Fails with [`io::ErrorKind::WouldBlock`] when another one is in.
    fn lock(&self) -> io::Result<Box<dyn Any + Send + Sync>>;
}

/// A file that is being written.
pub trait DiskFile: fmt::Debug + Send {
    /// Writes at the end. After an error any part of `bytes` may have been written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Truncates the file to `length` bytes; the next append continues there.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
    /// Makes what was written durable.
    ///
    /// After an error nothing is known about what was written since the last success, and a
    /// second call proves nothing: the kernel reports a lost page once.
    fn sync(&mut self) -> io::Result<()>;
}

/// A directory of the machine's file system.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Opens the directory at `path`, and makes missing directories. A new directory is accessible by its owner alone.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        create_private_dir(&path)?;
        Ok(Self { path })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Makes `path` and its missing parents, readable by the owner alone, and makes that durable.
///
/// # Errors
///
/// Those of the file system.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        create_private_dir(parent)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => sync_dir(parent),
        None => Ok(()),
    }
}

/// Makes the entries of the directory at `path` durable.
///
/// # Errors
///
/// Those of the file system.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The free bytes of the file system at `path`.
fn room(path: &Path) -> io::Result<u64> {
    let told = rustix::fs::statvfs(path)?;
    Ok(told.f_bavail.saturating_mul(told.f_frsize))
}

/// The size of the file system at `path`, in bytes.
pub(crate) fn volume_size(path: &Path) -> io::Result<u64> {
    let told = rustix::fs::statvfs(path)?;
    Ok(told.f_blocks.saturating_mul(told.f_frsize))
}

/// Rejects a write of so many bytes that would leave less than `spare` free. Where the free space is unknown, the write may
/// be tried.
pub(super) fn require_room(room: io::Result<u64>, bytes: u64, spare: u64) -> io::Result<()> {
    match room {
        Ok(room) if room < bytes.saturating_add(spare) => {
            let why = format!("{bytes} bytes are to be written and {spare} to stay free, and there is room for {room}");
            Err(io::Error::new(io::ErrorKind::StorageFull, why))
        }
        _ => Ok(()),
    }
}

/// Rejects a write of `bytes` into the directory at `path` that would leave less than `spare` bytes free.
///
/// # Errors
///
/// [`io::ErrorKind::StorageFull`] where there is no room.
pub fn require_room_at(path: &Path, bytes: u64, spare: u64) -> io::Result<()> {
    require_room(room(path), bytes, spare)
}

impl Disk for Directory {
    fn list(&self) -> io::Result<Vec<String>> {
        fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.file(name))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let path = self.file(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
        Ok(Box::new(OpenFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.file(from), self.file(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.file(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        sync_dir(&self.path)
    }

    fn room(&self) -> io::Result<u64> {
        room(&self.path)
    }

    fn lock(&self) -> io::Result<Box<dyn Any + Send + Sync>> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(self.file("lock"))?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

#[derive(Debug)]
struct OpenFile(File);

impl DiskFile for OpenFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}
