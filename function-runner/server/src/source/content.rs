//! Reads a file or folder of a commit from Git's objects.

use std::collections::HashMap;
use std::fmt::Display;

use git2::{Commit, ObjectType, Oid, Repository, Tree, TreeEntry};
use tonic::Code;

use super::dependencies::{Dependencies, StackPath};
use super::error::here;
use super::lock;
use super::sources::StackPaths;
use crate::failure::{Failure, problem, reason};
use crate::generate::{OVERLAYS, is_of_tool};

/// The most files of a folder that are read.
pub(super) const MOST_FILES: usize = 10_000;
/// The most bytes of a folder that are read.
pub(super) const MOST_BYTES: usize = 64 << 20;
/// The largest commit, in bytes: a message, signatures, and who its parents are.
const LARGEST_COMMIT: usize = 16 << 20;
/// The deepest folder that is read, in levels.
pub(super) const DEEPEST: usize = 32;
/// The most entries of trees that are read in a stack's folder, and the length of their paths in all, in bytes: a few trees can
/// contain each other often, and expand to any number of entries.
const MOST_ENTRIES: usize = 100_000;
const MOST_PATHS: usize = 32 << 20;
/// The most ignored entries that are listed one by one; the rest are counted.
const MOST_WARNINGS: usize = 100;

/// The problem of a file that is a link.
pub(super) const LINKED: &str =
    "a symbolic link, which Stoa does not follow; commit the file itself, or remove the link";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceFile {
    /// From the root of the source, such as `apps/web/deploy.yaml`.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
}

/// The content at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// The path is a file.
    File(SourceFile),
    /// The path is a folder.
    Folder {
        /// From the root of the source; empty for the root.
        path: String,
        /// The YAML and JSON files, below the folder too, sorted by path.
        files: Vec<SourceFile>,
        /// The names of all other files right in the folder, and the paths below it of those of other tools, sorted.
        others: Vec<String>,
        /// Warnings about ignored entries.
        warnings: Vec<String>,
    },
}

/// Everything that a Spec is rendered from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StackFiles {
    pub(crate) content: Content,
    /// The lock file of Terraform's providers: of the folder, or else of the nearest folder around it that has one.
    pub(crate) lock: Option<LockFile>,
}

/// A lock file of Terraform's providers, or why it cannot be read, which matters only to a Spec with such resources.
pub(crate) type LockFile = Result<SourceFile, stoa_proto::Problem>;

impl From<Content> for StackFiles {
    fn from(content: Content) -> Self {
        Self { content, lock: None }
    }
}

impl Content {
    /// All files that are read.
    pub(crate) fn files(&self) -> &[SourceFile] {
        match self {
            Self::File(file) => std::slice::from_ref(file),
            Self::Folder { files, .. } => files,
        }
    }

    /// The same, to be changed before a generator reads them.
    pub(crate) fn files_mut(&mut self) -> &mut [SourceFile] {
        match self {
            Self::File(file) => std::slice::from_mut(file),
            Self::Folder { files, .. } => files,
        }
    }
}

/// Whether generators read such a file.
pub(super) fn is_readable(name: &str) -> bool {
    // The third name that kustomize reads.
    if name == "Kustomization" {
        return true;
    }
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    matches!(extension.as_deref(), Some("yaml" | "yml" | "json"))
}

/// Reads a commit, unless it is too large.
pub(super) fn commit(repository: &Repository, commit: Oid) -> Result<Commit<'_>, Failure> {
    if size(repository, commit)? > LARGEST_COMMIT {
        let message = format!("commit {commit} has more than {} MiB", LARGEST_COMMIT >> 20);
        return Err(Failure::new(Code::InvalidArgument, reason::TOO_LARGE, message));
    }
    repository.find_commit(commit).map_err(|err| here(&err))
}

/// The root folder of a commit.
pub(super) fn root(repository: &Repository, of: Oid) -> Result<Tree<'_>, Failure> {
    let tree = commit(repository, of)?.tree_id();
    if size(repository, tree)? > MOST_BYTES {
        return Err(too_large(""));
    }
    repository.find_tree(tree).map_err(|err| here(&err))
}

/// What is at a path of a commit, which is named as `revision` in errors.
pub(super) fn read(repository: &Repository, commit: Oid, revision: &str, path: &str) -> Result<StackFiles, Failure> {
    let path = normalized(path)?;
    let root = root(repository, commit)?;
    let lock = lock::of_tree(repository, &root, &path)?;
    Ok(StackFiles { content: read_at(repository, revision, &root, path)?, lock })
}

fn read_at(repository: &Repository, revision: &str, root: &Tree<'_>, path: String) -> Result<Content, Failure> {
    let internal = |err: git2::Error| here(&err);
    if path.is_empty() {
        return read_folder(repository, root, path);
    }
    let entry = root.get_path(path.as_ref()).map_err(|_| not_found(&path, revision))?;
    match entry.kind() {
        Some(ObjectType::Tree) => {
            let tree = repository.find_tree(entry.id()).map_err(internal)?;
            read_folder(repository, &tree, path)
        }
        Some(ObjectType::Blob) if !is_link(&entry) => {
            if size(repository, entry.id())? > MOST_BYTES {
                return Err(too_large(&path));
            }
            let bytes = repository.find_blob(entry.id()).map_err(internal)?.content().to_vec();
            Ok(Content::File(SourceFile { path, bytes }))
        }
        _ => {
            let message = "is a symbolic link or a submodule, which are not followed";
            let wrong = stoa_proto::Problem { file: path, ..problem(reason::PATH_NOT_FOUND, message) };
            Err(Failure::of(Code::NotFound, vec![wrong]))
        }
    }
}

/// The ids of the files or folders at paths. An id identifies the content that [`read`] finds there. Paths that do not exist
/// have none.
pub(super) fn ids(repository: &Repository, commit: Oid, of: StackPaths) -> Result<HashMap<String, String>, Failure> {
    let root = root(repository, commit)?;
    let dependencies = Dependencies::new(repository);
    let id = |path: &String| {
        let plain = normalized(path).ok()?;
        let stack = StackPath { path: &plain, values_files: of.values_files(path) };
        Some((path.clone(), id_of_stack(&dependencies, &root, stack)?))
    };
    Ok(of.paths.iter().filter_map(id).collect())
}

/// The id of everything that generators read for the stack at a path that is [`normalized`], if anything is there.
pub(super) fn id_of_stack(dependencies: &Dependencies<'_>, root: &Tree<'_>, stack: StackPath<'_>) -> Option<String> {
    let own = id_in(root, stack.path)?;
    let outside = dependencies.ids(root, stack);
    let lock = lock::id_around(root, stack.path).unwrap_or_default();
    let parts = [own, outside, lock];
    Some(parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join("+"))
}

/// The id of the file or folder at a path that is [`normalized`], if anything is there.
pub(super) fn id_in(root: &Tree<'_>, path: &str) -> Option<String> {
    if path.is_empty() {
        return Some(root.id().to_string());
    }
    let entry = root.get_path(path.as_ref()).ok()?;
    // A link in one commit and a file in the next may have the same bytes.
    Some(id_of(&entry))
}

pub(super) fn id_of(entry: &TreeEntry<'_>) -> String {
    format!("{:o}:{}", entry.filemode(), entry.id())
}

/// Which of some paths a commit changes since its history left that of `base`, or as compared with that if they share none.
/// Nothing where the commit is in that history.
pub(super) fn changed(
    repository: &Repository,
    base: Oid,
    commit: Oid,
    of: &StackPaths,
) -> Result<Option<Vec<String>>, Failure> {
    let from = match repository.merge_base(base, commit) {
        Ok(from) => from,
        Err(err) if err.code() == git2::ErrorCode::NotFound => base,
        Err(err) => return Err(here(&err)),
    };
    if from == commit {
        return Ok(None);
    }
    let (before, after) = (root(repository, from)?, root(repository, commit)?);
    let dependencies = Dependencies::new(repository);
    let mut changed = Vec::new();
    for path in &of.paths {
        let plain = normalized(path)?;
        let stack = StackPath { path: &plain, values_files: of.values_files(path) };
        if id_of_stack(&dependencies, &before, stack) != id_of_stack(&dependencies, &after, stack) {
            changed.push(path.clone());
        }
    }
    Ok(Some(changed))
}

/// The path and the text of one file.
///
/// # Errors
///
/// NOT_FOUND when no file is there; INVALID_ARGUMENT when it has more than `most` bytes, or is no text.
pub(super) fn file(
    repository: &Repository,
    (commit, revision): (Oid, &str),
    path: &str,
    most: usize,
) -> Result<(String, String), Failure> {
    let path = normalized(path)?;
    let internal = |err: git2::Error| here(&err);
    let root = root(repository, commit)?;
    let entry = root.get_path(path.as_ref()).map_err(|_| not_found(&path, revision))?;
    let wrong = |code, why: &str, message: String| {
        Failure::of(code, vec![stoa_proto::Problem { file: path.clone(), ..problem(why, message) }])
    };
    if entry.kind() != Some(ObjectType::Blob) || is_link(&entry) {
        return Err(wrong(Code::NotFound, reason::PATH_NOT_FOUND, "is not a file".to_owned()));
    }
    if size(repository, entry.id())? > most {
        let message = format!("is larger than {most} bytes");
        return Err(wrong(Code::InvalidArgument, reason::TOO_LARGE, message));
    }
    let blob = repository.find_blob(entry.id()).map_err(internal)?;
    match String::from_utf8(blob.content().to_vec()) {
        Ok(text) => Ok((path, text)),
        Err(_) => Err(wrong(Code::InvalidArgument, reason::MALFORMED_YAML, "is not UTF-8".to_owned())),
    }
}

/// A path without `.` and superfluous slashes, from the root of the source.
pub(crate) fn normalized(path: &str) -> Result<String, Failure> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return Err(Failure::request(format!("path {path:?} points outside the source")));
    }
    Ok(parts.join("/"))
}

fn read_folder(repository: &Repository, tree: &Tree<'_>, path: String) -> Result<Content, Failure> {
    let mut walk = Walk {
        repository,
        files: Vec::new(),
        others: Vec::new(),
        warnings: Vec::new(),
        untold: 0,
        bytes: 0,
        entries: 0,
        paths: 0,
    };
    walk.folder(tree, &path, 0)?;
    let Walk { mut files, others, mut warnings, untold, .. } = walk;
    let begin = if path.is_empty() { 0 } else { path.len() + 1 };
    let mut others: Vec<String> = others.iter().filter_map(|path| path.get(begin..)).map(str::to_owned).collect();
    if untold > 0 {
        warnings.push(format!("{untold} more symbolic links and submodules are ignored"));
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    others.sort();
    Ok(Content::Folder { path, files, others, warnings })
}

struct Walk<'r> {
    repository: &'r Repository,
    files: Vec<SourceFile>,
    others: Vec<String>,
    warnings: Vec<String>,
    /// The number of ignored entries without a warning of their own.
    untold: usize,
    bytes: usize,
    /// How many entries were looked at, and how long their paths are.
    entries: usize,
    paths: usize,
}

impl Walk<'_> {
    fn folder(&mut self, tree: &Tree<'_>, path: &str, depth: usize) -> Result<(), Failure> {
        if depth > DEEPEST {
            return Err(too_large(path));
        }
        for entry in tree {
            let name = String::from_utf8_lossy(entry.name_bytes()).into_owned();
            (self.entries, self.paths) = (self.entries + 1, self.paths + path.len() + name.len());
            if self.entries > MOST_ENTRIES || self.paths > MOST_PATHS {
                return Err(too_large(path));
            }
            let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            if name.starts_with('.') {
                continue;
            }
            match entry.kind() {
                Some(ObjectType::Tree) => {
                    if size(self.repository, entry.id())? > MOST_BYTES {
                        return Err(too_large(&path));
                    }
                    let tree = self.repository.find_tree(entry.id()).map_err(|err| here(&err))?;
                    self.folder(&tree, &path, depth + 1)?;
                }
                Some(ObjectType::Blob) if is_link(&entry) && (is_readable(&name) || is_overlay(&path, depth)) => {
                    return Err(link(&path));
                }
                Some(ObjectType::Blob) if is_link(&entry) => self.pass_over(&path, "symbolic links are not followed"),
                Some(ObjectType::Blob) if is_readable(&name) => self.file(&entry, path)?,
                Some(ObjectType::Blob) if depth == 0 || is_of_tool(&path).is_some() => self.others.push(path),
                Some(ObjectType::Commit) => self.pass_over(&path, "submodules are not read"),
                _ => {}
            }
        }
        Ok(())
    }

    fn pass_over(&mut self, path: &str, why: &str) {
        if self.warnings.len() < MOST_WARNINGS {
            self.warnings.push(format!("{path}: {why}"));
        } else {
            self.untold += 1;
        }
    }

    fn file(&mut self, entry: &TreeEntry<'_>, path: String) -> Result<(), Failure> {
        self.bytes = self.bytes.saturating_add(size(self.repository, entry.id())?);
        if self.files.len() >= MOST_FILES || self.bytes > MOST_BYTES {
            return Err(too_large(&path));
        }
        let blob = self.repository.find_blob(entry.id()).map_err(|err| here(&err))?;
        self.files.push(SourceFile { path, bytes: blob.content().to_vec() });
        Ok(())
    }
}

/// How many bytes an object has, which Git knows without unpacking it.
pub(super) fn size(repository: &Repository, object: Oid) -> Result<usize, Failure> {
    let header = repository.odb().and_then(|objects| objects.read_header(object));
    header.map(|(size, _)| size).map_err(|err| here(&err))
}

pub(super) fn is_link(entry: &TreeEntry<'_>) -> bool {
    entry.filemode() == 0o120_000
}

/// Whether a path that many levels below a stack's folder is that of all overlays, or of the overlay of a workspace.
fn is_overlay(path: &str, depth: usize) -> bool {
    let mut names = path.rsplit('/');
    depth <= 1 && names.nth(depth) == Some(OVERLAYS)
}

pub(super) fn not_found(path: &str, commit: impl Display) -> Failure {
    let message = format!("does not exist at commit {commit}");
    let wrong = stoa_proto::Problem { file: path.to_owned(), ..problem(reason::PATH_NOT_FOUND, message) };
    Failure::of(Code::NotFound, vec![wrong])
}

/// A link to a manifest or an overlay: ignoring it would remove its objects, or its changes.
pub(super) fn link(path: &str) -> Failure {
    let wrong = stoa_proto::Problem { file: path.to_owned(), ..problem(reason::INVALID_MANIFEST, LINKED) };
    Failure::invalid(vec![wrong])
}

pub(super) fn too_large(path: &str) -> Failure {
    let message = format!(
        "a stack's folder may hold {MOST_FILES} files, {} MiB and {DEEPEST} levels, and {MOST_ENTRIES} entries in all",
        MOST_BYTES >> 20
    );
    let wrong = stoa_proto::Problem { file: path.to_owned(), ..problem(reason::TOO_LARGE, message) };
    Failure::invalid(vec![wrong])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten levels of trees that name the one below ten times each, over what a leaf is.
    fn nested(repository: &Repository, leaf: Oid, mode: i32) -> Oid {
        let mut tree = repository.treebuilder(None).unwrap();
        tree.insert("leaf", leaf, mode).unwrap();
        let mut below = tree.write().unwrap();
        for _ in 0..10 {
            let mut tree = repository.treebuilder(None).unwrap();
            for name in 0..10 {
                tree.insert(format!("d{name}"), below, 0o040_000).unwrap();
            }
            below = tree.write().unwrap();
        }
        below
    }

    #[test]
    fn tree_bomb_is_too_large() {
        let directory = tempfile::TempDir::new().unwrap();
        let repository = Repository::init_bare(directory.path()).unwrap();
        let blob = repository.blob(b"x").unwrap();
        let began = std::time::Instant::now();
        // A file that nobody reads, a symbolic link, and a submodule.
        for mode in [0o100_644, 0o120_000, 0o160_000] {
            let tree = repository.find_tree(nested(&repository, blob, mode)).unwrap();
            let Err(failure) = read_folder(&repository, &tree, "apps".to_owned()) else { panic!("it is refused") };
            assert_eq!(failure.problems()[0].reason, reason::TOO_LARGE);
        }
        assert!(began.elapsed().as_secs() < 60, "it is not walked to its end");
    }

    #[test]
    fn warnings_name_some_links_and_count_the_rest() {
        let directory = tempfile::TempDir::new().unwrap();
        let repository = Repository::init_bare(directory.path()).unwrap();
        let blob = repository.blob(b"x").unwrap();
        let warnings = |number: usize| {
            let mut tree = repository.treebuilder(None).unwrap();
            for at in 0..number {
                let mode = if at % 2 == 0 { 0o120_000 } else { 0o160_000 };
                tree.insert(format!("l{at:03}"), blob, mode).unwrap();
            }
            let tree = repository.find_tree(tree.write().unwrap()).unwrap();
            let content = read_folder(&repository, &tree, "apps".to_owned()).unwrap();
            let Content::Folder { warnings, .. } = content else { panic!("{content:?}") };
            warnings
        };
        let all = warnings(MOST_WARNINGS);
        assert_eq!(all.len(), MOST_WARNINGS);
        assert_eq!(all[..2], ["apps/l000: symbolic links are not followed", "apps/l001: submodules are not read"]);
        let mut tree = repository.treebuilder(None).unwrap();
        tree.insert("b.yaml", blob, 0o120_000).unwrap();
        let tree = repository.find_tree(tree.write().unwrap()).unwrap();
        let refused = read_folder(&repository, &tree, "apps".to_owned()).unwrap_err();
        assert_eq!((refused.problems()[0].file.as_str(), refused.code()), ("apps/b.yaml", Code::InvalidArgument));
        for (link, overlays) in [("s/workspaces", None), ("s/workspaces/prod", Some("prod"))] {
            let mut tree = repository.treebuilder(None).unwrap();
            match overlays {
                None => tree.insert("workspaces", blob, 0o120_000).unwrap(),
                Some(name) => {
                    let mut below = repository.treebuilder(None).unwrap();
                    below.insert(name, blob, 0o120_000).unwrap();
                    tree.insert("workspaces", below.write().unwrap(), 0o040_000).unwrap()
                }
            };
            let tree = repository.find_tree(tree.write().unwrap()).unwrap();
            assert_eq!(read_folder(&repository, &tree, "s".to_owned()).unwrap_err().problems()[0].file, link);
        }
        let more = warnings(MOST_WARNINGS + 3);
        assert_eq!(more[..MOST_WARNINGS], all);
        assert_eq!(more[MOST_WARNINGS..], ["3 more symbolic links and submodules are ignored"]);
    }
}
