//! Sources: Git repositories, fetched into bare caches and read straight from their objects. Artifacts and charts become
//! commits of such a cache ([`artifacts`]).
//!
//! Start at [`Sources`], which has processes of their own do the work ([`ReaderPool`]). A process opens a [`Cache`] for one
//! call. Resolving lists the remote's refs and fetches only missing commits. Reading a path reaches the network only if its commit is not
//! cached. A commit becomes a folder only for generators that read trees ([`Tree`]). Commits that no branch or tag leads to, such as those of forks, are kept apart for some time
//! ([`unreferenced`]). Unused caches are removed (`crate::cache`): those of deleted sources, or of replaced credentials.
//!
//! **Invariant:** nobody reads objects that were fetched with credentials that they did not show. A cached commit is served without asking
//! the server, so a cache is for one remote and one set of credentials.
//!
//! **Invariant:** bytes from a Git server are parsed in a process with limits, never in the runner's own.

mod artifact_pushes;
mod artifacts;
mod auth;
pub(crate) mod authorities;
mod content;
mod dependencies;
mod disk;
pub(crate) mod error;
mod folder;
mod function_images;
mod image_layers;
mod import;
mod job;
mod lock;
mod logged;
mod package_artifacts;
mod reachability;
mod reader_pool;
mod refs;
mod registries;
mod repositories;
mod slots;
mod sources;
mod tree;
mod unreferenced;
mod verification;
mod wire;
mod working_copy;

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use git2::{Direction, ErrorClass, ErrorCode, FetchOptions, Oid, Remote, Repository};
use sha2::{Digest as _, Sha256};
use stoa_engine_git::remote::{Access, Connection, Service};
use stoa_git::fetch::Bound;
use stoa_proto::Source;
use tonic::Code;

use crate::failure::{Failure, reason};
pub(crate) use artifacts::failure as registry_failure;
pub(crate) use artifacts::of_module as artifact_of_module;
pub(crate) use content::{Content, LockFile, SourceFile, StackFiles, normalized};
pub(crate) use disk::{LACKS_ROOM, has_room, measure};
pub(crate) use folder::{files_of_folder, is_folder};
pub(crate) use job::work;
pub(crate) use lock::of_folder as lock_of_folder;
pub(crate) use reader_pool::ReaderPool;
pub(crate) use refs::{Head, Heads, parse_commit};
pub(crate) use repositories::Repository as WorkspaceRepository;
pub(crate) use sources::{MemorySlot, Sources, StackPaths};
pub(crate) use tree::{LARGEST_FILE, Tree, trees_of};
use unreferenced::Unreferenced;
pub(crate) use verification::digest as verification_digest;
pub(crate) use wire::{File, Files, Lock};
pub(crate) use working_copy::is_working_copy;

/// The largest file of a cache, in bytes.
pub(crate) const MOST_OF_A_FILE: u64 = 5 << 30;

/// The most that a cache has after a call, in bytes: the largest pack with what leads to its objects, and some that came later.
/// libgit2 removes no unused objects, so a larger cache is made anew. So is the copy of a GitOps repository, once
/// nobody uses it.
pub(crate) const MOST_OF_A_CACHE: u64 = 6 << 30;

/// The largest answer about a source, in bytes: files of 64 MiB, with their paths.
pub(crate) const LARGEST_ANSWER: usize = 160 << 20;

/// A commit that a version means.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// 40 hex digits.
    pub(crate) commit: String,
    /// The first line of its message.
    pub(crate) subject: String,
    /// The key that signed it; empty where the source needs no signature.
    pub(crate) signed_by: String,
}

/// The commits of several versions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    /// The commit that `latest` means.
    pub(crate) latest: String,
    /// The commits of the versions that exist.
    pub(crate) commits: HashMap<String, String>,
    /// The key that signed the latest; empty where the source needs no signature.
    pub(crate) signed_by: String,
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
    if artifacts::is_artifact(source) {
        part(source.provider.as_bytes());
        part(source.chart.as_bytes());
    }
    let mut credentials: Vec<_> = source.credentials.iter().collect();
    credentials.sort();
    for (key, value) in credentials {
        part(key.as_bytes());
        part(value);
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The cache of a source, in the process that reads it.
pub(crate) struct Cache {
    pub(crate) repository: Repository,
    unreferenced: Unreferenced,
    source: Source,
    /// Whether to fetch commits that no ref leads to, after all that refs lead to.
    with_unreferenced: bool,
    /// Whether such a commit is missing and was not fetched.
    lacks_unreferenced: Cell<bool>,
    /// Whether there is disk space to fetch more.
    has_room: bool,
    /// Whether anything may have been fetched.
    has_fetched: Cell<bool>,
}

/// Why a fetch failed.
struct Unfetched {
    err: git2::Error,
    /// Whether anything was received.
    has_begun: bool,
    /// Whether the source exceeds a limit.
    is_over: bool,
}

impl Cache {
    pub(crate) fn open(
        directory: &Path,
        source: Source,
        max_unreferenced: usize,
        with_unreferenced: bool,
    ) -> Result<Self, Failure> {
        let open = || {
            let repository = Repository::open_bare(directory)?;
            // What is listed is asked for with credentials, too.
            if auth::credentials(&source).has_secrets() {
                stoa_git::stay_at_host(&repository)?;
            }
            let unreferenced = Unreferenced::of(&repository, max_unreferenced)?;
            Ok((repository, unreferenced))
        };
        let (repository, unreferenced) = open().map_err(|err: git2::Error| error::here(&err))?;
        let (lacks_unreferenced, has_fetched) = (Cell::new(false), Cell::new(false));
        Ok(Self {
            repository,
            unreferenced,
            source,
            with_unreferenced,
            lacks_unreferenced,
            has_room: true,
            has_fetched,
        })
    }

    /// The commit of a revision, which is fetched if it is one of Git and not cached.
    fn at(&self, revision: &str) -> Result<Oid, Failure> {
        if import::reference(revision).is_some() {
            let missing = || Failure::internal(&"an artifact is not in the cache");
            return import::find(&self.repository, revision).ok_or_else(missing);
        }
        let commit = refs::parse_commit(revision)?;
        self.ensure(commit).map(|()| commit)
    }

    /// The same of a commit whose content may be used: one that a trusted key signed, if the source needs that.
    fn verified_at(&self, revision: &str) -> Result<Oid, Failure> {
        let commit = self.at(revision)?;
        self.signer(commit).map(|_| commit)
    }

    /// The signer of a commit; empty where the source needs no signature. Artifacts are verified before they are fetched.
    fn signer(&self, commit: Oid) -> Result<String, Failure> {
        if artifacts::is_artifact(&self.source) {
            return Ok(String::new());
        }
        let Some(keys) = verification::keys(&self.source)? else { return Ok(String::new()) };
        let mut signer = verification::of_commit(&self.repository, &keys, commit)?;
        // The commit may have come without its tags.
        if signer.is_err() && self.fetch(&["+refs/tags/*:refs/tags/*"]).is_ok() {
            signer = verification::of_commit(&self.repository, &keys, commit)?;
        }
        let what = || format!("commit {commit} of {}", self.remote());
        signer.map(|signer| signer.to_string()).map_err(|why| verification::failure(&what(), &why))
    }

    fn resolve(&self, version: &str, reference: &str) -> Result<Resolved, Failure> {
        let artifact = import::reference(version).and_then(|_| import::find(&self.repository, version));
        let oid = match artifact {
            Some(oid) => oid,
            None => self.find(version, reference)?,
        };
        let commit = content::commit(&self.repository, oid)?;
        Ok(Resolved {
            commit: if artifact.is_some() { version.to_owned() } else { oid.to_string() },
            subject: String::from_utf8_lossy(commit.summary_bytes().unwrap_or_default()).into_owned(),
            signed_by: self.signer(oid)?,
        })
    }

    /// Deletes the refs of the cache that the remote does not have, by patterns such as `refs/tags/*`. Their objects stay.
    pub(crate) fn prune(&self, heads: &Heads, patterns: &[&str]) -> Result<(), Failure> {
        let names: BTreeSet<&str> = heads.iter().map(|head| head.name.as_str()).collect();
        let prune = |pattern: &str| -> Result<(), git2::Error> {
            let mut own = self.repository.references_glob(pattern)?;
            let own: Vec<String> = own.names().map(|name| name.map(str::to_owned)).collect::<Result<_, _>>()?;
            for name in own.iter().filter(|name| !names.contains(name.as_str())) {
                self.repository.find_reference(name)?.delete()?;
            }
            Ok(())
        };
        patterns.iter().try_for_each(|pattern| prune(pattern)).map_err(|error| error::here(&error))
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
        let commit = self.peel(latest.oid)?;
        if self.source.verify.is_some() {
            // A tag vouches for its commit while the server has it.
            self.prune(&heads, &["refs/tags/*"])?;
        }
        let signed_by = self.signer(commit)?;
        let mut looked = Looked { latest: commit.to_string(), signed_by, ..Looked::default() };
        let of_no_head = found.iter().filter(|(_, head)| head.is_none()).map(|(version, _)| version.as_str());
        let abbreviated =
            self.find_by_prefixes(&heads, of_no_head.filter(|version| refs::is_abbreviated_commit(version)))?;
        for (version, head) in &found {
            let commit = match head {
                Some(head) => match self.peel(head.oid) {
                    Err(failure) if failure.is_internal() => return Err(failure),
                    peeled => peeled.ok(),
                },
                None => match refs::parse_commit(version) {
                    Ok(commit) => self.repository.find_commit(commit).ok().map(|commit| commit.id()),
                    Err(_) => abbreviated.get(version.as_str()).copied(),
                },
            };
            looked.commits.extend(commit.map(|commit| (version.clone(), commit.to_string())));
        }
        Ok(looked)
    }

    /// The commit that a branch points to, by the list of the remote's refs. Fetches nothing.
    fn branch(&self, name: &str) -> Result<Looked, Failure> {
        let heads = self.list()?;
        let head = heads.branch(name).ok_or_else(|| {
            let message = format!("{} has no branch {name:?}", self.remote());
            Failure::new(Code::NotFound, reason::VERSION_NOT_FOUND, message)
        })?;
        Ok(Looked { latest: head.oid.to_string(), ..Looked::default() })
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
            if let Some(commit) = self.find_by_prefixes(&heads, [version])?.remove(version) {
                return Ok(commit);
            }
        }
        Err(self.no_version(latest, wanted))
    }

    /// The commits whose ids begin so, if a branch or tag leads to them. Other commits may come from forks, and their authors can choose
    /// the beginning of an id.
    fn find_by_prefixes<'p>(
        &self,
        heads: &Heads,
        prefixes: impl IntoIterator<Item = &'p str>,
    ) -> Result<HashMap<&'p str, Oid>, Failure> {
        // As it is by itself, without the unreferenced commits.
        let plain = Repository::open_bare(self.repository.path()).map_err(|err| error::here(&err))?;
        let begins_so = |prefix: &str| plain.find_commit_by_prefix(prefix).map(|commit| commit.id()).ok();
        let mut found: HashMap<&str, Oid> =
            prefixes.into_iter().filter_map(|prefix| Some((prefix, begins_so(prefix)?))).collect();
        let nobody_leads_to =
            reachability::not_led_to(&plain, heads.iter().map(|head| head.oid), found.values().copied().collect())
                .map_err(|err| error::here(&err))?;
        found.retain(|_, commit| !nobody_leads_to.contains(&*commit));
        Ok(found)
    }

    /// Fetches a commit, unless it is cached.
    pub(crate) fn ensure(&self, oid: Oid) -> Result<(), Failure> {
        if self.has(oid) {
            return self.peel(oid).map(drop);
        }
        if self.with_unreferenced {
            self.fetch_unreferenced(oid)?;
        } else {
            self.fetch_all()?;
        }
        if self.has(oid) {
            return self.peel(oid).map(drop);
        }
        self.lacks_unreferenced.set(!self.with_unreferenced);
        let message = format!("{} has no commit {oid}", self.remote());
        Err(Failure::new(Code::NotFound, reason::VERSION_NOT_FOUND, message))
    }

    pub(crate) fn has(&self, oid: Oid) -> bool {
        self.repository.odb().is_ok_and(|odb| odb.exists(oid))
    }

    fn peel(&self, oid: Oid) -> Result<Oid, Failure> {
        let object = self.repository.find_object(oid, None).and_then(|object| object.peel_to_commit());
        object.map(|commit| commit.id()).map_err(|err| match err.code() {
            ErrorCode::Peel | ErrorCode::InvalidSpec => {
                let message = format!("{oid} in {} is not a commit", self.remote());
                Failure::new(Code::NotFound, reason::VERSION_NOT_FOUND, message)
            }
            // What a reference of the remote leads to was fetched.
            _ => error::here(&err),
        })
    }

    /// The refs of the remote.
    pub(crate) fn list(&self) -> Result<Heads, Failure> {
        if auth::credentials(&self.source).bearer_header(&self.source.remote).is_some() {
            // libgit2 lists with no header of ours.
            let connection = Connection::open(&self.access()?, Service::UploadPack);
            return Ok(Heads::of(connection.map_err(|err| error::of_remote(&err))?.advertised()));
        }
        let mut remote = self.remote_of(&self.repository).map_err(|err| self.explain(&err))?;
        let connection = remote
            .connect_auth(Direction::Fetch, Some(auth::callbacks(&self.source)), None)
            .map_err(|err| self.explain(&err))?;
        let heads = connection.list().map_err(|err| self.explain(&err))?;
        Ok(Heads::new(heads))
    }

    fn fetch_all(&self) -> Result<(), Failure> {
        self.fetch(&["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"])
    }

    /// Rejects a fetch without disk space. Cached objects are still served.
    fn require_room(&self) -> Result<(), Failure> {
        if self.has_room {
            return Ok(());
        }
        Err(Failure::new(Code::ResourceExhausted, reason::BUSY, disk::LACKS_ROOM))
    }

    /// Fetches a commit that no ref leads to, which may come from a fork.
    fn fetch_unreferenced(&self, oid: Oid) -> Result<(), Failure> {
        self.require_room()?;
        let repository = self.unreferenced.ready(&self.repository).map_err(|err| error::here(&err))?;
        match self.fetch_into(&repository, &[unreferenced::refspec(oid).as_str()]) {
            Ok(()) => self.unreferenced.show(&self.repository).map_err(|err| error::here(&err)),
            Err(Unfetched { is_over: true, .. }) => Err(self.too_large()),
            Err(Unfetched { err, has_begun, .. }) => self.refused(&err, has_begun),
        }
    }

    /// Distinguishes servers that do not serve such a commit from servers that fail.
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

    /// How the remote is reached without libgit2.
    pub(crate) fn access(&self) -> Result<Access, Failure> {
        let remote = self.repository.remote_anonymous(&self.source.remote).map_err(|err| error::here(&err))?;
        let url = String::from_utf8_lossy(remote.pushurl_bytes().unwrap_or(remote.url_bytes())).into_owned();
        Ok(Access { url, credentials: auth::credentials(&self.source), authorities: authorities::file() })
    }

    pub(crate) fn fetch(&self, refspecs: &[&str]) -> Result<(), Failure> {
        self.require_room()?;
        self.fetch_into(&self.repository, refspecs).map_err(
            |Unfetched { err, is_over, .. }| {
                if is_over { self.too_large() } else { self.explain(&err) }
            },
        )
    }

    /// Fetches into a repository, and stops if the source exceeds a limit.
    fn fetch_into(&self, repository: &Repository, refspecs: &[&str]) -> Result<(), Unfetched> {
        self.has_fetched.set(true);
        let bound = Bound::default();
        let mut callbacks = auth::callbacks(&self.source);
        bound.watch(&mut callbacks);
        let mut options = FetchOptions::new();
        options.remote_callbacks(callbacks);
        options.download_tags(git2::AutotagOption::None).update_fetchhead(false);
        let credentials = auth::credentials(&self.source);
        options.follow_redirects(credentials.redirects());
        if let Some(header) = credentials.bearer_header(&self.source.remote) {
            options.custom_headers(&[&header]);
        }
        let fetched =
            self.remote_of(repository).and_then(|mut remote| remote.fetch(refspecs, Some(&mut options), None));
        fetched.map_err(|err| Unfetched { err, has_begun: bound.has_begun(), is_over: bound.is_over() })
    }

    fn too_large(&self) -> Failure {
        Failure::new(Code::InvalidArgument, reason::TOO_LARGE, Bound::told(&self.source.remote))
    }

    /// The remote, which may be connected to.
    fn remote_of<'r>(&self, repository: &'r Repository) -> Result<Remote<'r>, git2::Error> {
        let remote = repository.remote_anonymous(&self.source.remote)?;
        authorities::ready_for(remote.url_bytes(), auth::has_authority(&self.source));
        Ok(remote)
    }

    fn explain(&self, err: &git2::Error) -> Failure {
        error::explain(err, &self.source)
    }

    pub(crate) fn remote(&self) -> String {
        stoa_git::without_userinfo(&self.source.remote)
    }
}

#[cfg(test)]
mod https_tests;
#[cfg(test)]
mod tests;
