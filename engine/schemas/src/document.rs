//! The files in `data`, and their form in memory.

use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;

use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};

/// One version of Kubernetes, as its file has it: JSON in gzip.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// The release that it was made of, such as `1.36.3`.
    pub kubernetes: String,
    /// The name of the definition of each kind, by `apiVersion` and kind.
    pub kinds: BTreeMap<String, BTreeMap<String, String>>,
    /// The definitions by name, such as `apps.v1.DeploymentSpec`.
    pub definitions: BTreeMap<String, Definition>,
}

/// A map with named fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// The type of each field: `string`, `bytes`, `boolean`, `int32`, `int64`, `number`, `quantity`, `int-or-string`, `any`, the
    /// name of a definition, or `[]` (list) or `{}` (map by any key) before the type of what is in it.
    pub fields: BTreeMap<String, String>,
    /// The fields that have to be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<String>,
}

/// The type of a value. Definitions are named by their position.
#[derive(Clone, Debug)]
pub(crate) enum Type {
    Any,
    Text,
    Bytes,
    Boolean,
    Int32,
    Int64,
    Number,
    Quantity,
    IntOrString,
    List(Box<Type>),
    Map(Box<Type>),
    Definition(usize),
}

/// A definition in memory.
#[derive(Debug)]
pub(crate) struct Fields {
    /// Its name, without the version: `core.Container`.
    pub(crate) name: Box<str>,
    pub(crate) fields: HashMap<Box<str>, Type>,
    pub(crate) required: Box<[Box<str>]>,
}

/// Kinds by `apiVersion` and kind.
pub(crate) type Kinds = BTreeMap<String, BTreeMap<String, usize>>;

pub(crate) fn read(file: &[u8]) -> (Kinds, Vec<Fields>) {
    let mut text = Vec::new();
    GzDecoder::new(file).read_to_end(&mut text).expect("the file is part of this program");
    let document: Document = serde_json::from_slice(&text).expect("the file is part of this program");
    let positions: HashMap<&str, usize> =
        document.definitions.keys().enumerate().map(|(position, name)| (name.as_str(), position)).collect();
    let fields_of = |(name, definition): (&String, &Definition)| Fields {
        name: without_version(name).into(),
        fields: definition.fields.iter().map(|(field, of)| (field.as_str().into(), type_of(of, &positions))).collect(),
        required: definition.required.iter().map(|field| field.as_str().into()).collect(),
    };
    let position = |(kind, name): (&String, &String)| (kind.clone(), positions[name.as_str()]);
    let kinds = document.kinds.iter().map(|(of, kinds)| (of.clone(), kinds.iter().map(position).collect())).collect();
    (kinds, document.definitions.iter().map(fields_of).collect())
}

/// `core.Container` of `core.v1.Container`.
fn without_version(name: &str) -> String {
    let mut parts: Vec<&str> = name.split('.').collect();
    if parts.len() > 2 {
        parts.remove(parts.len() - 2);
    }
    parts.join(".")
}

fn type_of(written: &str, positions: &HashMap<&str, usize>) -> Type {
    if let Some(item) = written.strip_prefix("[]") {
        return Type::List(Box::new(type_of(item, positions)));
    }
    if let Some(value) = written.strip_prefix("{}") {
        return Type::Map(Box::new(type_of(value, positions)));
    }
    match written {
        "string" => Type::Text,
        "bytes" => Type::Bytes,
        "boolean" => Type::Boolean,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "number" => Type::Number,
        "quantity" => Type::Quantity,
        "int-or-string" => Type::IntOrString,
        name => positions.get(name).map_or(Type::Any, |position| Type::Definition(*position)),
    }
}
