//! Labels, annotations and finalizers that Stoa sets.

/// The stack that a Run, Release or Resource belongs to.
pub const STACK: &str = "stoa.dev/stack";
/// The workspace that a Run, Release or Resource belongs to.
pub const WORKSPACE: &str = "stoa.dev/workspace";
/// The project that a Run, Release or Resource belongs to.
pub const PROJECT: &str = "stoa.dev/project";
/// On a Run: the Workflow that started it.
pub const WORKFLOW: &str = "stoa.dev/workflow";
/// On a Run: the Source of the pull request that it plans.
pub const SOURCE: &str = "stoa.dev/source";
/// On a Run: the number of the pull request that it plans.
pub const PULL_REQUEST: &str = "stoa.dev/pull-request";
/// On a Secret that Stoa writes: the Backend whose keys it has.
pub const BACKEND: &str = "stoa.dev/backend";
/// On a namespace: the Organization that owns it.
pub const ORGANIZATION: &str = "stoa.dev/organization";
/// On a namespace, as an annotation: the uid of the Organization that created it.
pub const ORGANIZATION_UID: &str = "stoa.dev/organization-uid";

/// On a namespace that was created for it: the Environment of a fleet.
pub const ENVIRONMENT: &str = "stoa.dev/environment";

/// On an Organization: its namespace must be deleted first.
pub const NAMESPACE_FINALIZER: &str = "stoa.dev/namespace";
/// On a Project: its stacks must be deleted first.
pub const STACKS_FINALIZER: &str = "stoa.dev/stacks";
/// On a Stack: its infrastructure must be destroyed or orphaned first.
pub const INFRASTRUCTURE_FINALIZER: &str = "stoa.dev/infrastructure";
/// On a Run: the run must end first.
pub const RUN_FINALIZER: &str = "stoa.dev/run";
/// On a Workflow: its runs must end first.
pub const WORKFLOW_FINALIZER: &str = "stoa.dev/workflow";

/// On a Stack or Project, as an annotation with the value `true`: the folder of a live deployment may change.
pub const ALLOW_MOVE: &str = "stoa.dev/allow-move";

/// On a Run, as an annotation: the run that replaced it before it began.
pub const SUPERSEDED_BY: &str = "stoa.dev/superseded-by";
/// On an object of a fleet, as an annotation: the file in Git that has it, with its repository and branch.
pub const FILE_IN_GIT: &str = "stoa.dev/file-in-git";
/// On an object of a fleet, as an annotation: the object whose repository has it, such as `Environment kalypso/dev`.
pub const OWNER_IN_GIT: &str = "stoa.dev/owner-in-git";
/// On an Assignment, as an annotation: the SchedulingPolicies that make it.
pub const SCHEDULING_POLICIES: &str = "stoa.dev/scheduling-policies";
/// On a DeploymentDescriptor, as an annotation: the commit of the manifests that has its version.
pub const GITOPS_COMMIT_ID: &str = "stoa.dev/gitops-commit-id";

/// On a Run that destroys a Stack for its deletion, as an annotation: the number of the attempt, from 1.
pub const ATTEMPT: &str = "stoa.dev/attempt";
