//! A create of an object of one resource through a subresource of another, such as `pods/eviction` upstream.

use std::sync::Arc;

use http::StatusCode;
use jiff::Timestamp;
use stoa_meta::{
    definition::{SubresourceCall, SubresourceResponse},
    object::Object,
    status::ApiError,
};
use stoa_registry::registry::{self, AdmissionPhase, Store};

use super::{
    negotiate,
    query::Query,
    render::{self, Form},
    response,
    writes::ensure_namespace,
};

/// What handlers of subresources do with a [`SubresourceCall`].
pub trait SubresourceCallExt {
    /// Answers with the object that is created in `store` from the body, which `complete` makes what the subresource
    /// stands for. An empty body is an empty object; all others are read, and the answer is formed, as for any create.
    /// Fails with 406 and 415 for formats that are not spoken, 400 for a body that is no object of the resource or of
    /// another namespace, whatever `complete` returns, and what [`Store::create`] refuses.
    fn create(
        &self,
        store: &Arc<Store>,
        complete: impl FnOnce(&mut Object) -> Result<(), ApiError> + Send,
    ) -> impl Future<Output = Result<SubresourceResponse, ApiError>> + Send;

    /// The position of the media type in `offered`, such as `text/plain`, that the client wants most: the first for
    /// one that takes any or does not say, nothing for one that takes none of them.
    fn preferred(&self, offered: &[&str]) -> Option<usize>;
}

impl SubresourceCallExt for SubresourceCall {
    async fn create(
        &self,
        store: &Arc<Store>,
        complete: impl FnOnce(&mut Object) -> Result<(), ApiError> + Send,
    ) -> Result<SubresourceResponse, ApiError> {
        let definition = store.definition();
        let accepted = negotiate::output(&self.headers)?;
        let form = Form::of(accepted, &Query::of_pairs(self.query.clone()), Timestamp::now())?;
        form.check_object(definition)?;
        let media = negotiate::input(&self.headers)?;
        let body: &[u8] = if self.body.is_empty() { b"{}" } else { &self.body };
        let decoded = store.decoder().decode(body, media.format(), self.context.field_validation)?;
        decoded.warnings.into_iter().for_each(|warning| self.context.warn(warning));
        let mut object = decoded.object;
        if let Some(recorder) = self.context.recorder() {
            recorder.request_object(&object);
        }
        complete(&mut object)?;
        ensure_namespace(&self.namespace, &mut object)?;
        registry::dedup_owners(&self.context, &mut object, AdmissionPhase::Before);
        let stored = store.create(&self.context, &self.namespace, object).await?;
        response::json(StatusCode::CREATED, accepted.media, &self.headers, render::object(definition, form, &stored))
    }

    fn preferred(&self, offered: &[&str]) -> Option<usize> {
        negotiate::preferred(&self.headers, offered)
    }
}
