//! Makes a commit of an artifact's files, in the process that reads the cache.
//!
//! Start at [`import`]. The files become objects of the cache's repository, and a reference by the digest leads to them:
//! `refs/artifacts/<64 digits>`. So they are read as those of a commit are, with the same limits.

use std::ffi::OsStr;
use std::io::{self, Read, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use git2::{ErrorClass, Index, IndexEntry, IndexTime, Oid, Repository, Signature, Time};
use stoa_archive::tar::{self, Compression, Entry, Kind};
use stoa_archive::{ArchiveError, ArchiveLimits, Names};
use stoa_artifacts::{ChartIndex, ChartVersion, Selector};
use stoa_outbound::causes;
use tonic::Code;

use super::error::here;
use super::image_layers::{ImageFiles, LayerFiles};
use crate::failure::{Failure, reason};

/// The limits of an artifact's files.
const LIMITS: ArchiveLimits = ArchiveLimits { entries: 50_000, size: 512 << 20 };
/// The largest index of a chart repository, in bytes.
const INDEX: u64 = 32 << 20;
/// Smaller files are stored from memory, in bytes.
const IN_MEMORY: u64 = 1 << 20;

/// The content of a revision, which is in files of the cache.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Import {
    /// The digest.
    #[prost(string, tag = "1")]
    pub(super) revision: String,
    /// About it, in a line.
    #[prost(string, tag = "2")]
    pub(super) subject: String,
    #[prost(message, repeated, tag = "3")]
    pub(super) layers: Vec<ImportLayer>,
    /// Whether each layer changes those before it.
    #[prost(bool, tag = "4")]
    pub(super) is_image: bool,
}

/// A verified blob, and how it becomes files.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ImportLayer {
    /// Its path.
    #[prost(bytes = "vec", tag = "1")]
    pub(super) path: Vec<u8>,
    /// The name of the file that it is; empty for an archive.
    #[prost(string, tag = "2")]
    pub(super) file: String,
    /// Whether the only folder of the archive is the root.
    #[prost(bool, tag = "3")]
    pub(super) is_chart: bool,
    #[prost(bool, tag = "4")]
    pub(super) is_gzip: bool,
}

/// A question to the index of a chart repository, which is a file of the cache.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ChartQuery {
    #[prost(bytes = "vec", tag = "1")]
    path: Vec<u8>,
    #[prost(string, tag = "2")]
    chart: String,
    #[prost(string, tag = "3")]
    selector: String,
}

/// A version of a chart.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ChartAnswer {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(string, tag = "2")]
    digest: String,
    #[prost(string, repeated, tag = "3")]
    urls: Vec<String>,
}

impl ChartQuery {
    pub(super) fn new(index: &Path, chart: &str, selector: &Selector) -> Self {
        let path = index.as_os_str().as_bytes().to_vec();
        Self { path, chart: chart.to_owned(), selector: selector.to_string() }
    }

    /// Reads the index.
    pub(super) fn answer(&self) -> Result<ChartAnswer, Failure> {
        let path: PathBuf = OsStr::from_bytes(&self.path).into();
        let unread = |error: &dyn std::fmt::Display| Failure::internal(error);
        if std::fs::metadata(&path).map_err(|error| unread(&error))?.len() > INDEX {
            return Err(Failure::internal(&"an index is larger than what was fetched"));
        }
        let bytes = std::fs::read(&path).map_err(|error| unread(&error))?;
        let wrong = |error: String| Failure::new(Code::NotFound, reason::VERSION_NOT_FOUND, error);
        let text = String::from_utf8(bytes).map_err(|_| wrong("index.yaml is not UTF-8".to_owned()))?;
        let selector: Selector = self.selector.parse().map_err(|error| unread(&error))?;
        let index = ChartIndex::parse(&text, &self.chart).map_err(|error| wrong(error.to_string()))?;
        let found = index.select(&selector).map_err(|error| wrong(error.to_string()))?;
        let (version, digest) = (found.version.to_string(), found.digest.to_string());
        Ok(ChartAnswer { version, digest, urls: found.urls.clone() })
    }
}

impl ChartAnswer {
    pub(super) fn version(self) -> Result<ChartVersion, Failure> {
        let internal = |error: &dyn std::fmt::Display| Failure::internal(error);
        Ok(ChartVersion {
            version: self.version.parse().map_err(|error| internal(&error))?,
            digest: self.digest.parse().map_err(|error| internal(&error))?,
            urls: self.urls,
        })
    }
}

/// The reference of a revision, if that is a digest.
pub(super) fn reference(revision: &str) -> Option<String> {
    let digest: stoa_artifacts::Digest = revision.parse().ok()?;
    Some(format!("refs/artifacts/{}", digest.hex()))
}

/// The commit of a revision, if it is here.
pub(super) fn find(repository: &Repository, revision: &str) -> Option<Oid> {
    let commit = repository.refname_to_id(&reference(revision)?).ok()?;
    // Whoever broke the cache may have left the reference alone.
    repository.find_commit(commit).and_then(|commit| commit.tree()).is_ok().then_some(commit)
}

/// Makes the commit of a revision.
pub(super) fn import(repository: &Repository, import: &Import) -> Result<(), Failure> {
    let reference = reference(&import.revision).ok_or_else(|| Failure::internal(&"a revision is no digest"))?;
    let internal = |error: git2::Error| here(&error);
    let mut files = Index::new().map_err(internal)?;
    let mut names = Names::new(LIMITS);
    let mut image = ImageFiles::default();
    let unread = |error: Unread| match error {
        Unread::Archive(error) => unreadable(&import.revision, &error),
        Unread::Git(error) => here(&error),
        Unread::Content(error) => Failure::internal(&error),
    };
    for layer in &import.layers {
        let added = if import.is_image {
            let mut found = LayerFiles::default();
            let added = add(repository, &mut names, layer, &mut |path, blob, mode| {
                found.add(path, (blob, mode));
                Ok(())
            });
            image.apply(found);
            names.begin_layer();
            added
        } else {
            add(repository, &mut names, layer, &mut |path, blob, mode| stage(&mut files, path, blob, mode))
        };
        added.map_err(unread)?;
    }
    for (path, (blob, mode)) in image.into_files() {
        stage(&mut files, &path, blob, mode).map_err(unread)?;
    }
    let tree = files.write_tree_to(repository).and_then(|tree| repository.find_tree(tree)).map_err(internal)?;
    // The same content is the same commit everywhere.
    let author = Signature::new("Stoa", "stoa@localhost", &Time::new(0, 0)).map_err(internal)?;
    let subject: String = import.subject.chars().map(|it| if it.is_control() { ' ' } else { it }).take(200).collect();
    let commit = repository.commit(None, &author, &author, &subject, &tree, &[]).map_err(internal)?;
    repository.reference(&reference, commit, true, "").map_err(internal)?;
    Ok(())
}

enum Unread {
    Archive(ArchiveError),
    Git(git2::Error),
    /// An entry ends too early, or the disk is full.
    Content(io::Error),
}

impl From<ArchiveError> for Unread {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}

impl From<git2::Error> for Unread {
    fn from(error: git2::Error) -> Self {
        Self::Git(error)
    }
}

/// Reads the files of a layer, and gives each to the caller with its object and mode.
fn add(
    repository: &Repository,
    names: &mut Names,
    layer: &ImportLayer,
    take: &mut dyn FnMut(&str, Oid, u32) -> Result<(), Unread>,
) -> Result<(), Unread> {
    let path: &Path = OsStr::from_bytes(&layer.path).as_ref();
    if !layer.file.is_empty() {
        let io = |source| ArchiveError::Io { path: path.to_owned(), source };
        names.add_file(&layer.file, std::fs::metadata(path).map_err(io)?.len())?;
        let blob = repository.blob_path(path)?;
        return take(&layer.file, blob, 0o100_644);
    }
    let compression = if layer.is_gzip { Compression::Gzip } else { Compression::Plain };
    let (mut root, mut failed) = (None, None);
    let read = tar::read(path, compression, LIMITS, names, |Entry { name, kind }| {
        let added = || -> Result<(), Unread> {
            let name = if layer.is_chart { below_root(&mut root, name)? } else { name };
            // Nothing of Git's own is anybody's configuration.
            if name.split('/').any(|part| part.eq_ignore_ascii_case(".git")) {
                // The reader counts the bytes of each entry.
                if let Kind::File { content, .. } = kind {
                    io::copy(content, &mut io::sink()).map_err(Unread::Content)?;
                }
                return Ok(());
            }
            let (blob, mode) = match kind {
                Kind::File { is_executable, content } => {
                    (store(repository, content)?, if is_executable { 0o100_755 } else { 0o100_644 })
                }
                Kind::Link(target) => (repository.blob(target.as_bytes())?, 0o120_000),
            };
            take(name, blob, mode)
        };
        added().map_err(|error| {
            failed = Some(error);
            io::Error::other("an entry is not taken")
        })
    });
    match failed {
        Some(Unread::Content(_)) | None => Ok(read?),
        Some(error) => Err(error),
    }
}

/// The name of a chart's file below the only folder of its archive.
fn below_root<'n>(root: &mut Option<String>, name: &'n str) -> Result<&'n str, ArchiveError> {
    let wrong = || ArchiveError::Entry { name: name.to_owned(), problem: "is not in the folder of the chart" };
    let (folder, rest) = name.split_once('/').ok_or_else(wrong)?;
    if root.get_or_insert_with(|| folder.to_owned()) == folder { Ok(rest) } else { Err(wrong()) }
}

/// Stores a file; a large one without it being in memory.
fn store(repository: &Repository, content: &mut dyn Read) -> Result<Oid, Unread> {
    let mut start = Vec::new();
    content.take(IN_MEMORY).read_to_end(&mut start).map_err(Unread::Content)?;
    if (start.len() as u64) < IN_MEMORY {
        return Ok(repository.blob(&start)?);
    }
    let mut writer = repository.blob_writer(None)?;
    let written = writer.write_all(&start).and_then(|()| io::copy(content, &mut writer));
    written.map_err(Unread::Content)?;
    Ok(writer.commit()?)
}

/// Adds a file to those of the commit. Git refuses names that lead to its own folder on other systems, such as `git~1`.
fn stage(files: &mut Index, path: &str, id: Oid, mode: u32) -> Result<(), Unread> {
    files.add(&entry(path, id, mode)).map_err(|error| {
        if error.class() == ErrorClass::Index {
            ArchiveError::Entry { name: path.to_owned(), problem: "has a name that Git refuses" }.into()
        } else {
            error.into()
        }
    })
}

fn entry(path: &str, id: Oid, mode: u32) -> IndexEntry {
    let time = IndexTime::new(0, 0);
    IndexEntry {
        ctime: time,
        mtime: time,
        dev: 0,
        ino: 0,
        mode,
        uid: 0,
        gid: 0,
        file_size: 0,
        id,
        flags: 0,
        flags_extended: 0,
        path: path.as_bytes().to_vec(),
    }
}

fn unreadable(revision: &str, error: &ArchiveError) -> Failure {
    match error {
        ArchiveError::Io { .. } => Failure::internal(&causes(error)),
        ArchiveError::TooLarge { .. } => {
            Failure::new(Code::InvalidArgument, reason::TOO_LARGE, format!("{revision}: {}", causes(error)))
        }
        ArchiveError::Damaged(_) | ArchiveError::Entry { .. } => {
            Failure::new(Code::InvalidArgument, reason::INVALID_MANIFEST, format!("{revision}: {}", causes(error)))
        }
    }
}
