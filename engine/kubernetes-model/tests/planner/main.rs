//! Tests of plans with the rules of Kubernetes.
//!
//! Elsewhere: `actions` is about actions and their order, `cascade` about cascading deletes, `control_plane` about
//! objects that controllers write or delete, `order` about order, `references` about references, `sensitive` about
//! masked values, and `properties` about all plans.

#![expect(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

use std::collections::{BTreeMap, HashMap};

use insta::assert_snapshot;
use serde_json::{Map, Value, json};
use stoa_engine::conflict::{FieldConflict, are_planned};
use stoa_engine::planner::{Draft, Outline, draft, plan};
use stoa_engine::problem::reason;
use stoa_engine::render::{Colour, render};
use stoa_engine::sensitive::{MASK, UNKNOWN};
use stoa_engine::{
    Action, Clusters, DigestKeys, KindRules, Live, Owner, Plan, PlanInput, PlannedAction, Preview, Problem, Resource,
    ResourceId, Schemas, Spec, State, StateResource,
};
use stoa_kubernetes_model::{KubernetesRules, no_clusters, scopes};

mod actions;
mod cascade;
mod control_plane;
mod order;
mod properties;
mod references;
mod sensitive;

/// The input of a plan without live objects, with the rules of Kubernetes.
fn blind<'a>(spec: &'a Spec, state: &'a State, owner: &'a Owner, keys: &'a DigestKeys) -> PlanInput<'a> {
    let blind = PlanInput::blind(spec, state, owner, keys);
    PlanInput { rules: &KubernetesRules, clusters: no_clusters(), ..blind }
}

struct Scenario {
    state: State,
    live: BTreeMap<ResourceId, Live>,
    previews: BTreeMap<ResourceId, Preview>,
    schemas: Schemas,
    owner: Owner,
    keys: DigestKeys,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            state: State::default(),
            live: BTreeMap::new(),
            previews: BTreeMap::new(),
            schemas: Schemas::new(),
            owner: Owner::default(),
            keys: DigestKeys::new(&[7; 32], &[]),
        }
    }
}

fn id(name: &str) -> ResourceId {
    format!("v1:ConfigMap:shop:{name}").as_str().into()
}

fn config_map(name: &str, depends_on: &[&str], data: Value) -> Value {
    json!({"id": id(name), "type": "Kubernetes", "dependsOn": depends_on.iter().map(|name| id(name)).collect::<Vec<_>>(),
        "attributes": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}, "data": data}})
}

fn spec(resources: Value) -> Spec {
    serde_json::from_value(json!({ "resources": resources })).unwrap()
}

/// The namespace that everything is in.
fn namespace() -> Value {
    json!({"id": "v1:Namespace:shop", "type": "Kubernetes", "attributes": {"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "shop"}}})
}

/// What defines the kind `Web` of `x.dev`.
fn definition() -> Value {
    json!({"id": "apiextensions.k8s.io/v1:CustomResourceDefinition:webs.x.dev", "type": "Kubernetes", "attributes": {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "webs.x.dev"},
        "spec": {"group": "x.dev", "names": {"kind": "Web", "plural": "webs"}, "versions": [{"name": "v1"}]}}})
}

/// What serves all kinds of `x.dev/v1`.
fn service() -> Value {
    json!({"id": "apiregistration.k8s.io/v1:APIService:v1.x.dev", "type": "Kubernetes", "attributes": {
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.x.dev"},
        "spec": {"group": "x.dev", "version": "v1"}}})
}

/// One of that kind.
fn instance(name: &str) -> Value {
    json!({"id": format!("x.dev/v1:Web:shop:{name}"), "type": "Kubernetes", "attributes": {"apiVersion": "x.dev/v1",
        "kind": "Web", "metadata": {"name": name, "namespace": "shop"}}})
}

/// A Secret whose value is `hunter2`, and a reference to that.
fn secret() -> (Value, &'static str) {
    let secret = json!({"id": "v1:Secret:shop:db", "type": "Kubernetes", "attributes": {"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "db", "namespace": "shop"}, "stringData": {"password": "hunter2"}}});
    (secret, "${kusion_path.v1:Secret:shop:db.stringData.password}")
}

impl Scenario {
    /// Everything that is neither recorded nor told to be live is not there.
    fn input<'a>(&'a self, spec: &'a Spec, live: &'a BTreeMap<ResourceId, Live>) -> PlanInput<'a> {
        PlanInput {
            live,
            previews: &self.previews,
            schemas: &self.schemas,
            ..blind(spec, &self.state, &self.owner, &self.keys)
        }
    }

    fn full(&self, spec: &Spec) -> BTreeMap<ResourceId, Live> {
        let mut live = self.live.clone();
        for id in spec.resources.iter().map(|it| &it.id).chain(self.state.resources.iter().map(|it| &it.id)) {
            live.entry(id.clone()).or_insert(Live::Absent);
        }
        KubernetesRules.mark_contents(&mut live, &|_| "");
        live
    }

    fn plan(&self, spec: &Spec) -> Plan {
        plan(&self.input(spec, &self.full(spec))).unwrap()
    }

    fn problems(&self, spec: &Spec) -> String {
        let problems = plan(&self.input(spec, &self.full(spec))).unwrap_err();
        problems.iter().map(|it| format!("{} {it}\n", it.reason)).collect()
    }

    /// What a walk without faults leaves behind.
    fn carry_out(&mut self, spec: &Spec, plan: &Plan) {
        let live = self.full(spec);
        let draft = draft(&self.input(spec, &live)).unwrap();
        let wanted: HashMap<&ResourceId, &Resource> = spec.resources.iter().map(|it| (&it.id, it)).collect();
        let recorded = std::mem::take(&mut self.state.resources).into_iter();
        let mut recorded: BTreeMap<ResourceId, StateResource> = recorded.map(|it| (it.id.clone(), it)).collect();
        for action in &plan.actions {
            let id = &action.id;
            let Some(resource) = wanted.get(id) else {
                recorded.remove(id);
                self.live.insert(id.clone(), Live::Absent);
                continue;
            };
            let mut object = match self.live.remove(id) {
                Some(Live::Present(object)) => object,
                _ => Map::new(),
            };
            let resolved = &draft.desired[id];
            object.extend(resolved.attributes.clone().into_owned());
            self.live.insert(id.clone(), Live::Present(object.clone()));
            let record = StateResource::applied(resource, resolved, object, &self.keys);
            recorded.insert(id.clone(), record.depending_on(action.depends_on.clone()));
        }
        self.state.resources = recorded.into_values().collect();
    }

    fn put(&mut self, name: &str, data: Value) {
        let object = config_map(name, &[], data)["attributes"].as_object().cloned().unwrap();
        self.live.insert(id(name), Live::Present(object));
    }

    /// What was applied before.
    fn applied(resources: Value) -> Self {
        let mut scenario = Self::default();
        let spec = spec(resources);
        let plan = scenario.plan(&spec);
        scenario.carry_out(&spec, &plan);
        scenario
    }
}

fn table(plan: &Plan) -> String {
    render(plan, Colour::Never)
}

#[test]
fn actions_follow_table() {
    let mut scenario = Scenario::applied(json!([
        config_map("same", &[], json!({"a": "1"})),
        config_map("changed", &[], json!({"a": "1"})),
        config_map("drifted", &[], json!({"a": "1"})),
        config_map("lost", &[], json!({"a": "1"})),
        config_map("unwanted", &[], json!({"a": "1"})),
        config_map("unwanted-and-gone", &[], json!({"a": "1"})),
    ]));
    scenario.put("drifted", json!({"a": "by hand"}));
    scenario.put("there", json!({"a": "2"}));
    scenario.live.insert(id("lost"), Live::Absent);
    scenario.live.insert(id("unwanted-and-gone"), Live::Absent);
    scenario.live.insert(id("unsure"), Live::Unverified("its kind is not known".to_owned()));
    let plan = scenario.plan(&spec(json!([
        config_map("same", &[], json!({"a": "1"})),
        config_map("changed", &[], json!({"a": "2"})),
        config_map("drifted", &[], json!({"a": "1"})),
        config_map("lost", &[], json!({"a": "1"})),
        config_map("there", &[], json!({"a": "1"})),
        config_map("new", &[], json!({"a": "1"})),
        config_map("unsure", &[], json!({"a": "1"})),
    ])));
    assert_snapshot!(table(&plan), @r#"
    ~ update   v1:ConfigMap:shop:changed
        data.a: "1" → "2"
    ~ update   v1:ConfigMap:shop:drifted
        data.a: "by hand" → "1"  (drift)
    + create   v1:ConfigMap:shop:lost  (it was recorded, but no longer exists)
        + data: {"a":"1"}
    + create   v1:ConfigMap:shop:new
        + data: {"a":"1"}
    > adopt    v1:ConfigMap:shop:there
        data.a: "2" → "1"
    + create   v1:ConfigMap:shop:unsure  (unverified: its kind is not known)
        + data: {"a":"1"}
    - delete   v1:ConfigMap:shop:unwanted
    . forget   v1:ConfigMap:shop:unwanted-and-gone

    Plan: 3 to create, 2 to update, 1 to delete, 1 to adopt, 1 to forget; 1 unchanged; 1 unverified.
    "#);
}

#[test]
fn deletion_waits_for_former_users() {
    let scenario =
        Scenario::applied(json!([config_map("user", &["used"], json!({})), config_map("used", &[], json!({}))]));
    let plan = scenario.plan(&spec(json!([config_map("user", &[], json!({"a": "1"}))])));
    let deletion = plan.actions.iter().find(|it| it.id == id("used")).unwrap();
    assert_eq!((deletion.action, deletion.after.as_slice()), (Action::Delete, [id("user")].as_slice()));
}

#[test]
fn contradicting_records_are_still_deleted() {
    let mut scenario = Scenario::applied(json!([config_map("a", &["b"], json!({})), config_map("b", &[], json!({}))]));
    scenario.state.resources.iter_mut().find(|it| it.id == id("b")).unwrap().depends_on = vec![id("a")];
    let plan = scenario.plan(&Spec::default());
    assert_eq!(plan.summary().delete, 2);
}

#[test]
fn cycles_are_reported_with_path() {
    let scenario = Scenario::default();
    let by_reference = json!({"x": format!("$kusion_path.{}.data.x", id("a"))});
    let problems = scenario.problems(&spec(json!([
        config_map("a", &["b"], json!({})),
        config_map("b", &["c"], json!({})),
        config_map("c", &[], by_reference),
    ])));
    assert_snapshot!(problems, @"CyclicDependency v1:ConfigMap:shop:a: resources depend on each other: v1:ConfigMap:shop:a → v1:ConfigMap:shop:b → v1:ConfigMap:shop:c → v1:ConfigMap:shop:a");
}

#[test]
fn namespace_and_definition_precede_their_objects() {
    let (namespace, instance) = (namespace(), instance("a"));
    for definition in [definition(), service()] {
        let plan = Scenario::default().plan(&spec(json!([instance, namespace, definition])));
        let ids: Vec<_> = plan.actions.iter().map(|it| it.id.0.as_str()).collect();
        assert_eq!(ids, [definition["id"].as_str().unwrap(), "v1:Namespace:shop", "x.dev/v1:Web:shop:a"]);
        assert_eq!(plan.actions[2].after.len(), 2);
    }

    // What people wrote wins over what is implied.
    let mut backwards = namespace;
    backwards["dependsOn"] = json!(["v1:ConfigMap:shop:a"]);
    let plan = Scenario::default().plan(&spec(json!([backwards, config_map("a", &[], json!({}))])));
    assert_eq!(plan.actions[0].id, id("a"));
}

#[test]
fn preview_decides_update_replace_or_unchanged() {
    let mut scenario = Scenario::applied(json!([config_map("a", &[], json!({"a": "1"}))]));
    let wanted = spec(json!([config_map("a", &[], json!({"a": "2"}))]));
    let object = |data: Value| config_map("a", &[], data)["attributes"].as_object().cloned().unwrap();
    let mut action = |preview: Preview| {
        scenario.previews.insert(id("a"), preview);
        scenario.plan(&wanted).actions.remove(0)
    };
    assert_eq!(action(Preview::Changed(object(json!({"a": "2"})))).action, Action::Update);
    assert_eq!(action(Preview::Changed(object(json!({"a": "1"})))).action, Action::Unchanged);
    for made in [Some(object(json!({"a": "2"}))), None] {
        let replaced = action(Preview::Replaced(made));
        assert_eq!((replaced.action, replaced.changes.len()), (Action::Replace, 1));
    }
    let conflict = FieldConflict { manager: "hand".to_owned(), applies: false, fields: vec![".data.a".to_owned()] };
    let contested = action(Preview::Contested(object(json!({"a": "2"})), vec![conflict.clone()]));
    assert_eq!((contested.action, contested.taken), (Action::Update, vec![conflict.clone()]));
    let same = action(Preview::Contested(object(json!({"a": "1"})), vec![conflict]));
    assert_eq!((same.action, same.taken), (Action::Unchanged, vec![]));
    let unsure = action(Preview::Unverified("away".to_owned()));
    assert_eq!(action(Preview::MissingNamespace("away".to_owned())), unsure);
    assert_eq!((unsure.action, unsure.unverified.as_deref()), (Action::Update, Some("away")));
}

#[test]
fn kusion_quick_start_is_planned() {
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "$kusion_path.v1:Namespace:quickstart.metadata.name"}});
    let spec = spec(json!([
        {"id": "apps/v1:Deployment:quickstart:web", "type": "Kubernetes", "attributes": workload},
        {"id": "v1:Namespace:quickstart", "type": "Kubernetes", "dependsOn": null, "extensions": null,
            "attributes": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "quickstart"}}},
    ]));
    let scenario = Scenario::default();
    let live = scenario.full(&spec);
    let draft = draft(&scenario.input(&spec, &live)).unwrap();
    let resolved = &draft.desired[&ResourceId::from("apps/v1:Deployment:quickstart:web")];
    assert_eq!(resolved.attributes["metadata"]["namespace"], "quickstart");
    assert_eq!(draft.plan.actions[0].id.0, "v1:Namespace:quickstart");
}

#[test]
fn three_thousand_resources_are_planned_quickly() {
    let resources: Vec<Value> = (0..3_000)
        .map(|n| {
            let before: Vec<String> = if n == 0 { vec![] } else { vec![format!("m{}", n / 2)] };
            config_map(&format!("m{n}"), &before.iter().map(String::as_str).collect::<Vec<_>>(), json!({"a": "1"}))
        })
        .collect();
    let mut scenario = Scenario::applied(Value::Array(resources.clone()));
    let wanted = spec(Value::Array(resources));
    scenario.put("m77", json!({"a": "by hand"}));
    let live = scenario.full(&wanted);
    let start = std::time::Instant::now();
    let plan = plan(&scenario.input(&wanted, &live)).unwrap();
    // Unoptimised and on a busy machine; optimised it takes a twentieth.
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    assert_eq!((plan.summary().update, plan.summary().unchanged), (1, 2_999));
}
