//! The components: a schema for every kind, its list, and what they are made of.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{definition::ResourceDefinition, registry::scale_definition};

const PREFIX: &str = "#/components/schemas/";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// Schemas by name, such as `dev.stoa.config.v1alpha1.Stack`.
pub(super) struct Components(BTreeMap<String, Value>);

impl Components {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The schemas that these paths need, directly or through others.
    pub(super) fn referred_to(&self, paths: &Map<String, Value>) -> Map<String, Value> {
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
pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("{PREFIX}{name}") })
}

/// A reference to one of the components that all groups share, such as `Status`.
pub(super) fn meta(kind: &str) -> Value {
    reference(&format!("{META}{kind}"))
}

/// A kind's name among the components: the group turned round, so that it begins with its domain.
pub(super) fn name(group: &str, version: &str, kind: &str) -> String {
    let reversed = match group {
        "" => "io.k8s.api.core".to_owned(),
        group if !group.contains('.') => format!("io.k8s.api.{group}"),
        group => group.rsplit('.').collect::<Vec<_>>().join("."),
    };
    format!("{reversed}.{version}.{kind}")
}

/// All components of these resources.
pub(super) fn components(definitions: &[Arc<ResourceDefinition>]) -> Components {
    let mut components = shared(definitions);
    for definition in definitions {
        add_kind(definition, &mut components);
        if let Some(scale) = scale_definition(definition) {
            add_kind(&scale, &mut components);
        }
    }
    Components(components)
}

/// The schema of `ObjectMeta` with all it refers to, and with what merging has to know of it.
pub(crate) fn object_meta() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        let mut schema = meta("ObjectMeta");
        schema["components"] = json!({ "schemas": meta_components() });
        schema
    });
    &SCHEMA
}

/// `ObjectMeta`, `Status` and the like, from the types' own descriptions.
fn meta_components() -> &'static BTreeMap<String, Value> {
    static COMPONENTS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(describe_meta);
    &COMPONENTS
}

fn describe_meta() -> BTreeMap<String, Value> {
    let mut generator = SchemaSettings::openapi3().into_generator();
    fn add<T: JsonSchema>(generator: &mut SchemaGenerator) {
        generator.subschema_for::<T>();
    }
    add::<v1::APIResourceList>(&mut generator);
    add::<v1::DeleteOptions>(&mut generator);
    add::<v1::ListMeta>(&mut generator);
    add::<v1::ObjectMeta>(&mut generator);
    add::<v1::Patch>(&mut generator);
    add::<v1::Status>(&mut generator);
    add::<v1::WatchEvent<()>>(&mut generator);
    let mut components: BTreeMap<String, Value> = generator.take_definitions(true).into_iter().collect();
    for (pointer, extensions) in [
        (
            "ObjectMeta/properties/finalizers",
            json!({ "x-kubernetes-list-type": "set", "x-kubernetes-patch-strategy": "merge" }),
        ),
        ("ObjectMeta/properties/managedFields", json!({ "x-kubernetes-list-type": "atomic" })),
        (
            "ObjectMeta/properties/ownerReferences",
            json!({
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uid"],
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": "uid",
            }),
        ),
        ("OwnerReference", json!({ "x-kubernetes-map-type": "atomic" })),
        ("DeleteOptions/properties/dryRun", json!({ "x-kubernetes-list-type": "atomic" })),
        ("StatusDetails/properties/causes", json!({ "x-kubernetes-list-type": "atomic" })),
    ] {
        let (kind, rest) = pointer.split_at(pointer.find('/').unwrap_or(pointer.len()));
        let schema = components.get_mut(&format!("{META}{kind}")).and_then(|schema| schema.pointer_mut(rest));
        if let (Some(Value::Object(schema)), Value::Object(extensions)) = (schema, extensions) {
            schema.extend(extensions);
        }
    }
    components
}

/// The components that are the same for every resource.
fn shared(definitions: &[Arc<ResourceDefinition>]) -> BTreeMap<String, Value> {
    let mut components = meta_components().clone();
    let mut versions: BTreeSet<(&str, &str)> =
        definitions.iter().map(|d| (d.group.as_str(), d.version.as_str())).collect();
    versions.insert(("", "v1"));
    for kind in ["DeleteOptions", "WatchEvent"] {
        let kinds: Vec<Value> = versions.iter().map(|(group, version)| gvk(group, version, kind)).collect();
        tag(&mut components, kind, kinds);
    }
    tag(&mut components, "APIResourceList", vec![gvk("", "v1", "APIResourceList")]);
    tag(&mut components, "Status", vec![gvk("", "v1", "Status")]);
    components
}

fn tag(components: &mut BTreeMap<String, Value>, kind: &str, kinds: Vec<Value>) {
    if let Some(schema) = components.get_mut(&format!("{META}{kind}")) {
        schema["x-kubernetes-group-version-kind"] = kinds.into();
    }
}

/// As in `x-kubernetes-group-version-kind`.
pub(super) fn gvk(group: &str, version: &str, kind: &str) -> Value {
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
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|field| field != "metadata");
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
    if property.get("properties").is_none() || components.contains_key(name) {
        return;
    }
    let mut moved = property.take();
    // The type's own description goes along: `kubectl explain` shows both when asked for the
    // field, but only the one beside the reference when asked for the kind.
    let left = json!({ "description": description, "allOf": [reference(name)], "default": {} });
    if let Value::Object(moved) = &mut moved {
        moved.remove("nullable");
        moved.remove("default");
    }
    *property = left;
    components.insert(name.to_owned(), moved);
}

fn object_field(kind: &str, description: &str) -> Value {
    json!({ "description": description, "allOf": [meta(kind)], "default": {} })
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

/// A schema in OpenAPI 3.0's dialect: references to components and with nothing beside them,
/// one type, `nullable` and `enum` for what JSON Schema says with null types and `const`.
fn convert(schema: &Value) -> Value {
    let Some(schema) = schema.as_object() else { return json!({}) };
    let mut out = Map::new();
    for (key, value) in schema {
        match key.as_str() {
            "$schema" | "$id" | "$defs" | "definitions" | "title" | "examples" => {}
            "default" if value.is_null() => {}
            "const" => drop(out.insert("enum".to_owned(), json!([value]))),
            "properties" | "patternProperties" => drop(out.insert(key.clone(), convert_each(value))),
            "items" | "not" => drop(out.insert(key.clone(), convert(value))),
            "additionalProperties" if value.is_object() => drop(out.insert(key.clone(), convert(value))),
            "allOf" | "anyOf" | "oneOf" => convert_alternatives(key, value, &mut out),
            "type" => convert_type(value, &mut out),
            "exclusiveMinimum" | "exclusiveMaximum" if value.is_number() => {
                out.insert(key.replace("exclusiveM", "m"), value.clone());
                out.insert(key.clone(), true.into());
            }
            _ => drop(out.insert(key.clone(), value.clone())),
        }
    }
    if let Some(Value::String(target)) = out.remove("$ref") {
        let target = reference(target.rsplit('/').next().unwrap_or_default());
        if out.is_empty() {
            return target;
        }
        out.insert("allOf".to_owned(), json!([target]));
    }
    Value::Object(out)
}

fn convert_each(properties: &Value) -> Value {
    let each = properties.as_object().into_iter().flatten();
    Value::Object(each.map(|(name, schema)| (name.clone(), convert(schema))).collect())
}

fn convert_type(types: &Value, out: &mut Map<String, Value>) {
    let Some(names) = types.as_array() else {
        out.insert("type".to_owned(), types.clone());
        return;
    };
    let (null, others): (Vec<&Value>, Vec<&Value>) = names.iter().partition(|name| *name == "null");
    if !null.is_empty() {
        out.insert("nullable".to_owned(), true.into());
    }
    if let [only] = others[..] {
        out.insert("type".to_owned(), only.clone());
    }
}

/// Alternatives of which one is null are one nullable schema.
fn convert_alternatives(key: &str, alternatives: &Value, out: &mut Map<String, Value>) {
    let is_null = |schema: &&Value| schema["type"] == "null" || schema["enum"] == json!([null]);
    let all: Vec<&Value> = alternatives.as_array().into_iter().flatten().collect();
    let others: Vec<&Value> = all.iter().copied().filter(|schema| !is_null(schema)).collect();
    if others.len() < all.len() {
        out.insert("nullable".to_owned(), true.into());
    }
    match (convert_all(&others).as_slice(), others.len() < all.len()) {
        ([only], true) if only.get("$ref").is_some() => drop(out.insert("allOf".to_owned(), json!([only]))),
        ([Value::Object(only)], true) => {
            for (name, value) in only {
                out.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        (others, _) => drop(out.insert(key.to_owned(), others.into())),
    }
}

fn convert_all(schemas: &[&Value]) -> Vec<Value> {
    schemas.iter().map(|schema| convert(schema)).collect()
}
