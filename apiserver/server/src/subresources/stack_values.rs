//! The answer of `stacks/generate?show=values`: each value for the generator, and where it came from.

use serde::Serialize;
use serde_json::Value;
use stoa_kinds::values::{Chosen, Given, Origin};
use stoa_runs::values::{StackValues, shown};

use super::format::{Format, PLAIN};

/// The formats; a table for clients that take any.
pub(super) const FORMATS: &[Format<ShownValues>] =
    &[Format::Text(ShownValues::table, "table", PLAIN), Format::Json, Format::Yaml];

/// The values of a stack in a workspace.
#[derive(Debug, Serialize)]
pub(super) struct ShownValues {
    values: Vec<ShownValue>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownValue {
    name: String,
    /// That of a Secret is its reference: `{"secretRef": …}`.
    value: Value,
    origin: ShownOrigin,
    #[serde(rename = "final")]
    is_final: bool,
    overrides: Vec<ShownOrigin>,
}

#[derive(Debug, Serialize)]
struct ShownOrigin {
    kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    /// The level of a VariableSet.
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<String>,
    /// The path of the value in the object.
    field: String,
    #[serde(skip)]
    text: String,
}

impl ShownOrigin {
    fn new(origin: &Origin, name: &str, is_secret: bool) -> Self {
        let (field, level) = match origin {
            Origin::VariableSet { level, .. } if is_secret => ("spec.secrets", Some(level)),
            Origin::VariableSet { level, .. } => ("spec.values", Some(level)),
            Origin::Workspace(_) => ("spec.values", None),
            Origin::Stack(_) => ("spec.generator.parameters", None),
            Origin::Run => ("spec.parameters", None),
        };
        Self {
            kind: origin.kind(),
            name: origin.object().to_owned(),
            level: level.map(ToString::to_string),
            field: format!("{field}.{name}"),
            text: match level {
                Some(level) => format!("{origin} ({level})"),
                None => origin.to_string(),
            },
        }
    }
}

impl ShownValues {
    pub(super) fn of(values: &StackValues) -> Self {
        let value = |chosen: &Chosen| {
            let is_secret = matches!(chosen.given, Given::Secret(_));
            ShownValue {
                name: chosen.name.clone(),
                value: shown(&chosen.given),
                origin: ShownOrigin::new(&chosen.origin, &chosen.name, is_secret),
                is_final: chosen.is_final,
                // An overridden value may be of either field, and is not read for that.
                overrides: chosen.overridden.iter().map(|of| ShownOrigin::new(of, &chosen.name, false)).collect(),
            }
        };
        Self { values: values.chosen().iter().map(value).collect() }
    }

    /// A table for people, as kubectl prints one.
    fn table(&self) -> String {
        if self.values.is_empty() {
            return "No values.\n".to_owned();
        }
        let header = ["NAME", "VALUE", "FROM", "FINAL", "OVERRIDES"].map(str::to_owned);
        let row = |value: &ShownValue| {
            let shown = match &value.value {
                Value::Object(map) if map.contains_key("secretRef") => {
                    let part = |field: &str| map["secretRef"][field].as_str().unwrap_or_default().to_owned();
                    format!("<{} of Secret {}/{}>", part("key"), part("namespace"), part("name"))
                }
                value => value.to_string(),
            };
            let overrides: Vec<&str> = value.overrides.iter().map(|origin| origin.text.as_str()).collect();
            let is_final = if value.is_final { "yes" } else { "no" };
            [value.name.clone(), shown, value.origin.text.clone(), is_final.to_owned(), overrides.join(", ")]
        };
        let rows: Vec<[String; 5]> = std::iter::once(header).chain(self.values.iter().map(row)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
        let widths = [0, 1, 2, 3].map(width);
        let line = |row: &[String; 5]| {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}   "));
            format!("{}{}", cells.collect::<String>(), row[4]).trim_end().to_owned() + "\n"
        };
        rows.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use stoa_kinds::values::Level;
    use stoa_types::SecretKeyReference;

    use super::*;

    #[test]
    fn table_names_the_origin_of_each_value() {
        let set = |name: &str, level| Origin::VariableSet { name: name.to_owned(), level };
        let secret =
            SecretKeyReference { namespace: "a".to_owned(), name: "db".to_owned(), key: "password".to_owned() };
        let values = StackValues::decided(vec![
            Chosen {
                name: "password".to_owned(),
                given: Given::Secret(secret),
                origin: set("eu", Level::Organization),
                is_final: true,
                overridden: Vec::new(),
            },
            Chosen {
                name: "replicas".to_owned(),
                given: Given::Plain(3.into()),
                origin: Origin::Workspace("dev".to_owned()),
                is_final: false,
                overridden: vec![set("eu", Level::Organization), set("all", Level::Platform)],
            },
        ]);
        let shown = ShownValues::of(&values);
        assert_eq!(
            shown.table(),
            "NAME       VALUE                       FROM                            FINAL   OVERRIDES\n\
             password   <password of Secret a/db>   VariableSet eu (organization)   yes\n\
             replicas   3                           Workspace dev                   no      VariableSet eu \
             (organization), VariableSet all (platform)\n"
        );
        let json = serde_json::to_value(&shown).unwrap();
        assert_eq!(json["values"][0]["origin"]["field"], "spec.secrets.password");
        assert_eq!(json["values"][0]["final"], true);
        assert_eq!(ShownValues::of(&StackValues::default()).table(), "No values.\n");
    }
}
