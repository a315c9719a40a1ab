//! Decides how far the steps of a workflow are and which runs are to be started: a function of its spec, its status and
//! what is seen of its runs.
//!
//! Start at [`advance`]. It changes nothing but the status that it is given, and that is all it remembers: of a step with
//! many runs the number of those that were started, in the order of the workspaces, and which of them are under way. So
//! the same status leads to the same runs, by the same names, whoever goes on from it. Elsewhere: what is called before and after the
//! runs of a step is in [`hooks`].

mod hooks;

use std::{collections::HashMap, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sha2::{Digest as _, Sha256};
use stoa_engine::digest::hex;
use stoa_kinds::{text, workflow::approval::sentence};
use stoa_types::delivery::{
    Decision, RunCounts, RunEnd, RunPhase, RunStep, SelectedWave, Step, StepPhase, StepProgress, StepRun, StepStatus,
    Wave, When, WorkflowStatus,
};

use self::hooks::HookPoint;
pub(super) use self::hooks::{Called, Which, failure_of_whole, has_failed, ignored_of_whole};
use super::gates::{every, note_every};

/// So many runs of a step are listed that have ended, and so many of all steps together.
const LISTED: usize = 20;
const LISTED_IN_ALL: usize = 400;
/// So many runs of a workflow may be under way at once: its status names each of them.
const MOST_ACTIVE: usize = 200;
/// So many bytes may the names of selected workspaces have that the status keeps at once.
const MOST_SELECTED: usize = 256 << 10;
/// So many characters of what a run says are kept.
const LONGEST: usize = 300;

/// What is decided about.
pub(super) struct Situation<'a> {
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    pub(super) steps: &'a [Step],
    /// The hooks before and after all of them, as those of a step.
    pub(super) whole: Option<&'a Step>,
    /// Whether nothing is to begin for now.
    pub(super) is_paused: bool,
    /// Whether nothing is to begin any more.
    pub(super) is_ending: bool,
    /// The runs that the status says are under way, by name; those that are not there were deleted.
    pub(super) runs: &'a HashMap<String, Seen>,
    /// The workspaces of steps that have not ended, wave by wave, by step.
    pub(super) waves: &'a HashMap<String, Vec<Vec<String>>>,
    /// How healthy the waves are whose runs have ended, by step; those that were not looked at yet are missing.
    pub(super) gates: &'a HashMap<String, Gate>,
    /// What came of the hooks that the status says are called, as far as they were.
    pub(super) hooks: &'a HashMap<Which, Called>,
    pub(super) now: &'a Time,
    /// How long ago a moment was that a step has noted, as far as that can be told.
    pub(super) elapsed: &'a (dyn Fn(&str, &Time) -> Duration + Sync),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) uid: String,
    pub(super) phase: RunPhase,
    pub(super) message: String,
}

/// How healthy it is what a wave deployed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// Every look found it so, for this long.
    Healthy(Duration),
    Unhealthy(String),
    Unseen(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// The step's place in the spec.
    pub(super) step: usize,
    pub(super) name: String,
    pub(super) workspace: String,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Decided {
    pub(super) starts: Vec<Start>,
    /// When to look again, if nothing happens before.
    pub(super) again: Option<Duration>,
    /// Whether all steps have ended, and the hooks after them.
    pub(super) is_over: bool,
}

impl Decided {
    fn look_after(&mut self, wait: Duration) {
        self.again = Some(self.again.map_or(wait, |again| again.min(wait)));
    }
}

/// Takes every step as far as it goes.
pub(super) fn advance(status: &mut WorkflowStatus, situation: &Situation<'_>) -> Decided {
    let mut decided = Decided::default();
    if status.steps.is_empty() {
        let pending = |step: &Step| StepStatus { name: step.name.clone(), ..StepStatus::default() };
        status.steps = situation.steps.iter().map(pending).collect();
    }
    // What has ended makes room for others.
    status.steps.iter_mut().filter(|step| !step.runs.is_empty()).for_each(|step| observe(step, situation));
    for i in 0..situation.steps.len() {
        match status.steps[i].phase {
            StepPhase::Running | StepPhase::AwaitingApproval => go_on(status, situation, i, &mut decided),
            _ => {}
        }
    }
    let may_begin = hooks::of_whole(status, situation, true, &mut decided);
    if let Some(why) = hooks::failure_of_whole(status, situation.whole) {
        // One of those before the steps: of those after them there is none that has not ended.
        let pending = status.steps.iter_mut().filter(|step| step.phase == StepPhase::Pending);
        pending.for_each(|step| end(step, situation, StepPhase::Skipped, why.clone()));
    }
    // What begins may end at once, and others begin then.
    while (may_begin || situation.is_ending)
        && (0..situation.steps.len()).any(|i| begin(status, situation, i, &mut decided))
    {}
    let has_ended = status.steps.iter().all(|step| step.phase.is_terminal());
    decided.is_over = has_ended && hooks::of_whole(status, situation, false, &mut decided);
    status.progress = Some(progress(&status.steps));
    decided
}

fn progress(steps: &[StepStatus]) -> StepProgress {
    let count = |of: &[StepPhase]| steps.iter().filter(|step| of.contains(&step.phase)).count() as i64;
    StepProgress {
        total: steps.len() as i64,
        done: count(&[StepPhase::Succeeded]),
        failed: count(&[StepPhase::Failed, StepPhase::Canceled]),
        skipped: count(&[StepPhase::Skipped]),
    }
}

/// The name of the run of a step in a workspace: nothing else makes one of it.
pub(super) fn run_name(workflow: &str, uid: &str, step: &str, workspace: &str) -> String {
    let digest = hex(&Sha256::digest(format!("{uid}/{step}/{workspace}")));
    format!("{workflow}-{}", &digest[..10])
}

enum Turn {
    Now,
    Later,
    Never(String),
}

/// Whether it is the turn of a step, by how those that it depends on ended.
fn turn(status: &WorkflowStatus, steps: &[Step], i: usize) -> Turn {
    let place = |name: &String| steps.iter().position(|step| step.name == *name);
    let before: Vec<usize> = steps[i].depends_on.iter().filter_map(place).collect();
    let ended = |i: &usize| status.steps[*i].phase.is_terminal();
    let other = before.iter().find(|i| ended(i) && status.steps[**i].phase != StepPhase::Succeeded);
    if let (When::Success, Some(other)) = (steps[i].when, other) {
        return Turn::Never(match is_lost(status, steps, *other) {
            true => format!("step {} did not succeed", steps[*other].name),
            false => format!("step {} was skipped", steps[*other].name),
        });
    }
    if !before.iter().all(ended) {
        return Turn::Later;
    }
    let has_failed = before.iter().any(|i| is_lost(status, steps, *i));
    if steps[i].when == When::Failure && !has_failed {
        return Turn::Never("no step that it depends on failed".to_owned());
    }
    Turn::Now
}

/// Whether a step did not succeed, or never began for a step that did not; one that was not asked for is none.
fn is_lost(status: &WorkflowStatus, steps: &[Step], i: usize) -> bool {
    match status.steps[i].phase {
        StepPhase::Failed | StepPhase::Canceled => true,
        StepPhase::Skipped if steps[i].when == When::Success => {
            let place = |name: &String| steps.iter().position(|step| step.name == *name);
            steps[i].depends_on.iter().filter_map(place).any(|before| is_lost(status, steps, before))
        }
        _ => false,
    }
}

/// Begins a step if it is its turn, or ends it if that never comes; whether anything changed.
fn begin(status: &mut WorkflowStatus, situation: &Situation<'_>, i: usize, decided: &mut Decided) -> bool {
    if status.steps[i].phase != StepPhase::Pending {
        return false;
    }
    let step = &situation.steps[i];
    if situation.is_ending {
        end(&mut status.steps[i], situation, StepPhase::Canceled, String::new());
        return true;
    }
    match turn(status, situation.steps, i) {
        Turn::Never(message) => {
            end(&mut status.steps[i], situation, StepPhase::Skipped, message);
            return true;
        }
        Turn::Later => return false,
        Turn::Now if situation.is_paused => return false,
        Turn::Now => {}
    }
    let size = |wave: &Vec<String>| -> usize { wave.iter().map(String::len).sum() };
    let recorded: usize = status.steps.iter().flat_map(|of| &of.selected).map(|wave| size(&wave.workspaces)).sum();
    let of_step = &mut status.steps[i];
    of_step.start_time = Some(situation.now.clone());
    match &step.run {
        Some(run) => {
            of_step.phase = StepPhase::Running;
            let waves = situation.waves.get(&step.name).map_or(&[][..], Vec::as_slice);
            let total: usize = waves.iter().map(Vec::len).sum();
            of_step.counts = Some(RunCounts { total: total as i64, ..RunCounts::default() });
            of_step.wave = Some(1);
            if run.waves.iter().any(|wave| wave.workspace_selector.is_some()) {
                let selected = waves.iter().map(|names| SelectedWave { workspaces: names.clone() });
                of_step.selected = selected.collect();
            }
            if total == 0 {
                let message = "no workspace is selected".to_owned();
                end(of_step, situation, StepPhase::Failed, message);
                return true;
            }
            if !of_step.selected.is_empty() && recorded + waves.iter().map(size).sum::<usize>() > MOST_SELECTED {
                let message = "the selectors match more workspaces than a workflow can record".to_owned();
                end(of_step, situation, StepPhase::Failed, message);
                return true;
            }
            if !of_step.selected.is_empty() {
                of_step.message = skipped_waves(run, waves).unwrap_or_default();
                // They are recorded before the first run is started: labels may be others at the next look.
                decided.look_after(Duration::ZERO);
                return true;
            }
        }
        None => {
            of_step.phase = StepPhase::AwaitingApproval;
            of_step.message = step.approval.as_ref().map(|approval| approval.message.clone()).unwrap_or_default();
        }
    }
    go_on(status, situation, i, decided);
    true
}

/// Takes a step that has begun as far as it goes.
fn go_on(status: &mut WorkflowStatus, situation: &Situation<'_>, i: usize, decided: &mut Decided) {
    let step = &situation.steps[i];
    match &step.run {
        Some(run) => {
            let room = MOST_ACTIVE.saturating_sub(status.steps.iter().map(active).sum());
            let of_step = &mut status.steps[i];
            let most = room.min(usize::try_from(run.max_parallel).unwrap_or(1).saturating_sub(active(of_step)));
            start_runs(of_step, situation, i, run, most, decided);
            tell_runs(of_step);
            trim(&mut of_step.runs, (LISTED_IN_ALL / situation.steps.len()).clamp(1, LISTED));
        }
        None => {
            let approval = status.approvals.iter().find(|approval| approval.step == step.name);
            let ended = match approval {
                Some(approval) if approval.decision == Decision::Approved => {
                    Some((StepPhase::Succeeded, sentence(approval)))
                }
                Some(approval) => Some((StepPhase::Failed, sentence(approval))),
                None => situation.is_ending.then(|| (StepPhase::Canceled, String::new())),
            };
            if let Some((phase, message)) = ended {
                end(&mut status.steps[i], situation, phase, message);
            }
        }
    }
}

fn active(step: &StepStatus) -> usize {
    step.runs.iter().filter(|run| !run.phase.is_terminal()).count()
}

/// Notes what became of the runs that were under way.
fn observe(step: &mut StepStatus, situation: &Situation<'_>) {
    let counts = step.counts.get_or_insert_default();
    for run in step.runs.iter_mut().filter(|run| !run.phase.is_terminal()) {
        match situation.runs.get(&run.name) {
            Some(seen) => {
                (run.phase, run.message) = (seen.phase, cut(&seen.message));
                run.uid.clone_from(&seen.uid);
            }
            None => (run.phase, run.message) = (RunPhase::Canceled, "it was deleted before it ended".to_owned()),
        }
        match run.phase.end() {
            Some(RunEnd::Succeeded) => counts.succeeded += 1,
            Some(RunEnd::Canceled) if situation.is_ending => {}
            Some(RunEnd::Failed | RunEnd::Canceled) => counts.failed += 1,
            None => {}
        }
    }
}

/// Starts at most so many runs of a step, wave by wave, with its hooks, and ends it after the last.
fn start_runs(
    step: &mut StepStatus,
    situation: &Situation<'_>,
    i: usize,
    run: &RunStep,
    most: usize,
    decided: &mut Decided,
) {
    let waves = situation.waves.get(&step.name).map_or(&[][..], Vec::as_slice);
    let spec = &situation.steps[i];
    loop {
        let mut counts = step.counts.unwrap_or_default();
        let active = active(step);
        let failure = failure(step, spec, run);
        if situation.is_ending {
            hooks::cancel(step, situation);
            if active == 0 {
                let (phase, message) = match failure {
                    Some(why) => (StepPhase::Failed, why),
                    None => (StepPhase::Canceled, String::new()),
                };
                end(step, situation, phase, message);
            }
            return;
        }
        let wave = usize::try_from(step.wave.unwrap_or(1)).unwrap_or(1);
        let started = usize::try_from(counts.started).unwrap_or(0);
        let upto = |wave: usize| -> usize { waves.iter().take(wave).map(Vec::len).sum() };
        let (from, until) = (upto(wave - 1), upto(wave));
        let place = |is_end: bool| HookPoint { wave, is_end, is_empty: from == until };
        if let Some(why) = failure {
            if active > 0 {
                return;
            }
            if hooks::after(step, situation, spec, place(false), true, decided) {
                end(step, situation, StepPhase::Failed, why);
            } else {
                step.failure = why;
            }
            return;
        }
        if started < until {
            if started == from && !hooks::before(step, situation, spec, place(started == 0), decided) {
                return;
            }
            if hooks::failure(step, spec).is_some() {
                continue;
            }
            if situation.is_paused {
                return;
            }
            for workspace in waves.iter().flatten().take(until).skip(started).take(most) {
                let name = run_name(situation.name, situation.uid, &step.name, workspace);
                decided.starts.push(Start { step: i, name: name.clone(), workspace: workspace.clone() });
                step.runs.push(StepRun { name, workspace: workspace.clone(), ..StepRun::default() });
                counts.started += 1;
            }
            step.counts = Some(counts);
            return;
        }
        if active > 0 {
            return;
        }
        let is_last = wave >= waves.len();
        let has_ended = is_over(step, situation, run, wave, waves, decided)
            && hooks::after(step, situation, spec, place(is_last), false, decided);
        if let Some(why) = hooks::failure(step, spec) {
            step.failure = why;
            continue;
        }
        if !has_ended {
            return;
        }
        if is_last {
            let notes = [tolerated(counts), skipped_waves(run, waves), hooks::ignored(step, spec)];
            end(step, situation, StepPhase::Succeeded, notes.into_iter().flatten().collect::<Vec<_>>().join("; "));
            return;
        }
        step.wave = Some(wave as i64 + 1);
        (step.wave_time, step.wave_healthy_seconds, step.wave_healthy_time) = (None, None, None);
    }
}

fn failure(step: &StepStatus, spec: &Step, run: &RunStep) -> Option<String> {
    let has_failed = step.counts.is_some_and(|counts| counts.failed > run.max_failures);
    hooks::failure(step, spec).or_else(|| has_failed.then(|| why_failed(step)))
}

/// Whether a wave is over whose runs have ended: once it was healthy for long enough, which is noted, and its pause is over. Of a
/// wave that does not become healthy in time it is noted why the step fails. One that is healthy when the time is up is waited
/// for: it ends soon, either way.
fn is_over(
    step: &mut StepStatus,
    situation: &Situation<'_>,
    run: &RunStep,
    wave: usize,
    waves: &[Vec<String>],
    decided: &mut Decided,
) -> bool {
    if waves.get(wave - 1).is_none_or(Vec::is_empty) {
        return true;
    }
    let pause = run.waves.get(wave - 1).and_then(|wave: &Wave| wave.pause_after.as_ref());
    if pause.is_none() && run.health.is_none() {
        return true;
    }
    let since = step.wave_time.get_or_insert_with(|| situation.now.clone()).clone();
    let passed = (situation.elapsed)(&format!("{}/{wave}", step.name), &since);
    if let Some(gate) = run.health.as_ref().filter(|_| step.wave_healthy_time.is_none()) {
        let seen = situation.gates.get(&step.name);
        let wanted = gate.healthy_for.parse().unwrap_or_default();
        if !matches!(seen, Some(Gate::Healthy(long)) if *long >= wanted) {
            note_healthy(step, seen, wanted);
            let limit = gate.timeout.parse().unwrap_or_default();
            let which = format!("the deployment of wave {wave} of {}", waves.len());
            step.message = match seen {
                Some(Gate::Unhealthy(why)) => cut(&format!("{which} is not healthy: {why}")),
                Some(Gate::Unseen(why)) => cut(&format!("the health of {which} is unknown: {why}")),
                Some(Gate::Healthy(_)) => format!("{which} is healthy and must stay so for {}", gate.healthy_for),
                None => format!("the health of {which} is being checked"),
            };
            let is_late = passed >= limit;
            if is_late && matches!(seen, Some(Gate::Unhealthy(_))) {
                step.failure = format!("{} after {}", step.message, gate.timeout);
            } else {
                // What is looked at is told of once that is over.
                let next = every(gate);
                decided.look_after(if is_late { next } else { next.min(limit - passed) });
            }
            return false;
        }
        step.wave_healthy_seconds = None;
        step.wave_healthy_time = Some(situation.now.clone());
    }
    let Some(text) = pause else { return true };
    let left = text.parse().unwrap_or_default().saturating_sub(passed);
    if left.is_zero() {
        return true;
    }
    decided.look_after(left);
    step.message = format!("wave {wave} of {} is complete; the step continues after {text}", waves.len());
    false
}

/// Notes for how long a wave was healthy, now and then, so that a restart does not begin anew.
fn note_healthy(step: &mut StepStatus, seen: Option<&Gate>, wanted: Duration) {
    match seen {
        Some(Gate::Healthy(long)) => {
            let noted = step.wave_healthy_seconds.and_then(|noted| u64::try_from(noted).ok()).unwrap_or(0);
            if long.saturating_sub(Duration::from_secs(noted)) >= note_every(wanted) {
                step.wave_healthy_seconds = i64::try_from(long.as_secs()).ok();
            }
        }
        Some(Gate::Unhealthy(_)) => step.wave_healthy_seconds = None,
        Some(Gate::Unseen(_)) | None => {}
    }
}

fn end(step: &mut StepStatus, situation: &Situation<'_>, phase: StepPhase, message: String) {
    step.phase = phase;
    step.message = message;
    step.completion_time = Some(situation.now.clone());
    (step.wave, step.wave_time, step.wave_healthy_seconds, step.wave_healthy_time) = (None, None, None, None);
    step.selected.clear();
    step.failure.clear();
}

/// Why a step failed, by the first of its runs that did.
fn why_failed(step: &StepStatus) -> String {
    let failed = step.counts.unwrap_or_default().failed;
    let first = step.runs.iter().find(|run| run.phase.is_terminal() && run.phase != RunPhase::Succeeded);
    let Some(StepRun { name, workspace, message, .. }) = first else {
        return format!("{failed} runs failed");
    };
    let more = if failed > 1 { format!("; {} more failed", failed - 1) } else { String::new() };
    format!("run {name} in workspace {workspace} did not succeed: {message}{more}")
}

/// How many runs failed of a step that takes that, if any did.
fn tolerated(counts: RunCounts) -> Option<String> {
    (counts.failed > 0).then(|| format!("{} of {} runs failed, which is tolerated", counts.failed, counts.total))
}

/// Which waves deploy nothing, since nothing is selected for them, if there are such.
fn skipped_waves(run: &RunStep, waves: &[Vec<String>]) -> Option<String> {
    let of_each = run.waves.iter().zip(waves).enumerate();
    let is_skipped = of_each.filter(|(_, (wave, found))| wave.workspace_selector.is_some() && found.is_empty());
    let skipped: Vec<String> = is_skipped.map(|(i, _)| (i + 1).to_string()).collect();
    let (which, finds) = match skipped.as_slice() {
        [] => return None,
        [one] => (format!("wave {one} of {} is skipped", waves.len()), "its selector finds"),
        many => (format!("waves {} of {} are skipped", many.join(", "), waves.len()), "their selectors find"),
    };
    Some(format!("{which}: {finds} no workspace of the stack that no other wave has"))
}

/// Says of a step under way what it waits for.
fn tell_runs(step: &mut StepStatus) {
    if step.phase.is_terminal() {
        return;
    }
    let mut active = step.runs.iter().filter(|run| !run.phase.is_terminal()).peekable();
    let is_active = active.peek().is_some();
    let waits: Vec<&StepRun> = active.filter(|run| run.phase == RunPhase::AwaitingApproval).collect();
    if let Some(first) = waits.first() {
        let more = if waits.len() > 1 { format!(", and {} more", waits.len() - 1) } else { String::new() };
        step.message =
            format!("the plan of run {} in workspace {} waits for approval{more}", first.name, first.workspace);
        step.phase = StepPhase::AwaitingApproval;
        return;
    }
    step.phase = StepPhase::Running;
    if is_active {
        step.message.clear();
    }
}

/// Keeps so many of the runs that have ended: those that failed, and the last ones.
fn trim(runs: &mut Vec<StepRun>, listed: usize) {
    let has_ended = |run: &&StepRun| run.phase.is_terminal();
    let is_good = |run: &StepRun| run.phase == RunPhase::Succeeded;
    let mut excess = runs.iter().filter(has_ended).count().saturating_sub(listed);
    runs.retain(|run| {
        let goes = excess > 0 && is_good(run);
        excess -= usize::from(goes);
        !goes
    });
    // Those that are under way stay, however many failed.
    runs.retain(|run| {
        let goes = excess > 0 && run.phase.is_terminal();
        excess -= usize::from(goes);
        !goes
    });
}

/// As much of a text as a status has.
pub(super) fn cut(text: &str) -> String {
    text::cut(text, LONGEST)
}

#[cfg(test)]
mod tests;
