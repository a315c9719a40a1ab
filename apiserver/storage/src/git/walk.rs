//! Walks the files of trees, or those that differ between two, without looking at more than has to be looked at.
//!
//! A few objects can stand for any number of files: ten names of one folder, each of them ten names of another, and so
//! on. So only folders are looked into where a [`Layout`] may have files, none that are the same in both trees, and no
//! more than so many entries in all.

use std::{borrow::Cow, collections::BTreeMap};

use git2::{ErrorCode, ObjectType, Oid, Repository};

use super::{fan_out, layout::Layout, trees};

/// How many entries of trees are looked at to find what a push changed, or who changed it. As many files would take hours
/// to be applied.
pub(super) const MOST_ENTRIES: usize = 1 << 20;
/// A tree with more bytes is not looked at: Git packs many like names into a few bytes.
const LARGEST_TREE: usize = 16 << 20;

/// What is done with a file: its path as it is in the tree and as it would be if no folder were full, and what is in it.
pub(super) type Take<'t> = dyn FnMut(&str, Cow<'_, str>, Oid) + 't;

/// A walk over any number of trees, which ends when it has looked at too many entries.
pub(super) struct Walk<'a> {
    repository: &'a Repository,
    layout: &'a dyn Layout,
    /// How many entries may still be looked at.
    left: usize,
}

impl<'a> Walk<'a> {
    /// One that looks at `most` entries.
    pub(super) fn new(repository: &'a Repository, layout: &'a dyn Layout, most: usize) -> Self {
        Self { repository, layout, left: most }
    }

    /// Takes the files of objects that differ between two trees, in the order of their paths. False when there was too much
    /// to look at, and then some are missing.
    pub(super) fn differing(
        &mut self,
        old: Option<Oid>,
        new: Option<Oid>,
        take: &mut Take<'_>,
    ) -> Result<bool, git2::Error> {
        if old == new { Ok(true) } else { self.folder(&mut String::new(), old, new, take) }
    }

    fn folder(
        &mut self,
        path: &mut String,
        old: Option<Oid>,
        new: Option<Oid>,
        take: &mut Take<'_>,
    ) -> Result<bool, git2::Error> {
        let (Some(before), Some(after)) = (self.read(old)?, self.read(new)?) else { return Ok(false) };
        let Some(left) = self.left.checked_sub(trees::entries(&before).chain(trees::entries(&after)).count()) else {
            self.left = 0;
            return Ok(false);
        };
        self.left = left;
        // Git's order is that of paths if the names of folders end in a slash.
        let mut both: BTreeMap<Vec<u8>, (bool, Option<Oid>, Option<Oid>)> = BTreeMap::new();
        for (name, entry) in trees::entries(&before) {
            both.insert(ordered(name, entry.is_tree), (entry.is_tree, Some(entry.id), None));
        }
        for (name, entry) in trees::entries(&after) {
            both.entry(ordered(name, entry.is_tree)).or_insert((entry.is_tree, None, None)).2 = Some(entry.id);
        }
        both.retain(|_, (_, old, new)| old != new);
        // Not kept while the trees in these are walked.
        drop((before, after));
        let length = path.len();
        for (name, (is_tree, old, new)) in both {
            let Ok(name) = std::str::from_utf8(&name) else { continue };
            path.push_str(name);
            let goes_on = if is_tree {
                !self.leads(path.trim_end_matches('/')) || self.folder(path, old, new, take)?
            } else {
                let plain = fan_out::plain(path.as_str());
                if let Some(id) = new.or(old)
                    && self.layout.key(&plain).is_some()
                {
                    take(path.as_str(), plain, id);
                }
                true
            };
            path.truncate(length);
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether files of objects may be in a folder, which may be there because another is full.
    fn leads(&self, folder: &str) -> bool {
        self.layout.may_have_files(&fan_out::plain(folder))
            || fan_out::full(folder).is_some_and(|full| self.layout.may_have_files(&full))
    }

    /// The bytes of a tree, which are none of one that is not there; nothing when they are too many.
    fn read(&self, tree: Option<Oid>) -> Result<Option<Vec<u8>>, git2::Error> {
        let Some(tree) = tree else { return Ok(Some(Vec::new())) };
        let odb = self.repository.odb()?;
        match odb.read_header(tree) {
            Ok((size, _)) if size > LARGEST_TREE => Ok(None),
            Ok(_) => Ok(Some(odb.read(tree)?.data().to_vec())),
            // The empty tree need not be stored.
            Err(error)
                if error.code() == ErrorCode::NotFound && Ok(tree) == Oid::hash_object(ObjectType::Tree, &[]) =>
            {
                Ok(Some(Vec::new()))
            }
            Err(error) => Err(error),
        }
    }
}

/// A name as it counts in the order of a tree.
fn ordered(name: &[u8], is_tree: bool) -> Vec<u8> {
    let mut name = name.to_vec();
    if is_tree {
        name.push(b'/');
    }
    name
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use stoa_machinery::log::{Key, Record};
    use tempfile::TempDir;

    use super::*;
    use crate::git::{Document, LayoutError, Location, fan_out::FILES};

    /// Everything that ends in `.yaml` is an object's, and no folder is deeper than three.
    #[derive(Debug)]
    struct Shallow;

    impl Layout for Shallow {
        fn key(&self, path: &str) -> Option<Key> {
            path.ends_with(".yaml").then(|| Key::new(format!("/{path}")))
        }

        fn may_have_files(&self, folder: &str) -> bool {
            folder.split('/').count() <= 3
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

    /// A tree with these files and what is in them.
    fn tree(repository: &Repository, files: &[(&str, &str)]) -> Oid {
        let mut index = git2::Index::new().unwrap();
        for (path, content) in files {
            let id = repository.blob(content.as_bytes()).unwrap();
            let time = git2::IndexTime::new(0, 0);
            let entry = git2::IndexEntry {
                ctime: time,
                mtime: time,
                dev: 0,
                ino: 0,
                mode: 0o100_644,
                uid: 0,
                gid: 0,
                file_size: 0,
                id,
                flags: 0,
                flags_extended: 0,
                path: path.as_bytes().to_vec(),
            };
            index.add(&entry).unwrap();
        }
        index.write_tree_to(repository).unwrap()
    }

    /// The files that differ by their plain paths, and whether those are all.
    fn differing(repository: &Repository, old: Option<Oid>, new: Oid, most: usize) -> (Vec<String>, bool) {
        let mut found = Vec::new();
        let mut walk = Walk::new(repository, &Shallow, most);
        let is_all = walk.differing(old, Some(new), &mut |_, plain, _| found.push(plain.into_owned())).unwrap();
        (found, is_all)
    }

    #[test]
    fn files_that_differ_are_found_where_objects_may_have_them() {
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
        assert_eq!(differing(&repository, Some(old), new, 1_000), (found, true));
        assert_eq!(differing(&repository, Some(new), new, 0), (Vec::new(), true));
        let empty = tree(&repository, &[]);
        assert_eq!(differing(&repository, Some(empty), tree(&repository, &[("x.yaml", "")]), 1).0, ["x.yaml"]);
    }

    #[test]
    fn a_few_objects_that_stand_for_many_files_are_not_all_looked_at() {
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
        assert_eq!(differing(&repository, None, item.0, 10_000_000), (Vec::new(), true));
        assert_eq!(differing(&repository, None, item.0, 1_000), (Vec::new(), false));
    }
}
