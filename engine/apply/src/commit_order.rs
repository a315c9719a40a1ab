//! The order of a walk with a deferred runtime, whose changes are all made by one finishing step.
//!
//! Start at [`split`]. A call of another runtime that comes after a deferred change waits for the finishing step: a
//! database is deleted after the files that use it. A deferred change that comes after such a call would need a second
//! finishing step, so that [`problems`] rejects the plan.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};

use stoa_engine::{Action, Plan, PlannedAction, Problem, ResourceId, ResourceType, Stage, problem::reason};

/// A plan in two parts: the second one begins after the finishing step.
#[derive(Debug)]
pub(crate) struct Parts<'p> {
    pub(crate) first: Cow<'p, Plan>,
    /// `None` for most plans.
    pub(crate) second: Option<Plan>,
}

/// The relations of the actions of a plan to the finishing step.
#[derive(Debug, Default)]
struct Relations<'p> {
    /// Calls of other runtimes that come after a deferred call, with that call.
    waiting: HashMap<&'p ResourceId, &'p ResourceId>,
    /// Actions that come after a waiting call, with that call.
    after_waiting: HashMap<&'p ResourceId, &'p ResourceId>,
}

/// Finds the relations. Actions have the order of the plan: predecessors first.
fn relations<'p>(plan: &'p Plan, is_deferred: &dyn Fn(ResourceType) -> bool) -> Relations<'p> {
    let is_deferred_call = |it: &PlannedAction| it.action.is_call() && is_deferred(it.kind);
    let earliest = |of: &mut dyn Iterator<Item = &'p PlannedAction>| {
        of.map(|it| (it.stage(), &it.id)).min_by_key(|(stage, _)| *stage)
    };
    let deferred: HashSet<&ResourceId> =
        plan.actions.iter().filter(|it| is_deferred_call(it)).map(|it| &it.id).collect();
    let mut found = Relations::default();
    let Some(first) = earliest(&mut plan.actions.iter().filter(|it| is_deferred_call(it))) else { return found };
    // A stage begins when all calls of the earlier ones are made.
    let by_stage = |it: &PlannedAction, of: Option<(Stage, &'p ResourceId)>| {
        of.filter(|(stage, _)| it.action.is_call() && it.stage() > *stage).map(|(_, id)| id)
    };
    let mut after_deferred: HashMap<&ResourceId, &ResourceId> = HashMap::new();
    for action in &plan.actions {
        let before = |before: &'p ResourceId| deferred.get(before).or_else(|| after_deferred.get(before)).copied();
        if let Some(call) = action.after.iter().find_map(before).or_else(|| by_stage(action, Some(first))) {
            after_deferred.insert(&action.id, call);
            if action.action.is_call() && !is_deferred(action.kind) {
                found.waiting.insert(&action.id, call);
            }
        }
    }
    let first_waiting = earliest(&mut plan.actions.iter().filter(|it| found.waiting.contains_key(&it.id)));
    for action in &plan.actions {
        let before = |before: &'p ResourceId| {
            let waiting = found.waiting.get_key_value(before).map(|(id, _)| *id);
            waiting.or_else(|| found.after_waiting.get(before).copied())
        };
        if let Some(call) = action.after.iter().find_map(before).or_else(|| by_stage(action, first_waiting)) {
            found.after_waiting.insert(&action.id, call);
        }
    }
    found
}

/// The deferred changes that come after a call that waits for the finishing step.
pub(crate) fn problems(plan: &Plan, is_deferred: impl Fn(ResourceType) -> bool) -> Vec<Problem> {
    let relations = relations(plan, &is_deferred);
    let late = plan.actions.iter().filter(|it| it.action.is_call() && is_deferred(it.kind));
    let problem = |it: &PlannedAction| {
        let waiting = relations.after_waiting.get(&it.id)?;
        let first = relations.waiting.get(waiting)?;
        let message = format!(
            "its change comes after that of {waiting}, which waits for the commit with the change of {first}; a run \
             makes one commit, so make these changes in two runs"
        );
        Some(Problem::new(reason::INVALID_SPEC, message).of(&it.id))
    };
    late.filter_map(problem).collect()
}

/// Splits a plan at the finishing step of the deferred runtime. Both parts have the ephemeral resources, which each part
/// opens for its own calls.
pub(crate) fn split(
    plan: &Plan,
    is_deferred: impl Fn(ResourceType) -> bool,
    is_ephemeral: impl Fn(&ResourceId) -> bool,
) -> Parts<'_> {
    let relations = relations(plan, &is_deferred);
    let is_second = |it: &PlannedAction| match it.action.is_call() {
        true => relations.waiting.contains_key(&it.id),
        false => relations.after_waiting.contains_key(&it.id),
    };
    let second: BTreeSet<&ResourceId> = plan.actions.iter().filter(|it| is_second(it)).map(|it| &it.id).collect();
    let is_in_second = |it: &PlannedAction| second.contains(&it.id);
    let is_in_both = |it: &PlannedAction| it.action == Action::Read && is_ephemeral(&it.id);
    let part = |of_second: bool| Plan {
        actions: plan.actions.iter().filter(|it| is_in_second(it) == of_second || is_in_both(it)).cloned().collect(),
        ..plan.clone()
    };
    if second.is_empty() {
        return Parts { first: Cow::Borrowed(plan), second: None };
    }
    Parts { first: Cow::Owned(part(false)), second: Some(part(true)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: ResourceType = ResourceType::Kubernetes;
    const CLOUD: ResourceType = ResourceType::Terraform;

    fn plan(actions: &[(&str, ResourceType, Action, &[&str])]) -> Plan {
        let actions = actions.iter().map(|(id, kind, action, after)| PlannedAction {
            after: after.iter().map(|id| ResourceId::from(*id)).collect(),
            ..PlannedAction::new((*id).into(), *kind, *action)
        });
        Plan { actions: actions.collect(), ..Plan::of("sha256:x") }
    }

    /// The ids of both parts.
    fn parts(plan: &Plan) -> [Vec<String>; 2] {
        let Parts { first, second } = split(plan, |kind| kind == FILE, |id| id.0.starts_with("token"));
        let ids = |plan: Plan| plan.actions.into_iter().map(|it| it.id.0).collect();
        [ids(first.into_owned()), second.map(ids).unwrap_or_default()]
    }

    fn late(plan: &Plan) -> Vec<String> {
        problems(plan, |kind| kind == FILE).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn changes_before_files_do_not_wait() {
        let plan = plan(&[
            ("db", CLOUD, Action::Create, &[]),
            ("config", FILE, Action::Create, &["db"]),
            ("kept", FILE, Action::Unchanged, &[]),
            ("bucket", CLOUD, Action::Update, &["kept"]),
        ]);
        assert_eq!(parts(&plan), [vec!["db", "config", "kept", "bucket"], vec![]]);
        assert!(late(&plan).is_empty());
    }

    #[test]
    fn database_is_deleted_after_commit() {
        let plan = plan(&[
            ("config", FILE, Action::Delete, &[]),
            ("db", CLOUD, Action::Delete, &["config"]),
            ("network", CLOUD, Action::Delete, &["db"]),
            ("record", FILE, Action::Forget, &["network"]),
        ]);
        assert_eq!(parts(&plan), [vec!["config"], vec!["db", "network", "record"]]);
        assert!(late(&plan).is_empty());
    }

    #[test]
    fn deletions_wait_for_files_of_earlier_stages() {
        let plan = plan(&[
            ("config", FILE, Action::Update, &[]),
            ("user", CLOUD, Action::Create, &[]),
            ("db", CLOUD, Action::Delete, &[]),
            ("old", FILE, Action::Delete, &[]),
        ]);
        assert_eq!(parts(&plan), [vec!["config", "user", "old"], vec!["db"]]);
        assert!(late(&plan).is_empty());
    }

    #[test]
    fn ephemeral_resources_are_in_both_parts() {
        let plan = plan(&[
            ("token", CLOUD, Action::Read, &[]),
            ("data", CLOUD, Action::Read, &[]),
            ("config", FILE, Action::Create, &[]),
            ("db", CLOUD, Action::Create, &["config", "token", "data"]),
        ]);
        assert_eq!(parts(&plan), [vec!["token", "data", "config"], vec!["token", "db"]]);
    }

    #[test]
    fn order_passes_through_unchanged_resources() {
        let plan = plan(&[
            ("config", FILE, Action::Update, &[]),
            ("kept", CLOUD, Action::Unchanged, &["config"]),
            ("db", CLOUD, Action::Update, &["kept"]),
        ]);
        assert_eq!(parts(&plan), [vec!["config", "kept"], vec!["db"]]);
    }

    #[test]
    fn second_commit_is_a_problem() {
        let plan = plan(&[
            ("config", FILE, Action::Create, &[]),
            ("db", CLOUD, Action::Create, &["config"]),
            ("users", FILE, Action::Create, &["db"]),
            ("old", FILE, Action::Delete, &[]),
        ]);
        let why = "its change comes after that of db, which waits for the commit with the change of config; a run \
                   makes one commit, so make these changes in two runs";
        assert_eq!(late(&plan), [format!("users: {why}"), format!("old: {why}")]);
    }
}
