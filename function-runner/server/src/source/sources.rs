//! All sources of the runner: who may use which cache, and the questions that they ask.
//!
//! [`ReaderPool`] provides the processes. This process reads nothing of a source, and reaches no Git server.

use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use stoa_git::cache::{Folders, Kept};
use stoa_proto::{
    CompareRequest, ContentRequest, ContentsRequest, FilesRequest, FunctionsRequest, FunctionsResponse, LookRequest,
    LookResponse, ProposeFilesRequest, ProposeFilesResponse, PushArtifactRequest, PushArtifactResponse, PushRequest,
    PushResponse, ReadFileRequest, RemoveArtifactRequest, RemoveArtifactResponse, ResolveRequest, ResolveResponse,
    Source, ValuesFiles,
};
use stoa_runtime::{CallLimits, Caller};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tracing::Instrument as _;

use super::disk::{LACKS_ROOM, has_room, measure, on_files};
use super::job::{Answer, Job, Question, Reply};
use super::reader_pool::{Reader, ReaderPool, Unanswered};
use super::verification::Verified;
use super::{
    Looked, MOST_OF_A_CACHE, Resolved, StackFiles, artifact_pushes, artifacts, cache_name, content, function_images,
    is_working_copy, package_artifacts, refs, unreferenced,
};
use crate::failure::{Failure, reason};
use crate::local::LocalRepositories;
use crate::packages::{ArtifactPackage, ArtifactQuestion, DiscoverJob, DiscoverPage, PackageFiles};

/// The content of a reply. Another one than the question has is an error.
macro_rules! answer {
    ($reply:expr, $fitting:ident) => {
        match $reply {
            Reply::$fitting(answer) => answer,
            _ => return Err(unfitting()),
        }
    };
}

/// The caches of all sources, under one directory.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    pub(super) caches: Folders,
    /// One call at a time uses a cache; the next one finds what it fetched. Organizations with the same credentials, such as none, share
    /// a cache, and take turns.
    pub(super) turns: Arc<CallLimits>,
    pub(super) readers: ReaderPool,
    /// A slot for each content that is in memory before it waits for a worker.
    pub(super) memory_slots: Arc<Semaphore>,
    pub(super) late: Late,
    /// The number of commits that no ref leads to, for each source.
    pub(super) max_unreferenced: u32,
    /// The largest cache after a call, in bytes.
    pub(super) most_of_a_cache: u64,
    /// The repositories that may be named by path.
    pub(super) local: LocalRepositories,
    /// The signers of artifacts.
    pub(super) verified: Verified,
}

/// Paths of stacks in a commit.
#[derive(Debug, Default)]
pub(crate) struct StackPaths {
    pub(crate) paths: Vec<String>,
    /// The values files of those that have any.
    pub(crate) values_files: HashMap<String, ValuesFiles>,
}

impl StackPaths {
    /// The values files of the stack at one of the paths.
    pub(super) fn values_files(&self, path: &str) -> &[String] {
        self.values_files.get(path).map(|of| of.values_files.as_slice()).unwrap_or_default()
    }
}

impl From<Vec<String>> for StackPaths {
    fn from(paths: Vec<String>) -> Self {
        Self { paths, ..Self::default() }
    }
}

/// The folder for caches of sources.
pub(super) const CACHES: &str = "git";

pub(crate) type MemorySlot = OwnedSemaphorePermit;

/// The number of contents in memory at once. Each may have 64 MiB, and is copied twice.
pub(super) const READS: usize = 4;

/// How long a slot is reserved for a call that waited for it and begins anew. A process starts meanwhile; no server is asked.
const RESERVED: Duration = Duration::from_secs(1);

/// How long a call whose reservation lapsed waits for another slot while it holds a process.
const AGAIN: Duration = Duration::from_secs(5);

/// The reserved slot, or one that is free in time.
async fn slot_within(longest: Duration, reserved: &Reserved, memory_slots: Arc<Semaphore>) -> Option<MemorySlot> {
    if let Some(slot) = reserved.take() {
        return Some(slot);
    }
    if longest.is_zero() {
        return memory_slots.try_acquire_owned().ok();
    }
    tokio::time::timeout(longest, memory_slots.acquire_owned()).await.ok()?.ok()
}

/// A reserved slot that is not used yet. It lapses, so that no call holds a slot while it waits for others.
#[derive(Clone, Debug, Default)]
struct Reserved(Arc<Mutex<Option<MemorySlot>>>);

impl Reserved {
    fn of(slot: MemorySlot) -> Self {
        let reserved = Self(Arc::new(Mutex::new(Some(slot))));
        let lapses = reserved.clone();
        tokio::spawn(async move {
            tokio::time::sleep(RESERVED).await;
            drop(lapses.take());
        });
        reserved
    }

    fn take(&self) -> Option<MemorySlot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// How long it is told that a fetch took too long when nobody waited. Later the server may be another one.
const LATE: Duration = Duration::from_secs(60 * 60);

/// What took too long when nobody waited for it any more, by cache, and when that was. Whoever asks the server next hears of
/// that, and begins nothing; whoever waits for less time than a fetch may take would never know why there is nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Late(Arc<Mutex<HashMap<PathBuf, (Instant, Failure)>>>);

impl Late {
    fn keep(&self, cache: PathBuf, failure: Failure) {
        let mut late = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A source that nobody asks for any more has no next time.
        late.retain(|_, (since, _)| since.elapsed() < LATE);
        late.insert(cache, (Instant::now(), failure));
    }

    fn take(&self, cache: &Path) -> Option<Failure> {
        let late = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(cache);
        late.and_then(|(since, failure)| (since.elapsed() < LATE).then_some(failure))
    }
}

impl Sources {
    pub(crate) fn new(caches: Folders, local: LocalRepositories, readers: ReaderPool) -> Self {
        Self {
            caches,
            // Each cache has one, and of those in all there are enough.
            turns: Arc::new(CallLimits::new(usize::MAX, 1)),
            readers,
            memory_slots: Arc::new(Semaphore::new(READS)),
            late: Late::default(),
            max_unreferenced: unreferenced::MOST,
            most_of_a_cache: MOST_OF_A_CACHE,
            local,
            verified: Verified::default(),
        }
    }

    /// The commit that a version means now. Empty and `latest` are the head of `reference`, or of the
    /// remote's default branch when that is empty.
    pub(crate) async fn resolve(&self, source: &Source, version: &str, reference: &str) -> Result<Resolved, Failure> {
        let request = ResolveRequest { source: None, version: version.to_owned(), r#ref: reference.to_owned() };
        let ResolveResponse { commit, subject, signed_by } =
            answer!(self.ask(source, Question::Resolve(request)).await?, Resolved);
        Ok(Resolved { commit, subject, signed_by })
    }

    /// The commits that `latest` and some other versions mean now: the remote lists its refs once, and is asked for
    /// commits that are not here yet in one fetch.
    pub(crate) async fn look(
        &self,
        source: &Source,
        reference: &str,
        versions: Vec<String>,
    ) -> Result<Looked, Failure> {
        let request = LookRequest { r#ref: reference.to_owned(), versions, ..LookRequest::default() };
        self.look_up(source, request).await
    }

    /// The commit that a branch points to now. The remote lists its refs, and nothing is fetched.
    pub(crate) async fn branch(&self, source: &Source, name: &str) -> Result<Looked, Failure> {
        let request = LookRequest { r#ref: name.to_owned(), branch_only: true, ..LookRequest::default() };
        self.look_up(source, request).await
    }

    async fn look_up(&self, source: &Source, request: LookRequest) -> Result<Looked, Failure> {
        let LookResponse { latest, commits, signed_by } =
            answer!(self.ask(source, Question::Look(request)).await?, Looked);
        Ok(Looked { latest, commits, signed_by })
    }

    /// The ids in Git of the files and folders at paths of a commit: an id covers all that generators read. Paths that do not
    /// exist have none.
    pub(crate) async fn contents(
        &self,
        source: &Source,
        commit: &str,
        of: impl Into<StackPaths>,
    ) -> Result<HashMap<String, String>, Failure> {
        let commit = refs::revision(commit)?;
        let StackPaths { paths, values_files } = of.into();
        let request = ContentsRequest { source: None, commit, paths, values_files };
        Ok(answer!(self.ask(source, Question::Contents(request)).await?, Contents).digests)
    }

    /// The id in Git of the file or folder at a path of a commit.
    pub(crate) async fn content(
        &self,
        source: &Source,
        commit: &str,
        path: &str,
        values_files: Vec<String>,
    ) -> Result<String, Failure> {
        let values_files = [(path.to_owned(), ValuesFiles { values_files })].into();
        let of = StackPaths { paths: vec![path.to_owned()], values_files };
        let mut digests = self.contents(source, commit, of).await?;
        digests.remove(path).ok_or_else(|| content::not_found(path, commit))
    }

    /// Which of some paths a commit changes since its history left that of `base`; nothing where it is in that.
    pub(crate) async fn changed(
        &self,
        source: &Source,
        base: &str,
        commit: &str,
        of: impl Into<StackPaths>,
    ) -> Result<Option<Vec<String>>, Failure> {
        let (base, commit) = (refs::revision(base)?, refs::revision(commit)?);
        let StackPaths { paths, values_files } = of.into();
        let request = CompareRequest { source: None, base, commit, paths, values_files };
        let compared = answer!(self.ask(source, Question::Compare(request)).await?, Compared);
        Ok((!compared.is_in_base).then_some(compared.changed))
    }

    /// What is at a path of a commit, as far as generators look at it, once there is a slot for it in memory.
    pub(crate) async fn read_in_turn(
        &self,
        source: &Source,
        commit: &str,
        path: &str,
    ) -> Result<(StackFiles, MemorySlot), Failure> {
        let request = at(commit, path)?;
        let mut reserved = Reserved::default();
        let mut longest = Duration::ZERO;
        loop {
            let (request, memory_slots, of_visit) = (request.clone(), Arc::clone(&self.memory_slots), reserved.clone());
            let read = self.with_cache(source, move |visit: &mut Visit| {
                let (request, memory_slots, reserved) = (request.clone(), Arc::clone(&memory_slots), of_visit.clone());
                async move {
                    visit.ask(Question::Fetch(request.commit.clone())).await?;
                    // Only now, so that nobody has a slot who waits for a server or for another's fetch.
                    let Some(slot) = slot_within(longest, &reserved, memory_slots).await else { return Ok(None) };
                    Ok::<_, Failure>(Some((visit.ask(Question::Read(request)).await?, slot)))
                }
                .boxed()
            });
            match read.await? {
                Some((Reply::Read(files), slot)) => return Ok((files.into(), slot)),
                Some(_) => return Err(unfitting()),
                // Whoever waits for one keeps neither a process nor the cache from others.
                None => {
                    let slot =
                        Arc::clone(&self.memory_slots).acquire_owned().await.expect("nobody closes the semaphore");
                    reserved = Reserved::of(slot);
                    // It may lapse while others have the cache or the processes: then the next is waited for right there.
                    longest = AGAIN;
                }
            }
        }
    }

    /// The text of a file at a path of a commit, and that path from the root of the source.
    pub(crate) async fn file(
        &self,
        source: &Source,
        commit: &str,
        path: &str,
        most: usize,
    ) -> Result<(String, String), Failure> {
        let ContentRequest { commit, path, .. } = at(commit, path)?;
        let max_bytes = most.try_into().unwrap_or(u32::MAX);
        let request = ReadFileRequest { source: None, commit, path, max_bytes };
        let file = answer!(self.ask(source, Question::ReadFile(request)).await?, File);
        Ok((file.path, file.text))
    }

    /// Package revisions, from a position on.
    pub(crate) async fn discover(&self, source: &Source, job: DiscoverJob) -> Result<DiscoverPage, Failure> {
        if artifacts::is_artifact(source) {
            return Box::pin(package_artifacts::page(self, source, &job)).await;
        }
        let branch = job.request.as_ref().map_or("", |request| request.branch.as_str());
        if branch.is_empty() {
            return Err(Failure::request("branch is empty; name the deployed branch"));
        }
        Ok(answer!(self.ask(source, Question::Discover(job)).await?, Discovered))
    }

    /// The package that an artifact is.
    pub(super) async fn package(
        &self,
        source: &Source,
        question: ArtifactQuestion,
    ) -> Result<ArtifactPackage, Failure> {
        Ok(answer!(self.ask(source, Question::Package(question)).await?, Package))
    }

    /// The files of a package at a commit.
    pub(crate) async fn package_files(&self, source: &Source, request: FilesRequest) -> Result<PackageFiles, Failure> {
        let request = FilesRequest { source: None, commit: refs::revision(&request.commit)?, ..request };
        Ok(answer!(self.ask(source, Question::Files(request)).await?, Files))
    }

    /// The functions of a repository, by their descriptions.
    pub(crate) async fn functions(
        &self,
        source: &Source,
        request: FunctionsRequest,
    ) -> Result<FunctionsResponse, Failure> {
        if artifacts::is_artifact(source) {
            return Box::pin(function_images::functions(source)).await;
        }
        if request.branch.is_empty() {
            return Err(Failure::request("branch is empty; name the branch with the functions"));
        }
        let request = FunctionsRequest { source: None, ..request };
        Ok(answer!(self.ask(source, Question::Functions(request)).await?, Functions))
    }

    /// Makes commits, and moves refs.
    pub(crate) async fn push(&self, source: &Source, request: PushRequest) -> Result<PushResponse, Failure> {
        let question = Question::Push(PushRequest { source: None, ..request });
        let writes = stoa_git::local_path(&source.remote).is_some();
        let pushed = self.with_cache_to(source, writes, move |visit: &mut Visit| visit.ask(question.clone()).boxed());
        Ok(answer!(pushed.await?, Pushed))
    }

    /// Pushes a published revision to a registry.
    pub(crate) async fn push_artifact(
        &self,
        source: &Source,
        request: PushArtifactRequest,
    ) -> Result<PushArtifactResponse, Failure> {
        Box::pin(artifact_pushes::push(self, in_registry(source)?, request)).await
    }

    /// Removes a published revision from a registry.
    pub(crate) async fn remove_artifact(
        &self,
        source: &Source,
        request: &RemoveArtifactRequest,
    ) -> Result<RemoveArtifactResponse, Failure> {
        Box::pin(artifact_pushes::remove(in_registry(source)?, request)).await
    }

    /// Compares files with a branch, and commits the difference to another.
    pub(crate) async fn propose(
        &self,
        source: &Source,
        request: ProposeFilesRequest,
    ) -> Result<ProposeFilesResponse, Failure> {
        let writes = !request.head.is_empty() && stoa_git::local_path(&source.remote).is_some();
        let question = Question::Propose(ProposeFilesRequest { source: None, ..request });
        let proposed = self.with_cache_to(source, writes, move |visit: &mut Visit| visit.ask(question.clone()).boxed());
        Ok(answer!(proposed.await?, Proposed))
    }

    async fn ask(&self, source: &Source, question: Question) -> Result<Reply, Failure> {
        self.with_cache(source, move |visit: &mut Visit| visit.ask(question.clone()).boxed()).await
    }

    /// Has something done in the cache of a source, where nobody else is at work meanwhile. What refs lead to is fetched to its
    /// end, as far as there is time, also when whoever asked is gone: who asks next finds it.
    pub(super) async fn with_cache<T: Send + 'static>(
        &self,
        source: &Source,
        work: impl for<'v> Fn(&'v mut Visit) -> BoxFuture<'v, Result<T, Failure>> + Send + Sync + 'static,
    ) -> Result<T, Failure> {
        self.with_cache_to(source, false, work).await
    }

    /// The same, in a process that may write the repository where that is on this machine.
    async fn with_cache_to<T: Send + 'static>(
        &self,
        source: &Source,
        writes: bool,
        work: impl for<'v> Fn(&'v mut Visit) -> BoxFuture<'v, Result<T, Failure>> + Send + Sync + 'static,
    ) -> Result<T, Failure> {
        let is_artifact = artifacts::is_artifact(source) || is_working_copy(source);
        if source.provider != "Git" && !is_artifact {
            let message = format!("source provider {:?} is not available yet", source.provider);
            return Err(Failure::new(Code::InvalidArgument, reason::NOT_AVAILABLE, message));
        }
        if source.remote.is_empty() {
            return Err(Failure::request("source.remote is empty"));
        }
        let unauthorized = |told| Failure::new(Code::InvalidArgument, reason::SOURCE_UNAUTHORIZED, told);
        if !is_artifact {
            self.local.check(&source.remote).map_err(unauthorized)?;
        }
        let name = cache_name(source);
        let path = self.caches.path(CACHES, &name);
        let caller = Caller { organization: source.organization.as_str().into(), run: "".into() };
        let turn = self.turns.turns(&name, caller).next().await;
        let job = Job {
            source: Some(source.clone()),
            cache: path.as_os_str().as_bytes().to_vec(),
            max_unreferenced: self.max_unreferenced,
            writes,
            ..Job::default()
        };
        let (sources, gone) = (self.clone(), CancellationToken::new());
        let _asks = gone.clone().drop_guard();
        let visited = async move {
            let _turn = turn;
            match visit(&job, &sources, &gone, &work).await {
                // All that is here can be had again; a machine that lost its power may have left files that are empty.
                Err(failure) if failure.is_internal() => {
                    tracing::warn!(directory = %path.display(), "a broken cache of a source is removed, and fetched anew");
                    on_files(move || match stoa_git::cache::remove(&path) {
                        // Nobody has it any more, so that it may have made room for others.
                        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
                        removed => removed.map_err(|err| Failure::internal(&err)),
                    })
                    .await?;
                    visit(&job, &sources, &gone, &work).await
                }
                done => done,
            }
        };
        tokio::spawn(visited.in_current_span()).await.unwrap_or_else(|err| Err(Failure::internal(&err)))
    }

    fn has_too_much(&self, cache: &Kept) -> bool {
        self.caches.size_of(cache) > self.most_of_a_cache
    }

    /// Removes a cache, which whoever asks next fetches anew.
    async fn remove(&self, cache: &Kept) -> Result<(), Failure> {
        let removed = cache.clone();
        on_files(move || {
            let directory = removed.path().display();
            match stoa_git::cache::remove(removed.path()) {
                Ok(()) => tracing::info!(%directory, "a source that has grown too large is fetched anew"),
                Err(error) => tracing::warn!(%error, %directory, "a cache that has grown too large cannot be removed"),
            }
            Ok(())
        })
        .await?;
        measure(&self.caches, cache).await
    }
}

/// A process at work in the cache of a source, for whoever asks.
pub(super) struct Visit {
    job: Job,
    reader: Reader,
    cache: Kept,
    sources: Sources,
    /// Ends when nobody waits any more.
    gone: CancellationToken,
    /// Whether the process may have left something unfinished.
    is_cut: bool,
}

async fn visit<T: Send>(
    job: &Job,
    sources: &Sources,
    gone: &CancellationToken,
    work: &(impl for<'v> Fn(&'v mut Visit) -> BoxFuture<'v, Result<T, Failure>> + Sync),
) -> Result<T, Failure> {
    let source = job.source.clone().unwrap_or_default();
    let path = job.path();
    let slot = sources.readers.slot(&source.organization);
    let slot = gone.run_until_cancelled(slot).await.ok_or_else(left)?;
    // Only now, so that what waits for a process is in nobody's use, and may go.
    let cache = &sources.caches.take_for(CACHES, &cache_name(&source), &source.organization);
    // A process of its own could write nothing beside the folder.
    on_files(move || stoa_git::cache::make_bare(&path).map_err(|err| Failure::internal(&err))).await?;
    let reader = gone.run_until_cancelled(sources.readers.begin_with(slot, job, cache)).await.ok_or_else(left)??;
    let (of_visit, gone) = (sources.clone(), gone.clone());
    let mut visit = Visit { job: job.clone(), reader, cache: cache.clone(), sources: of_visit, gone, is_cut: false };
    let done = work(&mut visit).await;
    let Visit { reader, is_cut, .. } = visit;
    // One that failed may have anything left in it.
    if done.is_ok() && !is_cut && !is_working_copy(&source) && !sources.has_too_much(cache) {
        sources.readers.keep(reader).await;
    } else {
        reader.end().await;
    }
    if is_cut {
        let path = job.path();
        on_files(move || stoa_git::cache::remove_leftovers(&path).map_err(|err| Failure::internal(&err))).await?;
        measure(&sources.caches, cache).await?;
    }
    // One that is broken goes by itself.
    let is_broken = done.as_ref().is_err_and(|failure| failure.is_internal());
    if !is_broken && sources.has_too_much(cache) {
        sources.remove(cache).await?;
    }
    done
}

impl Visit {
    /// The folder of the cache.
    pub(super) fn cache(&self) -> &Path {
        self.cache.path()
    }

    pub(super) async fn ask(&mut self, question: Question) -> Result<Reply, Failure> {
        if artifacts::is_artifact(self.source()) {
            return Box::pin(artifacts::ask(self, question)).await;
        }
        if is_working_copy(self.source()) {
            return self.ask_process(question).await;
        }
        let asks_server = matches!(
            question,
            Question::Resolve(_)
                | Question::Look(_)
                | Question::Discover(_)
                | Question::Functions(_)
                | Question::Propose(_)
        );
        if asks_server && let Some(failure) = self.sources.late.take(&self.job.path()) {
            return Err(failure);
        }
        let job = Job { question: Some(question), ..self.job.clone() };
        let answer = self.work(&job).await?;
        if !answer.lacks_unreferenced {
            return answer.into_result();
        }
        // Such a commit may be anybody's: nobody waits behind it for longer than whoever wants it.
        let gone = self.gone.clone();
        let job = Job { with_unreferenced: true, ..job };
        match gone.run_until_cancelled(self.work(&job)).await {
            Some(answer) => answer?.into_result(),
            None => {
                self.is_cut = true;
                Err(left())
            }
        }
    }

    pub(super) fn source(&self) -> &Source {
        self.job.source.as_ref().expect("a visit is to a source")
    }

    /// The signers of artifacts.
    pub(super) fn verified(&self) -> &Verified {
        &self.sources.verified
    }

    /// Asks the process that has the cache.
    pub(super) async fn ask_process(&mut self, question: Question) -> Result<Reply, Failure> {
        let job = Job { question: Some(question), ..self.job.clone() };
        self.work(&job).await?.into_result()
    }

    /// A new folder in the cache, which is removed with the value.
    pub(super) async fn unfinished(&self) -> Result<tempfile::TempDir, Failure> {
        artifacts::unfinished(&self.job.path()).await
    }

    /// Rejects a fetch without disk space.
    pub(super) async fn require_room(&self) -> Result<(), Failure> {
        if has_room(&self.sources.caches, &self.cache, self.reader.organization()).await? {
            return Ok(());
        }
        Err(Failure::new(Code::ResourceExhausted, reason::BUSY, LACKS_ROOM))
    }

    async fn work(&mut self, job: &Job) -> Result<Answer, Failure> {
        let organization = self.reader.organization().to_owned();
        let has_room = has_room(&self.sources.caches, &self.cache, &organization).await?;
        let job = Job { lacks_room: !has_room, ..job.clone() };
        let answer = self.reader.work(&job).await.map_err(|Unanswered { failure, is_late, .. }| {
            self.is_cut = true;
            if is_late && self.gone.is_cancelled() {
                self.sources.late.keep(job.path(), failure);
                return left();
            }
            failure
        })?;
        if answer.has_fetched {
            measure(&self.sources.caches, &self.cache).await?;
        }
        Ok(answer)
    }
}

fn at(commit: &str, path: &str) -> Result<ContentRequest, Failure> {
    let commit = refs::revision(commit)?;
    Ok(ContentRequest { commit, path: path.to_owned(), ..ContentRequest::default() })
}

/// A source whose packages are artifacts.
fn in_registry(source: &Source) -> Result<&Source, Failure> {
    match source.provider.as_str() {
        "OCI" => Ok(source),
        other => Err(Failure::request(format!("source.provider is {other:?}; only OCI has artifacts of packages"))),
    }
}

pub(super) fn unfitting() -> Failure {
    Failure::internal(&"a question about a source has the reply to another")
}

fn left() -> Failure {
    Failure::new(Code::Unavailable, reason::SOURCE_UNAVAILABLE, "nobody waits for it any more")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn unused_reservation_lapses() {
        let memory_slots = Arc::new(Semaphore::new(1));
        let reserve = || Reserved::of(Arc::clone(&memory_slots).try_acquire_owned().unwrap());
        let reserved = reserve();
        let used = reserved.take().unwrap();
        tokio::time::sleep(2 * RESERVED).await;
        assert_eq!(memory_slots.available_permits(), 0, "it is used");
        drop(used);
        let reserved = reserve();
        tokio::time::sleep(2 * RESERVED).await;
        assert!(reserved.take().is_none());
        assert_eq!(memory_slots.available_permits(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn late_fetch_is_reported_once() {
        let late = Late::default();
        let keep = |cache: &str| late.keep(cache.into(), left());
        keep("a");
        keep("b");
        tokio::time::advance(LATE / 2).await;
        assert!(late.take(Path::new("a")).is_some());
        assert!(late.take(Path::new("a")).is_none());
        keep("c");
        tokio::time::advance(LATE / 2).await;
        assert!(late.take(Path::new("b")).is_none());
        keep("b");
        tokio::time::advance(LATE / 2).await;
        keep("d");
        let mut kept: Vec<PathBuf> = late.0.lock().unwrap().keys().cloned().collect();
        kept.sort();
        assert_eq!(kept, ["b", "d"].map(PathBuf::from), "nobody asked for the other one");
    }
}
