//! What references lead to while a plan is carried out: the results of this walk, and what was
//! live before it.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;
use serde_json::{Map, Value};
use stoa_engine::{
    Action, Plan, Problem, Resource, ResourceId, Sensitive, Spec, State, StateResource,
    lookup::Settled,
    problem::reason,
    reference::Reference,
    resolve::{Looked, occurrences, resolve},
};
use stoa_runtime::{Live, ReadRequest, Runtime, RuntimeError};

/// A resource ready to be applied.
#[derive(Debug)]
pub(crate) struct Ready {
    /// With all references replaced.
    pub(crate) desired: Resource,
    /// What of it is sensitive.
    pub(crate) sensitive: Sensitive,
}

/// The values of a walk.
#[derive(Debug)]
pub(crate) struct Values {
    wanted: HashMap<ResourceId, Resource>,
    settled: Mutex<HashMap<ResourceId, Settled>>,
}

impl Values {
    pub(crate) fn new(spec: &Spec) -> Self {
        let wanted = spec.resources.iter().map(|r| (r.id.clone(), r.clone())).collect();
        Self { wanted, settled: Mutex::default() }
    }

    /// Replaces the references of a resource; everything it refers to is settled by then.
    pub(crate) fn ready(&self, id: &ResourceId) -> Result<Ready, Problem> {
        let resource = self.wanted.get(id).ok_or_else(|| {
            Problem::new(reason::STALE_PLAN, "the plan names a resource that the Spec does not have").of(id)
        })?;
        let resolved = self.resolve(resource)?;
        if let Some(path) = resolved.unknown.first() {
            let message = format!("the value for {path} is still not known");
            return Err(Problem::new(reason::DANGLING_REFERENCE, message).of(id).at(format!("attributes.{path}")));
        }
        let sensitive = Sensitive::of(&resolved.attributes, &resolved.sensitive);
        let desired = Resource { attributes: resolved.attributes, ..resource.clone() };
        Ok(Ready { desired, sensitive })
    }

    fn resolve(&self, resource: &Resource) -> Result<stoa_engine::resolve::Resolved, Problem> {
        let settled = self.settled.lock();
        let known = |id: &str| self.wanted.contains_key(&ResourceId(id.to_owned()));
        let mut lookup = |reference: &Reference| match settled.get(&reference.id) {
            Some(target) => target.look(reference),
            None => Ok(Looked::Unknown),
        };
        resolve(&resource.attributes, &known, &mut lookup).map_err(|errors| {
            let (field, error) = &errors[0];
            Problem::new(error.reason(), error.to_string()).of(&resource.id).at(format!("attributes.{field}"))
        })
    }

    /// Takes in what is live of a resource, so that others can refer to it. What does not resolve
    /// is told by whoever applies it.
    pub(crate) fn settle(&self, id: &ResourceId, live: Map<String, Value>) {
        let Some(resource) = self.wanted.get(id) else { return };
        if let Ok(resolved) = self.resolve(resource) {
            let settled = Settled::new(resource, resolved, Action::Unchanged, Some(live));
            self.settled.lock().insert(id.clone(), settled);
        }
    }

    /// Settles everything that is not to be called for, in the order of the plan. What others need
    /// of it and the record does not have in clear is read again.
    pub(crate) async fn settle_rest(
        &self,
        runtime: &dyn Runtime,
        plan: &Plan,
        state: &State,
        finished: &BTreeSet<&ResourceId>,
    ) -> Result<(), RuntimeError> {
        let is_rest = |id: &ResourceId, action: Action| action == Action::Unchanged || finished.contains(id);
        let known = |id: &str| self.wanted.contains_key(&ResourceId(id.to_owned()));
        let mut needed: BTreeSet<ResourceId> = BTreeSet::new();
        for planned in plan.actions.iter().filter(|p| !is_rest(&p.id, p.action)) {
            let Some(resource) = self.wanted.get(&planned.id) else { continue };
            needed.extend(occurrences(&resource.attributes, &known).0.into_iter().map(|o| o.reference.id));
        }
        let rest: Vec<&StateResource> = plan
            .actions
            .iter()
            .filter(|p| is_rest(&p.id, p.action) && p.action.keeps())
            .filter_map(|p| state.get(&p.id))
            .collect();
        let to_read: Vec<&StateResource> = rest.iter().copied().filter(|r| needed.contains(&r.id)).collect();
        let requests: Vec<ReadRequest<'_>> =
            to_read.iter().map(|prior| ReadRequest { desired: None, prior: Some(prior) }).collect();
        let mut fresh: HashMap<&ResourceId, Map<String, Value>> = HashMap::new();
        if !requests.is_empty() {
            for (prior, found) in to_read.iter().zip(runtime.read(&requests).await?) {
                if let Ok(Live::Present(live)) = found {
                    fresh.insert(&prior.id, live);
                }
            }
        }
        for prior in rest {
            let live = fresh.remove(&prior.id).unwrap_or_else(|| prior.live.clone());
            self.settle(&prior.id, live);
        }
        Ok(())
    }
}
