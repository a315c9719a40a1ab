//! A kind's [`Strategy`] behind a trait that knows no type, so that one store serves every kind.

use std::{any::Any, sync::Arc};

use async_trait::async_trait;
use serde_json::{Map, Value};
use stoa_meta::{
    definition::{ResourceDefinition, Target},
    object::Object,
    request::RequestContext,
    status::{ApiError, FieldError},
};

use crate::strategy::{Admission, Completion, Strategy};

/// A typed value on its way from validation to admission.
type Typed = Box<dyn Any + Send + Sync>;

/// A write that the strategy has prepared and looked at.
pub(super) struct Draft {
    /// As the strategy left it.
    pub(super) object: Object,
    pub(super) errors: Vec<FieldError>,
    /// What is unwise about it.
    pub(super) warnings: Vec<String>,
    new: Typed,
    old: Option<Typed>,
    subresource: &'static str,
}

/// A [`Strategy`] for objects of no particular type.
#[async_trait]
pub(super) trait ErasedStrategy: std::fmt::Debug + Send + Sync {
    /// The object as its type has it, with defaults: what the type leaves out when it is empty is gone.
    fn typed(&self, object: &Object) -> Result<Object, ApiError>;

    /// What an object of the type has besides its metadata when nothing was said of it. Nothing where something has to be
    /// said, such as what a required field is.
    fn zero(&self) -> Map<String, Value>;

    /// Whether an encoded object is of the type.
    fn check_stored(&self, bytes: &[u8]) -> Result<(), serde_json::Error>;

    fn create(&self, context: &RequestContext, object: &Object) -> Result<Draft, ApiError>;

    /// `target` is what is written. `old` is the encoded object.
    fn update(&self, context: &RequestContext, new: &Object, old: &[u8], target: Target) -> Result<Draft, ApiError>;

    /// An object that was just marked as being deleted, as the strategy leaves it.
    fn mark_deleting(&self, context: &RequestContext, object: &Object) -> Result<Object, ApiError>;

    async fn admit(&self, context: &RequestContext, draft: &Draft) -> Result<(), ApiError>;

    async fn admit_delete(&self, context: &RequestContext, old: &[u8]) -> Result<(), ApiError>;

    fn completes(&self) -> bool;

    /// `old` is the encoded object that changes.
    async fn complete(
        &self,
        context: &RequestContext,
        new: &mut Object,
        old: Option<(&[u8], Target)>,
    ) -> Result<(), ApiError>;

    async fn complete_delete(&self, context: &RequestContext, old: &[u8]) -> Result<(), ApiError>;

    fn allow_unconditional_update(&self) -> bool;

    fn allow_create_on_update(&self) -> bool;
}

/// The one implementation: decodes, asks the strategy, encodes.
#[derive(Debug)]
pub(super) struct Erased<S> {
    pub(super) strategy: S,
    pub(super) definition: Arc<ResourceDefinition>,
}

impl<S: Strategy> Erased<S> {
    fn decode(&self, object: &Object) -> Result<S::Object, ApiError> {
        object.to_typed().map_err(|error| {
            let ResourceDefinition { kind, version, .. } = &*self.definition;
            ApiError::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {error}"))
        })
    }

    fn encode(&self, value: &S::Object) -> Result<Object, ApiError> {
        let mut object = Object::from_typed(value).map_err(|error| {
            tracing::error!(kind = self.definition.kind, %error, "object does not encode");
            ApiError::internal("object does not encode")
        })?;
        // A type may leave these to whoever knows the resource.
        object.0.insert("apiVersion".to_owned(), self.definition.api_version().into());
        object.0.insert("kind".to_owned(), self.definition.kind.as_str().into());
        Ok(object)
    }

    fn decode_stored(&self, bytes: &[u8]) -> Result<S::Object, ApiError> {
        serde_json::from_slice(bytes).map_err(|error| {
            tracing::error!(kind = self.definition.kind, %error, "stored object does not decode");
            ApiError::internal("the stored object does not decode")
        })
    }

    fn of_draft(value: &Typed) -> &S::Object {
        value.downcast_ref().expect("a draft is admitted by the strategy that made it")
    }
}

#[async_trait]
impl<S: Strategy> ErasedStrategy for Erased<S> {
    fn typed(&self, object: &Object) -> Result<Object, ApiError> {
        let mut typed = self.decode(object)?;
        self.strategy.set_defaults(&mut typed);
        self.encode(&typed)
    }

    fn zero(&self) -> Map<String, Value> {
        let ResourceDefinition { kind, .. } = &*self.definition;
        let mut bare = Object::default();
        bare.metadata_mut();
        bare.0.insert("apiVersion".to_owned(), self.definition.api_version().into());
        bare.0.insert("kind".to_owned(), kind.as_str().into());
        let typed = bare.to_typed::<S::Object>().and_then(|typed| Object::from_typed(&typed));
        let Object(mut fields) = typed.unwrap_or_default();
        fields.retain(|name, value| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") && !value.is_null());
        fields
    }

    fn check_stored(&self, bytes: &[u8]) -> Result<(), serde_json::Error> {
        serde_json::from_slice::<S::Object>(bytes).map(drop)
    }

    fn create(&self, context: &RequestContext, object: &Object) -> Result<Draft, ApiError> {
        let mut new = self.decode(object)?;
        self.strategy.set_defaults(&mut new);
        self.strategy.prepare_for_create(context, &mut new);
        let mut errors = self.strategy.validate(&new);
        errors.extend(self.strategy.validate_create(context, &new));
        Ok(Draft {
            object: self.encode(&new)?,
            errors,
            warnings: self.strategy.warnings(&new, None),
            new: Box::new(new),
            old: None,
            subresource: "",
        })
    }

    fn update(&self, context: &RequestContext, new: &Object, old: &[u8], target: Target) -> Result<Draft, ApiError> {
        let mut new = self.decode(new)?;
        let old = self.decode_stored(old)?;
        match target {
            Target::Main | Target::Scale => {
                self.strategy.set_defaults(&mut new);
                self.strategy.prepare_for_update(context, &mut new, &old);
            }
            Target::Status => {}
            Target::Part(name) => self.strategy.prepare_for_part(context, name, &mut new, &old),
        }
        let mut errors = self.strategy.validate(&new);
        if !errors.is_empty() && matches!(target, Target::Status | Target::Part(_)) {
            // A rule that came later is not for whoever writes this to meet.
            let before = self.strategy.validate(&old);
            errors.retain(|error| !before.contains(error));
        }
        errors.extend(self.strategy.validate_update(&new, &old));
        Ok(Draft {
            object: self.encode(&new)?,
            errors,
            warnings: self.strategy.warnings(&new, Some(&old)),
            new: Box::new(new),
            old: Some(Box::new(old)),
            // A Scale is the object's own number, and looked at as a change of the object.
            subresource: if target == Target::Scale { "" } else { target.subresource() },
        })
    }

    fn mark_deleting(&self, context: &RequestContext, object: &Object) -> Result<Object, ApiError> {
        let mut object = self.decode(object)?;
        self.strategy.prepare_for_deletion(context, &mut object);
        self.encode(&object)
    }

    async fn admit(&self, context: &RequestContext, draft: &Draft) -> Result<(), ApiError> {
        let new = Self::of_draft(&draft.new);
        let change = match &draft.old {
            None => Admission::Create(new),
            Some(old) => Admission::Update { new, old: Self::of_draft(old), subresource: draft.subresource },
        };
        self.strategy.admit(context, change).await
    }

    async fn admit_delete(&self, context: &RequestContext, old: &[u8]) -> Result<(), ApiError> {
        let old = self.decode_stored(old)?;
        self.strategy.admit(context, Admission::Delete(&old)).await
    }

    fn completes(&self) -> bool {
        self.strategy.completes()
    }

    async fn complete(
        &self,
        context: &RequestContext,
        new: &mut Object,
        old: Option<(&[u8], Target)>,
    ) -> Result<(), ApiError> {
        let mut typed = self.decode(new)?;
        let old = old.map(|(old, target)| Ok::<_, ApiError>((self.decode_stored(old)?, target))).transpose()?;
        let change = match &old {
            None => Completion::Create(&mut typed),
            Some((old, target)) => Completion::Update { new: &mut typed, old, subresource: target.subresource() },
        };
        self.strategy.complete(context, change).await?;
        *new = self.encode(&typed)?;
        Ok(())
    }

    async fn complete_delete(&self, context: &RequestContext, old: &[u8]) -> Result<(), ApiError> {
        let old = self.decode_stored(old)?;
        self.strategy.complete(context, Completion::Delete(&old)).await
    }

    fn allow_unconditional_update(&self) -> bool {
        self.strategy.allow_unconditional_update()
    }

    fn allow_create_on_update(&self) -> bool {
        self.strategy.allow_create_on_update()
    }
}
