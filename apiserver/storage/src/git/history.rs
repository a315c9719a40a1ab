//! What the authored objects were at every version: the history that time travel reads.
//!
//! It is a chain of commits, one for each batch, in `refs/stoa/history`. A commit has the tree `at`, in which the eight
//! bytes of a version, in hexadecimal, lead to the tree of everything that was authored then:
//! `<group>/<resource>/[<namespace>/]<name>`, each a file with the version of its last change on the first line and the
//! object after it. What does not change is shared between trees, so a version costs what its change does. The chain
//! grows at its end and is small there, so a remote can have it cheaply; everything in it comes from the log alone, so
//! that two ends which were made of the same records can always be joined.
//!
//! Finding a version takes the versions of all commits in one tree of the same form. That is the index, in
//! `refs/stoa/versions/<id of the log>`: a commit with that tree whose parent is the end of the chain that it covers. It
//! is made from the chain and stays where it is. It has the versions of one log and all of them up to its newest: a repository may
//! have been another log's before, whose versions mean other things.
//!
//! Where the log has lost records before they came here, a version stands for all that nothing is known of: its tree says
//! so, and the next one is known again.
//!
//! Main cannot serve: files of people are invalid at times, and a push is one commit and many versions.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use git2::{ErrorCode, ObjectType, Oid, Repository, Sort, Tree};
use stoa_machinery::log::{Entry, Key, Version};

use super::{
    fan_out::NARROW,
    objects::Objects,
    repository::content,
    trees::{self, Directory, Item},
};

/// Where the chain ends.
pub(super) const HISTORY: &str = "refs/stoa/history";
/// Where the indexes are, each by the id of its log.
const VERSIONS: &str = "refs/stoa/versions";
/// The tree of versions.
const AT: &str = "at";
const REGISTRY: &str = "/registry/";
/// The file that a version has of which nothing is known. Objects are in folders.
const UNKNOWN: &str = "unknown";
/// The path of a folder has no more slashes than a key: `/registry/<group>/<resource>/<namespace>/<name>`.
const DEEPEST: usize = 5;
/// So many commits of the chain are indexed at a time.
const AT_ONCE: usize = 1024;

/// A change of what was authored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub version: Version,
    pub key: Key,
    /// The object as JSON; `None` when it went.
    pub value: Option<Vec<u8>>,
}

/// What is added to a chain at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// The version that it leads to.
    pub at: Version,
    /// In the order of their versions.
    pub steps: Vec<Step>,
    /// The first version that nothing is known of, where the steps do not tell how things came to be what they are `at`
    /// its end.
    pub unknown: Option<Version>,
}

impl Batch {
    /// One with all that led to `at`.
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

/// What a chain ends in after steps were added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Appended {
    pub end: Oid,
    /// The index that covers it, if the one that was there covered all before it.
    pub index: Option<Oid>,
}

/// Adds a batch to the chains that end in `bases`, and joins these. The objects are added to `objects`; where there is no
/// base, and after what is unknown, its end has an entry even when no step does. Steps that are in a chain already change
/// nothing.
///
/// What was read of the trees of the newest state is left in `newest_state`, so that the next batch need not read it again.
pub(super) fn append(
    repository: &Repository,
    log: &str,
    bases: &[Oid],
    batch: &Batch,
    newest_state: &mut Option<Directory>,
    objects: &mut Objects,
) -> Result<Appended, git2::Error> {
    let newest = newest_of(repository, bases)?;
    let mut state = match newest {
        Some((_, id)) => match newest_state.take().filter(|state| state.is(id)) {
            Some(state) => state,
            None => Directory::load(repository, id, NARROW)?,
        },
        None => Directory::new(NARROW),
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
    *newest_state = Some(state);
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
        return Ok(Appended { end: *base, index: None });
    }
    let states: Vec<(Names, Oid)> = states.into_iter().map(|(version, state)| (names(version), state)).collect();
    let batch = insert(repository, None, &states, 0, objects)?;
    let end = commit(batch, bases, objects)?;
    let index = match covered(repository, log)? {
        Some((index, covered)) if bases == [covered] => {
            let all = insert(repository, Some(versions(repository, index)?.id()), &states, 0, objects)?;
            Some(commit(all, &[end], objects)?)
        }
        _ => None,
    };
    Ok(Appended { end, index })
}

fn commit(versions: Oid, parents: &[Oid], objects: &mut Objects) -> Result<Oid, git2::Error> {
    let root = objects.add(ObjectType::Tree, &trees::encoded(AT, Item::Tree(versions)))?;
    let who = "Stoa <stoa@users.stoa.dev> 0 +0000";
    let parents: String = parents.iter().map(|parent| format!("parent {parent}\n")).collect();
    let commit = format!("tree {root}\n{parents}author {who}\ncommitter {who}\n\nwhat was authored at each version\n");
    objects.add(ObjectType::Commit, commit.as_bytes())
}

/// Where the index of a log is.
fn index_of(log: &str) -> String {
    format!("{VERSIONS}/{log}")
}

/// The index of a log, by its id, and the end of the chain that it covers.
pub(super) fn covered(repository: &Repository, log: &str) -> Result<Option<(Oid, Oid)>, git2::Error> {
    match repository.refname_to_id(&index_of(log)) {
        Ok(index) => Ok(Some((index, repository.find_commit(index)?.parent_id(0)?))),
        Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes this the index of a log. Those of logs that the repository had before go.
pub(super) fn set_index(repository: &Repository, log: &str, index: Oid) -> Result<(), git2::Error> {
    let name = index_of(log);
    if repository.find_reference(&name).is_err() {
        let others = repository.references_glob(&format!("{VERSIONS}*"))?.collect::<Result<Vec<_>, _>>()?;
        others.into_iter().try_for_each(|mut other| other.delete())?;
    }
    repository.reference(&name, index, true, "stoa").map(|_| ())
}

/// Brings the index of a log up to `end`; `publish` makes the objects it is given readable.
pub(super) fn index(
    repository: &Repository,
    log: &str,
    end: Oid,
    publish: impl Fn(&Objects) -> Result<(), git2::Error>,
) -> Result<(), git2::Error> {
    let covered = match covered(repository, log)? {
        // A remote that did not take the newest is behind what is here.
        Some((_, covered)) if covered == end || repository.graph_descendant_of(covered, end)? => return Ok(()),
        Some((index, covered)) if repository.graph_descendant_of(end, covered)? => Some((index, covered)),
        // It is of an end that was given up.
        _ => None,
    };
    let mut walk = repository.revwalk()?;
    walk.set_sorting(Sort::TOPOLOGICAL | Sort::REVERSE)?;
    walk.push(end)?;
    let mut all = None;
    if let Some((index, covered)) = covered {
        walk.hide(covered)?;
        all = Some(versions(repository, index)?.id());
    }
    let chain = walk.collect::<Result<Vec<_>, _>>()?;
    // A chain may begin with a commit that has all versions before it, and then that is the index so far.
    let begun = usize::from(all.is_none());
    if let Some(first) = chain.first().filter(|_| all.is_none()) {
        all = Some(versions(repository, *first)?.id());
    }
    for commits in chain[begun.min(chain.len())..].chunks(AT_ONCE) {
        let mut states = BTreeMap::new();
        for commit in commits {
            leaves(repository, versions(repository, *commit)?.id(), &mut Vec::new(), &mut states)?;
        }
        let states: Vec<(Names, Oid)> = states.into_iter().collect();
        let mut objects = Objects::default();
        all = Some(insert(repository, all, &states, 0, &mut objects)?);
        publish(&objects)?;
    }
    let mut objects = Objects::default();
    let all = all.ok_or_else(|| git2::Error::from_str("the history has no beginning"))?;
    let index = commit(all, &[end], &mut objects)?;
    publish(&objects)?;
    set_index(repository, log, index)
}

/// The states in a tree of versions.
fn leaves(
    repository: &Repository,
    node: Oid,
    names: &mut Vec<String>,
    states: &mut BTreeMap<Names, Oid>,
) -> Result<(), git2::Error> {
    for entry in &repository.find_tree(node)? {
        names.push(entry.name().unwrap_or_default().to_owned());
        match Names::try_from(names.clone()) {
            Ok(names) => drop(states.insert(names, entry.id())),
            Err(_) => leaves(repository, entry.id(), names, states)?,
        }
        names.pop();
    }
    Ok(())
}

/// Adds states to the tree of versions, each node of which is written once. The states are in order.
fn insert(
    repository: &Repository,
    node: Option<Oid>,
    states: &[(Names, Oid)],
    depth: usize,
    objects: &mut Objects,
) -> Result<Oid, git2::Error> {
    let mut directory = match node {
        Some(node) => Directory::load(repository, node, NARROW)?,
        None => Directory::new(NARROW),
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

/// The newest state of the chains that end in `bases`, and its version.
fn newest_of(repository: &Repository, bases: &[Oid]) -> Result<Option<(Version, Oid)>, git2::Error> {
    let mut found = None;
    for base in bases {
        found = found.max(newest(repository, &versions(repository, *base)?, Version(u64::MAX))?);
    }
    Ok(found)
}

/// The newest version of the chains that end in `bases`.
pub(super) fn newest_version(repository: &Repository, bases: &[Oid]) -> Result<Option<Version>, git2::Error> {
    Ok(newest_of(repository, bases)?.map(|(version, _)| version))
}

/// What makes the newest state what `wanted` says, by key. What was there in between is unknown, from the newest version
/// of the chains on or from a later one that they are `known` to show everything up to. Where `wanted` has no value it
/// stays as it is.
pub(super) fn difference(
    repository: &Repository,
    bases: &[Oid],
    known: Option<Version>,
    at: Version,
    wanted: BTreeMap<Key, Option<Vec<u8>>>,
) -> Result<Batch, git2::Error> {
    let newest = newest_of(repository, bases)?;
    let there = match newest {
        Some((_, state)) => everything(repository, &repository.find_tree(state)?)?,
        None => BTreeMap::new(),
    };
    let gone = there.keys().filter(|key| !wanted.contains_key(*key)).cloned().collect::<Vec<_>>();
    let gone = gone.into_iter().map(|key| Step { version: at, key, value: None });
    let wanted = wanted.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let changed = wanted.filter(|(key, value)| there.get(key).is_none_or(|old| *old != *value));
    let changed = changed.map(|(key, value)| Step { version: at, key, value: Some(value) });
    let unknown = newest.map(|(version, _)| Version(known.map_or(version, |known| known.max(version)).0 + 1));
    Ok(Batch { unknown: unknown.filter(|unknown| *unknown < at), ..Batch::new(at, gone.chain(changed).collect()) })
}

/// Of the chain that ends here, the keys of what was another at a version than `wanted` says; `None` where nothing is known
/// of that version. Where `wanted` has no value it is as it was.
pub(super) fn changed_since(
    repository: &Repository,
    end: Oid,
    at: Version,
    wanted: &BTreeMap<Key, Option<Vec<u8>>>,
) -> Result<Option<BTreeSet<Key>>, git2::Error> {
    let state = newest(repository, &versions(repository, end)?, at)?.map(|(_, state)| repository.find_tree(state));
    let Some(state) = state.transpose()?.filter(|state| !is_unknown(state)) else { return Ok(None) };
    let there = everything(repository, &state)?;
    let gone = there.keys().filter(|key| !wanted.contains_key(*key));
    let is_another = |(key, value): &(&Key, &Option<Vec<u8>>)| {
        value.as_ref().is_some_and(|value| there.get(*key).is_none_or(|old| *old != *value))
    };
    let changed = wanted.iter().filter(is_another).map(|(key, _)| key);
    Ok(Some(gone.chain(changed).cloned().collect()))
}

/// What a state has, by key.
fn everything(repository: &Repository, state: &Tree<'_>) -> Result<BTreeMap<Key, Bytes>, git2::Error> {
    let mut entries = Vec::new();
    let all = Range { prefix: REGISTRY, after: None, max: usize::MAX };
    collect(repository, state, REGISTRY, all, &mut entries)?;
    Ok(entries.into_iter().map(|entry| (entry.key, entry.value)).collect())
}

/// Whether a state stands for versions that nothing is known of.
fn is_unknown(state: &Tree<'_>) -> bool {
    state.get_name(UNKNOWN).is_some_and(|entry| entry.kind() == Some(ObjectType::Blob))
}

fn versions(repository: &Repository, history: Oid) -> Result<Tree<'_>, git2::Error> {
    let root = repository.find_commit(history)?.tree()?;
    let entry = root.get_name(AT).ok_or_else(|| git2::Error::from_str("the history has no versions"))?;
    repository.find_tree(entry.id())
}

/// The state as of a version, the one of the newest version that is not newer, and that version.
fn newest(repository: &Repository, versions: &Tree<'_>, at: Version) -> Result<Option<(Version, Oid)>, git2::Error> {
    /// The newest below a node; with `limit`, none that is past it.
    fn below(
        repository: &Repository,
        node: &Tree<'_>,
        limit: Option<&[String]>,
        names: &mut Vec<String>,
    ) -> Result<Option<(Version, Oid)>, git2::Error> {
        for entry in node.iter().rev() {
            let name = entry.name().unwrap_or_default();
            let limit = match limit.map(|limit| (name.cmp(limit[0].as_str()), limit)) {
                Some((std::cmp::Ordering::Greater, _)) => continue,
                Some((std::cmp::Ordering::Equal, limit)) => Some(&limit[1..]),
                Some((std::cmp::Ordering::Less, _)) | None => None,
            };
            names.push(name.to_owned());
            if names.len() == 8 {
                return Ok(Some((version(names), entry.id())));
            }
            let limit = limit.filter(|limit| !limit.is_empty());
            if let Some(found) = below(repository, &repository.find_tree(entry.id())?, limit, names)? {
                return Ok(Some(found));
            }
            names.pop();
        }
        Ok(None)
    }
    below(repository, versions, Some(&names(at)), &mut Vec::new())
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

/// The newest version in the index of a log.
pub(super) fn newest_indexed(repository: &Repository, index: Oid) -> Result<Option<Version>, git2::Error> {
    Ok(newest(repository, &versions(repository, index)?, Version(u64::MAX))?.map(|(version, _)| version))
}

/// Objects of a log as of a version, in the order of their keys. `None` when the history begins later, or nothing is known
/// of that version.
pub(super) fn read(
    repository: &Repository,
    log: &str,
    at: Version,
    range: Range<'_>,
) -> Result<Option<Vec<Entry>>, git2::Error> {
    let Some((index, _)) = covered(repository, log)? else { return Ok(None) };
    let Some((_, state)) = newest(repository, &versions(repository, index)?, at)? else { return Ok(None) };
    let state = repository.find_tree(state)?;
    if is_unknown(&state) {
        return Ok(None);
    }
    let mut entries = Vec::new();
    collect(repository, &state, REGISTRY, range, &mut entries)?;
    Ok(Some(entries))
}

fn collect(
    repository: &Repository,
    tree: &Tree<'_>,
    folder: &str,
    range: Range<'_>,
    entries: &mut Vec<Entry>,
) -> Result<(), git2::Error> {
    if folder.matches('/').count() > DEEPEST {
        return Err(git2::Error::from_str("the history has folders that no object is in"));
    }
    for (name, item) in items(repository, tree, 0)? {
        if entries.len() == range.max {
            return Ok(());
        }
        let id = match item {
            Item::File(id) => id,
            Item::Tree(id) => {
                let inner = format!("{folder}{name}/");
                let is_wanted = inner.starts_with(range.prefix) || range.prefix.starts_with(&inner);
                let is_over = range.after.is_some_and(|after| !after.starts_with(&inner) && after > inner.as_str());
                if is_wanted && !is_over {
                    collect(repository, &repository.find_tree(id)?, &inner, range, entries)?;
                }
                continue;
            }
        };
        let key = format!("{folder}{name}");
        if !key.starts_with(range.prefix) || range.after.is_some_and(|after| key.as_str() <= after) {
            continue;
        }
        let content = content(repository, id)?.bytes();
        let entry = content.iter().position(|byte| *byte == b'\n').and_then(|newline| {
            let version = std::str::from_utf8(&content[..newline]).ok()?.parse().ok()?;
            let value = content[newline + 1..].to_vec().into();
            Some(Entry { key: Key::new(key.as_str()), version: Version(version), value })
        });
        entries.push(entry.ok_or_else(|| git2::Error::from_str(&format!("{key} has no version in the history")))?);
    }
    Ok(())
}

/// What is in a folder, in the order of keys, wherever in a full one it is.
fn items(repository: &Repository, tree: &Tree<'_>, depth: usize) -> Result<Vec<(String, Item)>, git2::Error> {
    let mut all = Vec::with_capacity(tree.len());
    let mut is_spread = false;
    for entry in tree {
        let name = entry.name().unwrap_or_default();
        let is_tree = entry.kind() == Some(ObjectType::Tree);
        if is_tree && depth < NARROW.depth && NARROW.is_folder(name) {
            all.extend(items(repository, &repository.find_tree(entry.id())?, depth + 1)?);
            is_spread = true;
        } else {
            all.push((name.to_owned(), if is_tree { Item::Tree(entry.id()) } else { Item::File(entry.id()) }));
        }
    }
    if is_spread {
        all.sort_by_cached_key(|(name, item)| {
            format!("{name}{}", if matches!(item, Item::Tree(_)) { "/" } else { "" })
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::git::{
        repository::{ControlRepository, open},
        trees::encoded,
    };

    const LOG: &str = "one";

    fn step(version: u64, name: &str, value: Option<&str>) -> Step {
        let key = Key::new(format!("/registry/config.stoa.dev/stacks/{name}"));
        Step { version: Version(version), key, value: value.map(|value| value.as_bytes().to_vec()) }
    }

    fn batch(at: u64, steps: &[Step]) -> Batch {
        Batch::new(Version(at), steps.to_vec())
    }

    fn shown(repository: &Repository, at: u64, prefix: &str, after: Option<&str>, max: usize) -> Option<Vec<String>> {
        let prefix = format!("/registry/config.stoa.dev/stacks/{prefix}");
        let after = after.map(|after| format!("/registry/config.stoa.dev/stacks/{after}"));
        let range = Range { prefix: &prefix, after: after.as_deref(), max };
        let entries = read(repository, LOG, Version(at), range).unwrap()?;
        let text = |entry: &Entry| {
            let name = entry.key.as_str().strip_prefix("/registry/config.stoa.dev/stacks/").unwrap();
            format!("{name}@{}={}", entry.version, std::str::from_utf8(&entry.value).unwrap())
        };
        Some(entries.iter().map(text).collect())
    }

    #[test]
    fn every_version_shows_what_was_there() {
        let directory = TempDir::new().unwrap();
        let control = ControlRepository::open(directory.path(), false).unwrap().of_log(LOG);
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
        for steps in [&steps[..0], &steps[..3], &steps[3..4], &steps[4..]] {
            let bases: Vec<Oid> = end.into_iter().collect();
            end = Some(control.append_history(&bases, &batch(5, steps)).unwrap());
        }
        control.set_history(end.unwrap(), None).unwrap();
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
        // What is there already makes no step, and neither does what nobody knows.
        let known = [(steps[1].key.clone(), "1"), (steps[0].key.clone(), "3")];
        let mut wanted: BTreeMap<_, _> = known.map(|(key, value)| (key, Some(value.into()))).into();
        wanted.insert(steps[5].key.clone(), None);
        let mut changes = difference(&repository, &[end.unwrap()], None, Version(80_000), wanted).unwrap().steps;
        changes.sort_by(|a, b| a.key.cmp(&b.key));
        let names: Vec<(&str, bool)> =
            changes.iter().map(|s| (s.key.as_str().rsplit('/').next().unwrap(), s.value.is_some())).collect();
        assert_eq!(names, [("c", false), ("b", true)]);
    }

    #[test]
    fn ends_that_were_made_of_the_same_records_are_joined() {
        let directory = TempDir::new().unwrap();
        let control = ControlRepository::open(directory.path(), false).unwrap().of_log(LOG);
        let steps = [
            step(7, "shop/a", Some("1")),
            step(8, "shop/b", Some("1")),
            step(9, "shop/a", None),
            step(12, "shop/c", Some("1")),
        ];
        let root = control.append_history(&[], &batch(5, &[])).unwrap();
        let one = control.append_history(&[root], &batch(8, &steps[..2])).unwrap();
        let other = control.append_history(&[root], &batch(9, &steps[..3])).unwrap();
        // Whoever goes on begins with records that are in it in part.
        let end = control.append_history(&[one, other], &batch(12, &steps[1..])).unwrap();
        assert!(control.is_behind(one, end).unwrap() && control.is_behind(other, end).unwrap());
        assert_eq!(control.append_history(&[end], &batch(12, &steps[2..3])).unwrap(), end);
        control.set_history(one, None).unwrap();
        control.set_history(end, None).unwrap();
        let repository = open(directory.path()).unwrap();
        let all = |at: u64| shown(&repository, at, "", None, 100).unwrap();
        assert_eq!(all(6), [""; 0]);
        assert_eq!(all(7), ["shop/a@7=1"]);
        assert_eq!(all(8), ["shop/a@7=1", "shop/b@8=1"]);
        assert_eq!(all(11), ["shop/b@8=1"]);
        assert_eq!(all(12), ["shop/b@8=1", "shop/c@12=1"]);
        // The index is the same when it is made at once, elsewhere.
        let indexed = || versions(&repository, covered(&repository, LOG).unwrap().unwrap().0).unwrap().id();
        let before = indexed();
        repository.find_reference(&index_of(LOG)).unwrap().delete().unwrap();
        control.set_history(end, None).unwrap();
        assert_eq!(indexed(), before);
    }

    #[test]
    fn a_chain_that_begins_with_steps_ends_in_them() {
        let directory = TempDir::new().unwrap();
        let control = ControlRepository::open(directory.path(), false).unwrap().of_log(LOG);
        let repository = open(directory.path()).unwrap();
        let all = |at: u64| shown(&repository, at, "", None, 100);
        // The last record of the batch had nothing to do with Git.
        let begin = control.append_history(&[], &batch(9, &[step(7, "shop/a", Some("1"))])).unwrap();
        let end = control.append_history(&[begin], &batch(12, &[step(12, "shop/b", Some("1"))])).unwrap();
        control.set_history(end, None).unwrap();
        assert_eq!(all(6), None);
        assert_eq!(all(7).unwrap(), ["shop/a@7=1"]);
        assert_eq!(all(9).unwrap(), ["shop/a@7=1"]);
        assert_eq!(all(12).unwrap(), ["shop/a@7=1", "shop/b@12=1"]);
    }

    #[test]
    fn what_became_of_things_meanwhile_is_unknown() {
        let directory = TempDir::new().unwrap();
        let control = ControlRepository::open(directory.path(), false).unwrap().of_log(LOG);
        let repository = open(directory.path()).unwrap();
        let all = |at: u64| shown(&repository, at, "", None, 100);
        let now = step(0, "shop/a", Some("2"));
        let wanted = || BTreeMap::from([(now.key.clone(), Some(b"2".to_vec()))]);
        let begin = control.append_history(&[], &batch(7, &[step(7, "shop/a", Some("1"))])).unwrap();
        let until_20 = difference(&repository, &[begin], Some(Version(9)), Version(20), wanted()).unwrap();
        let at_20 = control.append_history(&[begin], &until_20).unwrap();
        // It may have been something else in between, though it is the same now.
        let until_30 = difference(&repository, &[at_20], None, Version(30), wanted()).unwrap();
        assert!(until_30.steps.is_empty() && !until_30.is_empty());
        let at_30 = control.append_history(&[at_20], &until_30).unwrap();
        for until in [30, 31] {
            let nothing = difference(&repository, &[at_30], None, Version(until), wanted()).unwrap();
            assert!(nothing.is_empty(), "nothing is between 30 and {until}");
        }
        let end = control.append_history(&[at_30], &batch(33, &[step(32, "shop/a", None)])).unwrap();
        let check = || {
            for (known, expected) in [(7..=9, "shop/a@7=1"), (20..=20, "shop/a@20=2"), (30..=31, "shop/a@20=2")] {
                for at in known {
                    assert_eq!(all(at).unwrap(), [expected], "at {at}");
                }
            }
            for at in (10..20).chain(21..30) {
                assert_eq!(all(at), None, "at {at}");
            }
            assert_eq!(all(32).unwrap(), [""; 0]);
        };
        control.set_history(end, None).unwrap();
        check();
        // The same where they come one by one.
        repository.find_reference(&index_of(LOG)).unwrap().delete().unwrap();
        for end in [begin, at_20, at_30, end] {
            control.set_history(end, None).unwrap();
        }
        check();
    }

    #[test]
    fn what_changed_since_is_told_where_it_is_known() {
        let directory = TempDir::new().unwrap();
        let control = ControlRepository::open(directory.path(), false).unwrap().of_log(LOG);
        let steps = [step(7, "shop/a", Some("1")), step(7, "shop/b", Some("1")), step(7, "shop/c", Some("1"))];
        let [a, b, c] = steps.each_ref().map(|step| step.key.clone());
        let begin = control.append_history(&[], &batch(7, &steps)).unwrap();
        let wanted = BTreeMap::from([(a.clone(), Some(b"1".to_vec())), (b.clone(), Some(b"2".to_vec()))]);
        let changed = |end, at| control.changed_since(end, Version(at), &wanted).unwrap();
        // Another and gone.
        assert_eq!(changed(begin, 9), Some(BTreeSet::from([b, c])));
        assert_eq!(changed(begin, 6), None, "it begins later");
        let unknown = Batch { unknown: Some(Version(8)), ..batch(20, &[step(20, "shop/a", Some("2"))]) };
        let end = control.append_history(&[begin], &unknown).unwrap();
        assert_eq!(changed(end, 9), None);
        assert!(changed(end, 20).unwrap().contains(&a));
    }

    #[test]
    fn an_index_has_nothing_of_another_chain() {
        let directory = TempDir::new().unwrap();
        let control = ControlRepository::open(directory.path(), false).unwrap().of_log(LOG);
        let repository = open(directory.path()).unwrap();
        let end = |steps: &[Step]| control.append_history(&[], &batch(5, steps)).unwrap();
        // As it was called before it was one log's.
        let (old, new) = (end(&[step(20, "shop/a", Some("1"))]), end(&[step(30, "shop/b", Some("1"))]));
        repository.reference(VERSIONS, old, true, "").unwrap();
        control.set_history(old, None).unwrap();
        assert!(repository.find_reference(VERSIONS).is_err());
        assert_eq!(shown(&repository, 20, "", None, 9).unwrap(), ["shop/a@20=1"]);
        // The old end was given up.
        control.set_history(new, None).unwrap();
        assert_eq!(shown(&repository, 20, "", None, 9).unwrap(), [""; 0]);
        assert_eq!(shown(&repository, 30, "", None, 9).unwrap(), ["shop/b@30=1"]);
        // Another log begins.
        let other = control.of_log("another");
        other.set_history(old, None).unwrap();
        assert_eq!(covered(&repository, LOG).unwrap(), None);
        assert!(
            read(&repository, "another", Version(20), Range { prefix: "", after: None, max: 9 }).unwrap().is_some()
        );
    }

    #[test]
    fn a_tree_that_is_too_deep_is_not_read() {
        let directory = TempDir::new().unwrap();
        ControlRepository::open(directory.path(), false).unwrap();
        let repository = open(directory.path()).unwrap();
        let odb = repository.odb().unwrap();
        let mut item = Item::File(odb.write(ObjectType::Blob, b"7\n1").unwrap());
        let mut read = |name: &str| {
            let tree = odb.write(ObjectType::Tree, &encoded(name, item)).unwrap();
            item = Item::Tree(tree);
            let range = Range { prefix: REGISTRY, after: None, max: 9 };
            collect(&repository, &repository.find_tree(tree).unwrap(), REGISTRY, range, &mut Vec::new())
        };
        for name in ["web", "shop", "stacks", "config.stoa.dev"] {
            read(name).unwrap();
        }
        for _ in 0..2_000 {
            assert!(read("more").is_err());
        }
    }
}
