//! Tests of planning: reads and dry runs.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use stoa_apply::{PlanError, Planning};
use stoa_engine::problem::reason;
use stoa_engine::{Action, Clusters, KindRules, Owner, Preview, Resource, StateResource};
use stoa_runtime::SECRET_IN_THE_OPEN;
use stoa_runtime::fake::{FakeRuntime, Operation};
use stoa_runtime::{
    Applied, ApplyRequest, Deleted, DeletionReport, DeletionVerdict, Finished, Found, Grant, Health, HealthReport,
    KubernetesChecks, KubernetesObject, Live, ReadRequest, Runtime, RuntimeError,
};

use crate::fixtures::{Stack, config_map, id, maps, names, secret, spec};

#[tokio::test]
async fn only_what_differs_is_previewed() {
    let stack = Stack::default();
    stack.bring(&maps(&[("a", &[]), ("b", &[])])).await;
    let wanted = spec(vec![
        config_map("a", &[], json!({"a": "1"})),
        config_map("b", &[], json!({"a": "2"})),
        config_map("c", &[], json!({})),
    ]);
    let planned = stack.plan(&wanted).await.unwrap();
    assert_eq!(names(&stack.cloud.called(Operation::Read)), ["a", "b", "c"], "each is read once");
    assert_eq!(names(&stack.cloud.called(Operation::Preview)), ["b", "c"]);
    assert_eq!(
        planned.table,
        format!(
            "~ update   {}\n    data.a: \"1\" → \"2\"\n+ create   {}\n    + data: {{}}\n\n\
             Plan: 1 to create, 1 to update; 1 unchanged.\n",
            id("b"),
            id("c")
        )
    );
}

/// Whoever approves a plan approves where it goes.
#[tokio::test]
async fn plan_for_another_destination_has_another_digest() {
    let stack = Stack::default();
    let spec = maps(&[("a", &[])]);
    let [here, there] = ["here", "there"].map(|place| Arc::new(stack.runtime().at(place)));
    let plan = async |runtime: &Arc<FakeRuntime>| stack.planned(runtime.clone(), &spec, false).await.unwrap();
    let planned = plan(&here).await;
    assert_eq!(planned.digest, plan(&here).await.digest);
    assert_ne!(planned.digest, plan(&there).await.digest);
    assert_eq!(stoa_apply::leads_elsewhere(&planned.plan, &*here), None);
    let told = stoa_apply::leads_elsewhere(&planned.plan, &*there);
    assert_eq!(
        told.as_deref(),
        Some(
            "the workspace has another destination than when the plan was made; start \
                                      another run"
        )
    );
}

#[tokio::test]
async fn reordered_list_is_previewed_and_applied() {
    let stack = Stack::default();
    let pod = |first: &str, then: &str| {
        spec(vec![json!({"id": "v1:Pod:shop:web", "type": "Kubernetes", "attributes": {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"initContainers": [{"name": first, "image": "x"}, {"name": then, "image": "x"}]}}})])
    };
    stack.bring(&pod("a", "b")).await;
    let planned = stack.plan(&pod("b", "a")).await.unwrap();
    assert_eq!(names(&stack.cloud.called(Operation::Preview)), ["web"]);
    let action = &planned.plan.actions[0];
    assert_eq!((action.action, action.drift), (Action::Update, false));
    assert!(planned.table.contains(r#"spec.initContainers: ["a","b"] → ["b","a"]"#), "{}", planned.table);
    stack.bring(&pod("b", "a")).await;
    assert!(stack.plan(&pod("b", "a")).await.unwrap().plan.is_unchanged());
}

#[tokio::test]
async fn namespace_with_wanted_objects_is_not_deleted() {
    let namespace = json!({"id": "v1:Namespace:shop", "type": "Kubernetes",
        "attributes": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}});
    let inside = config_map("a", &[], json!({}));
    for deferred in [false, true] {
        let stack = Stack::default();
        stack.bring(&spec(vec![namespace.clone(), inside.clone()])).await;
        let runtime = if deferred { stack.runtime().deferred() } else { stack.runtime() };
        let left = spec(vec![inside.clone()]);
        let problems = stack.refusal(runtime, &left).await;
        assert_eq!((problems.len(), &*problems[0].reason), (1, reason::STILL_NEEDED));
        // Whoever deletes it by hand takes that on themselves.
        stack.cloud.remove("v1:Namespace:shop");
        let plan = stack.plan(&left).await.unwrap().plan;
        assert_eq!(plan.summary().forget, 1, "{plan:?}");
    }
}

#[tokio::test]
async fn ignored_spec_fields_are_reported() {
    let stack = Stack::default();
    let mut wanted = spec(vec![config_map("a", &[], json!({"url": "http://$kusion_path.v1:ConfigMap:shop:a.x"}))]);
    wanted.context = Some(json!({"KUBECONFIG_PATH": "/home/deployer/.kube/config"}));
    let notes = stack.plan(&wanted).await.unwrap().notes;
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].starts_with("context of the Spec is ignored") && notes[1].contains("data.url"), "{notes:?}");
}

#[tokio::test]
async fn rejection_is_reported_before_any_change() {
    let stack = Stack::default();
    let refused = RuntimeError::Rejected {
        message: "spec.replicas must not be negative".into(),
        field: Some("spec.replicas".into()),
        by_definition: false,
    };
    stack.cloud.fail(Operation::Preview, &id("b"), refused);
    let problems = stack.refusal(stack.runtime(), &maps(&[("a", &[]), ("b", &[])])).await;
    let told: Vec<_> = problems.iter().map(|it| format!("{} {it}", it.reason)).collect();
    assert_eq!(told, [format!("Rejected {}: spec.replicas: spec.replicas must not be negative", id("b"))]);
    assert!(stack.cloud.ids().is_empty());
}

#[tokio::test]
async fn missing_kind_is_rejected_unless_plan_creates_it() {
    let stack = Stack::default();
    let object = |api_version: &str, kind: &str, depends_on: &[&str]| {
        let id = format!("{api_version}:{kind}:shop:it");
        json!({"id": id, "type": "Kubernetes", "dependsOn": depends_on, "attributes": {
            "apiVersion": api_version, "kind": kind, "metadata": {"name": "it", "namespace": "shop"}}})
    };
    let widget = "example.com/v1:Widget:shop:it";
    let operator = "apps/v1:Deployment:shop:it";
    let lacks = || {
        let message = "cluster main has no kind \"Widget\"".to_owned();
        stack.cloud.fail(Operation::Read, widget, RuntimeError::UnknownKind(message));
    };
    lacks();
    let alone = spec(vec![
        config_map("a", &[], json!({})),
        object("apps/v1", "Deployment", &[]),
        object("example.com/v1", "Widget", &[&id("a")]),
    ]);
    let problems = stack.refusal(stack.runtime(), &alone).await;
    let told: Vec<_> = problems.iter().map(|it| format!("{} {it}", it.reason)).collect();
    let expected = format!(
        "UnknownKind {widget}: attributes.kind: cluster main has no kind \"Widget\"; if another resource of the Spec \
         brings the kind, add that resource to dependsOn"
    );
    assert_eq!(told, [expected]);
    assert!(stack.cloud.ids().is_empty());

    lacks();
    let mut between = config_map("a", &[], json!({}));
    between["dependsOn"] = json!([operator]);
    let brought =
        spec(vec![between, object("apps/v1", "Deployment", &[]), object("example.com/v1", "Widget", &[&id("a")])]);
    let planned = stack.plan(&brought).await.unwrap();
    let action = planned.plan.actions.iter().find(|action| action.id.0 == widget).unwrap();
    assert_eq!(
        (action.action, action.unverified.as_deref()),
        (Action::Create, Some("cluster main has no kind \"Widget\" yet"))
    );
    // What brings it has done so, or never will.
    stack.bring(&brought).await;
    lacks();
    assert_eq!(stack.refusal(stack.runtime(), &brought).await.len(), 1);
}

/// Two clusters, of which `east` is empty and does not serve the kind `Widget`.
#[derive(Debug)]
struct TwoClusters {
    main: FakeRuntime,
    clusters: Clusters,
}

#[async_trait]
impl Runtime for TwoClusters {
    fn owner(&self) -> &Owner {
        self.main.owner()
    }

    fn kubernetes(&self) -> &dyn KubernetesChecks {
        self
    }

    async fn read(&self, requests: &[ReadRequest<'_>]) -> Result<Vec<Result<Live, RuntimeError>>, RuntimeError> {
        let mut answers = self.main.read(requests).await?;
        for (request, answer) in requests.iter().zip(&mut answers) {
            let wanted = request.desired.map(|desired| (self.clusters.of_wanted(desired), &desired.attributes));
            let recorded = request.prior.map(|prior| (self.clusters.of_recorded(prior), &prior.attributes));
            let Some(("east", attributes)) = wanted.or(recorded) else { continue };
            *answer = match attributes["kind"] == "Widget" && request.desired.is_some() {
                true => Err(RuntimeError::UnknownKind("east has no such kind".to_owned())),
                false => Ok(Live::Absent),
            };
        }
        Ok(answers)
    }

    async fn inspect(&self, resources: &[&StateResource]) -> Result<Vec<Result<Found, RuntimeError>>, RuntimeError> {
        self.main.inspect(resources).await
    }

    async fn preview(&self, _: &ApplyRequest<'_>, _: Option<&Map<String, Value>>) -> Result<Preview, RuntimeError> {
        Ok(Preview::Unverified("east does not serve it yet".to_owned()))
    }

    async fn apply(&self, request: &ApplyRequest<'_>) -> Result<Applied, RuntimeError> {
        self.main.apply(request).await
    }

    async fn delete(&self, prior: &StateResource) -> Result<Deleted, RuntimeError> {
        self.main.delete(prior).await
    }

    async fn wait_deleted(&self, object: &KubernetesObject, report: &DeletionReport<'_>) -> Result<(), RuntimeError> {
        self.main.wait_deleted(object, report).await
    }

    async fn wait_healthy(&self, desired: &Resource, report: &HealthReport<'_>) -> Result<Health, RuntimeError> {
        self.main.wait_healthy(desired, report).await
    }

    async fn finish(&self, grant: &Grant) -> Result<Finished, RuntimeError> {
        self.main.finish(grant).await
    }
}

#[async_trait]
impl KubernetesChecks for TwoClusters {
    fn rules(&self) -> &'static dyn KindRules {
        self.main.rules()
    }

    fn clusters(&self) -> &Clusters {
        &self.clusters
    }

    async fn cluster_scoped(&self, desired: &[&Resource]) -> Result<Vec<(String, String)>, RuntimeError> {
        let kinds = desired.iter().filter(|desired| desired.attributes["kind"] == "Cell");
        Ok(kinds.map(|_| ("example.com".to_owned(), "Cell".to_owned())).collect())
    }

    async fn foreign_contents(
        &self,
        holder: &StateResource,
        live: Option<&Map<String, Value>>,
        own: &HashSet<&str>,
    ) -> Result<DeletionVerdict, RuntimeError> {
        self.main.foreign_contents(holder, live, own).await
    }
}

#[tokio::test]
async fn plan_asks_cluster_for_scope_of_kinds() {
    let stack = Stack::default();
    let planned = async |kind: &str| {
        let object = |id: String, metadata: Value| {
            json!({"id": id, "type": "Kubernetes",
                "attributes": {"apiVersion": "example.com/v1", "kind": kind, "metadata": metadata}})
        };
        let wanted = spec(vec![
            object(format!("example.com/v1:{kind}:a"), json!({"name": "a"})),
            object(format!("example.com/v1:{kind}:shop:a"), json!({"name": "a", "namespace": "shop"})),
        ]);
        let clusters = Clusters::new(vec!["fake".to_owned()]);
        let runtime = TwoClusters { main: stack.runtime(), clusters };
        let (state, keys) = (stack.observer.state(), &stack.keys.0);
        let planning = Planning {
            spec: &wanted,
            spec_digest: "digest",
            state: &state,
            destroy: false,
            refresh: false,
            keys,
            forget_clusters: &[],
            hooks: None,
        };
        stoa_apply::plan(Arc::new(runtime), &planning).await
    };
    let Err(PlanError::Problems(problems)) = planned("Cell").await else { panic!("they are one object") };
    assert_eq!(
        problems.iter().map(|problem| problem.reason.as_str()).collect::<Vec<_>>(),
        [reason::DUPLICATE_RESOURCE]
    );
    assert_eq!(planned("Widget").await.unwrap().plan.actions.len(), 2);
}

#[tokio::test]
async fn unreachable_infrastructure_is_retryable() {
    let stack = Stack::default();
    let away = RuntimeError::Unavailable { message: "connection refused".to_owned() };
    stack.cloud.fail(Operation::Read, &id("a"), away);
    let Err(PlanError::Runtime(err)) = stack.plan(&maps(&[("a", &[])])).await else { panic!("it is away") };
    assert!(err.is_retryable());
}

#[tokio::test]
async fn unknown_values_are_not_previewed() {
    let stack = Stack::default();
    let uid = format!("$kusion_path.{}.metadata.uid", id("a"));
    let wanted = spec(vec![config_map("a", &[], json!({})), config_map("b", &[], json!({"x": uid}))]);
    let planned = stack.plan(&wanted).await.unwrap();
    assert_eq!(names(&stack.cloud.called(Operation::Preview)), ["a"]);
    assert_eq!(planned.plan.actions[1].unverified.as_deref(), Some("data.x known after apply"));
}

#[tokio::test]
async fn removed_field_cannot_be_referenced() {
    let stack = Stack::default();
    let wanted = |data: Value| {
        let reference = format!("$kusion_path.{}.data.x", id("a"));
        spec(vec![config_map("a", &[], data), config_map("b", &[], json!({"x": reference}))])
    };
    stack.bring(&wanted(json!({"x": "1", "y": "1"}))).await;
    let problems = stack.refusal(stack.runtime(), &wanted(json!({"y": "1"}))).await;
    let told: Vec<_> = problems.iter().map(ToString::to_string).collect();
    let why = "will have no data.x: the Spec does not set it any more";
    assert_eq!(told, [format!("{}: attributes.data.x: {} {why}", id("b"), id("a"))]);
    assert_eq!(problems[0].reason, reason::DANGLING_REFERENCE);
    // Somebody else applies it, too.
    stack.cloud.claim(&id("a"), ["data", "x"], "flux", true);
    assert!(stack.plan(&wanted(json!({"y": "1"}))).await.unwrap().plan.is_unchanged());
}

#[tokio::test]
async fn missing_data_key_cannot_be_referenced() {
    let stack = Stack::default();
    let reference = format!("$kusion_path.{}.data.x", id("a"));
    let wanted = spec(vec![config_map("a", &[], json!({"y": "1"})), config_map("b", &[], json!({"x": reference}))]);
    let problems = stack.refusal(stack.runtime(), &wanted).await;
    assert_eq!(problems[0].reason, reason::DANGLING_REFERENCE);
    assert!(problems[0].message.contains("will have no data.x"), "{problems:?}");
    stack.cloud.admit(&id("a"), ["data", "x"], json!("admitted"));
    assert!(stack.apply(&wanted).await.succeeded);
    assert_eq!(stack.cloud.live(&id("b")).unwrap()["data"]["x"], "admitted");
}

#[tokio::test]
async fn object_with_unknown_name_is_not_read() {
    let stack = Stack::default();
    let mut named = config_map("b", &[], json!({}));
    named["id"] = json!("v1:ConfigMap:shop:x");
    named["attributes"]["metadata"]["name"] = json!(format!("$kusion_path.{}.metadata.uid", id("a")));
    let planned = stack.plan(&spec(vec![config_map("a", &[], json!({})), named])).await.unwrap();
    assert_eq!(names(&stack.cloud.called(Operation::Read)), ["a"]);
    let action = &planned.plan.actions[1];
    assert_eq!((action.action, action.unverified.is_some()), (Action::Create, true));
}

#[tokio::test]
async fn sensitive_values_are_rejected_for_public_destination() {
    let stack = Stack::default();
    let reference = "$kusion_path.v1:Secret:shop:db.stringData.password";
    let mut declared = config_map("declared", &[], json!({"p": "hunter2-longer"}));
    declared["extensions"] = json!({"stoa.dev/sensitive": ["data.p"]});
    let wanted = spec(vec![
        secret("db", json!({"password": "hunter2-long"})),
        config_map("user", &[], json!({"p": reference})),
        config_map("other", &[], json!({"p": "plain"})),
        declared,
    ]);
    let problems = stack.refusal(stack.runtime().in_the_open(), &wanted).await;
    let told: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            format!(
                "{}: attributes.data.p: a secret value is here, which the repository would have in clear; use a Secret \
                 that the cluster has, or SOPS",
                id("declared")
            ),
            format!(
                "{}: attributes.data.p: a reference puts a sensitive value here, which would be stored in plain text",
                id("user")
            ),
            format!("v1:Secret:shop:db: attributes.stringData.password: {SECRET_IN_THE_OPEN}"),
        ]
    );
    assert!(problems.iter().all(|it| it.reason == reason::INVALID_RESOURCE));
}

#[tokio::test]
async fn the_same_situation_gives_the_same_digest() {
    let stack = Stack::default();
    let wanted = maps(&[("a", &[]), ("b", &["a"])]);
    let first = stack.plan(&wanted).await.unwrap();
    assert_eq!(first.digest, stack.plan(&wanted).await.unwrap().digest);
    stack.bring(&maps(&[("a", &[])])).await;
    assert_ne!(first.digest, stack.plan(&wanted).await.unwrap().digest);
}
