//! Comparison of definitions: whether the schema of a version changes.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use stoa_engine::ResourceId;

/// Results by definition and version: a schema may be large, and a kind may have many objects.
#[derive(Debug, Default)]
pub(super) struct Compared<'p>(Mutex<HashMap<(&'p ResourceId, &'p str), bool>>);

impl<'p> Compared<'p> {
    /// Whether a version changes; `compare` is called once for each.
    pub(super) fn is_new(&self, definition: &'p ResourceId, version: &'p str, compare: impl FnOnce() -> bool) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *known.entry((definition, version)).or_insert_with(compare)
    }
}

/// Whether two schemas are equal apart from their descriptions.
pub(super) fn is_same(one: Option<&Value>, other: Option<&Value>) -> bool {
    const WORDS: [&str; 4] = ["description", "title", "example", "externalDocs"];
    let (Some(Value::Object(one)), Some(Value::Object(other))) = (one, other) else { return one == other };
    let is_same_within = |key: &str| match key {
        // Its keys are names.
        "properties" => {
            let (Some(Value::Object(one)), Some(Value::Object(other))) = (one.get(key), other.get(key)) else {
                return one.get(key) == other.get(key);
            };
            one.len() == other.len() && one.iter().all(|(name, schema)| is_same(Some(schema), other.get(name)))
        }
        "items" | "additionalProperties" | "not" => is_same(one.get(key), other.get(key)),
        _ => one.get(key) == other.get(key),
    };
    one.keys().chain(other.keys()).all(|key| WORDS.contains(&key.as_str()) || is_same_within(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_versions_are_compared_once() {
        let (one, other) = (ResourceId("one".to_owned()), ResourceId("other".to_owned()));
        let compared = Compared::default();
        let mut asked = 0;
        for _ in 0..1_000 {
            for (definition, version, is_new) in [(&one, "v1", true), (&one, "v2", false), (&other, "v1", false)] {
                let found = compared.is_new(definition, version, || {
                    asked += 1;
                    is_new
                });
                assert_eq!(found, is_new, "{definition} {version}");
            }
        }
        assert_eq!(asked, 3);
    }
}
