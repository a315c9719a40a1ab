//! The runtime: each call of the engine in terms of a provider.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use serde_json::{Map, Value as Json};
use stoa_engine::import::IMPORT_ID;
use stoa_engine::moved::is_moving;
use stoa_engine::plan::ProviderPlan;
use stoa_engine::planner::{Planned, changes, disagreements};
use stoa_engine::provider::ProviderLock;
use stoa_engine::{
    Action, FieldPath, Owner, ProviderReference, Resource, ResourceId, ResourceMode, ResourceType, Sensitive,
    StateResource,
};
use stoa_runtime::{
    Applied, ApplyRequest, Deleted, Finished, Found, Grant, Health, HealthReport, Live, Preview, ProviderChecks,
    ReadRequest, Runtime, RuntimeError,
};
use stoa_terraform_provider::change::{Object, Plan, Step};
use stoa_terraform_provider::checks::Action as Change;
use stoa_terraform_provider::package::Address;
use stoa_terraform_provider::pool::Lease;
use stoa_terraform_provider::protocol::Schemas;
use stoa_terraform_provider::schema::Schema;
use stoa_terraform_provider::value::{Path, Value};

use crate::conversion::{field_path, field_paths, plain};
use crate::data_source::DataSource;
use crate::ephemeral::{EphemeralResource, Open};
use crate::errors::{faulty, rejected, reported, warnings};
use crate::session::Session;
use crate::{ProviderRequest, Providers};

/// How many objects are read or prepared at once.
const AT_ONCE: usize = 32;

/// How often a call that changes nothing is made where the provider ends during it.
const ATTEMPTS: usize = 2;

/// The name of the destination of all resources of providers.
pub const DESTINATION: &str = "Terraform";

/// The runtime of one run for resources of Terraform's providers.
#[derive(Debug)]
pub struct TerraformRuntime {
    owner: Owner,
    providers: Arc<dyn Providers>,
    /// The schemas of prepared providers, by their addresses as they are written.
    schemas: Mutex<HashMap<String, Arc<Schemas>>>,
    /// The objects that a read found, for the plans after it.
    found: Mutex<HashMap<ResourceId, Object>>,
    /// The warnings of reads, for the plans after them.
    warned: Mutex<HashMap<ResourceId, Vec<String>>>,
    /// The ephemeral resources that this run has opened.
    open: Mutex<Vec<Open>>,
}

impl TerraformRuntime {
    /// A runtime for a deployment, with the providers of its workspace.
    pub fn new(owner: Owner, providers: Arc<dyn Providers>) -> Self {
        let (schemas, found, warned, open) = Default::default();
        Self { owner, providers, schemas, found, warned, open }
    }

    /// The provider that the extensions of a resource name.
    async fn lease(&self, reference: &ProviderReference<'_>) -> Result<Lease, RuntimeError> {
        let invalid =
            |message: String| RuntimeError::Invalid { message, field: Some("extensions.provider".to_owned()) };
        let address: Address = reference.address.parse().map_err(|error| invalid(format!("{error}")))?;
        let ProviderReference { version, configuration, ref lock, .. } = *reference;
        let request = ProviderRequest { address: &address, version, configuration, lock: lock.as_ref() };
        let lease = self.providers.get(&request).await?;
        let schemas = Arc::clone(lease.schemas());
        locked(&self.schemas).insert(reference.address.to_owned(), schemas);
        Ok(lease)
    }

    /// A session for a resource.
    async fn session(&self, reference: &ProviderReference<'_>) -> Result<Session, RuntimeError> {
        Session::new(self.lease(reference).await?, reference.resource_type)
    }

    /// Makes a call that changes nothing, again where the provider ends during it. A provider that ends each time rejects
    /// the call, because no wait helps. A provider that is not available is an error of its own.
    async fn repeated<S, T, F>(
        &self,
        reference: &ProviderReference<'_>,
        session: fn(Lease, &str) -> Result<S, RuntimeError>,
        call: impl Fn(S) -> F,
    ) -> Result<T, RuntimeError>
    where
        F: Future<Output = Result<T, RuntimeError>>,
    {
        let mut attempt = 1;
        loop {
            let session = session(self.lease(reference).await?, reference.resource_type)?;
            match call(session).await {
                Err(RuntimeError::Unread { .. }) if attempt < ATTEMPTS => attempt += 1,
                Err(RuntimeError::Unread { message }) => return Err(rejected(message, None)),
                ended => return ended,
            }
        }
    }

    /// Some paths of a value, by the schema of its resource.
    fn paths(
        &self,
        resource: &Resource,
        object: &Map<String, Json>,
        find: impl Fn(&Schema, &Value) -> Vec<Path>,
    ) -> BTreeSet<FieldPath> {
        let Ok(reference) = reference(&resource.extensions) else { return BTreeSet::new() };
        let schemas = locked(&self.schemas).get(reference.address).cloned();
        let Some(schemas) = schemas else { return BTreeSet::new() };
        let of_mode = match reference.mode {
            ResourceMode::Managed => &schemas.resources,
            ResourceMode::Data => &schemas.data_sources,
            ResourceMode::Ephemeral => &schemas.ephemeral_resources,
        };
        let Some(schema) = of_mode.get(reference.resource_type) else { return BTreeSet::new() };
        let value = Value::from_json((&Json::Object(object.clone())).into());
        field_paths(&find(schema, &value))
    }

    async fn read_one(&self, request: &ReadRequest<'_>) -> Result<Live, RuntimeError> {
        let prior = request.prior.filter(|prior| prior.kind == ResourceType::Terraform);
        if prior.is_none() && request.desired.is_some_and(Resource::is_only_read) {
            return Ok(Live::Absent);
        }
        let id = request.id().clone();
        let (warned, object) = match (prior, request.desired) {
            (Some(prior), Some(desired)) if prior.provider_state.is_some() && changes_type(prior, desired) => {
                let reference = reference(&desired.extensions)?;
                let converted = |session: Session| async move {
                    let object = converted(&session, prior).await?;
                    Ok((session.warnings(object.as_ref()), object))
                };
                self.repeated(&reference, Session::new, converted).await?
            }
            (Some(prior), desired) if prior.provider_state.is_some() => {
                let reference = current(prior, desired)?;
                let current = |session: Session| async move {
                    let object = session.current(prior).await?;
                    Ok((session.warnings(object.as_ref()), object))
                };
                self.repeated(&reference, Session::new, current).await?
            }
            (prior, desired) => {
                let extensions = desired.map(|it| &it.extensions).or(prior.map(|it| &it.extensions));
                match extensions.and_then(|it| Some((it, import_id(it)?))) {
                    Some((extensions, name)) => {
                        let reference = reference(extensions)?;
                        let imported = |session: Session| async move {
                            let object = session.import(name).await?;
                            Ok((session.warnings(object.as_ref()), object))
                        };
                        self.repeated(&reference, Session::new, imported).await?
                    }
                    None if prior.is_some() => return Err(stateless()),
                    None => (Vec::new(), None),
                }
            }
        };
        locked(&self.warned).insert(id.clone(), warned);
        let Some(object) = object else {
            locked(&self.found).remove(&id);
            return Ok(Live::Absent);
        };
        let live = plain(&object.state).attributes;
        locked(&self.found).insert(id, object);
        Ok(Live::Present(live))
    }

    /// The object before a change: that of the record or of the external name, as it is now.
    async fn prior(&self, session: &Session, request: &ApplyRequest<'_>) -> Result<Option<Object>, RuntimeError> {
        match (request.prior, import_id(&request.desired.extensions)) {
            (Some(prior), _) if prior.provider_state.is_some() && changes_type(prior, request.desired) => {
                converted(session, prior).await
            }
            (Some(prior), _) if prior.provider_state.is_some() => session.current(prior).await,
            (None, Some(name)) if request.adopt => session.import(name).await,
            (Some(prior), None) if prior.kind == ResourceType::Terraform => Err(stateless()),
            _ => Ok(None),
        }
    }

    async fn inspect_one(&self, resource: &StateResource) -> Result<Found, RuntimeError> {
        let name = import_id(&resource.extensions).filter(|_| resource.provider_state.is_none());
        if resource.provider_state.is_none() && name.is_none() {
            return Ok(Found::Unknowable);
        }
        let look = |session: Session| async move {
            let object = match name {
                Some(name) => session.import(name).await?,
                None => session.current(resource).await?,
            };
            object.map(|object| session.outcome(&object)).transpose()
        };
        // The create of a replacement may have followed.
        Ok(self
            .repeated(&recorded(&resource.extensions)?, Session::new, look)
            .await?
            .map_or(Found::Unknowable, Found::Ours))
    }

    /// Plans a change, and makes it if the engine planned the same.
    async fn change(&self, session: &Session, request: &ApplyRequest<'_>) -> Result<Applied, RuntimeError> {
        let prior = self.prior(session, request).await?;
        let is_expected = request.prior.is_some_and(|prior| prior.provider_state.is_some()) || request.adopt;
        let prior = prior.filter(|_| !request.create);
        if is_expected && !request.create && prior.is_none() {
            return Err(RuntimeError::Stale("the object no longer exists; plan again".to_owned()));
        }
        let config = session.configuration(&request.desired.attributes, &BTreeSet::new())?;
        let no_texts = Sensitive::default();
        let texts = request.sensitive.unwrap_or(&no_texts);
        let plan = session.plan(prior.clone(), &config).await;
        let plan = plan.map_err(|error| session.redacted(error, prior.as_ref(), texts))?;
        check_plan(session, request, prior.as_ref(), &plan)?;
        let (step, verb) = match plan.action {
            Change::NoOp | Change::Delete => {
                let object = prior.ok_or_else(|| rejected("the provider plans no object".to_owned(), None))?;
                return session.outcome(&object);
            }
            Change::Create => (Step::Create, "created"),
            Change::Update => (Step::Update, "left"),
            Change::Replace => {
                let paths: Vec<String> = plan.replace_paths.iter().map(|it| field_path(it).to_string()).collect();
                let paths = paths.join(", ");
                let message = format!("the provider now needs another object because of {paths}; plan again");
                return Err(RuntimeError::Stale(message));
            }
        };
        let applied = session.step(&plan, step, &config).await;
        let settled = match applied {
            Ok(applied) => session.settled(applied, verb).await,
            Err(error) => Err(error),
        };
        let mut applied = settled.map_err(|error| session.redacted(error, prior.as_ref(), texts))?;
        applied.warnings.iter_mut().for_each(|warning| *warning = texts.redact(warning));
        Ok(applied)
    }
}

fn stateless() -> RuntimeError {
    let message = "the record has no state of the provider; import the object by its id, or delete it yourself";
    rejected(message.to_owned(), None)
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn reference(extensions: &Map<String, Json>) -> Result<ProviderReference<'_>, RuntimeError> {
    ProviderReference::of(extensions)
        .map_err(|error| RuntimeError::Invalid { field: Some(error.field.to_owned()), message: error.message })
}

/// The same of a record. A lock has the version now, whichever version the resource named.
fn recorded(extensions: &Map<String, Json>) -> Result<ProviderReference<'_>, RuntimeError> {
    Ok(ProviderReference { version: None, ..reference(extensions)? })
}

/// The provider that reads the object of a record: that of the record, with the lock that is wanted now.
fn current<'a>(prior: &'a StateResource, desired: Option<&Resource>) -> Result<ProviderReference<'a>, RuntimeError> {
    let recorded = recorded(&prior.extensions)?;
    let wanted = desired.and_then(|desired| ProviderReference::of(&desired.extensions).ok());
    let address = |reference: &ProviderReference<'_>| reference.address.parse::<Address>().ok();
    match wanted.filter(|wanted| address(wanted) == address(&recorded)) {
        Some(wanted) => Ok(ProviderReference { lock: wanted.lock, ..recorded }),
        None => Ok(recorded),
    }
}

/// The external name of an object to adopt.
fn import_id(extensions: &Map<String, Json>) -> Option<&str> {
    extensions.get(IMPORT_ID)?.as_str().filter(|name| !name.is_empty())
}

/// Whether a record is of another provider or type than is wanted now, so that its object has to be replaced.
fn is_of_another_type(prior: &StateResource, desired: &Resource) -> bool {
    let of = |extensions| {
        let reference = ProviderReference::of(extensions).ok()?;
        let address: Address = reference.address.parse().ok()?;
        Some((address, reference.resource_type.to_owned()))
    };
    of(&prior.extensions).is_some_and(|prior| of(&desired.extensions).is_some_and(|desired| desired != prior))
}

/// Whether the object of a record moves to a resource of another provider or type.
fn changes_type(prior: &StateResource, desired: &Resource) -> bool {
    is_moving(prior, desired) && is_of_another_type(prior, desired)
}

/// The object of a record of another type, by the provider of the new type.
async fn converted(session: &Session, prior: &StateResource) -> Result<Option<Object>, RuntimeError> {
    let source = recorded(&prior.extensions)?;
    let address: Address = source.address.parse().map_err(|error| rejected(format!("{error}"), None))?;
    session.moved(prior, (&address.to_string(), source.resource_type)).await
}

/// The engine's form of a provider's plan.
fn provider_plan(session: &Session, plan: &Plan, unknown: &BTreeSet<FieldPath>) -> ProviderPlan {
    let after = plain(&plan.planned);
    let action = match plan.action {
        Change::NoOp => Action::Unchanged,
        Change::Create => Action::Create,
        Change::Update => Action::Update,
        Change::Replace => Action::Replace,
        Change::Delete => Action::Delete,
    };
    let mut warnings = warnings(&plan.diagnostics);
    if plan.prior.as_ref().is_some_and(|prior| prior.tainted) {
        warnings.push("its creation failed half-way, so it is replaced".to_owned());
    }
    ProviderPlan {
        action,
        after: after.attributes,
        unknown: after.unknown,
        replaced_by: plan.replace_paths.iter().map(field_path).collect(),
        sensitive: session.sensitive_paths(&plan.planned),
        config_unknown: unknown.clone(),
        warnings,
    }
}

/// Rejects a plan that differs from the one that the engine has, which people may have approved.
fn check_plan(
    session: &Session,
    request: &ApplyRequest<'_>,
    prior: Option<&Object>,
    plan: &Plan,
) -> Result<(), RuntimeError> {
    let (Some(planned), Some(keys)) = (request.changes, request.keys) else { return Ok(()) };
    let live = prior.map(|prior| plain(&prior.state).attributes);
    let mut sensitive = request.sensitive.map(|it| it.paths().clone()).unwrap_or_default();
    sensitive.extend(prior.map(|prior| session.sensitive_paths(&prior.state)).unwrap_or_default());
    let now = changes(
        &request.desired.id,
        &Planned {
            plan: &provider_plan(session, plan, &BTreeSet::new()),
            live: live.as_ref(),
            prior: request.prior,
            sensitive: &sensitive,
            keys,
        },
    );
    let differing = disagreements(planned, &now);
    if differing.is_empty() {
        return Ok(());
    }
    let message = format!("the provider now plans {} differently; plan again", differing.join(", "));
    Err(RuntimeError::Stale(message))
}

#[async_trait]
impl Runtime for TerraformRuntime {
    fn owner(&self) -> &Owner {
        &self.owner
    }

    fn providers(&self) -> &dyn ProviderChecks {
        self
    }

    fn destinations(&self) -> BTreeMap<String, String> {
        [(DESTINATION.to_owned(), self.providers.destination())].into()
    }

    async fn read(&self, requests: &[ReadRequest<'_>]) -> Result<Vec<Result<Live, RuntimeError>>, RuntimeError> {
        let reads: Vec<_> = requests.iter().map(|request| self.read_one(request)).collect();
        Ok(stream::iter(reads).buffered(AT_ONCE).collect().await)
    }

    async fn inspect(&self, resources: &[&StateResource]) -> Result<Vec<Result<Found, RuntimeError>>, RuntimeError> {
        let looks: Vec<_> = resources.iter().map(|resource| self.inspect_one(resource)).collect();
        Ok(stream::iter(looks).buffered(AT_ONCE).collect().await)
    }

    async fn preview(
        &self,
        request: &ApplyRequest<'_>,
        live: Option<&Map<String, Json>>,
    ) -> Result<Preview, RuntimeError> {
        let reference = reference(&request.desired.extensions)?;
        if reference.mode == ResourceMode::Data {
            let read = |source: DataSource| async move { source.plan(request).await };
            return self.repeated(&reference, DataSource::new, read).await.map(|plan| Preview::Planned(Box::new(plan)));
        }
        if reference.mode == ResourceMode::Ephemeral {
            let checked = |resource: EphemeralResource| async move { resource.plan(request).await };
            let plan = self.repeated(&reference, EphemeralResource::new, checked).await?;
            return Ok(Preview::Planned(Box::new(plan)));
        }
        let (no_unknown, no_texts) = Default::default();
        let unknown = request.unknown.unwrap_or(&no_unknown);
        let texts: &Sensitive = request.sensitive.unwrap_or(&no_texts);
        let moved = request.prior.is_some_and(|prior| changes_type(prior, request.desired));
        let replaced = request.prior.filter(|prior| !moved && is_of_another_type(prior, request.desired));
        let prior = locked(&self.found).get(&request.desired.id).cloned();
        let prior = prior.filter(|_| live.is_some() && replaced.is_none());
        let prior = &prior;
        let planned = |session: Session| async move {
            let config = session.configuration(&request.desired.attributes, unknown)?;
            let plan = session.plan(prior.clone(), &config).await;
            let plan = plan.map_err(|error| session.redacted(error, prior.as_ref(), texts))?;
            Ok((provider_plan(&session, &plan, unknown), plan.tolerated))
        };
        let (mut plan, tolerated) = self.repeated(&reference, Session::new, planned).await?;
        if !tolerated.is_empty() {
            tracing::debug!(resource = %request.desired.id, faults = tolerated.len(), "an older provider library");
        }
        if request.adopt && plan.action == Action::Replace {
            let message =
                "the object with this import id would be replaced; change the attributes to those that it has";
            return Err(rejected(message.to_owned(), None));
        }
        if moved && plan.action == Action::Unchanged {
            // The record needs the state of the new type.
            plan.action = Action::Update;
        }
        let read = locked(&self.warned).get(&request.desired.id).cloned().unwrap_or_default();
        plan.warnings.extend(read);
        plan.warnings.iter_mut().for_each(|warning| *warning = texts.redact(warning));
        if replaced.is_some() && live.is_some() {
            plan.action = Action::Replace;
            plan.warnings.push("its provider or resource type is another one, so it is replaced".to_owned());
        }
        Ok(Preview::Planned(Box::new(plan)))
    }

    async fn apply(&self, request: &ApplyRequest<'_>) -> Result<Applied, RuntimeError> {
        let reference = reference(&request.desired.extensions)?;
        if reference.mode == ResourceMode::Data {
            let read = |source: DataSource| async move { source.apply(request).await };
            return self.repeated(&reference, DataSource::new, read).await;
        }
        if reference.mode == ResourceMode::Ephemeral {
            let open = |resource: EphemeralResource| async move { resource.open(request).await };
            let (applied, open) = self.repeated(&reference, EphemeralResource::new, open).await?;
            locked(&self.open).push(open);
            return Ok(applied);
        }
        self.change(&self.session(&reference).await?, request).await
    }

    async fn delete(&self, prior: &StateResource) -> Result<Deleted, RuntimeError> {
        if prior.provider_state.is_none() {
            return Err(stateless());
        }
        let session = self.session(&recorded(&prior.extensions)?).await?;
        let Some(object) = session.current(prior).await? else { return Ok(Deleted::Gone) };
        let no_texts = Sensitive::default();
        let redacted = |error| session.redacted(error, Some(&object), &no_texts);
        let plan = session.plan(Some(object.clone()), &Value::Null).await.map_err(redacted)?;
        let applied = session.step(&plan, Step::Delete, &Value::Null).await.map_err(redacted)?;
        if applied.diagnostics.has_errors() {
            return Err(redacted(reported(&applied.diagnostics)));
        }
        if !applied.faults.errors.is_empty() {
            return Err(redacted(rejected(faulty(&applied.faults), None)));
        }
        Ok(Deleted::Gone)
    }

    /// A provider answers when the object is ready.
    async fn wait_healthy(&self, _: &Resource, report: &HealthReport<'_>) -> Result<Health, RuntimeError> {
        report(Health::Current, "");
        Ok(Health::Current)
    }

    async fn finish(&self, _: &Grant) -> Result<Finished, RuntimeError> {
        Ok(Finished::default())
    }

    async fn close(&self) {
        let open = std::mem::take(&mut *locked(&self.open));
        join_all(open.into_iter().map(Open::close)).await;
    }
}

#[async_trait]
impl ProviderChecks for TerraformRuntime {
    fn decides(&self, _: ResourceType) -> bool {
        true
    }

    async fn prepare(&self, resources: &[&Resource]) -> Result<Vec<Result<(), RuntimeError>>, RuntimeError> {
        let sessions = resources.iter().map(|resource| async {
            // A lease starts the provider, whose schemas it keeps.
            let reference = reference(&resource.extensions)?;
            let lease = self.lease(&reference).await?;
            match reference.mode {
                ResourceMode::Managed => Session::new(lease, reference.resource_type).map(drop),
                ResourceMode::Data => DataSource::new(lease, reference.resource_type).map(drop),
                ResourceMode::Ephemeral => EphemeralResource::new(lease, reference.resource_type).map(drop),
            }
        });
        Ok(stream::iter(sessions.collect::<Vec<_>>()).buffered(AT_ONCE).collect().await)
    }

    /// Write-only values are sensitive too, and so is everything of an ephemeral resource.
    fn sensitive_paths(&self, resource: &Resource, object: &Map<String, Json>) -> BTreeSet<FieldPath> {
        if resource.is_ephemeral() {
            return object.keys().map(|name| FieldPath::of_keys([name.as_str()])).collect();
        }
        self.paths(resource, object, |schema, value| {
            let mut paths = schema.sensitive_paths(value);
            paths.extend(schema.write_only_paths(value));
            paths
        })
    }

    fn write_only_paths(&self, resource: &Resource, attributes: &Map<String, Json>) -> BTreeSet<FieldPath> {
        self.paths(resource, attributes, Schema::write_only_paths)
    }

    fn lock(&self, resource: &Resource) -> Option<ProviderLock> {
        let ProviderReference { address, version, configuration, lock, .. } = reference(&resource.extensions).ok()?;
        let address: Address = address.parse().ok()?;
        let request = ProviderRequest { address: &address, version, configuration, lock: lock.as_ref() };
        self.providers.lock(&request)
    }

    async fn preview_delete(&self, prior: &StateResource) -> Result<Vec<String>, RuntimeError> {
        let found = locked(&self.found).get(&prior.id).cloned();
        let Some(object) = &found else { return Ok(Vec::new()) };
        let planned = |session: Session| async move {
            let plan = session.plan(Some(object.clone()), &Value::Null).await;
            let plan = plan.map_err(|error| session.redacted(error, Some(object), &Sensitive::default()))?;
            session.note(&plan.diagnostics);
            Ok(session.warnings(Some(object)))
        };
        self.repeated(&recorded(&prior.extensions)?, Session::new, planned).await
    }
}

/// A resource of configuration that no provider has yet, for tests of other crates.
#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn record_of_another_type_is_replaced() {
        let extensions = |provider: &str, kind: &str| {
            json!({"provider": provider, "resourceType": kind}).as_object().unwrap().clone()
        };
        let record =
            StateResource { extensions: extensions("hashicorp/random/1.0.0", "a"), ..StateResource::default() };
        let desired = |provider: &str, kind: &str| Resource {
            id: "a".into(),
            kind: ResourceType::Terraform,
            attributes: Map::new(),
            depends_on: Vec::new(),
            extensions: extensions(provider, kind),
        };
        assert!(!is_of_another_type(&record, &desired("random/2.0.0", "a")));
        assert!(is_of_another_type(&record, &desired("random/2.0.0", "b")));
        assert!(is_of_another_type(&record, &desired("example/random/1.0.0", "a")));
    }
}
