//! `porch.kpt.dev/v1alpha1`: the package API of Porch. Names and JSON fields are those of Porch 1.5.

mod function;
mod package;
mod package_revision;
mod package_revision_resources;
mod task;

pub use function::{Function, FunctionConfig, FunctionSpec, FunctionStatus};
pub use package::{PorchPackage, PorchPackageSpec, PorchPackageStatus};
pub use package_revision::{
    GitLock, Lifecycle, Locator, NameReference, PackageCondition, PackageContent, PackageMetadata, PackageRevision,
    PackageRevisionSpec, PackageRevisionStatus, ReadinessGate, RevisionDeployment, StoredInGit, UpstreamRevision,
};
pub use package_revision_resources::{
    PackageRevisionResources, PackageRevisionResourcesSpec, PackageRevisionResourcesStatus,
};
pub use task::{CloneTask, EditTask, EvalTask, GitPackage, InitTask, OciPackage, Task, UpgradeTask, UpstreamPackage};

/// The label with the value `true` of the newest published revision of a package.
pub const LATEST_REVISION: &str = "kpt.dev/latest-revision";

/// The beginning of the labels with the value `true` of a Function: one for each type.
pub const FUNCTION_TYPE: &str = "type.function.stoa.dev/";

/// The same for each keyword.
pub const FUNCTION_KEYWORD: &str = "keyword.function.stoa.dev/";

/// The same for each kind that the function works on; `any` for a function that works on all kinds.
pub const FUNCTION_INPUT: &str = "input.function.stoa.dev/";
