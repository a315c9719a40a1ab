//! Values of references during a walk: the results of this walk, and live objects from before it.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde_json::{Map, Value};
use stoa_engine::{
    DigestKeys, FieldPath, Ignored, Problem, Resource, ResourceId, ResourceType, Sensitive, Spec, StateResource,
    bounds::Budget,
    declared::declared,
    diff::{Comparison, three_way},
    lookup::Settled,
    object::{is_secret, uid_of},
    planner::{disagreement, with_attributes},
    problem::reason,
    reference::{Reference, ReferenceError},
    resolve::{Lookup, Resolved, references, resolve},
    secret_digest::contains_mask,
};
use stoa_runtime::{Live, ReadRequest, Runtime, RuntimeError};

use crate::ephemeral::without;

/// A resource ready to be applied.
#[derive(Debug)]
pub(crate) struct Ready {
    /// With all references replaced.
    pub(crate) desired: Resource,
    /// The same as it is recorded: without write-only values, and with the paths of sensitive values from references.
    pub(crate) resolved: Resolved<'static>,
    pub(crate) sensitive: Sensitive,
}

impl Ready {
    /// Whether an apply may change the live object, as far as a comparison without a dry run shows.
    pub(crate) fn differs_from(&self, prior: &StateResource, live: &Map<String, Value>, keys: &DigestKeys) -> bool {
        let ignored = Ignored::of(&self.desired).unwrap_or_default();
        let desired = ignored.resolved(self.resolved.clone(), live);
        let comparison = Comparison {
            id: prior.digest_id(),
            kind: self.desired.kind,
            prior: Some(&prior.attributes),
            // Nothing of it is shown.
            records: &[],
            unsure: false,
            desired: &desired,
            live,
            keys,
            schema: None,
        };
        !three_way(&comparison).is_empty()
    }
}

#[derive(Debug)]
pub(crate) struct Values {
    runtime: Arc<dyn Runtime>,
    wanted: HashMap<ResourceId, Resource>,
    /// The texts in all Secrets that are wanted, and in those that were seen live.
    secrets: Mutex<Sensitive>,
    settled: Mutex<HashMap<ResourceId, Settled<'static>>>,
    /// The expansion of references so far.
    budget: Mutex<Budget>,
    /// Which of them has which object.
    uids: Mutex<HashMap<String, ResourceId>>,
    /// Live objects of resources without a call.
    read: Mutex<HashMap<ResourceId, Map<String, Value>>>,
    /// Whether all referenced objects were read.
    is_read: AtomicBool,
}

impl Values {
    pub(crate) fn new(spec: &Spec, runtime: Arc<dyn Runtime>) -> Self {
        let wanted = spec.resources.iter().map(|r| (r.id.clone(), r.clone())).collect();
        let mut secrets = Sensitive::default();
        for resource in &spec.resources {
            let by_schema = runtime.providers().sensitive_paths(resource, &resource.attributes);
            secrets.extend_texts(&Sensitive::of(&resource.attributes, &by_schema));
        }
        Self {
            runtime,
            wanted,
            secrets: Mutex::new(secrets),
            settled: Mutex::default(),
            budget: Mutex::default(),
            uids: Mutex::default(),
            read: Mutex::default(),
            is_read: AtomicBool::default(),
        }
    }

    /// A wanted resource as the Spec has it.
    pub(crate) fn wanted(&self, id: &ResourceId) -> Option<&Resource> {
        self.wanted.get(id)
    }

    /// The texts of all wanted Secrets, and of those that were read live. A lost call may have set some of them
    /// elsewhere.
    pub(crate) fn secrets(&self) -> Sensitive {
        // A copy that shares the texts: a search may take long, and others settle meanwhile.
        self.secrets.lock().clone()
    }

    /// Takes in the texts of a live Secret, or at the paths that are sensitive by a schema, which may have some that the
    /// Spec does not say. What is recorded has none.
    fn add_secret_texts(&self, live: &Map<String, Value>, by_schema: &BTreeSet<FieldPath>) {
        if (is_secret(live) || !by_schema.is_empty()) && !live.values().any(contains_mask) {
            self.secrets.lock().extend_texts(&Sensitive::of(live, by_schema));
        }
    }

    /// Adds the texts of all recorded Secrets and objects of providers as they are live, since the Spec may have dropped
    /// some. Unreadable ones are skipped.
    pub(crate) async fn read_secrets(&self, runtime: &dyn Runtime, recorded: &[StateResource]) {
        let has_secrets =
            |record: &&StateResource| is_secret(&record.attributes) || runtime.providers().decides(record.kind);
        let secrets: Vec<&StateResource> = recorded.iter().filter(has_secrets).collect();
        if secrets.is_empty() {
            return;
        }
        let applied: Vec<Resource> = secrets.iter().map(|record| record.as_applied()).collect();
        let decided: Vec<&Resource> =
            applied.iter().filter(|applied| runtime.providers().decides(applied.kind)).collect();
        if !decided.is_empty() && runtime.providers().prepare(&decided).await.is_err() {
            return;
        }
        let requests: Vec<ReadRequest<'_>> =
            secrets.iter().map(|record| ReadRequest { desired: None, prior: Some(record) }).collect();
        for (applied, found) in applied.iter().zip(runtime.read(&requests).await.into_iter().flatten()) {
            if let Ok(Live::Present(live)) = found {
                self.add_secret_texts(&live, &runtime.providers().sensitive_paths(applied, &live));
            }
        }
    }

    /// Whether a wanted resource refers to others.
    pub(crate) fn refers(&self, id: &ResourceId) -> bool {
        let known = |id: &str| self.wanted.contains_key(id);
        self.wanted.get(id).is_some_and(|resource| !references(&resource.attributes, &known).0.is_empty())
    }

    /// Whether all referenced values were read or applied, rather than recorded.
    pub(crate) fn are_read(&self) -> bool {
        self.is_read.load(Ordering::Relaxed)
    }

    /// The wanted resource whose settled object has this uid.
    pub(crate) fn of_uid(&self, uid: &str) -> Option<ResourceId> {
        self.uids.lock().get(uid).cloned()
    }

    /// Resolves the references of a resource; all referenced ones are settled by then.
    pub(crate) fn ready(&self, id: &ResourceId) -> Result<Ready, Problem> {
        self.resolved(id, true)
    }

    /// The same of a resource without a call, whose write-only values nobody needs: an ephemeral resource is not opened for it.
    pub(crate) fn ready_to_record(&self, id: &ResourceId) -> Result<Ready, Problem> {
        self.resolved(id, false)
    }

    fn resolved(&self, id: &ResourceId, is_called: bool) -> Result<Ready, Problem> {
        let resource = self.wanted.get(id).ok_or_else(|| {
            Problem::new(reason::STALE_PLAN, "the plan names a resource that the Spec does not have").of(id)
        })?;
        let mut resolved = self.resolve(resource)?;
        if !is_called && !resolved.unknown.is_empty() {
            let unwritten = self.runtime.providers().write_only_paths(resource, &resource.attributes);
            resolved.unknown.retain(|at| !unwritten.iter().any(|path| at.0.starts_with(&path.0)));
            resolved.attributes = Cow::Owned(without(resolved.attributes.into_owned(), &unwritten));
        }
        if let Some(path) = resolved.unknown.first() {
            let message = format!("the value of {path} is still unknown");
            return Err(Problem::new(reason::DANGLING_REFERENCE, message).of(id).at(format!("attributes.{path}")));
        }
        if let Some(problem) = disagreement(resource, &resolved) {
            return Err(problem);
        }
        let sensitive = Sensitive::of(&resolved.attributes, &resolved.sensitive);
        let desired = with_attributes(resource, resolved.attributes.clone().into_owned());
        let mut resolved = resolved.into_owned();
        let write_only = self.runtime.providers().write_only_paths(resource, &resolved.attributes);
        if !write_only.is_empty() {
            resolved.attributes = Cow::Owned(without(resolved.attributes.into_owned(), &write_only));
        }
        Ok(Ready { desired, resolved, sensitive })
    }

    fn resolve<'r>(&self, resource: &'r Resource) -> Result<Resolved<'r>, Problem> {
        let settled = self.settled.lock();
        let known = |id: &str| self.wanted.contains_key(id);
        let mut lookup = |reference: &Reference| match settled.get(&reference.id) {
            Some(target) => match target.lookup(reference) {
                Ok(Lookup::Known { value, .. }) if contains_mask(value) => {
                    let message = format!("{reference} is sensitive, and only its digest is recorded");
                    Err(ReferenceError::Dangling(message))
                }
                looked => looked,
            },
            None => Ok(Lookup::Unknown),
        };
        let mut budget = self.budget.lock();
        let resolved = resolve(resource, &known, &mut lookup, &mut budget).map_err(|errors| {
            // Its values are dropped, so that others may use the budget.
            budget.give_back(&resource.id);
            let (field, error) = &errors[0];
            Problem::new(error.reason(), error.to_string()).of(&resource.id).at(format!("attributes.{field}"))
        });
        let mut resolved = resolved?;
        let by_schema = self.runtime.providers().sensitive_paths(resource, &resolved.attributes);
        resolved.sensitive.extend(by_schema);
        resolved.sensitive.extend(declared(resource));
        Ok(resolved)
    }

    /// Settles a resource with its live object, so that others can refer to it. The apply reports unresolved
    /// references.
    pub(crate) fn settle(&self, id: &ResourceId, live: Map<String, Value>) {
        let Some(resource) = self.wanted.get(id) else { return };
        let by_schema = self.runtime.providers().sensitive_paths(resource, &live);
        self.add_secret_texts(&live, &by_schema);
        if let Some(uid) = uid_of(&live) {
            self.uids.lock().insert(uid.to_owned(), id.clone());
        }
        if let (Ok(resolved), Ok(ignored)) = (self.resolve(resource), Ignored::of(resource)) {
            let mut resolved = ignored.resolved(resolved, &live);
            resolved.sensitive.extend(by_schema);
            let settled = Settled::applied(resource, resolved.into_owned(), live);
            self.settled.lock().insert(id.clone(), settled);
        }
    }

    /// Settles a resource without a call, as it was read or recorded. All referenced ones are settled by then.
    pub(crate) fn settle_uncalled(&self, id: &ResourceId, recorded: Option<&StateResource>) {
        let live = self.read.lock().remove(id);
        if let Some(live) = live.or_else(|| recorded.map(|recorded| recorded.live.clone())) {
            self.settle(id, live);
        }
    }

    /// Reads the referenced values of resources without a call, if `is_wanted`, or if an action refers to them. Records
    /// may be outdated, and have no sensitive values.
    pub(crate) async fn read_uncalled(
        &self,
        runtime: &dyn Runtime,
        is_left: impl Fn(&ResourceId) -> bool,
        is_wanted: bool,
        recorded: &HashMap<&ResourceId, &StateResource>,
    ) -> Result<(), RuntimeError> {
        if !is_wanted && self.wanted.keys().all(&is_left) {
            return Ok(());
        }
        self.is_read.store(true, Ordering::Relaxed);
        let known = |id: &str| self.wanted.contains_key(id);
        let needed: BTreeSet<ResourceId> = self
            .wanted
            .values()
            .flat_map(|resource| references(&resource.attributes, &known).0)
            .filter(|reference| is_left(&reference.id) && !self.is_written(reference))
            .map(|reference| reference.id)
            .collect();
        let priors: Vec<(&ResourceId, &StateResource)> =
            needed.iter().filter_map(|id| Some((id, recorded.get(id).copied()?))).collect();
        if priors.is_empty() {
            return Ok(());
        }
        let requests: Vec<ReadRequest<'_>> =
            priors.iter().map(|(_, prior)| ReadRequest { desired: None, prior: Some(prior) }).collect();
        let found = runtime.read(&requests).await?;
        let mut read = self.read.lock();
        for ((id, _), found) in priors.iter().zip(found) {
            if let Live::Present(live) = found? {
                read.insert((*id).clone(), live);
            }
        }
        Ok(())
    }

    /// Whether the Spec itself has the value, so that no read is needed.
    fn is_written(&self, reference: &Reference) -> bool {
        let known = |id: &str| self.wanted.contains_key(id);
        let target = self.wanted.get(&reference.id);
        // A provider may convert the value.
        let is_converted = target.is_some_and(|it| it.kind == ResourceType::Terraform);
        if is_converted || target.is_some_and(|it| Ignored::of(it).is_ok_and(|it| it.touches(&reference.path))) {
            return false;
        }
        target.and_then(|target| reference.path.get(&target.attributes)).is_some_and(|value| {
            let alone = Map::from_iter([("value".to_owned(), value.clone())]);
            references(&alone, &known).0.is_empty()
        })
    }
}
