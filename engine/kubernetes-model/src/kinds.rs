//! Built-in kinds of Kubernetes, for checks without a server.
//!
//! The lists have only stable kinds, which have not changed for years. Nothing is known of other kinds.
//!
//! Source: the API reference of Kubernetes 1.36.

use stoa_engine::object::split_api_version;
use stoa_engine::schema::pod_spec;
use stoa_engine::suggest::distance;

/// The stable kinds of one group.
#[derive(Debug)]
struct Group {
    name: &'static str,
    /// The versions with exactly these kinds. Other versions may have more; the scopes hold in all versions.
    versions: &'static [&'static str],
    /// Namespaced kinds.
    namespaced: &'static [&'static str],
    /// Cluster-scoped kinds.
    cluster: &'static [&'static str],
}

impl Group {
    fn kinds(&self) -> impl Iterator<Item = &'static str> {
        self.namespaced.iter().chain(self.cluster).copied()
    }

    fn has(&self, kind: &str) -> bool {
        self.kinds().any(|it| it == kind)
    }
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
    Group {
        name: "admissionregistration.k8s.io",
        versions: &[],
        namespaced: &[],
        cluster: &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
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
    Group {
        name: "certificates.k8s.io",
        versions: &[],
        namespaced: &[],
        cluster: &["CertificateSigningRequest", "ClusterTrustBundle"],
    },
    Group { name: "coordination.k8s.io", versions: &[], namespaced: &["Lease"], cluster: &[] },
    Group { name: "discovery.k8s.io", versions: &[], namespaced: &["EndpointSlice"], cluster: &[] },
    Group { name: "events.k8s.io", versions: &[], namespaced: &["Event"], cluster: &[] },
    Group {
        name: "flowcontrol.apiserver.k8s.io",
        versions: &[],
        namespaced: &[],
        cluster: &["FlowSchema", "PriorityLevelConfiguration"],
    },
    Group {
        name: "networking.k8s.io",
        versions: &[],
        namespaced: &["Ingress", "NetworkPolicy"],
        cluster: &["IPAddress", "IngressClass", "ServiceCIDR"],
    },
    Group { name: "node.k8s.io", versions: &[], namespaced: &[], cluster: &["RuntimeClass"] },
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
        cluster: &["DeviceClass", "ResourceSlice"],
    },
    Group { name: "scheduling.k8s.io", versions: &["v1"], namespaced: &[], cluster: &["PriorityClass"] },
    Group {
        name: "storage.k8s.io",
        versions: &[],
        namespaced: &["CSIStorageCapacity"],
        cluster: &["CSIDriver", "CSINode", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"],
    },
    Group { name: "storagemigration.k8s.io", versions: &[], namespaced: &[], cluster: &["StorageVersionMigration"] },
];

/// Built-in groups with a dot in their name and without kinds that are stored. Groups of other projects may have the same
/// suffix.
const WITHOUT_OBJECTS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// Whether the kinds of a group are built in. Groups of custom resources have a dot in their name.
pub fn is_built_in(group: &str) -> bool {
    !group.contains('.') || GROUPS.iter().any(|it| it.name == group) || WITHOUT_OBJECTS.contains(&group)
}

fn group(name: &str) -> Option<&'static Group> {
    GROUPS.iter().find(|group| group.name == name)
}

/// The message about a kind that Kubernetes does not have in this `group/version`; `None` for other groups. Only for use
/// without a server, since a later Kubernetes may have the kind.
pub fn unlisted(api_version: &str, kind: &str) -> Option<String> {
    let (name, version) = split_api_version(api_version);
    let is_known = group(name).is_none_or(|group| !group.versions.contains(&version) || group.has(kind));
    (!is_known).then(|| format!("{api_version} has no kind {kind:?}"))
}

/// The same only for certain mistakes: a misspelled kind of the group, or a kind of another group.
pub fn unknown(api_version: &str, kind: &str) -> Option<String> {
    let of_group = group(split_api_version(api_version).0)?;
    let is_mistake =
        || of_group.kinds().any(|known| is_nearly(known, kind)) || GROUPS.iter().any(|group| group.has(kind));
    unlisted(api_version, kind).filter(|_| is_mistake())
}

/// Whether a text is a known word with one or two typos: a missing, additional or wrong letter. Case does not matter.
fn is_nearly(known: &str, text: &str) -> bool {
    let slips = if known.len() < 8 { 1 } else { 2 };
    distance(&text.to_lowercase(), &known.to_lowercase()) <= slips
}

/// Whether objects of the kind run programs, which may do anything.
pub(crate) fn runs_programs(group: &str, kind: &str) -> bool {
    kind != "PodTemplate" && pod_spec(group, kind).is_some()
}

/// Whether the kind is known to be namespaced.
pub fn is_namespaced(group_name: &str, kind: &str) -> bool {
    group(group_name).is_some_and(|group| group.namespaced.contains(&kind))
}

/// The kinds that are known to be cluster-scoped, as groups and kinds.
pub(crate) fn cluster_scoped() -> impl Iterator<Item = (&'static str, &'static str)> {
    GROUPS.iter().flat_map(|group| group.cluster.iter().map(|kind| (group.name, *kind)))
}

/// Whether the kind is known to be cluster-scoped.
pub fn is_cluster_scoped(group_name: &str, kind: &str) -> bool {
    group(group_name).is_some_and(|group| group.cluster.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_stable_kind_is_unknown() {
        // Whether it is a mistake, and whether Kubernetes is known to have it.
        for (api_version, kind, is_unknown, is_unlisted) in [
            ("v1", "Pod", false, false),
            ("v1", "Node", false, false),
            ("v1", "Deployment", true, true),
            ("v2", "Deployment", false, false),
            ("apps/v1", "Deployment", false, false),
            ("apps/v1", "Deploymnet", true, true),
            ("apps/v1", "Deployment2", true, true),
            ("apps/v1", "deployment", true, true),
            ("apps/v1", "WorkloadGroup", false, true),
            ("apps/v1beta1", "Deploymnet", false, false),
            ("v1", "Pods", true, true),
            ("v1", "Pad2", false, true),
            ("batch/v1", "JobSet", false, true),
            ("autoscaling/v2", "HorizontalPodAutoscaler", false, false),
            ("networking.k8s.io/v1", "IngressClass", false, false),
            ("example.com/v1", "Anything", false, false),
        ] {
            assert_eq!(unknown(api_version, kind).is_some(), is_unknown, "{api_version} {kind}");
            assert_eq!(unlisted(api_version, kind).is_some(), is_unlisted, "{api_version} {kind}");
        }
        assert_eq!(unknown("apps/v1", "Deploymnt").unwrap(), "apps/v1 has no kind \"Deploymnt\"");
    }

    #[test]
    fn small_typos_are_recognized() {
        for (text, is_near) in [
            ("Deployment", true),
            ("Deployments", true),
            ("Deploymnt", true),
            ("Dploymnt", true),
            ("Dplymnt", false),
            ("Employment", true),
            ("Development", false),
            ("", false),
            ("Dépłoyment", true),
        ] {
            assert_eq!(is_nearly("Deployment", text), is_near, "{text}");
        }
        assert!(!is_nearly("Pod", &"Pod".repeat(1_000_000)));
    }

    #[test]
    fn groups_and_kinds_are_listed_once() {
        let mut names: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
        assert!(names.is_sorted(), "{names:?}");
        names.dedup();
        assert_eq!(names.len(), GROUPS.len());
        for group in GROUPS {
            assert!(!group.namespaced.iter().any(|kind| group.cluster.contains(kind)), "{group:?}");
        }
    }
}
