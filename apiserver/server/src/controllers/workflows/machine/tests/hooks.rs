//! Which hook is called when, and what a step makes of it.

use stoa_types::delivery::{HookPhase, HookStatus};

use super::*;

impl Model {
    /// The hooks of the whole as those of a step without a name.
    fn with_whole(&self) -> Vec<StepStatus> {
        let whole = StepStatus { hooks: self.status.hooks.clone(), ..StepStatus::default() };
        [whole].into_iter().chain(self.status.steps.iter().cloned()).collect()
    }

    /// The hooks that are called, as `step/hook`, or `step/hook/wave`.
    fn called(&self) -> Vec<String> {
        let of_step = |step: &StepStatus| {
            let running = step.hooks.iter().filter(|hook| hook.phase == HookPhase::Running);
            let told = running.map(|hook| match hook.wave {
                Some(wave) => format!("{}/{}/{wave}", step.name, hook.name),
                None => format!("{}/{}", step.name, hook.name),
            });
            told.collect::<Vec<_>>()
        };
        self.with_whole().iter().flat_map(of_step).collect()
    }

    /// Looks, when nothing is started, and says what is called.
    fn calls(&mut self) -> Vec<String> {
        assert!(self.look().is_empty(), "a run is started");
        self.called()
    }

    /// What came of the hook that is called.
    fn answer(&mut self, phase: HookPhase, message: &str) {
        let steps = self.with_whole();
        let step = steps.iter().find(|step| step.hooks.iter().any(|hook| hook.phase == HookPhase::Running));
        let step = step.expect("a hook is called");
        let hook = step.hooks.iter().find(|hook| hook.phase == HookPhase::Running).unwrap();
        let which = (step.name.clone(), hook.name.clone(), hook.wave);
        let attempts = hook.attempts + 1;
        self.hooks.insert(which, Called { attempts, message: message.to_owned(), phase });
    }

    fn pass(&mut self) {
        self.answer(HookPhase::Succeeded, "");
    }

    fn refuse(&mut self) {
        self.answer(HookPhase::Failed, "it answered 403 Forbidden");
    }

    fn hook(&self, step: &str, name: &str) -> &HookStatus {
        self.step(step).hooks.iter().find(|hook| hook.name == name).unwrap()
    }
}

fn hook(name: &str, more: Value) -> Value {
    let mut hook = json!({"name": name, "url": "https://hooks.example.com", "secretRef": {"name": "s", "key": "k"}});
    hook.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    hook
}

fn plain(name: &str) -> Value {
    hook(name, json!({}))
}

/// A step with hooks before and after a run in each of some workspaces.
fn with_hooks(pre: Value, post: Value) -> Value {
    let mut step = run("dev", &[], &["a", "b"]);
    step["hooks"] = json!({"pre": pre, "post": post});
    step
}

#[test]
fn runs_start_after_pre_hooks_before_post_hooks() {
    let step = with_hooks(json!([plain("one"), plain("two")]), json!([plain("three")]));
    let mut model = Model::new(json!([step, run("prod", &["dev"], &["c"])]));
    assert_eq!(model.calls(), ["dev/one"], "one after the other");
    assert_eq!(model.again, Some(Duration::ZERO));
    assert_eq!(
        (model.phases().as_str(), model.step("dev").message.as_str()),
        ("dev Running, prod Pending", "hook one is called")
    );
    assert_eq!(model.calls(), ["dev/one"]);
    model.answer(HookPhase::Running, "it answered 503");
    model.calls();
    assert_eq!(model.step("dev").message, "hook one is retried: it answered 503");
    assert_eq!((model.hook("dev", "one").attempts, model.hook("dev", "one").completion_time.is_some()), (1, false));
    model.answer(HookPhase::Succeeded, "go on");
    model.second = 7;
    assert_eq!(model.calls(), ["dev/two"]);
    let one = model.hook("dev", "one").clone();
    assert_eq!((one.phase, one.attempts, one.message.as_str()), (HookPhase::Succeeded, 2, "go on"));
    assert_eq!(one.completion_time.unwrap().0.as_second(), 7);
    model.pass();
    assert_eq!(model.look(), ["dev/a", "dev/b"]);
    assert_eq!((model.called().len(), model.step("dev").message.as_str()), (0, ""));
    model.succeed("dev", &["a"]);
    assert_eq!(model.calls(), Vec::<String>::new(), "a run is under way");
    model.succeed("dev", &["b"]);
    assert_eq!(model.calls(), ["dev/three"]);
    assert_eq!(model.phases(), "dev Running, prod Pending");
    model.pass();
    assert_eq!(model.look(), ["prod/c"]);
    assert_eq!(model.phases(), "dev Succeeded, prod Running");
    assert_eq!(model.step("dev").hooks.len(), 3);
}

#[test]
fn rejecting_pre_hook_fails_step_before_runs() {
    let post =
        json!([plain("verify"), hook("tell", json!({"when": "Failure"})), hook("clean", json!({"when": "Always"}))]);
    let mut model = Model::new(json!([with_hooks(json!([plain("ask"), plain("later")]), post)]));
    model.look();
    model.refuse();
    assert_eq!(model.calls(), ["dev/tell"], "those for a failure");
    let why = "hook ask failed: it answered 403 Forbidden";
    assert_eq!(model.step("dev").failure, why);
    model.refuse();
    assert_eq!(model.calls(), ["dev/clean"]);
    model.pass();
    assert_eq!(model.calls(), Vec::<String>::new());
    assert_eq!(model.phases(), "dev Failed");
    assert_eq!((model.step("dev").message.as_str(), model.step("dev").failure.as_str()), (why, ""), "the first counts");
    assert!(model.runs.is_empty());
    let names: Vec<&str> = model.step("dev").hooks.iter().map(|hook| hook.name.as_str()).collect();
    assert_eq!(names, ["ask", "tell", "clean"]);
}

#[test]
fn a_hook_after_the_runs_decides_what_comes_next() {
    let post = json!([hook("sorry", json!({"when": "Failure"})), plain("verify"), plain("later")]);
    let mut model = Model::new(json!([with_hooks(json!([]), post), run("prod", &["dev"], &["c"])]));
    model.look();
    model.succeed("dev", &["a", "b"]);
    assert_eq!(model.calls(), ["dev/verify"]);
    model.refuse();
    assert_eq!(model.calls(), ["dev/sorry"]);
    assert_eq!(model.step("dev").failure, "hook verify failed: it answered 403 Forbidden", "noted when it is called");
    model.pass();
    model.look();
    assert_eq!(model.phases(), "dev Failed, prod Skipped");
}

#[test]
fn what_is_ignored_is_told_and_harms_nothing() {
    let ignored = |name: &str| hook(name, json!({"failurePolicy": "Ignore"}));
    let mut model = Model::new(json!([with_hooks(json!([ignored("ask")]), json!([ignored("verify")]))]));
    model.look();
    model.refuse();
    assert_eq!(model.look(), ["dev/a", "dev/b"]);
    model.succeed("dev", &["a", "b"]);
    model.look();
    model.pass();
    model.look();
    assert_eq!(model.phases(), "dev Succeeded");
    assert_eq!(model.step("dev").message, "hook ask failed: it answered 403 Forbidden, which is ignored");
}

#[test]
fn failed_runs_and_waves_trigger_failure_hooks() {
    let post = json!([plain("verify"), hook("sorry", json!({"when": "Failure"}))]);
    let mut model = Model::new(json!([with_hooks(json!([]), post.clone())]));
    model.look();
    model.fail("dev", "a");
    assert_eq!(model.calls(), Vec::<String>::new(), "a run is under way");
    model.succeed("dev", &["b"]);
    assert_eq!(model.calls(), ["dev/sorry"]);
    model.pass();
    model.look();
    assert_eq!(model.phases(), "dev Failed");
    assert!(model.step("dev").message.ends_with("it broke"), "{}", model.step("dev").message);

    let mut step = with_hooks(json!([]), post);
    step["run"]["health"] = json!({"healthyFor": "1s", "timeout": "1m"});
    let mut model = Model::new(json!([step]));
    model.look();
    model.succeed("dev", &["a", "b"]);
    model.look();
    model.gates.insert("dev".to_owned(), Gate::Unhealthy("it crashes".to_owned()));
    model.second = 60;
    assert_eq!(model.calls(), ["dev/sorry"]);
    // What is healthy by now comes too late.
    model.gates.insert("dev".to_owned(), Gate::Healthy(Duration::from_secs(60)));
    model.pass();
    model.look();
    assert_eq!(model.phases(), "dev Failed");
    assert_eq!(model.step("dev").message, "the deployment of wave 1 of 1 is not healthy: it crashes after 1m");
}

#[test]
fn hooks_may_be_for_each_wave() {
    let wave = |names: &[&str]| json!({"workspaces": names, "pauseAfter": "1m"});
    let each = |name: &str| hook(name, json!({"each": "Wave"}));
    let step = json!({"name": "prod", "hooks": {
        "pre": [plain("first"), each("ask")],
        "post": [each("verify"), hook("sorry", json!({"each": "Wave", "when": "Failure"})), plain("last")],
    }, "run": {"stack": "web", "operation": "Apply", "waves": [wave(&["a"]), wave(&["b", "c"]), wave(&["d"])]}});
    let mut model = Model::new(json!([step]));
    assert_eq!(model.calls(), ["prod/first"]);
    model.pass();
    assert_eq!(model.calls(), ["prod/ask/1"]);
    model.pass();
    assert_eq!(model.look(), ["prod/a"]);
    model.succeed("prod", &["a"]);
    assert_eq!(model.calls(), Vec::<String>::new(), "its pause is not over");
    model.second = 60;
    assert_eq!(model.calls(), ["prod/verify/1"]);
    model.pass();
    assert_eq!(model.calls(), ["prod/ask/2"], "what was answered for the wave before does not count");
    model.pass();
    assert_eq!(model.look(), ["prod/b", "prod/c"]);
    assert_eq!(model.hook("prod", "ask").wave, Some(2));
    model.succeed("prod", &["b", "c"]);
    model.look();
    model.second = 120;
    assert_eq!(model.calls(), ["prod/verify/2"]);
    let mut other = Model::new(serde_json::to_value(&model.steps).unwrap());
    (other.status, other.runs, other.hooks, other.second) =
        (model.status.clone(), model.runs.clone(), model.hooks.clone(), model.second);
    other.refuse();
    assert_eq!(other.calls(), ["prod/sorry/2"]);
    other.pass();
    other.look();
    assert_eq!(other.phases(), "prod Failed");

    model.pass();
    assert_eq!(model.calls(), ["prod/ask/3"]);
    model.pass();
    assert_eq!(model.look(), ["prod/d"]);
    model.succeed("prod", &["d"]);
    model.look();
    model.second = 180;
    assert_eq!(model.calls(), ["prod/verify/3"]);
    model.pass();
    assert_eq!(model.calls(), ["prod/last"]);
    model.pass();
    model.look();
    assert_eq!(model.phases(), "prod Succeeded");
    assert_eq!(model.step("prod").hooks.len(), 4);
}

#[test]
fn waves_without_workspaces_have_no_hooks() {
    let each = |name: &str| hook(name, json!({"each": "Wave"}));
    let waves = json!([{"workspaceSelector": {}}, {"workspaces": ["a"]}, {"workspaceSelector": {}}]);
    let step = json!({"name": "prod", "hooks": {"pre": [plain("first"), each("ask")], "post": [each("verify"), plain("last")]},
        "run": {"stack": "web", "operation": "Apply", "waves": waves}});
    let mut model = Model::new(json!([step]));
    model.look();
    let mut called = Vec::new();
    for _ in 0..20 {
        if model.look() == ["prod/a"] {
            called.push("run".to_owned());
            model.succeed("prod", &["a"]);
        }
        let now = model.called();
        if !now.is_empty() {
            model.pass();
        }
        called.extend(now);
    }
    assert_eq!(called, ["prod/first", "prod/ask/2", "run", "prod/verify/2", "prod/last"]);
    assert_eq!(model.phases(), "prod Succeeded");
}

#[test]
fn paused_workflow_starts_no_hook() {
    let step = with_hooks(json!([plain("one"), plain("two")]), json!([]));
    let mut model = Model::new(json!([step]));
    model.look();
    model.is_paused = true;
    assert_eq!(model.calls(), ["dev/one"]);
    model.pass();
    assert_eq!(model.calls(), Vec::<String>::new());
    assert_eq!(model.hook("dev", "one").phase, HookPhase::Succeeded);
    model.is_paused = false;
    assert_eq!(model.calls(), ["dev/two"]);
    model.is_paused = true;
    model.pass();
    assert_eq!(model.calls(), Vec::<String>::new());
    model.is_paused = false;
    assert_eq!(model.look(), ["dev/a", "dev/b"]);
}

#[test]
fn what_is_called_is_given_up_with_the_workflow() {
    let post = json!([hook("clean", json!({"when": "Always"}))]);
    let mut model = Model::new(json!([with_hooks(json!([plain("ask")]), post.clone())]));
    model.look();
    model.is_ending = true;
    assert_eq!(model.calls(), Vec::<String>::new());
    assert_eq!(model.phases(), "dev Canceled");
    let ask = model.hook("dev", "ask");
    assert_eq!((ask.phase, ask.completion_time.is_some()), (HookPhase::Canceled, true));

    let mut model = Model::new(json!([with_hooks(json!([plain("ask")]), post)]));
    model.look();
    model.refuse();
    assert_eq!(model.calls(), ["dev/clean"]);
    model.is_ending = true;
    model.look();
    assert_eq!(model.phases(), "dev Failed", "it had failed before");
}

#[test]
fn restart_repeats_only_unfinished_hooks() {
    let mut model = Model::new(json!([with_hooks(json!([plain("one"), plain("two")]), json!([]))]));
    model.look();
    let begun = model.status.clone();
    model.pass();
    assert_eq!(model.calls(), ["dev/two"]);
    let ended = model.status.clone();
    // Nothing but the status is left after a crash.
    model.hooks.clear();
    model.status = begun;
    assert_eq!(model.calls(), ["dev/one"]);
    model.status = ended;
    assert_eq!(model.calls(), ["dev/two"]);
    model.pass();
    assert_eq!(model.look(), ["dev/a", "dev/b"]);
}

#[test]
fn status_stays_small_however_many_hooks_there_are() {
    let post: Vec<Value> =
        (0..10).map(|i| hook(&format!("{}-{i}", "h".repeat(61)), json!({"failurePolicy": "Ignore"}))).collect();
    let step = |i: usize| {
        let mut step = run(&format!("step-{i}"), &[], &["a"]);
        step["hooks"] = json!({"post": post});
        step
    };
    let mut model = Model::new(Value::Array((0..10).map(step).collect()));
    model.look();
    model.runs.values_mut().for_each(|seen| seen.phase = RunPhase::Succeeded);
    for _ in 0..11 {
        model.look();
        for step in &model.status.steps {
            for hook in &step.hooks {
                let called = Called { attempts: 1, message: "\u{1f600}".repeat(201), phase: HookPhase::Failed };
                model.hooks.insert((step.name.clone(), hook.name.clone(), hook.wave), called);
            }
        }
    }
    model.look();
    assert_eq!(model.status.steps.iter().map(|step| step.hooks.len()).sum::<usize>(), 100);
    assert!(model.status.steps.iter().all(|step| step.phase == StepPhase::Succeeded), "{}", model.phases());
    let size = serde_json::to_vec(&model.status).unwrap().len();
    assert!(size < 160 << 10, "{size} bytes");
}

/// A run in one workspace, with hooks before and after the whole.
fn with_whole(pre: Value, post: Value) -> Model {
    let hooks = json!({ "name": "", "hooks": { "pre": pre, "post": post } });
    Model { whole: Some(serde_json::from_value(hooks).unwrap()), ..Model::new(json!([run("dev", &[], &["a"])])) }
}

fn when(name: &str, when: &str) -> Value {
    hook(name, json!({ "when": when }))
}

#[test]
fn workflow_hooks_enclose_all_steps() {
    let post = json!([plain("three"), when("sorry", "Failure"), when("always", "Always")]);
    let mut model = with_whole(json!([plain("one"), plain("two")]), post);
    assert_eq!(model.calls(), ["/one"], "one after the other");
    assert_eq!(model.again, Some(Duration::ZERO));
    assert_eq!(model.phases(), "dev Pending");
    model.pass();
    assert_eq!(model.calls(), ["/two"]);
    model.pass();
    assert_eq!(model.look(), ["dev/a"]);
    assert!(model.called().is_empty());
    model.succeed("dev", &["a"]);
    assert_eq!(model.calls(), ["/three"]);
    assert!(!model.is_over);
    model.pass();
    assert_eq!(model.calls(), ["/always"]);
    model.pass();
    assert!(model.calls().is_empty() && model.is_over);
    assert_eq!(model.status.hooks.iter().map(|hook| hook.phase).collect::<Vec<_>>(), [HookPhase::Succeeded; 4]);
    assert!(model.calls().is_empty(), "each is called once");
}

#[test]
fn failed_workflow_pre_hook_skips_all_steps() {
    let post = json!([plain("three"), when("sorry", "Failure"), when("always", "Always")]);
    let mut model = with_whole(json!([plain("one"), plain("two")]), post);
    model.calls();
    model.refuse();
    assert_eq!(model.calls(), ["/sorry"]);
    let why = "hook one failed: it answered 403 Forbidden";
    assert_eq!((model.phases().as_str(), model.step("dev").message.as_str()), ("dev Skipped", why));
    model.pass();
    assert_eq!(model.calls(), ["/always"]);
    model.pass();
    assert!(model.calls().is_empty() && model.is_over);
    assert_eq!(failure_of_whole(&model.status, model.whole.as_ref()).as_deref(), Some(why));

    let ignored = json!([hook("one", json!({"failurePolicy": "Ignore"}))]);
    let mut model = with_whole(ignored, json!([]));
    model.calls();
    model.refuse();
    assert_eq!(model.look(), ["dev/a"]);
    model.succeed("dev", &["a"]);
    assert!(
        model.calls().is_empty() && model.is_over && failure_of_whole(&model.status, model.whole.as_ref()).is_none()
    );
    let told = ignored_of_whole(&model.status, model.whole.as_ref());
    assert_eq!(told.unwrap(), format!("{why}, which is ignored"));
}

#[test]
fn hooks_after_all_steps_hear_of_one_that_failed() {
    let mut model = with_whole(json!([]), json!([plain("three"), when("sorry", "Failure")]));
    assert_eq!(model.look(), ["dev/a"]);
    model.fail("dev", "a");
    assert_eq!(model.calls(), ["/sorry"]);
    assert!(!model.is_over);
    model.pass();
    assert!(model.calls().is_empty() && model.is_over);
}

#[test]
fn pause_delays_and_end_drops_workflow_hooks() {
    let whole = || with_whole(json!([plain("one")]), json!([when("always", "Always")]));
    let mut model = whole();
    model.is_paused = true;
    assert!(model.calls().is_empty());
    model.is_paused = false;
    assert_eq!(model.calls(), ["/one"]);
    model.is_paused = true;
    model.pass();
    assert!(model.calls().is_empty(), "no step begins, either");
    assert_eq!((model.phases().as_str(), model.status.hooks[0].phase), ("dev Pending", HookPhase::Succeeded));

    let mut model = whole();
    model.calls();
    model.is_ending = true;
    model.hooks.clear();
    assert!(model.calls().is_empty());
    assert_eq!((model.phases().as_str(), model.status.hooks[0].phase), ("dev Canceled", HookPhase::Canceled));
    assert!(!model.is_over, "one was not called");

    // Before those after the steps begin, as when it is paused.
    let mut model = whole();
    model.calls();
    model.pass();
    assert_eq!(model.look(), ["dev/a"]);
    model.succeed("dev", &["a"]);
    model.is_paused = true;
    assert!(model.calls().is_empty() && !model.is_over);
    model.is_ending = true;
    assert!(model.calls().is_empty() && !model.is_over, "it did not get to its end");
    assert_eq!(model.phases(), "dev Succeeded");
}
