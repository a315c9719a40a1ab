//! The answer of `stacks/generate?show=values`: each value for the generator, and where it came from.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use stoa_kinds::values::{Chosen, Given, Origin};
use stoa_proto::ValueOrigin;
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
    /// That of a Secret is its reference: `{"secretRef": …}`. Nothing of a value in a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    origin: ShownOrigin,
    #[serde(rename = "final")]
    is_final: bool,
    overrides: Vec<ShownOrigin>,
}

#[derive(Debug, Serialize)]
struct ShownOrigin {
    /// VariableSet, Workspace, Stack, Run, or of a file: File, Default, Module.
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    /// The path of a file, from the root of the source.
    #[serde(skip_serializing_if = "String::is_empty")]
    file: String,
    /// The line in the file.
    #[serde(skip_serializing_if = "is_zero")]
    line: u32,
    /// The level of a VariableSet.
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<String>,
    /// The path of the value in the object or file.
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
            kind: origin.kind().to_owned(),
            name: origin.object().to_owned(),
            file: String::new(),
            line: 0,
            level: level.map(ToString::to_string),
            field: format!("{field}.{name}"),
            text: match level {
                Some(level) => format!("{origin} ({level})"),
                None => origin.to_string(),
            },
        }
    }

    fn of_file(ValueOrigin { name, kind, file, line, .. }: &ValueOrigin) -> Self {
        let line_part = if *line > 0 { format!(":{line}") } else { String::new() };
        Self {
            kind: kind.clone(),
            name: String::new(),
            file: file.clone(),
            line: *line,
            level: None,
            field: name.clone(),
            text: format!("{kind} {file}{line_part}"),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_zero(line: &u32) -> bool {
    *line == 0
}

/// The strength of an origin, from that of defaults on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Strength {
    Default,
    Platform,
    File,
    Parameter,
}

/// All that sets one value.
#[derive(Debug, Default)]
struct Setters {
    origins: Vec<(Strength, ShownOrigin)>,
    /// The value that the platform, the Stack or the Run decides, and whether it is final.
    chosen: Option<(Value, bool)>,
}

impl Setters {
    fn shown(self, name: String) -> Option<ShownValue> {
        let Self { mut origins, chosen } = self;
        // The weakest first. Those of one strength have their order already.
        origins.sort_by_key(|(strength, _)| *strength);
        let (strongest, origin) = origins.pop()?;
        let is_file = strongest == Strength::File || chosen.is_none();
        let (value, is_final) = chosen.map_or((None, false), |(value, is_final)| (Some(value), is_final));
        let overrides = origins.into_iter().rev().map(|(_, origin)| origin).collect();
        Some(ShownValue { name, value: value.filter(|_| !is_file), origin, is_final, overrides })
    }
}

impl ShownValues {
    /// The values with those of files, whose origins are sorted by name, the weakest first.
    pub(super) fn of(values: &StackValues, files: &[ValueOrigin]) -> Self {
        let mut all: BTreeMap<String, Setters> = BTreeMap::new();
        let strength = |origin: &Origin| match origin {
            Origin::VariableSet { .. } | Origin::Workspace(_) => Strength::Platform,
            Origin::Stack(_) | Origin::Run => Strength::Parameter,
        };
        for Chosen { name, given, origin, is_final, overridden } in values.chosen() {
            let setters = all.entry(name.clone()).or_default();
            // An overridden value may be of either field, and is not read for that.
            let overridden = overridden.iter().rev().map(|of| (of, false));
            for (of, is_secret) in overridden.chain([(origin, matches!(given, Given::Secret(_)))]) {
                setters.origins.push((strength(of), ShownOrigin::new(of, name, is_secret)));
            }
            setters.chosen = Some((shown(given), *is_final));
        }
        for file in files {
            let strength = if file.is_stronger { Strength::File } else { Strength::Default };
            all.entry(file.name.clone()).or_default().origins.push((strength, ShownOrigin::of_file(file)));
        }
        Self { values: all.into_iter().filter_map(|(name, setters)| setters.shown(name)).collect() }
    }

    /// A table for people, as kubectl prints one.
    fn table(&self) -> String {
        if self.values.is_empty() {
            return "No values.\n".to_owned();
        }
        let header = ["NAME", "VALUE", "FROM", "FINAL", "OVERRIDES"].map(str::to_owned);
        let row = |value: &ShownValue| {
            let shown = match &value.value {
                Some(Value::Object(map)) if map.contains_key("secretRef") => {
                    let part = |field: &str| map["secretRef"][field].as_str().unwrap_or_default().to_owned();
                    format!("<{} of Secret {}/{}>", part("key"), part("namespace"), part("name"))
                }
                Some(value) => value.to_string(),
                None => "-".to_owned(),
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
        let shown = ShownValues::of(&values, &[]);
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
        assert_eq!(ShownValues::of(&StackValues::default(), &[]).table(), "No values.\n");
    }

    #[test]
    fn files_lie_between_the_platform_and_parameters() {
        let workspace = Origin::Workspace("dev".to_owned());
        let chosen = |name: &str, origin: Origin, overridden: Vec<Origin>| Chosen {
            name: name.to_owned(),
            given: Given::Plain(1.into()),
            origin,
            is_final: false,
            overridden,
        };
        let values = StackValues::decided(vec![
            chosen("a", workspace.clone(), Vec::new()),
            chosen("b", Origin::Run, vec![Origin::Stack("web".to_owned()), workspace]),
        ]);
        let file = |name: &str, file: &str, is_stronger: bool| ValueOrigin {
            name: name.to_owned(),
            kind: if is_stronger { "File" } else { "Default" }.to_owned(),
            file: file.to_owned(),
            line: 3,
            is_stronger,
        };
        let files = ["a", "b", "c"].map(|name| [file(name, "values.yaml", false), file(name, "dev.yaml", true)]);
        let table = ShownValues::of(&values, files.as_flattened()).table();
        let lines: Vec<String> =
            table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let expected = [
            "a - File dev.yaml:3 no Workspace dev, Default values.yaml:3",
            "b 1 the Run no Stack web, File dev.yaml:3, Workspace dev, Default values.yaml:3",
            "c - File dev.yaml:3 no Default values.yaml:3",
        ];
        assert_eq!(lines, expected);
    }
}
