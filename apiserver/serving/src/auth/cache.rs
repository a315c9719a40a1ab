//! A small cache whose entries live for a fixed time, and which asks once for many who wait.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::OnceCell;

/// Answers by key, each for at most `ttl` from the moment it was first asked for; never more than `capacity`.
#[derive(educe::Educe)]
#[educe(Debug)]
pub(crate) struct ExpiringCache<K, V> {
    ttl: Duration,
    capacity: usize,
    #[educe(Debug(ignore))]
    entries: Mutex<Entries<K, V>>,
}

struct Entries<K, V> {
    by_key: HashMap<K, Entry<V>>,
    /// Every entry has the same lifetime, so the order of insertion is the order of expiry.
    by_age: VecDeque<(Instant, K)>,
}

struct Entry<V> {
    asked: Instant,
    answer: Arc<OnceCell<V>>,
}

impl<K: Clone + Eq + Hash, V: Clone> ExpiringCache<K, V> {
    pub(crate) fn new(ttl: Duration, capacity: usize) -> Self {
        let entries = Entries { by_key: HashMap::new(), by_age: VecDeque::new() };
        Self { ttl, capacity: capacity.max(1), entries: Mutex::new(entries) }
    }

    /// The answer for `key`, or what `ask` says. Callers who come while another asks wait for its answer; when it
    /// fails or is dropped, the next of them asks. Failures are not kept, and answers that `kept` gives less time than `ttl`
    /// are kept for that long.
    pub(crate) async fn get_or_ask<E, F>(
        &self,
        key: &K,
        now: Instant,
        kept: impl Fn(&V) -> Duration,
        ask: impl FnOnce() -> F,
    ) -> Result<V, E>
    where
        F: Future<Output = Result<V, E>>,
    {
        let answer = self.entry(key, now, kept);
        answer.get_or_try_init(ask).await.cloned()
    }

    /// Where the answer for `key` is, or will be.
    pub(super) fn entry(&self, key: &K, now: Instant, kept: impl Fn(&V) -> Duration) -> Arc<OnceCell<V>> {
        let mut entries = self.entries.lock();
        while let Some((asked, _)) = entries.by_age.front()
            && (now.saturating_duration_since(*asked) >= self.ttl)
        {
            entries.remove_oldest();
        }
        if let Some(entry) = entries.by_key.get(key) {
            let age = now.saturating_duration_since(entry.asked);
            if entry.answer.get().is_none_or(|answer| age < kept(answer)) {
                return entry.answer.clone();
            }
            entries.by_key.remove(key);
        }
        // Here are those, too, that were asked for again since.
        while entries.by_age.len() >= self.capacity {
            entries.remove_oldest();
        }
        let answer = Arc::new(OnceCell::new());
        entries.by_key.insert(key.clone(), Entry { asked: now, answer: answer.clone() });
        entries.by_age.push_back((now, key.clone()));
        answer
    }
}

impl<K: Eq + Hash, V> Entries<K, V> {
    fn remove_oldest(&mut self) {
        if let Some((asked, key)) = self.by_age.pop_front()
            && self.by_key.get(&key).is_some_and(|entry| entry.asked == asked)
        {
            self.by_key.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    async fn ask(cache: &ExpiringCache<&'static str, u32>, key: &'static str, now: Instant, answer: u32) -> u32 {
        ask_briefly(cache, key, now, answer, TTL).await
    }

    async fn ask_briefly(
        cache: &ExpiringCache<&'static str, u32>,
        key: &'static str,
        now: Instant,
        answer: u32,
        kept: Duration,
    ) -> u32 {
        cache.get_or_ask(&key, now, |_| kept, || async { Ok::<_, Infallible>(answer) }).await.unwrap()
    }

    #[tokio::test]
    async fn cache_returns_answer_until_expiry() {
        let cache = ExpiringCache::new(TTL, 8);
        let start = Instant::now();
        assert_eq!(ask(&cache, "a", start, 1).await, 1);
        assert_eq!(ask(&cache, "a", start + TTL - Duration::from_millis(1), 2).await, 1);
        assert_eq!(ask(&cache, "a", start + TTL, 3).await, 3);
    }

    #[tokio::test]
    async fn an_answer_may_be_kept_for_less() {
        let cache = ExpiringCache::new(TTL, 8);
        let (start, kept) = (Instant::now(), TTL / 2);
        assert_eq!(ask_briefly(&cache, "a", start, 1, kept).await, 1);
        assert_eq!(ask_briefly(&cache, "a", start + kept - Duration::from_millis(1), 2, kept).await, 1);
        assert_eq!(ask_briefly(&cache, "a", start + kept, 3, kept).await, 3);
        assert_eq!(ask(&cache, "a", start + TTL, 4).await, 3, "what was asked for first does not end what came after");
        assert_eq!(ask(&cache, "a", start + kept + TTL, 5).await, 5);
        for answer in 0..100 {
            assert_eq!(ask_briefly(&cache, "b", start, answer, Duration::ZERO).await, answer);
        }
        assert!(cache.entries.lock().by_age.len() <= 8);
    }

    #[tokio::test]
    async fn the_oldest_makes_room() {
        let cache = ExpiringCache::new(TTL, 2);
        let now = Instant::now();
        for (key, answer) in [("a", 1), ("b", 2), ("c", 3)] {
            ask(&cache, key, now, answer).await;
        }
        assert_eq!(ask(&cache, "b", now, 9).await, 2);
        assert_eq!(ask(&cache, "c", now, 9).await, 3);
        assert_eq!(ask(&cache, "a", now, 9).await, 9);
        assert!(cache.entries.lock().by_key.len() <= 2);
    }

    #[tokio::test]
    async fn a_failure_is_not_kept() {
        let cache = ExpiringCache::<_, u32>::new(TTL, 2);
        let now = Instant::now();
        let failed = cache.get_or_ask(&"a", now, |_| TTL, || async { Err::<u32, _>("down") }).await;
        assert_eq!(failed, Err("down"));
        assert_eq!(ask(&cache, "a", now, 5).await, 5);
    }

    #[tokio::test]
    async fn many_who_ask_at_once_are_one_question() {
        let cache = Arc::new(ExpiringCache::<_, u32>::new(TTL, 2));
        let now = Instant::now();
        let (release, wait) = tokio::sync::oneshot::channel::<()>();
        let first = async {
            cache
                .get_or_ask(
                    &"a",
                    now,
                    |_| TTL,
                    || async {
                        wait.await.unwrap();
                        Ok::<_, Infallible>(1)
                    },
                )
                .await
        };
        let second = async {
            let answer = ask(&cache, "a", now, 2);
            release.send(()).unwrap();
            answer.await
        };
        let (first, second) = tokio::join!(first, second);
        assert_eq!((first.unwrap(), second), (1, 1));
    }
}
