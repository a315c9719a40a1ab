//! `delivery.stoa.dev/v1alpha1`: the kinds that record what Stoa does.

mod hook;
mod package_operation;
mod promotion;
mod release;
mod resource;
mod run;
mod workflow;

pub use hook::{Hook, HookFailurePolicy, HookPhase, HookRetry, HookScope, HookStatus, StepHooks, WorkflowHooks};
pub use package_operation::{
    AddedFunction, PackageChange, PackageOperation, PackageOperationPhase, PackageOperationSpec,
    PackageOperationStatus, PackageOperationType, PackagePhase, PackageProgress, PackageRollback, PackageSelector,
    PackageUpgrade,
};
pub use promotion::{
    CheckResult, PromotedEnvironment, Promotion, PromotionApproval, PromotionCheck, PromotionChecks, PromotionPhase,
    PromotionReports, PromotionSpec, PromotionStatus, PromotionStep, PromotionStepPhase, PromotionWave,
    PromotionWindow, ReportCounts,
};
pub use release::{Release, ReleaseSpec};
pub use resource::{CloudIdentity, KubernetesIdentity, Resource, ResourcePhase, ResourceSpec, ResourceStatus};
pub use run::{
    Approval, Decision, Import, ImportResource, KusionRelease, MergedPlan, OnConflict, Operation, PlanStatus,
    PlanSummary, PreviewedPlan, Progress, PullRequestStatus, Requester, Run, RunEnd, RunPhase, RunResource, RunSource,
    RunSpec, RunStatus, RunValue, RunValues, TerraformState, UsedGenerator,
};
pub use workflow::{
    ApprovalStep, HealthGate, PinnedVersion, ResolvedTemplate, RunCounts, RunStep, SelectedWave, Step, StepApproval,
    StepPhase, StepProgress, StepRun, StepStatus, Wave, When, Workflow, WorkflowPhase, WorkflowSpec, WorkflowStatus,
    WorkflowTemplate,
};
