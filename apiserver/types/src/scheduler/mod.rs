//! `scheduler.kalypso.io/v1alpha1`: the kinds of Kalypso, with the JSON of its CustomResourceDefinitions. All kinds are
//! namespaced; a namespace is an environment.

mod assignment;
mod assignment_package;
mod base_repo;
mod cluster_type;
mod config_schema;
mod deployment_target;
mod environment;
mod gitops_repo;
mod scheduling_policy;
mod template;
#[cfg(test)]
mod tests;
mod workload;
mod workload_registration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use assignment::{Assignment, AssignmentSpec, AssignmentStatus, GitIssueStatus};
pub use assignment_package::{AssignmentPackage, AssignmentPackageSpec, AssignmentPackageStatus};
pub use base_repo::{BaseRepo, BaseRepoSpec, BaseRepoStatus};
pub use cluster_type::{ClusterType, ClusterTypeSpec};
pub use config_schema::{ConfigSchema, ConfigSchemaSpec};
pub use deployment_target::{DeploymentTarget, DeploymentTargetSpec};
pub use environment::{Environment, EnvironmentSpec, EnvironmentStatus};
pub use gitops_repo::{
    BrokenAssignment, FleetPullRequest, FleetWave, GitOpsRepo, GitOpsRepoSpec, GitOpsRepoStatus, InvalidResult,
    ReplacedValues, ReportedIssue,
};
pub use scheduling_policy::{
    ClusterTypeSelector, DeploymentTargetSelector, ExternalScheduler, SchedulingDecision, SchedulingPolicy,
    SchedulingPolicySpec, SchedulingPolicyStatus,
};
pub use template::{Template, TemplateSpec, TemplateType};
pub use workload::{Workload, WorkloadSpec, WorkloadStatus, WorkloadTarget};
pub use workload_registration::{WorkloadRegistration, WorkloadRegistrationSpec, WorkloadRegistrationStatus};

/// A folder in a branch of a Git repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Repository {
    /// The URL of the repository.
    pub repo: String,
    /// The branch.
    pub branch: String,
    /// The folder, from the root of the repository.
    pub path: String,
}

/// The status of a kind that has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EmptyStatus {}
