//! Tests of hooks around the changes of a walk.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use stoa_apply::{Outcome, Planned};
use stoa_engine::hook::{CREATED_BY, DELETE_POLICY, HOOK, RESOURCE_POLICY, WEIGHT};
use stoa_engine::problem::reason;
use stoa_engine::{Action, Spec};
use stoa_runtime::{Health, Runtime as _, RuntimeError, fake::Operation};

use crate::fixtures::{Stack, config_map, id, spec};

fn job_id(name: &str) -> String {
    format!("batch/v1:Job:shop:{name}")
}

fn job(name: &str, event: &str, more: Value) -> Value {
    let mut annotations = json!({HOOK: event});
    annotations.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"id": job_id(name), "type": "Kubernetes", "attributes": {"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "shop", "annotations": annotations}}})
}

fn map() -> Value {
    config_map("a", &[], json!({"a": "1"}))
}

/// The names of applied objects, in order.
fn applied(stack: &Stack) -> Vec<String> {
    let name = |id: &stoa_engine::ResourceId| id.0.rsplit(':').next().unwrap().to_owned();
    stack.cloud.called(Operation::Apply).iter().map(name).collect()
}

async fn applied_as(stack: &mut Stack, run: &'static str, spec: &Spec) -> Outcome {
    stack.run = run;
    stack.cloud.clear_calls();
    stack.apply(spec).await
}

#[tokio::test]
async fn hooks_run_around_changes_in_order() {
    let mut stack = Stack::default();
    let wanted = spec(vec![
        job("after", "post-install", json!({})),
        map(),
        job("second", "pre-install,pre-upgrade", json!({})),
        job("first", "pre-install", json!({WEIGHT: "-1"})),
        job("tested", "test", json!({})),
    ]);
    let planned = stack.plan(&wanted).await.unwrap();
    assert_eq!((planned.plan.actions.len(), planned.summary.hooks), (1, 3));
    assert!(
        planned.table.contains("* hook     batch/v1:Job:shop:first  (pre-install, weight -1)\n"),
        "{}",
        planned.table
    );
    assert!(planned.table.contains("Plan: 1 to create; 3 hooks to run."), "{}", planned.table);
    let outcome = applied_as(&mut stack, "one", &wanted).await;
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(applied(&stack), ["first", "second", "a", "after"]);
    let recorded: Vec<_> = stack.observer.state().resources.into_iter().map(|record| record.id.0).collect();
    assert_eq!(recorded, [id("a")], "hooks are no part of the state");

    let outcome = applied_as(&mut stack, "two", &wanted).await;
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(applied(&stack), ["second"], "an upgrade has its own hooks, and nothing else changes");
    let live = stack.cloud.live(&job_id("second")).unwrap();
    assert_eq!(live["metadata"]["annotations"][CREATED_BY], "two/pre-upgrade", "it was created again");
    assert!(stack.refreshed(&wanted).await.unwrap().plan.is_unchanged(), "hooks do not drift");

    let outcome = applied_as(&mut stack, "three", &spec(vec![map()])).await;
    assert!(outcome.succeeded && stack.cloud.live(&job_id("second")).is_some(), "hooks do not leave: {outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn failed_hook_stops_run_by_name() {
    let mut stack = Stack::default();
    let wanted = spec(vec![
        map(),
        job("first", "pre-install", json!({DELETE_POLICY: "hook-succeeded", WEIGHT: "-1"})),
        job("migrate", "pre-install", json!({})),
        job("never", "pre-install", json!({WEIGHT: "1"})),
        job("after", "post-install", json!({})),
    ]);
    stack.cloud.set_health(&job_id("migrate"), &[(Health::InProgress, "it runs"), (Health::Failed, "exit code 1")]);
    let outcome = applied_as(&mut stack, "one", &wanted).await;
    let problem = &outcome.problems[0];
    assert_eq!(problem.reason, reason::HOOK_FAILED);
    let message = "batch/v1:Job:shop:migrate: the pre-install hook failed: exit code 1; its output: kubectl logs -n shop job/migrate";
    assert_eq!(problem.to_string(), message);
    assert_eq!(applied(&stack), ["first", "migrate"]);
    assert!(stack.cloud.live(&job_id("first")).is_none(), "earlier hooks succeeded");
    assert!(stack.cloud.live(&job_id("migrate")).is_some(), "people read its output");
    let skipped =
        ["helm.sh/hook:post-install:batch/v1:Job:shop:after", "helm.sh/hook:pre-install:batch/v1:Job:shop:never"];
    let results = stack.observer.results();
    for id in skipped {
        assert!(results.contains(&format!("Skipped {id}")), "{results:?}");
    }

    stack.cloud.set_health(&job_id("migrate"), &[(Health::InProgress, "it runs")]);
    let outcome = applied_as(&mut stack, "two", &wanted).await;
    let message = outcome.problems[0].to_string();
    assert!(message.contains("it did not complete within 60s; last report: it runs"), "{message}");
}

#[tokio::test]
async fn delete_policies_decide_what_stays() {
    let mut stack = Stack::default();
    let with = |policy: &str| json!({DELETE_POLICY: policy});
    let wanted = spec(vec![
        job("default", "pre-install", json!({})),
        job("gone", "pre-install", with("hook-succeeded")),
        job("left", "pre-install", with("hook-failed")),
        job("failed", "post-install", with("hook-failed,before-hook-creation")),
    ]);
    stack.cloud.set_health(&job_id("failed"), &[(Health::Failed, "no")]);
    let outcome = applied_as(&mut stack, "one", &wanted).await;
    assert_eq!(outcome.problems.len(), 1, "{outcome:?}");
    let is_live = |name: &str| stack.cloud.live(&job_id(name)).is_some();
    assert_eq!(["default", "gone", "left", "failed"].map(is_live), [true, false, true, false]);

    let outcome = applied_as(&mut stack, "two", &wanted).await;
    let message = outcome.problems[0].to_string();
    assert!(message.starts_with(&job_id("left")) && message.contains("no before-hook-creation"), "{message}");
}

#[tokio::test]
async fn resumed_run_repeats_no_completed_hook() {
    let mut stack = Stack::default();
    let wanted = spec(vec![
        map(),
        job("recorded", "pre-install", json!({WEIGHT: "-1"})),
        job("unrecorded", "pre-install", json!({})),
        job("after", "post-install", json!({})),
    ]);
    stack.run = "one";
    let planned = stack.plan(&wanted).await.unwrap();
    stack.observer.leave_after(1);
    stack.execute(&wanted, &planned, &[]).await.unwrap_err();
    assert_eq!(applied(&stack), ["recorded", "unrecorded"]);
    let uid = |stack: &Stack, name: &str| stack.cloud.live(&job_id(name)).unwrap()["metadata"]["uid"].clone();
    let before = ["recorded", "unrecorded"].map(|name| uid(&stack, name));
    stack.observer.stay();
    stack.cloud.clear_calls();
    let outcome = stack.execute(&wanted, &planned, &stack.observer.done()).await.unwrap();
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(applied(&stack), ["a", "after"]);
    assert_eq!(["recorded", "unrecorded"].map(|name| uid(&stack, name)), before);
    assert!(
        stack.observer.results().contains(&"Done helm.sh/hook:pre-install:batch/v1:Job:shop:unrecorded".to_owned())
    );
}

#[tokio::test]
async fn resumed_run_repeats_no_failed_hook() {
    // The runner is lost before the object is deleted, and after that.
    for is_deleted in [false, true] {
        let mut stack = Stack { run: "one", ..Stack::default() };
        let mut resources = vec![map(), job("migrate", "pre-install", json!({DELETE_POLICY: "hook-failed"}))];
        if !is_deleted {
            resources.push(job("never", "pre-install", json!({WEIGHT: "1"})));
        }
        let wanted = spec(resources);
        stack.cloud.set_health(&job_id("migrate"), &[(Health::Failed, "exit code 1")]);
        let planned = stack.plan(&wanted).await.unwrap();
        stack.observer.leave_after(1);
        stack.execute(&wanted, &planned, &[]).await.unwrap_err();
        assert_eq!(applied(&stack), ["migrate"]);
        assert_eq!(stack.cloud.live(&job_id("migrate")).is_none(), is_deleted);
        stack.failed_hooks = stack.observer.failed_hooks();
        assert_eq!(stack.failed_hooks.len(), 1, "{:?}", stack.observer.results());

        stack.observer.stay();
        stack.cloud.clear_calls();
        let outcome = stack.execute(&wanted, &planned, &[]).await.unwrap();
        let message = "batch/v1:Job:shop:migrate: the pre-install hook failed: exit code 1";
        let problems: Vec<String> = outcome.problems.iter().map(ToString::to_string).collect();
        assert_eq!((problems, outcome.succeeded), (vec![message.to_owned()], false));
        assert!(applied(&stack).is_empty() && stack.cloud.live(&job_id("migrate")).is_none());
        let skipped = "Skipped helm.sh/hook:pre-install:batch/v1:Job:shop:never".to_owned();
        assert_eq!(stack.observer.results().contains(&skipped), !is_deleted);
    }
}

#[tokio::test]
async fn objects_of_others_are_not_replaced() {
    let stack = Stack::default();
    let wanted = spec(vec![job("migrate", "pre-install", json!({}))]);
    let mut other = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "migrate", "namespace": "shop", "uid": "u"}});
    stack.cloud.put(&job_id("migrate"), other.clone());
    let outcome = stack.apply(&wanted).await;
    assert!(outcome.problems[0].message.contains("exists and is no hook"), "{outcome:?}");
    other["metadata"]["annotations"] = json!({"stoa.dev/owner": "fake/other/workspace/uid"});
    stack.cloud.put(&job_id("migrate"), other.clone());
    let outcome = stack.apply(&wanted).await;
    assert!(outcome.problems[0].message.contains("owned by fake/other/workspace"), "{outcome:?}");
    // Helm left it.
    other["metadata"]["annotations"] = json!({HOOK: "pre-install"});
    stack.cloud.put(&job_id("migrate"), other);
    let outcome = stack.apply(&wanted).await;
    assert!(outcome.succeeded, "{outcome:?}");
}

#[tokio::test]
async fn namespaces_come_before_hooks() {
    let stack = Stack::default();
    let namespace = json!({"id": "v1:Namespace:shop", "type": "Kubernetes",
        "attributes": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}});
    let outcome = stack.apply(&spec(vec![map(), job("migrate", "pre-install", json!({})), namespace])).await;
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(applied(&stack), ["shop", "migrate", "a"]);
}

#[tokio::test]
async fn destroy_runs_hooks_of_deletions() {
    let mut stack = Stack::default();
    let hooks = vec![job("before", "pre-delete", json!({})), job("last", "post-delete", json!({}))];
    let wanted = spec([vec![map()], hooks.clone()].concat());
    assert!(applied_as(&mut stack, "one", &wanted).await.succeeded);
    assert_eq!(applied(&stack), ["a"]);
    stack.cloud.clear_calls();
    let destroyed = spec(hooks);
    stack.run = "two";
    let planned: Planned = stack.planned(Arc::new(stack.runtime()), &destroyed, true).await.unwrap();
    let actions: Vec<_> = planned.plan.actions.iter().map(|it| (it.id.0.clone(), it.action)).collect();
    assert_eq!(actions, [(id("a"), Action::Delete)]);
    let outcome = stack.execute(&destroyed, &planned, &[]).await.unwrap();
    assert!(outcome.succeeded, "{outcome:?}");
    let changes: Vec<_> =
        stack.cloud.calls().into_iter().filter(|(of, _)| matches!(of, Operation::Apply | Operation::Delete)).collect();
    let expected = [
        (Operation::Apply, job_id("before").as_str().into()),
        (Operation::Delete, id("a").as_str().into()),
        (Operation::Apply, job_id("last").as_str().into()),
    ];
    assert_eq!(changes, expected);
}

#[tokio::test]
async fn resource_policy_forgets_objects_without_deletion() {
    let stack = Stack::default();
    let mut kept = map();
    kept["attributes"]["metadata"]["annotations"] = json!({RESOURCE_POLICY: "keep"});
    stack.bring(&spec(vec![kept, config_map("b", &[], json!({}))])).await;
    let planned = stack.plan(&spec(Vec::new())).await.unwrap();
    assert_eq!((planned.summary.forget, planned.summary.delete), (1, 1), "{}", planned.table);
    assert!(planned.table.contains("(its annotation helm.sh/resource-policy keeps it)"), "{}", planned.table);
    let outcome = stack.execute(&spec(Vec::new()), &planned, &[]).await.unwrap();
    assert!(outcome.succeeded && stack.cloud.live(&id("a")).is_some() && stack.cloud.live(&id("b")).is_none());
    assert!(stack.observer.result(&id("a")).left);
}

#[tokio::test]
async fn record_of_object_that_became_hook_is_forgotten() {
    let mut stack = Stack::default();
    let mut ordinary = job("migrate", "pre-upgrade", json!({}));
    ordinary["attributes"]["metadata"]["annotations"] = json!({});
    stack.bring(&spec(vec![ordinary, map()])).await;
    let outcome = applied_as(&mut stack, "two", &spec(vec![job("migrate", "pre-upgrade", json!({})), map()])).await;
    assert!(outcome.succeeded, "{outcome:?}");
    let live = stack.cloud.live(&job_id("migrate")).unwrap();
    assert_eq!(live["metadata"]["annotations"][CREATED_BY], "two/pre-upgrade");
    assert_eq!(stack.observer.state().resources.len(), 1);
}

#[tokio::test]
async fn repository_has_hooks_as_other_objects() {
    let stack = Stack::default();
    let wanted = spec(vec![job("migrate", "pre-install", json!({})), job("gone", "pre-delete", json!({}))]);
    let runtime = stack.runtime().deferred();
    assert!(runtime.is_deferred(stoa_engine::ResourceType::Kubernetes));
    let planned = stack.planned(Arc::new(runtime), &wanted, false).await.unwrap();
    assert_eq!((planned.summary.create, planned.summary.hooks), (1, 0));
    assert!(planned.notes.iter().any(|note| note.contains("Argo CD runs them")), "{:?}", planned.notes);
    assert!(
        planned.notes.iter().any(|note| note.ends_with("do not run: batch/v1:Job:shop:gone")),
        "{:?}",
        planned.notes
    );
}

#[tokio::test(start_paused = true)]
async fn canceled_run_waits_for_no_hook() {
    let stack = Stack::default();
    let wanted = spec(vec![map(), job("migrate", "pre-install", json!({}))]);
    stack.cloud.set_health(&job_id("migrate"), &[(Health::InProgress, "it runs")]);
    let cancel = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        stack.cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(stack.apply(&wanted), cancel);
    assert!(outcome.canceled && !outcome.succeeded && outcome.problems.is_empty(), "{outcome:?}");
    assert!(stack.cloud.live(&id("a")).is_none());
}

#[tokio::test(start_paused = true)]
async fn hook_is_retried_while_cluster_is_away() {
    let stack = Stack::default();
    let unavailable = || RuntimeError::Unavailable { message: "no answer".to_owned() };
    stack.cloud.fail(Operation::Apply, &job_id("migrate"), unavailable());
    stack.cloud.fail(Operation::WaitHealthy, &job_id("migrate"), unavailable());
    let outcome = stack.apply(&spec(vec![job("migrate", "pre-install", json!({}))])).await;
    assert!(outcome.succeeded, "{outcome:?}");
}
