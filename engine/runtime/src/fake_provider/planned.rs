//! The schema of the fake provider, and its plans.
//!
//! Start at [`plan`]. It reads no object of the cloud, so that a plan and an apply decide alike.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use stoa_engine::path::{Segment, below};
use stoa_engine::{Action, FieldPath, ProviderPlan};

use crate::RuntimeError;

/// Who sets an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setter {
    /// The Spec, which needs it.
    Required,
    /// The Spec, if it wants.
    Optional,
    /// The Spec, else the provider.
    OptionalOrComputed,
    /// The provider alone.
    Computed,
}

/// An attribute of the only type of resources.
#[derive(Clone, Copy, Debug)]
struct Attribute {
    name: &'static str,
    setter: Setter,
    is_sensitive: bool,
    is_map: bool,
}

const fn attribute(name: &'static str, setter: Setter) -> Attribute {
    Attribute { name, setter, is_sensitive: false, is_map: false }
}

const ATTRIBUTES: [Attribute; 11] = [
    // The provider stores it in upper case.
    attribute("name", Setter::Required),
    attribute("note", Setter::Optional),
    // Deprecated.
    attribute("label", Setter::Optional),
    // A change needs another object.
    attribute("fixed", Setter::Optional),
    attribute("color", Setter::OptionalOrComputed),
    Attribute { is_map: true, ..attribute("tags", Setter::Optional) },
    Attribute { is_sensitive: true, ..attribute("secret", Setter::Optional) },
    attribute("id", Setter::Computed),
    // The provider gives it another value with each name.
    attribute("computed", Setter::Computed),
    // Generated with the object.
    Attribute { is_sensitive: true, ..attribute("password", Setter::Computed) },
    // From the second version of the schema on: a copy of the secret.
    Attribute { is_sensitive: true, ..attribute("copy", Setter::Computed) },
];

/// The version of the schema from which an attribute exists.
fn since(name: &str) -> u32 {
    if name == "copy" { 2 } else { 1 }
}

/// An object before its change.
#[derive(Clone, Debug)]
pub(super) struct Before {
    pub(super) attributes: Map<String, Value>,
    /// Its creation failed halfway.
    pub(super) is_tainted: bool,
}

/// What a plan depends on, apart from the object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Provider<'a> {
    /// The version of its schema.
    pub(super) version: u32,
    /// The color of new objects without one.
    pub(super) color: &'a str,
}

/// The sensitive paths of an object.
pub(super) fn sensitive_paths(object: &Map<String, Value>) -> BTreeSet<FieldPath> {
    let sensitive = ATTRIBUTES.iter().filter(|attribute| attribute.is_sensitive);
    sensitive.filter(|it| object.contains_key(it.name)).map(|it| FieldPath::of_keys([it.name])).collect()
}

/// The attributes of a schema in another one: new attributes are null.
pub(super) fn upgraded(attributes: &Map<String, Value>, version: u32) -> Map<String, Value> {
    let known = ATTRIBUTES.iter().filter(|attribute| since(attribute.name) <= version);
    known.map(|it| (it.name.to_owned(), attributes.get(it.name).cloned().unwrap_or_default())).collect()
}

/// The plan of an object: null stands at unknown paths of the arguments.
pub(super) fn plan(
    provider: Provider<'_>,
    arguments: &Map<String, Value>,
    unknown: &BTreeSet<FieldPath>,
    before: Option<&Before>,
) -> Result<ProviderPlan, RuntimeError> {
    validate(provider, arguments, unknown)?;
    let mut plan = ProviderPlan {
        config_unknown: unknown.clone(),
        warnings: warnings(arguments),
        ..changed(provider, arguments, unknown, before.map(|before| &before.attributes))
    };
    let Some(before) = before else { return Ok(plan) };
    let fixed = FieldPath::of_keys(["fixed"]);
    if plan.unknown.contains(&fixed) || plan.after.get("fixed") != before.attributes.get("fixed") {
        plan.replaced_by.push(fixed);
    }
    if before.is_tainted || !plan.replaced_by.is_empty() {
        let mut warnings = plan.warnings;
        warnings.extend(before.is_tainted.then(|| "its creation failed halfway, so it is replaced".to_owned()));
        let (replaced_by, config_unknown) = (plan.replaced_by, plan.config_unknown);
        let new = changed(provider, arguments, unknown, None);
        return Ok(ProviderPlan { action: Action::Replace, replaced_by, config_unknown, warnings, ..new });
    }
    let is_same = plan.unknown.is_empty() && plan.after == before.attributes;
    plan.action = if is_same { Action::Unchanged } else { Action::Update };
    Ok(plan)
}

/// The object after a change, whatever its action is called.
fn changed(
    provider: Provider<'_>,
    arguments: &Map<String, Value>,
    unknown: &BTreeSet<FieldPath>,
    before: Option<&Map<String, Value>>,
) -> ProviderPlan {
    let mut plan = ProviderPlan { action: Action::Create, ..ProviderPlan::default() };
    let had = |name: &str| before.and_then(|before| before.get(name)).cloned().unwrap_or_default();
    for Attribute { name, setter, .. } in ATTRIBUTES.iter().filter(|it| since(it.name) <= provider.version) {
        let path = FieldPath::of_keys([name]);
        let is_unknown = unknown.contains::<[Segment]>(&[]) || unknown.contains(&path);
        let given = arguments.get(*name).filter(|value| !value.is_null());
        let (value, is_unknown) = match (setter, given) {
            (Setter::Required | Setter::Optional | Setter::OptionalOrComputed, _) if is_unknown => (Value::Null, true),
            (Setter::Required, given) => {
                (given.and_then(Value::as_str).map(|text| text.to_uppercase().into()).unwrap_or_default(), false)
            }
            (Setter::Optional, given) => (given.cloned().unwrap_or_default(), false),
            (Setter::OptionalOrComputed, Some(given)) => (given.clone(), false),
            (Setter::OptionalOrComputed, None) if before.is_some() => (had(name), false),
            (Setter::OptionalOrComputed, None) => (json!(provider.color), false),
            (Setter::Computed, _) => match computed(name, &plan, before) {
                Some(value) => (value, false),
                None => (Value::Null, true),
            },
        };
        if is_unknown {
            plan.unknown.insert(path.clone());
        } else {
            plan.unknown.extend(below(unknown, &path.0).map(|rest| path.concat(rest)));
        }
        plan.after.insert((*name).to_owned(), value);
    }
    plan.sensitive = sensitive_paths(&plan.after);
    plan
}

/// The planned value of an attribute that the provider alone sets; `None` where the change chooses it.
fn computed(name: &str, plan: &ProviderPlan, before: Option<&Map<String, Value>>) -> Option<Value> {
    let is_same = |source: &str| {
        let is_unknown = plan.unknown.contains(&FieldPath::of_keys([source]));
        !is_unknown && before.is_some_and(|before| before.get(source) == plan.after.get(source))
    };
    match name {
        "copy" if plan.unknown.contains(&FieldPath::of_keys(["secret"])) => None,
        "copy" => Some(plan.after.get("secret").cloned().unwrap_or_default()),
        "computed" if !is_same("name") => None,
        _ => before.map(|before| before.get(name).cloned().unwrap_or_default()),
    }
}

fn validate(
    provider: Provider<'_>,
    arguments: &Map<String, Value>,
    unknown: &BTreeSet<FieldPath>,
) -> Result<(), RuntimeError> {
    let invalid =
        |name: &str, message: String| RuntimeError::Invalid { message, field: Some(format!("attributes.{name}")) };
    for (name, value) in arguments {
        let known = ATTRIBUTES.iter().find(|it| it.name == name && since(it.name) <= provider.version);
        let Some(attribute) = known else { return Err(invalid(name, "there is no such argument".to_owned())) };
        let is_fit = match value {
            Value::Null => true,
            Value::String(_) => !attribute.is_map,
            Value::Object(_) => attribute.is_map,
            Value::Bool(_) | Value::Number(_) | Value::Array(_) => false,
        };
        if !is_fit {
            return Err(invalid(name, "the value has another type".to_owned()));
        }
        if attribute.setter == Setter::Computed && !value.is_null() {
            return Err(invalid(name, "the provider alone sets it".to_owned()));
        }
    }
    let is_missing = arguments.get("name").is_none_or(Value::is_null);
    if is_missing && !unknown.iter().any(|path| path.first_key().is_none_or(|key| key == "name")) {
        return Err(invalid("name", "it is required".to_owned()));
    }
    match arguments.get("secret").and_then(Value::as_str) {
        // As careless providers do, the message quotes the value.
        Some(secret) if secret.contains(' ') => {
            let message = format!("the secret {secret:?} has a space");
            Err(RuntimeError::Rejected { message, field: Some("attributes.secret".to_owned()), by_definition: false })
        }
        Some(_) | None => Ok(()),
    }
}

fn warnings(arguments: &Map<String, Value>) -> Vec<String> {
    let is_set = arguments.get("label").is_some_and(|label| !label.is_null());
    is_set.then(|| "label is deprecated; use note".to_owned()).into_iter().collect()
}
