//! The CustomResourceDefinitions of a repository, in whichever folder they are.
//!
//! Start at [`Definitions::of`]. What is below a folder is cached by the id of its tree, which any change below it changes.
//! So a plan reads the files of changed folders alone. The cache has where a definition is and the kind that it defines;
//! its schema, which may be large, is read again for the kinds of a plan.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use git2::{ObjectType, Oid, Repository, Tree};
use serde_json::{Map, Value};
use stoa_engine::ObjectRef;
use stoa_yaml_edit::documents;

use crate::bounded;
use crate::index::{DEPTH, is_manifest};
use crate::manifest;

/// The kind that a definition has, in a text before it is parsed.
const KIND: &str = "CustomResourceDefinition";

/// The most folders in the cache.
const CACHED: usize = 65_536;

/// The most files that one search reads. The next one continues with the folders that it has not finished.
const READ: usize = 50_000;

/// The most definitions below a folder. A few trees that are in each other many times have any number.
const FOUND: usize = 20_000;

/// Group and kind.
type Kind = (String, String);

/// Where definitions are, by the trees of folders.
///
/// Runs of any organization share it: who knows the id of a tree has all of its content.
#[derive(Debug, Default)]
pub struct DefinitionCache {
    folders: Mutex<HashMap<Oid, Arc<[Located]>>>,
}

/// Where a definition is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Located {
    /// The path of its file, from the folder that was searched.
    path: String,
    file: Oid,
    defines: Kind,
    is_cluster_scoped: bool,
}

/// The definitions of a repository, as a workspace's folder sees them.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    /// Those that are nearest to the folder, by kind: folders of other clusters may have other versions.
    nearest: BTreeMap<Kind, Vec<Located>>,
}

impl DefinitionCache {
    /// The definitions below a folder. `left` is the number of files that may still be read.
    fn below(
        &self,
        repository: &Repository,
        tree: &Tree<'_>,
        depth: usize,
        left: &mut usize,
    ) -> Result<Arc<[Located]>, git2::Error> {
        if let Some(found) = self.folders.lock().unwrap_or_else(PoisonError::into_inner).get(&tree.id()) {
            return Ok(Arc::clone(found));
        }
        // Nothing more is cached, so that trees in each other would have no end.
        if *left == 0 {
            return Ok(Arc::default());
        }
        let mut found = Vec::new();
        for entry in tree {
            let Ok(name) = std::str::from_utf8(entry.name_bytes()) else { continue };
            match entry.kind() {
                Some(ObjectType::Tree) if depth < DEPTH => {
                    let folder = match bounded::tree(repository, entry.id()) {
                        Ok(folder) => folder,
                        Err(err) if bounded::is_too_large(&err) => continue,
                        Err(err) => return Err(err),
                    };
                    let below = self.below(repository, &folder, depth + 1, left)?;
                    let at = |it: &Located| Located { path: format!("{name}/{}", it.path), ..it.clone() };
                    found.extend(below.iter().map(at));
                }
                Some(ObjectType::Blob) if is_manifest(name) && *left > 0 => {
                    *left -= 1;
                    for definition in in_file(repository, name, entry.id())? {
                        let Some((defines, is_cluster_scoped)) = defined(&definition) else { continue };
                        found.push(Located { path: name.to_owned(), file: entry.id(), defines, is_cluster_scoped });
                    }
                }
                _ => {}
            }
            if found.len() > FOUND {
                return Err(bounded::too_many("definitions of custom kinds in the repository"));
            }
        }
        let found: Arc<[Located]> = found.into();
        if *left > 0 {
            let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
            if folders.len() >= CACHED {
                folders.clear();
            }
            folders.insert(tree.id(), Arc::clone(&found));
        }
        Ok(found)
    }
}

impl Definitions {
    /// Finds the definitions in the tree of a commit, for the folder of a workspace.
    pub(crate) fn of(
        cache: &DefinitionCache,
        repository: &Repository,
        root: &Tree<'_>,
        directory: &str,
    ) -> Result<Self, git2::Error> {
        let mut nearest: BTreeMap<Kind, Vec<Located>> = BTreeMap::new();
        for located in cache.below(repository, root, 0, &mut { READ })?.iter() {
            let of_kind = nearest.entry(located.defines.clone()).or_default();
            let distance = |it: &Located| common_folders(&it.path, directory);
            match of_kind.first().map(|first| distance(first).cmp(&distance(located))) {
                Some(std::cmp::Ordering::Greater) => continue,
                Some(std::cmp::Ordering::Less) => of_kind.clear(),
                Some(std::cmp::Ordering::Equal) | None => {}
            }
            of_kind.push(located.clone());
        }
        Ok(Self { nearest })
    }

    /// The cluster-scoped kinds.
    pub(crate) fn cluster_scoped(&self) -> impl Iterator<Item = Kind> {
        let is_cluster_scoped = |found: &[Located]| found.iter().all(|it| it.is_cluster_scoped);
        self.nearest.iter().filter(move |(_, found)| is_cluster_scoped(found)).map(|(kind, _)| kind.clone())
    }

    /// Reads the nearest definitions of some kinds. Several of one kind are equally near.
    pub(crate) fn read(
        &self,
        repository: &Repository,
        kinds: &BTreeSet<Kind>,
    ) -> Result<Vec<Map<String, Value>>, git2::Error> {
        let found = kinds.iter().filter_map(|kind| self.nearest.get(kind)).flatten();
        let files: BTreeMap<Oid, &str> = found.map(|it| (it.file, it.path.as_str())).collect();
        let mut all = Vec::new();
        for (file, path) in files {
            let of_file = in_file(repository, path, file)?;
            all.extend(of_file.into_iter().filter(|it| defined(it).is_some_and(|(kind, _)| kinds.contains(&kind))));
        }
        Ok(all)
    }
}

/// The definitions in a file, also as items of a List.
fn in_file(repository: &Repository, path: &str, file: Oid) -> Result<Vec<Map<String, Value>>, git2::Error> {
    let blob = match bounded::file(repository, file) {
        Ok(blob) => blob,
        Err(err) if bounded::is_too_large(&err) => return Ok(Vec::new()),
        Err(err) => return Err(err),
    };
    // Most files have none, and parsing takes longer than reading.
    let text = std::str::from_utf8(blob.content()).ok().filter(|text| text.contains(KIND));
    let Some(text) = text else { return Ok(Vec::new()) };
    let objects = documents(text).into_iter().filter_map(|range| manifest::parse(path, text[range].as_bytes()).ok());
    let items = |mut object: Map<String, Value>| match object.remove("items") {
        Some(Value::Array(items)) => items
            .into_iter()
            .filter_map(|item| if let Value::Object(item) = item { Some(item) } else { None })
            .collect(),
        _ => vec![object],
    };
    let is_definition = |object: &Map<String, Value>| {
        ObjectRef::of(object).is_some_and(|object| object.is_custom_resource_definition())
    };
    Ok(objects.flat_map(items).filter(is_definition).collect())
}

/// The kind that a definition defines, and whether that is cluster-scoped.
fn defined(definition: &Map<String, Value>) -> Option<(Kind, bool)> {
    let spec = definition.get("spec")?;
    let kind = spec.get("names")?.get("kind")?.as_str()?.to_owned();
    let is_cluster_scoped = spec.get("scope").is_some_and(|scope| scope == "Cluster");
    Some(((spec.get("group")?.as_str()?.to_owned(), kind), is_cluster_scoped))
}

/// The number of folders on the way to a file that lead to a folder, too.
fn common_folders(path: &str, folder: &str) -> usize {
    let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders).split('/');
    folders.zip(folder.split('/')).take_while(|(a, b)| a == b && !a.is_empty()).count()
}

#[cfg(test)]
mod tests {
    use git2::build::TreeUpdateBuilder;
    use serde_json::json;

    use super::*;

    struct TestRepository {
        _folder: tempfile::TempDir,
        repository: Repository,
        tree: Oid,
    }

    impl TestRepository {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let repository = Repository::init_bare(folder.path()).unwrap();
            let tree = repository.treebuilder(None).unwrap().write().unwrap();
            Self { _folder: folder, repository, tree }
        }

        fn put(&mut self, path: &str, text: &str) {
            let base = self.repository.find_tree(self.tree).unwrap();
            let mut update = TreeUpdateBuilder::new();
            update.upsert(path, self.repository.blob(text.as_bytes()).unwrap(), git2::FileMode::Blob);
            self.tree = update.create_updated(&self.repository, &base).unwrap();
        }

        fn definitions(&self, cache: &DefinitionCache, directory: &str) -> Definitions {
            let root = self.repository.find_tree(self.tree).unwrap();
            Definitions::of(cache, &self.repository, &root, directory).unwrap()
        }

        /// Empties a file's object, so that nobody can read it again.
        fn lose(&self, path: &str) {
            let root = self.repository.find_tree(self.tree).unwrap();
            let id = root.get_path(path.as_ref()).unwrap().id().to_string();
            std::fs::remove_file(self.repository.path().join("objects").join(&id[..2]).join(&id[2..])).unwrap();
        }
    }

    fn definition(kind: &str, scope: &str, version: &str) -> Value {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": KIND, "metadata": {"name": format!("{kind}.example.com")},
            "spec": {"group": "example.com", "names": {"kind": kind}, "scope": scope, "versions": [{"name": version}]}})
    }

    fn kind(name: &str) -> Kind {
        ("example.com".to_owned(), name.to_owned())
    }

    fn versions(repository: &TestRepository, definitions: &Definitions, name: &str) -> Vec<Value> {
        let read = definitions.read(&repository.repository, &[kind(name)].into()).unwrap();
        let mut versions: Vec<Value> = read.iter().map(|it| it["spec"]["versions"][0]["name"].clone()).collect();
        versions.sort_by_key(Value::to_string);
        versions
    }

    #[test]
    fn nearest_definitions_count() {
        let mut repository = TestRepository::new();
        for (path, version) in [("base/crds.yaml", "v1"), ("prod/crds.yaml", "v2"), ("dev/shared/crds.yaml", "v3")] {
            repository.put(path, &definition("Widget", "Namespaced", version).to_string());
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [definition("Zone", "Cluster", "v1")]});
        repository.put("platform/all.json", &list.to_string());
        repository.put("platform/template.yaml", &format!("kind: {KIND}\nname: {{{{ .Values.name }}}}\n"));
        let cache = DefinitionCache::default();
        for (directory, expected) in [
            ("dev/apps", vec!["v3"]),
            ("prod", vec!["v2"]),
            ("prod/apps/web", vec!["v2"]),
            ("stage", vec!["v1", "v2", "v3"]),
            ("", vec!["v1", "v2", "v3"]),
            ("de", vec!["v1", "v2", "v3"]),
        ] {
            let definitions = repository.definitions(&cache, directory);
            assert_eq!(versions(&repository, &definitions, "Widget"), expected, "{directory}");
            assert_eq!(definitions.cluster_scoped().collect::<Vec<_>>(), [kind("Zone")]);
        }
    }

    #[test]
    fn unchanged_folders_are_not_read_again() {
        let mut repository = TestRepository::new();
        repository.put("platform/crds/widgets.yaml", &definition("Widget", "Namespaced", "v1").to_string());
        repository.put("dev/web.yaml", "kind: ConfigMap\n");
        let cache = DefinitionCache::default();
        assert_eq!(versions(&repository, &repository.definitions(&cache, "dev"), "Widget"), ["v1"]);
        repository.put("dev/web.yaml", "kind: Secret\n");
        repository.lose("platform/crds/widgets.yaml");
        let definitions = repository.definitions(&cache, "dev");
        assert_eq!(definitions.nearest[&kind("Widget")][0].path, "platform/crds/widgets.yaml");
        // A definition beside it is found all the same.
        repository.put("platform/zones.yaml", &definition("Zone", "Cluster", "v1").to_string());
        assert_eq!(repository.definitions(&cache, "dev").cluster_scoped().collect::<Vec<_>>(), [kind("Zone")]);
    }

    #[test]
    fn search_continues_where_it_ended() {
        let mut repository = TestRepository::new();
        for folder in ["a", "b", "c"] {
            repository.put(&format!("{folder}/all.yaml"), &definition(folder, "Cluster", "v1").to_string());
        }
        let cache = DefinitionCache::default();
        let root = repository.repository.find_tree(repository.tree).unwrap();
        let found = |left: usize| {
            let mut left = left;
            cache.below(&repository.repository, &root, 0, &mut left).unwrap().len()
        };
        assert_eq!([found(2), found(2), found(2)], [2, 3, 3]);
    }
    /// A tree with ten folders that have ten folders, and so on, over a leaf.
    fn nested(repository: &Repository, leaf: Oid) -> Oid {
        (0..8).fold(leaf, |below, _| {
            let mut tree = repository.treebuilder(None).unwrap();
            for name in 0..10 {
                tree.insert(format!("d{name}"), below, git2::FileMode::Tree.into()).unwrap();
            }
            tree.write().unwrap()
        })
    }

    #[test]
    fn folders_in_each_other_have_an_end() {
        let mut repository = TestRepository::new();
        repository.put("all.yaml", &definition("Widget", "Cluster", "v1").to_string());
        let root = nested(&repository.repository, repository.tree);
        let root = repository.repository.find_tree(root).unwrap();
        let below = |left: usize| DefinitionCache::default().below(&repository.repository, &root, 0, &mut { left });
        let error = below(READ).unwrap_err();
        assert!(bounded::is_too_large(&error) && error.message().contains("definitions"), "{error}");
        // The search ends with the first file, and not with the last folder.
        assert_eq!(below(1).unwrap().len(), 1);
    }
}
