//! What holds for Specs, whatever is in them.

use serde_json::{Value, json};
use stoa_engine::{
    DigestKeys, Owner, PlanInput, ResourceId, Schema, Spec, State,
    digest::canonical_json,
    reference::{self, Part, Template},
    render::{Colour, render},
    sealed,
};
use stoa_kubernetes_model::KubernetesRules;

/// The most bytes that are looked at: the work grows with the product of resources and references.
const LARGEST: usize = 64 << 10;

/// A Spec in JSON or YAML: it is read as it was written, and either has problems, each told with words and a reason, or a
/// plan that creates each resource once, after what it depends on.
pub(crate) fn specs(data: &[u8]) {
    let Some(spec) = read(&data[..data.len().min(LARGEST)]) else { return };
    let canonical = canonical_json(&spec);
    let again: Spec = serde_json::from_slice(&canonical).expect("it was written here");
    assert_eq!(again.digest(), spec.digest());
    assert_eq!(canonical_json(&again), canonical);
    // What is kept of it opens to what it was.
    let kept = sealed::seal(&spec, &mut |place, value| json!([place.to_json(), value]).to_string());
    let opened = sealed::open(&kept, &mut |place, text| {
        let [at, value]: [Value; 2] = serde_json::from_str(text).map_err(|_| "it was not sealed here")?;
        if at == place.to_json() { Ok(value) } else { Err("it was sealed elsewhere") }
    });
    assert_eq!(opened, Ok(spec.clone()));
    let valid = spec.validate(&KubernetesRules);
    for problem in valid.as_ref().err().into_iter().flatten() {
        assert!(!problem.message.is_empty() && !problem.reason.is_empty(), "{problem:?}");
    }
    let state = State::default();
    let (owner, keys) = (Owner::default(), DigestKeys::new(&[7; 32], &[]));
    match stoa_engine::plan(&PlanInput { rules: &KubernetesRules, ..PlanInput::blind(&spec, &state, &owner, &keys) }) {
        Ok(plan) => {
            assert!(valid.is_ok());
            assert_eq!(plan.actions.len(), spec.resources.len());
            let position = |id: &ResourceId| plan.actions.iter().position(|action| action.id == *id);
            for (at, action) in plan.actions.iter().enumerate() {
                for needed in &action.depends_on {
                    assert!(position(needed).is_some_and(|before| before < at), "{needed} before {}", action.id);
                }
            }
            assert!(!render(&plan, Colour::Never).is_empty());
        }
        Err(problems) => assert!(!problems.is_empty()),
    }
}

fn read(data: &[u8]) -> Option<Spec> {
    if data.trim_ascii_start().starts_with(b"{") {
        return serde_json::from_slice(data).ok();
    }
    let value: Value = serde_saphyr::from_str(std::str::from_utf8(data).ok()?).ok()?;
    serde_json::from_value(value).ok()
}

/// A text with references, to what the first line names: each that is found is one of those, and is read as it is
/// shown, alone and in a text.
pub(crate) fn references(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (ids, text) = text.split_once('\n').unwrap_or(("a", &text));
    let ids: Vec<&str> = ids.split(',').filter(|id| !id.is_empty()).collect();
    let known = |id: &str| ids.contains(&id);
    let template = match reference::parse(text, &known) {
        Ok(template) => template,
        Err(error) => return assert!(!error.to_string().is_empty() && !error.reason().is_empty()),
    };
    for found in template.iter().flat_map(Template::references) {
        assert!(known(&found.id.0), "{found}");
        // Of several ids the longest wins, which may be another for the same path that is written differently.
        let is_own = |id: &str| id == found.id.0;
        let whole = reference::parse(&format!("$kusion_path.{found}"), &is_own);
        assert_eq!(whole, Ok(Some(Template::Whole(found.clone()))), "{found}");
        // What has a `}` can stand alone only.
        if !found.id.0.contains('}') {
            let within = reference::parse(&format!("<${{kusion_path.{found}}}>"), &is_own);
            let parts = [Part::Text("<".to_owned()), Part::Reference(found.clone()), Part::Text(">".to_owned())];
            assert_eq!(within, Ok(Some(Template::Text(parts.to_vec()))), "{found}");
        }
    }
}

/// What a cluster says of its kinds, an OpenAPI v3 document: each kind that it names is read, the same each time, and no
/// other.
pub(crate) fn schemas(data: &[u8]) {
    let Ok(document) = serde_json::from_slice::<Value>(&data[..data.len().min(LARGEST)]) else { return };
    let schemas = document.pointer("/components/schemas").and_then(Value::as_object);
    let kinds = schemas.into_iter().flat_map(|schemas| schemas.values());
    let kinds = kinds.filter_map(|schema| schema.get("x-kubernetes-group-version-kind")?.as_array()).flatten();
    for kind in kinds.take(8) {
        let [Some(group), Some(version), Some(name)] = ["group", "version", "kind"].map(|key| kind[key].as_str())
        else {
            continue;
        };
        let read = Schema::of_kind(&document, group, version, name);
        assert!(read.is_some(), "{kind}");
        assert_eq!(read, Schema::of_kind(&document, group, version, name));
    }
    assert_eq!(Schema::of_kind(&document, "nobody.example.com", "v0", "\u{0}"), None);
}
