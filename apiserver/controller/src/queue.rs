//! The work queue and the loop of a controller, as client-go's `workqueue` and `controller-runtime`.
//!
//! Start at [`drive`]. An object is due when something about it changes, when an earlier call asked for another
//! one, and after a failure, with backoff.

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    ops::RangeInclusive,
    sync::Arc,
    time::Duration,
};

use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream, FuturesUnordered},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Preconditions;
use kube::ResourceExt as _;
use stoa_machinery::{
    ApiError,
    backoff::Policy,
    log::Key,
    registry::{Api, DeleteOptions, Stored, api::Change, is_undecodable},
};
use tokio::time::Instant;
use tokio_util::{
    sync::CancellationToken,
    time::{DelayQueue, delay_queue},
};

use crate::{
    index::{Member, Part},
    object::{Kind, ObjectKey},
};

mod metrics;

pub use metrics::{Counted, Metrics};

/// The waits after failures.
const BACKOFF: Policy = Policy::new(Duration::from_millis(100), Duration::from_secs(30));
/// Those after failures to read what is stored: nothing but a repair ends these, which makes what is repaired due.
const UNTIL_REPAIRED: Policy = Policy::new(Duration::from_millis(100), Duration::from_mins(10));

/// By how much longer than a look took nobody looks again, at least.
const PAUSE: u32 = 20;

/// How long to wait, within these bounds, after a look that took so long: one that reads a lot is not made again at once.
pub fn wait_after_look(took: Duration, bounds: RangeInclusive<Duration>) -> Duration {
    took.saturating_mul(PAUSE).clamp(*bounds.start(), *bounds.end())
}

/// The key of an object.
pub fn key_of<K: Kind>(object: &K) -> ObjectKey {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// The key of the object that the log has there.
pub fn key_at(place: &Key) -> ObjectKey {
    // `/registry/<group>/<resource>/<namespace>/<name>`, without the namespace for cluster-scoped kinds.
    let mut names = place.as_str().split('/').skip(4).map(str::to_owned);
    match (names.next(), names.next()) {
        (Some(namespace), Some(name)) => (namespace, name),
        (name, _) => (String::new(), name.unwrap_or_default()),
    }
}

/// Options to delete an object only as it was read: what changed since is decided about again.
pub fn as_read<K: Kind>(object: &K) -> DeleteOptions {
    let (uid, resource_version) = (object.meta().uid.clone(), object.meta().resource_version.clone());
    DeleteOptions { preconditions: Some(Preconditions { uid, resource_version }), ..DeleteOptions::default() }
}

/// Deletes an object as it was read, and leaves what changed meanwhile; whether it goes.
///
/// # Errors
///
/// When it cannot be deleted.
pub async fn delete<K: Kind>(api: &Api<K>, object: &K) -> Result<bool, ApiError> {
    let (namespace, name) = key_of(object);
    match api.delete(&namespace, &name, &as_read(object)).await {
        Ok(_) => Ok(true),
        Err(error) if error.code() == 404 => Ok(true),
        Err(error) if error.code() == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

/// The outcome of a call, or nothing where its object does not exist.
///
/// # Errors
///
/// Any other than 404.
pub fn unless_gone<T>(outcome: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.code() == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether what was asked for was refused, such as without what it names: it will be again until something changes.
pub fn is_refusal(error: &ApiError) -> bool {
    (400..500).contains(&error.code()) && error.code() != 429
}

/// What went wrong first of several things that do not keep each other waiting.
#[derive(Debug, Default)]
pub struct FirstError(Option<ApiError>);

impl FirstError {
    /// Goes on with what was got, and keeps why it was not.
    pub fn note<T>(&mut self, outcome: Result<T, ApiError>) -> Option<T> {
        match outcome {
            Ok(got) => Some(got),
            Err(error) => {
                self.0.get_or_insert(error);
                None
            }
        }
    }

    /// Says what went wrong first, if anything did.
    ///
    /// # Errors
    ///
    /// That.
    pub fn told(self) -> Result<(), ApiError> {
        self.0.map_or(Ok(()), Err)
    }
}

/// What makes keys due.
pub struct Trigger {
    keys: BoxStream<'static, Vec<ObjectKey>>,
    within: Duration,
}

impl Trigger {
    /// The keys that a stream names.
    pub fn new(keys: BoxStream<'static, Vec<ObjectKey>>) -> Self {
        Self { keys, within: Duration::ZERO }
    }

    /// The keys that `keys` finds for an object of kind `K`, when one changes.
    pub fn on<K: Kind + Sync>(objects: &Api<K>, keys: impl Fn(&K) -> Vec<ObjectKey> + Send + 'static) -> Self {
        Self::of(objects.subscribe_stored::<K>(None), |_, _| true, keys)
    }

    /// The same, by a type that has no more fields than are wanted.
    pub fn on_part<K: Kind + Sync, P: Part>(
        objects: &Api<K>,
        keys: impl Fn(&P) -> Vec<ObjectKey> + Send + 'static,
    ) -> Self {
        Self::of(objects.subscribe_stored::<P>(None), |_, _| true, keys)
    }

    /// The same, only when something changes that the type has: a status that is written again and again makes nothing
    /// due that does not go by it.
    pub fn on_change<K: Kind + Sync, S: Part + PartialEq, T: Part + PartialEq>(
        objects: &Api<K>,
        keys: impl Fn(&Member<S, T>) -> Vec<ObjectKey> + Send + 'static,
    ) -> Self {
        let is_news = |before: &Stored, now: &Member<S, T>| {
            !before.decode_part::<Member<S, T>>().is_ok_and(|before| before == *now)
        };
        Self::of(objects.subscribe_stored(None), is_news, keys)
    }

    /// The keys of what changes in a way that is news, beside what was there before.
    fn of<P: Part>(
        changes: BoxStream<'static, Change<(Arc<Stored>, P)>>,
        is_news: impl Fn(&Stored, &P) -> bool + Send + 'static,
        keys: impl Fn(&P) -> Vec<ObjectKey> + Send + 'static,
    ) -> Self {
        let mut known: HashMap<Key, Arc<Stored>> = HashMap::new();
        let keys = changes.map(move |change| match change {
            Change::Restarted(all) => {
                let there = all.iter().map(|(stored, _)| (stored.key.clone(), Arc::clone(stored))).collect();
                let before = std::mem::replace(&mut known, there);
                // What was deleted while history was missed nobody tells of.
                let gone = before.values().filter(|stored| !known.contains_key(&stored.key));
                let gone = gone.filter_map(|stored| stored.decode_part::<P>().ok());
                all.iter().map(|(_, object)| keys(object)).chain(gone.map(|object| keys(&object))).flatten().collect()
            }
            Change::Applied((stored, object)) => {
                let before = known.insert(stored.key.clone(), stored);
                if before.is_none_or(|before| is_news(&before, &object)) { keys(&object) } else { Vec::new() }
            }
            Change::Deleted((stored, object)) => {
                known.remove(&stored.key);
                keys(&object)
            }
        });
        Self::new(keys.boxed())
    }

    /// Looks no sooner than after this time, once for all that happens in it.
    pub fn within(mut self, wait: Duration) -> Self {
        self.within = wait;
        self
    }
}

/// The keys that are due or will be, each once, at the earliest time that was asked for.
struct Due {
    queue: DelayQueue<ObjectKey>,
    places: HashMap<ObjectKey, delay_queue::Key>,
    counted: Counted,
}

impl Due {
    fn new(counted: Counted) -> Self {
        Self { queue: DelayQueue::new(), places: HashMap::new(), counted }
    }

    fn add(&mut self, key: ObjectKey, at: Instant) {
        self.counted.due(&key, at);
        match self.places.get(&key) {
            Some(place) if self.queue.deadline(place) <= at => {}
            Some(place) => self.queue.reset_at(place, at),
            None => {
                let place = self.queue.insert_at(key.clone(), at);
                self.places.insert(key, place);
            }
        }
    }

    /// The next key, once it is due; never, while there is none.
    async fn next(&mut self) -> ObjectKey {
        let next = std::future::poll_fn(|context| self.queue.poll_expired(context));
        let Some(expired) = next.await else { return std::future::pending().await };
        let key = expired.into_inner();
        self.places.remove(&key);
        key
    }
}

/// Looks at every key that is due until the token ends, at one after the other. `look` returns when it wants to look
/// again.
pub async fn drive<F>(counted: Counted, triggers: Vec<Trigger>, end: CancellationToken, look: impl Fn(ObjectKey) -> F)
where
    F: Future<Output = Result<Option<Duration>, ApiError>>,
{
    drive_some(counted, 1, triggers, end, look).await;
}

/// The same for looks that wait for somebody else: at so many keys at once, though never twice at one.
pub async fn drive_some<F>(
    counted: Counted,
    at_once: usize,
    triggers: Vec<Trigger>,
    end: CancellationToken,
    look: impl Fn(ObjectKey) -> F,
) where
    F: Future<Output = Result<Option<Duration>, ApiError>>,
{
    let streams = triggers.into_iter().map(|trigger| trigger.keys.map(move |keys| (keys, trigger.within)));
    let mut triggers = stream::select_all(streams.map(|stream| stream.boxed()));
    let mut due = Due::new(counted);
    let mut failures: HashMap<ObjectKey, u32> = HashMap::new();
    let mut looking: HashSet<ObjectKey> = HashSet::new();
    // Due while they were looked at.
    let mut again: HashSet<ObjectKey> = HashSet::new();
    let mut looks = FuturesUnordered::new();
    loop {
        let (key, looked) = tokio::select! {
            biased;
            () = end.cancelled() => return,
            keys = triggers.next() => {
                let Some((keys, wait)) = keys else { return };
                let at = Instant::now() + wait;
                keys.into_iter().for_each(|key| due.add(key, at));
                continue;
            }
            Some(ended) = looks.next() => ended,
            key = due.next(), if looking.len() < at_once => {
                if looking.contains(&key) {
                    again.insert(key);
                } else {
                    due.counted.begun(&key, Instant::now());
                    looking.insert(key.clone());
                    let look = look(key.clone());
                    looks.push(async move { (key, look.await) });
                }
                continue;
            }
        };
        due.counted.ended(&key, Instant::now());
        looking.remove(&key);
        if again.remove(&key) {
            due.add(key.clone(), Instant::now());
        }
        match looked {
            Ok(later) => {
                failures.remove(&key);
                if let Some(wait) = later {
                    due.counted.retried();
                    due.add(key, Instant::now() + wait);
                }
            }
            Err(error) => {
                let count = failures.entry(key.clone()).or_insert(0);
                *count = count.saturating_add(1);
                let wait = wait_after(*count, &error);
                let (namespace, object) = (&key.0, &key.1);
                tracing::warn!(controller = due.counted.name(), namespace, object, %error, ?wait, "will try again");
                due.counted.retried();
                due.add(key, Instant::now() + wait);
            }
        }
    }
}

/// How long to wait after so many failures in a row, of which this is the last.
fn wait_after(failures: u32, error: &ApiError) -> Duration {
    let backoff = if is_undecodable(error) { UNTIL_REPAIRED } else { BACKOFF };
    backoff.after(failures)
}

#[cfg(test)]
mod tests {
    use serde::de::IgnoredAny;
    use stoa_machinery::metrics::Families;

    use super::*;
    use crate::testing::{Widget, widget, widgets};

    fn counted() -> Counted {
        Metrics::new(&Families::default()).unwrap().of("test")
    }

    #[test]
    fn places_say_which_object_is_there() {
        let at = |place: &str| key_at(&Key::new(place));
        assert_eq!(at("/registry/config.stoa.dev/stacks/shop/web"), ("shop".to_owned(), "web".to_owned()));
        assert_eq!(at("/registry/platform.stoa.dev/workspaces/dev"), (String::new(), "dev".to_owned()));
    }

    #[test]
    fn slow_reconciliation_lengthens_requeue_delay() {
        let wait =
            |took: u64| wait_after_look(Duration::from_millis(took), Duration::from_secs(1)..=Duration::from_mins(1));
        let expected = [1_000, 2_000, 60_000, 60_000].map(Duration::from_millis);
        assert_eq!([1, 100, 3_000, u64::MAX].map(wait), expected);
    }

    #[test]
    fn what_fails_first_is_told_after_the_rest() {
        let mut failed = FirstError::default();
        let refused = |what: &str| Err::<u8, _>(ApiError::bad_request(what));
        assert_eq!(failed.note(Ok(1)), Some(1));
        assert_eq!([failed.note(refused("first")), failed.note(refused("second"))], [None, None]);
        assert_eq!(failed.note(Ok(2)), Some(2));
        assert_eq!(failed.told().unwrap_err().message(), "first");
        FirstError::default().told().unwrap();
    }

    #[tokio::test]
    async fn keys_are_due_once_and_at_the_earliest_time() {
        let key = |name: &str| ("shop".to_owned(), name.to_owned());
        let (mut due, start) = (Due::new(counted()), Instant::now());
        for (name, wait) in [("web", 80), ("web", 1), ("web", 60), ("api", 40)] {
            due.add(key(name), start + Duration::from_millis(wait));
        }
        assert_eq!([due.next().await, due.next().await], [key("web"), key("api")]);
        assert!(due.places.is_empty() && due.queue.is_empty(), "there is no other");
    }

    #[tokio::test]
    async fn irrelevant_change_queues_no_key() {
        let widgets = widgets().await.api::<Widget>();
        widgets.create(&widget("web")).await.unwrap();
        let trigger = Trigger::on_change(&widgets, |w: &Member<serde_json::Value, IgnoredAny>| vec![w.key()]);
        let mut keys = trigger.keys;
        let (web, api) = (("shop".to_owned(), "web".to_owned()), ("shop".to_owned(), "api".to_owned()));
        assert_eq!(keys.next().await.unwrap(), std::slice::from_ref(&web), "what is there at the beginning");
        for count in 1..4 {
            let count = |w: &mut Widget| w.status.get_or_insert_default().count = count;
            widgets.update_status_with("shop", "web", count).await.unwrap();
        }
        widgets.create(&widget("api")).await.unwrap();
        widgets.update_with("shop", "web", |w: &mut Widget| w.spec.size = 1).await.unwrap();
        let mut due = keys.filter_map(async |keys| keys.into_iter().next()).boxed();
        let mut found = [due.next().await.unwrap(), due.next().await.unwrap()];
        found.sort();
        assert_eq!(found, [api, web]);
    }

    #[tokio::test]
    async fn what_was_deleted_while_history_was_missed_is_due() {
        type OfWidget = Member<serde_json::Value, IgnoredAny>;
        let widgets = widgets().await.api::<Widget>();
        for name in ["api", "web"] {
            widgets.create(&widget(name)).await.unwrap();
        }
        let all = widgets.store().list(None, &Default::default()).await.unwrap().items;
        let is_web = |stored: &&Arc<Stored>| stored.name() == "web";
        let told = |stored: &Arc<Stored>| (stored.clone(), stored.decode_part::<OfWidget>().unwrap());
        for is_news in [true, false] {
            let changes = [
                Change::Restarted(all.iter().map(told).collect()),
                Change::Restarted(all.iter().filter(is_web).map(told).collect()),
                Change::Restarted(all.iter().filter(is_web).map(told).collect()),
            ];
            let trigger = Trigger::of(stream::iter(changes).boxed(), move |_, _| is_news, |p| vec![p.key()]);
            let mut due: Vec<Vec<ObjectKey>> = trigger.keys.collect().await;
            due.iter_mut().for_each(|keys| keys.sort());
            let key = |name: &str| ("shop".to_owned(), name.to_owned());
            let both = vec![key("api"), key("web")];
            assert_eq!(due, [both.clone(), both, vec![key("web")]], "what is gone is told once");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_key_blocks_no_other_key() {
        let key = |name: &str| ("shop".to_owned(), name.to_owned());
        let (due, keys) = tokio::sync::mpsc::unbounded_channel();
        let (looked, mut looks) = tokio::sync::mpsc::unbounded_channel();
        let end = CancellationToken::new();
        let trigger = Trigger::new(tokio_stream::wrappers::UnboundedReceiverStream::new(keys).boxed());
        let driven = tokio::spawn(drive_some(counted(), 2, vec![trigger], end.clone(), move |key: ObjectKey| {
            let looked = looked.clone();
            async move {
                looked.send(key.1.clone()).unwrap();
                if key.1 == "slow" {
                    tokio::time::sleep(Duration::from_secs(10)).await;
                }
                Ok(None)
            }
        }));
        let start = Instant::now();
        for name in ["slow", "quick", "slow", "slow"] {
            due.send(vec![key(name)]).unwrap();
            // Each is taken before the next.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push((looks.recv().await.unwrap(), start.elapsed().as_secs()));
        }
        let expected = [("slow", 0), ("quick", 0), ("slow", 10)];
        assert_eq!(seen, expected.map(|(name, at)| (name.to_owned(), at)));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(looks.try_recv().is_err(), "what came twice meanwhile is looked at once");
        end.cancel();
        driven.await.unwrap();
    }

    fn undecodable() -> ApiError {
        let mut error = ApiError::internal("corrupt object");
        for cause in error.0.details.iter_mut().flat_map(|details| &mut details.causes).flatten() {
            cause.reason = Some("StorageReadError".to_owned());
        }
        error
    }

    #[tokio::test(start_paused = true)]
    async fn queue_rarely_retries_undecodable_objects() {
        assert_eq!(wait_after(30, &ApiError::internal("busy")), Duration::from_secs(30));
        let key = || ("shop".to_owned(), "web".to_owned());
        let (due, keys) = tokio::sync::mpsc::unbounded_channel();
        let (looked, mut looks) = tokio::sync::mpsc::unbounded_channel();
        let end = CancellationToken::new();
        let trigger = Trigger::new(tokio_stream::wrappers::UnboundedReceiverStream::new(keys).boxed());
        let driven = tokio::spawn(drive(counted(), vec![trigger], end.clone(), move |_| {
            looked.send(Instant::now()).unwrap();
            std::future::ready(Err(undecodable()))
        }));
        due.send(vec![key()]).unwrap();
        tokio::time::sleep(Duration::from_hours(2)).await;
        let tried = std::iter::from_fn(|| looks.try_recv().ok()).count();
        assert!((12..30).contains(&tried), "{tried}");
        let changed = Instant::now();
        due.send(vec![key()]).unwrap();
        assert!(looks.recv().await.unwrap() - changed < Duration::from_secs(1));
        end.cancel();
        driven.await.unwrap();
    }
}
