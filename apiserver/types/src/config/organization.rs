//! Organization: a team or business unit, and the namespace that it owns.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Condition, DeletionPolicy, Subject, conditions_schema, deletion_policy_schema};

/// The desired state of an Organization.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.stoa.dev",
    version = "v1alpha1",
    kind = "Organization",
    shortname = "org",
    category = "stoa",
    status = "OrganizationStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Organization is a team, department or business unit. It owns the namespace of its name, which is created with it and deleted with it. Its projects, stacks, sources and runs live in that namespace."
)]
#[serde(rename_all = "camelCase")]
pub struct OrganizationSpec {
    /// A description of the organization for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The owners of the organization. Adding an owner needs the verb `bind` on ClusterRole `stoa:owner`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Subject>,
    /// The members besides the owners, and their roles. Adding a member needs the verb `bind` on the ClusterRole of the
    /// role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
    /// The policy for live infrastructure when the organization is deleted. Refuse (the default) rejects the deletion
    /// while infrastructure is live. Destroy and Orphan allow it, and apply to stacks that set no policy and whose
    /// project sets none. The policy of a stack wins over that of its project, and that of a project wins over this
    /// one. A live stack with Refuse blocks the deletion of the organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "deletion_policy_schema")]
    pub deletion_policy: Option<DeletionPolicy>,
}

/// A member of an organization.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Member {
    /// The user, group or service account.
    pub subject: Subject,
    /// The role of the subject: owner, developer, approver or viewer.
    pub role: Role,
}

/// The permissions of a member in the organization's namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// All permissions, those over members included.
    Owner,
    /// Write projects, stacks and sources, and start runs.
    Developer,
    /// Approve plans.
    Approver,
    /// Read.
    #[default]
    Viewer,
}

impl Role {
    /// Returns the ClusterRole with the permissions of this role.
    pub fn cluster_role(self) -> &'static str {
        match self {
            Self::Owner => "stoa:owner",
            Self::Developer => "stoa:developer",
            Self::Approver => "stoa:approver",
            Self::Viewer => "stoa:viewer",
        }
    }
}

impl OrganizationSpec {
    /// Returns the subjects of each role, owners included, each once.
    pub fn subjects_by_role(&self) -> BTreeMap<Role, Vec<&Subject>> {
        let owners = self.owners.iter().map(|subject| (Role::Owner, subject));
        let members = self.members.iter().map(|member| (member.role, &member.subject));
        let mut subjects: BTreeMap<Role, Vec<&Subject>> = BTreeMap::new();
        for (role, subject) in owners.chain(members) {
            let of_role = subjects.entry(role).or_default();
            if !of_role.contains(&subject) {
                of_role.push(subject);
            }
        }
        subjects
    }
}

/// The observed state of an Organization.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrganizationStatus {
    /// The namespace that Stoa created for the organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The uid of that namespace. Another namespace of the same name does not belong to the organization.
    #[serde(default, rename = "namespaceUID", skip_serializing_if = "Option::is_none")]
    pub namespace_uid: Option<String>,
    /// The user who deleted the organization, while it still exists. Runs that destroy its infrastructure count as
    /// requested by this user.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub deleted_by: String,
    /// The conditions of the organization. Ready: the namespace exists and belongs to the organization.
    /// RolesBound: owners and members have their roles in the namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}
