//! The schedule of a walk: actions that may start, since their predecessors and all earlier stages have succeeded.
//!
//! Start at [`Schedule::of`]. An action that only reads, keeps or drops a record waits for its predecessors, and not
//! for its [`Stage`].

use std::collections::{BTreeMap, HashMap, VecDeque};

use stoa_engine::{Action, Plan, PlannedAction, ResourceId, Stage};

/// The actions of a plan that have not succeeded yet.
#[derive(Debug)]
pub(crate) struct Schedule<'p> {
    actions: HashMap<&'p ResourceId, &'p PlannedAction>,
    /// The number of unfinished predecessors of each action.
    waits: HashMap<&'p ResourceId, usize>,
    successors: HashMap<&'p ResourceId, Vec<&'p ResourceId>>,
    /// The number of unfinished actions of each stage.
    open: BTreeMap<Stage, usize>,
    /// Actions that wait for nothing but their stage.
    waiting: BTreeMap<Stage, Vec<&'p ResourceId>>,
    /// Actions that may begin. The order of the plan keeps walks alike.
    ready: VecDeque<&'p ResourceId>,
}

impl<'p> Schedule<'p> {
    pub(crate) fn of(plan: &'p Plan) -> Self {
        let actions: HashMap<&ResourceId, &PlannedAction> = plan.actions.iter().map(|it| (&it.id, it)).collect();
        let mut schedule = Self {
            waits: HashMap::with_capacity(actions.len()),
            actions,
            successors: HashMap::new(),
            open: BTreeMap::new(),
            waiting: BTreeMap::new(),
            ready: VecDeque::new(),
        };
        for action in &plan.actions {
            let before: Vec<_> = action.after.iter().filter(|id| schedule.actions.contains_key(id)).collect();
            schedule.waits.insert(&action.id, before.len());
            before.into_iter().for_each(|id| schedule.successors.entry(id).or_default().push(&action.id));
            if counts(action) {
                *schedule.open.entry(action.stage()).or_default() += 1;
            }
        }
        for action in plan.actions.iter().filter(|it| schedule.waits[&it.id] == 0).collect::<Vec<_>>() {
            schedule.offer(action);
        }
        schedule
    }

    /// The next action that may begin.
    pub(crate) fn first(&self) -> Option<&'p PlannedAction> {
        self.ready.front().map(|id| self.actions[*id])
    }

    /// Takes the next action off the schedule.
    pub(crate) fn begin(&mut self) {
        self.ready.pop_front();
    }

    /// The actions that come directly after one.
    pub(crate) fn successors(&self, id: &ResourceId) -> impl Iterator<Item = &'p PlannedAction> {
        self.successors.get(id).into_iter().flatten().map(|id| self.actions[*id])
    }

    /// Has the actions begin that waited for one that has succeeded.
    pub(crate) fn succeeded(&mut self, id: &ResourceId) {
        for next in self.successors.get(id).cloned().unwrap_or_default() {
            let left = self.waits.get_mut(next).expect("every action of the plan is counted");
            *left -= 1;
            if *left == 0 {
                self.offer(self.actions[next]);
            }
        }
        let action = self.actions[id];
        let Some(left) = self.open.get_mut(&action.stage()).filter(|_| counts(action)) else { return };
        *left -= 1;
        if *left > 0 {
            return;
        }
        self.open.remove(&action.stage());
        let current = self.stage();
        while let Some(waiting) = self.waiting.first_entry().filter(|it| current.is_none_or(|now| *it.key() <= now)) {
            self.ready.extend(waiting.remove());
        }
    }

    /// The stage that the walk is in; `None` after the last.
    fn stage(&self) -> Option<Stage> {
        self.open.keys().next().copied()
    }

    /// Whether an earlier stage blocks an action.
    pub(crate) fn is_blocked(&self, action: &PlannedAction) -> bool {
        action.action.is_call() && self.stage().is_some_and(|now| action.stage() > now)
    }

    fn offer(&mut self, action: &'p PlannedAction) {
        if self.is_blocked(action) {
            self.waiting.entry(action.stage()).or_default().push(&action.id);
        } else {
            self.ready.push_back(&action.id);
        }
    }
}

/// Whether later stages wait for an action.
fn counts(action: &PlannedAction) -> bool {
    action.action != Action::Forget
}
