//! Project: an application, with the folder of its configuration.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{
    ChangedBy, Condition, DeletionPolicy, LocalReference, MissingFolder, Subject, conditions_schema,
    deletion_policy_schema,
};

/// The desired state of a Project.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.stoa.dev",
    version = "v1alpha1",
    kind = "Project",
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
    /// A description of the project for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The owners of the project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Subject>,
    /// The Source, in the same namespace, that has the project's configuration. Immutable.
    pub source: LocalReference,
    /// The project's folder in the Source. Empty: the root of the Source.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The folder that the project's configuration was first copied from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    /// The users who may write the project's stacks. Organization: all users who may write stacks in the organization.
    /// Owners: only the project's owners and users with the verb `edit` on the project. Defaults to Organization.
    #[serde(default)]
    pub access: Access,
    /// The policy for live infrastructure when the project is deleted. Refuse rejects the deletion while infrastructure
    /// is live. Destroy and Orphan allow it, and apply to stacks that set no policy. Defaults to the policy of the
    /// organization, or else to Refuse. The policy of a stack wins over this one. A live stack with Refuse blocks the
    /// deletion of the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "deletion_policy_schema")]
    pub deletion_policy: Option<DeletionPolicy>,
}

/// A folder of a Source that the project's configuration was first copied from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Template {
    /// The Source of the template.
    pub source: LocalReference,
    /// The folder in that Source. Empty: the root of the Source.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
}

/// The users who may write a project's stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Access {
    /// All users who may write stacks in the organization.
    #[default]
    Organization,
    /// The project's owners, and users with the verb `edit` on the project.
    Owners,
}

/// The observed state of a Project.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectStatus {
    /// The number of stacks in the project.
    #[serde(default)]
    pub stacks: i64,
    /// The user who last changed the project's folder, or who created the project after stacks that name it. Runs that
    /// a trigger starts for the project count as requested by this user too.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub set_by: String,
    /// The users who did so, the latest last, at most 16. If there were more, the first entry stands for the rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub changed_by: Vec<ChangedBy>,
    /// The folder that the Source lacks, and the commit that lacks it. Absent if the Source has the folder, or was not
    /// read yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_folder: Option<MissingFolder>,
    /// The user who deleted the project, while it still exists. Runs that destroy its infrastructure count as requested
    /// by this user.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub deleted_by: String,
    /// The conditions of the project. Ready: the Source exists, is readable, and has the project's folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}
