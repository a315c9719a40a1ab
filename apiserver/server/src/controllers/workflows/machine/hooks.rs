//! The hooks of a step, or of the workflow as a whole: which of them is to be called, and what it means for the step how that ended.
//!
//! They are called one after the other. That one is to be called is noted first, and it is called because it is noted: so it is
//! called again after a crash, until it is noted how that ended, and never after.

use std::time::Duration;

use stoa_kinds::workflow::hook::{find, hooks_of, wave_of};
use stoa_types::delivery::{
    Hook, HookFailurePolicy, HookPhase, HookScope, HookStatus, Step, StepPhase, StepStatus, When, WorkflowStatus,
};

use super::{Decided, Situation};

/// A hook that is called: its step, its name, and the wave, where it is for each.
pub(in crate::controllers::workflows) type Which = (String, String, Option<i64>);

/// What came of the calls of a hook so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::controllers::workflows) struct Called {
    pub(in crate::controllers::workflows) attempts: i64,
    /// What the last try came to.
    pub(in crate::controllers::workflows) message: String,
    /// Running as long as it is tried.
    pub(in crate::controllers::workflows) phase: HookPhase,
}

/// The place of a step's runs at which hooks are called.
#[derive(Clone, Copy, Debug)]
pub(super) struct HookPoint {
    /// The number of the wave, from 1.
    pub(super) wave: usize,
    /// Whether nothing of the step comes before, or after it.
    pub(super) is_end: bool,
    pub(super) is_empty: bool,
}

impl HookPoint {
    fn is_for(self, hook: &Hook) -> bool {
        match hook.each {
            HookScope::Step => self.is_end,
            HookScope::Wave => !self.is_empty,
        }
    }
}

/// Whether all hooks have ended that come before the runs of a wave; calls the next one, unless it is paused.
pub(super) fn before(
    step: &mut StepStatus,
    situation: &Situation<'_>,
    spec: &Step,
    place: HookPoint,
    decided: &mut Decided,
) -> bool {
    let is_due = |step: &StepStatus, hook: &Hook| place.is_for(hook) && failure(step, spec).is_none();
    all_ended(step, situation, hooks_of(spec).0, place.wave, is_due, decided)
}

/// The same of those that come after them, or are for a step that fails.
pub(super) fn after(
    step: &mut StepStatus,
    situation: &Situation<'_>,
    spec: &Step,
    place: HookPoint,
    has_failed: bool,
    decided: &mut Decided,
) -> bool {
    let is_due = |step: &StepStatus, hook: &Hook| {
        let has_failed = has_failed || failure(step, spec).is_some();
        match hook.when {
            When::Success => !has_failed && place.is_for(hook),
            When::Failure => has_failed,
            When::Always => has_failed || place.is_for(hook),
        }
    };
    all_ended(step, situation, hooks_of(spec).1, place.wave, is_due, decided)
}

/// Advances the hooks of the workflow, those before or after all steps; whether they have ended.
pub(super) fn of_whole(
    status: &mut WorkflowStatus,
    situation: &Situation<'_>,
    is_pre: bool,
    decided: &mut Decided,
) -> bool {
    let Some(spec) = situation.whole else { return true };
    let has_failed = has_failed(status, Some(spec));
    let mut whole = StepStatus { hooks: std::mem::take(&mut status.hooks), ..StepStatus::default() };
    let situation = &Situation { is_paused: situation.is_paused || situation.is_ending, ..*situation };
    let place = HookPoint { wave: 1, is_end: true, is_empty: false };
    let all_ended = if is_pre {
        before(&mut whole, situation, spec, place, decided)
    } else {
        after(&mut whole, situation, spec, place, has_failed, decided)
    };
    if situation.is_ending {
        cancel(&mut whole, situation);
    }
    status.hooks = whole.hooks;
    all_ended
}

/// Whether a workflow fails by how its steps ended, or the hooks of the whole.
pub(in crate::controllers::workflows) fn has_failed(status: &WorkflowStatus, whole: Option<&Step>) -> bool {
    let is_lost = |step: &StepStatus| matches!(step.phase, StepPhase::Failed | StepPhase::Canceled);
    status.steps.iter().any(is_lost) || failure_of_whole(status, whole).is_some()
}

/// Why a workflow fails by the hooks of the whole, if it does.
pub(in crate::controllers::workflows) fn failure_of_whole(
    status: &WorkflowStatus,
    whole: Option<&Step>,
) -> Option<String> {
    told(&status.hooks, whole?, HookFailurePolicy::Fail)
}

/// Which hooks of the whole failed without harm.
pub(in crate::controllers::workflows) fn ignored_of_whole(
    status: &WorkflowStatus,
    whole: Option<&Step>,
) -> Option<String> {
    told(&status.hooks, whole?, HookFailurePolicy::Ignore).map(|why| format!("{why}, which is ignored"))
}

fn all_ended(
    step: &mut StepStatus,
    situation: &Situation<'_>,
    hooks: &[Hook],
    wave: usize,
    is_due: impl Fn(&StepStatus, &Hook) -> bool,
    decided: &mut Decided,
) -> bool {
    for hook in hooks {
        let of = wave_of(hook, wave);
        if !step.hooks.iter().any(|status| status.name == hook.name && status.wave == of) {
            if !is_due(step, hook) {
                continue;
            }
            if situation.is_paused {
                return false;
            }
            step.hooks.retain(|status| status.name != hook.name);
            let start_time = Some(situation.now.clone());
            step.hooks.push(HookStatus { name: hook.name.clone(), wave: of, start_time, ..HookStatus::default() });
            decided.look_after(Duration::ZERO);
        }
        if !has_ended(step, situation, &hook.name) {
            return false;
        }
    }
    true
}

/// Whether a hook has ended, after noting what came of it.
fn has_ended(step: &mut StepStatus, situation: &Situation<'_>, name: &str) -> bool {
    let Some(status) = step.hooks.iter_mut().find(|status| status.name == name) else { return true };
    if status.phase != HookPhase::Running {
        return true;
    }
    if let Some(called) = situation.hooks.get(&(step.name.clone(), name.to_owned(), status.wave)) {
        status.attempts = status.attempts.max(called.attempts);
        status.message.clone_from(&called.message);
        status.phase = called.phase;
    }
    let has_ended = status.phase != HookPhase::Running;
    if has_ended {
        status.completion_time = Some(situation.now.clone());
    }
    step.message = match (has_ended, status.message.as_str()) {
        (true, _) => String::new(),
        (false, "") => format!("hook {name} is called"),
        // Nothing may have been called yet, as where the Secret is missing.
        (false, why) => format!("hook {name} is retried: {why}"),
    };
    has_ended
}

/// Why a step fails by its hooks or by what was noted, if it does.
pub(super) fn failure(step: &StepStatus, spec: &Step) -> Option<String> {
    if !step.failure.is_empty() {
        return Some(step.failure.clone());
    }
    told(&step.hooks, spec, HookFailurePolicy::Fail)
}

/// Which hooks failed without harm.
pub(super) fn ignored(step: &StepStatus, spec: &Step) -> Option<String> {
    told(&step.hooks, spec, HookFailurePolicy::Ignore).map(|why| format!("{why}, which is ignored"))
}

/// The first hook that failed of those with a policy, and why.
fn told(hooks: &[HookStatus], spec: &Step, policy: HookFailurePolicy) -> Option<String> {
    let is_one = |status: &&HookStatus| {
        let hook = find(spec, &status.name);
        status.phase == HookPhase::Failed && hook.is_some_and(|(hook, _)| hook.failure_policy == policy)
    };
    let HookStatus { name, message, .. } = hooks.iter().find(is_one)?;
    Some(format!("hook {name} failed: {message}"))
}

pub(super) fn cancel(step: &mut StepStatus, situation: &Situation<'_>) {
    for status in step.hooks.iter_mut().filter(|status| status.phase == HookPhase::Running) {
        status.phase = HookPhase::Canceled;
        status.completion_time = Some(situation.now.clone());
    }
}
