//! The authored objects at every version: the history that time travel reads.
//!
//! The history is a chain of commits, one for each batch, in `refs/stoa/history`. Each commit has the tree `at`. The eight bytes
//! of a version, in hexadecimal, lead there to the tree of all authored objects at that version:
//! `<group>/<resource>/[<namespace>/]<name>`, each a file with the version of its last change on the first line and the object
//! after it. Trees share unchanged files, so a version costs as much as its change. The chain is small at its end, so a push to a
//! remote is cheap. Everything in it comes from the log alone, so two ends that were made of the same records can be joined.
//!
//! A lookup of a version needs the versions of all commits in one tree of the same form. That is the index, in
//! `refs/stoa/versions/<id of the log>`: a commit with that tree whose parent is the end of the chain that it covers. It is made
//! from the chain and is never pushed. It has the versions of one log, all of them up to its newest: a repository may have been
//! another log's before, whose versions mean other things.
//!
//! Where the log lost records before they came here, one version stands for the unknown ones. Its tree says so, and the next
//! version is known again.
//!
//! Main cannot serve as the history: files of people are invalid at times, and a push is one commit and many versions.
//!
//! Start at [`append`]. Elsewhere: `index` makes the index, `read` reads versions, and `compare` compares the end of the chain with
//! another state of the objects.

mod compare;
mod index;
mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use git2::{ObjectType, Oid, Repository, Tree};
use stoa_machinery::log::{Key, Version};

use self::read::newest_of;
pub(super) use self::{
    compare::{changed_since, difference},
    index::{covered, index, newest_indexed, set_index},
    read::{Range, newest_version, read},
};
use super::{
    fan_out::NARROW,
    objects::Objects,
    trees::{self, Directory, Item},
};

/// Where the chain ends.
pub(super) const HISTORY: &str = "refs/stoa/history";
/// The tree of versions.
const AT: &str = "at";
const REGISTRY: &str = "/registry/";
/// The file that marks an unknown version. Objects are in folders.
const UNKNOWN: &str = "unknown";

/// A change of an authored object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub version: Version,
    pub key: Key,
    /// The object as JSON; `None` when it was deleted.
    pub value: Option<Vec<u8>>,
}

/// The additions of one commit to a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// The version of its end.
    pub at: Version,
    /// In the order of their versions.
    pub steps: Vec<Step>,
    /// The first unknown version, where the steps do not say how the state `at` its end came about.
    pub unknown: Option<Version>,
}

impl Batch {
    /// A batch with all steps up to `at`.
    pub(super) fn new(at: Version, steps: Vec<Step>) -> Self {
        Self { at, steps, unknown: None }
    }

    /// Whether it changes nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.unknown.is_none()
    }
}

/// The names that lead to a version.
type Names = [String; 8];

fn names(version: Version) -> Names {
    version.0.to_be_bytes().map(|byte| format!("{byte:02x}"))
}

fn version(names: &[String]) -> Version {
    Version(names.iter().fold(0, |version, name| version << 8 | u64::from_str_radix(name, 16).unwrap_or_default()))
}

fn path(key: &Key) -> Option<Vec<&str>> {
    Some(key.as_str().strip_prefix(REGISTRY)?.split('/').collect())
}

/// The end of a chain after an addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Appended {
    pub end: Oid,
    /// The index that covers the end, if the index before covered the rest.
    pub index: Option<Oid>,
}

/// The end of a chain in memory, so that the next addition does not read it.
#[derive(Debug)]
pub(super) struct Newest {
    end: Oid,
    /// The newest version and its state.
    newest: (Version, Oid),
    /// The trees of that state that are in memory.
    state: Directory,
    /// The trees of the index from its root to the newest version.
    index: Option<Directory>,
}

/// Adds a batch to the chains that end in `bases`, and joins them. Its objects are added to `objects`. Steps that are in a
/// chain already change nothing. Without a base, and after an unknown version, the end has an entry even without a step.
///
/// `known` gets the new end, and gives the old one if it is the end of `bases`.
pub(super) fn append(
    repository: &Repository,
    log: &str,
    bases: &[Oid],
    batch: &Batch,
    known: &mut Option<Newest>,
    objects: &mut Objects,
) -> Result<Appended, git2::Error> {
    let (newest, mut state, mut index) = match known.take().filter(|known| bases == [known.end]) {
        Some(Newest { newest, state, index, .. }) => (Some(newest), state, index),
        None => {
            let newest = newest_of(repository, bases)?;
            let state = match newest {
                Some((_, id)) => Directory::load(repository, id, NARROW)?,
                None => Directory::new(NARROW),
            };
            (newest, state, None)
        }
    };
    let mut states = BTreeMap::new();
    if let Some((version, id)) = newest.filter(|_| bases.len() > 1) {
        states.insert(version, id);
    }
    let is_new = |step: &&Step| newest.is_none_or(|(newest, _)| step.version >= newest);
    for step in batch.steps.iter().filter(is_new) {
        let Some(names) = path(&step.key) else { continue };
        let content = step.value.as_ref().map(|value| [format!("{}\n", step.version).as_bytes(), value].concat());
        let file = content.map(|content| objects.add(ObjectType::Blob, &content)).transpose()?;
        state.put(repository, &names, file.map(Item::File), objects)?;
        states.insert(step.version, state.id(objects)?);
    }
    if newest.is_none() || batch.unknown.is_some() {
        let last = match states.range(..=batch.at).next_back() {
            Some((_, state)) => *state,
            None => newest.map_or_else(|| Directory::new(NARROW).id(objects), |(_, state)| Ok(state))?,
        };
        states.insert(batch.at, last);
    }
    if let Some(version) = batch.unknown {
        let nothing = objects.add(ObjectType::Blob, &[])?;
        let unknown = objects.add(ObjectType::Tree, &trees::encoded(UNKNOWN, Item::File(nothing)))?;
        states.insert(version, unknown);
    }
    if let ([base], true) = (bases, states.is_empty()) {
        *known = newest.map(|newest| Newest { end: *base, newest, state, index });
        return Ok(Appended { end: *base, index: None });
    }
    let newest = states.last_key_value().map(|(version, state)| (*version, *state));
    let states: Vec<(Names, Oid)> = states.into_iter().map(|(version, state)| (names(version), state)).collect();
    let batch = insert(repository, &mut Directory::new(NARROW), &states, 0, objects)?;
    let end = commit(batch, bases, objects)?;
    if index.is_none()
        && let Some((covering, covered)) = covered(repository, log)?
        && bases == [covered]
    {
        index = Some(Directory::load(repository, versions(repository, covering)?.id(), NARROW)?);
    }
    let all = index.as_mut().map(|index| insert(repository, index, &states, 0, objects)).transpose()?;
    let covering = all.map(|all| commit(all, &[end], objects)).transpose()?;
    *known = newest.filter(|(_, id)| state.is(*id)).map(|newest| Newest { end, newest, state, index });
    Ok(Appended { end, index: covering })
}

fn commit(versions: Oid, parents: &[Oid], objects: &mut Objects) -> Result<Oid, git2::Error> {
    let root = objects.add(ObjectType::Tree, &trees::encoded(AT, Item::Tree(versions)))?;
    let who = "Stoa <stoa@users.stoa.dev> 0 +0000";
    let parents: String = parents.iter().map(|parent| format!("parent {parent}\n")).collect();
    let commit = format!("tree {root}\n{parents}author {who}\ncommitter {who}\n\nwhat was authored at each version\n");
    objects.add(ObjectType::Commit, commit.as_bytes())
}

/// Adds states, in their order, to a tree of versions and writes each node once. It returns the trees from the root to the
/// last state.
fn insert(
    repository: &Repository,
    tree: &mut Directory,
    states: &[(Names, Oid)],
    depth: usize,
    objects: &mut Objects,
) -> Result<Oid, git2::Error> {
    for group in states.chunk_by(|(a, _), (b, _)| a[depth] == b[depth]) {
        let (names, last) = group.last().expect("a chunk has an item");
        let name = names[depth].as_str();
        let id = if depth + 1 == names.len() {
            *last
        } else {
            insert(repository, tree.only_child(repository, name)?, group, depth + 1, objects)?
        };
        tree.set(name, Item::Tree(id));
    }
    objects.add(ObjectType::Tree, tree.raw())
}

fn versions(repository: &Repository, history: Oid) -> Result<Tree<'_>, git2::Error> {
    let root = repository.find_commit(history)?.tree()?;
    let entry = root.get_name(AT).ok_or_else(|| git2::Error::from_str("the history has no versions"))?;
    repository.find_tree(entry.id())
}
