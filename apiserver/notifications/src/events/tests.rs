//! What writes are told by.

use std::str;

use super::*;

const PREFIX: &str = "https://stoa.example.com";

/// The events of a series of states of one object, as type and data that was asked for.
fn told(resource: &str, states: &[Value], field: &str) -> Vec<String> {
    let kind = of_key(&format!("/registry/{resource}x")).expect("it is told of");
    let mut known = Known::default();
    let mut told = Vec::new();
    for state in states {
        let state = kind.read(state.to_string().as_bytes(), PREFIX).unwrap();
        let events = state.events(&known, Timestamp::UNIX_EPOCH, PREFIX);
        told.extend(events.iter().map(|happened| {
            let said = &happened.event.data[field];
            let event_type = happened.event.event_type.trim_start_matches("dev.stoa.");
            format!("{event_type} {}", said.as_str().map_or_else(|| said.to_string(), str::to_owned))
        }));
        known = state.known();
    }
    told
}

fn object(spec: &Value, status: &Value) -> Value {
    let metadata = json!({"name": "x", "namespace": "shop", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"stoa.dev/project": "web"}});
    json!({"metadata": metadata, "spec": spec, "status": status})
}

fn run(status: &Value) -> Value {
    object(&json!({"stack": "web", "workspace": "dev", "operation": "Apply"}), status)
}

#[test]
fn a_run_starts_is_decided_about_and_ends() {
    let start = "2026-01-01T00:00:00Z";
    let plan = json!({"digest": "sha256:1", "summary": {"create": 2, "update": 1}});
    let other = json!({"digest": "sha256:2", "summary": {"create": 2}});
    let approval = json!({"decision": "Approved", "time": start});
    let merging = |commit: &str| {
        let pull = json!({"number": 7, "url": "https://git.example.com/7", "commit": commit, "time": start});
        json!({"phase": "AwaitingMerge", "startTime": start, "plan": other, "approval": approval, "pullRequest": pull})
    };
    let states = [
        run(&json!({"phase": "Pending"})),
        run(&json!({"phase": "Generating", "startTime": start})),
        run(&json!({"phase": "Planning", "startTime": start})),
        run(&json!({"phase": "AwaitingApproval", "startTime": start, "plan": plan})),
        run(
            &json!({"phase": "AwaitingApproval", "startTime": start, "plan": plan, "progress": {"total": 3, "done": 0, "failed": 0}}),
        ),
        // A plan that does not hold any more is made again.
        run(&json!({"phase": "AwaitingApproval", "startTime": start, "plan": other})),
        run(&json!({"phase": "AwaitingApproval", "startTime": start, "plan": other, "approval": approval})),
        run(&json!({"phase": "Applying", "startTime": start, "plan": other, "approval": approval})),
        run(&merging("c1")),
        // The same pull request with another commit is no news.
        run(&merging("c2")),
        run(&json!({"phase": "Succeeded", "startTime": start, "plan": other, "approval": approval, "release": 1})),
        run(&json!({"phase": "Succeeded", "startTime": start, "plan": other, "approval": approval, "release": 1})),
    ];
    let expected = [
        "run.started null",
        "run.awaitingapproval 3",
        "run.awaitingapproval 2",
        "run.approved 2",
        "run.awaitingmerge 2",
        "run.succeeded 2",
    ];
    assert_eq!(told("delivery.stoa.dev/runs/", &states, "changes"), expected);
    // One that was never seen before has all of it behind it.
    let expected = ["run.started 2", "run.approved 2", "run.succeeded 2"];
    assert_eq!(told("delivery.stoa.dev/runs/", &states[11..], "changes"), expected);
}

/// The data of the last event that a run's status makes.
fn data_of(status: &Value) -> Value {
    let kind = of_key("/registry/delivery.stoa.dev/runs/shop/x").unwrap();
    let state = kind.read(run(status).to_string().as_bytes(), PREFIX).unwrap();
    let events = state.events(&Known::default(), Timestamp::UNIX_EPOCH, PREFIX);
    events.last().unwrap().event.data.clone()
}

#[test]
fn run_event_has_plan_message_page_and_command() {
    let start = "2026-01-01T00:00:00Z";
    let path = "/apis/delivery.stoa.dev/v1alpha1/namespaces/shop/runs/x";
    let page = "https://git.example.com/shop/config/commit/c0ffee";
    let waiting = json!({"type": "Waiting", "status": "True", "reason": "AwaitingApproval", "message": "plan sha256:1 waits",
            "lastTransitionTime": start});
    let mut status = json!({"phase": "AwaitingApproval", "startTime": start, "conditions": [waiting],
        "source": {"commit": "c0ffee", "commitURL": page},
        "plan": {"digest": "sha256:1", "summary": {"create": 12, "update": 3}}});
    let data = data_of(&status);
    assert_eq!(
        (&data["plan"], &data["message"], &data["page"]),
        (&json!("+12 ~3 -0"), &json!("plan sha256:1 waits"), &json!(page))
    );
    assert_eq!(data["command"], format!("kubectl get --raw \"{path}/plan?format=table\""));

    status["phase"] = json!("Failed");
    status["conditions"] = json!([{"type": "Failed", "status": "True", "reason": "ApplyFailed", "message": "no".repeat(2000),
            "lastTransitionTime": start}]);
    let data = data_of(&status);
    assert_eq!(data["message"].as_str().unwrap().chars().count(), MESSAGE + 1, "it is cut");
    assert_eq!(data["command"], format!("kubectl get --raw \"{path}/log\""));

    status["pullRequest"] = json!({"number": 7, "url": "https://git.example.com/7", "commit": "c"});
    assert_eq!(data_of(&status)["page"], "https://git.example.com/7", "a pull request is what a person acts on");
    status["source"] = json!({"commit": "c0ffee"});
    status["pullRequest"] = Value::Null;
    assert_eq!(data_of(&status)["page"], Value::Null, "a local repository has no page");
}

#[test]
fn failure_event_has_no_message_of_a_resource() {
    let failed = json!({"type": "Failed", "status": "True", "reason": "ApplyFailed", "message": "1 resource failed",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"phase": "Failed", "startTime": "2026-01-01T00:00:00Z", "conditions": [failed],
        "resources": [{"id": "v1:Secret:a:b", "action": "Create", "phase": "Failed", "message": "hunter2"}]});
    let states = [run(&json!({"phase": "Pending"})), run(&status)];
    assert_eq!(
        told("delivery.stoa.dev/runs/", &states, "reason"),
        ["run.started ApplyFailed", "run.failed ApplyFailed"]
    );
    let kind = of_key("/registry/delivery.stoa.dev/runs/shop/x").unwrap();
    let state = kind.read(states[1].to_string().as_bytes(), PREFIX).unwrap();
    let events = state.events(&Known::default(), Timestamp::UNIX_EPOCH, PREFIX);
    assert!(!serde_json::to_string(&events[1].event).unwrap().contains("hunter2"));
}

#[test]
fn a_workflow_waits_step_by_step_and_ends() {
    let time = "2026-01-01T00:00:00Z";
    let workflow = |status: &Value| object(&json!({"stack": "web", "steps": []}), status);
    let gate = |name: &str| json!({"name": name, "phase": "AwaitingApproval", "startTime": time});
    let approved = |step: &str| json!({"step": step, "decision": "Approved", "time": time});
    // A step whose run waits is told of by the run.
    let run = json!({"name": "dev", "phase": "AwaitingApproval", "counts": {"total": 1, "started": 1, "succeeded": 0, "failed": 0}});
    let states = [
        workflow(&json!({"phase": "Pending"})),
        workflow(&json!({"phase": "AwaitingApproval", "startTime": time, "steps": [run]})),
        workflow(&json!({"phase": "AwaitingApproval", "startTime": time, "steps": [gate("a"), gate("b")]})),
        workflow(&json!({"phase": "AwaitingApproval", "startTime": time, "steps": [gate("b")],
            "approvals": [approved("a")]})),
        workflow(&json!({"phase": "Succeeded", "startTime": time, "approvals": [approved("a"), approved("b")]})),
    ];
    let expected = [
        "workflow.started null",
        r#"workflow.awaitingapproval ["a","b"]"#,
        r#"workflow.awaitingapproval ["a","b"]"#,
        r#"workflow.approved ["b"]"#,
        "workflow.approved null",
        "workflow.succeeded null",
    ];
    assert_eq!(told("delivery.stoa.dev/workflows/", &states, "awaitingSteps"), expected);
}

#[test]
fn a_stack_drifts_and_is_back() {
    let stack = |drifted: Value| object(&json!({"project": "web", "workspaces": ["dev"]}), &drifted);
    let drifted = |status: &str, at: &str| {
        let reason = if status == "True" { "Drifted" } else { "InSync" };
        json!({"conditions": [{"type": "Drifted", "status": status, "reason": reason, "lastTransitionTime": at}],
            "deployments": [{"workspace": "dev", "drifted": status == "True"}]})
    };
    let states = [
        stack(json!({})),
        // That it is as released when it is looked at for the first time is no news.
        stack(drifted("False", "2026-01-01T00:00:01Z")),
        stack(drifted("True", "2026-01-01T00:00:02Z")),
        stack(drifted("True", "2026-01-01T00:00:02Z")),
        stack(drifted("False", "2026-01-01T00:00:03Z")),
        stack(drifted("True", "2026-01-01T00:00:04Z")),
    ];
    let expected = ["stack.created []", "stack.drifted [\"dev\"]", "stack.driftcleared []", "stack.drifted [\"dev\"]"];
    assert_eq!(told("config.stoa.dev/stacks/", &states, "driftedWorkspaces"), expected);
    let mut deleting = states[5].clone();
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:05Z");
    let told = told("config.stoa.dev/stacks/", &[states[5].clone(), deleting], "project");
    assert_eq!(told, ["stack.created web", "stack.drifted web", "stack.deleting web"]);
}

#[test]
fn a_workspace_goes_and_comes_back() {
    let workspace = |status: &str, at: &str| {
        let reason = if status == "True" { "Available" } else { "BackendUnavailable" };
        let ready = json!({"type": "Ready", "status": status, "reason": reason, "lastTransitionTime": at});
        object(&json!({"backend": {"name": "default"}}), &json!({"conditions": [ready]}))
    };
    let states = [
        workspace("True", "2026-01-01T00:00:01Z"),
        workspace("False", "2026-01-01T00:00:02Z"),
        workspace("True", "2026-01-01T00:00:03Z"),
    ];
    let expected = ["workspace.unavailable BackendUnavailable", "workspace.available Available"];
    assert_eq!(told("platform.stoa.dev/workspaces/", &states, "reason"), expected);
}

#[test]
fn ids_follow_from_what_happened() {
    let kind = of_key("/registry/delivery.stoa.dev/runs/shop/x").unwrap();
    let ids = |state: &Value, known: &Known| -> Vec<String> {
        let state = kind.read(state.to_string().as_bytes(), PREFIX).unwrap();
        state.events(known, Timestamp::UNIX_EPOCH, PREFIX).into_iter().map(|happened| happened.event.id).collect()
    };
    let started = run(&json!({"phase": "Planning", "startTime": "2026-01-01T00:00:00Z"}));
    let ended = run(&json!({"phase": "Failed", "startTime": "2026-01-01T00:00:00Z"}));
    let known = kind.read(started.to_string().as_bytes(), PREFIX).unwrap().known();
    let (first, all) = (ids(&started, &Known::default()), ids(&ended, &Known::default()));
    assert_eq!(all, [first.clone(), ids(&ended, &known)].concat(), "however much is read at once");
    assert!(first[0].len() == 32 && first[0].bytes().all(|byte| byte.is_ascii_hexdigit()), "{first:?}");
    let mut another = ended;
    another["metadata"]["uid"] = json!("v");
    let others = ids(&another, &known);
    assert!(others.len() == 2 && others.iter().all(|id| !all.contains(id)), "another object of the same name");
}

#[test]
fn key_identifies_only_watched_kinds() {
    let with_events = stoa_kinds::kinds().filter(|kind| !kind.events.is_empty()).map(|kind| (kind.definition)());
    let with_events: Vec<_> = with_events.map(|definition| (definition.group, definition.plural)).collect();
    for (group, plural) in &with_events {
        let found = of_key(&format!("/registry/{group}/{plural}/shop/x")).map(Watched::resource);
        assert_eq!(found, Some((group.into(), plural.into())));
    }
    assert_eq!(with_events.len(), kinds().count(), "every watched kind has event types");
    for key in
        ["/registry/delivery.stoa.dev/resources/shop/x", "/registry/core/secrets/a/b", "/stoa/notifications/u/cursor"]
    {
        assert!(of_key(key).is_none(), "{key}");
    }
}
