//! Values by the types of JSON Schema, and what is said of one that is of another type.

use serde_json::Value;

use crate::path::type_name;

const WHOLE_NUMBER: &str = "a whole number";

/// Why a value does not fit where a schema has this `type`. `None` where it does, and of a type that nobody knows.
///
/// A number without a fraction is whole however it is written, and null is of no type.
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

/// What is said of a value that stands where something else is wanted, and not what it is: it may be secret.
pub fn wanted(what: &str, value: &Value) -> String {
    match value {
        Value::Number(_) if what == WHOLE_NUMBER => format!("{what} is wanted here, not a fraction"),
        other => format!("{what} is wanted here, not {}", type_name(other)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_of_one_type_and_whole_numbers_of_two() {
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
        assert_eq!(misfit("integer", &json!(1.5)).as_deref(), Some("a whole number is wanted here, not a fraction"));
        assert_eq!(misfit("object", &json!(null)).as_deref(), Some("a map is wanted here, not null"));
        assert_eq!(misfit("whatever", &json!(1)), None);
    }
}
