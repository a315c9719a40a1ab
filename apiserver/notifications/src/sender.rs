//! Signs and posts events, with keys that are read again now and then.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use stoa_types::{SecretKeyReference, reason};
use tokio::time::Instant;

use super::{
    delivery::{Endpoint, Keys, Outcome},
    events::Happened,
    metrics::Metrics,
};
use crate::Services;
use crate::sink_status::Problem;

/// For how long a key that was read is used without looking whether it was exchanged.
const KEY_AGE: Duration = Duration::from_secs(10);

/// The same for that there is none, and how long events wait for one at least.
pub(super) const NO_KEY_AGE: Duration = Duration::from_secs(2);

/// What a try came to.
pub(super) struct Tried {
    pub(super) number: u64,
    pub(super) outcome: Outcome,
    /// What keeps it from being tried at all.
    pub(super) problem: Option<Problem>,
    /// Before it was signed.
    pub(super) begun: Instant,
}

/// The keys that were read last, or why there are none, and when.
type Remembered = Mutex<Option<(Instant, Result<Arc<Keys>, Problem>)>>;

/// Signs and posts.
#[derive(Clone)]
pub(super) struct Sender {
    pub(super) services: Services,
    pub(super) metrics: Metrics,
    pub(super) name: String,
    pub(super) endpoint: Endpoint,
    pub(super) secret: SecretKeyReference,
    pub(super) keys: Arc<Remembered>,
}

impl Sender {
    pub(super) async fn attempt(self, number: u64, happened: Happened) -> Tried {
        let keys = self.keys().await;
        let begun = Instant::now();
        let keys = match keys {
            Ok(keys) => keys,
            Err(problem) => {
                let outcome = Outcome::Failed { why: problem.1.clone(), retry_after: None };
                return Tried { number, outcome, problem: Some(problem), begun };
            }
        };
        let outcome = self.endpoint.post(&happened.event, &keys, self.services.now()).await;
        self.metrics.duration.with_label_values(&[&self.name]).observe(begun.elapsed().as_secs_f64());
        Tried { number, outcome, problem: None, begun }
    }

    /// The keys to sign with, read again now and then.
    pub(super) async fn keys(&self) -> Result<Arc<Keys>, Problem> {
        let is_fresh = |(since, keys): &&(Instant, Result<_, _>)| {
            since.elapsed() < if keys.is_ok() { KEY_AGE } else { NO_KEY_AGE }
        };
        let remembered = self.keys.lock().as_ref().filter(is_fresh).cloned();
        if let Some((_, keys)) = remembered {
            return keys;
        }
        let keys = self.read_keys().await;
        *self.keys.lock() = Some((Instant::now(), keys.clone()));
        keys
    }

    async fn read_keys(&self) -> Result<Arc<Keys>, Problem> {
        let SecretKeyReference { namespace, name, key } = &self.secret;
        let place = format!("key {key:?} of Secret {namespace}/{name}");
        let found = self.services.cluster.secret(namespace, name).await;
        let found = found.map_err(|error| {
            tracing::warn!(sink = self.name, %error, "a Secret cannot be read");
            (reason::UNREADABLE_SECRET, format!("{place} cannot be read"))
        })?;
        let text = found.and_then(|mut keys| keys.remove(key));
        let text = text.ok_or_else(|| (reason::REFERENCE_NOT_FOUND, format!("{place} does not exist")))?;
        Keys::parse(&text).map(Arc::new).map_err(|error| (reason::INVALID_KEY, format!("{place}: {error}")))
    }
}
