//! The kinds that Kubernetes itself has, for what has to be noticed where no server can be asked.
//!
//! Only stable kinds are here, which have not changed for years; of all others nothing is known.
//! Source: the API reference of Kubernetes 1.36.

use crate::object::split_api_version;

/// The stable kinds of one group.
#[derive(Debug)]
struct Group {
    name: &'static str,
    /// The versions in which it has exactly these kinds. In others any may be; which of these are in namespaces holds in all.
    versions: &'static [&'static str],
    /// The kinds whose objects are in namespaces.
    namespaced: &'static [&'static str],
    /// The kinds whose objects are in none.
    cluster: &'static [&'static str],
}

static GROUPS: &[Group] = &[
    Group {
        name: "",
        versions: &["v1"],
        namespaced: &[
            "Binding",
            "ConfigMap",
            "Endpoints",
            "Event",
            "LimitRange",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "ReplicationController",
            "ResourceQuota",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
        // A List is no kind of a server, but one of files.
        cluster: &["ComponentStatus", "List", "Namespace", "Node", "PersistentVolume"],
    },
    Group { name: "apiextensions.k8s.io", versions: &["v1"], namespaced: &[], cluster: &["CustomResourceDefinition"] },
    Group { name: "apiregistration.k8s.io", versions: &["v1"], namespaced: &[], cluster: &["APIService"] },
    Group {
        name: "apps",
        versions: &["v1"],
        namespaced: &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"],
        cluster: &[],
    },
    Group { name: "autoscaling", versions: &["v1", "v2"], namespaced: &["HorizontalPodAutoscaler"], cluster: &[] },
    Group { name: "batch", versions: &["v1"], namespaced: &["CronJob", "Job"], cluster: &[] },
    Group { name: "coordination.k8s.io", versions: &[], namespaced: &["Lease"], cluster: &[] },
    Group { name: "discovery.k8s.io", versions: &[], namespaced: &["EndpointSlice"], cluster: &[] },
    Group { name: "events.k8s.io", versions: &[], namespaced: &["Event"], cluster: &[] },
    Group { name: "networking.k8s.io", versions: &[], namespaced: &["Ingress", "NetworkPolicy"], cluster: &[] },
    Group { name: "policy", versions: &["v1"], namespaced: &["Eviction", "PodDisruptionBudget"], cluster: &[] },
    Group {
        name: "rbac.authorization.k8s.io",
        versions: &["v1"],
        namespaced: &["Role", "RoleBinding"],
        cluster: &["ClusterRole", "ClusterRoleBinding"],
    },
    Group {
        name: "resource.k8s.io",
        versions: &[],
        namespaced: &["ResourceClaim", "ResourceClaimTemplate"],
        cluster: &[],
    },
    Group { name: "scheduling.k8s.io", versions: &["v1"], namespaced: &[], cluster: &["PriorityClass"] },
    Group { name: "storage.k8s.io", versions: &[], namespaced: &["CSIStorageCapacity"], cluster: &[] },
];

fn group(name: &str) -> Option<&'static Group> {
    GROUPS.iter().find(|group| group.name == name)
}

/// Whether Kubernetes cannot have this kind in this `group/version`.
pub fn is_unknown(api_version: &str, kind: &str) -> bool {
    let (name, version) = split_api_version(api_version);
    group(name)
        .filter(|group| group.versions.contains(&version))
        .is_some_and(|group| !group.namespaced.contains(&kind) && !group.cluster.contains(&kind))
}

/// Whether objects of the kind are known to be in namespaces.
pub(crate) fn is_namespaced(group_name: &str, kind: &str) -> bool {
    group(group_name).is_some_and(|group| group.namespaced.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kinds_that_a_stable_version_cannot_have_are_unknown() {
        for (api_version, kind, unknown) in [
            ("v1", "Pod", false),
            ("v1", "Node", false),
            ("v1", "Deployment", true),
            ("v2", "Deployment", false),
            ("apps/v1", "Deployment", false),
            ("apps/v1", "Deploymnet", true),
            ("apps/v1beta1", "Deploymnet", false),
            ("autoscaling/v2", "HorizontalPodAutoscaler", false),
            ("networking.k8s.io/v1", "IngressClass", false),
            ("example.com/v1", "Anything", false),
        ] {
            assert_eq!(is_unknown(api_version, kind), unknown, "{api_version} {kind}");
        }
    }

    #[test]
    fn each_group_is_there_once_and_each_of_its_kinds_once() {
        let mut names: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
        assert!(names.is_sorted(), "{names:?}");
        names.dedup();
        assert_eq!(names.len(), GROUPS.len());
        for group in GROUPS {
            assert!(!group.namespaced.iter().any(|kind| group.cluster.contains(kind)), "{group:?}");
        }
    }
}
