//! The values of ConfigMaps as Kalypso reads them, and values as YAML.

use serde_json::Value;

/// The limits on one value. A text beyond them stays a text.
const LIMITS: stoa_yaml::Limits = stoa_yaml::Limits { depth: 100, values: 100_000, documents: 1, copied: 16 << 20 };

/// The value of an entry of a ConfigMap: a map or list where the text is one in YAML, and the text otherwise. Single quotes
/// around a text are removed, and it is no YAML then.
///
/// Follows `getObjectFromConfigValue`. Keys of maps that are numbers or booleans become texts here.
pub(crate) fn typed(text: String) -> Value {
    let trimmed = text.trim();
    if trimmed.starts_with('\'') && trimmed.ends_with('\'') {
        return trimmed.trim_matches('\'').into();
    }
    if !may_be_collection(trimmed) {
        return text.into();
    }
    match stoa_yaml::first_typed(&text, &LIMITS) {
        Ok(Some(document)) if document.value.is_object() || document.value.is_array() => document.value,
        Ok(_) | Err(_) => text.into(),
    }
}

/// Whether a text is perhaps a map or a list. Most texts are not, and are not parsed.
fn may_be_collection(trimmed: &str) -> bool {
    trimmed.contains([':', '[', '{']) || trimmed.starts_with(['-', '?', '!', '&', '#', '%'])
}

/// A number where the whole text is one, as Kalypso's validation sees values.
///
/// Follows `ValidateValues`, without `inf` and `nan`, at which that fails.
pub(crate) fn numeric(text: &str) -> Option<Value> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    if digits.bytes().all(|b| b.is_ascii_digit())
        && let Ok(number) = text.parse::<i64>()
    {
        return Some(number.into());
    }
    let number: f64 = text.parse().ok()?;
    serde_json::Number::from_f64(number).map(Value::Number)
}

/// A value in YAML without a line break at its end. Texts have the quotes of JSON.
pub(crate) fn yaml(value: &Value) -> String {
    let mut out = String::new();
    write(value, 0, &mut out);
    out.truncate(out.trim_end_matches('\n').len());
    out
}

fn write(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                start_line(indent, out);
                if is_plain(key) {
                    out.push_str(key);
                } else {
                    out.push_str(&Value::from(key.as_str()).to_string());
                }
                out.push(':');
                inner(value, indent + 2, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                start_line(indent, out);
                out.push('-');
                inner(item, indent + 2, out);
            }
        }
        scalar => {
            out.push_str(&scalar.to_string());
            out.push('\n');
        }
    }
}

/// Writes a value behind a key or dash: a collection on its own lines.
fn inner(value: &Value, indent: usize, out: &mut String) {
    let is_collection = match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    out.push(if is_collection { '\n' } else { ' ' });
    write(value, indent, out);
}

fn start_line(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// Whether a key reads as itself in every dialect of YAML: `no` would be a boolean.
fn is_plain(key: &str) -> bool {
    let is_word = |key: &str| ["y", "n", "yes", "no", "on", "off", "true", "false", "null"].contains(&key);
    key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/'))
        && !is_word(&key.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_maps_and_lists_where_yaml_says_so() {
        for (text, expected) in [
            ("East US", json!("East US")),
            ("", json!("")),
            ("5", json!("5")),
            ("true", json!("true")),
            ("null", json!("null")),
            ("mysql://west:8806/mysql2", json!("mysql://west:8806/mysql2")),
            ("a: 1\nb: [x, yes]\n", json!({"a": 1, "b": ["x", true]})),
            ("{a: 1.0, b: 0777}", json!({"a": 1.0, "b": 511})),
            ("- 1\n- null\n", json!([1, null])),
            ("note: this is read as a map", json!({"note": "this is read as a map"})),
            ("'a: 1'", json!("a: 1")),
            ("  '' ", json!("")),
            ("''quoted''", json!("quoted")),
            ("\"a: 1\"", json!("\"a: 1\"")),
            ("a: [", json!("a: [")),
            ("a: 1\n---\nb: 2", json!({"a": 1})),
            ("# note\n- 1", json!([1])),
            ("-5", json!("-5")),
        ] {
            assert_eq!(typed(text.to_owned()), expected, "{text:?}");
        }
    }

    #[test]
    fn deep_values_stay_texts() {
        let deep = "[".repeat(1000) + &"]".repeat(1000);
        assert_eq!(typed(deep.clone()), json!(deep));
    }

    #[test]
    fn numbers_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("0", Some(json!(0))),
            ("-90", Some(json!(-90))),
            ("+5", Some(json!(5))),
            ("007", Some(json!(7))),
            ("3.25", Some(json!(3.25))),
            (".5", Some(json!(0.5))),
            ("1e3", Some(json!(1000.0))),
            ("9223372036854775808", Some(json!(9_223_372_036_854_775_808.0))),
            ("", None),
            ("inf", None),
            ("NaN", None),
            ("1.2.3", None),
            ("1_000", None),
            (" 1", None),
            ("888-1212", None),
        ] {
            assert_eq!(numeric(text), expected, "{text:?}");
        }
    }

    #[test]
    fn yaml_has_blocks_and_quoted_texts() {
        let value = json!({"a": {"no": "yes", "l": [1, {"x": null}, []]}, "e": {}, "text": "a\nb: \"c\""});
        assert_eq!(
            yaml(&value),
            "a:\n  l:\n    - 1\n    -\n      x: null\n    - []\n  \"no\": \"yes\"\ne: {}\ntext: \"a\\nb: \\\"c\\\"\""
        );
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ -~]{0,8}|[a-zäß\n\t]{0,5}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ -~]{0,6}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn yaml_reads_back(value in any_value()) {
            let read = stoa_yaml::first(&yaml(&value), &LIMITS).unwrap().unwrap();
            prop_assert_eq!(read.value, value);
        }
    }
}
