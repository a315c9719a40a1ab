//! The JSON form of values in stored states.
//!
//! Numbers have all digits, sets are sorted, and a value of any type is an object with `value` and `type`. Providers
//! read this form in UpgradeResourceState.

use super::{Dynamic, Json, Path, Step, Type, Value};

/// A value without a form in a state, or a state without a form as a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", if path.is_root() { "state".to_owned() } else { path.to_string() })]
pub struct StateError {
    /// The part.
    pub path: Path,
    /// The reason.
    pub problem: StateProblem,
}

/// Why a value has no form in a state, or the reverse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateProblem {
    /// The value is unknown after an apply.
    #[error("the value is unknown")]
    Unknown,
    /// The value is an infinity.
    #[error("infinity cannot be stored; the number is out of the provider's range")]
    Infinite,
    /// The value or its JSON does not have the form of the type.
    #[error("the form of {0} is required")]
    Type(Type),
}

/// The JSON form of a value.
///
/// # Errors
///
/// If a part is unknown, infinite or of another type.
pub fn to_json(value: &Value, ty: &Type) -> Result<Json, StateError> {
    write(value, ty, &mut Vec::new())
}

/// The value of a JSON form. Objects have exactly the attributes of their type.
///
/// # Errors
///
/// If the JSON does not have the form of the type.
pub fn from_json(json: &Json, ty: &Type) -> Result<Value, StateError> {
    read(json, ty, &mut Vec::new())
}

fn failed<T>(path: &[Step], problem: StateProblem) -> Result<T, StateError> {
    Err(StateError { path: Path(path.to_vec()), problem })
}

/// Does something one step further.
fn within<T>(path: &mut Vec<Step>, step: Step, action: impl FnOnce(&mut Vec<Step>) -> T) -> T {
    path.push(step);
    let result = action(path);
    path.pop();
    result
}

fn write(value: &Value, ty: &Type, path: &mut Vec<Step>) -> Result<Json, StateError> {
    let mut elements = |values: &[Value], ty: &Type| -> Result<Json, StateError> {
        let all = (0..).zip(values).map(|(index, it)| within(path, Step::Index(index), |path| write(it, ty, path)));
        Ok(Json::Array(all.collect::<Result<_, _>>()?))
    };
    match (value, ty) {
        (Value::Null, _) => Ok(Json::Null),
        (Value::Unknown, _) => failed(path, StateProblem::Unknown),
        (Value::Bool(it), Type::Bool) => Ok(Json::Bool(*it)),
        (Value::Number(it), Type::Number) if it.is_finite() => Ok(Json::Number(it.clone())),
        (Value::Number(_), Type::Number) => failed(path, StateProblem::Infinite),
        (Value::String(it), Type::String) => Ok(Json::String(it.clone())),
        (Value::List(it), Type::List(ty)) | (Value::Set(it), Type::Set(ty)) => elements(it, ty),
        (Value::Map(it), Type::Map(ty)) => {
            let all = it
                .iter()
                .map(|(key, it)| within(path, Step::Key(key.clone()), |path| Ok((key.clone(), write(it, ty, path)?))));
            Ok(Json::Object(all.collect::<Result<_, _>>()?))
        }
        (Value::Object(it), Type::Object(types)) if it.keys().eq(types.keys()) => {
            let all = it.iter().zip(types.values()).map(|((name, it), ty)| {
                within(path, Step::Attribute(name.clone()), |path| Ok((name.clone(), write(it, ty, path)?)))
            });
            Ok(Json::Object(all.collect::<Result<_, _>>()?))
        }
        (Value::Tuple(it), Type::Tuple(types)) if it.len() == types.len() => {
            let all = (0..).zip(it).zip(types);
            let all = all.map(|((index, it), ty)| within(path, Step::Index(index), |path| write(it, ty, path)));
            Ok(Json::Array(all.collect::<Result<_, _>>()?))
        }
        (Value::Dynamic(it), Type::Dynamic) => {
            let value = write(&it.value, &it.ty, path)?;
            let ty = Json::from(&it.ty.to_json());
            Ok(Json::Object([("type".to_owned(), ty), ("value".to_owned(), value)].into()))
        }
        _ => failed(path, StateProblem::Type(ty.clone())),
    }
}

fn read(json: &Json, ty: &Type, path: &mut Vec<Step>) -> Result<Value, StateError> {
    match (json, ty) {
        (Json::Null, _) => Ok(Value::Null),
        (Json::Bool(it), Type::Bool) => Ok(Value::Bool(*it)),
        (Json::Number(it), Type::Number) => Ok(Value::Number(it.clone())),
        (Json::String(it), Type::String) => Ok(Value::string(it)),
        (Json::Array(it), Type::List(element) | Type::Set(element)) => {
            let all = (0..).zip(it);
            let all = all.map(|(index, it)| within(path, Step::Index(index), |path| read(it, element, path)));
            let all: Vec<_> = all.collect::<Result<_, _>>()?;
            Ok(if matches!(ty, Type::Set(_)) { Value::set(all) } else { Value::List(all) })
        }
        (Json::Object(it), Type::Map(ty)) => {
            let all = it.iter().map(|(key, it)| {
                within(path, Step::Key(key.clone()), |path| Ok((super::nfc(key), read(it, ty, path)?)))
            });
            Ok(Value::Map(all.collect::<Result<_, _>>()?))
        }
        (Json::Object(it), Type::Object(types)) if it.keys().eq(types.keys()) => {
            let all = it.iter().zip(types.values()).map(|((name, it), ty)| {
                within(path, Step::Attribute(name.clone()), |path| Ok((name.clone(), read(it, ty, path)?)))
            });
            Ok(Value::Object(all.collect::<Result<_, _>>()?))
        }
        (Json::Array(it), Type::Tuple(types)) if it.len() == types.len() => {
            let all = (0..).zip(it).zip(types);
            let all = all.map(|((index, it), ty)| within(path, Step::Index(index), |path| read(it, ty, path)));
            Ok(Value::Tuple(all.collect::<Result<_, _>>()?))
        }
        (Json::Object(it), Type::Dynamic) if it.len() == 2 => match (it.get("type"), it.get("value")) {
            (Some(inner), Some(value)) => match Type::parse(inner.to_string().as_bytes()) {
                Ok(inner) => {
                    let value = read(value, &inner, path)?;
                    Ok(Value::Dynamic(Box::new(Dynamic { ty: inner, value })))
                }
                Err(_) => failed(path, StateProblem::Type(ty.clone())),
            },
            _ => failed(path, StateProblem::Type(ty.clone())),
        },
        _ => failed(path, StateProblem::Type(ty.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ty() -> Type {
        Type::object([
            ("any", Type::Dynamic),
            ("big", Type::Number),
            ("set", Type::set(Type::String)),
            ("tuple", Type::Tuple(vec![Type::Bool, Type::map(Type::Number)])),
        ])
    }

    #[test]
    fn states_survive_with_all_digits_sorted_sets_and_types() {
        let text = concat!(
            r#"{"any":{"type":["list","number"],"value":[1]},"big":100000000000000000000001,"#,
            r#""set":["a","b"],"tuple":[true,{"k":0.1}]}"#
        );
        let value = from_json(&Json::parse(text.as_bytes()).unwrap(), &ty()).unwrap();
        assert!(value.conforms(&ty()));
        assert_eq!(to_json(&value, &ty()).unwrap().to_string(), text);
    }

    #[test]
    fn unknown_and_infinite_values_are_not_stored() {
        let of = |value| to_json(&value, &Type::list(Type::Number)).unwrap_err().to_string();
        assert_eq!(of(Value::List(vec![Value::Unknown])), "[0]: the value is unknown");
        let infinite = Value::List(vec![Value::Null, Value::Number(super::super::Number::INFINITY)]);
        assert_eq!(of(infinite), "[1]: infinity cannot be stored; the number is out of the provider's range");
        assert_eq!(of(Value::Bool(true)), r#"state: the form of ["list","number"] is required"#);
    }

    #[test]
    fn states_of_another_form_are_rejected() {
        for text in ["{}", "[]", r#"{"any":1,"big":null,"set":null,"tuple":null}"#] {
            assert!(from_json(&Json::parse(text.as_bytes()).unwrap(), &ty()).is_err(), "{text}");
        }
    }
}
