//! One resource type of one provider, ready for calls.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value as Json};
use stoa_engine::{FieldPath, Sensitive, StateResource};
use stoa_runtime::{Applied as Outcome, RuntimeError};
use stoa_terraform_provider::change::{self, Applied, Object, Plan, Step};
use stoa_terraform_provider::pool::Lease;
use stoa_terraform_provider::protocol::{CallError, Diagnostics, ImportRequest, MoveRequest, RawState, ReadRequest};
use stoa_terraform_provider::schema::Schema;
use stoa_terraform_provider::value::{Json as Exact, Value};

use crate::conversion::{configuration, field_paths, plain};
use crate::errors::{faulty, misconfigured, of_change, redacted, rejected, reported, unanswered, warnings};
use crate::stored;

/// A leased provider and a type of its resources.
#[derive(Debug)]
pub(crate) struct Session {
    lease: Lease,
    resource: String,
    /// The warnings of all calls so far.
    warned: Mutex<Vec<String>>,
}

impl Session {
    /// A session for a type.
    ///
    /// # Errors
    ///
    /// When the provider has no such type.
    pub(crate) fn new(lease: Lease, resource: &str) -> Result<Self, RuntimeError> {
        if !lease.schemas().resources.contains_key(resource) {
            let message = format!("the provider has no resource type {resource:?}; check the type and the version");
            return Err(RuntimeError::Invalid { message, field: Some("extensions.resourceType".to_owned()) });
        }
        Ok(Self { lease, resource: resource.to_owned(), warned: Mutex::default() })
    }

    pub(crate) fn schema(&self) -> &Schema {
        &self.lease.schemas().resources[&self.resource]
    }

    /// Notes the warnings of a call.
    pub(crate) fn note(&self, diagnostics: &Diagnostics) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in warnings(diagnostics) {
            if !warned.contains(&warning) {
                warned.push(warning);
            }
        }
    }

    /// The warnings of all calls so far, without the sensitive texts of an object.
    pub(crate) fn warnings(&self, object: Option<&Object>) -> Vec<String> {
        let texts = self.texts(object, &Sensitive::default());
        let warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        warned.iter().map(|warning| texts.redact(warning)).collect()
    }

    /// The typed configuration of wanted attributes.
    pub(crate) fn configuration(
        &self,
        attributes: &Map<String, Json>,
        unknown: &BTreeSet<FieldPath>,
    ) -> Result<Value, RuntimeError> {
        configuration(self.schema(), attributes, unknown).map_err(|errors| misconfigured(&errors))
    }

    /// The object of a record as it is now; `None` if it does not exist.
    pub(crate) async fn current(&self, record: &StateResource) -> Result<Option<Object>, RuntimeError> {
        let Some(stored) = stored::recorded(record)? else { return Ok(None) };
        let json = Exact::parse(stored.attributes.get().as_bytes());
        let json = json.map_err(|_| rejected("the recorded state is no JSON".to_owned(), None))?;
        let version = stored.schema_version.unwrap_or(self.schema().version);
        let raw = RawState { version, json: &json };
        let upgraded = self.lease.upgrade_state(&self.resource, raw).await.map_err(|error| unanswered(&error))?;
        self.note(&upgraded.diagnostics);
        if upgraded.diagnostics.has_errors() {
            return Err(reported(&upgraded.diagnostics));
        }
        let identity = match &stored.identity {
            Some(identity) => self.identity(identity.schema_version, identity.attributes.get()).await?,
            None => None,
        };
        let private = stored::private(&stored)?.into();
        self.read(Object { state: upgraded.state, private, identity, tainted: stored.tainted }).await
    }

    /// The object of a record of another type, which the provider converts to this one; `None` if it does not exist.
    pub(crate) async fn moved(
        &self,
        record: &StateResource,
        (provider, resource): (&str, &str),
    ) -> Result<Option<Object>, RuntimeError> {
        let Some(stored) = stored::recorded(record)? else { return Ok(None) };
        let parse = |text: &str| {
            Exact::parse(text.as_bytes()).map_err(|_| rejected("the recorded state is no JSON".to_owned(), None))
        };
        let json = parse(stored.attributes.get())?;
        let identity =
            stored.identity.as_ref().map(|it| Ok::<_, RuntimeError>((it.schema_version, parse(it.attributes.get())?)));
        let identity = identity.transpose()?;
        let private = stored::private(&stored)?;
        let request = MoveRequest {
            source_provider: provider,
            source_type: resource,
            source: RawState { version: stored.schema_version.unwrap_or_default(), json: &json },
            source_private: &private,
            source_identity: identity.as_ref().map(|(version, json)| RawState { version: *version, json }),
        };
        let moved = self.lease.move_state(&self.resource, request).await.map_err(|error| unanswered(&error))?;
        self.note(&moved.diagnostics);
        if moved.diagnostics.has_errors() {
            return Err(reported(&moved.diagnostics));
        }
        let tainted = stored.tainted;
        self.read(Object { state: moved.state, private: moved.private, identity: moved.identity, tainted }).await
    }

    async fn identity(&self, version: i64, json: &str) -> Result<Option<Value>, RuntimeError> {
        let json = Exact::parse(json.as_bytes());
        let json = json.map_err(|_| rejected("the recorded identity is no JSON".to_owned(), None))?;
        match self.lease.upgrade_identity(&self.resource, version, &json).await {
            Ok((identity, _)) => Ok(identity),
            // An older version of the provider has none.
            Err(CallError::Unknown { .. }) => Ok(None),
            Err(error) => Err(unanswered(&error)),
        }
    }

    /// Reads an object; `None` if it does not exist any more.
    pub(crate) async fn read(&self, object: Object) -> Result<Option<Object>, RuntimeError> {
        let request =
            ReadRequest { state: &object.state, private: &object.private, identity: object.identity.as_ref() };
        let read = self.lease.read_resource(&self.resource, request).await.map_err(|error| unanswered(&error))?;
        self.note(&read.diagnostics);
        if read.diagnostics.has_errors() {
            return Err(reported(&read.diagnostics));
        }
        let is_gone = read.state.is_null();
        let identity = read.identity.or(object.identity);
        let object = Object { state: read.state, private: read.private, identity, tainted: object.tainted };
        Ok((!is_gone).then_some(object))
    }

    /// The existing object with an external name; `None` if there is none.
    pub(crate) async fn import(&self, id: &str) -> Result<Option<Object>, RuntimeError> {
        let imported = self.lease.import(&self.resource, ImportRequest::Id(id)).await;
        let imported = imported.map_err(|error| unanswered(&error))?;
        self.note(&imported.diagnostics);
        let object =
            Object { state: imported.state, private: imported.private, identity: imported.identity, tainted: false };
        if object.state.is_null() { Ok(None) } else { self.read(object).await }
    }

    /// Plans a change. A null configuration is a delete.
    pub(crate) async fn plan(&self, prior: Option<Object>, config: &Value) -> Result<Plan, RuntimeError> {
        let planned = change::plan(&self.lease, &self.resource, prior, config, None).await;
        planned.map_err(|error| of_change(&error))
    }

    /// Makes one step of a plan.
    pub(crate) async fn step(&self, plan: &Plan, step: Step, config: &Value) -> Result<Applied, RuntimeError> {
        change::apply(&self.lease, plan, step, config).await.map_err(|error| of_change(&error))
    }

    /// The object after a create or an update, or the error with the object as it is now.
    pub(crate) async fn settled(&self, applied: Applied, what: &str) -> Result<Outcome, RuntimeError> {
        let Applied { mut object, diagnostics, faults, read_first } = applied;
        self.note(&diagnostics);
        let error = if diagnostics.has_errors() {
            Some(reported(&diagnostics))
        } else if !faults.errors.is_empty() {
            Some(rejected(faulty(&faults), faults.errors.first().map(|fault| &fault.path)))
        } else {
            None
        };
        if let Some(unsure) = object.take_if(|_| read_first) {
            // The answer of a failed update may not be the truth. Without a read, the next plan reads.
            let before = unsure.clone();
            object = self.read(unsure).await.unwrap_or(Some(before));
        }
        match (object, error) {
            (Some(object), None) => self.outcome(&object),
            (Some(object), Some(RuntimeError::Rejected { message, field, .. })) => {
                Err(RuntimeError::Partial { message, field, applied: Box::new(self.outcome(&object)?) })
            }
            (Some(_) | None, Some(error)) => Err(error),
            (None, None) => Err(rejected(format!("the provider {what} no object and reported no error"), None)),
        }
    }

    /// An object as the engine has it.
    pub(crate) fn outcome(&self, object: &Object) -> Result<Outcome, RuntimeError> {
        let stored = stored::of_object(&self.resource, object, self.lease.schemas())?;
        let live = plain(&object.state).attributes;
        let warnings = self.warnings(Some(object));
        Ok(Outcome { live, kubernetes: None, provider_state: Some(stored.to_recorded()), warnings })
    }

    /// The sensitive paths of a value.
    pub(crate) fn sensitive_paths(&self, value: &Value) -> BTreeSet<FieldPath> {
        field_paths(&self.schema().sensitive_paths(value))
    }

    /// An error without the sensitive texts of an object and of others.
    pub(crate) fn redacted(&self, error: RuntimeError, object: Option<&Object>, others: &Sensitive) -> RuntimeError {
        redacted(error, &self.texts(object, others))
    }

    /// The sensitive texts of an object, and others.
    fn texts(&self, object: Option<&Object>, others: &Sensitive) -> Sensitive {
        let mut texts = others.clone();
        if let Some(object) = object {
            texts.extend_texts(&Sensitive::of(&plain(&object.state).attributes, &self.sensitive_paths(&object.state)));
        }
        texts
    }
}
