//! The branch of a repository: opens a local repository in place, and a remote one through a cached bare copy.
//!
//! Many Runs share a copy without a lock, at different branches and commits. Therefore each fetch or push has a
//! temporary reference of its own ([`Own`]). Objects need no references, since libgit2 never removes any. One lasting
//! reference for each branch lets a server skip known objects.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use git2::{Config, ConfigLevel, ErrorClass, ErrorCode, ObjectType, Oid, Repository, Signature, Tree};
use sha2::{Digest as _, Sha256};
use stoa_failpoint::reached;
use stoa_git::cache::Kept;
use stoa_git::{Explanation, Problem, cache, without_userinfo};
use stoa_runtime::{Grant, RuntimeError};

use crate::Remotes;
use crate::bounded::{self, Paths};
use crate::remote::{Reached, Request, Task, Unreached};

#[derive(Debug)]
pub(crate) struct Branch {
    /// The repository's name for people, without user and password.
    shown: String,
    /// `refs/heads/<branch>`
    reference: String,
    /// Whether the first commit creates the branch.
    create: bool,
    pub(crate) location: Location,
    cache: Kept,
    remotes: Arc<dyn Remotes>,
    /// The reference in the copy of a remote repository from which a server learns what there is of the branch.
    known: String,
}

pub(crate) struct Opened {
    repository: Repository,
    /// Which copy it is, where it is one.
    copy: Option<Identity>,
}

impl Deref for Opened {
    type Target = Repository;

    fn deref(&self) -> &Repository {
        &self.repository
    }
}

/// The identity of a folder: device, inode, and creation time, since inode numbers are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(u64, u64, Option<SystemTime>);

impl Identity {
    /// The identity of the folder at a path, if it exists.
    fn of(path: &Path) -> Option<Self> {
        let found = path.metadata().ok()?;
        Some(Self(found.dev(), found.ino(), found.created().ok()))
    }

    /// Removes the folder from a path, unless another one is there.
    fn remove(self, path: &Path) -> std::io::Result<()> {
        if Self::of(path) == Some(self) { cache::remove(path) } else { Ok(()) }
    }
}

/// A temporary reference in a copy, deleted when this is dropped.
struct Own<'r> {
    repository: &'r Repository,
    name: String,
}

impl<'r> Own<'r> {
    fn new(repository: &'r Repository) -> Self {
        // The next process removes the references of a killed one.
        let name = format!("refs/stoa/{}refs/{:032x}", cache::UNFINISHED, rand::random::<u128>());
        Self { repository, name }
    }
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        if let Ok(mut reference) = self.repository.find_reference(&self.name) {
            // A remaining reference does no harm.
            let _ = reference.delete();
        }
    }
}

#[derive(Debug)]
pub(crate) enum Location {
    Local(PathBuf),
    Remote(String),
}

/// The result of a branch update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Advance {
    /// It was.
    Done,
    /// Somebody else moved it first, or seems to have.
    Raced(String),
}

impl Branch {
    pub(crate) fn new(
        repository: &str,
        reference: String,
        create: bool,
        cache: Kept,
        remotes: Arc<dyn Remotes>,
    ) -> Self {
        let location =
            stoa_git::local_path(repository).map_or_else(|| Location::Remote(repository.to_owned()), Location::Local);
        // Successive branches may be named `a` and `a/b`, which files cannot.
        let known = format!("refs/stoa/heads/{}", hex(&Sha256::digest(reference.as_bytes())));
        Self { shown: without_userinfo(repository), reference, create, location, cache, remotes, known }
    }

    /// The repository's name for people.
    pub(crate) fn repository(&self) -> &str {
        &self.shown
    }

    /// Does some work with the repository. Where that is a copy, nothing in it leads out of it meanwhile.
    pub(crate) fn apart<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, RuntimeError> + Send,
    ) -> Result<T, RuntimeError> {
        let Location::Remote(_) = &self.location else { return work() };
        let (mut work, mut done) = (Some(work), None);
        let apart = self.remotes.apart(&mut || done = work.take().map(|work| work()));
        apart.map_err(|err| RuntimeError::Unread { message: format!("repository {}: {err}", self.shown) })?;
        done.expect("it is done once")
    }

    /// The branch's name for people.
    pub(crate) fn branch(&self) -> &str {
        self.reference.strip_prefix("refs/heads/").unwrap_or(&self.reference)
    }

    /// Looks at the tree at the head of the branch; there is none before the first commit.
    pub(crate) fn at_head<T>(
        &self,
        look: impl FnOnce(&Repository, Option<&Tree<'_>>) -> Result<T, git2::Error>,
    ) -> Result<T, RuntimeError> {
        let (repository, head) = self.head()?;
        let looked = || {
            let commit = head.map(|head| bounded::commit(&repository, head)).transpose()?;
            let tree = commit.as_ref().map(|commit| bounded::root(&repository, commit)).transpose()?;
            look(&repository, tree.as_ref())
        };
        looked().map_err(|err| self.explain_in(&repository, &err))
    }

    /// The repository with the head of the branch in it; no head before the first commit.
    ///
    /// # Errors
    ///
    /// Those of the repository, and [`RuntimeError::Rejected`] when the branch does not exist and is not to be made.
    pub(crate) fn head(&self) -> Result<(Opened, Option<Oid>), RuntimeError> {
        let (repository, head) = self.found_head()?;
        if head.is_none() && !self.create {
            let message = format!(
                "repository {} has no branch {}; create the branch, or set spec.gitops.createBranch: true",
                self.shown,
                self.branch()
            );
            let field = Some("spec.gitops.branch".to_owned());
            return Err(RuntimeError::Rejected { message, field, by_definition: false });
        }
        Ok((repository, head))
    }

    fn found_head(&self) -> Result<(Opened, Option<Oid>), RuntimeError> {
        match &self.location {
            Location::Local(path) => {
                let repository = self.local(path)?;
                let head = found(repository.refname_to_id(&self.reference)).map_err(|err| self.explain(&err))?;
                Ok((Opened { repository, copy: None }, head))
            }
            Location::Remote(url) => {
                let repository = self.copy(url).map_err(|err| self.explain(&err))?;
                let own = Own::new(&repository);
                let task = Task::Fetch { own: own.name.clone() };
                let reached = self.reach(&repository, url, task, &Grant::unlimited());
                drop(own);
                let head = reached.map_err(|unreached| self.explain_unreached(&repository, unreached))?.branch;
                self.note(&repository, head);
                Ok((repository, head))
            }
        }
    }

    /// Records the head that the copy has of the branch, so that the next fetch skips known objects. It may be that of
    /// any run.
    fn note(&self, repository: &Repository, head: Option<Oid>) {
        let known = repository.find_reference(&self.known).ok();
        let _ = match (known, head) {
            (Some(known), Some(head)) if known.target() == Some(head) => Ok(()),
            (_, Some(head)) => repository.reference(&self.known, head, true, "stoa").map(drop),
            (Some(mut known), None) => known.delete(),
            (None, None) => Ok(()),
        };
    }

    fn reach(&self, repository: &Opened, url: &str, task: Task, grant: &Grant) -> Result<Reached, Unreached> {
        let request = Request { url: url.to_owned(), branch: self.reference.clone(), task };
        self.remotes.reach(repository, &request, grant)
    }

    fn local(&self, path: &Path) -> Result<Repository, RuntimeError> {
        if !path.exists() {
            let message = format!("repository {} does not exist", self.shown);
            return Err(rejected(message));
        }
        let open = || {
            let repository = Repository::open(path)?;
            self.make_durable(&repository)?;
            Ok(repository)
        };
        let repository = open().map_err(|err| self.explain(&err))?;
        let checked_out =
            repository.find_reference("HEAD").ok().and_then(|head| head.symbolic_target().ok()?.map(str::to_owned));
        if !repository.is_bare() && checked_out.as_deref() == Some(self.reference.as_str()) {
            let message = format!("{} has {} checked out; use a bare repository", self.shown, self.reference);
            return Err(rejected(message));
        }
        Ok(repository)
    }

    /// Makes libgit2 sync its writes, without a change of the repository's settings.
    fn make_durable(&self, repository: &Repository) -> Result<(), git2::Error> {
        let settings = self.cache.path().join("durable.gitconfig");
        cache::put(&settings, |path| std::fs::write(path, "[core]\n\tfsyncObjectFiles = true\n").map_err(io))?;
        let mut config = Config::new()?;
        config.add_file(&repository.commondir().join("config"), ConfigLevel::Local, false)?;
        config.add_file(&settings, ConfigLevel::App, false)?;
        repository.set_config(&config)
    }

    /// The bare copy of a remote repository, which is made where there is none, or one that cannot be opened.
    fn copy(&self, url: &str) -> Result<Opened, git2::Error> {
        let path = self.path_of_copy(url);
        let before = Identity::of(&path);
        let repository = cache::open_or_make_bare(&path).or_else(|err| {
            before.map_or(Ok(()), |copy| copy.remove(&path)).map_err(|_| err)?;
            cache::open_or_make_bare(&path)
        })?;
        if self.remotes.shown().has_secrets() {
            stoa_git::stay_at_host(&repository)?;
        }
        Ok(Opened { repository, copy: Identity::of(&path) })
    }

    pub(crate) fn path_of_copy(&self, url: &str) -> PathBuf {
        self.cache.path().join(hex(&Sha256::digest(url.as_bytes())))
    }

    /// Moves the branch if it is still at `from` and the lease has not expired.
    pub(crate) fn advance(
        &self,
        repository: &Opened,
        from: Option<Oid>,
        to: Oid,
        grant: &Grant,
    ) -> Result<Advance, RuntimeError> {
        grant.check().map_err(|lapsed| RuntimeError::from(lapsed).before_a_change())?;
        reached("commit-made");
        let advanced = match &self.location {
            Location::Local(_) => self.update(repository, from, to),
            Location::Remote(url) => self.push(repository, url, [from.unwrap_or(Oid::ZERO_SHA1), to], grant),
        }?;
        if let Advance::Done = advanced {
            reached("branch-moved");
        }
        Ok(advanced)
    }

    fn update(&self, repository: &Opened, from: Option<Oid>, to: Oid) -> Result<Advance, RuntimeError> {
        let moved = match from {
            Some(from) => repository.reference_matching(&self.reference, to, true, from, "stoa").map(|_| true),
            None => create(repository, &self.reference, to),
        };
        match moved {
            Ok(true) => Ok(Advance::Done),
            Ok(false) => Ok(Advance::Raced("the branch was created meanwhile".to_owned())),
            Err(err)
                if matches!(
                    err.code(),
                    ErrorCode::Modified | ErrorCode::Exists | ErrorCode::Locked | ErrorCode::NotFound
                ) =>
            {
                Ok(Advance::Raced(self.scrub(err.message())))
            }
            Err(err) => Err(self.explain(&err)),
        }
    }

    fn push(
        &self,
        repository: &Opened,
        url: &str,
        [from, to]: [Oid; 2],
        grant: &Grant,
    ) -> Result<Advance, RuntimeError> {
        let own = Own::new(repository);
        let made = repository.reference(&own.name, to, true, "stoa");
        made.map_err(|err| self.explain_in(repository, &err).before_a_change())?;
        let why = match self.reach(repository, url, Task::Push { own: own.name.clone(), from }, grant) {
            Ok(Reached { refused: None, .. }) => {
                self.note(repository, Some(to));
                return Ok(Advance::Done);
            }
            Ok(Reached { refused: Some(why), .. }) => self.scrub(&why),
            Err(Unreached::Git(err))
                if matches!(
                    err.code(),
                    ErrorCode::NotFastForward | ErrorCode::Modified | ErrorCode::Exists | ErrorCode::Locked
                ) =>
            {
                return Ok(Advance::Raced(self.scrub(err.message())));
            }
            Err(unreached) => return Err(self.explain_unreached(repository, unreached)),
        };
        // A concurrent writer has the lock. Otherwise a hook's rejection and a lost race look alike; only a race has
        // moved the branch.
        if is_locked(&why) {
            return Ok(Advance::Raced(why));
        }
        let listed = self.reach(repository, url, Task::List, grant);
        let head = listed.map_err(|unreached| self.explain_unreached(repository, unreached))?.branch;
        if head.unwrap_or(Oid::ZERO_SHA1) == from {
            let message = format!("{} rejects the push: {why}", self.shown);
            return Err(RuntimeError::Rejected { message, field: None, by_definition: false });
        }
        Ok(Advance::Raced(why))
    }

    fn explain_unreached(&self, repository: &Opened, unreached: Unreached) -> RuntimeError {
        match unreached {
            Unreached::Git(err) => self.explain_in(repository, &err),
            Unreached::TooLarge(message) => rejected(message),
            Unreached::Unavailable(message) => RuntimeError::Unavailable { message },
            Unreached::Unbegun(message) => RuntimeError::Unread { message },
            Unreached::Lapsed => {
                let message = format!("the call lease expired before the push to {}", self.shown);
                RuntimeError::Unread { message }
            }
        }
    }

    /// Sorts an error as [`explain`](Self::explain) does. A broken copy, such as after a power failure, is removed, so
    /// that the next try fetches it again.
    pub(crate) fn explain_in(&self, repository: &Opened, err: &git2::Error) -> RuntimeError {
        if let (Location::Remote(url), Some(copy)) = (&self.location, repository.copy)
            && stoa_git::is_here(err)
        {
            // A copy that was fetched again meanwhile stays. A copy that cannot be removed is found broken again.
            let _ = copy.remove(&self.path_of_copy(url));
        }
        self.explain(err)
    }

    /// Sorts libgit2's errors by whether trying again may help.
    pub(crate) fn explain(&self, err: &git2::Error) -> RuntimeError {
        if bounded::is_too_large(err) {
            return rejected(format!("repository {}: {}", self.shown, err.message()));
        }
        if matches!(self.location, Location::Remote(_)) && stoa_git::is_here(err) {
            let message = format!("the copy of repository {} is broken and fetched anew", self.shown);
            return RuntimeError::Unavailable { message };
        }
        let Explanation { problem, message } = stoa_git::explain(err, self.remote(), &self.remotes.shown());
        let message = format!("repository {message}");
        let is_of_files = matches!(err.class(), ErrorClass::Os | ErrorClass::Repository | ErrorClass::Filesystem);
        match problem {
            // No file of a server's is opened here: another run had the copy removed while this one was at work in it.
            Problem::NotFound if is_of_files && matches!(self.location, Location::Remote(_)) => {
                let message = format!("the copy of repository {} was removed, and is fetched anew", self.shown);
                RuntimeError::Unavailable { message }
            }
            Problem::Unauthorized | Problem::Untrusted | Problem::Elsewhere | Problem::NotFound => rejected(message),
            Problem::Unreachable | Problem::Other => RuntimeError::Unavailable { message },
        }
    }

    /// The server's message without credentials, which it may repeat.
    fn scrub(&self, said: &str) -> String {
        stoa_git::scrub(said, self.remote(), &self.remotes.shown())
    }

    fn remote(&self) -> &str {
        match &self.location {
            Location::Remote(url) => url,
            Location::Local(_) => &self.shown,
        }
    }
}

/// Creates a reference; false if it exists. libgit2's own creation looks before it locks, so that the second of two would
/// replace the first.
fn create(repository: &Repository, name: &str, to: Oid) -> Result<bool, git2::Error> {
    let mut transaction = repository.transaction()?;
    transaction.lock_ref(name)?;
    if found(repository.refname_to_id(name))?.is_some() {
        return Ok(false);
    }
    let who = Signature::now("Stoa", "noreply@stoa.dev")?;
    transaction.set_target(name, to, Some(&who), "stoa")?;
    transaction.commit()?;
    Ok(true)
}

/// The error of a repository that others have to change, or its settings.
fn rejected(message: String) -> RuntimeError {
    RuntimeError::Rejected { message, field: Some("spec.gitops.repository".to_owned()), by_definition: false }
}

/// The files of a tree at these paths: `None` for oversized ones; missing ones are left out.
pub(crate) fn files<'p>(
    repository: &Repository,
    tree: &Tree<'_>,
    paths: impl Iterator<Item = &'p str>,
) -> Result<BTreeMap<String, Option<Vec<u8>>>, git2::Error> {
    let mut files = BTreeMap::new();
    let at = Paths::of(repository, tree);
    // In order, so that each folder is read once.
    for path in paths.collect::<BTreeSet<_>>() {
        // A submodule has its commit elsewhere, and a folder is no manifest.
        if let Some(entry) = at.entry(path)?
            && entry.kind() == Some(ObjectType::Blob)
        {
            let content = match bounded::file(repository, entry.id()) {
                Ok(file) => Some(file.content().to_vec()),
                Err(err) if bounded::is_too_large(&err) => None,
                Err(err) => return Err(err),
            };
            files.insert(path.to_owned(), content);
        }
    }
    Ok(files)
}

/// Whether a server reports that a branch is locked; words such as "blocked" do not count.
fn is_locked(said: &str) -> bool {
    said.split(|c: char| !c.is_alphanumeric()).any(|word| word.eq_ignore_ascii_case("lock"))
}

/// Turns "not found" into nothing.
pub(crate) fn found<T>(result: Result<T, git2::Error>) -> Result<Option<T>, git2::Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(err) if matches!(err.code(), ErrorCode::NotFound | ErrorCode::UnbornBranch) => Ok(None),
        Err(err) => Err(err),
    }
}

fn io(err: std::io::Error) -> git2::Error {
    git2::Error::new(ErrorCode::GenericError, ErrorClass::Os, err.to_string())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_error_differs_from_hook_rejection() {
        for said in
            ["cannot lock ref 'refs/heads/main'", "failed to lock", "LOCK_FAILURE", "unable to create main.lock"]
        {
            assert!(is_locked(said), "{said}");
        }
        for said in ["blocked by a policy", "the branch is locked", "pre-receive hook declined", ""] {
            assert!(!is_locked(said), "{said}");
        }
    }
}
