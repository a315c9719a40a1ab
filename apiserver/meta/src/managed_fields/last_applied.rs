//! The `last-applied-configuration` annotation: kubectl's client-side apply becomes server-side apply.
//!
//! The annotation that client-side apply leaves says what kubectl set. Conflicts over fields that still have those
//! values are none, and after an apply the annotation says what was applied.
//!
//! Follows `lastappliedmanager.go` and `lastappliedupdater.go` of
//! `k8s.io/apimachinery/pkg/util/managedfields/internal`.

use serde_json::{Map, Value};

use super::{
    schema::Schema,
    set::Set,
    typed::{self, Strictness, Structs},
    value,
};

pub(super) const KUBECTL: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The fields that still are as client-side apply set them; nothing when there was none that can be read.
pub(super) fn unchanged(schema: &Schema, api_version: &str, live: &Map<String, Value>) -> Option<Set> {
    let applied: Map<String, Value> = serde_json::from_str(annotation(live)?).ok()?;
    if applied.get("apiVersion").and_then(Value::as_str) != Some(api_version) {
        return None;
    }
    typed::validate(schema, live, Strictness::Stored).ok()?;
    typed::validate(schema, &applied, Strictness::Applied).ok()?;
    let set = typed::field_set(schema, &applied).ok()?;
    let comparison = typed::compare(schema, &applied, live, Structs::Written).ok()?;
    Some(set.difference(&comparison.modified).difference(&comparison.added).difference(&comparison.removed))
}

/// Puts what was applied into the annotation, where there is one. One that would be too large goes.
pub(super) fn refresh(object: &mut Map<String, Value>, applied: &Map<String, Value>) {
    if annotation(object).is_none() {
        return;
    }
    let mut applied = applied.clone();
    if let Some(annotations) = annotations_mut(&mut applied) {
        annotations.remove(ANNOTATION);
    }
    let mut text = String::new();
    value::write_json(&Value::Object(applied), &mut text);
    text.push('\n');
    let Some(annotations) = annotations_mut(object) else { return };
    annotations.insert(ANNOTATION.to_owned(), text.into());
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > crate::content::ANNOTATIONS_MAX {
        annotations.remove(ANNOTATION);
    }
}

fn annotation(object: &Map<String, Value>) -> Option<&str> {
    let annotation = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    (!annotation.is_empty()).then_some(annotation)
}

fn annotations_mut(object: &mut Map<String, Value>) -> Option<&mut Map<String, Value>> {
    object.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()
}
