//! Reads the values of an AppConfiguration. A field that nothing reads is an error, so that no part of a configuration is lost.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use stoa_kcl::{Map, Value};

/// The field with the schema of an instance.
pub(super) const TYPE: &str = "_type";

/// A wrong value: its field, and the reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) field: String,
    pub(super) message: String,
}

pub(super) type Read<T> = Result<T, Wrong>;

/// A map with its path.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    path: String,
    map: &'a Map,
}

impl<'a> Fields<'a> {
    pub(super) fn of(path: &str, value: &'a Value) -> Read<Self> {
        match value {
            Value::Map(map) => Ok(Self { path: path.to_owned(), map }),
            _ => Err(Wrong { field: path.to_owned(), message: "must be a map".to_owned() }),
        }
    }

    /// The map itself.
    pub(super) fn value(&self) -> Value {
        Value::Map(self.map.clone())
    }

    pub(super) fn wrong(&self, field: &str, message: impl Into<String>) -> Wrong {
        Wrong { field: self.at(field), message: message.into() }
    }

    /// The path of a field.
    pub(super) fn at(&self, field: &str) -> String {
        match field {
            "" => self.path.clone(),
            _ => format!("{}.{field}", self.path),
        }
    }

    /// Rejects all other fields.
    pub(super) fn only(&self, known: &[&str]) -> Read<()> {
        let unknown = self.map.0.iter().find(|(name, _)| name != TYPE && !known.contains(&name.as_str()));
        match unknown {
            Some((name, _)) => Err(self.wrong(name, format!("is not supported; the fields are {}", known.join(", ")))),
            None => Ok(()),
        }
    }

    /// The schema of the instance, such as `service.Service`.
    pub(super) fn schema(&self) -> &'a str {
        match self.map.get(TYPE) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    /// The name of the schema without its package.
    pub(super) fn kind(&self) -> &'a str {
        self.schema().rsplit('.').next().unwrap_or_default()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.map.0.iter().map(|(name, value)| (name.as_str(), value)).filter(|(name, _)| *name != TYPE)
    }

    pub(super) fn get(&self, field: &str) -> Option<&'a Value> {
        self.map.get(field).filter(|value| !matches!(value, Value::Null))
    }

    pub(super) fn map(&self, field: &str) -> Read<Option<Fields<'a>>> {
        self.get(field).map(|value| Fields::of(&self.at(field), value)).transpose()
    }

    /// The entries of a map, sorted by name; none if it is missing.
    pub(super) fn sorted(&self, field: &str) -> Read<BTreeMap<&'a str, Fields<'a>>> {
        let Some(map) = self.map(field)? else { return Ok(BTreeMap::new()) };
        map.entries().map(|(name, value)| Ok((name, Fields::of(&map.at(name), value)?))).collect()
    }

    pub(super) fn list(&self, field: &str) -> Read<&'a [Value]> {
        match self.get(field) {
            None => Ok(&[]),
            Some(Value::List(list)) => Ok(list),
            Some(_) => Err(self.wrong(field, "must be a list")),
        }
    }

    pub(super) fn text(&self, field: &str) -> Read<Option<&'a str>> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(field, "must be a text")),
        }
    }

    pub(super) fn integer(&self, field: &str) -> Read<Option<i64>> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Number(number)) => {
                let whole = || number.as_f64().filter(|it| it.fract() == 0.0 && it.abs() < 1e15).map(|it| it as i64);
                let number = number.as_i64().or_else(whole).ok_or_else(|| self.wrong(field, "must be an integer"))?;
                Ok(Some(number))
            }
            Some(_) => Err(self.wrong(field, "must be an integer")),
        }
    }

    pub(super) fn bool(&self, field: &str) -> Read<bool> {
        match self.get(field) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(_) => Err(self.wrong(field, "must be true or false")),
        }
    }

    /// A map of texts, in order; none if it is missing.
    pub(super) fn texts(&self, field: &str) -> Read<Vec<(&'a str, &'a str)>> {
        let Some(map) = self.map(field)? else { return Ok(Vec::new()) };
        map.entries()
            .map(|(name, _)| Ok((name, map.text(name)?.ok_or_else(|| map.wrong(name, "must be a text"))?)))
            .collect()
    }

    /// A value as it is, without the schemas of instances.
    pub(super) fn json(&self, field: &str) -> Option<Json> {
        self.get(field).map(without_schemas)
    }
}

/// A value as JSON in the order of the program, with the schemas of instances.
pub(super) fn ordered_json(value: &Value) -> String {
    let joined = |parts: Vec<String>| parts.join(",");
    match value {
        Value::List(list) => format!("[{}]", joined(list.iter().map(ordered_json).collect())),
        Value::Map(map) => {
            let field =
                |(name, value): &(String, Value)| format!("{}:{}", Json::from(name.as_str()), ordered_json(value));
            format!("{{{}}}", joined(map.0.iter().map(field).collect()))
        }
        other => Json::from(other.clone()).to_string(),
    }
}

/// A value as JSON, without the schemas of instances.
pub(super) fn without_schemas(value: &Value) -> Json {
    match value {
        Value::List(list) => list.iter().map(without_schemas).collect(),
        Value::Map(map) => {
            let fields = map.0.iter().filter(|(name, _)| name != TYPE);
            Json::Object(fields.map(|(name, value)| (name.clone(), without_schemas(value))).collect())
        }
        other => Json::from(other.clone()),
    }
}
