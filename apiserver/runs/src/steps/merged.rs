//! What merged pull requests were shown of the plan that a run makes after their merge.
//!
//! Whoever merges agrees to the plan that the pull request was shown. So a run that a trigger starts looks for the plans of
//! those that are merged: where the one that it makes is the same, by digest, that is carried out. Where it is not, but does
//! nothing that was not shown either, it goes on and says so. What nobody was shown waits for somebody to approve it.
//!
//! Elsewhere: `controllers::pull_requests` makes these plans, keeps them for as long as a run may need them, finds out which
//! pull requests are merged, and tells them what became of it.

use std::{collections::BTreeMap, time::Duration};

use kube::ResourceExt as _;
use stoa_controller::events::Kind;
use stoa_engine::{
    Action, Plan, PlannedAction, ResourceId,
    sensitive::{MASK, UNKNOWN},
};
use stoa_kinds::{pull_request, run_status::status, text, trigger};
use stoa_proto::CompareRequest;
use stoa_types::{
    Run, Source,
    common::condition,
    config::SourceStatus,
    delivery::{MergedPlan, Operation, RunPhase, RunStatus},
    labels, reason,
};
use tokio::time::Instant;
use tonic::Code;

use super::plan;
use crate::{StepError, documents, execution::Execution, runner, target::Target};

/// The message while it is not known yet.
const UNKNOWN_MERGES: &str = "it is not known yet which pull requests were merged";
/// How often it looks.
const LOOK: Duration = Duration::from_millis(250);
/// How long Git is asked about all that are not known to be merged.
const COMPARE: Duration = Duration::from_secs(20);

/// So many plans are named in one message.
const NAMED: usize = 5;

/// A plan that a merged pull request was shown.
pub(super) struct Shown {
    plan: MergedPlan,
    document: String,
    spec_digest: String,
}

/// How the plan of a run compares with those that were shown.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) plans: Vec<MergedPlan>,
    /// [`MERGED_PLAN_HOLDS`](reason::MERGED_PLAN_HOLDS), [`PLAN_COVERED`](reason::PLAN_COVERED) or
    /// [`PLAN_STALE`](reason::PLAN_STALE).
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Verdict {
    pub(crate) fn holds(&self) -> bool {
        self.reason == reason::MERGED_PLAN_HOLDS
    }
}

/// The plans that the pull requests were shown whose merge a run follows, in the order of their numbers.
///
/// # Errors
///
/// Canceled when the run is, Retry while it is not known which were merged, and whatever keeps runs from being read.
pub(super) async fn shown(execution: &mut Execution, target: &Target) -> Result<Vec<Shown>, StepError> {
    let run = &execution.run;
    let follows = run.spec.operation == Operation::Apply && run.spec.plan.is_none() && trigger::is_triggered(run);
    if !follows || target.source().is_err() {
        return Ok(Vec::new());
    }
    let commit = status(run).source.unwrap_or_default().commit;
    let (mut merged, mut others) = candidates(execution, target).await?;
    if !others.is_empty() {
        await_word(execution, target, &commit).await?;
        (merged, others) = candidates(execution, target).await?;
    }
    if !others.is_empty() {
        // The server may be a moment behind its repository.
        let until = Instant::now() + COMPARE;
        let source = target.proto_source(&execution.services).await?;
        let mut unknown = Vec::new();
        for other in others {
            let planned = status(&other).source.unwrap_or_default().commit;
            match is_in(execution, &source, [&commit, &planned], until).await? {
                Some(true) => merged.push(other),
                Some(false) => {}
                None => unknown.push(other.name_any()),
            }
        }
        if !unknown.is_empty() {
            let named = text::first(&unknown, NAMED, ", ");
            execution.note(format!("warning: the commits of {named} could not be checked for a merge"));
        }
    }
    let mut shown: Vec<Shown> = merged.iter().filter_map(shown_by).collect();
    shown.sort_by_key(|shown| shown.plan.number);
    Ok(shown)
}

/// The unfollowed plans of pull requests for the Run's deployment: those known as merged, and the others.
async fn candidates(execution: &Execution, target: &Target) -> Result<(Vec<Run>, Vec<Run>), StepError> {
    let (stack, workspace) = (target.stack.name_any(), target.workspace.name_any());
    // A project may have had another.
    let source = target.source()?.name_any();
    let of_stack = format!("{}={stack}", labels::STACK);
    let all = execution.services.lookup.api::<Run>()?.list(Some(&target.namespace()), &of_stack).await?;
    let is_followed = |preview: &Run| all.iter().any(|run| pull_request::has_followed(run, preview));
    let is_one = |run: &&Run| {
        pull_request::is_plan(run)
            && run.labels().get(labels::SOURCE) == Some(&source)
            && (&run.spec.stack, &run.spec.workspace) == (&stack, &workspace)
            && run.metadata.deletion_timestamp.is_none()
            && status(run).stack_uid == target.stack.metadata.uid
            && run.spec.planned() == Operation::Apply
            && shown_by(run).is_some()
            && !is_followed(run)
    };
    Ok(all.iter().filter(is_one).cloned().partition(|run| status(run).merged))
}

/// What a pull request was shown by this Preview, if it made a plan.
fn shown_by(preview: &Run) -> Option<Shown> {
    let found = status(preview);
    let (Some(source), Some(planned)) = (found.source, found.plan) else { return None };
    if found.phase != RunPhase::Succeeded {
        return None;
    }
    let url = found.requester.extra.get(labels::PULL_REQUEST).and_then(|urls| urls.first().cloned());
    let plan = MergedPlan {
        source: preview.labels().get(labels::SOURCE)?.clone(),
        number: preview.labels().get(labels::PULL_REQUEST)?.parse().ok()?,
        url: url.unwrap_or_default(),
        commit: source.commit,
        run: preview.name_any(),
        run_uid: preview.uid()?,
        digest: planned.digest,
        carried_out: false,
    };
    Some(Shown { plan, document: planned.document, spec_digest: source.spec_digest? })
}

/// WaitingCondition until it is known which pull requests were merged into the commit that a run is for. A server that is away, as the
/// source says then, is waited for no longer than that: it is not to keep anything from being deployed. What nobody has
/// found out yet is waited for until the run's time is up, with its place given away: a plan that nobody was shown would be
/// carried out otherwise.
///
/// # Errors
///
/// Retry when it is not known yet, Canceled when the run is.
async fn await_word(execution: &mut Execution, target: &Target, commit: &str) -> Result<(), StepError> {
    let name = target.source()?.name_any();
    let waiting = condition(&status(&execution.run).conditions, reason::WAITING).cloned();
    let has_waited = waiting.is_some_and(|waiting| waiting.message.starts_with(UNKNOWN_MERGES));
    let until = Instant::now() + if has_waited { Duration::ZERO } else { execution.services.merges_patience };
    let mut looked_at: Option<String> = None;
    loop {
        let found = execution.services.lookup.api::<Source>()?.get_opt(&target.namespace(), &name).await?;
        let Some(source) = found.filter(|source| source.spec.pull_requests.is_some()) else { return Ok(()) };
        let now = source.status.unwrap_or_default();
        if let Some(known) = &now.merges_known_at {
            if now.merges_known_at == now.observed_commit || known == commit {
                return Ok(());
            }
            // The branch may move on faster than anybody looks.
            if looked_at.as_ref() != Some(known) {
                let asked = target.proto_source(&execution.services).await?;
                if is_in(execution, &asked, [known, commit], Instant::now() + COMPARE).await? == Some(true) {
                    return Ok(());
                }
                looked_at = Some(known.clone());
            }
        }
        if Instant::now() >= until {
            if !is_away(&now) {
                return Err(StepError::Retry(UNKNOWN_MERGES.to_owned()));
            }
            let message = "only Git shows which pull requests were merged";
            execution.journal.note("Planning", format!("warning: {message}"));
            return Ok(());
        }
        execution.unless_canceled(tokio::time::sleep(LOOK)).await?;
    }
}

/// Whether a source says that the server of its pull requests cannot be asked. One that does not take what it is told can be.
fn is_away(source: &SourceStatus) -> bool {
    let planned = condition(&source.conditions, reason::PULL_REQUESTS_PLANNED);
    let reasons = [reason::PULL_REQUESTS_UNAVAILABLE, reason::REFERENCE_NOT_FOUND];
    planned.is_some_and(|planned| planned.status == "False" && reasons.contains(&planned.reason.as_str()))
}

/// Whether the second commit is in the history of the first; nothing where that cannot be found out in time.
///
/// # Errors
///
/// Canceled when the run is, and whatever it means for the run that function-runners went away in the middle of that.
async fn is_in(
    execution: &mut Execution,
    source: &stoa_proto::Source,
    [base, commit]: [&str; 2],
    until: Instant,
) -> Result<Option<bool>, StepError> {
    let (base, commit) = (base.to_owned(), commit.to_owned());
    let request = CompareRequest { source: Some(source.clone()), base, commit, ..CompareRequest::default() };
    let runners = execution.runners();
    let answer = execution.unless_canceled(tokio::time::timeout_at(until, runners.compare(request))).await?;
    Ok(match answer {
        Ok(Ok(response)) => Some(response.get_ref().is_in_base),
        // A commit that is not there any more is in no history.
        Ok(Err(status)) if status.code() == Code::NotFound => Some(false),
        // What is compared may be what ends them.
        Ok(Err(status)) if runner::broken_calls(&status) > 0 => {
            return Err(execution.refused(&status, reason::SOURCE_UNREACHABLE));
        }
        Ok(Err(_)) | Err(_) => None,
    })
}

/// How a plan compares with those that were shown, if any were.
pub(super) async fn verdict(
    execution: &mut Execution,
    target: &Target,
    shown: Vec<Shown>,
    (now, digest): (&Plan, &str),
) -> Result<Option<Verdict>, StepError> {
    let mut plans: Vec<MergedPlan> = shown.iter().map(|shown| shown.plan.clone()).collect();
    // Several may be the same, such as of a pull request that was opened again.
    if let Some(same) = plans.iter_mut().rfind(|plan| plan.digest == digest) {
        same.carried_out = true;
        let message = format!("plan {digest} is the one that {} was shown", pull_request(same));
        return Ok(Some(Verdict { plans, reason: reason::MERGED_PLAN_HOLDS, message }));
    }
    if plans.is_empty() {
        return Ok(None);
    }
    let named: Vec<String> = plans.iter().map(|plan| format!("{} ({})", pull_request(plan), plan.digest)).collect();
    let named = named.join(" and ");
    let spec_digest = status(&execution.run).source.and_then(|source| source.spec_digest).unwrap_or_default();
    let mut then = Vec::new();
    for one in &shown {
        match documents::get(&*target.documents, &target.scope(), &one.document).await {
            Ok(bytes) => match documents::plan(&bytes).await {
                Ok(plan) => then.push((one.spec_digest == spec_digest, plan)),
                Err(error) => execution.note(format!("warning: {}: {error}", one.plan.run)),
            },
            Err(StepError::Failed { message, .. }) => execution.note(format!("warning: {}: {message}", one.plan.run)),
            Err(halt) => return Err(halt),
        }
    }
    let is_covered = now.actions.iter().all(|action| then.iter().any(|(same, plan)| covers(plan, action, *same)));
    let changed = match together(then.into_iter().map(|(_, plan)| plan)) {
        Some(then) => plan::changed(execution, &then, now),
        None => "the shown plan cannot be read any more".to_owned(),
    };
    let (reason, then) = if is_covered {
        (reason::PLAN_COVERED, "makes no change that was not in it")
    } else {
        (reason::PLAN_STALE, "was made instead, and the merge did not approve it")
    };
    let message = format!("the plan that {named} was shown no longer holds: {changed}. Plan {digest} {then}");
    Ok(Some(Verdict { plans, reason, message }))
}

/// Puts on record how the plan compares, and tells of it.
pub(super) fn tell(execution: &mut Execution, verdict: &Verdict) {
    execution.note(verdict.message.clone());
    let kind = if verdict.holds() { Kind::Normal } else { Kind::Warning };
    execution.services.recorder.record(&execution.run, kind, verdict.reason, &verdict.message);
}

/// Who asks for an approval since a merged pull request was shown another plan.
pub(super) fn asking(status: &RunStatus) -> Option<String> {
    let told = condition(&status.conditions, reason::MERGED_PLAN_HOLDS)?;
    let merged: Vec<String> = status.merged_plans.iter().map(pull_request).collect();
    (told.reason == reason::PLAN_STALE)
        .then(|| format!("the merge of {}, where another was shown", merged.join(" and ")))
}

fn pull_request(plan: &MergedPlan) -> String {
    format!("pull request {}", plan.number)
}

/// Several plans as one: of a resource, what the last of those that change it does.
fn together(plans: impl Iterator<Item = Plan>) -> Option<Plan> {
    plans.reduce(|mut all, plan| {
        let mut by_id: BTreeMap<ResourceId, PlannedAction> =
            all.actions.drain(..).map(|action| (action.id.clone(), action)).collect();
        for action in plan.actions {
            if action.action != Action::Unchanged || !by_id.contains_key(&action.id) {
                by_id.insert(action.id.clone(), action);
            }
        }
        Plan { actions: by_id.into_values().collect(), ..plan }
    })
}

/// Whether a shown plan has this action. A read changes nothing. A masked or unknown value counts only with the same Spec.
fn covers(then: &Plan, now: &PlannedAction, is_same_spec: bool) -> bool {
    if matches!(now.action, Action::Read | Action::Unchanged) {
        return true;
    }
    let Some(then) = then.actions.iter().find(|then| then.id == now.id) else { return false };
    let hides = |change: &stoa_engine::FieldChange| {
        let after = change.after.as_ref().map(ToString::to_string).unwrap_or_default();
        after.contains(MASK) || after.contains(UNKNOWN)
    };
    // Of what is there a field may be as it is wanted by now; what is made without one is something else.
    let is_whole = !matches!(now.action, Action::Create | Action::Replace) || now.changes.len() == then.changes.len();
    is_whole
        && bare(then) == bare(now)
        && now.changes.iter().all(|change| then.changes.contains(change) && (is_same_spec || !hides(change)))
        && now.taken.iter().all(|taken| then.taken.contains(taken))
}

/// An action without what it says field by field, and without its order.
fn bare(action: &PlannedAction) -> PlannedAction {
    PlannedAction {
        changes: Vec::new(),
        taken: Vec::new(),
        after: Vec::new(),
        depends_on: Vec::new(),
        unverified: action.unverified.as_ref().map(|_| String::new()),
        ..action.clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use stoa_engine::document;

    use super::*;

    fn plan(actions: Value) -> Plan {
        let plan = json!({"schemaVersion": 1, "specDigest": "", "actions": actions});
        document::decode(plan.to_string().as_bytes()).unwrap()
    }

    fn update(id: &str, fields: &[(&str, &str)]) -> Value {
        let changes: Vec<Value> =
            fields.iter().map(|(path, after)| json!({"path": path, "before": "a", "after": after})).collect();
        json!({"id": id, "type": "Kubernetes", "action": "Update", "changes": changes})
    }

    #[test]
    fn shown_action_covers_only_itself() {
        let then = plan(json!([update("a", &[("x", "1"), ("y", "2"), ("s", MASK)])]));
        let check = |now: Value, is_same_spec, expected| {
            let now = plan(json!([now]));
            assert_eq!(covers(&then, &now.actions[0], is_same_spec), expected, "{now:?}");
        };
        check(update("a", &[("x", "1"), ("y", "2")]), false, true);
        check(update("a", &[("y", "2")]), false, true);
        check(update("a", &[("y", "3")]), true, false);
        check(update("a", &[("z", "1")]), true, false);
        check(update("b", &[("x", "1")]), true, false);
        check(update("a", &[("s", MASK)]), true, true);
        check(update("a", &[("s", MASK)]), false, false);
        check(json!({"id": "b", "type": "Kubernetes", "action": "Unchanged"}), false, true);
        let mut recreated = update("a", &[("x", "1")]);
        recreated["action"] = "Replace".into();
        check(recreated, true, false);
        for made in ["Create", "Replace"] {
            let action = |fields: &[(&str, &str)]| {
                let mut action = update("a", fields);
                action["action"] = made.into();
                plan(json!([action]))
            };
            let [whole, part] = [action(&[("x", "1"), ("y", "2")]), action(&[("x", "1")])];
            assert!(covers(&whole, &whole.actions[0], false), "{made}");
            assert!(!covers(&whole, &part.actions[0], true), "{made} without a field that was shown");
        }
        let mut ordered = update("a", &[("x", "1")]);
        ordered["after"] = json!(["b"]);
        check(ordered, false, true);
    }

    #[test]
    fn last_plan_of_a_resource_counts() {
        let unchanged = json!({"id": "a", "type": "Kubernetes", "action": "Unchanged"});
        let first = plan(json!([update("a", &[("x", "1")]), update("b", &[("x", "1")])]));
        let second = plan(json!([unchanged, update("b", &[("x", "2")]), update("c", &[])]));
        let all = together([first, second].into_iter()).unwrap();
        let expected = plan(json!([update("a", &[("x", "1")]), update("b", &[("x", "2")]), update("c", &[])]));
        assert_eq!(all.actions, expected.actions);
        assert!(together(std::iter::empty()).is_none());
    }
}
