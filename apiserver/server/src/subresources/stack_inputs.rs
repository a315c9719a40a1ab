//! The answer of `stacks/generate?show=inputs`: all that decided the Spec, apart from the values themselves.

use serde::Serialize;
use stoa_kinds::values::variable_sets;
use stoa_proto::{GenerateResponse, SourceModule};
use stoa_runs::{target::Target, values::StackValues};
use stoa_types::delivery::UsedGenerator;

use super::format::{Format, PLAIN};

/// The formats; a table for clients that take any.
pub(super) const FORMATS: &[Format<ShownInputs>] =
    &[Format::Text(ShownInputs::table, "table", PLAIN), Format::Json, Format::Yaml];

/// The inputs of a Spec.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShownInputs {
    generator: UsedGenerator,
    /// The version of Kubernetes that a chart was rendered for, with the APIs of the target.
    #[serde(skip_serializing_if = "String::is_empty")]
    kubernetes: String,
    /// Of the Source.
    commit: String,
    /// Files and folders from the root of the source; the path of the stack where all of it counts.
    files: Vec<String>,
    modules: Vec<ShownModule>,
    /// The VariableSets that decide a value.
    variable_sets: Vec<String>,
}

/// A package or subchart.
#[derive(Debug, Serialize)]
struct ShownModule {
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    version: String,
    path: String,
}

impl ShownInputs {
    pub(super) fn of(target: &Target, commit: String, response: GenerateResponse, values: &StackValues) -> Self {
        let GenerateResponse { generator, generator_version, mut files, modules, kubernetes, .. } = response;
        if files.is_empty() {
            files.push(target.path());
        }
        let module = |SourceModule { name, version, path }| ShownModule { name, version, path };
        Self {
            generator: UsedGenerator { name: generator, version: generator_version },
            kubernetes,
            commit,
            files,
            modules: modules.into_iter().map(module).collect(),
            variable_sets: variable_sets(values.chosen()).into_iter().map(str::to_owned).collect(),
        }
    }

    /// A table for people: a word for each input, then its parts.
    fn table(&self) -> String {
        let Self { generator, kubernetes, commit, files, modules, variable_sets } = self;
        let mut rows = vec![["GENERATOR", &generator.name, &generator.version, ""], ["COMMIT", commit, "", ""]];
        rows.extend((!kubernetes.is_empty()).then_some(["KUBERNETES", kubernetes, "", ""]));
        rows.extend(files.iter().map(|file| ["FILE", file, "", ""]));
        rows.extend(modules.iter().map(|of| ["MODULE", &*of.name, &*of.version, &*of.path]));
        rows.extend(variable_sets.iter().map(|name| ["VARIABLESET", name, "", ""]));
        // A column is as wide as its cells that another one follows.
        let is_followed = |row: &[&str; 4], column: usize| row[column + 1..].iter().any(|cell| !cell.is_empty());
        let width = |column: usize| {
            let followed = rows.iter().filter(|row| is_followed(row, column));
            followed.map(|row| row[column].chars().count()).max().unwrap_or_default()
        };
        let widths = [0, 1, 2].map(width);
        let line = |row: &[&str; 4]| {
            let cells: String = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}   ")).collect();
            format!("{cells}{}", row[3]).trim_end().to_owned() + "\n"
        };
        rows.iter().map(line).collect()
    }
}
