//! The objects in the files of a tree.
//!
//! Start at [`read()`], which gives a [`Resource`] for each object, and at [`write()`], which gives the tree with the objects
//! as they are now. Only documents that changed are written, and in them only the leaves that changed.

mod write;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::{
    files::{Tree, file_name, join, resource_files},
    text::{self, TextError},
};

pub use write::{WriteError, write};
pub(crate) use write::{check_paths, clean_path, default_path};

/// The names of files of kustomize, whose objects may lack a name.
const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// One object of a package.
///
/// Change its [`value`](Self::value); its [`text`](Self::text) follows, with comments and the form of untouched parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// The folder of its package in the tree; empty for the root.
    pub package: String,
    /// The path of its file in its package.
    pub path: String,
    /// The position among the objects of its file, from 0; `None` for the end.
    pub index: Option<usize>,
    /// The object.
    pub value: Value,
    /// The text that `value` is written into.
    base: Arc<Base>,
    origin: Option<Origin>,
    /// Whether the text was set.
    is_rewritten: bool,
    /// The same for an object before and after a function.
    token: Arc<Token>,
}

/// Stands for an object whatever its value is, by its address.
#[derive(Debug, PartialEq)]
struct Token(u8);

#[derive(Debug, PartialEq)]
struct Base {
    text: String,
    value: Value,
}

/// The document that an object was read from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Origin {
    file: String,
    /// The number of the document, with those that are null.
    document: usize,
}

/// Why the objects of a tree cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The file is not UTF-8.
    #[error("{file} is not UTF-8; list it in .krmignore if it has no objects")]
    NotText {
        /// The file.
        file: String,
    },
    /// A document is not YAML.
    #[error("{file} is no YAML; correct it, or list it in .krmignore if it has no objects")]
    Yaml {
        /// The file.
        file: String,
        /// The reason, with the line in the file.
        source: TextError,
    },
    /// A document is no object of Kubernetes.
    #[error(
        "{file}, document {index}: resource must have {missing}; \
         packages must contain only KRM resources, list the file in .krmignore if it has none"
    )]
    NotResource {
        /// The file.
        file: String,
        /// The position of the document among those of the file, from 0.
        index: usize,
        /// The part that the object lacks.
        missing: &'static str,
    },
}

/// Reads the objects of all [files that have some](resource_files), in the order of their paths.
///
/// # Errors
///
/// [`ReadError`] for the first file that is no YAML, or has a document that is no object.
pub fn read(tree: &Tree) -> Result<Vec<Resource>, ReadError> {
    let mut found = Vec::new();
    for file in resource_files(tree) {
        found.extend(read_file(tree, file.package, file.path)?);
    }
    Ok(found)
}

/// Reads the objects of one file, given by its path in the tree and its package.
///
/// # Errors
///
/// As [`read()`].
pub fn read_file(tree: &Tree, package: &str, path: &str) -> Result<Vec<Resource>, ReadError> {
    let text = tree.text(path).ok_or_else(|| ReadError::NotText { file: path.to_owned() })?;
    let mut found = Vec::new();
    for (document, range) in stoa_yaml_edit::documents(text).into_iter().enumerate() {
        let lines = text[..range.start].matches('\n').count();
        let text = &text[range];
        let value = text::read(text)
            .map_err(|source| ReadError::Yaml { file: path.to_owned(), source: source.below(lines) })?;
        if value.is_null() {
            continue;
        }
        let index = found.len();
        if let Some(missing) = missing_part(&value, path) {
            return Err(ReadError::NotResource { file: path.to_owned(), index, missing });
        }
        found.push(Resource {
            package: package.to_owned(),
            path: crate::files::relative(package, path).to_owned(),
            index: Some(index),
            value: value.clone(),
            base: Arc::new(Base { text: text.to_owned(), value }),
            origin: Some(Origin { file: path.to_owned(), document }),
            is_rewritten: false,
            token: Arc::new(Token(0)),
        });
    }
    Ok(found)
}

/// The part of an object that a value lacks. The path of its file exempts files of kustomize, as in kpt.
pub(crate) fn missing_part(value: &Value, path: &str) -> Option<&'static str> {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    let is_kustomization = KUSTOMIZATIONS.contains(&file_name(path))
        || text("/apiVersion").is_some_and(|version| version.starts_with("kustomize.config.k8s.io"))
        || (text("/apiVersion").is_none() && text("/kind") == Some("Kustomization"));
    let parts = [("/apiVersion", "`apiVersion`"), ("/kind", "`kind`"), ("/metadata/name", "`metadata.name`")];
    match value {
        Value::Object(_) if is_kustomization => None,
        Value::Object(_) => parts.iter().find(|(pointer, _)| text(pointer).is_none()).map(|(_, part)| *part),
        _ => Some("`apiVersion`, `kind`, and `metadata.name`"),
    }
}

impl Resource {
    /// An object of its own, which is in no file yet. Its text is given, or else written.
    pub fn new(package: &str, path: &str, value: Value, text: Option<String>) -> Self {
        let text = text.filter(|text| text::read(text).as_ref() == Ok(&value)).unwrap_or_else(|| text::written(&value));
        let base = Arc::new(Base { text, value: value.clone() });
        Self {
            package: package.to_owned(),
            path: path.to_owned(),
            index: None,
            value,
            base,
            origin: None,
            is_rewritten: false,
            token: Arc::new(Token(0)),
        }
    }

    /// The path of its file in the tree.
    pub fn file(&self) -> String {
        join(&self.package, &self.path)
    }

    /// The text of its document.
    pub fn text(&self) -> String {
        if self.value == self.base.value {
            return self.base.text.clone();
        }
        text::changed(&self.base.text, &self.base.value, &self.value)
    }

    /// Sets the text, for changes to comments.
    ///
    /// # Errors
    ///
    /// [`TextError`] when the text is no document.
    pub fn set_text(&mut self, text: String) -> Result<(), TextError> {
        self.value = text::read(&text)?;
        self.is_rewritten |= text != self.base.text;
        self.base = Arc::new(Base { text, value: self.value.clone() });
        Ok(())
    }

    /// A number that the clones of an object share, and no other object of the same time.
    pub(crate) fn token(&self) -> usize {
        Arc::as_ptr(&self.token).addr()
    }

    /// Whether it is as it was read, in the same file.
    fn is_untouched(&self) -> bool {
        self.value == self.base.value && self.origin.is_some() && !self.is_rewritten
    }

    /// The group and version.
    pub fn api_version(&self) -> &str {
        self.string("/apiVersion")
    }

    /// The group; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version().split_once('/').map_or("", |(group, _)| group)
    }

    /// The kind.
    pub fn kind(&self) -> &str {
        self.string("/kind")
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.string("/metadata/name")
    }

    /// The namespace; empty if it has none.
    pub fn namespace(&self) -> &str {
        self.string("/metadata/namespace")
    }

    /// An annotation that is text.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.value.get("metadata")?.get("annotations")?.get(name)?.as_str()
    }

    /// A label that is text.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.value.get("metadata")?.get("labels")?.get(name)?.as_str()
    }

    /// Whether it is the Kptfile of a package.
    pub fn is_kptfile(&self) -> bool {
        self.kind() == "Kptfile" && self.group() == "kpt.dev"
    }

    fn string(&self, pointer: &str) -> &str {
        self.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }
}

/// Two objects of one group, kind, namespace and name in a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Double {
    /// The kind, namespace and name.
    pub object: String,
    /// The file of the first.
    pub first: String,
    /// The file of the second.
    pub second: String,
}

/// The objects that an earlier one of the same package equals by group, kind, namespace and name.
pub fn doubles(resources: &[Resource]) -> Vec<Double> {
    let mut files: BTreeMap<[&str; 5], String> = BTreeMap::new();
    let mut found = Vec::new();
    for resource in resources {
        let key = [&resource.package, resource.group(), resource.kind(), resource.namespace(), resource.name()];
        match files.get(&key) {
            Some(first) => {
                found.push(Double { object: object_name(resource), first: first.clone(), second: resource.file() })
            }
            None => drop(files.insert(key, resource.file())),
        }
    }
    found
}

/// An object as messages name it: `Deployment shop/web`.
pub(crate) fn object_name(resource: &Resource) -> String {
    match resource.namespace() {
        "" => format!("{} {}", resource.kind(), resource.name()),
        namespace => format!("{} {namespace}/{}", resource.kind(), resource.name()),
    }
}

#[cfg(test)]
mod tests;
