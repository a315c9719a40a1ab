//! Creates, with the rules and the order of steps of `k8s.io/apiserver`'s generic registry
//! (`pkg/registry/generic/registry/store.go`).

use std::sync::Arc;

use stoa_log::{Expect, Version};
use stoa_meta::{definition::Target, object::Object, request::RequestContext, status::ApiError};

use super::{
    Store, Stored,
    admit::{Admitted, MANAGED_FIELDS, put_managed_fields},
    append::Outcome,
    metadata::{self, AdmissionPhase},
    update::warn,
};
use crate::cache::CacheEntry;

/// How often a generated name is tried.
const NAME_TRIES: usize = 8;

/// Whether who sent a request that creates an object may create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CreateAuthorization {
    /// The request was a create, and let in as one.
    Granted,
    /// It was a PUT to what is not there yet: the permission is asked for once all else is in order.
    Required,
    /// It was an apply to what is not there yet: the same.
    RequiredByApply,
}

/// Why a create failed, and whether that was because the name is taken.
pub(super) struct CreateError {
    pub(super) error: ApiError,
    pub(super) taken: bool,
}

impl From<ApiError> for CreateError {
    fn from(error: ApiError) -> Self {
        Self { error, taken: false }
    }
}

impl Store {
    /// Creates an object.
    ///
    /// A name is generated when there is only `generateName`.
    ///
    /// # Errors
    ///
    /// 409 `AlreadyExists` when the name is taken; 404 or 403 when the namespace is missing or
    /// terminating; 400 and 422 for what is wrong with the object; whatever the strategy answers.
    pub async fn create(
        &self,
        context: &RequestContext,
        namespace: &str,
        object: Object,
    ) -> Result<Arc<Stored>, ApiError> {
        self.create_by(context, namespace, object, CreateAuthorization::Granted).await
    }

    pub(super) async fn create_by(
        &self,
        context: &RequestContext,
        namespace: &str,
        mut object: Object,
        authorization: CreateAuthorization,
    ) -> Result<Arc<Stored>, ApiError> {
        metadata::set_namespace(&mut object, self.definition.scope, namespace)?;
        metadata::clear_for_create(&mut object);
        let written = object.metadata_mut().remove(MANAGED_FIELDS);
        object = self.typed(&object, Target::Main)?;
        let owners = self.track(context, Target::Main, None, &object, written.as_ref());
        put_managed_fields(&mut object, owners);
        let name = object.name().to_owned();
        let write = Admitted { context, namespace, name: &name, current: None, target: Target::Main };
        self.admit_change(write, &mut object).await?;
        metadata::dedup_owners(context, &mut object, AdmissionPhase::After);
        let prefix = object.meta_str("generateName").to_owned();
        // Upstream does not ask whether the name was sent or generated.
        let told = |CreateError { error, taken }| match taken && !prefix.is_empty() {
            true => no_name_found(error),
            false => error,
        };
        if prefix.is_empty() || !object.name().is_empty() {
            return self.create_named(context, namespace, object, authorization).await.map_err(told);
        }
        let mut tries = 1;
        loop {
            let mut named = object.clone();
            named.metadata_mut().insert("name".to_owned(), metadata::generate_name(&prefix).into());
            match self.create_named(context, namespace, named, authorization).await {
                Err(CreateError { taken: true, .. }) if tries < NAME_TRIES => tries += 1,
                created => return created.map_err(told),
            }
        }
    }

    /// Creates an object that has a name and its owners, and went through admission.
    pub(super) async fn create_named(
        &self,
        context: &RequestContext,
        namespace: &str,
        mut object: Object,
        authorization: CreateAuthorization,
    ) -> Result<Arc<Stored>, CreateError> {
        // Admission may have given it another.
        metadata::set_namespace(&mut object, self.definition.scope, namespace)?;
        let sent_version: u64 = object.meta_str("resourceVersion").parse().unwrap_or_default();
        metadata::fill_for_create(&mut object);
        object.metadata_mut().remove("resourceVersion");
        if self.definition.has_status && !context.writes_status() {
            object.0.remove("status");
        }
        // Strategies have no say in it, and it is long.
        let managed_fields = object.metadata_mut().remove(MANAGED_FIELDS);
        let mut draft = self.draft_new(context, (&object, managed_fields.as_ref()))?;
        warn(context, &draft);
        let name = draft.object.name().to_owned();
        if authorization != CreateAuthorization::Granted {
            self.require(context, "create", (namespace, &name)).await?;
        }
        self.strategy.admit(context, &draft).await?;
        put_managed_fields(&mut draft.object, managed_fields);
        let write = Admitted { context, namespace, name: &name, current: None, target: Target::Main };
        self.admit_stored(write, &draft.object, None).await?;
        let key = self.key(namespace, &name);
        if context.dry_run {
            return match self.current_kept("create", &key).await? {
                Some(existing) => Err(self.taken(&name, existing.object())),
                // Upstream answers what it was sent, and keeps nothing that could say otherwise.
                None => Ok(Arc::new(self.prepare(draft.object)?.stored(key, Version(sent_version)))),
            };
        }
        // Upstream notices this only in its storage, and answers without a reason.
        if sent_version != 0 {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(ApiError::new(500, "", message).into());
        }
        if self.strategy.completes() {
            if let Some(existing) = self.current_kept("create", &key).await? {
                return Err(self.taken(&name, existing.object()));
            }
            self.strategy.complete(context, &mut draft.object, None).await?;
        }
        let prepared = self.prepare(draft.object)?;
        let appended = match authorization {
            CreateAuthorization::Granted | CreateAuthorization::Required => {
                self.append_fitting(context, (&key, Expect::Absent), &prepared, "create").await?
            }
            CreateAuthorization::RequiredByApply => {
                self.append(context, &key, Expect::Absent, &prepared, "create").await?
            }
        };
        match appended {
            Outcome::Done(stored) => Ok(stored),
            Outcome::Lost => {
                let existing = self.current_kept("create", &key).await?;
                Err(self.taken(&name, existing.as_ref().and_then(CacheEntry::object)))
            }
        }
    }

    /// That a name is taken: by this object, or by what does not decode or went again.
    fn taken(&self, name: &str, existing: Option<&Arc<Stored>>) -> CreateError {
        let mut error = ApiError::already_exists(&self.definition.group, &self.definition.plural, name);
        if existing.is_some_and(|existing| existing.is_deleting()) {
            error.0.message = Some(format!("object is being deleted: {}", error.message()));
        }
        CreateError { error, taken: true }
    }
}

/// That the name is taken of an object that has a `generateName`.
fn no_name_found(error: ApiError) -> ApiError {
    let mut error = error.with_retry_after(1);
    let message = error.message().to_owned();
    error.0.message = Some(format!("{message}, the server was not able to generate a unique name for the object"));
    error
}
