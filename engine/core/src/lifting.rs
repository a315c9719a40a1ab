//! Which changes of a plan may have an API server accept what it rejects now.
//!
//! Start at [`Lifting::of`]. A dry run asks the server as it is before the plan. It rejects a Pod whose PriorityClass the plan
//! creates, and a ConfigMap for which a quota is used up that the plan enlarges. Such an object is applied after what lifts its
//! rejection, and its change is unverified. A rejection that no change of the plan can lift is final.
//!
//! Sources of the messages: k8s.io/kubernetes/plugin/pkg/admission, k8s.io/apiserver/pkg/admission, pkg/registry.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::claims::{self, Claim};
use crate::cluster::Clusters;
use crate::kinds::pod_spec;
use crate::object::ObjectRef;
use crate::plan::{Action, PlannedAction};
use crate::prerequisites;
use crate::spec::{Resource, ResourceId};
use crate::stage::ADMISSION;
use crate::state::StateResource;

/// The changes of a plan.
#[derive(Clone, Debug, Default)]
pub struct Lifting {
    changes: Vec<Change>,
}

#[derive(Clone, Debug)]
struct Change {
    id: ResourceId,
    action: Action,
    /// The first name of the server that it is made on.
    server: String,
    object: ObjectRef,
    /// The webhooks that the object configures, before or after the change.
    webhooks: Vec<String>,
    /// Whether it changes the labels of the object.
    relabels: bool,
    frees: BTreeSet<Claim>,
}

impl Lifting {
    /// Gathers the changes that `actions` make to Kubernetes objects.
    pub fn of<'a>(
        actions: impl IntoIterator<Item = &'a PlannedAction>,
        wanted: impl Fn(&ResourceId) -> Option<&'a Resource>,
        recorded: impl Fn(&ResourceId) -> Option<&'a StateResource>,
        clusters: &Clusters,
    ) -> Self {
        let change = |planned: &PlannedAction| {
            let record = planned.recorded_id().and_then(&recorded);
            let wanted = wanted(&planned.id).filter(|_| planned.action.keeps());
            let (object, cluster) = match (wanted, record) {
                (Some(wanted), _) => (clusters.wanted_object(wanted)?, clusters.of_wanted(wanted)),
                (None, Some(record)) => (clusters.recorded_object(record)?, clusters.of_recorded(record)),
                (None, None) => return None,
            };
            let attributes = [wanted.map(|it| &it.attributes), record.map(|it| &it.attributes)];
            let webhooks = attributes.into_iter().flatten().flat_map(|it| webhooks(&object, it)).collect();
            Some(Change {
                id: planned.id.clone(),
                action: planned.action,
                server: clusters.server(cluster).to_owned(),
                webhooks,
                relabels: planned.action != Action::Create
                    && planned.changes.iter().any(|change| change.path.starts_with("metadata.labels")),
                frees: record.map(|record| claims::freed(planned.action, record, wanted)).unwrap_or_default(),
                object,
            })
        };
        Self { changes: actions.into_iter().filter(|it| it.action.is_call()).filter_map(change).collect() }
    }

    /// The resources whose changes may lift the rejection of a resource, by what the server said.
    pub fn by(&self, rejected: &Resource, message: &str, clusters: &Clusters) -> Vec<ResourceId> {
        let Some(object) = clusters.wanted_object(rejected) else { return Vec::new() };
        let server = clusters.server(clusters.of_wanted(rejected));
        let subject = Subject { object: &object, attributes: &rejected.attributes, message };
        let changes = self.changes.iter().filter(|change| change.server == server && change.id != rejected.id);
        changes.filter(|change| subject.is_lifted_by(change)).map(|change| change.id.clone()).collect()
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
    fn says(&self, text: &str) -> bool {
        self.message.contains(text)
    }

    fn is_lifted_by(&self, change: &Change) -> bool {
        let ObjectRef { group, kind, namespace, name, .. } = &change.object;
        let is_beside = !namespace.is_empty() && *namespace == self.object.namespace;
        match (group.as_str(), kind.as_str()) {
            ("", "ResourceQuota") if is_beside => self.is_by_quota(name),
            ("", "LimitRange") if is_beside => self.says(" usage per ") || self.says(" limit to request ratio per "),
            // All of these select namespaces by their labels.
            ("", "Namespace") if *name == self.object.namespace => change.relabels && self.is_by_label(),
            (ADMISSION, _) => {
                self.says(&format!("'{name}'"))
                    || change.webhooks.iter().any(|webhook| self.says(&format!("webhook \"{webhook}\"")))
            }
            _ => {
                self.is_of_prerequisite(change)
                    || (is_beside && self.is_of_quota_freed_by(change))
                    || (self.says("already") && !claims::of(self.attributes).is_disjoint(&change.frees))
            }
        }
    }

    /// `exceeded quota: objects, requested: …`, `failed quota: objects: must specify …`, `status unknown for quota: objects, …`
    fn is_by_quota(&self, name: &str) -> bool {
        [',', ':'].iter().any(|end| self.says(&format!("quota: {name}{end}")))
    }

    /// Pod Security admission, a policy, or a webhook.
    fn is_by_label(&self) -> bool {
        ["violates PodSecurity", " denied request: ", "webhook \""].iter().any(|text| self.says(text))
    }

    /// `no PriorityClass with name a was found`, `RuntimeClass "a" not found`, `serviceaccount "a" not found`.
    fn is_of_prerequisite(&self, change: &Change) -> bool {
        let is_missing = self.says("not found") || self.says("was found");
        is_missing
            && change.action.keeps()
            && self.says(&change.object.name)
            && prerequisites::named(&change.object)
                .is_some_and(|named| prerequisites::of(self.object, self.attributes).contains(&named))
    }

    /// Quotas count objects of a kind, and what Pods take.
    fn is_of_quota_freed_by(&self, change: &Change) -> bool {
        let kinds = [self.object, &change.object].map(|it| (&it.group, &it.kind));
        let [wanted, gone] = kinds.map(|(group, kind)| pod_spec(group, kind).is_some());
        change.action == Action::Delete && self.says("exceeded quota: ") && (kinds[0] == kinds[1] || (wanted && gone))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::FieldChange;
    use crate::spec::ResourceType;

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

    /// Whether a change of one object may lift the rejection of another.
    fn check(change: (&Value, Action), rejected: &Value, message: &str) -> bool {
        let (changed, action) = change;
        let (wanted, rejected) = (resource("changed", changed), resource("rejected", rejected));
        let record = (action != Action::Create).then(|| StateResource {
            attributes: wanted.attributes.clone(),
            ..serde_json::from_value(json!({"id": "changed", "type": "Kubernetes", "attributes": {}})).unwrap()
        });
        let label = FieldChange { path: "metadata.labels.a".to_owned(), before: None, after: None, drift: false };
        let planned = PlannedAction {
            changes: vec![label],
            ..PlannedAction::new("changed".into(), ResourceType::Kubernetes, action)
        };
        let clusters = Clusters::default();
        let lifting = Lifting::of(
            [&planned],
            |_| Some(&wanted).filter(|_| action != Action::Delete),
            |_| record.as_ref(),
            &clusters,
        );
        let by = lifting.by(&rejected, message, &clusters);
        assert!(by.is_empty() || by == ["changed".into()]);
        !by.is_empty()
    }

    #[test]
    fn a_prerequisite_that_is_brought_lifts_the_rejection_of_what_names_it() {
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
    fn a_changed_quota_or_a_deletion_lifts_a_rejection_by_quota() {
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
    fn changed_policies_webhooks_limits_and_labels_lift_what_they_reject() {
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
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        let insecure = "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": privileged";
        assert!(check((&namespace, Action::Update), &object("v1", "Pod", "x", &json!({})), insecure));
        let limits = object("v1", "LimitRange", "l", &json!({}));
        let limited = "pods \"x\" is forbidden: maximum cpu usage per Container is 1, but limit is 2";
        assert!(check((&limits, Action::Update), &object("v1", "Pod", "x", &json!({})), limited));
        assert!(!check((&limits, Action::Update), &object("v1", "Pod", "x", &json!({})), insecure));
    }

    #[test]
    fn a_freed_port_lifts_the_rejection_of_what_wants_it() {
        let service =
            |name: &str, port: i64| object("v1", "Service", name, &json!({"spec": {"ports": [{"nodePort": port}]}}));
        let taken = "Service \"b\" is invalid: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated";
        assert!(check((&service("a", 30080), Action::Delete), &service("b", 30080), taken));
        assert!(!check((&service("a", 30081), Action::Delete), &service("b", 30080), taken));
        assert!(!check((&service("a", 30080), Action::Update), &service("b", 30080), taken), "it keeps the port");
    }
}
