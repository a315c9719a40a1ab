//! Updates, with the rules and the order of steps of `k8s.io/apiserver`'s generic registry
//! (`pkg/registry/generic/registry/store.go`).
//!
//! Elsewhere: `create` makes what is not there yet, `parts` keeps a write to what it may change, and `append` writes to the log.

use std::{sync::Arc, time::Instant};

use serde_json::Value;
use stoa_log::{Expect, Key};
use stoa_meta::{
    authorizer::{self, Attributes},
    definition::Target,
    managed_fields::same_but_for_times,
    object::Object,
    request::RequestContext,
    status::{ApiError, FieldError},
};

use super::{
    Store, Stored, UpdateSource,
    admit::{Admitted, MANAGED_FIELDS, put_managed_fields},
    append::Outcome,
    create::CreateAuthorization,
    erased::Draft,
    metadata::{self, AdmissionPhase},
    metrics::Comparison,
    read::parse_version,
};
use crate::{admission::Visibility, cache::CacheEntry};

const DELETION_TIMESTAMP: &str = "deletionTimestamp";
/// How often an update may lose to a write of which nothing is seen: of an object that went again at once.
const MAX_UNSEEN: usize = 8;

impl Store {
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
            let current = match &self.view {
                Some(view) => view.current(namespace, name).await?,
                None => self.readable(self.current_kept("update", &key).await?)?,
            };
            let found = current.as_ref().map(|current| current.version);
            if lost_at.replace(found) == Some(found) {
                unseen += 1;
                if unseen == MAX_UNSEEN {
                    return Err(ApiError::stale(&self.definition.group, &self.definition.plural, name));
                }
            }
            let Some(current) = current else {
                if self.view.is_some() {
                    return Err(self.not_found(name));
                }
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
    /// Fails with 403.
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
        authorizer::require(&context.authorizer, &context.user, &attributes).await
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
        if !context.dry_run
            && let Some(view) = &self.view
        {
            return view.write(context, draft.object, current).await;
        }
        if !context.dry_run && self.strategy.completes() {
            let completed = match finished {
                true => self.strategy.complete_delete(context, &current.json()).await,
                false => self.strategy.complete(context, &mut draft.object, Some((&current.json(), target))).await,
            };
            if let Err(error) = completed {
                // Another write may have come first, and the change is made again on top of that.
                let is_lost = error.code() == 409 && !self.is_current(current).await?;
                return if is_lost { Ok(Outcome::Lost) } else { Err(error) };
            }
        }
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

    /// Whether an object is as it was read.
    async fn is_current(&self, read: &Stored) -> Result<bool, ApiError> {
        let now = self.current_kept("update", &read.key).await?;
        Ok(now.as_ref().and_then(CacheEntry::object).is_some_and(|now| now.version == read.version))
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
        let visibility = self.may_admit(write);
        let whole =
            (visibility == Visibility::Object).then(|| self.strategy.typed(&new).unwrap_or_else(|_| new.clone()));
        let mut based_on = new.meta_str("resourceVersion").to_owned();
        let going_since =
            (target == Target::Main && has_deletion_timestamp(&old)).then(|| deletion_timestamp(&new).cloned());
        let mut object = self.part(new, &old, (target, context), namespace)?;
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
        if visibility == Visibility::Request {
            self.admit_request(write).await?;
        }
        if let Some(mut whole) = whole {
            put_managed_fields(&mut whole, managed_fields);
            self.admit_change(write, &mut whole).await?;
            managed_fields = whole.metadata_mut().remove(MANAGED_FIELDS);
            based_on = whole.meta_str("resourceVersion").to_owned();
            object = self.part(whole, &old, (target, context), namespace)?;
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
        if version != current.version.0 && !self.view.as_ref().is_some_and(|view| view.is_unchanged(version, current)) {
            return Err(ApiError::stale(&definition.group, &definition.plural, name));
        }
        Ok(())
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

pub(super) fn warn(context: &RequestContext, draft: &Draft) {
    for warning in &draft.warnings {
        context.warn(warning);
    }
}

/// The version that an object was sent with; 0 for none.
/// Fails with 500 with no reason, as upstream, for what is none.
pub(super) fn sent_version(text: &str) -> Result<u64, ApiError> {
    match text {
        "" => Ok(0),
        text => parse_version(text).map_err(|error| ApiError::new(500, "", error)),
    }
}

/// Checks the name in a body against that in its URL, as upstream's handlers do.
pub fn check_name(object: &Object, name: &str) -> Result<(), ApiError> {
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
