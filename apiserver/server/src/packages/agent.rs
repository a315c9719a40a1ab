//! Writes of controllers to package revisions, with everything that such a write of a user does: tasks, renders and Git.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use stoa_kinds::{lookup::Lookup, package_revision::APPROVAL};
use stoa_machinery::{
    ApiError, RequestContext, auth::AllowAll, definition::Target, object::Object, registry::UpdateSource,
    request::UserInfo,
};
use stoa_packages::Tree;
use stoa_types::porch::{Lifecycle, PackageRevision, PackageRevisionResources};

/// A controller that writes package revisions, as itself or as a user.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    lookup: Lookup,
    context: RequestContext,
}

impl Agent {
    /// A component of the server, which may do everything.
    pub(crate) fn component(lookup: &Lookup, component: &str) -> Self {
        // The server's own calls would leave tasks and Git alone.
        let mut context = RequestContext::new(UserInfo::internal(component), Arc::new(AllowAll));
        context.field_manager = format!("stoa-{component}");
        Self { lookup: lookup.clone(), context }
    }

    /// Whoever a context is of.
    pub(crate) fn of(lookup: &Lookup, context: RequestContext) -> Self {
        Self { lookup: lookup.clone(), context }
    }

    /// Creates a revision by its task.
    ///
    /// # Errors
    ///
    /// As a create by a user.
    pub(crate) async fn create(&self, revision: &PackageRevision) -> Result<PackageRevision, ApiError> {
        self.lookup.api::<PackageRevision>()?.with_context(self.context.clone()).create(revision).await
    }

    /// Deletes a revision, as it was read.
    ///
    /// # Errors
    ///
    /// As a deletion by a user.
    pub(crate) async fn delete(&self, revision: &PackageRevision) -> Result<(), ApiError> {
        let api = self.lookup.api::<PackageRevision>()?.with_context(self.context.clone());
        stoa_controller::queue::delete(&api, revision).await.map(drop)
    }

    /// Changes the lifecycle. Through the subresource `approval`, it publishes and withdraws.
    ///
    /// # Errors
    ///
    /// As such a write by a user.
    pub(crate) async fn set_lifecycle(
        &self,
        revision: &PackageRevision,
        lifecycle: Lifecycle,
    ) -> Result<PackageRevision, ApiError> {
        let (namespace, name) = stoa_controller::queue::key_of(revision);
        let target = match lifecycle {
            Lifecycle::Published => Target::Part(APPROVAL),
            Lifecycle::Draft | Lifecycle::Proposed | Lifecycle::DeletionProposed => Target::Main,
        };
        let uid = revision.uid();
        let change = UpdateSource::transform(|current: &Object| {
            let mut object: PackageRevision = current.to_typed().map_err(ApiError::internal)?;
            if object.uid() != uid {
                return Err(ApiError::not_found("porch.kpt.dev", "packagerevisions", &name));
            }
            object.spec.lifecycle = lifecycle;
            Object::from_typed(&object).map_err(ApiError::internal)
        });
        let store = self.lookup.api::<PackageRevision>()?.store().clone();
        let (stored, _) = store.update(&self.context, &namespace, &name, target, change).await?;
        stored.decode().map_err(ApiError::internal)
    }

    /// Changes the files of a draft, and renders it. Without a change nothing is written.
    ///
    /// # Errors
    ///
    /// As a save by a user, and those of `change`.
    pub(crate) async fn save(
        &self,
        (namespace, name): (&str, &str),
        mut change: impl FnMut(&Tree) -> Result<Tree, ApiError> + Send,
    ) -> Result<PackageRevisionResources, ApiError> {
        let api = self.lookup.api::<PackageRevisionResources>()?.with_context(self.context.clone());
        let change = |object: &mut PackageRevisionResources| {
            let before = tree_of(&object.spec.resources)?;
            let after = change(&before)?;
            if after != before {
                object.spec.resources = resources_of(&after);
            }
            Ok::<(), ApiError>(())
        };
        api.update_with(namespace, name, change).await
    }
}

/// The files of PackageRevisionResources as a tree.
///
/// # Errors
///
/// 422 for paths that no package has.
pub(crate) fn tree_of(resources: &BTreeMap<String, String>) -> Result<Tree, ApiError> {
    let mut tree = Tree::default();
    for (path, text) in resources {
        tree.write(path, text.clone()).map_err(|error| ApiError::new(422, "Invalid", error.to_string()))?;
    }
    Ok(tree)
}

/// The files with text of a tree.
pub(crate) fn resources_of(tree: &Tree) -> BTreeMap<String, String> {
    let text = |(path, file): (&str, &stoa_packages::File)| {
        Some((path.to_owned(), std::str::from_utf8(&file.content).ok()?.to_owned()))
    };
    tree.iter().filter_map(text).collect()
}

/// The reference to an object that owns revisions.
pub(crate) fn owner_reference<K: stoa_controller::object::Kind>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.name_any(),
        uid: owner.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}
