//! The processes that have sources in hand, each one source for one call.
//!
//! What a Git server sends is read by libgit2, which takes what it is told: refs without end, objects as large as a header
//! says, a pack that goes on for ever. A process of its own has limits, and ends with the call or when its time is over; it
//! has the credentials by its pipe, and writes to the cache of that source alone.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use prost::Message as _;
use stoa_workers::{Errand, Errands, Failed, Fault, Limits};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Code;

use super::job::{Answer, Job};
use crate::failure::{Failure, reason, size};
use crate::worker;

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
    /// On a thread of this process.
    #[cfg(test)]
    Here,
}

/// A process that has one source in hand. It is killed when this is dropped.
pub(super) struct Reader {
    hand: Hand,
    /// Which source it is, for people.
    remote: String,
    limits: Option<Limits>,
    _place: Place,
}

enum Hand {
    Process(Box<Errand>),
    #[cfg(test)]
    Here,
}

impl Readers {
    /// So many processes at once, half of them at most for one organization.
    pub(crate) fn new(errands: Errands, processes: usize, local: Arc<[PathBuf]>) -> Self {
        Self { way: Way::Processes { errands, local }, places: Places::new(processes) }
    }

    /// On threads of this process, which is not the runner's binary.
    #[cfg(test)]
    pub(crate) fn here() -> Self {
        Self { way: Way::Here, places: Places::new(64) }
    }

    /// A process for the source of a job, once there is a place for it.
    pub(super) async fn begin(&self, job: &Job) -> Result<Reader, Failure> {
        let source = job.source.clone().unwrap_or_default();
        let place = self.places.take(&source.organization).await;
        let remote = stoa_git::without_userinfo(&source.remote);
        let (hand, limits) = match &self.way {
            Way::Processes { errands, local } => {
                let is_local = stoa_git::local_path(&source.remote).is_some();
                let more = worker::more_for_source(&job.path(), if is_local { &local[..] } else { &[] });
                let started = errands.begin(more).await;
                let errand = started.map_err(|error| {
                    tracing::error!(error = &error as &dyn std::error::Error, "no process for a source starts");
                    let message = "no process can be started that reads the source; try again";
                    Failure::new(Code::Unavailable, reason::UNAVAILABLE, message)
                })?;
                (Hand::Process(Box::new(errand)), Some(*errands.limits()))
            }
            #[cfg(test)]
            Way::Here => (Hand::Here, None),
        };
        Ok(Reader { hand, remote, limits, _place: place })
    }
}

impl Reader {
    /// Does a job. After a failure to, or when this is not waited for to its end, the process is of no use any more, and may
    /// have left something unfinished in the cache.
    pub(super) async fn work(&mut self, job: &Job) -> Result<Answer, Unanswered> {
        let answer = match &mut self.hand {
            Hand::Process(errand) => {
                let bytes = errand.work(&job.encode_to_vec()).await.map_err(|failed| self.explain(failed))?;
                Answer::decode(bytes).map_err(|err| Unanswered { failure: Failure::internal(&err), is_late: false })?
            }
            #[cfg(test)]
            Hand::Here => {
                let job = job.clone();
                tokio::task::spawn_blocking(move || job.answer()).await.expect("it does not panic")
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
            Hand::Here => {}
        }
    }

    /// What it means for a call that its process gave no answer.
    fn explain(&self, failed: Failed) -> Unanswered {
        tracing::warn!(remote = self.remote, fault = ?failed.fault, "a process that reads a source came to no end");
        let failure = explain(&failed.fault, &self.remote, self.limits.as_ref());
        Unanswered { failure, is_late: failed.fault == Fault::Time }
    }
}

/// Why a process gave no answer.
pub(super) struct Unanswered {
    pub(super) failure: Failure,
    /// Whether there was too little time for one.
    pub(super) is_late: bool,
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

/// Places for processes, of which no organization has more than half: servers of one that do not answer keep nobody else
/// waiting. What belongs to no organization has no half: older API servers name none, and all of their sources would share it.
#[derive(Clone, Debug)]
struct Places {
    all: Arc<Semaphore>,
    each: usize,
    organizations: Arc<Mutex<HashMap<String, Arc<Semaphore>>>>,
}

/// A place, until it is dropped.
#[derive(Debug)]
struct Place {
    _of_organization: Option<OwnedSemaphorePermit>,
    _of_all: OwnedSemaphorePermit,
}

impl Places {
    fn new(all: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), each: all.div_ceil(2), organizations: Arc::default() }
    }

    async fn take(&self, organization: &str) -> Place {
        let closed = "nobody closes the semaphore";
        let of_organization = match self.of(organization) {
            Some(places) => Some(places.acquire_owned().await.expect(closed)),
            None => None,
        };
        // Whoever waits for the organization's takes none from others meanwhile.
        let of_all = Arc::clone(&self.all).acquire_owned().await.expect(closed);
        Place { _of_organization: of_organization, _of_all: of_all }
    }

    /// Those that an organization may have.
    fn of(&self, organization: &str) -> Option<Arc<Semaphore>> {
        if organization.is_empty() {
            return None;
        }
        let mut organizations = self.organizations.lock().unwrap_or_else(PoisonError::into_inner);
        // One that nobody has a place of, or waits for, is nothing to keep.
        organizations.retain(|_, places| Arc::strong_count(places) > 1);
        let places = organizations.entry(organization.to_owned());
        Some(Arc::clone(places.or_insert_with(|| Arc::new(Semaphore::new(self.each)))))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn no_organization_has_more_than_half_of_the_places() {
        let places = Places::new(4);
        let mut of_a = vec![places.take("a").await, places.take("a").await];
        assert!(places.take("a").now_or_never().is_none());
        let of_b = [places.take("b").await, places.take("b").await];
        assert!(places.take("c").now_or_never().is_none(), "all are taken");
        of_a.pop();
        let of_c = places.take("c").await;
        assert!(places.take("a").now_or_never().is_none(), "c has it");
        drop((of_a, of_b, of_c));
        drop(places.take("a").await);
        assert_eq!(places.organizations.lock().unwrap().len(), 1, "what nobody has a place of is forgotten");
        assert!(Places::new(1).take("a").now_or_never().is_some(), "one place is somebody's");
    }

    #[tokio::test]
    async fn sources_of_no_organization_share_no_half() {
        let places = Places::new(2);
        let _of_none = [places.take("").await, places.take("").now_or_never().expect("all are anybody's")];
        assert!(places.take("").now_or_never().is_none());
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
