//! The store of the model test: records that outlive a process, as the API server writes them.

use std::collections::{BTreeMap, BTreeSet};

use stoa_apply::{Intended, ResourceOutcome, ResourceResult};
use stoa_engine::{Action, OpenCall, ResourceId, State, StateResource};

#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    records: BTreeMap<ResourceId, StateResource>,
    open: BTreeMap<ResourceId, OpenCall>,
    /// The run that last finished a resource, except Unchanged ones.
    done: BTreeMap<ResourceId, String>,
    owed: BTreeSet<ResourceId>,
    /// Intents of this try where there were none before.
    intended: BTreeSet<ResourceId>,
}

impl Store {
    /// Another conversation begins.
    pub(crate) fn begin(&mut self) {
        self.intended.clear();
    }

    pub(crate) fn intent(&mut self, calls: &[Intended], action: Action, run: &str) {
        for Intended { id, place } in calls {
            // An import calls for nothing: what an earlier call made, only its result tells.
            if action == Action::Import && self.open.contains_key(id) {
                continue;
            }
            let call = OpenCall { id: id.clone(), action, run: run.to_owned(), place: place.clone(), retry: false };
            if self.open.insert(id.clone(), call).is_none() {
                self.intended.insert(id.clone());
            }
        }
    }

    pub(crate) fn result(&mut self, result: &ResourceResult, run: &str) {
        let id = &result.id;
        if result.outcome == ResourceOutcome::Skipped {
            if self.intended.remove(id) {
                self.open.remove(id);
            }
            return;
        }
        self.done.remove(id);
        match (result.outcome, &result.resource) {
            (ResourceOutcome::Done | ResourceOutcome::Failed, Some(resource)) => {
                self.records.insert(id.clone(), resource.clone());
            }
            (ResourceOutcome::Done, None) => drop(self.records.remove(id)),
            (ResourceOutcome::Failed | ResourceOutcome::Skipped | ResourceOutcome::Unknown, _) => {}
        }
        let is_failed_import = result.action == Action::Import && result.outcome != ResourceOutcome::Done;
        let is_of_another_call = self.open.get(id).is_some_and(|call| call.action != Action::Import);
        if result.outcome != ResourceOutcome::Unknown && !(is_failed_import && is_of_another_call) {
            self.open.remove(id);
        }
        if result.outcome == ResourceOutcome::Done && result.action != Action::Unchanged {
            self.done.insert(id.clone(), run.to_owned());
            if result.action.is_call() {
                self.owed.insert(id.clone());
            }
        }
    }

    /// A user confirms that a lost call left nothing behind.
    pub(crate) fn retry(&mut self, id: &ResourceId) {
        self.open.get_mut(id).into_iter().for_each(|call| call.retry = true);
    }

    pub(crate) fn is_healthy(&mut self, id: &ResourceId) {
        self.owed.remove(id);
    }

    pub(crate) fn state(&self) -> State {
        State { resources: self.records.values().cloned().collect(), open: self.open.values().cloned().collect() }
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = &StateResource> {
        self.records.values()
    }

    pub(crate) fn record(&self, id: &ResourceId) -> Option<&StateResource> {
        self.records.get(id)
    }

    pub(crate) fn open(&self) -> impl Iterator<Item = &OpenCall> {
        self.open.values()
    }

    pub(crate) fn intent_of(&self, id: &ResourceId) -> Option<&OpenCall> {
        self.open.get(id)
    }

    /// The resources that a run finished and did not call again.
    pub(crate) fn done_by(&self, run: &str) -> Vec<ResourceId> {
        let done = self.done.iter().filter(|(id, by)| *by == run && !self.open.contains_key(*id));
        done.map(|(id, _)| id.clone()).collect()
    }

    pub(crate) fn owed(&self) -> Vec<ResourceId> {
        let open = self.open.keys().filter(|id| !self.owed.contains(*id));
        self.owed.iter().chain(open).cloned().collect()
    }
}
