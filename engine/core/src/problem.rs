//! Problems of a Spec, a plan or a walk, with resource and field.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::spec::ResourceId;

/// CamelCase words for machines; a [`Problem`] carries one.
pub mod reason {
    /// The document is not a Spec.
    pub const INVALID_SPEC: &str = "InvalidSpec";
    /// A resource is not written as its type demands.
    pub const INVALID_RESOURCE: &str = "InvalidResource";
    /// Neither Kubernetes nor the target cluster has such a kind.
    pub const UNKNOWN_KIND: &str = "UnknownKind";
    /// An id is empty, or disagrees with the object it names.
    pub const INVALID_RESOURCE_ID: &str = "InvalidResourceID";
    /// Two resources have one id, or are one object.
    pub const DUPLICATE_RESOURCE: &str = "DuplicateResource";
    /// A field that must be there is not.
    pub const MISSING_FIELD: &str = "MissingField";
    /// A reference does not parse, or its value does not fit where it stands.
    pub const INVALID_REFERENCE: &str = "InvalidReference";
    /// References expand to more than their limit.
    pub const TOO_LARGE: &str = "TooLarge";
    /// A reference or dependency names something that does not exist.
    pub const DANGLING_REFERENCE: &str = "DanglingReference";
    /// Resources depend on each other in a circle.
    pub const CYCLIC_DEPENDENCY: &str = "CyclicDependency";
    /// The workspace has nothing that drives resources of this type.
    pub const NO_RUNTIME: &str = "NoRuntime";
    /// An earlier call may or may not have been made; a person must decide.
    pub const UNKNOWN_STATE: &str = "UnknownState";
    /// The infrastructure refuses the resource.
    pub const REJECTED: &str = "Rejected";
    /// Somebody else owns fields that are wanted here.
    pub const CONFLICT: &str = "Conflict";
    /// Another deployment owns the object.
    pub const OWNED_BY_ANOTHER: &str = "OwnedByAnother";
    /// It is to be deleted, and with it what is wanted.
    pub const STILL_NEEDED: &str = "StillNeeded";
    /// It is to be deleted, and with it what other deployments own.
    pub const HOLDS_OTHERS: &str = "HoldsOthers";
    /// The object to import does not exist.
    pub const NOT_THERE: &str = "NotThere";
    /// The object to import is not in the Spec.
    pub const NOT_IN_SPEC: &str = "NotInSpec";
    /// The infrastructure could not be reached.
    pub const UNAVAILABLE: &str = "Unavailable";
    /// A call or a health check took longer than it may.
    pub const TIMED_OUT: &str = "TimedOut";
    /// The resource was applied and will not become healthy by itself.
    pub const UNHEALTHY: &str = "Unhealthy";
    /// A hook failed, or did not complete in time.
    pub const HOOK_FAILED: &str = "HookFailed";
    /// Deletions were not begun, because something that comes first did not succeed. The next run begins them.
    pub const DELETIONS_LEFT: &str = "DeletionsLeft";
    /// The plan does not belong to the Spec it is carried out with.
    pub const STALE_PLAN: &str = "StalePlan";
}

/// One problem. Every known part is set; messages hold no sensitive values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// One of the words in [`reason`].
    pub reason: String,
    /// Which resource, when it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<ResourceId>,
    /// The field of the resource, such as `attributes.spec.replicas` or `dependsOn[0]`; empty for the whole resource.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// A message for people.
    pub message: String,
}

impl Problem {
    /// Tells what is wrong as a whole.
    pub fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), resource_id: None, field: String::new(), message: message.into() }
    }

    /// Tells which resource it is about.
    #[must_use]
    pub fn of(mut self, id: &ResourceId) -> Self {
        self.resource_id = Some(id.clone());
        self
    }

    /// Tells which field of the resource it is about, such as `attributes.spec.replicas`.
    #[must_use]
    pub fn at(mut self, field: impl fmt::Display) -> Self {
        self.field = field.to_string();
        self
    }
}

impl fmt::Display for Problem {
    /// `<id>: <field>: <message>`, without what is not known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(id) = &self.resource_id {
            write!(f, "{id}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}
