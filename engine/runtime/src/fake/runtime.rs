//! Runtimes over a [`FakeCloud`].

use std::collections::{BTreeMap, HashSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::{Map, Value};
use stoa_engine::object::{is_terminating, uid_of};
use stoa_engine::owner::{LeftAlone, take_over_from};
use stoa_engine::spec::RECREATE;
use stoa_engine::{
    Clusters, FieldConflict, KindRules, Live, ObjectRef, Owner, Preview, Resource, ResourceId, ResourceType,
    StateResource,
};
use stoa_kubernetes_model::{Cascade, ForeignContents, KubernetesRules, no_clusters};

use super::{FINISH, FakeCloud, ObjectKey, Operation, Stored};
use crate::{
    Applied, ApplyRequest, Deleted, DeletionReport, DeletionVerdict, Finished, Found, Grant, Health, HealthReport,
    JobEnd, KubernetesChecks, KubernetesObject, Proposal, ProposalState, ReadRequest, Runtime, RuntimeError,
    TERMINATING, Validation,
};

/// A runtime over a [`FakeCloud`].
#[derive(Clone, Debug)]
pub struct FakeRuntime {
    cloud: FakeCloud,
    owner: Owner,
    /// Changes of a deferred runtime; `None` for any other one.
    deferred: Option<Arc<Mutex<Gathered>>>,
    accepts_sensitive: bool,
    /// Its destination, if set.
    place: Option<String>,
    validation: Validation,
}

#[derive(Debug, Default)]
struct Gathered {
    changes: BTreeMap<ResourceId, Change>,
    finished: Finished,
}

#[derive(Debug)]
enum Change {
    /// An object to store, and the owner that it may be taken over from.
    Store(Stored, Option<String>),
    /// An object to delete, by its record.
    Remove(Box<StateResource>),
}

impl FakeRuntime {
    pub(super) fn new(cloud: FakeCloud, owner: Owner) -> Self {
        Self { cloud, owner, deferred: None, accepts_sensitive: true, place: None, validation: Validation::default() }
    }

    fn gather(&self, id: &ResourceId, change: Change) -> bool {
        let Some(gathered) = &self.deferred else { return false };
        gathered.lock().unwrap_or_else(PoisonError::into_inner).changes.insert(id.clone(), change);
        true
    }

    /// The same for another deployment.
    #[must_use]
    pub fn of(self, owner: Owner) -> Self {
        Self { owner, ..self }
    }

    /// The other deployment that has what is live.
    fn other(&self, place: &ObjectKey) -> Option<String> {
        self.owner.other(&self.cloud.at(place)?)
    }

    fn foreign_contents_of(&self, contents: &Cascade) -> ForeignContents {
        let mut foreign = ForeignContents::default();
        let cloud = self.cloud.lock();
        let objects = cloud.live.values().map(|Stored { object, .. }| object).filter(|object| contents.has(object));
        objects.filter_map(|object| contents.foreign(&self.owner, object)).for_each(|object| foreign.add(object));
        foreign
    }

    /// Refuses to delete what others own something in.
    fn guard_contents(&self, prior: &StateResource, live: &Map<String, Value>) -> Result<(), RuntimeError> {
        let refusal =
            Cascade::of(prior, Some(live)).and_then(|contents| self.foreign_contents_of(&contents).refusal(prior));
        refusal.map_or(Ok(()), |refusal| Err(RuntimeError::ForeignContents(refusal)))
    }

    /// Refuses what another deployment has.
    fn guard(&self, place: &ObjectKey, from: Option<&str>) -> Result<(), RuntimeError> {
        let live = self.cloud.at(place);
        live.map_or(Ok(()), |live| RuntimeError::check_owner(&self.owner, from, &live))
    }

    /// The fields that are taken from others; refuses what is not to be taken.
    fn taken(&self, request: &ApplyRequest<'_>, merged: &Stored) -> Result<Vec<FieldConflict>, RuntimeError> {
        let conflicts = self.cloud.contested(merged);
        if conflicts.is_empty() || request.takes(&conflicts) {
            return Ok(conflicts);
        }
        let managers: Vec<&str> = conflicts.iter().map(|conflict| conflict.manager.as_str()).collect();
        Err(RuntimeError::Conflict(format!("fields are managed by {}", managers.join(", "))))
    }

    /// The same as a deferred runtime: [`finish`](Runtime::finish) makes the changes.
    #[must_use]
    pub fn deferred(self) -> Self {
        Self { deferred: Some(Arc::default()), ..self }
    }

    /// The same with the validation of a deferred runtime.
    #[must_use]
    pub fn validated(self, validation: Validation) -> Self {
        Self { validation, ..self }
    }

    /// The same at another destination.
    #[must_use]
    pub fn at(self, place: &str) -> Self {
        Self { place: Some(place.to_owned()), ..self }
    }

    /// The same without sensitive values.
    #[must_use]
    pub fn in_the_open(self) -> Self {
        Self { accepts_sensitive: false, ..self }
    }
}

/// The object in the requested version.
fn served(mut object: Map<String, Value>, asked: &Map<String, Value>) -> Map<String, Value> {
    if let Some(version) = asked.get("apiVersion") {
        object.insert("apiVersion".to_owned(), version.clone());
    }
    object
}

/// The identity of an object.
fn object_of(attributes: &Map<String, Value>) -> Option<KubernetesObject> {
    let ObjectRef { group, version, kind, namespace, name } = ObjectRef::of(attributes)?;
    let uid = uid_of(attributes).unwrap_or_default().to_owned();
    Some(KubernetesObject { cluster: "fake".to_owned(), group, version, kind, namespace, name, uid })
}

fn fixed() -> RuntimeError {
    RuntimeError::Rejected { message: "the field is immutable".to_owned(), field: None, by_definition: false }
}

fn check(resource: &Resource) -> Result<ObjectRef, RuntimeError> {
    ObjectRef::of(&resource.attributes).ok_or_else(|| RuntimeError::Invalid {
        message: "an object needs apiVersion, kind and metadata.name".to_owned(),
        field: Some("attributes".to_owned()),
    })
}

#[async_trait]
impl Runtime for FakeRuntime {
    fn owner(&self) -> &Owner {
        &self.owner
    }

    fn destinations(&self) -> BTreeMap<String, String> {
        self.place.iter().map(|place| (String::new(), place.clone())).collect()
    }

    fn kubernetes(&self) -> &dyn KubernetesChecks {
        self
    }

    fn is_deferred(&self, _: ResourceType) -> bool {
        self.deferred.is_some()
    }

    fn accepts_sensitive(&self, _: ResourceType) -> bool {
        self.accepts_sensitive
    }

    async fn read(&self, requests: &[ReadRequest<'_>]) -> Result<Vec<Result<Live, RuntimeError>>, RuntimeError> {
        let read = requests.iter().map(|request| {
            self.cloud.begin(Operation::Read, request.id())?;
            let attributes = request.desired.map(|it| &it.attributes).or(request.prior.map(|it| &it.attributes));
            let Some(attributes) = attributes else { return Ok(Live::Absent) };
            let live = self.cloud.at(&ObjectKey::of(request.id(), attributes));
            Ok(live.map_or(Live::Absent, |live| Live::Present(served(live, attributes))))
        });
        Ok(read.collect())
    }

    async fn inspect(&self, resources: &[&StateResource]) -> Result<Vec<Result<Found, RuntimeError>>, RuntimeError> {
        let found = resources.iter().map(|resource| {
            self.cloud.begin(Operation::LookFor, &resource.id)?;
            let state = self.cloud.lock();
            let stored = state.live.get(&ObjectKey::of(&resource.id, &resource.attributes));
            let live = stored.map(|stored| stored.object.clone());
            let is_recorded = live.as_ref().and_then(uid_of).is_some_and(|uid| Some(uid) == resource.uid());
            if state.hidden.contains(&resource.id) && !is_recorded {
                return Ok(Found::Unknowable);
            }
            let Some(live) = live else { return Ok(Found::Absent) };
            let is_recorded = is_recorded && self.owner.other(&live).is_none();
            if !self.owner.has(&live) && !is_recorded {
                return Ok(Found::Foreign);
            }
            Ok(Found::Ours(Applied { kubernetes: object_of(&live), live, ..Applied::default() }))
        });
        Ok(found.collect())
    }

    async fn preview(
        &self,
        request: &ApplyRequest<'_>,
        live: Option<&Map<String, Value>>,
    ) -> Result<Preview, RuntimeError> {
        self.cloud.begin(Operation::Preview, &request.desired.id)?;
        if live.is_some_and(is_terminating) {
            return Ok(Preview::Unverified(TERMINATING.to_owned()));
        }
        check(request.desired)?;
        let namespace = ObjectRef::of(&request.desired.attributes).map(|object| object.namespace).unwrap_or_default();
        if self.cloud.lock().lacking.contains(&namespace) {
            return Ok(Preview::MissingNamespace(format!("there is no namespace {namespace} yet")));
        }
        let merged = self.cloud.merged(&self.owner, request.desired);
        let conflicts = self.taken(request, &merged)?;
        if self.cloud.is_fixed(&merged) {
            let may_be_replaced = request.prior.is_some() && request.desired.is_set(RECREATE);
            return if may_be_replaced { Ok(Preview::Replaced(None)) } else { Err(fixed()) };
        }
        if conflicts.is_empty() {
            return Ok(Preview::Changed(merged.object));
        }
        Ok(Preview::Contested(merged.object, conflicts))
    }

    async fn apply(&self, request: &ApplyRequest<'_>) -> Result<Applied, RuntimeError> {
        let id = &request.desired.id;
        let guard = self.cloud.enter(id).await;
        self.cloud.begin(Operation::Apply, id)?;
        check(request.desired)?;
        let merged = self.cloud.merged(&self.owner, request.desired);
        let from = take_over_from(request.desired).map(str::to_owned);
        let live = if self.gather(id, Change::Store(merged.clone(), from.clone())) {
            merged.object
        } else {
            let place = ObjectKey::of(id, &request.desired.attributes);
            self.guard(&place, from.as_deref())?;
            if let Some(live) = self.cloud.at(&place) {
                if let Some(going) = object_of(&live).filter(|_| is_terminating(&live)) {
                    return Err(RuntimeError::Terminating(Box::new(going)));
                }
                request.check_unplanned(&live)?;
            }
            self.taken(request, &merged)?;
            if self.cloud.is_fixed(&merged) {
                return Err(fixed());
            }
            self.cloud.store(merged)
        };
        self.cloud.answer(id)?;
        drop(guard);
        Ok(Applied { kubernetes: object_of(&live), live, ..Applied::default() })
    }

    async fn delete(&self, prior: &StateResource) -> Result<Deleted, RuntimeError> {
        let guard = self.cloud.enter(&prior.id).await;
        self.cloud.begin(Operation::Delete, &prior.id)?;
        let place = ObjectKey::of(&prior.id, &prior.attributes);
        let mut going = None;
        if !self.gather(&prior.id, Change::Remove(Box::new(prior.clone()))) {
            if let Some(other) = self.other(&place) {
                return Ok(Deleted::Left(LeftAlone::Owned(other)));
            }
            let live = self.cloud.at(&place);
            if live.as_ref().is_some_and(|live| self.owner.is_recreated(prior, live)) {
                return Ok(Deleted::Left(LeftAlone::Recreated));
            }
            if let (Some(live), Some(recorded)) = (&live, prior.uid())
                && uid_of(live) != Some(recorded)
            {
                return Err(RuntimeError::Conflict("the object is not the one that was applied".to_owned()));
            }
            if let Some(live) = live.filter(|live| !is_terminating(live)) {
                self.guard_contents(prior, &live)?;
            }
            going = self.cloud.delete(&place).as_ref().and_then(object_of);
        }
        self.cloud.answer(&prior.id)?;
        drop(guard);
        Ok(going.map_or(Deleted::Gone, |going| Deleted::Terminating(Box::new(going))))
    }

    async fn wait_deleted(&self, object: &KubernetesObject, _: &DeletionReport<'_>) -> Result<(), RuntimeError> {
        if let Some(id) = self.cloud.id_of(object) {
            self.cloud.begin(Operation::WaitGone, &id)?;
        }
        loop {
            let mut gone = pin!(self.cloud.gone.notified());
            // From here on nothing is missed.
            gone.as_mut().enable();
            if self.cloud.id_of(object).is_none() {
                return Ok(());
            }
            gone.await;
        }
    }

    async fn wait_healthy(&self, desired: &Resource, report: &HealthReport<'_>) -> Result<Health, RuntimeError> {
        self.cloud.begin(Operation::WaitHealthy, &desired.id)?;
        let delay = self.cloud.lock().delays.get(&desired.id).copied();
        if let Some(delay) = delay {
            tokio::time::sleep(delay).await;
        }
        let told = self.cloud.lock().healths.get(&desired.id).cloned();
        let told = told.unwrap_or_else(|| vec![(Health::Current, String::new())]);
        let mut last = Health::Unknown;
        for (health, message) in &told {
            report(*health, message);
            last = *health;
        }
        if matches!(last, Health::InProgress | Health::Terminating) {
            std::future::pending::<()>().await;
        }
        Ok(last)
    }

    async fn finish(&self, grant: &Grant) -> Result<Finished, RuntimeError> {
        let Some(gathered) = &self.deferred else { return Ok(Finished::default()) };
        self.cloud.begin(Operation::Finish, &FINISH.into())?;
        let _guard = self.cloud.enter(&FINISH.into()).await;
        grant.check()?;
        let mut gathered = gathered.lock().unwrap_or_else(PoisonError::into_inner);
        if self.cloud.lock().proposes && !gathered.changes.is_empty() {
            let (number, state) = (1, ProposalState::Open);
            let [url, branch, commit] = ["", "changes", "0"].map(str::to_owned);
            let proposal = Some(Proposal { number, url, branch, commit, state, blocked: None });
            return Ok(Finished { proposal, ..Finished::default() });
        }
        for (id, change) in &gathered.changes {
            match change {
                Change::Store(stored, from) => self.guard(&ObjectKey::of(id, &stored.object), from.as_deref())?,
                Change::Remove(prior) => {
                    let place = ObjectKey::of(id, &prior.attributes);
                    // An object of another deployment stays.
                    if let Some(live) = self.cloud.at(&place).filter(|live| self.owner.other(live).is_none()) {
                        self.guard_contents(prior, &live)?;
                    }
                }
            }
        }
        for (id, change) in std::mem::take(&mut gathered.changes) {
            match change {
                Change::Store(stored, _) => drop(self.cloud.store(stored)),
                Change::Remove(prior) => {
                    let place = ObjectKey::of(&id, &prior.attributes);
                    if let Some(other) = self.other(&place) {
                        gathered.finished.left.insert(id, other);
                        continue;
                    }
                    self.cloud.lock().live.remove(&place);
                }
            }
            gathered.finished.commit = Some(format!("{:040x}", self.cloud.lock().version));
        }
        Ok(gathered.finished.clone())
    }
}

#[async_trait]
impl KubernetesChecks for FakeRuntime {
    fn rules(&self) -> &'static dyn KindRules {
        &KubernetesRules
    }

    fn clusters(&self) -> &Clusters {
        no_clusters()
    }

    fn validates(&self) -> bool {
        self.deferred.is_none()
    }

    async fn validation(&self, _: &[&Resource]) -> Result<Validation, RuntimeError> {
        Ok(self.validation.clone())
    }

    fn missing_namespaces(&self) -> Vec<(String, String)> {
        self.cloud.lock().lacking.iter().map(|name| (String::new(), name.clone())).collect()
    }

    async fn foreign_contents(
        &self,
        holder: &StateResource,
        live: Option<&Map<String, Value>>,
        own: &HashSet<&str>,
    ) -> Result<DeletionVerdict, RuntimeError> {
        let Some(contents) = Cascade::of(holder, live) else { return Ok(DeletionVerdict::default()) };
        self.cloud.begin(Operation::ForeignContents, &holder.id)?;
        let (refusal, warnings) = self.foreign_contents_of(&contents).verdict(holder, own);
        Ok(DeletionVerdict { refusal, warnings })
    }

    fn is_deleted_when_finished(&self, recorded: &StateResource) -> bool {
        let state = self.cloud.lock();
        state.finished.contains(&recorded.id) || state.ends.contains_key(&recorded.id)
    }

    async fn job_ends(&self, absent: &[&StateResource]) -> Result<Vec<JobEnd>, RuntimeError> {
        let state = self.cloud.lock();
        Ok(absent.iter().map(|job| state.ends.get(&job.id).copied().unwrap_or(JobEnd::Missing)).collect())
    }

    fn has_finished(&self, id: &ResourceId) -> bool {
        self.cloud.lock().finished.contains(id)
    }
}
