//! Events of Workflows, and the message about hooks that are retried.

use stoa_controller::events::Kind;
use stoa_runs::Services;
use stoa_types::{
    Workflow,
    common::condition,
    delivery::{HookPhase, HookStatus, StepPhase, WorkflowStatus},
    reason,
};

use super::{machine, status};

pub(super) fn tell(services: &Services, old: &Workflow, new: &Workflow) {
    let (before, after) = (status(old), status(new));
    let phase_before = |name: &str| before.steps.iter().find(|step| step.name == name).map(|step| step.phase);
    for step in &after.steps {
        let was = phase_before(&step.name).unwrap_or_default();
        if was == step.phase {
            continue;
        }
        let (kind, why) = match step.phase {
            StepPhase::Running if was == StepPhase::Pending => (Kind::Normal, reason::STEP_STARTED),
            StepPhase::AwaitingApproval => (Kind::Normal, reason::AWAITING_APPROVAL),
            StepPhase::Succeeded => (Kind::Normal, reason::STEP_SUCCEEDED),
            StepPhase::Failed => (Kind::Warning, reason::STEP_FAILED),
            StepPhase::Pending | StepPhase::Running | StepPhase::Skipped | StepPhase::Canceled => continue,
        };
        let message = if step.message.is_empty() { String::new() } else { format!(": {}", step.message) };
        services.recorder.record(new, kind, why, format!("step {}{message}", step.name));
    }
    tell_hooks(services, &before, new, &after);
    if !after.phase.is_terminal() {
        return;
    }
    let ends = [(reason::COMPLETE, Kind::Normal), (reason::FAILED, Kind::Warning)];
    for (type_, kind) in ends {
        if let Some(end) = condition(&after.conditions, type_) {
            services.recorder.record(new, kind, &end.reason, end.message.clone());
        }
    }
}

/// Records how hooks ended, and that they are tried again.
fn tell_hooks(services: &Services, before: &WorkflowStatus, new: &Workflow, after: &WorkflowStatus) {
    let steps = after.steps.iter().enumerate().map(|(i, step)| {
        let known = before.steps.get(i).map_or(&[][..], |step| step.hooks.as_slice());
        (format!("step {}", step.name), known, step.hooks.as_slice())
    });
    let whole = ("the workflow".to_owned(), before.hooks.as_slice(), after.hooks.as_slice());
    for (of, known, hooks) in steps.chain([whole]) {
        for hook in hooks {
            let was = known.iter().find(|was| was.name == hook.name && was.wave == hook.wave);
            if let Some(said) = retried(&of, hook)
                && was.is_none_or(|was| was.message.is_empty())
            {
                // Once: what the next tries come to may be something else each time.
                services.recorder.record(new, Kind::Warning, reason::HOOK_RETRIED, said);
            }
            let (kind, why, ended) = match hook.phase {
                phase if was.is_some_and(|was| was.phase == phase) => continue,
                HookPhase::Succeeded => (Kind::Normal, reason::HOOK_SUCCEEDED, "let it continue"),
                HookPhase::Failed => (Kind::Warning, reason::HOOK_FAILED, "failed"),
                HookPhase::Running | HookPhase::Canceled => continue,
            };
            let message = if hook.message.is_empty() { String::new() } else { format!(": {}", hook.message) };
            let told = format!("hook {} of {of} {ended}{message}", hook.name);
            services.recorder.record(new, kind, why, told);
        }
    }
}

/// Which hooks are tried again, and why, if any are.
pub(super) fn retried_hooks(state: &WorkflowStatus) -> Option<String> {
    let steps = state.steps.iter().map(|step| (format!("step {}", step.name), &step.hooks));
    let all = steps.chain([("the workflow".to_owned(), &state.hooks)]);
    let said: Vec<String> =
        all.flat_map(|(of, hooks)| hooks.iter().filter_map(|hook| retried(&of, hook)).collect::<Vec<_>>()).collect();
    (!said.is_empty()).then(|| machine::cut(&said.join("; ")))
}

/// What is said of a hook of which a try failed and which is tried again.
fn retried(of: &str, hook: &HookStatus) -> Option<String> {
    let is_retried = hook.phase == HookPhase::Running && !hook.message.is_empty();
    is_retried.then(|| format!("hook {} of {of} is retried: {}", hook.name, hook.message))
}
