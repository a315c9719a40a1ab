//! Stages of a walk: the order of kinds without dependencies.
//!
//! Start at `assign`. An action of one stage starts when all actions of earlier stages have succeeded. A stage stands
//! for many edges of a graph: an admission configuration follows every other object, and a deletion every change.
//!
//! Elsewhere: [`KindRules`](crate::kind_rules::KindRules) names the stage of a kind, `dependencies` has the edges
//! between objects that need each other, and `planner::order` reverses them for deletions.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::plan::{Action, PlannedAction};
use crate::spec::ResourceId;

/// A part of a walk, in the order of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stage {
    /// Creations and changes.
    Changes,
    /// Deletions that a creation or change waits for, and these changes: one Service releases a port, another claims it.
    Exchanges,
    /// Creations and changes of admission configurations, and of resources that depend on one.
    Admission,
    /// Deletions of admission configurations: a webhook whose server is deleted rejects every request.
    AdmissionDeletions,
    /// Deletions of custom resources, which their controller has to clean up.
    CustomResourceDeletions,
    /// All other deletions.
    Deletions,
}

impl Stage {
    /// The stage of an action where its kind does not matter.
    pub fn of(action: Action) -> Self {
        match action {
            Action::Create
            | Action::Update
            | Action::Replace
            | Action::Adopt
            | Action::Import
            | Action::Read
            | Action::Unchanged => Self::Changes,
            Action::Delete | Action::Forget => Self::Deletions,
        }
    }
}

/// Sets the stage of every action. `actions` are ordered; `stage_of` returns the stage of an action by its kind.
///
/// A dependency wins over the order of kinds. A resource that depends on an admission configuration is applied after it, in
/// its stage. A deletion that another action waits for is made in the stage of that, after all other changes: while one of
/// these may fail, the object has to stay.
pub fn assign(actions: &mut [PlannedAction], stage_of: impl Fn(&PlannedAction) -> Stage) {
    let own: Vec<Stage> = actions.iter().map(stage_of).collect();
    let position: HashMap<&ResourceId, usize> = actions.iter().enumerate().map(|(at, it)| (&it.id, at)).collect();
    let before: Vec<Vec<usize>> =
        actions.iter().map(|it| it.after.iter().filter_map(|id| position.get(id).copied()).collect()).collect();
    // Whether it is a deletion, or the removal of a record that comes after one.
    let mut deletes = vec![false; actions.len()];
    for at in 0..actions.len() {
        let action = actions[at].action;
        deletes[at] = !action.keeps() && (action == Action::Delete || before[at].iter().any(|first| deletes[*first]));
    }
    // The latest stage of a change that comes before, whatever is in between.
    let mut latest = vec![Stage::Changes; actions.len()];
    for at in 0..actions.len() {
        let of_before = before[at].iter().map(|first| latest[*first]).max();
        let of_own = match actions[at].action.keeps() {
            true if before[at].iter().any(|first| deletes[*first]) => own[at].max(Stage::Exchanges),
            true => own[at],
            false => Stage::Changes,
        };
        latest[at] = of_before.map_or(of_own, |stage| stage.max(of_own));
    }
    let mut stages: Vec<Stage> =
        (0..actions.len()).map(|at| if actions[at].action.keeps() { latest[at] } else { own[at] }).collect();
    for at in (0..actions.len()).rev() {
        for first in &before[at] {
            if !actions[*first].action.keeps() {
                stages[*first] = stages[*first].min(stages[at]);
            }
        }
    }
    for (action, stage) in actions.iter_mut().zip(stages) {
        action.stage = Some(stage).filter(|stage| *stage != Stage::of(action.action));
    }
}
