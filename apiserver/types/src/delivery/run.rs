//! Run: one execution of one stack in one workspace.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Condition, DurationString, Subject, conditions_schema, non_empty};

/// What a Run is to do. Immutable, except that `cancel` may become true.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "delivery.stoa.dev",
    version = "v1alpha1",
    kind = "Run",
    plural = "runs",
    singular = "run",
    shortname = "rn",
    category = "stoa",
    namespaced,
    status = "RunStatus",
    derive = "PartialEq",
    doc = "Run is one execution of one stack in one workspace: who asked for what, from which commit, what was planned, and what happened to each resource. Creating one also needs create on stacks/<operation> of the stack, and use on the workspace and its backend."
)]
#[serde(rename_all = "camelCase")]
pub struct RunSpec {
    /// What the run is about, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Who is responsible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Subject>,
    /// The Stack, in the same namespace.
    pub stack: String,
    /// The Workspace; may be left out when the stack names exactly one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workspace: String,
    /// What to do: Preview, Apply, Destroy, Rollback, Import or Refresh.
    pub operation: Operation,
    /// For Preview: the operation whose plan is made, Apply, Destroy, Rollback or Import; absent: Apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<Operation>,
    /// The version to deploy, instead of the stack's desired version: latest, or a branch, tag or commit.
    #[serde(default, deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// For Apply, Destroy, Rollback and Import: the Preview run of the same operation whose plan is to be carried out,
    /// exactly as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// For Rollback, and a Preview of one: the number of the release to go back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<i64>,
    /// For Import, and a Preview of one: what is to be recorded as it is. Absent: everything of the stack's Spec that is there, is not recorded,
    /// and bears nobody else's mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import: Option<Import>,
    /// Parameters of the generator, over those of the stack.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Whether somebody else must approve the plan before it is applied, if it changes anything; the stack and the
    /// workspace can ask for that too.
    #[serde(default)]
    pub require_approval: bool,
    /// For Apply and Rollback: that the plan may remove most of what is deployed. Without it a run fails, and changes
    /// nothing, whose plan keeps none of the stack's resources, or removes more than 10 that are more than half of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_mass_deletion: bool,
    /// For Preview, Apply, Rollback and Destroy: the ids of resources that are Unknown, since a call for them was made, its
    /// answer is not known, and nobody can find out what became of it. Naming one says that somebody looked and nothing
    /// is left of that call: it is made again, or forgotten if it is not wanted any more. What is there is to be imported
    /// instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub retry: Vec<String>,
    /// For Preview, Apply, Rollback and Destroy: clusters that left the workspace and are gone for good, by their names
    /// then. What is on record there is forgotten, which the plan shows, and nothing there is touched: what still is stays
    /// behind. Without it a plan is refused while something is on record in a cluster that the workspace does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub forget_clusters: Vec<String>,
    /// What to do while another run of the stack in the workspace is under way.
    #[serde(default)]
    pub on_conflict: OnConflict,
    /// Set to true to stop the run. Calls in flight are finished first.
    #[serde(default)]
    pub cancel: bool,
    /// How long the run may take, as a duration such as 1h. The time in which it waits for approval, or for a pull request to be
    /// merged, does not count.
    #[serde(default = "default_timeout")]
    pub timeout: DurationString,
    /// How long the run is kept after it ended; absent: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i64>,
}

impl RunSpec {
    /// To do this with a stack in a workspace, each by its name; everything else is as it is where nobody says otherwise.
    pub fn new(stack: impl Into<String>, workspace: impl Into<String>, operation: Operation) -> Self {
        Self {
            description: None,
            owners: Vec::new(),
            stack: stack.into(),
            workspace: workspace.into(),
            operation,
            of: None,
            version: None,
            plan: None,
            release: None,
            import: None,
            parameters: BTreeMap::new(),
            require_approval: false,
            allow_mass_deletion: false,
            retry: Vec::new(),
            forget_clusters: Vec::new(),
            on_conflict: OnConflict::default(),
            cancel: false,
            timeout: default_timeout(),
            ttl_seconds_after_finished: None,
        }
    }

    /// The operation whose plan the run makes: its own, or for a Preview that which it is of.
    pub fn planned(&self) -> Operation {
        self.operation.planned(self.of)
    }
}

fn default_timeout() -> DurationString {
    "1h".into()
}

/// What an Import is to record. Nothing of it is changed, not even its annotations; the next Apply brings it to what the
/// source says, and a Preview before shows what that changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Import {
    /// Resources of the stack's Spec, each of which has to be there and nobody else's. Without any, and without kusion:
    /// everything of the Spec that is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    pub resources: Vec<ImportResource>,
    /// What a release of Kusion has on record: what of it is there, whether the Spec has it or not. What the Spec does not
    /// have is removed by the next Apply, as Kusion would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kusion: Option<KusionRelease>,
}

/// A resource to record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportResource {
    /// Its id in the Spec, such as apps/v1:Deployment:shop:web.
    pub id: String,
    /// What the infrastructure calls it, where the id does not say so. Of a Kubernetes object: its id,
    /// namespace/name, or its name if it has no namespace; anything else is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_id: Option<String>,
}

/// A release of Kusion, in the workspace's Backend. It is only read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KusionRelease {
    /// The name of the project in Kusion; absent: that of the stack's Project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The name of the workspace in Kusion; absent: that of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The release; absent: the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// The folder that the releases are in, from where the Backend begins; absent: releases, and in it the folder of the
    /// project and of the workspace. Kusion's server has releases/server, and in it those of the source, the project's path
    /// and the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// What a run does, or what a Preview is of, which may be Apply, Destroy, Rollback or Import, and is Apply if nothing is said. There are
/// Preview and Refresh besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Operation {
    /// Plan, and change nothing.
    Preview,
    /// Bring the infrastructure to what the source says.
    Apply,
    /// Remove everything that was deployed.
    Destroy,
    /// Bring the infrastructure to what an earlier release says.
    Rollback,
    /// Record resources that exist already, and change nothing.
    Import,
    /// Look whether what is live is still what was released, and change nothing.
    Refresh,
}

impl Operation {
    /// The subresource of `stacks` that one must be allowed to create: `apply` for Apply.
    pub fn permission(self) -> &'static str {
        match self {
            Self::Preview | Self::Refresh => "preview",
            Self::Apply => "apply",
            Self::Destroy => "destroy",
            Self::Rollback => "rollback",
            Self::Import => "import",
        }
    }

    /// The operation whose plan is made: this one, or for a Preview that which it is `of`.
    pub fn planned(self, of: Option<Self>) -> Self {
        match self {
            Self::Preview => of.unwrap_or(Self::Apply),
            own => own,
        }
    }

    /// With its article, for sentences.
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

    /// Whether it changes infrastructure or state, so that it excludes others of its kind.
    pub fn is_mutating(self) -> bool {
        !matches!(self, Self::Preview | Self::Refresh)
    }
}

/// What a run does while another is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnConflict {
    /// It waits its turn.
    #[default]
    Queue,
    /// It fails.
    Refuse,
}

/// How far a run is: Pending, Generating, Planning, AwaitingApproval, Applying, AwaitingMerge, Verifying, and at the end
/// Succeeded, Failed or Canceled. Later phases compare as greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum RunPhase {
    /// It waits for its turn.
    #[default]
    Pending,
    /// The Spec is rendered.
    Generating,
    /// The Spec is compared with state and infrastructure.
    Planning,
    /// Somebody must approve the plan, through the subresource approval.
    AwaitingApproval,
    /// Changes are made.
    Applying,
    /// Changes are proposed by a pull request, which somebody must merge. Nothing was changed yet.
    AwaitingMerge,
    /// Changes are made, and become healthy.
    Verifying,
    /// It ended well.
    Succeeded,
    /// It ended badly.
    Failed,
    /// It was stopped.
    Canceled,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Well.
    Succeeded,
    /// Badly.
    Failed,
    /// It was stopped.
    Canceled,
}

impl RunPhase {
    /// How the run ended, if it has.
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

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStatus {
    /// How far it is: Pending, Generating, Planning, AwaitingApproval, Applying, AwaitingMerge, Verifying, and at the end
    /// Succeeded, Failed or Canceled.
    #[serde(default)]
    pub phase: RunPhase,
    /// Who asked for it.
    #[serde(default)]
    pub requester: Requester,
    /// What it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<RunSource>,
    /// What it is to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanStatus>,
    /// The first changes of the plan, one a line: `~ apps/v1:Deployment:shop:web spec.replicas`. Deletions and replacements come
    /// first. There are at most 20, and runs/plan has all of them with their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// What was decided about the plan; written through the subresource approval alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// How much of it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// What happened to each resource that was to change: at most 100; all are in runs/log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    pub resources: Vec<RunResource>,
    /// The number of the release that it made; absent when it changed nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<i64>,
    /// The commit that it made in the workspace's GitOps repository.
    #[serde(default, rename = "gitopsCommit", skip_serializing_if = "Option::is_none")]
    pub gitops_commit: Option<String>,
    /// The pull request that it proposed its changes by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<PullRequestStatus>,
    /// The function-runner that worked for it last, by address and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<String>,
    /// The uid of the stack, under which its documents are in the Backend.
    #[serde(default, rename = "stackUID", skip_serializing_if = "Option::is_none")]
    pub stack_uid: Option<String>,
    /// The uid of the Preview that `spec.plan` names: no other of the same name is carried out.
    #[serde(default, rename = "previewUID", skip_serializing_if = "Option::is_none")]
    pub preview_uid: Option<String>,
    /// Of a run that names a Preview which had made its plan by then: that plan. The Preview may go since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previewed: Option<Box<PreviewedPlan>>,
    /// Of the plan of a pull request: the pull request is known to be merged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merged: bool,
    /// Of a run that follows merges of pull requests: the plans that were shown there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["runUID"]))]
    pub merged_plans: Vec<MergedPlan>,
    /// The digest of the document that its log is kept as, once it has ended: what runs/log shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// When it was created, to the microsecond: runs of a stack in one workspace take turns in this order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_time: Option<MicroTime>,
    /// When it left Pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Complete: it ended well. Failed: it ended otherwise, and the message says why. Approved: whether its plan was
    /// approved, once that is decided. Waiting: something is out of reach, or, with the reason AwaitingApproval, somebody
    /// has to approve the plan that the message names, or, with the reason AwaitingMerge, merge the pull request.
    /// MergedPlanHolds: whether the plan is one that a merged pull request was shown, and otherwise what changed since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// The pull request that a run proposed its changes by. They are made once it is merged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PullRequestStatus {
    /// Its number in the workspace's GitOps repository.
    pub number: i64,
    /// Its page.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The branch that it brings in.
    #[serde(default)]
    pub branch: String,
    /// The commit of that branch when it was last looked at.
    #[serde(default)]
    pub commit: String,
    /// When the run began to wait for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// The number of the last release when it did; 0 before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<i64>,
    /// When the run went on, since it was merged, closed, or changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    /// The commit of the branch that it goes to into which it cannot be merged as it is; empty where its server does not tell which.
    /// Absent while nothing is known to be in its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmergeable_into: Option<String>,
}

/// The plan of a Preview that a run carries out, as it was when the run was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviewedPlan {
    /// The digest of the plan, `sha256:` and 64 hex digits.
    pub digest: String,
    /// The digest of the document that the plan is kept as.
    #[serde(default)]
    pub document: String,
    /// The commit of the source; empty for a Destroy.
    #[serde(default)]
    pub commit: String,
    /// The digest of the Spec, `sha256:` and 64 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<String>,
    /// What the Preview was told to import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import: Option<Import>,
}

/// A plan that a pull request was shown before it was merged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MergedPlan {
    /// The Source whose pull request it is.
    pub source: String,
    /// The number of the pull request in its repository.
    pub number: i64,
    /// Its page.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The commit that was planned.
    #[serde(default)]
    pub commit: String,
    /// The Preview that made the plan.
    #[serde(default)]
    pub run: String,
    /// The uid of that Preview.
    #[serde(rename = "runUID")]
    pub run_uid: String,
    /// The digest of the plan, `sha256:` and 64 hex digits.
    #[serde(default)]
    pub digest: String,
    /// Whether this is the plan that the run made, too; the newest, where several are the same. It may still wait for approval.
    #[serde(default)]
    pub carried_out: bool,
}

/// What somebody decided about the plan of a run. Once it is there it stays as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// The digest of the plan that was looked at: what status.plan.digest says.
    #[serde(default)]
    pub plan_digest: String,
    /// Approved: the plan is carried out, if it still holds. Rejected: the run fails.
    pub decision: Decision,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Who decided; set by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approver: Option<Requester>,
    /// When; set by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

/// What is decided about a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Decision {
    /// It is to be carried out.
    Approved,
    /// It is not.
    Rejected,
}

/// An identity, as it was when the run was created or its plan decided about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Requester {
    /// The user name.
    #[serde(default)]
    pub username: String,
    /// The uid, if there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Whatever else was known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What a run was made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunSource {
    /// The commit of the source.
    pub commit: String,
    /// The path in it.
    #[serde(default)]
    pub path: String,
    /// The digest of the Spec, `sha256:` and 64 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<String>,
    /// The page of the commit at its Git server, for people; absent where the remote has none.
    #[serde(default, rename = "commitURL", skip_serializing_if = "String::is_empty")]
    pub commit_url: String,
}

/// What a run is to change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanStatus {
    /// The digest of the plan, `sha256:` and 64 hex digits: what an approval names.
    pub digest: String,
    /// The digest of the document that the plan is kept as.
    #[serde(default)]
    pub document: String,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// How many resources are to change in which way.
    #[serde(default)]
    pub summary: PlanSummary,
}

/// How many resources are to change in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanSummary {
    /// To be made.
    #[serde(default)]
    pub create: i64,
    /// To be changed.
    #[serde(default)]
    pub update: i64,
    /// To be removed.
    #[serde(default)]
    pub delete: i64,
    /// To be removed and made again.
    #[serde(default)]
    pub replace: i64,
    /// To be taken over.
    #[serde(default)]
    pub adopt: i64,
    /// To be recorded as they are.
    #[serde(default)]
    pub import: i64,
    /// To be dropped from the record, being gone already or left alone.
    #[serde(default)]
    pub forget: i64,
    /// To be left alone.
    #[serde(default)]
    pub unchanged: i64,
    /// Those whose change the infrastructure could not check yet.
    #[serde(default)]
    pub unverified: i64,
}

impl PlanSummary {
    /// How many change in any way.
    pub fn changes(&self) -> i64 {
        self.create + self.update + self.delete + self.replace + self.adopt + self.import + self.forget
    }
}

/// How much of a run is done, in resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// All that are to change.
    pub total: i64,
    /// Those that were changed.
    pub done: i64,
    /// Those that could not be, or were skipped for that.
    pub failed: i64,
}

/// What happened to one resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResource {
    /// The engine's id.
    pub id: String,
    /// Create, Update, Delete, Replace, Adopt, Import or Forget.
    pub action: String,
    /// Pending, InProgress, Done, Failed, Skipped or Unknown; of a Preview and a Refresh, which change nothing, Planned.
    pub phase: String,
    /// Why, when it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}
