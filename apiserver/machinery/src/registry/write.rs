//! Creates and updates, with the rules and the order of steps of `k8s.io/apiserver`'s generic
//! registry (`pkg/registry/generic/registry/store.go`).

use std::{sync::Arc, time::Instant};

use serde_json::{Map, Value};

use super::{
    Store, Stored, Target, UpdateSource,
    admit::{Admitted, MANAGED_FIELDS, put_managed_fields},
    erased::Draft,
    metadata::{self, AdmissionPhase},
    metrics::Comparison,
    read::parse_version,
};
use crate::{
    admission::Sight,
    auth::{self, Attributes},
    cache::{Kept, Prepared, Unkept},
    log::{Change, Expect, Key, LogError, Origin, Version, Write},
    managed_fields::same_but_for_times,
    object::Object,
    request::RequestContext,
    schema::MAX_DEPTH,
    status::{ApiError, FieldError},
};

const DELETION_TIMESTAMP: &str = "deletionTimestamp";

/// How often a generated name is tried.
const NAME_TRIES: usize = 8;
/// How often an update may lose to a write of which nothing is seen: of an object that went again at once.
const MAX_UNSEEN: usize = 8;

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

/// How one round of an update ended.
pub(super) enum Outcome<T> {
    Done(T),
    /// Another write came first.
    Lost,
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

    async fn create_by(
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
        if self.definition.has_status {
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
                Err(self.taken(&name, existing.as_ref().and_then(Kept::object)))
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

    /// Changes an object. Returns it as stored, and whether it was created.
    ///
    /// A PUT may carry the `resourceVersion` that it is based on; without one it replaces
    /// whatever is there, if the strategy allows that. Writes that come between are not lost:
    /// the change is made again on top of them, or refused as stale. A change that changes
    /// nothing writes nothing. An object that waits for its finalizers goes when the last one is
    /// taken away.
    ///
    /// # Errors
    ///
    /// 404 when it, or the subresource that is to be written, does not exist; 500 when what is stored does not decode; 409 `Conflict`
    /// when it is based on another version or uid;
    /// 400 and 422 for what is wrong with it; whatever the transform and the strategy answer.
    pub async fn update(
        &self,
        context: &RequestContext,
        namespace: &str,
        name: &str,
        target: Target,
        mut change: UpdateSource<'_>,
    ) -> Result<(Arc<Stored>, bool), ApiError> {
        if let UpdateSource::Object(object) = &change {
            check_address(object, namespace, name)?;
        }
        let is_served = match target {
            Target::Main | Target::Status => true,
            Target::Scale => self.scaling.is_some(),
            Target::Part(name) => self.definition.parts.iter().any(|part| part.name == name),
        };
        if !is_served {
            return Err(self.not_found(name));
        }
        let key = self.key(namespace, name);
        let (mut lost_at, mut unseen) = (None, 0);
        loop {
            let current = self.readable(self.current_kept("update", &key).await?)?;
            let found = current.as_ref().map(|current| current.version);
            if lost_at.replace(found) == Some(found) {
                unseen += 1;
                if unseen == MAX_UNSEEN {
                    return Err(ApiError::stale(&self.definition.group, &self.definition.plural, name));
                }
            }
            let Some(current) = current else {
                match self.create_on_update(context, namespace, name, target, change).await? {
                    Created::Done(stored) => return Ok((stored, true)),
                    Created::Lost(again) => change = again,
                }
                continue;
            };
            match self.update_once(context, namespace, target, &mut change, &current).await? {
                Outcome::Done(stored) => return Ok((stored, false)),
                // Whoever came first has made progress, so this ends.
                Outcome::Lost => {}
            }
        }
    }

    async fn create_on_update<'a>(
        &self,
        context: &RequestContext,
        namespace: &str,
        name: &str,
        target: Target,
        change: UpdateSource<'a>,
    ) -> Result<Created<'a>, ApiError> {
        match change {
            UpdateSource::Object(mut object) if target == Target::Main && self.strategy.allow_create_on_update() => {
                if !object.uid().is_empty() {
                    return Err(self.uid_conflict(&self.key(namespace, name), name, object.uid(), ""));
                }
                sent_version(object.meta_str("resourceVersion"))?;
                object.metadata_mut().remove("resourceVersion");
                Ok(Created::Done(self.create_by(context, namespace, object, CreateAuthorization::Required).await?))
            }
            UpdateSource::Apply(apply) if target == Target::Main => {
                self.create_applied(context, namespace, name, apply).await
            }
            UpdateSource::Object(_) | UpdateSource::Transform(_) | UpdateSource::Apply(_) => Err(self.not_found(name)),
        }
    }

    /// Requires a verb on an object of this resource.
    ///
    /// # Errors
    ///
    /// 403.
    pub(super) async fn require(
        &self,
        context: &RequestContext,
        verb: &str,
        (namespace, name): (&str, &str),
    ) -> Result<(), ApiError> {
        let attributes = Attributes {
            verb: verb.to_owned(),
            group: self.definition.group.clone(),
            version: self.definition.version.clone(),
            resource: self.definition.plural.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        auth::require(&context.authorizer, &context.user, &attributes).await
    }

    async fn update_once(
        &self,
        context: &RequestContext,
        namespace: &str,
        target: Target,
        change: &mut UpdateSource<'_>,
        current: &Arc<Stored>,
    ) -> Result<Outcome<Arc<Stored>>, ApiError> {
        let mut old = current.object();
        let write = Admitted { context, namespace, name: current.name(), current: Some(current), target };
        let changed = match self.written_as(target).scaling {
            Some(scaling) => self.scaled(write, scaling, change, (&old, current)).await?,
            None => self.changed(write, change, (&old, current)).await?,
        };
        let Changed { mut object, managed_fields, based_on, verb } = changed;
        let old_managed_fields = old.metadata_mut().remove(MANAGED_FIELDS);
        old.metadata_mut().remove("resourceVersion");
        metadata::dedup_owners(context, &mut object, AdmissionPhase::After);
        self.check_version(&based_on, current)?;
        let mut draft = self.draft_change(context, target, (&object, managed_fields.as_ref()), (&old, current))?;
        warn(context, &draft);
        count_generation(&mut draft.object, &old);
        self.strategy.admit(context, &draft).await?;
        let finished = is_finished(&draft.object, &old);
        self.admit_stored(write, &draft.object, managed_fields.as_ref()).await?;
        let began = Instant::now();
        let comparison = if !same_but_for_times(managed_fields.as_ref(), old_managed_fields.as_ref()) {
            Comparison::Owners
        } else if draft.object == old {
            Comparison::Equal
        } else {
            Comparison::Unequal
        };
        self.metrics.compared(comparison, began.elapsed());
        if !finished && comparison == Comparison::Equal {
            return Ok(Outcome::Done(current.clone()));
        }
        put_managed_fields(&mut draft.object, managed_fields);
        let prepared = self.prepare(draft.object)?;
        if context.dry_run {
            return Ok(Outcome::Done(Arc::new(prepared.stored(current.key.clone(), current.version))));
        }
        let expect = Expect::At(current.version);
        if finished {
            let outcome = self.append_delete(context, &current.key, expect).await?;
            // The client of an update gets the object that it made, though it is gone now.
            return Ok(match outcome {
                Outcome::Done(_) => Outcome::Done(Arc::new(prepared.stored(current.key.clone(), current.version))),
                Outcome::Lost => Outcome::Lost,
            });
        }
        match change {
            UpdateSource::Object(_) | UpdateSource::Transform(_) => {
                self.append_fitting(context, (&current.key, expect), &prepared, verb).await
            }
            UpdateSource::Apply(_) => self.append(context, &current.key, expect, &prepared, verb).await,
        }
    }

    /// What a change makes of an object, with the owners of its fields, after admission.
    async fn changed(
        &self,
        write: Admitted<'_>,
        change: &mut UpdateSource<'_>,
        (old, current): (&Object, &Arc<Stored>),
    ) -> Result<Changed, ApiError> {
        let Admitted { context, namespace, target, .. } = write;
        let (mut new, verb) = match change {
            UpdateSource::Object(object) => {
                self.check_uid(object, current)?;
                (object.clone(), "update")
            }
            UpdateSource::Transform(transform) => (transform(old)?, "patch"),
            UpdateSource::Apply(apply) => {
                let merged = self.merged(context, target, Some(old), apply)?;
                ((apply.finish)(merged)?, "patch")
            }
        };
        let mut old = old.clone();
        let old_managed_fields = old.metadata_mut().remove(MANAGED_FIELDS);
        old.metadata_mut().remove("resourceVersion");
        let written = new.metadata_mut().remove(MANAGED_FIELDS);
        // Admission sees all that was sent; a part that is not written need not have its type.
        let sight = self.may_admit(write);
        let whole = (sight == Sight::Object).then(|| self.strategy.typed(&new).unwrap_or_else(|_| new.clone()));
        let mut based_on = new.meta_str("resourceVersion").to_owned();
        let going_since =
            (target == Target::Main && has_deletion_timestamp(&old)).then(|| deletion_timestamp(&new).cloned());
        let mut object = self.part(new, &old, target, namespace)?;
        let mut managed_fields = match change {
            UpdateSource::Apply(_) => written,
            UpdateSource::Object(_) | UpdateSource::Transform(_) => {
                let live = Some((&old, old_managed_fields.as_ref()));
                let sent = match going_since {
                    // That it cannot be changed is noticed after who changed it, as upstream.
                    Some(sent) if sent.as_ref() != deletion_timestamp(&object) => {
                        let mut object = object.clone();
                        let metadata = object.metadata_mut();
                        metadata.remove(DELETION_TIMESTAMP);
                        metadata.extend(sent.map(|time| (DELETION_TIMESTAMP.to_owned(), time)));
                        self.typed(&object, target)?
                    }
                    Some(_) | None => self.typed(&object, target)?,
                };
                self.track(context, target, live, &sent, written.as_ref())
            }
        };
        if sight == Sight::Request {
            self.admit_request(write).await?;
        }
        if let Some(mut whole) = whole {
            put_managed_fields(&mut whole, managed_fields);
            self.admit_change(write, &mut whole).await?;
            managed_fields = whole.metadata_mut().remove(MANAGED_FIELDS);
            based_on = whole.meta_str("resourceVersion").to_owned();
            object = self.part(whole, &old, target, namespace)?;
        }
        Ok(Changed { object, managed_fields, based_on, verb })
    }

    /// Refuses what is sent for another object of the same name.
    pub(super) fn check_uid(&self, object: &Object, current: &Stored) -> Result<(), ApiError> {
        if object.uid().is_empty() || object.uid() == current.uid() {
            return Ok(());
        }
        Err(self.uid_conflict(&current.key, current.name(), object.uid(), current.uid()))
    }

    /// Who owns what once `new` is stored: as it was sent, with defaults, before admission and the strategy do their
    /// part. What these set is owned by nobody, as upstream.
    pub(super) fn track(
        &self,
        context: &RequestContext,
        target: Target,
        live: Option<(&Object, Option<&Value>)>,
        new: &Object,
        written: Option<&Value>,
    ) -> Option<Value> {
        let now = metadata::seconds_now();
        self.field_managers.of(target).update(live, (new, written), &context.field_manager, now)
    }

    /// Checks that a change is based on the current version, when it says on which.
    fn check_version(&self, based_on: &str, current: &Stored) -> Result<(), ApiError> {
        let name = current.name();
        let version = sent_version(based_on)?;
        let definition = &self.definition;
        if version == 0 && self.strategy.allow_unconditional_update() {
            return Ok(());
        }
        if version == 0 {
            let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
            return Err(ApiError::invalid(&definition.group, &definition.plural, name, &[error]));
        }
        if version != current.version.0 {
            return Err(ApiError::stale(&definition.group, &definition.plural, name));
        }
        Ok(())
    }

    /// What a write may change of what it was sent, and the rest as it is.
    fn part(&self, mut new: Object, old: &Object, target: Target, namespace: &str) -> Result<Object, ApiError> {
        new.metadata_mut().remove("resourceVersion");
        metadata::set_namespace(&mut new, self.definition.scope, namespace)?;
        Ok(self.split(new, old, target))
    }

    /// Keeps a write to its part: the status, what a subresource is for, or everything else.
    fn split(&self, mut new: Object, old: &Object, target: Target) -> Object {
        match target {
            Target::Main | Target::Scale => {
                if self.definition.has_status {
                    match old.0.get("status") {
                        Some(status) => new.0.insert("status".to_owned(), status.clone()),
                        None => new.0.remove("status"),
                    };
                }
                metadata::keep_for_update(&mut new, old);
                new
            }
            Target::Status => {
                let mut kept = old.clone();
                match new.0.remove("status") {
                    Some(status) => kept.0.insert("status".to_owned(), status),
                    None => kept.0.remove("status"),
                };
                keep_identity(new, &mut kept);
                kept
            }
            Target::Part(name) => {
                let mut kept = old.clone();
                let part = self.definition.parts.iter().find(|part| part.name == name);
                if let Some((last, parents)) = part.and_then(|part| part.path.split_last()) {
                    let sent = parents.iter().try_fold(&mut new.0, |map, key| map.get_mut(*key)?.as_object_mut());
                    let sent = sent.and_then(|map| map.remove(*last));
                    put_part(&mut kept.0, parents, last, sent);
                }
                keep_identity(new, &mut kept);
                kept
            }
        }
    }

    pub(super) fn uid_conflict(&self, key: &Key, name: &str, wanted: &str, found: &str) -> ApiError {
        self.conflict(
            name,
            format_args!(
                "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
                 Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
            ),
        )
    }

    pub(super) fn prepare(&self, object: Object) -> Result<Prepared, ApiError> {
        Prepared::new(&object, self.cache.fields()).map_err(|error| self.unkept(&error))
    }

    /// What a client hears of an object that cannot be kept.
    pub(super) fn unkept(&self, error: &Unkept) -> ApiError {
        match error {
            // The owners of a deep field are as deep, and a few levels more.
            Unkept::TooDeep(levels) => ApiError::bad_request(format!(
                "the object, with its managedFields, is nested {levels} levels deep, and at most {MAX_DEPTH} can be stored"
            )),
            Unkept::Json(error) => {
                tracing::error!(kind = self.definition.kind, %error, "object does not encode");
                ApiError::internal("object does not encode")
            }
        }
    }

    /// Writes an object and waits until the cache shows it.
    pub(super) async fn append(
        &self,
        context: &RequestContext,
        key: &Key,
        expect: Expect,
        prepared: &Prepared,
        verb: &str,
    ) -> Result<Outcome<Arc<Stored>>, ApiError> {
        let _in_flight = self.in_flight.begin(key, prepared);
        let change = Change::Put(prepared.value.clone());
        match self.append_change(context, key, expect, change, verb).await? {
            Outcome::Done(version) => {
                let found = self.cache.get(key).as_ref().and_then(Kept::object).cloned();
                let found = found.filter(|stored| stored.version == version);
                Ok(Outcome::Done(found.unwrap_or_else(|| Arc::new(prepared.stored(key.clone(), version)))))
            }
            Outcome::Lost => Ok(Outcome::Lost),
        }
    }

    /// Deletes an object and waits until the cache shows it gone.
    pub(super) async fn append_delete(
        &self,
        context: &RequestContext,
        key: &Key,
        expect: Expect,
    ) -> Result<Outcome<Version>, ApiError> {
        self.append_change(context, key, expect, Change::Delete, "delete").await
    }

    async fn append_change(
        &self,
        context: &RequestContext,
        key: &Key,
        expect: Expect,
        change: Change,
        verb: &str,
    ) -> Result<Outcome<Version>, ApiError> {
        let origin =
            Origin { user: context.user.name.clone(), verb: verb.to_owned(), message: context.origin_message.clone() };
        let write = Write { key: key.clone(), expect, change, fence: context.fence.clone(), origin };
        match self.log.append(write).await {
            Ok(version) => {
                self.wait_applied(version).await;
                Ok(Outcome::Done(version))
            }
            Err(LogError::Conflict { .. }) => Ok(Outcome::Lost),
            Err(error) => Err(self.log_failed(verb, &error)),
        }
    }
}

/// A change as it is to be stored, if nothing is wrong with it.
pub(super) struct Changed {
    /// Without `managedFields` and version.
    pub(super) object: Object,
    pub(super) managed_fields: Option<Value>,
    /// The version that it is based on, as it was sent; empty for whatever is there.
    pub(super) based_on: String,
    pub(super) verb: &'static str,
}

/// How an update of what does not exist ended.
pub(super) enum Created<'a> {
    Done(Arc<Stored>),
    /// Somebody else created it; this is what was to be written.
    Lost(UpdateSource<'a>),
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

/// That the name is taken of an object that has a `generateName`.
fn no_name_found(error: ApiError) -> ApiError {
    let mut error = error.with_retry_after(1);
    let message = error.message().to_owned();
    error.0.message = Some(format!("{message}, the server was not able to generate a unique name for the object"));
    error
}

fn warn(context: &RequestContext, draft: &Draft) {
    for warning in &draft.warnings {
        context.warn(warning);
    }
}

/// The version that an object was sent with; 0 for none.
///
/// # Errors
///
/// 500 with no reason, as upstream, for what is none.
pub(super) fn sent_version(text: &str) -> Result<u64, ApiError> {
    match text {
        "" => Ok(0),
        text => parse_version(text).map_err(|error| ApiError::new(500, "", error)),
    }
}

/// Checks the name in a body against that in its URL, as upstream's handlers do.
pub(crate) fn check_name(object: &Object, name: &str) -> Result<(), ApiError> {
    match object.name() {
        found if found == name => Ok(()),
        "" => Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        found => Err(ApiError::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        ))),
    }
}

/// Checks a PUT's body against its URL.
fn check_address(object: &Object, namespace: &str, name: &str) -> Result<(), ApiError> {
    check_name(object, name)?;
    let found = object.namespace();
    if !namespace.is_empty() && !found.is_empty() && found != namespace {
        return Err(ApiError::bad_request(format!(
            "the namespace of the object ({found}) does not match the namespace on the request ({namespace})"
        )));
    }
    Ok(())
}

/// Takes over who the object is, so that a change of that is refused as for the main resource.
fn keep_identity(mut new: Object, kept: &mut Object) {
    for field in ["name", "uid"] {
        if let Some(value) = new.metadata_mut().remove(field) {
            kept.metadata_mut().insert(field.to_owned(), value);
        }
    }
}

/// Puts a value where a path of map keys ends, or takes away what is there.
fn put_part(mut map: &mut Map<String, Value>, parents: &[&str], last: &str, value: Option<Value>) {
    for &key in parents {
        if value.is_none() && !map.contains_key(key) {
            return;
        }
        let inner = map.entry(key).or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(inner) = inner else { return };
        map = inner;
    }
    match value {
        Some(value) => map.insert(last.to_owned(), value),
        None => map.remove(last),
    };
}

/// Raises the generation when anything but metadata and status differs.
fn count_generation(new: &mut Object, old: &Object) {
    let before = old.metadata().and_then(|metadata| metadata.get("generation")).and_then(Value::as_i64);
    let generation = match before {
        Some(before) if !same_content(new, old) => before + 1,
        Some(before) => before,
        None => return,
    };
    new.metadata_mut().insert("generation".to_owned(), generation.into());
}

/// Whether two objects differ at most in metadata and status.
fn same_content(a: &Object, b: &Object) -> bool {
    let content = |name: &str| !matches!(name, "metadata" | "status");
    let count = |object: &Object| object.0.keys().filter(|name| content(name)).count();
    count(a) == count(b) && a.0.iter().all(|(name, value)| !content(name) || b.0.get(name) == Some(value))
}

/// Whether an object that was being deleted has nothing left to wait for.
fn is_finished(new: &Object, old: &Object) -> bool {
    let grace = old.metadata().and_then(|metadata| metadata.get("deletionGracePeriodSeconds"));
    has_deletion_timestamp(old) && finalizers(new).is_empty() && grace.and_then(Value::as_i64).unwrap_or(0) == 0
}

pub(super) fn has_deletion_timestamp(object: &Object) -> bool {
    deletion_timestamp(object).is_some()
}

fn deletion_timestamp(object: &Object) -> Option<&Value> {
    object.metadata().and_then(|metadata| metadata.get(DELETION_TIMESTAMP)).filter(|time| !time.is_null())
}

pub(super) fn finalizers(object: &Object) -> Vec<&str> {
    let list = object.metadata().and_then(|metadata| metadata.get("finalizers")).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}
