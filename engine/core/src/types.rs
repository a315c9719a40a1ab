//! JSON Schema types of values, and messages about values of another type.

use serde_json::Value;

use crate::path::type_name;

const WHOLE_NUMBER: &str = "a whole number";

/// Why a value does not fit a schema's `type`; `None` when it fits, or for an unknown type.
///
/// A number without a fraction is whole however it is written, and null has no type.
pub fn misfit(type_: &str, value: &Value) -> Option<String> {
    let (what, fits) = match type_ {
        "object" => ("a map", value.is_object()),
        "array" => ("a list", value.is_array()),
        "string" => ("text", value.is_string()),
        "boolean" => ("true or false", value.is_boolean()),
        "number" => ("a number", value.is_number()),
        "integer" => (WHOLE_NUMBER, value.as_f64().is_some_and(|number| number.fract() == 0.0)),
        _ => return None,
    };
    (!fits).then(|| wanted(what, value))
}

/// The message about a value of another type. It does not quote the value, which may be secret.
pub fn wanted(what: &str, value: &Value) -> String {
    match value {
        Value::Number(_) if what == WHOLE_NUMBER => format!("must be {what}, not a fraction"),
        other => format!("must be {what}, not {}", type_name(other)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_have_one_type() {
        let types = ["object", "array", "string", "boolean", "number", "integer"];
        for (value, fitting) in [
            (json!({}), &["object"][..]),
            (json!([]), &["array"]),
            (json!("1"), &["string"]),
            (json!(true), &["boolean"]),
            (json!(1.5), &["number"]),
            (json!(1), &["number", "integer"]),
            (json!(1.0), &["number", "integer"]),
            (json!(u64::MAX), &["number", "integer"]),
            (json!(null), &[]),
        ] {
            let found: Vec<&str> = types.into_iter().filter(|type_| misfit(type_, &value).is_none()).collect();
            assert_eq!(found, fitting, "{value}");
        }
        assert_eq!(misfit("integer", &json!(1.5)).as_deref(), Some("must be a whole number, not a fraction"));
        assert_eq!(misfit("object", &json!(null)).as_deref(), Some("must be a map, not null"));
        assert_eq!(misfit("whatever", &json!(1)), None);
    }
}
