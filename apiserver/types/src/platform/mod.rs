//! `platform.stoa.dev/v1alpha1`: the kinds that the platform team writes. All kinds are cluster-scoped.

mod backend;
mod compliance;
mod module;
mod notification_sink;
mod secret_store;
mod terraform;
mod variable_set;
mod workspace;

pub use backend::{
    Backend, BackendSpec, BackendStatus, BackendType, BucketAddressing, LocalBackend, S3Backend, WriteOnly,
};
pub use compliance::{Compliance, Reconciler, ReconcilerObject};
pub use module::{FoundModuleVersion, Module, ModuleSource, ModuleSpec, ModuleStatus, ModuleVersion};
pub use notification_sink::{Gap, NotificationSink, NotificationSinkSpec, NotificationSinkStatus, RetryPolicy};
pub use secret_store::{
    AlibabaCloudKms, AwsSecretsManager, AzureKeyVault, EncryptedFile, KubernetesSecrets, SecretStore,
    SecretStoreProvider, SopsDecryption, VaultStore,
};
pub use terraform::{ProviderMirror, ProviderNetwork, TerraformProvider, TerraformTarget};
pub use variable_set::{VariableSet, VariableSetSpec};
pub use workspace::{
    Cluster, CommitMode, GitOpsTarget, HealthPolicy, KubernetesTarget, PullRequestProvider, PullRequests, Retention,
    UnlistedContents, Validation, Workspace, WorkspaceSpec, WorkspaceStatus,
};
