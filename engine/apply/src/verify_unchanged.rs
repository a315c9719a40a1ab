//! Records of Unchanged resources.
//!
//! Start at [`Caller::check_unchanged`], which decides whether a read is needed. [`Caller::read_unchanged`] makes that read as any other
//! call, with a permit and the timeout of the resource.

use serde_json::{Map, Value};
use stoa_engine::{PlannedAction, StateResource, object::uid_of};
use stoa_runtime::{Live, ReadRequest};

use crate::{
    call::Caller,
    observer::ResourceResult,
    results::{done, failed, kubernetes_object},
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
    Read(Box<Ready>),
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
        let record = match (self.is_as_applied(planned, prior, &ready), self.is_unsure(planned, prior)) {
            (true, false) => self.as_applied(planned, prior, &ready),
            (true, true) => return Unchanged::Read(Box::new(ready)),
            (false, false) if self.values.are_read() => return Unchanged::Read(Box::new(ready)),
            (false, false) => prior.clone().under(planned.id.clone()),
            // The value may be the former one. Other untracked fields are possible.
            (false, true) => prior.clone().under(planned.id.clone()).as_found(),
        };
        let told = self.with_record(planned, prior, &ready, record);
        told.map_or(Unchanged::AsRecorded, |result| Unchanged::Report(Box::new(result)))
    }

    /// Whether a resource was applied with the values that its references have now.
    fn is_as_applied(&self, planned: &PlannedAction, prior: &StateResource, ready: &Ready) -> bool {
        let ways = || ready.sensitive.recorded_ways(prior.digest_id(), &ready.desired.attributes, &self.keys);
        !self.values.refers(&planned.id) || ways().contains(&prior.attributes)
    }

    /// Whether a lost call may have set untracked fields.
    fn is_unsure(&self, planned: &PlannedAction, prior: &StateResource) -> bool {
        !self.runtime.is_deferred() && self.may_hold_untracked(planned, std::slice::from_ref(prior))
    }

    /// The record of what is live as it is wanted.
    fn as_applied(&self, planned: &PlannedAction, prior: &StateResource, ready: &Ready) -> StateResource {
        let as_told = prior.clone().under(planned.id.clone());
        let attributes = ready.sensitive.recorded(as_told.digest_id(), &ready.desired.attributes, &self.keys);
        StateResource { attributes, ..as_told }
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

    /// Reads an Unchanged resource; then as [`check_unchanged`](Self::check_unchanged). `None` when the run is stopped before.
    pub(crate) async fn read_unchanged(
        &self,
        planned: &PlannedAction,
        prior: &StateResource,
        ready: &Ready,
    ) -> Option<ResourceResult> {
        let _permit = self.permits.next().await;
        if self.is_stopped() {
            return None;
        }
        let limit = self.limit(planned, std::slice::from_ref(prior));
        let live = self.in_time(limit, self.recorded_live(ready, prior)).await.ok().flatten();
        let record = match live {
            Some(live) if self.is_unsure(planned, prior) => {
                let (desired, resolved) = (&ready.desired, &ready.resolved);
                let prior_alone = std::slice::from_ref(prior);
                let record = StateResource::applied_over(prior_alone, desired, resolved, live, &self.keys);
                record.adopted(prior.adopted).hiding(&self.values.secrets(), &self.keys)
            }
            // Others have applied the value.
            Some(live) if !ready.differs_from(prior, &live, &self.keys) => self.as_applied(planned, prior, ready),
            // Untracked fields stay possible.
            None if self.is_unsure(planned, prior) => prior.clone().under(planned.id.clone()).as_found(),
            // The next plan shows the value.
            Some(_) | None => prior.clone().under(planned.id.clone()),
        };
        self.with_record(planned, prior, ready, record)
    }

    /// The live object, if it is readable and the recorded one.
    async fn recorded_live(&self, ready: &Ready, prior: &StateResource) -> Option<Map<String, Value>> {
        let request = [ReadRequest { desired: Some(&ready.desired), prior: Some(prior) }];
        match self.runtime.read(&request).await.ok()?.pop()? {
            Ok(Live::Present(live)) if uid_of(&live) == prior.uid() => Some(live),
            Ok(Live::Present(_) | Live::Absent | Live::Unverified(_)) | Err(_) => None,
        }
    }
}
