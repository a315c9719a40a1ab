//! Rejects API writes to objects whose files in the control repository are invalid or blocked.
//!
//! A person who pushed such a file wants a change that is unknown yet. A write beside it would decide without that person, and the
//! projection could not write the file without removing theirs. So the object stays unchanged until a push corrects the file. A
//! blocked file counts, too: its content is decided.
//!
//! Start at [`InvalidFileGuard`]. Elsewhere: [`super::report`] reports the problems.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use stoa_control_repo::{InvalidFile, ObjectPath, ProjectionState};
use stoa_kinds::{GIT_PATHS, cluster::Cluster};
use stoa_machinery::{
    ApiError, Object,
    admission::{AdmissionPlugin, Attributes, Operation, Reinvocation},
    log::Key,
};

use super::{layout::USER, report::REFUSED};

/// The plugin.
#[derive(Clone, Debug)]
pub(super) struct InvalidFileGuard {
    files: ProjectionState,
    cluster: Arc<dyn Cluster>,
}

impl InvalidFileGuard {
    pub(super) fn new(files: ProjectionState, cluster: Arc<dyn Cluster>) -> Self {
        Self { files, cluster }
    }

    /// Whether an object is deleted with its namespace, which was decided elsewhere.
    async fn goes_with_its_namespace(&self, attributes: &Attributes<'_>) -> Result<bool, ApiError> {
        if attributes.operation != Operation::Delete || attributes.namespace.is_empty() {
            return Ok(false);
        }
        let namespace = self.cluster.namespace(attributes.namespace).await?;
        Ok(namespace.is_none_or(|namespace| namespace.terminating))
    }

    async fn check(&self, attributes: &Attributes<'_>, file: &ObjectPath) -> Result<(), ApiError> {
        let path = file.path();
        let Some(invalid) = self.files.invalid(&path).filter(|invalid| !invalid.reason.starts_with(REFUSED)) else {
            return Ok(());
        };
        if self.goes_with_its_namespace(attributes).await? {
            return Ok(());
        }
        let detail = detail(&path, &invalid);
        Err(ApiError::conflict(&attributes.definition.group, &attributes.definition.plural, attributes.name, detail))
    }
}

/// Why an object whose file this is cannot be written.
fn detail(path: &str, invalid: &InvalidFile) -> String {
    let commit = invalid.commit.get(..8).unwrap_or(&invalid.commit);
    let file = format!("its file {path} in the control repository");
    let reason = &invalid.reason;
    if invalid.waits {
        format!("{file} waits since commit {commit}, and is applied as soon as that is possible: {reason}")
    } else {
        format!("{file} is invalid since commit {commit}: {reason}; push one that is valid first")
    }
}

/// The path of the file of an object.
fn path_of(attributes: &Attributes<'_>, object: &Object) -> Option<ObjectPath> {
    let prefix = attributes.definition.key_prefix();
    let name = if attributes.name.is_empty() { object.name() } else { attributes.name };
    let key = match attributes.namespace {
        "" => format!("{prefix}{name}"),
        namespace => format!("{prefix}{namespace}/{name}"),
    };
    GIT_PATHS.of_object(&Key::new(key), &Value::Object(object.0.clone()))
}

#[async_trait]
impl AdmissionPlugin for InvalidFileGuard {
    fn name(&self) -> &'static str {
        "InvalidFile"
    }

    fn admits(&self, attributes: &Attributes<'_>) -> bool {
        // Files do not have the status, nor the fields of the server itself.
        attributes.subresource.is_empty()
            && !attributes.context.is_internal()
            && attributes.context.user.name != USER
            && self.files.has_invalid()
    }

    async fn admit(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&mut Object>,
        _: &mut Reinvocation,
    ) -> Result<(), ApiError> {
        let old = attributes.old_object;
        let is_deleting =
            |object: &&Object| object.metadata().is_some_and(|metadata| metadata.contains_key("deletionTimestamp"));
        if old.is_some_and(|old| is_deleting(&old)) {
            // Its file is removed already.
            return Ok(());
        }
        for object in old.into_iter().chain(object.as_deref()) {
            if let Some(file) = path_of(attributes, object) {
                self.check(attributes, &file).await?;
            }
        }
        Ok(())
    }
}
