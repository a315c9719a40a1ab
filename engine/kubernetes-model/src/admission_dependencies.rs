//! Admission dependencies: planned changes after which an API server may accept a resource that it rejects now.
//!
//! Start at [`AdmissionDependencies::of`]. A dry run asks the server before the plan is applied. The server rejects a
//! Pod whose PriorityClass the plan creates, and a ConfigMap over a quota that the plan raises. Such a resource is
//! applied after its dependency, and its change is unverified. Any other rejection is final.
//!
//! Sources of the messages: k8s.io/kubernetes/plugin/pkg/admission, k8s.io/apiserver/pkg/admission, pkg/registry.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value};
use stoa_engine::cluster::Clusters;
use stoa_engine::object::ObjectRef;
use stoa_engine::plan::{Action, PlannedAction};
use stoa_engine::schema::pod_spec;
use stoa_engine::spec::{Resource, ResourceId};
use stoa_engine::state::StateResource;

use crate::claims::{self, Claim};
use crate::prerequisites;
use crate::stages::ADMISSION;

/// The changes of a plan, by where their objects are.
#[derive(Clone, Debug, Default)]
pub(crate) struct AdmissionDependencies {
    changes: HashMap<ObjectScope, Vec<Change>>,
    /// The changes that give up a claim on a server.
    freeing: HashMap<(String, Claim), Vec<ResourceId>>,
    counted: HashMap<ObjectScope, Counted>,
}

/// Scope of objects: the first name of their server, API group, kind and namespace. All admission configurations share one
/// scope.
type ObjectScope = [String; 4];

fn scope(server: &str, group: &str, kind: &str, namespace: &str) -> ObjectScope {
    let [kind, namespace] = if group == ADMISSION { [""; 2] } else { [kind, namespace] };
    [server, group, kind, namespace].map(str::to_owned)
}

#[derive(Clone, Debug)]
struct Change {
    id: ResourceId,
    action: Action,
    object: ObjectRef,
    /// The webhooks that the object configures, before or after the change.
    webhooks: Vec<String>,
    /// The paths of labels of the object that change.
    relabels: Vec<String>,
}

/// Objects that a quota counts together.
#[derive(Clone, Debug, Default)]
struct Counted {
    /// The position of each among the creations.
    creations: HashMap<ResourceId, usize>,
    deletions: Vec<ResourceId>,
}

impl Counted {
    /// The scope that a quota counts an object in. Quotas count objects of a kind, and the resources of Pods.
    fn scope(server: &str, object: &ObjectRef) -> ObjectScope {
        match pod_spec(&object.group, &object.kind) {
            Some(_) => scope(server, "", "Pod", &object.namespace),
            None => scope(server, &object.group, &object.kind, &object.namespace),
        }
    }

    /// The deletions that come before a creation. Every creation has its own share, or one that it shares with others:
    /// all deletions before each creation would be too many edges.
    fn before(&self, id: &ResourceId) -> impl Iterator<Item = &ResourceId> {
        let position = self.creations.get(id).copied().unwrap_or_default();
        let step = self.creations.len().max(1);
        let first = position % self.deletions.len().max(1);
        self.deletions.iter().skip(first).step_by(step)
    }
}

impl AdmissionDependencies {
    /// Gathers the changes that `actions` make to Kubernetes objects.
    pub(crate) fn of<'a>(
        actions: impl IntoIterator<Item = &'a PlannedAction>,
        wanted: impl Fn(&ResourceId) -> Option<&'a Resource>,
        recorded: impl Fn(&ResourceId) -> Option<&'a StateResource>,
        clusters: &Clusters,
    ) -> Self {
        let mut all = Self::default();
        for planned in actions {
            let record = recorded(planned.recorded_id());
            let wanted = wanted(&planned.id).filter(|_| planned.action.keeps());
            let (object, cluster) = match (wanted, record) {
                (Some(wanted), _) => (clusters.wanted_object(wanted), clusters.of_wanted(wanted)),
                (None, Some(record)) => (clusters.recorded_object(record), clusters.of_recorded(record)),
                (None, None) => continue,
            };
            let Some(object) = object.filter(|_| planned.action.is_call()) else { continue };
            let server = clusters.server(cluster);
            all.count(planned, server, &object);
            let frees = record.map(|record| claims::freed(planned.action, record, wanted)).unwrap_or_default();
            for claim in frees {
                all.freeing.entry((server.to_owned(), claim)).or_default().push(planned.id.clone());
            }
            let attributes = [wanted.map(|it| &it.attributes), record.map(|it| &it.attributes)];
            let attributes = attributes.into_iter().flatten();
            let change = Change {
                id: planned.id.clone(),
                action: planned.action,
                webhooks: attributes.flat_map(|it| webhooks(&object, it)).collect(),
                relabels: planned
                    .changes
                    .iter()
                    .filter(|change| planned.action != Action::Create && change.path.starts_with("metadata.labels"))
                    .map(|change| change.path.clone())
                    .collect(),
                object,
            };
            let ObjectRef { group, kind, namespace, .. } = &change.object;
            all.changes.entry(scope(server, group, kind, namespace)).or_default().push(change);
        }
        all
    }

    fn count(&mut self, planned: &PlannedAction, server: &str, object: &ObjectRef) {
        if !matches!(planned.action, Action::Create | Action::Delete) || object.namespace.is_empty() {
            return;
        }
        let counted = self.counted.entry(Counted::scope(server, object)).or_default();
        if planned.action == Action::Delete {
            counted.deletions.push(planned.id.clone());
        } else {
            let position = counted.creations.len();
            counted.creations.insert(planned.id.clone(), position);
        }
    }

    /// The resources whose planned changes may make a rejected resource acceptable, by the server's message.
    pub(crate) fn by(&self, rejected: &Resource, message: &str, clusters: &Clusters) -> Vec<ResourceId> {
        let Some(object) = clusters.wanted_object(rejected) else { return Vec::new() };
        let server = clusters.server(clusters.of_wanted(rejected));
        let subject = Subject { object: &object, attributes: &rejected.attributes, message };
        let at = |group: &str, kind: &str, namespace: &str| {
            self.changes.get(&scope(server, group, kind, namespace)).map(Vec::as_slice).unwrap_or_default()
        };
        let mut changes_at = vec![at(ADMISSION, "", ""), at("", "Namespace", "")];
        if !object.namespace.is_empty() {
            changes_at.extend(["ResourceQuota", "LimitRange"].map(|kind| at("", kind, &object.namespace)));
        }
        let named: HashSet<_> = prerequisites::of(&object, subject.attributes).into_iter().collect();
        changes_at.extend(named.iter().map(|it| at(it.group, it.kind, it.namespace)));
        let changes = changes_at.into_iter().flatten().filter(|change| subject.may_be_accepted_after(change));
        let mut by: BTreeSet<&ResourceId> = changes.map(|change| &change.id).collect();
        if subject.message_contains("exceeded quota: ") {
            let counted = self.counted.get(&Counted::scope(server, &object));
            by.extend(counted.into_iter().flat_map(|counted| counted.before(&rejected.id)));
        }
        if subject.message_contains("already") {
            let claims = claims::of(subject.attributes).into_iter();
            by.extend(claims.filter_map(|claim| self.freeing.get(&(server.to_owned(), claim))).flatten());
        }
        by.remove(&rejected.id);
        by.into_iter().cloned().collect()
    }
}

fn webhooks(object: &ObjectRef, attributes: &Map<String, Value>) -> Vec<String> {
    let all = attributes.get("webhooks").filter(|_| object.group == ADMISSION).and_then(Value::as_array);
    let name = |webhook: &Value| webhook.get("name")?.as_str().map(str::to_owned);
    all.into_iter().flatten().filter_map(name).collect()
}

/// An object and why it is rejected.
struct Subject<'a> {
    object: &'a ObjectRef,
    attributes: &'a Map<String, Value>,
    message: &'a str,
}

impl Subject<'_> {
    fn message_contains(&self, text: &str) -> bool {
        self.message.contains(text)
    }

    fn may_be_accepted_after(&self, change: &Change) -> bool {
        let ObjectRef { group, kind, name, .. } = &change.object;
        match (group.as_str(), kind.as_str()) {
            ("", "ResourceQuota") => self.is_by_quota(name),
            ("", "LimitRange") => {
                self.message_contains(" usage per ") || self.message_contains(" limit to request ratio per ")
            }
            ("", "Namespace") if *name == self.object.namespace => {
                change.relabels.iter().any(|label| self.is_by_label(label))
            }
            (ADMISSION, _) => self.names(change),
            _ => self.is_of_prerequisite(change),
        }
    }

    /// `exceeded quota: objects, requested: …`, `failed quota: objects: must specify …`, `status unknown for quota: objects, …`
    fn is_by_quota(&self, name: &str) -> bool {
        [',', ':'].iter().any(|end| self.message_contains(&format!("quota: {name}{end}")))
    }

    /// Whether the message names an admission configuration: a policy or binding by its name, or one of its webhooks.
    fn names(&self, configuration: &Change) -> bool {
        self.message_contains(&format!("'{}'", configuration.object.name))
            || configuration.webhooks.iter().any(|webhook| self.message_contains(&format!("webhook \"{webhook}\"")))
    }

    /// Pod Security admission reads labels of its own, a policy or a webhook any.
    fn is_by_label(&self, label: &str) -> bool {
        if self.message_contains("violates PodSecurity") {
            return label == "metadata.labels" || label.contains("pod-security.kubernetes.io/");
        }
        self.message_contains(" denied request: ") || self.message_contains("webhook \"")
    }

    /// `no PriorityClass with name a was found`, `RuntimeClass "a" not found`, `serviceaccount "a" not found`.
    fn is_of_prerequisite(&self, change: &Change) -> bool {
        let is_missing = self.message_contains("not found") || self.message_contains("was found");
        is_missing
            && change.action.keeps()
            && self.message_contains(&change.object.name)
            && prerequisites::named(&change.object)
                .is_some_and(|named| prerequisites::of(self.object, self.attributes).contains(&named))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_engine::plan::FieldChange;
    use stoa_engine::spec::ResourceType;

    use super::*;
    use crate::scopes;

    fn resource(id: &str, object: &Value) -> Resource {
        Resource {
            id: id.into(),
            kind: ResourceType::Kubernetes,
            attributes: object.as_object().unwrap().clone(),
            depends_on: Vec::new(),
            extensions: Map::new(),
        }
    }

    fn object(api_version: &str, kind: &str, name: &str, rest: &Value) -> Value {
        let mut object =
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "shop"}});
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        object
    }

    /// Whether a change of one object, and of its label `a`, may lift the rejection of another.
    fn check(change: (&Value, Action), rejected: &Value, message: &str) -> bool {
        check_label("metadata.labels.a", change, rejected, message)
    }

    fn check_label(path: &str, change: (&Value, Action), rejected: &Value, message: &str) -> bool {
        let (changed, action) = change;
        let (wanted, rejected) = (resource("changed", changed), resource("rejected", rejected));
        let record = (action != Action::Create).then(|| StateResource {
            attributes: wanted.attributes.clone(),
            ..serde_json::from_value(json!({"id": "changed", "type": "Kubernetes", "attributes": {}})).unwrap()
        });
        let label = FieldChange { path: path.to_owned(), before: None, after: None, ..FieldChange::default() };
        let planned = PlannedAction {
            changes: vec![label],
            ..PlannedAction::new("changed".into(), ResourceType::Kubernetes, action)
        };
        let clusters = Clusters::default().with_scopes(scopes([]));
        let admission_dependencies = AdmissionDependencies::of(
            [&planned],
            |_| Some(&wanted).filter(|_| action != Action::Delete),
            |_| record.as_ref(),
            &clusters,
        );
        let by = admission_dependencies.by(&rejected, message, &clusters);
        assert!(by.is_empty() || by == ["changed".into()]);
        !by.is_empty()
    }

    #[test]
    fn created_prerequisite_precedes_rejected_object() {
        let pod = object("v1", "Pod", "x", &json!({"spec": {"serviceAccountName": "a", "priorityClassName": "a"}}));
        let account = object("v1", "ServiceAccount", "a", &json!({}));
        let class = object("scheduling.k8s.io/v1", "PriorityClass", "a", &json!({}));
        let no_account =
            "pods \"x\" is forbidden: error looking up service account shop/a: serviceaccount \"a\" not found";
        let no_class = "pods \"x\" is forbidden: no PriorityClass with name a was found";
        assert!(check((&account, Action::Create), &pod, no_account));
        assert!(check((&class, Action::Create), &pod, no_class));
        assert!(!check((&account, Action::Delete), &pod, no_account));
        let misspelt = object("v1", "Pod", "x", &json!({"spec": {"priorityClassName": "b"}}));
        assert!(!check((&class, Action::Create), &misspelt, "no PriorityClass with name b was found"));
        assert!(!check((&account, Action::Create), &pod, "pods \"x\" is forbidden: violates PodSecurity"));
    }

    #[test]
    fn quota_change_or_deletion_precedes_rejected_object() {
        let map = |name: &str| object("v1", "ConfigMap", name, &json!({}));
        let quota = object("v1", "ResourceQuota", "objects", &json!({}));
        let exceeded = "configmaps \"b\" is forbidden: exceeded quota: objects, requested: count/configmaps=1";
        assert!(check((&quota, Action::Update), &map("b"), exceeded));
        assert!(check((&map("a"), Action::Delete), &map("b"), exceeded));
        assert!(!check((&map("a"), Action::Update), &map("b"), exceeded));
        assert!(!check((&object("v1", "Secret", "a", &json!({})), Action::Delete), &map("b"), exceeded));
        let other = object("v1", "ResourceQuota", "obj", &json!({}));
        assert!(!check((&other, Action::Update), &map("b"), exceeded));
    }

    #[test]
    fn changed_admission_rule_precedes_rejected_object() {
        let map = object("v1", "ConfigMap", "b", &json!({}));
        let policy = object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "no-front", &json!({}));
        let denied =
            "configmaps \"b\" is forbidden: ValidatingAdmissionPolicy 'no-front' with binding 'x' denied request: no";
        assert!(check((&policy, Action::Delete), &map, denied));
        assert!(check((&policy, Action::Update), &map, denied));
        let webhooks = json!({"webhooks": [{"name": "check.example.com"}]});
        let webhook = object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "w", &webhooks);
        assert!(check(
            (&webhook, Action::Update),
            &map,
            "admission webhook \"check.example.com\" denied the request: no"
        ));
        assert!(!check((&webhook, Action::Update), &map, "admission webhook \"other.example.com\" denied the request"));
        let insecure = "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": privileged";
        let limits = object("v1", "LimitRange", "l", &json!({}));
        let limited = "pods \"x\" is forbidden: maximum cpu usage per Container is 1, but limit is 2";
        assert!(check((&limits, Action::Update), &object("v1", "Pod", "x", &json!({})), limited));
        assert!(!check((&limits, Action::Update), &object("v1", "Pod", "x", &json!({})), insecure));
    }

    #[test]
    fn changed_label_precedes_rejected_object() {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        let pod = object("v1", "Pod", "x", &json!({}));
        let check = |path: &str, message: &str| check_label(path, (&namespace, Action::Update), &pod, message);
        let insecure = "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": privileged";
        assert!(check(r#"metadata.labels["pod-security.kubernetes.io/enforce"]"#, insecure));
        assert!(!check("metadata.labels.team", insecure));
        let denied = "admission webhook \"check.example.com\" denied the request: shop has no label team";
        assert!(check("metadata.labels.team", denied));
        assert!(!check("metadata.annotations.team", denied));
    }

    /// How many edges each of some rejected creations has to some deletions, and how many deletions have one.
    fn shared(creations: usize, deletions: usize) -> (Vec<usize>, usize) {
        let map = |id: &str| resource(id, &object("v1", "ConfigMap", id, &json!({})));
        let created: Vec<Resource> = (0..creations).map(|at| map(&format!("new{at:04}"))).collect();
        let deleted: Vec<StateResource> = (0..deletions)
            .map(|at| StateResource {
                attributes: map(&format!("old{at:04}")).attributes,
                ..serde_json::from_value(json!({"id": format!("old{at:04}"), "type": "Kubernetes", "attributes": {}}))
                    .unwrap()
            })
            .collect();
        let action = |id: &ResourceId, action| PlannedAction::new(id.clone(), ResourceType::Kubernetes, action);
        let actions: Vec<PlannedAction> = created.iter().map(|it| action(&it.id, Action::Create)).collect();
        let actions = actions.into_iter().chain(deleted.iter().map(|it| action(&it.id, Action::Delete)));
        let actions: Vec<PlannedAction> = actions.collect();
        let wanted: HashMap<&ResourceId, &Resource> = created.iter().map(|it| (&it.id, it)).collect();
        let recorded: HashMap<&ResourceId, &StateResource> = deleted.iter().map(|it| (&it.id, it)).collect();
        let clusters = Clusters::default();
        let admission_dependencies = AdmissionDependencies::of(
            &actions,
            |id| wanted.get(id).copied(),
            |id| recorded.get(id).copied(),
            &clusters,
        );
        let exceeded = "forbidden: exceeded quota: objects, requested: count/configmaps=1";
        let by: Vec<Vec<ResourceId>> =
            created.iter().map(|it| admission_dependencies.by(it, exceeded, &clusters)).collect();
        let first: BTreeSet<&ResourceId> = by.iter().flatten().collect();
        (by.iter().map(Vec::len).collect(), first.len())
    }

    #[test]
    fn creations_share_deletions_that_free_quota() {
        assert_eq!(shared(2, 5), (vec![3, 2], 5));
        assert_eq!(shared(3, 2), (vec![1, 1, 1], 2));
        assert_eq!(shared(1, 0), (vec![0], 0));
        assert_eq!(shared(2500, 2500), (vec![1; 2500], 2500));
    }

    #[test]
    fn released_port_precedes_rejected_service() {
        let service =
            |name: &str, port: i64| object("v1", "Service", name, &json!({"spec": {"ports": [{"nodePort": port}]}}));
        let taken = "Service \"b\" is invalid: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated";
        assert!(check((&service("a", 30080), Action::Delete), &service("b", 30080), taken));
        assert!(!check((&service("a", 30081), Action::Delete), &service("b", 30080), taken));
        assert!(!check((&service("a", 30080), Action::Update), &service("b", 30080), taken), "it keeps the port");
    }
}
