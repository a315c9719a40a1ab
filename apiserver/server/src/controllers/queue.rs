//! The loop of a controller: objects become due when something about them changes, when an
//! earlier look asked for another one, and after a failure.

use std::{
    collections::{BTreeMap, HashMap},
    future::Future,
    time::Duration,
};

use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use kube::ResourceExt as _;
use stoa_machinery::{
    ApiError,
    registry::{Api, api::Change},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::kinds::lookup::Kind;

/// The shortest and longest wait after a failure.
const BACKOFF: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(30);

/// Namespace and name of an object; the namespace is empty for cluster-scoped kinds.
pub(crate) type ObjectKey = (String, String);

/// The key of an object.
pub(crate) fn key_of<K: Kind>(object: &K) -> ObjectKey {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// The keys that become due when objects of kind `K` change.
pub(crate) fn triggers<K: Kind + Sync>(
    objects: &Api<K>,
    keys: impl Fn(&K) -> Vec<ObjectKey> + Send + 'static,
) -> BoxStream<'static, Vec<ObjectKey>> {
    let changes = objects.subscribe(None);
    changes
        .map(move |change| match change {
            Change::Restarted(all) => all.iter().flat_map(&keys).collect(),
            Change::Applied(object) | Change::Deleted(object) => keys(&object),
        })
        .boxed()
}

/// Looks at every key that is due until the token ends. `look` returns when it wants to look again.
pub(crate) async fn drive<F>(
    name: &'static str,
    triggers: Vec<BoxStream<'static, Vec<ObjectKey>>>,
    end: CancellationToken,
    look: impl Fn(ObjectKey) -> F,
) where
    F: Future<Output = Result<Option<Duration>, ApiError>>,
{
    let mut triggers = stream::select_all(triggers);
    let mut due: BTreeMap<ObjectKey, Instant> = BTreeMap::new();
    let mut failures: HashMap<ObjectKey, u32> = HashMap::new();
    loop {
        let next = due.iter().min_by_key(|(_, at)| **at).map(|(key, at)| (key.clone(), *at));
        let wake = next.as_ref().map_or_else(|| Instant::now() + Duration::from_secs(3600), |(_, at)| *at);
        tokio::select! {
            biased;
            () = end.cancelled() => return,
            keys = triggers.next() => {
                let Some(keys) = keys else { return };
                let now = Instant::now();
                due.extend(keys.into_iter().map(|key| (key, now)));
                continue;
            }
            () = tokio::time::sleep_until(wake) => {}
        }
        let Some((key, _)) = next else { continue };
        due.remove(&key);
        match look(key.clone()).await {
            Ok(again) => {
                failures.remove(&key);
                if let Some(wait) = again {
                    due.entry(key).or_insert(Instant::now() + wait);
                }
            }
            Err(error) => {
                let count = failures.entry(key.clone()).or_insert(0);
                *count = count.saturating_add(1);
                let wait =
                    (*BACKOFF.start() * 2_u32.saturating_pow(count.saturating_sub(1).min(12))).min(*BACKOFF.end());
                tracing::warn!(controller = name, namespace = key.0, object = key.1, %error, ?wait, "will try again");
                due.entry(key).or_insert(Instant::now() + wait);
            }
        }
    }
}
