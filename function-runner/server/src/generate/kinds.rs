//! The kinds that Kubernetes itself has, to find a mistyped one where no cluster can be asked.
//!
//! Only versions that are stable, whose kinds have not changed for years; in all others any kind
//! passes, and the cluster says what it thinks of it.
//! Source: the API reference of Kubernetes 1.36.

/// Whether Kubernetes cannot have this kind.
pub(super) fn is_unknown(api_version: &str, kind: &str) -> bool {
    known(api_version).is_some_and(|kinds| !kinds.contains(&kind))
}

fn known(api_version: &str) -> Option<&'static [&'static str]> {
    Some(match api_version {
        "v1" => &[
            "Binding",
            "ComponentStatus",
            "ConfigMap",
            "Endpoints",
            "Event",
            "LimitRange",
            "List",
            "Namespace",
            "Node",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "ReplicationController",
            "ResourceQuota",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
        "apps/v1" => &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"],
        "batch/v1" => &["CronJob", "Job"],
        "autoscaling/v1" | "autoscaling/v2" => &["HorizontalPodAutoscaler"],
        "policy/v1" => &["Eviction", "PodDisruptionBudget"],
        "rbac.authorization.k8s.io/v1" => &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
        "apiextensions.k8s.io/v1" => &["CustomResourceDefinition"],
        "apiregistration.k8s.io/v1" => &["APIService"],
        "scheduling.k8s.io/v1" => &["PriorityClass"],
        _ => return None,
    })
}
