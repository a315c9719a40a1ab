//! The components: a schema for every kind, its list, and what they are made of.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Map, Value, json};

use super::{dialect::convert, meta};
use crate::{definition::ResourceDefinition, scale::scale_definition};

const PREFIX: &str = "#/components/schemas/";

/// Schemas by name, such as `dev.stoa.config.v1alpha1.Stack`.
pub struct Components(BTreeMap<String, Value>);

impl Components {
    /// Whether there is a schema of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The schemas that these paths need, directly or through others.
    pub fn referred_to(&self, paths: &Map<String, Value>) -> Map<String, Value> {
        let mut found = BTreeSet::new();
        let mut open = Vec::new();
        paths.values().for_each(|path| references(path, &mut open));
        while let Some(name) = open.pop() {
            if let Some((name, schema)) = self.0.get_key_value(name)
                && found.insert(name)
            {
                references(schema, &mut open);
            }
        }
        found.into_iter().map(|name| (name.clone(), self.0[name].clone())).collect()
    }
}

fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix(PREFIX)));
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// A reference to a component.
pub fn reference(name: &str) -> Value {
    json!({ "$ref": format!("{PREFIX}{name}") })
}

/// A kind's name among the components: the group turned round, so that it begins with its domain.
pub fn name(group: &str, version: &str, kind: &str) -> String {
    let reversed = match group {
        "" => "io.k8s.api.core".to_owned(),
        group if !group.contains('.') => format!("io.k8s.api.{group}"),
        group => group.rsplit('.').collect::<Vec<_>>().join("."),
    };
    format!("{reversed}.{version}.{kind}")
}

/// All components of these resources.
pub fn components(definitions: &[Arc<ResourceDefinition>]) -> Components {
    let mut components = meta::components(definitions);
    for definition in definitions {
        add_kind(definition, &mut components);
        if let Some(scale) = scale_definition(definition) {
            add_kind(&scale, &mut components);
        }
    }
    Components(components)
}

/// As in `x-kubernetes-group-version-kind`.
pub fn gvk(group: &str, version: &str, kind: &str) -> Value {
    json!({ "group": group, "version": version, "kind": kind })
}

fn add_kind(definition: &ResourceDefinition, components: &mut BTreeMap<String, Value>) {
    let ResourceDefinition { group, version, kind, .. } = definition;
    for field in ["$defs", "definitions"] {
        for (name, schema) in definition.schema.get(field).and_then(Value::as_object).into_iter().flatten() {
            if !components.contains_key(name) {
                components.insert(name.clone(), convert(schema));
            }
        }
    }
    let mut schema = convert(&definition.schema);
    let own_name = name(group, version, kind);
    for (field, suffix, state) in [("spec", "Spec", "desired"), ("status", "Status", "observed")] {
        let description = format!("The {state} state of the {kind}.");
        move_out(&mut schema, field, &format!("{own_name}{suffix}"), &description, components);
    }
    let description = match text(&schema, "description") {
        // What kube's derive says of a type whose author says nothing.
        derived if derived.is_empty() || derived.starts_with("Auto-generated derived type") => {
            let spec = components.get(&format!("{own_name}Spec"));
            spec.map(|spec| text(spec, "description")).filter(|d| !d.is_empty()).unwrap_or(kind)
        }
        description => description,
    };
    schema["description"] = description.to_owned().into();
    schema["type"] = "object".into();
    for (field, property) in type_meta() {
        schema["properties"][field] = property;
    }
    schema["properties"]["metadata"] = object_field(
        "ObjectMeta",
        "Standard object's metadata. More info: \
         https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
    );
    if let Value::Object(schema) = &mut schema
        && let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut)
    {
        required.retain(|field| field != "metadata");
        if required.is_empty() {
            schema.remove("required");
        }
    }
    schema["x-kubernetes-group-version-kind"] = json!([gvk(group, version, kind)]);

    let list_kind = format!("{kind}List");
    let mut list = json!({
        "description": format!("{list_kind} is a list of {kind}"),
        "type": "object",
        "required": ["items"],
        "properties": {
            "items": {
                "description": format!("List of {}.", definition.plural),
                "type": "array",
                "items": { "allOf": [reference(&own_name)], "default": {} },
            },
            "metadata": object_field("ListMeta", "Standard list metadata."),
        },
        "x-kubernetes-group-version-kind": [gvk(group, version, &list_kind)],
    });
    for (field, property) in type_meta() {
        list["properties"][field] = property;
    }
    components.insert(name(group, version, &list_kind), list);
    components.insert(own_name, schema);
}

/// Makes a property of a kind a component of its own, so that it has a name: `StackSpec`.
fn move_out(schema: &mut Value, field: &str, name: &str, description: &str, components: &mut BTreeMap<String, Value>) {
    let Some(property) = schema["properties"].get_mut(field) else { return };
    if !is_struct(property) || components.contains_key(name) {
        return;
    }
    let mut moved = property.take();
    // The type's own description goes along: `kubectl explain` shows both when asked for the
    // field, but only the one beside the reference when asked for the kind.
    let left = json!({ "description": description, "allOf": [reference(name)], "default": {} });
    if let Value::Object(moved) = &mut moved {
        moved.remove("default");
    }
    *property = left;
    components.insert(name.to_owned(), moved);
}

/// Whether a schema is of fields that are known, if of none yet, rather than of any.
fn is_struct(schema: &Value) -> bool {
    let is_open = ["additionalProperties", "x-kubernetes-preserve-unknown-fields"]
        .iter()
        .any(|name| schema.get(name).is_some_and(|value| *value != Value::Bool(false)));
    schema.get("properties").is_some() || (text(schema, "type") == "object" && !is_open)
}

fn object_field(kind: &str, description: &str) -> Value {
    json!({ "description": description, "allOf": [meta::reference(kind)], "default": {} })
}

fn type_meta() -> [(&'static str, Value); 2] {
    let url = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
    [
        ("apiVersion", format!("The versioned schema of this representation of an object. More info: {url}#resources")),
        ("kind", format!("The REST resource that this object represents, in CamelCase. More info: {url}#types-kinds")),
    ]
    .map(|(field, description)| (field, json!({ "description": description, "type": "string" })))
}

fn text<'a>(schema: &'a Value, field: &str) -> &'a str {
    schema.get(field).and_then(Value::as_str).unwrap_or("")
}
