//! Ephemeral resources such as reviews (`rest.Creater` alone upstream): a create is answered, and nothing is stored.

use std::sync::Arc;

use stoa_meta::{
    definition::{CreateHandler, Target},
    object::Object,
    request::RequestContext,
    status::{ApiError, FieldErrorKind},
};

use super::{
    Store, Stored,
    admit::{MANAGED_FIELDS, put_managed_fields},
    metadata,
};

impl Store {
    /// What a handler answers to an object of which nothing is kept.
    ///
    /// # Errors
    ///
    /// 422 `Invalid` for values that the schema does not take; whatever the handler answers, also of required ones that
    /// are missing, since to a typed server they are empty.
    pub async fn answer_ephemeral(
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
        Stored::ephemeral(key, &answer, self.cache.fields())
            .map(Arc::new)
            .map_err(|error| self.undecodable_error(&error))
    }
}
