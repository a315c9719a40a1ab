//! The DeploymentDescriptors of a namespace, by the endpoint of their manifests.
//!
//! Reports, states and queries ask for the descriptors of an endpoint. A descriptor is decoded once, and again after a change.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use kube::ResourceExt as _;
use stoa_controller::blocking::on_own_thread;
use stoa_machinery::{
    ApiError, Version,
    registry::{Changes, ListOptions, Stored},
};
use stoa_types::hub::DeploymentDescriptor;

use crate::lookup::Lookup;

/// The most namespaces whose descriptors stay in memory.
const MOST: usize = 64;

/// The descriptors of a namespace. One that does not decode takes no part.
#[derive(Clone, Debug, Default)]
pub struct Descriptors {
    by_name: HashMap<String, Arc<DeploymentDescriptor>>,
    /// Those of an endpoint are in the order of their names.
    by_endpoint: HashMap<String, Vec<Arc<DeploymentDescriptor>>>,
}

impl Descriptors {
    /// All descriptors, in no order.
    pub fn all(&self) -> impl Iterator<Item = &DeploymentDescriptor> {
        self.by_name.values().map(AsRef::as_ref)
    }

    /// The descriptors of an endpoint, in the order of their names.
    pub fn of(&self, endpoint: &str) -> &[Arc<DeploymentDescriptor>] {
        self.by_endpoint.get(endpoint).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether a descriptor of an endpoint has a commit.
    pub fn know(&self, endpoint: &str, commit: &str) -> bool {
        let assigned = self.of(endpoint).iter().flat_map(|descriptor| &descriptor.status);
        assigned.flat_map(|status| &status.assigned_versions).any(|it| it.git_ops_commit_id == commit)
    }

    /// The endpoints whose descriptors are others in `new`.
    pub(super) fn different<'d>(&'d self, new: &'d Self) -> HashSet<&'d str> {
        let is_other = |endpoint: &str| {
            let (old, new) = (self.of(endpoint), new.of(endpoint));
            old.len() != new.len() || old.iter().zip(new).any(|(old, new)| !Arc::ptr_eq(old, new))
        };
        let all = self.by_endpoint.keys().chain(new.by_endpoint.keys());
        all.map(String::as_str).filter(|endpoint| is_other(endpoint)).collect()
    }

    pub(super) fn put(&mut self, mut descriptor: DeploymentDescriptor) {
        let (name, endpoint) = (descriptor.name_any(), descriptor.spec.endpoint());
        self.remove(&name);
        // Field ownership takes more memory than the rest, and no reader of this index uses it.
        descriptor.metadata.managed_fields = None;
        let descriptor = Arc::new(descriptor);
        let of = self.by_endpoint.entry(endpoint).or_default();
        let position = of.partition_point(|other| other.name_any() < name);
        of.insert(position, descriptor.clone());
        self.by_name.insert(name, descriptor);
    }

    fn remove(&mut self, name: &str) {
        let Some(old) = self.by_name.remove(name) else { return };
        let endpoint = old.spec.endpoint();
        if let Some(of) = self.by_endpoint.get_mut(&endpoint) {
            of.retain(|descriptor| !Arc::ptr_eq(descriptor, &old));
            if of.is_empty() {
                self.by_endpoint.remove(&endpoint);
            }
        }
    }

    /// The descriptors after changes of stored objects.
    fn next(&self, changed: &[Arc<Stored>], deleted: &[Arc<Stored>]) -> Self {
        let mut next = self.clone();
        for stored in changed {
            match stored.decode() {
                Ok(descriptor) => next.put(descriptor),
                Err(_) => next.remove(stored.name()),
            }
        }
        deleted.iter().for_each(|stored| next.remove(stored.name()));
        next
    }
}

/// The objects of a namespace among all.
pub(super) fn of_namespace(objects: Vec<Arc<Stored>>, namespace: &str) -> Vec<Arc<Stored>> {
    objects.into_iter().filter(|stored| stored.namespace() == namespace).collect()
}

/// The descriptors of all namespaces that somebody asked for, with the versions to which they are known.
#[derive(Debug, Default)]
pub(super) struct KnownDescriptors(Mutex<BTreeMap<String, (Version, Arc<Descriptors>)>>);

impl KnownDescriptors {
    /// The descriptors of a namespace, as the watch cache has them.
    pub(super) async fn of(&self, lookup: &Lookup, namespace: &str) -> Result<Arc<Descriptors>, ApiError> {
        let store = lookup.api::<DeploymentDescriptor>()?.store().clone();
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(namespace).cloned();
        let changes = before.as_ref().and_then(|(version, _)| store.changes_after(*version));
        let (version, before, changed, deleted) = match (before, changes) {
            (Some((_, before)), Some(Changes { version, changed, deleted })) => {
                (version, before, of_namespace(changed, namespace), of_namespace(deleted, namespace))
            }
            _ => {
                let options = ListOptions { resource_version: Some("0".to_owned()), ..ListOptions::default() };
                let list = store.list(Some(namespace), &options).await?;
                (list.version, Arc::default(), list.items, Vec::new())
            }
        };
        let descriptors = match changed.is_empty() && deleted.is_empty() {
            true => before,
            false => Arc::new(on_own_thread(move || before.next(&changed, &deleted)).await),
        };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST && !known.contains_key(namespace) {
            known.pop_first();
        }
        known.insert(namespace.to_owned(), (version, descriptors.clone()));
        Ok(descriptors)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use stoa_types::{hub::AssignedVersion, scheduler::Repository};

    use super::*;

    fn descriptor(name: &str, path: &str, commits: &[&str]) -> DeploymentDescriptor {
        let mut descriptor = DeploymentDescriptor::default();
        descriptor.metadata.name = Some(name.to_owned());
        let (repo, branch) = ("https://git.example.com/web".to_owned(), "dev".to_owned());
        descriptor.spec.deployment_target.manifests = Repository { repo, branch, path: path.to_owned() };
        let assigned = commits.iter().map(|commit| AssignedVersion {
            git_ops_commit_id: (*commit).to_owned(),
            version: "1.0".to_owned(),
            build: String::new(),
            commit: String::new(),
            time: MicroTime(Timestamp::UNIX_EPOCH),
        });
        descriptor.status.get_or_insert_default().assigned_versions = assigned.collect();
        descriptor
    }

    #[test]
    fn descriptors_are_found_by_endpoint() {
        let (one, two) = ("https://git.example.com/web/dev/one", "https://git.example.com/web/dev/two");
        let mut descriptors = Descriptors::default();
        for (name, path) in [("b", "one"), ("a", "./one"), ("c", "two")] {
            descriptors.put(descriptor(name, path, &["c1"]));
        }
        let names = |of: &Descriptors, endpoint: &str| -> Vec<String> {
            of.of(endpoint).iter().map(|descriptor| descriptor.name_any()).collect()
        };
        assert_eq!(names(&descriptors, one), ["a", "b"]);
        assert_eq!(names(&descriptors, two), ["c"]);
        assert!(descriptors.know(one, "c1") && !descriptors.know(one, "c2") && !descriptors.know("other", "c1"));

        // One that moves is at its new endpoint alone; the other endpoints are as before.
        let mut moved = descriptors.clone();
        moved.put(descriptor("c", "three", &["c2"]));
        assert_eq!(names(&moved, two), [] as [&str; 0]);
        let three = "https://git.example.com/web/dev/three";
        assert_eq!(descriptors.different(&moved), [two, three].into());
        assert!(moved.know(three, "c2") && moved.all().count() == 3);
    }
}
