//! New objects, and the pack that is written of them.
//!
//! A batch of commits changes a few entries of trees that may have thousands. So each tree after the first is written as its
//! difference from the tree before, which is known without a search.
//!
//! Start at [`Objects`]. Elsewhere: `packs` publishes the pack.

use std::{collections::HashMap, io, path::Path};

use git2::{ObjectType, Oid};

use super::{
    delta::Delta,
    pack_file::{PackFile, REF_DELTA, entry, sha1},
    packs::failed,
};

/// Objects that are not in the repository yet.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// Encoded entries of the pack, in the order they were made.
    entries: Vec<Vec<u8>>,
    /// The number of the entry of an object.
    places: HashMap<Oid, usize>,
}

impl Objects {
    /// Adds an object, unless it exists, and returns its id.
    pub(super) fn add(&mut self, kind: ObjectType, content: &[u8]) -> Result<Oid, git2::Error> {
        let id = if kind == ObjectType::Tree { tree_id(content)? } else { Oid::hash_object(kind, content)? };
        if !self.places.contains_key(&id) {
            self.insert(id, whole(kind, content).map_err(failed)?);
        }
        Ok(id)
    }

    /// Adds a tree as its difference from `base`, an added tree, in which `splice` replaced some bytes.
    pub(super) fn add_tree(&mut self, content: &[u8], base: Oid, splice: &Splice) -> Result<Oid, git2::Error> {
        if !self.places.contains_key(&base) {
            return self.add(ObjectType::Tree, content);
        }
        let id = tree_id(content)?;
        if !self.places.contains_key(&id) {
            let Some(delta) = splice.delta(content) else { return self.add(ObjectType::Tree, content) };
            self.insert(id, entry(REF_DELTA, base.as_bytes(), &delta).map_err(failed)?);
        }
        Ok(id)
    }

    fn insert(&mut self, id: Oid, entry: Vec<u8>) {
        self.places.insert(id, self.entries.len());
        self.entries.push(entry);
    }

    /// Whether there are no objects.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Writes them into `directory` as a pack and its index, both synced, and returns their name
    /// without suffix.
    pub(super) fn write(&self, directory: &Path) -> Result<String, git2::Error> {
        let write = || {
            let mut pack = PackFile::create(directory, self.entries.len())?;
            let mut ids = vec![Oid::ZERO_SHA1; self.entries.len()];
            self.places.iter().for_each(|(id, place)| ids[*place] = *id);
            for (id, entry) in ids.into_iter().zip(&self.entries) {
                pack.add(id, entry)?;
            }
            pack.finish()
        };
        write().map_err(failed)
    }
}

/// The entry of a whole object.
pub(super) fn whole(kind: ObjectType, content: &[u8]) -> io::Result<Vec<u8>> {
    let kind = match kind {
        ObjectType::Commit => 1,
        ObjectType::Tree => 2,
        ObjectType::Tag => 4,
        _ => 3,
    };
    entry(kind, &[], content)
}

/// The id of a tree. Trees of large folders are most of the hashed bytes, so there is no check for attempts at a collision,
/// which libgit2 makes: names and checked ids leave no room for one.
fn tree_id(content: &[u8]) -> Result<Oid, git2::Error> {
    sha1(&[format!("tree {}\0", content.len()).as_bytes(), content]).map_err(failed)
}

/// A replaced range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Splice {
    /// The start of the range.
    pub at: usize,
    /// The length before.
    pub removed: usize,
    /// The length after.
    pub added: usize,
}

impl Splice {
    /// Instructions that make `after` from the bytes before: copy, insert, copy.
    fn delta(&self, after: &[u8]) -> Option<Vec<u8>> {
        let before = after.len() - self.added + self.removed;
        let mut delta = Delta::new(before, after.len());
        delta.copy(0, self.at);
        delta.insert(&after[self.at..self.at + self.added]);
        delta.copy(self.at + self.removed, before);
        delta.finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::delta::follow;

    proptest! {
        #[test]
        fn a_delta_makes_the_one_from_the_other(
            length in 0_usize..200_000, at: prop::sample::Index, end: prop::sample::Index, new in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let base: Vec<u8> = (0..length).map(|n| (n * 31 % 251) as u8).collect();
            let (at, end) = (at.index(length + 1), end.index(length + 1));
            let (at, end) = (at.min(end), at.max(end));
            let after = [&base[..at], &new, &base[end..]].concat();
            let splice = Splice { at, removed: end - at, added: new.len() };
            if let Some(delta) = splice.delta(&after) {
                prop_assert_eq!(follow(&base, &delta), after);
            }
        }
    }
}
