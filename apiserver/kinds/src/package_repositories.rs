//! The effects of writes to package revisions outside of the log: documents with files, and Git.
//!
//! Start at [`PackageRepositories`], which the server implements. Strategies call it through [`Packages`], so that the kinds know
//! neither documents nor function-runners.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;
use serde_json::Value;
use stoa_machinery::{ApiError, RequestContext};
use stoa_types::porch::{EvalTask, PackageRevision};

/// The content of a package revision that is no part of its object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    /// The files, by path from the folder of the package.
    pub resources: BTreeMap<String, String>,
    /// The results of the functions at the last save.
    pub render_status: Value,
    /// The annotations of the PackageRevisionResources.
    pub annotations: BTreeMap<String, String>,
    /// The `managedFields` of the PackageRevisionResources.
    pub managed_fields: Option<Value>,
}

/// Makes and stores the content of package revisions, and brings Git to them.
#[async_trait]
pub trait PackageRepositories: fmt::Debug + Send + Sync + 'static {
    /// Makes the content of a new revision by its task, stores it, and sets everything in the object that follows from it.
    ///
    /// # Errors
    ///
    /// 422 where the task cannot be done, 404 where it names an unknown revision.
    async fn create(&self, context: &RequestContext, revision: &mut PackageRevision) -> Result<(), ApiError>;

    /// Reads the content of a revision.
    ///
    /// # Errors
    ///
    /// 503 where the document or the repository is out of reach.
    async fn content(&self, revision: &PackageRevision) -> Result<Content, ApiError>;

    /// Renders and stores a changed content, and sets everything in the object that follows from it.
    ///
    /// # Errors
    ///
    /// 422 for files that are no package.
    async fn save(
        &self,
        context: &RequestContext,
        content: Content,
        revision: &mut PackageRevision,
    ) -> Result<(), ApiError>;

    /// Runs one function on the content of a draft, then renders and stores the result, and sets everything in the object that
    /// follows from it.
    ///
    /// # Errors
    ///
    /// 422 where the function fails, 503 where its executor is out of reach, 504 where it takes too long. Nothing is stored then.
    async fn evaluate(
        &self,
        context: &RequestContext,
        task: &EvalTask,
        revision: &mut PackageRevision,
    ) -> Result<(), ApiError>;

    /// Brings Git to a new lifecycle of a revision that is published, before or after. The result is in Git when this
    /// returns, and the object says where.
    ///
    /// # Errors
    ///
    /// 409 where Git has something else, 503 where it is out of reach.
    async fn change_lifecycle(
        &self,
        context: &RequestContext,
        new: &mut PackageRevision,
        old: &PackageRevision,
    ) -> Result<(), ApiError>;

    /// Removes a revision from Git.
    ///
    /// # Errors
    ///
    /// As for [`change_lifecycle`](Self::change_lifecycle).
    async fn remove(&self, context: &RequestContext, revision: &PackageRevision) -> Result<(), ApiError>;
}

/// The package repositories as strategies see them. Without a server, all of its calls answer 503.
#[derive(Clone, Debug, Default)]
pub struct Packages(Arc<OnceLock<Arc<dyn PackageRepositories>>>);

impl Packages {
    /// Strategies with these repositories.
    pub fn of(repositories: Arc<dyn PackageRepositories>) -> Self {
        Self(Arc::new(OnceLock::from(repositories)))
    }

    /// The repositories.
    ///
    /// # Errors
    ///
    /// 503 where there are none.
    pub fn get(&self) -> Result<&Arc<dyn PackageRepositories>, ApiError> {
        self.0.get().ok_or_else(|| ApiError::service_unavailable("the package repositories are not available"))
    }
}
