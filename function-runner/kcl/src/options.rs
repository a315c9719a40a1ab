//! The values of `option()`, in the form that the library converts as its users expect.
//!
//! The library parses a value as JSON and takes it for a text if that fails. So `1e3` would become "1000" for an option of type `str`.
//! Each value is passed as a JSON string, which a declared type converts. Without a declared type, a number or a boolean is passed as
//! it is, as KCL's own tools do.

use serde_json::Value as Json;

use crate::messages::{Argument, DeclaredOption};
use crate::outcome::{Problem, code};
use crate::program::Parameter;

/// The arguments of options, and warnings.
pub(crate) fn arguments(
    values: &[Parameter],
    declared: &[DeclaredOption],
) -> Result<(Vec<Argument>, Vec<Problem>), Vec<Problem>> {
    let (mut arguments, mut warnings, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for Parameter { name, value, is_common, origin } in values {
        // The same option may be read at several positions.
        let types = declared.iter().filter(|option| option.name == *name).map(|option| option.r#type.as_str());
        let types: Vec<&str> = types.collect();
        if types.is_empty() {
            // The library does not list options inside of other expressions, so a value is given anyway.
            if !*is_common {
                let message = format!("the program has no option {name:?}, so the parameter has no effect");
                warnings.push(Problem::new(code::OPTION, message));
            }
        }
        let kind = types.into_iter().find(|kind| !kind.is_empty()).unwrap_or_default();
        match argument(value, kind) {
            Ok(value) => arguments.push(Argument { name: name.clone(), value }),
            Err(wanted) => {
                let message = match origin {
                    Some(origin) => {
                        format!("value {name:?} of {origin} has another type: the option wants {wanted}")
                    }
                    None => format!("parameter {name:?} is {}, and the option wants {wanted}", shown(value)),
                };
                problems.push(Problem::new(code::OPTION, message));
            }
        }
    }
    if problems.is_empty() { Ok((arguments, warnings)) } else { Err(problems) }
}

/// The argument of an option of this type, or the type that the value lacks.
fn argument(value: &Json, kind: &str) -> Result<String, &'static str> {
    let text = match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    let parsed = || serde_json::from_str::<Json>(&text).ok();
    match kind {
        // The library takes any other text for false.
        "bool" => match text.as_str() {
            "true" | "1" => Ok("true".to_owned()),
            "false" | "0" => Ok("false".to_owned()),
            _ => Err("a boolean: true or false"),
        },
        "list" => parsed().filter(Json::is_array).map(|list| list.to_string()).ok_or("a list in JSON"),
        "dict" => parsed().filter(Json::is_object).map(|map| map.to_string()).ok_or("a map in JSON"),
        "" if is_plain(&text) => Ok(text),
        "" if !value.is_string() => Ok(value.to_string()),
        _ => Ok(quoted(&text)),
    }
}

/// Whether a text is a boolean or a number in its usual form, which the library neither rounds nor reformats.
fn is_plain(text: &str) -> bool {
    if matches!(text, "true" | "false") {
        return true;
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let has_zeros = whole.len() > 1 && whole.starts_with('0');
    is_number(whole) && is_number(fraction) && !has_zeros && (digits.contains('.') || text.parse::<i64>().is_ok())
}

fn quoted(text: &str) -> String {
    Json::from(text).to_string()
}

/// A value in messages.
fn shown(value: &Json) -> String {
    const LONGEST: usize = 60;
    let text = value.to_string();
    if text.len() <= LONGEST { text } else { format!("{}…", &text[..text.floor_char_boundary(LONGEST)]) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_decide_the_form() {
        for (value, kind, expected) in [
            (json!("1e3"), "str", Ok(r#""1e3""#)),
            (json!(3), "str", Ok(r#""3""#)),
            (json!(3), "int", Ok(r#""3""#)),
            (json!("true"), "bool", Ok("true")),
            (json!("1"), "bool", Ok("true")),
            (json!(false), "bool", Ok("false")),
            (json!("x"), "bool", Err("a boolean: true or false")),
            (json!("[1, 2]"), "list", Ok("[1,2]")),
            (json!([1]), "list", Ok("[1]")),
            (json!("x"), "list", Err("a list in JSON")),
            (json!({"a": 1}), "dict", Ok(r#"{"a":1}"#)),
            (json!([1]), "dict", Err("a map in JSON")),
            (json!("3"), "", Ok("3")),
            (json!("-3.50"), "", Ok("-3.50")),
            (json!("true"), "", Ok("true")),
            (json!("007"), "", Ok(r#""007""#)),
            (json!("1e3"), "", Ok(r#""1e3""#)),
            (json!("9223372036854775808"), "", Ok(r#""9223372036854775808""#)),
            (json!(" 7 "), "", Ok(r#"" 7 ""#)),
            (json!("null"), "", Ok(r#""null""#)),
            (json!(["a"]), "", Ok(r#"["a"]"#)),
        ] {
            assert_eq!(argument(&value, kind), expected.map(str::to_owned), "{value} {kind}");
        }
    }

    #[test]
    fn unknown_parameter_is_a_warning_and_wrong_type_an_error() {
        let parameter = |name: &str, value| Parameter { name: name.to_owned(), value, is_common: false, origin: None };
        let values = [parameter("a", json!("x")), parameter("b", json!("1"))];
        let (_, warnings) = arguments(&values[1..], &[]).unwrap();
        let common = Parameter { is_common: true, ..parameter("c", json!(1)) };
        let given = Argument { name: "c".to_owned(), value: "1".to_owned() };
        assert_eq!(arguments(&[common], &[]).unwrap(), (vec![given], Vec::new()));
        assert_eq!(warnings[0].message, r#"the program has no option "b", so the parameter has no effect"#);
        let option = |name: &str, kind: &str| DeclaredOption {
            name: name.to_owned(),
            r#type: kind.to_owned(),
            ..DeclaredOption::default()
        };
        let problems = arguments(&values, &[option("a", ""), option("a", "bool"), option("b", "int")]).unwrap_err();
        let expected = r#"parameter "a" is "x", and the option wants a boolean: true or false"#;
        assert_eq!(problems.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>(), [expected]);
    }

    #[test]
    fn value_of_the_platform_is_not_in_messages() {
        let secret = Parameter {
            name: "ca".to_owned(),
            value: json!("hunter22-and-more-than-sixty-bytes-hunter22-and-more-than-sixty-bytes"),
            is_common: true,
            origin: Some("VariableSet eu".to_owned()),
        };
        let option = DeclaredOption { name: "ca".to_owned(), r#type: "bool".to_owned(), ..DeclaredOption::default() };
        let problems = arguments(&[secret], &[option]).unwrap_err();
        let expected = "value \"ca\" of VariableSet eu has another type: the option wants a boolean: true or false";
        assert_eq!(problems.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>(), [expected]);
    }
}
