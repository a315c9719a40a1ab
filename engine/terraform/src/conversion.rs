//! Conversion between the engine's JSON and the values of providers.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};
use stoa_engine::FieldPath;
use stoa_engine::path::Segment;
use stoa_terraform_provider::schema::Schema;
use stoa_terraform_provider::value::convert::ConvertError;
use stoa_terraform_provider::value::{Number, Path, Step, Value};

/// The typed configuration of a resource, with unknown values at these paths.
///
/// # Errors
///
/// All parts that do not have the form of the schema.
pub(crate) fn configuration(
    schema: &Schema,
    attributes: &Map<String, Json>,
    unknown: &BTreeSet<FieldPath>,
) -> Result<Value, Vec<ConvertError>> {
    let attributes = Json::Object(attributes.clone());
    let mut value = Value::from_json((&attributes).into());
    for path in unknown {
        set_unknown(&mut value, &path.0);
    }
    schema.configuration(value)
}

fn set_unknown(value: &mut Value, path: &[Segment]) {
    let Some((first, rest)) = path.split_first() else {
        *value = Value::Unknown;
        return;
    };
    match (first, value) {
        (Segment::Key(key), Value::Object(members)) => {
            set_unknown(members.entry(key.clone()).or_insert(Value::Null), rest);
        }
        (Segment::Index(index), Value::Tuple(elements)) => {
            if let Some(element) = elements.get_mut(*index) {
                set_unknown(element, rest);
            }
        }
        // A part of something else is not known alone.
        (_, value) => *value = Value::Unknown,
    }
}

/// An object as the engine has it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plain {
    /// The attributes; null where they are unknown.
    pub(crate) attributes: Map<String, Json>,
    /// The unknown paths.
    pub(crate) unknown: BTreeSet<FieldPath>,
}

/// The attributes of an object, without the types of dynamic values. A number that is no float is its text.
pub(crate) fn plain(object: &Value) -> Plain {
    let mut unknown = BTreeSet::new();
    let attributes = match to_json(object, &mut FieldPath::default(), &mut unknown) {
        Json::Object(attributes) => attributes,
        _ => Map::new(),
    };
    Plain { attributes, unknown }
}

fn to_json(value: &Value, at: &mut FieldPath, unknown: &mut BTreeSet<FieldPath>) -> Json {
    let mut within = |segment: Segment, value: &Value| {
        at.0.push(segment);
        let json = to_json(value, at, unknown);
        at.0.pop();
        json
    };
    match value.plain() {
        Value::Null | Value::Dynamic(_) => Json::Null,
        Value::Unknown => {
            unknown.insert(at.clone());
            Json::Null
        }
        Value::Bool(it) => (*it).into(),
        Value::Number(it) => number(it),
        Value::String(it) => it.as_str().into(),
        Value::List(it) | Value::Set(it) | Value::Tuple(it) => {
            it.iter().enumerate().map(|(index, it)| within(Segment::Index(index), it)).collect()
        }
        Value::Map(it) | Value::Object(it) => {
            Json::Object(it.iter().map(|(key, it)| (key.clone(), within(Segment::Key(key.clone()), it))).collect())
        }
    }
}

/// A number as JSON has it, or its digits where that would be another number.
fn number(number: &Number) -> Json {
    let text = number.to_string();
    let is_it = |json: &Json| json.to_string().parse::<Number>().is_ok_and(|same| same == *number);
    match (serde_json::from_str(&text), number.exact_f64()) {
        (Ok(json), _) if is_it(&json) => json,
        // A provider's own float, whose shortest digits are enough.
        (_, Some(float)) => float.into(),
        (_, None) => text.into(),
    }
}

/// A path of a provider as the engine has it.
pub(crate) fn field_path(path: &Path) -> FieldPath {
    let segment = |step: &Step| match step {
        Step::Attribute(name) | Step::Key(name) => Segment::Key(name.clone()),
        Step::Index(index) => Segment::Index(usize::try_from(*index).unwrap_or_default()),
    };
    FieldPath(path.0.iter().map(segment).collect())
}

/// The paths of a provider as the engine has them.
pub(crate) fn field_paths(paths: &[Path]) -> BTreeSet<FieldPath> {
    paths.iter().map(field_path).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_terraform_provider::schema::{Attribute, Block};
    use stoa_terraform_provider::value::Type;

    use super::*;

    fn schema() -> Schema {
        let attributes = [
            ("id", Attribute::computed(Type::String)),
            ("tags", Attribute::optional(Type::map(Type::String))),
            ("names", Attribute::optional(Type::set(Type::String))),
            ("any", Attribute::optional(Type::Dynamic)),
            ("size", Attribute::optional(Type::Number)),
        ];
        let attributes = attributes.into_iter().map(|(name, it)| (name.to_owned(), it)).collect();
        Schema { version: 0, block: Block { attributes, ..Block::default() } }
    }

    fn map(value: Json) -> Map<String, Json> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn unknown_parts_stay_unknown() {
        let attributes = map(json!({"tags": {"a": "x", "b": null}, "size": null, "any": [1, null]}));
        let any = FieldPath::of_keys(["any"]).index(1);
        let unknown = [FieldPath::of_keys(["tags", "b"]), FieldPath::of_keys(["size"]), any].into();
        let value = configuration(&schema(), &attributes, &unknown).unwrap();
        let plain = plain(&value);
        assert_eq!(plain.unknown, unknown);
        assert_eq!(plain.attributes["tags"], json!({"a": "x", "b": null}));
        assert_eq!(plain.attributes["any"], json!([1, null]));
    }

    #[test]
    fn unknown_element_of_set_stays_in_it() {
        let attributes = map(json!({"names": ["b", null]}));
        let unknown = [FieldPath::of_keys(["names"]).index(1)].into();
        let value = configuration(&schema(), &attributes, &unknown).unwrap();
        assert_eq!(plain(&value).unknown.len(), 1);
    }

    #[test]
    fn numbers_keep_their_digits() {
        let digits = "100000000000000000000001";
        let value = configuration(&schema(), &map(json!({"size": digits})), &BTreeSet::new()).unwrap();
        assert_eq!(value.get("size"), Some(&Value::Number(digits.parse().unwrap())));
        for (number, json) in [
            (digits, json!(digits)),
            ("0.1234567890123456789012", json!("0.1234567890123456789012")),
            ("18446744073709551615", json!(u64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("0.1", json!(0.1)),
            ("1000000000000000000000", json!(1e21)),
            ("9007199254740993", json!(9_007_199_254_740_993_u64)),
        ] {
            assert_eq!(super::number(&number.parse().unwrap()), json);
        }
        assert_eq!(super::number(&Number::from_f64(0.1).unwrap()), json!(0.1));
    }

    #[test]
    fn wrong_configuration_names_its_parts() {
        let errors = configuration(&schema(), &map(json!({"size": "big", "color": 1})), &BTreeSet::new()).unwrap_err();
        let paths: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(paths.len(), 2, "{paths:?}");
        assert!(paths.iter().any(|it| it.contains("color")) && paths.iter().any(|it| it.contains("size")));
    }

    #[test]
    fn paths_have_the_form_of_the_engine() {
        let path = Path::attribute("rule").index(0).name("labels").key("a.b");
        assert_eq!(field_path(&path).to_string(), r#"rule[0].labels["a.b"]"#);
    }
}
