//! Workflows: what they may be, who may create them, and who decides about their steps.

use stoa_types::{
    Workflow,
    delivery::{StepPhase, StepStatus, WorkflowPhase},
};

use super::*;

const ALL: [&str; 4] = ["create runs ", "create stacks/apply web-dev", "use workspaces dev", "use backends default"];

fn apply(name: &str, after: &[&str]) -> Value {
    json!({ "name": name, "dependsOn": after, "run": { "operation": "Apply" } })
}

fn chain() -> Value {
    let ok = json!({ "name": "ok", "dependsOn": ["dev"], "approval": {} });
    json!({ "stack": "web-dev", "steps": [apply("dev", &[]), ok, apply("prod", &["ok"])] })
}

impl World {
    async fn workflow(&self, context: &RequestContext, name: &str, spec: Value) -> Result<Object, ApiError> {
        let object = json!({ "metadata": { "name": name }, "spec": spec });
        self.make_as(context, "delivery.stoa.dev/v1alpha1", "Workflow", "shop", object).await
    }

    async fn refused(&self, spec: Value) -> Vec<String> {
        let error = self.workflow(&RequestContext::internal("tests"), "w", spec).await.unwrap_err();
        assert_eq!(error.code(), 422, "{error}");
        causes(&error)
    }
}

#[tokio::test]
async fn validation_reports_every_invalid_workflow_field() {
    let world = World::with_stack().await;
    let run = |run: Value| json!({ "stack": "web-dev", "steps": [{ "name": "a", "run": run }] });
    let cases = [
        json!({}),
        json!({ "steps": [apply("Dev", &[]), { "name": "b" }, { "name": "c", "run": { "stack": "web-dev", "operation": "Preview" }, "approval": {} }] }),
        json!({ "stack": "web-dev", "timeout": "soon", "ttlSecondsAfterFinished": -1, "steps": [apply("a", &["b", "b", "x"]), apply("b", &[]), apply("b", &[])] }),
        json!({ "stack": "web-dev", "steps": [apply("a", &["c"]), apply("b", &["a"]), apply("c", &["b"]), apply("d", &["d"]), apply("e", &["a"])] }),
        run(json!({ "operation": "Import" })),
        run(json!({ "operation": "Refresh", "requireApproval": true, "version": "main", "timeout": "0s" })),
        run(json!({ "operation": "Destroy", "version": "main" })),
        run(json!({ "operation": "Rollback" })),
        run(json!({ "operation": "Rollback", "release": 1, "workspaces": ["dev", "prod"] })),
        run(json!({ "operation": "Apply", "maxParallel": 0, "maxFailures": -1, "workspaces": ["dev", "", "dev"] })),
        run(json!({ "operation": "Apply", "maxParallel": 101, "workspaces": ["dev"], "waves": [
            { "workspaces": ["eu", "dev"], "pauseAfter": "later" },
            {},
            { "workspaces": ["us"], "workspaceSelector": {} },
            { "workspaceSelector": { "matchExpressions": [{ "key": "a", "operator": "Near" }] } },
        ] })),
        run(json!({ "operation": "Destroy", "health": { "healthyFor": "5m", "timeout": "1m" } })),
        json!({ "steps": [{ "name": "a", "when": "Failure", "approval": {} }] }),
    ];
    let mut told = Vec::new();
    for case in cases {
        told.push(world.refused(case).await.join("\n"));
    }
    insta::assert_snapshot!(told.join("\n"), @r#"
    spec.steps: Required value: must have at least one step
    spec.steps[0].name: Invalid value: "Dev": must be at most 63 characters of a-z, 0-9 and '-', beginning and ending with a letter or digit
    spec.steps[0].run.stack: Required value
    spec.steps[1]: Required value: run or approval must be set
    spec.steps[2].approval: Forbidden: may not be set together with run
    spec.steps[0].dependsOn[1]: Duplicate value: "b"
    spec.steps[0].dependsOn[2]: Not found: "x"
    spec.steps[2].name: Duplicate value: "b"
    spec.timeout: Invalid value: "soon": "soon" is not a duration such as 30s or 1h30m
    spec.ttlSecondsAfterFinished: Invalid value: -1: must be greater than or equal to 0
    spec.steps: Invalid value: "a → c → b → a": the steps form a cycle, where → means "depends on"
    spec.steps: Invalid value: "d → d": the steps form a cycle, where → means "depends on"
    spec.steps[0].run.operation: Unsupported value: "Import": supported values: "Preview", "Apply", "Destroy", "Rollback", "Refresh"
    spec.steps[0].run.version: Forbidden: a Refresh always compares with the last release
    spec.steps[0].run.requireApproval: Forbidden: this operation changes nothing
    spec.steps[0].run.timeout: Invalid value: "0s": must be between 1s and 86400s
    spec.steps[0].run.version: Forbidden: this operation deploys no version
    spec.steps[0].run.release: Required value: the number of the release to restore
    spec.steps[0].run.release: Forbidden: releases are numbered per workspace; name one workspace
    spec.steps[0].run.maxParallel: Invalid value: 0: must be from 1 to 100
    spec.steps[0].run.maxFailures: Invalid value: -1: must be greater than or equal to 0
    spec.steps[0].run.workspaces[1]: Required value
    spec.steps[0].run.workspaces[2]: Duplicate value: "dev"
    spec.steps[0].run.maxParallel: Invalid value: 101: must be from 1 to 100
    spec.steps[0].run.waves: Forbidden: may not be set together with workspaces
    spec.steps[0].run.waves[0].workspaces[1]: Duplicate value: "dev"
    spec.steps[0].run.waves[0].pauseAfter: Invalid value: "later": "later" is not a duration such as 30s or 1h30m
    spec.steps[0].run.waves[1]: Required value: workspaces or workspaceSelector must be set
    spec.steps[0].run.waves[2].workspaceSelector: Forbidden: may not be set together with workspaces
    spec.steps[0].run.waves[3].workspaceSelector.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator
    spec.steps[0].run.health: Forbidden: may only be set for an Apply or a Rollback
    spec.steps[0].run.health.timeout: Invalid value: "1m": must be at least healthyFor, which it includes
    spec.steps[0].when: Forbidden: may only be set together with dependsOn
    "#);
    let long = world.workflow(&RequestContext::internal("tests"), &"w".repeat(64), chain()).await.unwrap_err();
    let expected = format!("metadata.name: Invalid value: \"{}\": must be no more than 63 characters", "w".repeat(64));
    assert_eq!(causes(&long), [expected]);
}

#[tokio::test]
async fn step_names_the_preview_whose_plans_it_carries_out() {
    let world = World::with_stack().await;
    let look = json!({ "name": "look", "run": { "operation": "Preview", "workspaces": ["dev"] } });
    let ok = json!({ "name": "ok", "dependsOn": ["look"], "approval": {} });
    let with = |run: Value, after: &str| {
        let go = json!({ "name": "go", "dependsOn": [after], "run": run });
        json!({ "stack": "web-dev", "steps": [look, ok, go, apply("other", &["ok"])] })
    };
    let cases = [
        with(json!({ "operation": "Destroy", "planOf": "look" }), "ok"),
        with(json!({ "operation": "Apply", "planOf": "look", "version": "main", "parameters": { "a": "b" } }), "ok"),
        with(json!({ "operation": "Apply", "planOf": "none" }), "ok"),
        with(json!({ "operation": "Apply", "planOf": "ok" }), "ok"),
        with(json!({ "operation": "Apply", "planOf": "other" }), "other"),
        with(json!({ "operation": "Apply", "planOf": "look", "workspaces": ["dev", "prod"] }), "look"),
        json!({ "stack": "web-dev", "steps": [look, { "name": "go", "run": { "operation": "Apply", "planOf": "look", "stack": "api" } }] }),
    ];
    let mut told = Vec::new();
    for case in cases {
        told.push(world.refused(case).await.join("\n"));
    }
    insta::assert_snapshot!(told.join("\n"), @r#"
    spec.steps[2].run.planOf: Forbidden: may only be set for an Apply
    spec.steps[2].run.version: Forbidden: may not be set together with planOf, whose Preview has it
    spec.steps[2].run.parameters: Forbidden: may not be set together with planOf, whose Preview has it
    spec.steps[2].run.planOf: Not found: "none"
    spec.steps[2].run.planOf: Not found: "ok"
    spec.steps[2].run.planOf: Invalid value: "other": must be a step that runs a Preview
    spec.steps[2].run.workspaces: Invalid value: "prod": step look makes no plan in this workspace
    spec.steps[1].run.planOf: Invalid value: "look": must come before this step; name it in dependsOn, or have a step there depend on it
    spec.steps[1].run.stack: Invalid value: "api": must be the stack of step look, "web-dev"
    "#);
    let made = with(json!({ "operation": "Apply", "planOf": "look" }), "ok");
    let made = world.workflow(&RequestContext::internal("tests"), "w", made).await.unwrap();
    let workspaces = made.get_path(&["spec", "steps"]).unwrap()[2]["run"]["workspaces"].clone();
    assert_eq!(workspaces, json!(["dev"]), "those of the Preview");
}

#[tokio::test]
async fn parameters_of_a_template_have_a_limit() {
    let world = World::with_stack().await;
    let spec = |size: usize| {
        let parameters = json!({ "a": "v".repeat(size), "b": "v" });
        json!({ "template": { "project": "none", "path": "flow.yaml", "parameters": parameters } })
    };
    let missing = "spec.template.project: Not found: \"none\"";
    assert_eq!(world.refused(spec((64 << 10) - 3)).await, [missing]);
    let large = "spec.template.parameters: Invalid value: 65537: must have at most 65536 bytes in all";
    assert_eq!(world.refused(spec((64 << 10) - 2)).await, [large]);
}

#[tokio::test]
async fn selectors_need_not_match_anything_yet() {
    let world = World::with_stack().await;
    let any = json!({ "metadata": { "name": "any" }, "spec": { "project": "web" } });
    world.make("config.stoa.dev/v1alpha1", "Stack", "shop", any).await.unwrap();
    let waves = json!([{ "workspaceSelector": { "matchLabels": { "tier": "none" } } }]);
    let step = json!({ "name": "a", "run": { "operation": "Apply", "waves": waves } });
    let spec = |stack: &str| json!({ "stack": stack, "steps": [step] });
    assert_eq!(world.refused(spec("none")).await, ["spec.stack: Not found: \"none\""]);
    let may = ["create runs ", "create stacks/apply any"];
    world.workflow(&by("ann", &may), "w", spec("any")).await.unwrap();
}

#[tokio::test]
async fn what_a_workflow_names_has_to_be_there() {
    let world = World::with_stack().await;
    let step = |name: &str, run: Value| json!({ "name": name, "run": run });
    let spec = json!({ "stack": "none", "steps": [
        step("a", json!({ "operation": "Apply", "workspaces": ["dev"] })),
        step("b", json!({ "operation": "Apply", "stack": "nowhere" })),
        step("c", json!({ "operation": "Apply", "stack": "web-dev", "workspaces": ["dev", "prod"] })),
        step("d", json!({ "operation": "Apply", "stack": "web-dev", "waves": [{ "workspaces": ["mars"] }] })),
        step("e", json!({ "operation": "Rollback", "stack": "web-dev", "release": 7 })),
    ] });
    let workspace = json!({ "backend": { "name": "default" }, "gitops": { "repository": "file:///deploy.git" } });
    let named = json!({ "metadata": { "name": "prod" }, "spec": workspace });
    world.make("platform.stoa.dev/v1alpha1", "Workspace", "", named).await.unwrap();
    insta::assert_snapshot!(world.refused(spec).await.join("\n"), @r#"
    spec.stack: Not found: "none"
    spec.steps[1].run.stack: Not found: "nowhere"
    spec.steps[2].run.workspaces[1]: Invalid value: "prod": the stack is for dev
    spec.steps[3].run.waves[0].workspaces[0]: Not found: "mars"
    spec.steps[4].run.release: Invalid value: 7: release web-dev.dev.7 does not exist, or retention removed it
    "#);
}

#[tokio::test]
async fn workflow_creation_requires_permission_for_each_run() {
    let world = World::with_stack().await;
    for (i, missing) in ALL.iter().enumerate() {
        let allowed = ALL[..i].to_vec();
        let error = world.workflow(&by("ann", &allowed), "w", chain()).await.unwrap_err();
        let (verb, rest) = missing.split_once(' ').unwrap();
        let resource = rest.split(' ').next().unwrap();
        let expected = format!("User \"ann\" cannot {verb} resource \"{resource}\"");
        assert!(error.code() == 403 && error.message().contains(&expected), "{error}");
    }
    // Every operation is asked for, before anything is told of stacks.
    let mut spec = chain();
    spec["steps"][2]["run"] = json!({ "operation": "Destroy", "stack": "none" });
    let error = world.workflow(&by("ann", &ALL), "w", spec).await.unwrap_err();
    assert!(error.code() == 403 && error.message().contains("\"stacks/destroy\""), "{error}");

    let workflow = world.workflow(&by("ann", &ALL), "w", chain()).await.unwrap();
    assert_eq!(workflow.get_path(&["status", "requester", "username"]), Some(&json!("ann")));
    let spec = workflow.get_path(&["spec"]).unwrap();
    assert_eq!(spec["steps"][0]["run"]["workspaces"], json!(["dev"]), "the stack's only workspace");
}

#[tokio::test]
async fn who_names_a_template_may_see_its_project() {
    let world = World::with_stack().await;
    let spec = |project: &str| json!({ "template": { "project": project, "path": "ci/flow.yaml" } });
    let error = world.workflow(&by("ann", &["create runs "]), "w", spec("web")).await.unwrap_err();
    assert!(error.code() == 403 && error.message().contains("cannot get resource \"projects\""), "{error}");
    let may = ["create runs ", "get projects web", "get projects none"];
    let error = world.workflow(&by("ann", &may), "w", spec("none")).await.unwrap_err();
    assert_eq!(causes(&error), ["spec.template.project: Not found: \"none\""]);
    let mut both = spec("web");
    both["steps"] = json!([apply("dev", &[])]);
    both["template"]["path"] = json!("../flow.yaml");
    let error = world.workflow(&by("ann", &may), "w", both).await.unwrap_err();
    let path = "spec.template.path: Invalid value: \"../flow.yaml\": must be a relative path with '/' between its parts and \
                without '..' and '.git'";
    assert_eq!(causes(&error), ["spec.steps: Forbidden: may not be set together with template", path]);
    world.workflow(&by("ann", &may), "w", spec("web")).await.unwrap();
}

#[tokio::test]
async fn nobody_says_for_whom_a_workflow_is() {
    let world = World::with_stack().await;
    let status = json!({ "requester": { "username": "root" }, "phase": "Succeeded" });
    let sent = json!({ "metadata": { "name": "w" }, "spec": chain(), "status": status });
    let made = world.make_as(&by("ann", &ALL), "delivery.stoa.dev/v1alpha1", "Workflow", "shop", sent).await.unwrap();
    let found = made.get_path(&["status"]).unwrap();
    assert_eq!((&found["requester"]["username"], &found["phase"]), (&json!("ann"), &json!("Pending")));
    let store = world.registry.store("delivery.stoa.dev", "v1alpha1", "workflows").unwrap();
    let forge = UpdateSource::transform(|current: &Object| {
        let mut new = current.clone();
        new.0["status"]["requester"]["username"] = json!("root");
        Ok(new)
    });
    let error = store.update(&by("ann", &ALL), "shop", "w", Target::Status, forge).await.unwrap_err();
    assert_eq!(error.code(), 403, "{error}");
}

#[tokio::test]
async fn a_workflow_changes_only_by_being_paused_or_cancelled() {
    let world = World::with_stack().await;
    world.workflow(&by("ann", &ALL), "w", chain()).await.unwrap();
    let workflows = world.registry.api::<Workflow>().with_context(by("ann", &ALL));
    for paused in [true, false] {
        workflows.update_with("shop", "w", |w: &mut Workflow| w.spec.paused = paused).await.unwrap();
    }
    let change = |w: &mut Workflow| w.spec.version = Some("v2".to_owned());
    let error = workflows.update_with("shop", "w", change).await.unwrap_err();
    let expected = "spec: Forbidden: a workflow is immutable, except that paused may change and cancel may become true";
    assert_eq!(causes(&error), [expected]);
    workflows.update_with("shop", "w", |w: &mut Workflow| w.spec.cancel = true).await.unwrap();
    let error = workflows.update_with("shop", "w", |w: &mut Workflow| w.spec.cancel = false).await.unwrap_err();
    assert_eq!(causes(&error), ["spec.cancel: Forbidden: may not become false again"]);
}

/// A workflow of ann's with a second gate, the first of which waits.
async fn waiting() -> World {
    let world = World::with_stack().await;
    let mut spec = chain();
    spec["steps"].as_array_mut().unwrap().push(json!({ "name": "later", "dependsOn": ["prod"], "approval": {} }));
    world.workflow(&by("ann", &ALL), "w", spec).await.unwrap();
    let wait = |workflow: &mut Workflow| {
        let status = workflow.status.get_or_insert_default();
        status.phase = WorkflowPhase::AwaitingApproval;
        let of = |name: &str, phase| StepStatus { name: name.to_owned(), phase, ..StepStatus::default() };
        status.steps = vec![of("ok", StepPhase::AwaitingApproval), of("later", StepPhase::Pending)];
    };
    world.registry.api::<Workflow>().update_status_with("shop", "w", wait).await.unwrap();
    world
}

async fn decide(world: &World, context: &RequestContext, approvals: Value) -> Result<Value, ApiError> {
    let store = world.registry.store("delivery.stoa.dev", "v1alpha1", "workflows").unwrap();
    let change = UpdateSource::transform(|current: &Object| {
        let mut new = current.clone();
        new.0["status"]["approvals"] = approvals.clone();
        new.0["status"]["phase"] = json!("Succeeded");
        new.0["spec"]["cancel"] = json!(true);
        Ok(new)
    });
    let (stored, _) = store.update(context, "shop", "w", Target::Part("approval"), change).await?;
    Ok(Value::Object(stored.object().0))
}

#[tokio::test]
async fn approval_decides_workflow_step_once() {
    let world = waiting().await;
    let forged = json!([{ "step": "ok", "decision": "Approved", "message": "fine", "approver": { "username": "root" },
        "time": "2020-01-01T00:00:00Z" }]);
    let workflow = decide(&world, &by("bob", &[]), forged.clone()).await.unwrap();
    let status = &workflow["status"];
    let approval = &status["approvals"][0];
    assert_eq!((&approval["approver"]["username"], &approval["message"]), (&json!("bob"), &json!("fine")));
    assert!(approval["time"].as_str().unwrap() > "2024", "{approval}");
    assert_eq!((&status["phase"], &workflow["spec"]["cancel"]), (&json!("AwaitingApproval"), &json!(false)));

    // The same once more, and leaving it out, change nothing; anything else is refused.
    for sent in [forged, json!([])] {
        let after = decide(&world, &by("eve", &[]), sent).await.unwrap();
        assert_eq!((&after["status"], &after["spec"]), (&workflow["status"], &workflow["spec"]));
    }
    let other = json!([{ "step": "ok", "decision": "Rejected" }]);
    let error = decide(&world, &by("eve", &[]), other).await.unwrap_err();
    assert_eq!(error.code(), 409);
    assert!(error.message().ends_with("bob approved step ok: fine; a decision cannot be changed"), "{error}");
}

#[tokio::test]
async fn only_steps_that_wait_are_decided_about() {
    let world = waiting().await;
    let bob = by("bob", &[]);
    let one = |step: &str| json!([{ "step": step, "decision": "Approved" }]);
    for (step, code, why) in [
        ("later", 409, "step later does not wait for approval; its phase is Pending"),
        ("dev", 409, "step dev is not an approval step; approve plans through runs/approval"),
        ("none", 422, "status.approvals[0].step: Not found: \"none\""),
    ] {
        let error = decide(&world, &bob, one(step)).await.unwrap_err();
        assert!(error.code() == code && error.message().ends_with(why), "{error}");
    }
    let twice = json!([{ "step": "ok", "decision": "Approved" }, { "step": "ok", "decision": "Rejected" }]);
    let error = decide(&world, &bob, twice).await.unwrap_err();
    assert_eq!(error.code(), 422, "{error}");
    let long = json!([{ "step": "ok", "decision": "Approved", "message": "x".repeat(1025) }]);
    let error = decide(&world, &bob, long).await.unwrap_err();
    assert!(error.message().contains("may not be longer than 1024 characters"), "{error}");
    let cancel = |workflow: &mut Workflow| workflow.spec.cancel = true;
    world.registry.api::<Workflow>().update_with("shop", "w", cancel).await.unwrap();
    let error = decide(&world, &bob, one("ok")).await.unwrap_err();
    assert!(error.code() == 409 && error.message().ends_with("the workflow is being cancelled"), "{error}");
}

#[tokio::test]
async fn requester_cannot_approve_own_workflow_steps() {
    let world = waiting().await;
    let approve = json!([{ "step": "ok", "decision": "Approved" }]);
    let error = decide(&world, &by("ann", &[]), approve.clone()).await.unwrap_err();
    let expected = "workflows.delivery.stoa.dev \"w\" is forbidden: ann requested this workflow and needs the verb \
                    \"approve-own\" on workflows to decide about its steps; another user can decide";
    assert_eq!((error.code(), error.message()), (403, expected));
    let workflow = decide(&world, &by("ann", &["approve-own workflows w"]), approve).await.unwrap();
    assert_eq!(workflow["status"]["approvals"][0]["approver"]["username"], "ann");
}

fn hook(name: &str, more: Value) -> Value {
    let mut hook =
        json!({ "name": name, "url": "https://hooks.example.com/a", "secretRef": { "name": "keys", "key": "key" } });
    hook.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    hook
}

/// A step with these hooks.
fn hooked(name: &str, pre: &[Value], post: &[Value]) -> Value {
    let mut step = apply(name, &[]);
    step["hooks"] = json!({ "pre": pre, "post": post });
    step
}

#[tokio::test]
async fn validation_reports_every_invalid_hook_field() {
    let world = World::with_stack().await;
    let spec = |steps: Value| json!({ "stack": "web-dev", "steps": steps });
    let approval = json!({ "name": "ok", "approval": {}, "hooks": { "pre": [hook("a", json!({}))] } });
    let many: Vec<Value> = (0..11).map(|i| hook(&format!("h{i}"), json!({}))).collect();
    let full = |i: usize| hooked(&format!("s{i}"), &many[..10], &[]);
    let cases = [
        json!([approval]),
        json!([hooked(
            "dev",
            &[
                hook(
                    "Ask",
                    json!({ "when": "Failure", "url": "http://hooks.example.com", "secretRef": { "name": "", "key": "" } })
                ),
                hook("a", json!({ "url": "https://ann:hunter2@hooks.example.com", "caBundle": "bm9uZQ==" })),
                hook("b", json!({ "url": "", "timeout": "6m" })),
            ],
            &[
                hook(
                    "a",
                    json!({ "retry": { "maxAttempts": 0, "maxAge": "25h", "minBackoff": "1m", "maxBackoff": "1s" } })
                ),
                hook("c", json!({ "url": format!("https://{}", "h".repeat(2_000)) })),
            ],
        )]),
        json!([hooked("dev", &many, &[])]),
        json!((0..11).map(full).collect::<Vec<_>>()),
        json!([hooked("dev", &[hook("a", json!({ "each": "Run" }))], &[hook("b", json!({ "when": "Never" }))])]),
    ];
    let mut told = Vec::new();
    for case in cases {
        told.push(world.refused(spec(case)).await.join("\n"));
    }
    let wave = hook("a", json!({ "each": "Wave" }));
    let whole = json!({ "pre": [wave, hook("b", json!({ "when": "Always" }))], "post": [wave, hook("c", json!({}))] });
    let template = json!({ "project": "web", "path": "rollout.yaml" });
    let steps = json!({ "stack": "web-dev", "steps": [apply("dev", &[])], "hooks": whole });
    let told_of_steps = world.refused(steps).await;
    assert_eq!(world.refused(json!({ "template": template, "hooks": whole })).await, told_of_steps);
    told.push(told_of_steps.join("\n"));
    let told = told.join("\n");
    assert!(!told.contains("hunter2"), "{told}");
    insta::assert_snapshot!(told, @r#"
    spec.steps[0].hooks: Forbidden: may only be set together with run
    spec.steps[0].hooks.pre[0].name: Invalid value: "Ask": must be at most 63 characters of a-z, 0-9 and '-', beginning and ending with a letter or digit
    spec.steps[0].hooks.pre[0].when: Forbidden: may only be set for a hook in post
    spec.steps[0].hooks.pre[0].url: Invalid value: "http://hooks.example.com": must be https, unless it is a loopback address
    spec.steps[0].hooks.pre[0].secretRef.name: Required value
    spec.steps[0].hooks.pre[0].secretRef.key: Required value
    spec.steps[0].hooks.pre[1].url: Forbidden: must not contain credentials; events are signed with secretRef
    spec.steps[0].hooks.pre[1].caBundle: Invalid value: "<certificates>": must be certificates, PEM in base64
    spec.steps[0].hooks.pre[2].url: Required value
    spec.steps[0].hooks.pre[2].timeout: Invalid value: "6m": must be between 1s and 300s
    spec.steps[0].hooks.post[0].name: Duplicate value: "a"
    spec.steps[0].hooks.post[0].retry.maxAttempts: Invalid value: 0: must be at least 1
    spec.steps[0].hooks.post[0].retry.maxAge: Invalid value: "25h": must be between 0ns and 86400s
    spec.steps[0].hooks.post[0].retry.maxBackoff: Invalid value: "1s": must not be shorter than minBackoff
    spec.steps[0].hooks.post[1].url: Invalid value: "<long>": must be no more than 2000 characters
    spec.steps[0].hooks.pre: Invalid value: 11: must have at most 10 items
    spec.steps: Invalid value: 110: must have at most 100 hooks in all
    spec.steps[0].hooks.post[0].when: Unsupported value: "Never": supported values: "Success", "Failure", "Always"
    spec.steps[0].hooks.pre[0].each: Unsupported value: "Run": supported values: "Step", "Wave"
    spec.hooks.pre[1].when: Forbidden: may only be set for a hook in post
    spec.hooks.post[0].name: Duplicate value: "a"
    spec.hooks.pre[0].each: Forbidden: may not be Wave for hooks of the workflow; only steps have waves
    spec.hooks.post[0].each: Forbidden: may not be Wave for hooks of the workflow; only steps have waves
    "#);
}

#[tokio::test]
async fn hooks_require_host_and_secret_permissions() {
    let world = World::with_stack().await;
    let spec = || {
        let other = json!({ "url": "http://127.0.0.1:8080/b", "secretRef": { "name": "other", "key": "key" } });
        json!({ "stack": "web-dev", "steps": [hooked("dev", &[hook("a", json!({}))], &[hook("b", other)])] })
    };
    let wanted =
        ["use hookhosts hooks.example.com", "use secrets keys", "use hookhosts 127.0.0.1:8080", "use secrets other"];
    for (i, missing) in wanted.iter().enumerate() {
        let allowed = [&ALL[..], &wanted[..i]].concat();
        let error = world.workflow(&by("ann", &allowed), "w", spec()).await.unwrap_err();
        let resource = missing.split(' ').nth(1).unwrap();
        let expected = format!("User \"ann\" cannot use resource \"{resource}\"");
        assert!(error.code() == 403 && error.message().contains(&expected), "{error}");
    }
    // Those of the whole take the same.
    let whole = json!({ "post": [hook("a", json!({ "when": "Always" }))] });
    let whole = json!({ "stack": "web-dev", "steps": [apply("dev", &[])], "hooks": whole });
    let error = world.workflow(&by("ann", &[&ALL[..], &wanted[1..]].concat()), "v", whole.clone()).await.unwrap_err();
    assert!(error.code() == 403 && error.message().contains("cannot use resource \"hookhosts\""), "{error}");
    world.workflow(&by("ann", &[&ALL[..], &wanted[..2]].concat()), "v", whole).await.unwrap();
    let made = world.workflow(&by("ann", &[&ALL[..], &wanted[..]].concat()), "w", spec()).await.unwrap();
    let hook = &made.get_path(&["spec", "steps"]).unwrap()[0]["hooks"]["pre"][0];
    assert_eq!(
        json!({ "each": hook["each"], "when": hook["when"], "timeout": hook["timeout"], "retry": hook["retry"],
            "failurePolicy": hook["failurePolicy"] }),
        json!({ "each": "Step", "when": "Success", "timeout": "30s", "failurePolicy": "Fail",
            "retry": { "maxAge": "10m", "minBackoff": "1s", "maxBackoff": "30s" } })
    );
}
