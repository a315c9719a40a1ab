//! Sources: Git repositories, fetched into bare caches and read straight from their objects.
//!
//! Start at [`Sources`]. Resolving lists the remote's refs and fetches only what is missing; reading
//! a path at a commit touches the network only when the commit is not here yet. There is no
//! checkout. Commits that no branch or tag leads to, such as those of forks, are kept beside the rest for some time
//! ([`strays`]), and caches that nobody uses any more go (`crate::cache`): those of sources that are gone, or of
//! credentials that were replaced.
//!
//! **Invariant:** nobody reads what was fetched with credentials that they did not show. Nobody is asked about a commit that
//! is here, so a cache is for one remote and one set of credentials.

mod auth;
mod content;
mod error;
mod refs;
mod strays;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use git2::{Direction, ErrorClass, ErrorCode, FetchOptions, Oid, Progress, Remote, RemoteCallbacks, Repository};
use sha2::{Digest as _, Sha256};
use stoa_git::cache::Folders;
use stoa_proto::Source;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Code;

use crate::failure::{Failure, reason};
use crate::local::LocalRepositories;
pub(crate) use auth::Authenticated;
pub(crate) use content::{Content, SourceFile};
use refs::Heads;
use strays::Strays;

/// A commit that a version means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// 40 hex digits.
    pub(crate) commit: String,
    /// The first line of its message.
    pub(crate) subject: String,
}

/// What several versions mean.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    /// The commit that `latest` means.
    pub(crate) latest: String,
    /// The commits of the versions that exist.
    pub(crate) commits: HashMap<String, String>,
}

/// The caches of all sources, under one directory.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    caches: Folders,
    /// One fetch at a time into each cache; a second caller finds what the first brought.
    locks: Arc<Mutex<HashMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>>,
    /// A place for each content that may be in memory before it waits for a worker.
    places: Arc<Semaphore>,
    /// How many commits that no ref leads to are kept of a source.
    most_strays: usize,
    /// What may be named by path.
    local: LocalRepositories,
}

/// The place of a content in memory, until it is dropped.
pub(crate) type Place = OwnedSemaphorePermit;

/// How many contents may be read at once. Each may have 64 MiB, and is copied once.
const READS: usize = 4;

impl Sources {
    pub(crate) fn new(caches: Folders, local: LocalRepositories) -> Self {
        Self {
            caches,
            locks: Arc::default(),
            places: Arc::new(Semaphore::new(READS)),
            most_strays: strays::MOST,
            local,
        }
    }

    /// The commit that a version means now. Empty and `latest` are the head of `reference`, or of the
    /// remote's default branch when that is empty.
    pub(crate) async fn resolve(&self, source: &Source, version: &str, reference: &str) -> Result<Resolved, Failure> {
        let (version, reference) = (version.to_owned(), reference.to_owned());
        self.with_cache(source, move |cache| cache.resolve(&version, &reference)).await
    }

    /// The commits that `latest` and some other versions mean now: the remote lists its refs once, and is asked for
    /// commits that are not here yet in one fetch.
    pub(crate) async fn look(
        &self,
        source: &Source,
        reference: &str,
        versions: Vec<String>,
    ) -> Result<Looked, Failure> {
        let reference = reference.to_owned();
        self.with_cache(source, move |cache| cache.look(&reference, &versions)).await
    }

    /// The id in Git of what is at a path of a commit: it covers all that generators read.
    pub(crate) async fn content(&self, source: &Source, commit: &str, path: &str) -> Result<String, Failure> {
        let path = path.to_owned();
        self.at_commit(source, commit, move |repository, commit| content::id(repository, commit, &path)).await
    }

    /// Which of some paths a commit changes since its history left that of `base`; nothing where it is in that.
    pub(crate) async fn changed(
        &self,
        source: &Source,
        base: &str,
        commit: &str,
        paths: Vec<String>,
    ) -> Result<Option<Vec<String>>, Failure> {
        let (base, commit) = (refs::parse_commit(base)?, refs::parse_commit(commit)?);
        let work = move |cache: &Cache| {
            cache.ensure(base)?;
            cache.ensure(commit)?;
            // It may have gone to make room for the other.
            cache.ensure(base)?;
            content::changed(&cache.repository, base, commit, &paths)
        };
        self.with_cache(source, work).await
    }

    /// What is at a path of a commit, as far as generators look at it, once there is a place for it in memory.
    pub(crate) async fn read_in_turn(
        &self,
        source: &Source,
        commit: &str,
        path: &str,
    ) -> Result<(Content, Place), Failure> {
        let (path, places, runtime) = (path.to_owned(), Arc::clone(&self.places), Handle::current());
        let read = move |repository: &Repository, commit| {
            // Only now, so that nobody has a place who waits for a server or for another's fetch.
            let place = runtime.block_on(Arc::clone(&places).acquire_owned()).expect("nobody closes the semaphore");
            Ok((content::read(repository, commit, &path)?, place))
        };
        self.at_commit(source, commit, read).await
    }

    /// The text of a file at a path of a commit, and that path from the root of the source.
    pub(crate) async fn file(
        &self,
        source: &Source,
        commit: &str,
        path: &str,
        most: usize,
    ) -> Result<(String, String), Failure> {
        let path = path.to_owned();
        self.at_commit(source, commit, move |repository, commit| content::file(repository, commit, &path, most)).await
    }

    async fn at_commit<T: Send + 'static>(
        &self,
        source: &Source,
        commit: &str,
        read: impl Fn(&Repository, Oid) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let commit = refs::parse_commit(commit)?;
        let work = move |cache: &Cache| {
            cache.ensure(commit)?;
            read(&cache.repository, commit)
        };
        self.with_cache(source, work).await
    }

    async fn with_cache<T: Send + 'static>(
        &self,
        source: &Source,
        work: impl Fn(&Cache) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        if source.provider != "Git" {
            let message = format!("source provider {:?} is not available yet", source.provider);
            return Err(Failure::new(Code::InvalidArgument, reason::NOT_AVAILABLE, message));
        }
        if source.remote.is_empty() {
            return Err(Failure::request("source.remote is empty"));
        }
        let unauthorized = |told| Failure::new(Code::InvalidArgument, reason::SOURCE_UNAUTHORIZED, told);
        self.local.check(&source.remote).map_err(unauthorized)?;
        let kept = self.caches.take("git", &cache_name(source));
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            // One that nobody has, or waits for, is nothing to keep.
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(locks.entry(kept.path().to_owned()).or_default())
        };
        let guard = lock.lock_owned().await;
        let (source, most_strays) = (source.clone(), self.most_strays);
        let asker = Asker::default();
        let is_gone = Arc::clone(&asker.is_gone);
        let work = tokio::task::spawn_blocking(move || {
            let _guard = guard;
            let directory = kept.path();
            let open = || Cache::open(directory, source.clone(), most_strays, Arc::clone(&is_gone));
            let work = || work(&open()?);
            match work() {
                // All that is here can be had again; a machine that lost its power may have left files that are empty.
                Err(failure) if failure.is_internal() => {
                    tracing::warn!(directory = %directory.display(), "a source that cannot be read here is fetched anew");
                    stoa_git::cache::remove(directory).map_err(|err| Failure::internal(&err))?;
                    work()
                }
                done => done,
            }
        });
        work.await.unwrap_or_else(|err| Err(Failure::internal(&err)))
    }
}

/// The digest that names a cache. Credentials are part of it, so that nobody reads through the cache
/// what only somebody else may fetch.
pub(crate) fn cache_name(source: &Source) -> String {
    let mut hasher = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hasher.update((bytes.len() as u64).to_be_bytes());
        hasher.update(bytes);
    };
    part(source.remote.as_bytes());
    let mut credentials: Vec<_> = source.credentials.iter().collect();
    credentials.sort();
    for (key, value) in credentials {
        part(key.as_bytes());
        part(value);
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whoever waits for an answer, until it is dropped.
#[derive(Default)]
struct Asker {
    is_gone: Arc<AtomicBool>,
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }
}

struct Cache {
    repository: Repository,
    strays: Strays,
    source: Source,
    /// Whether nobody waits any more for what is looked for.
    is_gone: Arc<AtomicBool>,
}

impl Cache {
    fn open(directory: &Path, source: Source, most_strays: usize, is_gone: Arc<AtomicBool>) -> Result<Self, Failure> {
        let open = || {
            let repository = stoa_git::cache::open_or_make_bare(directory)?;
            let strays = Strays::of(&repository, most_strays)?;
            Ok((repository, strays))
        };
        let (repository, strays) = open().map_err(|err: git2::Error| Failure::internal(&err))?;
        Ok(Self { repository, strays, source, is_gone })
    }

    fn resolve(&self, version: &str, reference: &str) -> Result<Resolved, Failure> {
        let oid = self.find(version, reference)?;
        let commit = self.repository.find_commit(oid).map_err(|err| Failure::internal(&err))?;
        Ok(Resolved {
            commit: oid.to_string(),
            subject: String::from_utf8_lossy(commit.summary_bytes().unwrap_or_default()).into_owned(),
        })
    }

    fn look(&self, reference: &str, versions: &[String]) -> Result<Looked, Failure> {
        let heads = self.list()?;
        let latest = heads.latest(reference).ok_or_else(|| self.no_version(true, reference))?;
        let found: Vec<(String, Option<&refs::Head>)> =
            versions.iter().map(|version| (version.clone(), heads.find(version))).collect();
        let is_abbreviated = |(version, head): &(String, Option<_>)| {
            head.is_none() && (refs::is_abbreviated_commit(version) || refs::parse_commit(version).is_ok())
        };
        // Only what some ref has brought can be found by the beginning of its id.
        let missing: BTreeSet<String> = if found.iter().any(is_abbreviated) {
            heads.iter().filter(|head| !self.has(head.oid)).map(|head| head.name.clone()).collect()
        } else {
            let wanted = found.iter().filter_map(|(_, head)| *head).chain([latest]);
            wanted.filter(|head| !self.has(head.oid)).map(|head| head.name.clone()).collect()
        };
        if !missing.is_empty() {
            let refspecs: Vec<String> = missing.iter().map(|name| format!("+{name}:{name}")).collect();
            self.fetch(&refspecs.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        let mut looked = Looked { latest: self.peel(latest.oid)?.to_string(), ..Looked::default() };
        for (version, head) in found {
            let commit = match head {
                Some(head) => match self.peel(head.oid) {
                    Err(failure) if failure.is_internal() => return Err(failure),
                    peeled => peeled.ok(),
                },
                None if is_abbreviated(&(version.clone(), None)) => {
                    self.repository.find_commit_by_prefix(&version).ok().map(|commit| commit.id())
                }
                None => None,
            };
            looked.commits.extend(commit.map(|commit| (version, commit.to_string())));
        }
        Ok(looked)
    }

    fn no_version(&self, latest: bool, wanted: &str) -> Failure {
        let message = if latest && wanted.is_empty() {
            format!("{} is empty", self.remote())
        } else {
            format!("{} has no branch, tag or commit {wanted:?}", self.remote())
        };
        Failure::new(Code::NotFound, reason::VERSION_NOT_FOUND, message)
    }

    fn find(&self, version: &str, reference: &str) -> Result<Oid, Failure> {
        let latest = version.is_empty() || version == "latest";
        if !latest
            && version.len() == 40
            && let Ok(oid) = Oid::from_str(version)
        {
            self.ensure(oid)?;
            return Ok(oid);
        }
        let heads = self.list()?;
        let found = if latest { heads.latest(reference) } else { heads.find(version) };
        if let Some(head) = found {
            if !self.has(head.oid) {
                self.fetch(&[&format!("+{0}:{0}", head.name)])?;
            }
            return self.peel(head.oid);
        }
        let wanted = if latest { reference } else { version };
        if !latest && refs::is_abbreviated_commit(version) {
            self.fetch_all()?;
            if let Ok(commit) = self.repository.find_commit_by_prefix(version) {
                return Ok(commit.id());
            }
        }
        Err(self.no_version(latest, wanted))
    }

    /// Makes sure that a commit is here.
    fn ensure(&self, oid: Oid) -> Result<(), Failure> {
        if self.has(oid) {
            return self.peel(oid).map(drop);
        }
        self.fetch_all()?;
        if !self.has(oid) {
            self.fetch_stray(oid)?;
        }
        if self.has(oid) {
            return self.peel(oid).map(drop);
        }
        let message = format!("{} has no commit {oid}", self.remote());
        Err(Failure::new(Code::NotFound, reason::VERSION_NOT_FOUND, message))
    }

    fn has(&self, oid: Oid) -> bool {
        self.repository.odb().is_ok_and(|odb| odb.exists(oid))
    }

    fn peel(&self, oid: Oid) -> Result<Oid, Failure> {
        let object = self.repository.find_object(oid, None).and_then(|object| object.peel_to_commit());
        object.map(|commit| commit.id()).map_err(|err| match err.code() {
            ErrorCode::Peel | ErrorCode::InvalidSpec => {
                let message = format!("{oid} in {} is no commit", self.remote());
                Failure::new(Code::NotFound, reason::VERSION_NOT_FOUND, message)
            }
            // What a reference of the remote leads to was fetched.
            _ => Failure::internal(&err),
        })
    }

    fn list(&self) -> Result<Heads, Failure> {
        let mut remote = self.anonymous()?;
        let connection = remote
            .connect_auth(Direction::Fetch, Some(auth::callbacks(&self.source)), None)
            .map_err(|err| self.explain(&err))?;
        let heads = connection.list().map_err(|err| self.explain(&err))?;
        Ok(Heads::new(heads))
    }

    fn fetch_all(&self) -> Result<(), Failure> {
        self.fetch(&["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"])
    }

    /// Asks for a commit that no ref leads to, which may be anybody's: nobody waits behind it for longer than whoever wants
    /// it.
    fn fetch_stray(&self, oid: Oid) -> Result<(), Failure> {
        let repository = self.strays.ready(&self.repository).map_err(|err| Failure::internal(&err))?;
        let has_begun = Arc::new(AtomicBool::new(false));
        let mut callbacks = auth::callbacks(&self.source);
        let is_wanted = |is_gone: &Arc<AtomicBool>| {
            let is_gone = Arc::clone(is_gone);
            move || !is_gone.load(Ordering::Relaxed)
        };
        let (receiving, hearing) = (is_wanted(&self.is_gone), is_wanted(&self.is_gone));
        let begins = Arc::clone(&has_begun);
        let received = move |_: Progress<'_>| {
            begins.store(true, Ordering::Relaxed);
            receiving()
        };
        callbacks.transfer_progress(received).sideband_progress(move |_| hearing());
        let refspec = strays::refspec(oid);
        let remote = repository.remote_anonymous(&self.source.remote);
        match remote.and_then(|mut remote| remote.fetch(&[&refspec], Some(&mut options(callbacks)), None)) {
            Ok(()) => self.strays.show(&self.repository).map_err(|err| Failure::internal(&err)),
            Err(err) => self.refused(&err, has_begun.load(Ordering::Relaxed)),
        }
    }

    /// Tells servers that do not give out such a commit, or have none, from those that broke; nothing is wrong with the first.
    fn refused(&self, err: &git2::Error, has_begun: bool) -> Result<(), Failure> {
        match (err.class(), err.code()) {
            // It does not say that it gives them out, and was not asked.
            (ErrorClass::Invalid, _) => Ok(()),
            // It is a folder, from which nothing came that the reference could lead to.
            (ErrorClass::Reference, _) if err.message().starts_with("target OID for the reference doesn't exist") => {
                Ok(())
            }
            // libgit2 passes over the words of a server that refuses, and comes to the end of the answer. That of one that
            // broke ends as well; whoever answers now was well a moment ago.
            (ErrorClass::Net, ErrorCode::Eof) if !has_begun => self.list().map(drop),
            (ErrorClass::Net, _) if err.message().starts_with("remote error: ") => Ok(()),
            _ => Err(self.explain(err)),
        }
    }

    fn fetch(&self, refspecs: &[&str]) -> Result<(), Failure> {
        let mut options = options(auth::callbacks(&self.source));
        self.anonymous()?.fetch(refspecs, Some(&mut options), None).map_err(|err| self.explain(&err))
    }

    fn anonymous(&self) -> Result<Remote<'_>, Failure> {
        self.repository.remote_anonymous(&self.source.remote).map_err(|err| self.explain(&err))
    }

    fn explain(&self, err: &git2::Error) -> Failure {
        error::explain(err, &self.source)
    }

    fn remote(&self) -> String {
        stoa_git::without_userinfo(&self.source.remote)
    }
}

fn options(callbacks: RemoteCallbacks<'_>) -> FetchOptions<'_> {
    let mut options = FetchOptions::new();
    options.remote_callbacks(callbacks);
    options.download_tags(git2::AutotagOption::None).update_fetchhead(false);
    options
}

#[cfg(test)]
mod https_tests;
#[cfg(test)]
mod tests;
