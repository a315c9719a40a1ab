//! What is left alone: whether it is still as it was planned to stay, and what to record of it.
//!
//! Start at [`Caller::leave`], which decides what nobody has to look for. A [look](Caller::look) is a call as any other: it has a
//! permit, and takes no longer than a resource may.

use serde_json::{Map, Value};
use stoa_engine::{PlannedAction, Problem, StateResource, object::uid_of, path::is_same_but, problem::reason};
use stoa_runtime::{ApplyRequest, Live, ReadRequest, RuntimeError};

use crate::{
    call::Caller,
    observer::ResourceResult,
    planning::problem,
    results::{done, failed, place},
    retry::{Told, late, retried},
    values::{Ready, unseen},
};

/// What is done about a resource that is left alone.
#[derive(Debug)]
pub(crate) enum Leaving {
    /// It is on record as it is.
    AsRecorded,
    /// Somebody has to hear of it.
    Told(Box<ResourceResult>),
    /// It is looked at first.
    Unseen(Box<Unseen>),
}

/// What is to be looked at before it is left alone.
#[derive(Debug)]
pub(crate) struct Unseen {
    ready: Ready,
    /// Whether what it refers to may have another value than was applied.
    has_moved: bool,
}

/// How what is wanted compares with what is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Applied,
    /// What it refers to may have another value than it had for the plan, which nobody applied then.
    Moved,
    /// The same, of fields that change of their own accord: what was applied is as good.
    Moving,
}

impl Caller {
    /// What is to be recorded of a resource that is left alone, if it is not what is recorded. `prior` may be recorded under
    /// another id.
    pub(crate) fn leave(&self, planned: &PlannedAction, prior: &StateResource) -> Leaving {
        let ready = match self.values.ready(&planned.id) {
            Ok(ready) => ready,
            // Under the id that it is recorded under it may be forgotten next.
            Err(problem) if prior.id != planned.id => return Leaving::Told(Box::new(failed(planned, problem))),
            Err(_) => return Leaving::AsRecorded,
        };
        let standing = self.standing(planned, prior, &ready);
        let has_moved = standing == Standing::Moved && self.values.are_read();
        if has_moved || standing == Standing::Applied && self.is_unsure(planned, prior) {
            return Leaving::Unseen(Box::new(Unseen { ready, has_moved }));
        }
        let record = match standing {
            Standing::Applied => self.as_applied(planned, prior, &ready),
            // It may be the value of before. What else may be in it stays unsure.
            Standing::Moved | Standing::Moving if self.is_unsure(planned, prior) => {
                prior.clone().under(planned.id.clone()).as_found()
            }
            Standing::Moved | Standing::Moving => prior.clone().under(planned.id.clone()),
        };
        let told = self.told_as(planned, prior, &ready, record);
        told.map_or(Leaving::AsRecorded, |result| Leaving::Told(Box::new(result)))
    }

    fn standing(&self, planned: &PlannedAction, prior: &StateResource, ready: &Ready) -> Standing {
        let wanted = &ready.desired.attributes;
        if !self.values.refers(&planned.id) {
            return Standing::Applied;
        }
        let recorded = ready.sensitive.recorded_ways(prior.digest_id(), wanted, &self.keys);
        if recorded.contains(&prior.attributes) {
            return Standing::Applied;
        }
        let moving = self.values.moving(&planned.id);
        let is_same = |recorded: &Map<String, Value>| is_same_but(&moving, recorded, &prior.attributes);
        if !moving.is_empty() && recorded.iter().any(is_same) { Standing::Moving } else { Standing::Moved }
    }

    /// Whether a call that nobody knows the end of may have set more of it than is recorded.
    fn is_unsure(&self, planned: &PlannedAction, prior: &StateResource) -> bool {
        !self.runtime.is_deferred() && self.may_hold_unrecorded(planned, std::slice::from_ref(prior))
    }

    /// The record of what is live as it is wanted.
    fn as_applied(&self, planned: &PlannedAction, prior: &StateResource, ready: &Ready) -> StateResource {
        let as_told = prior.clone().under(planned.id.clone());
        let attributes = ready.sensitive.recorded(as_told.digest_id(), &ready.desired.attributes, &self.keys);
        let live = self.keys.rekeyed(as_told.digest_id(), prior.live.clone());
        StateResource { attributes, live, ..as_told }
    }

    /// The result with a record, unless that is what is recorded.
    fn told_as(
        &self,
        planned: &PlannedAction,
        prior: &StateResource,
        ready: &Ready,
        record: StateResource,
    ) -> Option<ResourceResult> {
        let record = StateResource {
            depends_on: planned.depends_on.clone(),
            extensions: ready.desired.kept_extensions(),
            cluster: self.cluster(&ready.desired, prior),
            ..record
        };
        let place = place(&record);
        let is_told = record != *prior || self.open.contains(&planned.id);
        is_told.then(|| done(planned, Some(record), place))
    }

    /// The result where a resource cannot stay as it was planned to.
    fn not_left(&self, planned: &PlannedAction, prior: &StateResource, problem: Problem) -> ResourceResult {
        ResourceResult { resource: self.still_there(planned, Some(prior)), ..failed(planned, problem) }
    }

    /// Looks at what is to be left alone; as [`leave`](Self::leave) then. Nothing is told where the run is stopped before.
    pub(crate) async fn look(
        &self,
        planned: &PlannedAction,
        prior: &StateResource,
        unseen: &Unseen,
    ) -> Option<ResourceResult> {
        let _permit = self.permits.next().await;
        if self.is_stopped() {
            return None;
        }
        let told = Told::default();
        let limit = self.limit(planned, std::slice::from_ref(prior));
        match self.in_time(limit, self.seen(planned, prior, unseen, &told)).await {
            Ok(result) => result,
            Err(message) => {
                let problem = Problem::new(reason::TIMED_OUT, late(message, &told)).of(&planned.id);
                Some(self.not_left(planned, prior, problem))
            }
        }
    }

    async fn seen(
        &self,
        planned: &PlannedAction,
        prior: &StateResource,
        Unseen { ready, has_moved }: &Unseen,
        told: &Told,
    ) -> Option<ResourceResult> {
        if *has_moved {
            let problem = match self.why_changed(ready, prior, told).await {
                Ok(None) => None,
                Ok(Some(why)) => {
                    let message = format!("it was planned to stay as it is, and {why}; plan again");
                    Some(Problem::new(reason::STALE_PLAN, message).of(&planned.id))
                }
                Err(error) => Some(problem(&planned.id, &error, &ready.sensitive)),
            };
            if let Some(problem) = problem {
                return Some(self.not_left(planned, prior, problem));
            }
        }
        let record = if self.is_unsure(planned, prior) {
            match self.live_again(ready, prior).await {
                Some(live) => {
                    let (desired, resolved) = (&ready.desired, &ready.resolved);
                    let prior_alone = std::slice::from_ref(prior);
                    let record = StateResource::applied_over(prior_alone, desired, resolved, live, &self.keys);
                    record.adopted(prior.adopted).hiding(&self.values.secrets(), &self.keys)
                }
                // It stays unsure what is in it.
                None => prior.clone().under(planned.id.clone()).as_found(),
            }
        } else {
            self.as_applied(planned, prior, ready)
        };
        self.told_as(planned, prior, ready, record)
    }

    /// Why applying a resource may change something, if it may.
    async fn why_changed(
        &self,
        ready: &Ready,
        prior: &StateResource,
        told: &Told,
    ) -> Result<Option<String>, RuntimeError> {
        let sensitive = &ready.sensitive;
        let live = match retried(&self.stop, sensitive, told, || self.read(ready, Some(prior))).await? {
            Live::Present(live) => live,
            Live::Absent => return Ok(Some("it is not there any more".to_owned())),
            Live::Unverified(why) => return Ok(Some(unseen(&why))),
        };
        let request = ApplyRequest { keys: Some(&self.keys), ..ApplyRequest::new(&ready.desired, Some(prior)) };
        let preview = || self.runtime.preview(&request, Some(&live));
        let preview = retried(&self.stop, sensitive, told, preview).await?;
        let custom = Some(&ready.desired).filter(|desired| desired.needs_schema());
        let custom: Vec<_> = custom.into_iter().collect();
        let schemas = retried(&self.stop, sensitive, told, || self.runtime.schemas(&custom)).await?;
        let schema = schemas.get(&ready.desired.id).map(AsRef::as_ref);
        Ok(ready.why_changed(prior, &live, &preview, (&self.keys, schema)))
    }

    /// What is live of a resource that is wanted.
    async fn read(&self, ready: &Ready, prior: Option<&StateResource>) -> Result<Live, RuntimeError> {
        let request = [ReadRequest { desired: Some(&ready.desired), prior }];
        let mut found = self.runtime.read(&request).await?;
        found.pop().unwrap_or(Ok(Live::Absent))
    }

    /// The recorded object as it is live, if somebody can look and it is the same.
    async fn live_again(&self, ready: &Ready, prior: &StateResource) -> Option<Map<String, Value>> {
        match self.read(ready, Some(prior)).await {
            Ok(Live::Present(live)) if uid_of(&live) == prior.uid() => Some(live),
            Ok(Live::Present(_) | Live::Absent | Live::Unverified(_)) | Err(_) => None,
        }
    }

    /// Looks for what is to be left alone and is on no record any more, as where an earlier try brought another object to the id
    /// that it was recorded under. Nothing is told where the run is stopped before.
    pub(crate) async fn find(&self, planned: &PlannedAction) -> Option<ResourceResult> {
        let _permit = self.permits.next().await;
        if self.is_stopped() {
            return None;
        }
        let found = self.in_time(self.limit(planned, &[]), self.found(planned)).await;
        Some(found.unwrap_or_else(|message| failed(planned, Problem::new(reason::TIMED_OUT, message).of(&planned.id))))
    }

    async fn found(&self, planned: &PlannedAction) -> ResourceResult {
        let ready = match self.values.ready(&planned.id) {
            Ok(ready) => ready,
            Err(problem) => return failed(planned, problem),
        };
        let live = match self.read(&ready, None).await {
            Ok(Live::Present(live)) if self.runtime.owner().has(&live) => live,
            Ok(Live::Present(_) | Live::Absent | Live::Unverified(_)) => {
                let message =
                    "what was planned to stay is on no record any more, and nothing that is ours is there; plan again";
                return failed(planned, Problem::new(reason::STALE_PLAN, message).of(&planned.id));
            }
            Err(error) => return failed(planned, problem(&planned.id, &error, &ready.sensitive)),
        };
        self.values.settle(&planned.id, live.clone());
        let cluster = self.runtime.clusters().of_wanted(&ready.desired).to_owned();
        // Nobody knows any more what was applied of it, nor whether it was there before.
        let record = StateResource::applied(&ready.desired, &ready.resolved, live, &self.keys).as_found();
        let record = record.depending_on(planned.depends_on.clone()).in_cluster(cluster).adopted(true);
        let place = place(&record);
        done(planned, Some(record), place)
    }
}
