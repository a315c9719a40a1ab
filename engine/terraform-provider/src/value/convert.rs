//! Conversion of configuration to a type, as Terraform's core does it.
//!
//! Start at [`convert`]. Numbers, bools and strings convert to each other where the text permits it; tuples become lists
//! and sets, objects become maps.

use std::collections::BTreeMap;

use super::{Dynamic, Number, Path, Type, Value, nfc};

/// A value that has no form in the type that is required.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", if path.is_root() { "value".to_owned() } else { path.to_string() })]
pub struct ConvertError {
    /// The part of the value.
    pub path: Path,
    /// The reason.
    pub problem: Problem,
}

/// Why a value cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It has another type.
    #[error("{expected} is required, not {found}")]
    Type {
        /// The type that is required, in words.
        expected: &'static str,
        /// The type of the value, in words.
        found: &'static str,
    },
    /// An attribute of an object is missing.
    #[error("attribute {0:?} is required")]
    Missing(String),
    /// The schema has no such argument.
    #[error("unknown argument {0:?}")]
    UnknownArgument(String),
    /// A tuple has another number of elements.
    #[error("{expected} elements are required, not {found}")]
    Length {
        /// The number of elements that is required.
        expected: usize,
        /// The number of elements.
        found: usize,
    },
    /// A text has no form as a number or a bool. The text may be secret.
    #[error("the text is not {0}")]
    Text(&'static str),
    /// A required argument is missing or null.
    #[error("argument {0:?} is required")]
    Required(String),
    /// There are too few or too many blocks.
    #[error("{found} blocks are not permitted; the schema permits {least} to {most}")]
    Count {
        /// The number of blocks.
        found: usize,
        /// The fewest.
        least: i64,
        /// The most, or zero for any number.
        most: i64,
    },
    /// Provider answers set the value, so configuration may not.
    #[error("the provider computes this attribute; remove it")]
    Computed,
}

impl Problem {
    /// The error about this problem at a path.
    pub fn at(self, path: &Path) -> ConvertError {
        ConvertError { path: path.clone(), problem: self }
    }
}

/// Converts a value to a type.
///
/// # Errors
///
/// If the value has no form in this type; the error names the part.
pub fn convert(value: Value, ty: &Type) -> Result<Value, ConvertError> {
    convert_at(value, ty, &Path::default())
}

/// Converts a part of a value, at a path for errors.
pub(crate) fn convert_at(value: Value, ty: &Type, path: &Path) -> Result<Value, ConvertError> {
    let value = match value {
        Value::Dynamic(dynamic) if *ty != Type::Dynamic => dynamic.value,
        value => value,
    };
    let mismatch =
        |found: &Value| Err(Problem::Type { expected: type_in_words(ty), found: value_in_words(found) }.at(path));
    match (value, ty) {
        (Value::Null, _) => Ok(Value::Null),
        (Value::Unknown, _) => Ok(Value::Unknown),
        (value, Type::Dynamic) => Ok(match value {
            Value::Dynamic(_) => value,
            value => {
                let value = normalized(value);
                Value::Dynamic(Box::new(Dynamic { ty: Type::of_value(&value), value }))
            }
        }),
        (Value::String(text), Type::String) => Ok(Value::string(text)),
        (Value::Number(number), Type::String) if number.is_finite() => Ok(Value::String(number.to_string())),
        (Value::Bool(it), Type::String) => Ok(Value::String(it.to_string())),
        (value @ Value::Bool(_), Type::Bool) | (value @ Value::Number(_), Type::Number) => Ok(value),
        (Value::String(text), Type::Bool) => match text.as_str() {
            "true" | "1" => Ok(Value::Bool(true)),
            "false" | "0" => Ok(Value::Bool(false)),
            _ => Err(Problem::Text("a bool").at(path)),
        },
        (Value::String(text), Type::Number) => match text.parse::<Number>() {
            Ok(number) => Ok(Value::Number(number)),
            Err(_) => Err(Problem::Text("a number").at(path)),
        },
        (Value::List(it) | Value::Set(it) | Value::Tuple(it), Type::List(ty)) => {
            Ok(Value::List(elements(it, ty, path)?))
        }
        (Value::List(it) | Value::Set(it) | Value::Tuple(it), Type::Set(ty)) => Ok(Value::set(elements(it, ty, path)?)),
        (Value::Map(it) | Value::Object(it), Type::Map(ty)) => {
            let converted = it.into_iter().map(|(key, it)| {
                let it = convert_at(it, ty, &path.clone().key(key.as_str()))?;
                Ok((nfc(&key), it))
            });
            Ok(Value::Map(converted.collect::<Result<_, _>>()?))
        }
        (Value::Map(it) | Value::Object(it), Type::Object(types)) => object(it, types, path),
        (Value::List(it) | Value::Tuple(it), Type::Tuple(types)) => {
            if it.len() != types.len() {
                return Err(Problem::Length { expected: types.len(), found: it.len() }.at(path));
            }
            let converted =
                (0..).zip(it).zip(types).map(|((index, it), ty)| convert_at(it, ty, &path.clone().index(index)));
            Ok(Value::Tuple(converted.collect::<Result<_, _>>()?))
        }
        (value, _) => mismatch(&value),
    }
}

fn elements(values: Vec<Value>, ty: &Type, path: &Path) -> Result<Vec<Value>, ConvertError> {
    (0..).zip(values).map(|(index, it)| convert_at(it, ty, &path.clone().index(index))).collect()
}

/// An object with exactly the attributes of its type. Others are dropped.
fn object(
    mut values: BTreeMap<String, Value>,
    types: &BTreeMap<String, Type>,
    path: &Path,
) -> Result<Value, ConvertError> {
    let converted = types.iter().map(|(name, ty)| {
        let value = values.remove(name).ok_or_else(|| Problem::Missing(name.clone()).at(path))?;
        Ok((name.clone(), convert_at(value, ty, &path.clone().name(name.as_str()))?))
    });
    Ok(Value::Object(converted.collect::<Result<_, _>>()?))
}

/// The value with all strings in NFC.
fn normalized(value: Value) -> Value {
    let all = |it: Vec<Value>| it.into_iter().map(normalized);
    let named = |it: BTreeMap<String, Value>| it.into_iter().map(|(key, it)| (nfc(&key), normalized(it))).collect();
    match value {
        Value::String(text) => Value::string(text),
        Value::List(it) => Value::List(all(it).collect()),
        Value::Tuple(it) => Value::Tuple(all(it).collect()),
        Value::Set(it) => Value::set(all(it)),
        Value::Map(it) => Value::Map(named(it)),
        Value::Object(it) => Value::Object(named(it)),
        value => value,
    }
}

fn type_in_words(ty: &Type) -> &'static str {
    match ty {
        Type::Bool => "a bool",
        Type::Number => "a number",
        Type::String => "a string",
        Type::Dynamic => "any value",
        Type::List(_) => "a list",
        Type::Set(_) => "a set",
        Type::Map(_) => "a map",
        Type::Object(_) => "an object",
        Type::Tuple(_) => "a tuple",
    }
}

fn value_in_words(value: &Value) -> &'static str {
    match value.plain() {
        Value::Null => "null",
        Value::Unknown => "an unknown value",
        Value::Number(it) if !it.is_finite() => "infinity",
        value => type_in_words(&Type::of_value(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Value {
        Value::from_json(super::super::Json::parse(text.as_bytes()).unwrap())
    }

    #[track_caller]
    fn check(text: &str, ty: &Type, expected: Result<Value, &str>) {
        let found = convert(json(text), ty).map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[test]
    fn primitives_convert_where_the_text_permits_it() {
        check("1e21", &Type::String, Ok(Value::string("1000000000000000000000")));
        check("1.50", &Type::String, Ok(Value::string("1.5")));
        check("1e-7", &Type::String, Ok(Value::string("0.0000001")));
        check("true", &Type::String, Ok(Value::string("true")));
        check("\"1e3\"", &Type::Number, Ok(Value::number(1000)));
        check("\"false\"", &Type::Bool, Ok(Value::Bool(false)));
        check("\"no\"", &Type::Bool, Err("value: the text is not a bool"));
        check("\"x\"", &Type::Number, Err("value: the text is not a number"));
        check("true", &Type::Number, Err("value: a number is required, not a bool"));
        check("null", &Type::Number, Ok(Value::Null));
        check("\"e\u{301}\"", &Type::String, Ok(Value::String("\u{e9}".to_owned())));
    }

    #[test]
    fn collections_convert_by_element() {
        let strings = [Value::string("1"), Value::string("2")];
        check("[2,1,\"2\"]", &Type::set(Type::String), Ok(Value::set(strings)));
        check("{\"a\":1}", &Type::map(Type::String), Ok(Value::map([("a", Value::string("1"))])));
        let ty = Type::object([("a", Type::list(Type::Number))]);
        check("{\"a\":[1],\"b\":2}", &ty, Ok(Value::object([("a", Value::List(vec![Value::number(1)]))])));
        check("{\"a\":[1,\"x\"]}", &ty, Err("a[1]: the text is not a number"));
        check("{}", &ty, Err("value: attribute \"a\" is required"));
        check("[1]", &Type::Tuple(vec![]), Err("value: 0 elements are required, not 1"));
        check("[]", &Type::map(Type::Bool), Err("value: a map is required, not a tuple"));
    }

    #[test]
    fn any_type_is_that_of_the_configuration() {
        let found = convert(json("{\"a\":[1,null]}"), &Type::Dynamic).unwrap();
        let Value::Dynamic(dynamic) = &found else { panic!("{found:?}") };
        assert_eq!(dynamic.ty.to_string(), r#"["object",{"a":["tuple",["number","dynamic"]]}]"#);
        assert_eq!(convert(Value::Unknown, &Type::Dynamic), Ok(Value::Unknown));
        assert_eq!(convert(found.clone(), &Type::Dynamic), Ok(found));
    }
}
