//! Fuzz target: properties of health policies for any object.

use serde_json::{Map, Value, json};
use stoa_engine::{Resource, ResourceId, ResourceType};

use super::{EXPRESSIONS, HealthPolicy, LONGEST_ERROR, POLICY};
use crate::target::Gvk;

/// A target by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All fuzz targets of this crate.
pub const TARGETS: &[Target] = &[("health_policies", health_policies)];

/// Fuzz input: lines with `inProgress`, `failed` and `current`, where empty ones are left out, and an object as JSON.
///
/// A policy is parsed, or rejected with fields and reasons. Its evaluation terminates, is deterministic, and quotes a
/// limited part of the object.
pub fn health_policies(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.splitn(4, '\n');
    let written = EXPRESSIONS.iter().zip(&mut lines).filter(|(_, source)| !source.is_empty());
    let cel: Map<String, Value> = written.map(|(known, source)| (known.name.to_owned(), source.into())).collect();
    let object = lines.next().and_then(|object| serde_json::from_str(object).ok());
    let object: Map<String, Value> = object.unwrap_or_else(|| {
        let object = json!({"metadata": {"generation": 1}, "status": {"phase": "Running", "conditions": []}});
        object.as_object().cloned().unwrap_or_default()
    });
    let resource = Resource {
        id: ResourceId("example.com/v1:Widget:shop:w".to_owned()),
        kind: ResourceType::Kubernetes,
        attributes: Map::new(),
        depends_on: Vec::new(),
        extensions: Map::from_iter([(POLICY.to_owned(), json!({ "cel": cel }))]),
    };
    let policy = match HealthPolicy::of(&resource) {
        Ok(policy) => policy.expect("there is an extension"),
        Err(problems) => {
            let is_told = |field: &str| field.starts_with("extensions.healthPolicy.cel.");
            assert!(!problems.is_empty() && problems.iter().all(|problem| is_told(&problem.field)), "{problems:?}");
            return;
        }
    };
    let gvk = |kind: &str| Gvk { group: String::new(), version: "v1".to_owned(), kind: kind.to_owned() };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime can be made");
    let health = |kind| runtime.block_on(policy.health(&gvk(kind), &object));
    let first = health("Widget");
    assert_eq!(first, health("Widget"));
    assert!(!first.1.is_empty() && first.1.len() < LONGEST_ERROR + 128, "{first:?}");
    // Nothing of a Secret is quoted.
    let (secret, message) = health("Secret");
    assert!(secret == first.0 && message.len() <= first.1.len(), "{message}");
}
