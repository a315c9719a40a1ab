//! Cluster-scoped kinds, whose objects have no namespace.
//!
//! A server drops the namespace of such an object, so that manifests with and without one are of the same object.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::object::ObjectRef;

/// Known cluster-scoped kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes {
    /// Groups and kinds.
    kinds: BTreeSet<(Cow<'static, str>, Cow<'static, str>)>,
}

impl Scopes {
    /// No known kinds.
    pub const NONE: Self = Self { kinds: BTreeSet::new() };

    /// The same with more kinds, as groups and kinds.
    #[must_use]
    pub fn with<T: Into<Cow<'static, str>>>(mut self, kinds: impl IntoIterator<Item = (T, T)>) -> Self {
        self.kinds.extend(kinds.into_iter().map(|(group, kind)| (group.into(), kind.into())));
        self
    }

    /// Whether a kind is known to be cluster-scoped.
    pub fn is_cluster_scoped(&self, group: &str, kind: &str) -> bool {
        let kinds: &BTreeSet<(Cow<'_, str>, Cow<'_, str>)> = &self.kinds;
        kinds.contains(&(group.into(), kind.into()))
    }

    /// The object without a namespace that its server drops.
    #[must_use]
    pub fn scoped(&self, mut object: ObjectRef) -> ObjectRef {
        if !object.namespace.is_empty() && self.is_cluster_scoped(&object.group, &object.kind) {
            object.namespace.clear();
        }
        object
    }
}
