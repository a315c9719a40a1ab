//! Project: an application, with the folder that its configuration is in.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{
    ChangedBy, Condition, DeletionPolicy, LocalReference, MissingFolder, Subject, conditions_schema,
    deletion_policy_schema,
};

/// What a Project is to be.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.stoa.dev",
    version = "v1alpha1",
    kind = "Project",
    plural = "projects",
    singular = "project",
    shortname = "proj",
    category = "stoa",
    namespaced,
    status = "ProjectStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Project is an application that serves a business purpose: one or more services whose configuration lives together in one folder of a Source. Its stacks are its variants."
)]
#[serde(rename_all = "camelCase")]
pub struct ProjectSpec {
    /// What the project is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Who is responsible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Subject>,
    /// The Source, in the same namespace, that the project's configuration is in. Immutable.
    pub source: LocalReference,
    /// The project's folder in the Source; empty for the whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Where the project's configuration was first taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    /// Who may write the project's stacks: everybody the organization allows, or only its owners and those who may edit the
    /// project.
    #[serde(default)]
    pub access: Access,
    /// Refuse: the deletion of the project is refused while infrastructure is live. Destroy, Orphan: it is allowed, and this
    /// is what happens to the live infrastructure of stacks that set no policy. Left out, it is that of the organization, or
    /// else Refuse. The policy of a stack wins over this one: a live stack with Refuse keeps the project from being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "deletion_policy_schema")]
    pub deletion_policy: Option<DeletionPolicy>,
}

/// A folder of another Source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Template {
    /// The Source.
    pub source: LocalReference,
    /// The folder in it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
}

/// Who may write a project's stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Access {
    /// Whoever may write stacks in the organization.
    #[default]
    Organization,
    /// Only its owners, and who may also `edit` this project.
    Owners,
}

/// What a Project is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectStatus {
    /// How many stacks the project has.
    #[serde(default)]
    pub stacks: i64,
    /// Who last made it another folder, or made it when stacks named it already: runs that a trigger starts for it count as
    /// asked for by them, too.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub set_by: String,
    /// Everybody who did, the last one last: at most 16, of whom the first stands for all others where there were more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub changed_by: Vec<ChangedBy>,
    /// The folder that the source lacks, and the commit that lacks it; absent where the source has it, or was not asked yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_folder: Option<MissingFolder>,
    /// Who deleted it, as long as it is there: what that destroys counts as asked for by them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub deleted_by: String,
    /// Ready: the Source exists, can be read, and has the folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}
