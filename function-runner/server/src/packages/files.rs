//! Reads the files of a package at a commit.

use prost::bytes::Bytes;
use stoa_engine_git::files::{DEFAULT_FILE_BYTES, Entry, Opaque, commit_of, folder, list};
use stoa_engine_git::{bounded, git2, git2::Oid};
use stoa_proto::{FilesRequest, PackageFile, PackageTree, Problem};
use tonic::Code;

use crate::failure::{Failure, problem, reason};
use crate::source::{Cache, error, normalized};

/// The most bytes of the contents of a package.
const MOST_BYTES: usize = 64 << 20;

/// The files of a package.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PackageFiles {
    #[prost(message, optional, tag = "1")]
    pub(crate) tree: Option<PackageTree>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) files: Vec<PackageFile>,
}

/// The limit of a file that a request names.
pub(super) fn limit(max_file_bytes: u32) -> usize {
    if max_file_bytes == 0 { DEFAULT_FILE_BYTES } else { (max_file_bytes as usize).min(bounded::LARGEST_FILE) }
}

/// Reads the files at a commit, which is cached: that of the request, or of the artifact that the request names.
pub(crate) fn read(cache: &Cache, commit: Oid, request: &FilesRequest) -> Result<PackageFiles, Failure> {
    let path = normalized(&request.path)?;
    let wrong = |code, reason: &str, message: String| {
        Failure::of(code, vec![Problem { file: path.clone(), ..problem(reason, message) }])
    };
    let explain = |err: git2::Error| match bounded::is_too_large(&err) {
        true => wrong(Code::InvalidArgument, reason::TOO_LARGE, format!("{}; make the package smaller", err.message())),
        false => error::here(&err),
    };
    let repository = &cache.repository;
    let tree = folder(repository, commit, &path).map_err(explain)?.ok_or_else(|| {
        let message = format!("is no folder at commit {}", request.commit);
        wrong(Code::NotFound, reason::PATH_NOT_FOUND, message)
    })?;
    let most = limit(request.max_file_bytes);
    let mut bytes = 0;
    let mut files = Vec::new();
    for entry in list(repository, &tree).map_err(explain)? {
        let file = file(repository, &entry, most, request.with_binary).map_err(explain)?;
        bytes += file.content.len();
        if bytes > MOST_BYTES {
            let message = format!("has more than {} MiB of files; make the package smaller", MOST_BYTES >> 20);
            return Err(wrong(Code::InvalidArgument, reason::TOO_LARGE, message));
        }
        files.push(file);
    }
    let count = u32::try_from(files.len()).unwrap_or(u32::MAX);
    let commit = commit_of(repository, commit).and_then(|id| bounded::commit(repository, id)).map_err(explain)?;
    let committed = commit.time().seconds();
    let tree = PackageTree { tree: tree.id().to_string(), files: count, bytes: bytes as u64, committed };
    Ok(PackageFiles { tree: Some(tree), files })
}

fn file(
    repository: &git2::Repository,
    entry: &Entry,
    most: usize,
    with_binary: bool,
) -> Result<PackageFile, git2::Error> {
    let (content, size) = entry.read(repository, most)?;
    let (content, kept) = match content {
        Ok(content) => (Bytes::from(content), String::new()),
        Err(Opaque::Binary) if with_binary => {
            (Bytes::copy_from_slice(bounded::file(repository, entry.id)?.content()), String::new())
        }
        Err(kept) => (Bytes::new(), kept.to_string()),
    };
    let is_executable = entry.is_executable();
    Ok(PackageFile { path: entry.path.clone(), content, is_executable, kept, bytes: size as u64 })
}
