//! Checks the configuration of assignments by JSON Schemas.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::Arc,
};

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value};

use crate::{
    Inputs,
    config::{conditions, is_for},
    objects::{ClusterType, DeploymentTarget, Labels},
    values::numeric,
};

/// The most violations of one schema in a report.
const REPORTED: usize = 20;

/// The most characters of a message about a value.
const REPEATED: usize = 200;

/// A violation of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The object with the schema, such as `ConfigSchema sizes` or `configSchemas[0] of DeploymentTarget hello-edge`.
    pub schema: String,
    /// The field of the schema, such as `/properties/REGION/type`; empty for the whole schema.
    pub field: String,
    /// The value, such as `REGION` or `DATABASE.port`; empty for all values.
    pub value: String,
    /// The problem.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.schema)?;
        if !self.field.is_empty() {
            write!(f, ", {}", self.field)?;
        }
        if !self.value.is_empty() {
            write!(f, ": {}", self.value)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// All schemas of an environment, compiled.
#[derive(Debug)]
pub(crate) struct Schemas {
    named: Vec<Named>,
    /// By the text. A schema that does not compile has the reason.
    compiled: HashMap<String, Arc<Result<Validator, String>>>,
}

#[derive(Debug)]
struct Named {
    name: String,
    labels: Labels,
    text: String,
}

impl Schemas {
    /// Compiles the schemas that `previous` does not have.
    pub(crate) fn new(inputs: &Inputs, previous: Option<&Self>) -> Self {
        let named = inputs.config_schemas.values().map(|schema| Named {
            name: schema.name.clone(),
            labels: conditions(&schema.labels),
            text: schema.spec.schema.clone(),
        });
        let named: Vec<Named> = named.collect();
        let of_targets = inputs.targets.values().flat_map(|target| &target.spec.config_schemas);
        let texts: BTreeSet<&String> = named.iter().map(|schema| &schema.text).chain(of_targets).collect();
        let compiled = texts.into_iter().map(|text| {
            let known = previous.and_then(|previous| previous.compiled.get(text));
            (text.clone(), known.cloned().unwrap_or_else(|| Arc::new(compile(text))))
        });
        Self { compiled: compiled.collect(), named }
    }

    /// Whether an assignment has any schema.
    pub(crate) fn applies(&self, cluster_type: &ClusterType, target: &DeploymentTarget) -> bool {
        !target.spec.config_schemas.is_empty()
            || self.named.iter().any(|schema| is_for(&schema.labels, cluster_type, target))
    }

    /// The violations of an assignment's configuration.
    pub(crate) fn check(
        &self,
        cluster_type: &ClusterType,
        target: &DeploymentTarget,
        values: &BTreeMap<String, Arc<Value>>,
    ) -> Vec<Violation> {
        let named = self.named.iter().filter(|schema| is_for(&schema.labels, cluster_type, target));
        let named = named.map(|schema| (format!("ConfigSchema {}", schema.name), &schema.text));
        let own = target.spec.config_schemas.iter().enumerate();
        let own = own.map(|(at, text)| (format!("configSchemas[{at}] of DeploymentTarget {}", target.name), text));
        let mut instance = None;
        let mut violations = Vec::new();
        for (schema, text) in named.chain(own) {
            let whole = |message: &str| Violation {
                schema: schema.clone(),
                field: String::new(),
                value: String::new(),
                message: message.to_owned(),
            };
            match self.compiled.get(text).map(AsRef::as_ref) {
                Some(Ok(validator)) => {
                    let instance = instance.get_or_insert_with(|| instance_of(values));
                    let errors = validator.iter_errors(instance).take(REPORTED).map(|error| Violation {
                        field: error.schema_path().to_string(),
                        value: path_of(&error.instance_path().to_string()),
                        message: shortened(&error.to_string()),
                        ..whole("")
                    });
                    violations.extend(errors);
                }
                Some(Err(message)) => violations.push(whole(message)),
                None => violations.push(whole("is not compiled")),
            }
        }
        violations
    }
}

/// Compiles a schema. References to other documents are refused, and patterns are those of Go: without backtracking.
fn compile(text: &str) -> Result<Validator, String> {
    let schema: Value = serde_json::from_str(text).map_err(|error| format!("the schema is not valid JSON: {error}"))?;
    let mut options = jsonschema::options().with_pattern_options(PatternOptions::regex());
    if schema.get("$schema").is_none() {
        options = options.with_draft(Draft::Draft7);
    }
    options.build(&schema).map_err(|error| format!("the schema is invalid: {}", shortened(&error.to_string())))
}

/// The values as Kalypso's validation sees them: a text at the top that is a number counts as one.
fn instance_of(values: &BTreeMap<String, Arc<Value>>) -> Value {
    let value = |value: &Value| value.as_str().and_then(numeric).unwrap_or_else(|| value.clone());
    Value::Object(values.iter().map(|(key, it)| (key.clone(), value(it))).collect::<Map<_, _>>())
}

/// A JSON pointer in dots.
pub(crate) fn path_of(pointer: &str) -> String {
    pointer.trim_start_matches('/').replace('/', ".").replace("~1", "/").replace("~0", "~")
}

/// The beginning of a message that repeats a value.
pub(crate) fn shortened(message: &str) -> String {
    match message.char_indices().nth(REPEATED) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cluster_type, config_schema, target};

    const SCHEMA: &str = r#"{
        "type": "object",
        "properties": {
            "REPLICAS": {"type": "integer", "maximum": 9},
            "RATIO": {"type": "number", "exclusiveMinimum": 0},
            "PHONE": {"type": "string", "pattern": "^[0-9]{3}-[0-9]{4}$"},
            "DATABASE": {"type": "object", "properties": {"port": {"type": "integer"}}}
        },
        "required": ["REPLICAS"]
    }"#;

    fn violations(schema: &str, values: &[(&str, &str)]) -> Vec<String> {
        let inputs = Inputs {
            config_schemas: [("sizes".to_owned(), Arc::new(config_schema("sizes", &[("edge", "true")], schema)))]
                .into(),
            ..Inputs::default()
        };
        let values =
            values.iter().map(|(key, text)| ((*key).to_owned(), Arc::new(crate::values::typed((*text).to_owned()))));
        let (cluster_type, target) = (cluster_type("drone", &[("edge", "true")]), target("t", &[]));
        let found = Schemas::new(&inputs, None).check(&cluster_type, &target, &values.collect());
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn violation_names_schema_field_and_value() {
        for (values, expected) in [
            (vec![("REPLICAS", "3"), ("RATIO", "0.5"), ("PHONE", "888-1212"), ("OTHER", "x")], vec![]),
            (vec![], vec!["ConfigSchema sizes, /required: \"REPLICAS\" is a required property"]),
            (
                vec![("REPLICAS", "many")],
                vec!["ConfigSchema sizes, /properties/REPLICAS/type: REPLICAS: \"many\" is not of type \"integer\""],
            ),
            (
                vec![("REPLICAS", "10")],
                vec!["ConfigSchema sizes, /properties/REPLICAS/maximum: REPLICAS: 10 is greater than the maximum of 9"],
            ),
            // A text that is a number is one, as in Kalypso.
            (
                vec![("REPLICAS", "1"), ("PHONE", "12")],
                vec!["ConfigSchema sizes, /properties/PHONE/type: PHONE: 12 is not of type \"string\""],
            ),
            (
                vec![("REPLICAS", "1"), ("DATABASE", "{port: x}")],
                vec![
                    "ConfigSchema sizes, /properties/DATABASE/properties/port/type: DATABASE.port: \"x\" is not of type \"integer\"",
                ],
            ),
        ] {
            assert_eq!(violations(SCHEMA, &values), expected, "{values:?}");
        }
    }

    #[test]
    fn bad_schema_is_a_violation_of_its_assignments() {
        for (schema, expected) in [
            ("{", "ConfigSchema sizes: the schema is not valid JSON: EOF while parsing an object at line 1 column 1"),
            (r#"{"type": "nope"}"#, "ConfigSchema sizes: the schema is invalid: "),
            (r#"{"$ref": "https://example.org/schema.json"}"#, "ConfigSchema sizes: the schema is invalid: "),
            (r#"{"$ref": "file:///etc/passwd"}"#, "ConfigSchema sizes: the schema is invalid: "),
            (r#"{"properties": {"A": {"pattern": "(?=a)"}}}"#, "ConfigSchema sizes: the schema is invalid: "),
        ] {
            let found = violations(schema, &[("A", "x")]).join("\n");
            assert!(found.starts_with(expected), "{schema}: {found}");
        }
    }

    #[test]
    fn schemas_are_for_assignments_with_their_labels() {
        let inputs = Inputs {
            config_schemas: [("sizes".to_owned(), Arc::new(config_schema("sizes", &[("edge", "true")], "false")))]
                .into(),
            ..Inputs::default()
        };
        let schemas = Schemas::new(&inputs, None);
        let mut target = target("t", &[]);
        assert!(schemas.applies(&cluster_type("a", &[("edge", "true")]), &target));
        assert!(!schemas.applies(&cluster_type("a", &[]), &target));
        target.spec.config_schemas = vec!["{}".to_owned()];
        assert!(schemas.applies(&cluster_type("a", &[]), &target));
    }
}
