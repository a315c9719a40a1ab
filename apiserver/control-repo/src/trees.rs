//! Changes files in trees, and touches only the bytes of the changed entries.
//!
//! Start at [`Directory`]. Elsewhere: `fan_out` names the subfolders of full folders.

use std::{cmp::Ordering, collections::BTreeMap, ops::Range};

use git2::{ErrorCode, ObjectType, Oid, Repository};

use super::{
    fan_out::{FILES, Spread},
    objects::{Objects, Splice},
};

const FILE: &str = "100644";
const DIRECTORY: &str = "40000";
const SUBMODULE: &str = "160000";

/// An item of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    File(Oid),
    Tree(Oid),
}

impl Item {
    fn parts(self) -> (&'static str, Oid) {
        match self {
            Self::File(id) => (FILE, id),
            Self::Tree(id) => (DIRECTORY, id),
        }
    }
}

/// A tree as Git stores it, `<mode> <name>\0<id>` after another in the order of names, and the trees in it that were read.
#[derive(Debug)]
pub(super) struct Directory {
    spread: Spread,
    id: Option<Oid>,
    raw: Vec<u8>,
    /// Where each entry begins.
    starts: Vec<usize>,
    children: BTreeMap<String, Directory>,
}

impl Directory {
    /// An empty tree with this spread.
    pub(super) fn new(spread: Spread) -> Self {
        Self { spread, id: None, raw: Vec::new(), starts: Vec::new(), children: BTreeMap::new() }
    }

    pub(super) fn load(repository: &Repository, id: Oid, spread: Spread) -> Result<Self, git2::Error> {
        let raw = repository.odb()?.read(id)?.data().to_vec();
        Ok(Self { id: Some(id), starts: starts(&raw), raw, ..Self::new(spread) })
    }

    /// The id of the tree; an empty one is added to `objects`.
    pub(super) fn id(&self, objects: &mut Objects) -> Result<Oid, git2::Error> {
        match self.id {
            Some(id) if !self.raw.is_empty() => Ok(id),
            _ => objects.add(ObjectType::Tree, &[]),
        }
    }

    /// Whether the tree has this id.
    pub(super) fn is(&self, id: Oid) -> bool {
        self.id == Some(id)
    }

    /// The file at `names`, also in subfolders of full folders.
    pub(super) fn file(&mut self, repository: &Repository, names: &[&str]) -> Result<Option<Oid>, git2::Error> {
        Ok(self.first(repository, names)?.map(|(id, _)| id))
    }

    /// Whether the item at `names` is a submodule: the id of a commit that may be in another repository.
    pub(super) fn is_submodule(&mut self, repository: &Repository, names: &[&str]) -> Result<bool, git2::Error> {
        Ok(self.first(repository, names)?.is_some_and(|(_, is_submodule)| is_submodule))
    }

    fn first(&mut self, repository: &Repository, names: &[&str]) -> Result<Option<(Oid, bool)>, git2::Error> {
        let mut found = Vec::new();
        self.files_from(0, repository, names, 1, &mut found)?;
        Ok(found.pop())
    }

    /// The copies of the file at `names` in a full folder. Only the first counts. Others exist after a person put a file
    /// into the folder itself that was in one of its subfolders.
    pub(super) fn files(&mut self, repository: &Repository, names: &[&str]) -> Result<Vec<Oid>, git2::Error> {
        let mut found = Vec::new();
        self.files_from(0, repository, names, usize::MAX, &mut found)?;
        Ok(found.into_iter().map(|(id, _)| id).collect())
    }

    /// Finds the ids, each with whether it belongs to a submodule.
    fn files_from(
        &mut self,
        depth: usize,
        repository: &Repository,
        names: &[&str],
        most: usize,
        found: &mut Vec<(Oid, bool)>,
    ) -> Result<(), git2::Error> {
        let (name, rest) = names.split_first().expect("a path has a name");
        match self.find(name).map(|(_, entry)| entry) {
            Some(Entry { is_tree: false, id, is_submodule, .. }) if rest.is_empty() => found.push((id, is_submodule)),
            Some(Entry { is_tree: true, .. }) if !rest.is_empty() => {
                self.child(repository, name)?.files_from(0, repository, rest, most, found)?;
            }
            _ => {}
        }
        match self.fan_out(name, depth) {
            Some(folder) if found.len() < most => {
                self.child(repository, &folder)?.files_from(depth + 1, repository, names, most, found)
            }
            _ => Ok(()),
        }
    }

    /// Puts an item at `names`, or removes the one there, and adds changed trees to `objects`.
    ///
    /// In a full folder an existing item stays in its subfolder, and a new one goes where its [`Spread`] says. Copies that
    /// do not count are removed.
    pub(super) fn put(
        &mut self,
        repository: &Repository,
        names: &[&str],
        item: Option<Item>,
        objects: &mut Objects,
    ) -> Result<(), git2::Error> {
        self.put_from(0, repository, names, item, objects)
    }

    fn put_from(
        &mut self,
        depth: usize,
        repository: &Repository,
        names: &[&str],
        item: Option<Item>,
        objects: &mut Objects,
    ) -> Result<(), git2::Error> {
        let (name, rest) = names.split_first().expect("a path has a name");
        if let Some(folder) = self.folder_for(repository, name, depth)? {
            return self.put_into(&folder, depth, repository, names, item, objects);
        }
        // Only people make a second copy of a name.
        if self.spread == FILES
            && self.find(name).is_some()
            && let Some(folder) = self.fan_out(name, depth)
        {
            self.put_into(&folder, depth, repository, names, None, objects)?;
        }
        let new = if rest.is_empty() {
            self.children.remove(*name);
            item.map(Item::parts)
        } else {
            // A missing folder, or a file, has nothing to remove.
            if item.is_none() && self.tree(name).is_none() {
                return Ok(());
            }
            let child = self.child(repository, name)?;
            child.put_from(0, repository, rest, item, objects)?;
            child.as_entry()
        };
        self.set_entry(name, new, objects)
    }

    /// Puts an item into a subfolder of a folder that is or was full.
    fn put_into(
        &mut self,
        folder: &str,
        depth: usize,
        repository: &Repository,
        names: &[&str],
        item: Option<Item>,
        objects: &mut Objects,
    ) -> Result<(), git2::Error> {
        let child = self.child(repository, folder)?;
        child.put_from(depth + 1, repository, names, item, objects)?;
        let new = child.as_entry();
        self.set_entry(folder, new, objects)
    }

    /// The subfolder that has a name, or has to get it.
    fn folder_for(&mut self, repository: &Repository, name: &str, depth: usize) -> Result<Option<String>, git2::Error> {
        if depth == self.spread.depth || self.find(name).is_some() {
            return Ok(None);
        }
        if self.starts.len() >= self.spread.full {
            return Ok(Some(self.spread.folder(name, depth)));
        }
        // The folder was full once.
        match self.fan_out(name, depth) {
            Some(folder) if self.child(repository, &folder)?.holds(repository, name, depth + 1)? => Ok(Some(folder)),
            _ => Ok(None),
        }
    }

    /// Whether a name is in this folder or in one of its subfolders.
    fn holds(&mut self, repository: &Repository, name: &str, depth: usize) -> Result<bool, git2::Error> {
        if self.find(name).is_some() {
            return Ok(true);
        }
        match self.fan_out(name, depth) {
            Some(folder) => self.child(repository, &folder)?.holds(repository, name, depth + 1),
            None => Ok(false),
        }
    }

    /// The subfolder for a name, if it exists.
    fn fan_out(&self, name: &str, depth: usize) -> Option<String> {
        // Most folders have none, and then there is nothing to compute.
        let first = self.place("_", true).unwrap_or_else(|place| place);
        let (next, _) = entry(&self.raw, *self.starts.get(first)?)?;
        if depth == self.spread.depth || !next.starts_with(b"_") {
            return None;
        }
        Some(self.spread.folder(name, depth)).filter(|folder| self.tree(folder).is_some())
    }

    /// The child tree of this name; an empty one where none exists.
    fn child(&mut self, repository: &Repository, name: &str) -> Result<&mut Self, git2::Error> {
        if !self.children.contains_key(name) {
            let child = match self.tree(name) {
                Some(id) => Self::load(repository, id, self.spread)?,
                None => Self::new(self.spread),
            };
            self.children.insert(name.to_owned(), child);
        }
        Ok(self.children.get_mut(name).expect("it was put there"))
    }

    /// The same, and drops the other child trees from memory.
    pub(super) fn only_child(&mut self, repository: &Repository, name: &str) -> Result<&mut Self, git2::Error> {
        self.children.retain(|child, _| child == name);
        self.child(repository, name)
    }

    /// Its entry in its parent, unless it is empty.
    fn as_entry(&self) -> Option<(&'static str, Oid)> {
        self.id.filter(|_| !self.raw.is_empty()).map(|id| (DIRECTORY, id))
    }

    fn set_entry(&mut self, name: &str, new: Option<(&str, Oid)>, objects: &mut Objects) -> Result<(), git2::Error> {
        let Some(splice) = self.splice(name, new) else { return Ok(()) };
        self.id = Some(match self.id {
            Some(base) => objects.add_tree(&self.raw, base, &splice)?,
            None => objects.add(ObjectType::Tree, &self.raw)?,
        });
        Ok(())
    }
}

/// An encoded entry.
pub(super) fn encoded(name: &str, item: Item) -> Vec<u8> {
    let (mode, id) = item.parts();
    let mut entry = format!("{mode} {name}\0").into_bytes();
    entry.extend(id.as_bytes());
    entry
}

/// An entry of a tree: its range and its item.
pub(super) struct Entry {
    start: usize,
    end: usize,
    pub(super) is_tree: bool,
    is_submodule: bool,
    pub(super) id: Oid,
}

impl Entry {
    pub(super) fn range(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// The name and the rest of the entry that begins at `start`; nothing where none does.
fn entry(raw: &[u8], start: usize) -> Option<(&[u8], Entry)> {
    let rest = raw.get(start..)?;
    let space = rest.iter().position(|byte| *byte == b' ')?;
    let zero = space + rest[space..].iter().position(|byte| *byte == 0)?;
    let id = Oid::from_bytes(rest.get(zero + 1..zero + 21)?).ok()?;
    let [is_tree, is_submodule] = [DIRECTORY, SUBMODULE].map(|mode| &rest[..space] == mode.as_bytes());
    Some((&rest[space + 1..zero], Entry { start, end: start + zero + 21, is_tree, is_submodule, id }))
}

/// The entries of a tree with their names.
pub(super) fn entries(raw: &[u8]) -> impl Iterator<Item = (&[u8], Entry)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let next = entry(raw, at)?;
        at = next.1.end;
        Some(next)
    })
}

fn starts(raw: &[u8]) -> Vec<usize> {
    entries(raw).map(|(_, entry)| entry.start).collect()
}

/// Git's order: as if the names of trees ended with a slash.
pub(super) fn order(name: &[u8], is_tree: bool, other: &[u8], other_is_tree: bool) -> Ordering {
    let slash = |is_tree: bool| is_tree.then_some(&b'/');
    name.iter().chain(slash(is_tree)).cmp(other.iter().chain(slash(other_is_tree)))
}

impl Directory {
    /// The bytes of the tree.
    pub(super) fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// The tree of this name in the tree.
    pub(super) fn tree(&self, name: &str) -> Option<Oid> {
        self.find(name).filter(|(_, entry)| entry.is_tree).map(|(_, entry)| entry.id)
    }

    /// Sets an entry of the tree itself, without writing anything.
    pub(super) fn set(&mut self, name: &str, item: Item) {
        self.splice(name, Some(item.parts()));
    }

    /// The index of an entry among the others, or the index where it would be.
    fn place(&self, name: &str, is_tree: bool) -> Result<usize, usize> {
        self.starts.binary_search_by(|start| match entry(&self.raw, *start) {
            Some((other, entry)) => order(other, entry.is_tree, name.as_bytes(), is_tree),
            None => Ordering::Greater,
        })
    }

    /// The entry of that name, a file or a tree, and its index.
    fn find(&self, name: &str) -> Option<(usize, Entry)> {
        let place = [false, true].into_iter().find_map(|is_tree| self.place(name, is_tree).ok())?;
        entry(&self.raw, self.starts[place])
            .filter(|(found, _)| *found == name.as_bytes())
            .map(|(_, entry)| (place, entry))
    }

    /// Sets or removes an entry; returns the change, if any.
    fn splice(&mut self, name: &str, new: Option<(&str, Oid)>) -> Option<Splice> {
        let old = self.find(name);
        let Some((mode, id)) = new else {
            let (place, Entry { start, end, .. }) = old?;
            self.starts.remove(place);
            return Some(self.replace(place, start..end, &[]));
        };
        let is_tree = mode == DIRECTORY;
        // A file that becomes a tree may have another index.
        if old.as_ref().is_some_and(|(_, entry)| entry.is_tree != is_tree) {
            let before = self.raw.len();
            self.splice(name, None);
            self.splice(name, new);
            return Some(Splice { at: 0, removed: before, added: self.raw.len() });
        }
        let mut content = format!("{mode} {name}\0").into_bytes();
        content.extend(id.as_bytes());
        match old {
            Some((_, Entry { start, end, .. })) if self.raw[start..end] == content => None,
            Some((place, Entry { start, end, .. })) => Some(self.replace(place + 1, start..end, &content)),
            None => {
                let place = self.place(name, is_tree).unwrap_or_else(|place| place);
                let at = self.starts.get(place).copied().unwrap_or(self.raw.len());
                self.starts.insert(place, at);
                Some(self.replace(place + 1, at..at, &content))
            }
        }
    }

    /// Replaces a range of bytes before the entries from `next` on.
    fn replace(&mut self, next: usize, range: Range<usize>, content: &[u8]) -> Splice {
        let splice = Splice { at: range.start, removed: range.len(), added: content.len() };
        for start in &mut self.starts[next..] {
            *start = *start - splice.removed + splice.added;
        }
        self.raw.splice(range, content.iter().copied());
        splice
    }
}

/// The tree of a commit; an empty one without a commit.
pub(super) fn tree_of(repository: &Repository, commit: Option<Oid>) -> Result<Directory, git2::Error> {
    match commit {
        None => Ok(Directory::new(FILES)),
        Some(commit) => {
            let id = repository.find_commit(commit)?.tree_id();
            match Directory::load(repository, id, FILES) {
                // The empty tree need not be stored.
                Err(error)
                    if error.code() == ErrorCode::NotFound && Ok(id) == Oid::hash_object(ObjectType::Tree, &[]) =>
                {
                    Ok(Directory::new(FILES))
                }
                loaded => loaded,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;
    use crate::fan_out::NARROW;

    fn path() -> impl Strategy<Value = String> {
        proptest::collection::vec("[ab]([-./0a]{0,1})[ab]", 1..3)
            .prop_map(|names| names.join("/"))
            .prop_filter("no empty name", |path| {
                path.split('/').all(|name| !name.is_empty() && name != "." && name != "..")
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever is put and removed, the tree is the one libgit2 makes of the same files.
        #[test]
        fn trees_are_as_git_has_them(changes in proptest::collection::vec((path(), any::<bool>()), 1..24)) {
            let directory = TempDir::new().unwrap();
            let repository = Repository::init_bare(directory.path()).unwrap();
            let blob = repository.blob(b"x").unwrap();
            let (mut tree, mut objects) = (Directory::new(NARROW), Objects::default());
            let mut files: Vec<String> = Vec::new();
            for (path, present) in changes {
                // A file takes the place of a folder, and a folder that of a file.
                files.retain(|file| {
                    *file != path && !(present && (file.starts_with(&format!("{path}/")) || path.starts_with(&format!("{file}/"))))
                });
                let names: Vec<&str> = path.split('/').collect();
                tree.put(&repository, &names, present.then_some(Item::File(blob)), &mut objects).unwrap();
                if present {
                    files.push(path);
                } else {
                    files.retain(|file| !file.starts_with(&format!("{path}/")));
                }
            }
            let mut index = git2::Index::new().unwrap();
            for file in &files {
                let entry = git2::IndexEntry {
                    ctime: git2::IndexTime::new(0, 0), mtime: git2::IndexTime::new(0, 0), dev: 0, ino: 0, mode: 0o100_644,
                    uid: 0, gid: 0, file_size: 1, id: blob, flags: 0, flags_extended: 0, path: file.clone().into_bytes(),
                };
                index.add(&entry).unwrap();
            }
            let expected = index.write_tree_to(&repository).unwrap();
            prop_assert_eq!(tree.id(&mut objects).unwrap(), expected, "{:?}", files);
            prop_assert_eq!(starts(&tree.raw), tree.starts);
        }
    }
    /// How many entries the largest folder has.
    fn largest(tree: &Directory) -> usize {
        tree.children.values().map(largest).chain([tree.starts.len()]).max().unwrap()
    }

    #[test]
    fn no_folder_grows_without_end_and_everything_is_found() {
        for (spread, most) in [(FILES, 256 + 256), (NARROW, 32 + 16)] {
            let directory = TempDir::new().unwrap();
            let repository = Repository::init_bare(directory.path()).unwrap();
            let blob = repository.blob(b"x").unwrap();
            let (mut tree, mut objects) = (Directory::new(spread), Objects::default());
            // Files and, so that they are folders, what is in them.
            let paths: Vec<String> =
                (0..600).flat_map(|i| [format!("a/file-{i}.yaml"), format!("b/{i}/c/d.yaml")]).collect();
            let names = |path: &str| path.split('/').map(str::to_owned).collect::<Vec<_>>();
            let put = |tree: &mut Directory, objects: &mut Objects, path: &str, item| {
                let names = names(path);
                tree.put(&repository, &names.iter().map(String::as_str).collect::<Vec<_>>(), item, objects).unwrap();
            };
            let file = |tree: &mut Directory, path: &str| {
                let names = names(path);
                tree.file(&repository, &names.iter().map(String::as_str).collect::<Vec<_>>()).unwrap()
            };
            for path in &paths {
                assert_eq!(file(&mut tree, path), None);
                put(&mut tree, &mut objects, path, Some(Item::File(blob)));
            }
            assert!((spread.full + 1..=most).contains(&largest(&tree)), "{}", largest(&tree));
            assert!(paths.iter().all(|path| file(&mut tree, path) == Some(blob)));
            // Changed or gone where they are, once the folder is no longer full, too.
            let other = repository.blob(b"y").unwrap();
            for path in paths.iter().take(600) {
                put(&mut tree, &mut objects, path, None);
                assert_eq!(file(&mut tree, path), None);
            }
            for path in paths.iter().skip(600) {
                put(&mut tree, &mut objects, path, Some(Item::File(other)));
            }
            assert!(paths.iter().skip(600).all(|path| file(&mut tree, path) == Some(other)));
            for path in paths.iter().skip(600) {
                put(&mut tree, &mut objects, path, None);
            }
            assert!(tree.raw().is_empty());
        }
    }
}
