//! The calls of the admission chain: changes before validation, objections before the append.
//!
//! Nothing is locked meanwhile. A write that then loses its race is made and admitted again, as upstream.

use std::sync::Arc;

use serde_json::{Map, Value};
use stoa_meta::{
    definition::{ResourceDefinition, Target},
    managed_fields::{self, FieldManagers},
    object::Object,
    request::RequestContext,
    schema::Decoder,
    status::ApiError,
};

use super::{DeleteOptions, Scaling, Store, Stored};
use crate::admission::{Attributes, Chain, Defaulter, Operation, Visibility};

/// The key of `managedFields` in `metadata`.
pub const MANAGED_FIELDS: &str = "managedFields";

#[derive(Clone, Copy, Debug)]
pub(super) struct Admitted<'a> {
    pub(super) context: &'a RequestContext,
    pub(super) namespace: &'a str,
    /// Empty while it is still to be generated.
    pub(super) name: &'a str,
    /// What is changed; nothing when it is created.
    pub(super) current: Option<&'a Stored>,
    pub(super) target: Target,
}

/// As what something of a resource is written: as the resource itself, or as the kind that a subresource takes.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    /// The kind that is written.
    pub definition: &'a Arc<ResourceDefinition>,
    /// Reads it.
    pub decoder: &'a Decoder,
    fields: &'a FieldManagers,
    /// How it is made of the object, if it is its Scale.
    pub scaling: Option<&'a Scaling>,
}

impl Written<'_> {
    /// An object as admission sees it.
    fn seen(&self, object: Object) -> Object {
        match self.scaling {
            Some(scaling) => scaling.seen(&object),
            None => object,
        }
    }
}

impl Store {
    /// What the chain has to see of a write that it may change or refuse.
    pub(super) fn may_admit(&self, write: Admitted<'_>) -> Visibility {
        let Some(chain) = self.admission.get() else { return Visibility::Nothing };
        chain.admits(&self.attributes(write, chain, None, &Value::Null))
    }

    /// Lets the chain refuse a write by what is asked, unseen what is written.
    pub(super) async fn admit_request(&self, write: Admitted<'_>) -> Result<(), ApiError> {
        let Some(chain) = self.admission.get() else { return Ok(()) };
        let options = options_of(write);
        chain.admit_request(&self.attributes(write, chain, None, &options)).await
    }

    /// Lets the chain change an object that is about to be written. Its `managedFields` are what the write makes them;
    /// what the chain changes is owned by nobody, and what it makes of them has to make sense.
    ///
    /// Follows `NewManagedFieldsValidatingAdmissionController` upstream.
    pub(super) async fn admit_change(&self, write: Admitted<'_>, object: &mut Object) -> Result<(), ApiError> {
        let Some(chain) = self.admission.get() else { return Ok(()) };
        let old = write.current.map(|current| self.written_as(write.target).seen(current.object()));
        let options = options_of(write);
        let attributes = self.attributes(write, chain, old.as_ref(), &options);
        let before = managed_fields_of(object).cloned();
        if !chain.admit(&attributes, Some(&mut *object)).await? {
            return Ok(());
        }
        if let Err(error) = managed_fields::check(managed_fields_of(object)) {
            put_managed_fields(object, before);
            write.context.warn(format!(
                ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated \
                 mutating admission controller; please fix your requests: {error}"
            ));
        }
        Ok(())
    }

    /// Asks the chain for objections to what is about to be stored; `managed_fields` are kept apart from it.
    pub(super) async fn admit_stored(
        &self,
        write: Admitted<'_>,
        object: &Object,
        managed_fields: Option<&Value>,
    ) -> Result<(), ApiError> {
        let Some(chain) = self.admission.get() else { return Ok(()) };
        let options = options_of(write);
        if !chain.validates(&self.attributes(write, chain, None, &options)) {
            return Ok(());
        }
        let mut object = object.clone();
        let metadata = object.metadata_mut();
        if let Some(managed_fields) = managed_fields {
            metadata.insert("managedFields".to_owned(), managed_fields.clone());
        }
        if let Some(current) = write.current {
            metadata.insert("resourceVersion".to_owned(), current.version.to_string().into());
        }
        let written = self.written_as(write.target);
        let object = written.seen(object);
        let old = write.current.map(|current| written.seen(current.object()));
        chain.validate(&self.attributes(write, chain, old.as_ref(), &options), Some(&object)).await
    }

    /// What of the resource is written as what.
    pub fn written_as(&self, target: Target) -> Written<'_> {
        match (target, &self.scaling) {
            (Target::Scale, Some(scaling)) => Written {
                definition: &scaling.definition,
                decoder: &scaling.decoder,
                fields: &scaling.fields,
                scaling: Some(scaling),
            },
            (Target::Main | Target::Status | Target::Scale | Target::Part(_), _) => Written {
                definition: &self.definition,
                decoder: &self.decoder,
                fields: &self.field_managers,
                scaling: None,
            },
        }
    }

    /// Asks the chain about a removal of the object that has this name, or is one of many if that is empty, as upstream.
    pub(super) async fn admit_removal(
        &self,
        context: &RequestContext,
        (namespace, name): (&str, &str),
        current: &Stored,
        options: &DeleteOptions,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        let Some(chain) = self.admission.get() else { return Ok(()) };
        let mut sent = serde_json::to_value(options).unwrap_or_default();
        if let Some(sent) = sent.as_object_mut() {
            sent.insert("kind".to_owned(), "DeleteOptions".into());
            sent.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
            // Less than no time is a second, once an object is looked at for itself.
            if !name.is_empty() && options.grace_period_seconds.is_some_and(|seconds| seconds < 0) {
                sent.insert("gracePeriodSeconds".to_owned(), 1.into());
            }
        }
        let old = current.object();
        let write = Admitted { context, namespace, name, current: Some(current), target: Target::Main };
        let attributes = self.attributes(write, chain, Some(&old), &sent);
        let attributes = Attributes { operation: Operation::Delete, dry_run, ..attributes };
        chain.admit(&attributes, None).await?;
        chain.validate(&attributes, None).await
    }

    fn attributes<'a>(
        &'a self,
        write: Admitted<'a>,
        chain: &'a Chain,
        old_object: Option<&'a Object>,
        options: &'a Value,
    ) -> Attributes<'a> {
        let Written { definition, decoder, fields, scaling } = self.written_as(write.target);
        Attributes {
            context: write.context,
            definition: &self.definition,
            operation: if write.current.is_some() { Operation::Update } else { Operation::Create },
            namespace: write.namespace,
            name: write.name,
            kind: definition,
            subresource: write.target.subresource(),
            old_object,
            options,
            dry_run: write.context.dry_run,
            decoder,
            defaulter: scaling.is_none().then_some(self as &dyn Defaulter),
            fields,
            metrics: chain.metrics(),
        }
    }
}

impl Defaulter for Store {
    fn with_defaults(&self, mut object: Object) -> Object {
        // They are checked as they are.
        let managed_fields = object.metadata_mut().remove(MANAGED_FIELDS);
        let mut object = self.strategy.typed(&object).unwrap_or(object);
        put_managed_fields(&mut object, managed_fields);
        object
    }
}

/// The `managedFields` of an object.
pub fn managed_fields_of(object: &Object) -> Option<&Value> {
    object.metadata().and_then(|metadata| metadata.get(MANAGED_FIELDS))
}

/// Puts `managedFields` into an object in the place of what it has.
pub fn put_managed_fields(object: &mut Object, managed_fields: Option<Value>) {
    let metadata = object.metadata_mut();
    match managed_fields {
        Some(entries) => metadata.insert(MANAGED_FIELDS.to_owned(), entries),
        None => metadata.remove(MANAGED_FIELDS),
    };
}

/// `CreateOptions` or `UpdateOptions` as the client sent them, which are those of a patch, too.
fn options_of(write: Admitted<'_>) -> Value {
    let kind = if write.current.is_some() { "UpdateOptions" } else { "CreateOptions" };
    let mut options = Map::new();
    options.insert("kind".to_owned(), kind.into());
    options.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
    options.extend(write.context.write_options().clone());
    Value::Object(options)
}
