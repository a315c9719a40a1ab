//! Ownership of the number of replicas, shared by an object and its subresource `scale`.
//!
//! Follows `k8s.io/apimachinery/pkg/util/managedfields/scalehandler.go`.

use serde_json::Value;

use super::{
    entries::{self, Managers, Owned},
    path::PathElement,
    set::Set,
};

/// The version that a scale's fields are of.
const SCALE: &str = "autoscaling/v1";

/// Where an object has its number of replicas.
#[derive(Clone, Copy, Debug)]
pub struct Replicas<'a> {
    /// The object's `apiVersion`.
    pub api_version: &'a str,
    /// The path, such as `spec`, `replicas`.
    pub path: &'a [String],
}

impl Replicas<'_> {
    fn path(&self) -> Vec<PathElement> {
        self.path.iter().map(|name| PathElement::field(name)).collect()
    }

    fn set(&self) -> Set {
        let mut set = Set::default();
        set.insert(&self.path());
        set
    }

    /// The `managedFields` of an object's scale: those of the object that own the replicas.
    ///
    /// # Errors
    ///
    /// What is wrong with an entry.
    pub fn to_scale(self, of_object: Option<&Value>) -> Result<Option<Value>, String> {
        let path = self.path();
        let mut managers = Managers::new();
        for (id, owned) in entries::decode(of_object)? {
            if owned.api_version == self.api_version && owned.set.has(&path) {
                let set = Set::of_fields(&[&["spec", "replicas"]]);
                managers.insert(id, Owned { set, api_version: SCALE.to_owned(), time: owned.time });
            }
        }
        Ok(entries::encode(&managers))
    }

    /// The `managedFields` of an object whose scale has these now. Whoever owns the replicas no more loses them.
    ///
    /// # Errors
    ///
    /// What is wrong with an entry.
    pub fn to_object(self, of_object: Option<&Value>, of_scale: Option<&Value>) -> Result<Option<Value>, String> {
        let path = self.path();
        let before = entries::decode(of_object)?;
        let mut scales = entries::decode(of_scale)?;
        let mut managers = Managers::new();
        for (id, owned) in &before {
            if owned.api_version != self.api_version {
                continue;
            }
            let mut owned = owned.clone();
            if owned.set.has(&path) && scales.remove(id).is_none() {
                owned.set = owned.set.difference(&self.set());
                if owned.set.is_empty() {
                    continue;
                }
            }
            managers.insert(id.clone(), owned);
        }
        let replicas = [PathElement::field("spec"), PathElement::field("replicas")];
        for (id, owned) in scales {
            if owned.set.has(&replicas) {
                let time = before.get(&id).and_then(|before| before.time);
                managers.insert(id, Owned { set: self.set(), api_version: self.api_version.to_owned(), time });
            }
        }
        Ok(entries::encode(&managers))
    }
}
