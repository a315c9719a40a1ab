//! Types of values, and their JSON form.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value as JsonValue, json};

use super::Value;

/// How deeply types may be nested.
const DEEPEST: usize = 64;

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Type {
    /// A truth value.
    Bool,
    /// A number of any size.
    Number,
    /// A string in NFC.
    String,
    /// Any type, which then comes with the value.
    Dynamic,
    /// A list of elements of one type.
    List(Box<Type>),
    /// A set of elements of one type.
    Set(Box<Type>),
    /// A map from strings to elements of one type.
    Map(Box<Type>),
    /// Attributes by name, each with its type.
    Object(BTreeMap<String, Type>),
    /// Elements by index, each with its type.
    Tuple(Vec<Type>),
}

/// A text that is no type.
#[derive(Debug, thiserror::Error)]
pub enum TypeError {
    /// The text is no JSON.
    #[error("a type is no JSON")]
    Json(#[from] serde_json::Error),
    /// The JSON is no type.
    #[error("{0} is not a Terraform type")]
    Unknown(String),
    /// The type is nested too deeply.
    #[error("a type is nested more than {DEEPEST} levels deep")]
    TooDeep,
}

impl Type {
    /// A list of elements of this type.
    pub fn list(element: Self) -> Self {
        Self::List(Box::new(element))
    }

    /// A set of elements of this type.
    pub fn set(element: Self) -> Self {
        Self::Set(Box::new(element))
    }

    /// A map to elements of this type.
    pub fn map(element: Self) -> Self {
        Self::Map(Box::new(element))
    }

    /// An object with these attributes.
    pub fn object<K: Into<String>>(attributes: impl IntoIterator<Item = (K, Self)>) -> Self {
        Self::Object(attributes.into_iter().map(|(name, it)| (name.into(), it)).collect())
    }

    /// Parses the JSON form, such as `["list","string"]`.
    ///
    /// # Errors
    ///
    /// If it is no type.
    pub fn parse(json: &[u8]) -> Result<Self, TypeError> {
        Self::of(&serde_json::from_slice(json)?, 0)
    }

    fn of(json: &JsonValue, depth: usize) -> Result<Self, TypeError> {
        if depth > DEEPEST {
            return Err(TypeError::TooDeep);
        }
        let unknown = || TypeError::Unknown(json.to_string());
        if let Some(name) = json.as_str() {
            return Ok(match name {
                "bool" => Self::Bool,
                "number" => Self::Number,
                "string" => Self::String,
                "dynamic" => Self::Dynamic,
                _ => return Err(unknown()),
            });
        }
        let (kind, parameter) = match json.as_array().map(Vec::as_slice) {
            Some([kind, parameter]) => (kind, parameter),
            // The names of optional attributes follow in type constraints, and say nothing about values.
            Some([kind, parameter, _]) if kind == "object" => (kind, parameter),
            _ => return Err(unknown()),
        };
        let inner = |json| Self::of(json, depth + 1);
        Ok(match (kind.as_str(), parameter) {
            (Some("list"), element) => Self::list(inner(element)?),
            (Some("set"), element) => Self::set(inner(element)?),
            (Some("map"), element) => Self::map(inner(element)?),
            (Some("object"), JsonValue::Object(attributes)) => {
                let attributes = attributes.iter().map(|(name, it)| Ok((name.clone(), inner(it)?)));
                Self::Object(attributes.collect::<Result<_, TypeError>>()?)
            }
            (Some("tuple"), JsonValue::Array(elements)) => {
                Self::Tuple(elements.iter().map(inner).collect::<Result<_, _>>()?)
            }
            _ => return Err(unknown()),
        })
    }

    /// The JSON form.
    pub fn to_json(&self) -> JsonValue {
        match self {
            Self::Bool => json!("bool"),
            Self::Number => json!("number"),
            Self::String => json!("string"),
            Self::Dynamic => json!("dynamic"),
            Self::List(element) => json!(["list", element.to_json()]),
            Self::Set(element) => json!(["set", element.to_json()]),
            Self::Map(element) => json!(["map", element.to_json()]),
            Self::Object(attributes) => {
                let attributes: serde_json::Map<_, _> =
                    attributes.iter().map(|(name, it)| (name.clone(), it.to_json())).collect();
                json!(["object", attributes])
            }
            Self::Tuple(elements) => json!(["tuple", elements.iter().map(Self::to_json).collect::<Vec<_>>()]),
        }
    }

    /// Whether any part is of any type.
    pub fn has_dynamic(&self) -> bool {
        match self {
            Self::Bool | Self::Number | Self::String => false,
            Self::Dynamic => true,
            Self::List(element) | Self::Set(element) | Self::Map(element) => element.has_dynamic(),
            Self::Object(attributes) => attributes.values().any(Self::has_dynamic),
            Self::Tuple(elements) => elements.iter().any(Self::has_dynamic),
        }
    }

    /// The type of a value that comes without one. A null or an unknown is of any type.
    pub fn of_value(value: &Value) -> Self {
        let first = |elements: &[Value]| elements.first().map_or(Self::Dynamic, Self::of_value);
        match value {
            Value::Null | Value::Unknown | Value::Dynamic(_) => Self::Dynamic,
            Value::Bool(_) => Self::Bool,
            Value::Number(_) => Self::Number,
            Value::String(_) => Self::String,
            Value::List(elements) => Self::list(first(elements)),
            Value::Set(elements) => Self::set(first(elements)),
            Value::Map(elements) => Self::map(elements.values().next().map_or(Self::Dynamic, Self::of_value)),
            Value::Object(attributes) => {
                Self::Object(attributes.iter().map(|(name, it)| (name.clone(), Self::of_value(it))).collect())
            }
            Value::Tuple(elements) => Self::Tuple(elements.iter().map(Self::of_value).collect()),
        }
    }
}

impl fmt::Display for Type {
    /// The JSON form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_json())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_survive_in_json() {
        for text in [
            r#""string""#,
            r#"["list",["set","number"]]"#,
            r#"["map","dynamic"]"#,
            r#"["object",{"a":"bool","b":["tuple",["string",["tuple",[]]]]}]"#,
        ] {
            assert_eq!(Type::parse(text.as_bytes()).unwrap().to_string(), text);
        }
        let optional = Type::parse(br#"["object",{"a":"bool"},["a"]]"#).unwrap();
        assert_eq!(optional, Type::object([("a", Type::Bool)]));
    }

    #[test]
    fn texts_that_are_no_types_are_rejected() {
        for text in ["null", "[]", r#""int""#, r#"["list"]"#, r#"["object",[]]"#, r#"["tuple",{}]"#, r#"["list","x"]"#]
        {
            assert!(matches!(Type::parse(text.as_bytes()), Err(TypeError::Unknown(_))), "{text}");
        }
        let deep = format!("{}\"string\"{}", r#"["list","#.repeat(65), "]".repeat(65));
        assert!(matches!(Type::parse(deep.as_bytes()), Err(TypeError::TooDeep)));
        assert!(matches!(Type::parse(b"["), Err(TypeError::Json(_))));
    }
}
