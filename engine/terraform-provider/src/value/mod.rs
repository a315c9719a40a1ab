//! Values of Terraform's type system.
//!
//! Start at [`Value`] and [`Type`]. A [`Value`] does not repeat its type, which a schema or a parameter gives.
//!
//! Elsewhere: [`convert`] makes a value of a type from configuration, [`state`] is the JSON form for storage, [`json`]
//! reads JSON with exact numbers.

pub mod convert;
pub mod json;
mod number;
mod path;
pub mod state;
mod types;

use std::collections::BTreeMap;

use unicode_normalization::UnicodeNormalization as _;

pub use self::json::Json;
pub use self::number::{Number, NumberError};
pub use self::path::{Path, Step};
pub use self::types::{Type, TypeError};

/// A value, which is equal to another if Terraform sees no difference.
///
/// Equality needs strings in NFC ([`Value::string`]) and sorted sets ([`Value::set`]); the decoders and conversions of
/// this crate make both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// No value, of any type.
    Null,
    /// A value of any type that the provider knows after the apply only.
    Unknown,
    /// A truth value.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string in NFC.
    String(String),
    /// A list.
    List(Vec<Value>),
    /// A set: sorted, and without duplicates of known elements.
    Set(Vec<Value>),
    /// A map.
    Map(BTreeMap<String, Value>),
    /// An object with all its attributes.
    Object(BTreeMap<String, Value>),
    /// A tuple.
    Tuple(Vec<Value>),
    /// A value where the schema permits any type.
    Dynamic(Box<Dynamic>),
}

/// A value with its type. A null or an unknown whose type is unknown too is a plain [`Value::Null`] or
/// [`Value::Unknown`] instead.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dynamic {
    /// The type.
    pub ty: Type,
    /// The value of this type.
    pub value: Value,
}

impl Value {
    /// A string, which becomes NFC.
    pub fn string(text: impl AsRef<str>) -> Self {
        Self::String(nfc(text.as_ref()))
    }

    /// A number.
    pub fn number(number: impl Into<Number>) -> Self {
        Self::Number(number.into())
    }

    /// A set, which is sorted. Duplicates of known elements are removed; several unknown elements may differ later.
    pub fn set(elements: impl IntoIterator<Item = Self>) -> Self {
        let mut elements: Vec<Self> = elements.into_iter().collect();
        elements.sort();
        elements.dedup_by(|a, b| a == b && a.is_wholly_known());
        Self::Set(elements)
    }

    /// An object with these attributes.
    pub fn object<K: Into<String>>(attributes: impl IntoIterator<Item = (K, Self)>) -> Self {
        Self::Object(attributes.into_iter().map(|(name, it)| (name.into(), it)).collect())
    }

    /// A map with these elements.
    pub fn map<K: Into<String>>(elements: impl IntoIterator<Item = (K, Self)>) -> Self {
        Self::Map(elements.into_iter().map(|(key, it)| (key.into(), it)).collect())
    }

    /// A value where any type is permitted, with the type that it has by itself.
    pub fn dynamic(value: Self) -> Self {
        match value {
            Self::Null | Self::Unknown | Self::Dynamic(_) => value,
            value => Self::Dynamic(Box::new(Dynamic { ty: Type::of_value(&value), value })),
        }
    }

    /// The value as configuration has it: an array is a tuple, and an object has the attributes that it names.
    pub fn from_json(json: Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(it) => Self::Bool(it),
            Json::Number(it) => Self::Number(it),
            Json::String(it) => Self::string(it),
            Json::Array(it) => Self::Tuple(it.into_iter().map(Self::from_json).collect()),
            Json::Object(it) => Self::object(it.into_iter().map(|(key, it)| (nfc(&key), Self::from_json(it)))),
        }
    }

    /// Whether it is null, with or without a type.
    pub fn is_null(&self) -> bool {
        matches!(self.plain(), Self::Null)
    }

    /// Whether it is itself unknown, with or without a type.
    pub fn is_unknown(&self) -> bool {
        matches!(self.plain(), Self::Unknown)
    }

    /// Whether no part of it is unknown.
    pub fn is_wholly_known(&self) -> bool {
        !self.is_unknown() && self.children().all(Self::is_wholly_known)
    }

    /// The value without the type that it comes with.
    pub fn plain(&self) -> &Self {
        match self {
            Self::Dynamic(dynamic) => dynamic.value.plain(),
            value => value,
        }
    }

    /// An attribute of an object, or an element of a map.
    pub fn get(&self, name: &str) -> Option<&Self> {
        match self.plain() {
            Self::Object(it) | Self::Map(it) => it.get(name),
            _ => None,
        }
    }

    /// The text, if it is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self.plain() {
            Self::String(it) => Some(it),
            _ => None,
        }
    }

    /// The value at a path. A path that leads into a set ends at the set.
    pub fn at(&self, path: &Path) -> Option<&Self> {
        let mut value = self;
        for step in &path.0 {
            value = match (step, value.plain()) {
                (_, Self::Set(_)) => return Some(value),
                (Step::Attribute(name) | Step::Key(name), Self::Object(it) | Self::Map(it)) => it.get(name)?,
                (Step::Index(index), Self::List(it) | Self::Tuple(it)) => it.get(usize::try_from(*index).ok()?)?,
                _ => return None,
            };
        }
        Some(value)
    }

    /// The elements and attributes directly inside.
    pub fn children(&self) -> Box<dyn Iterator<Item = &Self> + '_> {
        match self {
            Self::List(it) | Self::Set(it) | Self::Tuple(it) => Box::new(it.iter()),
            Self::Map(it) | Self::Object(it) => Box::new(it.values()),
            Self::Dynamic(it) => Box::new(std::iter::once(&it.value)),
            _ => Box::new(std::iter::empty()),
        }
    }

    /// This value with null in all unknown parts.
    #[must_use]
    pub fn without_unknowns(self) -> Self {
        let all = |it: Vec<Self>| it.into_iter().map(Self::without_unknowns);
        let named = |it: BTreeMap<String, Self>| it.into_iter().map(|(key, it)| (key, it.without_unknowns())).collect();
        match self {
            Self::Unknown => Self::Null,
            Self::List(it) => Self::List(all(it).collect()),
            Self::Tuple(it) => Self::Tuple(all(it).collect()),
            Self::Set(it) => Self::set(all(it)),
            Self::Map(it) => Self::Map(named(it)),
            Self::Object(it) => Self::Object(named(it)),
            Self::Dynamic(it) => {
                let Dynamic { ty, value } = *it;
                Self::Dynamic(Box::new(Dynamic { ty, value: value.without_unknowns() }))
            }
            value => value,
        }
    }

    /// Whether it has the form of a type. Nulls and unknowns have every type.
    pub fn conforms(&self, ty: &Type) -> bool {
        let all = |elements: &[Self], ty: &Type| elements.iter().all(|it| it.conforms(ty));
        match (self, ty) {
            (Self::Null | Self::Unknown, _)
            | (Self::Bool(_), Type::Bool)
            | (Self::Number(_), Type::Number)
            | (Self::String(_), Type::String) => true,
            (Self::List(elements), Type::List(ty)) | (Self::Set(elements), Type::Set(ty)) => all(elements, ty),
            (Self::Map(elements), Type::Map(ty)) => elements.values().all(|it| it.conforms(ty)),
            (Self::Tuple(elements), Type::Tuple(types)) => {
                elements.len() == types.len() && elements.iter().zip(types).all(|(it, ty)| it.conforms(ty))
            }
            (Self::Object(attributes), Type::Object(types)) => {
                attributes.len() == types.len()
                    && attributes.iter().zip(types).all(|((name, it), (key, ty))| name == key && it.conforms(ty))
            }
            (Self::Dynamic(it), Type::Dynamic) => it.value.conforms(&it.ty),
            _ => false,
        }
    }
}

/// A text in NFC, as Terraform compares strings.
pub fn nfc(text: &str) -> String {
    if text.is_ascii() { text.to_owned() } else { text.nfc().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_compare_by_content() {
        let one = Value::set([Value::string("b"), Value::string("a"), Value::string("b")]);
        assert_eq!(one, Value::set([Value::string("a"), Value::string("b")]));
        let several = Value::set([Value::Unknown, Value::Unknown]);
        assert_eq!(several, Value::Set(vec![Value::Unknown, Value::Unknown]));
    }

    #[test]
    fn strings_compare_after_normalization() {
        assert_eq!(Value::string("e\u{301}"), Value::string("\u{e9}"));
    }

    #[test]
    fn dynamic_values_compare_with_their_types() {
        let with = |ty| Value::Dynamic(Box::new(Dynamic { ty, value: Value::Null }));
        assert_ne!(with(Type::String), with(Type::Bool));
        assert_ne!(with(Type::String), Value::Null);
        assert!(with(Type::String).is_null());
    }

    #[test]
    fn paths_lead_to_values_and_end_at_sets() {
        let inner = Value::set([Value::object([("b", Value::Bool(true))])]);
        let value = Value::object([("l", Value::List(vec![Value::map([("k", inner.clone())])]))]);
        let path = Path::attribute("l").index(0).key("k");
        assert_eq!(value.at(&path), Some(&inner));
        assert_eq!(value.at(&path.clone().index(0).name("b")), Some(&inner));
        assert_eq!(value.at(&Path::attribute("l").index(1)), None);
        assert_eq!(path.to_string(), r#"l[0]["k"]"#);
    }

    #[test]
    fn values_have_the_form_of_their_type_only() {
        let ty = Type::object([("a", Type::list(Type::Number)), ("d", Type::Dynamic)]);
        let value = |a, d| Value::object([("a", a), ("d", d)]);
        assert!(value(Value::Unknown, Value::dynamic(Value::Bool(true))).conforms(&ty));
        assert!(!value(Value::List(vec![Value::Bool(true)]), Value::Null).conforms(&ty));
        assert!(!value(Value::Null, Value::Bool(true)).conforms(&ty));
        assert!(!Value::object([("a", Value::Null)]).conforms(&ty));
    }
}
