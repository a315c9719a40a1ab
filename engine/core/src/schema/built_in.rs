//! Merge schemas of built-in kinds, so that no server has to be asked: its documents have megabytes, and a Git
//! repository has no server.
//!
//! Only stable versions are listed. A test compares them with a real kube-apiserver.
//!
//! Source: the OpenAPI of Kubernetes 1.36, and `defaults.go` of each group for defaults.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::{Draft, Filled, ListKey, Merge, Schema};
use crate::object::split_api_version;
use crate::schema::pod_spec;

/// Merge rules of some fields. Their paths are keys with dots: `*` is any key or item, `|` separates alternative keys.
enum Fields {
    /// Lists whose items are identified by these keys; after `=` is the default of a key.
    Keyed(&'static str, &'static str),
    /// Lists whose items are identified by their values.
    Set(&'static str),
    /// Maps with one owner.
    Atomic(&'static str),
    /// The value that the server sets in unset fields of atomic lists and maps.
    Default(&'static str, Value),
    /// The same, copied from the first of these sibling maps that has one.
    Copied(&'static str, &'static [&'static str]),
    /// Fields with the same fields in them.
    Of(&'static str, fn() -> Vec<Fields>),
}

use Fields::{Atomic, Copied, Default, Keyed, Of, Set};

fn metadata() -> Vec<Fields> {
    vec![Set("finalizers"), Keyed("ownerReferences", "uid="), Atomic("ownerReferences.*")]
}

fn pod() -> Vec<Fields> {
    vec![
        Keyed("containers|initContainers|ephemeralContainers", "name="),
        Keyed("volumes|imagePullSecrets|resourceClaims|schedulingGates", "name="),
        Keyed("resources.claims", "name="),
        Keyed("hostAliases", "ip="),
        Keyed("topologySpreadConstraints", "topologyKey=,whenUnsatisfiable="),
        Atomic("nodeSelector"),
        Atomic("imagePullSecrets.*"),
        Atomic("topologySpreadConstraints.*.labelSelector"),
        Atomic("affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"),
        Of("containers|initContainers|ephemeralContainers.*", container),
        Atomic("volumes.*.cephfs|cinder|flexVolume|iscsi|rbd|scaleIO|storageos.secretRef"),
        Atomic("volumes.*.csi.nodePublishSecretRef"),
        Of("volumes.*.ephemeral.volumeClaimTemplate.metadata", metadata),
        Of("volumes.*.ephemeral.volumeClaimTemplate.spec", claim),
        Of("volumes.*.downwardAPI.items.*", reference),
        Of("volumes.*.projected.sources.*.downwardAPI.items.*", reference),
        Default("volumes.*.projected.sources.*.serviceAccountToken.expirationSeconds", json!(3600)),
    ]
}

fn container() -> Vec<Fields> {
    vec![
        Keyed("env", "name="),
        Keyed("resources.claims", "name="),
        Keyed("ports", "containerPort=0,protocol=TCP"),
        Keyed("volumeMounts", "mountPath="),
        Keyed("volumeDevices", "devicePath="),
        Atomic("env.*.valueFrom.configMapKeyRef|fieldRef|fileKeyRef|resourceFieldRef|secretKeyRef"),
        Of("env.*.valueFrom", reference),
    ]
}

/// The fields of a reference to a Pod's field.
fn reference() -> Vec<Fields> {
    vec![Default("fieldRef.apiVersion", json!("v1")), Default("resourceFieldRef.divisor", json!("0"))]
}

fn claim() -> Vec<Fields> {
    vec![Atomic("dataSource|selector")]
}

fn volume() -> Vec<Fields> {
    vec![
        Atomic("cephfs|cinder|flexVolume|iscsi|rbd|scaleIO|storageos.secretRef"),
        Atomic("csi.controllerExpandSecretRef|controllerPublishSecretRef|nodeExpandSecretRef"),
        Atomic("csi.nodePublishSecretRef|nodeStageSecretRef"),
        Atomic("nodeAffinity.required"),
    ]
}

fn webhook() -> Vec<Fields> {
    vec![
        Keyed("matchConditions", "name="),
        Atomic("namespaceSelector|objectSelector"),
        Default("rules.*.scope", json!("*")),
    ]
}

fn match_resources() -> Vec<Fields> {
    vec![
        Default("matchPolicy", json!("Equivalent")),
        Default("namespaceSelector|objectSelector", json!({})),
        Default("resourceRules|excludeResourceRules.*.scope", json!("*")),
    ]
}

fn binding() -> Vec<Fields> {
    let group = || json!("rbac.authorization.k8s.io");
    vec![Atomic("roleRef"), Default("roleRef.apiGroup", group()), Default("subjects.*.apiGroup", group())]
}

fn job() -> Vec<Fields> {
    vec![Atomic("selector"), Default("podFailurePolicy.rules.*.onPodConditions.*.status", json!("True"))]
}

fn limits() -> Vec<Fields> {
    vec![
        Default("default|defaultRequest", json!({})),
        Copied("default.*", &["max"]),
        Copied("defaultRequest.*", &["default", "min"]),
    ]
}

fn devices() -> Vec<Fields> {
    vec![Of("requests.*.exactly", device), Of("requests.*.firstAvailable.*", device)]
}

fn device() -> Vec<Fields> {
    vec![
        Default("allocationMode", json!("ExactCount")),
        Default("count", json!(1)),
        Default("tolerations.*.operator", json!("Equal")),
    ]
}

/// The kinds that can be applied, by apiVersion, with their merge rules. The rules of Pods are left out.
fn kinds() -> Vec<(&'static str, &'static [&'static str], Vec<Fields>)> {
    const ADMISSION: &str = "admissionregistration.k8s.io/v1";
    vec![
        ("v1", &["ConfigMap", "Namespace", "Pod", "PodTemplate", "Secret"], vec![]),
        ("v1", &["Endpoints"], vec![Default("subsets.*.ports.*.protocol", json!("TCP"))]),
        ("v1", &["Event"], vec![Atomic("involvedObject|related")]),
        ("v1", &["LimitRange"], vec![Of("spec.limits.*", limits)]),
        ("v1", &["Node"], vec![Set("spec.podCIDRs")]),
        ("v1", &["PersistentVolume"], vec![Of("spec", volume)]),
        ("v1", &["PersistentVolumeClaim"], vec![Of("spec", claim)]),
        ("v1", &["ReplicationController"], vec![Atomic("spec.selector")]),
        ("v1", &["ResourceQuota"], vec![Atomic("spec.scopeSelector")]),
        ("v1", &["Service"], vec![Keyed("spec.ports", "port=0,protocol=TCP"), Atomic("spec.selector")]),
        ("v1", &["ServiceAccount"], vec![Keyed("secrets", "name"), Atomic("secrets.*")]),
        (
            ADMISSION,
            &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"],
            vec![Keyed("webhooks", "name="), Of("webhooks.*", webhook)],
        ),
        (
            ADMISSION,
            &["MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"],
            vec![
                Keyed("spec.matchConditions", "name="),
                Atomic("spec.matchConstraints|paramKind"),
                Of("spec.matchConstraints", match_resources),
            ],
        ),
        (ADMISSION, &["ValidatingAdmissionPolicy"], vec![Keyed("spec.variables", "name="), Atomic("spec.variables.*")]),
        (
            ADMISSION,
            &["MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicyBinding"],
            vec![Atomic("spec.matchResources|paramRef"), Of("spec.matchResources", match_resources)],
        ),
        (ADMISSION, &["ValidatingAdmissionPolicyBinding"], vec![Set("spec.validationActions")]),
        ("apiextensions.k8s.io/v1", &["CustomResourceDefinition"], vec![]),
        ("apiregistration.k8s.io/v1", &["APIService"], vec![]),
        ("apps/v1", &["ControllerRevision"], vec![]),
        ("apps/v1", &["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"], vec![Atomic("spec.selector")]),
        (
            "apps/v1",
            &["StatefulSet"],
            vec![
                Default("spec.volumeClaimTemplates.*.apiVersion", json!("v1")),
                Default("spec.volumeClaimTemplates.*.kind", json!("PersistentVolumeClaim")),
                Default("spec.volumeClaimTemplates.*.spec.volumeMode", json!("Filesystem")),
                Default("spec.volumeClaimTemplates.*.status", json!({"phase": "Pending"})),
            ],
        ),
        ("autoscaling/v1", &["HorizontalPodAutoscaler"], vec![Atomic("spec.scaleTargetRef")]),
        ("autoscaling/v2", &["HorizontalPodAutoscaler"], vec![]),
        ("batch/v1", &["CronJob"], vec![Of("spec.jobTemplate.metadata", metadata), Of("spec.jobTemplate.spec", job)]),
        ("batch/v1", &["Job"], vec![Of("spec", job)]),
        ("certificates.k8s.io/v1", &["CertificateSigningRequest"], vec![]),
        ("coordination.k8s.io/v1", &["Lease"], vec![]),
        (
            "discovery.k8s.io/v1",
            &["EndpointSlice"],
            vec![
                Default("ports.*.name", json!("")),
                Default("ports.*.protocol", json!("TCP")),
                Default("endpoints.*.conditions", json!({})),
            ],
        ),
        ("events.k8s.io/v1", &["Event"], vec![Atomic("regarding|related")]),
        ("flowcontrol.apiserver.k8s.io/v1", &["FlowSchema", "PriorityLevelConfiguration"], vec![]),
        ("networking.k8s.io/v1", &["IPAddress", "IngressClass", "ServiceCIDR"], vec![]),
        (
            "networking.k8s.io/v1",
            &["Ingress"],
            vec![Atomic("spec.defaultBackend.resource"), Atomic("spec.defaultBackend.service.port")],
        ),
        (
            "networking.k8s.io/v1",
            &["NetworkPolicy"],
            vec![Atomic("spec.podSelector"), Default("spec.ingress|egress.*.ports.*.protocol", json!("TCP"))],
        ),
        ("node.k8s.io/v1", &["RuntimeClass"], vec![Atomic("scheduling.nodeSelector")]),
        ("policy/v1", &["PodDisruptionBudget"], vec![Atomic("spec.selector")]),
        ("rbac.authorization.k8s.io/v1", &["ClusterRole", "Role"], vec![]),
        ("rbac.authorization.k8s.io/v1", &["ClusterRoleBinding", "RoleBinding"], binding()),
        ("resource.k8s.io/v1", &["DeviceClass"], vec![]),
        ("resource.k8s.io/v1", &["ResourceClaim"], vec![Of("spec.devices", devices)]),
        (
            "resource.k8s.io/v1",
            &["ResourceClaimTemplate"],
            vec![Of("spec.metadata", metadata), Of("spec.spec.devices", devices)],
        ),
        ("resource.k8s.io/v1", &["ResourceSlice"], vec![Atomic("spec.nodeSelector")]),
        ("scheduling.k8s.io/v1", &["PriorityClass"], vec![]),
        ("storage.k8s.io/v1", &["StorageClass", "VolumeAttributesClass"], vec![]),
        ("storage.k8s.io/v1", &["CSIDriver"], vec![Set("spec.volumeLifecycleModes")]),
        ("storage.k8s.io/v1", &["CSINode"], vec![Keyed("spec.drivers", "name=")]),
        ("storage.k8s.io/v1", &["CSIStorageCapacity"], vec![Atomic("nodeTopology")]),
        ("storage.k8s.io/v1", &["VolumeAttachment"], vec![Of("spec.source.inlineVolumeSpec", volume)]),
    ]
}

/// By apiVersion and kind.
type Kinds = HashMap<&'static str, HashMap<&'static str, Schema>>;

static KINDS: LazyLock<Kinds> = LazyLock::new(|| {
    let mut drafts: HashMap<(&str, &str), Draft> = HashMap::new();
    for (api_version, kinds, fields) in kinds() {
        for kind in kinds {
            let draft = drafts.entry((api_version, *kind)).or_insert_with(|| of_pods(api_version, kind));
            put(draft, &[], &fields);
        }
    }
    let mut known = Kinds::new();
    for ((api_version, kind), draft) in drafts {
        known.entry(api_version).or_default().insert(kind, draft.into());
    }
    known
});

pub(super) static ANY_KIND: LazyLock<Schema> = LazyLock::new(|| any_kind().into());

/// The same as a draft to extend.
pub(super) fn any_kind() -> Draft {
    let mut draft = Draft { fields: BTreeMap::new(), filled: BTreeMap::new() };
    put(&mut draft, &["metadata"], &metadata());
    draft
}

/// The rules of a kind.
pub(super) fn of_kind(api_version: &str, kind: &str) -> Option<&'static Schema> {
    KINDS.get(api_version)?.get(kind)
}

fn of_pods(api_version: &str, kind: &str) -> Draft {
    let mut draft = any_kind();
    let Some(spec) = pod_spec(split_api_version(api_version).0, kind) else { return draft };
    put(&mut draft, &[spec], &pod());
    // The sibling of a template's `spec` is its metadata.
    if let Some((template, _)) = spec.rsplit_once('.') {
        put(&mut draft, &[template, "metadata"], &metadata());
    }
    draft
}

/// Adds the rules of fields below these paths.
fn put(draft: &mut Draft, above: &[&str], all: &[Fields]) {
    let paths = |below: &str| expand(&[above, &[below]].concat().join("."));
    for fields in all {
        match fields {
            Keyed(path, keys) => {
                let keys: Vec<ListKey> = keys.split(',').map(key).collect();
                draft.fields.extend(paths(path).into_iter().map(|path| (path, Merge::ByKeys(keys.clone()))));
            }
            Set(path) => draft.fields.extend(paths(path).into_iter().map(|path| (path, Merge::Set))),
            Atomic(path) => draft.fields.extend(paths(path).into_iter().map(|path| (path, Merge::AtomicMap))),
            Default(path, value) => {
                draft.filled.extend(paths(path).into_iter().map(|path| (path, Filled::With(value.clone()))));
            }
            Copied(path, maps) => {
                draft.filled.extend(paths(path).into_iter().map(|path| (path, Filled::Copied(maps))));
            }
            Of(path, fields) => put(draft, &[above, &[path]].concat(), &fields()),
        }
    }
}

fn key(text: &str) -> ListKey {
    let (name, default) = text.split_once('=').map_or((text, None), |(name, default)| (name, Some(default.to_owned())));
    ListKey { name: name.to_owned(), default }
}

/// Every path that is meant.
fn expand(path: &str) -> Vec<Vec<String>> {
    path.split('.').fold(vec![Vec::new()], |paths, step| {
        let longer = |path: &Vec<String>, key: &str| path.iter().cloned().chain([key.to_owned()]).collect();
        paths.iter().flat_map(|path| step.split('|').map(move |key| longer(path, key))).collect()
    })
}
