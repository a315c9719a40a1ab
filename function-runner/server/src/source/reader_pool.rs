//! The processes that fetch and read sources, each one source for one organization.
//!
//! Start at [`ReaderPool`]. libgit2 trusts the Git server: it accepts refs without end, objects of any size, and packs that never end.
//! So a process of its own has limits. It ends when a call fails, when its time is over, or soon after the last call. It gets the
//! credentials by its pipe, and writes to the cache of its source alone. `slots` decides who gets a process.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use stoa_fairness::{MaxShare, Permit};
use stoa_git::cache::Kept;
use stoa_workers::{Failed, Fault, Limits, Subprocess, SubprocessStarter, Tell};
use tokio::time::Instant;
use tonic::Code;

use super::job::{Answer, Job};
use super::slots::Slots;
use crate::failure::{Failure, reason, size};
use crate::worker;

/// How old a process becomes. Files that it read at its start, such as certificates of authorities, may have changed by then.
const MAX_AGE: Duration = Duration::from_secs(60);

/// A process that uses more memory, in bytes, does not wait for the next call.
const MAX_IDLE_MEMORY: u64 = 192 << 20;

/// Starts the processes. Clones share the slots for them.
#[derive(Clone, Debug)]
pub(crate) struct ReaderPool {
    mode: Mode,
    slots: Slots,
}

#[derive(Clone, Debug)]
enum Mode {
    Processes {
        starter: SubprocessStarter,
        /// The folders whose repositories may be named by path.
        local: Arc<[PathBuf]>,
    },
    /// On threads of this process.
    #[cfg(test)]
    InProcess {
        /// Whether they stay idle as processes do.
        stays: bool,
        /// How many were begun.
        begun: Arc<std::sync::atomic::AtomicUsize>,
    },
}

/// A process that reads one source. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Reader {
    worker: Worker,
    /// The URL of the source, for people.
    remote: String,
    organization: String,
    /// The folder that it writes to, which stays as long.
    cache: Kept,
    /// The identity of that folder: the process cannot reach a new folder at the same path.
    folder: Option<Folder>,
    begun: Instant,
    limits: Option<Limits>,
    /// Whether it may write a repository on this machine, and so serves pushes alone.
    is_writer: bool,
    /// Nothing while it is idle.
    slot: Option<Permit>,
}

/// The device and inode of a folder.
type Folder = (u64, u64);

#[derive(Debug)]
enum Worker {
    Process(Box<Subprocess>),
    #[cfg(test)]
    InProcess {
        stays: bool,
    },
}

impl ReaderPool {
    /// So many processes at once. The servers of one organization may take a quarter of an hour for each.
    pub(crate) fn new(starter: SubprocessStarter, processes: usize, local: Arc<[PathBuf]>) -> Self {
        let slots = Slots::new(processes, MaxShare::ThreeQuarters);
        Self { mode: Mode::Processes { starter, local }, slots }
    }

    /// A pool of so many other processes, with the same limits for each.
    pub(crate) fn with_slots(&self, processes: usize, max_share: MaxShare) -> Self {
        Self { mode: self.mode.clone(), slots: Slots::new(processes, max_share) }
    }

    /// On threads of this process, which is not the runner's binary.
    #[cfg(test)]
    pub(crate) fn in_process() -> Self {
        let slots = Slots::new(64, MaxShare::ThreeQuarters);
        Self { mode: Mode::InProcess { stays: false, begun: Arc::default() }, slots }
    }

    /// Waits for a slot, and starts a process for the source of a job, whose cache exists, or reuses an idle one.
    pub(super) async fn begin(&self, job: &Job, cache: &Kept) -> Result<Reader, Failure> {
        let organization = job.source.as_ref().map_or("", |source| source.organization.as_str());
        let slot = self.slot(organization).await;
        self.begin_with(slot, job, cache).await
    }

    /// Waits for a slot for a process of an organization.
    pub(super) async fn slot(&self, organization: &str) -> Permit {
        self.slots.acquire(organization).await
    }

    /// Starts a process for the source of a job, whose cache exists, or reuses an idle one.
    pub(super) async fn begin_with(&self, slot: Permit, job: &Job, cache: &Kept) -> Result<Reader, Failure> {
        let organization = job.source.as_ref().map_or("", |source| source.organization.as_str());
        if let Some(idle) = self.slots.take_idle(cache.path(), organization, job.writes) {
            return Ok(Reader { slot: Some(slot), ..idle });
        }
        if let Some(idle) = self.slots.evict() {
            idle.end().await;
        }
        let source = job.source.clone().unwrap_or_default();
        let (begun, folder) = (Instant::now(), folder(cache.path()));
        let remote = stoa_git::without_userinfo(&source.remote);
        let (worker, limits) = match &self.mode {
            Mode::Processes { starter, local } => {
                let path = stoa_git::local_path(&source.remote);
                let reads = if path.is_some() { &local[..] } else { &[] };
                let writes = path.as_deref().filter(|_| job.writes);
                let more = worker::more_for_source(cache.path(), reads, writes);
                let started = starter.start(more).await;
                let process = started.map_err(|error| {
                    tracing::error!(error = &error as &dyn std::error::Error, "the process for a source did not start");
                    let message = format!("the function-runner cannot start a process to read {remote}; try again");
                    Failure::new(Code::Unavailable, reason::UNAVAILABLE, message)
                })?;
                (Worker::Process(Box::new(process)), Some(*starter.limits()))
            }
            #[cfg(test)]
            Mode::InProcess { stays, begun } => {
                begun.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                (Worker::InProcess { stays: *stays }, None)
            }
        };
        let (organization, cache, is_writer) = (source.organization, cache.clone(), job.writes);
        let slot = Some(slot);
        Ok(Reader { worker, remote, organization, cache, folder, begun, limits, is_writer, slot })
    }

    /// Keeps a process that has done all of its jobs for the next call of its source, or ends it.
    pub(super) async fn keep(&self, reader: Reader) {
        if reader.may_stay() {
            self.slots.keep(reader);
        } else {
            reader.end().await;
        }
    }
}

fn folder(path: &Path) -> Option<Folder> {
    let metadata = path.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

impl Reader {
    pub(super) fn organization(&self) -> &str {
        &self.organization
    }

    pub(super) fn take_slot(&mut self) -> Option<Permit> {
        self.slot.take()
    }

    /// How long a job may take, where there is a limit.
    pub(super) fn longest(&self) -> Option<Duration> {
        self.limits.map(|limits| limits.time)
    }

    /// Whether it reads the source with this cache for an organization, or writes it. Credentials are part of a cache's name.
    pub(super) fn is_for(&self, cache: &Path, organization: &str, writes: bool) -> bool {
        self.cache.path() == cache && self.organization == organization && self.is_writer == writes
    }

    fn may_stay(&self) -> bool {
        let uses_little = match &self.worker {
            Worker::Process(process) => process.resident() <= Some(MAX_IDLE_MEMORY),
            #[cfg(test)]
            Worker::InProcess { stays } => *stays,
        };
        uses_little && self.begun.elapsed() < MAX_AGE
    }

    /// Whether it still runs, and reaches its cache.
    pub(super) fn is_usable(&mut self) -> bool {
        let has_ended = match &mut self.worker {
            Worker::Process(process) => process.has_ended(),
            #[cfg(test)]
            Worker::InProcess { .. } => false,
        };
        !has_ended && self.folder.is_some() && self.folder == folder(self.cache.path())
    }

    /// Does a job. After a failure, or when the future is dropped before its end, the process is unusable, and may
    /// have left something unfinished in the cache.
    pub(super) async fn work(&mut self, job: &Job) -> Result<Answer, Unanswered> {
        self.work_with(job, None).await
    }

    /// As [`work`](Self::work), with an answer for a process that asks in the middle of it.
    pub(super) async fn work_with(&mut self, job: &Job, tell: Option<Tell<'_>>) -> Result<Answer, Unanswered> {
        let answer = match &mut self.worker {
            Worker::Process(process) => {
                let done = process.work(&job.encode_to_vec(), tell).await;
                let bytes = done.map_err(|failed| self.explain(failed))?;
                Answer::decode(bytes).map_err(|err| Unanswered::by(Failure::internal(&err)))?
            }
            #[cfg(test)]
            Worker::InProcess { .. } => {
                let job = job.clone();
                let answer = move || job.answer(stoa_workers::worker::Progress::unheard());
                tokio::task::spawn_blocking(answer).await.expect("it does not panic")
            }
        };
        if !answer.log.is_empty() {
            tracing::warn!(remote = self.remote, said = answer.log, "a process that reads a source logged a message");
        }
        Ok(answer)
    }

    /// Ends the process, and waits for its end. Its slot is free after that.
    pub(super) async fn end(self) {
        match self.worker {
            Worker::Process(process) => process.end().await,
            #[cfg(test)]
            Worker::InProcess { .. } => {}
        }
    }

    /// Explains to a caller why its process gave no answer.
    fn explain(&self, failed: Failed) -> Unanswered {
        tracing::warn!(remote = self.remote, fault = ?failed.fault, "a process that reads a source failed");
        let failure = explain(&failed.fault, &self.remote, self.limits.as_ref());
        Unanswered { is_late: failed.fault == Fault::Time, at: failed.at, ..Unanswered::by(failure) }
    }
}

/// Why a process gave no answer.
pub(super) struct Unanswered {
    pub(super) failure: Failure,
    /// Whether there was too little time for one.
    pub(super) is_late: bool,
    /// The last step that the process reported.
    pub(super) at: Option<u32>,
}

impl Unanswered {
    fn by(failure: Failure) -> Self {
        Self { failure, is_late: false, at: None }
    }
}

fn explain(fault: &Fault, remote: &str, limits: Option<&Limits>) -> Failure {
    let too_large = |what: String| {
        let message = format!(
            "fetching and reading {remote} takes more than {what}; make the repository smaller or raise the limits of the function-runner"
        );
        Failure::new(Code::InvalidArgument, reason::TOO_LARGE, message)
    };
    let unavailable =
        |message: String| Failure::new(Code::Unavailable, reason::SOURCE_UNAVAILABLE, format!("{remote} {message}"));
    let Some(limits) = limits else { return Failure::internal(&"a job without limits failed") };
    match fault {
        Fault::Memory => too_large(format!("{} of memory", size(limits.memory))),
        Fault::Processor => too_large(format!("{} s of CPU time", limits.processor.as_secs())),
        Fault::Answer => too_large(format!("{} for the answer", size(limits.answer.try_into().unwrap_or(u64::MAX)))),
        Fault::Time => unavailable(format!(
            "was not fetched and read within {} s; check that its Git server answers",
            limits.time.as_secs()
        )),
        Fault::Killed(signal) => {
            unavailable(format!("was not read: the process was killed by signal {signal}; try again"))
        }
        Fault::Busy | Fault::NoWorker(_) | Fault::Closed => unavailable("was not read; try again".to_owned()),
        Fault::Panicked(place) => Failure::internal(&format!("a process that reads a source panicked at {place}")),
        Fault::Died(how) => Failure::internal(&format!("a process that reads a source died: {how}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt as _;
    use stoa_git::cache::Folders;
    use stoa_proto::Source;
    use stoa_runtime::Caller;
    use tempfile::TempDir;

    use super::*;
    use crate::args::LimitArgs;

    /// Processes that stay idle, and caches for them.
    struct Bed {
        readers: ReaderPool,
        begun: Arc<AtomicUsize>,
        directory: TempDir,
        caches: Folders,
    }

    impl Bed {
        fn new(slots: usize, max_share: MaxShare) -> Self {
            let (directory, begun) = (TempDir::new().unwrap(), Arc::<AtomicUsize>::default());
            let mode = Mode::InProcess { stays: true, begun: Arc::clone(&begun) };
            let caches = Folders::new(directory.path().to_owned());
            Self { readers: ReaderPool { mode, slots: Slots::new(slots, max_share) }, begun, directory, caches }
        }

        async fn begin(&self, organization: &str, cache: &str) -> Reader {
            self.begin_job(organization, cache, false).await
        }

        async fn begin_job(&self, organization: &str, cache: &str, writes: bool) -> Reader {
            let source = Some(Source { organization: organization.to_owned(), ..Source::default() });
            std::fs::create_dir_all(self.path(cache)).unwrap();
            let kept = self.caches.take("git", cache);
            self.readers.begin(&Job { source, writes, ..Job::default() }, &kept).await.unwrap()
        }

        /// A call of a source.
        async fn call(&self, organization: &str, cache: &str) {
            self.readers.keep(self.begin(organization, cache).await).await;
        }

        /// A push to the folder of a source.
        async fn push(&self, organization: &str, cache: &str) {
            self.readers.keep(self.begin_job(organization, cache, true).await).await;
        }

        fn begun(&self) -> usize {
            self.begun.load(Ordering::SeqCst)
        }

        fn path(&self, cache: &str) -> PathBuf {
            self.directory.path().join("git").join(cache)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn next_call_of_a_source_reuses_its_process() {
        let bed = Bed::new(8, MaxShare::ThreeQuarters);
        for _ in 0..3 {
            bed.call("a", "one").await;
        }
        assert_eq!(bed.begun(), 1);
        bed.call("b", "one").await;
        assert_eq!(bed.begun(), 2, "organizations share none");
        bed.call("a", "other").await;
        assert_eq!(bed.begun(), 3, "nor do sources and credentials");
        let (first, second) = (bed.begin("a", "one").await, bed.begin("a", "one").await);
        assert_eq!(bed.begun(), 4, "each has one job at a time");
        drop((first, second));
        bed.call("a", "one").await;
        assert_eq!(bed.begun(), 5, "what is not kept is gone");
        tokio::time::sleep(Duration::from_secs(60)).await;
        bed.call("a", "one").await;
        assert_eq!(bed.begun(), 6, "nobody called for long");
    }

    #[tokio::test(start_paused = true)]
    async fn writer_serves_pushes_of_its_source_alone() {
        let bed = Bed::new(8, MaxShare::ThreeQuarters);
        bed.call("a", "one").await;
        bed.push("a", "one").await;
        assert_eq!(bed.begun(), 2, "a reader writes nothing");
        bed.push("a", "one").await;
        bed.call("a", "one").await;
        assert_eq!(bed.begun(), 2, "each has its process");
        bed.push("b", "one").await;
        bed.push("a", "other").await;
        assert_eq!(bed.begun(), 4, "neither organizations nor sources share a writer");
        let writer = bed.begin_job("a", "one", true).await;
        bed.call("a", "one").await;
        assert_eq!(bed.begun(), 4);
        drop(writer);
        bed.call("b", "one").await;
        assert_eq!(bed.begun(), 5, "a writer reads for nobody");
    }

    #[tokio::test(start_paused = true)]
    async fn old_process_is_replaced() {
        let bed = Bed::new(8, MaxShare::ThreeQuarters);
        let mut elapsed = Duration::ZERO;
        while elapsed < MAX_AGE {
            bed.call("a", "one").await;
            assert_eq!(bed.begun(), 1);
            tokio::time::sleep(Duration::from_secs(2)).await;
            elapsed += Duration::from_secs(2);
        }
        bed.call("a", "one").await;
        bed.call("a", "one").await;
        assert_eq!(bed.begun(), 2);
    }

    #[tokio::test]
    async fn idle_process_ends_when_its_slot_is_needed() {
        let bed = Bed::new(2, MaxShare::ThreeQuarters);
        bed.call("a", "one").await;
        // An organization has one place here.
        let second = bed.begin("a", "two").await;
        bed.call("b", "three").await;
        let third = bed.begin("c", "four").await;
        assert_eq!(bed.begun(), 4);
        let mut fourth = Box::pin(bed.begin("b", "three"));
        assert!(fourth.as_mut().now_or_never().is_none(), "both places are taken");
        // Who waits is not passed by.
        bed.readers.keep(third).await;
        drop(fourth.await);
        drop(second);
        assert_eq!(bed.begun(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_servers_leave_processes_to_others() {
        let args = LimitArgs { max_gitops_requests: 2, ..LimitArgs::default() };
        let (bed, limits) = (Bed::new(args.gitops_processes(), MaxShare::All), args.of_runtimes().gitops);
        let call = async |organization: &str, repository: &str| {
            let caller = Caller { organization: organization.into(), run: "run".into() };
            let turn = limits.turns(repository, caller).next().await;
            (turn, bed.begin(organization, repository).await)
        };
        let hanging = [call("a", "one").await, call("b", "two").await];
        // They keep no turn from others after a while.
        let other = tokio::time::timeout(Duration::from_secs(60), call("c", "three")).await;
        drop(other.expect("there is a process for it"));
        // An organization has as many as requests may be under way that are not slow.
        let again = tokio::time::timeout(Duration::from_secs(60), call("a", "four")).await;
        assert!(again.is_ok());
        drop(hanging);
    }

    #[tokio::test(start_paused = true)]
    async fn every_call_with_a_turn_gets_a_process() {
        let args = LimitArgs { max_gitops_requests: 8, max_repository_requests: 8, ..LimitArgs::default() };
        let (bed, limits) = (Bed::new(args.gitops_processes(), MaxShare::All), args.of_runtimes().gitops);
        let mut hanging = Vec::new();
        for organization in ["a", "b", "c", "d", "e"] {
            // Again once the first are slow.
            for _ in 0..3 {
                loop {
                    let repository = format!("{organization}-{}", hanging.len());
                    let caller = Caller { organization: organization.into(), run: "run".into() };
                    let Some(turn) = limits.turns(&repository, caller).next().now_or_never() else { break };
                    let process = bed.begin(organization, &repository).now_or_never();
                    hanging.push((turn, process.expect("there is one for it")));
                }
                tokio::time::sleep(Duration::from_secs(20)).await;
            }
        }
        assert_eq!(hanging.len(), 16, "all of them");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_processes_end_for_organizations_that_need_slots() {
        let bed = Bed::new(16, MaxShare::ThreeQuarters);
        for (organization, sources) in [("a", 8), ("b", 4), ("c", 2)] {
            let mut begun = Vec::new();
            for source in 0..sources {
                begun.push(bed.begin(organization, &format!("{organization}-{source}")).await);
            }
            for reader in begun {
                bed.readers.keep(reader).await;
            }
        }
        let mut of_d = Vec::new();
        for source in 0..12 {
            let begun = bed.begin("d", &format!("d-{source}")).now_or_never();
            of_d.push(begun.expect("idle processes end for it"));
        }
        assert!(bed.begin("d", "d-12").now_or_never().is_none(), "it has its share");
        let begun = bed.begun();
        bed.call("b", "b-3").await;
        assert_eq!(bed.begun(), begun, "the last idle processes stay");
        bed.call("b", "b-1").await;
        assert_eq!(bed.begun(), begun + 1, "the first ones ended");
    }

    #[tokio::test(start_paused = true)]
    async fn organization_at_its_share_ends_no_idle_process() {
        let bed = Bed::new(8, MaxShare::ThreeQuarters);
        let mut of_a = Vec::new();
        for source in 0..6 {
            of_a.push(bed.begin("a", &format!("a-{source}")).await);
        }
        bed.call("b", "b-0").await;
        bed.call("c", "c-0").await;
        let mut more = Box::pin(bed.begin("a", "a-6"));
        assert!(more.as_mut().now_or_never().is_none(), "it has its share");
        drop(of_a.pop());
        let _more = more.now_or_never().expect("a slot returned");
        let begun = bed.begun();
        bed.call("b", "b-0").await;
        bed.call("c", "c-0").await;
        assert_eq!(bed.begun(), begun, "both stay idle");
    }

    #[tokio::test]
    async fn process_of_a_replaced_cache_is_not_reused() {
        let bed = Bed::new(8, MaxShare::ThreeQuarters);
        bed.call("a", "one").await;
        // It stays where it is for as long as the process, so that nothing else has its inode.
        std::fs::rename(bed.path("one"), bed.path("gone")).unwrap();
        bed.call("a", "one").await;
        assert_eq!(bed.begun(), 2);
        bed.call("a", "one").await;
        assert_eq!(bed.begun(), 2);
    }

    #[test]
    fn exceeded_limit_is_reported_with_its_remote() {
        let limits = Limits {
            memory: 1 << 30,
            processor: Duration::from_secs(60),
            time: Duration::from_secs(300),
            answer: 128 << 20,
        };
        let explained = |fault: Fault| {
            let failure = explain(&fault, "https://git.example.com/a.git", Some(&limits));
            let problem = &failure.problems()[0];
            (failure.code(), problem.reason.clone(), problem.message.clone())
        };
        let too_large = |what: &str| {
            let message = format!(
                "fetching and reading https://git.example.com/a.git takes more than {what}; make the repository smaller or raise \
                 the limits of the function-runner"
            );
            (Code::InvalidArgument, reason::TOO_LARGE.to_owned(), message)
        };
        assert_eq!(explained(Fault::Memory), too_large("1 GiB of memory"));
        assert_eq!(explained(Fault::Processor), too_large("60 s of CPU time"));
        assert_eq!(explained(Fault::Answer), too_large("128 MiB for the answer"));
        let (code, why, message) = explained(Fault::Time);
        assert_eq!((code, why.as_str()), (Code::Unavailable, reason::SOURCE_UNAVAILABLE));
        assert_eq!(
            message,
            "https://git.example.com/a.git was not fetched and read within 300 s; check that its Git server answers"
        );
        assert_eq!(explained(Fault::Killed(9)).0, Code::Unavailable);
        assert_eq!(explained(Fault::Died("signal: 11".to_owned())).0, Code::Internal);
    }
}
