//! Compliance: whether clusters have what is committed to a GitOps repository.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{DurationString, SecretKeyReference};

/// Where it is read whether what is committed has reached the clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compliance {
    /// What brings the branch to clusters, all of which have to have it: one entry for each cluster and object there.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub reconcilers: Vec<Reconciler>,
    /// How often it is read once everything is compliant, as a duration such as 1m; until then it is read more often.
    #[serde(default = "default_interval")]
    pub interval: DurationString,
    /// For how long a run waits until everything is compliant with what it committed, before its release is made; it fails
    /// after that. Absent: runs do not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<DurationString>,
}

fn default_interval() -> DurationString {
    "1m".into()
}

/// What brings a branch to a cluster, and how to read of it: exactly one of kustomization and application.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reconciler {
    /// Its name in this workspace, such as that of the cluster.
    pub name: String,
    /// Whether it is in the cluster that Stoa runs in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_cluster: bool,
    /// The key of a Secret that holds a kubeconfig, which need not allow more than to get the one object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<SecretKeyReference>,
    /// The context in the kubeconfig; empty for its current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The Kustomization of Flux (`kustomize.toolkit.fluxcd.io`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kustomization: Option<ReconcilerObject>,
    /// The Application of Argo CD (`argoproj.io`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<ReconcilerObject>,
}

/// An object of a reconciler in its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReconcilerObject {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}
