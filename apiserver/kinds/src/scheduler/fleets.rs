//! The rendered files of assignments and proposals to Git, which strategies and views cannot make themselves.
//!
//! Start at [`ControlFleets`], which the server implements. Kinds call it through [`Fleets`], so that they know neither Git
//! nor function-runners.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;
use serde_json::Value;
use stoa_machinery::ApiError;
use stoa_types::scheduler::AssignmentPackageSpec;

use super::schedules::{KnownSchedules, Schedules};
use crate::lookup::Lookup;

/// A write of a client to an object that Git owns.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The environment.
    pub namespace: String,
    /// The kind of the object.
    pub kind: String,
    /// The name of the object.
    pub name: String,
    /// The object as it is served.
    pub before: Value,
    /// The object as the client wants it; `None` for a deletion.
    pub after: Option<Value>,
    /// The name of the user.
    pub user: String,
}

/// Renders the files of single assignments, and proposes changes of control planes.
#[async_trait]
pub trait ControlFleets: fmt::Debug + Send + Sync + 'static {
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

    /// Proposes a write to the repository that owns its object; the pull request in words, such as `pull request 7`.
    ///
    /// # Errors
    ///
    /// The reason why there is no pull request. A second call with the same write opens no second one.
    async fn propose(&self, edit: Edit) -> Result<String, String>;
}

/// The fleets as kinds see them. Without a server, all of its calls answer 503. Clones share everything.
#[derive(Clone, Debug, Default)]
pub struct Fleets {
    control: Arc<OnceLock<Arc<dyn ControlFleets>>>,
    schedules: Arc<KnownSchedules>,
}

impl Fleets {
    /// Sets the implementation, once.
    pub fn set(&self, fleets: Arc<dyn ControlFleets>) {
        self.control.get_or_init(|| fleets);
    }

    /// The schedules of environments, which all kinds share.
    pub(super) fn schedules(&self, lookup: Lookup) -> Schedules {
        Schedules::new(lookup, self.schedules.clone())
    }

    /// The implementation.
    ///
    /// # Errors
    ///
    /// 503 where there is none.
    pub fn get(&self) -> Result<&Arc<dyn ControlFleets>, ApiError> {
        self.control.get().ok_or_else(|| ApiError::service_unavailable("fleets are not rendered by this server"))
    }
}
