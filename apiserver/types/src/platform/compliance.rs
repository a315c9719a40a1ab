//! Compliance: whether clusters have what is committed to a GitOps repository.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{DurationString, SecretKeyReference};

/// The reconcilers from which Stoa reads whether clusters have the committed manifests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compliance {
    /// The reconcilers that bring the branch to clusters, one entry for each cluster and object there. A commit is
    /// compliant once all have it.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub reconcilers: Vec<Reconciler>,
    /// The time between two checks once everything is compliant, as a duration such as 1m. Checks are more frequent
    /// before. Defaults to 1m.
    #[serde(default = "DurationString::minutes::<1>")]
    pub interval: DurationString,
    /// The time that a run waits for its commit to be compliant, before it creates its release. The run fails after
    /// that. Absent: runs do not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<DurationString>,
}

/// The reconciler of a branch in a cluster, with exactly one of kustomization and application.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reconciler {
    /// The name of the reconciler in this workspace, such as that of the cluster.
    pub name: String,
    /// Whether the reconciler is in the cluster that Stoa runs in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_cluster: bool,
    /// The key of a Secret that holds a kubeconfig. It only needs the permission to get the one object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<SecretKeyReference>,
    /// The context in the kubeconfig. Defaults to its current context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The Kustomization of Flux (`kustomize.toolkit.fluxcd.io`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kustomization: Option<ReconcilerObject>,
    /// The Application of Argo CD (`argoproj.io`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<ReconcilerObject>,
}

/// The object of a reconciler in its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReconcilerObject {
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
}
