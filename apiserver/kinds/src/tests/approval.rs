//! Who may decide about the plan of a run, when, and about which.

use super::*;

const PLAN: &str = "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";

/// A run that ann asked for and that waits for approval.
async fn waiting() -> World {
    let world = World::with_stack().await;
    let run = json!({ "metadata": { "name": "r" }, "spec": { "stack": "web-dev", "operation": "Apply" } });
    let all = ["create stacks/apply web-dev", "use workspaces dev", "use backends default"];
    world.make_as(&by("ann", &all), "delivery.stoa.dev/v1alpha1", "Run", "shop", run).await.unwrap();
    world.set("AwaitingApproval").await;
    world
}

fn decision(decision: &str) -> Value {
    json!({ "planDigest": PLAN, "decision": decision })
}

impl World {
    /// Brings the run to a phase.
    async fn set(&self, phase: &str) {
        let change = |run: &mut stoa_types::Run| {
            let status = run.status.get_or_insert_default();
            status.phase = serde_json::from_value(json!(phase)).unwrap();
            status.plan = Some(serde_json::from_value(json!({ "digest": PLAN })).unwrap());
        };
        self.registry.api::<stoa_types::Run>().update_status_with("shop", "r", change).await.unwrap();
    }

    /// Decides, as somebody who is granted these besides; what is there afterwards.
    async fn decide(&self, context: &RequestContext, approval: Value) -> Result<Value, ApiError> {
        let store = self.registry.store("delivery.stoa.dev", "v1alpha1", "runs").unwrap();
        let change = UpdateSource::transform(|current: &Object| {
            let mut new = current.clone();
            new.0["status"]["approval"] = approval.clone();
            new.0["status"]["phase"] = json!("Succeeded");
            new.0["spec"]["cancel"] = json!(true);
            Ok(new)
        });
        let (stored, _) = store.update(context, "shop", "r", Target::Part("approval"), change).await?;
        Ok(Value::Object(stored.object().0))
    }
}

#[tokio::test]
async fn approval_records_decider_and_time_only() {
    let world = waiting().await;
    let mut sent = decision("Approved");
    sent["message"] = json!("as discussed");
    sent["approver"] = json!({ "username": "the boss" });
    sent["time"] = json!("2020-01-01T00:00:00Z");
    let run = world.decide(&by("bob", &[]), sent.clone()).await.unwrap();
    let approval = &run["status"]["approval"];
    assert_eq!((&approval["approver"]["username"], &approval["message"]), (&json!("bob"), &json!("as discussed")));
    assert!(approval["time"].as_str().unwrap() > "2024", "{approval}");
    assert_eq!((&run["status"]["phase"], &run["spec"]["cancel"]), (&json!("AwaitingApproval"), &json!(false)));
    let condition = &run["status"]["conditions"][0];
    let message = format!("bob approved plan {PLAN} (no changes): as discussed");
    assert_eq!(
        (&condition["type"], &condition["status"], &condition["reason"], &condition["message"]),
        (&json!("Approved"), &json!("True"), &json!("Approved"), &json!(message))
    );
    // The same once more changes nothing, whoever says it; anything else is refused.
    assert_eq!(world.decide(&by("eve", &[]), sent).await.unwrap(), run);
    for other in [decision("Rejected"), decision("Approved"), Value::Null] {
        let error = world.decide(&by("bob", &[]), other).await.unwrap_err();
        let expected = format!(
            "Operation cannot be fulfilled on runs.delivery.stoa.dev \"r\": {message}; a decision cannot be changed"
        );
        assert_eq!((error.code(), error.message()), (409, expected.as_str()));
    }
}

#[tokio::test]
async fn a_rejection_says_so() {
    let world = waiting().await;
    let run = world.decide(&by("bob", &[]), decision("Rejected")).await.unwrap();
    let condition = &run["status"]["conditions"][0];
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("Rejected")));
}

#[tokio::test]
async fn an_approval_names_the_plan_that_waits() {
    let world = waiting().await;
    let bob = by("bob", &[]);
    let other = json!({ "planDigest": "sha256:0", "decision": "Approved" });
    let error = world.decide(&bob, other).await.unwrap_err();
    let why = format!("the plan that waits for approval is {PLAN}, not sha256:0");
    assert_eq!((error.code(), causes(&error)), (409, vec![format!("status.approval.planDigest: {why}")]));
    assert!(error.message().ends_with(&why), "{error}");
    let long = json!({ "planDigest": PLAN, "decision": "Approved", "message": "x".repeat(1025) });
    let cases = [
        (
            json!({ "decision": "Approved" }),
            format!("status.approval.planDigest: Required value: the plan that waits for approval is {PLAN}"),
        ),
        (
            Value::Null,
            format!("status.approval: Required value: a decision about plan {PLAN}, which waits for approval"),
        ),
        (json!({ "planDigest": PLAN }), "status.approval.decision: Required value".to_owned()),
        (
            decision("Maybe"),
            "status.approval.decision: Unsupported value: \"Maybe\": supported values: \"Approved\", \"Rejected\""
                .to_owned(),
        ),
        (long, "status.approval.message: Invalid value: \"\": may not be longer than 1024 characters".to_owned()),
    ];
    for (sent, expected) in cases {
        let error = world.decide(&bob, sent).await.unwrap_err();
        assert_eq!((error.code(), causes(&error)), (422, vec![expected]));
    }
}

#[tokio::test]
async fn a_run_that_does_not_wait_is_not_approved() {
    let world = waiting().await;
    for phase in ["Pending", "Planning", "Applying", "Succeeded"] {
        world.set(phase).await;
        let error = world.decide(&by("bob", &[]), decision("Approved")).await.unwrap_err();
        let why = format!("the run does not wait for approval; its phase is {phase}");
        assert_eq!(error.code(), 409);
        assert!(error.message().ends_with(&why), "{error}");
    }
    world.set("AwaitingApproval").await;
    let cancel = |run: &mut stoa_types::Run| run.spec.cancel = true;
    world.registry.api::<stoa_types::Run>().update_with("shop", "r", cancel).await.unwrap();
    let error = world.decide(&by("bob", &[]), decision("Approved")).await.unwrap_err();
    assert!(error.code() == 409 && error.message().ends_with("the run is being cancelled"), "{error}");
}

#[tokio::test]
async fn requester_cannot_decide_without_approve_own() {
    let world = waiting().await;
    for what in ["Approved", "Rejected"] {
        let error = world.decide(&by("ann", &[]), decision(what)).await.unwrap_err();
        let expected = "runs.delivery.stoa.dev \"r\" is forbidden: ann requested this run and needs the verb \
                        \"approve-own\" on runs to decide about its plan; another user can decide";
        assert_eq!((error.code(), error.message()), (403, expected));
    }
    let run = world.decide(&by("ann", &["approve-own runs r"]), decision("Approved")).await.unwrap();
    assert_eq!(run["status"]["approval"]["approver"]["username"], "ann");
}

#[tokio::test]
async fn unrecorded_requesters_need_approve_own() {
    let world = World::with_stack().await;
    let run = json!({ "metadata": { "name": "r" }, "spec": { "stack": "web-dev", "operation": "Apply" } });
    let people = (0..=crate::changes::MOST).map(|number| format!("p{number}")).collect();
    let context = crate::trigger::on_behalf_of("trigger", people);
    world.make_as(&context, "delivery.stoa.dev/v1alpha1", "Run", "shop", run).await.unwrap();
    world.set("AwaitingApproval").await;
    let error = world.decide(&by("ann", &[]), decision("Approved")).await.unwrap_err();
    let why = "may include ann; a decision about its plan then needs the verb \"approve-own\" on runs";
    assert!(error.code() == 403 && error.message().ends_with(why), "{error}");
    world.decide(&by("ann", &["approve-own runs r"]), decision("Approved")).await.unwrap();
}

#[tokio::test]
async fn approval_is_asked_for_where_something_changes() {
    let world = World::with_stack().await;
    let all = [
        "create stacks/preview web-dev",
        "create stacks/rollback web-dev",
        "use workspaces dev",
        "use backends default",
    ];
    let preview = json!({ "stack": "web-dev", "operation": "Preview", "requireApproval": true });
    let error = world.run(&all, preview).await.unwrap_err();
    assert_eq!(causes(&error), ["spec.requireApproval: Forbidden: this operation changes nothing"]);
    let refresh = json!({ "stack": "web-dev", "operation": "Refresh", "skipHooks": true });
    let error = world.run(&all, refresh).await.unwrap_err();
    assert_eq!(causes(&error), ["spec.skipHooks: Forbidden: an Import and a Refresh run no hooks"]);
    let preview = json!({ "stack": "web-dev", "operation": "Preview", "allowMassDeletion": true });
    let error = world.run(&all, preview).await.unwrap_err();
    assert_eq!(causes(&error), ["spec.allowMassDeletion: Forbidden: may only be set for an Apply or a Rollback"]);
    let preview = json!({ "stack": "web-dev", "operation": "Preview", "retry": ["a", " ", "b", "a"] });
    let error = world.run(&all, preview).await.unwrap_err();
    assert_eq!(causes(&error), ["spec.retry[3]: Duplicate value: \"a\"", "spec.retry[1]: Required value"]);
    let long = json!({ "stack": "web-dev", "operation": "Preview", "retry": ["a".repeat(1_025)] });
    let error = world.run(&all, long).await.unwrap_err();
    let told = "spec.retry[0]: Invalid value: \"<value omitted>\": may not be longer than 1024 bytes";
    assert_eq!(causes(&error), [told]);
    let refresh = json!({ "stack": "web-dev", "operation": "Refresh", "retry": ["a"], "forgetClusters": ["old"] });
    let error = world.run(&all, refresh).await.unwrap_err();
    let told = ["retry", "forgetClusters"]
        .map(|field| format!("spec.{field}: Forbidden: may not be set for an Import or a Refresh"));
    assert_eq!(causes(&error), told);
    let unnamed = json!({ "stack": "web-dev", "operation": "Preview", "forgetClusters": [""] });
    let error = world.run(&all, unnamed).await.unwrap_err();
    assert_eq!(causes(&error), ["spec.forgetClusters[0]: Required value"]);
    let uid = world.registry.api::<stoa_types::Stack>().get("shop", "web-dev").await.unwrap().metadata.uid;
    let released = json!({ "stack": "web-dev", "stackUID": uid, "workspace": "dev", "revision": 1, "run": "r",
        "planDigest": "p", "specDigest": "s", "stateDigest": "t" });
    let release = json!({ "metadata": { "name": "web-dev.dev.1" }, "spec": released });
    world.make("delivery.stoa.dev/v1alpha1", "Release", "shop", release).await.unwrap();
    let rollback = json!({ "stack": "web-dev", "operation": "Rollback", "release": 1, "requireApproval": true });
    world.run(&all, rollback).await.unwrap();
}

#[tokio::test]
async fn run_rejects_plans_and_releases_being_deleted() {
    let world = World::with_stack().await;
    let all = [
        "create stacks/preview web-dev",
        "create stacks/apply web-dev",
        "create stacks/rollback web-dev",
        "use workspaces dev",
        "use backends default",
    ];
    let preview = world.run(&all, json!({ "stack": "web-dev", "operation": "Preview" })).await.unwrap();
    let apply = json!({ "stack": "web-dev", "operation": "Apply", "plan": preview.name() });
    world.run(&all, apply.clone()).await.unwrap();
    // Its finalizer holds it, as nobody looks after runs here.
    world.registry.api::<stoa_types::Run>().delete("shop", preview.name(), &Default::default()).await.unwrap();
    let told = format!("spec.plan: Invalid value: {:?}: the run is being deleted", preview.name());
    assert_eq!(causes(&world.run(&all, apply).await.unwrap_err()), [told]);
    let uid = world.registry.api::<stoa_types::Stack>().get("shop", "web-dev").await.unwrap().metadata.uid;
    let released = json!({ "stack": "web-dev", "stackUID": uid, "workspace": "dev", "revision": 1, "run": "r",
        "planDigest": "p", "specDigest": "s", "stateDigest": "t" });
    let held = json!({ "metadata": { "name": "web-dev.dev.1", "finalizers": ["example.com/held"] }, "spec": released });
    world.make("delivery.stoa.dev/v1alpha1", "Release", "shop", held).await.unwrap();
    let releases = world.registry.api::<stoa_types::Release>();
    releases.delete("shop", "web-dev.dev.1", &Default::default()).await.unwrap();
    let back = json!({ "stack": "web-dev", "operation": "Rollback", "release": 1 });
    let told = "spec.release: Invalid value: 1: release web-dev.dev.1 is being deleted";
    assert_eq!(causes(&world.run(&all, back).await.unwrap_err()), [told]);
}

#[tokio::test]
async fn preview_rejects_operations_without_plans() {
    let world = World::with_stack().await;
    let all = [
        "create stacks/preview web-dev",
        "create stacks/destroy web-dev",
        "create stacks/rollback web-dev",
        "use workspaces dev",
        "use backends default",
    ];
    for of in ["Apply", "Destroy", "Import"] {
        world.run(&all, json!({ "stack": "web-dev", "operation": "Preview", "of": of })).await.unwrap();
    }
    let supported = r#"supported values: "Apply", "Destroy", "Rollback", "Import""#;
    for (spec, expected) in [
        (json!({ "operation": "Destroy", "of": "Destroy" }), "spec.of: Forbidden: may only be set for a Preview"),
        (
            json!({ "operation": "Preview", "of": "Refresh" }),
            &*format!("spec.of: Unsupported value: \"Refresh\": {supported}"),
        ),
        (
            json!({ "operation": "Preview", "of": "Rollback" }),
            "spec.release: Required value: the number of the release to restore",
        ),
        (
            json!({ "operation": "Preview", "of": "Destroy", "release": 1 }),
            "spec.release: Forbidden: may only be set for a Rollback",
        ),
        (
            json!({ "operation": "Preview", "of": "Destroy", "import": {} }),
            "spec.import: Forbidden: may only be set for an Import",
        ),
        (
            json!({ "operation": "Preview", "of": "Import", "retry": ["a"] }),
            "spec.retry: Forbidden: may not be set for an Import or a Refresh",
        ),
        (
            json!({ "operation": "Preview", "plan": "other" }),
            "spec.plan: Forbidden: this operation carries out no plan",
        ),
        (json!({ "operation": "Destroy", "plan": "other" }), "spec.plan: Not found: \"other\""),
        (
            json!({ "operation": "Preview", "of": "Rollback", "release": 7 }),
            "spec.release: Invalid value: 7: release web-dev.dev.7 does not exist, or retention removed it",
        ),
    ] {
        let mut spec = spec;
        spec["stack"] = json!("web-dev");
        let error = world.run(&all, spec.clone()).await.unwrap_err();
        assert_eq!(causes(&error), [expected], "{spec}");
    }
}
