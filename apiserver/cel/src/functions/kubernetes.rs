//! The types that Kubernetes adds to CEL for resources: quantities and URLs.
//!
//! Follows `quantity.go` and `urls.go` in `k8s.io/apiserver/pkg/cel/library`.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use super::{
    super::{
        eval::{Error, Outcome},
        go::{self, url::Url},
        quantity::{Quantity, TooLarge},
        value::{Key, Value},
    },
    Invocation,
};

pub(super) fn call<'a>(call: &Invocation<'_, 'a>) -> Option<Outcome<'a>> {
    if call.namespace.is_some() {
        return None;
    }
    match call.args {
        // Upstream has it as a function, and tells of it as a method.
        [Value::Quantity(quantity)] if call.name == "sign" => Some(Ok(Value::Int(quantity.sign()))),
        [Value::String(text)] if !call.receiver => make(call.name, text),
        [Value::Quantity(quantity), rest @ ..] if call.receiver => on_quantity(call.name, **quantity, rest),
        [Value::Url(url)] if call.receiver => on_url(call.name, url),
        _ => None,
    }
}

fn make<'a>(name: &str, text: &str) -> Option<Outcome<'a>> {
    Some(match name {
        "quantity" => Quantity::parse(text)
            .map(|quantity| Value::Quantity(Box::new(quantity)))
            .map_err(|error| Error::new(error.to_string())),
        "isQuantity" => Ok(Value::Bool(Quantity::parse(text).is_ok())),
        "url" => Url::parse(text)
            .map(|url| Value::Url(Arc::new(url)))
            .map_err(|why| Error::new(format!("URL parse error during conversion from string: {why}"))),
        "isURL" => Ok(Value::Bool(Url::check(text).is_ok())),
        _ => return None,
    })
}

fn on_quantity<'a>(name: &str, quantity: Quantity, rest: &[Value<'a>]) -> Option<Outcome<'a>> {
    let other = match rest {
        [] => None,
        [Value::Quantity(other)] => Some(**other),
        [Value::Int(other)] if matches!(name, "add" | "sub") => Some(Quantity::from_int(*other)),
        _ => return None,
    };
    let made = |quantity: Result<Quantity, TooLarge>| {
        quantity.map(|quantity| Value::Quantity(Box::new(quantity))).map_err(|error| Error::new(error.to_string()))
    };
    Some(match (name, other) {
        ("isInteger", None) => Ok(Value::Bool(quantity.as_int().is_some())),
        ("asInteger", None) => {
            quantity.as_int().map(Value::Int).ok_or_else(|| Error::new("cannot convert value to integer"))
        }
        ("asApproximateFloat", None) => Ok(Value::Double(quantity.as_float())),
        ("add", Some(other)) => made(quantity.add(other)),
        ("sub", Some(other)) => made(quantity.sub(other)),
        ("isGreaterThan", Some(other)) => Ok(Value::Bool(quantity.compare(other) == Ordering::Greater)),
        ("isLessThan", Some(other)) => Ok(Value::Bool(quantity.compare(other) == Ordering::Less)),
        ("compareTo", Some(other)) => Ok(Value::Int(quantity.compare(other) as i64)),
        _ => return None,
    })
}

fn on_url<'a>(name: &str, url: &Url) -> Option<Outcome<'a>> {
    Some(Ok(match name {
        "getScheme" => Value::text(url.scheme.as_str()),
        "getHost" => Value::text(url.host.as_str()),
        "getHostname" => Value::text(url.hostname()),
        "getPort" => Value::text(url.port()),
        "getEscapedPath" => Value::text(url.path.as_str()),
        "getQuery" => {
            let mut found: BTreeMap<Key, Vec<Value<'a>>> = BTreeMap::new();
            for (key, value) in go::query(&url.query) {
                found.entry(Key::String(key)).or_default().push(Value::text(value));
            }
            Value::map(found.into_iter().map(|(key, values)| (key, Value::list(values))).collect())
        }
        _ => return None,
    }))
}
