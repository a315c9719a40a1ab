//! Walks the files of a tree, or those that differ between two trees, within bounds.
//!
//! A few objects can stand for any number of files: ten names of one folder, each of them ten names of another, and so on. So a
//! walk enters only folders where a [`Layout`] may have files, skips equal folders and folders that are nested too deeply, and
//! counts all entries against a limit.
//!
//! Start at [`Walk`].

use std::{borrow::Cow, collections::BTreeMap};

use git2::{ErrorCode, ObjectType, Oid, Repository};

use super::{
    fan_out::{self, FILES},
    layout::{DEEPEST, Layout},
    trees,
};

/// The most bytes of a tree: Git packs many similar names into a few bytes.
const LARGEST_TREE: usize = 16 << 20;
/// The most nested folders, including the subfolders of full ones.
const DEEPEST_FOLDER: usize = DEEPEST * (1 + FILES.depth);

/// The limit that ended a walk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// There are more entries than this in the folders where objects have their files.
    #[error("more than {0} entries of the folders where objects have their files")]
    Entries(usize),
    /// A folder's tree has too many bytes.
    #[error("folder \"/{path}\", whose tree has {size} bytes and may have {most}", most = LARGEST_TREE)]
    Folder {
        /// Its path with a slash at the end; empty for the root.
        path: String,
        /// How many.
        size: usize,
    },
}

/// Takes a file: its path in the tree, its plain path without subfolders of full folders, and the id of its content.
pub(super) type Take<'t> = dyn FnMut(&str, Cow<'_, str>, Oid) + 't;

/// A walk over any number of trees, which ends at a limit of entries.
pub(super) struct Walk<'a> {
    repository: &'a Repository,
    layout: &'a dyn Layout,
    /// The number of entries so far.
    most: usize,
    /// How many of them may still be.
    left: usize,
}

impl<'a> Walk<'a> {
    /// A walk over at most `most` entries.
    pub(super) fn new(repository: &'a Repository, layout: &'a dyn Layout, most: usize) -> Self {
        Self { repository, layout, most, left: most }
    }

    /// Takes the files of objects that differ between two trees, in the order of their paths. An exceeded limit is returned,
    /// and then some files are missing.
    pub(super) fn differing(
        &mut self,
        old: Option<Oid>,
        new: Option<Oid>,
        take: &mut Take<'_>,
    ) -> Result<Option<Excess>, git2::Error> {
        if old == new { Ok(None) } else { self.folder(&mut String::new(), 0, old, new, take) }
    }

    /// Walks a folder at a depth. Its path is empty or ends in a slash.
    fn folder(
        &mut self,
        path: &mut String,
        depth: usize,
        old: Option<Oid>,
        new: Option<Oid>,
        take: &mut Take<'_>,
    ) -> Result<Option<Excess>, git2::Error> {
        let (before, after) = match (self.read(old)?, self.read(new)?) {
            (Ok(before), Ok(after)) => (before, after),
            (Err(size), _) | (_, Err(size)) => return Ok(Some(Excess::Folder { path: path.clone(), size })),
        };
        let Some(left) = self.left.checked_sub(trees::entries(&before).chain(trees::entries(&after)).count()) else {
            self.left = 0;
            return Ok(Some(Excess::Entries(self.most)));
        };
        self.left = left;
        // Git's order is that of paths if the names of folders end in a slash.
        let mut both: BTreeMap<Vec<u8>, (bool, Option<Oid>, Option<Oid>)> = BTreeMap::new();
        for (name, entry) in trees::entries(&before).filter(|(name, _)| is_name(name)) {
            both.insert(ordered(name, entry.is_tree), (entry.is_tree, Some(entry.id), None));
        }
        for (name, entry) in trees::entries(&after).filter(|(name, _)| is_name(name)) {
            both.entry(ordered(name, entry.is_tree)).or_insert((entry.is_tree, None, None)).2 = Some(entry.id);
        }
        both.retain(|_, (_, old, new)| old != new);
        // Dropped before the walk of the trees in these.
        drop((before, after));
        let length = path.len();
        for (name, (is_tree, old, new)) in both {
            let Ok(name) = std::str::from_utf8(&name) else { continue };
            path.push_str(name);
            let mut excess = None;
            if is_tree {
                if depth < DEEPEST_FOLDER && self.leads(path.strip_suffix('/').unwrap_or(path.as_str())) {
                    excess = self.folder(path, depth + 1, old, new, take)?;
                }
            } else {
                let plain = fan_out::plain(path.as_str());
                if let Some(id) = new.or(old)
                    && self.layout.key(&plain).is_some()
                {
                    take(path.as_str(), plain, id);
                }
            }
            path.truncate(length);
            if excess.is_some() {
                return Ok(excess);
            }
        }
        Ok(None)
    }

    /// Whether files of objects may be in a folder, which may be there because another is full.
    fn leads(&self, folder: &str) -> bool {
        self.layout.may_have_files(&fan_out::plain(folder))
            || fan_out::full(folder).is_some_and(|full| self.layout.may_have_files(&full))
    }

    /// The bytes of a tree, empty for a missing one; their number when they are too many.
    fn read(&self, tree: Option<Oid>) -> Result<Result<Vec<u8>, usize>, git2::Error> {
        let Some(tree) = tree else { return Ok(Ok(Vec::new())) };
        let odb = self.repository.odb()?;
        match odb.read_header(tree) {
            Ok((size, _)) if size > LARGEST_TREE => Ok(Err(size)),
            Ok(_) => Ok(Ok(odb.read(tree)?.data().to_vec())),
            // The empty tree need not be stored.
            Err(error)
                if error.code() == ErrorCode::NotFound && Ok(tree) == Oid::hash_object(ObjectType::Tree, &[]) =>
            {
                Ok(Ok(Vec::new()))
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether a name is one segment of a path. Git itself writes no other into a tree, but hand-written bytes can have one: a
/// folder without a name would pass for its parent.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.contains(&b'/')
}

/// A name as the order of a tree compares it.
fn ordered(name: &[u8], is_tree: bool) -> Vec<u8> {
    let mut name = name.to_vec();
    if is_tree {
        name.push(b'/');
    }
    name
}

#[cfg(test)]
pub(super) mod testing {
    //! A layout for tests of what walks trees.

    use serde_json::Value;
    use stoa_machinery::log::{Key, Record};

    use crate::{Document, Layout, LayoutError, Location};

    /// Everything that ends in `.yaml` is an object's, and no folder is deeper than this.
    #[derive(Debug)]
    pub(crate) struct Folders(pub usize);

    impl Layout for Folders {
        fn key(&self, path: &str) -> Option<Key> {
            path.ends_with(".yaml").then(|| Key::new(format!("/{path}")))
        }

        fn may_have_files(&self, folder: &str) -> bool {
            folder.split('/').count() <= self.0
        }

        fn location(&self, _key: &Key, _value: &[u8]) -> Location {
            Location::Nowhere
        }

        fn read(&self, _key: &Key, _value: &[u8]) -> Result<Box<dyn Document>, LayoutError> {
            Err("there is none".into())
        }

        fn read_file(&self, _path: &str, _content: &[u8]) -> Option<Box<dyn Document>> {
            None
        }

        fn subject(&self, _record: &Record, _before: Option<&Value>, _now: Option<&Value>) -> String {
            String::new()
        }

        fn ingest_user(&self) -> &str {
            "git"
        }
    }
}

#[cfg(test)]
mod tests {
    use stoa_git::testing::tree;
    use tempfile::TempDir;

    use super::{testing::Folders, *};
    use crate::trees::{Item, encoded};

    /// The files that differ by their plain paths, and what kept it from finding all.
    fn differing(repository: &Repository, old: Option<Oid>, new: Oid, most: usize) -> (Vec<String>, Option<Excess>) {
        let mut found = Vec::new();
        let layout = Folders(3);
        let mut walk = Walk::new(repository, &layout, most);
        let excess = walk.differing(old, Some(new), &mut |_, plain, _| found.push(plain.into_owned())).unwrap();
        (found, excess)
    }

    /// A tree with these bytes, whatever they are.
    fn raw(repository: &Repository, content: &[u8]) -> Oid {
        repository.odb().unwrap().write(ObjectType::Tree, content).unwrap()
    }

    #[test]
    fn walk_finds_differing_object_files() {
        let folder = TempDir::new().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let [one, two] = [0, 1].map(|depth| FILES.folder("web.yaml", depth));
        let full = format!("a/b/c/{one}/{two}/web.yaml");
        let elsewhere = format!("a/{}/x.yaml", FILES.folder("y.yaml", 0));
        let old = [
            ("a.yaml", "1"),
            ("a/b/c/d/deep.yaml", "1"),
            ("a/b/c/same.yaml", "1"),
            ("a/b/gone.yaml", "1"),
            ("a/b/is-folder.yaml", "1"),
            ("same/x.yaml", "1"),
            (full.as_str(), "1"),
        ];
        let new = [
            ("a.yaml", "2"),
            ("a/b/README.md", "2"),
            ("a/b/c/d/deep.yaml", "2"),
            ("a/b/c/same.yaml", "1"),
            ("a/b/is-folder.yaml/in.yaml", "2"),
            ("same/x.yaml", "1"),
            (full.as_str(), "2"),
            (elsewhere.as_str(), "2"),
        ];
        let (old, new) = (tree(&repository, &old), tree(&repository, &new));
        let found = ["a.yaml", elsewhere.as_str(), "a/b/c/web.yaml", "a/b/gone.yaml", "a/b/is-folder.yaml"];
        let mut found: Vec<String> = found.map(str::to_owned).to_vec();
        found.push("a/b/is-folder.yaml/in.yaml".to_owned());
        assert_eq!(differing(&repository, Some(old), new, 1_000), (found, None));
        assert_eq!(differing(&repository, Some(new), new, 0), (Vec::new(), None));
        let empty = tree(&repository, &[]);
        assert_eq!(differing(&repository, Some(empty), tree(&repository, &[("x.yaml", "")]), 1).0, ["x.yaml"]);
    }

    #[test]
    fn walk_limit_stops_repeated_trees() {
        let folder = TempDir::new().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let mut item = (repository.blob(b"x").unwrap(), 0o100_644);
        for _ in 0..10 {
            let mut builder = repository.treebuilder(None).unwrap();
            for number in 0..10 {
                builder.insert(format!("{number}.yaml"), item.0, item.1).unwrap();
            }
            item = (builder.write().unwrap(), 0o040_000);
        }
        // The last of these levels are folders that no object has.
        assert_eq!(differing(&repository, None, item.0, 10_000_000), (Vec::new(), None));
        assert_eq!(differing(&repository, None, item.0, 1_000), (Vec::new(), Some(Excess::Entries(1_000))));
    }

    #[test]
    fn what_is_no_name_of_a_path_is_nothing() {
        let folder = TempDir::new().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let file = Item::File(repository.blob(b"x").unwrap());
        let below = raw(&repository, &encoded("x.yaml", file));
        for name in ["", "/", "a/b", "/a", "a/"] {
            let entries = [encoded(name, Item::Tree(below)), encoded(&format!("{name}/y.yaml"), file)].concat();
            assert_eq!(differing(&repository, None, raw(&repository, &entries), 1_000), (Vec::new(), None), "{name:?}");
        }
        // Folders without a name in each other, which seem to be one folder all the time.
        let mut nameless = below;
        for _ in 0..200 {
            nameless = raw(&repository, &encoded("", Item::Tree(nameless)));
        }
        let tree = raw(&repository, &[encoded("", Item::Tree(nameless)), encoded("x.yaml", file)].concat());
        assert_eq!(differing(&repository, None, tree, 1_000), (vec!["x.yaml".to_owned()], None));
    }

    #[test]
    fn walk_descends_to_deepest_allowed_folder() {
        let folder = TempDir::new().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let file = encoded("x.yaml", Item::File(repository.blob(b"x").unwrap()));
        let mut tree = raw(&repository, &file);
        for _ in 0..2 * DEEPEST_FOLDER {
            tree = raw(&repository, &[encoded("d", Item::Tree(tree)), file.clone()].concat());
        }
        let (layout, mut found) = (Folders(usize::MAX), 0);
        let mut walk = Walk::new(&repository, &layout, 1_000);
        assert_eq!(walk.differing(None, Some(tree), &mut |_, _, _| found += 1).unwrap(), None);
        assert_eq!(found, 1 + DEEPEST_FOLDER);
    }

    #[test]
    fn a_folder_that_is_too_large_is_named() {
        let folder = TempDir::new().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let large = raw(&repository, &vec![0; LARGEST_TREE + 1]);
        let tree = raw(&repository, &encoded("a", Item::Tree(large)));
        let excess = Excess::Folder { path: "a/".to_owned(), size: LARGEST_TREE + 1 };
        assert_eq!(differing(&repository, None, tree, 1_000), (Vec::new(), Some(excess)));
    }
}
