//! Runtimes over a [`FakeProvider`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::{Map, Value};
use stoa_engine::import::IMPORT_ID;
use stoa_engine::provider::ProviderLock;
use stoa_engine::{
    Action, FieldPath, Live, Owner, Preview, ProviderPlan, ProviderReference, Resource, ResourceType, StateResource,
};

use super::planned::{self, Before};
use super::{ChangeFault, FakeProvider, RESOURCE_TYPE, Stalled, StoredObject};
use crate::fake::Operation;
use crate::{
    Applied, ApplyRequest, Deleted, Finished, Found, Grant, Health, HealthReport, ProviderChecks, ReadRequest, Runtime,
    RuntimeError,
};

/// A runtime over a [`FakeProvider`].
#[derive(Clone, Debug)]
pub struct FakeProviderRuntime {
    cloud: FakeProvider,
    owner: Owner,
    /// Whether the schema was read, without which nothing is known to be sensitive.
    is_prepared: Arc<Mutex<bool>>,
}

/// An object, and how the provider finds it.
struct Located {
    known: StoredObject,
    object: Map<String, Value>,
}

impl FakeProviderRuntime {
    pub(super) fn new(cloud: FakeProvider, owner: Owner) -> Self {
        Self { cloud, owner, is_prepared: Arc::default() }
    }

    /// The object of a record; `None` when it does not exist.
    fn recorded(&self, prior: &StateResource) -> Result<Option<Located>, RuntimeError> {
        let known = self.cloud.known(prior.provider_state.as_ref())?;
        Ok(self.cloud.at(&known.handle).map(|object| Located { known, object }))
    }

    /// The object with an id.
    fn with_id(&self, id: &str) -> Option<Located> {
        let known = self.cloud.imported(id)?;
        Some(Located { object: self.cloud.at(&known.handle)?, known })
    }

    /// The object that a request is about.
    fn located(
        &self,
        desired: Option<&Resource>,
        prior: Option<&StateResource>,
    ) -> Result<Option<Located>, RuntimeError> {
        let named = prior.filter(|prior| prior.provider_state.is_none()).and_then(|prior| import_id(&prior.extensions));
        if let Some(id) = named {
            return Ok(self.with_id(id));
        }
        match (prior.filter(|prior| prior.kind == ResourceType::Terraform), desired) {
            (Some(prior), _) => self.recorded(prior),
            (None, Some(desired)) => Ok(import_id(&desired.extensions).and_then(|id| self.with_id(id))),
            (None, None) => Ok(None),
        }
    }

    fn plan(&self, request: &ApplyRequest<'_>, located: Option<&Located>) -> Result<ProviderPlan, RuntimeError> {
        check_type(request.desired)?;
        let nothing = BTreeSet::new();
        let before = located.map(|it| Before { attributes: it.object.clone(), is_tainted: it.known.is_tainted });
        self.cloud.plan(&request.desired.attributes, request.unknown.unwrap_or(&nothing), before.as_ref())
    }

    fn applied(&self, known: &StoredObject) -> Applied {
        let live = self.cloud.at(&known.handle).unwrap_or_default();
        Applied { live, provider_state: Some(self.cloud.encoded(known)), ..Applied::default() }
    }

    /// Makes a planned change. An error of a half-made one has the object.
    fn change(
        &self,
        located: Option<Located>,
        plan: &ProviderPlan,
        fault: Option<ChangeFault>,
    ) -> Result<Applied, RuntimeError> {
        if fault == Some(ChangeFault::LostBefore) {
            return Err(lost());
        }
        let is_half = fault == Some(ChangeFault::Halfway);
        let known = match located {
            Some(located) => {
                self.cloud.update(&located.known.handle, plan, is_half);
                located.known
            }
            None => StoredObject { handle: self.cloud.create(plan), is_tainted: is_half },
        };
        match fault {
            Some(ChangeFault::LostAfter) => Err(lost()),
            Some(ChangeFault::Halfway) => Err(RuntimeError::Partial {
                message: "the quota is exceeded".to_owned(),
                field: None,
                applied: Box::new(self.applied(&known)),
            }),
            Some(ChangeFault::LostBefore) | None => Ok(self.applied(&known)),
        }
    }
}

fn import_id(extensions: &Map<String, Value>) -> Option<&str> {
    extensions.get(IMPORT_ID)?.as_str().filter(|id| !id.is_empty())
}

fn lost() -> RuntimeError {
    RuntimeError::Lost { message: "the provider has ended".to_owned() }
}

fn check_type(resource: &Resource) -> Result<(), RuntimeError> {
    let provider = ProviderReference::of(&resource.extensions)
        .map_err(|error| RuntimeError::Invalid { message: error.message, field: Some(error.field.to_owned()) })?;
    if provider.resource_type == RESOURCE_TYPE {
        return Ok(());
    }
    Err(RuntimeError::Invalid {
        message: format!("the provider has no type {}; it has {RESOURCE_TYPE}", provider.resource_type),
        field: Some("extensions.resourceType".to_owned()),
    })
}

#[async_trait]
impl Runtime for FakeProviderRuntime {
    fn owner(&self) -> &Owner {
        &self.owner
    }

    fn providers(&self) -> &dyn ProviderChecks {
        self
    }

    fn destinations(&self) -> BTreeMap<String, String> {
        [(ResourceType::Terraform.to_string(), "fake".to_owned())].into()
    }

    async fn read(&self, requests: &[ReadRequest<'_>]) -> Result<Vec<Result<Live, RuntimeError>>, RuntimeError> {
        self.cloud.answer(Stalled::Read).await;
        let read = requests.iter().map(|request| {
            self.cloud.begin(Operation::Read, request.id())?;
            let located = self.located(request.desired, request.prior)?;
            Ok(located.map_or(Live::Absent, |located| Live::Present(located.object)))
        });
        Ok(read.collect())
    }

    async fn inspect(&self, resources: &[&StateResource]) -> Result<Vec<Result<Found, RuntimeError>>, RuntimeError> {
        self.cloud.answer(Stalled::Inspect).await;
        let found = resources.iter().map(|resource| {
            self.cloud.begin(Operation::LookFor, &resource.id)?;
            // Without the object, a replacement may have created another one.
            let located = match (&resource.provider_state, import_id(&resource.extensions)) {
                (None, None) => None,
                (None, Some(id)) => self.with_id(id),
                (Some(_), _) => self.recorded(resource)?,
            };
            Ok(located.map_or(Found::Unknowable, |located| Found::Ours(self.applied(&located.known))))
        });
        Ok(found.collect())
    }

    async fn preview(
        &self,
        request: &ApplyRequest<'_>,
        _: Option<&Map<String, Value>>,
    ) -> Result<Preview, RuntimeError> {
        self.cloud.begin(Operation::Preview, &request.desired.id)?;
        let located = self.located(Some(request.desired), request.prior)?;
        Ok(Preview::Planned(Box::new(self.plan(request, located.as_ref())?)))
    }

    async fn apply(&self, request: &ApplyRequest<'_>) -> Result<Applied, RuntimeError> {
        let id = &request.desired.id;
        let _guard = self.cloud.enter(id).await;
        self.cloud.begin(Operation::Apply, id)?;
        let located = match request.prior {
            // A replacement has deleted the object.
            None if request.create => None,
            prior => self.located(Some(request.desired), prior)?,
        };
        let plan = self.plan(request, located.as_ref())?;
        let live = located.as_ref().map(|located| &located.object);
        let sensitive = live.map(planned::sensitive_paths).unwrap_or_default();
        request.check_plan(&plan, live, &sensitive)?;
        match (plan.action, located) {
            (Action::Unchanged, Some(located)) => Ok(self.applied(&located.known)),
            (_, located) => self.change(located, &plan, self.cloud.change_fault(id)),
        }
    }

    async fn delete(&self, prior: &StateResource) -> Result<Deleted, RuntimeError> {
        let _guard = self.cloud.enter(&prior.id).await;
        self.cloud.begin(Operation::Delete, &prior.id)?;
        let Some(located) = self.recorded(prior)? else { return Ok(Deleted::Gone) };
        match self.cloud.change_fault(&prior.id) {
            Some(ChangeFault::LostBefore) => Err(lost()),
            Some(ChangeFault::LostAfter) => {
                self.cloud.delete(&located.known.handle);
                Err(lost())
            }
            Some(ChangeFault::Halfway) => Err(RuntimeError::Rejected {
                message: "the object is in use".to_owned(),
                field: None,
                by_definition: false,
            }),
            None => {
                self.cloud.delete(&located.known.handle);
                Ok(Deleted::Gone)
            }
        }
    }

    async fn wait_healthy(&self, desired: &Resource, report: &HealthReport<'_>) -> Result<Health, RuntimeError> {
        self.cloud.begin(Operation::WaitHealthy, &desired.id)?;
        report(Health::Current, "");
        Ok(Health::Current)
    }

    async fn finish(&self, _: &Grant) -> Result<Finished, RuntimeError> {
        Ok(Finished::default())
    }

    async fn close(&self) {
        self.cloud.answer(Stalled::Close).await;
    }
}

#[async_trait]
impl ProviderChecks for FakeProviderRuntime {
    fn decides(&self, _: ResourceType) -> bool {
        true
    }

    fn lock(&self, _: &Resource) -> Option<ProviderLock> {
        Some(ProviderLock { version: format!("{}.0.0", self.cloud.version()), by: "the lock".to_owned() })
    }

    async fn prepare(&self, resources: &[&Resource]) -> Result<Vec<Result<(), RuntimeError>>, RuntimeError> {
        self.cloud.answer(Stalled::Prepare).await;
        *self.is_prepared.lock().unwrap_or_else(PoisonError::into_inner) = true;
        Ok(resources.iter().map(|resource| check_type(resource)).collect())
    }

    fn sensitive_paths(&self, _: &Resource, object: &Map<String, Value>) -> BTreeSet<FieldPath> {
        let is_prepared = *self.is_prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if is_prepared { planned::sensitive_paths(object) } else { BTreeSet::new() }
    }
}
