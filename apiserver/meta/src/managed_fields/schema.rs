//! The merge rules of a resource's schema: sets, keyed lists, atomic lists and maps.
//!
//! Start at [`Schema::of_object`]. The result is what `kube-openapi/pkg/schemaconv` makes of an OpenAPI schema: a type
//! can be read as a scalar, a list and a map at once, and which it is depends on the value.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::{
    openapi::object_meta,
    schema::{alternatives, array, at_reference, only_alternative},
};

pub(super) type TypeId = usize;

/// What nothing is known of, and that changes as a whole.
const UNTYPED: TypeId = 0;
/// What nothing is known of, its maps merged entry by entry.
const DEDUCED: TypeId = 1;

#[derive(Debug)]
pub(super) struct Schema {
    types: Vec<Atom>,
    root: TypeId,
}

/// What a value of a type may be.
#[derive(Clone, Debug, Default)]
pub(super) struct Atom {
    pub(super) scalar: Option<Scalar>,
    pub(super) list: Option<ListType>,
    pub(super) map: Option<MapType>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Numeric,
    String,
    Boolean,
    Untyped,
}

#[derive(Clone, Debug)]
pub(super) struct ListType {
    pub(super) element: TypeId,
    pub(super) relationship: ListRelationship,
}

/// How the items of a list belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListRelationship {
    /// The list changes as a whole.
    Atomic,
    /// Each item is there once.
    Set,
    /// Items are told apart by these fields.
    Keyed(Vec<Box<str>>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct MapType {
    pub(super) fields: HashMap<Box<str>, FieldType>,
    /// The type of what is no field; nothing when there may be nothing else.
    pub(super) element: Option<TypeId>,
    /// Whether the map changes as a whole.
    pub(super) atomic: bool,
    /// The fields that are there even where they are not written: in Go, structs that are no pointers.
    pub(super) always: Vec<Box<str>>,
}

#[derive(Clone, Debug)]
pub(super) struct FieldType {
    pub(super) id: TypeId,
    pub(super) default: Option<Value>,
}

/// Which parts of an [`Atom`] a value leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Map,
    Scalar,
    List,
    /// The value does not tell: it is null, or of no kind that the type has.
    Open,
}

impl Atom {
    pub(super) fn reading(&self, value: Option<&Value>) -> Reading {
        match value {
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) if self.scalar.is_some() => Reading::Scalar,
            Some(Value::Array(_)) if self.list.is_some() => Reading::List,
            Some(Value::Object(_)) if self.map.is_some() => Reading::Map,
            _ => Reading::Open,
        }
    }

    pub(super) fn same(&self, a: Reading, b: Reading) -> bool {
        let only = |reading| match reading {
            Reading::Map => self.scalar.is_none() && self.list.is_none(),
            Reading::Scalar => self.map.is_none() && self.list.is_none(),
            Reading::List => self.map.is_none() && self.scalar.is_none(),
            Reading::Open => true,
        };
        a == b || (only(a) && only(b) && (a == Reading::Open || b == Reading::Open))
    }

    /// What a reading comes to: the first of map, scalar and list that there is.
    pub(super) fn view(&self, reading: Reading) -> View<'_> {
        let map = || self.map.as_ref().map(View::Map);
        let scalar = || self.scalar.map(View::Scalar);
        let list = || self.list.as_ref().map(View::List);
        match reading {
            Reading::Map => map(),
            Reading::Scalar => scalar(),
            Reading::List => list(),
            Reading::Open => map().or_else(scalar).or_else(list),
        }
        .unwrap_or(View::Nothing)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum View<'s> {
    Map(&'s MapType),
    Scalar(Scalar),
    List(&'s ListType),
    /// The type takes no value at all.
    Nothing,
}

impl MapType {
    /// The type of what is at a key; nothing when nothing may be there.
    pub(super) fn at(&self, key: &str) -> Option<TypeId> {
        self.fields.get(key).map(|field| field.id).or(self.element)
    }

    /// Whether nothing is known of the map, as where unknown fields are kept.
    pub(super) fn is_deduced(&self) -> bool {
        self.element == Some(DEDUCED) && self.fields.is_empty()
    }
}

impl Schema {
    /// The types of a kind, from its OpenAPI schema: with the metadata, `apiVersion` and `kind` that every kind has.
    pub(super) fn of_object(schema: &Value) -> Self {
        let mut types = common();
        let meta = object_meta();
        let metadata = Compiler { document: meta, references: HashMap::new(), types: &mut types }.type_of(meta, false);
        let root = Compiler { document: schema, references: HashMap::new(), types: &mut types }.type_of(schema, false);
        let text = types.len();
        types.push(Atom { scalar: Some(Scalar::String), ..Atom::default() });
        // A schema that does not say so describes an object nevertheless.
        types[root].scalar = None;
        types[root].list = None;
        let mut map = types[root].map.take().unwrap_or_default();
        for (field, id) in [("metadata", metadata), ("apiVersion", text), ("kind", text)] {
            map.fields.insert(field.into(), FieldType { id, default: None });
        }
        let is_struct = |name: &str, id: TypeId| {
            let is_map = |atom: &Atom| atom.scalar.is_none() && atom.list.is_none();
            let map = Some(&types[id]).filter(|atom| is_map(atom)).and_then(|atom| atom.map.as_ref());
            map.is_some_and(|map| !map.fields.is_empty() || matches!(name, "spec" | "status"))
        };
        let fields = map.fields.iter().filter(|(name, field)| is_struct(name, field.id));
        let mut always: Vec<_> = fields.map(|(name, _)| name.clone()).collect();
        always.sort_unstable();
        map.always = always;
        types[root].map = Some(map);
        Self { types, root }
    }

    /// Adds the structs that an object always has, and returns their names.
    pub(super) fn add_structs(&self, object: &mut Map<String, Value>) -> Vec<&str> {
        let always = self.atom(self.root).map.iter().flat_map(|map| &map.always);
        let missing: Vec<&str> = always.map(|field| &**field).filter(|field| !object.contains_key(*field)).collect();
        for field in &missing {
            object.insert((*field).to_owned(), Value::Object(Map::new()));
        }
        missing
    }

    pub(super) fn root(&self) -> TypeId {
        self.root
    }

    pub(super) fn atom(&self, id: TypeId) -> &Atom {
        &self.types[id]
    }
}

fn common() -> Vec<Atom> {
    let any = |id, atomic| Atom {
        scalar: Some(Scalar::Untyped),
        list: Some(ListType { element: UNTYPED, relationship: ListRelationship::Atomic }),
        map: Some(MapType { element: Some(id), atomic, ..MapType::default() }),
    };
    vec![any(UNTYPED, true), any(DEDUCED, false)]
}

struct Compiler<'s> {
    document: &'s Value,
    references: HashMap<&'s str, TypeId>,
    types: &'s mut Vec<Atom>,
}

impl<'s> Compiler<'s> {
    /// The type of a schema. `keeps` says that a schema around it keeps unknown fields.
    fn type_of(&mut self, schema: &'s Value, keeps: bool) -> TypeId {
        if let Some(reference) = reference(schema) {
            let id = self.referred(reference);
            return match flag_text(schema, "x-kubernetes-map-type") {
                Some(relationship) => self.overridden(id, relationship == "atomic"),
                None => id,
            };
        }
        if let Some(alternative) = only_alternative(schema) {
            return self.type_of(alternative, keeps);
        }
        let id = self.types.len();
        self.types.push(Atom::default());
        self.types[id] = self.atom(schema, keeps);
        id
    }

    fn referred(&mut self, reference: &'s str) -> TypeId {
        if let Some(&id) = self.references.get(reference) {
            return id;
        }
        let Some(target) = at_reference(self.document, reference) else { return DEDUCED };
        // What contains itself finds the place where it will be.
        let id = self.types.len();
        self.types.push(Atom::default());
        self.references.insert(reference, id);
        let resolved = self.type_of(target, false);
        self.types[id] = self.types[resolved].clone();
        id
    }

    /// The same type, merged in another way.
    fn overridden(&mut self, id: TypeId, atomic: bool) -> TypeId {
        let mut atom = self.types[id].clone();
        if let Some(map) = &mut atom.map {
            map.atomic = atomic;
        } else if let Some(list) = &mut atom.list {
            list.relationship = ListRelationship::Atomic;
        }
        self.types.push(atom);
        self.types.len() - 1
    }

    fn atom(&mut self, schema: &'s Value, keeps: bool) -> Atom {
        let keeps = keeps || schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
        let scalar = |scalar| Atom { scalar: Some(scalar), ..Atom::default() };
        let format = flag_text(schema, "format").unwrap_or("");
        match type_name(schema) {
            Some("object") => Atom { map: Some(self.map(schema, keeps)), ..Atom::default() },
            Some("array") => Atom { list: Some(self.list(schema, keeps)), ..Atom::default() },
            Some("integer" | "number") => scalar(Scalar::Numeric),
            Some("boolean") => scalar(Scalar::Boolean),
            Some("string") if matches!(format, "" | "byte") => scalar(Scalar::String),
            Some(_) => scalar(Scalar::Untyped),
            None => Atom {
                scalar: Some(Scalar::Untyped),
                list: Some(self.list(schema, keeps)),
                map: Some(self.map(schema, keeps)),
            },
        }
    }

    fn map(&mut self, schema: &'s Value, keeps: bool) -> MapType {
        let mut map =
            MapType { atomic: flag_text(schema, "x-kubernetes-map-type") == Some("atomic"), ..MapType::default() };
        self.fields(schema, keeps, &mut map);
        map.element = match schema.get("additionalProperties") {
            // As of a struct without fields in Go, whose published schema does not tell it from a free object.
            None | Some(Value::Bool(false)) if keeps || map.fields.is_empty() => Some(DEDUCED),
            None | Some(Value::Bool(false)) => None,
            Some(Value::Bool(true)) => Some(DEDUCED),
            Some(element) => Some(self.type_of(element, keeps)),
        };
        map.always.sort_unstable();
        map
    }

    /// Collects the fields of a schema and of its alternatives.
    fn fields(&mut self, schema: &'s Value, keeps: bool, map: &mut MapType) {
        let required: Vec<&str> = array(schema, "required").filter_map(Value::as_str).collect();
        for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if map.fields.contains_key(name.as_str()) {
                continue;
            }
            let id = self.type_of(field, keeps);
            let is_struct = self.types[id].map.as_ref().is_some_and(|map| !map.fields.is_empty());
            if required.contains(&name.as_str()) && is_struct {
                map.always.push(name.as_str().into());
            }
            let default = field.get("default").filter(|default| !default.is_null()).cloned();
            map.fields.insert(name.as_str().into(), FieldType { id, default });
        }
        for alternative in alternatives(self.document, schema) {
            self.fields(alternative, keeps, map);
        }
    }

    fn list(&mut self, schema: &'s Value, keeps: bool) -> ListType {
        let keyed = |keys: Vec<Box<str>>| ListRelationship::Keyed(keys);
        let relationship = match flag_text(schema, "x-kubernetes-list-type") {
            Some("set") => ListRelationship::Set,
            Some("map") => {
                keyed(array(schema, "x-kubernetes-list-map-keys").filter_map(Value::as_str).map(Into::into).collect())
            }
            Some(_) => ListRelationship::Atomic,
            None => match flag_text(schema, "x-kubernetes-patch-strategy") {
                Some("merge" | "merge,retainKeys") => match flag_text(schema, "x-kubernetes-patch-merge-key") {
                    Some(key) => keyed(vec![key.into()]),
                    None => ListRelationship::Set,
                },
                _ => ListRelationship::Atomic,
            },
        };
        let element = match schema.get("items") {
            Some(items) => self.type_of(items, keeps),
            None => UNTYPED,
        };
        ListType { element, relationship }
    }
}

/// The reference of a schema that is one, also where it is wrapped so that something can stand beside it.
fn reference(schema: &Value) -> Option<&str> {
    let direct = schema.get("$ref").and_then(Value::as_str);
    direct.or_else(|| match schema.get("allOf")?.as_array()?.as_slice() {
        [only] => only.get("$ref")?.as_str(),
        _ => None,
    })
}

fn type_name(schema: &Value) -> Option<&str> {
    match schema.get("type")? {
        Value::String(name) => Some(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).find(|name| *name != "null"),
        _ => None,
    }
}

fn flag_text<'s>(schema: &'s Value, name: &str) -> Option<&'s str> {
    schema.get(name)?.as_str()
}
