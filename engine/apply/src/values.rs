//! What references lead to while a plan is carried out: the results of this walk, and what was
//! live before it.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde_json::{Map, Value};
use stoa_engine::{
    DigestKeys, FieldPath, Ignored, Problem, Resource, ResourceId, Schema, Sensitive, Spec, StateResource,
    bounds::Budget,
    diff::{Comparison, against_preview, three_way},
    lookup::Settled,
    masks::contains_mask,
    object::{is_secret, uid_of},
    planner::{disagreement, with_attributes},
    problem::reason,
    reference::{Reference, ReferenceError},
    resolve::{Looked, Resolved, moving, references, resolve},
};
use stoa_runtime::{Live, Preview, ReadRequest, Runtime, RuntimeError};

/// A resource ready to be applied.
#[derive(Debug)]
pub(crate) struct Ready {
    /// With all references replaced.
    pub(crate) desired: Resource,
    /// The same, with where sensitive values came along references.
    pub(crate) resolved: Resolved<'static>,
    /// What of it is sensitive.
    pub(crate) sensitive: Sensitive,
}

impl Ready {
    /// Why applying it may change something of what is live, by what the infrastructure says that it would make and of its kind;
    /// `None` where nothing would.
    pub(crate) fn why_changed(
        &self,
        prior: &StateResource,
        live: &Map<String, Value>,
        preview: &Preview,
        (keys, schema): (&DigestKeys, Option<&Schema>),
    ) -> Option<String> {
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
            schema,
        };
        let moved = "what it refers to has another value by now";
        let (changes, why) = match preview {
            Preview::Changed(made) | Preview::Contested(made, _) => {
                (against_preview(&comparison, &ignored.as_live(made.clone(), live)), moved.to_owned())
            }
            Preview::Unverified(why)
            | Preview::MissingNamespace(why)
            | Preview::Lifted(why, _)
            | Preview::Refused(why) => (three_way(&comparison), unseen(why)),
            Preview::Replaced(_) => return Some(moved.to_owned()),
        };
        (!changes.is_empty()).then_some(why)
    }
}

/// What is said where nobody can look whether a resource is as it is wanted.
pub(crate) fn unseen(why: &str) -> String {
    format!("what it refers to may have another value by now, which nobody can see: {why}")
}

/// The values of a walk.
#[derive(Debug)]
pub(crate) struct Values {
    wanted: HashMap<ResourceId, Resource>,
    /// The texts in all Secrets that are wanted, and in those that were seen live.
    secrets: Mutex<Sensitive>,
    settled: Mutex<HashMap<ResourceId, Settled<'static>>>,
    /// What their references stand for, and those of resources that are to be applied.
    budget: Mutex<Budget>,
    /// Which of them has which object.
    uids: Mutex<HashMap<String, ResourceId>>,
    /// What was read of resources that are not called for.
    read: Mutex<HashMap<ResourceId, Map<String, Value>>>,
    /// Whether all of it was read that others refer to.
    is_read: AtomicBool,
}

impl Values {
    pub(crate) fn new(spec: &Spec) -> Self {
        let wanted = spec.resources.iter().map(|r| (r.id.clone(), r.clone())).collect();
        let mut secrets = Sensitive::default();
        for resource in &spec.resources {
            secrets.extend_texts(&Sensitive::of(&resource.attributes, &BTreeSet::new()));
        }
        Self {
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

    /// The texts in all Secrets that are wanted, and in those that were seen live, of which a call may have set some elsewhere
    /// before.
    pub(crate) fn secrets(&self) -> Sensitive {
        // A copy, which shares the texts: to look for them may take long, and others settle meanwhile.
        self.secrets.lock().clone()
    }

    /// Takes in the texts of a live Secret, which may have some that the Spec does not say. What is recorded of one has none.
    fn keep_texts(&self, live: &Map<String, Value>) {
        if is_secret(live) && !live.values().any(contains_mask) {
            self.secrets.lock().extend_texts(&Sensitive::of(live, &BTreeSet::new()));
        }
    }

    /// Takes in the texts of all Secrets on record as they are live: some may not be wanted any more. What cannot be read is
    /// left out.
    pub(crate) async fn read_secrets(&self, runtime: &dyn Runtime, recorded: &[StateResource]) {
        let secrets = recorded.iter().filter(|record| is_secret(&record.attributes));
        let secrets: Vec<ReadRequest<'_>> =
            secrets.map(|record| ReadRequest { desired: None, prior: Some(record) }).collect();
        if secrets.is_empty() {
            return;
        }
        for found in runtime.read(&secrets).await.into_iter().flatten() {
            if let Ok(Live::Present(live)) = found {
                self.keep_texts(&live);
            }
        }
    }

    /// Whether a wanted resource refers to others.
    pub(crate) fn refers(&self, id: &ResourceId) -> bool {
        let known = |id: &str| self.wanted.contains_key(id);
        self.wanted.get(id).is_some_and(|resource| !references(&resource.attributes, &known).0.is_empty())
    }

    /// Where the values of a wanted resource come from fields of others that change of their own accord.
    pub(crate) fn moving(&self, id: &ResourceId) -> BTreeSet<FieldPath> {
        let known = |id: &str| self.wanted.contains_key(id);
        self.wanted.get(id).map(|resource| moving(&resource.attributes, &known)).unwrap_or_default()
    }

    /// Whether what others refer to is as it was read or applied, rather than as it was recorded once.
    pub(crate) fn are_read(&self) -> bool {
        self.is_read.load(Ordering::Relaxed)
    }

    /// The wanted resource whose object has this uid, as far as it is settled.
    pub(crate) fn of_uid(&self, uid: &str) -> Option<ResourceId> {
        self.uids.lock().get(uid).cloned()
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
        if let Some(problem) = disagreement(resource, &resolved) {
            return Err(problem);
        }
        let sensitive = Sensitive::of(&resolved.attributes, &resolved.sensitive);
        let desired = with_attributes(resource, resolved.attributes.clone().into_owned());
        Ok(Ready { desired, resolved: resolved.into_owned(), sensitive })
    }

    fn resolve<'r>(&self, resource: &'r Resource) -> Result<Resolved<'r>, Problem> {
        let settled = self.settled.lock();
        let known = |id: &str| self.wanted.contains_key(id);
        let mut lookup = |reference: &Reference| match settled.get(&reference.id) {
            Some(target) => match target.look(reference) {
                Ok(Looked::Known { value, .. }) if contains_mask(value) => {
                    let message = format!("{reference} is sensitive, and only its digest is recorded");
                    Err(ReferenceError::Dangling(message))
                }
                looked => looked,
            },
            None => Ok(Looked::Unknown),
        };
        let mut budget = self.budget.lock();
        resolve(resource, &known, &mut lookup, &mut budget).map_err(|errors| {
            // Nothing is kept of it, and others may have that much.
            budget.give_back(&resource.id);
            let (field, error) = &errors[0];
            Problem::new(error.reason(), error.to_string()).of(&resource.id).at(format!("attributes.{field}"))
        })
    }

    /// Takes in what is live of a resource, so that others can refer to it. What does not resolve
    /// is told by whoever applies it.
    pub(crate) fn settle(&self, id: &ResourceId, live: Map<String, Value>) {
        let Some(resource) = self.wanted.get(id) else { return };
        self.keep_texts(&live);
        if let Some(uid) = uid_of(&live) {
            self.uids.lock().insert(uid.to_owned(), id.clone());
        }
        if let (Ok(resolved), Ok(ignored)) = (self.resolve(resource), Ignored::of(resource)) {
            let resolved = ignored.resolved(resolved, &live);
            let settled = Settled::applied(resource, resolved.into_owned(), live);
            self.settled.lock().insert(id.clone(), settled);
        }
    }

    /// Takes in a resource that is not called for: it is as it was read, or as it is recorded. All
    /// that it refers to is settled by then.
    pub(crate) fn settle_left(&self, id: &ResourceId, recorded: Option<&StateResource>) {
        let live = self.read.lock().remove(id);
        if let Some(live) = live.or_else(|| recorded.map(|recorded| recorded.live.clone())) {
            self.settle(id, live);
        }
    }

    /// Reads what others want to know of resources that are not called for, if `is_wanted` by any: nobody has to know what
    /// becomes of values where nothing is to be done. The record may be old, and holds no sensitive values.
    pub(crate) async fn read_left(
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
        let priors: Vec<&StateResource> = needed.iter().filter_map(|id| recorded.get(id).copied()).collect();
        if priors.is_empty() {
            return Ok(());
        }
        let requests: Vec<ReadRequest<'_>> =
            priors.iter().map(|prior| ReadRequest { desired: None, prior: Some(prior) }).collect();
        let found = runtime.read(&requests).await?;
        let mut read = self.read.lock();
        for (prior, found) in priors.iter().zip(found) {
            if let Live::Present(live) = found? {
                read.insert(prior.id.clone(), live);
            }
        }
        Ok(())
    }

    /// Whether the value stands in the Spec itself, so that nothing has to be read.
    fn is_written(&self, reference: &Reference) -> bool {
        let known = |id: &str| self.wanted.contains_key(id);
        let target = self.wanted.get(&reference.id);
        if target.is_some_and(|it| Ignored::of(it).is_ok_and(|ignored| ignored.touches(&reference.path))) {
            return false;
        }
        target.and_then(|target| reference.path.get(&target.attributes)).is_some_and(|value| {
            let alone = Map::from_iter([("value".to_owned(), value.clone())]);
            references(&alone, &known).0.is_empty()
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config_map(value: &str) -> Resource {
        let resource = json!({"id": "v1:ConfigMap:shop:a", "type": "Kubernetes", "attributes": {"apiVersion": "v1",
            "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}, "data": {"v": value}}});
        serde_json::from_value(resource).unwrap()
    }

    #[test]
    fn what_nobody_can_be_asked_about_is_not_said_to_have_changed() {
        let keys = DigestKeys::new(&[7; 32], &[]);
        let [before, desired] = ["1", "2"].map(config_map);
        let prior =
            StateResource::applied(&before, &Resolved::plain(&before.attributes), before.attributes.clone(), &keys);
        let resolved = Resolved::plain(&desired.attributes).into_owned();
        let ready = Ready { desired: desired.clone(), resolved, sensitive: Sensitive::default() };
        let why =
            |live: &Resource, preview: &Preview| ready.why_changed(&prior, &live.attributes, preview, (&keys, None));
        let unverified = Preview::Unverified("its kind is not served".to_owned());
        assert_eq!(why(&before, &unverified), Some(unseen("its kind is not served")));
        assert_eq!(why(&desired, &unverified), None);
        let changed = Preview::Changed(desired.attributes.clone());
        assert_eq!(why(&before, &changed).as_deref(), Some("what it refers to has another value by now"));
        assert_eq!(why(&desired, &changed), None);
    }
}
