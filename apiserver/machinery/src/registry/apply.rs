//! Server-side apply: a configuration becomes part of an object, or makes one.

use super::{
    Apply, Store, Target, UpdateSource,
    admit::Admitted,
    metadata::{self, AdmissionPhase},
    write::{CreateAuthorization, CreateError, Created},
};
use crate::{managed_fields::ApplyOptions, object::Object, request::RequestContext, status::ApiError};

impl Store {
    /// The object that a configuration makes of the current one, `managedFields` in it.
    pub(super) fn applied(
        &self,
        context: &RequestContext,
        target: Target,
        current: Option<&Object>,
        apply: &mut Apply<'_>,
    ) -> Result<Object, ApiError> {
        let options = ApplyOptions {
            manager: &context.field_manager,
            force: apply.force,
            previous: apply.previous.as_ref(),
            now: metadata::seconds_now(),
        };
        let merged = self.field_managers.of(target).apply(current, &apply.configuration, options)?;
        (apply.finish)(merged)
    }

    /// Creates the object that a configuration describes.
    pub(super) async fn create_applied<'a>(
        &self,
        context: &RequestContext,
        namespace: &str,
        name: &str,
        mut apply: Apply<'a>,
    ) -> Result<Created<'a>, ApiError> {
        let mut object = self.applied(context, Target::Main, None, &mut apply)?;
        if !object.uid().is_empty() {
            let uid = object.uid();
            let detail =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(self.conflict(name, detail));
        }
        metadata::set_namespace(&mut object, self.definition.scope, namespace)?;
        let write = Admitted { context, namespace, name, current: None, target: Target::Main };
        self.admit_change(write, &mut object).await?;
        metadata::dedup_owners(context, &mut object, AdmissionPhase::After);
        object.metadata_mut().remove("resourceVersion");
        match self.create_named(context, namespace, object, CreateAuthorization::Required).await {
            Ok(stored) => Ok(Created::Done(stored)),
            Err(CreateError { taken: Some(_), .. }) => Ok(Created::Lost(UpdateSource::Apply(apply))),
            Err(CreateError { error, taken: None }) => Err(error),
        }
    }
}
