//! What the garbage collector reads and writes: objects of any kind that is served, by their metadata.
//!
//! Follows `operations.go` and `patch.go` of `k8s.io/kubernetes/pkg/controller/garbagecollector`.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Preconditions};
use serde::Deserialize;
use serde_json::{Map, Value};
use stoa_controller::{object::ObjectKey, queue::unless_gone};
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition,
    auth::{Attributes, Authorizer, Decision},
    registry::{DeleteOptions, FOREGROUND_DELETION, ORPHAN_DEPENDENTS, Registry, Store, Stored, Target, UpdateSource},
    request::UserInfo,
    status,
};
use stoa_types::{Project, names};

/// As whom a cluster's garbage collector acts.
const USER: &str = "system:serviceaccount:kube-system:generic-garbage-collector";
/// What is collected can be found and deleted.
const VERBS: [&str; 3] = ["delete", "list", "watch"];

/// How often an object is deleted that changes meanwhile, before it is looked at anew.
const TRIES: usize = 5;

/// What a deletion does with dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Propagation {
    Foreground,
    Background,
    Orphan,
}

impl Propagation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Foreground => "Foreground",
            Self::Background => "Background",
            Self::Orphan => "Orphan",
        }
    }
}

/// What an object that is being deleted has the garbage collector do before it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its dependents are to live on without it.
    Orphaning,
    /// Its dependents go first.
    DeletingDependents,
}

/// What kinds ask about besides the write itself: a cluster's collector is granted no more (`rbac-collector.yaml`), so that it destroys nothing.
#[derive(Debug)]
struct Rights;

#[async_trait]
impl Authorizer for Rights {
    async fn authorize(&self, _: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
        let Attributes { verb, group, resource, subresource, .. } = attributes;
        let is_project = (&**group, &**resource) == (names::group::<Project>(), names::plural::<Project>());
        let is_granted = verb == "edit" && is_project && subresource.is_empty();
        Ok(if is_granted { Decision::Allow(String::new()) } else { Decision::Deny(String::new()) })
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Part {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
}

#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) store: Arc<Store>,
    pub(super) stored: Arc<Stored>,
    pub(super) owners: Vec<OwnerReference>,
    is_to_orphan: bool,
    is_to_delete_dependents: bool,
}

impl Found {
    pub(super) fn new(store: &Arc<Store>, stored: Arc<Stored>) -> Self {
        // What does not decode is in no cache.
        let Part { metadata } = stored.decode_part().unwrap_or_default();
        let finalizers = metadata.finalizers.unwrap_or_default();
        let has = |wanted: &str| finalizers.iter().any(|finalizer| finalizer == wanted);
        Self {
            store: Arc::clone(store),
            is_to_orphan: has(ORPHAN_DEPENDENTS),
            is_to_delete_dependents: has(FOREGROUND_DELETION),
            stored,
            owners: metadata.owner_references.unwrap_or_default(),
        }
    }

    pub(super) fn uid(&self) -> &str {
        self.stored.uid()
    }

    pub(super) fn definition(&self) -> &ResourceDefinition {
        self.store.definition()
    }

    /// Its namespace, and its resource and name, such as `stacks.config.stoa.dev/web`.
    pub(super) fn key(&self) -> ObjectKey {
        let name = format!("{}/{}", resource_of(&self.store), self.stored.name());
        (self.stored.namespace().to_owned(), name)
    }

    /// What it waits for the garbage collector to do.
    pub(super) fn phase(&self) -> Option<Phase> {
        if !self.stored.is_deleting() {
            return None;
        }
        match (self.is_to_orphan, self.is_to_delete_dependents) {
            (true, _) => Some(Phase::Orphaning),
            (false, true) => Some(Phase::DeletingDependents),
            (false, false) => None,
        }
    }

    /// Whether it goes once its dependents have.
    pub(super) fn deletes_dependents(&self) -> bool {
        self.stored.is_deleting() && self.is_to_delete_dependents
    }

    /// What its own finalizers say that its deletion does, whoever deletes it.
    pub(super) fn propagation(&self) -> Propagation {
        match (self.is_to_orphan, self.is_to_delete_dependents) {
            (true, _) => Propagation::Orphan,
            (false, true) => Propagation::Foreground,
            (false, false) => Propagation::Background,
        }
    }
}

fn resource_of(store: &Store) -> String {
    status::qualified(&store.definition().plural, &store.definition().group)
}

#[derive(Debug)]
pub(super) struct Objects {
    registry: Arc<Registry>,
    context: RequestContext,
}

impl Objects {
    pub(super) fn new(registry: Arc<Registry>) -> Self {
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
        let user =
            UserInfo { name: USER.to_owned(), groups: groups.map(str::to_owned).to_vec(), ..UserInfo::default() };
        let mut context = RequestContext::new(user, Arc::new(Rights));
        context.field_manager = "stoa-garbage-collector".to_owned();
        Self { registry, context }
    }

    /// The resources whose objects are collected. Events belong to nothing, and there are many.
    pub(super) fn collected(&self) -> impl Iterator<Item = &Arc<Store>> {
        self.registry.stores().filter(|store| {
            let definition = store.definition();
            VERBS.iter().all(|verb| definition.verbs.contains(verb)) && definition.kind != "Event"
        })
    }

    /// The resource of an owner, if that is served.
    pub(super) fn of_kind(&self, owner: &OwnerReference) -> Option<&Arc<Store>> {
        self.registry.stores().find(|store| {
            let definition = store.definition();
            definition.kind == owner.kind
                && definition.api_version() == owner.api_version
                && definition.verbs.contains(&"get")
        })
    }

    /// Reads an object, if it is there.
    pub(super) async fn read(&self, (namespace, of): &ObjectKey) -> Result<Option<Found>, ApiError> {
        let Some((resource, name)) = of.split_once('/') else { return Ok(None) };
        let Some(store) = self.registry.stores().find(|store| resource_of(store) == resource) else { return Ok(None) };
        let found = unless_gone(store.get(namespace, name, None).await)?;
        Ok(found.map(|stored| Found::new(store, stored)))
    }

    /// Reads an owner where its dependents in a namespace have theirs. One of another uid is another object.
    pub(super) async fn owner(
        &self,
        store: &Arc<Store>,
        owner: &OwnerReference,
        namespace: &str,
    ) -> Result<Option<Found>, ApiError> {
        let found = unless_gone(store.get(namespace, &owner.name, None).await)?;
        Ok(found.filter(|stored| stored.uid() == owner.uid).map(|stored| Found::new(store, stored)))
    }

    /// Takes references to owners of these uids away from an object; one that is gone needs nothing.
    pub(super) async fn remove_owners(&self, object: &Found, uids: &[String]) -> Result<(), ApiError> {
        let is_other = |owner: &Value| !uids.iter().any(|uid| owner["uid"] == uid.as_str());
        self.change(object, |metadata| retain(metadata, "ownerReferences", is_other)).await
    }

    /// Takes a finalizer away from an object; one that is gone needs nothing.
    pub(super) async fn remove_finalizer(&self, object: &Found, finalizer: &str) -> Result<(), ApiError> {
        let is_other = |item: &Value| item.as_str() != Some(finalizer);
        self.change(object, |metadata| retain(metadata, "finalizers", is_other)).await
    }

    async fn change(
        &self,
        object: &Found,
        mut change: impl FnMut(&mut Map<String, Value>) + Send,
    ) -> Result<(), ApiError> {
        let stored = &object.stored;
        let definition = object.definition();
        let source = UpdateSource::transform(|current| {
            if current.uid() != stored.uid() {
                return Err(ApiError::not_found(&definition.group, &definition.plural, stored.name()));
            }
            let mut new = current.clone();
            change(new.metadata_mut());
            Ok(new)
        });
        let (namespace, name) = (stored.namespace(), stored.name());
        unless_gone(object.store.update(&self.context, namespace, name, Target::Main, source).await).map(drop)
    }

    /// Deletes an object as it was read, or as it is by now if it belongs to the same as then and nobody has said otherwise
    /// what its deletion does: what changes often goes, too. One that is gone, or another by now, needs nothing.
    ///
    /// # Errors
    ///
    /// When it cannot be deleted; 409 when it belongs to others by now, is being deleted, has finalizers that say otherwise
    /// what is done with its dependents, or changes all the time.
    pub(super) async fn delete(&self, object: &Found, propagation: Propagation) -> Result<(), ApiError> {
        let mut now = object.clone();
        for _ in 1..TRIES {
            let changed = match self.delete_as_read(&now, propagation).await {
                Err(error) if error.code() == 409 => error,
                deleted => return deleted,
            };
            let (store, before) = (&object.store, &now.stored);
            let found = unless_gone(store.get(before.namespace(), before.name(), None).await)?;
            let Some(found) = found.filter(|found| found.uid() == object.uid()) else { return Ok(()) };
            let found = Found::new(store, found);
            if found.stored.version == before.version
                || found.stored.is_deleting()
                || found.owners != object.owners
                || found.propagation() != object.propagation()
            {
                return Err(changed);
            }
            now = found;
        }
        self.delete_as_read(&now, propagation).await
    }

    async fn delete_as_read(&self, object: &Found, propagation: Propagation) -> Result<(), ApiError> {
        let Found { store, stored, .. } = object;
        let (uid, resource_version) = (Some(stored.uid().to_owned()), Some(stored.version.to_string()));
        let options = DeleteOptions {
            preconditions: Some(Preconditions { uid, resource_version }),
            propagation_policy: Some(propagation.as_str().to_owned()),
            ..DeleteOptions::default()
        };
        unless_gone(store.delete(&self.context, stored.namespace(), stored.name(), &options).await).map(drop)
    }
}

/// Keeps only some items of a list of metadata, if it is there.
fn retain(metadata: &mut Map<String, Value>, list: &str, keep: impl FnMut(&Value) -> bool) {
    if let Some(Value::Array(items)) = metadata.get_mut(list) {
        items.retain(keep);
    }
}
