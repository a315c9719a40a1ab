//! Probes of remote services that may not answer: Git servers, webhook endpoints, clusters.
//!
//! No reconcile waits for an answer. Each probe has a task of its own ([`ProbeCache`]), which records the answer for the next reconcile,
//! and puts the object back in its queue ([`Requeue`]). It waits for a slot of its namespace ([`ProbeSlots`]), so that namespaces whose
//! servers do not answer keep no other from probing.

use std::{
    borrow::Borrow,
    collections::{BTreeSet, HashMap, HashSet},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use stoa_fairness::{FairSemaphore, MaxShare, Permit};
use tokio::{sync::mpsc, time::Instant};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::task::AbortOnDropHandle;

use crate::{object::ObjectKey, queue::Trigger};

/// How long to wait before a probe is repeated that may succeed by itself.
pub const AGAIN: Duration = Duration::from_secs(10);
/// How long a repository may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The number of probes at once, unless the caller sets another. Most probes are calls of a function-runner, which takes 256 by
/// default, and runs need some of these.
const AT_ONCE: usize = 64;
/// The number of probes at once that call no function-runner and need little memory.
pub const MANY_AT_ONCE: usize = 512;

/// Puts objects back in their queue once an answer is there.
#[derive(Clone, Debug)]
pub struct Requeue(mpsc::UnboundedSender<ObjectKey>);

impl Default for Requeue {
    /// Without a queue.
    fn default() -> Self {
        Self::new().0
    }
}

impl Requeue {
    /// Returns it with the keys of the objects to reconcile.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<ObjectKey>) {
        let (requeue, keys) = mpsc::unbounded_channel();
        (Self(requeue), keys)
    }

    /// Returns it with a trigger for a queue.
    pub fn triggering() -> (Self, Trigger) {
        let (requeue, keys) = Self::new();
        (requeue, Trigger::new(UnboundedReceiverStream::new(keys).map(|key| vec![key]).boxed()))
    }

    /// Adds an object, by its key, to the queue.
    pub fn add(&self, key: ObjectKey) {
        // At the end of a leader's term no queue is left.
        let _ = self.0.send(key);
    }
}

/// The slots for probes, which namespaces share by the rule of [`stoa_fairness`].
#[derive(Debug)]
pub struct ProbeSlots(FairSemaphore);

impl Default for ProbeSlots {
    fn default() -> Self {
        Self::new(AT_ONCE)
    }
}

impl ProbeSlots {
    /// So many slots.
    pub fn new(slots: usize) -> Self {
        Self(FairSemaphore::new(slots, MaxShare::ThreeQuarters))
    }

    /// The slots as a namespace uses them.
    pub fn of(&self, namespace: &str) -> NamespaceSlots {
        NamespaceSlots { namespace: namespace.to_owned(), slots: self.0.clone() }
    }
}

/// The slots for probes on behalf of one namespace.
#[derive(Clone, Debug)]
pub struct NamespaceSlots {
    namespace: String,
    slots: FairSemaphore,
}

impl NamespaceSlots {
    /// Waits for a slot.
    pub async fn take(&self) -> Permit {
        self.slots.acquire(&self.namespace, 1).await
    }

    /// Takes a slot without waiting, if one is free for the namespace.
    pub fn try_take(&self) -> Option<Permit> {
        self.slots.try_acquire(&self.namespace, 1)
    }

    /// Asks a repository a question once there is a slot.
    ///
    /// # Errors
    ///
    /// When the answer takes more than 30 s from then on.
    pub async fn ask_repository<T>(&self, question: impl Future<Output = T>) -> Result<T, RepositoryTimeout> {
        let _slot = self.take().await;
        tokio::time::timeout(PATIENCE, question).await.map_err(|_| RepositoryTimeout)
    }
}

/// A repository gave no answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the repository did not answer within {PATIENCE:?}")]
pub struct RepositoryTimeout;

/// Probes under way and their results, in memory until a reconcile has used them.
#[derive(Debug)]
pub struct ProbeCache<Of, Noted>(Mutex<HashMap<Of, Entry<Noted>>>);

#[derive(Debug)]
struct Entry<Noted> {
    noted: Arc<Mutex<Noted>>,
    task: Option<AbortOnDropHandle<()>>,
}

impl<Of, Noted> Default for ProbeCache<Of, Noted> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<Of: Eq + Hash, Noted> ProbeCache<Of, Noted> {
    /// Returns the result recorded for a subject, `first` to begin with. Starts a probe if one is due and none is under way.
    pub fn probe<F: Future<Output = ()> + Send + 'static>(
        &self,
        of: Of,
        first: impl FnOnce() -> Noted,
        is_due: impl FnOnce(&Noted) -> bool,
        ask: impl FnOnce(Arc<Mutex<Noted>>) -> F,
    ) -> Arc<Mutex<Noted>> {
        let mut all = self.0.lock();
        let first = || Entry { noted: Arc::new(Mutex::new(first())), task: None };
        let entry = all.entry(of).or_insert_with(first);
        let is_under_way = entry.task.as_ref().is_some_and(|task| !task.is_finished());
        if !is_under_way && is_due(&entry.noted.lock()) {
            entry.task = Some(AbortOnDropHandle::new(tokio::spawn(ask(entry.noted.clone()))));
        }
        entry.noted.clone()
    }

    /// Removes a subject that is not wanted any more, and ends its probe.
    pub fn forget<Q: Eq + Hash + ?Sized>(&self, of: &Q)
    where
        Of: Borrow<Q>,
    {
        self.0.lock().remove(of);
    }

    /// Removes all subjects that are not wanted, and ends their probes.
    pub fn retain(&self, is_wanted: impl Fn(&Of) -> bool) {
        self.0.lock().retain(|of, _| is_wanted(of));
    }
}

/// A probe that has one answer.
#[derive(Debug)]
pub struct Probe<A, E> {
    /// The last answer, and when it came. Nothing while the probe is under way.
    last: Option<(Instant, Result<A, E>)>,
    /// The objects that are due once the answer is there.
    waiting: BTreeSet<ObjectKey>,
}

/// Probes that have one answer each. Objects with the same question share its answer.
pub type Probes<Of, A, E> = ProbeCache<Of, Probe<A, E>>;

impl<Of: Eq + Hash, A: Clone + Send + 'static, E: Clone + Send + 'static> Probes<Of, A, E> {
    /// The answer to a question. While there is none, the object with this key waits: `requeue` adds all objects that wait once
    /// the answer is there. A probe that failed is repeated after [`AGAIN`].
    pub fn answer<F: Future<Output = Result<A, E>> + Send + 'static>(
        &self,
        of: Of,
        (requeue, key): (&Requeue, &ObjectKey),
        question: impl FnOnce() -> F,
    ) -> Option<Result<A, E>> {
        let is_due = |noted: &Probe<A, E>| {
            noted.last.as_ref().is_none_or(|(at, answer)| answer.is_err() && at.elapsed() >= AGAIN)
        };
        let noted = self.probe(
            of,
            || Probe { last: None, waiting: BTreeSet::new() },
            is_due,
            |noted| {
                noted.lock().last = None;
                let (question, requeue) = (question(), requeue.clone());
                async move {
                    let answer = question.await;
                    let waiting = {
                        let mut noted = noted.lock();
                        noted.last = Some((Instant::now(), answer));
                        std::mem::take(&mut noted.waiting)
                    };
                    waiting.into_iter().for_each(|key| requeue.add(key));
                }
            },
        );
        let mut noted = noted.lock();
        if noted.last.is_none() {
            noted.waiting.insert(key.clone());
        }
        noted.last.as_ref().map(|(_, answer)| answer.clone())
    }

    /// Whether an answer is outstanding.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_asking(&self) -> bool {
        self.0.lock().values().any(|entry| entry.noted.lock().last.is_none())
    }
}

/// The questions that each object has now, and their answers. Objects share a question; one that no object has is dropped.
#[derive(Debug)]
pub struct Questions<Of, A, E> {
    answers: Probes<Of, A, E>,
    wanted: Mutex<Wanted<Of>>,
    slots: ProbeSlots,
    requeue: Requeue,
}

#[derive(Debug)]
struct Wanted<Of> {
    by_object: HashMap<ObjectKey, HashSet<Of>>,
    /// How many objects have a question.
    objects: HashMap<Of, usize>,
}

impl<Of: Clone + Eq + Hash, A: Clone + Send + 'static, E: Clone + Send + 'static> Questions<Of, A, E> {
    /// No questions. `requeue` adds the objects whose questions have an answer.
    pub fn new(requeue: Requeue) -> Self {
        let wanted = Mutex::new(Wanted { by_object: HashMap::new(), objects: HashMap::new() });
        Self { answers: Probes::default(), wanted, slots: ProbeSlots::default(), requeue }
    }

    /// Replaces the questions of an object.
    pub fn set(&self, key: &ObjectKey, questions: HashSet<Of>) {
        let mut wanted = self.wanted.lock();
        let Wanted { by_object, objects } = &mut *wanted;
        let before = by_object.remove(key).unwrap_or_default();
        for question in questions.difference(&before) {
            *objects.entry(question.clone()).or_default() += 1;
        }
        for question in before.difference(&questions) {
            let Some(count) = objects.get_mut(question) else { continue };
            *count -= 1;
            if *count == 0 {
                objects.remove(question);
                self.answers.forget(question);
            }
        }
        if !questions.is_empty() {
            by_object.insert(key.clone(), questions);
        }
    }

    /// Removes an object with its questions.
    pub fn forget(&self, key: &ObjectKey) {
        self.set(key, HashSet::new());
    }

    /// The answer to one of the questions of an object, as [`Probes::answer`] returns it. `ask` gets the slots of a tenant.
    pub fn answer<F: Future<Output = Result<A, E>> + Send + 'static>(
        &self,
        key: &ObjectKey,
        question: &Of,
        tenant: &str,
        ask: impl FnOnce(NamespaceSlots) -> F,
    ) -> Option<Result<A, E>> {
        self.answers.answer(question.clone(), (&self.requeue, key), || ask(self.slots.of(tenant)))
    }

    /// Forgets an answer, so that the question is asked again.
    pub fn repeat(&self, question: &Of) {
        self.answers.forget(question);
    }

    /// Whether an answer is outstanding.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_asking(&self) -> bool {
        self.answers.is_asking()
    }

    /// Whether no object has a question.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_empty(&self) -> bool {
        let wanted = self.wanted.lock();
        wanted.by_object.is_empty() && wanted.objects.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::{FutureExt as _, future::join_all};

    use super::*;

    /// All slots that a namespace gets now.
    fn take_all(slots: &NamespaceSlots) -> Vec<Permit> {
        std::iter::from_fn(|| slots.try_take()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn namespace_with_hanging_servers_leaves_slots_to_others() {
        let slots = ProbeSlots::default();
        let (slow, quick) = (slots.of("slow"), slots.of("quick"));
        let mut hanging = tokio::task::JoinSet::new();
        for _ in 0..1_000 {
            let slow = slow.clone();
            hanging.spawn(async move {
                let _slot = slow.take().await;
                std::future::pending::<()>().await;
            });
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(slots.0.available(), AT_ONCE / 4);
        assert!(slow.take().now_or_never().is_none(), "the namespace has its share");
        assert_eq!(take_all(&quick).len(), AT_ONCE / 8);
        hanging.shutdown().await;
        drop(slow.take().now_or_never().expect("the slots returned"));
        assert!(slots.0.is_idle());
    }

    #[test]
    fn hanging_servers_leave_slots_to_others() {
        let slots = ProbeSlots::default();
        let mut held: Vec<Vec<Permit>> = (0..6).map(|i| take_all(&slots.of(&format!("slow-{i}")))).collect();
        assert_eq!(
            held.iter().map(Vec::len).collect::<Vec<_>>(),
            [48, 8, 4, 2, 1, 1],
            "each has less than the one before"
        );
        let mut quick = Box::pin(async { slots.of("quick").take().await });
        assert!(quick.as_mut().now_or_never().is_none(), "six have all of them");
        held[0].pop();
        assert!(slots.of("slow-0").try_take().is_none(), "the slot that returned is for others");
        assert!(quick.now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn timeout_of_a_repository_begins_with_its_question() {
        let slots = ProbeSlots::default().of("shop");
        let answer = async |seconds| tokio::time::sleep(Duration::from_secs(seconds)).await;
        let ask = |seconds| slots.ask_repository(answer(seconds));
        let start = Instant::now();
        assert!(join_all((0..100).map(|_| ask(29))).await.iter().all(Result::is_ok));
        assert!(start.elapsed() > PATIENCE * 2, "{:?}", start.elapsed());
        let start = Instant::now();
        assert_eq!(ask(31).await, Err(RepositoryTimeout));
        assert_eq!(start.elapsed(), PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn probe_runs_once_and_again_after_a_failure() {
        let (asks, (requeue, mut keys)) = (Probes::<&str, usize, &str>::default(), Requeue::new());
        let key = ("shop".to_owned(), "web".to_owned());
        let asked = Arc::new(AtomicUsize::new(0));
        let look = || {
            asks.answer("it", (&requeue, &key), || {
                let number = asked.fetch_add(1, Ordering::Relaxed);
                async move {
                    tokio::time::sleep(Duration::from_secs(30)).await;
                    assert_ne!(number, 0, "a mistake of ours");
                    if number == 1 { Err("it is away") } else { Ok(number) }
                }
            })
        };
        assert_eq!((look(), look(), asks.is_asking()), (None, None, true));
        tokio::time::sleep(Duration::from_secs(31)).await;
        assert_eq!((look(), asked.load(Ordering::Relaxed)), (None, 2), "what panicked has said nothing");
        assert_eq!(keys.recv().await.as_ref(), Some(&key));
        assert_eq!(look(), Some(Err("it is away")));
        tokio::time::advance(AGAIN).await;
        assert_eq!((look(), asked.load(Ordering::Relaxed)), (None, 3));
        assert_eq!(keys.recv().await.as_ref(), Some(&key));
        tokio::time::advance(AGAIN * 100).await;
        assert_eq!((look(), asked.load(Ordering::Relaxed), asks.is_asking()), (Some(Ok(2)), 3, false));
        asks.forget("it");
        assert_eq!(look(), None, "it is forgotten");
    }

    #[tokio::test]
    async fn objects_with_the_same_question_share_its_answer() {
        let (asks, (requeue, mut due)) = (Probes::<&str, usize, &str>::default(), Requeue::new());
        let asked = AtomicUsize::new(0);
        let keys = ["api", "web"].map(|name| ("shop".to_owned(), name.to_owned()));
        let look = |key: &ObjectKey| {
            asks.answer("it", (&requeue, key), || {
                let number = asked.fetch_add(1, Ordering::Relaxed);
                async move { Ok(number) }
            })
        };
        assert_eq!(keys.each_ref().map(look), [None, None]);
        for key in &keys {
            assert_eq!(due.recv().await.as_ref(), Some(key));
        }
        assert_eq!(keys.each_ref().map(look), [Some(Ok(0)), Some(Ok(0))]);
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert!(due.try_recv().is_err(), "an object that has the answer does not wait for it");
    }

    #[tokio::test]
    async fn unwanted_probe_ends() {
        let asks = Probes::<&str, (), ()>::default();
        let (alive, mut gone) = mpsc::channel::<()>(1);
        let key = ObjectKey::default();
        asks.answer("it", (&Requeue::default(), &key), || async move {
            let _alive = alive;
            std::future::pending().await
        });
        asks.retain(|_| false);
        assert_eq!(gone.recv().await, None);
    }

    #[tokio::test]
    async fn question_ends_with_the_last_object_that_has_it() {
        let questions = Questions::<&str, (), ()>::new(Requeue::default());
        let [a, b] = ["a", "b"].map(|name| ("shop".to_owned(), name.to_owned()));
        for key in [&a, &b] {
            questions.set(key, ["x"].into());
            assert!(questions.answer(key, &"x", "shop", |_| std::future::pending()).is_none());
        }
        questions.forget(&a);
        assert!(questions.is_asking(), "the other object still has it");
        questions.set(&b, ["y"].into());
        assert!(!questions.is_asking() && !questions.is_empty());
        questions.forget(&b);
        assert!(questions.is_empty());
    }
}
