//! The index of a workspace's folder: which file has which object, for any file names and any number of objects in a
//! file.
//!
//! Start at [`Folder::index`]. Objects are found by group, kind, namespace and name; a cluster-scoped object has no
//! namespace, whatever its file says. Objects of other workspaces are left out: the folders of workspaces may be nested.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use git2::{ObjectType, Oid, Repository, Tree};
use serde_json::{Map, Value};
use stoa_engine::encrypted::is_ciphertext;
use stoa_engine::{ObjectRef, Owner, Scopes};
use stoa_kubernetes_model::{Cascade, ForeignContents, scopes};
use stoa_runtime::RuntimeError;
use stoa_yaml_edit::documents;

use crate::bounded;
use crate::definitions::{DefinitionCache, Definitions};
use crate::manifest;

/// The most levels of folders.
pub(crate) const DEPTH: usize = 32;
/// The most files and folders below that of a workspace. A few trees that are in each other many times have any number.
const ENTRIES: usize = 500_000;

/// The folder of a workspace.
#[derive(Debug)]
pub(crate) struct Folder {
    /// Its path; empty for the root of the repository.
    pub(crate) directory: String,
    owner: Owner,
    cache: Arc<DefinitionCache>,
    /// The last index, and the tree that it is of.
    last: Mutex<Option<(Oid, Arc<Index>)>>,
}

/// The objects of a folder.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// The objects that are documents, by group, kind, namespace and name.
    objects: BTreeMap<[String; 4], Vec<Found>>,
    /// The files that have an object as an item of a List.
    items: BTreeMap<[String; 4], String>,
    /// Objects of other owners.
    others: Vec<Map<String, Value>>,
    /// The files with a document that cannot be read as an object, each with the reason.
    pub(crate) unreadable: BTreeMap<String, String>,
    /// The cluster-scoped kinds.
    scopes: Scopes,
    /// The number of files and folders.
    entries: usize,
}

/// An object in a file.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) path: String,
    /// The range of its document in the file.
    pub(crate) range: Range<usize>,
    pub(crate) object: Map<String, Value>,
}

/// The fields that identify an object and its owner.
const NAMING: [&str; 4] = ["apiVersion", "kind", "metadata", "type"];

impl Folder {
    pub(crate) fn new(directory: String, owner: Owner, cache: Arc<DefinitionCache>) -> Self {
        Self { directory, owner, cache, last: Mutex::default() }
    }

    /// The definitions of the repository in the tree of a commit.
    pub(crate) fn definitions(&self, repository: &Repository, root: &Tree<'_>) -> Result<Definitions, git2::Error> {
        Definitions::of(&self.cache, repository, root, &self.directory)
    }

    /// The objects of the folder in the tree of a commit.
    pub(crate) fn index(&self, repository: &Repository, root: &Tree<'_>) -> Result<Arc<Index>, git2::Error> {
        let Some(tree) = folder(repository, root, &self.directory)? else { return Ok(Arc::default()) };
        let scopes = scopes([]).with(self.definitions(repository, root)?.cluster_scoped());
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, index)) = last.filter(|(id, index)| *id == tree.id() && index.scopes == scopes) {
            return Ok(index);
        }
        let mut index = Index { scopes, ..Index::default() };
        self.gather(repository, &tree, &self.directory, 0, &mut index)?;
        let index = Arc::new(index);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((tree.id(), Arc::clone(&index)));
        Ok(index)
    }

    fn gather(
        &self,
        repository: &Repository,
        tree: &Tree<'_>,
        path: &str,
        depth: usize,
        index: &mut Index,
    ) -> Result<(), git2::Error> {
        for entry in tree {
            let Ok(name) = std::str::from_utf8(entry.name_bytes()) else { continue };
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            index.entries += 1;
            if index.entries > ENTRIES {
                return Err(bounded::too_many("files and folders below that of the workspace"));
            }
            match entry.kind() {
                Some(ObjectType::Tree) if depth < DEPTH => {
                    self.gather(repository, &bounded::tree(repository, entry.id())?, &path, depth + 1, index)?;
                }
                Some(ObjectType::Blob) if is_manifest(name) => match bounded::file(repository, entry.id()) {
                    Ok(file) => self.note(&path, file.content(), index),
                    Err(err) if bounded::is_too_large(&err) => {}
                    Err(err) => return Err(err),
                },
                _ => {}
            }
        }
        Ok(())
    }

    /// Notes the objects of a file. What is no object, such as a template, is none of Stoa's.
    fn note(&self, path: &str, content: &[u8], index: &mut Index) {
        let Ok(text) = std::str::from_utf8(content) else {
            index.unreadable.insert(path.to_owned(), format!("{path} is not text"));
            return;
        };
        for range in documents(text) {
            let object = match manifest::parse(path, text[range.clone()].as_bytes()) {
                Ok(object) => object,
                Err(error) => {
                    index.unreadable.entry(path.to_owned()).or_insert_with(|| error.to_string());
                    continue;
                }
            };
            if object.get("kind").is_some_and(is_ciphertext) {
                let why = format!("{path} is encrypted by SOPS with its kind; encrypt only the values of its fields");
                index.unreadable.entry(path.to_owned()).or_insert(why);
                continue;
            }
            if let Some(Value::Array(items)) =
                object.get("items").filter(|_| object.get("kind") == Some(&"List".into()))
            {
                for item in items.iter().filter_map(|item| ObjectRef::of(item.as_object()?)) {
                    index.items.insert(index.identity(&item), path.to_owned());
                }
                continue;
            }
            let Some(reference) = ObjectRef::of(&object) else { continue };
            if self.is_elsewhere(&object) && manifest::path(&self.directory, &reference) != path {
                continue;
            }
            if !self.owner.has(&object) {
                let naming = object.iter().filter(|(field, _)| NAMING.contains(&field.as_str()));
                index.others.push(naming.map(|(field, value)| (field.clone(), value.clone())).collect());
            }
            let found = Found { path: path.to_owned(), range, object };
            index.objects.entry(index.identity(&reference)).or_default().push(found);
        }
    }

    /// Whether a deployment of another workspace owns an object.
    fn is_elsewhere(&self, object: &Map<String, Value>) -> bool {
        let other = self.owner.other(object);
        other.is_some_and(|other| other.rsplit('/').next() != Some(self.owner.workspace.as_str()))
    }
}

impl Index {
    fn identity(&self, object: &ObjectRef) -> [String; 4] {
        let ObjectRef { group, kind, namespace, name, .. } = self.scopes.scoped(object.clone());
        [group, kind, namespace, name]
    }

    /// The foreign contents of a namespace or kind.
    pub(crate) fn foreign_contents(&self, owner: &Owner, contents: &Cascade) -> ForeignContents {
        let mut foreign = ForeignContents::default();
        let others = self.others.iter().filter(|object| contents.has(object));
        others.filter_map(|object| contents.foreign(owner, object)).for_each(|object| foreign.add(object));
        foreign
    }

    /// The document that is an object. `own` is the path of the object's own file.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::Rejected`] when it is in several files and none of them is its own, or is an item of a List.
    pub(crate) fn find(&self, object: &ObjectRef, own: &str) -> Result<Option<&Found>, RuntimeError> {
        let identity = self.identity(object);
        let found = self.objects.get(&identity).map(Vec::as_slice).unwrap_or_default();
        if let Some(own) = found.iter().find(|found| found.path == own) {
            return Ok(Some(own));
        }
        let ObjectRef { kind, name, .. } = object;
        let refused = |message: String| Err(RuntimeError::Rejected { message, field: None, by_definition: false });
        let mut others = found.iter();
        match (others.next(), others.next(), self.items.get(&identity)) {
            (Some(first), Some(second), _) => refused(format!(
                "{} and {} both have {kind} {name}; keep one of them, or set spec.gitops.directory to the folder that is \
                 deployed",
                first.path, second.path
            )),
            (_, _, Some(path)) => refused(format!(
                "{path} has {kind} {name} as an item of a List; write each item as a document of its own, with --- between"
            )),
            (only, _, None) => Ok(only),
        }
    }
}

/// The folder at a path, if there is one.
fn folder<'r>(repository: &'r Repository, tree: &Tree<'r>, path: &str) -> Result<Option<Tree<'r>>, git2::Error> {
    if path.is_empty() {
        return Ok(Some(tree.clone()));
    }
    match bounded::entry(repository, tree, path)? {
        Some(entry) if entry.kind() == Some(ObjectType::Tree) => bounded::tree(repository, entry.id()).map(Some),
        Some(_) | None => Ok(None),
    }
}

pub(crate) fn is_manifest(name: &str) -> bool {
    [".yaml", ".yml", ".json"].iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_in_each_other_have_an_end() {
        let directory = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(directory.path()).unwrap();
        let mut below = repository.treebuilder(None).unwrap().write().unwrap();
        for _ in 0..7 {
            let mut tree = repository.treebuilder(None).unwrap();
            for name in 0..10 {
                tree.insert(format!("d{name}"), below, git2::FileMode::Tree.into()).unwrap();
            }
            below = tree.write().unwrap();
        }
        let folder = Folder::new(String::new(), Owner::default(), Arc::default());
        let error = folder.index(&repository, &repository.find_tree(below).unwrap()).unwrap_err();
        assert!(bounded::is_too_large(&error) && error.message().contains("files and folders"), "{error}");
    }
}
