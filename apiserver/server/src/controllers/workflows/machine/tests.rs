//! What begins when, step by step.

mod hooks;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

/// A workflow, what is seen of its runs, and a clock.
struct Model {
    steps: Vec<Step>,
    /// The hooks before and after all of them.
    whole: Option<Step>,
    is_over: bool,
    status: WorkflowStatus,
    runs: HashMap<String, Seen>,
    second: i64,
    is_paused: bool,
    is_ending: bool,
    again: Option<Duration>,
    gates: HashMap<String, Gate>,
    hooks: HashMap<Which, Called>,
    /// The workspaces that each selector finds.
    selected: Vec<String>,
}

impl Model {
    fn new(steps: Value) -> Self {
        Self {
            steps: serde_json::from_value(steps).unwrap(),
            whole: None,
            is_over: false,
            status: WorkflowStatus::default(),
            runs: HashMap::new(),
            second: 0,
            is_paused: false,
            is_ending: false,
            again: None,
            gates: HashMap::new(),
            hooks: HashMap::new(),
            selected: Vec::new(),
        }
    }

    /// Looks, and starts what is to be started; that, as `step/workspace`.
    fn look(&mut self) -> Vec<String> {
        let wave = |wave: &Wave| match wave.workspace_selector.is_some() {
            true => self.selected.clone(),
            false => wave.workspaces.clone(),
        };
        let waves = |run: &RunStep| match run.waves.is_empty() {
            true => vec![run.workspaces.clone()],
            false => run.waves.iter().map(wave).collect(),
        };
        let waves: HashMap<String, Vec<Vec<String>>> =
            self.steps.iter().filter_map(|step| Some((step.name.clone(), waves(step.run.as_ref()?)))).collect();
        let time = |second: i64| Timestamp::from_second(second).unwrap();
        let now = Time(time(self.second));
        let elapsed = |_: &str, at: &Time| Duration::from_secs((self.second - at.0.as_second()) as u64);
        let situation = Situation {
            name: "w",
            uid: "u",
            steps: &self.steps,
            whole: self.whole.as_ref(),
            is_paused: self.is_paused,
            is_ending: self.is_ending,
            runs: &self.runs,
            waves: &waves,
            gates: &self.gates,
            hooks: &self.hooks,
            now: &now,
            elapsed: &elapsed,
        };
        let decided = advance(&mut self.status, &situation);
        (self.again, self.is_over) = (decided.again, decided.is_over);
        let mut told = Vec::new();
        for Start { step, name, workspace } in decided.starts {
            assert!(self.runs.insert(name.clone(), Seen::default()).is_none(), "{name} is started twice");
            told.push(format!("{}/{workspace}", self.steps[step].name));
        }
        told
    }

    /// Sets how far the run of a step in a workspace is.
    fn set(&mut self, step: &str, workspace: &str, phase: RunPhase) {
        let message = if phase == RunPhase::Failed { "it broke" } else { "" }.to_owned();
        let name = run_name("w", "u", step, workspace);
        assert!(
            self.runs.insert(name, Seen { phase, message, ..Seen::default() }).is_some(),
            "{step}/{workspace} was not started"
        );
    }

    fn succeed(&mut self, step: &str, workspaces: &[&str]) {
        workspaces.iter().for_each(|workspace| self.set(step, workspace, RunPhase::Succeeded));
    }

    fn fail(&mut self, step: &str, workspace: &str) {
        self.set(step, workspace, RunPhase::Failed);
    }

    fn decide(&mut self, step: &str, decision: &str) {
        let approval = json!({"step": step, "decision": decision, "approver": {"username": "bob"}});
        self.status.approvals.push(serde_json::from_value(approval).unwrap());
    }

    /// The steps with their phases: `dev Succeeded, prod Running`.
    fn phases(&self) -> String {
        let told = self.status.steps.iter().map(|step| format!("{} {:?}", step.name, step.phase));
        told.collect::<Vec<_>>().join(", ")
    }

    fn step(&self, name: &str) -> &StepStatus {
        self.status.steps.iter().find(|step| step.name == name).unwrap()
    }
}

fn run(name: &str, after: &[&str], workspaces: &[&str]) -> Value {
    json!({"name": name, "dependsOn": after,
        "run": {"stack": "web", "operation": "Apply", "workspaces": workspaces}})
}

#[test]
fn a_chain_waits_for_each_run_and_for_approval() {
    let approval = json!({"name": "ok", "dependsOn": ["dev"], "approval": {"message": "go?"}});
    let mut model = Model::new(json!([run("dev", &[], &["dev"]), approval, run("prod", &["ok"], &["prod"])]));
    assert_eq!(model.look(), ["dev/dev"]);
    assert!(model.look().is_empty(), "once");
    model.set("dev", "dev", RunPhase::Applying);
    assert!(model.look().is_empty());
    assert_eq!(model.phases(), "dev Running, ok Pending, prod Pending");
    model.succeed("dev", &["dev"]);
    assert!(model.look().is_empty());
    assert_eq!(model.phases(), "dev Succeeded, ok AwaitingApproval, prod Pending");
    assert_eq!(model.step("ok").message, "go?");
    model.decide("ok", "Approved");
    assert_eq!(model.look(), ["prod/prod"]);
    assert_eq!(model.step("ok").message, "bob approved step ok");
    model.succeed("prod", &["prod"]);
    model.look();
    assert_eq!(model.phases(), "dev Succeeded, ok Succeeded, prod Succeeded");
    assert_eq!(model.status.progress, Some(StepProgress { total: 3, done: 3, failed: 0, skipped: 0 }));
}

#[test]
fn failed_step_stops_only_its_dependents() {
    // Steps may come before what they depend on.
    let mut model = Model::new(json!([
        run("last", &["a", "b"], &["w"]),
        run("a", &[], &["w"]),
        run("b", &[], &["w"]),
        run("of-a", &["a"], &["w"]),
        run("of-last", &["last"], &["w"]),
    ]));
    assert_eq!(model.look(), ["a/w", "b/w"]);
    model.fail("b", "w");
    assert!(model.look().is_empty());
    model.succeed("a", &["w"]);
    assert_eq!(model.look(), ["of-a/w"]);
    model.succeed("of-a", &["w"]);
    model.look();
    assert_eq!(model.phases(), "last Skipped, a Succeeded, b Failed, of-a Succeeded, of-last Skipped");
    let name = run_name("w", "u", "b", "w");
    assert_eq!(model.step("b").message, format!("run {name} in workspace w did not succeed: it broke"));
    assert_eq!(model.step("last").message, "step b did not succeed");
}

#[test]
fn steps_may_follow_a_failure_or_any_end() {
    let when = |mut step: Value, when: &str| {
        step["when"] = json!(when);
        step
    };
    let steps = json!([
        run("a", &[], &["w"]),
        run("b", &["a"], &["w"]),
        when(run("back", &["b"], &["w"]), "Failure"),
        run("after-back", &["back"], &["w"]),
        when(run("tell", &["b", "back"], &["w"]), "Always"),
    ]);
    let mut model = Model::new(steps.clone());
    assert_eq!(model.look(), ["a/w"]);
    model.fail("a", "w");
    assert_eq!(model.look(), ["back/w"], "b never began for the failure of a");
    model.succeed("back", &["w"]);
    assert_eq!(model.look(), ["after-back/w", "tell/w"]);
    assert_eq!(model.step("b").message, "step a did not succeed");

    let mut model = Model::new(steps);
    model.look();
    model.succeed("a", &["w"]);
    assert_eq!(model.look(), ["b/w"]);
    model.succeed("b", &["w"]);
    assert_eq!(model.look(), ["tell/w"]);
    assert_eq!(model.phases(), "a Succeeded, b Succeeded, back Skipped, after-back Skipped, tell Running");
    assert_eq!(model.step("back").message, "no step that it depends on failed");
    assert_eq!(model.step("after-back").message, "step back was skipped");
    assert_eq!(model.status.progress, Some(StepProgress { total: 5, done: 2, failed: 0, skipped: 2 }));
}

#[test]
fn a_rejected_step_fails() {
    let mut model = Model::new(json!([{"name": "ok", "approval": {}}, run("prod", &["ok"], &["prod"])]));
    model.look();
    model.decide("ok", "Rejected");
    assert!(model.look().is_empty());
    assert_eq!(model.phases(), "ok Failed, prod Skipped");
    assert_eq!(model.step("ok").message, "bob rejected step ok");
}

#[test]
fn waves_run_in_order_with_limits_and_pauses() {
    let waves = json!([
        {"workspaces": ["canary"], "pauseAfter": "10s"},
        {"workspaces": ["a", "b", "c"]},
        {"workspaces": ["d"]},
    ]);
    let step = json!({"name": "prod",
        "run": {"stack": "web", "operation": "Apply", "waves": waves, "maxParallel": 2}});
    let mut model = Model::new(json!([step]));
    assert_eq!(model.look(), ["prod/canary"]);
    model.succeed("prod", &["canary"]);
    model.second = 100;
    assert!(model.look().is_empty());
    assert_eq!(model.again, Some(Duration::from_secs(10)));
    assert_eq!(model.step("prod").message, "wave 1 of 3 is complete; the step continues after 10s");
    model.second = 109;
    assert!(model.look().is_empty());
    assert_eq!(model.again, Some(Duration::from_secs(1)));
    model.second = 110;
    assert_eq!(model.look(), ["prod/a", "prod/b"]);
    assert_eq!((model.step("prod").wave, model.again), (Some(2), None));
    model.succeed("prod", &["b"]);
    assert_eq!(model.look(), ["prod/c"]);
    model.succeed("prod", &["a", "c"]);
    assert_eq!(model.look(), ["prod/d"]);
    model.succeed("prod", &["d"]);
    model.look();
    assert_eq!(model.phases(), "prod Succeeded");
    let counts = RunCounts { total: 5, started: 5, succeeded: 5, failed: 0 };
    assert_eq!(model.step("prod").counts, Some(counts));
}

#[test]
fn next_wave_waits_for_healthy_deployment() {
    let health = json!({"healthyFor": "30s", "timeout": "2m"});
    let waves = json!([{"workspaces": ["a"]}, {"workspaces": ["b"]}]);
    let step = json!({"name": "prod", "run": {"stack": "web", "operation": "Apply", "waves": waves, "health": health}});
    let mut model = Model::new(json!([step, run("last", &["prod"], &["w"])]));
    assert_eq!(model.look(), ["prod/a"]);
    model.succeed("prod", &["a"]);
    assert!(model.look().is_empty());
    assert_eq!(model.again, Some(Duration::from_secs(6)), "what is found is told of before");
    let see = |model: &mut Model, second, gate: Gate| {
        model.second = second;
        model.gates.insert("prod".to_owned(), gate);
        (model.look(), model.again, model.step("prod").message.clone())
    };
    let (started, again, message) = see(&mut model, 10, Gate::Unhealthy("it crashes".to_owned()));
    assert_eq!((started.len(), again), (0, Some(Duration::from_secs(6))));
    assert_eq!(message, "the deployment of wave 1 of 2 is not healthy: it crashes");
    let (started, _, message) = see(&mut model, 20, Gate::Healthy(Duration::from_secs(29)));
    assert_eq!(
        (started.len(), message.as_str()),
        (0, "the deployment of wave 1 of 2 is healthy and must stay so for 30s")
    );
    let (started, again, message) = see(&mut model, 21, Gate::Healthy(Duration::from_secs(30)));
    assert_eq!((started, again, message.as_str()), (vec!["prod/b".to_owned()], None, ""));

    model.gates.clear();
    model.second = 1_000;
    model.succeed("prod", &["b"]);
    model.look();
    see(&mut model, 1_119, Gate::Unhealthy("it crashes".to_owned()));
    assert_eq!(model.phases(), "prod Running, last Pending");
    let (_, again, message) = see(&mut model, 1_120, Gate::Unseen("no runner has time".to_owned()));
    assert_eq!((model.phases().as_str(), again), ("prod Running, last Pending", Some(Duration::from_secs(6))));
    assert_eq!(message, "the health of the deployment of wave 2 of 2 is unknown: no runner has time");
    see(&mut model, 1_126, Gate::Unhealthy("it crashes".to_owned()));
    assert_eq!(model.phases(), "prod Failed, last Skipped");
    assert_eq!(model.step("prod").message, "the deployment of wave 2 of 2 is not healthy: it crashes after 2m");
}

#[test]
fn paused_healthy_wave_needs_no_further_check() {
    let health = json!({"healthyFor": "5m", "timeout": "10m"});
    let waves = json!([{"workspaces": ["a"], "pauseAfter": "1h"}, {"workspaces": ["b"], "pauseAfter": "1m"}]);
    let step = json!({"name": "prod", "run": {"stack": "web", "operation": "Apply", "waves": waves, "health": health}});
    let mut model = Model::new(json!([step]));
    model.look();
    model.succeed("prod", &["a"]);
    model.look();
    let paused = "wave 1 of 2 is complete; the step continues after 1h";
    // Another server, which has not looked for long, would say otherwise.
    for (second, gate) in [
        (300, Gate::Healthy(Duration::from_secs(300))),
        (1_800, Gate::Healthy(Duration::ZERO)),
        (1_801, Gate::Unhealthy("it crashes".to_owned())),
    ] {
        model.second = second;
        model.gates.insert("prod".to_owned(), gate);
        assert!(model.look().is_empty());
        assert_eq!((model.phases().as_str(), model.step("prod").message.as_str()), ("prod Running", paused));
        assert_eq!(model.again, Some(Duration::from_secs(3_600 - second as u64)));
    }
    model.gates.clear();
    model.second = 3_600;
    assert_eq!(model.look(), ["prod/b"]);
    model.succeed("prod", &["b"]);
    model.second = 4_000;
    model.look();
    assert_eq!(model.again, Some(Duration::from_secs(15)), "the next wave is asked about");
    model.gates.insert("prod".to_owned(), Gate::Unhealthy("it crashes".to_owned()));
    model.second = 4_600;
    model.look();
    assert_eq!(model.phases(), "prod Failed");
}

#[test]
fn healthy_wave_at_timeout_gets_remaining_time() {
    let health = json!({"healthyFor": "5m", "timeout": "5m"});
    let run = json!({"stack": "web", "operation": "Apply", "workspaces": ["a"], "health": health});
    let steps = json!([{"name": "dev", "run": run}]);
    let start = || {
        let mut model = Model::new(steps.clone());
        model.look();
        model.succeed("dev", &["a"]);
        model.look();
        model.gates.insert("dev".to_owned(), Gate::Healthy(Duration::from_secs(290)));
        model.second = 300;
        assert!(model.look().is_empty());
        assert_eq!((model.phases().as_str(), model.again), ("dev Running", Some(Duration::from_secs(15))));
        model.second = 315;
        model
    };
    for (gate, phases) in [
        (Gate::Healthy(Duration::from_secs(305)), "dev Succeeded"),
        (Gate::Unhealthy("it crashes".to_owned()), "dev Failed"),
    ] {
        let mut model = start();
        model.gates.insert("dev".to_owned(), gate);
        model.look();
        assert_eq!(model.phases(), phases);
    }
}

#[test]
fn status_records_healthy_time_periodically() {
    let health = json!({"healthyFor": "5m", "timeout": "1h"});
    let run = json!({"stack": "web", "operation": "Apply", "workspaces": ["a"], "health": health});
    let mut model = Model::new(json!([{"name": "dev", "run": run}]));
    model.look();
    model.succeed("dev", &["a"]);
    let mut note = |gate: Gate| {
        model.gates.insert("dev".to_owned(), gate);
        model.look();
        model.step("dev").wave_healthy_seconds
    };
    let healthy = |seconds: u64| Gate::Healthy(Duration::from_secs(seconds));
    let noted = [10, 29, 30, 45, 60].map(|seconds| note(healthy(seconds)));
    assert_eq!(noted, [None, None, Some(30), Some(30), Some(60)], "a tenth of what it has to be");
    assert_eq!(note(Gate::Unseen("no runner has time".to_owned())), Some(60));
    assert_eq!(note(Gate::Unhealthy("it crashes".to_owned())), None);
    assert_eq!(note(healthy(31)), Some(31));
    assert_eq!(note(healthy(300)), None);
    assert_eq!(model.phases(), "dev Succeeded");
}

#[test]
fn failure_limit_stops_step() {
    let step = json!({"name": "all", "run": {"stack": "web", "operation": "Apply", "maxFailures": 1, "maxParallel": 2,
        "workspaces": ["a", "b", "c", "d", "e"]}});
    let mut model = Model::new(json!([step.clone()]));
    assert_eq!(model.look(), ["all/a", "all/b"]);
    model.fail("all", "a");
    assert_eq!(model.look(), ["all/c"]);
    model.fail("all", "b");
    assert!(model.look().is_empty(), "nothing more is started");
    assert_eq!(model.phases(), "all Running", "what is under way goes on");
    model.succeed("all", &["c"]);
    model.look();
    assert_eq!(model.phases(), "all Failed");
    let message = &model.step("all").message;
    assert!(message.contains("in workspace a did not succeed: it broke; 1 more failed"), "{message}");

    let mut model = Model::new(json!([step]));
    model.look();
    model.fail("all", "a");
    model.succeed("all", &["b"]);
    assert_eq!(model.look(), ["all/c", "all/d"]);
    model.succeed("all", &["c", "d"]);
    assert_eq!(model.look(), ["all/e"]);
    model.succeed("all", &["e"]);
    model.look();
    assert_eq!(
        (model.phases().as_str(), model.step("all").message.as_str()),
        ("all Succeeded", "1 of 5 runs failed, which is tolerated")
    );
}

#[test]
fn early_deleted_run_counts_as_failed() {
    let mut model = Model::new(json!([run("dev", &[], &["dev"])]));
    model.look();
    model.runs.clear();
    model.look();
    assert_eq!(model.phases(), "dev Failed");
    assert!(model.step("dev").message.ends_with("it was deleted before it ended"), "{:?}", model.step("dev"));
}

#[test]
fn paused_workflow_continues_only_running_work() {
    let waves = json!([{"workspaces": ["a", "b"]}, {"workspaces": ["c"]}]);
    let step = json!({"name": "one", "run": {"stack": "web", "operation": "Apply", "waves": waves, "maxParallel": 1}});
    let mut model = Model::new(json!([step, run("two", &[], &["w"]), run("three", &["two"], &["w"])]));
    assert_eq!(model.look(), ["one/a", "two/w"]);
    model.is_paused = true;
    model.succeed("one", &["a"]);
    model.succeed("two", &["w"]);
    assert!(model.look().is_empty());
    assert_eq!(model.phases(), "one Running, two Succeeded, three Pending");
    model.is_paused = false;
    assert_eq!(model.look(), ["one/b", "three/w"]);
}

#[test]
fn an_end_waits_for_what_is_under_way() {
    let approval = json!({"name": "ok", "approval": {}});
    let mut model = Model::new(json!([run("one", &[], &["a", "b"]), approval, run("two", &["one"], &["w"])]));
    model.look();
    model.is_ending = true;
    model.set("one", "a", RunPhase::Canceled);
    model.look();
    assert_eq!(model.phases(), "one Running, ok Canceled, two Canceled");
    model.succeed("one", &["b"]);
    model.look();
    assert_eq!(model.phases(), "one Canceled, ok Canceled, two Canceled");

    // That one of them failed by itself is what it ends with.
    for phase in [RunPhase::Failed, RunPhase::Canceled] {
        let mut model = Model::new(json!([run("one", &[], &["a", "b"])]));
        model.look();
        model.set("one", "a", phase);
        model.look();
        model.is_ending = true;
        model.set("one", "b", RunPhase::Canceled);
        model.look();
        assert_eq!(model.phases(), "one Failed", "{phase:?} before the end");
    }
}

#[test]
fn a_step_says_which_plans_wait_for_approval() {
    let mut model = Model::new(json!([run("one", &[], &["a", "b"])]));
    model.look();
    model.set("one", "a", RunPhase::AwaitingApproval);
    model.look();
    let name = run_name("w", "u", "one", "a");
    assert_eq!(model.phases(), "one AwaitingApproval");
    assert_eq!(model.step("one").message, format!("the plan of run {name} in workspace a waits for approval"));
    model.set("one", "a", RunPhase::Applying);
    model.look();
    assert_eq!((model.phases().as_str(), model.step("one").message.as_str()), ("one Running", ""));
}

#[test]
fn status_stays_small_however_many_workspaces_there_are() {
    let names: Vec<String> = (0..400).map(|i| format!("cluster-{i:03}")).collect();
    let step = json!({"name": "all", "run": {"stack": "web", "operation": "Apply", "workspaces": names,
        "maxParallel": 20, "maxFailures": 400}});
    let mut model = Model::new(json!([step]));
    let (mut started, mut largest) = (Vec::new(), 0);
    loop {
        let now = model.look();
        if now.is_empty() {
            break;
        }
        largest = largest.max(serde_json::to_vec(&model.status).unwrap().len());
        for (i, run) in now.iter().enumerate() {
            let workspace = run.strip_prefix("all/").unwrap();
            model.set("all", workspace, if i % 2 == 0 { RunPhase::Succeeded } else { RunPhase::Failed });
        }
        started.extend(now);
    }
    assert_eq!(started, names.iter().map(|name| format!("all/{name}")).collect::<Vec<_>>(), "each once, in order");
    assert_eq!(model.phases(), "all Succeeded");
    let counts = RunCounts { total: 400, started: 400, succeeded: 200, failed: 200 };
    assert_eq!(model.step("all").counts, Some(counts));
    assert!(largest < 8_000, "{largest} bytes");
}

#[test]
fn status_stays_small_however_many_steps_there_are() {
    let names: Vec<String> = (0..100).map(|i| format!("{}-{i:03}", "w".repeat(59))).collect();
    let step = |i: usize| {
        json!({"name": format!("step-{i:02}"), "run": {"stack": "web", "operation": "Apply", "workspaces": names,
            "maxParallel": 100, "maxFailures": 100}})
    };
    let mut model = Model::new(Value::Array((0..100).map(step).collect()));
    let (mut started, mut largest) = (0, 0);
    loop {
        let now = model.look();
        let active = model.status.steps.iter().map(active).sum::<usize>();
        if active == 0 {
            break;
        }
        assert_eq!((now.len(), active), (200, 200), "after {started}");
        started += now.len();
        largest = largest.max(serde_json::to_vec(&model.status).unwrap().len());
        for seen in model.runs.values_mut() {
            *seen = Seen { phase: RunPhase::Failed, message: "m".repeat(1_000), uid: "u".repeat(36) };
        }
    }
    assert_eq!(started, 10_000);
    assert!(model.status.steps.iter().all(|step| step.phase == StepPhase::Succeeded), "{}", model.phases());
    assert!(largest < 512 << 10, "{largest} bytes");
}

#[test]
fn workflow_records_selected_workspaces_before_runs_start() {
    let waves = json!([{"workspaceSelector": {}}]);
    let step = |name: &str| json!({"name": name, "run": {"stack": "web", "operation": "Apply", "waves": waves, "maxParallel": 1}});
    let mut model = Model::new(json!([step("a"), step("b"), step("c")]));
    model.selected = (0..1_000).map(|i| format!("{}-{i:03}", "w".repeat(96))).collect();
    assert!(model.look().is_empty());
    assert_eq!((model.phases().as_str(), model.again), ("a Running, b Running, c Failed", Some(Duration::ZERO)));
    let message = "the selectors match more workspaces than a workflow can record";
    assert_eq!(model.step("c").message, message);
    assert!(model.step("c").selected.is_empty());
    assert_eq!(model.look(), [format!("a/{}", model.selected[0]), format!("b/{}", model.selected[0])]);
}

#[test]
fn wave_without_selected_workspaces_reports_skip() {
    let waves = json!([{"workspaces": ["a"]}, {"workspaceSelector": {}}, {"workspaces": ["b"]}]);
    let step = json!({"name": "prod", "run": {"stack": "web", "operation": "Apply", "waves": waves}});
    let mut model = Model::new(json!([step]));
    let skipped = "wave 2 of 3 is skipped: its selector finds no workspace of the stack that no other wave has";
    assert!(model.look().is_empty(), "what is selected is recorded first");
    assert_eq!(model.step("prod").message, skipped);
    assert_eq!(model.look(), ["prod/a"]);
    model.succeed("prod", &["a"]);
    assert_eq!(model.look(), ["prod/b"]);
    model.succeed("prod", &["b"]);
    model.look();
    assert_eq!((model.phases().as_str(), model.step("prod").message.as_str()), ("prod Succeeded", skipped));
}

#[test]
fn older_status_yields_same_run_names() {
    let steps = json!([run("dev", &[], &["a", "b"]), run("prod", &["dev"], &["c"])]);
    let mut model = Model::new(steps.clone());
    let before = model.status.clone();
    model.look();
    let runs: Vec<StepRun> = model.status.steps[0].runs.clone();
    // The write of the status never happened.
    let mut again = Model::new(steps);
    again.status = before;
    again.look();
    assert_eq!(again.status.steps[0].runs, runs);
    assert_eq!(run_name("w", "u", "dev", "a"), runs[0].name);
    assert_ne!(run_name("w", "other", "dev", "a"), runs[0].name, "another workflow of the same name");
}

#[test]
fn what_runs_say_is_cut() {
    assert_eq!(cut("é"), "é");
    let long = "é".repeat(301);
    assert_eq!(cut(&long), format!("{}…", "é".repeat(300)));
}
