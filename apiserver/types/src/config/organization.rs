//! Organization: a team or business unit, and the namespace that is its own.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Condition, DeletionPolicy, Subject, conditions_schema, deletion_policy_schema};

/// What an Organization is to be.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.stoa.dev",
    version = "v1alpha1",
    kind = "Organization",
    plural = "organizations",
    singular = "organization",
    shortname = "org",
    category = "stoa",
    status = "OrganizationStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Organization is a team, department or business unit. It owns the namespace of its name, in which its projects, stacks, sources and runs live; the namespace is created with it and deleted with it."
)]
#[serde(rename_all = "camelCase")]
pub struct OrganizationSpec {
    /// What the organization is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Who is responsible. Whoever adds somebody needs the verb `bind` on ClusterRole `stoa:owner`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Subject>,
    /// Who else works here, and as what. Whoever adds somebody needs the verb `bind` on the ClusterRole of that role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
    /// Refuse (the default): the deletion of the organization is refused while infrastructure is live. Destroy, Orphan: it
    /// is allowed, and this is what happens to the live infrastructure of stacks that set no policy and whose project sets
    /// none. The policy of a stack wins over that of its project, and that of a project over this one: a live stack with
    /// Refuse keeps the organization from being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "deletion_policy_schema")]
    pub deletion_policy: Option<DeletionPolicy>,
}

/// Somebody who works in an organization.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Member {
    /// Who.
    pub subject: Subject,
    /// As what.
    pub role: Role,
}

/// What a member may do in the organization's namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything, members included.
    Owner,
    /// Write projects, stacks and sources, and start runs.
    Developer,
    /// Approve plans.
    Approver,
    /// Look.
    #[default]
    Viewer,
}

impl Role {
    /// The ClusterRole that says what this means.
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
    /// Who has which role, owners among them, each once.
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

/// What an Organization is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrganizationStatus {
    /// The namespace that was created for the organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The uid of that namespace: another of the same name is not the organization's.
    #[serde(default, rename = "namespaceUID", skip_serializing_if = "Option::is_none")]
    pub namespace_uid: Option<String>,
    /// Who deleted it, as long as it is there: what that destroys counts as asked for by them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub deleted_by: String,
    /// Ready: the namespace is there and is the organization's own. RolesBound: owners and members have their roles in
    /// it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}
