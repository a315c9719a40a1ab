//! Verification of Unchanged resources: whether a resource is still as planned, and its record.
//!
//! Start at [`Caller::check_unchanged`], which decides whether a read is needed. [`Caller::read_unchanged`] makes that read as any other
//! call, with a permit and the timeout of the resource.

use serde_json::{Map, Value};
use stoa_engine::{PlannedAction, Problem, StateResource, object::uid_of, path::is_same_but, problem::reason};
use stoa_runtime::{ApplyRequest, Live, ReadRequest, RuntimeError};

use crate::{
    call::Caller,
    observer::ResourceResult,
    planning::problem,
    results::{done, failed, kubernetes_object},
    retry::{RetryLog, retried, timeout_message},
    values::{Ready, unreadable_reference},
};

/// How an Unchanged resource is handled.
#[derive(Debug)]
pub(crate) enum Unchanged {
    /// Its record is up to date.
    AsRecorded,
    /// Its result has to be reported.
    Report(Box<ResourceResult>),
    /// Its live object has to be read first.
    Read(Box<PendingRead>),
}

/// An Unchanged resource to read.
#[derive(Debug)]
pub(crate) struct PendingRead {
    ready: Ready,
    /// Whether a referenced value may have changed since the last apply.
    reference_changed: bool,
}

/// How a wanted resource compares with its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Applied,
    /// A referenced value may differ from the applied one.
    ReferenceChanged,
    /// The same only for volatile fields, so that the applied value is as good.
    VolatileChanged,
}

impl Caller {
    /// Decides about an Unchanged resource, and updates its record if needed. `prior` may be recorded under another id.
    pub(crate) fn check_unchanged(&self, planned: &PlannedAction, prior: &StateResource) -> Unchanged {
        let ready = match self.values.ready(&planned.id) {
            Ok(ready) => ready,
            // Under the id that it is recorded under it may be forgotten next.
            Err(problem) if prior.id != planned.id => return Unchanged::Report(Box::new(failed(planned, problem))),
            Err(_) => return Unchanged::AsRecorded,
        };
        let comparison = self.compare(planned, prior, &ready);
        let reference_changed = comparison == Comparison::ReferenceChanged && self.values.are_read();
        if reference_changed || comparison == Comparison::Applied && self.is_unsure(planned, prior) {
            return Unchanged::Read(Box::new(PendingRead { ready, reference_changed }));
        }
        let record = match comparison {
            Comparison::Applied => self.as_applied(planned, prior, &ready),
            // The value may be the former one. Other untracked fields are possible.
            Comparison::ReferenceChanged | Comparison::VolatileChanged if self.is_unsure(planned, prior) => {
                prior.clone().under(planned.id.clone()).as_found()
            }
            Comparison::ReferenceChanged | Comparison::VolatileChanged => prior.clone().under(planned.id.clone()),
        };
        let told = self.with_record(planned, prior, &ready, record);
        told.map_or(Unchanged::AsRecorded, |result| Unchanged::Report(Box::new(result)))
    }

    fn compare(&self, planned: &PlannedAction, prior: &StateResource, ready: &Ready) -> Comparison {
        let wanted = &ready.desired.attributes;
        if !self.values.refers(&planned.id) {
            return Comparison::Applied;
        }
        let recorded = ready.sensitive.recorded_ways(prior.digest_id(), wanted, &self.keys);
        if recorded.contains(&prior.attributes) {
            return Comparison::Applied;
        }
        let moving = self.values.moving(&planned.id);
        let is_same = |recorded: &Map<String, Value>| is_same_but(&moving, recorded, &prior.attributes);
        if !moving.is_empty() && recorded.iter().any(is_same) {
            Comparison::VolatileChanged
        } else {
            Comparison::ReferenceChanged
        }
    }

    /// Whether a lost call may have set untracked fields.
    fn is_unsure(&self, planned: &PlannedAction, prior: &StateResource) -> bool {
        !self.runtime.is_deferred() && self.may_hold_untracked(planned, std::slice::from_ref(prior))
    }

    /// The record of what is live as it is wanted.
    fn as_applied(&self, planned: &PlannedAction, prior: &StateResource, ready: &Ready) -> StateResource {
        let as_told = prior.clone().under(planned.id.clone());
        let attributes = ready.sensitive.recorded(as_told.digest_id(), &ready.desired.attributes, &self.keys);
        let live = self.keys.rekeyed(as_told.digest_id(), prior.live.clone());
        StateResource { attributes, live, ..as_told }
    }

    /// The result with a record, unless that is what is recorded.
    fn with_record(
        &self,
        planned: &PlannedAction,
        prior: &StateResource,
        ready: &Ready,
        record: StateResource,
    ) -> Option<ResourceResult> {
        let record = StateResource {
            depends_on: planned.depends_on.clone(),
            extensions: ready.desired.recorded_extensions(),
            cluster: self.cluster(&ready.desired, prior),
            ..record
        };
        let place = kubernetes_object(&record);
        let is_told = record != *prior || self.open.contains(&planned.id);
        is_told.then(|| done(planned, Some(record), place))
    }

    /// The result of a resource that is not as planned.
    fn failed_check(&self, planned: &PlannedAction, prior: &StateResource, problem: Problem) -> ResourceResult {
        ResourceResult { resource: self.still_there(planned, Some(prior)), ..failed(planned, problem) }
    }

    /// Reads an Unchanged resource; then as [`check_unchanged`](Self::check_unchanged). `None` when the run is stopped before.
    pub(crate) async fn read_unchanged(
        &self,
        planned: &PlannedAction,
        prior: &StateResource,
        unseen: &PendingRead,
    ) -> Option<ResourceResult> {
        let _permit = self.permits.next().await;
        if self.is_stopped() {
            return None;
        }
        let told = RetryLog::default();
        let limit = self.limit(planned, std::slice::from_ref(prior));
        match self.in_time(limit, self.seen(planned, prior, unseen, &told)).await {
            Ok(result) => result,
            Err(message) => {
                let problem = Problem::new(reason::TIMED_OUT, timeout_message(message, &told)).of(&planned.id);
                Some(self.failed_check(planned, prior, problem))
            }
        }
    }

    async fn seen(
        &self,
        planned: &PlannedAction,
        prior: &StateResource,
        PendingRead { ready, reference_changed }: &PendingRead,
        told: &RetryLog,
    ) -> Option<ResourceResult> {
        if *reference_changed {
            let problem = match self.why_changed(ready, prior, told).await {
                Ok(None) => None,
                Ok(Some(why)) => {
                    let message = format!("it was planned as Unchanged, but {why}; plan again");
                    Some(Problem::new(reason::STALE_PLAN, message).of(&planned.id))
                }
                Err(error) => Some(problem(&planned.id, &error, &ready.sensitive)),
            };
            if let Some(problem) = problem {
                return Some(self.failed_check(planned, prior, problem));
            }
        }
        let record = if self.is_unsure(planned, prior) {
            match self.recorded_live(ready, prior).await {
                Some(live) => {
                    let (desired, resolved) = (&ready.desired, &ready.resolved);
                    let prior_alone = std::slice::from_ref(prior);
                    let record = StateResource::applied_over(prior_alone, desired, resolved, live, &self.keys);
                    record.adopted(prior.adopted).hiding(&self.values.secrets(), &self.keys)
                }
                // Untracked fields stay possible.
                None => prior.clone().under(planned.id.clone()).as_found(),
            }
        } else {
            self.as_applied(planned, prior, ready)
        };
        self.with_record(planned, prior, ready, record)
    }

    /// Why applying a resource may change something, if it may.
    async fn why_changed(
        &self,
        ready: &Ready,
        prior: &StateResource,
        told: &RetryLog,
    ) -> Result<Option<String>, RuntimeError> {
        let sensitive = &ready.sensitive;
        let live = match retried(&self.stop, sensitive, told, || self.read(ready, Some(prior))).await? {
            Live::Present(live) => live,
            Live::Absent => return Ok(Some("it no longer exists".to_owned())),
            Live::Unverified(why) => return Ok(Some(unreadable_reference(&why))),
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

    /// The live object of a wanted resource.
    async fn read(&self, ready: &Ready, prior: Option<&StateResource>) -> Result<Live, RuntimeError> {
        let request = [ReadRequest { desired: Some(&ready.desired), prior }];
        let mut found = self.runtime.read(&request).await?;
        found.pop().unwrap_or(Ok(Live::Absent))
    }

    /// The live object, if it is readable and the recorded one.
    async fn recorded_live(&self, ready: &Ready, prior: &StateResource) -> Option<Map<String, Value>> {
        match self.read(ready, Some(prior)).await {
            Ok(Live::Present(live)) if uid_of(&live) == prior.uid() => Some(live),
            Ok(Live::Present(_) | Live::Absent | Live::Unverified(_)) | Err(_) => None,
        }
    }

    /// Reads an Unchanged resource that has no record any more, such as after an earlier try gave its record to another
    /// id. `None` when the run is stopped before.
    pub(crate) async fn find_unrecorded(&self, planned: &PlannedAction) -> Option<ResourceResult> {
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
                let message = "it was planned as Unchanged, but its record and live object are gone; plan again";
                return failed(planned, Problem::new(reason::STALE_PLAN, message).of(&planned.id));
            }
            Err(error) => return failed(planned, problem(&planned.id, &error, &ready.sensitive)),
        };
        self.values.settle(&planned.id, live.clone());
        let cluster = self.runtime.clusters().of_wanted(&ready.desired).to_owned();
        // Neither the applied fields nor an adoption are known any more.
        let record = StateResource::applied(&ready.desired, &ready.resolved, live, &self.keys).as_found();
        let record = record.depending_on(planned.depends_on.clone()).in_cluster(cluster).adopted(true);
        let place = kubernetes_object(&record);
        done(planned, Some(record), place)
    }
}
