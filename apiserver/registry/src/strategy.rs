//! The strategy of a kind (`pkg/registry/rest` upstream): defaulting, validation, immutable fields.
//!
//! The machinery does everything that all kinds share (metadata, generation, finalizers,
//! conflicts, the split of spec and status) and asks the kind's [`Strategy`] for the rest. The
//! word and the order of calls are those of `k8s.io/apiserver/pkg/registry/rest`.

use std::fmt::Debug;

use async_trait::async_trait;
use serde::{Serialize, de::DeserializeOwned};
use stoa_meta::{
    request::RequestContext,
    status::{ApiError, FieldError},
};

/// A write about to be stored, for [`Strategy::admit`].
#[derive(Debug)]
pub enum Admission<'a, T> {
    /// A new object.
    Create(&'a T),
    /// A change of an object; also by patch, apply, and through a subresource.
    Update {
        /// As it will be.
        new: &'a T,
        /// As it is.
        old: &'a T,
        /// `status`, the subresource of a [`Part`](stoa_meta::definition::Part), or empty.
        subresource: &'a str,
    },
    /// A removal.
    Delete(&'a T),
}

/// A write that nothing rejects any more, for [`Strategy::complete`].
#[derive(Debug)]
pub enum Completion<'a, T> {
    /// A new object.
    Create(&'a mut T),
    /// A change of an object.
    Update {
        /// The object after the change.
        new: &'a mut T,
        /// The object before the change.
        old: &'a T,
        /// As in [`Admission::Update`].
        subresource: &'a str,
    },
    /// A removal.
    Delete(&'a T),
}

/// What the writes of one kind mean.
///
/// Called in this order: `set_defaults`, `prepare_for_create` or `prepare_for_update`, `validate` (and `validate_create` or
/// `validate_update`), then `admit`, and last `complete`. Each may be called again when a write is retried; none but
/// `complete` may have effects of its own.
#[async_trait]
pub trait Strategy: Debug + Send + Sync + 'static {
    /// The kind as a Rust type.
    type Object: Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Sets what was left out, besides the schema's defaults, which are there already. Whoever writes owns it, and
    /// admission sees it. Called again after each change that admission makes, and after all of it, so that a second call
    /// has to change nothing.
    fn set_defaults(&self, _object: &mut Self::Object) {}

    /// Clears what clients may not set, and adds what is the server's, before an object is created; nobody owns that.
    /// Status is empty already.
    fn prepare_for_create(&self, _context: &RequestContext, _object: &mut Self::Object) {}

    /// The same before an object is changed. Not called for writes to `status` and to parts.
    fn prepare_for_update(&self, _context: &RequestContext, _new: &mut Self::Object, _old: &Self::Object) {}

    /// The same before an object is marked as being deleted that stays for its finalizers. Its deletionTimestamp is there.
    fn prepare_for_deletion(&self, _context: &RequestContext, _object: &mut Self::Object) {}

    /// The same before a [`Part`](stoa_meta::definition::Part) of an object is written through its subresource. But for that
    /// part, `new` is what `old` is; whatever else follows from it is for this to set.
    fn prepare_for_part(&self, _context: &RequestContext, _part: &str, _new: &mut Self::Object, _old: &Self::Object) {}

    /// Finds what is wrong with an object by itself. What was wrong with it before keeps nobody from writing its status or a
    /// part.
    fn validate(&self, _object: &Self::Object) -> Vec<FieldError> {
        Vec::new()
    }

    /// Finds what is wrong with a new object, besides what [`validate`](Self::validate) finds: what no object may be made with,
    /// though there may be some from before the rule.
    fn validate_create(&self, _context: &RequestContext, _object: &Self::Object) -> Vec<FieldError> {
        Vec::new()
    }

    /// Finds what is wrong with a change, besides what [`validate`](Self::validate) finds.
    fn validate_update(&self, _new: &Self::Object, _old: &Self::Object) -> Vec<FieldError> {
        Vec::new()
    }

    /// Says what is allowed but unwise, as `Warning` headers.
    fn warnings(&self, _new: &Self::Object, _old: Option<&Self::Object>) -> Vec<String> {
        Vec::new()
    }

    /// Decides what needs looking at other objects or asking the authorizer. Runs on dry runs too. An effect of its own may be
    /// nothing but what whoever may write the object may do by that alone, since the write may still be refused.
    ///
    /// # Errors
    ///
    /// The [`ApiError`] that the client gets.
    async fn admit(&self, _context: &RequestContext, _change: Admission<'_, Self::Object>) -> Result<(), ApiError> {
        Ok(())
    }

    /// Whether [`complete`](Self::complete) is to be called.
    fn completes(&self) -> bool {
        false
    }

    /// Makes the effects of the write outside of the log, such as a push, and adds the outcome to the object. Runs after all
    /// admission and not on dry runs. The write may still lose to another one and then runs again, so a repeated effect must
    /// be harmless.
    ///
    /// # Errors
    ///
    /// The [`ApiError`] that the client gets. Nothing is written then.
    async fn complete(&self, _context: &RequestContext, _change: Completion<'_, Self::Object>) -> Result<(), ApiError> {
        Ok(())
    }

    /// Whether an update may come without a resourceVersion.
    fn allow_unconditional_update(&self) -> bool {
        true
    }

    /// Whether a PUT to a name that does not exist creates it.
    fn allow_create_on_update(&self) -> bool {
        false
    }
}

/// The strategy of a kind that needs none.
#[derive(Debug)]
pub struct DefaultStrategy<T>(std::marker::PhantomData<fn() -> T>);

impl<T> Default for DefaultStrategy<T> {
    fn default() -> Self {
        Self(std::marker::PhantomData)
    }
}

#[async_trait]
impl<T> Strategy for DefaultStrategy<T>
where
    T: Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    type Object = T;
}
