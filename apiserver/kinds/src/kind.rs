//! A kind as one value: all that the server, the manifests and the tests derive from it.
//!
//! Start at [`Kind::of`], which knows everything that a type with kube's derive says. The value of a kind with rules of its
//! own is in the file of the kind, and the list of its group names it. Elsewhere: `stoa-apiserver` attaches controllers and
//! subresources to these values, and generates manifests, `tests/data/kinds.json` and `docs/kinds.md` from them.

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResourceExt, core::object::HasSpec};
use serde::{Serialize, de::DeserializeOwned};
use stoa_git_path::{GitPath, ReadDocument, document};
use stoa_machinery::{ResourceDefinition, registry::RegistryBuilder, strategy::DefaultStrategy};

use crate::{
    cluster::Cluster,
    hub::memory::Hub,
    lookup::Lookup,
    package_repositories::Packages,
    rights::{Right, Role},
    scheduler::fleets::Fleets,
};

/// The other objects that strategies read.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The objects of Stoa.
    pub lookup: Lookup,
    /// The cluster around the server.
    pub cluster: Arc<dyn Cluster>,
    /// The package repositories.
    pub packages: Packages,
    /// The rendered files of fleets.
    pub fleets: Fleets,
    /// The reports of clusters.
    pub hub: Hub,
}

/// A kind of Stoa.
#[derive(Debug)]
pub struct Kind {
    /// The definition as kube derives it.
    pub crd: fn() -> CustomResourceDefinition,
    /// The definition as served, without the subresources that the server attaches.
    pub definition: fn() -> ResourceDefinition,
    /// Registers the kind under a definition, with its strategy.
    pub register: fn(RegistryBuilder, ResourceDefinition, Surroundings) -> RegistryBuilder,
    /// The files of the objects in the control repository, if people author them.
    pub in_git: Option<InGit>,
    /// The event types that sinks may select.
    pub events: &'static [&'static str],
    /// The rights of the roles in `manifests/base`.
    pub rights: &'static [Right],
    /// Reads a stored object as its file.
    pub(crate) document: ReadDocument,
}

/// The files of a kind in the control repository.
#[derive(Clone, Copy, Debug)]
pub struct InGit {
    /// The path: [`GitPath::pattern`].
    pub pattern: &'static str,
    /// Whether the removal of a file waits while other objects refer to its object.
    pub removal_waits_for_references: bool,
}

impl InGit {
    /// Files at a path.
    pub const fn at(pattern: &'static str) -> Self {
        Self { pattern, removal_waits_for_references: false }
    }
}

impl Kind {
    /// A kind that has a schema and no rules: in no file, without events, and without rights for any role.
    pub const fn of<K>() -> Self
    where
        K: CustomResourceExt
            + HasSpec<Spec: Serialize + DeserializeOwned + 'static>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
    {
        Self {
            crd: K::crd,
            definition: ResourceDefinition::of::<K>,
            register: |builder, definition, _| builder.register(definition, DefaultStrategy::<K>::default()),
            in_git: None,
            events: &[],
            rights: &[],
            document: document::<K::Spec>,
        }
    }

    /// The kind as the control repository knows it, if people author it. It lasts as long as the process.
    pub(crate) fn git_path(&self) -> Option<&'static GitPath> {
        let InGit { pattern, removal_waits_for_references } = self.in_git?;
        let ResourceDefinition { group, version, kind, singular, plural, .. } = (self.definition)();
        Some(Box::leak(Box::new(GitPath {
            group: group.leak(),
            version: version.leak(),
            kind: kind.leak(),
            singular: singular.leak(),
            plural: plural.leak(),
            pattern,
            removal_waits_for_references,
            document: self.document,
        })))
    }
}

/// An API group: its kinds, and its position among the groups of the cluster.
#[derive(Debug)]
pub struct Group {
    /// The `groupPriorityMinimum` of the APIService.
    pub priority: u16,
    /// The role that may do everything with every kind of the group.
    pub owner: Option<Role>,
    /// The kinds, at least one.
    pub kinds: &'static [&'static Kind],
}
