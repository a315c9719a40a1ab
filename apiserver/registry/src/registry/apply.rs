//! Server-side apply: a configuration becomes part of an object, or makes one.

use stoa_meta::{
    definition::Target, managed_fields::ApplyOptions, object::Object, request::RequestContext, status::ApiError,
};

use super::{
    Apply, Store, UpdateSource,
    admit::Admitted,
    create::{CreateAuthorization, CreateError},
    metadata::{self, AdmissionPhase},
    update::{Created, sent_version},
};

impl Apply<'_> {
    /// How its configuration is applied by this request, and that it is now.
    pub(super) fn options<'a>(&'a self, context: &'a RequestContext) -> ApplyOptions<'a> {
        ApplyOptions {
            manager: &context.field_manager,
            force: self.force,
            previous: self.previous.as_ref(),
            now: metadata::seconds_now(),
        }
    }
}

impl Store {
    /// The object that a configuration makes of the current one, `managedFields` in it; it is left to finish.
    pub(super) fn merged(
        &self,
        context: &RequestContext,
        target: Target,
        current: Option<&Object>,
        apply: &Apply<'_>,
    ) -> Result<Object, ApiError> {
        self.field_managers.of(target).apply(current, &apply.configuration, apply.options(context))
    }

    /// Creates the object that a configuration describes.
    pub(super) async fn create_applied<'a>(
        &self,
        context: &RequestContext,
        namespace: &str,
        name: &str,
        mut apply: Apply<'a>,
    ) -> Result<Created<'a>, ApiError> {
        let merged = self.merged(context, Target::Main, None, &apply)?;
        if !merged.uid().is_empty() {
            let uid = merged.uid();
            let detail =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(self.conflict(name, detail));
        }
        let mut object = (apply.finish)(merged)?;
        metadata::set_namespace(&mut object, self.definition.scope, namespace)?;
        let write = Admitted { context, namespace, name, current: None, target: Target::Main };
        self.admit_change(write, &mut object).await?;
        metadata::dedup_owners(context, &mut object, AdmissionPhase::After);
        // There is no version that it could be, but it has to be one.
        sent_version(object.meta_str("resourceVersion"))?;
        object.metadata_mut().remove("resourceVersion");
        match self.create_named(context, namespace, object, CreateAuthorization::RequiredByApply).await {
            Ok(stored) => Ok(Created::Done(stored)),
            Err(CreateError { taken: true, .. }) => Ok(Created::Lost(UpdateSource::Apply(apply))),
            Err(CreateError { error, taken: false }) => Err(error),
        }
    }
}
