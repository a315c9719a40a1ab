//! What controllers ask of others who may not answer: Git servers, endpoints, clusters.
//!
//! No look waits for that. Each question has a task of its own ([`Asks`]), which notes what it hears where the next look finds
//! it, and has the object looked at ([`Poke`]). It asks when it is the turn of its namespace ([`Turns`]), so that no few whose
//! servers do not answer keep others from asking.

use std::{
    borrow::Borrow,
    collections::{BTreeSet, HashMap},
    hash::Hash,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use stoa_controller::{object::ObjectKey, queue::Trigger};
use stoa_shares::{Most, Room, Taken};
use tokio::{
    sync::{Semaphore, SemaphorePermit, mpsc},
    time::Instant,
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::task::AbortOnDropHandle;

use crate::runs::StepError as Halt;

/// How long to wait for what may pass by itself.
pub(crate) const AGAIN: Duration = Duration::from_secs(10);
/// How long a repository may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// So many are asked at once, unless it is said otherwise: mostly by way of a function-runner, which has a place for each of its
/// calls, by default 256, and runs need some of them.
const AT_ONCE: usize = 64;
/// The same of what waits in no place of a function-runner and has little in memory meanwhile.
pub(crate) const MANY_AT_ONCE: usize = 512;
/// So many are asked at once for one namespace.
const AT_ONCE_IN_NAMESPACE: usize = 16;

/// Has objects looked at about which something was found out.
#[derive(Clone, Debug)]
pub(crate) struct Poke(mpsc::UnboundedSender<ObjectKey>);

impl Default for Poke {
    /// Nobody looks.
    fn default() -> Self {
        Self::new().0
    }
}

impl Poke {
    /// One, and the keys of what is to be looked at.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<ObjectKey>) {
        let (poke, pokes) = mpsc::unbounded_channel();
        (Self(poke), pokes)
    }

    /// One, and what makes the keys due.
    pub(crate) fn triggering() -> (Self, Trigger) {
        let (poke, pokes) = Self::new();
        (poke, Trigger::new(UnboundedReceiverStream::new(pokes).map(|key| vec![key]).boxed()))
    }

    pub(crate) fn look(&self, key: ObjectKey) {
        // When the term ends nobody looks any more.
        let _ = self.0.send(key);
    }
}

/// Whose turn it is to ask.
///
/// A namespace has at most [`AT_ONCE_IN_NAMESPACE`] turns, and none is given to one that has a third of what is free
/// ([`Most::Quarter`]). So what one may have becomes less the more of them ask: of 64 turns the first may have 16, the next 12,
/// then 9, 7 and so on. Twelve namespaces that take all they may leave one; a thirteenth takes that, and with 512 turns it is the
/// forty-first that takes the last. Who comes then waits until one is given back, which is for whoever has fewest.
#[derive(Debug)]
pub(crate) struct Turns {
    room: Room,
    /// Of the namespaces for which something is asked.
    in_namespaces: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl Default for Turns {
    fn default() -> Self {
        Self::new(AT_ONCE)
    }
}

impl Turns {
    /// So many at once.
    pub(crate) fn new(at_once: usize) -> Self {
        Self { room: Room::new(at_once, Most::Quarter), in_namespaces: Mutex::default() }
    }

    /// Those of a namespace.
    pub(crate) fn of(&self, namespace: &str) -> TurnsOf {
        let mut all = self.in_namespaces.lock();
        all.retain(|_, turns| turns.strong_count() > 0);
        let own = all.get(namespace).and_then(Weak::upgrade).unwrap_or_else(|| {
            let own = Arc::new(Semaphore::new(AT_ONCE_IN_NAMESPACE));
            all.insert(namespace.to_owned(), Arc::downgrade(&own));
            own
        });
        TurnsOf { namespace: namespace.to_owned(), own, room: self.room.clone() }
    }
}

/// The turns of a namespace.
#[derive(Clone, Debug)]
pub(crate) struct TurnsOf {
    namespace: String,
    own: Arc<Semaphore>,
    room: Room,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    _taken: Taken,
    _own: SemaphorePermit<'a>,
}

impl TurnsOf {
    /// Waits for a turn: among its own first, so that no more of it than may ask wait among all.
    pub(crate) async fn take(&self) -> Turn<'_> {
        let own = self.own.acquire().await.expect("nobody closes it");
        Turn { _taken: self.room.take(&self.namespace, 1).await, _own: own }
    }

    /// A turn, if there is one now.
    pub(crate) fn try_take(&self) -> Option<Turn<'_>> {
        let own = self.own.try_acquire().ok()?;
        Some(Turn { _taken: self.room.try_take(&self.namespace, 1)?, _own: own })
    }

    /// What a repository answers to a question, which is asked in its turn.
    ///
    /// # Errors
    ///
    /// Retry when it takes too long from then on.
    pub(crate) async fn ask_repository<T>(&self, question: impl Future<Output = T>) -> Result<T, Halt> {
        let _turn = self.take().await;
        let answer = tokio::time::timeout(PATIENCE, question).await;
        answer.map_err(|_| Halt::Retry(format!("the repository did not answer within {PATIENCE:?}")))
    }
}

/// What is asked, and what was noted of it: in memory until a look has dealt with it.
#[derive(Debug)]
pub(crate) struct Asks<Of, Noted>(Mutex<HashMap<Of, Asked<Noted>>>);

#[derive(Debug)]
struct Asked<Noted> {
    noted: Arc<Mutex<Noted>>,
    task: Option<AbortOnDropHandle<()>>,
}

impl<Of, Noted> Default for Asks<Of, Noted> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<Of: Eq + Hash, Noted> Asks<Of, Noted> {
    /// What is noted of something, `first` to begin with. Asks when that is due, unless somebody does already.
    pub(crate) fn look<F: Future<Output = ()> + Send + 'static>(
        &self,
        of: Of,
        first: impl FnOnce() -> Noted,
        is_due: impl FnOnce(&Noted) -> bool,
        ask: impl FnOnce(Arc<Mutex<Noted>>) -> F,
    ) -> Arc<Mutex<Noted>> {
        let mut all = self.0.lock();
        let first = || Asked { noted: Arc::new(Mutex::new(first())), task: None };
        let asked = all.entry(of).or_insert_with(first);
        let is_asking = asked.task.as_ref().is_some_and(|task| !task.is_finished());
        if !is_asking && is_due(&asked.noted.lock()) {
            asked.task = Some(AbortOnDropHandle::new(tokio::spawn(ask(asked.noted.clone()))));
        }
        asked.noted.clone()
    }

    /// Forgets what is not wanted any more, and asks about it no longer.
    pub(crate) fn forget<Q: Eq + Hash + ?Sized>(&self, of: &Q)
    where
        Of: Borrow<Q>,
    {
        self.0.lock().remove(of);
    }

    /// The same for all that is not wanted.
    pub(crate) fn retain(&self, is_wanted: impl Fn(&Of) -> bool) {
        self.0.lock().retain(|of, _| is_wanted(of));
    }
}

/// A question that has one answer.
#[derive(Debug)]
pub(crate) struct Question<A> {
    /// The last answer, and when it came. Nothing while the question is asked.
    last: Option<(Instant, Result<A, Halt>)>,
    /// The objects that are due once the answer is there.
    waiting: BTreeSet<ObjectKey>,
}

/// Questions that have one answer each. Objects with the same question share its answer.
pub(crate) type Questions<Of, A> = Asks<Of, Question<A>>;

impl<Of: Eq + Hash, A: Clone + Send + 'static> Questions<Of, A> {
    /// The answer to a question. While there is none, the object with this key waits: `poke` makes all that wait due once
    /// it is there. A question that failed is asked again after [`AGAIN`].
    pub(crate) fn answer<F: Future<Output = Result<A, Halt>> + Send + 'static>(
        &self,
        of: Of,
        (poke, key): (&Poke, &ObjectKey),
        question: impl FnOnce() -> F,
    ) -> Option<Result<A, Halt>> {
        let is_due = |noted: &Question<A>| {
            noted.last.as_ref().is_none_or(|(at, answer)| answer.is_err() && at.elapsed() >= AGAIN)
        };
        let noted = self.look(
            of,
            || Question { last: None, waiting: BTreeSet::new() },
            is_due,
            |noted| {
                noted.lock().last = None;
                let (question, poke) = (question(), poke.clone());
                async move {
                    let answer = question.await;
                    let waiting = {
                        let mut noted = noted.lock();
                        noted.last = Some((Instant::now(), answer));
                        std::mem::take(&mut noted.waiting)
                    };
                    waiting.into_iter().for_each(|key| poke.look(key));
                }
            },
        );
        let mut noted = noted.lock();
        if noted.last.is_none() {
            noted.waiting.insert(key.clone());
        }
        noted.last.as_ref().map(|(_, answer)| answer.clone())
    }

    /// Whether an answer is waited for.
    #[cfg(test)]
    pub(crate) fn is_asking(&self) -> bool {
        self.0.lock().values().any(|asked| asked.noted.lock().last.is_none())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::{FutureExt as _, future::join_all};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn namespace_whose_servers_do_not_answer_keeps_no_other_from_asking() {
        let turns = Turns::default();
        let (slow, quick) = (turns.of("slow"), turns.of("quick"));
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..1_000 {
            let slow = slow.clone();
            asking.spawn(async move {
                let _turn = slow.take().await;
                std::future::pending::<()>().await;
            });
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(turns.room.free(), AT_ONCE - AT_ONCE_IN_NAMESPACE);
        assert!(turns.of("slow").take().now_or_never().is_none(), "they are those of all who ask for the namespace");
        // A third of the 36 that are free then.
        assert_eq!(take_all(&quick).len(), 12);
        asking.shutdown().await;
        assert!(slow.take().now_or_never().is_some(), "they are given back");
        drop((slow, quick));
        turns.of("another");
        assert_eq!(turns.in_namespaces.lock().len(), 1, "nobody asks for the others any more");
    }

    /// All the turns that a namespace may take now.
    fn take_all(turns: &TurnsOf) -> Vec<Turn<'_>> {
        std::iter::from_fn(|| turns.take().now_or_never()).collect()
    }

    #[test]
    fn several_namespaces_that_take_all_they_may_leave_something_to_others() {
        let turns = Turns::default();
        let slow: Vec<TurnsOf> = (0..8).map(|i| turns.of(&format!("slow-{i}"))).collect();
        let held: Vec<Vec<Turn<'_>>> = slow.iter().map(take_all).collect();
        let counts: Vec<usize> = held.iter().map(Vec::len).collect();
        assert_eq!(counts, [16, 12, 9, 7, 5, 4, 3, 2], "each has less than the one before");
        let quick = turns.of("quick");
        assert!(!take_all(&quick).is_empty());
        drop(held);
        assert_eq!(take_all(&quick).len(), AT_ONCE_IN_NAMESPACE, "what is given back is there for all");
        assert_eq!(turns.room.free(), AT_ONCE);
    }

    #[test]
    fn so_many_namespaces_that_take_all_they_may_leave_nothing_and_what_is_given_back_is_for_others() {
        for (at_once, all) in [(AT_ONCE, 13), (MANY_AT_ONCE, 41)] {
            let turns = Turns::new(at_once);
            let slow: Vec<TurnsOf> = (0..all).map(|i| turns.of(&format!("slow-{i}"))).collect();
            let (last, others) = slow.split_last().unwrap();
            let mut held: Vec<Vec<Turn<'_>>> = others.iter().map(take_all).collect();
            let quick = turns.of("quick");
            assert!(quick.take().now_or_never().is_some(), "one is left by the {} before", all - 1);
            held.push(take_all(last));
            assert_eq!(held.iter().map(Vec::len).sum::<usize>(), at_once);
            assert!(quick.take().now_or_never().is_none(), "{all} have all of them");
            drop(held[0].pop());
            assert!(slow[0].take().now_or_never().is_none(), "it has many");
            assert!(quick.take().now_or_never().is_some());
        }
    }

    #[test]
    fn whoever_does_not_wait_has_what_is_free_of_the_share_and_what_is_given_back() {
        let turns = Turns::new(8);
        let (busy, quick) = (turns.of("busy"), turns.of("quick"));
        let mut held: Vec<Turn<'_>> = std::iter::from_fn(|| busy.try_take()).collect();
        assert_eq!(held.len(), 2, "a third of the six that are free then");
        assert!(quick.try_take().is_some() && busy.try_take().is_none());
        held.pop();
        assert!(busy.try_take().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn turn_that_is_given_back_is_taken_by_who_waits() {
        let turns = Turns::new(1);
        let (first, second) = (turns.of("first"), turns.of("second"));
        let held = first.take().await;
        let waits = second.take();
        tokio::pin!(waits);
        assert!(waits.as_mut().now_or_never().is_none());
        drop(held);
        assert!(waits.now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn repository_has_its_time_from_when_it_is_asked() {
        let turns = Turns::default().of("shop");
        let answer = async |seconds| tokio::time::sleep(Duration::from_secs(seconds)).await;
        let ask = |seconds| turns.ask_repository(answer(seconds));
        let start = Instant::now();
        assert!(join_all((0..100).map(|_| ask(29))).await.iter().all(Result::is_ok));
        assert!(start.elapsed() > PATIENCE * 2, "{:?}", start.elapsed());
        let start = Instant::now();
        assert!(matches!(ask(31).await, Err(Halt::Retry(_))));
        assert_eq!(start.elapsed(), PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn question_is_asked_once_and_again_when_what_was_in_the_way_may_have_passed() {
        let (asks, (poke, mut pokes)) = (Questions::<&str, usize>::default(), Poke::new());
        let key = ("shop".to_owned(), "web".to_owned());
        let asked = Arc::new(AtomicUsize::new(0));
        let look = || {
            asks.answer("it", (&poke, &key), || {
                let number = asked.fetch_add(1, Ordering::Relaxed);
                async move {
                    tokio::time::sleep(Duration::from_secs(30)).await;
                    assert_ne!(number, 0, "a mistake of ours");
                    if number == 1 { Err(Halt::Retry("it is away".to_owned())) } else { Ok(number) }
                }
            })
        };
        assert_eq!((look(), look(), asks.is_asking()), (None, None, true));
        tokio::time::sleep(Duration::from_secs(31)).await;
        assert_eq!((look(), asked.load(Ordering::Relaxed)), (None, 2), "what panicked has said nothing");
        assert_eq!(pokes.recv().await.as_ref(), Some(&key));
        assert!(matches!(look(), Some(Err(Halt::Retry(_)))));
        tokio::time::advance(AGAIN).await;
        assert_eq!((look(), asked.load(Ordering::Relaxed)), (None, 3));
        assert_eq!(pokes.recv().await.as_ref(), Some(&key));
        tokio::time::advance(AGAIN * 100).await;
        assert_eq!((look(), asked.load(Ordering::Relaxed), asks.is_asking()), (Some(Ok(2)), 3, false));
        asks.forget("it");
        assert_eq!(look(), None, "it is forgotten");
    }

    #[tokio::test]
    async fn objects_with_the_same_question_share_its_answer() {
        let (asks, (poke, mut pokes)) = (Questions::<&str, usize>::default(), Poke::new());
        let asked = AtomicUsize::new(0);
        let keys = ["api", "web"].map(|name| ("shop".to_owned(), name.to_owned()));
        let look = |key: &ObjectKey| {
            asks.answer("it", (&poke, key), || {
                let number = asked.fetch_add(1, Ordering::Relaxed);
                async move { Ok(number) }
            })
        };
        assert_eq!(keys.each_ref().map(look), [None, None]);
        for key in &keys {
            assert_eq!(pokes.recv().await.as_ref(), Some(key));
        }
        assert_eq!(keys.each_ref().map(look), [Some(Ok(0)), Some(Ok(0))]);
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert!(pokes.try_recv().is_err(), "an object that has the answer does not wait for it");
    }

    #[tokio::test]
    async fn what_is_wanted_no_longer_is_not_asked_about_any_more() {
        let asks = Questions::<&str, ()>::default();
        let (alive, mut gone) = mpsc::channel::<()>(1);
        let key = ObjectKey::default();
        asks.answer("it", (&Poke::default(), &key), || async move {
            let _alive = alive;
            std::future::pending().await
        });
        asks.retain(|_| false);
        assert_eq!(gone.recv().await, None);
    }
}
