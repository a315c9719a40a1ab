//! Who belongs to whom, as the watch caches have it.
//!
//! It finds what is due; what is done about that is decided by what is there by then. Follows `graph_builder.go` of
//! `k8s.io/kubernetes/pkg/controller/garbagecollector`. Owners that were never seen are not in it, as there: each object
//! that names one is due, and what it names is looked for.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use stoa_controller::object::ObjectKey;
use stoa_machinery::registry::Store;

use super::objects::Found;

/// The objects, by uid, and who belongs to them.
#[derive(Debug, Default)]
pub(super) struct Graph {
    objects: HashMap<String, Found>,
    /// The uids of what refers to an owner, by the owner's, also of one that is not there.
    dependents: HashMap<String, HashSet<String>>,
}

/// Whether an owner that is deleted in the foreground waits for whom has this reference to it.
fn blocks(owner: &OwnerReference) -> bool {
    owner.block_owner_deletion == Some(true)
}

impl Graph {
    /// Takes up an object as it is by now; the keys of what is due for it.
    pub(super) fn put(&mut self, new: Found) -> Vec<ObjectKey> {
        let uid = new.uid().to_owned();
        let old = self.objects.remove(&uid);
        let before = old.as_ref().map(|old| old.owners.as_slice()).unwrap_or_default();
        let mut due = Vec::new();
        if before != new.owners {
            self.unlink(&uid, before);
            for owner in &new.owners {
                self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
            }
            // They may have no more to wait for.
            due.extend(self.waiting(before.iter().filter(|owner| blocks(owner))));
            if !self.has_owners(&new) {
                due.push(new.key());
            }
        }
        if new.phase().is_some() && new.phase() != old.as_ref().and_then(Found::phase) {
            due.push(new.key());
        }
        if new.deletes_dependents() && !old.as_ref().is_some_and(Found::deletes_dependents) {
            due.extend(self.referring(&uid).map(Found::key));
        }
        self.objects.insert(uid, new);
        due
    }

    /// Forgets an object that is gone; the keys of what is due for it.
    pub(super) fn remove(&mut self, uid: &str) -> Vec<ObjectKey> {
        let Some(old) = self.objects.remove(uid) else { return Vec::new() };
        self.unlink(uid, &old.owners);
        self.referring(uid).map(Found::key).chain(self.waiting(old.owners.iter())).collect()
    }

    /// Forgets the objects of a resource but those with these uids; the keys of what is due for it.
    pub(super) fn retain(&mut self, store: &Arc<Store>, there: &HashSet<&str>) -> Vec<ObjectKey> {
        let known = self.objects.iter().filter(|(_, known)| Arc::ptr_eq(&known.store, store));
        let gone: Vec<String> =
            known.filter(|(uid, _)| !there.contains(uid.as_str())).map(|(uid, _)| uid.clone()).collect();
        gone.iter().flat_map(|uid| self.remove(uid)).collect()
    }

    /// The keys of all about which there is something to do or to find out.
    pub(super) fn unsettled(&self) -> Vec<ObjectKey> {
        let is_unsettled = |found: &&Found| found.phase().is_some() || !self.has_owners(found);
        self.objects.values().filter(is_unsettled).map(Found::key).collect()
    }

    pub(super) fn dependents(&self, uid: &str) -> Vec<Found> {
        self.referring(uid).cloned().collect()
    }

    pub(super) fn has_dependents(&self, uid: &str) -> bool {
        self.referring(uid).next().is_some()
    }

    /// What an owner that is deleted in the foreground waits for. Upstream keeps cycles from waiting for themselves by
    /// changing references before it deletes what has them, which fails where all are deleted at once; here nothing waits
    /// for what waits for it.
    pub(super) fn awaited(&self, uid: &str) -> Vec<Found> {
        self.blocking(uid).into_iter().filter(|dependent| !self.waits_for(dependent, uid)).cloned().collect()
    }

    /// Whether an object waits for another, or is it: for a dependent, or for what that waits for.
    fn waits_for(&self, object: &Found, uid: &str) -> bool {
        let (mut seen, mut open) = (HashSet::from([object.uid()]), vec![object]);
        while let Some(next) = open.pop() {
            if next.uid() == uid {
                return true;
            }
            if next.deletes_dependents() {
                let blocking = self.blocking(next.uid()).into_iter();
                open.extend(blocking.filter(|dependent| seen.insert(dependent.uid())));
            }
        }
        false
    }

    /// The namespace of an object that was seen in one.
    pub(super) fn namespace_of(&self, uid: &str) -> Option<String> {
        self.objects.get(uid).map(|found| found.stored.namespace().to_owned()).filter(|namespace| !namespace.is_empty())
    }

    /// Whether all that an object belongs to was seen as its references say, and stays.
    fn has_owners(&self, found: &Found) -> bool {
        found.owners.iter().all(|owner| {
            self.objects.get(&owner.uid).is_some_and(|known| {
                let (definition, namespace) = (known.definition(), known.stored.namespace());
                definition.kind == owner.kind
                    && definition.api_version() == owner.api_version
                    && known.stored.name() == owner.name
                    && (namespace.is_empty() || namespace == found.stored.namespace())
                    && !known.deletes_dependents()
            })
        })
    }

    fn referring(&self, uid: &str) -> impl Iterator<Item = &Found> {
        let uids = self.dependents.get(uid).into_iter().flatten();
        uids.filter_map(move |uid| self.objects.get(uid))
    }

    /// What an owner waits for when it is deleted in the foreground.
    fn blocking(&self, uid: &str) -> Vec<&Found> {
        let is_blocking = |found: &&Found| found.owners.iter().any(|owner| owner.uid == uid && blocks(owner));
        self.referring(uid).filter(is_blocking).collect()
    }

    /// The keys of those of the owners that go once their dependents have.
    fn waiting<'a>(&self, owners: impl Iterator<Item = &'a OwnerReference>) -> Vec<ObjectKey> {
        let known = owners.filter_map(|owner| self.objects.get(&owner.uid));
        known.filter(|owner| owner.deletes_dependents()).map(Found::key).collect()
    }

    fn unlink(&mut self, uid: &str, owners: &[OwnerReference]) {
        for owner in owners {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(uid);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
    }
}
