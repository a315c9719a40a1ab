//! Which file stands for which object, as data: one [`GitPath`] for each kind.
//!
//! Start at [`GitPaths`], the list of a server. [`document`](document()) reads a stored object as its file. Elsewhere:
//! `stoa-kinds` has the values, and `stoa-control-repo` the files. Neither of these two knows the other.

mod document;

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use serde_json::Value;
use stoa_log::Key;
use stoa_meta::definition::ResourceDefinition;

pub use document::{Document, LayoutError, document, is_authored_annotation};

/// How the name of a placeholder for a field of the spec begins.
const SPEC: &str = "spec.";

/// Reads a stored object of a kind.
pub type ReadDocument = fn(&'static GitPath, &[u8]) -> Result<Box<dyn Document>, LayoutError>;

/// A kind whose objects people write, and where its files are.
#[derive(Debug)]
pub struct GitPath {
    /// The API group.
    pub group: &'static str,
    /// The version that files have.
    pub version: &'static str,
    /// The kind, such as `Stack`.
    pub kind: &'static str,
    /// The singular noun, as the subjects of commits have it.
    pub singular: &'static str,
    /// The resource, such as `stacks`.
    pub plural: &'static str,
    /// The path of a file, with a placeholder as a whole segment or before the suffix of one: `{name}`, `{namespace}` for kinds
    /// in namespaces, and at most one `{spec.<field>}`.
    pub pattern: &'static str,
    /// Whether the removal of a file waits while other objects refer to its object.
    pub removal_waits_for_references: bool,
    /// Reads a stored object: [`document`](document()) with the type of its spec.
    pub document: ReadDocument,
}

impl PartialEq for GitPath {
    fn eq(&self, other: &Self) -> bool {
        (self.group, self.plural) == (other.group, other.plural)
    }
}

impl Eq for GitPath {}

impl Hash for GitPath {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.group, self.plural).hash(state);
    }
}

impl GitPath {
    /// `<group>/<version>`.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// The field of the spec that is a part of the path, such as `project`.
    pub fn spec_field(&self) -> Option<&'static str> {
        let (_, rest) = self.pattern.split_once("{spec.")?;
        Some(rest.split_once('}')?.0)
    }

    fn is_namespaced(&self) -> bool {
        self.pattern.contains("{namespace}")
    }

    fn segments(&self) -> impl Iterator<Item = Segment> {
        self.pattern.split('/').map(Segment::of)
    }

    /// The object whose file is at `path`.
    fn of_path(&'static self, path: &str) -> Option<ObjectPath> {
        let mut found = ObjectPath {
            identity: Identity { kind: self, namespace: String::new(), name: String::new() },
            spec_field: String::new(),
        };
        let (mut segments, mut parts) = (self.segments(), path.split('/'));
        loop {
            match (segments.next(), parts.next()) {
                (None, None) => return Some(found),
                (Some(segment), Some(part)) => match segment.value(part)? {
                    None => {}
                    Some((field, value)) => value.clone_into(found.part_mut(field)),
                },
                _ => return None,
            }
        }
    }

    /// Whether a folder may contain files of this kind, or folders that do.
    fn may_be_under(&self, folder: &str) -> bool {
        let mut segments = self.segments();
        folder.split('/').all(|part| segments.next().is_some_and(|segment| segment.value(part).is_some()))
            && segments.next().is_some()
    }
}

/// A part of a pattern between slashes.
enum Segment {
    Literal(&'static str),
    Placeholder { field: &'static str, suffix: &'static str },
}

impl Segment {
    fn of(text: &'static str) -> Self {
        match text.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            Some((field, suffix)) => Self::Placeholder { field, suffix },
            None => Self::Literal(text),
        }
    }

    /// The placeholder's field and its value in a part of a path; `Some(None)` for a literal, `None` where the part is another.
    fn value<'a>(&self, part: &'a str) -> Option<Option<(&'static str, &'a str)>> {
        match self {
            Self::Literal(literal) => (*literal == part).then_some(None),
            Self::Placeholder { field, suffix } => {
                let value = part.strip_suffix(suffix).filter(|value| is_name(value))?;
                Some(Some((field, value)))
            }
        }
    }
}

/// Whether a part of a path is a name, and neither a way out nor Git's own.
fn is_name(part: &str) -> bool {
    !part.is_empty() && !part.starts_with('.')
}

/// An object by its kind and names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The kind.
    pub kind: &'static GitPath,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Identity {
    /// The key of the object.
    pub fn key(&self) -> Key {
        let Self { kind, namespace, name } = self;
        let folder = format!("/registry/{}/{}", kind.group, kind.plural);
        Key::new(if kind.is_namespaced() { format!("{folder}/{namespace}/{name}") } else { format!("{folder}/{name}") })
    }
}

/// As people write it: `shop/web-dev`, or `dev`.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// An object and where its file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectPath {
    /// The object.
    pub identity: Identity,
    /// The value of the `{spec.<field>}` in the pattern; empty without one.
    pub spec_field: String,
}

impl ObjectPath {
    /// The path of the file in the repository.
    pub fn path(&self) -> String {
        let mut path = String::new();
        for segment in self.identity.kind.segments() {
            if !path.is_empty() {
                path.push('/');
            }
            match segment {
                Segment::Literal(literal) => path.push_str(literal),
                Segment::Placeholder { field, suffix } => {
                    path.push_str(self.part(field));
                    path.push_str(suffix);
                }
            }
        }
        path
    }

    fn part(&self, field: &str) -> &str {
        match field {
            "namespace" => &self.identity.namespace,
            _ if field.starts_with(SPEC) => &self.spec_field,
            _ => &self.identity.name,
        }
    }

    fn part_mut(&mut self, field: &str) -> &mut String {
        match field {
            "namespace" => &mut self.identity.namespace,
            _ if field.starts_with(SPEC) => &mut self.spec_field,
            _ => &mut self.identity.name,
        }
    }
}

/// The kinds of a server that are in Git.
#[derive(Clone, Copy, Debug)]
pub struct GitPaths(pub &'static [&'static GitPath]);

impl GitPaths {
    /// The kind of a resource.
    pub fn of_resource(self, group: &str, plural: &str) -> Option<&'static GitPath> {
        self.0.iter().copied().find(|kind| kind.group == group && kind.plural == plural)
    }

    /// Whether the objects of a resource are in Git.
    pub fn includes(self, definition: &ResourceDefinition) -> bool {
        self.of_resource(&definition.group, &definition.plural).is_some()
    }

    /// The object at a key; `None` for kinds that are not in Git.
    pub fn identity(self, key: &Key) -> Option<Identity> {
        let mut parts = key.as_str().strip_prefix("/registry/")?.split('/');
        let kind = self.of_resource(parts.next()?, parts.next()?)?;
        let namespace = if kind.is_namespaced() { parts.next()? } else { "" };
        let name = parts.next()?;
        let is_whole = parts.next().is_none() && !name.is_empty();
        is_whole.then(|| Identity { kind, namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// The object whose file is at `path`; `None` where no object can have its file.
    pub fn of_path(self, path: &str) -> Option<ObjectPath> {
        self.0.iter().find_map(|kind| kind.of_path(path))
    }

    /// Whether a folder may contain files of objects, or folders that do; `""` is the root of the repository.
    pub fn may_be_under(self, folder: &str) -> bool {
        folder.is_empty() || self.0.iter().any(|kind| kind.may_be_under(folder))
    }

    /// Where an object's file is; `None` when the object has none.
    pub fn of_object(self, key: &Key, object: &Value) -> Option<ObjectPath> {
        let identity = self.identity(key)?;
        let field = identity.kind.spec_field().and_then(|field| object.get("spec")?.get(field)?.as_str());
        self.of_identity(identity, field)
    }

    /// The same, given the value of the spec's field that is in the path, if the object has any.
    pub fn of_identity(self, identity: Identity, spec_field: Option<&str>) -> Option<ObjectPath> {
        let spec_field = if identity.kind.spec_field().is_some() { spec_field? } else { "" };
        let found = ObjectPath { spec_field: spec_field.to_owned(), identity };
        // A name that would lead elsewhere has no file; no strategy accepts one.
        (self.of_path(&found.path()).as_ref() == Some(&found)).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    static SHELF: GitPath = GitPath {
        group: "library.example.com",
        version: "v1",
        kind: "Shelf",
        singular: "shelf",
        plural: "shelves",
        pattern: "shelves/{name}.yaml",
        removal_waits_for_references: false,
        document: |_, _| Err("no shelf is read here".into()),
    };
    static BOOK: GitPath = GitPath {
        kind: "Book",
        singular: "book",
        plural: "books",
        pattern: "readers/{namespace}/{spec.shelf}/books/{name}.yaml",
        document: |_, _| Err("no book is read here".into()),
        ..SHELF
    };
    const PATHS: GitPaths = GitPaths(&[&SHELF, &BOOK]);

    #[test]
    fn object_has_the_path_of_its_pattern() {
        for (key, path) in [
            ("/registry/library.example.com/shelves/a", "shelves/a.yaml"),
            ("/registry/library.example.com/books/ann/b.c", "readers/ann/red/books/b.c.yaml"),
        ] {
            let found = PATHS.of_object(&Key::new(key), &json!({"spec": {"shelf": "red"}})).expect("it has a file");
            assert_eq!(found.path(), path);
            assert_eq!(found.identity.key().as_str(), key);
            assert_eq!(PATHS.of_path(path), Some(found));
        }
        assert_eq!((SHELF.spec_field(), BOOK.spec_field()), (None, Some("shelf")));
    }

    #[test]
    fn object_without_the_spec_field_has_no_path() {
        for object in [json!({}), json!({"spec": {"shelf": 1}}), json!({"spec": {"shelf": "../x"}})] {
            assert_eq!(PATHS.of_object(&Key::new("/registry/library.example.com/books/ann/b"), &object), None);
        }
    }

    #[test]
    fn folders_on_the_way_to_files_may_contain_files() {
        for (folder, expected) in [
            ("", true),
            ("shelves", true),
            ("shelves/a.yaml", false),
            ("readers/ann/red/books", true),
            ("readers/ann/red/music", false),
            ("readers/.ann", false),
            ("readers/", false),
        ] {
            assert_eq!(PATHS.may_be_under(folder), expected, "{folder:?}");
        }
    }
}
