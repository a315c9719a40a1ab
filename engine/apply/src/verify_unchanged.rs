//! Records of Unchanged resources.
//!
//! Start at [`Caller::check_unchanged`], which decides whether a read is needed. [`Caller::read_unchanged`] makes that read as any other
//! call, with a permit and the timeout of the resource.

use serde_json::{Map, Value};
use stoa_engine::{PlannedAction, Problem, StateResource, moved::marked, object::uid_of, problem::reason};
use stoa_runtime::{Found, Live, ReadRequest, RuntimeError};

use crate::{
    call::Caller,
    observer::ResourceResult,
    planning::problem,
    results::{done, failed, kubernetes_object},
    retry::{RetryLog, retried, timeout_message},
    values::Ready,
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
    /// Whether a value that it refers to differs from the applied one.
    reference_changed: bool,
}

impl Caller {
    /// Decides about an Unchanged resource, and updates its record if needed. `prior` may be recorded under another id.
    pub(crate) fn check_unchanged(&self, planned: &PlannedAction, prior: &StateResource) -> Unchanged {
        let ready = match self.values.ready_to_record(&planned.id) {
            Ok(ready) => ready,
            // Under the id that it is recorded under it may be forgotten next.
            Err(problem) if prior.id != planned.id => return Unchanged::Report(Box::new(failed(planned, problem))),
            Err(_) => return Unchanged::AsRecorded,
        };
        let (is_as_applied, is_unsure) = (self.is_as_applied(planned, prior, &ready), self.is_unsure(planned, prior));
        let reference_changed = !is_as_applied && self.values.are_read();
        if reference_changed || (is_as_applied && is_unsure) {
            return Unchanged::Read(Box::new(PendingRead { ready, reference_changed }));
        }
        // The value may be the former one.
        let record =
            if is_as_applied { self.as_applied(planned, prior, &ready) } else { self.as_before(planned, prior) };
        let told = self.with_record(planned, prior, &ready, record);
        told.map_or(Unchanged::AsRecorded, |result| Unchanged::Report(Box::new(result)))
    }

    /// Whether a resource was applied with the values that its references have now.
    fn is_as_applied(&self, planned: &PlannedAction, prior: &StateResource, ready: &Ready) -> bool {
        let ways = || ready.sensitive.recorded_ways(prior.digest_id(), &ready.desired.attributes, &self.keys);
        // A provider has decided that the values are those that it applied.
        self.runtime.providers().decides(planned.kind)
            || !self.values.refers(&planned.id)
            || ways().contains(&prior.attributes)
    }

    /// Whether a lost call may have set untracked fields, or left another state of a provider.
    fn is_unsure(&self, planned: &PlannedAction, prior: &StateResource) -> bool {
        if self.runtime.providers().decides(planned.kind) {
            return self.open.contains(&planned.id);
        }
        !self.runtime.is_deferred(planned.kind) && self.may_hold_untracked(planned, std::slice::from_ref(prior))
    }

    /// The record of what is live as it is wanted.
    fn as_applied(&self, planned: &PlannedAction, prior: &StateResource, ready: &Ready) -> StateResource {
        let as_told = prior.clone().under(planned.id.clone());
        let attributes = ready.sensitive.recorded(as_told.digest_id(), &ready.resolved.attributes, &self.keys);
        StateResource { attributes, ..as_told }
    }

    /// The present record. Untracked fields stay possible.
    fn as_before(&self, planned: &PlannedAction, prior: &StateResource) -> StateResource {
        let record = prior.clone().under(planned.id.clone());
        if self.is_unsure(planned, prior) { record.as_found() } else { record }
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
            provider_version: self.runtime.providers().lock(&ready.desired).map(|lock| lock.version),
            // The last result has both, and not the record.
            finished: prior.finished,
            verified: prior.verified,
            ..record
        };
        let record = marked(record, planned.recorded_as.as_ref());
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
        pending: &PendingRead,
    ) -> Option<ResourceResult> {
        let _permit = self.permits.next().await;
        if self.is_stopped() {
            return None;
        }
        let told = RetryLog::default();
        let limit = self.limit(planned, std::slice::from_ref(prior));
        match self.in_time(limit, self.checked(planned, prior, pending, &told)).await {
            Ok(result) => result,
            Err(message) => {
                let problem = Problem::new(reason::TIMED_OUT, timeout_message(message, &told)).of(&planned.id);
                Some(self.failed_check(planned, prior, problem))
            }
        }
    }

    async fn checked(
        &self,
        planned: &PlannedAction,
        prior: &StateResource,
        PendingRead { ready, reference_changed }: &PendingRead,
        told: &RetryLog,
    ) -> Option<ResourceResult> {
        if self.runtime.providers().decides(planned.kind) {
            return self.renewed(planned, prior, ready, told).await;
        }
        if !reference_changed {
            // The values are as applied, so that an unreadable object only leaves untracked fields possible.
            let live = self.read(ready, prior).await.ok().and_then(|live| recorded_object(live, prior));
            let record =
                live.map_or_else(|| self.as_before(planned, prior), |live| self.read_record(prior, ready, live));
            return self.with_record(planned, prior, ready, record);
        }
        let (record, message) = match retried(&self.stop, &ready.sensitive, told, || self.read(ready, prior)).await {
            Err(error) => {
                let problem = problem(&planned.id, &error, &ready.sensitive);
                return Some(self.failed_check(planned, prior, problem));
            }
            Ok(Live::Absent) => {
                let message = "it was planned as Unchanged, but it no longer exists; plan again";
                let problem = Problem::new(reason::STALE_PLAN, message).of(&planned.id);
                return Some(self.failed_check(planned, prior, problem));
            }
            Ok(Live::Unverified(why)) => {
                let message =
                    format!("a value that it refers to has changed, but the live object cannot be read: {why}");
                (self.as_before(planned, prior), ready.sensitive.redact(&message))
            }
            Ok(Live::Present(live)) if ready.differs_from(prior, &live, &self.keys) => {
                (self.as_before(planned, prior), CHANGED_REFERENCE.to_owned())
            }
            // Others have applied the value.
            Ok(live) => {
                let live = recorded_object(live, prior).filter(|_| self.is_unsure(planned, prior));
                let record = live.map(|live| self.read_record(prior, ready, live));
                (record.unwrap_or_else(|| self.as_applied(planned, prior, ready)), String::new())
            }
        };
        match self.with_record(planned, prior, ready, record.clone()) {
            Some(result) => Some(ResourceResult { message, ..result }),
            None if message.is_empty() => None,
            // The record stays, and the message is reported.
            None => {
                let place = kubernetes_object(&record);
                Some(ResourceResult { message, ..done(planned, Some(record), place) })
            }
        }
    }

    /// The record of an object of a provider after a lost call, with the state that its provider has now.
    async fn renewed(
        &self,
        planned: &PlannedAction,
        prior: &StateResource,
        ready: &Ready,
        told: &RetryLog,
    ) -> Option<ResourceResult> {
        let find = async || self.runtime.inspect(&[prior]).await?.pop().unwrap_or(Ok(Found::Absent));
        match retried(&self.stop, &ready.sensitive, told, find).await {
            Ok(Found::Ours(applied)) => {
                let records = std::slice::from_ref(prior);
                let record = self.record(planned, (records, Some(prior)), ready, applied);
                self.with_record(planned, prior, ready, record)
            }
            Ok(Found::Absent | Found::Foreign | Found::Unknowable) => {
                let message = "it was planned as Unchanged, but it no longer exists; plan again";
                let problem = Problem::new(reason::STALE_PLAN, message).of(&planned.id);
                Some(self.failed_check(planned, prior, problem))
            }
            Err(error) => {
                let problem = problem(&planned.id, &error, &ready.sensitive);
                Some(self.failed_check(planned, prior, problem))
            }
        }
    }

    /// The record of a live object whose untracked fields are known.
    fn read_record(&self, prior: &StateResource, ready: &Ready, live: Map<String, Value>) -> StateResource {
        let (desired, resolved) = (&ready.desired, &ready.resolved);
        let record = StateResource::applied_over(std::slice::from_ref(prior), desired, resolved, live, &self.keys);
        record.adopted(prior.adopted).hiding(&self.values.secrets(), &self.keys)
    }

    /// The live object of a wanted resource.
    async fn read(&self, ready: &Ready, prior: &StateResource) -> Result<Live, RuntimeError> {
        let request = [ReadRequest { desired: Some(&ready.desired), prior: Some(prior) }];
        self.runtime.read(&request).await?.pop().unwrap_or(Ok(Live::Absent))
    }
}

/// The message of a resource whose reference has another value than at the time of the plan.
const CHANGED_REFERENCE: &str = "a value that it refers to has changed; start another Run";

/// The live object, if it is the recorded one.
fn recorded_object(live: Live, prior: &StateResource) -> Option<Map<String, Value>> {
    match live {
        Live::Present(live) if uid_of(&live) == prior.uid() => Some(live),
        Live::Present(_) | Live::Absent | Live::Unverified(_) => None,
    }
}
