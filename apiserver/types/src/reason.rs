//! Condition types and reasons: CamelCase words for machines, one place for all of them.

/// Condition: the object is in its desired state.
pub const READY: &str = "Ready";
/// Condition of an Organization: its owners and members have their roles.
pub const ROLES_BOUND: &str = "RolesBound";
/// Condition of a Stack: live infrastructure moved away from its release.
pub const DRIFTED: &str = "Drifted";
/// Condition of a Stack: the last run of each deployment succeeded.
pub const LAST_RUN: &str = "LastRun";
/// Condition of a Stack: its trigger's runs for the desired version were started, and did not fail.
pub const TRIGGERED: &str = "Triggered";
/// Condition of a Source: the changes of open pull requests are planned, and the plans are reported.
pub const PULL_REQUESTS_PLANNED: &str = "PullRequestsPlanned";
/// Condition of a Source with keys, and its reason when it is true: a trusted key signed the commit of its ref.
pub const VERIFIED: &str = "Verified";
/// Condition of a Run: it succeeded.
pub const COMPLETE: &str = "Complete";
/// Condition of a Run: it failed. Condition of a Promotion: an environment failed.
pub const FAILED: &str = "Failed";
/// Condition of a Run: it waits in the queue, or retries after something was busy or out of reach.
pub const WAITING: &str = "Waiting";
/// Condition of a Workflow: no step, wave or run begins.
pub const PAUSED: &str = "Paused";
/// Condition of a Run, and its reason when it is true: the plan was approved.
pub const APPROVED: &str = "Approved";
/// Condition of an authored object: the served object is that of its file in the control repository.
pub const SYNCED: &str = "Synced";
/// Condition of an Organization: all decisions are in the remote of the control repository. It exists once the remote
/// was out of reach, and the storage names its reasons.
pub const RECORDED: &str = "Recorded";

/// Condition of a GitOpsRepo: rendered files wait for their pull request.
pub const READY_TO_PR: &str = "ReadyToPR";
/// Condition of a GitOpsRepo: its branch has other files than the last rendered ones that were merged.
pub const BRANCH_DRIFTED: &str = "BranchDrifted";
/// Condition of a GitOpsRepo and of an Assignment, and its reason: a more general ConfigMap replaces a value of a more
/// specific one.
pub const VALUES_REPLACED: &str = "ValuesReplaced";
/// Condition of a GitOpsRepo and of an Assignment, and its reason: results of templates violate the schemas of the projects
/// that read them.
pub const RESULTS_INVALID: &str = "ResultsInvalid";
/// Condition of an Environment, BaseRepo or WorkloadRegistration: every file of its folder is valid.
pub const FILES_VALID: &str = "FilesValid";
/// Some files of a folder are invalid.
pub const INVALID_FILES: &str = "InvalidFiles";
/// The objects of a repository are served.
pub const OBJECTS_SERVED: &str = "ObjectsServed";
/// The deployment targets of a Workload exist.
pub const DEPLOYMENT_TARGETS_CREATED: &str = "DeploymentTargetsCreated";
/// The Assignments of a SchedulingPolicy exist.
pub const ASSIGNMENTS_CREATED: &str = "AssignmentsCreated";
/// Condition of a SchedulingPolicy, and its reason: the external scheduler answers.
pub const DECIDED: &str = "Decided";
/// Condition of a SchedulingPolicy: the external scheduler names only objects that the policy selects.
pub const DECISIONS_VALID: &str = "DecisionsValid";
/// The external scheduler names objects that do not exist, or that the policy does not select.
pub const UNKNOWN_OBJECTS: &str = "UnknownObjects";
/// The external scheduler has not decided yet.
pub const UNDECIDED: &str = "Undecided";
/// The external scheduler is out of reach, or rejects the policy.
pub const SCHEDULER_UNAVAILABLE: &str = "SchedulerUnavailable";
/// The server has no external scheduler of this name.
pub const SCHEDULER_NOT_FOUND: &str = "SchedulerNotFound";
/// The files of an Assignment are rendered.
pub const ASSIGNMENT_PACKAGE_CREATED: &str = "AssignmentPackageCreated";
/// The files of an Assignment cannot be rendered.
pub const RENDER_FAILED: &str = "RenderFailed";
/// An environment of a Promotion failed.
pub const ENVIRONMENT_FAILED: &str = "EnvironmentFailed";
/// A pull request proposes the rendered files.
pub const PR_CREATED: &str = "PRCreated";
/// The pull request of a fleet cannot be opened or updated.
pub const PR_FAILED: &str = "PRFailed";
/// The server of a repository took no issue with a failure.
pub const ISSUE_FAILED: &str = "IssueFailed";
/// People have added commits to the branch of a proposal, which Stoa leaves as it is.
pub const COMMITS_OF_OTHERS: &str = "CommitsOfOthers";

/// Condition of a Repository: no package of it is broken.
pub const PACKAGES_READABLE: &str = "PackagesReadable";
/// Condition of a PackageRevision: Git has its content.
pub const PUSHED: &str = "Pushed";
/// Condition of a PackageRevision: the functions of its Kptfile succeeded at the last save.
pub const RENDERED: &str = "Rendered";

/// The object is usable.
pub const AVAILABLE: &str = "Available";
/// Some packages of a repository are broken.
pub const INVALID_PACKAGES: &str = "InvalidPackages";
/// Git has something else than a push expects.
pub const PUSH_CONFLICT: &str = "PushConflict";
/// Work is in progress.
pub const PROGRESSING: &str = "Progressing";
/// The run succeeded.
pub const SUCCEEDED: &str = "Succeeded";
/// The run was canceled.
pub const CANCELED: &str = "Canceled";
/// Another run replaced the run before it began.
pub const SUPERSEDED: &str = "Superseded";
/// The template of a Workflow is invalid.
pub const INVALID_TEMPLATE: &str = "InvalidTemplate";
/// A step of a Workflow began.
pub const STEP_STARTED: &str = "StepStarted";
/// A step of a Workflow succeeded.
pub const STEP_SUCCEEDED: &str = "StepSucceeded";
/// A step of a Workflow did not succeed.
pub const STEP_FAILED: &str = "StepFailed";
/// A hook let its step or workflow continue.
pub const HOOK_SUCCEEDED: &str = "HookSucceeded";
/// A hook did not let its step or workflow continue, or could not be called.
pub const HOOK_FAILED: &str = "HookFailed";
/// A hook has no result yet, and is retried.
pub const HOOK_RETRIED: &str = "HookRetried";
/// The run for the desired version was started.
pub const STARTED: &str = "Started";
/// The run for the desired version cannot be started now.
pub const NOT_STARTED: &str = "NotStarted";
/// A run did not succeed. For a trigger: no other run is started for the same inputs.
pub const RUN_FAILED: &str = "RunFailed";
/// The stack names no workspace.
pub const NO_WORKSPACES: &str = "NoWorkspaces";
/// The repository of a Source lacks the branch, tag or commit of `ref`.
pub const REF_NOT_FOUND: &str = "RefNotFound";
/// The Source lacks the folder or file of a Project or Stack.
pub const PATH_NOT_FOUND: &str = "PathNotFound";
/// The Source lacks the version.
pub const VERSION_NOT_FOUND: &str = "VersionNotFound";
/// The server failed repeatedly during the run, because of a defect in the server.
pub const SERVER_FAILED: &str = "ServerFailed";
/// The run took longer than its timeout.
pub const TIMED_OUT: &str = "TimedOut";
/// No release is deployed yet.
pub const NOT_DEPLOYED: &str = "NotDeployed";
/// A package revision is no published one.
pub const NOT_PUBLISHED: &str = "NotPublished";
/// Live infrastructure is that of the release.
pub const IN_SYNC: &str = "InSync";
/// The last Apply failed.
pub const APPLY_FAILED: &str = "ApplyFailed";
/// The last Destroy failed.
pub const DESTROY_FAILED: &str = "DestroyFailed";
/// The last Rollback failed.
pub const ROLLBACK_FAILED: &str = "RollbackFailed";
/// The last run of a deployment was canceled.
pub const RUN_CANCELED: &str = "RunCanceled";
/// The namespace exists, and Stoa does not own it.
pub const NAMESPACE_EXISTS: &str = "NamespaceExists";
/// The server works without RBAC.
pub const NO_RBAC: &str = "NoRBAC";
/// A role binding of that name exists, and Stoa does not own it.
pub const ROLE_BINDING_EXISTS: &str = "RoleBindingExists";
/// A role binding of the object was rejected.
pub const ROLE_BINDING_REFUSED: &str = "RoleBindingRefused";
/// The object is being deleted, and waits for another object.
pub const TERMINATING: &str = "Terminating";
/// A referenced object does not exist: a Source, Project, Workspace, Backend or Secret, or a key of a Secret.
pub const REFERENCE_NOT_FOUND: &str = "ReferenceNotFound";
/// The requester lacks a permission that the run needs.
pub const PERMISSION_DENIED: &str = "PermissionDenied";
/// The version of a Module was not found yet, or is not as the Module says.
pub const MODULE_NOT_READY: &str = "ModuleNotReady";
/// The Source is out of reach.
pub const SOURCE_UNREACHABLE: &str = "SourceUnreachable";
/// A commit or artifact has no signature, and the Source needs one.
pub const SIGNATURE_MISSING: &str = "SignatureMissing";
/// The key that signed a commit or artifact is unknown, expired or revoked.
pub const SIGNATURE_UNTRUSTED: &str = "SignatureUntrusted";
/// The signature of a commit or artifact does not match, or cannot be read.
pub const SIGNATURE_INVALID: &str = "SignatureInvalid";
/// The public keys of a Source cannot be read.
pub const INVALID_KEYS: &str = "InvalidKeys";
/// The reasons about signatures.
pub const OF_SIGNATURES: [&str; 4] = [SIGNATURE_MISSING, SIGNATURE_UNTRUSTED, SIGNATURE_INVALID, INVALID_KEYS];
/// The repository of a workspace does not exist, or is hidden from the workspace's credentials.
pub const REPOSITORY_NOT_FOUND: &str = "RepositoryNotFound";
/// The repository of a workspace lacks its branch.
pub const BRANCH_NOT_FOUND: &str = "BranchNotFound";
/// The server of a workspace's repository rejects Stoa, or Stoa rejects the server: credentials, certificate or
/// address.
pub const REPOSITORY_REFUSED: &str = "RepositoryRefused";
/// The Source, the version or the path in it does not exist.
pub const SOURCE_NOT_FOUND: &str = "SourceNotFound";
/// The generator could not render the Source as a Spec.
pub const GENERATE_FAILED: &str = "GenerateFailed";
/// Two origins of a value conflict, or the values are too large.
pub const INVALID_VALUES: &str = "InvalidValues";
/// The generator rendered a Spec, and ignored some of the Source or of the run's fields.
pub const GENERATED_WITH_WARNINGS: &str = "GeneratedWithWarnings";
/// The plan has warnings for its approver. Also the type of the Run's condition that lists them.
pub const PLANNED_WITH_WARNINGS: &str = "PlannedWithWarnings";
/// The Spec could not be planned.
pub const PLAN_FAILED: &str = "PlanFailed";
/// A resource to import cannot be read, or must not be recorded.
pub const IMPORT_FAILED: &str = "ImportFailed";
/// The premises of the plan changed since it was made.
pub const PLAN_STALE: &str = "PlanStale";
/// Condition of a Run that follows the merge of a pull request: its plan is the one that the pull request showed.
pub const MERGED_PLAN_HOLDS: &str = "MergedPlanHolds";
/// The plan differs from the one that was shown, and makes no other change.
pub const PLAN_COVERED: &str = "PlanCovered";
/// The plan removes most of the deployment, and the run does not allow that.
pub const MASS_DELETION: &str = "MassDeletion";
/// Function-runners disconnected repeatedly during calls of the run.
pub const RUNNER_UNAVAILABLE: &str = "RunnerUnavailable";
/// Another run of the same stack and workspace is in progress.
pub const CONFLICTING_RUN: &str = "ConflictingRun";
/// Another run of the same stack and workspace is earlier in the queue.
pub const QUEUED: &str = "Queued";
/// All slots for runs are in use.
pub const NO_PLACE: &str = "NoPlace";
/// The namespace uses its share of the slots for runs.
pub const NAMESPACE_SHARE_USED: &str = "NamespaceShareUsed";
/// A plan waits for approval. Also a condition of a Workflow, in which a step may wait for it too.
pub const AWAITING_APPROVAL: &str = "AwaitingApproval";
/// The server of pull requests is out of reach.
pub const PULL_REQUESTS_UNAVAILABLE: &str = "PullRequestsUnavailable";
/// The server of pull requests rejects reports.
pub const PULL_REQUESTS_NOT_REPORTED: &str = "PullRequestsNotReported";
/// A pull request waits to be merged.
pub const AWAITING_MERGE: &str = "AwaitingMerge";
/// The pull request was closed without a merge.
pub const PULL_REQUEST_CLOSED: &str = "PullRequestClosed";
/// Clusters have the commit of the deployment. Also a condition of a Stack.
pub const COMPLIANT: &str = "Compliant";
/// The changes of a run are not healthy yet.
pub const VERIFYING: &str = "Verifying";
/// Some clusters do not have the commit yet.
pub const RECONCILING: &str = "Reconciling";
/// A cluster tried the commit, and failed.
pub const NON_COMPLIANT: &str = "NonCompliant";
/// The reconcilers of clusters cannot be read.
pub const COMPLIANCE_UNKNOWN: &str = "ComplianceUnknown";
/// Clusters did not have the commit of a run within its time.
pub const NOT_RECONCILED: &str = "NotReconciled";
/// The plan was rejected.
pub const REJECTED: &str = "Rejected";
/// The state of a resource is unknown, and a person must decide.
pub const UNKNOWN_STATE: &str = "UnknownState";
/// The record of a deployment does not decode, or a later version wrote it. Stoa leaves it as it is.
pub const UNREADABLE_STATE: &str = "UnreadableState";
/// The present sealing keys do not open a stored Spec. Stoa leaves it as it is.
pub const UNREADABLE_SPEC: &str = "UnreadableSpec";
/// A document that a run needs is missing in the Backend, or its bytes changed. Stoa leaves it as it is.
pub const UNREADABLE_DOCUMENT: &str = "UnreadableDocument";
/// The Backend cannot be read or written.
pub const BACKEND_UNAVAILABLE: &str = "BackendUnavailable";
/// The Backend has no room.
pub const BACKEND_FULL: &str = "BackendFull";
/// A referenced Secret cannot be read.
pub const UNREADABLE_SECRET: &str = "UnreadableSecret";
/// The store rejects the Backend's credentials, or they lack a permission.
pub const ACCESS_DENIED: &str = "AccessDenied";
/// The Backend's bucket does not exist.
pub const BUCKET_NOT_FOUND: &str = "BucketNotFound";
/// The store does not answer, or fails.
pub const UNREACHABLE: &str = "Unreachable";
/// The file in the control repository is invalid.
pub const INVALID_FILE: &str = "InvalidFile";
/// A push to the control repository is not allowed, at least for now.
pub const PUSH_REFUSED: &str = "PushRefused";
/// The object suspends the delivery of events.
pub const SUSPENDED: &str = "Suspended";
/// The endpoint did not accept the event.
pub const DELIVERY_FAILED: &str = "DeliveryFailed";
/// The text of a signing key contains no valid key.
pub const INVALID_KEY: &str = "InvalidKey";
/// An event was not delivered, and is recorded as a dead letter.
pub const DEAD_LETTER: &str = "DeadLetter";
/// History expired before it was delivered.
pub const EVENTS_MISSED: &str = "EventsMissed";
