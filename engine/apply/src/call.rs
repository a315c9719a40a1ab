//! Calls for one resource: apply, delete and replace, and the record that each leaves.
//!
//! Elsewhere: `retry` repeats failed calls, and `results` builds the reported results.

use std::{collections::HashSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use stoa_engine::forgotten_clusters::forgotten_message;
use stoa_engine::hook::LEFT_BY_POLICY;
use stoa_engine::import::{LEFT_AS_IMPORTED, Selection};
use stoa_engine::kind_rules::MayAccept;
use stoa_engine::moved::marked;
use stoa_engine::owner::LeftAlone;
use stoa_engine::plan::same_object_message;
use stoa_engine::timeout::timeout;
use stoa_engine::{
    Action, DigestKeys, ObjectRef, PlannedAction, Problem, Resource, ResourceId, ResourceType, Sensitive,
    StateResource, problem::reason, untracked,
};
use stoa_runtime::{
    Applied, ApplyRequest, Deleted, Grant, Health, KubernetesObject, Live, Preview, ReadRequest, Runtime, RuntimeError,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    importing::read_planned,
    observer::{ResourceOutcome, ResourceResult},
    permits::{Permit, Permits},
    planning::{exposure, problem},
    results::{done, failed, not_deleted, skipped},
    retry::{RetryLog, retried, timeout_message},
    values::{Ready, Values},
    verify,
};

/// How long a rejection is retried that an earlier change of the same walk may resolve: controllers update the status
/// of a quota, and API servers read new classes and policies, after a moment.
const LIFTED: Duration = Duration::from_secs(15);

/// The pause between two such tries.
const AGAIN: Duration = Duration::from_millis(250);

/// How long a request of a dropped call may still arrive. The server waits as long after the end of a call lease.
pub const MARGIN: Duration = Duration::from_secs(2);

/// The permit and the retry log of one resource's calls.
#[derive(Debug)]
struct Course {
    /// Given back while nothing is called for.
    permit: Permit,
    told: RetryLog,
}

/// What the calls of a walk need.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) values: Arc<Values>,
    /// One for each resource that may be called for at once.
    pub(crate) permits: Permits,
    /// The timeout of a resource without one of its own, from its first permit on, and that of a provider's resource.
    pub(crate) timeout: Duration,
    pub(crate) provider_timeout: Duration,
    /// No new try is begun when it fires.
    pub(crate) stop: CancellationToken,
    /// How long calls in flight may continue after that, and calls of providers.
    pub(crate) grace: Duration,
    pub(crate) provider_grace: Duration,
    /// The process ends when it fires, so that providers have no longer grace than others.
    pub(crate) shutdown: CancellationToken,
    /// Nothing is called for without it.
    pub(crate) grant: Grant,
    /// The keys of the digests of sensitive values in the state.
    pub(crate) keys: DigestKeys,
    /// Resources with lost calls, and those whose objects differ from their records. The observer needs a new result
    /// for each of them.
    pub(crate) open: HashSet<ResourceId>,
    /// The selection of an import.
    pub(crate) import: Option<Arc<Selection>>,
    /// Replacements whose new objects an earlier try seems to have created.
    pub(crate) made_anew: HashSet<ResourceId>,
    /// Which changes of the plan may lift a rejection.
    pub(crate) may_accept: Arc<dyn MayAccept>,
    /// When the last request of a dropped call may still arrive.
    pub(crate) on_the_way: Arc<Mutex<Option<Instant>>>,
}

/// A timeout and its end.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    length: Duration,
    end: Instant,
    /// How long the work may continue after the run was stopped.
    grace: Duration,
}

impl Caller {
    /// Whether nothing more may start.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_cancelled() || self.grant.check().is_err()
    }

    /// Carries out one action. `records` has what is recorded under its id, then what is under another.
    pub(crate) async fn call(&self, planned: &PlannedAction, records: &[StateResource]) -> ResourceResult {
        let course = Course { permit: self.permits.next().await, told: RetryLog::default() };
        if self.is_stopped() {
            return skipped(planned, "the run was stopped");
        }
        let limit = self.limit(planned, records);
        let mut result = match self.in_time(limit, self.attempt(planned, records, &course)).await {
            Ok(result) => result,
            Err(message) => {
                let problem = Problem::new(reason::TIMED_OUT, timeout_message(message, &course.told));
                self.unanswered(planned, problem.of(&planned.id))
            }
        };
        if result.outcome == ResourceOutcome::Done
            && let Some(problem) = self.establish(planned, limit, &course.permit).await
        {
            result.message = problem.message.clone();
            result.problem = Some(problem);
        }
        if result.outcome == ResourceOutcome::Failed && result.resource.is_none() {
            result.resource = self.still_there(planned, records.first());
        }
        result
    }

    /// The record of a resource whose action failed: an object of an earlier call still exists, whatever its fields.
    pub(crate) fn still_there(&self, planned: &PlannedAction, prior: Option<&StateResource>) -> Option<StateResource> {
        let is_it = |prior: &&StateResource| prior.id == planned.id && self.open.contains(&planned.id);
        prior.filter(is_it).cloned().map(StateResource::as_found)
    }

    /// The timeout of a resource: its wanted one, or else its recorded one.
    pub(crate) fn limit(&self, planned: &PlannedAction, records: &[StateResource]) -> Limit {
        let wanted = self.values.wanted(&planned.id).map(|wanted| (&wanted.extensions, &wanted.attributes));
        let said = wanted.or_else(|| records.first().map(|prior| (&prior.extensions, &prior.attributes)));
        let length = said.and_then(|(extensions, attributes)| timeout(extensions, attributes).ok()?);
        // A cloud may take long to create an object, and nobody can find out later what an abandoned call has made.
        let (timeout, grace) = match self.runtime.providers().decides(planned.kind) {
            true => (self.provider_timeout, self.provider_grace),
            false => (self.timeout, self.grace),
        };
        let length = length.unwrap_or(timeout);
        Limit { length, end: Instant::now() + length, grace }
    }

    /// Waits for some work, unless its timeout, the grace period of a stopped run, or the call lease ends: with that
    /// reason then.
    pub(crate) async fn in_time<T>(&self, limit: Limit, work: impl Future<Output = T>) -> Result<T, String> {
        let stopped = async {
            self.stop.cancelled().await;
            let stopped = Instant::now();
            let grace = match self.shutdown.run_until_cancelled(tokio::time::sleep(limit.grace)).await {
                Some(()) => limit.grace,
                None => limit.grace.min(self.grace),
            };
            tokio::time::sleep_until(stopped + grace).await;
            grace
        };
        let ended = async {
            tokio::select! {
                done = work => Ok(done),
                () = tokio::time::sleep_until(limit.end) => Err(format!("it took longer than {:?}", limit.length)),
                grace = stopped => Err(format!("the call was still running {grace:?} after the run was stopped")),
            }
        };
        match self.grant.during(ended).await {
            Ok(ended) => ended,
            Err(lapsed) => Err(format!("{lapsed} while the call was still running")),
        }
    }

    /// Waits until no request of a dropped call can arrive any more. After the end of the call lease, the server waits
    /// for that.
    pub(crate) async fn settle(&self) {
        let until = *self.on_the_way.lock();
        if let Some(until) = until {
            let _ = self.grant.during(tokio::time::sleep_until(until)).await;
        }
    }

    /// Waits until a definition that was applied is established, since its instances can be created only then. What
    /// is wrong if it is not: it was applied all the same.
    async fn establish(&self, planned: &PlannedAction, limit: Limit, permit: &Permit) -> Option<Problem> {
        if !planned.action.keeps() || !planned.action.is_call() || self.runtime.is_deferred(planned.kind) {
            return None;
        }
        let ready = self.values.ready(&planned.id).ok()?;
        if !ObjectRef::of(&ready.desired.attributes)?.is_custom_resource_definition() {
            return None;
        }
        permit.release();
        let unhealthy = |message: String| Some(Problem::new(reason::UNHEALTHY, message).of(&planned.id));
        let told = RetryLog::default();
        match self.in_time(limit, verify::wait(&*self.runtime, &ready, &|_, _| {}, &told)).await {
            Ok(Ok(Health::Failed)) => unhealthy("the cluster does not accept the definition".to_owned()),
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(problem(&planned.id, &error, &ready.sensitive)),
            Err(late) => {
                let because = told.take().map_or_else(String::new, |error| format!("; {error}"));
                unhealthy(format!("it was applied but is not established: {late}{because}"))
            }
        }
    }

    /// The result of a call without an answer: unknown, unless it is a read or the runtime is deferred.
    fn unanswered(&self, planned: &PlannedAction, problem: Problem) -> ResourceResult {
        let changes_nothing = planned.action == Action::Read || self.runtime.is_deferred(planned.kind);
        let outcome = if changes_nothing { ResourceOutcome::Failed } else { ResourceOutcome::Unknown };
        if outcome == ResourceOutcome::Unknown {
            *self.on_the_way.lock() = Some(Instant::now() + MARGIN);
        }
        ResourceResult { outcome, ..failed(planned, problem) }
    }

    /// The result of a failed call. A rejection answers its own try alone. A retryable error may hide that an earlier
    /// try took effect.
    fn refused(
        &self,
        planned: &PlannedAction,
        error: &RuntimeError,
        sensitive: &Sensitive,
        course: &Course,
    ) -> ResourceResult {
        let (problem, is_unanswered) = match error {
            RuntimeError::Terminating(_) if self.stop.is_cancelled() => incomplete_deletion(planned, &course.told),
            _ => {
                let is_unanswered = error.is_unanswered() || course.told.is_unanswered();
                (problem(&planned.id, error, sensitive), is_unanswered)
            }
        };
        if is_unanswered { self.unanswered(planned, problem) } else { failed(planned, problem) }
    }

    async fn attempt(&self, planned: &PlannedAction, records: &[StateResource], course: &Course) -> ResourceResult {
        match planned.action {
            Action::Forget => {
                let why = match &planned.owned_by {
                    Some(owner) => Some(LeftAlone::Owned(owner.clone()).to_string()),
                    None if planned.recreated => Some(LeftAlone::Recreated.to_string()),
                    None if planned.imported => Some(LEFT_AS_IMPORTED.to_owned()),
                    None if planned.kept_by_policy => Some(LEFT_BY_POLICY.to_owned()),
                    None if !planned.forgotten_clusters.is_empty() => {
                        Some(forgotten_message(&planned.forgotten_clusters))
                    }
                    None => self.why_not_deleted(planned, records.first()),
                };
                let forgotten = done(planned, None, None);
                match why {
                    Some(why) => not_deleted(forgotten, why),
                    None => forgotten,
                }
            }
            Action::Import => {
                let call = || read_planned(&*self.runtime, planned, self.import.as_deref(), &self.keys);
                match retried(&self.stop, &Sensitive::default(), &course.told, call).await {
                    Ok(Ok((record, found))) => {
                        let wanted = self.values.wanted(&planned.id);
                        let message = wanted.map(|wanted| warned(wanted, &found.warnings)).unwrap_or_default();
                        ResourceResult { message, ..done(planned, Some(record), found.kubernetes) }
                    }
                    Ok(Err(problem)) => failed(planned, problem),
                    // It changes nothing, so that no answer leaves nothing open.
                    Err(error) => failed(planned, problem(&planned.id, &error, &Sensitive::default())),
                }
            }
            Action::Delete if let Some(why) = self.why_not_deleted(planned, records.first()) => {
                not_deleted(done(planned, None, None), why)
            }
            Action::Delete => match self.delete(records, &Sensitive::default(), course).await {
                Ok(None) => done(planned, None, None),
                Ok(Some(why)) => not_deleted(done(planned, None, None), why.to_string()),
                Err(error) => self.refused(planned, &error, &Sensitive::default(), course),
            },
            Action::Read => match self.values.ready(&planned.id) {
                Ok(ready) => self.read_data_source(planned, &ready, course).await,
                Err(problem) => failed(planned, problem),
            },
            Action::Create | Action::Update | Action::Adopt | Action::Replace | Action::Unchanged => {
                match self.values.ready(&planned.id) {
                    Ok(ready) => self.bring(planned, records, &ready, course).await,
                    Err(problem) => failed(planned, problem),
                }
            }
        }
    }

    /// Whether an earlier call may have set untracked fields. An imported object has an owner annotation only after
    /// such a call.
    pub(crate) fn may_hold_untracked(&self, planned: &PlannedAction, records: &[StateResource]) -> bool {
        let is_open = self.open.contains(&planned.id);
        untracked::may_be_in(is_open || !planned.imported, is_open, records)
    }

    /// Why an object is not deleted that turns out to be that of a wanted resource, such as when two cluster names lead
    /// to one server that could not be read for the plan.
    fn why_not_deleted(&self, planned: &PlannedAction, prior: Option<&StateResource>) -> Option<String> {
        let kept = match prior.and_then(StateResource::uid) {
            Some(uid) => self.values.of_uid(uid).filter(|kept| *kept != planned.id),
            // Such as in Git.
            None => planned.kept_as.clone().filter(|_| !planned.action.keeps()),
        };
        kept.map(|wanted| same_object_message(&wanted))
    }

    /// The cluster that a resource is in which is left as it is: it was found where it is wanted, perhaps under another name
    /// than is recorded.
    pub(crate) fn cluster(&self, desired: &Resource, prior: &StateResource) -> String {
        match self.runtime.kubernetes().clusters() {
            clusters if clusters.is_empty() || desired.kind != ResourceType::Kubernetes => prior.cluster.clone(),
            clusters => clusters.of_wanted(desired).to_owned(),
        }
    }

    /// Deletes an object by the record that identifies it. Returns why it stays, if it does.
    async fn delete(
        &self,
        records: &[StateResource],
        sensitive: &Sensitive,
        course: &Course,
    ) -> Result<Option<LeftAlone>, RuntimeError> {
        // An object without a record was deleted by an earlier try.
        let mut outcome = Ok(Deleted::Gone);
        for record in records {
            outcome = retried(&self.stop, sensitive, &course.told, || self.runtime.delete(record)).await;
            if !matches!(outcome, Err(RuntimeError::Conflict(_)) | Ok(Deleted::Left(LeftAlone::Recreated))) {
                break;
            }
        }
        match outcome? {
            Deleted::Gone => Ok(None),
            Deleted::Left(why) => Ok(Some(why)),
            Deleted::Terminating(object) => {
                // The request for deletion has arrived.
                course.told.take();
                self.wait_deleted(&object, sensitive, course).await.map(|()| None)
            }
        }
    }

    /// Waits until an object is deleted, and restarts the wait after errors. Its permit is returned meanwhile. A
    /// stopped run ends the wait with [`RuntimeError::Terminating`].
    async fn wait_deleted(
        &self,
        object: &KubernetesObject,
        sensitive: &Sensitive,
        course: &Course,
    ) -> Result<(), RuntimeError> {
        course.permit.release();
        let report = |held: &str| course.told.note_deletion(sensitive.redact(held));
        let waited = async {
            loop {
                match self.runtime.wait_deleted(object, &report).await {
                    Ok(()) => {
                        // No request is pending.
                        course.told.take();
                        return Ok(());
                    }
                    Err(error) if error.is_retryable() => {
                        course.told.note_deletion(sensitive.redact(&error.to_string()));
                        tokio::time::sleep(verify::AGAIN).await;
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        let ended = self.stop.run_until_cancelled(waited).await;
        ended.unwrap_or_else(|| Err(RuntimeError::Terminating(Box::new(object.clone()))))
    }

    /// Deletes the object that a replacement replaces, unless an earlier try did and created the new one. Returns the
    /// new object, or why the old one stays.
    async fn make_way<'a>(
        &self,
        planned: &PlannedAction,
        records: &'a [StateResource],
        ready: &Ready,
        course: &Course,
    ) -> Result<(Option<&'a StateResource>, Option<String>), RuntimeError> {
        let sensitive = &ready.sensitive;
        if let Some(made) = records.first().filter(|record| self.made_anew.contains(&record.id)) {
            let request = self.request(planned, ready, Some(made));
            let call = || self.runtime.preview(&request, None);
            let preview = retried(&self.stop, sensitive, &course.told, call).await?;
            // An earlier lost call may have created the object that is to be replaced.
            if !matches!(preview, Preview::Replaced(_)) {
                return Ok((Some(made), None));
            }
        }
        if let Some(prior) =
            records.first().filter(|it| it.kind == planned.kind && self.runtime.providers().decides(it.kind))
        {
            self.check_replacement(planned, prior, ready, course).await?;
        }
        let why_not_deleted = |record: &StateResource| self.why_not_deleted(planned, Some(record));
        let kept = records.iter().find_map(why_not_deleted);
        let records = records.iter().filter(|record| why_not_deleted(record).is_none());
        // An object of another deployment is rejected by the apply.
        let records: Vec<StateResource> = records.map(|record| record.replaced_by(&ready.desired)).collect();
        let left = self.delete(&records, sensitive, course).await?;
        Ok((None, kept.or(left.map(|why| why.to_string()))))
    }

    /// Rejects a replacement, before the deletion, that its provider now plans otherwise than it was approved.
    async fn check_replacement(
        &self,
        planned: &PlannedAction,
        prior: &StateResource,
        ready: &Ready,
        course: &Course,
    ) -> Result<(), RuntimeError> {
        let Ready { desired, sensitive, .. } = ready;
        let read = async || {
            let request = [ReadRequest { desired: Some(desired), prior: Some(prior) }];
            self.runtime.read(&request).await?.pop().unwrap_or(Ok(Live::Absent))
        };
        let live = retried(&self.stop, sensitive, &course.told, read).await.map_err(RuntimeError::before_a_change)?;
        // An earlier try has deleted it.
        let Live::Present(live) = live else { return Ok(()) };
        let changes = planned.unverified.is_none().then_some(&*planned.changes);
        let request = ApplyRequest { changes, ..self.request(planned, ready, Some(prior)) };
        let preview = retried(&self.stop, sensitive, &course.told, || self.runtime.preview(&request, Some(&live)));
        let Preview::Planned(plan) = preview.await.map_err(RuntimeError::before_a_change)? else { return Ok(()) };
        if plan.action != Action::Replace {
            return Err(RuntimeError::Stale("the change no longer needs another object; plan again".to_owned()));
        }
        request.check_plan(&plan, Some(&live), &self.runtime.providers().sensitive_paths(desired, &live))
    }

    /// Applies the resource once no terminating object is in its way.
    async fn apply(
        &self,
        request: &ApplyRequest<'_>,
        sensitive: &Sensitive,
        course: &Course,
    ) -> Result<Applied, RuntimeError> {
        let mut rejected_until = None;
        loop {
            course.permit.reacquire().await;
            match retried(&self.stop, sensitive, &course.told, || self.runtime.apply(request)).await {
                Err(RuntimeError::Terminating(object)) => self.wait_deleted(&object, sensitive, course).await?,
                Err(error) if self.may_be_accepted_later(request, &error) => {
                    let until = *rejected_until.get_or_insert_with(|| Instant::now() + LIFTED);
                    if Instant::now() >= until {
                        return Err(error);
                    }
                    course.permit.release();
                    if self.stop.run_until_cancelled(tokio::time::sleep(AGAIN)).await.is_none() {
                        return Err(error);
                    }
                }
                applied => return applied,
            }
        }
    }

    /// Whether another change of the plan may resolve a rejection once the server knows of it.
    fn may_be_accepted_later(&self, request: &ApplyRequest<'_>, error: &RuntimeError) -> bool {
        let RuntimeError::Rejected { message, .. } = error else { return false };
        !self.may_accept.after(request.desired, message).is_empty()
    }

    /// Reads a data source, so that others can refer to it. Nothing is recorded.
    async fn read_data_source(&self, planned: &PlannedAction, ready: &Ready, course: &Course) -> ResourceResult {
        let request = self.request(planned, ready, None);
        match self.apply(&request, &ready.sensitive, course).await {
            Ok(applied) => {
                self.values.settle(&planned.id, applied.live);
                ResourceResult { message: warned(&ready.desired, &applied.warnings), ..done(planned, None, None) }
            }
            Err(error) => failed(planned, problem(&planned.id, &error, &ready.sensitive)),
        }
    }

    async fn bring(
        &self,
        planned: &PlannedAction,
        records: &[StateResource],
        ready: &Ready,
        course: &Course,
    ) -> ResourceResult {
        let sensitive = &ready.sensitive;
        if !self.runtime.accepts_sensitive(planned.kind)
            && let Some(problem) = exposure(&ready.desired, &ready.desired.attributes, sensitive)
        {
            return failed(planned, problem);
        }
        let (prior, left) = match planned.action {
            Action::Replace => match self.make_way(planned, records, ready, course).await {
                Ok(way) => way,
                Err(error) => return self.refused(planned, &error, sensitive, course),
            },
            _ => (records.first(), None),
        };
        match self.apply(&self.request(planned, ready, prior), sensitive, course).await {
            Ok(applied) => {
                self.values.settle(&planned.id, applied.live.clone());
                let left = left.map(|why| format!("in its former location: {why}"));
                let warned = Some(warned(&ready.desired, &applied.warnings)).filter(|warned| !warned.is_empty());
                let message = left.into_iter().chain(warned).collect::<Vec<_>>().join("; ");
                let kubernetes = applied.kubernetes.clone();
                let record = self.record(planned, (records, prior), ready, applied);
                ResourceResult { message, ..done(planned, Some(record), kubernetes) }
            }
            Err(RuntimeError::Partial { message, field, applied }) => {
                let problem = Problem::new(reason::REJECTED, sensitive.redact(&message)).of(&planned.id);
                let record = self.record(planned, (records, prior), ready, *applied);
                let problem = problem.at(field.unwrap_or_default());
                ResourceResult { resource: Some(record), ..failed(planned, problem) }
            }
            Err(error) => self.refused(planned, &error, sensitive, course),
        }
    }

    /// The record of a resource after an apply. `records` has what is recorded, and the record that counts.
    pub(crate) fn record(
        &self,
        planned: &PlannedAction,
        (records, prior): (&[StateResource], Option<&StateResource>),
        ready: &Ready,
        applied: Applied,
    ) -> StateResource {
        let cluster = applied.kubernetes.as_ref().map(|object| object.cluster.clone()).unwrap_or_default();
        let (desired, mut resolved) = (&ready.desired, ready.resolved.clone());
        resolved.sensitive.extend(self.runtime.providers().sensitive_paths(desired, &applied.live));
        let record = StateResource::applied_over(records, desired, &resolved, applied.live, &self.keys);
        let record = record.depending_on(planned.depends_on.clone()).in_cluster(cluster);
        let provider_version = self.runtime.providers().lock(desired).map(|lock| lock.version);
        let record = StateResource { provider_state: applied.provider_state, provider_version, ..record };
        let record = record.adopted(is_adopted(planned, prior));
        // A recreated object has nothing of the former one.
        let is_new = match planned.action {
            Action::Replace => prior.is_none() && !planned.takes_over,
            action => action == Action::Create,
        };
        let record = marked(record, planned.recorded_as.as_ref());
        let is_unsure = !is_new && self.may_hold_untracked(planned, records);
        if is_unsure { record.hiding(&self.values.secrets(), &self.keys) } else { record }
    }

    /// Asks for what is wanted, as it was planned.
    fn request<'a>(
        &'a self,
        planned: &'a PlannedAction,
        ready: &'a Ready,
        prior: Option<&'a StateResource>,
    ) -> ApplyRequest<'a> {
        // A recreated object has nothing of the compared one.
        let is_shown = planned.unverified.is_none() && planned.action != Action::Replace;
        ApplyRequest {
            adopt: planned.action == Action::Adopt,
            changes: is_shown.then_some(&*planned.changes),
            // The replaced object is deleted by now, unless the plan found one at the new location.
            create: planned.action == Action::Create || (planned.action == Action::Replace && !planned.takes_over),
            // Without a dry run, the managers are unknown.
            taken: planned.unverified.is_none().then_some(&*planned.taken),
            sensitive: Some(&ready.sensitive),
            keys: Some(&self.keys),
            // An object that others created in place of the recorded one has nothing of the record.
            ..ApplyRequest::new(&ready.desired, prior.filter(|_| !planned.recreated))
        }
    }
}

/// The warnings of a provider about a resource, which the log of a run shows with the lines of the source.
fn warned(resource: &Resource, warnings: &[String]) -> String {
    let at = resource.origin().map(|origin| format!(" about {origin}")).unwrap_or_default();
    let all = warnings.iter().map(|warning| format!("the provider warns{at}: {warning}"));
    all.collect::<Vec<_>>().join("; ")
}

/// The problem of a deletion that was not complete when the run was stopped, and whether a request may still arrive.
fn incomplete_deletion(planned: &PlannedAction, told: &RetryLog) -> (Problem, bool) {
    let may_arrive = told.may_arrive();
    let what = if planned.action == Action::Delete { "it" } else { "the existing object" };
    let message = timeout_message(format!("the run was stopped before {what} was deleted"), told);
    (Problem::new(reason::TIMED_OUT, message).of(&planned.id), may_arrive)
}

/// Whether the object existed before its first apply.
fn is_adopted(planned: &PlannedAction, prior: Option<&StateResource>) -> bool {
    match planned.action {
        Action::Adopt => true,
        Action::Replace => planned.takes_over,
        Action::Create => false,
        Action::Update | Action::Unchanged | Action::Import | Action::Read | Action::Delete | Action::Forget => {
            prior.is_some_and(|prior| prior.adopted)
        }
    }
}
