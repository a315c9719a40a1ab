//! Reads package revisions of refs and of the deployed branch.
//!
//! Start at [`Reader`]. [`Marks`] has the branches that propose deletions.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use git2::{Oid, Repository, Tree};
use prost::bytes::Bytes;
use stoa_engine_git::{bounded, files as git_files};
use stoa_packages::git_layout::{self, BRANCH_REVISION, RefKind, RevisionRef};
use stoa_packages::kptfile::Kptfile;
use stoa_proto::{DiscoverRequest, DiscoveredRevision, GitRef, Problem};
use tonic::Code;

use super::{history, tree};
use crate::failure::{Failure, problem, reason};
use crate::source::{Cache, error};

/// The largest Kptfile that is in an answer, in bytes.
const LARGEST_KPTFILE: usize = 256 << 10;

/// The name of the file that makes a folder a package.
const KPTFILE: &str = "Kptfile";

/// Reasons of revisions that cannot be used.
mod unusable {
    pub(super) const INVALID_KPTFILE: &str = "InvalidKptfile";
    pub(super) const MISSING_KPTFILE: &str = "MissingKptfile";
    pub(super) const INVALID_REF: &str = "InvalidRef";
}

/// The branches that propose deletions.
pub(super) struct Marks<'r> {
    now: BTreeMap<(String, String), &'r GitRef>,
    /// Those that came, moved or went.
    new: BTreeSet<(String, String)>,
}

impl<'r> Marks<'r> {
    pub(super) fn of(now: &'r [GitRef], removed: &[String], changed: &[&GitRef]) -> Self {
        let mark = |name: &str| RevisionRef::parse(name).filter(|of| of.kind == RefKind::DeletionProposed).map(key);
        let new = removed.iter().map(String::as_str).chain(changed.iter().map(|of| of.name.as_str()));
        Self {
            now: now.iter().filter_map(|of| Some((mark(&of.name)?, of))).collect(),
            new: new.filter_map(mark).collect(),
        }
    }

    /// The branch of a revision, by its number or the workspace of a package on the deployed branch.
    fn get(&self, path: &str, revision: i32, workspace: &str) -> Option<&'r GitRef> {
        let of = RevisionRef::published(RefKind::DeletionProposed, path, revision, workspace);
        self.now.get(&key(of)).copied()
    }

    /// Whether the branch of a tag's revision came, moved or went.
    pub(super) fn are_new_for(&self, revision: &RevisionRef) -> bool {
        let of = RevisionRef::published(RefKind::DeletionProposed, &revision.path, revision.revision(), &revision.last);
        revision.kind == RefKind::Tag && self.new.contains(&key(of))
    }

    /// The packages of the deployed branch whose branches came, moved or went.
    fn new_on_branch<'m>(&'m self, workspace: &'m str) -> impl Iterator<Item = &'m str> {
        self.new.iter().filter(move |(_, last)| last == workspace).map(|(path, _)| path.as_str())
    }
}

fn key(of: RevisionRef) -> (String, String) {
    (of.path, of.last)
}

/// Packages of the deployed branch.
pub(super) struct Packages {
    /// By path, with their trees.
    pub(super) changed: BTreeMap<String, Oid>,
    pub(super) removed: Vec<String>,
}

/// Reads revisions from a cache.
pub(super) struct Reader<'c> {
    cache: &'c Cache,
    request: &'c DiscoverRequest,
    /// The full name of the deployed branch.
    branch: &'c str,
    directory: &'c str,
    marks: &'c Marks<'c>,
    /// Kptfiles by their ids: most revisions share one with others.
    kptfiles: RefCell<HashMap<Oid, (Bytes, Option<Problem>)>>,
}

/// The outcome of reading a ref.
enum Unread {
    /// The ref is no package, or a broken one; `true` for the former.
    Ref(bool, Box<Problem>),
    /// The cache or its limits are at fault.
    Failed(Failure),
}

impl<'c> Reader<'c> {
    /// A reader of a directory, without slashes around it.
    pub(super) fn new(
        cache: &'c Cache,
        request: &'c DiscoverRequest,
        (branch, directory): (&'c str, &'c str),
        marks: &'c Marks<'c>,
    ) -> Self {
        Self { cache, request, branch, directory, marks, kptfiles: RefCell::default() }
    }

    fn repository(&self) -> &Repository {
        &self.cache.repository
    }

    /// The packages of the deployed branch that changed since an earlier commit of it, or all.
    pub(super) fn packages(&self, head: Oid, before: Option<Oid>) -> Result<Packages, Failure> {
        let repository = self.repository();
        let folder = |commit| {
            let folder = git_files::folder(repository, commit, self.directory);
            folder.map_err(|err| error::here(&err))
        };
        let now = folder(head)?;
        let then = before.map(folder).transpose()?.flatten();
        let changed = tree::changed(repository, self.directory, then.as_ref(), now.as_ref());
        let tree::Changed { mut packages, removed } = changed.map_err(|err| too_large(&err))?;
        for path in self.marks.new_on_branch(&self.request.branch) {
            if let Some(now) = git_files::folder(repository, head, path).map_err(|err| error::here(&err))?
                && now.get_name(KPTFILE).is_some()
            {
                packages.insert(path.to_owned(), now.id());
            }
        }
        // The directory itself has no name.
        packages.retain(|path, _| git_layout::package_in(path, self.directory).is_some());
        Ok(Packages { changed: packages, removed })
    }

    /// A package of the deployed branch.
    pub(super) fn package(
        &self,
        path: &str,
        folder: Oid,
        head: &str,
        author: Option<&stoa_proto::GitPerson>,
    ) -> Result<DiscoveredRevision, Failure> {
        let repository = self.repository();
        let folder = bounded::tree(repository, folder).map_err(|err| too_large(&err))?;
        let mut revision = DiscoveredRevision {
            r#ref: self.branch.to_owned(),
            commit: head.to_owned(),
            ref_commit: head.to_owned(),
            ..self.named(path, &self.request.branch, BRANCH_REVISION)
        };
        self.fill(&mut revision, &folder)?;
        let person = || -> Result<_, git2::Error> {
            Ok(history::person(&bounded::commit(repository, Oid::from_str(head)?)?.author()))
        };
        revision.author = Some(match author {
            Some(author) => author.clone(),
            None => person().map_err(|err| error::here(&err))?,
        });
        Ok(revision)
    }

    /// The tree and the Kptfile of a package that is a commit of its own.
    pub(super) fn artifact(&self, path: &str, commit: Oid) -> Result<DiscoveredRevision, Failure> {
        let folder = git_files::folder(self.repository(), commit, "").map_err(|err| error::here(&err))?;
        let folder = folder.ok_or_else(|| Failure::internal(&"a commit has a root folder"))?;
        let mut revision = DiscoveredRevision { path: path.to_owned(), ..DiscoveredRevision::default() };
        self.fill(&mut revision, &folder)?;
        if folder.get_name(KPTFILE).is_none() {
            let message =
                format!("the archive has no {KPTFILE} at its root; pack the files of the package, not its folder");
            let file = format!("{path}/{KPTFILE}");
            revision.problem = Some(Problem { file, ..problem(unusable::MISSING_KPTFILE, message) });
        }
        Ok(revision)
    }

    /// A revision without content.
    fn named(&self, path: &str, workspace: &str, revision: i32) -> DiscoveredRevision {
        let deletion = self.marks.get(path, revision, workspace).filter(|_| revision != 0);
        DiscoveredRevision {
            package: git_layout::package_in(path, self.directory).unwrap_or(path).to_owned(),
            path: path.to_owned(),
            workspace: workspace.to_owned(),
            revision,
            lifecycle: if deletion.is_some() { "DeletionProposed" } else { "Published" }.to_owned(),
            deletion_proposed: deletion.cloned(),
            ..DiscoveredRevision::default()
        }
    }

    /// The revision of a ref; nothing for a tag that is no package's.
    pub(super) fn revision(&self, of: &GitRef, name: &RevisionRef) -> Result<Option<DiscoveredRevision>, Failure> {
        let is_tag = name.kind == RefKind::Tag;
        let mut revision = match name.kind {
            RefKind::Tag => self.named(&name.path, &name.last, name.revision()),
            _ => self.named(&name.path, &name.last, 0),
        };
        revision.r#ref = of.name.clone();
        revision.ref_commit = of.commit.clone();
        match name.kind {
            RefKind::Draft => revision.lifecycle = "Draft".to_owned(),
            RefKind::Proposed => revision.lifecycle = "Proposed".to_owned(),
            RefKind::Tag | RefKind::DeletionProposed => {}
        }
        match self.read(&mut revision, name) {
            Ok(()) => Ok(Some(revision)),
            Err(Unread::Ref(true, _)) if is_tag => Ok(None),
            Err(Unread::Ref(_, problem)) => {
                revision.problem = Some(*problem);
                Ok(Some(revision))
            }
            Err(Unread::Failed(failure)) => Err(failure),
        }
    }

    fn read(&self, revision: &mut DiscoveredRevision, name: &RevisionRef) -> Result<(), Unread> {
        let repository = self.repository();
        let broken = |err: git2::Error| unread(&err, &revision.r#ref);
        let id = Oid::from_str(&revision.ref_commit).map_err(broken)?;
        let commit = repository.find_object(id, None).and_then(|object| object.peel_to_commit()).map_err(broken)?;
        let commit = bounded::commit(repository, commit.id()).map_err(broken)?;
        let folder = git_files::folder(repository, commit.id(), &name.path).map_err(broken)?;
        let annotation = history::annotation(&commit, &name.path);
        if name.kind == RefKind::Tag && name.revision() != BRANCH_REVISION {
            let workspace = annotation.map(|annotation| annotation.workspace_name).filter(|name| !name.is_empty());
            revision.workspace = workspace.unwrap_or_else(|| format!("v{}", name.revision()));
        }
        revision.commit = commit.id().to_string();
        revision.author = Some(history::person(&commit.author()));
        let missing = || {
            let message = format!("{} has no {KPTFILE}; add one, or delete the ref", revision.r#ref);
            let file = format!("{}/{KPTFILE}", name.path);
            Unread::Ref(true, Box::new(Problem { file, ..problem(unusable::MISSING_KPTFILE, message) }))
        };
        let Some(folder) = folder else { return Err(missing()) };
        if folder.get_name(KPTFILE).is_none() {
            let missing = missing();
            revision.tree = folder.id().to_string();
            return Err(missing);
        }
        self.fill(revision, &folder).map_err(Unread::Failed)?;
        let task = history::first_task(repository, &commit, &name.path, &revision.workspace);
        revision.task = task.map_err(|err| Unread::Failed(error::here(&err)))?;
        Ok(())
    }

    /// Adds the tree and the Kptfile.
    fn fill(&self, revision: &mut DiscoveredRevision, folder: &Tree<'_>) -> Result<(), Failure> {
        revision.tree = folder.id().to_string();
        let file = format!("{}/{KPTFILE}", revision.path);
        let wrong = |reason: &str, message: &str| Problem { file: file.clone(), ..problem(reason, message) };
        let Some(entry) = folder.get_name(KPTFILE) else { return Ok(()) };
        if entry.kind() != Some(git2::ObjectType::Blob) || entry.filemode() == 0o120_000 {
            let message = "is no file; commit the file itself";
            revision.problem = Some(wrong(unusable::INVALID_KPTFILE, message));
            return Ok(());
        }
        let mut kptfiles = self.kptfiles.borrow_mut();
        let (text, problem) = match kptfiles.entry(entry.id()) {
            std::collections::hash_map::Entry::Occupied(known) => known.get().clone(),
            std::collections::hash_map::Entry::Vacant(new) => {
                let read = kptfile(self.repository(), entry.id()).map_err(|err| error::here(&err))?;
                new.insert(match read {
                    Ok(text) => match Kptfile::parse(&text) {
                        Ok(_) => (text.into(), None),
                        Err(err) => (text.into(), Some(wrong(unusable::INVALID_KPTFILE, &causes(&err)))),
                    },
                    Err((reason, message)) => (Bytes::new(), Some(wrong(reason, &message))),
                })
                .clone()
            }
        };
        revision.kptfile = text;
        // Another package may have the same one.
        revision.problem = problem.map(|problem| Problem { file, ..problem });
        Ok(())
    }
}

/// The text of a Kptfile, or the reason and message of its problem.
fn kptfile(repository: &Repository, id: Oid) -> Result<Result<String, (&'static str, String)>, git2::Error> {
    if bounded::size(repository, id)? > LARGEST_KPTFILE {
        let message = format!("has more than {} KiB; move its content to other files", LARGEST_KPTFILE >> 10);
        return Ok(Err((reason::TOO_LARGE, message)));
    }
    let content = bounded::file(repository, id)?.content().to_vec();
    Ok(String::from_utf8(content).map_err(|_| (unusable::INVALID_KPTFILE, "is not UTF-8".to_owned())))
}

fn causes(err: &dyn std::error::Error) -> String {
    let mut text = err.to_string();
    let mut cause = err.source();
    while let Some(err) = cause {
        text.push_str(": ");
        text.push_str(&err.to_string());
        cause = err.source();
    }
    text
}

/// An error about one ref, unless the cache lacks an object that it fetched.
fn unread(err: &git2::Error, name: &str) -> Unread {
    let is_of_ref = bounded::is_too_large(err)
        || matches!(err.code(), git2::ErrorCode::Peel | git2::ErrorCode::InvalidSpec | git2::ErrorCode::Invalid);
    if is_of_ref {
        let message = format!("{name} leads to no commit that can be read: {}", err.message());
        Unread::Ref(true, Box::new(problem(unusable::INVALID_REF, message)))
    } else {
        Unread::Failed(error::here(err))
    }
}

/// An error of the deployed branch as a whole.
fn too_large(err: &git2::Error) -> Failure {
    if bounded::is_too_large(err) {
        let message = format!("the deployed branch cannot be read: {}", err.message());
        return Failure::new(Code::InvalidArgument, reason::TOO_LARGE, message);
    }
    error::here(err)
}
