//! Resources of which nothing is kept: what is created is a question, and what comes back is the answer.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    Store, Stored, Target,
    admit::{MANAGED_FIELDS, put_managed_fields},
    metadata,
};
use crate::{
    object::Object,
    request::RequestContext,
    status::{ApiError, FieldErrorKind},
};

/// Answers creates of a resource of which nothing is kept, such as a review.
#[async_trait]
pub trait CreateHandler: std::fmt::Debug + Send + Sync + 'static {
    /// Makes the answer to an object that was sent. Its schema takes the values that are there; what is missing, required
    /// or not, is for the handler to refuse.
    ///
    /// # Errors
    ///
    /// Any [`ApiError`]; 422 `Invalid` for what makes no sense.
    async fn create(&self, context: &RequestContext, object: Object) -> Result<Object, ApiError>;
}

impl Store {
    /// What a handler answers to an object of which nothing is kept.
    ///
    /// # Errors
    ///
    /// 422 `Invalid` for values that the schema does not take; whatever the handler answers, also of required ones that
    /// are missing, since to a typed server they are empty.
    pub(crate) async fn answered(
        &self,
        context: &RequestContext,
        mut object: Object,
        handler: &dyn CreateHandler,
    ) -> Result<Arc<Stored>, ApiError> {
        // It is the answer's.
        object.0.remove("status");
        metadata::clear_for_answer(&mut object);
        let mut refused = self.refused_values(&object, Target::Main);
        refused.retain(|error| error.kind != FieldErrorKind::Required);
        self.refuse(object.name(), refused)?;
        let written = object.metadata_mut().remove(MANAGED_FIELDS);
        let owners = self.track(context, Target::Main, None, &object, written.as_ref());
        put_managed_fields(&mut object, owners);
        let mut answer = handler.create(context, object).await?;
        answer.metadata_mut();
        let key = self.key(answer.namespace(), answer.name());
        Stored::unkept(key, &answer, self.cache.fields()).map(Arc::new).map_err(|error| self.unkept(&error))
    }
}
