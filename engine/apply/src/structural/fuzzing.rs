//! Fuzz target: properties of structural validation for any schema and object.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use stoa_engine::FieldPath;
use stoa_engine::path::Found;

use super::{Fault, Finding, Instance, LONGEST, MOST, Validator};

/// A target by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All fuzz targets of this crate.
pub const TARGETS: &[Target] = &[("custom_resources", custom_resources)];

/// Fuzz input: two lines with a schema and an object as JSON.
///
/// Validation terminates, is deterministic, has a limited number of findings, and names existing fields or their
/// parents. Live values are accepted, and unknown ones have no findings.
pub fn custom_resources(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (schema, object) = text.split_once('\n').unwrap_or((&text, "{}"));
    let Ok(schema) = serde_json::from_str::<Value>(schema) else { return };
    let Ok(object) = serde_json::from_str::<Map<String, Value>>(object) else { return };
    let version = json!({"name": "v1", "schema": {"openAPIV3Schema": schema}});
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime can be made");
    let found = |live: Option<&Map<String, Value>>, unknown: &BTreeSet<FieldPath>| -> Vec<Finding> {
        let mut validator = Validator::default();
        let instance = Instance { attributes: &object, live, unknown };
        let first = runtime.block_on(validator.check(&version, instance));
        assert_eq!(first, runtime.block_on(validator.check(&version, instance)));
        first
    };
    let nothing = BTreeSet::new();
    let all = found(None, &nothing);
    assert!(all.len() <= MOST);
    for Finding { fault, field, message } in &all {
        assert!(!message.is_empty() && message.len() < 4 * LONGEST, "{message}");
        // Defaults are filled in around what is missing.
        let (_, around) = field.0.split_last().map_or((None, &[][..]), |(last, around)| (Some(last), around));
        let place = FieldPath(around.to_vec());
        let is_there = around.is_empty() || matches!(place.find(&object), Found::Value(_) | Found::Missing);
        assert!(is_there, "{fault:?} {field}");
    }
    let kept = found(Some(&object), &nothing);
    let is_new = |it: &&Finding| !matches!(it.fault, Fault::Unknown | Fault::Dropped | Fault::Missing);
    for finding in kept.iter().filter(is_new) {
        // But for what is added to it.
        assert_ne!(finding.field.find(&object), Found::Missing, "{finding:?}");
    }
    // A name is known, also where its value is not.
    for finding in all.iter().filter(is_new) {
        let unknown = BTreeSet::from([finding.field.clone()]);
        assert!(found(None, &unknown).iter().all(|it| !it.field.0.starts_with(&finding.field.0)), "{finding:?}");
    }
}
