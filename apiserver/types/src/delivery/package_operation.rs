//! PackageOperation: one change of many packages.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::{Approval, Requester, workflow::default_max_parallel};
use crate::{
    common::{Condition, conditions_schema},
    porch::Lifecycle,
    porchconfig::{Function, Upstream},
};

/// The change and its packages. Immutable, except that `cancel` may become true.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "delivery.stoa.dev",
    version = "v1alpha1",
    kind = "PackageOperation",
    shortname = "pkgop",
    category = "stoa",
    namespaced,
    status = "PackageOperationStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "PackageOperation is one change of many packages: an upgrade, a rollback, a validation, or a new function. Its creator needs the permissions to make the change in each package, and is the author of the drafts."
)]
#[serde(rename_all = "camelCase")]
pub struct PackageOperationSpec {
    /// The operation: Upgrade, Rollback, Validate or AddFunction.
    pub operation: PackageOperationType,
    /// The packages. Empty: all packages of the namespace.
    #[serde(default)]
    pub selector: PackageSelector,
    /// The arguments of an Upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<PackageUpgrade>,
    /// The arguments of a Rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<PackageRollback>,
    /// The arguments of an AddFunction, which requires them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add_function: Option<AddedFunction>,
    /// The lifecycle of the new revisions: Draft, Proposed or Published. A revision that the creator may not publish stays
    /// Proposed. Defaults to Draft.
    #[serde(default)]
    pub lifecycle: Lifecycle,
    /// The workspace of the new revisions. Defaults to the name of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workspace_name: String,
    /// Whether another user must approve the plan, through the subresource approval. Defaults to true. A Validate has no
    /// plan.
    #[serde(default = "default_require_approval")]
    pub require_approval: bool,
    /// The maximum number of packages that change at once, from 1 to 50. Defaults to 10.
    #[serde(default = "default_max_parallel")]
    pub max_parallel: i64,
    /// The number of failed packages that the operation tolerates. With more failures no other package begins, and the
    /// operation fails.
    #[serde(default)]
    pub max_failures: i64,
    /// Whether to cancel the operation. Packages that have begun end as they would, and no other begins.
    #[serde(default)]
    pub cancel: bool,
}

fn default_require_approval() -> bool {
    true
}

/// A change of packages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PackageOperationType {
    /// Merges a newer revision of upstream into each package.
    #[default]
    Upgrade,
    /// Makes an earlier revision of each package the newest one.
    Rollback,
    /// Runs the functions of each package, and writes nothing.
    Validate,
    /// Adds a function to the Kptfile of each package, such as a validator that gates publications.
    AddFunction,
}

/// A choice of packages, each by its newest published revision. All fields must fit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageSelector {
    /// The names of Repositories. Empty: all Repositories.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub repositories: Vec<String>,
    /// The paths of packages in their repositories. Empty: all packages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub packages: Vec<String>,
    /// The upstream package. Without a revision and a workspace, packages with any revision of it fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Upstream>,
    /// The labels of the PackageRevisions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub label_selector: Option<LabelSelector>,
    /// The labels of the packages, from their Kptfiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub package_labels: Option<LabelSelector>,
}

/// The arguments of an Upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PackageUpgrade {
    /// The number of the upstream revision. 0, the default, is the newest published one.
    #[serde(default)]
    pub revision: i64,
    /// The merge strategy: resource-merge, fast-forward, force-delete-replace or copy-merge. Empty: that of each Kptfile.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub strategy: String,
}

/// The arguments of a Rollback.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PackageRollback {
    /// The number of the revision of each package. 0, the default, is the published one before the newest.
    #[serde(default)]
    pub revision: i64,
}

/// The arguments of an AddFunction: exactly one of `mutator` and `validator`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AddedFunction {
    /// A function that changes objects. It runs after those that are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutator: Option<Function>,
    /// A function that checks objects. It runs after those that are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validator: Option<Function>,
}

/// The phase of an operation: Pending, Planning, AwaitingApproval, Running, and at the end Succeeded, Failed or Canceled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PackageOperationPhase {
    /// Nothing has begun.
    #[default]
    Pending,
    /// The packages are selected, and their changes computed.
    Planning,
    /// The plan waits for approval.
    AwaitingApproval,
    /// Packages change.
    Running,
    /// No package failed, or no more than tolerated.
    Succeeded,
    /// Too many packages failed, or the plan was rejected.
    Failed,
    /// The operation was canceled.
    Canceled,
}

impl PackageOperationPhase {
    /// Whether the operation has ended.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Canceled)
    }
}

/// The phase of a package: Pending, Running, and at the end Succeeded, Failed, Skipped or Canceled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PackagePhase {
    /// The package has not begun.
    #[default]
    Pending,
    /// The package changes.
    Running,
    /// The package has its new revision, or is valid.
    Succeeded,
    /// The package could not be changed, or is not valid.
    Failed,
    /// Nothing had to change.
    Skipped,
    /// The operation ended before the package began.
    Canceled,
}

impl PackagePhase {
    /// Whether the package has ended.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }
}

/// The observed state of a PackageOperation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PackageOperationStatus {
    /// The phase: Pending, Planning, AwaitingApproval, Running, and at the end Succeeded, Failed or Canceled.
    pub phase: PackageOperationPhase,
    /// The user who created the operation. Writes to packages are theirs.
    pub requester: Requester,
    /// The digest of the plan, `sha256:` and 64 hex digits. An approval names it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub plan_digest: String,
    /// The time at which the plan was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_time: Option<Time>,
    /// The decision about the plan. Only the subresource approval writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "approval_schema")]
    pub approval: Option<Approval>,
    /// The plan: each package with its change, and its progress. At most 2,000.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["repository", "package"]))]
    pub packages: Vec<PackageChange>,
    /// The number of packages by result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<PackageProgress>,
    /// The time at which the first package began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// The time at which the operation ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// The conditions. Complete: no more packages failed than tolerated. Failed: the operation did not succeed; the message
    /// has the cause. AwaitingApproval: the plan needs an approval.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// The schema of an [`Approval`], whose fields have descriptions about operations instead of runs.
fn approval_schema(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<Option<Approval>>();
    for (pointer, description) in [
        ("/properties/planDigest", "The digest of the plan."),
        ("/properties/decision", "The decision. Approved: the packages change. Rejected: the operation fails."),
    ] {
        if let Some(property) = schema.pointer_mut(pointer) {
            property["description"] = description.into();
        }
    }
    schema
}

/// The change of one package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageChange {
    /// The name of the Repository.
    pub repository: String,
    /// The path of the package.
    pub package: String,
    /// The PackageRevision that the change begins with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// The upstream revision that the package has. For an Upgrade.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub old_upstream: String,
    /// The revision that the package gets: of its upstream for an Upgrade, of itself for a Rollback.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// The change in words, such as `2 objects change, 1 conflict`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub change: String,
    /// The phase: Pending, Running, and at the end Succeeded, Failed, Skipped or Canceled.
    #[serde(default)]
    pub phase: PackagePhase,
    /// The time at which the package began. Absent for one that ended in the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// The time at which the package ended, if it had begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// The new PackageRevision.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// The lifecycle that the new revision reached: Draft, Proposed or Published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
    /// The cause of the phase, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The number of packages by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PackageProgress {
    /// The number of packages.
    pub total: i64,
    /// The number of packages that succeeded.
    pub succeeded: i64,
    /// The number of packages that failed.
    pub failed: i64,
    /// The number of packages without a change.
    pub skipped: i64,
}
