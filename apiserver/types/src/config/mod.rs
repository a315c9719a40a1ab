//! `config.stoa.dev/v1alpha1`: the kinds that application teams write.

mod organization;
mod project;
mod source;
mod stack;

pub use organization::{Member, Organization, OrganizationSpec, OrganizationStatus, Role};
pub use project::{Access, Project, ProjectSpec, ProjectStatus, Template};
pub use source::{
    ObservedVersion, PlannedPullRequest, PlansPhase, PullRequestPlans, Source, SourcePackage, SourceProvider,
    SourceSpec, SourceStatus, SourceVerification, Webhook,
};
pub use stack::{
    CommitOrder, ComparedCommits, ComplianceState, Deployment, DeploymentCompliance, EarlierRun, EndedRun, Generator,
    GeneratorType, HelmRelease, ReconcilerCompliance, SeenChanges, Stack, StackSpec, StackStatus, Started, Trigger,
    TriggerStatus,
};
