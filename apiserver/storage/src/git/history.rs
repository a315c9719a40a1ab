//! What the authored objects were at every version: the history that time travel reads.
//!
//! The ref `refs/stoa/history` has one commit with the tree `at`, in which the eight bytes of a version, in hexadecimal,
//! lead to the tree of everything that was authored then: `<group>/<resource>/[<namespace>/]<name>`, each a file with the
//! version of its last change on the first line and the object after it. What does not change is shared between
//! trees, so a version costs what its change does, and finding one costs eight lookups however long the history is.
//! Main cannot serve: files of people are invalid at times, and a push is one commit and many versions.

use std::collections::BTreeMap;

use git2::{ErrorCode, ObjectType, Oid, Repository, Tree};
use stoa_machinery::log::{Entry, Key, Version};

use super::{
    objects::Objects,
    trees::{self, Directory, Item},
};

/// Where it is.
pub(super) const HISTORY: &str = "refs/stoa/history";
/// The tree of versions.
const AT: &str = "at";
const REGISTRY: &str = "/registry/";

/// A change of what was authored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub version: Version,
    pub key: Key,
    /// The object as JSON; `None` when it went.
    pub value: Option<Vec<u8>>,
}

/// The names that lead to a version.
fn names(version: Version) -> [String; 8] {
    version.0.to_be_bytes().map(|byte| format!("{byte:02x}"))
}

fn path(key: &Key) -> Option<Vec<&str>> {
    Some(key.as_str().strip_prefix(REGISTRY)?.split('/').collect())
}

/// Adds steps, in the order of their versions, to the history that ends in `base`, and says what it ends in then. The
/// objects are added to `objects`; `at` has an entry even when no step does.
pub(super) fn append(
    repository: &Repository,
    base: Option<Oid>,
    at: Version,
    steps: &[Step],
    objects: &mut Objects,
) -> Result<Oid, git2::Error> {
    let versions = base.map(|base| versions(repository, base)).transpose()?;
    let newest = match &versions {
        Some(versions) => newest(repository, versions, Version(u64::MAX))?,
        None => None,
    };
    let mut state = newest.map_or_else(|| Ok(Directory::default()), |id| Directory::load(repository, id))?;
    let mut states = BTreeMap::new();
    if newest.is_none() {
        states.insert(at, state.id(objects)?);
    }
    for step in steps {
        let Some(names) = path(&step.key) else { continue };
        let content = step.value.as_ref().map(|value| [format!("{}\n", step.version).as_bytes(), value].concat());
        let file = content.map(|content| objects.add(ObjectType::Blob, &content)).transpose()?;
        state.put(repository, &names, file.map(Item::File), objects)?;
        states.insert(step.version, state.id(objects)?);
    }
    let states: Vec<([String; 8], Oid)> = states.into_iter().map(|(version, state)| (names(version), state)).collect();
    let versions = insert(repository, versions.map(|tree| tree.id()), &states, 0, objects)?;
    let root = objects.add(ObjectType::Tree, &trees::encoded(AT, Item::Tree(versions)))?;
    let who = "Stoa <stoa@users.stoa.dev> 0 +0000";
    let commit = format!("tree {root}\nauthor {who}\ncommitter {who}\n\nwhat was authored at each version\n");
    objects.add(ObjectType::Commit, commit.as_bytes())
}

/// Adds states to the tree of versions, each node of which is written once. The states are in order.
fn insert(
    repository: &Repository,
    node: Option<Oid>,
    states: &[([String; 8], Oid)],
    depth: usize,
    objects: &mut Objects,
) -> Result<Oid, git2::Error> {
    let mut directory = match node {
        Some(node) => Directory::load(repository, node)?,
        None => Directory::default(),
    };
    for group in states.chunk_by(|(a, _), (b, _)| a[depth] == b[depth]) {
        let (names, last) = group.last().expect("a chunk has an item");
        let name = names[depth].as_str();
        let tree = if depth + 1 == names.len() {
            *last
        } else {
            insert(repository, directory.tree(name), group, depth + 1, objects)?
        };
        directory.set(name, Item::Tree(tree));
    }
    objects.add(ObjectType::Tree, directory.raw())
}

/// The steps that make the newest state what `wanted` says, by key.
pub(super) fn difference(
    repository: &Repository,
    base: Option<Oid>,
    at: Version,
    wanted: BTreeMap<Key, Vec<u8>>,
) -> Result<Vec<Step>, git2::Error> {
    let mut there = BTreeMap::new();
    if let Some(base) = base
        && let Some(state) = newest(repository, &versions(repository, base)?, Version(u64::MAX))?
    {
        let everything = Range { prefix: REGISTRY, after: None, max: usize::MAX };
        let mut entries = Vec::new();
        collect(repository, &repository.find_tree(state)?, REGISTRY, everything, &mut entries)?;
        there.extend(entries.into_iter().map(|entry| (entry.key, entry.value)));
    }
    let gone = there.keys().filter(|key| !wanted.contains_key(*key)).cloned().collect::<Vec<_>>();
    let gone = gone.into_iter().map(|key| Step { version: at, key, value: None });
    let changed = wanted.into_iter().filter(|(key, value)| there.get(key).is_none_or(|old| *old != *value));
    let changed = changed.map(|(key, value)| Step { version: at, key, value: Some(value) });
    Ok(gone.chain(changed).collect())
}

fn versions(repository: &Repository, history: Oid) -> Result<Tree<'_>, git2::Error> {
    let root = repository.find_commit(history)?.tree()?;
    let entry = root.get_name(AT).ok_or_else(|| git2::Error::from_str("the history has no versions"))?;
    repository.find_tree(entry.id())
}

/// The state as of a version: the one of the newest version that is not newer.
fn newest(repository: &Repository, versions: &Tree<'_>, at: Version) -> Result<Option<Oid>, git2::Error> {
    /// The newest below a node; with `limit`, none that is past it.
    fn below(
        repository: &Repository,
        node: &Tree<'_>,
        limit: Option<&[String]>,
        depth: usize,
    ) -> Result<Option<Oid>, git2::Error> {
        for entry in node.iter().rev() {
            let name = entry.name().unwrap_or_default();
            let limit = match limit.map(|limit| (name.cmp(limit[0].as_str()), limit)) {
                Some((std::cmp::Ordering::Greater, _)) => continue,
                Some((std::cmp::Ordering::Equal, limit)) => Some(&limit[1..]),
                Some((std::cmp::Ordering::Less, _)) | None => None,
            };
            if depth == 7 {
                return Ok(Some(entry.id()));
            }
            let limit = limit.filter(|limit| !limit.is_empty());
            if let Some(found) = below(repository, &repository.find_tree(entry.id())?, limit, depth + 1)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
    below(repository, versions, Some(&names(at)), 0)
}

/// Which objects of a state are wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range<'a> {
    /// How their keys begin.
    pub prefix: &'a str,
    /// The key that they come after.
    pub after: Option<&'a str>,
    /// How many at most.
    pub max: usize,
}

/// Objects as of a version, in the order of their keys. `None` when the history begins later.
pub(super) fn read(repository: &Repository, at: Version, range: Range<'_>) -> Result<Option<Vec<Entry>>, git2::Error> {
    let history = match repository.refname_to_id(HISTORY) {
        Ok(history) => history,
        Err(error) if error.code() == ErrorCode::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(state) = newest(repository, &versions(repository, history)?, at)? else { return Ok(None) };
    let mut entries = Vec::new();
    collect(repository, &repository.find_tree(state)?, REGISTRY, range, &mut entries)?;
    Ok(Some(entries))
}

fn collect(
    repository: &Repository,
    tree: &Tree<'_>,
    folder: &str,
    range: Range<'_>,
    entries: &mut Vec<Entry>,
) -> Result<(), git2::Error> {
    for item in tree {
        if entries.len() == range.max {
            return Ok(());
        }
        let name = item.name().unwrap_or_default();
        if item.kind() == Some(ObjectType::Tree) {
            let inner = format!("{folder}{name}/");
            let is_wanted = inner.starts_with(range.prefix) || range.prefix.starts_with(&inner);
            let is_over = range.after.is_some_and(|after| !after.starts_with(&inner) && after > inner.as_str());
            if is_wanted && !is_over {
                collect(repository, &repository.find_tree(item.id())?, &inner, range, entries)?;
            }
            continue;
        }
        let key = format!("{folder}{name}");
        if !key.starts_with(range.prefix) || range.after.is_some_and(|after| key.as_str() <= after) {
            continue;
        }
        let blob = repository.find_blob(item.id())?;
        let content = blob.content();
        let entry = content.iter().position(|byte| *byte == b'\n').and_then(|newline| {
            let version = std::str::from_utf8(&content[..newline]).ok()?.parse().ok()?;
            let value = content[newline + 1..].to_vec().into();
            Some(Entry { key: Key::new(key.as_str()), version: Version(version), value })
        });
        entries.push(entry.ok_or_else(|| git2::Error::from_str(&format!("{key} has no version in the history")))?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::git::repository::{ControlRepository, open};

    fn step(version: u64, name: &str, value: Option<&str>) -> Step {
        let key = Key::new(format!("/registry/config.stoa.dev/stacks/{name}"));
        Step { version: Version(version), key, value: value.map(|value| value.as_bytes().to_vec()) }
    }

    fn shown(repository: &Repository, at: u64, prefix: &str, after: Option<&str>, max: usize) -> Option<Vec<String>> {
        let prefix = format!("/registry/config.stoa.dev/stacks/{prefix}");
        let after = after.map(|after| format!("/registry/config.stoa.dev/stacks/{after}"));
        let range = Range { prefix: &prefix, after: after.as_deref(), max };
        let entries = read(repository, Version(at), range).unwrap()?;
        let text = |entry: &Entry| {
            let name = entry.key.as_str().strip_prefix("/registry/config.stoa.dev/stacks/").unwrap();
            format!("{name}@{}={}", entry.version, std::str::from_utf8(&entry.value).unwrap())
        };
        Some(entries.iter().map(text).collect())
    }

    #[test]
    fn every_version_shows_what_was_there() {
        let directory = TempDir::new().unwrap();
        let control = ControlRepository::open(directory.path()).unwrap();
        let steps = [
            step(7, "shop/b", Some("1")),
            step(9, "shop/a", Some("1")),
            step(300, "shop/b", Some("2")),
            step(300, "shop-x/c", Some("1")),
            step(70_000, "shop/b", None),
            step(70_001, "shop/a.b", Some("1")),
        ];
        let mut end = None;
        // In batches, as they come.
        for batch in [&steps[..0], &steps[..3], &steps[3..4], &steps[4..]] {
            end = Some(control.append_history(end, Version(5), batch).unwrap());
        }
        control.set_history(end.unwrap()).unwrap();
        let repository = open(directory.path()).unwrap();
        let all = |at: u64| shown(&repository, at, "", None, 100);
        let list = |items: &[&str]| Some(items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>());
        assert_eq!(all(4), None);
        assert_eq!(all(5), list(&[]));
        assert_eq!(all(8), list(&["shop/b@7=1"]));
        assert_eq!(all(299), list(&["shop/a@9=1", "shop/b@7=1"]));
        // In the order of keys, in which "shop-" comes before "shop/".
        assert_eq!(all(300), list(&["shop-x/c@300=1", "shop/a@9=1", "shop/b@300=2"]));
        assert_eq!(all(70_000), list(&["shop-x/c@300=1", "shop/a@9=1"]));
        assert_eq!(all(u64::MAX), list(&["shop-x/c@300=1", "shop/a@9=1", "shop/a.b@70001=1"]));
        assert_eq!(shown(&repository, 300, "shop/", None, 1), list(&["shop/a@9=1"]));
        assert_eq!(shown(&repository, 300, "shop/", Some("shop/a"), 9), list(&["shop/b@300=2"]));
        assert_eq!(shown(&repository, 300, "", Some("shop-x/c"), 9), list(&["shop/a@9=1", "shop/b@300=2"]));
        assert_eq!(shown(&repository, 300, "shop/b", None, 9), list(&["shop/b@300=2"]));
        // What is there already makes no step.
        let wanted = BTreeMap::from([(steps[1].key.clone(), b"1".to_vec()), (steps[0].key.clone(), b"3".to_vec())]);
        let mut changes = difference(&repository, end, Version(80_000), wanted).unwrap();
        changes.sort_by(|a, b| a.key.cmp(&b.key));
        let names: Vec<(&str, bool)> =
            changes.iter().map(|s| (s.key.as_str().rsplit('/').next().unwrap(), s.value.is_some())).collect();
        assert_eq!(names, [("c", false), ("a.b", false), ("b", true)]);
    }
}
