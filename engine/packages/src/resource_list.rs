//! The `ResourceList` that a function gets and gives back.
//!
//! Start at [`encode`], and at [`Request::decode`] for the answer. The annotations by which an answer's items are recognised
//! are in `marks`, the text of an answer's items in `source`.

mod marks;
mod source;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    files::Tree,
    resources::{Resource, WriteError, check_paths, missing_part, object_name},
    results::{self, Finding},
    text::{self, TextError},
};

/// The apiVersion of a list.
const API_VERSION: &str = "config.kubernetes.io/v1";

/// Why an answer is rejected. The package stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The answer is not UTF-8.
    #[error("the answer is not UTF-8; write a ResourceList to standard output and messages to standard error")]
    NotText,
    /// The answer is empty.
    #[error("the answer is empty; write a ResourceList to standard output")]
    Empty,
    /// The answer is neither YAML nor JSON.
    #[error("the answer is no YAML; write a ResourceList to standard output and messages to standard error")]
    Yaml(#[from] TextError),
    /// The answer is something else.
    #[error("the answer is {0}, not a ResourceList; write a ResourceList to standard output")]
    NotResourceList(String),
    /// The list has no `items`.
    #[error("the answer has no list of items; return the objects that do not change, too")]
    NoItems,
    /// An item is no object.
    #[error(
        "output resource list must contain only KRM resources: item {index}: resource must have {missing}; \
         correct the function"
    )]
    NotResource {
        /// The position of the item, from 0.
        index: usize,
        /// The part that it lacks.
        missing: &'static str,
    },
    /// The two families of annotations say different things.
    #[error("mismatched legacy and internal {what} annotations of {object}: {legacy:?} and {internal:?}; set both")]
    Mismatched {
        /// `path`, `index` or `id`.
        what: &'static str,
        /// The object.
        object: String,
        /// The value of the legacy annotation.
        legacy: String,
        /// The value of the other.
        internal: String,
    },
    /// An index is no number.
    #[error("{object} has index {index:?}, which is no number from 0; correct the annotation")]
    Index {
        /// The object.
        object: String,
        /// The annotation.
        index: String,
    },
    /// An item is in a package that the function did not get.
    #[error("{object} has package-path {package:?}, which is no package of the input; leave the annotation as it was")]
    UnknownPackage {
        /// The object.
        object: String,
        /// The annotation.
        package: String,
    },
    /// A path is rejected.
    #[error(transparent)]
    Path(#[from] WriteError),
    /// The Kptfile of a package is missing.
    #[error("the answer has no Kptfile of package {package:?} any more; return every Kptfile with its annotations")]
    LosesKptfile {
        /// The folder of the package; empty for the root.
        package: String,
    },
    /// A Kptfile is in no file.
    #[error("the answer has a new Kptfile {name:?} without path; return every Kptfile with its annotations")]
    NewKptfile {
        /// The name of the Kptfile.
        name: String,
    },
    /// The results are malformed.
    #[error("the results of the answer are malformed: {0}; correct the function")]
    Results(String),
}

/// The request that an answer belongs to.
#[derive(Debug)]
pub struct Request<'r> {
    /// The tree, for its packages and ignore rules.
    pub tree: &'r Tree,
    /// The package whose pipeline has the function.
    pub package: &'r str,
    /// The folder in the package for new objects without a path; empty for that of the package.
    pub folder: &'r str,
    /// The objects in the order of the request.
    pub items: &'r [Resource],
    /// Whether the items of the answer are dropped, as those of validators are.
    pub is_read_only: bool,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The objects: those of the request, and new ones.
    pub items: Vec<Resource>,
    /// The findings.
    pub results: Vec<Finding>,
}

/// The list of a request as YAML, with the comments of the objects.
pub fn encode(items: &[Resource], config: Option<&Resource>) -> String {
    let marked: Vec<(Value, String)> = items.iter().enumerate().map(|(at, item)| marks::marked(item, at + 1)).collect();
    let (values, texts): (Vec<Value>, Vec<String>) = marked.into_iter().unzip();
    written(&values, &texts, config, &[])
}

/// A list of objects, given by their values and texts, with findings if there are any.
pub(crate) fn written(values: &[Value], texts: &[String], config: Option<&Resource>, findings: &[Finding]) -> String {
    let head = format!("apiVersion: {API_VERSION}\nkind: ResourceList\n");
    let items = match texts {
        [] => "items: []\n".to_owned(),
        texts => format!("items:\n{}", texts.iter().map(|text| source::indented("- ", text)).collect::<String>()),
    };
    let of_config = config.map(|config| format!("functionConfig:\n{}", source::indented("  ", &config.text())));
    let results = if findings.is_empty() { String::new() } else { text::written(&json!({"results": findings})) };
    let text = head + &items + &of_config.unwrap_or_default() + &results;
    let mut value = json!({"apiVersion": API_VERSION, "kind": "ResourceList", "items": values});
    if let Some(config) = config {
        value["functionConfig"] = config.value.clone();
    }
    if !findings.is_empty() {
        value["results"] = json!(findings);
    }
    // A text that is valid alone may mean something else among others, such as one with tabs or directives.
    if text::read_list(&text).is_ok_and(|document| document.value == value) { text } else { text::written(&value) }
}

/// The findings of an answer, whether its items are valid or not; none of an answer that is no list.
pub(crate) fn findings(answer: &[u8]) -> Vec<Finding> {
    let document = std::str::from_utf8(answer).ok().and_then(|text| text::read_list(text).ok());
    let list = document.map(|document| document.value).unwrap_or_default();
    results::parse(list.get("results").unwrap_or(&Value::Null)).unwrap_or_default()
}

/// The list that a function gets.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) items: Vec<Resource>,
    pub(crate) config: Option<Resource>,
}

impl Input {
    /// Reads a list. Annotations of items are theirs.
    pub(crate) fn read(list: &[u8]) -> Result<Self, AnswerError> {
        let text = std::str::from_utf8(list).map_err(|_| AnswerError::NotText)?;
        let document = text::read_list(text)?;
        let list = as_list(&document.value)?;
        let values = match list.get("items") {
            Some(Value::Array(values)) => values.as_slice(),
            None | Some(Value::Null) => &[],
            Some(_) => return Err(AnswerError::NoItems),
        };
        let mut sources = source::sources(text, &document.outline);
        sources.resize(values.len(), None);
        let mut items = Vec::with_capacity(values.len());
        for (index, (value, source)) in values.iter().zip(sources).enumerate() {
            let path = marks::path_of(value).unwrap_or_default();
            if let Some(missing) = missing_part(value, path) {
                return Err(AnswerError::NotResource { index, missing });
            }
            items.push(Resource::new("", path, value.clone(), source));
        }
        let config = list.get("functionConfig").filter(|config| config.is_object());
        Ok(Self { items, config: config.map(|config| Resource::new("", "", config.clone(), None)) })
    }
}

impl Request<'_> {
    /// Reads an answer, as YAML or JSON.
    ///
    /// # Errors
    ///
    /// [`AnswerError`] when the answer is no list of objects, when it loses a Kptfile, or when a path is rejected.
    pub fn decode(&self, answer: &[u8]) -> Result<Answer, AnswerError> {
        let text = std::str::from_utf8(answer).map_err(|_| AnswerError::NotText)?;
        if text.trim().is_empty() {
            return Err(AnswerError::Empty);
        }
        let document = text::read_list(text)?;
        let list = as_list(&document.value)?;
        let results = results::parse(list.get("results").unwrap_or(&Value::Null)).map_err(AnswerError::Results)?;
        let values = match list.get("items") {
            Some(Value::Array(values)) => values.as_slice(),
            None | Some(Value::Null) if self.items.is_empty() => &[],
            _ => return Err(AnswerError::NoItems),
        };
        let sources = source::sources(text, &document.outline);
        let mut claims = marks::Claims::new(self);
        let mut items = Vec::new();
        for (index, value) in values.iter().enumerate() {
            let path = marks::path_of(value).unwrap_or_default();
            if let Some(missing) = missing_part(value, path) {
                return Err(AnswerError::NotResource { index, missing });
            }
            items.push(claims.resource(value, sources.get(index).and_then(Option::as_deref))?);
        }
        if !self.is_read_only {
            self.check_kptfiles(&items)?;
            check_paths(self.tree, &items)?;
        }
        Ok(Answer { items, results })
    }

    /// Checks that each Kptfile of the request is in the answer, at its path.
    fn check_kptfiles(&self, items: &[Resource]) -> Result<(), AnswerError> {
        let kptfiles = |items: &[Resource]| -> BTreeSet<String> {
            items.iter().filter(|it| it.is_kptfile()).map(Resource::file).collect()
        };
        let left = kptfiles(items);
        match self.items.iter().find(|item| item.is_kptfile() && !left.contains(&item.file())) {
            Some(lost) => Err(AnswerError::LosesKptfile { package: lost.package.clone() }),
            None => Ok(()),
        }
    }
}

fn as_list(value: &Value) -> Result<&Map<String, Value>, AnswerError> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    match value {
        Value::Object(list)
            if text("kind") == "ResourceList" && text("apiVersion").starts_with("config.kubernetes.io/") =>
        {
            Ok(list)
        }
        Value::Object(_) if text("kind").is_empty() => {
            Err(AnswerError::NotResourceList("an object without kind".to_owned()))
        }
        Value::Object(_) => {
            Err(AnswerError::NotResourceList(format!("an object of {} {}", text("apiVersion"), text("kind"))))
        }
        Value::Array(_) => Err(AnswerError::NotResourceList("a list".to_owned())),
        Value::Null => Err(AnswerError::Empty),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Err(AnswerError::NotResourceList("a scalar".to_owned()))
        }
    }
}

/// The name of an object of an answer, for errors.
fn name_of(value: &Value) -> String {
    object_name(&Resource::new("", "", value.clone(), Some(String::new())))
}

#[cfg(test)]
mod tests;
