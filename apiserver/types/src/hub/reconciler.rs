//! Reconciler: a reconciler of a host, with the commit that it deployed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    common::{Condition, conditions_schema},
    config::Webhook,
};

/// The desired state of a Reconciler.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "hub.kalypso.io",
    version = "v1alpha1",
    kind = "Reconciler",
    namespaced,
    status = "ReconcilerStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Reconciler is a reconciler of a host, such as a Kustomization of Flux in a cluster, and the commit that it deployed."
)]
#[serde(rename_all = "camelCase")]
pub struct ReconcilerSpec {
    /// The host, such as a cluster.
    pub host_name: String,
    /// The name of the reconciler on its host, such as the name of a Kustomization. Where several objects have that
    /// name, `<namespace>/<name>` or `<Kind>/<namespace>/<name>` names one.
    pub reconciler_name: String,
    /// The type: flux, arc, argocd, wo, or another.
    pub reconciler_type: String,
    /// The type of the storage of the manifests: git, or another. Empty: git.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub manifests_storage_type: String,
    /// The folder of the manifests: repository, branch and folder, joined by `/`.
    pub manifests_endpoint: String,
    /// The deployment, for clients that write it here instead of sending a DeploymentReport.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<Deployment>,
    /// The secret by which Flux's notification controller signs its events, which become reports of this Reconciler. Absent: such
    /// events are rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
}

impl ReconcilerSpec {
    /// Whether this is the reconciler of an object of Flux or Argo CD on its host. `reconcilerName` is the object's `<name>`,
    /// `<namespace>/<name>` or `<Kind>/<namespace>/<name>`. The types flux and arc have no Applications, and argocd nothing else.
    pub fn stands_for(&self, kind: &str, namespace: &str, name: &str) -> bool {
        let is_of_type = match self.reconciler_type.as_str() {
            "flux" | "arc" => kind != "Application",
            "argocd" => kind == "Application",
            _ => true,
        };
        let parts: Vec<&str> = self.reconciler_name.split('/').collect();
        let is_named = match parts[..] {
            [its_name] => its_name == name,
            [its_namespace, its_name] => (its_namespace, its_name) == (namespace, name),
            [its_kind, its_namespace, its_name] => (its_kind, its_namespace, its_name) == (kind, namespace, name),
            _ => false,
        };
        is_of_type && is_named
    }
}

/// A deployment as clients of Kalypso write it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deployment {
    /// The deployed commit of the manifests. Empty: none.
    pub git_ops_commit_id: String,
    /// The status: in_progress, success or failure. Empty where there is no commit.
    pub status: String,
    /// A text for people.
    pub status_message: String,
}

/// The status of a deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeploymentStatus {
    /// The reconciler applies the commit.
    #[default]
    InProgress,
    /// The commit is deployed.
    Success,
    /// The reconciler failed to deploy the commit.
    Failure,
}

impl DeploymentStatus {
    /// All statuses.
    pub const ALL: [Self; 3] = [Self::InProgress, Self::Success, Self::Failure];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Success => "success",
            Self::Failure => "failure",
        }
    }

    /// The status with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// The observed state of a Reconciler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReconcilerStatus {
    /// The deployment that the newest report has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<ObservedDeployment>,
    /// The transitions that are not in the archive yet, in the order of their arrival.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transitions: Vec<Transition>,
    /// The last value of spec.deployment that Stoa recorded as a report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_deployment: Option<Deployment>,
    /// The conditions of the Reconciler. Ready: Stoa has recorded a deployment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// The deployment of a reconciler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedDeployment {
    /// The commit of the manifests.
    pub git_ops_commit_id: String,
    /// The status.
    pub status: DeploymentStatus,
    /// A text for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub status_message: String,
    /// The time since which the commit has this status, by the clock of the cluster.
    pub since: MicroTime,
}

/// A change of the commit or of the status of a reconciler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Transition {
    /// The time, by the clock of the cluster.
    pub time: MicroTime,
    /// The commit of the manifests.
    pub git_ops_commit_id: String,
    /// The status.
    pub status: DeploymentStatus,
    /// A text for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub status_message: String,
}
