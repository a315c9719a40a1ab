//! The tree of a commit as a folder, for generators that follow paths from file to file.
//!
//! The process that reads the source writes it into its cache, and [`Sources::tree`] moves it to the trees of the organization. A tree
//! is there once for a commit; unused ones are removed as other caches are.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use futures_util::FutureExt as _;
use git2::{ObjectType, Oid, Repository, TreeEntry};
use sha2::{Digest as _, Sha256};
use stoa_git::cache::{Folders, Kept, UNFINISHED};
use stoa_proto::{Problem, Source};

use super::content::{self, is_link, size};
use super::disk::{has_room, measure, on_files};
use super::error::here;
use super::job::{Question, Reply};
use super::sources::{Sources, Visit};
use super::{cache_name, refs, verification};
use crate::failure::{Failure, problem, reason};

/// The most files of a tree, and their bytes.
const MOST_ENTRIES: usize = 100_000;
const MOST_BYTES: u64 = 256 << 20;
/// The deepest folder, in levels.
const DEEPEST: usize = 64;
/// Larger files of a tree, in bytes, have their size, and no content: no generator reads one, and a repository may have many.
pub(crate) const LARGEST_FILE: u64 = 5 << 20;

/// The use of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Generators read it.
    Render,
    /// It has programs, which may be large.
    Run,
}

impl Purpose {
    /// The largest file, in bytes.
    fn largest_file(self) -> u64 {
        match self {
            Self::Render => LARGEST_FILE,
            Self::Run => MOST_BYTES,
        }
    }
}

/// The folder that a process writes in its cache.
fn written(cache: &Path) -> PathBuf {
    cache.join(format!("{UNFINISHED}tree"))
}

/// The tree of a commit, which stays for as long as this does. It is read, and never written.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    kept: Kept,
    organization: String,
}

impl Tree {
    pub(crate) fn root(&self) -> &Path {
        self.kept.path()
    }

    /// The organization of the source.
    pub(crate) fn organization(&self) -> &str {
        &self.organization
    }
}

/// The kind of the folders with programs. Sandboxes of generators read none of them.
const PROGRAMS: &str = "programs";

/// The kind of the folders with the trees of an organization.
fn kind(organization: &str) -> String {
    let digest: String = Sha256::digest(organization).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("trees-{digest}")
}

/// The folder with all trees of an organization.
pub(crate) fn trees_of(caches: &Folders, organization: &str) -> PathBuf {
    let all = caches.path(&kind(organization), "tree");
    all.parent().map(Path::to_owned).unwrap_or(all)
}

/// The name of the tree of a commit among those of its organization. Sources with other keys for signatures may not use the commit.
fn name(source: &Source, commit: &str) -> String {
    let keys = verification::digest(source).map(|digest| format!("/{digest:?}")).unwrap_or_default();
    Sha256::digest(format!("{}{keys}/{commit}", cache_name(source))).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where the tree of a commit is, or would be.
pub(super) fn folder(caches: &Folders, source: &Source, commit: &str) -> PathBuf {
    caches.path(&kind(&source.organization), &name(source, commit))
}

impl Sources {
    /// The tree of a commit, written unless it is there.
    pub(crate) async fn tree(&self, source: &Source, commit: &str) -> Result<Tree, Failure> {
        self.tree_of(source, commit, Purpose::Render).await
    }

    /// The tree of a commit with programs, whose files are executable.
    pub(crate) async fn programs(&self, source: &Source, commit: &str) -> Result<Tree, Failure> {
        self.tree_of(source, commit, Purpose::Run).await
    }

    async fn tree_of(&self, source: &Source, commit: &str, purpose: Purpose) -> Result<Tree, Failure> {
        let commit = refs::revision(commit)?;
        let name = name(source, &commit);
        let organization = source.organization.clone();
        let kind = match purpose {
            Purpose::Render => kind(&organization),
            Purpose::Run => PROGRAMS.to_owned(),
        };
        let kept = self.caches.take_for(&kind, &name, &organization);
        let tree = Tree { kept, organization: organization.clone() };
        if tree.root().is_dir() {
            return Ok(tree);
        }
        if !has_room(&self.caches, &tree.kept, &organization).await? {
            return Err(Failure::new(tonic::Code::ResourceExhausted, reason::BUSY, super::LACKS_ROOM));
        }
        let of_visit = tree.clone();
        self.with_cache(source, move |visit: &mut Visit| {
            let (commit, tree) = (commit.clone(), of_visit.clone());
            async move {
                // Somebody may have written it while this waited for the cache.
                if tree.root().is_dir() {
                    return Ok(());
                }
                let question = match purpose {
                    Purpose::Render => Question::WriteTree(commit),
                    Purpose::Run => Question::WritePrograms(commit),
                };
                let Reply::WroteTree(_) = visit.ask(question).await? else {
                    return Err(Failure::internal(&"a question about a tree has another reply"));
                };
                let written = written(visit.cache());
                on_files(move || move_to(&written, tree.root()).map_err(|err| Failure::internal(&err))).await
            }
            .boxed()
        })
        .await?;
        measure(&self.caches, &tree.kept).await?;
        Ok(tree)
    }
}

/// Moves a folder to where nothing is.
fn move_to(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(around) = to.parent() {
        fs::create_dir_all(around)?;
    }
    fs::rename(from, to)
}

/// Writes the tree of a commit into the folder of its repository, in the process that reads the source.
pub(super) fn write(repository: &Repository, commit: Oid, purpose: Purpose) -> Result<(), Failure> {
    let into = written(repository.path());
    let failed = |err: io::Error| Failure::internal(&err);
    match fs::remove_dir_all(&into) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(failed(err)),
        _ => fs::create_dir(&into).map_err(failed)?,
    }
    let mut writing = Writing { repository, purpose, entries: 0, bytes: 0 };
    writing.folder(&content::root(repository, commit)?, &into, "", 0)
}

struct Writing<'r> {
    repository: &'r Repository,
    purpose: Purpose,
    entries: usize,
    bytes: u64,
}

impl Writing<'_> {
    fn folder(&mut self, tree: &git2::Tree<'_>, into: &Path, path: &str, depth: usize) -> Result<(), Failure> {
        if depth > DEEPEST {
            return Err(too_large(path));
        }
        let mut names = HashSet::new();
        for entry in tree {
            let name = entry.name_bytes();
            // Git writes none of these. A name that is there twice would be written through the first, which may be a link.
            let is_wrong =
                name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0);
            if is_wrong || !names.insert(name.to_vec()) {
                let message = format!("has an entry {:?}, which no file can have", String::from_utf8_lossy(name));
                return Err(wrong(path, reason::REJECTED, message));
            }
            if name.eq_ignore_ascii_case(b".git") {
                continue;
            }
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                return Err(too_large(path));
            }
            let to = into.join(std::ffi::OsStr::from_bytes(name));
            let name = String::from_utf8_lossy(name);
            let path = if path.is_empty() { name.into_owned() } else { format!("{path}/{name}") };
            let failed = |err: io::Error| match err.kind() {
                io::ErrorKind::InvalidFilename => {
                    wrong(&path, reason::REJECTED, "has a name that is too long".to_owned())
                }
                _ => Failure::internal(&err),
            };
            match entry.kind() {
                Some(ObjectType::Tree) => {
                    if size(self.repository, entry.id())? as u64 > MOST_BYTES {
                        return Err(too_large(&path));
                    }
                    let tree = self.repository.find_tree(entry.id()).map_err(|err| here(&err))?;
                    fs::create_dir(&to).map_err(failed)?;
                    self.folder(&tree, &to, &path, depth + 1)?;
                }
                Some(ObjectType::Blob) => self.file(&entry, &to, &path)?.map_err(failed)?,
                // Submodules are not read.
                _ => {}
            }
        }
        Ok(())
    }

    fn file(&mut self, entry: &TreeEntry<'_>, to: &Path, path: &str) -> Result<io::Result<()>, Failure> {
        let bytes = size(self.repository, entry.id())?;
        if bytes as u64 > self.purpose.largest_file() {
            return Ok(fs::File::create_new(to).and_then(|file| file.set_len(bytes as u64)));
        }
        self.bytes += bytes as u64;
        if self.bytes > MOST_BYTES {
            return Err(too_large(path));
        }
        let blob = self.repository.find_blob(entry.id()).map_err(|err| here(&err))?;
        if is_link(entry) {
            let target = std::ffi::OsStr::from_bytes(blob.content());
            return Ok(match std::os::unix::fs::symlink(target, to) {
                // No file system has such a link.
                Err(err) if matches!(err.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) => Ok(()),
                linked => linked,
            });
        }
        let written = fs::write(to, blob.content());
        Ok(match self.purpose {
            Purpose::Render => written,
            Purpose::Run => written.and_then(|()| fs::set_permissions(to, fs::Permissions::from_mode(0o700))),
        })
    }
}

fn wrong(path: &str, reason: &str, message: String) -> Failure {
    Failure::invalid(vec![Problem { file: path.to_owned(), ..problem(reason, message) }])
}

fn too_large(path: &str) -> Failure {
    let message = format!(
        "the repository is too large for this generator: {MOST_ENTRIES} files, {} MiB without files over {} MiB, and {DEEPEST} levels \
         are possible; use a repository of its own",
        MOST_BYTES >> 20,
        LARGEST_FILE >> 20
    );
    wrong(path, reason::TOO_LARGE, message)
}
