//! Run: one execution of one stack in one workspace.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Condition, DurationString, Subject, conditions_schema, non_empty};

/// The operation of a Run. Immutable, except that `cancel` may become true.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "delivery.stoa.dev",
    version = "v1alpha1",
    kind = "Run",
    shortname = "rn",
    category = "stoa",
    namespaced,
    status = "RunStatus",
    derive = "PartialEq",
    doc = "Run is one execution of one stack in one workspace. It records the requester, the commit, the plan, and the result of each resource. Creating one also needs the verb create on stacks/<operation> of the stack, and use on the workspace and its backend."
)]
#[serde(rename_all = "camelCase")]
pub struct RunSpec {
    /// A description of the run for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The owners of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Subject>,
    /// The Stack, in the same namespace.
    pub stack: String,
    /// The name of the Workspace. Defaults to the workspace of a stack that names exactly one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workspace: String,
    /// The operation: Preview, Apply, Destroy, Rollback, Import or Refresh.
    pub operation: Operation,
    /// The operation that a Preview plans: Apply, Destroy, Rollback or Import. Defaults to Apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<Operation>,
    /// The version to deploy: latest, or a branch, tag or commit. Defaults to the stack's desired version.
    #[serde(default, deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The Preview run of the same operation whose exact plan is carried out. For Apply, Destroy, Rollback and Import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The number of the release to restore. For Rollback, and a Preview of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<i64>,
    /// The resources to record as they are. For Import, and a Preview of one. Defaults to all existing resources of the
    /// stack's Spec that are not recorded and have no other owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import: Option<Import>,
    /// The parameters of the generator. They override those of the stack.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Whether another user must approve a plan with changes before it is applied. The stack and the workspace can also
    /// require this.
    #[serde(default)]
    pub require_approval: bool,
    /// Whether the plan may remove most of the deployment. For Apply and Rollback. Without it, a run fails before any
    /// change if its plan keeps none of the stack's resources. The run also fails if the plan removes more than 10
    /// resources that are more than half of all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_mass_deletion: bool,
    /// Whether no hooks of a chart run, as with helm --no-hooks. For Preview, Apply, Rollback and Destroy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_hooks: bool,
    /// The ids of Unknown resources to retry. For Preview, Apply, Rollback and Destroy. A resource is Unknown while the
    /// result of a call for it cannot be found out. Naming its id confirms that nothing is left of that call. The run
    /// repeats the call, or forgets the resource if it is no longer desired. Import a resource that exists instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub retry: Vec<String>,
    /// The names of clusters that left the workspace for good. For Preview, Apply, Rollback and Destroy. The plan shows
    /// the records there, and the run removes them. Objects in these clusters are not touched. Without it, a plan is
    /// rejected while a record names a cluster that the workspace lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub forget_clusters: Vec<String>,
    /// The behavior while another run of the stack in the workspace is in progress: Queue or Refuse.
    #[serde(default)]
    pub on_conflict: OnConflict,
    /// Whether to cancel the run. Calls in flight are finished first.
    #[serde(default)]
    pub cancel: bool,
    /// The time allowed for the run, as a duration such as 1h. Waits for an approval or a merge do not count. Defaults
    /// to 1h.
    #[serde(default = "DurationString::hours::<1>")]
    pub timeout: DurationString,
    /// The number of seconds between the end of the run and its deletion. Absent: the run is not deleted for its age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i64>,
}

impl RunSpec {
    /// Returns the operation on a stack in a workspace, each by its name. All other fields have their defaults.
    pub fn new(stack: impl Into<String>, workspace: impl Into<String>, operation: Operation) -> Self {
        Self {
            stack: stack.into(),
            workspace: workspace.into(),
            operation,
            timeout: DurationString::hours::<1>(),
            ..Self::default()
        }
    }

    /// Returns the operation whose plan the run makes: its own, or for a Preview the one in `of`.
    pub fn planned(&self) -> Operation {
        self.operation.planned(self.of)
    }
}

/// The resources that an Import records without a change, not even of annotations. The next Apply brings them to the
/// source's Spec. A Preview shows the changes before. Defaults to all existing resources of the stack's Spec that are
/// not recorded and have no other owner.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Import {
    /// The resources of the stack's Spec to record. Each must exist and have no other owner. Empty, and without
    /// kusion and terraform: all existing resources of the Spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    pub resources: Vec<ImportResource>,
    /// The release of Kusion whose existing resources are recorded, inside the Spec or not. The next Apply removes
    /// those outside the Spec, as Kusion would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kusion: Option<KusionRelease>,
    /// The state of Terraform whose resources are recorded, as far as the stack's Spec has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terraform: Option<TerraformState>,
}

/// A state of Terraform, in the workspace's Backend. Stoa only reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerraformState {
    /// The path of the terraform.tfstate, from the root of the Backend. A resource has the id
    /// `<namespace>:<provider>:<type>:<name>` in the Spec, with `module.<name>.` before its name and its index after it.
    pub path: String,
}

/// A resource to record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportResource {
    /// The id in the Spec, such as apps/v1:Deployment:shop:web.
    pub id: String,
    /// The id in the infrastructure, if the Spec's id does not give it. Of a Kubernetes object: its id, namespace/name,
    /// or the name alone without a namespace; other values are rejected. Of a resource of a Terraform provider: the id
    /// that terraform import takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_id: Option<String>,
}

/// A release of Kusion, in the workspace's Backend. Stoa only reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KusionRelease {
    /// The name of the project in Kusion. Defaults to that of the stack's Project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The name of the workspace in Kusion. Defaults to that of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The number of the release. Defaults to the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// The folder of the releases, from the root of the Backend. Defaults to releases, and in it the folder of the
    /// project and of the workspace. Kusion's server has releases/server, and in it those of the source, the project's
    /// path and the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// The operation: Preview, Apply, Destroy, Rollback, Import or Refresh. A Preview can be of Apply (the default),
/// Destroy, Rollback or Import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Operation {
    /// Makes a plan and changes nothing.
    #[default]
    Preview,
    /// Brings the infrastructure to the state of the source.
    Apply,
    /// Removes all deployed resources.
    Destroy,
    /// Brings the infrastructure to the state of an earlier release.
    Rollback,
    /// Records existing resources and changes nothing.
    Import,
    /// Compares live infrastructure with the last release and changes nothing.
    Refresh,
}

impl Operation {
    /// Returns the subresource of `stacks` that the requester must be allowed to create: `apply` for Apply.
    pub fn permission(self) -> &'static str {
        match self {
            Self::Preview | Self::Refresh => "preview",
            Self::Apply => "apply",
            Self::Destroy => "destroy",
            Self::Rollback => "rollback",
            Self::Import => "import",
        }
    }

    /// Returns the operation whose plan is made: this one, or for a Preview the one in `of`.
    pub fn planned(self, of: Option<Self>) -> Self {
        match self {
            Self::Preview => of.unwrap_or(Self::Apply),
            own => own,
        }
    }

    /// Returns the name with its article, for sentences.
    pub fn named(self) -> &'static str {
        match self {
            Self::Preview => "a Preview",
            Self::Apply => "an Apply",
            Self::Destroy => "a Destroy",
            Self::Rollback => "a Rollback",
            Self::Import => "an Import",
            Self::Refresh => "a Refresh",
        }
    }

    /// Whether the operation changes infrastructure or state, and so excludes others of its kind.
    pub fn is_mutating(self) -> bool {
        !matches!(self, Self::Preview | Self::Refresh)
    }
}

/// The behavior of a run while another is in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnConflict {
    /// The run waits in the queue.
    #[default]
    Queue,
    /// The run fails.
    Refuse,
}

/// The phase of a run: Pending, Generating, Planning, AwaitingApproval, Applying, AwaitingMerge, Verifying, and at the
/// end Succeeded, Failed or Canceled. Later phases compare as greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum RunPhase {
    /// The run waits in the queue.
    #[default]
    Pending,
    /// The Spec is rendered.
    Generating,
    /// The Spec is compared with state and infrastructure.
    Planning,
    /// The plan waits for an approval through the subresource approval.
    AwaitingApproval,
    /// Changes are made.
    Applying,
    /// The changes are in a pull request that waits to be merged. Nothing was changed yet.
    AwaitingMerge,
    /// Changes are made, and become healthy.
    Verifying,
    /// The run succeeded.
    Succeeded,
    /// The run failed.
    Failed,
    /// The run was canceled.
    Canceled,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The run succeeded.
    Succeeded,
    /// The run failed.
    Failed,
    /// The run was canceled.
    Canceled,
}

impl RunPhase {
    /// Returns the result of the run, if it has ended.
    pub fn end(self) -> Option<RunEnd> {
        match self {
            Self::Succeeded => Some(RunEnd::Succeeded),
            Self::Failed => Some(RunEnd::Failed),
            Self::Canceled => Some(RunEnd::Canceled),
            Self::Pending
            | Self::Generating
            | Self::Planning
            | Self::AwaitingApproval
            | Self::Applying
            | Self::AwaitingMerge
            | Self::Verifying => None,
        }
    }

    /// Whether the run has ended.
    pub fn is_terminal(self) -> bool {
        self.end().is_some()
    }
}

/// The observed state of a Run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RunStatus {
    /// The phase of the run: Pending, Generating, Planning, AwaitingApproval, Applying, AwaitingMerge, Verifying, and
    /// at the end Succeeded, Failed or Canceled.
    pub phase: RunPhase,
    /// The user who requested the run.
    pub requester: Requester,
    /// The source that the run was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<RunSource>,
    /// The values that the Spec was rendered with. Absent: none, or the run renders nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<RunValues>,
    /// The plan of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanStatus>,
    /// The first changes of the plan, at most 20, one a line: `~ apps/v1:Deployment:shop:web spec.replicas`. Deletions
    /// and replacements come first. The subresource runs/plan has all changes with their values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// The decision about the plan. Only the subresource approval writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// The progress of the changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// The result of each changed resource, at most 100. The subresource runs/log has all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    pub resources: Vec<RunResource>,
    /// The number of the release that the run created. Absent if the run changed nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<i64>,
    /// The commit of the run in the workspace's GitOps repository.
    #[serde(rename = "gitopsCommit", skip_serializing_if = "Option::is_none")]
    pub gitops_commit: Option<String>,
    /// The pull request with the changes of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<PullRequestStatus>,
    /// The function-runner that last worked for the run, by address and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<String>,
    /// The uid of the stack. The Backend stores the run's documents under it.
    #[serde(rename = "stackUID", skip_serializing_if = "Option::is_none")]
    pub stack_uid: Option<String>,
    /// The uid of the Preview in `spec.plan`. Another Preview of the same name is not carried out.
    #[serde(rename = "previewUID", skip_serializing_if = "Option::is_none")]
    pub preview_uid: Option<String>,
    /// The plan of the Preview in `spec.plan`, as of the creation of this run. The Preview may have been deleted since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previewed: Option<Box<PreviewedPlan>>,
    /// Whether the pull request is known to be merged, for a run that plans a pull request.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub merged: bool,
    /// The plans that the pull requests showed, for a run that follows their merge.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["runUID"]))]
    pub merged_plans: Vec<MergedPlan>,
    /// The digest of the document with the completed log, which runs/log shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// The creation time, to the microsecond. Runs of a stack in one workspace are queued in this order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued_time: Option<MicroTime>,
    /// The time at which the run left Pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// The time at which the run ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// The conditions of the run. Complete: the run succeeded. Failed: the run did not succeed; the message has the
    /// cause. Approved: the decision about its plan. Waiting: something is out of reach. Its reason AwaitingApproval
    /// means that the plan in the message needs approval. Its reason AwaitingMerge means that the pull request needs a
    /// merge. MergedPlanHolds: whether the plan is one that a merged pull request showed, and otherwise the
    /// differences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// The pull request with the changes of a run. The changes are made once it is merged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PullRequestStatus {
    /// The number of the pull request in the workspace's GitOps repository.
    pub number: i64,
    /// The URL of the pull request's page.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The branch with the changes.
    #[serde(default)]
    pub branch: String,
    /// The commit of that branch at the last check.
    #[serde(default)]
    pub commit: String,
    /// The time at which the run began to wait for the pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// The number of the last release at that time; 0 before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<i64>,
    /// The time at which the run continued, after the pull request was merged, closed or changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    /// The commit of the target branch into which the pull request cannot be merged as it is. Empty if the server does
    /// not report that commit. Absent while no conflict is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmergeable_into: Option<String>,
}

/// The plan of a Preview that a run carries out, as of the creation of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviewedPlan {
    /// The digest of the plan, `sha256:` and 64 hex digits.
    pub digest: String,
    /// The digest of the document with the plan.
    #[serde(default)]
    pub document: String,
    /// The commit of the Source. Empty for a Destroy.
    #[serde(default)]
    pub commit: String,
    /// The digest of the Spec, `sha256:` and 64 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<String>,
    /// The resources that the Preview imports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import: Option<Import>,
    /// The values that its Spec was rendered with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<RunValues>,
    /// The generator that rendered its Spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator: Option<UsedGenerator>,
}

/// A plan that a pull request showed before it was merged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MergedPlan {
    /// The Source of the pull request.
    pub source: String,
    /// The number of the pull request in its repository.
    pub number: i64,
    /// The URL of the pull request's page.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The planned commit.
    #[serde(default)]
    pub commit: String,
    /// The Preview run that made the plan.
    #[serde(default)]
    pub run: String,
    /// The uid of that Preview run.
    #[serde(rename = "runUID")]
    pub run_uid: String,
    /// The digest of the plan, `sha256:` and 64 hex digits.
    #[serde(default)]
    pub digest: String,
    /// Whether the run made the same plan. If several plans are the same, only the newest is marked. The plan may still
    /// wait for approval.
    #[serde(default)]
    pub carried_out: bool,
}

/// The decision about the plan of a run or a PackageOperation. It never changes once it is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// The digest of the reviewed plan, as in status.plan.digest.
    #[serde(default)]
    pub plan_digest: String,
    /// The decision. Approved: the plan is carried out, if it still holds. Rejected: the run fails.
    pub decision: Decision,
    /// The reason for the decision, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The user who decided. Set by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approver: Option<Requester>,
    /// The time of the decision. Set by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

/// A decision about a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Decision {
    /// The plan is to be carried out.
    Approved,
    /// The plan is not to be carried out.
    Rejected,
}

/// An identity, as of the creation of the run or the decision about its plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Requester {
    /// The user name.
    #[serde(default)]
    pub username: String,
    /// The uid of the user, if known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups of the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// The other attributes of the user.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The source that a run was made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunSource {
    /// The commit of the Source.
    pub commit: String,
    /// The path in the Source.
    #[serde(default)]
    pub path: String,
    /// The digest of the Spec, `sha256:` and 64 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<String>,
    /// The URL of the commit's page at its Git server. Absent if the remote has none.
    #[serde(default, rename = "commitURL", skip_serializing_if = "String::is_empty")]
    pub commit_url: String,
    /// The generator that rendered the Spec. Absent: the run renders nothing, or has not rendered yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator: Option<UsedGenerator>,
}

/// The generator that rendered a Spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsedGenerator {
    /// The name, as in `spec.generator.type` of a Stack.
    pub name: String,
    /// The version of its tool, such as `helm v4.1.0`. Empty for generators of Stoa itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
}

/// The values that a Spec was rendered with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunValues {
    /// The digest of the names, origins and values, `sha256:` and 64 hex digits. A value of a Secret counts by its
    /// reference alone.
    pub digest: String,
    /// The values with their origins, at most 100. The subresource stacks/generate shows all, with `show=values`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub items: Vec<RunValue>,
    /// The VariableSets that decided a value. An Apply needs the verb use on them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub variable_sets: Vec<String>,
}

/// A value that a Spec was rendered with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunValue {
    /// The name of the value.
    pub name: String,
    /// The kind of the object that decided it: VariableSet, Workspace, Stack or Run.
    pub kind: String,
    /// The name of that object. Empty for the run itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub object: String,
}

/// The plan of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanStatus {
    /// The digest of the plan, `sha256:` and 64 hex digits. An approval names it.
    pub digest: String,
    /// The digest of the document with the plan.
    #[serde(default)]
    pub document: String,
    /// The time at which the plan was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// The number of resources by kind of change.
    #[serde(default)]
    pub summary: PlanSummary,
}

/// The number of resources by kind of change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PlanSummary {
    /// The number of resources to create.
    pub create: i64,
    /// The number of resources to update.
    pub update: i64,
    /// The number of resources to delete.
    pub delete: i64,
    /// The number of resources to delete and create again.
    pub replace: i64,
    /// The number of existing resources to take over.
    pub adopt: i64,
    /// The number of existing resources to record as they are.
    pub import: i64,
    /// The number of resources to remove from the record, because they no longer exist or are not to be touched.
    pub forget: i64,
    /// The number of resources without a change.
    pub unchanged: i64,
    /// The number of resources whose change the infrastructure could not check yet.
    pub unverified: i64,
    /// The number of hooks to run.
    pub hooks: i64,
}

impl PlanSummary {
    /// Returns the number of resources with a change of any kind, and of hooks to run.
    pub fn changes(&self) -> i64 {
        self.create + self.update + self.delete + self.replace + self.adopt + self.import + self.forget + self.hooks
    }
}

/// The progress of a run, in resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// The number of resources to change.
    pub total: i64,
    /// The number of changed resources.
    pub done: i64,
    /// The number of resources whose change failed, or was skipped after another failure.
    pub failed: i64,
}

/// The result of one resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResource {
    /// The engine's id of the resource.
    pub id: String,
    /// The action: Create, Update, Delete, Replace, Adopt, Import or Forget. Hook for a hook, whose id names its event
    /// and its resource.
    pub action: String,
    /// The phase of the action: Pending, InProgress, Done, Failed, Skipped or Unknown. Planned for a Preview and a
    /// Refresh, which change nothing.
    pub phase: String,
    /// The cause of a failure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}
