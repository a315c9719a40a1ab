//! What is known of the pull requests of sources: asked for at the source's interval, and when a webhook says so.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use stoa_controller::{object::ObjectKey, probes::Requeue};
use stoa_kinds::source::pull_requests_at;
use stoa_pulls::{Credentials, Pauses, PullError, PullRequest, PullRequests, Server};
use stoa_runs::Services;
use stoa_types::{Source, config::PullRequestPlans, reason};
use tokio::time::Instant;

use super::{publish::Reported, reporter::News};
use crate::controllers::sources::wait_after;

/// What is known of all sources. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pauses: Pauses,
    sources: Arc<Mutex<HashMap<ObjectKey, OfSource>>>,
    /// Hears when there is something to tell.
    teller: Requeue,
}

/// The paths that a pull request changes; nothing where it is in the branch that it goes to.
pub(super) type Changed = Option<Arc<[String]>>;

#[derive(Debug, Default)]
struct OfSource {
    /// The client, and the hash of what it was made of.
    client: Option<(u64, Arc<dyn PullRequests>)>,
    asked: Option<Attempt>,
    /// Which paths the commit of a pull request changes, and for which question that was.
    changed: HashMap<u64, (u64, Changed)>,
    /// What could not be done for a pull request.
    put_off: HashMap<u64, PutOff>,
    /// Since when plans of merged pull requests are held, by the uids of their runs.
    held: HashMap<String, Instant>,
    /// Which of them were told of which run that follows them.
    told: HashSet<[String; 2]>,
    news: Option<Arc<News>>,
    /// What keeps some of it from being told.
    untold: Option<Refusal>,
    /// How many times the server did not let us, one after the other, and until when it is left alone then.
    refusals: u32,
    rests_until: Option<Instant>,
    concluded: Option<Reported>,
}

impl OfSource {
    /// What is to be said of a source: what its last look came to, and what keeps that from being told.
    fn told(&self) -> Option<Reported> {
        let concluded = self.concluded.clone()?;
        Some(match &self.untold {
            Some((why, message)) if concluded.0 => (false, *why, message.clone()),
            _ => concluded,
        })
    }

    /// Leaves it open again whether anything can be told.
    fn begin_to_tell(&mut self) {
        (self.untold, self.refusals, self.rests_until) = (None, 0, None);
    }
}

/// Something that could not be done, and is not tried again before its time.
#[derive(Debug)]
struct PutOff {
    what: String,
    why: Refusal,
    failures: u32,
    until: Instant,
}

#[derive(Clone, Debug)]
struct Attempt {
    at: Instant,
    wait: Duration,
    failures: u32,
    /// Of which Source, and how it was.
    of: (Option<String>, Option<i64>),
    webhook: Option<MicroTime>,
    base: Option<String>,
    pulls: Option<Arc<[PullRequest]>>,
}

impl Attempt {
    fn left(&self) -> Duration {
        self.wait.saturating_sub(self.at.elapsed())
    }
}

/// Whether something is to be done for a source now.
pub(super) enum Due {
    Later(Duration),
    Now(Arc<[PullRequest]>),
}

/// The branch that a source follows, as servers name it; empty for the repository's default branch.
pub(super) fn branch(source: &Source) -> &str {
    let reference = source.spec.reference.as_str();
    reference.strip_prefix("refs/heads/").unwrap_or(reference)
}

/// Why nothing can be done for a source.
pub(super) type Refusal = (&'static str, String);

impl Known {
    /// Nothing is known yet; `teller` hears when there is something to tell.
    pub(super) fn with(teller: Requeue) -> Self {
        Self { teller, ..Self::default() }
    }

    pub(super) fn forget(&self, key: &ObjectKey) {
        self.sources.lock().remove(key);
    }

    /// The client for a source's pull requests.
    ///
    /// # Errors
    ///
    /// When the Secret cannot be read or what is in it cannot be used.
    pub(super) async fn client(
        &self,
        services: &Services,
        key: &ObjectKey,
        source: &Source,
        plans: &PullRequestPlans,
    ) -> Result<Arc<dyn PullRequests>, Refusal> {
        let address = pull_requests_at(&source.spec, plans)
            .map_err(|error| (reason::PULL_REQUESTS_UNAVAILABLE, error.to_string()))?;
        let secret = plans.secret_ref.as_ref().or(source.spec.secret_ref.as_ref());
        let keys = match secret {
            None => Default::default(),
            Some(secret) => match services.cluster.secret(&key.0, &secret.name).await {
                Ok(Some(keys)) => keys,
                Ok(None) => {
                    let message = format!("secret {}/{} does not exist", key.0, secret.name);
                    return Err((reason::REFERENCE_NOT_FOUND, message));
                }
                Err(error) => return Err((reason::PULL_REQUESTS_UNAVAILABLE, error.message().to_owned())),
            },
        };
        let mut hasher = DefaultHasher::new();
        (source.uid(), source.metadata.generation, &keys).hash(&mut hasher);
        let hash = hasher.finish();
        let mut sources = self.sources.lock();
        let known = sources.entry(key.clone()).or_default();
        if let Some((_, client)) = known.client.as_ref().filter(|(of, _)| *of == hash) {
            return Ok(client.clone());
        }
        let credentials = Credentials::of_keys(|key| keys.get(key).map(Vec::as_slice));
        let server = Server::new(address, &credentials, self.pauses.clone()).map_err(|_| {
            let message = "the key ca.crt of the secret has no certificate authorities".to_owned();
            (reason::PULL_REQUESTS_UNAVAILABLE, message)
        })?;
        let client: Arc<dyn PullRequests> = Arc::new(server.quoting_at_remote_alone());
        known.client = Some((hash, client.clone()));
        // It may be what was mended.
        known.put_off.clear();
        known.begin_to_tell();
        Ok(client)
    }

    /// The open pull requests of a source, asked for where that is due.
    ///
    /// # Errors
    ///
    /// What the server says. It is not asked again before the time is up that [`failed`](Self::failed) tells.
    pub(super) async fn pulls(
        &self,
        key: &ObjectKey,
        source: &Source,
        client: &dyn PullRequests,
    ) -> Result<Due, PullError> {
        let of = (source.uid(), source.metadata.generation);
        let webhook = source.status.as_ref().and_then(|status| status.last_webhook_time.clone());
        let asked = self.sources.lock().get(key).and_then(|known| known.asked.clone());
        let base = source.status.as_ref().and_then(|status| status.observed_commit.clone());
        let asked = asked.filter(|asked| asked.of == of);
        // What moves the branch is mostly a merge. A server that failed is left alone all the same.
        let is_current = |asked: &&Attempt| asked.webhook == webhook && (asked.base == base || asked.pulls.is_none());
        if let Some(asked) = asked.as_ref().filter(is_current).filter(|asked| !asked.left().is_zero()) {
            return Ok(match &asked.pulls {
                Some(pulls) => Due::Now(pulls.clone()),
                None => Due::Later(asked.left()),
            });
        }
        let failures = asked.map_or(0, |asked| asked.failures);
        let listed = client.list_open(branch(source)).await;
        let listed: Result<Arc<[PullRequest]>, PullError> = listed.map(Into::into);
        let pulls = listed.as_ref().ok().cloned();
        let asked = Attempt { at: Instant::now(), wait: interval(source), failures, of, webhook, base, pulls };
        self.sources.lock().entry(key.clone()).or_default().asked = Some(asked);
        listed.map(Due::Now)
    }

    /// Keeps what a look came to; what is to be said of the source now.
    pub(super) fn conclude(&self, key: &ObjectKey, told: Reported) -> Reported {
        let mut sources = self.sources.lock();
        let known = sources.entry(key.clone()).or_default();
        known.concluded = Some(told.clone());
        known.told().unwrap_or(told)
    }

    /// Has this told, in place of what was to be told before.
    pub(super) fn note_news(&self, key: &ObjectKey, news: News) {
        self.sources.lock().entry(key.clone()).or_default().news = Some(Arc::new(news));
        self.teller.add(key.clone());
    }

    pub(super) fn news(&self, key: &ObjectKey) -> Option<Arc<News>> {
        self.sources.lock().get(key)?.news.clone()
    }

    pub(super) fn is_news(&self, key: &ObjectKey, news: &Arc<News>) -> bool {
        self.sources.lock().get(key).and_then(|known| known.news.as_ref()).is_some_and(|now| Arc::ptr_eq(now, news))
    }

    /// How long a source's server is not told anything, since it did not let us list or tell.
    pub(super) fn rests_for(&self, key: &ObjectKey) -> Option<Duration> {
        let sources = self.sources.lock();
        let known = sources.get(key)?;
        let told = known.rests_until.map(|until| until.saturating_duration_since(Instant::now()));
        let listed = known.asked.as_ref().filter(|asked| asked.pulls.is_none()).map(Attempt::left);
        told.max(listed).filter(|left| !left.is_zero())
    }

    /// Notes that all was told but for this; what is to be said of the source now.
    pub(super) fn note_untold(&self, key: &ObjectKey, untold: Option<Refusal>) -> Option<Reported> {
        let mut sources = self.sources.lock();
        let known = sources.get_mut(key)?;
        known.begin_to_tell();
        known.untold = untold;
        known.told()
    }

    /// Notes that the server rejected a report; how long to wait, and the source's condition.
    pub(super) fn note_refused(
        &self,
        key: &ObjectKey,
        source: &Source,
        error: &PullError,
    ) -> (Duration, Option<Reported>) {
        let mut sources = self.sources.lock();
        let known = sources.entry(key.clone()).or_default();
        known.refusals = known.refusals.saturating_add(1);
        let wait = match error {
            PullError::Limited { wait, .. } => *wait,
            _ => wait_after(known.refusals, interval(source)),
        };
        known.rests_until = Some(Instant::now() + wait);
        known.untold = Some((reason::PULL_REQUESTS_NOT_REPORTED, error.to_string()));
        (wait, known.told())
    }

    /// Notes that the server failed us; how long to leave it alone.
    pub(super) fn failed(&self, key: &ObjectKey, source: &Source, error: &PullError) -> Duration {
        let mut sources = self.sources.lock();
        let Some(asked) = sources.get_mut(key).and_then(|known| known.asked.as_mut()) else { return interval(source) };
        asked.failures = asked.failures.saturating_add(1);
        asked.wait = match error {
            PullError::Limited { wait, .. } => *wait,
            _ => wait_after(asked.failures, interval(source)),
        };
        (asked.at, asked.pulls) = (Instant::now(), None);
        asked.wait
    }

    /// Notes that all was done; how long until there may be something else to do.
    pub(super) fn succeeded(&self, key: &ObjectKey, source: &Source) -> Duration {
        let mut sources = self.sources.lock();
        let Some(asked) = sources.get_mut(key).and_then(|known| known.asked.as_mut()) else { return interval(source) };
        asked.failures = 0;
        asked.left()
    }

    pub(super) fn changed(&self, key: &ObjectKey, number: u64, question: u64) -> Option<Changed> {
        let sources = self.sources.lock();
        let (of, paths) = sources.get(key)?.changed.get(&number)?;
        (*of == question).then(|| paths.clone())
    }

    pub(super) fn note_changed(&self, key: &ObjectKey, number: u64, question: u64, paths: Changed) {
        self.sources.lock().entry(key.clone()).or_default().changed.insert(number, (question, paths));
    }

    /// Why something is not done for a pull request now, if it could not be done lately.
    pub(super) fn put_off(&self, key: &ObjectKey, number: u64, what: &str) -> Option<Refusal> {
        let sources = self.sources.lock();
        let put_off = sources.get(key)?.put_off.get(&number)?;
        (put_off.what == what && Instant::now() < put_off.until).then(|| put_off.why.clone())
    }

    /// Notes that something could not be done for a pull request; it is tried less and less often, first after some `wait`.
    pub(super) fn note_put_off(&self, key: &ObjectKey, number: u64, what: String, why: Refusal, wait: Duration) {
        let mut sources = self.sources.lock();
        let put_off = &mut sources.entry(key.clone()).or_default().put_off;
        let before = put_off.get(&number).filter(|before| before.what == what);
        let failures = before.map_or(0, |before| before.failures).saturating_add(1);
        let until = Instant::now() + wait_after(failures, wait);
        put_off.insert(number, PutOff { what, why, failures, until });
    }

    /// How long the plan of a merged pull request is held already, by the uid of its run.
    pub(super) fn held_for(&self, key: &ObjectKey, uid: &str) -> Duration {
        let mut sources = self.sources.lock();
        sources.entry(key.clone()).or_default().held.entry(uid.to_owned()).or_insert_with(Instant::now).elapsed()
    }

    /// Whether it was told what the second run made of the plan of the first.
    pub(super) fn is_told(&self, key: &ObjectKey, uids: &[String; 2]) -> bool {
        self.sources.lock().get(key).is_some_and(|known| known.told.contains(uids))
    }

    pub(super) fn note_told(&self, key: &ObjectKey, uids: [String; 2]) {
        self.sources.lock().entry(key.clone()).or_default().told.insert(uids);
    }

    /// Forgets the plans of all merged pull requests but these.
    pub(super) fn retain_held(&self, key: &ObjectKey, is_held: impl Fn(&str) -> bool) {
        if let Some(known) = self.sources.lock().get_mut(key) {
            known.held.retain(|uid, _| is_held(uid));
            known.told.retain(|[plan, _]| is_held(plan));
        }
    }

    pub(super) fn retain(&self, key: &ObjectKey, is_there: impl Fn(u64) -> bool) {
        if let Some(known) = self.sources.lock().get_mut(key) {
            known.changed.retain(|number, _| is_there(*number));
            known.put_off.retain(|number, _| is_there(*number));
        }
    }
}

pub(super) fn interval(source: &Source) -> Duration {
    source.spec.poll_interval.parse().unwrap_or(Duration::from_secs(60))
}
