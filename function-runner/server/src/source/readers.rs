//! The processes that have sources in hand, each one source for one organization.
//!
//! What a Git server sends is read by libgit2, which takes what it is told: refs without end, objects as large as a header
//! says, a pack that goes on for ever. A process of its own has limits, and ends when a call fails or its time is over, or soon
//! after the last call; it has the credentials by its pipe, and writes to the cache of that source alone.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use stoa_git::cache::Kept;
use stoa_shares::Most;
use stoa_workers::{Errand, Errands, Failed, Fault, Limits, Tell};
use tokio::time::Instant;
use tonic::Code;

use super::job::{Answer, Job};
use super::places::{Place, Places};
use crate::failure::{Failure, reason, size};
use crate::worker;

/// How old a process becomes: what it has read at its start, such as certificates of authorities, may be other ones by then.
const OLDEST: Duration = Duration::from_secs(60);

/// One that holds more, in bytes, does not stay for the next call.
const MOST_HELD: u64 = 192 << 20;

/// Starts the processes. Clones share the places for them.
#[derive(Clone, Debug)]
pub(crate) struct Readers {
    way: Way,
    places: Places,
}

#[derive(Clone, Debug)]
enum Way {
    Processes {
        errands: Errands,
        /// The folders whose repositories may be named by path.
        local: Arc<[PathBuf]>,
    },
    /// On threads of this process.
    #[cfg(test)]
    Here {
        /// Whether they stay as processes do.
        stays: bool,
        /// How many were begun.
        begun: Arc<std::sync::atomic::AtomicUsize>,
    },
}

/// A process that has one source in hand. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Reader {
    hand: Hand,
    /// Which source it is, for people.
    remote: String,
    organization: String,
    /// The folder that it writes to, which stays as long.
    cache: Kept,
    /// Which folder that is: one that is made anew at its path is out of its reach.
    folder: Option<Folder>,
    begun: Instant,
    limits: Option<Limits>,
    place: Place,
}

/// Whose turn it is to have a process for a source.
#[derive(Debug)]
pub(super) enum Turn {
    /// One that is idle for it.
    Idle(Reader),
    /// A new one, which has its place.
    New(Place),
}

/// The device and inode of a folder.
type Folder = (u64, u64);

#[derive(Debug)]
enum Hand {
    Process(Box<Errand>),
    #[cfg(test)]
    Here {
        stays: bool,
    },
}

impl Readers {
    /// So many processes at once, half of them at most for one organization, whose servers may take a quarter of an hour each.
    pub(crate) fn new(errands: Errands, processes: usize, local: Arc<[PathBuf]>) -> Self {
        Self { way: Way::Processes { errands, local }, places: Places::new(processes, Most::Half) }
    }

    /// So many others, of which one organization has at most this part, for the same limits.
    pub(crate) fn others(&self, processes: usize, most: Most) -> Self {
        Self { way: self.way.clone(), places: Places::new(processes, most) }
    }

    /// On threads of this process, which is not the runner's binary.
    #[cfg(test)]
    pub(crate) fn here() -> Self {
        Self { way: Way::Here { stays: false, begun: Arc::default() }, places: Places::new(64, Most::Half) }
    }

    /// A process for the source of a job, whose cache is there: one that is idle for it, or a new one once there is a place.
    pub(super) async fn begin(&self, job: &Job, cache: &Kept) -> Result<Reader, Failure> {
        let organization = job.source.as_ref().map_or("", |source| source.organization.as_str());
        let turn = self.turn(cache.path(), organization).await;
        self.begin_in(turn, job, cache).await
    }

    /// Waits for a turn with the source of this cache, which need not be there.
    pub(super) async fn turn(&self, cache: &Path, organization: &str) -> Turn {
        match self.places.idle_for(cache, organization) {
            Some(reader) => Turn::Idle(reader),
            None => Turn::New(self.places.take(organization).await),
        }
    }

    /// A process for the source of a job, whose cache is there, for whoever has a turn with it.
    pub(super) async fn begin_in(&self, turn: Turn, job: &Job, cache: &Kept) -> Result<Reader, Failure> {
        let place = match turn {
            Turn::Idle(reader) => return Ok(reader),
            Turn::New(place) => place,
        };
        let source = job.source.clone().unwrap_or_default();
        let (begun, folder) = (Instant::now(), folder(cache.path()));
        let remote = stoa_git::without_userinfo(&source.remote);
        let (hand, limits) = match &self.way {
            Way::Processes { errands, local } => {
                let is_local = stoa_git::local_path(&source.remote).is_some();
                let more = worker::more_for_source(cache.path(), if is_local { &local[..] } else { &[] });
                let started = errands.begin(more).await;
                let errand = started.map_err(|error| {
                    tracing::error!(error = &error as &dyn std::error::Error, "no process for a source starts");
                    let message = "no process can be started that reads the source; try again";
                    Failure::new(Code::Unavailable, reason::UNAVAILABLE, message)
                })?;
                (Hand::Process(Box::new(errand)), Some(*errands.limits()))
            }
            #[cfg(test)]
            Way::Here { stays, begun } => {
                begun.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                (Hand::Here { stays: *stays }, None)
            }
        };
        let (organization, cache) = (source.organization, cache.clone());
        Ok(Reader { hand, remote, organization, cache, folder, begun, limits, place })
    }

    /// Has a process stay for the next call of its source, which has done all that it was told to, or ends it.
    pub(super) async fn keep(&self, reader: Reader) {
        let ends = if reader.may_stay() { self.places.keep(reader) } else { Some(reader) };
        if let Some(reader) = ends {
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

    pub(super) fn place(&mut self) -> &mut Place {
        &mut self.place
    }

    /// How long a job may take, where there is a limit.
    pub(super) fn longest(&self) -> Option<Duration> {
        self.limits.map(|limits| limits.time)
    }

    /// Whether it has the source with this cache in hand, on behalf of an organization. Credentials are part of a cache's name.
    pub(super) fn is_for(&self, cache: &Path, organization: &str) -> bool {
        self.cache.path() == cache && self.organization == organization
    }

    fn may_stay(&self) -> bool {
        let holds_little = match &self.hand {
            Hand::Process(errand) => errand.resident() <= Some(MOST_HELD),
            #[cfg(test)]
            Hand::Here { stays } => *stays,
        };
        holds_little && self.begun.elapsed() < OLDEST
    }

    /// Whether it is there still, and reaches its cache.
    pub(super) fn is_of_use(&mut self) -> bool {
        let has_ended = match &mut self.hand {
            Hand::Process(errand) => errand.has_ended(),
            #[cfg(test)]
            Hand::Here { .. } => false,
        };
        !has_ended && self.folder.is_some() && self.folder == folder(self.cache.path())
    }

    /// Does a job. After a failure to, or when this is not waited for to its end, the process is of no use any more, and may
    /// have left something unfinished in the cache.
    pub(super) async fn work(&mut self, job: &Job) -> Result<Answer, Unanswered> {
        self.work_told(job, None).await
    }

    /// As [`work`](Self::work), with something to tell in the middle of it to a process that asks.
    pub(super) async fn work_told(&mut self, job: &Job, tell: Option<Tell<'_>>) -> Result<Answer, Unanswered> {
        let answer = match &mut self.hand {
            Hand::Process(errand) => {
                let done = errand.work(&job.encode_to_vec(), tell).await;
                let bytes = done.map_err(|failed| self.explain(failed))?;
                Answer::decode(bytes).map_err(|err| Unanswered::by(Failure::internal(&err)))?
            }
            #[cfg(test)]
            Hand::Here { .. } => {
                let job = job.clone();
                let answer = move || job.answer(stoa_workers::worker::Progress::unheard());
                tokio::task::spawn_blocking(answer).await.expect("it does not panic")
            }
        };
        if !answer.log.is_empty() {
            tracing::warn!(
                remote = self.remote,
                said = answer.log,
                "a process that reads a source has something to say"
            );
        }
        Ok(answer)
    }

    /// Ends the process and waits until it is gone.
    pub(super) async fn end(self) {
        match self.hand {
            Hand::Process(errand) => errand.end().await,
            #[cfg(test)]
            Hand::Here { .. } => {}
        }
    }

    /// What it means for a call that its process gave no answer.
    fn explain(&self, failed: Failed) -> Unanswered {
        tracing::warn!(remote = self.remote, fault = ?failed.fault, "a process that reads a source came to no end");
        let failure = explain(&failed.fault, &self.remote, self.limits.as_ref());
        Unanswered { is_late: failed.fault == Fault::Time, at: failed.at, ..Unanswered::by(failure) }
    }
}

/// Why a process gave no answer.
pub(super) struct Unanswered {
    pub(super) failure: Failure,
    /// Whether there was too little time for one.
    pub(super) is_late: bool,
    /// What the process said that it is at, as far as was heard. Of one that ended by itself that is all that it said.
    pub(super) at: Option<u32>,
}

impl Unanswered {
    fn by(failure: Failure) -> Self {
        Self { failure, is_late: false, at: None }
    }
}

fn explain(fault: &Fault, remote: &str, limits: Option<&Limits>) -> Failure {
    let too_large = |what: String| {
        let message = format!("to fetch and read {remote} takes more than {what}");
        Failure::new(Code::InvalidArgument, reason::TOO_LARGE, message)
    };
    let unavailable =
        |message: String| Failure::new(Code::Unavailable, reason::SOURCE_UNAVAILABLE, format!("{remote} {message}"));
    let Some(limits) = limits else { return Failure::internal(&"a job without limits has an answer") };
    match fault {
        Fault::Memory => too_large(format!("{} of memory", size(limits.memory))),
        Fault::Processor => too_large(format!("{} s of the processor", limits.processor.as_secs())),
        Fault::Answer => too_large(format!("{} to tell", size(limits.answer.try_into().unwrap_or(u64::MAX)))),
        Fault::Time => unavailable(format!("took more than {} s to be fetched or read", limits.time.as_secs())),
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

    /// Processes that stay, and caches for them.
    struct Bed {
        readers: Readers,
        begun: Arc<AtomicUsize>,
        directory: TempDir,
        caches: Folders,
    }

    impl Bed {
        fn new(places: usize, most: Most) -> Self {
            let (directory, begun) = (TempDir::new().unwrap(), Arc::<AtomicUsize>::default());
            let way = Way::Here { stays: true, begun: Arc::clone(&begun) };
            let caches = Folders::new(directory.path().to_owned());
            Self { readers: Readers { way, places: Places::new(places, most) }, begun, directory, caches }
        }

        async fn begin(&self, organization: &str, cache: &str) -> Reader {
            let source = Some(Source { organization: organization.to_owned(), ..Source::default() });
            std::fs::create_dir_all(self.path(cache)).unwrap();
            let kept = self.caches.take("git", cache);
            self.readers.begin(&Job { source, ..Job::default() }, &kept).await.unwrap()
        }

        /// A call of a source.
        async fn call(&self, organization: &str, cache: &str) {
            self.readers.keep(self.begin(organization, cache).await).await;
        }

        fn begun(&self) -> usize {
            self.begun.load(Ordering::SeqCst)
        }

        fn path(&self, cache: &str) -> PathBuf {
            self.directory.path().join("git").join(cache)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn next_call_of_a_source_has_the_process_of_the_last() {
        let bed = Bed::new(8, Most::Half);
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
    async fn process_does_not_become_old() {
        let bed = Bed::new(8, Most::Half);
        let mut elapsed = Duration::ZERO;
        while elapsed < OLDEST {
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
    async fn idle_process_leaves_its_place_to_whoever_needs_one() {
        let bed = Bed::new(2, Most::Half);
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
    async fn servers_that_do_not_answer_leave_processes_to_whoever_has_a_turn() {
        let args = LimitArgs { max_gitops_requests: 2, ..LimitArgs::default() };
        let (bed, limits) = (Bed::new(args.gitops_processes(), Most::All), args.of_runtimes().gitops);
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
    async fn whoever_has_a_turn_has_a_process_however_many_organizations_have_all_that_they_may() {
        let args = LimitArgs { max_gitops_requests: 8, max_repository_requests: 8, ..LimitArgs::default() };
        let (bed, limits) = (Bed::new(args.gitops_processes(), Most::All), args.of_runtimes().gitops);
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
    async fn idle_processes_of_one_leave_as_many_places_as_another_lacks() {
        let bed = Bed::new(16, Most::Half);
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
        for source in 0..8 {
            let source = format!("d-{source}");
            // Idle ones stay for longer by themselves.
            let begun = tokio::time::timeout(Duration::from_secs(1), bed.begin("d", &source)).await;
            of_d.push(begun.expect("idle ones end for it"));
        }
        let more = tokio::time::timeout(Duration::from_secs(1), bed.begin("d", "d-8")).await;
        assert!(more.is_err(), "it has half");
        let begun = bed.begun();
        bed.call("b", "b-3").await;
        assert_eq!(bed.begun(), begun, "none ends for one to which that is of no use");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_processes_end_for_one_that_has_fewer_than_when_it_began_to_wait() {
        let bed = Bed::new(8, Most::Half);
        let mut of_a = Vec::new();
        for source in 0..4 {
            of_a.push(bed.begin("a", &format!("a-{source}")).await);
        }
        let mut others = Vec::new();
        for (organization, cache) in [("b", "b-0"), ("b", "b-1"), ("c", "c-0"), ("d", "d-0")] {
            others.push(bed.begin(organization, cache).await);
        }
        for reader in others {
            bed.readers.keep(reader).await;
        }
        let mut more = Box::pin(bed.begin("a", "a-4"));
        assert!(more.as_mut().now_or_never().is_none(), "it has half");
        let begun = bed.begun();
        bed.call("b", "b-1").await;
        assert_eq!(bed.begun(), begun, "none ends for it yet");
        drop(of_a.pop());
        // Idle ones stay for longer by themselves.
        let more = tokio::time::timeout(Duration::from_secs(1), more).await;
        let _more = more.expect("idle ones end for it");
        let begun = bed.begun();
        bed.call("b", "b-1").await;
        assert_eq!(bed.begun(), begun, "no more end than it lacked");
        drop(of_a);
    }

    #[tokio::test]
    async fn process_whose_cache_was_made_anew_is_of_no_use() {
        let bed = Bed::new(8, Most::Half);
        bed.call("a", "one").await;
        // It stays where it is for as long as the process, so that nothing else has its inode.
        std::fs::rename(bed.path("one"), bed.path("gone")).unwrap();
        bed.call("a", "one").await;
        assert_eq!(bed.begun(), 2);
        bed.call("a", "one").await;
        assert_eq!(bed.begun(), 2);
    }

    #[test]
    fn limit_that_a_source_reaches_is_told_with_its_remote() {
        let limits = Limits {
            memory: 1 << 30,
            processor: Duration::from_secs(60),
            time: Duration::from_secs(300),
            answer: 128 << 20,
        };
        let told = |fault: Fault| {
            let failure = explain(&fault, "https://git.example.com/a.git", Some(&limits));
            let problem = &failure.problems()[0];
            (failure.code(), problem.reason.clone(), problem.message.clone())
        };
        let too_large = |what: &str| {
            let message = format!("to fetch and read https://git.example.com/a.git takes more than {what}");
            (Code::InvalidArgument, reason::TOO_LARGE.to_owned(), message)
        };
        assert_eq!(told(Fault::Memory), too_large("1 GiB of memory"));
        assert_eq!(told(Fault::Processor), too_large("60 s of the processor"));
        assert_eq!(told(Fault::Answer), too_large("128 MiB to tell"));
        let (code, why, message) = told(Fault::Time);
        assert_eq!((code, why.as_str()), (Code::Unavailable, reason::SOURCE_UNAVAILABLE));
        assert_eq!(message, "https://git.example.com/a.git took more than 300 s to be fetched or read");
        assert_eq!(told(Fault::Killed(9)).0, Code::Unavailable);
        assert_eq!(told(Fault::Died("signal: 11".to_owned())).0, Code::Internal);
    }
}
