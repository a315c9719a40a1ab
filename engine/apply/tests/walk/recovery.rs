//! Tests of recovery: results of lost calls, found by the next Run.

use serde_json::{Value, json};
use stoa_apply::ResourceOutcome;
use stoa_engine::problem::reason;
use stoa_engine::{Action, ResourceId, Spec};
use stoa_runtime::fake::Operation;
use stoa_runtime::{Health, RuntimeError};

use crate::fixtures::{Stack, config_map, id, maps, secret, spec, unplaced};
use crate::import::{named, planned};

fn unavailable() -> RuntimeError {
    RuntimeError::Unavailable { message: "connection reset".to_owned() }
}

fn nothing() -> Spec {
    spec(Vec::new())
}

impl Stack {
    /// Applies what is made and never answered.
    async fn lose(&self, lost: &str, spec: &Spec) {
        for _ in 0..1_000 {
            self.cloud.lose(lost, unavailable());
        }
        self.cut_off(lost, spec).await;
        self.cloud.answer_again(lost);
    }

    /// Applies a resource whose call hangs without an effect.
    async fn hang(&self, hangs: &str, spec: &Spec) {
        let gate = self.cloud.gate(hangs);
        self.cut_off(hangs, spec).await;
        gate.add_permits(1_000);
    }

    async fn cut_off(&self, lost: &str, spec: &Spec) {
        let outcome = self.apply(spec).await;
        assert!(!outcome.succeeded);
        assert_eq!(self.observer.result(lost).outcome, ResourceOutcome::Unknown);
        assert_eq!(self.open(), [ResourceId::from(lost)]);
        self.observer.clear();
        self.cloud.clear_calls();
    }

    fn open(&self) -> Vec<ResourceId> {
        self.observer.state().open.into_iter().map(|call| call.id).collect()
    }

    /// Applies successfully, and returns the planned action of the lost resource.
    async fn then(&self, lost: &str, spec: &Spec) -> Option<Action> {
        let planned = self.plan(spec).await.unwrap();
        let outcome = self.execute(spec, &planned, &[]).await.unwrap();
        assert!(outcome.succeeded, "{outcome:?}");
        assert!(self.open().is_empty(), "every call is decided");
        planned.plan.actions.iter().find(|action| action.id.0 == lost).map(|action| action.action)
    }
}

#[tokio::test(start_paused = true)]
async fn lost_adoption_is_ours_while_wanted() {
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "shop", "uid": "u"}, "data": {"theirs": "1"}});
    let wanted = maps(&[("a", &[])]);
    let stack = Stack::default();
    stack.cloud.put(&id("a"), theirs.clone());
    let planned = stack.plan(&wanted).await.unwrap();
    assert_eq!(planned.plan.actions[0].action, Action::Adopt);
    stack.lose(&id("a"), &wanted).await;
    assert_eq!(stack.then(&id("a"), &wanted).await, Some(Action::Unchanged));
    let record = stack.observer.record(&id("a"));
    assert_eq!((record.uid(), record.adopted), (Some("u"), true));

    // It was there before, and nobody knows any more whether it may go.
    let stack = Stack::default();
    stack.cloud.put(&id("a"), theirs.clone());
    stack.lose(&id("a"), &wanted).await;
    assert_eq!(stack.then(&id("a"), &nothing()).await, Some(Action::Forget));
    assert!(stack.cloud.live(&id("a")).is_some());

    // Where the call was never made, it is as it was.
    let stack = Stack::default();
    stack.cloud.put(&id("a"), theirs);
    let before = stack.cloud.live(&id("a"));
    stack.hang(&id("a"), &wanted).await;
    stack.then(&id("a"), &nothing()).await;
    assert!(before.is_some() && stack.cloud.live(&id("a")) == before);
}

#[tokio::test(start_paused = true)]
async fn lost_creation_is_ours() {
    let (a, wanted) = (id("a"), maps(&[("a", &[])]));
    let stack = Stack::default();
    stack.lose(&a, &wanted).await;
    // A plan tells of it before anybody records it.
    let ours = stack.plan(&wanted).await.unwrap().ours;
    let uid = ours[&*a].as_ref().map(|object| object.uid.clone());
    assert_eq!(uid.as_deref(), stack.cloud.live(&a).unwrap()["metadata"]["uid"].as_str());
    assert_eq!(stack.then(&a, &wanted).await, Some(Action::Unchanged));
    assert!(stack.plan(&wanted).await.unwrap().ours.is_empty(), "it is settled");
    let record = stack.observer.record(&a);
    assert_eq!(record.uid(), stack.cloud.live(&a).unwrap()["metadata"]["uid"].as_str());
    assert_eq!((record.attributes["data"].clone(), record.cluster), (json!({"a": "1"}), "fake".to_owned()));

    let stack = Stack::default();
    stack.lose(&a, &wanted).await;
    assert_eq!(stack.then(&a, &nothing()).await, Some(Action::Delete));
    assert!(stack.cloud.ids().is_empty(), "nobody wants it");
}

#[tokio::test(start_paused = true)]
async fn object_with_record_of_id_only_is_reported() {
    // Its record would be what its id says already.
    let namespace = json!({"id": "v1:Namespace:shop", "type": "Kubernetes",
        "attributes": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}});
    let wanted = spec(vec![namespace]);
    let stack = Stack::default();
    stack.lose("v1:Namespace:shop", &wanted).await;
    assert_eq!(stack.then("v1:Namespace:shop", &wanted).await, Some(Action::Unchanged));
    assert!(stack.observer.record("v1:Namespace:shop").uid().is_some());
}

#[tokio::test(start_paused = true)]
async fn absent_object_is_created_or_forgotten() {
    let (a, wanted) = (id("a"), maps(&[("a", &[])]));
    let stack = Stack::default();
    stack.hang(&a, &wanted).await;
    assert!(stack.plan(&wanted).await.unwrap().ours.is_empty(), "nothing is there");
    assert_eq!(stack.then(&a, &wanted).await, Some(Action::Create));

    let stack = Stack::default();
    stack.hang(&a, &wanted).await;
    assert_eq!(stack.then(&a, &nothing()).await, Some(Action::Forget));
    assert!(stack.cloud.called(Operation::Delete).is_empty());
}

#[tokio::test(start_paused = true)]
async fn object_of_others_stays_theirs() {
    let (a, wanted) = (id("a"), maps(&[("a", &[])]));
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "shop", "uid": "theirs"}});
    let stack = Stack::default();
    stack.hang(&a, &wanted).await;
    stack.cloud.put(&a, theirs.clone());
    assert_eq!(stack.then(&a, &nothing()).await, Some(Action::Forget));
    assert!(stack.cloud.live(&a).is_some(), "it is not removed");

    let stack = Stack::default();
    stack.hang(&a, &wanted).await;
    stack.cloud.put(&a, theirs.clone());
    assert_eq!(stack.then(&a, &wanted).await, Some(Action::Adopt));

    // The same where something was recorded, went, and was made again by others before us.
    let stack = Stack::default();
    stack.bring(&wanted).await;
    stack.cloud.remove(&a);
    stack.hang(&a, &wanted).await;
    stack.cloud.put(&a, theirs);
    assert_eq!(stack.then(&a, &nothing()).await, Some(Action::Forget));
    assert!(stack.cloud.live(&a).is_some(), "it is not removed");
}

#[tokio::test(start_paused = true)]
async fn object_of_another_deployment_is_not_recovered() {
    let (a, wanted) = (id("a"), maps(&[("a", &[])]));
    let stack = Stack::default();
    stack.hang(&a, &wanted).await;
    let second = stack.beside("second");
    second.bring(&wanted).await;
    let theirs = stack.cloud.live(&a);
    assert_eq!(stack.refusal(stack.runtime(), &wanted).await[0].reason, reason::OWNED_BY_ANOTHER);
    assert_eq!(stack.then(&a, &nothing()).await, Some(Action::Forget));
    assert_eq!(stack.cloud.live(&a), theirs);
}

#[tokio::test(start_paused = true)]
async fn lost_replacement_is_recorded_with_new_uid() {
    let (a, wanted) = (id("a"), maps(&[("a", &[])]));
    let stack = Stack::default();
    stack.bring(&wanted).await;
    let before = stack.observer.record(&a);
    stack.cloud.remove(&a);
    stack.lose(&a, &wanted).await;
    assert_eq!(stack.then(&a, &wanted).await, Some(Action::Unchanged));
    let now = stack.observer.record(&a);
    assert_ne!(now.uid(), before.uid());
    assert_eq!(now.uid(), stack.cloud.live(&a).unwrap()["metadata"]["uid"].as_str());
}

#[tokio::test(start_paused = true)]
async fn earlier_lost_replacement_is_recorded_with_new_uid() {
    let (a, wanted) = (id("a"), maps(&[("a", &[])]));
    let stack = Stack::default();
    stack.bring(&wanted).await;
    stack.cloud.remove(&a);
    stack.lose(&a, &wanted).await;
    // Its intent takes the place of the one before.
    stack.lose(&a, &spec(vec![config_map("a", &[], json!({"a": "2"}))])).await;
    assert_eq!(stack.then(&a, &nothing()).await, Some(Action::Delete));
    assert!(stack.cloud.ids().is_empty(), "it is not taken for what somebody else made");
}

#[tokio::test(start_paused = true)]
async fn fields_of_lost_call_are_removed() {
    let (a, wanted) = (id("a"), maps(&[("a", &[])]));
    let more = spec(vec![config_map("a", &[], json!({"a": "1", "more": "2"}))]);
    for is_recorded in [false, true] {
        for is_refused in [false, true] {
            let stack = Stack::default();
            if is_recorded {
                stack.bring(&wanted).await;
            }
            stack.lose(&a, &more).await;
            if is_refused {
                let refusal = RuntimeError::Rejected { message: "no".to_owned(), field: None, by_definition: false };
                stack.cloud.fail(Operation::Apply, &a, refusal);
                assert!(!stack.apply(&spec(vec![config_map("a", &[], json!({"a": "3"}))])).await.succeeded);
                assert!(stack.open().is_empty());
            }
            assert_eq!(stack.then(&a, &wanted).await, Some(Action::Update));
            assert_eq!(stack.cloud.live(&a).unwrap()["data"], json!({"a": "1"}));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fields_of_lost_call_under_old_id_are_removed() {
    let web = |version: &str, data: Value| {
        json!({"id": format!("{version}:Deployment:shop:web"), "type": "Kubernetes", "attributes": {
            "apiVersion": version, "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}, "data": data}})
    };
    let old = "apps/v1beta1:Deployment:shop:web";
    let stack = Stack::default();
    stack.bring(&spec(vec![web("apps/v1beta1", json!({"a": "1"}))])).await;
    stack.lose(old, &spec(vec![web("apps/v1beta1", json!({"a": "1", "more": "2"}))])).await;
    let new = "apps/v1:Deployment:shop:web";
    assert_eq!(stack.then(new, &spec(vec![web("apps/v1", json!({"a": "1"}))])).await, Some(Action::Update));
    assert_eq!(stack.cloud.live(new).unwrap()["data"], json!({"a": "1"}));
}

#[tokio::test(start_paused = true)]
async fn object_with_colons_in_name_is_found() {
    let resource = |version: &str, kind: &str, namespace: Option<&str>, name: &str| {
        let id = [Some(version), Some(kind), namespace, Some(name)].into_iter().flatten().collect::<Vec<_>>().join(":");
        let mut attributes = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
        attributes["metadata"].as_object_mut().unwrap().extend(namespace.map(|it| ("namespace".to_owned(), json!(it))));
        (id.clone(), json!({"id": id, "type": "Kubernetes", "attributes": attributes}))
    };
    let rbac = "rbac.authorization.k8s.io/v1";
    for (id, resource) in [
        resource(rbac, "ClusterRole", None, "system:view"),
        resource(rbac, "ClusterRoleBinding", None, "system:controller:view"),
        resource(rbac, "Role", Some("shop"), "system:controller:view"),
        resource(rbac, "RoleBinding", Some("shop"), "view"),
    ] {
        let stack = Stack::default();
        stack.lose(&id, &spec(vec![resource])).await;
        assert_eq!(stack.then(&id, &nothing()).await, Some(Action::Delete), "{id}");
        assert!(stack.cloud.ids().is_empty(), "nobody wants it");
    }
}

#[tokio::test(start_paused = true)]
async fn object_without_namespace_is_found() {
    let (a, wanted) = ("v1:ConfigMap:default:a", |value: &str| spec(vec![unplaced("a", json!({"a": value}))]));
    for (then, action) in [(wanted("1"), Action::Unchanged), (nothing(), Action::Delete)] {
        let stack = Stack::default();
        stack.lose(a, &wanted("1")).await;
        assert_eq!(stack.then(a, &then).await, Some(action));
        assert_eq!(stack.cloud.ids().len(), then.resources.len());
    }
    // It is on record where it is though the next call for it failed.
    let stack = Stack::default();
    stack.lose(a, &wanted("1")).await;
    let refusal = RuntimeError::Rejected { message: "no".to_owned(), field: None, by_definition: false };
    stack.cloud.fail(Operation::Apply, a, refusal);
    assert!(!stack.apply(&wanted("2")).await.succeeded);
    assert!(stack.observer.record(a).is_only_found() && stack.open().is_empty());
    assert!(stack.destroy().await.succeeded);
    assert!(stack.cloud.ids().is_empty());
}

#[tokio::test(start_paused = true)]
async fn recovered_object_is_recorded_despite_failure() {
    let a = id("a");
    let stack = Stack::default();
    stack.lose(&a, &maps(&[("a", &[])])).await;
    stack.cloud.fail(
        Operation::Apply,
        &a,
        RuntimeError::Rejected { message: "no".to_owned(), field: None, by_definition: false },
    );
    stack.apply(&spec(vec![config_map("a", &[], json!({"a": "2"}))])).await;
    assert_eq!(stack.observer.result(&a).outcome, ResourceOutcome::Failed);
    assert!(stack.open().is_empty());
    assert!(stack.destroy().await.succeeded);
    assert!(stack.cloud.ids().is_empty(), "it was on record");
}

#[tokio::test(start_paused = true)]
async fn dropped_secret_of_lost_call_is_not_shown() {
    let (a, password) = (id("a"), "$kusion_path.v1:Secret:shop:db.stringData.password");
    let wanted = |data: Value| spec(vec![secret("db", json!({"password": "hunter2"})), config_map("a", &[], data)]);
    let refusal = || RuntimeError::Rejected { message: "no".to_owned(), field: None, by_definition: false };
    let dropped = wanted(json!({"x": "3"}));
    for was_recorded in [true, false] {
        let stack = Stack::default();
        stack
            .bring(&match was_recorded {
                true => wanted(json!({"x": "1", "pw": password})),
                false => spec(vec![secret("db", json!({"password": "hunter2"}))]),
            })
            .await;
        stack.lose(&a, &wanted(json!({"x": "2", "pw": password}))).await;
        let table = stack.plan(&dropped).await.unwrap().table;
        assert!(table.contains("(sensitive)") && !table.contains("hunter2"), "{table}");

        stack.cloud.fail(Operation::Apply, &a, refusal());
        assert!(!stack.apply(&wanted(json!({"x": "3", "pw": password}))).await.succeeded);
        let record = stack.observer.record(&a);
        assert!(record.is_only_found() && record.masked.is_empty() != was_recorded, "{record:?}");
        let table = stack.plan(&dropped).await.unwrap().table;
        assert!(table.contains("(sensitive)") && !table.contains("hunter2"), "{table}");
    }
}

#[tokio::test(start_paused = true)]
async fn secret_of_lost_call_is_not_recorded_elsewhere() {
    let (a, password) = (id("a"), "$kusion_path.v1:Secret:shop:db.stringData.password");
    let db = || secret("db", json!({"password": "hunter2"}));
    let wanted = |data: Value| spec(vec![db(), config_map("a", &[], data)]);
    for was_recorded in [false, true] {
        // What is wanted then is what that call made of it, or something else.
        for then in ["2", "3"] {
            let stack = Stack::default();
            stack.bring(&if was_recorded { wanted(json!({"x": "1"})) } else { spec(vec![db()]) }).await;
            stack.lose(&a, &wanted(json!({"x": "2", "pw": password}))).await;
            stack.cloud.claim(&a, ["data", "pw"], "other", true);
            for x in [then, "4"] {
                let outcome = stack.apply(&wanted(json!({"x": x}))).await;
                assert!(outcome.succeeded, "{outcome:?}");
                assert_eq!(stack.cloud.live(&a).unwrap()["data"], json!({"x": x, "pw": "hunter2"}), "they have it");
                let record = serde_json::to_string(&stack.observer.record(&a)).unwrap();
                assert!(!record.contains("hunter2"), "{was_recorded} {then} {x}: {record}");
                assert!(stack.open().is_empty());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn repeatable_call_is_repeated() {
    let (a, wanted, changed) = (id("a"), maps(&[("a", &[])]), spec(vec![config_map("a", &[], json!({"a": "2"}))]));
    let stack = Stack::default();
    stack.bring(&wanted).await;
    stack.lose(&a, &changed).await;
    assert_eq!(stack.then(&a, &wanted).await, Some(Action::Update), "the change was made");
    stack.hang(&a, &changed).await;
    assert_eq!(stack.then(&a, &wanted).await, Some(Action::Unchanged), "the change was not made");
    stack.hang(&a, &nothing()).await;
    assert_eq!(stack.then(&a, &nothing()).await, Some(Action::Delete));
}

#[tokio::test(start_paused = true)]
async fn unrepeatable_unreadable_call_stops_run() {
    let (a, wanted) = (id("a"), maps(&[("a", &[])]));
    let stack = Stack::default();
    stack.hang(&a, &wanted).await;
    stack.cloud.hide(&a);
    for wanted in [&wanted, &nothing()] {
        let problems = stack.refusal(stack.runtime(), wanted).await;
        assert_eq!(problems.iter().map(|problem| problem.reason.as_str()).collect::<Vec<_>>(), [reason::UNKNOWN_STATE]);
    }
    assert_eq!(stack.open(), [ResourceId::from(a.as_str())]);

    let stack = Stack::default();
    stack.cloud.hide(&a);
    stack.bring(&wanted).await;
    stack.hang(&a, &spec(vec![config_map("a", &[], json!({"a": "2"}))])).await;
    assert_eq!(stack.then(&a, &wanted).await, Some(Action::Unchanged), "a change can be repeated");
}

#[tokio::test(start_paused = true)]
async fn spec_retry_repeats_unreadable_call() {
    let (a, b, wanted) = (id("a"), id("b"), maps(&[("a", &[]), ("b", &["a"])]));
    let stack = Stack::default();
    stack.hang(&a, &wanted).await;
    stack.cloud.hide(&a);
    stack.observer.retry(&[&b]);
    assert_eq!(stack.refusal(stack.runtime(), &wanted).await[0].reason, reason::UNKNOWN_STATE, "another is meant");
    stack.observer.retry(&[&a]);
    let planned = stack.plan(&wanted).await.unwrap();
    // The call is lost once more: whoever looked did so before that.
    let gate = stack.cloud.gate(&a);
    assert!(!stack.execute(&wanted, &planned, &[]).await.unwrap().succeeded);
    gate.add_permits(1_000);
    assert_eq!(stack.open(), [ResourceId::from(a.as_str())]);
    stack.cloud.clear_calls();
    let outcome = stack.execute(&wanted, &planned, &[]).await.unwrap();
    assert_eq!(outcome.problems[0].reason, reason::UNKNOWN_STATE);
    assert!(stack.cloud.called(Operation::Apply).is_empty());

    stack.observer.retry(&[&a]);
    assert_eq!(stack.then(&a, &wanted).await, Some(Action::Create));
    assert_eq!(stack.cloud.called(Operation::Apply), [ResourceId::from(a.as_str()), ResourceId::from(b.as_str())]);
}

#[tokio::test(start_paused = true)]
async fn spec_retry_forgets_unwanted_unreadable_call() {
    let a = id("a");
    for is_destroyed in [false, true] {
        let stack = Stack::default();
        stack.hang(&a, &maps(&[("a", &[])])).await;
        stack.cloud.hide(&a);
        stack.observer.retry(&[&a]);
        if is_destroyed {
            assert!(stack.destroy().await.succeeded && stack.open().is_empty());
        } else {
            assert_eq!(stack.then(&a, &nothing()).await, Some(Action::Forget));
        }
        assert!(stack.cloud.called(Operation::Delete).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn import_recovers_unreadable_call() {
    let (a, b, wanted) = (id("a"), id("b"), maps(&[("a", &[]), ("b", &[])]));
    let stack = Stack::default();
    // Of the first the answer is lost, and of the second the call.
    for _ in 0..1_000 {
        stack.cloud.lose(&a, unavailable());
    }
    let gate = stack.cloud.gate(&b);
    assert!(!stack.apply(&wanted).await.succeeded);
    stack.cloud.answer_again(&a);
    gate.add_permits(1_000);
    stack.observer.clear();
    [&a, &b].into_iter().for_each(|id| stack.cloud.hide(id));
    // What is not there is not imported, and stays unknown.
    let problems = planned(&stack, &wanted, &named(&["b"])).await.unwrap_err();
    assert_eq!(problems[0].reason, reason::NOT_THERE);
    // It goes between the plan and its being recorded.
    let import = planned(&stack, &wanted, &named(&["a"])).await.unwrap();
    let live = stack.cloud.live(&a).unwrap();
    stack.cloud.remove(&a);
    let outcome = stack.execute(&wanted, &import, &[]).await.unwrap();
    assert_eq!(outcome.problems[0].reason, reason::STALE_PLAN);
    assert_eq!(stack.open(), [ResourceId::from(a.as_str()), ResourceId::from(b.as_str())]);

    stack.cloud.put(&a, live.into());
    let import = planned(&stack, &wanted, &named(&["a"])).await.unwrap();
    assert!(stack.execute(&wanted, &import, &[]).await.unwrap().succeeded);
    assert_eq!(stack.observer.record(&a).uid(), stack.cloud.live(&a).unwrap()["metadata"]["uid"].as_str());
    assert_eq!(stack.open(), [ResourceId::from(b.as_str())], "of the other nobody said anything");
    let problems = stack.refusal(stack.runtime(), &wanted).await;
    assert_eq!(problems[0].resource_id, Some(b.as_str().into()));
    stack.observer.retry(&[&b]);
    assert_eq!(stack.then(&b, &wanted).await, Some(Action::Create));
    assert_eq!(stack.cloud.ids().len(), 2, "there is no second one of either");
}

#[tokio::test(start_paused = true)]
async fn resumed_walk_does_not_repeat_unreadable_call() {
    let (a, wanted) = (id("a"), maps(&[("a", &[])]));
    let stack = Stack::default();
    let planned = stack.plan(&wanted).await.unwrap();
    stack.observer.leave_after(0);
    stack.execute(&wanted, &planned, &[]).await.unwrap_err();
    stack.observer.stay();
    stack.cloud.hide(&a);
    stack.cloud.clear_calls();
    let outcome = stack.execute(&wanted, &planned, &[]).await.unwrap();
    assert_eq!(outcome.problems[0].reason, reason::UNKNOWN_STATE);
    assert!(stack.cloud.called(Operation::Apply).is_empty());
}

#[tokio::test(start_paused = true)]
async fn rejection_does_not_answer_earlier_tries() {
    let (a, wanted) = (id("a"), maps(&[("a", &[])]));
    let refusal = || RuntimeError::Conflict("kubectl owns data.a".to_owned());
    let stack = Stack::default();
    stack.cloud.fail(Operation::Apply, &a, refusal());
    stack.apply(&wanted).await;
    assert_eq!(stack.observer.result(&a).outcome, ResourceOutcome::Failed);
    assert!(stack.open().is_empty());

    // The first try made it, and nobody heard.
    let stack = Stack::default();
    stack.cloud.lose(&a, unavailable());
    stack.cloud.lose(&a, refusal());
    stack.apply(&wanted).await;
    let result = stack.observer.result(&a);
    assert_eq!((result.outcome, result.problem.unwrap().reason.as_str()), (ResourceOutcome::Unknown, reason::CONFLICT));
    assert_eq!(stack.then(&a, &nothing()).await, Some(Action::Delete));
    assert!(stack.cloud.ids().is_empty(), "nobody wants it");
}

#[tokio::test(start_paused = true)]
async fn dependents_of_lost_call_do_not_start() {
    let stack = Stack::default();
    stack.hang(&id("a"), &maps(&[("a", &[]), ("b", &["a"])])).await;
    assert!(stack.cloud.ids().is_empty());
}

#[tokio::test(start_paused = true)]
async fn unestablished_definition_is_recorded_and_fails_run() {
    let crd = "apiextensions.k8s.io/v1:CustomResourceDefinition:widgets.example.com";
    let wanted = spec(vec![
        json!({"id": crd, "type": "Kubernetes", "attributes": {
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {"group": "example.com", "names": {"kind": "Widget"}}}}),
        json!({"id": "example.com/v1:Widget:shop:w", "type": "Kubernetes", "attributes": {
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "shop"}}}),
    ]);
    for (health, told) in [
        (Health::InProgress, "it was applied but is not established: it took longer than 60s"),
        (Health::Failed, "the cluster does not accept the definition"),
    ] {
        let stack = Stack::default();
        stack.cloud.set_health(crd, &[(health, "names conflict")]);
        let outcome = stack.apply(&wanted).await;
        assert_eq!(
            (outcome.problems[0].reason.as_str(), outcome.problems[0].message.as_str()),
            (reason::UNHEALTHY, told)
        );
        assert_eq!(
            stack.observer.results(),
            [format!("Done {crd}"), "Skipped example.com/v1:Widget:shop:w".to_owned()]
        );
        assert!(
            stack.observer.result("example.com/v1:Widget:shop:w").message.ends_with("comes first, but is not healthy")
        );
        assert!(stack.observer.record(crd).uid().is_some(), "it is there, and on record");
    }
}

/// What another puts into a Secret, in base64.
const TOKEN: &str = "aHVudGVyMi1sb25n";

#[tokio::test(start_paused = true)]
async fn secret_outside_spec_is_not_recorded() {
    const DB: &str = "v1:Secret:shop:db";
    let a = id("a");
    let (mut empty, own) = (secret("db", json!({})), secret("db", json!({"password": "hunter2-long"})));
    empty["attributes"].as_object_mut().unwrap().remove("stringData");
    // What only the live one has, and what leaves the Spec with the change.
    for (db, field, stays) in [(&empty, "data.token", true), (&own, "stringData.password", false)] {
        let with = |data: Value| spec(vec![db.clone(), config_map("a", &[], data)]);
        for then in ["2", "3"] {
            let stack = Stack::default();
            stack.bring(&with(json!({"x": "1"}))).await;
            let mut live = Value::Object(stack.cloud.live(DB).unwrap());
            live["data"] = json!({"token": TOKEN});
            stack.cloud.put(DB, live);
            let reference = format!("$kusion_path.{DB}.{field}");
            stack.lose(&a, &with(json!({"x": "2", "pw": reference}))).await;
            stack.cloud.claim(&a, ["data", "pw"], "other", true);
            let data = json!({"x": then});
            let wanted = if stays { with(data) } else { spec(vec![config_map("a", &[], data)]) };
            let outcome = stack.apply(&wanted).await;
            assert!(outcome.succeeded, "{outcome:?}");
            assert!(stack.cloud.live(&a).unwrap()["data"]["pw"].is_string(), "they have it");
            let record = serde_json::to_string(&stack.observer.record(&a)).unwrap();
            assert!(!record.contains(TOKEN) && !record.contains("hunter2"), "{field} {then}: {record}");
        }
    }
}
