//! The rendered files of assignments, which strategies and views cannot make themselves.
//!
//! Start at [`RenderAssignments`], which the server implements. Kinds call it through [`Fleets`], so that they know neither Git
//! nor function-runners.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;
use stoa_machinery::ApiError;
use stoa_types::scheduler::AssignmentPackageSpec;

/// Renders the files of single assignments.
#[async_trait]
pub trait RenderAssignments: fmt::Debug + Send + Sync + 'static {
    /// The packages of assignments of an environment, each by its cluster type and target, in their order; `None` for one that
    /// cannot be rendered, or is no assignment.
    ///
    /// # Errors
    ///
    /// 503 where a repository or the function-runners are out of reach.
    async fn packages(
        &self,
        namespace: &str,
        assignments: &[(String, String)],
    ) -> Result<Vec<Option<AssignmentPackageSpec>>, ApiError>;
}

/// The fleets as kinds see them. Without a server, all of its calls answer 503.
#[derive(Clone, Debug, Default)]
pub struct Fleets(Arc<OnceLock<Arc<dyn RenderAssignments>>>);

impl Fleets {
    /// Sets the implementation, once.
    pub fn set(&self, fleets: Arc<dyn RenderAssignments>) {
        self.0.get_or_init(|| fleets);
    }

    /// The implementation.
    ///
    /// # Errors
    ///
    /// 503 where there is none.
    pub fn get(&self) -> Result<&Arc<dyn RenderAssignments>, ApiError> {
        self.0.get().ok_or_else(|| ApiError::service_unavailable("fleets are not rendered by this server"))
    }
}
