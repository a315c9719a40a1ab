//! The description of a function: its image, types, keywords, and the kinds that it works on.
//!
//! Start at [`parse`], which reads the two forms of function repositories: `metadata.yaml` of kpt's catalog, and a
//! `KRMFunctionDefinition` of `config.kubernetes.io/v1alpha1`. [`of_annotations`] reads those of an image.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{kptfile::full_image, text};

/// The names of files with a description.
pub const FILES: [&str; 2] = ["metadata.yaml", "function.yaml"];

/// The types of functions.
const TYPES: [&str; 3] = ["mutator", "validator", "generator"];

/// The most entries of a list.
const ENTRIES: usize = 100;

/// The longest text, in bytes.
const LONGEST: usize = 4096;

/// The beginning of an image's annotations.
const ANNOTATION: &str = "dev.kpt.fn.meta.";

/// A kind with its apiVersion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TypeName {
    /// The apiVersion; empty: any.
    #[serde(default)]
    pub api_version: String,
    /// The kind.
    pub kind: String,
}

/// What a function is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionDescription {
    /// The image with its registry, and its tag if it has one.
    pub image: String,
    /// mutator, validator or generator.
    pub types: Vec<String>,
    /// A short description.
    pub description: String,
    /// The URL of the documentation.
    pub documentation_url: String,
    /// Words to find it by.
    pub keywords: Vec<String>,
    /// The kinds of its configuration.
    pub configs: Vec<TypeName>,
    /// The kinds that it works on; empty: all.
    pub inputs: Vec<TypeName>,
    /// Whether a second run changes nothing, if that is known.
    pub idempotent: Option<bool>,
}

/// Why a file describes no function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// The file is no YAML.
    #[error("it is no YAML")]
    Yaml(#[from] crate::TextError),
    /// A field has another form.
    #[error("a field is malformed: {0}")]
    Malformed(String),
    /// No image is named.
    #[error("it names no image; set {0}")]
    NoImage(&'static str),
    /// A list or a text is too long.
    #[error("field {field} is larger than {limit}; shorten it")]
    TooLarge {
        /// The field.
        field: &'static str,
        /// Entries or bytes.
        limit: usize,
    },
}

/// `metadata.yaml` of kpt's catalog. It has more fields, which describe no function.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    image: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default, rename = "sourceURL")]
    source_url: String,
    #[serde(default)]
    function_configs: Vec<TypeName>,
    #[serde(default)]
    input_types: Vec<TypeName>,
    #[serde(default)]
    idempotent: Option<bool>,
    #[serde(default)]
    hidden: bool,
}

#[derive(Debug, Default, Deserialize)]
struct Definition {
    #[serde(default)]
    spec: DefinitionSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DefinitionSpec {
    #[serde(default)]
    group: String,
    #[serde(default)]
    names: DefinitionNames,
    #[serde(default)]
    description: String,
    #[serde(default)]
    home: String,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    versions: Vec<DefinitionVersion>,
}

#[derive(Debug, Default, Deserialize)]
struct DefinitionNames {
    #[serde(default)]
    kind: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DefinitionVersion {
    #[serde(default)]
    name: String,
    #[serde(default)]
    idempotent: Option<bool>,
    #[serde(default)]
    usage: String,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    input_types: Vec<TypeName>,
    #[serde(default)]
    runtime: Runtime,
}

#[derive(Debug, Default, Deserialize)]
struct Runtime {
    #[serde(default)]
    container: Option<Container>,
}

#[derive(Debug, Default, Deserialize)]
struct Container {
    #[serde(default)]
    image: String,
}

/// Reads a file with a description. A file with another object, and a hidden function, have none.
///
/// # Errors
///
/// [`DescriptionError`].
pub fn parse(file: &str) -> Result<Vec<FunctionDescription>, DescriptionError> {
    let value = text::read(file)?;
    let of = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let found = match (of("apiVersion"), of("kind")) {
        ("config.kubernetes.io/v1alpha1", "KRMFunctionDefinition") => of_definition(read(value)?)?,
        ("", "") if value.get("image").is_some() => of_metadata(read(value)?)?,
        _ => Vec::new(),
    };
    found.iter().try_for_each(check)?;
    Ok(found)
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, DescriptionError> {
    serde_json::from_value(value).map_err(|error| DescriptionError::Malformed(error.to_string()))
}

fn of_metadata(metadata: Metadata) -> Result<Vec<FunctionDescription>, DescriptionError> {
    let Metadata { image, description, tags, source_url, function_configs, input_types, idempotent, hidden } = metadata;
    if hidden {
        return Ok(Vec::new());
    }
    if image.is_empty() {
        return Err(DescriptionError::NoImage("image"));
    }
    let (types, keywords) = sorted(tags);
    Ok(vec![FunctionDescription {
        image: full_image(&image),
        types,
        description: description.trim().to_owned(),
        documentation_url: source_url,
        keywords,
        configs: function_configs,
        inputs: input_types,
        idempotent,
    }])
}

fn of_definition(definition: Definition) -> Result<Vec<FunctionDescription>, DescriptionError> {
    let DefinitionSpec { group, names, description, home, tags, versions } = definition.spec;
    let mut found = Vec::new();
    for version in versions {
        // A version may run in another way than as an image.
        let Some(Container { image }) = version.runtime.container else { continue };
        if image.is_empty() {
            return Err(DescriptionError::NoImage("spec.versions[].runtime.container.image"));
        }
        let (types, keywords) = sorted(tags.iter().cloned().chain(version.tags).collect());
        let api_version = if group.is_empty() { version.name } else { format!("{group}/{}", version.name) };
        found.push(FunctionDescription {
            image: full_image(&image),
            types,
            description: description.trim().to_owned(),
            documentation_url: if version.usage.starts_with("https://") { version.usage } else { home.clone() },
            keywords,
            configs: vec![TypeName { api_version, kind: names.kind.clone() }],
            inputs: version.input_types,
            idempotent: version.idempotent,
        });
    }
    Ok(found)
}

/// The types among some tags, and the others.
fn sorted(tags: Vec<String>) -> (Vec<String>, Vec<String>) {
    let trimmed = tags.into_iter().map(|tag| tag.trim().to_owned()).filter(|tag| !tag.is_empty());
    trimmed.partition(|tag| TYPES.contains(&tag.as_str()))
}

/// The description of an image by its annotations, as Porch reads them.
///
/// # Errors
///
/// [`DescriptionError::TooLarge`].
pub fn of_annotations<'a>(
    image: &str,
    annotation: impl Fn(&str) -> Option<&'a str>,
) -> Result<FunctionDescription, DescriptionError> {
    let get = |name: &str| annotation(&format!("{ANNOTATION}{name}")).unwrap_or_default();
    let list = |name: &str| get(name).split(',').map(str::to_owned).collect::<Vec<_>>();
    let (types, _) = sorted(list("types"));
    let keywords = list("keywords").into_iter().map(|word| word.trim().to_owned()).filter(|word| !word.is_empty());
    let described = FunctionDescription {
        image: full_image(image),
        types,
        description: get("description").trim().to_owned(),
        documentation_url: get("documentationurl").to_owned(),
        keywords: keywords.collect(),
        ..FunctionDescription::default()
    };
    check(&described).map(|()| described)
}

fn check(described: &FunctionDescription) -> Result<(), DescriptionError> {
    let FunctionDescription { image, types, description, documentation_url, keywords, configs, inputs, .. } = described;
    let lists =
        [("tags", types.len().max(keywords.len())), ("functionConfigs", configs.len()), ("inputTypes", inputs.len())];
    if let Some((field, _)) = lists.into_iter().find(|(_, length)| *length > ENTRIES) {
        return Err(DescriptionError::TooLarge { field, limit: ENTRIES });
    }
    let texts = [("image", image), ("description", description), ("sourceURL", documentation_url)];
    let longest = texts.into_iter().find(|(_, text)| text.len() > LONGEST);
    let long_word = keywords.iter().any(|word| word.len() > LONGEST).then_some("tags");
    match longest.map(|(field, _)| field).or(long_word) {
        Some(field) => Err(DescriptionError::TooLarge { field, limit: LONGEST }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catalog_metadata_describes_one_function() {
        let found = parse(
            "image: gcr.io/kpt-fn/set-namespace\ndescription: |\n  Sets the namespace.\ntags:\n- mutator\n- namespace\n\
             sourceURL: https://example.com/set-namespace\nemails: [a@example.com]\nlicense: Apache-2.0\n\
             inputTypes:\n- {apiVersion: v1, kind: ConfigMap}\nidempotent: true\n",
        )
        .unwrap();
        let expected = FunctionDescription {
            image: "gcr.io/kpt-fn/set-namespace".to_owned(),
            types: vec!["mutator".to_owned()],
            description: "Sets the namespace.".to_owned(),
            documentation_url: "https://example.com/set-namespace".to_owned(),
            keywords: vec!["namespace".to_owned()],
            configs: Vec::new(),
            inputs: vec![TypeName { api_version: "v1".to_owned(), kind: "ConfigMap".to_owned() }],
            idempotent: Some(true),
        };
        assert_eq!(found, [expected]);
        assert_eq!(parse("image: example.com/a\nhidden: true\n"), Ok(Vec::new()));
    }

    #[test]
    fn definition_describes_each_version_with_an_image() {
        let found = parse(
            "apiVersion: config.kubernetes.io/v1alpha1\nkind: KRMFunctionDefinition\nspec:\n  group: fn.acme.com\n  \
             names: {kind: LabelCheck}\n  description: Checks labels.\n  tags: [validator, labels]\n  versions:\n  \
             - {name: v1, idempotent: true, runtime: {container: {image: 'example.com/check:v1'}}}\n  \
             - {name: v2, runtime: {exec: {platforms: []}}}\n",
        )
        .unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].image, "example.com/check:v1");
        assert_eq!(
            found[0].configs,
            [TypeName { api_version: "fn.acme.com/v1".to_owned(), kind: "LabelCheck".to_owned() }]
        );
        assert_eq!((found[0].types.as_slice(), found[0].idempotent), (&["validator".to_owned()][..], Some(true)));
    }

    #[test]
    fn other_files_describe_nothing_and_broken_ones_say_why() {
        assert_eq!(parse("apiVersion: v1\nkind: ConfigMap\nimage: a\n"), Ok(Vec::new()));
        assert_eq!(parse(""), Ok(Vec::new()));
        assert!(matches!(parse("a: ["), Err(DescriptionError::Yaml(_))));
        assert!(matches!(parse("image: [a]\n"), Err(DescriptionError::Malformed(_))));
        assert_eq!(parse("image: ''\n"), Err(DescriptionError::NoImage("image")));
        let long = format!("image: example.com/a\ndescription: {}\n", "x".repeat(LONGEST + 1));
        assert_eq!(parse(&long), Err(DescriptionError::TooLarge { field: "description", limit: LONGEST }));
    }

    #[test]
    fn annotations_describe_an_image() {
        let annotations = [
            ("dev.kpt.fn.meta.types", "mutator, validator"),
            ("dev.kpt.fn.meta.keywords", "a,b"),
            ("dev.kpt.fn.meta.description", "Does it."),
        ];
        let get = |name: &str| annotations.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let found = of_annotations("example.com/a:v1", get).unwrap();
        assert_eq!(found.types, ["mutator", "validator"]);
        assert_eq!(found.keywords, ["a", "b"]);
        assert_eq!((found.description.as_str(), found.image.as_str()), ("Does it.", "example.com/a:v1"));
        assert_eq!(of_annotations("example.com/a", |_| None).unwrap().types, [] as [&str; 0]);
    }
}
