//! Tests of walks over two runtimes: Kubernetes objects, and objects of a provider that decides about its changes.
//!
//! Elsewhere: `provider_failures` has those with failed calls, and `providers_in_git` those with a deferred runtime.

use std::sync::Arc;

use serde_json::{Value, json};
use stoa_apply::{Outcome, PlanError, Planned};
use stoa_engine::import::IMPORT_ID;
use stoa_engine::problem::reason;
use stoa_engine::spec::RECREATE;
use stoa_engine::{Action, Problem, ResourceId, ResourceType, Spec};
use stoa_runtime::fake::{FakeRuntime, Operation};
use stoa_runtime::fake_provider::{ChangeFault, FakeProvider, RESOURCE_TYPE};
use stoa_runtime::{Runtime, RuntimeSet};

use crate::fixtures::{Stack, config_map, id, names, options, secret, spec};

/// A stack with objects of a provider beside its Kubernetes objects.
#[derive(Debug, Default)]
pub(crate) struct Mixed {
    pub(crate) stack: Stack,
    pub(crate) provider: FakeProvider,
}

impl Mixed {
    pub(crate) fn with(&self, kubernetes: FakeRuntime) -> Arc<dyn Runtime> {
        let owner = kubernetes.owner().clone();
        let provider = self.provider.runtime(owner.clone());
        let set = RuntimeSet::new(owner).with(ResourceType::Kubernetes, Arc::new(kubernetes));
        Arc::new(set.with(ResourceType::Terraform, Arc::new(provider)))
    }

    pub(crate) fn runtime(&self) -> Arc<dyn Runtime> {
        self.with(self.stack.runtime())
    }

    pub(crate) async fn plan(&self, spec: &Spec) -> Result<Planned, PlanError> {
        self.stack.planned(self.runtime(), spec, false).await
    }

    async fn refreshed(&self, spec: &Spec) -> Planned {
        self.stack.planned_to(self.runtime(), spec, [false, true]).await.unwrap()
    }

    pub(crate) async fn refusal(&self, spec: &Spec) -> Vec<Problem> {
        match self.plan(spec).await {
            Err(PlanError::Problems(problems)) => problems,
            other => panic!("{other:?} instead of problems"),
        }
    }

    pub(crate) async fn execute(&self, spec: &Spec, planned: &Planned, done: &[ResourceId]) -> Outcome {
        self.stack.execute_with(self.runtime(), spec, planned, done, &options()).await.unwrap()
    }

    pub(crate) async fn apply(&self, spec: &Spec) -> Outcome {
        let planned = self.plan(spec).await.unwrap();
        self.execute(spec, &planned, &[]).await
    }

    /// Plans and applies what must succeed, and leaves nothing to do.
    pub(crate) async fn bring(&self, spec: &Spec) {
        let outcome = self.apply(spec).await;
        assert!(outcome.succeeded, "{outcome:?}");
        self.assert_brought(spec).await;
        self.stack.cloud.clear_calls();
        self.provider.clear_calls();
        self.stack.observer.clear();
    }

    /// Nothing is left to do, and a refresh reports nothing.
    async fn assert_brought(&self, spec: &Spec) {
        let planned = self.plan(spec).await.unwrap();
        assert!(planned.plan.is_unchanged(), "{}", planned.table);
        let refreshed = self.refreshed(spec).await;
        assert!(refreshed.plan.actions.iter().all(|it| !it.drift), "{}", refreshed.table);
        assert_eq!(self.stack.observer.state().open, []);
    }

    /// The id of the only object with a name.
    pub(crate) fn object_id(&self, name: &str) -> String {
        self.provider.named(name).unwrap()["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn data(&self, name: &str) -> Value {
        self.stack.cloud.live(&id(name)).unwrap()["data"].clone()
    }
}

pub(crate) fn of(name: &str) -> String {
    format!("stoa:fake:{RESOURCE_TYPE}:{name}")
}

/// An object with its name and other arguments.
pub(crate) fn object(name: &str, arguments: Value) -> Value {
    let mut attributes = json!({ "name": name });
    attributes.as_object_mut().unwrap().extend(arguments.as_object().cloned().unwrap());
    json!({"id": of(name), "type": "Terraform", "attributes": attributes,
        "extensions": {"provider": "stoa/fake", "resourceType": RESOURCE_TYPE}})
}

/// The same that names an existing object.
pub(crate) fn imported(name: &str, arguments: Value, import_id: &str) -> Value {
    let mut object = object(name, arguments);
    object["extensions"][IMPORT_ID] = import_id.into();
    object
}

pub(crate) fn reference(name: &str, attribute: &str) -> String {
    format!("$kusion_path.{}.{attribute}", of(name))
}

pub(crate) fn actions(planned: &Planned) -> Vec<Action> {
    planned.plan.actions.iter().map(|it| it.action).collect()
}

/// A database with a setting of a ConfigMap, and a Secret for its users.
pub(crate) fn database(size: &str) -> Spec {
    spec(vec![
        config_map("settings", &[], json!({ "size": size })),
        object(
            "db",
            json!({"note": format!("size ${{kusion_path.{}.data.size}}", id("settings")), "secret": "given-pass"}),
        ),
        secret("login", json!({"password": reference("db", "password"), "id": reference("db", "id")})),
    ])
}

#[tokio::test]
async fn references_cross_runtimes_both_ways() {
    let mixed = Mixed::default();
    let wanted = database("large");
    let planned = mixed.plan(&wanted).await.unwrap();
    assert_eq!(actions(&planned), [Action::Create; 3]);
    for line in [
        "name: \"DB\"",
        "note: \"size large\"",
        "secret: (sensitive)",
        "id: (known after apply)",
        "password: (known after apply)",
    ] {
        assert!(planned.table.contains(line), "{line}:\n{}", planned.table);
    }
    assert_eq!(planned.plan.destinations.keys().collect::<Vec<_>>(), ["Terraform"]);
    mixed.bring(&wanted).await;
    let db = mixed.provider.named("DB").unwrap();
    let login = mixed.stack.cloud.live("v1:Secret:shop:login").unwrap();
    assert_eq!([&login["stringData"]["password"], &login["stringData"]["id"]], [&db["password"], &db["id"]]);
    assert_eq!(db["note"], "size large");

    let changed = database("huge");
    let planned = mixed.plan(&changed).await.unwrap();
    let found: Vec<_> = planned.plan.actions.iter().map(|it| (it.action, it.changes.len())).collect();
    assert_eq!(found, [(Action::Update, 1), (Action::Update, 1), (Action::Unchanged, 0)], "{}", planned.table);
    mixed.bring(&changed).await;
    assert_eq!(mixed.provider.named("DB").unwrap()["note"], "size huge");
    assert!(mixed.stack.observer.record(&of("db")).depends_on.contains(&id("settings").as_str().into()));
}

#[tokio::test]
async fn secrets_stay_in_provider_state() {
    let mixed = Mixed::default();
    // Also where the provider copies the secret.
    mixed.provider.upgrade();
    let wanted = database("large");
    let mut shown = vec![mixed.plan(&wanted).await.unwrap().table];
    mixed.provider.fail_change(&of("db"), ChangeFault::Halfway);
    let outcome = mixed.apply(&wanted).await;
    shown.push(format!("{outcome:?} {:?}", mixed.stack.observer.result(&of("db"))));
    let planned = mixed.plan(&wanted).await.unwrap();
    shown.extend([planned.table.clone(), serde_json::to_string(&planned.plan).unwrap()]);
    mixed.bring(&wanted).await;
    let db = mixed.provider.named("DB").unwrap();
    let [password, given] = ["password", "secret"].map(|key| db[key].as_str().unwrap().to_owned());
    mixed.provider.edit(&mixed.object_id("DB"), "password", json!("pa55word-by-hand"));
    mixed.provider.edit(&mixed.object_id("DB"), "secret", json!("secret-by-hand"));
    let drifted = [mixed.plan(&wanted).await.unwrap(), mixed.refreshed(&wanted).await];
    shown.extend(drifted.iter().map(|it| format!("{} {}", it.table, serde_json::to_string(&it.plan).unwrap())));
    for mut record in mixed.stack.observer.state().resources {
        if record.id.0 == of("db") {
            let state = record.provider_state.take().unwrap();
            assert!(state.open().unwrap().contains(&password), "the provider needs it back");
        }
        shown.push(format!("{record:?} {}", serde_json::to_string(&record).unwrap()));
    }
    for (text, shown) in [&*password, &*given, "by-hand"].iter().flat_map(|text| shown.iter().map(move |it| (text, it)))
    {
        assert!(!shown.contains(text), "{text} is in {shown}");
    }
    assert!(shown[0].contains("copy: (sensitive)"), "{}", shown[0]);
}

#[tokio::test]
async fn message_of_provider_hides_sensitive_values() {
    let mixed = Mixed::default();
    let problems = mixed.refusal(&spec(vec![object("db", json!({"secret": "given pass"}))])).await;
    let told: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(told, [format!("{}: attributes.secret: the secret \"(sensitive)\" has a space", of("db"))]);
}

/// Each refers to the value of the one before.
fn chain(value: &str) -> Spec {
    spec(vec![
        object("a", json!({ "note": value })),
        object("b", json!({"note": reference("a", "note"), "tags": {"of": reference("a", "computed")}})),
        object("c", json!({"note": reference("b", "note"), "tags": {"of": reference("b", "id")}})),
    ])
}

#[tokio::test]
async fn chain_is_planned_in_layers() {
    let mixed = Mixed::default();
    mixed.bring(&chain("x")).await;
    let planned = mixed.plan(&chain("x")).await.unwrap();
    assert_eq!(actions(&planned), [Action::Unchanged; 3]);
    assert_eq!(names(&mixed.provider.called(Operation::Preview)), ["a", "b", "c"]);

    let planned = mixed.plan(&chain("y")).await.unwrap();
    assert_eq!(actions(&planned), [Action::Update; 3]);
    let after =
        |at: usize| planned.plan.actions[at].changes.iter().map(|it| it.after.clone().unwrap()).collect::<Vec<_>>();
    assert_eq!([after(0), after(1), after(2)], [[json!("y")], [json!("y")], [json!("y")]].map(Vec::from));
    assert!(planned.plan.actions.iter().all(|it| it.unverified.is_none()), "{}", planned.table);
    mixed.bring(&chain("y")).await;
    assert_eq!(mixed.provider.named("C").unwrap()["note"], "y");
}

#[tokio::test]
async fn unknown_value_flows_through_chain() {
    let mixed = Mixed::default();
    mixed.bring(&chain("x")).await;
    let mut renamed = chain("x");
    renamed.resources[0].attributes["name"] = json!("a2");
    let planned = mixed.plan(&renamed).await.unwrap();
    assert_eq!(actions(&planned), [Action::Update, Action::Update, Action::Unchanged], "{}", planned.table);
    assert!(planned.table.contains("computed: \"A-3\" → (known after apply)"), "{}", planned.table);
    assert!(planned.table.contains("tags.of: \"A-3\" → (known after apply)"), "{}", planned.table);
    mixed.bring(&renamed).await;
    let computed = mixed.provider.named("A2").unwrap()["computed"].clone();
    assert_eq!(mixed.provider.named("B").unwrap()["tags"]["of"], computed);
}

#[tokio::test]
async fn dry_run_makes_planned_value_unknown() {
    let mixed = Mixed::default();
    mixed.stack.cloud.fix("type");
    let wanted = |kind: &str| {
        let mut map = config_map("m", &[], json!({}));
        map["attributes"]["type"] = json!(kind);
        map["extensions"] = json!({ RECREATE: "true" });
        let uid = format!("$kusion_path.{}.metadata.uid", id("m"));
        spec(vec![map, object("a", json!({ "fixed": uid })), object("b", json!({"note": reference("a", "fixed")}))])
    };
    mixed.bring(&wanted("1")).await;
    // Only the server knows that the ConfigMap becomes another one.
    let planned = mixed.plan(&wanted("2")).await.unwrap();
    assert_eq!(actions(&planned), [Action::Replace, Action::Replace, Action::Update], "{}", planned.table);
    assert!(planned.table.contains("(known after apply)  # forces replacement"), "{}", planned.table);
    assert!(planned.plan.actions[1..].iter().all(|it| it.unverified.is_none()), "{}", planned.table);
    mixed.bring(&wanted("2")).await;
    let uid = mixed.stack.cloud.live(&id("m")).unwrap()["metadata"]["uid"].clone();
    assert_eq!(mixed.provider.named("B").unwrap()["note"], uid);
}

#[tokio::test]
async fn reference_to_missing_attribute_is_rejected() {
    let mixed = Mixed::default();
    let problems = mixed
        .refusal(&spec(vec![object("a", json!({})), config_map("b", &[], json!({"x": reference("a", "size")}))]))
        .await;
    assert_eq!(problems[0].reason, reason::DANGLING_REFERENCE);
    assert!(problems[0].message.contains("by the plan of its provider"), "{problems:?}");
    assert!(mixed.provider.objects().is_empty());
}

#[tokio::test]
async fn drift_is_shown_and_repaired() {
    let mixed = Mixed::default();
    let wanted = database("large");
    mixed.bring(&wanted).await;
    mixed.provider.edit(&mixed.object_id("DB"), "note", json!("by hand"));
    let refreshed = mixed.refreshed(&wanted).await;
    assert!(refreshed.table.contains("note: \"by hand\" → \"size large\"  (drift)"), "{}", refreshed.table);
    assert!(mixed.provider.called(Operation::Preview).is_empty(), "a refresh needs no plan");
    let planned = mixed.plan(&wanted).await.unwrap();
    assert!(planned.table.contains("note: \"by hand\" → \"size large\"  (drift)"), "{}", planned.table);
    mixed.bring(&wanted).await;
    assert_eq!(mixed.provider.named("DB").unwrap()["note"], "size large");

    mixed.provider.remove(&mixed.object_id("DB"));
    let refreshed = mixed.refreshed(&wanted).await;
    assert!(refreshed.table.contains("(it was recorded, but no longer exists)"), "{}", refreshed.table);
    let planned = mixed.plan(&wanted).await.unwrap();
    assert_eq!(actions(&planned), [Action::Unchanged, Action::Create, Action::Update], "{}", planned.table);
    mixed.bring(&wanted).await;
    let login = mixed.stack.cloud.live("v1:Secret:shop:login").unwrap();
    assert_eq!(login["stringData"]["id"], mixed.object_id("DB"));
}

/// An object with a value that cannot be changed in place, and a ConfigMap with its id.
pub(crate) fn fixed(value: &str) -> Spec {
    spec(vec![object("db", json!({ "fixed": value })), config_map("user", &[], json!({"id": reference("db", "id")}))])
}

#[tokio::test]
async fn immutable_change_replaces_object() {
    let mixed = Mixed::default();
    mixed.bring(&fixed("1")).await;
    let before = mixed.object_id("DB");
    let planned = mixed.plan(&fixed("2")).await.unwrap();
    assert_eq!(actions(&planned), [Action::Replace, Action::Update]);
    assert!(planned.table.contains("fixed: \"1\" → \"2\"  # forces replacement"), "{}", planned.table);
    assert!(planned.table.contains(&format!("data.id: \"{before}\" → (known after apply)")), "{}", planned.table);
    mixed.bring(&fixed("2")).await;
    let after = mixed.object_id("DB");
    assert!(before != after && mixed.provider.objects().len() == 1);
    assert_eq!(mixed.data("user")["id"], after);
}

#[tokio::test]
async fn imported_object_is_never_deleted() {
    let mixed = Mixed::default();
    let existing = mixed.provider.put(json!({"name": "DB", "fixed": "1", "note": "x"}));
    let wanted = |fixed: &str| spec(vec![imported("db", json!({ "fixed": fixed }), &existing)]);
    for is_recorded in [false, true] {
        let problems = mixed.refusal(&wanted("2")).await;
        let message = &problems[0].message;
        assert!(message.starts_with("the change needs another object because of fixed,"), "{problems:?}");
        if !is_recorded {
            let planned = mixed.plan(&wanted("1")).await.unwrap();
            assert!(planned.table.contains("- note: \"x\""), "{}", planned.table);
            mixed.bring(&wanted("1")).await;
        }
    }
    let planned = mixed.plan(&Spec::default()).await.unwrap();
    assert_eq!(actions(&planned), [Action::Forget]);
    mixed.bring(&Spec::default()).await;
    assert_eq!(mixed.object_id("DB"), existing);
    let problems = mixed.refusal(&spec(vec![imported("db", json!({}), "obj-99")])).await;
    let message = "there is no object obj-99 to import; remove kusionstack.io/import-id to create an object";
    assert_eq!((problems[0].reason.as_ref(), &*problems[0].message), (reason::NOT_THERE, message));
}

#[tokio::test]
async fn objects_are_destroyed_in_order() {
    let mixed = Mixed::default();
    let wanted = spec(vec![
        config_map("settings", &[], json!({"size": "large"})),
        object("net", json!({"note": format!("$kusion_path.{}.data.size", id("settings"))})),
        object("db", json!({"note": reference("net", "id")})),
        config_map("user", &[], json!({"id": reference("db", "id")})),
    ]);
    mixed.bring(&wanted).await;
    let planned = mixed.stack.planned(mixed.runtime(), &Spec::default(), true).await.unwrap();
    let order: Vec<ResourceId> = planned.plan.actions.iter().map(|it| it.id.clone()).collect();
    assert_eq!(names(&order), ["user", "db", "net", "settings"]);
    assert!(mixed.execute(&Spec::default(), &planned, &[]).await.succeeded);
    assert_eq!(names(&mixed.stack.observer.done()), ["user", "db", "net", "settings"]);
    assert!(mixed.provider.objects().is_empty() && mixed.stack.cloud.ids().is_empty());
}

#[tokio::test]
async fn newer_provider_reads_older_states() {
    let mixed = Mixed::default();
    mixed.bring(&database("large")).await;
    let before = mixed.object_id("DB");
    mixed.provider.upgrade();
    let upgrade = "provider stoa/fake changes from 1.0.0 to 2.0.0 for 1 resource, by the lock";
    assert_eq!(mixed.plan(&database("large")).await.unwrap().notes, [upgrade]);
    mixed.assert_brought(&database("large")).await;
    // The version is recorded although nothing changes.
    mixed.bring(&database("large")).await;
    assert_eq!(mixed.plan(&database("large")).await.unwrap().notes, [""; 0]);
    mixed.bring(&database("huge")).await;
    assert_eq!(mixed.object_id("DB"), before);
    mixed.bring(&Spec::default()).await;
    assert!(mixed.provider.objects().is_empty());
}

#[tokio::test]
async fn invalid_resources_are_rejected_before_any_call() {
    let mixed = Mixed::default();
    let mut untyped = object("a", json!({}));
    untyped["extensions"]["resourceType"] = json!("fake_thing");
    let wanted = spec(vec![config_map("m", &[], json!({})), untyped]);
    let told: Vec<_> = mixed.refusal(&wanted).await.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [format!("{}: extensions.resourceType: the provider has no type fake_thing; it has {RESOURCE_TYPE}", of("a"))]
    );
    let told: Vec<_> =
        mixed.refusal(&spec(vec![object("a", json!({"size": "x"}))])).await.iter().map(ToString::to_string).collect();
    assert_eq!(told, [format!("{}: attributes.size: there is no such argument", of("a"))]);
    // Without a runtime for its type.
    let kubernetes = mixed.stack.runtime();
    let alone = RuntimeSet::new(kubernetes.owner().clone()).with(ResourceType::Kubernetes, Arc::new(kubernetes));
    let planned = mixed.stack.planned(Arc::new(alone), &spec(vec![object("a", json!({}))]), false).await;
    let Err(PlanError::Problems(problems)) = planned else { panic!("{planned:?}") };
    let message = "the workspace has no destination for resources of type Terraform";
    assert_eq!(problems[0].to_string(), format!("{}: type: {message}", of("a")));
    assert!(mixed.provider.called(Operation::Apply).is_empty() && mixed.stack.cloud.ids().is_empty());
}

#[tokio::test]
async fn resource_of_another_type_replaces_object() {
    let mixed = Mixed::default();
    let mut same_id = object("x", json!({}));
    same_id["id"] = json!(id("x"));
    let (as_object, as_map) = (spec(vec![same_id]), spec(vec![config_map("x", &[], json!({"a": "1"}))]));
    mixed.bring(&as_object).await;
    assert_eq!(actions(&mixed.plan(&as_map).await.unwrap()), [Action::Replace]);
    mixed.bring(&as_map).await;
    assert!(mixed.provider.objects().is_empty() && mixed.stack.cloud.ids().len() == 1);
    assert_eq!(actions(&mixed.plan(&as_object).await.unwrap()), [Action::Replace]);
    mixed.bring(&as_object).await;
    assert!(mixed.provider.objects().len() == 1 && mixed.stack.cloud.ids().is_empty());
}
