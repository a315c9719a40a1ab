//! PackageRevision: one version of a package, from its draft to its publication.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Task;
use crate::common::{ChangedBy, is_zero};

/// The desired state of a PackageRevision.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "porch.kpt.dev",
    version = "v1alpha1",
    kind = "PackageRevision",
    namespaced,
    status = "PackageRevisionStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "PackageRevision is one version of a package: a draft, a proposal, or a published and immutable revision."
)]
#[serde(rename_all = "camelCase")]
pub struct PackageRevisionSpec {
    /// The path of the package from the directory of its repository, such as `network/basens`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub package_name: String,
    /// The name of the Repository that the package is in.
    #[serde(default, rename = "repository", skip_serializing_if = "String::is_empty")]
    pub repository_name: String,
    /// A name for the changes of this revision. It is unique among the revisions of the package.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workspace_name: String,
    /// The number of the revision. The server assigns it at publication: 1, 2, 3 and so on. 0 is a draft or a proposal, and
    /// -1 the package on the branch of the repository.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub revision: i64,
    /// A package that provides resources to this one. Deprecated by Porch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<NameReference>,
    /// The lifecycle: Draft, Proposed, Published or DeletionProposed. Defaults to Draft.
    #[serde(default)]
    pub lifecycle: Lifecycle,
    /// The operation that makes the content of a new revision: at most one. After it, the tasks of type eval that were added to
    /// the draft, one with each update.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<Task>,
    /// The conditions of the Kptfile that must be true before the revision is published. The server reads them from the
    /// Kptfile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readiness_gates: Vec<ReadinessGate>,
    /// The labels and annotations of the Kptfile. The server reads them from the Kptfile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package_metadata: Option<PackageMetadata>,
}

/// The lifecycle of a package revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Lifecycle {
    /// It may be edited.
    #[default]
    Draft,
    /// It waits for an approval.
    Proposed,
    /// It is immutable and has a tag in Git.
    Published,
    /// It is published, and its deletion waits for an approval.
    DeletionProposed,
}

impl Lifecycle {
    /// Whether the revision is published, its deletion proposed or not.
    pub fn is_published(self) -> bool {
        matches!(self, Self::Published | Self::DeletionProposed)
    }

    /// The name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Draft => "Draft",
            Self::Proposed => "Proposed",
            Self::Published => "Published",
            Self::DeletionProposed => "DeletionProposed",
        }
    }
}

/// A reference to an object of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NameReference {
    /// The name of the object.
    #[serde(default)]
    pub name: String,
}

/// A condition of the Kptfile that must be true before a publication.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReadinessGate {
    /// The type of the condition.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub condition_type: String,
}

/// The labels and annotations of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PackageMetadata {
    /// The labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The observed state of a PackageRevision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageRevisionStatus {
    /// The revision of the upstream package that this package has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_lock: Option<Locator>,
    /// The revision itself in Git or the registry. Absent before the first push.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_lock: Option<Locator>,
    /// The users who made or proposed the change that waits for an approval, or did before the last one, the latest last, at
    /// most 16. If there were more, the first entry stands for the rest. None of them may approve it without the verb
    /// `approve-own`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub changed_by: Vec<ChangedBy>,
    /// The user who approved the publication.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub published_by: String,
    /// The time of the publication.
    #[serde(default, rename = "publishTimestamp", skip_serializing_if = "Option::is_none")]
    pub published_at: Option<Time>,
    /// Whether the package is in a deployment repository.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deployment: bool,
    /// The conditions of the Kptfile, and those of the server: Pushed for a draft whose push to Git failed, Rendered for the
    /// functions at the last save: True, False if one failed, or Unknown while they run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<PackageCondition>,
    /// The files of the revision, by digest. PackageRevisionResources shows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<PackageContent>,
    /// The state of the revision in Git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<StoredInGit>,
    /// The upstream package, if it is in a registered repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<UpstreamRevision>,
    /// The deployments of the revision by Stacks, as their Releases report them. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["stack", "workspace"]))]
    pub deployments: Vec<RevisionDeployment>,
}

/// The upstream of a package, compared with its newest revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamRevision {
    /// The name of the Repository.
    pub repository: String,
    /// The path of the package.
    pub package: String,
    /// The name of the PackageRevision that this package has. Empty: the revision was deleted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The number of that revision; 0 for a draft or an unknown one.
    #[serde(default)]
    pub revision: i64,
    /// The number of the newest published revision. Absent on revisions with a successor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<i64>,
    /// Whether upstream has a newer revision, and this one has no successor.
    #[serde(default)]
    pub outdated: bool,
}

/// A deployment of a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RevisionDeployment {
    /// The name of the Stack.
    pub stack: String,
    /// The name of the Workspace.
    pub workspace: String,
    /// The number of the last Release there. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<i64>,
}

/// The files of a package revision, by digest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PackageContent {
    /// The digest of the document with the files. Empty: the files are those of `status.git.commit`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// The number of files. Absent while only Git has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<i64>,
}

/// A package revision as Git or a registry has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoredInGit {
    /// The branch or tag, such as `refs/heads/drafts/basens/v1` or `refs/tags/basens/v1`. In a registry:
    /// `refs/tags/REPOSITORY/TAG`.
    #[serde(default, rename = "ref")]
    pub reference: String,
    /// The commit of the ref. In a registry: the digest of the manifest.
    #[serde(default)]
    pub commit: String,
    /// The hash of the package's folder in that commit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tree: String,
    /// The digest of the content that was pushed. Empty: somebody else pushed the commit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// The lifecycle that the refs stand for.
    #[serde(default)]
    pub lifecycle: Lifecycle,
}

/// A package in Git or a registry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Locator {
    /// The type of the repository: git, also for a registry, since Kptfiles have no other type.
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitLock>,
}

/// A folder at a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GitLock {
    /// The address of the repository. In a registry: `oci://` with the registry and the name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub repo: String,
    /// The folder. In a registry: empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub directory: String,
    /// The branch or tag.
    #[serde(default, rename = "ref", skip_serializing_if = "String::is_empty")]
    pub reference: String,
    /// The commit. In a registry: the digest of the manifest.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
}

/// A condition of a package. Unlike conditions of other kinds, it has no transition time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PackageCondition {
    /// The type.
    #[serde(rename = "type")]
    pub type_: String,
    /// The status: True, False or Unknown.
    pub status: String,
    /// The reason, a CamelCase word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// A message for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}
