//! The objects of Git as stored objects, which clients read and whose writes `stoa_kinds::scheduler::owned` rejects.
//!
//! An object that people wrote is stronger than one of Git with its name, and is never changed here. Nothing is deleted while an object
//! of Git may be missing.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use stoa_fleet::{ControlPlane, Served as OfGit};
use stoa_machinery::{
    ApiError, Object, RequestContext,
    definition::Target,
    registry::{DeleteOptions, ListOptions, Registry, Store, Stored, UpdateSource},
};
use stoa_types::{
    labels::{FILE_IN_GIT, OWNER_IN_GIT},
    names,
    scheduler::ClusterType,
};

use super::{FleetService, reading::Reading};

/// The kinds of Git that have no objects here: those of the cluster, and Environments, which decide about other namespaces.
const NOT_SERVED: [&str; 2] = ["ConfigMap", "Environment"];

/// The outcome.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served {
    /// The number of objects that were written or deleted.
    pub(crate) changes: usize,
    /// The objects that the server rejects, each with its file.
    pub(crate) problems: Vec<String>,
}

/// Brings the stored objects of a namespace to those of Git.
pub(crate) async fn serve(service: &FleetService, namespace: &str, reading: &Reading) -> Result<Served, ApiError> {
    let registry = service.services.lookup.registry()?;
    let context = RequestContext::internal("fleets");
    let mut served = Served::default();
    let plane = reading.plane.clone();
    let objects = stoa_controller::blocking::on_own_thread(move || plane.documents()).await;
    for object in objects.into_iter().filter(|object| !NOT_SERVED.contains(&object.kind)) {
        let Some(store) = store(&registry, object.kind) else { continue };
        let file = reading.file(&object.origin).unwrap_or_default();
        let write = Write { store, context: &context, namespace, file: &file, owner: &object.origin.source };
        match write.bring(&object).await {
            Ok(has_changed) => served.changes += usize::from(has_changed),
            Err(error) if matches!(error.code(), 400 | 403 | 409 | 422) => {
                served.problems.push(format!("{} {} ({file}): {}", object.kind, object.name, error.message()));
            }
            Err(error) => return Err(error),
        }
    }
    if !reading.plane.inputs.is_incomplete && !reading.is_unread() {
        served.changes += prune(&registry, &context, namespace, &reading.plane).await?;
    }
    Ok(served)
}

fn store<'r>(registry: &'r Registry, kind: &str) -> Option<&'r Arc<Store>> {
    let group = names::group::<ClusterType>();
    registry.stores().find(|store| store.definition().group == group && store.definition().kind == kind)
}

/// Deletes the objects that Git had, and has no more.
async fn prune(
    registry: &Registry,
    context: &RequestContext,
    namespace: &str,
    plane: &ControlPlane,
) -> Result<usize, ApiError> {
    let mut deleted = 0;
    for kind in stoa_fleet::objects::KINDS.iter().filter(|kind| !NOT_SERVED.contains(kind)) {
        let Some(store) = store(registry, kind) else { continue };
        let all = store.list(Some(namespace), &ListOptions::default()).await?.items;
        for stored in all.into_iter().filter(|stored| is_of_git(stored)) {
            if plane.origin(kind, stored.name()).is_some() {
                continue;
            }
            match store.delete(context, namespace, stored.name(), &DeleteOptions::default()).await {
                Ok(_) => deleted += 1,
                Err(error) if error.code() == 404 => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(deleted)
}

fn is_of_git(stored: &Stored) -> bool {
    stored.object().get_path(&["metadata", "annotations", FILE_IN_GIT]).is_some()
}

/// The write of one object.
struct Write<'w> {
    store: &'w Arc<Store>,
    context: &'w RequestContext,
    namespace: &'w str,
    file: &'w str,
    owner: &'w str,
}

impl Write<'_> {
    /// Creates or changes the object; whether it was necessary.
    async fn bring(&self, object: &OfGit) -> Result<bool, ApiError> {
        let current = match self.store.get(self.namespace, &object.name, None).await {
            Ok(current) => Some(current),
            Err(error) if error.code() == 404 => None,
            Err(error) => return Err(error),
        };
        let Some(current) = current else {
            let definition = self.store.definition();
            let mut new = Map::new();
            new.insert("apiVersion".into(), format!("{}/{}", definition.group, definition.version).into());
            new.insert("kind".into(), definition.kind.as_str().into());
            new.insert("metadata".into(), json!({ "name": object.name, "namespace": self.namespace }));
            let mut new = Object(new);
            self.set(&mut new, object);
            self.store.create(self.context, self.namespace, new).await?;
            return Ok(true);
        };
        let current = current.object();
        if current.get_path(&["metadata", "annotations", FILE_IN_GIT]).is_none() {
            // People made one meanwhile. The next reading counts it.
            return Ok(false);
        }
        let mut wanted = Object(current.0.clone());
        self.set(&mut wanted, object);
        if wanted.0 == current.0 {
            return Ok(false);
        }
        let change = UpdateSource::transform(|current| {
            let mut changed = Object(current.0.clone());
            self.set(&mut changed, object);
            Ok(changed)
        });
        self.store.update(self.context, self.namespace, &object.name, Target::Main, change).await?;
        Ok(true)
    }

    /// Sets all that Git decides about.
    fn set(&self, target: &mut Object, object: &OfGit) {
        let metadata = &object.value["metadata"];
        let mut annotations = texts(&metadata["annotations"]);
        // What clients apply is a note of the client, and of another object.
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        annotations.insert(FILE_IN_GIT.to_owned(), self.file.into());
        annotations.insert(OWNER_IN_GIT.to_owned(), self.owner.into());
        let labels = texts(&metadata["labels"]);
        let own = target.metadata_mut();
        own.insert("annotations".to_owned(), annotations.into());
        match labels.is_empty() {
            true => drop(own.remove("labels")),
            false => drop(own.insert("labels".to_owned(), labels.into())),
        }
        target.0.insert("spec".to_owned(), without_nulls(&object.value["spec"]));
    }
}

/// The texts of a map.
fn texts(value: &Value) -> Map<String, Value> {
    let entries = value.as_object().into_iter().flatten().filter(|(_, value)| value.is_string());
    entries.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// A value without fields that are null, which mean the default as in Go.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields = map.iter().filter(|(_, value)| !value.is_null());
            fields.map(|(key, value)| (key.clone(), without_nulls(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect::<Vec<_>>().into(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nulls_and_other_values_of_labels_are_left_out() {
        assert_eq!(without_nulls(&json!({"a": null, "b": [{"c": null}]})), json!({"b": [{}]}));
        assert_eq!(Value::from(texts(&json!({"a": "b", "c": 1}))), json!({"a": "b"}));
        assert!(texts(&Value::Null).is_empty());
    }
}
