//! Checks of one value by its schema: enum, length, range, pattern, and combined schemas.

use serde_json::{Number, Value};

use super::walk::Walk;
use super::{Fault, listed, shortened};

/// The maximum length of listed values, in bytes.
const TOLD: usize = 200;
/// So many bytes of a text are counted in one step.
const COUNTED: usize = 128;

impl<'s> Walk<'_, 's> {
    /// Checks a value as a whole, if all of it is known, and others may not set fields of it.
    pub(super) fn whole(&mut self, schema: &'s Value, value: &Value, has_live: bool) {
        let alternatives = ["allOf", "anyOf", "oneOf"].map(|name| listed(schema, name));
        let (values, not) = (listed(schema, "enum"), schema.get("not"));
        if values.is_empty() && not.is_none() && alternatives.iter().all(|all| all.is_empty()) {
            return;
        }
        let is_shared = has_live && (value.is_object() || value.is_array());
        if is_shared || self.is_unknown_within() || !self.steps.take(values.len()) {
            return self.pass_over();
        }
        if !values.is_empty() && !values.iter().any(|allowed| are_equal(allowed, value)) {
            return self.report(Fault::Refused, format!("must be one of {}", shown(values)));
        }
        let [all, any, one] = alternatives;
        for schema in all {
            self.loosely(|walk| walk.value(schema, value, None));
        }
        let mut fitting = |schemas: &'s [Value]| -> Vec<Option<bool>> {
            schemas.iter().map(|schema| self.fits(schema, value)).collect()
        };
        let (any, one, not) = (fitting(any), fitting(one), fitting(not.map_or(&[][..], std::slice::from_ref)));
        let is_sure = [&any, &one, &not].iter().all(|of| !of.contains(&None));
        if !is_sure {
            self.pass_over();
        }
        let may_fit = |of: &[Option<bool>]| of.is_empty() || of.iter().any(|fits| *fits != Some(false));
        if !may_fit(&any) {
            self.report(Fault::Refused, "must match one of the schemas that its kind allows (anyOf)".to_owned());
        }
        if !may_fit(&one) {
            self.report(Fault::Refused, "must match one of the schemas that its kind allows (oneOf)".to_owned());
        }
        if one.iter().filter(|fits| **fits == Some(true)).count() > 1 {
            let message = "must match only one of the schemas that its kind allows (oneOf)";
            self.report(Fault::Refused, message.to_owned());
        }
        if not.contains(&Some(true)) {
            self.report(Fault::Refused, "must not match the schema that its kind excludes (not)".to_owned());
        }
    }

    /// Checks the number of items or entries. `has_others` if others may have added some.
    pub(super) fn sizes(&mut self, schema: &Value, [min, max]: [&str; 2], what: &str, length: usize, has_others: bool) {
        if size(schema, min).is_some_and(|min| length < min && !has_others) {
            self.report(Fault::Refused, format!("must have at least {} {what}", schema[min]));
        }
        if size(schema, max).is_some_and(|max| length > max) {
            self.report(Fault::Refused, format!("must have at most {} {what}", schema[max]));
        }
    }

    pub(super) fn text(&mut self, schema: &'s Value, text: &str) {
        if schema.get("format").is_some() {
            self.pass_over();
        }
        // No text has more characters than bytes, nor more than four bytes of each.
        let max = size(schema, "maxLength").filter(|max| text.len() > *max);
        let min = size(schema, "minLength").filter(|min| text.len() < min.saturating_mul(4));
        if max.is_some() || min.is_some() {
            if !self.steps.take(text.len() / COUNTED) {
                return self.pass_over();
            }
            let length = text.chars().count();
            if max.is_some_and(|max| length > max) {
                self.report(Fault::Refused, format!("must have at most {} characters", schema["maxLength"]));
            }
            if min.is_some_and(|min| length < min) {
                self.report(Fault::Refused, format!("must have at least {} characters", schema["minLength"]));
            }
        }
        let Some(pattern) = schema.get("pattern").and_then(Value::as_str).filter(|pattern| !pattern.is_empty()) else {
            return;
        };
        match self.patterns.matches(pattern, text, self.steps) {
            Some(true) => {}
            Some(false) => self.report(Fault::Refused, format!("must match `{}`", shortened(pattern))),
            None => self.pass_over(),
        }
    }

    pub(super) fn number(&mut self, schema: &Value, number: &Number) {
        let Some(value) = number.as_f64() else { return self.pass_over() };
        let is_integer = schema.get("type").is_some_and(|type_| type_ == "integer");
        if let Some((least, most)) = range(schema).filter(|_| is_integer)
            && !(least..=most).contains(&number.as_i128().unwrap_or(value as i128))
        {
            return self.report(Fault::Refused, format!("must be a number from {least} to {most}"));
        }
        // Upstream compares whole numbers with whole limits.
        let limit = |name: &str| {
            let limit = schema.get(name)?.as_f64()?;
            Some(if value.fract() == 0.0 && !is_integer { limit.trunc() } else { limit })
        };
        let is_exclusive = |name: &str| schema.get(name) == Some(&Value::Bool(true));
        if let Some(min) = limit("minimum") {
            let is_out = is_exclusive("exclusiveMinimum");
            if value < min || (is_out && value == min) {
                let what = if is_out { "more than" } else { "at least" };
                self.report(Fault::Refused, format!("must be {what} {}", schema["minimum"]));
            }
        }
        if let Some(max) = limit("maximum") {
            let is_out = is_exclusive("exclusiveMaximum");
            if value > max || (is_out && value == max) {
                let what = if is_out { "less than" } else { "at most" };
                self.report(Fault::Refused, format!("must be {what} {}", schema["maximum"]));
            }
        }
        match (schema.get("multipleOf").map(Value::as_i64), number.as_i64()) {
            (Some(Some(factor)), Some(value)) if factor > 0 => {
                if value % factor != 0 {
                    self.report(Fault::Refused, format!("must be a multiple of {factor}"));
                }
            }
            // Rounding decides about fractions.
            (Some(_), _) => self.pass_over(),
            (None, _) => {}
        }
    }
}

/// A count that a schema has under a name.
fn size(schema: &Value, name: &str) -> Option<usize> {
    usize::try_from(schema.get(name)?.as_u64()?).ok()
}

/// The range of an integer, by its format.
fn range(schema: &Value) -> Option<(i128, i128)> {
    match schema.get("format").and_then(Value::as_str) {
        Some("int32") => Some((i32::MIN.into(), i32::MAX.into())),
        Some("int64") | None => Some((i64::MIN.into(), i64::MAX.into())),
        Some(_) => None,
    }
}

/// Whether two values are equal, however their numbers are written.
pub(crate) fn are_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| are_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_there = |(key, value): (&String, &Value)| other.get(key).is_some_and(|it| are_equal(value, it));
            one.len() == other.len() && one.iter().all(is_there)
        }
        _ => one == other,
    }
}

/// Values as a comma-separated list of limited length.
fn shown(values: &[Value]) -> String {
    let mut told = String::new();
    for (position, value) in values.iter().enumerate() {
        let text = value.to_string();
        if told.len() + text.len() > TOLD {
            return format!("{told}{}… ({} values)", if position > 0 { ", " } else { "" }, values.len());
        }
        told.push_str(if position > 0 { ", " } else { "" });
        told.push_str(&text);
    }
    told
}
