//! Documents in a directory: `<scope>/sha256/<first two digits>/<digits>`.
//!
//! A document is written in another folder, synced, and linked to its name, so that a name never stands for half a document.
//! Directories are synced too before the document counts as stored.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use bytes::Bytes;
use uuid::Uuid;

use super::{Digest, DocumentError, DocumentStore, file_segments, scope_segments};
use crate::local::{create_private_dir, require_room_at, sync_dir, volume_size};

/// The folder of unfinished documents, directly below the root. No scope can have this name.
const UNFINISHED: &str = ".unfinished";
/// The age after which an unfinished document is abandoned.
const ABANDONED: Duration = Duration::from_secs(3600);
const ALGORITHM: &str = "sha256";
/// The most bytes that documents leave free: the log may be on the same disk, and a full disk rejects its writes.
const SPARE: u64 = 256 << 20;
/// The fraction of a small volume that they leave free.
const PART: u64 = 8;
/// The fraction of that free space that owed documents leave.
const PART_OF_OWED: u64 = 8;

/// The urgency of a document.
#[derive(Clone, Copy, Debug)]
enum Need {
    Usual,
    Owed,
}

/// How many bytes a document leaves free of a volume of so many.
fn spare(size: u64, need: Need) -> u64 {
    let usual = SPARE.min(size / PART);
    match need {
        Need::Usual => usual,
        Need::Owed => usual / PART_OF_OWED,
    }
}

/// A [`DocumentStore`] in a directory of the machine. Only its owner can read what is in it.
#[derive(Debug)]
pub struct LocalDocuments {
    root: PathBuf,
    /// How many bytes a document leaves free of a volume of so many.
    spare: fn(u64, Need) -> u64,
}

impl LocalDocuments {
    /// Opens the store at `root`, making the directory where it is missing, and removes what earlier
    /// processes did not finish. Several may have it open, such as the replicas that share a volume.
    ///
    /// # Errors
    ///
    /// [`DocumentError::Unavailable`] when the directory cannot be made or read.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, DocumentError> {
        let root = root.into();
        let open = || {
            let unfinished = root.join(UNFINISHED);
            create_private_dir(&unfinished)?;
            for entry in fs::read_dir(&unfinished)? {
                let entry = entry?;
                // Another process may remove it first, or finish it.
                let Some(about) = found(entry.metadata())? else { continue };
                if about.modified()?.elapsed().is_ok_and(|age| age > ABANDONED) {
                    found(fs::remove_file(entry.path()))?;
                }
            }
            Ok(())
        };
        open().map_err(unavailable)?;
        Ok(Self { root, spare })
    }

    fn scope(&self, scope: &str) -> Result<PathBuf, DocumentError> {
        Ok(scope_segments(scope)?
            .into_iter()
            .fold(self.root.clone(), |path, segment| path.join(segment))
            .join(ALGORITHM))
    }

    fn path(&self, scope: &str, digest: &Digest) -> Result<PathBuf, DocumentError> {
        let hex = digest.hex();
        Ok(self.scope(scope)?.join(&hex[..2]).join(hex))
    }

    async fn keep(&self, scope: &str, bytes: Bytes, need: Need) -> Result<Digest, DocumentError> {
        let digest = Digest::of(&bytes);
        let path = self.path(scope, &digest)?;
        // It is not another's: a process that continues after a pause gives the name of its document to its own bytes.
        let unfinished = self.root.join(UNFINISHED).join(Uuid::new_v4().simple().to_string());
        let (root, spare) = (self.root.clone(), self.spare);
        blocking(move || {
            // An existing document was synced before it had its name; the name may not be durable yet.
            let is_there = found(fs::read(&path))?.is_some_and(|there| there == bytes);
            if !is_there || found(renew(&path))?.is_none() {
                write(&unfinished, &path, &bytes, |size| spare(size, need))?;
            }
            sync_path(&root, &path)
        })
        .await?;
        Ok(digest)
    }
}

fn unavailable(error: io::Error) -> DocumentError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DocumentError::Full(Box::new(error)),
        _ => DocumentError::Unavailable(Box::new(error)),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, DocumentError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| DocumentError::Unavailable(Box::new(error)))?
        .map_err(unavailable)
}

/// Makes a document as young as a new one: removals of old ones spare it.
fn renew(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.set_modified(SystemTime::now())
}

/// `None` instead of the error that something is not there.
fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        // A folder on the way may be a file.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

fn write(unfinished: &Path, path: &Path, bytes: &[u8], spare: impl FnOnce(u64) -> u64) -> io::Result<()> {
    let parent = path.parent().expect("the path of a document has directories");
    create_private_dir(parent)?;
    require_room_at(parent, bytes.len() as u64, spare(volume_size(parent).unwrap_or(u64::MAX)))?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(unfinished)?;
    let result = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| {
        // A rename replaces what is there: the same document, unless it was damaged.
        fs::rename(unfinished, path)
    });
    if result.is_err() {
        // It is harmless, and a later start removes it.
        let _ = fs::remove_file(unfinished);
    }
    result
}

/// Makes the name of a document durable. Each directory on the way may be new, and may have been
/// made by somebody who has not come to sync it.
fn sync_path(root: &Path, path: &Path) -> io::Result<()> {
    path.ancestors().skip(1).take_while(|directory| directory.starts_with(root)).try_for_each(sync_dir)
}

#[async_trait]
impl DocumentStore for LocalDocuments {
    async fn put(&self, scope: &str, bytes: Bytes) -> Result<Digest, DocumentError> {
        self.keep(scope, bytes, Need::Usual).await
    }

    async fn put_owed(&self, scope: &str, bytes: Bytes) -> Result<Digest, DocumentError> {
        self.keep(scope, bytes, Need::Owed).await
    }

    async fn size(&self, scope: &str, digest: &Digest) -> Result<Option<u64>, DocumentError> {
        let path = self.path(scope, digest)?;
        Ok(blocking(move || found(fs::metadata(path))).await?.map(|about| about.len()))
    }

    async fn get(&self, scope: &str, digest: &Digest) -> Result<Option<Bytes>, DocumentError> {
        let path = self.path(scope, digest)?;
        let expected = *digest;
        let read =
            blocking(move || Ok(found(fs::read(path))?.map(|bytes| (Digest::of(&bytes) == expected, bytes)))).await?;
        match read {
            Some((false, _)) => Err(DocumentError::Corrupt { scope: scope.to_owned(), digest: *digest }),
            Some((true, bytes)) => Ok(Some(bytes.into())),
            None => Ok(None),
        }
    }

    async fn list(&self, scope: &str) -> Result<Vec<Digest>, DocumentError> {
        let path = self.scope(scope)?;
        blocking(move || {
            let mut digests = Vec::new();
            for shelf in found(fs::read_dir(path))?.into_iter().flatten() {
                for file in fs::read_dir(shelf?.path())? {
                    let name = file?.file_name();
                    digests.extend(format!("{ALGORITHM}:{}", name.to_string_lossy()).parse::<Digest>().ok());
                }
            }
            digests.sort_unstable();
            Ok(digests)
        })
        .await
    }

    async fn file(&self, path: &str, most: u64) -> Result<Option<Bytes>, DocumentError> {
        let file = file_segments(path)?.into_iter().fold(self.root.clone(), |path, segment| path.join(segment));
        let read = move || {
            let Some(about) = found(fs::metadata(&file))?.filter(fs::Metadata::is_file) else { return Ok(None) };
            if about.len() > most {
                return Ok(Some(None));
            }
            let mut bytes = Vec::new();
            // It may grow meanwhile.
            fs::File::open(&file)?.take(most + 1).read_to_end(&mut bytes)?;
            Ok(Some(Some(bytes).filter(|bytes| bytes.len() as u64 <= most)))
        };
        match blocking(read).await? {
            Some(Some(bytes)) => Ok(Some(bytes.into())),
            Some(None) => Err(DocumentError::TooLarge { path: path.to_owned(), most }),
            None => Ok(None),
        }
    }

    async fn delete(&self, scope: &str, digest: &Digest) -> Result<(), DocumentError> {
        let path = self.path(scope, digest)?;
        blocking(move || {
            if found(fs::remove_file(&path))?.is_some() {
                sync_dir(path.parent().expect("the path of a document has directories"))?;
            }
            Ok(())
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use tempfile::TempDir;

    use super::{super::conformance, *};

    #[tokio::test]
    async fn conforms() {
        let root = TempDir::new().unwrap();
        conformance::all(&LocalDocuments::open(root.path()).unwrap(), "shop").await;
    }

    #[tokio::test]
    async fn what_is_no_file_is_not_there() {
        let root = TempDir::new().unwrap();
        fs::create_dir(root.path().join("folder")).unwrap();
        fs::write(root.path().join("file"), "a").unwrap();
        let store = LocalDocuments::open(root.path()).unwrap();
        for absent in ["folder", "file/within", "nothing", "nothing/within"] {
            assert_eq!(store.file(absent, 1).await.unwrap(), None, "{absent}");
        }
        assert_eq!(store.file("file", 1).await.unwrap(), Some(Bytes::from_static(b"a")));
    }

    #[tokio::test]
    async fn get_reports_and_put_repairs_damaged_document() {
        let root = TempDir::new().unwrap();
        let store = LocalDocuments::open(root.path()).unwrap();
        let digest = store.put("shop/web", Bytes::from_static(b"plan")).await.unwrap();
        let path = store.path("shop/web", &digest).unwrap();
        fs::write(&path, b"plot").unwrap();
        assert!(matches!(store.get("shop/web", &digest).await, Err(DocumentError::Corrupt { .. })));
        store.put("shop/web", Bytes::from_static(b"plan")).await.unwrap();
        assert_eq!(store.get("shop/web", &digest).await.unwrap().unwrap(), "plan");
    }

    #[tokio::test]
    async fn document_that_is_stored_again_is_young() {
        let root = TempDir::new().unwrap();
        let store = LocalDocuments::open(root.path()).unwrap();
        let digest = store.put("shop/web", Bytes::from_static(b"plan")).await.unwrap();
        let path = store.path("shop/web", &digest).unwrap();
        fs::File::open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        store.put("shop/web", Bytes::from_static(b"plan")).await.unwrap();
        assert_ne!(fs::metadata(&path).unwrap().modified().unwrap(), SystemTime::UNIX_EPOCH);
    }

    #[tokio::test]
    async fn room_is_left_to_others_on_the_same_disk() {
        let root = TempDir::new().unwrap();
        let store = LocalDocuments::open(root.path()).unwrap();
        let plan = Bytes::from_static(b"plan");
        let digest = store.put("shop", plan.clone()).await.unwrap();
        let full = LocalDocuments { root: root.path().to_owned(), spare: |_, _| u64::MAX };
        let refused = full.put("shop", Bytes::from_static(b"another")).await;
        assert!(matches!(refused, Err(DocumentError::Full(_))), "{refused:?}");
        assert_eq!(fs::read_dir(root.path().join(UNFINISHED)).unwrap().count(), 0);
        // What is there takes no room.
        assert_eq!(full.put("shop", plan.clone()).await.unwrap(), digest);
        assert_eq!(full.get("shop", &digest).await.unwrap(), Some(plan));
    }

    #[test]
    fn spare_space_depends_on_volume_and_need() {
        for (size, usual, owed) in
            [(1 << 40, 256 << 20, 32 << 20), (2 << 30, 256 << 20, 32 << 20), (64 << 20, 8 << 20, 1 << 20), (0, 0, 0)]
        {
            assert_eq!([spare(size, Need::Usual), spare(size, Need::Owed)], [usual, owed], "{size}");
        }
    }

    #[tokio::test]
    async fn full_store_accepts_only_owed_documents() {
        let root = TempDir::new().unwrap();
        LocalDocuments::open(root.path()).unwrap();
        let spare = |_: u64, need: Need| match need {
            Need::Usual => u64::MAX,
            Need::Owed => 0,
        };
        let store = LocalDocuments { root: root.path().to_owned(), spare };
        let state = Bytes::from_static(b"state");
        let refused = store.put("shop", state.clone()).await;
        assert!(matches!(refused, Err(DocumentError::Full(_))), "{refused:?}");
        let digest = store.put_owed("shop", state.clone()).await.unwrap();
        assert_eq!(store.get("shop", &digest).await.unwrap(), Some(state));
    }

    #[tokio::test]
    async fn only_the_owner_can_read() {
        let root = TempDir::new().unwrap();
        let store = LocalDocuments::open(root.path().join("documents")).unwrap();
        let digest = store.put("shop", Bytes::from_static(b"plan")).await.unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let path = store.path("shop", &digest).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert_eq!(mode(&root.path().join("documents")), 0o700);
    }

    #[tokio::test]
    async fn cleanup_removes_only_abandoned_unfinished_files() {
        let root = TempDir::new().unwrap();
        let digest = LocalDocuments::open(root.path()).unwrap().put("shop", Bytes::from_static(b"plan")).await.unwrap();
        let [left, begun] = ["left", "0"].map(|name| root.path().join(UNFINISHED).join(name));
        for path in [&left, &begun] {
            fs::write(path, b"pl").unwrap();
        }
        let long_ago = fs::metadata(&left).unwrap().modified().unwrap() - 2 * ABANDONED;
        OpenOptions::new().write(true).open(&left).unwrap().set_modified(long_ago).unwrap();
        let stores = [(); 2].map(|()| LocalDocuments::open(root.path()).unwrap());
        assert!(!left.exists() && begun.exists());
        assert!(stores[0].get("shop", &digest).await.unwrap().is_some());
        // Whoever has it open writes under names of its own.
        for (store, text) in stores.iter().zip(["one", "other"]) {
            store.put("shop", Bytes::from_static(text.as_bytes())).await.unwrap();
        }
        assert_eq!(fs::read(&begun).unwrap(), b"pl");
    }
}
