//! What an expression comes to, outside of its evaluation.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Map as JsonMap, Value as Json};

use super::{
    budget::Budget,
    eval::Error,
    structs::{JSON_PATCH, OBJECT, Steps, Struct},
    value::{List, Map, Value},
};

/// The outcome of an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Evaluated {
    /// `true` or `false`.
    Bool(bool),
    /// A string.
    Text(String),
    /// `null`.
    Null,
    /// A configuration to apply.
    Object(JsonMap<String, Json>),
    /// The operations of a JSON patch.
    Patch(Vec<Json>),
    /// Types that stand where others belong; the text says which.
    Misplaced(String),
    /// Anything else: the name of the type.
    Other(String),
}

impl Evaluated {
    /// What a value comes to. Going through it costs steps, as evaluating does.
    pub(super) fn of(value: Value<'_>, budget: &mut Budget) -> Result<Self, Error> {
        let mut steps = Steps::new(budget);
        match value {
            Value::Bool(value) => Ok(Self::Bool(value)),
            Value::String(text) => Ok(Self::Text(text.to_string())),
            Value::Null => Ok(Self::Null),
            Value::Struct(made) if made.type_name == OBJECT => match misplaced(&made, &mut steps)? {
                Some(text) => Ok(Self::Misplaced(text)),
                None => fields(&made, &mut steps).map(Self::Object),
            },
            Value::List(list) => operations(&list, &mut steps),
            Value::Struct(made) => Ok(Self::Other(made.type_name.to_owned())),
            other => Ok(Self::Other(other.type_name().to_owned())),
        }
    }
}

impl Evaluated {
    /// The name of its type.
    pub fn type_name(&self) -> &str {
        match self {
            Self::Bool(_) => "bool",
            Self::Text(_) => "string",
            Self::Null => "null_type",
            Self::Object(_) | Self::Misplaced(_) => OBJECT,
            Self::Patch(_) => "list(JSONPatch)",
            Self::Other(name) => name,
        }
    }
}

fn misplaced(made: &Struct<'_>, steps: &mut Steps<'_>) -> Result<Option<String>, Error> {
    let mut found = Vec::new();
    made.mismatches(made.type_name, steps, &mut found)?;
    Ok((!found.is_empty()).then(|| format!("type mismatch: {}", found.join("\n"))))
}

/// A list of operations; any other list is nothing of use.
fn operations(list: &List<'_>, steps: &mut Steps<'_>) -> Result<Evaluated, Error> {
    let mut operations = Vec::new();
    for item in list.iter() {
        let Value::Struct(made) = item else { return Ok(Evaluated::Other("list".to_owned())) };
        if made.type_name != JSON_PATCH {
            return Ok(Evaluated::Other(format!("list({})", made.type_name)));
        }
        if let Some(Value::Struct(value)) = made.fields.get("value")
            && let Some(text) = misplaced(value, steps)?
        {
            return Ok(Evaluated::Misplaced(text));
        }
        let mut operation = fields(&made, steps)?;
        if operation.get("from").is_some_and(|from| from == "") {
            operation.remove("from");
        }
        for field in ["op", "path"] {
            operation.entry(field).or_insert_with(|| "".into());
        }
        operations.push(Json::Object(operation));
    }
    Ok(Evaluated::Patch(operations))
}

fn fields(made: &Struct<'_>, steps: &mut Steps<'_>) -> Result<JsonMap<String, Json>, Error> {
    steps.make(0)?;
    let mut object = JsonMap::new();
    for (name, value) in made.fields.iter() {
        steps.make(name.len())?;
        object.insert(name.clone(), json(value, steps)?);
    }
    Ok(object)
}

/// A value as JSON.
fn json(value: &Value<'_>, steps: &mut Steps<'_>) -> Result<Json, Error> {
    steps.nested(|steps| json_of(value, steps))
}

fn json_of(value: &Value<'_>, steps: &mut Steps<'_>) -> Result<Json, Error> {
    steps.make(match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len() * 4 / 3,
        _ => 0,
    })?;
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::from(*value),
        Value::Int(value) => Json::from(*value),
        Value::Uint(value) => Json::from(*value),
        Value::Double(value) => Json::from(*value),
        Value::String(text) => Json::from(&**text),
        Value::Bytes(bytes) => Json::from(BASE64_STANDARD.encode(bytes)),
        Value::Duration(_) | Value::Timestamp(_) => Json::from(steps.display(value)?),
        Value::List(List::Json(items)) => items.iter().map(|item| copy(item, steps)).collect::<Result<_, _>>()?,
        Value::List(List::Made(items)) => items.iter().map(|item| json(item, steps)).collect::<Result<_, _>>()?,
        Value::Map(Map::Json(map)) => copy_map(map, steps)?,
        Value::Map(Map::Made(map)) => {
            let mut object = JsonMap::new();
            for (key, value) in map.iter() {
                let key = key.clone().text().ok_or_else(|| Error::new("map keys must be strings"))?;
                steps.make(key.len())?;
                object.insert(key, json(value, steps)?);
            }
            Json::Object(object)
        }
        Value::Struct(made) => Json::Object(fields(made, steps)?),
        Value::Optional(Some(value)) => json(value, steps)?,
        other => return Err(Error::new(format!("{} has no form in JSON", other.type_name()))),
    })
}

/// JSON as it is, paid for by its size.
fn copy(value: &Json, steps: &mut Steps<'_>) -> Result<Json, Error> {
    steps.make(value.as_str().map_or(0, str::len))?;
    match value {
        Json::Array(items) => Ok(Json::Array(items.iter().map(|item| copy(item, steps)).collect::<Result<_, _>>()?)),
        Json::Object(map) => copy_map(map, steps),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => Ok(value.clone()),
    }
}

fn copy_map(map: &JsonMap<String, Json>, steps: &mut Steps<'_>) -> Result<Json, Error> {
    let copied = map.iter().map(|(key, value)| {
        steps.make(key.len())?;
        Ok((key.clone(), copy(value, steps)?))
    });
    Ok(Json::Object(copied.collect::<Result<_, Error>>()?))
}
