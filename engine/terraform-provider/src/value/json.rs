//! JSON with exact numbers.
//!
//! The configuration and the state of a resource are JSON, where a number may have more digits than a float.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::value::RawValue;

use super::{Number, NumberError};

/// How deeply arrays and objects may be nested.
const DEEPEST: usize = 64;

/// A JSON value with exact numbers and sorted keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number with all its digits.
    Number(Number),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object.
    Object(BTreeMap<String, Json>),
}

/// A text that is no JSON, or JSON that is too large to use.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// The text is no JSON.
    #[error("the text is no JSON")]
    Syntax(#[from] serde_json::Error),
    /// A number is out of range.
    #[error("a number in JSON is out of range")]
    Number(#[from] NumberError),
    /// Arrays and objects are nested too deeply.
    #[error("JSON is nested more than {DEEPEST} levels deep")]
    TooDeep,
    /// An infinity has no form in JSON.
    #[error("infinity has no form in JSON; the provider answered a number out of range")]
    Infinite,
}

impl Json {
    /// Parses a document.
    ///
    /// # Errors
    ///
    /// If it is no JSON, or a number or the depth is out of range.
    pub fn parse(text: &[u8]) -> Result<Self, JsonError> {
        Self::of(serde_json::from_slice(text)?, 0)
    }

    fn of(raw: &RawValue, depth: usize) -> Result<Self, JsonError> {
        if depth > DEEPEST {
            return Err(JsonError::TooDeep);
        }
        let text = raw.get();
        Ok(match text.as_bytes().first() {
            Some(b'[') => {
                let elements: Vec<&RawValue> = serde_json::from_str(text)?;
                Self::Array(elements.into_iter().map(|it| Self::of(it, depth + 1)).collect::<Result<_, _>>()?)
            }
            Some(b'{') => {
                let members: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
                let members = members.into_iter().map(|(key, it)| Ok((key, Self::of(it, depth + 1)?)));
                Self::Object(members.collect::<Result<_, JsonError>>()?)
            }
            Some(b'"') => Self::String(serde_json::from_str(text)?),
            Some(b't' | b'f') => Self::Bool(serde_json::from_str(text)?),
            Some(b'n') => Self::Null,
            _ => Self::Number(text.parse()?),
        })
    }
}

impl From<&serde_json::Value> for Json {
    /// A float becomes the shortest decimal that reads as this float, as people wrote it.
    fn from(value: &serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(it) => Self::Bool(*it),
            serde_json::Value::Number(it) => {
                Self::Number(it.to_string().parse().expect("a JSON number in range of a float is a number"))
            }
            serde_json::Value::String(it) => Self::String(it.clone()),
            serde_json::Value::Array(it) => Self::Array(it.iter().map(Self::from).collect()),
            serde_json::Value::Object(it) => Self::Object(it.iter().map(|(k, v)| (k.clone(), v.into())).collect()),
        }
    }
}

impl fmt::Display for Json {
    /// The compact document with sorted keys. Infinities, which no document has, print as `null`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let string = |text: &String| serde_json::to_string(text).map_err(|_| fmt::Error);
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(it) => write!(f, "{it}"),
            Self::Number(it) if it.is_finite() => write!(f, "{it}"),
            Self::Number(_) => f.write_str("null"),
            Self::String(it) => f.write_str(&string(it)?),
            Self::Array(elements) => {
                f.write_str("[")?;
                for (index, element) in elements.iter().enumerate() {
                    write!(f, "{}{element}", if index == 0 { "" } else { "," })?;
                }
                f.write_str("]")
            }
            Self::Object(members) => {
                f.write_str("{")?;
                for (index, (key, member)) in members.iter().enumerate() {
                    write!(f, "{}{}:{member}", if index == 0 { "" } else { "," }, string(key)?)?;
                }
                f.write_str("}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_survive_with_all_digits() {
        let text = r#"{"a":[1,0.1,100000000000000000000001,-0.5],"b":{"c":null,"d":"é\n"},"e":true}"#;
        assert_eq!(Json::parse(text.as_bytes()).unwrap().to_string(), text);
    }

    #[test]
    fn depth_and_numbers_have_limits() {
        let deep = format!("{}{}", "[".repeat(66), "]".repeat(66));
        assert!(matches!(Json::parse(deep.as_bytes()), Err(JsonError::TooDeep)));
        assert!(matches!(Json::parse(b"1e99999"), Err(JsonError::Number(NumberError::TooLong))));
        assert!(matches!(Json::parse(b"[1,]"), Err(JsonError::Syntax(_))));
        assert!(matches!(Json::parse(b"1 2"), Err(JsonError::Syntax(_))));
    }

    #[test]
    fn floats_of_serde_json_read_as_people_wrote_them() {
        let value: serde_json::Value = serde_json::from_str("[0.1,1e-7,18446744073709551615]").unwrap();
        assert_eq!(Json::from(&value).to_string(), "[0.1,0.0000001,18446744073709551615]");
    }
}
