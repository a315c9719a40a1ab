//! The parts of an object that a write may change: the status, a part with its subresource, or everything else.

use serde_json::{Map, Value};
use stoa_meta::{definition::Target, object::Object, request::RequestContext, status::ApiError};

use super::{Store, metadata};

impl Store {
    /// What a write may change of what it was sent, and the rest as it is.
    pub(super) fn part(
        &self,
        mut new: Object,
        old: &Object,
        (target, context): (Target, &RequestContext),
        namespace: &str,
    ) -> Result<Object, ApiError> {
        new.metadata_mut().remove("resourceVersion");
        metadata::set_namespace(&mut new, self.definition.scope, namespace)?;
        Ok(self.split(new, old, target, context.writes_status()))
    }

    /// Keeps a write to its part: the status, what a subresource is for, or everything else.
    fn split(&self, mut new: Object, old: &Object, target: Target, with_status: bool) -> Object {
        match target {
            Target::Main | Target::Scale => {
                if self.definition.has_status && !with_status {
                    match old.0.get("status") {
                        Some(status) => new.0.insert("status".to_owned(), status.clone()),
                        None => new.0.remove("status"),
                    };
                }
                metadata::keep_for_update(&mut new, old);
                new
            }
            Target::Status => {
                let mut kept = old.clone();
                match new.0.remove("status") {
                    Some(status) => kept.0.insert("status".to_owned(), status),
                    None => kept.0.remove("status"),
                };
                keep_identity(new, &mut kept);
                kept
            }
            Target::Part(name) => {
                let mut kept = old.clone();
                let part = self.definition.parts.iter().find(|part| part.name == name);
                if let Some((last, parents)) = part.and_then(|part| part.path.split_last()) {
                    let sent = parents.iter().try_fold(&mut new.0, |map, key| map.get_mut(*key)?.as_object_mut());
                    let sent = sent.and_then(|map| map.remove(*last));
                    put_part(&mut kept.0, parents, last, sent);
                }
                keep_identity(new, &mut kept);
                kept
            }
        }
    }
}

/// Takes over who the object is, so that a change of that is refused as for the main resource.
fn keep_identity(mut new: Object, kept: &mut Object) {
    for field in ["name", "uid"] {
        if let Some(value) = new.metadata_mut().remove(field) {
            kept.metadata_mut().insert(field.to_owned(), value);
        }
    }
}

/// Puts a value where a path of map keys ends, or takes away what is there.
fn put_part(mut map: &mut Map<String, Value>, parents: &[&str], last: &str, value: Option<Value>) {
    for &key in parents {
        if value.is_none() && !map.contains_key(key) {
            return;
        }
        let inner = map.entry(key).or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(inner) = inner else { return };
        map = inner;
    }
    match value {
        Some(value) => map.insert(last.to_owned(), value),
        None => map.remove(last),
    };
}
