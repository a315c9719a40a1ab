//! The Reconcilers of the hub for the objects of the cluster.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;
use stoa_types::hub::Reconciler;

use super::queue::ObjectId;

/// The names of the Reconcilers of each object.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Assignment {
    reconcilers: BTreeMap<ObjectId, Vec<String>>,
    /// The names of Reconcilers that stand for several objects, which have none of them.
    pub(super) ambiguous: Vec<String>,
}

impl Assignment {
    /// Finds the object of each Reconciler.
    pub(super) fn new<'o>(reconcilers: &[Reconciler], objects: impl Iterator<Item = &'o ObjectId>) -> Self {
        let objects: BTreeSet<&ObjectId> = objects.collect();
        let mut assignment = Self::default();
        for reconciler in reconcilers {
            let is_its =
                |object: &&&ObjectId| reconciler.spec.stands_for(&object.kind, &object.namespace, &object.name);
            let mut found = objects.iter().filter(is_its);
            let Some(first) = found.next() else { continue };
            if found.next().is_some() {
                assignment.ambiguous.push(reconciler.name_any());
            } else {
                assignment.reconcilers.entry((*first).clone()).or_default().push(reconciler.name_any());
            }
        }
        assignment
    }

    /// The names of the Reconcilers of an object.
    pub(super) fn of(&self, object: &ObjectId) -> &[String] {
        self.reconcilers.get(object).map(Vec::as_slice).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use stoa_types::hub::ReconcilerSpec;

    use super::*;

    #[test]
    fn reconciler_of_several_objects_has_none() {
        let object = |kind: &str, name: &str| ObjectId {
            kind: kind.to_owned(),
            namespace: "flux-system".to_owned(),
            name: name.to_owned(),
        };
        let reconciler = |name: &str, of: &str| {
            let spec = ReconcilerSpec { reconciler_name: of.to_owned(), ..ReconcilerSpec::default() };
            Reconciler::new(name, spec)
        };
        let objects = [object("Kustomization", "web"), object("HelmRelease", "web"), object("Kustomization", "api")];
        let reconcilers =
            [reconciler("a", "web"), reconciler("b", "HelmRelease/flux-system/web"), reconciler("c", "api")];
        let found = Assignment::new(&reconcilers, objects.iter().chain(&objects));
        assert_eq!(found.ambiguous, ["a"]);
        assert!(found.of(&objects[0]).is_empty());
        assert_eq!(found.of(&objects[1]), ["b"]);
        assert_eq!(found.of(&objects[2]), ["c"]);
    }
}
