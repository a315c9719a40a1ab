//! Condition types and reasons: CamelCase words for machines, one place for all of them.

/// Condition: the object is as it should be.
pub const READY: &str = "Ready";
/// Condition of an Organization: its owners and members have their roles.
pub const ROLES_BOUND: &str = "RolesBound";
/// Condition of a Stack: live infrastructure moved away from what was applied.
pub const DRIFTED: &str = "Drifted";
/// Condition of a Stack: the last run of each deployment succeeded.
pub const LAST_RUN: &str = "LastRun";
/// Condition of a Stack: what its trigger is to start for what is desired was started, and did not fail.
pub const TRIGGERED: &str = "Triggered";
/// Condition of a Source: what open pull requests change is planned, and shown there.
pub const PULL_REQUESTS_PLANNED: &str = "PullRequestsPlanned";
/// Condition of a Run: it ended well.
pub const COMPLETE: &str = "Complete";
/// Condition of a Run: it ended badly.
pub const FAILED: &str = "Failed";
/// Condition of a Run: it waits for its turn, or something is out of reach or busy and the run is tried again.
pub const WAITING: &str = "Waiting";
/// Condition of a Workflow: nothing of it begins.
pub const PAUSED: &str = "Paused";
/// Condition of a Run, and its reason when it is true: its plan was approved.
pub const APPROVED: &str = "Approved";
/// Condition of an authored object: its file in the control repository is what is served.
pub const SYNCED: &str = "Synced";
/// Condition of an Organization: what was decided is in the remote of the control repository. It is there once the
/// remote was away, for reasons that the storage names.
pub const RECORDED: &str = "Recorded";

/// All is well.
pub const AVAILABLE: &str = "Available";
/// Work is under way.
pub const PROGRESSING: &str = "Progressing";
/// The run ended well.
pub const SUCCEEDED: &str = "Succeeded";
/// The run was cancelled.
pub const CANCELED: &str = "Canceled";
/// Another run took the place of the run before it began.
pub const SUPERSEDED: &str = "Superseded";
/// The template of a Workflow is none.
pub const INVALID_TEMPLATE: &str = "InvalidTemplate";
/// A step of a Workflow began.
pub const STEP_STARTED: &str = "StepStarted";
/// A step of a Workflow ended well.
pub const STEP_SUCCEEDED: &str = "StepSucceeded";
/// A step of a Workflow ended otherwise.
pub const STEP_FAILED: &str = "StepFailed";
/// A hook of a step let it go on.
pub const HOOK_SUCCEEDED: &str = "HookSucceeded";
/// A hook of a step did not let it go on, or could not be asked.
pub const HOOK_FAILED: &str = "HookFailed";
/// A hook of a workflow let nothing go on yet, and is tried again.
pub const HOOK_RETRIED: &str = "HookRetried";
/// What is desired was started.
pub const STARTED: &str = "Started";
/// What is desired cannot be started now.
pub const NOT_STARTED: &str = "NotStarted";
/// A run did not succeed; of a trigger, what it started, which is not started again for the same.
pub const RUN_FAILED: &str = "RunFailed";
/// The stack is for no workspace.
pub const NO_WORKSPACES: &str = "NoWorkspaces";
/// The repository of a Source has no such branch, tag or commit as its `ref` names.
pub const REF_NOT_FOUND: &str = "RefNotFound";
/// The source has no such folder or file as a Project or Stack names.
pub const PATH_NOT_FOUND: &str = "PathNotFound";
/// The source has no such version.
pub const VERSION_NOT_FOUND: &str = "VersionNotFound";
/// The server itself failed time and again while it carried the run out, by a mistake in it.
pub const SERVER_FAILED: &str = "ServerFailed";
/// The run took longer than it may.
pub const TIMED_OUT: &str = "TimedOut";
/// Nothing was deployed yet.
pub const NOT_DEPLOYED: &str = "NotDeployed";
/// What is live is what was released.
pub const IN_SYNC: &str = "InSync";
/// The last apply failed.
pub const APPLY_FAILED: &str = "ApplyFailed";
/// What was to be destroyed was not.
pub const DESTROY_FAILED: &str = "DestroyFailed";
/// What was to be rolled back was not.
pub const ROLLBACK_FAILED: &str = "RollbackFailed";
/// The last run of a deployment was cancelled.
pub const RUN_CANCELED: &str = "RunCanceled";
/// The namespace exists and is not Stoa's.
pub const NAMESPACE_EXISTS: &str = "NamespaceExists";
/// The server works without RBAC.
pub const NO_RBAC: &str = "NoRBAC";
/// A role binding of that name exists and is not Stoa's.
pub const ROLE_BINDING_EXISTS: &str = "RoleBindingExists";
/// A role binding of the object's was refused.
pub const ROLE_BINDING_REFUSED: &str = "RoleBindingRefused";
/// The object is being deleted and waits for something.
pub const TERMINATING: &str = "Terminating";
/// An object that is referred to does not exist: a Source, Project, Workspace, Backend or Secret, or a key of a Secret.
pub const REFERENCE_NOT_FOUND: &str = "ReferenceNotFound";
/// The requester may not use what the run needs.
pub const PERMISSION_DENIED: &str = "PermissionDenied";
/// The source could not be reached.
pub const SOURCE_UNREACHABLE: &str = "SourceUnreachable";
/// The repository of a workspace does not exist, or does not let the workspace's credentials see it.
pub const REPOSITORY_NOT_FOUND: &str = "RepositoryNotFound";
/// The repository of a workspace does not have its branch.
pub const BRANCH_NOT_FOUND: &str = "BranchNotFound";
/// The server of a workspace's repository refuses Stoa, or Stoa refuses the server: credentials, certificate or address.
pub const REPOSITORY_REFUSED: &str = "RepositoryRefused";
/// The source, the version or the path in it does not exist.
pub const SOURCE_NOT_FOUND: &str = "SourceNotFound";
/// The source could not be turned into a Spec.
pub const GENERATE_FAILED: &str = "GenerateFailed";
/// The source was turned into a Spec, and not everything that it or the run says could be taken into account.
pub const GENERATED_WITH_WARNINGS: &str = "GeneratedWithWarnings";
/// The plan has warnings, which whoever approves it should read. Also the type of the Run's condition that has them.
pub const PLANNED_WITH_WARNINGS: &str = "PlannedWithWarnings";
/// The Spec could not be planned.
pub const PLAN_FAILED: &str = "PlanFailed";
/// What is to be imported cannot be read, or may not be recorded.
pub const IMPORT_FAILED: &str = "ImportFailed";
/// The plan's premises changed since it was made.
pub const PLAN_STALE: &str = "PlanStale";
/// A condition of a Run that follows the merge of a pull request: its plan is the one that was shown there.
pub const MERGED_PLAN_HOLDS: &str = "MergedPlanHolds";
/// The plan is another one than was shown, and does nothing that was not in that.
pub const PLAN_COVERED: &str = "PlanCovered";
/// The plan removes most of what is deployed, and the run does not say that it may.
pub const MASS_DELETION: &str = "MassDeletion";
/// Function-runners went away over and over in the middle of what was asked of them.
pub const RUNNER_UNAVAILABLE: &str = "RunnerUnavailable";
/// Another run of the same stack and workspace is under way.
pub const CONFLICTING_RUN: &str = "ConflictingRun";
/// Another run of the same stack and workspace comes first.
pub const QUEUED: &str = "Queued";
/// As many runs are carried out as may be.
pub const NO_PLACE: &str = "NoPlace";
/// As many runs of the namespace are carried out as may be.
pub const NAMESPACE_SHARE_USED: &str = "NamespaceShareUsed";
/// Somebody has to approve a plan; also a condition of a Workflow, in which they may have to approve a step.
pub const AWAITING_APPROVAL: &str = "AwaitingApproval";
/// The server of pull requests cannot be asked.
pub const PULL_REQUESTS_UNAVAILABLE: &str = "PullRequestsUnavailable";
/// The server of pull requests can be asked, and does not take what it is told.
pub const PULL_REQUESTS_NOT_REPORTED: &str = "PullRequestsNotReported";
/// Somebody has to merge a pull request.
pub const AWAITING_MERGE: &str = "AwaitingMerge";
/// Somebody closed the pull request without merging it.
pub const PULL_REQUEST_CLOSED: &str = "PullRequestClosed";
/// Clusters have what was committed for them; also a condition of a Stack.
pub const COMPLIANT: &str = "Compliant";
/// What a run changed is not healthy yet.
pub const VERIFYING: &str = "Verifying";
/// Not all clusters have what was committed for them yet.
pub const RECONCILING: &str = "Reconciling";
/// What was committed was tried in a cluster, and failed.
pub const NON_COMPLIANT: &str = "NonCompliant";
/// It cannot be read whether clusters have what was committed for them.
pub const COMPLIANCE_UNKNOWN: &str = "ComplianceUnknown";
/// Clusters did not have what a run committed in the time for which it waited.
pub const NOT_RECONCILED: &str = "NotReconciled";
/// Somebody rejected the plan.
pub const REJECTED: &str = "Rejected";
/// A resource's state is not known and a person must decide.
pub const UNKNOWN_STATE: &str = "UnknownState";
/// What is recorded of a deployment does not decode, or a later version wrote it; it is left as it is.
pub const UNREADABLE_STATE: &str = "UnreadableState";
/// A Spec that is kept does not open with the sealing keys that are there; it is left as it is.
pub const UNREADABLE_SPEC: &str = "UnreadableSpec";
/// A document that a run needs is not in the Backend, or its bytes are not those that were kept; it is left as it is.
pub const UNREADABLE_DOCUMENT: &str = "UnreadableDocument";
/// The Backend cannot be read or written.
pub const BACKEND_UNAVAILABLE: &str = "BackendUnavailable";
/// The Backend has no room.
pub const BACKEND_FULL: &str = "BackendFull";
/// A Secret that is named cannot be read.
pub const UNREADABLE_SECRET: &str = "UnreadableSecret";
/// The store does not take the Backend's credentials, or they do not allow it.
pub const ACCESS_DENIED: &str = "AccessDenied";
/// The Backend's bucket does not exist.
pub const BUCKET_NOT_FOUND: &str = "BucketNotFound";
/// The store does not answer, or fails.
pub const UNREACHABLE: &str = "Unreachable";
/// The file in the control repository is not valid.
pub const INVALID_FILE: &str = "InvalidFile";
/// What was pushed to the control repository is not allowed, or not as things are.
pub const PUSH_REFUSED: &str = "PushRefused";
/// No event is sent for now, as the object asks.
pub const SUSPENDED: &str = "Suspended";
/// What an endpoint answered does not take the event.
pub const DELIVERY_FAILED: &str = "DeliveryFailed";
/// What events are to be signed with is no key.
pub const INVALID_KEY: &str = "InvalidKey";
/// An event was given up, and is kept as a dead letter.
pub const DEAD_LETTER: &str = "DeadLetter";
/// History was gone before it was told.
pub const EVENTS_MISSED: &str = "EventsMissed";
