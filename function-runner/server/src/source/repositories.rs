//! The repositories of GitOps workspaces, whose servers are reached in processes, too.
//!
//! [`Repository`] sends the requests of the runtime to such a process, where [`reach`] does the work. The runtime reads fetched objects
//! itself, on threads that are confined to the copy: a compromised process may leave anything there, such as links.

use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use git2::{ErrorClass, ErrorCode, Oid};
use prost::Message as _;
use rustix::time::ClockId;
use stoa_git::Credentials;
use stoa_git::cache::{Folders, Kept, remove_abandoned};
use stoa_proto::Source;
use stoa_runtime::{Grant, Lapsed};
use stoa_runtime_gitops::{Connect, Pushing, Reached, Remotes, Request, Task, Unreached};
use stoa_workers::KillDeadline;
use stoa_workers::sandbox::keep_to;
use stoa_workers::worker::Progress;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::auth::Authenticated;
use super::disk::{LACKS_ROOM, has_room, measure, on_files};
use super::job::{Job, Question, Reply};
use super::reader_pool::{ReaderPool, Unanswered};
use super::{MOST_OF_A_CACHE, error};
use crate::failure::{Failure, reason};
use crate::worker;

/// The repository of a workspace, as its runtime reaches it.
#[derive(Clone)]
pub(crate) struct Repository {
    authenticated: Authenticated,
    source: Source,
    /// The folder of its copy, one of these.
    cache: Kept,
    folders: Folders,
    readers: ReaderPool,
}

impl fmt::Debug for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repository").field("authenticated", &self.authenticated).finish_non_exhaustive()
    }
}

impl Repository {
    /// The one that a source names, whose copy is in a folder that nobody has who shows other credentials.
    pub(crate) fn new(source: Source, cache: Kept, folders: Folders, readers: ReaderPool) -> Self {
        Self { authenticated: Authenticated::with(&source), source, cache, folders, readers }
    }

    async fn ask(&self, copy: &Path, request: &Request, grant: &Grant) -> Result<Reached, Unreached> {
        let cache = copy.as_os_str().as_bytes().to_vec();
        let fetches = matches!(request.task, Task::Fetch { .. });
        let organization = &self.source.organization;
        let lacks_room = fetches && !has_room(&self.folders, &self.cache, organization).await.map_err(unreached)?;
        let job = Job { source: Some(self.source.clone()), cache, lacks_room, ..Job::default() };
        let mut reader = self.readers.begin(&job, &self.cache).await.map_err(|failure| unreached(failure).unbegun())?;
        if grant.check().is_err() {
            // It may have waited long for a place.
            self.readers.keep(reader).await;
            return Err(Unreached::Lapsed);
        }
        let job = Job { question: Some(Question::Reach(RemoteRequest::of(request, grant, monotonic()))), ..job };
        let may_have_pushed = AtomicBool::new(false);
        let tell = || {
            // It asks right before it pushes.
            may_have_pushed.store(true, Ordering::Relaxed);
            Deadline::of(grant, monotonic()).encode_to_vec()
        };
        // A push that has begun asks nobody whether it may go on, and whoever waits for this cannot end it.
        let worked = grant.during(reader.work_with(&job, Some(&tell))).await;
        let may_have_pushed = may_have_pushed.load(Ordering::Relaxed);
        let known = |why: Unreached, at: Option<u32>| known(why, may_have_pushed, at);
        let why = match worked {
            Ok(Ok(answer)) => {
                if answer.has_fetched {
                    measure(&self.folders, &self.cache).await.map_err(unreached)?;
                }
                let has_too_much = self.folders.size_of(&self.cache) > MOST_OF_A_CACHE;
                let reached = match answer.into_result() {
                    // The process knows itself whether it may have pushed by then.
                    Ok(Reply::Reached(told)) if may_have_pushed => told.into_result(),
                    Ok(Reply::Reached(told)) => told.into_result().map_err(Unreached::unbegun),
                    Ok(_) => Err(known(unreached(Failure::internal(&"a question has the reply to another")), None)),
                    Err(failure) => Err(known(unreached(failure), None)),
                };
                // One that is idle is at work there, too.
                if reached.is_ok() && !has_too_much {
                    self.readers.keep(reader).await;
                } else {
                    reader.end().await;
                }
                return reached;
            }
            Ok(Err(Unanswered { failure, at, .. })) => known(unreached(failure), at),
            Err(Lapsed) if !may_have_pushed => Unreached::Lapsed,
            // Nobody knows whether something was pushed by then.
            Err(lapsed) => {
                let remote = stoa_git::without_userinfo(&self.source.remote);
                Unreached::Unavailable(format!("{remote} did not finish the push in time: {lapsed}"))
            }
        };
        let longest = reader.longest();
        reader.end().await;
        let path = copy.to_owned();
        let removed = on_files(move || {
            // Others may be at work in the copy, and none of them for longer than a job may be.
            Ok(longest.map_or(Ok(()), |longest| remove_abandoned(&path, longest)))
        });
        if let Ok(Err(error)) = removed.await {
            tracing::warn!(copy = %copy.display(), %error, "leftovers of a process cannot be removed");
        }
        if fetches && let Err(failure) = measure(&self.folders, &self.cache).await {
            return Err(unreached(failure));
        }
        Err(why)
    }
}

impl Remotes for Repository {
    fn shown(&self) -> Credentials {
        self.authenticated.credentials()
    }

    fn reach(&self, copy: &git2::Repository, request: &Request, grant: &Grant) -> Result<Reached, Unreached> {
        let (tell, told) = mpsc::sync_channel(1);
        let (repository, copy) = (self.clone(), copy.path().to_owned());
        let (of_task, of_grant) = (request.clone(), grant.clone());
        // Not here: this thread is kept to the copy, and may look at no process.
        Handle::current().spawn(async move {
            // Whoever asks waits for it.
            let _ = tell.send(repository.ask(&copy, &of_task, &of_grant).await);
        });
        let ended = |_| Err(unreached(Failure::internal(&"nobody reaches a repository any more")));
        let reached = told.recv().unwrap_or_else(ended);
        if reached.is_err() {
            // The process knows how long the grant lasts, and nobody else what it found.
            let _ = grant.check();
        }
        reached
    }

    fn apart(&self, work: &mut (dyn FnMut() + Send)) -> io::Result<()> {
        let runtime = Handle::current();
        let folder = self.cache.path().to_owned();
        if let Err(error) = std::fs::create_dir_all(&folder) {
            // Whoever opens it hears of that.
            tracing::warn!(%error, folder = %folder.display(), "there is no folder for a copy");
        }
        let worked: io::Result<std::thread::Result<()>> = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("copy".to_owned()).spawn_scoped(scope, || {
                let _entered = runtime.enter();
                let made_by_tests = stoa_failpoint::file().and_then(Path::parent).map(Path::to_owned);
                let folders: Vec<PathBuf> = [folder].into_iter().chain(made_by_tests).collect();
                keep_to(&folders, &worker::read_for_copies());
                work();
            })?;
            Ok(thread.join())
        });
        if let Err(panic) = worked? {
            std::panic::resume_unwind(panic);
        }
        Ok(())
    }
}

/// What it means for a runtime that there is no answer.
fn unreached(failure: Failure) -> Unreached {
    let (_, problems) = failure.into_parts();
    let problem = problems.into_iter().next().unwrap_or_default();
    if problem.reason == reason::TOO_LARGE {
        Unreached::TooLarge(problem.message)
    } else {
        Unreached::Unavailable(problem.message)
    }
}

/// The same of a process that asked, or did not, whether it may push, and came to no end at something.
fn known(why: Unreached, may_have_pushed: bool, at: Option<u32>) -> Unreached {
    match why {
        why if !may_have_pushed => why.unbegun(),
        // It had too much by itself, so that all was heard that it said; it says when it is about to send anything.
        Unreached::TooLarge(_) if at == Some(PREPARES) => why,
        why => why.in_doubt(),
    }
}

/// Does what is asked of a repository from its copy, in the process that has it in hand, and says whether anything may have been
/// fetched.
pub(super) fn reach(
    copy: &Path,
    source: &Source,
    asked: RemoteRequest,
    has_room: bool,
    progress: Progress,
) -> (RemoteAnswer, bool) {
    let (authenticated, kill_deadline) = (Authenticated::with(source), Mutex::default());
    let (has_fetched, may_have_pushed) = (AtomicBool::new(false), AtomicBool::new(false));
    let connect = OnBehalf { authenticated, progress, kill_deadline, has_room, has_fetched, may_have_pushed };
    let reached = || {
        let repository = git2::Repository::open_bare(copy)?;
        if connect.credentials().has_secrets() {
            stoa_git::stay_at_host(&repository)?;
        }
        let (request, grant) = asked.into_request(&source.remote, monotonic)?;
        stoa_runtime_gitops::reach(&connect, &repository, &request, &grant)
    };
    let told = RemoteAnswer::of(reached());
    let told = if connect.may_have_pushed.load(Ordering::Relaxed) { told.in_doubt() } else { told };
    (told, connect.has_fetched.into_inner())
}

/// Reaches servers for a runner, which has the grant and hears when it is extended.
#[derive(Debug)]
struct OnBehalf {
    authenticated: Authenticated,
    progress: Progress,
    /// Ends this process with the grant, once something is pushed.
    kill_deadline: Mutex<Option<KillDeadline>>,
    /// Whether there is room for what is fetched.
    has_room: bool,
    /// Whether anything may have come.
    has_fetched: AtomicBool,
    /// Whether the server may have got anything that is pushed.
    may_have_pushed: AtomicBool,
}

/// What a process [is at](Progress::at) that gathers what it is to push, and has sent nothing of it.
const PREPARES: u32 = 1;

impl Connect for OnBehalf {
    fn callbacks(&self) -> git2::RemoteCallbacks<'_> {
        self.authenticated.callbacks()
    }

    fn credentials(&self) -> Credentials {
        self.authenticated.credentials()
    }

    fn before(&self, address: &[u8]) {
        self.authenticated.before(address);
    }

    fn may_fetch(&self) -> Result<(), Unreached> {
        if !self.has_room {
            return Err(Unreached::Unbegun(LACKS_ROOM.to_owned()));
        }
        self.has_fetched.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn may_push(&self, grant: &Grant) -> Result<(), Lapsed> {
        // Of a push without objects nothing more is told.
        self.may_have_pushed.store(true, Ordering::Relaxed);
        // Where nobody answers, nobody waits for the push.
        let Some(told) = self.progress.ask().map_err(|_| Lapsed)? else { return grant.check() };
        let deadline = Deadline::decode(told.as_slice()).map_err(|_| Lapsed)?;
        deadline.extend(grant, monotonic);
        grant.check()?;
        if let Some(end) = deadline.end() {
            // The runner may stand still while this goes on.
            let later = |told: &[u8]| Deadline::decode(told).ok()?.end();
            let kill_deadline = KillDeadline::new(end, self.progress, later).map_err(|_| Lapsed)?;
            *self.kill_deadline.lock().unwrap_or_else(PoisonError::into_inner) = Some(kill_deadline);
        }
        Ok(())
    }

    fn pushing(&self, pushing: Pushing) {
        let prepares = pushing == Pushing::Prepares;
        self.may_have_pushed.store(!prepares, Ordering::Relaxed);
        self.progress.at(prepares.then_some(PREPARES));
    }
}

/// What the monotonic clock says, which is the same for all processes of a machine.
fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    now.try_into().expect("it began at the start of the machine")
}

/// Until when a grant lasts, as processes tell each other: how long it lasts would begin anew in the other, however late that
/// hears of it.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Deadline {
    /// Nanoseconds of the monotonic clock; without an end where this is not there.
    #[prost(uint64, optional, tag = "1")]
    until: Option<u64>,
}

impl Deadline {
    /// `now`: what [`monotonic`] said before this.
    fn of(grant: &Grant, now: Duration) -> Self {
        let until = grant.remaining().map(|remaining| now.saturating_add(remaining).as_nanos());
        Self { until: until.map(|until| u64::try_from(until).unwrap_or(u64::MAX)) }
    }

    /// By the monotonic clock.
    fn end(self) -> Option<Duration> {
        self.until.map(Duration::from_nanos)
    }

    fn instant(self, clock: impl FnOnce() -> Duration) -> Option<Instant> {
        let until = self.end()?;
        // In this order: whoever is suspended in between finds the grant to end sooner, and never later.
        let start = Instant::now();
        Some(start + until.saturating_sub(clock()))
    }

    fn grant(self, clock: impl FnOnce() -> Duration) -> Grant {
        self.instant(clock).map_or_else(Grant::unlimited, Grant::until)
    }

    /// Lets a grant that has an end last until this one.
    fn extend(self, grant: &Grant, clock: impl FnOnce() -> Duration) {
        if let Some(end) = self.instant(clock) {
            grant.extend(end);
        }
    }
}

/// A [`Request`] and its grant, as a message between processes.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RemoteRequest {
    #[prost(string, tag = "1")]
    branch: String,
    /// Of a fetch or push.
    #[prost(string, optional, tag = "2")]
    own: Option<String>,
    /// Of a push: 40 hex digits.
    #[prost(string, optional, tag = "3")]
    from: Option<String>,
    /// As far as was known when this was asked; see [`OnBehalf`] for what is known later.
    #[prost(message, required, tag = "4")]
    deadline: Deadline,
}

impl RemoteRequest {
    /// `now`: what [`monotonic`] said before this.
    fn of(request: &Request, grant: &Grant, now: Duration) -> Self {
        let (own, from) = match &request.task {
            Task::List => (None, None),
            Task::Fetch { own } => (Some(own.clone()), None),
            Task::Push { own, from } => (Some(own.clone()), Some(from.to_string())),
        };
        Self { branch: request.branch.clone(), own, from, deadline: Deadline::of(grant, now) }
    }

    fn into_request(self, url: &str, clock: impl FnOnce() -> Duration) -> Result<(Request, Grant), git2::Error> {
        let task = match (self.own, self.from) {
            (None, _) => Task::List,
            (Some(own), None) => Task::Fetch { own },
            (Some(own), Some(from)) => Task::Push { own, from: Oid::from_str(&from)? },
        };
        Ok((Request { url: url.to_owned(), branch: self.branch, task }, self.deadline.grant(clock)))
    }
}

/// The result of a [`RemoteRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RemoteAnswer {
    /// 40 hex digits.
    #[prost(string, optional, tag = "1")]
    branch: Option<String>,
    #[prost(string, optional, tag = "2")]
    refused: Option<String>,
    #[prost(oneof = "Why", tags = "3, 4, 5, 6, 7")]
    failed: Option<Why>,
}

/// Why a request failed, as [`Unreached`].
#[derive(Clone, PartialEq, prost::Oneof)]
enum Why {
    #[prost(message, tag = "3")]
    Git(GitError),
    #[prost(string, tag = "4")]
    TooLarge(String),
    #[prost(string, tag = "5")]
    Unavailable(String),
    /// Always true.
    #[prost(bool, tag = "6")]
    Lapsed(bool),
    #[prost(string, tag = "7")]
    Unbegun(String),
}

/// An error of libgit2, by the positions of its code and class below.
#[derive(Clone, PartialEq, prost::Message)]
struct GitError {
    #[prost(uint32, tag = "1")]
    code: u32,
    #[prost(uint32, tag = "2")]
    class: u32,
    #[prost(string, tag = "3")]
    message: String,
}

impl RemoteAnswer {
    fn of(reached: Result<Reached, Unreached>) -> Self {
        let failed = match reached {
            Ok(Reached { branch, refused }) => {
                return Self { branch: branch.map(|commit| commit.to_string()), refused, failed: None };
            }
            Err(Unreached::Git(err)) if error::is_too_large(&err) => Why::TooLarge(error::OVER_LIMITS.to_owned()),
            Err(Unreached::Git(err)) => Why::Git(GitError::of(&err)),
            Err(Unreached::TooLarge(why)) => Why::TooLarge(why),
            Err(Unreached::Unavailable(why)) => Why::Unavailable(why),
            Err(Unreached::Unbegun(why)) => Why::Unbegun(why),
            Err(Unreached::Lapsed) => Why::Lapsed(true),
        };
        Self { failed: Some(failed), ..Self::default() }
    }

    /// The same of a push that may have arrived.
    fn in_doubt(self) -> Self {
        match self.failed {
            Some(Why::TooLarge(why)) => Self { failed: Some(Why::Unavailable(why)), ..self },
            _ => self,
        }
    }

    fn into_result(self) -> Result<Reached, Unreached> {
        match self.failed {
            None => {
                let branch = self.branch.map(|commit| Oid::from_str(&commit)).transpose()?;
                Ok(Reached { branch, refused: self.refused })
            }
            Some(Why::Git(err)) => Err(Unreached::Git(err.into_error())),
            Some(Why::TooLarge(why)) => Err(Unreached::TooLarge(why)),
            Some(Why::Unavailable(why)) => Err(Unreached::Unavailable(why)),
            Some(Why::Unbegun(why)) => Err(Unreached::Unbegun(why)),
            Some(Why::Lapsed(_)) => Err(Unreached::Lapsed),
        }
    }
}

impl GitError {
    fn of(err: &git2::Error) -> Self {
        let code = CODES.iter().position(|code| *code == err.code()).unwrap_or_default();
        let class = CLASSES.iter().position(|class| *class == err.class()).unwrap_or_default();
        let place = |place: usize| u32::try_from(place).unwrap_or_default();
        Self { code: place(code), class: place(class), message: err.message().to_owned() }
    }

    fn into_error(self) -> git2::Error {
        let code = CODES.get(self.code as usize).copied().unwrap_or(ErrorCode::GenericError);
        let class = CLASSES.get(self.class as usize).copied().unwrap_or(ErrorClass::None);
        // What a server says may have anything in it.
        git2::Error::new(code, class, self.message.replace('\0', " "))
    }
}

/// The codes that something is decided by; others become the first.
const CODES: [ErrorCode; 13] = [
    ErrorCode::GenericError,
    ErrorCode::NotFound,
    ErrorCode::Exists,
    ErrorCode::BufSize,
    ErrorCode::UnbornBranch,
    ErrorCode::NotFastForward,
    ErrorCode::Locked,
    ErrorCode::Modified,
    ErrorCode::Auth,
    ErrorCode::Certificate,
    ErrorCode::Eof,
    ErrorCode::Owner,
    ErrorCode::Timeout,
];

/// Those that reaching a server or the copy may have.
const CLASSES: [ErrorClass; 15] = [
    ErrorClass::None,
    ErrorClass::NoMemory,
    ErrorClass::Os,
    ErrorClass::Reference,
    ErrorClass::Zlib,
    ErrorClass::Repository,
    ErrorClass::Config,
    ErrorClass::Odb,
    ErrorClass::Object,
    ErrorClass::Net,
    ErrorClass::Ssl,
    ErrorClass::Ssh,
    ErrorClass::Callback,
    ErrorClass::Filesystem,
    ErrorClass::Http,
];

#[cfg(test)]
mod tests;
