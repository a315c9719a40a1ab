//! Turns a JSON schema into a tree that is quick to walk: references resolved, formats parsed,
//! patterns compiled, defaults made ready to copy.

use std::collections::HashMap;

use regex::Regex;
use serde_json::{Map, Value};

/// Why a schema does not compile: the fault of who defined the resource, not of any object.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// A `$ref` that leads nowhere.
    #[error("the schema refers to {0:?}, which it does not define")]
    UnknownReference(String),
    /// A `pattern` that is no regular expression.
    #[error("the pattern {pattern:?} is no regular expression")]
    BadPattern {
        /// As written.
        pattern: String,
        /// What is wrong with it.
        source: regex::Error,
    },
}

pub(super) type NodeId = usize;

/// A schema, ready to check objects.
#[derive(Debug)]
pub struct CompiledSchema {
    nodes: Vec<Node>,
    root: NodeId,
}

/// What one place in an object may hold.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) shape: Shape,
    pub(super) nullable: bool,
    pub(super) rules: Option<Box<Rules>>,
    default: Option<Value>,
}

#[derive(Clone, Debug)]
pub(super) enum Shape {
    /// Anything at all, left as it is.
    Any,
    Boolean,
    Integer(IntegerType),
    Number,
    String(StringFormat),
    IntOrString,
    Array(NodeId),
    Object(ObjectShape),
}

/// The range of an integer, and what Go calls it.
#[derive(Clone, Copy, Debug)]
pub(super) struct IntegerType {
    pub(super) name: &'static str,
    pub(super) min: i128,
    pub(super) max: i128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StringFormat {
    Plain,
    DateTime,
    Byte,
}

#[derive(Clone, Debug)]
pub(super) struct ObjectShape {
    pub(super) fields: HashMap<Box<str>, NodeId>,
    pub(super) rest: Rest,
    /// What to add where it is missing; only what is worth writing down.
    pub(super) defaults: Vec<(Box<str>, Value)>,
}

/// What becomes of keys that are no fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// They are unknown, and dropped.
    Unknown,
    /// They are kept as they are.
    Keep,
    /// They are keys of a map of such values.
    Map(NodeId),
}

/// What the schema says of a key of an object.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field {
    Known(NodeId),
    Element(NodeId),
    Free,
    Unknown,
}

impl ObjectShape {
    pub(super) fn field(&self, key: &str) -> Field {
        match (self.fields.get(key), self.rest) {
            (Some(&id), _) => Field::Known(id),
            (None, Rest::Unknown) => Field::Unknown,
            (None, Rest::Keep) => Field::Free,
            (None, Rest::Map(id)) => Field::Element(id),
        }
    }
}

/// A regular expression of Go's.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    /// As written.
    pub(super) source: String,
    pub(super) compiled: Regex,
}

/// Which values are refused, besides those of the wrong type.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub(super) values: Vec<Value>,
    pub(super) minimum: Option<(f64, bool)>,
    pub(super) maximum: Option<(f64, bool)>,
    pub(super) multiple_of: Option<f64>,
    pub(super) min_length: Option<usize>,
    pub(super) max_length: Option<usize>,
    pub(super) pattern: Option<Pattern>,
    pub(super) min_items: Option<usize>,
    pub(super) max_items: Option<usize>,
    pub(super) unique_items: bool,
    pub(super) min_properties: Option<usize>,
    pub(super) max_properties: Option<usize>,
    pub(super) required: Vec<String>,
    pub(super) list: ListType,
    pub(super) all_of: Vec<NodeId>,
    pub(super) any_of: Vec<NodeId>,
    pub(super) one_of: Vec<NodeId>,
    pub(super) not: Option<NodeId>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

impl CompiledSchema {
    /// Compiles a schema whose references, if any, are in its own `$defs` or `definitions`. Fails with [`SchemaError`]
    /// when a reference or a pattern is wrong.
    pub fn new(schema: &Value) -> Result<Self, SchemaError> {
        let mut nodes = Vec::new();
        let root = Compiler { document: schema, references: HashMap::new(), nodes: &mut nodes }.compile(schema)?;
        Ok(Self::finish(nodes, root))
    }

    /// Compiles the schema of a kind: with the metadata, `apiVersion` and `kind` that every kind has.
    pub(super) fn of_object(schema: &Value) -> Result<Self, SchemaError> {
        let mut nodes = Vec::new();
        let mut meta = schemars::schema_for!(k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta).to_value();
        // Upstream keeps these as bytes, whatever they are.
        if let Some(fields) = meta.pointer_mut("/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1") {
            *fields = Value::Bool(true);
        }
        let meta = Compiler { document: &meta, references: HashMap::new(), nodes: &mut nodes }.compile(&meta)?;
        // Values of metadata are checked where it is written, in words of their own.
        nodes.iter_mut().flatten().for_each(|node: &mut Node| node.rules = None);
        let root = Compiler { document: schema, references: HashMap::new(), nodes: &mut nodes }.compile(schema)?;
        let text = nodes.len();
        nodes.push(Some(Node::of(Shape::String(StringFormat::Plain))));
        if let Some(Node { shape: Shape::Object(object), rules, .. }) = nodes[root].as_mut() {
            object.fields.insert("metadata".into(), meta);
            object.fields.insert("apiVersion".into(), text);
            object.fields.insert("kind".into(), text);
            if let Some(rules) = rules {
                // The metadata, if only the name, is checked where it is written.
                rules.required.retain(|field| field != "metadata");
            }
        }
        Ok(Self::finish(nodes, root))
    }

    pub(super) fn root(&self) -> NodeId {
        self.root
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    fn finish(nodes: Vec<Option<Node>>, root: NodeId) -> Self {
        let nodes = nodes.into_iter().map(|node| node.unwrap_or_else(|| Node::of(Shape::Any))).collect();
        let mut schema = Self { nodes, root };
        let defaults: Vec<_> = schema.nodes.iter().map(|node| schema.defaults_of(node)).collect();
        for (node, defaults) in schema.nodes.iter_mut().zip(defaults) {
            if let Shape::Object(object) = &mut node.shape {
                object.defaults = defaults;
            }
        }
        schema
    }

    /// The defaults of an object's fields, those of nested fields filled in. What is null or
    /// empty then says nothing that its absence does not.
    fn defaults_of(&self, node: &Node) -> Vec<(Box<str>, Value)> {
        const DEPTH: usize = 16;
        let Shape::Object(object) = &node.shape else { return Vec::new() };
        let mut defaults: Vec<_> = object
            .fields
            .iter()
            .filter_map(|(name, &id)| {
                let mut value = self.nodes[id].default.clone()?;
                self.fill(id, &mut value, DEPTH);
                (!is_empty(&value)).then(|| (name.clone(), value))
            })
            .collect();
        defaults.sort_by(|a, b| a.0.cmp(&b.0));
        defaults
    }

    fn fill(&self, id: NodeId, value: &mut Value, depth: usize) {
        let (Shape::Object(object), Value::Object(map)) = (&self.nodes[id].shape, value) else { return };
        if depth == 0 {
            return;
        }
        map.retain(|_, value| !value.is_null());
        for (name, &field) in &object.fields {
            match (map.get_mut(&**name), &self.nodes[field].default) {
                (Some(value), _) => self.fill(field, value, depth - 1),
                (None, Some(default)) => {
                    let mut value = default.clone();
                    self.fill(field, &mut value, depth - 1);
                    if !is_empty(&value) {
                        map.insert(name.to_string(), value);
                    }
                }
                (None, None) => {}
            }
        }
        map.retain(|_, value| !is_empty(value));
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

impl Node {
    fn of(shape: Shape) -> Self {
        Self { shape, nullable: false, rules: None, default: None }
    }
}

/// The schema and what it was made of so far; `None` stands for a node whose children are being made.
struct Compiler<'s> {
    document: &'s Value,
    references: HashMap<String, NodeId>,
    nodes: &'s mut Vec<Option<Node>>,
}

impl<'s> Compiler<'s> {
    fn compile(&mut self, schema: &'s Value) -> Result<NodeId, SchemaError> {
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let target = self.reference(reference)?;
            return Ok(self.overridden(target, schema));
        }
        if let Some(inner) = only_alternative(schema) {
            let target = self.compile(inner.schema)?;
            let id = self.overridden(target, schema);
            return Ok(if inner.nullable { self.changed(id, |node| node.nullable = true) } else { id });
        }
        let id = self.reserve();
        let node = self.node(schema)?;
        self.nodes[id] = Some(node);
        Ok(id)
    }

    fn reserve(&mut self) -> NodeId {
        self.nodes.push(None);
        self.nodes.len() - 1
    }

    fn reference(&mut self, reference: &str) -> Result<NodeId, SchemaError> {
        if let Some(&id) = self.references.get(reference) {
            return Ok(id);
        }
        let unknown = || SchemaError::UnknownReference(reference.to_owned());
        let schema = at_reference(self.document, reference).ok_or_else(unknown)?;
        let id = self.reserve();
        self.references.insert(reference.to_owned(), id);
        let target = self.compile(schema)?;
        // A kind that contains itself has no override on the way, so there is a node to copy.
        self.nodes[id] = self.nodes[target].clone();
        Ok(id)
    }

    /// The node of a reference with what stands beside the reference.
    fn overridden(&mut self, id: NodeId, schema: &Value) -> NodeId {
        let default = schema.get("default").cloned();
        let nullable = flag(schema, "nullable");
        if default.is_none() && !nullable {
            return id;
        }
        self.changed(id, |node| {
            node.nullable |= nullable;
            node.default = default.or(node.default.take());
        })
    }

    fn changed(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) -> NodeId {
        let Some(mut node) = self.nodes[id].clone() else { return id };
        change(&mut node);
        self.nodes.push(Some(node));
        self.nodes.len() - 1
    }

    fn node(&mut self, schema: &'s Value) -> Result<Node, SchemaError> {
        let Some(object) = schema.as_object() else { return Ok(Node::of(Shape::Any)) };
        let types = types(object);
        let nullable = flag(schema, "nullable") || types.contains(&"null");
        let shape = self.shape(schema, object, &types)?;
        let rules = self.rules(schema, object)?;
        Ok(Node { shape, nullable, rules, default: object.get("default").cloned() })
    }

    fn shape(
        &mut self,
        schema: &'s Value,
        object: &'s Map<String, Value>,
        types: &[&str],
    ) -> Result<Shape, SchemaError> {
        let format = object.get("format").and_then(Value::as_str).unwrap_or("");
        let types: Vec<&str> = types.iter().copied().filter(|name| *name != "null").collect();
        if flag(schema, "x-kubernetes-int-or-string")
            || matches!(types[..], ["integer", "string"] | ["string", "integer"])
        {
            return Ok(Shape::IntOrString);
        }
        Ok(match types[..] {
            ["boolean"] => Shape::Boolean,
            ["integer"] => Shape::Integer(IntegerType::of(format)),
            ["number"] => Shape::Number,
            ["string"] => Shape::String(match format {
                "date-time" => StringFormat::DateTime,
                "byte" => StringFormat::Byte,
                _ => StringFormat::Plain,
            }),
            ["array"] => {
                let items = object.get("items").unwrap_or(&Value::Null);
                Shape::Array(self.compile(items)?)
            }
            ["object"] => Shape::Object(self.object(schema)?),
            [] if object.contains_key("properties") => Shape::Object(self.object(schema)?),
            _ => Shape::Any,
        })
    }

    fn object(&mut self, schema: &'s Value) -> Result<ObjectShape, SchemaError> {
        let mut fields = HashMap::new();
        self.fields(schema, &mut fields)?;
        let rest = match schema.get("additionalProperties") {
            _ if flag(schema, "x-kubernetes-preserve-unknown-fields") => Rest::Keep,
            Some(Value::Bool(true)) => Rest::Keep,
            Some(element @ Value::Object(map)) if !map.is_empty() => Rest::Map(self.compile(element)?),
            Some(Value::Object(_)) => Rest::Keep,
            // An object that nothing is known of is one in whose place anything may stand.
            None if fields.is_empty() => Rest::Keep,
            _ => Rest::Unknown,
        };
        Ok(ObjectShape { fields, rest, defaults: Vec::new() })
    }

    /// Collects the fields of a schema and of its alternatives: what any of them knows is known.
    fn fields(&mut self, schema: &'s Value, fields: &mut HashMap<Box<str>, NodeId>) -> Result<(), SchemaError> {
        for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if !fields.contains_key(name.as_str()) {
                let id = self.compile(field)?;
                fields.insert(name.as_str().into(), id);
            }
        }
        alternatives(self.document, schema).try_for_each(|alternative| self.fields(alternative, fields))
    }

    fn rules(&mut self, schema: &'s Value, object: &'s Map<String, Value>) -> Result<Option<Box<Rules>>, SchemaError> {
        let number = |name: &str| object.get(name).and_then(Value::as_f64);
        let size = |name: &str| object.get(name).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        let bound = |name: &str, exclusive: &str| match object.get(exclusive) {
            // OpenAPI 3.0 marks the bound as exclusive; JSON Schema has a bound of its own.
            Some(Value::Number(bound)) => bound.as_f64().map(|bound| (bound, true)),
            other => number(name).map(|bound| (bound, other == Some(&Value::Bool(true)))),
        };
        let pattern = object.get("pattern").and_then(Value::as_str).map(compile_pattern).transpose()?;
        let values = match (object.get("enum"), object.get("const")) {
            (Some(Value::Array(values)), _) => values.clone(),
            (_, Some(value)) => vec![value.clone()],
            _ => Vec::new(),
        };
        let keys =
            array(schema, "x-kubernetes-list-map-keys").filter_map(|key| Some(key.as_str()?.to_owned())).collect();
        let rules = Rules {
            values,
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_length: size("minLength"),
            max_length: size("maxLength"),
            pattern,
            min_items: size("minItems"),
            max_items: size("maxItems"),
            unique_items: flag(schema, "uniqueItems"),
            min_properties: size("minProperties"),
            max_properties: size("maxProperties"),
            required: array(schema, "required").filter_map(|name| Some(name.as_str()?.to_owned())).collect(),
            list: match object.get("x-kubernetes-list-type").and_then(Value::as_str) {
                Some("set") => ListType::Set,
                Some("map") => ListType::Map(keys),
                _ => ListType::Atomic,
            },
            all_of: self.compile_all(schema, "allOf")?,
            any_of: self.compile_all(schema, "anyOf")?,
            one_of: self.compile_all(schema, "oneOf")?,
            not: object.get("not").map(|not| self.compile(not)).transpose()?,
        };
        Ok((!rules.is_empty()).then(|| Box::new(rules)))
    }

    fn compile_all(&mut self, schema: &'s Value, name: &str) -> Result<Vec<NodeId>, SchemaError> {
        array(schema, name).map(|schema| self.compile(schema)).collect()
    }
}

impl Rules {
    /// Whether there are rules that look at a value as a whole: an enum or alternatives.
    pub(super) fn concern_the_whole(&self) -> bool {
        let lists = [&self.all_of, &self.any_of, &self.one_of];
        !self.values.is_empty() || self.not.is_some() || lists.iter().any(|list| !list.is_empty())
    }

    fn is_empty(&self) -> bool {
        let numbers = [self.minimum.is_some(), self.maximum.is_some(), self.multiple_of.is_some()];
        let sizes = [
            self.min_length,
            self.max_length,
            self.min_items,
            self.max_items,
            self.min_properties,
            self.max_properties,
        ];
        !numbers.contains(&true)
            && sizes.iter().all(Option::is_none)
            && !self.concern_the_whole()
            && self.pattern.is_none()
            && !self.unique_items
            && self.required.is_empty()
            && self.list == ListType::Atomic
    }
}

impl IntegerType {
    fn of(format: &str) -> Self {
        let (name, min, max) = match format {
            "int8" => ("int8", i128::from(i8::MIN), i128::from(i8::MAX)),
            "int16" => ("int16", i128::from(i16::MIN), i128::from(i16::MAX)),
            "int32" => ("int32", i128::from(i32::MIN), i128::from(i32::MAX)),
            "uint8" => ("uint8", 0, i128::from(u8::MAX)),
            "uint16" => ("uint16", 0, i128::from(u16::MAX)),
            "uint32" => ("uint32", 0, i128::from(u32::MAX)),
            "uint64" | "uint" => ("uint64", 0, i128::from(u64::MAX)),
            _ => ("int64", i128::from(i64::MIN), i128::from(i64::MAX)),
        };
        Self { name, min, max }
    }
}

fn compile_pattern(pattern: &str) -> Result<Pattern, SchemaError> {
    let compiled = stoa_cel::go::pattern(pattern).and_then(|translated| Regex::new(&translated));
    match compiled {
        Ok(compiled) => Ok(Pattern { source: pattern.to_owned(), compiled }),
        Err(source) => Err(SchemaError::BadPattern { pattern: pattern.to_owned(), source }),
    }
}

/// A schema that is only there to be referred to.
pub(super) struct Alternative<'s> {
    pub(super) schema: &'s Value,
    nullable: bool,
}

/// The one schema that `allOf` wraps, or that `anyOf` or `oneOf` offers beside null.
pub(super) fn only_alternative(schema: &Value) -> Option<Alternative<'_>> {
    if ["type", "properties", "x-kubernetes-int-or-string", "items"].iter().any(|name| schema.get(name).is_some()) {
        return None;
    }
    if let [only] = schema.get("allOf").and_then(Value::as_array).map_or(&[][..], Vec::as_slice) {
        return Some(Alternative { schema: only, nullable: false });
    }
    ["anyOf", "oneOf"].iter().find_map(|name| match schema.get(name)?.as_array()?.as_slice() {
        [schema, null] | [null, schema] if is_null_schema(null) => Some(Alternative { schema, nullable: true }),
        [schema] => Some(Alternative { schema, nullable: false }),
        _ => None,
    })
}

fn is_null_schema(schema: &Value) -> bool {
    let only_null = schema.get("enum").and_then(Value::as_array).is_some_and(|values| values == &[Value::Null]);
    only_null || schema.get("type").and_then(Value::as_str) == Some("null") || schema.get("const") == Some(&Value::Null)
}

fn types(schema: &Map<String, Value>) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or(false)
}

/// The items of a list in a schema; none of what is no list.
pub(crate) fn array<'s>(schema: &'s Value, name: &str) -> impl Iterator<Item = &'s Value> + use<'s> {
    schema.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// What a reference leads to in its document.
pub(crate) fn at_reference<'s>(document: &'s Value, reference: &str) -> Option<&'s Value> {
    document.pointer(reference.strip_prefix('#')?)
}

/// The schemas in `allOf`, `anyOf` and `oneOf` of a schema of this document; of a reference, what it leads to.
pub(crate) fn alternatives<'s>(document: &'s Value, schema: &'s Value) -> impl Iterator<Item = &'s Value> {
    let all = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(move |name| array(schema, name));
    all.filter_map(move |alternative| match alternative.get("$ref").and_then(Value::as_str) {
        Some(reference) => at_reference(document, reference),
        None => Some(alternative),
    })
}
